// Package dump writes forwarding tables and LIDs in the formats of opensm's dump
// files, for the programs that read those.
//
// It owns the formats and nothing else: a fabric and its tables go in, text comes
// out, switches and ports in the order of their GUIDs.
package dump

import (
	"bufio"
	"fmt"
	"io"

	"ibnetworkd/ib"
	"ibnetworkd/sm/fabric"
	"ibnetworkd/sm/mcast"
	"ibnetworkd/sm/route"
)

// nodeType is opensm's name for a type of node.
func nodeType(t ib.NodeType) string {
	switch t {
	case ib.NodeCA:
		return "Channel Adapter"
	case ib.NodeSwitch:
		return "Switch"
	case ib.NodeRouter:
		return "Router"
	}
	return "unknown"
}

// top is the highest LID in use.
func top(f *fabric.Fabric) int { return len(f.LIDs()) - 1 }

// row is the table of a switch, nil where it is not known.
func row(lft [][]uint8, sw int) []uint8 {
	if sw < len(lft) {
		return lft[sw]
	}
	return nil
}

// LFTs writes the forwarding tables as opensm-lfts.dump, which opensm reads again
// with -R file -U FILE. A switch whose table is not known is left out.
func LFTs(to io.Writer, f *fabric.Fabric, lft [][]uint8) error {
	w := bufio.NewWriter(to)
	owner := f.LIDs()
	for s := range f.Switches {
		r := row(lft, s)
		if r == nil {
			continue
		}
		n := &f.Nodes[f.Switches[s].Node]
		fmt.Fprintf(w, "Unicast lids [0-%d] of switch Lid %d guid 0x%016x ('%s'):\n", top(f),
			f.Ports[f.Port(f.Switches[s].Node, 0)].LID, uint64(n.GUID), n.Desc)
		for l, p := range r[:min(len(r), top(f)+1)] {
			if p > n.NumPorts {
				continue
			}
			fmt.Fprintf(w, "0x%04x %03d # ", l, p)
			if owner[l] == fabric.None {
				fmt.Fprintln(w, "unknown node and type")
				continue
			}
			q := &f.Ports[owner[l]]
			m := &f.Nodes[q.Node]
			fmt.Fprintf(w, "%s portguid 0x%016x: '%s'\n", nodeType(m.Type), uint64(q.GUID), m.Desc)
		}
		fmt.Fprintf(w, "%d lids dumped\n", top(f))
	}
	return w.Flush()
}

// FDBs writes the forwarding tables as opensm.fdbs, with the hops to each LID and
// whether there is a shorter way.
func FDBs(to io.Writer, f *fabric.Fabric, lft [][]uint8) error {
	w := bufio.NewWriter(to)
	owner := f.LIDs()
	d := distances(f)
	for s := range f.Switches {
		r := row(lft, s)
		if r == nil {
			continue
		}
		node := f.Switches[s].Node
		fmt.Fprintf(w, "dump_ucast_routes: Switch 0x%016x\nLID    : Port : Hops : Optimal\n", uint64(f.Nodes[node].GUID))
		for l := 1; l < len(owner); l++ {
			fmt.Fprintf(w, "0x%04X : ", l)
			end := fabric.None
			if owner[l] != fabric.None && l < len(r) && r[l] != route.NoPort {
				end, _ = f.SwitchOf(owner[l])
			}
			if end == fabric.None {
				fmt.Fprintln(w, "UNREACHABLE")
				continue
			}
			last := 0 // the link from the switch to its host
			if f.Ports[owner[l]].Num != 0 {
				last = 1
			}
			hops, best := d.via(int32(s), r[l], end), int(d.hops[s][end])
			fmt.Fprintf(w, "%03d  : %02d   : ", r[l], hops+last)
			if hops == best {
				fmt.Fprintln(w, "yes")
			} else {
				fmt.Fprintf(w, "No %d hop path possible via port %d!\n", best+last, d.better(int32(s), end, best))
			}
		}
	}
	return w.Flush()
}

// noWay is opensm's number of hops where there is none.
const noWay = 255

// hopTable has the hops between all switches.
type hopTable struct {
	f    *fabric.Fabric
	hops [][]uint8
}

func distances(f *fabric.Fabric) *hopTable {
	d := &hopTable{f: f, hops: make([][]uint8, len(f.Switches))}
	var queue []int32
	for s := range f.Switches {
		row := make([]uint8, len(f.Switches))
		for i := range row {
			row[i] = noWay
		}
		row[s] = 0
		queue = append(queue[:0], int32(s))
		for i := 0; i < len(queue); i++ {
			first, n := f.PortRange(f.Switches[queue[i]].Node)
			for p := first; p < first+n; p++ {
				if t := d.beyond(p); t != fabric.None && row[t] == noWay && row[queue[i]] < noWay-1 {
					row[t] = row[queue[i]] + 1
					queue = append(queue, t)
				}
			}
		}
		d.hops[s] = row
	}
	return d
}

// beyond is the switch at the other end of a port's link, None for none.
func (d *hopTable) beyond(port int32) int32 {
	if port == fabric.None || d.f.Ports[port].Peer == fabric.None {
		return fabric.None
	}
	return d.f.Nodes[d.f.Ports[d.f.Ports[port].Peer].Node].Switch
}

// via is the number of hops between switches that a port leads to another in.
func (d *hopTable) via(s int32, num uint8, end int32) int {
	if s == end {
		return 0
	}
	t := d.beyond(d.f.Port(d.f.Switches[s].Node, num))
	if t == fabric.None || d.hops[t][end] == noWay {
		return noWay
	}
	return int(d.hops[t][end]) + 1
}

// better is the first port that leads to a switch in so many hops.
func (d *hopTable) better(s, end int32, hops int) uint8 {
	for num := uint8(1); num <= d.f.Nodes[d.f.Switches[s].Node].NumPorts; num++ {
		if d.via(s, num, end) == hops {
			return num
		}
	}
	return 0
}

// MFTs writes the multicast tables as opensm.mcfdbs. A switch without a group is
// left out.
func MFTs(to io.Writer, f *fabric.Fabric, t mcast.Tables) error {
	w := bufio.NewWriter(to)
	for s := range f.Switches {
		if s >= len(t) {
			break
		}
		first := true
		for _, e := range t[s] {
			if e.Ports.IsEmpty() {
				continue
			}
			if first {
				fmt.Fprintf(w, "\nSwitch 0x%016x\nLID    : Out Port(s)\n", uint64(f.Nodes[f.Switches[s].Node].GUID))
				first = false
			}
			fmt.Fprintf(w, "0x%04X :", uint16(e.MLID))
			for p := range 256 {
				if e.Ports.Has(uint8(p)) {
					fmt.Fprintf(w, " 0x%03X ", p)
				}
			}
			fmt.Fprintln(w)
		}
	}
	return w.Flush()
}

// GUID2LID writes the LIDs as the file guid2lid that opensm keeps and reads when it
// starts.
func GUID2LID(to io.Writer, f *fabric.Fabric) error {
	w := bufio.NewWriter(to)
	for _, e := range f.EndPorts {
		if p := &f.Ports[e]; p.LID.IsUnicast() {
			fmt.Fprintf(w, "0x%016x 0x%04x 0x%04x\n\n", uint64(p.GUID), uint16(p.LID), int(p.LID)+p.LMC.Count()-1)
		}
	}
	return w.Flush()
}
