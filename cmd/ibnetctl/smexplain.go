package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"ibnetworkd/cmd/ibnetctl/answer"
	"ibnetworkd/ib"
	"ibnetworkd/sm/explain"
	"ibnetworkd/sm/fabric"
	"ibnetworkd/sm/mad"
	"ibnetworkd/smctl/probe"
)

// nodeHelp is the paragraph of help texts about names of nodes.
const nodeHelp = `A node is named as in ibnetctl sm topology, by the first word of that name (the host),
by another word of it if no other node has that word (ibsw01 of "MF0;ibsw01:MQM8700/U1"),
by a GUID of the node or of a port, with or without 0x, or by a LID. A port of it follows
in brackets, as in "node01 mlx5_0[1]".`

func (a *app) smExplainCmd() *cobra.Command {
	var o routesOptions
	c := &cobra.Command{
		Use: "explain A B", Short: "print the path of packets between two ports, and why", Args: cobra.ExactArgs(2),
		Annotations: map[string]string{paged: "yes"},
		Long: `Follows the forwarding tables from A to B and from B to A, and prints each hop:
the ports, rate, state and virtual lane of the link, how many pairs of hosts use it,
and among which ports the switch could choose. Then it prints the partitions that both
ports are in, and what the subnet administrator answers to a request for the path. The
exit status is 1 if packets do not arrive.

The tables are those of the switches, read from a port of this host with subnet
management packets, which needs root. With --file they are computed as ibnetsm
would; states and MTUs are not in such a file. The engine and the hints for routes
are those that the ibnetsm on this host reports, if it is the master. A file that is
given replaces its list of that kind and leaves the others. If another host runs the
master, only the hints that are given are known.

` + nodeHelp,
		ValidArgsFunction: func(cmd *cobra.Command, args []string, s string) ([]string, cobra.ShellCompDirective) {
			if len(args) > 1 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return o.completeNodes(cmd, args, s)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if o.partitions != "" && o.file == "" {
				return fail(exitUsage, "--partitions goes with --file: the ports of the live fabric report their partitions")
			}
			return a.withRoutes(cmd, &o, func(ctx context.Context, conn probe.Conn, r *fabricRoutes) error {
				x, err := explained(ctx, conn, r, args[0], args[1])
				if err != nil {
					return err
				}
				return a.showExplained(r, x)
			})
		},
	}
	o.flags(a, c)
	c.Flags().StringVar(&o.partitions, "partitions", "", "with --file: the partitions `FILE` of the subnet manager")
	return c
}

// explainedPaths are what sm explain prints.
type explainedPaths struct {
	paths      [2]explain.Path // there and back
	partitions []explain.Partition
	keysOf     []int32 // ports whose keys could not be read
	record     mad.PathRecord
	hasRecord  bool
	asked      bool // the record is what the subnet administrator answered
}

// explained follows the tables both ways. conn is nil where the fabric is not live.
func explained(ctx context.Context, conn probe.Conn, r *fabricRoutes, from, to string) (x *explainedPaths, err error) {
	x = &explainedPaths{}
	f := r.Fabric
	a, alid, err := explain.EndPort(f, from)
	if err != nil {
		return nil, named(err)
	}
	b, blid, err := explain.EndPort(f, to)
	if err != nil {
		return nil, named(err)
	}
	if a == b {
		return nil, fail(exitUsage, "%q and %q are the same port, %s: an adapter delivers to itself without the fabric",
			ib.Clip(from), ib.Clip(to), f.PortName(a))
	}
	if conn != nil {
		if x.keysOf, err = probe.Keys(ctx, conn, r.Routes, a, b); err != nil {
			return nil, err
		}
	}
	x.partitions = r.Partitions(a, b)
	// The own port shows which manager it follows.
	if conn != nil && f.SMPort != fabric.None {
		if sa := f.Ports[f.SMPort].Info.MasterSMLID(); sa.IsUnicast() && alid.IsUnicast() && blid.IsUnicast() {
			if x.record, x.hasRecord, err = probe.AskPath(ctx, conn, sa, alid, blid); err != nil {
				return nil, err
			}
			x.asked = x.hasRecord
		}
	}
	if !x.hasRecord {
		x.record, x.hasRecord = r.Record(alid, blid)
	}
	sl := r.Level(a, b)
	back := r.Level(b, a)
	if x.hasRecord {
		sl = x.record.SL
		if r.SL == nil {
			back = sl
		}
	}
	x.paths = [2]explain.Path{r.Path(a, alid, b, blid, sl), r.Path(b, blid, a, alid, back)}
	if conn != nil {
		if err := probe.Lanes(ctx, conn, r.Routes, x.paths[:]...); err != nil {
			return nil, err
		}
		x.paths = [2]explain.Path{r.Path(a, alid, b, blid, sl), r.Path(b, blid, a, alid, back)}
	}
	return x, nil
}

