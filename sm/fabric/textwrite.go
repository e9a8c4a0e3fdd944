package fabric

import (
	"bufio"
	"fmt"
	"io"
	"strings"

	"ibnetworkd/ib"
)

// WriteText writes the subnet in the text form of ibnetdiscover, nodes in GUID
// order, the manager's node first so that ReadText finds its port again.
func WriteText(w io.Writer, f *Fabric) error {
	bw := bufio.NewWriter(w)
	sm := None
	if f.SMPort != None {
		sm = f.Ports[f.SMPort].Node
		writeNode(bw, f, sm)
	}
	for i := range f.Nodes {
		if int32(i) != sm {
			writeNode(bw, f, int32(i))
		}
	}
	return bw.Flush()
}

func nodeID(n *Node) string {
	c := byte('H')
	switch n.Type {
	case ib.NodeSwitch:
		c = 'S'
	case ib.NodeRouter:
		c = 'R'
	}
	return fmt.Sprintf("%c-%016x", c, uint64(n.GUID))
}

// quote keeps a description within its double quotes and one line.
func quote(s string) string { return strings.ReplaceAll(ib.Printable(s), `"`, "_") }

func writeNode(w *bufio.Writer, f *Fabric, i int32) {
	n := &f.Nodes[i]
	fmt.Fprintf(w, "vendid=0x%x\ndevid=0x%x\nsysimgguid=0x%x\n", n.VendorID, n.DeviceID, uint64(n.SystemGUID))
	if n.Switch != None {
		p0 := &f.Ports[f.Port(i, 0)]
		kind := "base"
		if f.Switches[n.Switch].Info.EnhancedPort0() {
			kind = "enhanced"
		}
		fmt.Fprintf(w, "switchguid=0x%x(%x)\nSwitch\t%d \"%s\"\t\t# \"%s\" %s port 0 lid %d lmc %d\n",
			uint64(n.GUID), uint64(p0.GUID), n.NumPorts, nodeID(n), quote(n.Desc), kind, p0.LID, p0.LMC)
	} else {
		key, word := "caguid", "Ca"
		if n.Type == ib.NodeRouter {
			key, word = "rtguid", "Rt"
		}
		fmt.Fprintf(w, "%s=0x%x\n%s\t%d \"%s\"\t\t# \"%s\"\n", key, uint64(n.GUID), word, n.NumPorts, nodeID(n), quote(n.Desc))
	}
	for num := 1; num <= int(n.NumPorts); num++ {
		p := &f.Ports[f.Port(i, uint8(num))]
		if p.Peer == None {
			continue
		}
		q := &f.Ports[p.Peer]
		m := &f.Nodes[q.Node]
		link := p.Info.WidthName() + p.Info.SpeedName()
		qid, qlid := "", q.LID
		if m.Switch == None {
			qid = fmt.Sprintf("(%x) ", uint64(q.GUID))
		} else {
			qlid = f.Ports[f.Port(q.Node, 0)].LID
		}
		if n.Switch != None {
			fmt.Fprintf(w, "[%d]\t\"%s\"[%d]%s\t\t# \"%s\" lid %d %s\n", num, nodeID(m), q.Num, qid, quote(m.Desc), qlid, link)
		} else {
			if qid != "" {
				qid = " " + qid // a cable without a switch has one more
			}
			fmt.Fprintf(w, "[%d](%x) \t\"%s\"[%d]%s\t\t# lid %d lmc %d \"%s\" lid %d %s\n",
				num, uint64(p.GUID), nodeID(m), q.Num, qid, p.LID, p.LMC, quote(m.Desc), qlid, link)
		}
	}
	w.WriteByte('\n')
}
