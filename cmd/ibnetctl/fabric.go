package main

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"path/filepath"
	"strings"

	"github.com/google/renameio/v2"

	"ibnetworkd/ib"
	"ibnetworkd/sm/fabric"
	"ibnetworkd/sm/picture"
	"ibnetworkd/smctl/probe"
)

// topologyOptions are in which form a fabric is printed, and what of it.
type topologyOptions struct {
	ibnetdiscover, svg, dot, bad, totals, walk bool
	file, match                                string
}

// check refuses what does not go together, and takes the form from the file's name.
func (o *topologyOptions) check(json bool) error {
	switch ext := strings.ToLower(filepath.Ext(o.file)); ext {
	case ".svg", ".dot", ".gv":
		if o.svg && ext != ".svg" || o.dot && ext == ".svg" {
			return fail(exitUsage, "%s: the suffix contradicts --svg or --dot", o.file)
		}
		o.svg, o.dot = ext == ".svg", ext != ".svg"
	case ".png", ".jpg", ".jpeg", ".gif", ".webp", ".pdf", ".ps":
		return fail(exitUsage, "%s: drawings are .svg or .dot; to convert one: dot -T%s, or rsvg-convert", o.file, ext[1:])
	}
	n := 0
	for _, on := range []bool{o.ibnetdiscover, o.svg, o.dot, o.bad && !json, o.totals, json} {
		if on {
			n++
		}
	}
	if n > 1 {
		return fail(exitUsage, "--ibnetdiscover, --svg, --dot, --bad, --totals and --json cannot be combined, but for --bad with --json")
	}
	if o.match != "" && (o.ibnetdiscover || o.svg || o.dot || o.totals || json) {
		return fail(exitUsage, "--match can be used with the text output and with --bad only")
	}
	if _, err := path.Match(o.match, ""); err != nil {
		return fail(exitUsage, "--match=%s: %v", o.match, err)
	}
	return nil
}

// view is what is shown of a fabric.
type view struct {
	*probe.Found
	bad      []badLink
	counters *probe.Counters // nil: not read
}

// showTopology prints the fabric, to a file if one is named.
func (a *app) showTopology(o topologyOptions, v *view) error {
	out, to := a.out, *a
	var file *renameio.PendingFile
	if o.file != "" {
		var err error
		if file, err = renameio.NewPendingFile(o.file, renameio.WithPermissions(0o644)); err != nil {
			return ofFile(o.file, err)
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
		err = to.emit(topologyJSON(v))
		a.emitted = file == nil
	case o.ibnetdiscover:
		err = fabric.WriteText(w, v.Fabric)
	case o.svg:
		err = picture.WriteSVG(w, v.Fabric)
	case o.dot:
		err = picture.WriteDOT(w, v.Fabric)
	default:
		to.printTopology(o, v)
	}
	if err == nil && o.bad && len(v.bad) > 0 {
		err = &exitError{code: exitFailure}
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

// ofFile puts the name that the user gave into an error about the temporary file beside it.
func ofFile(name string, err error) error {
	if pe := (*fs.PathError)(nil); errors.As(err, &pe) {
		return &fs.PathError{Op: pe.Op, Path: name, Err: pe.Err}
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
func (a *app) totals(v *view) {
	f, links := v.Fabric, v.Fabric.Links()
	states := map[ib.PortState]int{}
	for i := range f.Ports {
		if p := &f.Ports[i]; p.Peer > int32(i) {
			q := &f.Ports[p.Peer]
			if !p.Known {
				p = q
			} else if !q.Known {
				q = p
			}
			states[min(p.Info.State(), q.Info.State())]++
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
	if v.SA != 0 {
		a.say("", 2, fmt.Sprintf("Read from the subnet administrator at LID %d.", uint16(v.SA)))
	} else {
		a.say("", 2, "Discovered by a walk over directed routes: "+v.Why+".")
	}
	byGUID := map[ib.GUID]string{}
	for _, e := range f.EndPorts {
		byGUID[f.Ports[e].GUID] = f.PortName(e)
	}
	if len(v.Managers) == 0 {
		fmt.Fprintln(a.out, a.paint(bad, "No subnet manager answered."))
	}
	for _, s := range v.Managers {
		a.say("", 2, strings.TrimSpace(fmt.Sprintf("%v %s", s, byGUID[s.GUID])))
	}
	for _, w := range v.Warnings {
		a.say("", 2, a.paint(soso, "warning: "+w))
	}
	what, counted := "not Active, narrow or slow", "error counters: not checked (--bad reads them)."
	if c := v.counters; c != nil {
		what, counted = "not Active, narrow, slow or erroring", countersText(f, c)
	}
	switch n := len(v.bad); {
	case n == 0:
		a.say("", 2, "No link is "+what+"; "+counted)
	case v.counters == nil:
		a.say("", 2, a.paint(bad, fmt.Sprintf("%d %s %s (--bad lists them)", n, plural(n, "link is", "links are"), what))+"; "+counted)
	default:
		a.say("", 2, a.paint(bad, fmt.Sprintf("%d %s %s", n, plural(n, "link is", "links are"), what))+"; "+counted)
	}
}

func (a *app) printTopology(o topologyOptions, v *view) {
	f := v.Fabric
	a.totals(v)
	if o.totals {
		return
	}
	fmt.Fprintln(a.out)
	if o.bad {
		a.printBad(o, v)
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

func (a *app) printBad(o topologyOptions, v *view) {
	f := v.Fabric
	var rows [][]cell
	for _, b := range v.bad {
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
