// Package explain computes which way packets go through a fabric and why, and what
// a change of the fabric would do to them.
//
// It follows forwarding tables, those in force or those that route.Build makes,
// and compares the tables of a fabric with those of the same fabric without some
// nodes or cables. It never talks to a network: the tables come with the fabric.
package explain

import (
	"cmp"
	"fmt"

	"ibnetworkd/ib"
	"ibnetworkd/ib/partition"
	"ibnetworkd/sm/fabric"
	"ibnetworkd/sm/guidfile"
	"ibnetworkd/sm/lid"
	"ibnetworkd/sm/pkey"
	"ibnetworkd/sm/qos"
	"ibnetworkd/sm/route"
)

// Routes are a fabric and its tables.
type Routes struct {
	Fabric *fabric.Fabric
	route.Result
	// VL gives the virtual lane of a service level on the way in by one port of a
	// node and out by another, by index into Fabric.Ports; in is fabric.None at
	// the node that sends. nil puts all on lane 0.
	VL func(in, out int32, sl ib.SL) ib.VL
	// Keys has the P_Key table of each end port, by index into Fabric.Ports; nil
	// is the default partition, with full membership.
	Keys   [][]ib.PKey
	Groups []partition.Precreated
	// Live is whether states and MTUs are the ports' answers.
	Live bool

	// repaired are the tables that are written first where Result came of a comparison with
	// them (route.Result.Early); nil otherwise.
	repaired [][]uint8
	weights  []guidfile.Weight // with which the tables were made, as far as is known
	drained  []ib.GUID
	view     *route.View
}

// View is what the tables do, measured once.
func (r *Routes) View() *route.View {
	if r.view == nil {
		seen, _ := r.Fabric.Drained(r.drained)
		r.view = route.NewView(r.Fabric, seen, r.weights, &r.Result)
	}
	return r.view
}

// Options are how the subnet manager that routes is configured.
type Options struct {
	Route      route.Options // the engine and hints; Previous, Order, Before and Layers are set by Compute
	Drained    []ib.GUID     // switches that routes avoid
	LMC        *ib.LMC       // of adapter ports; nil leaves each port its own
	QoS        bool
	Levels     int // service levels that routes may use with QoS; 0 for eight
	Partitions partition.Config
}

// Compute makes the tables that the subnet manager would, starting with those in
// force if previous is not nil. LIDs that ports have stay.
func Compute(f *fabric.Fabric, opt Options, previous *Routes) (*Routes, error) {
	lo := lid.Options{KeepLMC: opt.LMC == nil}
	if opt.LMC != nil {
		lo.LMC = *opt.LMC
	}
	f = lid.Assign(f, nil, lo).Fabric
	ro := opt.Route
	ro.Previous, ro.Order, ro.Before, ro.Layers = nil, nil, "", 0
	if previous != nil {
		ro.Previous, ro.Order, ro.Before = carried(previous, f), previous.Order, previous.Engine
		at := previous.Fabric.SwitchGUIDs()
		ro.SL, ro.Trunk = previous.SL.Carry(at, f), route.CarryTrunk(previous.Trunk, at, f)
	}
	if opt.QoS {
		ro.Layers = cmp.Or(opt.Levels, 8)
	}
	r := &Routes{Fabric: f, weights: opt.Route.HopWeights, drained: opt.Drained}
	seen, _ := f.Drained(opt.Drained)
	ro.Early = previous != nil
	if err := r.build(seen, ro); err != nil {
		return nil, err
	}
	if opt.QoS {
		t, lack := qos.Build(seen, r.NumLayers, qos.Options{})
		if lack != nil && r.NumLayers > 1 {
			ro.Layers = 0
			if err := r.build(seen, ro); err != nil {
				return nil, err
			}
			r.Warnings = append(r.Warnings, fmt.Sprintf("routing uses no service levels: %v", lack))
		}
		r.VL = func(_, out int32, sl ib.SL) ib.VL { return t.SLtoVL(out)[sl&15] }
	}
	keys := pkey.Tables(f, opt.Partitions, nil)
	r.Keys, r.Groups = keys.Members, keys.Groups
	return r, nil
}

