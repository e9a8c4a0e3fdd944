package main

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"ibnetworkd/cmd/ibnetctl/answer"
	"ibnetworkd/ib"
	"ibnetworkd/sm/control"
	"ibnetworkd/sm/explain"
	"ibnetworkd/sm/fabric"
	"ibnetworkd/sm/route"
	"ibnetworkd/smctl/probe"
)

// maxListed is how many ports a line of text names; JSON has all.
const maxListed = 10

func (a *app) smWhatIfCmd() *cobra.Command {
	var o routesOptions
	var x changes
	c := &cobra.Command{
		Use: "whatif", Short: "print what cut cables, nodes that are off and drained switches would change", Args: cobra.NoArgs,
		Annotations: map[string]string{paged: "yes"},
		Long: `Computes the forwarding tables that ibnetsm would compute from the tables in force
if some cables were removed, nodes off, or switches drained (ibnetctl sm drain),
and compares both: the engine, the busiest link in flows (ordered pairs of hosts, more
on slower links), credit loops, the paths that move or get another service level, the
hosts that have to register again because of that, the hosts that become unreachable,
and the writes to switches and hosts; reads are not counted. Nothing is changed.

The exit status is 1 if more is lost than was named: a host that is not off becomes
unreachable, or a credit loop appears. It is also 1 if a switch cannot be drained.

The tables in force are those of the switches, read from a port of this host with
subnet management packets, which needs root. With --file they are computed. Hints for
routes are those that the ibnetsm on this host reports, if it is the master. A file
that is given replaces its list of that kind and leaves the others, and --qos=false
counts too. If another host runs the master, only the hints and drained switches that
are given are known.

` + nodeHelp + ` The name of a host means all its adapters. Each option can be given
several times.`,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if len(x.cut)+len(x.off)+len(x.drain) == 0 {
				return fail(exitUsage, "name a cable with --cut NODE[PORT], a node with --off NODE or a switch with --drain SWITCH")
			}
			return a.withRoutes(cmd, &o, func(_ context.Context, _ probe.Conn, r *fabricRoutes) error {
				c, drained, err := whatIf(r, &x)
				if err != nil {
					return err
				}
				return a.showWhatIf(r, c, drained)
			})
		},
	}
	f := c.Flags()
	f.StringArrayVar(&x.cut, "cut", nil, "suppose that the cable at `NODE[PORT]` is removed")
	f.StringArrayVar(&x.off, "off", nil, "suppose that `NODE` is off")
	f.StringArrayVar(&x.drain, "drain", nil, "suppose that `SWITCH` is drained")
	o.flags(a, c)
	_ = c.RegisterFlagCompletionFunc("cut", o.completeNodes)
	_ = c.RegisterFlagCompletionFunc("off", o.completeNodes)
	_ = c.RegisterFlagCompletionFunc("drain", o.completeNodes)
	return c
}

// changes are what whatif supposes, by the words of the user.
type changes struct{ cut, off, drain []string }

// whatIf compares the routes of a fabric with those without cables and nodes and with
// other drained switches, which it describes.
func whatIf(r *fabricRoutes, x *changes) (*explain.Change, []control.Drain, error) {
	var ports, nodes []int32
	for _, w := range x.cut {
		p, err := explain.Cable(r.Fabric, w)
		if err != nil {
			return nil, nil, named(fmt.Errorf("--cut: %w", err))
		}
		ports = append(ports, p)
	}
	for _, w := range x.off {
		n, err := explain.Nodes(r.Fabric, w)
		if err != nil {
			return nil, nil, named(fmt.Errorf("--off: %w", err))
		}
		nodes = append(nodes, n...)
	}
	var drain []ib.GUID
	for _, w := range x.drain {
		g, err := switchOf(r.Fabric, w)
		if err != nil {
			return nil, nil, named(fmt.Errorf("--drain: %w", err))
		}
		drain = append(drain, g)
	}
	opt := r.opt
	opt.Drained = slices.Concat(opt.Drained, drain)
	slices.Sort(opt.Drained)
	opt.Drained = slices.Compact(opt.Drained)
	c, err := explain.Compare(r.Routes, nodes, ports, opt)
	if err != nil {
		return nil, nil, err
	}
	drained := slices.DeleteFunc(control.Drained(c.After.Fabric, opt.Drained), func(d control.Drain) bool {
		return !slices.Contains(drain, d.GUID)
	})
	return c, drained, nil
}