// usable are the partitions in which the two may talk.
func (x *explainedPaths) usable() bool {
	return slices.ContainsFunc(x.partitions, explain.Partition.Usable)
}

// works reports whether packets arrive both ways.
func (x *explainedPaths) works() bool {
	return x.paths[0].Broken == "" && x.paths[1].Broken == "" && (x.usable() || len(x.keysOf) > 0)
}

// partitionWords returns in which partitions two ports are.
func (x *explainedPaths) partitionWords(f *fabric.Fabric) string {
	if len(x.keysOf) > 0 {
		return fmt.Sprintf("not known: %s does not report its P_Keys", f.PortName(x.keysOf[0]))
	}
	var out []string
	for _, p := range x.partitions {
		who := "both full"
		switch {
		case !p.A && !p.B:
			who = "both limited, so the two cannot talk in it"
		case !p.A:
			who = "the first limited"
		case !p.B:
			who = "the second limited"
		}
		out = append(out, fmt.Sprintf("%v (%s)", p.Key, who))
	}
	if out == nil {
		return "none in common, so the two cannot talk"
	}
	return strings.Join(out, ", ")
}

func (x *explainedPaths) recordWords(r *fabricRoutes) string {
	if !x.hasRecord {
		return "none: a program that queries a path gets an error"
	}
	m := x.record
	var out []string
	if r.Live || x.asked {
		out = append(out, fmt.Sprintf("MTU %d", m.MTU.Bytes()), "rate "+gbits(m.Rate.Tenths()))
	} else if named := x.rateNamed(r.Fabric); named {
		out = append(out, "rate "+gbits(m.Rate.Tenths()))
	}
	out = append(out, fmt.Sprintf("P_Key %v", m.PKey), fmt.Sprintf("SL %d", m.SL))
	text := strings.Join(out, ", ")
	switch {
	case x.asked:
		text += " (as the subnet administrator answers)"
	case r.Live:
		text += " (computed: the subnet administrator gave none)"
	default:
		text += " (computed; the MTU is not in the file)"
	}
	return text
}

// rateNamed reports whether the text names the rate of each link on the way.
func (x *explainedPaths) rateNamed(f *fabric.Fabric) bool {
	for _, h := range x.paths[0].Hops {
		if !f.Ports[h.Out].LinkNamed && !f.Ports[h.In].LinkNamed {
			return false
		}
	}
	return len(x.paths[0].Hops) > 0
}

// link is the rate and the state of a hop's link, empty where they are not known.
func (r *fabricRoutes) link(h *explain.Hop) (rate, state string) {
	p, q := &r.Fabric.Ports[h.Out], &r.Fabric.Ports[h.In]
	if r.Live || p.LinkNamed || q.LinkNamed {
		rate = gbits(r.Fabric.LinkRate(h.Out).Tenths())
	}
	if r.Live {
		state = p.Info.State().String()
		if q.Known {
			state = min(p.Info.State(), q.Info.State()).String()
		}
	}
	return rate, state
}

func (a *app) showExplained(r *fabricRoutes, x *explainedPaths) error {
	var err error
	if !x.works() {
		err = &exitError{code: exitFailure}
	}
	if a.json {
		if e := a.emit(x.answer(r)); e != nil {
			return e
		}
		return err
	}
	f := r.Fabric
	for _, p := range x.paths {
		n := len(p.Hops)
		head := fmt.Sprintf("%s (LID %d) -> %s (LID %d)", f.PortName(p.From), p.SLID, f.PortName(p.To), p.DLID)
		if p.Broken != "" {
			a.say("", 2, a.paint(bold, head)+": "+a.paint(bad, "packets do not arrive"))
		} else {
			a.say("", 2, fmt.Sprintf("%s: %d %s, SL %d", a.paint(bold, head), n, plural(n, "link", "links"), p.SL))
		}
		a.printHops(r, &p)
		if p.Broken != "" {
			a.say("   ", 3, a.paint(bad, p.Broken))
			a.step("   next: ", 9, p.Next)
		}
		fmt.Fprintln(a.out)
	}
	a.field("Engine", r.engineWords())
	if t := r.hints.routes; t != nil {
		a.field("Routes", t.Words)
	}
	a.showHints(r)
	a.field("Partitions", x.partitionWords(f))
	a.field("PathRecord", x.recordWords(r))
	for _, w := range r.warnings {
		a.field("Warning", w)
	}
	return err
}

