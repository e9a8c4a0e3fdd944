package main

import (
	"bufio"
	"cmp"
	"fmt"
	"path"
	"path/filepath"
	"strings"

	"github.com/google/renameio/v2"

	"ibnetworkd/ib"
	"ibnetworkd/sm/fabric"
	"ibnetworkd/sm/picture"
	"ibnetworkd/smctl"
)

// topologyOptions are in which form a fabric is printed, and what of it.
type topologyOptions struct {
	ibnetdiscover, svg, dot, bad, totals bool
	file, match                          string
}

// check refuses what does not go together, and takes the form from the file's name.
func (o *topologyOptions) check(json bool) error {
	switch filepath.Ext(o.file) {
	case ".svg":
		o.svg = true
	case ".dot", ".gv":
		o.dot = true
	}
	n := 0
	for _, on := range []bool{o.ibnetdiscover, o.svg, o.dot, o.bad, o.totals, json} {
		if on {
			n++
		}
	}
	if n > 1 {
		return fail(exitUsage, "--ibnetdiscover, --svg, --dot, --bad, --totals and --json cannot be combined")
	}
	if o.match != "" && (o.ibnetdiscover || o.svg || o.dot || o.totals || json) {
		return fail(exitUsage, "--match can be used with the text output and with --bad only")
	}
	if _, err := path.Match(o.match, ""); err != nil {
		return fail(exitUsage, "--match=%s: %v", o.match, err)
	}
	return nil
}

// badLink is a link with a fault, seen from its first end.
type badLink struct {
	node int32
	num  int
	peer int32 // port, or None
	why  string
}

// badLinks are those of the fabric, each once.
func badLinks(f *fabric.Fabric) []badLink {
	h := f.Health()
	var out []badLink
	for i := range f.Ports {
		p := &f.Ports[i]
		what, why := h.Link(int32(i))
		if p.Peer != fabric.None {
			if p.Peer < int32(i) {
				continue
			}
			if what == 0 {
				_, why = h.Link(p.Peer)
			}
		}
		if why != "" {
			out = append(out, badLink{p.Node, int(p.Num), p.Peer, why})
		}
	}
	return out
}

// showTopology prints the fabric, to a file if one is named.
func (a *app) showTopology(o topologyOptions, f *fabric.Fabric, sms []smctl.SMInfo, warnings []string) error {
	bad := badLinks(f)
	out, to := a.out, *a
	var file *renameio.PendingFile
	if o.file != "" {
		var err error
		if file, err = renameio.NewPendingFile(o.file, renameio.WithPermissions(0o644)); err != nil {
			return err
		}
		defer func() { _ = file.Cleanup() }()
		out = file
		to.width, to.colour = 0, false
	}
	w := bufio.NewWriterSize(out, 64<<10)
	to.out = w
	var err error
	switch {
	case a.json:
		err = to.emit(topologyJSON(f, bad, sms, warnings))
		a.emitted = file == nil
	case o.ibnetdiscover:
		err = fabric.WriteText(w, f)
	case o.svg:
		err = picture.WriteSVG(w, f)
	case o.dot:
		err = picture.WriteDOT(w, f)
	default:
		to.printTopology(o, f, bad, sms, warnings)
		if o.bad && len(bad) > 0 {
			err = &exitError{code: exitFailure}
		}
	}
	if e := w.Flush(); e != nil {
		return e
	}
	if file != nil {
		if e := file.CloseAtomicallyReplace(); e != nil {
			return e
		}
		fmt.Fprintln(a.err, "wrote", o.file)
	}
	return err
}

// nodeName is a node's description, or its GUID.
func nodeName(n *fabric.Node) string { return cmp.Or(n.Desc, n.GUID.String()) }

// matches reports whether a pattern means the node.
func matches(n *fabric.Node, pattern string) bool {
	if pattern == "" {
		return true
	}
	for _, s := range []string{n.Desc, n.GUID.String()} {
		if ok, _ := path.Match(pattern, s); ok || strings.Contains(strings.ToLower(s), strings.ToLower(pattern)) {
			return true
		}
	}
	return false
}

// gbits is a rate in tenths of Gb/s.
func gbits(tenths int) string { return fmt.Sprintf("%g Gb/s", float64(tenths)/10) }