// switchOf is the node GUID of the one switch that a word means.
func switchOf(f *fabric.Fabric, word string) (ib.GUID, error) {
	n, err := explain.Nodes(f, word)
	switch {
	case err != nil:
		return 0, err
	case len(n) != 1 || f.Nodes[n[0]].Switch == fabric.None:
		return 0, fail(exitUsage, "%q is not a switch", ib.Clip(word))
	}
	return f.Nodes[n[0]].GUID, nil
}

// lidsOfHost is the largest number of LIDs of an adapter port: the bound of routes counts
// a flow to each LID, the load a flow to the first.
func lidsOfHost(f *fabric.Fabric) float64 {
	most := 1
	for _, e := range f.EndPorts {
		if p := &f.Ports[e]; f.Nodes[p.Node].Switch == fabric.None {
			most = max(most, p.LMC.Count())
		}
	}
	return float64(most)
}

// routesSummary is one side of a comparison.
func routesSummary(r *explain.Routes, loop []string) answer.RoutesSummary {
	v := r.View()
	out := answer.RoutesSummary{Engine: r.Engine, Switches: len(r.Fabric.Switches), Links: r.Fabric.Links(),
		Worst: tenths(v.Load.Worst), AtBest: tenths(r.Bound / lidsOfHost(r.Fabric)), Mean: tenths(v.Load.Mean), Hops: tenths(v.Load.Hops),
		Lost: v.Load.Lost, CreditLoop: append([]string{}, loop...)}
	for _, e := range r.Fabric.EndPorts {
		if s, port := r.Fabric.SwitchOf(e); s != fabric.None && port != 0 {
			out.Hosts++
		}
	}
	if r.Engine == route.Direct {
		out.Hosts = len(r.Fabric.EndPorts)
	}
	if p := v.Busiest(); p != fabric.None {
		out.WorstLink = r.Fabric.PortName(p)
	}
	return out
}

// tenths rounds to one digit behind the point.
func tenths(v float64) float64 { return math.Round(v*10) / 10 }

func whatIfAnswer(r *fabricRoutes, c *explain.Change, drained []control.Drain) answer.WhatIf {
	f := r.Fabric
	out := answer.WhatIf{Schema: answer.Schema, OK: !c.Worse(), Source: r.source, Live: r.Live, EngineNote: r.note,
		Hints:  r.hints.answer(&r.opt),
		Before: routesSummary(c.Before, c.LoopBefore), After: routesSummary(c.After, c.LoopAfter), Pairs: c.Pairs, Moved: c.Moved, Lost: c.Lost,
		Unreachable: []string{}, Entries: c.Entries, Blocks: c.Blocks, Written: c.Written, SMPs: c.Blocks + c.Tops,
		Levels: c.Levels, Register: c.Register, Drained: drained}
	for _, d := range drained {
		out.OK = out.OK && len(d.Kept) == 0
	}
	for _, e := range c.Unreachable {
		out.Unreachable = append(out.Unreachable, f.PortName(e))
	}
	for _, n := range c.Switches {
		out.Unreachable = append(out.Unreachable, f.Nodes[n].Name())
	}
	out.Warnings = append(append([]string{}, r.warnings...), c.After.Warnings...)
	slices.Sort(out.Warnings)
	out.Warnings = slices.Compact(out.Warnings)
	return out
}

