package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"ibnetworkd/cmd/ibnetctl/answer"
	"ibnetworkd/sm/fabric"
	"ibnetworkd/smctl"
	"ibnetworkd/smctl/probe"
)

func (a *app) topologyCmd() *cobra.Command {
	var timeout *time.Duration
	var o topologyOptions
	c := &cobra.Command{
		Use: "topology [PORT]", Short: "discover the fabric from a port and print its nodes and cables", Args: cobra.MaximumNArgs(1),
		Annotations: map[string]string{paged: "yes"},
		Long: `Sends subnet management packets by directed routes from the port (the first
InfiniBand one by default) and prints the totals, the subnet managers, and for every
node what its ports are connected to. It only reads, needs no subnet manager, and
needs root. Error counters are not read.

--bad prints only links that are not Active, and those that are narrower or
slower than both ends support or than most links of their kind. --svg prints a
drawing that scales to the window: meshes and tori as grids, fat-trees of three
levels as pods, adapters as counts if there are more than 200.`,
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
			f, sms, warnings, err := probe.Topology(ctx, u)
			if err != nil && ctx.Err() != nil && cmd.Context().Err() == nil {
				return fail(exitTimeout, "%s/%d: discovery of the fabric not finished after %v; for more time: --timeout", dev, num, *timeout)
			}
			if err != nil {
				return fmt.Errorf("discover the fabric from %s/%d: %w", dev, num, err)
			}
			return a.showTopology(o, f, sms, warnings)
		},
	}
	timeout = timeoutFlag(c, time.Minute, "give up after `TIME`")
	f := c.Flags()
	f.BoolVar(&o.ibnetdiscover, "ibnetdiscover", false, "print in the format of ibnetdiscover")
	f.BoolVar(&o.svg, "svg", false, "print a drawing as SVG")
	f.BoolVar(&o.dot, "dot", false, "print a graph for Graphviz")
	f.StringVarP(&o.file, "output", "o", "", "write to `FILE`; the suffix .svg or .dot selects the format")
	f.BoolVar(&o.bad, "bad", false, "only links that are down, narrow or slow; exit status 1 if there is one")
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

func topologyJSON(f *fabric.Fabric, bad []badLink, sms []smctl.SMInfo, warnings []string) answer.Topology {
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
	for _, s := range sms {
		managers = append(managers, smctl.Master{GUID: s.GUID.String(), LID: uint16(s.LID), Priority: s.Priority, State: s.State.String()})
	}
	faults := []answer.BadLink{}
	for _, b := range bad {
		l := answer.BadLink{GUID: f.Nodes[b.node].GUID.String(), Port: b.num, Why: b.why}
		if b.peer != fabric.None {
			l.Peer, l.PeerN = f.Nodes[f.Ports[b.peer].Node].GUID.String(), int(f.Ports[b.peer].Num)
		}
		faults = append(faults, l)
	}
	return answer.Topology{Schema: answer.Schema, Bad: faults, Nodes: nodes, SubnetManagers: managers,
		Warnings: append([]string{}, warnings...)}
}
