package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"ibnetworkd/cmd/ibnetctl/answer"
	"ibnetworkd/sm/fabric"
	"ibnetworkd/sm/mad"
	"ibnetworkd/smctl"
	"ibnetworkd/smctl/probe"
)

func (a *app) topologyCmd() *cobra.Command {
	var timeout *time.Duration
	var o topologyOptions
	c := &cobra.Command{
		Use: "topology [PORT]", Short: "print the nodes and cables of the fabric of a port", Args: cobra.MaximumNArgs(1),
		Annotations: map[string]string{paged: "yes"},
		Long: `Prints the totals, the subnet managers, and for every node what its ports are
connected to. It reads what the subnet administrator of the port (the first
InfiniBand one with a link by default) has: the state after its last sweep. Where
no administrator answers, or it does not report all that is connected, or with
--walk, the fabric is discovered by directed routes from switch to switch instead,
which needs no subnet manager and takes longer; the output shows that. It only reads,
and needs root.

--bad prints only links that are not Active, those that are narrower or slower than
both ends support or than most links of their kind, and those with errors. Error
counters are read with --bad only, from each port, for ten seconds at most; ports
that do not answer are named as not checked. A counter is an error above the
values in error_thresholds of infiniband-diags: 10, or 100 for discards, remote
physical, constraint and VL15 errors.

--svg prints a drawing that scales to the window: meshes and tori as grids, fat-trees
of three levels as pods, adapters as counts if there are more than 200, and in the
largest fabrics rows of switches as counts.`,
		ValidArgsFunction: one(a.completePorts),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.check(a.json); err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), *timeout)
			defer cancel()
			sys, err := a.observe(ctx)
			if err != nil {
				return err
			}
			d := sys.describe("")
			dev, num := "", 0
			for _, p := range d.Ports {
				if p.LinkLayer == "InfiniBand" && p.PhysState == "LinkUp" && dev == "" {
					dev, num = p.IBDevice, p.Port
				}
			}
			if len(args) == 1 {
				p := findPort(d, args[0])
				if p == nil {
					return noPort(args[0])
				}
				dev, num = p.IBDevice, p.Port
			}
			if dev == "" {
				return fail(exitNoSuch, "no InfiniBand port of this host has a link")
			}
			u, err := probe.Open(ctx, dev, num)
			if err != nil {
				return fmt.Errorf("%s/%d: %w", dev, num, err)
			}
			defer u.Close()
			v, err := a.readTopology(ctx, u, o, fmt.Sprintf("%s/%d", dev, num))
			if err != nil && ctx.Err() != nil && cmd.Context().Err() == nil {
				return fail(exitTimeout, "%s/%d: discovery of the fabric not finished after %v; for more time: --timeout", dev, num, *timeout)
			}
			if err != nil {
				return fmt.Errorf("discover the fabric from %s/%d: %w", dev, num, err)
			}
			return a.showTopology(o, v)
		},
	}
	timeout = timeoutFlag(c, time.Minute, "give up after `TIME`")
	f := c.Flags()
	f.BoolVar(&o.ibnetdiscover, "ibnetdiscover", false, "print in the format of ibnetdiscover")
	f.BoolVar(&o.svg, "svg", false, "print a drawing as SVG")
	f.BoolVar(&o.dot, "dot", false, "print a graph for Graphviz")
	f.StringVarP(&o.file, "output", "o", "", "write to `FILE`; the suffix .svg or .dot selects the format")
	f.BoolVar(&o.bad, "bad", false, "only links that are not Active, narrow, slow or have errors; exit status 1 if there is one")
	f.BoolVar(&o.walk, "walk", false, "discover the fabric by directed routes and do not ask the subnet administrator")
	f.StringVar(&o.match, "match", "", "only nodes whose name or GUID matches or contains `PATTERN`")
	f.BoolVar(&o.totals, "totals", false, "only the totals")
	return c
}

func eachPort(f *fabric.Fabric, node int32, fn func(p *fabric.Port, peer *fabric.Port)) {
	first, n := f.PortRange(node)
	for i := first; i < first+n; i++ {
		p := &f.Ports[i]
		var peer *fabric.Port
		if p.Peer != fabric.None {
			peer = &f.Ports[p.Peer]
		}
		fn(p, peer)
	}
}

// readTopology reads the fabric, and the counters where they are wanted.
func (a *app) readTopology(ctx context.Context, u probe.Conn, o topologyOptions, port string) (*view, error) {
	p := a.newProgress(false)
	defer p.done()
	var found *probe.Found
	var err error
	p.during("reading the fabric of "+port, func() { found, err = probe.Topology(ctx, u, o.walk) })
	if err != nil {
		return nil, err
	}
	v := &view{Found: found}
	if o.bad {
		p.during(fmt.Sprintf("reading the counters of %d links", found.Fabric.Links()), func() {
			v.counters, err = probe.ReadCounters(ctx, u, found.Fabric, func(c *mad.PortCounters) bool { return portErrors(c) != nil })
		})
	}
	v.bad = badLinks(found.Fabric, v.counters)
	return v, err
}

func topologyJSON(v *view) answer.Topology {
	f := v.Fabric
	nodes := []answer.Node{}
	for i := range f.Nodes {
		n := &f.Nodes[i]
		t := answer.Node{GUID: n.GUID.String(), Type: n.Type.String(), Description: n.Desc, Ports: []answer.NodePort{}}
		eachPort(f, int32(i), func(p, peer *fabric.Port) {
			tp := answer.NodePort{Num: int(p.Num)}
			if !p.GUID.IsZero() {
				tp.GUID = p.GUID.String()
			}
			if p.Known {
				tp.LID, tp.State, tp.Rate = uint16(p.Info.LID()), p.Info.State().String(), p.Info.Rate().String()
			}
			if peer != nil {
				tp.Peer, tp.PeerN = f.Nodes[peer.Node].GUID.String(), int(peer.Num)
			}
			t.Ports = append(t.Ports, tp)
		})
		nodes = append(nodes, t)
	}
	managers := []smctl.Master{}
	for _, s := range v.Managers {
		managers = append(managers, smctl.Master{GUID: s.GUID.String(), LID: uint16(s.LID), Priority: s.Priority, State: s.State.String()})
	}
	faults := []answer.BadLink{}
	for _, b := range v.bad {
		l := answer.BadLink{GUID: f.Nodes[b.node].GUID.String(), Port: b.num, Why: b.why}
		if b.peer != fabric.None {
			l.Peer, l.PeerN = f.Nodes[f.Ports[b.peer].Node].GUID.String(), int(f.Ports[b.peer].Num)
		}
		faults = append(faults, l)
	}
	out := answer.Topology{Schema: answer.Schema, Bad: faults, Nodes: nodes, SubnetManagers: managers,
		Warnings: append([]string{}, v.Warnings...), Administrator: uint16(v.SA), Walked: v.Why}
	if c := v.counters; c != nil {
		out.Counters = &answer.Counters{Read: len(c.Ports), NotChecked: len(c.Silent)}
	}
	return out
}
