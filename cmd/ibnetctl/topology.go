package main

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"ibnetworkd/cmd/ibnetctl/answer"
	"ibnetworkd/daemon/bus/api"
	"ibnetworkd/ib"
	"ibnetworkd/sm/fabric"
	"ibnetworkd/smctl"
	"ibnetworkd/smctl/probe"
)

func (a *app) topologyCmd() *cobra.Command {
	var timeout *time.Duration
	var ibnetdiscover bool
	c := &cobra.Command{
		Use: "topology [PORT]", Short: "walk the fabric from a port and print what is plugged where", Args: cobra.MaximumNArgs(1),
		Annotations: map[string]string{paged: "yes"},
		Long: `Sends subnet management packets by directed routes from the port (the first
InfiniBand one by default) and prints every node, what each of its ports is
connected to, and which subnet managers there are. It reads only, needs no
subnet manager, and needs root.`,
		ValidArgsFunction: one(a.completePorts),
		RunE: func(cmd *cobra.Command, args []string) error {
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
				return fail(exitNoSuch, "there is no InfiniBand port with a link on this host")
			}
			u, err := probe.Open(ctx, dev, num)
			if err != nil {
				return fmt.Errorf("%s/%d: %w", dev, num, err)
			}
			defer u.Close()
			f, sms, warnings, err := probe.Topology(ctx, u)
			if err != nil {
				return fmt.Errorf("walk the fabric from %s/%d: %w", dev, num, err)
			}
			switch {
			case a.json:
				return a.emit(topologyJSON(f, sms, warnings))
			case ibnetdiscover:
				var b bytes.Buffer
				if err := fabric.WriteText(&b, f); err != nil {
					return err
				}
				_, err := a.out.Write(b.Bytes())
				return err
			}
			a.printTopology(f, sms, warnings)
			return nil
		},
	}
	timeout = timeoutFlag(c, time.Minute, "give up after `TIME`")
	c.Flags().BoolVar(&ibnetdiscover, "ibnetdiscover", false, "print in the format of ibnetdiscover")
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

func topologyJSON(f *fabric.Fabric, sms []smctl.SMInfo, warnings []string) answer.Topology {
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
	managers := []api.SMInfo{}
	for _, s := range sms {
		managers = append(managers, api.SMInfo{GUID: s.GUID.String(), LID: uint16(s.LID), Priority: s.Priority, State: s.State.String()})
	}
	return answer.Topology{Schema: answer.Schema, Nodes: nodes, SubnetManagers: managers, Warnings: append([]string{}, warnings...)}
}

func (a *app) printTopology(f *fabric.Fabric, sms []smctl.SMInfo, warnings []string) {
	for i := range f.Nodes {
		n := &f.Nodes[i]
		fmt.Fprintf(a.out, "%s %s %q\n", a.paint(bold, n.Type.String()), n.GUID, n.Desc)
		var rows [][]cell
		eachPort(f, int32(i), func(p, peer *fabric.Port) {
			if p.Num == 0 || peer == nil && n.Type == ib.NodeSwitch {
				return
			}
			to := "not connected"
			if peer != nil {
				to = fmt.Sprintf("%s %s port %d", f.Nodes[peer.Node].Type, cmp.Or(f.Nodes[peer.Node].Desc, f.Nodes[peer.Node].GUID.String()), peer.Num)
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
		a.table("   ", []string{"", "", "", "", ""}, rows)
	}
	fmt.Fprintln(a.out)
	if len(sms) == 0 {
		fmt.Fprintln(a.out, "No subnet manager answered.")
	}
	for _, s := range sms {
		fmt.Fprintln(a.out, s)
	}
	for _, w := range warnings {
		fmt.Fprintln(a.out, a.paint(soso, "warning: "+w))
	}
}