// build computes as the subnet manager does after a change: repaired tables first, where
// such are possible, then a comparison with new ones.
func (r *Routes) build(f *fabric.Fabric, opt route.Options) (err error) {
	r.repaired = nil
	if r.Result, err = route.Build(f, opt); err != nil || !r.Early {
		return err
	}
	r.repaired = r.LFT
	opt.Previous, opt.Order, opt.Before, opt.SL, opt.Trunk, opt.Early = r.LFT, r.Order, r.Engine, r.SL, r.Trunk, false
	r.Result, err = route.Build(f, opt)
	return err
}

// unused are the links between switches of a live fabric that are not Active, by
// one of their ports: a subnet manager leaves out those that go down again and again.
func (r *Routes) unused() (out []int32) {
	f := r.Fabric
	for i := range f.Ports {
		p := &f.Ports[i]
		if r.Live && p.Num != 0 && p.Peer > int32(i) && f.Nodes[p.Node].Switch != fabric.None &&
			f.Nodes[f.Ports[p.Peer].Node].Switch != fabric.None && r.state(int32(i)) != ib.PortActive {
			out = append(out, int32(i))
		}
	}
	return out
}

// Inactive is how many links between switches of a live fabric are not Active.
// Recognize and Compare leave them out; a subnet manager that is still at work may
// bring them up.
func (r *Routes) Inactive() int { return len(r.unused()) }

// carried are the rows of tables by the switch indices of another fabric.
func carried(r *Routes, f *fabric.Fabric) [][]uint8 {
	out := make([][]uint8, len(f.Switches))
	for i := range f.Switches {
		n := r.Fabric.NodeByGUID(f.Nodes[f.Switches[i].Node].GUID)
		if n == fabric.None || r.Fabric.Nodes[n].Switch == fabric.None {
			continue
		}
		if s := int(r.Fabric.Nodes[n].Switch); s < len(r.LFT) {
			out[i] = r.LFT[s]
		}
	}
	return out
}

// InForce records what the subnet manager reports of the tables that were read from
// switches: the engine, layers and order of switches, service levels and the trunk by the
// switches of at, and the hints of opt that it made them with.
func (r *Routes) InForce(t route.Result, at []ib.GUID, opt *Options) {
	r.Engine, r.NumLayers, r.Order = t.Engine, max(1, t.NumLayers), t.Order
	r.SL, r.Trunk = t.SL.Carry(at, r.Fabric), route.CarryTrunk(t.Trunk, at, r.Fabric)
	r.weights, r.drained, r.view = opt.Route.HopWeights, opt.Drained, nil
}

// Recognize names the engine of tables that were read from switches: the one with
// which the subnet manager would keep every entry. Engine stays what it is where
// it would change some; differ is how many, of how many. Warnings are those of the
// computation.
func (r *Routes) Recognize(opt Options) (differ, of int, err error) {
	used := r.Fabric
	if out := r.unused(); len(out) > 0 {
		used = Without(used, nil, out)
	}
	want, err := Compute(used, opt, r)
	if err != nil {
		return 0, 0, err
	}
	owner := want.Fabric.LIDs()
	rows := carried(want, r.Fabric)
	for s := range r.LFT {
		for l, p := range owner {
			if p == fabric.None || l >= len(rows[s]) {
				continue
			}
			of++
			if l >= len(r.LFT[s]) || r.LFT[s][l] != rows[s][l] {
				differ++
			}
		}
	}
	r.Bound, r.Warnings = want.Bound, want.Warnings
	if differ == 0 {
		r.weights, r.drained, r.view = opt.Route.HopWeights, opt.Drained, nil
		r.Engine, r.Order, r.NumLayers = want.Engine, want.Order, want.NumLayers
		if used == r.Fabric {
			r.SL = want.SL
		}
	}
	return differ, of, nil
}
