package main

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"ibnetworkd/cmd/ibnetctl/answer"
	"ibnetworkd/daemon/bus/api"
	"ibnetworkd/internal/kernel/sysfs"
	"ibnetworkd/link"
)

// stats prints the counters of the links and ports that status lists, or of the named ones.
func (a *app) stats(f sysfs.FS, d *api.Description, args []string) error {
	links, ports, missing, found := ours(d.Links), d.Ports, error(nil), elsewhere(ours(d.Links), "*")
	if len(args) > 0 {
		rest, there := apart(d, args)
		if found = there; len(rest) > 0 {
			links, ports, missing = pickBoth(d, rest)
		} else {
			links, ports = nil, nil
		}
	}
	s := append(statistics(f, links, ports), notCounted(found)...)
	switch {
	case len(s) == 0 && missing != nil:
		return missing
	case a.json:
		return cmp.Or(a.emit(answer.Counted{Schema: answer.Schema, Statistics: s}), missing)
	case len(s) == 0:
		fmt.Fprintln(a.out, "No RDMA port on this host. For the reason: ibnetctl diagnose")
	default:
		a.statisticsTable(s)
	}
	return missing
}

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
			text = cmp.Or(s.NotChecked, "no counters")
		}
		rows = append(rows, append(row, cell{text, ""}))
	}
	a.table("", []string{"NAME", "RX PACKETS", "RX BYTES", "TX PACKETS", "TX BYTES", "OTHER NON-ZERO COUNTERS"}, rows)
}