func (a *app) printHops(r *fabricRoutes, p *explain.Path) {
	var rows [][]cell
	for i := range p.Hops {
		h := &p.Hops[i]
		rate, state := r.link(h)
		why := h.Why
		if n := &r.Fabric.Nodes[r.Fabric.Ports[h.Out].Node]; n.Switch != fabric.None {
			why = fmt.Sprintf("LID %d; ", r.Fabric.Ports[r.Fabric.Port(r.Fabric.Ports[h.Out].Node, 0)].LID) + why
		}
		rows = append(rows, []cell{{r.Fabric.PortName(h.Out), ""}, {r.Fabric.PortName(h.In), ""}, {rate, ""}, {state, portStyle(state)},
			{fmt.Sprint(h.VL), ""}, {why, ""}})
	}
	head := []string{"OUT", "IN", "RATE", "STATE", "VL", "WHY"}
	if !r.Live {
		head = append(head[:3], head[4:]...)
		for i := range rows {
			rows[i] = append(rows[i][:3], rows[i][4:]...)
		}
	}
	if len(rows) > 0 {
		a.table("   ", head, rows, "VL", "STATE", "RATE")
	}
}

// answer is the form for --json.
func (x *explainedPaths) answer(r *fabricRoutes) answer.Explain {
	f := r.Fabric
	out := answer.Explain{Schema: answer.Schema, OK: x.works(), Source: r.source, Live: r.Live, Engine: r.Engine, EngineNote: r.note,
		Hints: r.hints.answer(&r.opt), Routes: r.hints.routes,
		Paths: []answer.Path{}, Partitions: []answer.SharedPartition{}, Warnings: append([]string{}, r.warnings...)}
	for _, p := range x.paths {
		t := answer.Path{From: f.PortName(p.From), To: f.PortName(p.To),
			FromGUID: f.Ports[p.From].GUID.String(), ToGUID: f.Ports[p.To].GUID.String(),
			SLID: uint16(p.SLID), DLID: uint16(p.DLID), SL: uint8(p.SL), Broken: p.Broken, Next: p.Next, Hops: []answer.Hop{}}
		for i := range p.Hops {
			h := &p.Hops[i]
			node, peer := &f.Nodes[f.Ports[h.Out].Node], &f.Nodes[f.Ports[h.In].Node]
			rate, state := r.link(h)
			hop := answer.Hop{Node: node.Name(), GUID: node.GUID.String(), Port: int(f.Ports[h.Out].Num),
				Peer: peer.Name(), PeerGUID: peer.GUID.String(), PeerPort: int(f.Ports[h.In].Num),

				VL: uint8(h.VL), Rate: rate, State: state, Flows: h.Flows, Why: h.Why, Choices: []answer.Choice{}}
			if node.Switch != fabric.None {
				hop.LID = uint16(f.Ports[f.Port(f.Ports[h.Out].Node, 0)].LID)
			}
			for _, c := range h.Choices {
				hop.Choices = append(hop.Choices, answer.Choice{Port: int(c.Port), Flows: c.Flows})
			}
			t.Hops = append(t.Hops, hop)
		}
		out.Paths = append(out.Paths, t)
	}
	for _, p := range x.partitions {
		out.Partitions = append(out.Partitions, answer.SharedPartition{PKey: p.Key.String(), FromFull: p.A, ToFull: p.B, Usable: p.Usable()})
	}
	if x.hasRecord {
		rec := answer.PathRecord{PKey: x.record.PKey.String(), SL: uint8(x.record.SL), Asked: x.asked}
		if r.Live || x.asked {
			rec.MTU = x.record.MTU.Bytes()
		}
		if r.Live || x.asked || x.rateNamed(f) {
			rec.Rate = gbits(x.record.Rate.Tenths())
		}
		out.Record = &rec
	}
	return out
}