// totals are the lines before the nodes.
func (a *app) totals(f *fabric.Fabric, links int, faults []badLink, sms []smctl.SMInfo, warnings []string) {
	states := map[ib.PortState]int{}
	for i := range f.Ports {
		if p := &f.Ports[i]; p.Peer > int32(i) {
			states[min(p.Info.State(), f.Ports[p.Peer].Info.State())]++
		}
	}
	text := fmt.Sprintf("%d %s, %d %s, %d %s", len(f.Nodes)-len(f.Switches), plural(len(f.Nodes)-len(f.Switches), "adapter", "adapters"),
		len(f.Switches), plural(len(f.Switches), "switch", "switches"), links, plural(links, "link", "links"))
	if n := states[ib.PortActive]; n == links {
		text += ", all Active"
	} else {
		text += fmt.Sprintf(": %d Active", n)
		for _, s := range []ib.PortState{ib.PortArmed, ib.PortInit, ib.PortDown} {
			if states[s] > 0 {
				text += fmt.Sprintf(", %d %s", states[s], s)
			}
		}
	}
	sw, ca := f.Health().Usual()
	if sw != 0 {
		text += "; most between switches " + gbits(sw)
	}
	if ca != 0 {
		text += "; most of adapters " + gbits(ca)
	}
	a.say("", 2, text)
	byGUID := map[ib.GUID]string{}
	for _, e := range f.EndPorts {
		byGUID[f.Ports[e].GUID] = f.PortName(e)
	}
	if len(sms) == 0 {
		fmt.Fprintln(a.out, a.paint(bad, "No subnet manager answered."))
	}
	for _, s := range sms {
		a.say("", 2, strings.TrimSpace(fmt.Sprintf("%v %s", s, byGUID[s.GUID])))
	}
	for _, w := range warnings {
		a.say("", 2, a.paint(soso, "warning: "+w))
	}
	switch n := len(faults); n {
	case 0:
		a.say("", 2, "No link is down, narrow or slow; error counters: not checked.")
	default:
		a.say("", 2, a.paint(bad, fmt.Sprintf("%d %s down, narrow or slow (--bad lists them); error counters: not checked.", n,
			plural(n, "link is", "links are"))))
	}
}

func (a *app) printTopology(o topologyOptions, f *fabric.Fabric, bad []badLink, sms []smctl.SMInfo, warnings []string) {
	a.totals(f, f.Links(), bad, sms, warnings)
	if o.totals {
		return
	}
	fmt.Fprintln(a.out)
	if o.bad {
		a.printBad(o, f, bad)
		return
	}
	shown := 0
	for i := range f.Nodes {
		n := &f.Nodes[i]
		if !matches(n, o.match) {
			continue
		}
		shown++
		var rows [][]cell
		eachPort(f, int32(i), func(p, peer *fabric.Port) {
			if p.Num == 0 || peer == nil && n.Type == ib.NodeSwitch {
				return
			}
			to := "not connected"
			if peer != nil {
				q := &f.Nodes[peer.Node]
				to = fmt.Sprintf("%s %s port %d", q.Type, nodeName(q), peer.Num)
			}
			lid, state, rate := "", "", ""
			if p.Known {
				state, rate = p.Info.State().String(), p.Info.Rate().String()
				if l := p.Info.LID(); l != 0 && n.Type != ib.NodeSwitch {
					lid = fmt.Sprintf("LID %d", uint16(l))
				}
			}
			rows = append(rows, []cell{{fmt.Sprintf("port %d", p.Num), ""}, {state, portStyle(state)}, {rate, ""}, {lid, ""}, {"-- " + to, ""}})
		})
		used := ""
		if n.Type == ib.NodeSwitch {
			used = fmt.Sprintf(", %d of %d ports connected", len(rows), n.NumPorts)
		}
		fmt.Fprintf(a.out, "%s %s %q%s\n", a.paint(bold, n.Type.String()), n.GUID, n.Desc, used)
		a.table("   ", []string{"", "", "", "", ""}, rows)
	}
	if shown == 0 {
		fmt.Fprintf(a.out, "No node matches %q.\n", o.match)
	}
}

func (a *app) printBad(o topologyOptions, f *fabric.Fabric, bad []badLink) {
	var rows [][]cell
	for _, b := range bad {
		n, to := &f.Nodes[b.node], "-"
		match := matches(n, o.match)
		if b.peer != fabric.None {
			q := &f.Nodes[f.Ports[b.peer].Node]
			to = fmt.Sprintf("%s port %d", nodeName(q), f.Ports[b.peer].Num)
			match = match || matches(q, o.match)
		}
		if match {
			rows = append(rows, []cell{{fmt.Sprintf("%s port %d", nodeName(n), b.num), bold}, {to, ""}, {b.why, ""}})
		}
	}
	if len(rows) > 0 {
		a.table("", []string{"LINK", "TO", "WHAT"}, rows)
	}
}
