package lab

import (
	"fmt"
	"slices"
	"strings"

	"ibnetworkd/ib"
	"ibnetworkd/sm/fabric"
)

// Topology translates a fabric text, in the format that ibnetdiscover prints and
// ibsim reads, into commands for the fabric's control file.  Adapters are numbered
// in the order of their node GUIDs (so that the first is swib0), switches too.
// Ports get the speed and width that the text names, NDR for XDR.  Errors carry
// name, line and column.
func Topology(name, text string) ([]string, error) {
	f, err := fabric.ReadText(name, strings.NewReader(text))
	if err != nil {
		return nil, err
	}
	names := make([]string, len(f.Nodes))
	var cmds, speeds, cables []string
	hcas, switches := 0, 0
	for i, n := range f.Nodes {
		desc := strings.Map(func(r rune) rune {
			if r < ' ' {
				return ' '
			}
			return r
		}, n.Desc)
		if desc != "" {
			desc = " desc=" + desc
		}
		switch {
		case n.Type == ib.NodeSwitch:
			names[i] = fmt.Sprintf("s%d", switches)
			cmds = append(cmds, fmt.Sprintf("switch %d %d guid=%016x%s", switches, n.NumPorts, uint64(n.GUID), desc))
			switches++
		case n.Type == ib.NodeCA && n.NumPorts <= 2:
			names[i] = fmt.Sprintf("h%d", hcas)
			cmds = append(cmds, fmt.Sprintf("add %d ports=%d guid=%016x%s", hcas, n.NumPorts, uint64(n.GUID), desc))
			hcas++
		case n.Type == ib.NodeCA:
			return nil, fmt.Errorf("%s: adapter %v has %d ports; the lab's adapters have one or two", name, n.GUID, n.NumPorts)
		default:
			return nil, fmt.Errorf("%s: node %v is neither a switch nor an adapter", name, n.GUID)
		}
	}
	for i, p := range f.Ports {
		if n := f.Nodes[p.Node]; n.Type == ib.NodeCA && p.GUID != 0 && uint64(p.GUID) != uint64(n.GUID)+uint64(p.Num) {
			cables = append(cables, fmt.Sprintf("guid %s/%d %016x", names[p.Node], p.Num, uint64(p.GUID)))
		}
		if p.Peer != fabric.None {
			named := p
			if !named.LinkNamed {
				named = f.Ports[p.Peer] // one line for both ends
			}
			if s := linkSpeed(&named.Info); named.LinkNamed && s != defaultSpeed {
				speeds = append(speeds, fmt.Sprintf("speed %s/%d %s", names[p.Node], p.Num, s))
			}
		}
		if p.Peer > int32(i) {
			q := f.Ports[p.Peer]
			cables = append(cables, fmt.Sprintf("cable %s/%d %s/%d", names[p.Node], p.Num, names[q.Node], q.Num))
		}
	}
	// Before the cables, or links would come up with the default and go down again.
	return slices.Concat(cmds, speeds, cables), nil
}

const defaultSpeed = "4xQDR" // of the module's ports

// linkSpeed is the width and speed as the speed command takes them.
func linkSpeed(p *fabric.PortInfo) string {
	s := p.SpeedName()
	if s == "XDR" {
		s = "NDR" // the fastest that swib has
	}
	return p.WidthName() + s
}
