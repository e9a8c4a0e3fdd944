package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"ibnetworkd/cmd/ibnetctl/answer"
	"ibnetworkd/internal/kernel/sysfs"
	"ibnetworkd/link"
)

// statistics reads the counters of links and ports.
func statistics(f sysfs.FS, links []link.Status, ports []link.PortStatus) []answer.Statistics {
	out := []answer.Statistics{}
	counters := func(m map[string]uint64) []answer.Counter {
		cs := []answer.Counter{}
		for _, n := range slices.Sorted(maps.Keys(m)) {
			cs = append(cs, answer.Counter{Name: n, Value: m[n]})
		}
		return cs
	}
	for _, p := range ports {
		out = append(out, answer.Statistics{IBDevice: p.IBDevice, Port: p.Port, Counters: counters(f.PortCounters(p.IBDevice, p.Port))})
	}
	for _, l := range links {
		out = append(out, answer.Statistics{Link: l.Name, Counters: counters(f.LinkCounters(l.Name))})
	}
	return out
}

// The counters with columns of their own: of links as rtnl_link_stats64 names them, of
// ports as ib_core does, which counts data in words of 4 bytes.
var traffic = []struct {
	link, port string
	words      uint64
}{
	{"rx_packets", "port_rcv_packets", 1}, {"rx_bytes", "port_rcv_data", 4},
	{"tx_packets", "port_xmit_packets", 1}, {"tx_bytes", "port_xmit_data", 4},
}

// statisticsTable prints what was counted, of the rest only what is not 0.
func (a *app) statisticsTable(stats []answer.Statistics) {
	var rows [][]cell
	for _, s := range stats {
		name := s.Link
		if name == "" {
			name = fmt.Sprintf("%s/%d", s.IBDevice, s.Port)
		}
		row := []cell{{name, bold}}
		own := map[string]bool{}
		for _, t := range traffic {
			n, words := t.link, uint64(1)
			if s.Link == "" {
				n, words = t.port, t.words
			}
			own[n] = true
			text := "-"
			if i := slices.IndexFunc(s.Counters, func(c answer.Counter) bool { return c.Name == n }); i >= 0 {
				text = fmt.Sprint(s.Counters[i].Value * words)
			}
			row = append(row, cell{text, ""})
		}
		var rest []string
		for _, c := range s.Counters {
			if !own[c.Name] && c.Value != 0 {
				rest = append(rest, fmt.Sprintf("%s %d", c.Name, c.Value))
			}
		}
		text := strings.Join(rest, ", ")
		if len(s.Counters) == 0 {
			text = "no counters"
		}
		rows = append(rows, append(row, cell{text, ""}))
	}
	a.table("", []string{"NAME", "RX PACKETS", "RX BYTES", "TX PACKETS", "TX BYTES", "OTHER NON-ZERO COUNTERS"}, rows)
}