func (a *app) showWhatIf(r *fabricRoutes, c *explain.Change, drained []control.Drain) error {
	x := whatIfAnswer(r, c, drained)
	var err error
	if !x.OK {
		err = &exitError{code: exitFailure}
	}
	if a.json {
		if e := a.emit(x); e != nil {
			return e
		}
		return err
	}
	var rows [][]cell
	row := func(what string, value func(*answer.RoutesSummary) string, worse bool) {
		b, n := value(&x.Before), value(&x.After)
		style := ""
		if b != n {
			style = bold
		}
		if worse {
			style = bad
		}
		rows = append(rows, []cell{{what, ""}, {b, ""}, {n, style}, {}})
	}
	num := func(v float64) string { return fmt.Sprintf("%g", v) }
	row("engine", func(s *answer.RoutesSummary) string {
		if s.Engine == "" {
			return "not known"
		}
		return s.Engine
	}, false)
	row("host ports", func(s *answer.RoutesSummary) string { return fmt.Sprint(s.Hosts) }, false)
	row("switches", func(s *answer.RoutesSummary) string { return fmt.Sprint(s.Switches) }, false)
	row("links", func(s *answer.RoutesSummary) string { return fmt.Sprint(s.Links) }, false)
	row("busiest link", func(s *answer.RoutesSummary) string { return s.WorstLink }, false)
	row("  flows over it", func(s *answer.RoutesSummary) string { return num(s.Worst) }, false)
	least := "  at least"
	if len(r.opt.Route.Compute)+len(r.opt.Route.IO) > 0 {
		least = "  of compute and I/O nodes alone, at least" // the bound is of the ports that are balanced for
	}
	row(least, func(s *answer.RoutesSummary) string { return num(s.AtBest) }, false)
	row("flows over a link, mean", func(s *answer.RoutesSummary) string { return num(s.Mean) }, false)
	row("links on a path, mean", func(s *answer.RoutesSummary) string { return num(s.Hops) }, false)
	row("pairs without a path", func(s *answer.RoutesSummary) string { return fmt.Sprint(s.Lost) }, x.After.Lost > x.Before.Lost)
	row("credit loop", func(s *answer.RoutesSummary) string {
		if len(s.CreditLoop) == 0 {
			return "none"
		}
		return fmt.Sprintf("over %d links", len(s.CreditLoop))
	}, c.LoopAfter != nil)
	a.table("", []string{"", "BEFORE", "AFTER", ""}, rows)
	fmt.Fprintln(a.out)
	a.field("Paths", fmt.Sprintf("%d of %d pairs of hosts that remain get another path; %d lose theirs", x.Moved, x.Pairs, x.Lost))
	if x.Levels > 0 || x.Register > 0 {
		// The tables of lanes depend on the links alone and stay.
		a.field("Levels", fmt.Sprintf("%d %s of hosts %s another service level; %d %s of hosts %s asked to register again, by an SMP each",
			x.Levels, plural(x.Levels, "pair", "pairs"), plural(x.Levels, "gets", "get"), x.Register, plural(x.Register, "port", "ports"),
			plural(x.Register, "is", "are")))
	}
	a.field("To write", fmt.Sprintf("%d %s in %d %s of %d %s: %d %s (multicast tables not counted)",
		x.Entries, plural(x.Entries, "entry", "entries"), x.Blocks, plural(x.Blocks, "block", "blocks"),
		x.Written, plural(x.Written, "switch", "switches"), x.SMPs, plural(x.SMPs, "SMP", "SMPs")))
	for _, d := range x.Drained {
		a.field("Drained", d.Words())
	}
	if len(x.Unreachable) > 0 {
		a.field("Unreachable", a.paint(bad, listed(x.Unreachable)))
	} else {
		a.field("Unreachable", "nothing but what is off")
	}
	if len(x.After.CreditLoop) > 0 {
		a.field("Credit loop", listed(x.After.CreditLoop))
	}
	a.field("Before", r.engineWords())
	a.showHints(r)
	for _, w := range x.Warnings {
		a.field("Warning", w)
	}
	return err
}

// listed names some of many.
func listed(names []string) string {
	text := strings.Join(names[:min(len(names), maxListed)], ", ")
	if more := len(names) - maxListed; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}
