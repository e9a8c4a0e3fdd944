package engine

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"ibnetworkd/ib"
	"ibnetworkd/sm/discover"
	"ibnetworkd/sm/elect"
	"ibnetworkd/sm/fabric"
	"ibnetworkd/sm/lid"
	"ibnetworkd/sm/mad"
	"ibnetworkd/sm/mcast"
	"ibnetworkd/sm/pkey"
	"ibnetworkd/sm/program"
	"ibnetworkd/sm/qos"
	"ibnetworkd/sm/route"
	"ibnetworkd/sm/sa"
	"ibnetworkd/sm/smp"
)

// fullSweep discovers everything anew as master.
func (s *Subnet) fullSweep(ctx context.Context) error {
	t0, n0 := time.Now(), s.counters.SMPs
	ev := s.ev
	s.ev, s.looked = events{}, nil
	d := discover.New(s.options())
	res, err := s.walk(ctx, d)
	if err != nil {
		return err
	}
	if res.Fabric == nil {
		s.warnOnce("local", "the local port does not answer", "why", fmt.Sprint(res.Warnings))
		s.ev.full, s.ev.reason = true, ev.reason
		return s.pause(ctx, time.Second)
	}
	if err := s.others(ctx, res); err != nil {
		return err
	}
	if s.elect.State() != mad.SMMaster {
		return errRestart
	}
	return s.configure(ctx, res, t0, n0, "full", ev.reason)
}

// walk makes a discovery.
func (s *Subnet) walk(ctx context.Context, d *discover.Discovery) (*discover.Result, error) {
	if err := s.pump(ctx, d); err != nil {
		return nil, err
	}
	return compute(ctx, s, d.Result)
}

// built is what was computed for a fabric.
type built struct {
	route.Result
	qos       *qos.Tables
	err, lack error // no routes; no lanes for the service levels
}

func build(f *fabric.Fabric, opt route.Options, q *qos.Options) (b built) {
	b.Result, b.err = route.Build(f, opt)
	if b.err != nil || q == nil {
		return b
	}
	if b.qos, b.lack = qos.Build(f, b.NumLayers, *q); b.lack != nil && b.NumLayers > 1 {
		opt.Layers = 0
		b.Result, b.err = route.Build(f, opt)
	}
	return b
}

// others lets the election see the managers that a master's walk met.
func (s *Subnet) others(ctx context.Context, res *discover.Result) error {
	s.mute = nil
	for _, x := range res.SMs {
		if path, ok := program.PathTo(res.Fabric, x.Port); ok && x.Silent {
			p := &res.Fabric.Ports[x.Port]
			s.mute = append(s.mute, elect.Peer{Info: mad.SMInfo{GUID: p.GUID}, LID: p.Info.LID(), Path: path})
		}
	}
	return s.hand(ctx, s.elect.Discovered(peers(res)))
}

// hand hands over to a better manager, at most once a second.
func (s *Subnet) hand(ctx context.Context, a elect.Action) error {
	if a != elect.Handover || time.Now().Before(s.handoverUntil) {
		return nil
	}
	p := s.elect.Target()
	s.log.Info("handing over to a better manager", "to", p.Info.GUID.String(), "priority", p.Info.Priority, "to_lid", p.LID.String())
	s.handoverUntil = time.Now().Add(time.Second)
	return s.handover(ctx, p)
}

// handover tells another manager to take over. Its answer without an error is
// the acceptance: not every manager sends the Acknowledge that the architecture
// leaves to its choice.
func (s *Subnet) handover(ctx context.Context, p elect.Peer) error {
	r := smp.Request{Method: mad.MethodSet, Attr: mad.AttrSMInfo, Mod: mad.SMInfoHandover, Path: p.Path}
	info := s.elect.Info(s.act.Load())
	info.Append(r.Data[:0])
	l := &smp.List{Requests: []smp.Request{r}, Done: func(r *smp.Reply) {
		if r.OK() {
			s.elect.Received(mad.SMInfoAcknowledge, p)
			s.linger = time.Now().Add(lingerMost)
		} else if s.elect.State() == mad.SMMaster {
			s.warnOnce("handover"+p.Info.GUID.String(), "the other manager does not take over", "guid", p.Info.GUID.String(), "timeout", r.Timeout, "status", uint16(r.Status))
		}
	}}
	return s.pump(ctx, l)
}

// partialSweep looks at what the pending events name. A light sweep first asks
// every switch whether a port changed, and becomes partial where one did.
func (s *Subnet) partialSweep(ctx context.Context) error {
	t0, n0 := time.Now(), s.counters.SMPs
	ev := s.ev
	s.ev = events{}
	f := s.fab
	var suspects []int32
	lids := f.LIDs()
	at := func(l ib.LID) int32 {
		if int(l) < len(lids) {
			return lids[l]
		}
		return fabric.None
	}
	for _, l := range ev.switches {
		if p := at(l); p != fabric.None && f.Nodes[f.Ports[p].Node].Switch != fabric.None {
			suspects = append(suspects, f.Ports[p].Node)
		}
	}
	for _, g := range ev.guids {
		if n := f.NodeByGUID(g); n != fabric.None {
			suspects = append(suspects, n)
		}
	}
	kind := "partial"
	if ev.light || ev.resweep {
		turn := 0
		if !ev.resweep {
			turn = s.lights
			s.lights++
		}
		if err := s.askPeers(ctx, false); err != nil {
			return err
		}
		found, err := s.lightSweep(ctx, f, turn)
		if err != nil {
			return err
		}
		if len(found) > 0 && ev.reason == "" {
			ev.reason = "a switch reports changed ports"
		}
		suspects = append(suspects, found...)
		if len(suspects)+len(ev.ports)+len(ev.descs) == 0 && !ev.apply {
			kind = "light"
		}
	}
	if kind == "light" {
		if s.knowsPeers() {
			if err := s.hand(ctx, s.elect.Discovered(s.elect.Peers())); err != nil {
				return err
			}
		}
		if ev.resweep {
			s.finish(f, t0, n0, "light", ev.reason, 0, true)
		}
		return nil
	}
	s.looked = make(map[ib.GUID]bool, len(suspects))
	for _, n := range suspects {
		s.looked[f.Nodes[n].GUID] = true
	}
	d := discover.Resume(s.options(), f, s.have.pkeys, suspects)
	for _, l := range ev.ports {
		if p := at(l); p != fabric.None && (f.Ports[p].Peer != fabric.None || f.Ports[p].Num == 0) {
			d.AskPort(f.Ports[p].Node, f.Ports[p].Num)
		}
	}
	for _, l := range ev.descs {
		if p := at(l); p != fabric.None {
			d.AskDescription(f.Ports[p].Node)
		}
	}
	res, err := s.walk(ctx, d)
	if err != nil {
		return err
	}
	if res.Fabric == nil {
		s.ev.full, s.ev.reason = true, ev.reason
		return nil
	}
	if len(res.SMs) > 0 || s.knowsPeers() {
		// A walk of a part sees a part of the managers: keep the others.
		if err := s.others(ctx, s.mergePeers(res)); err != nil {
			return err
		}
	}
	if s.elect.State() != mad.SMMaster {
		return errRestart
	}
	return s.configure(ctx, res, t0, n0, kind, ev.reason)
}

func (s *Subnet) knowsPeers() bool { return len(s.elect.Peers())+len(s.mute) > 0 }

// mergePeers adds the managers known before that are still in the fabric and
// still say so.
func (s *Subnet) mergePeers(res *discover.Result) *discover.Result {
	m := *res
	for k, p := range slices.Concat(s.elect.Peers(), s.mute) {
		i := res.Fabric.EndPortByGUID(p.Info.GUID)
		if i == fabric.None || res.Fabric.Ports[i].Info.CapMask()&fabric.CapIsSM == 0 ||
			slices.ContainsFunc(res.SMs, func(x discover.SM) bool { return x.Port == i }) {
			continue
		}
		m.SMs = append(slices.Clone(m.SMs), discover.SM{Port: i, Info: p.Info, Silent: k >= len(s.elect.Peers())})
	}
	return &m
}

// lightSweep asks each switch one thing and gives the nodes to look at:
// switches with changed ports, restarted ones, and the neighbours of silent
// ones. Most turns ask SwitchInfo; some ask port 0 or one other port after the
// other instead, so that in the end nothing stays unseen that happened in the
// middle of a sweep. The ports without a link of switches that were new are asked
// beside that, once: see program.Switches.
func (s *Subnet) lightSweep(ctx context.Context, f *fabric.Fabric, turn int) ([]int32, error) {
	var suspects []int32
	l := smp.List{}
	for i := range f.Switches {
		n := f.Switches[i].Node
		r := smp.Request{Method: mad.MethodGet, Attr: mad.AttrSwitchInfo, Path: f.Nodes[n].Path, Tag: uint64(i)}
		switch turn % 4 {
		case 1:
			r.Attr = mad.AttrPortInfo
		case 3:
			r.Attr, r.Mod = mad.AttrPortInfo, uint32(1+turn/4%int(f.Nodes[n].NumPorts))
		}
		l.Requests = append(l.Requests, r)
	}
	for i, dark := range s.have.dark {
		if dark {
			l.Requests = appendDark(l.Requests, f, f.Switches[i].Node)
		}
	}
	l.Done = func(r *smp.Reply) {
		sw := &f.Switches[r.Tag]
		if !r.OK() {
			suspects = append(suspects, sw.Node)
			first, count := f.PortRange(sw.Node)
			for p := first; p < first+count; p++ {
				if q := f.Ports[p].Peer; q != fabric.None && f.Nodes[f.Ports[q].Node].Switch != fabric.None {
					suspects = append(suspects, f.Ports[q].Node)
				}
			}
			return
		}
		if r.Attr == mad.AttrSwitchPortState {
			first, count := f.PortRange(sw.Node)
			for i := first; i < first+count; i++ {
				p := &f.Ports[i]
				if p.Num == 0 || p.Peer != fabric.None || int(p.Num)/fabric.TablePorts != int(r.Mod) {
					continue
				}
				if state := fabric.StateInTable(r.Data[:], int(p.Num)%fabric.TablePorts); (state >= ib.PortInit) != (p.Info.State() >= ib.PortInit) {
					suspects = append(suspects, sw.Node)
					return
				}
			}
			return
		}
		if r.Attr == mad.AttrPortInfo {
			pi, p := fabric.PortInfoOf(&r.Data), &f.Ports[f.Port(sw.Node, uint8(r.Mod))]
			if r.Mod == 0 && pi.LID() != p.LID || r.Mod != 0 && pi.State() != p.Info.State() {
				suspects = append(suspects, sw.Node)
			}
			return
		}
		si := fabric.SwitchInfoOf(&r.Data)
		if si.PortStateChange() || si.LinearFDBTop() != sw.Info.LinearFDBTop() {
			suspects = append(suspects, sw.Node)
		}
	}
	if err := s.pump(ctx, &l); err != nil {
		return nil, err
	}
	clear(s.have.dark)
	return suspects, nil
}

// appendDark appends the questions for the ports of a switch that had no link: for
// their states at once if that is what told of some of them before.
func appendDark(out []smp.Request, f *fabric.Fabric, n int32) []smp.Request {
	r := smp.Request{Method: mad.MethodGet, Path: f.Nodes[n].Path, Tag: uint64(f.Nodes[n].Switch)}
	tells := f.Ports[f.Port(n, 0)].Info.TellsPortStates()
	first, count := f.PortRange(n)
	from := len(out)
	for i := first; i < first+count; i++ {
		p := &f.Ports[i]
		if p.Num == 0 || p.Peer != fabric.None {
			continue
		}
		if !p.Known && tells {
			out = out[:from]
			r.Attr = mad.AttrSwitchPortState
			for r.Mod = 0; int(r.Mod) <= int(f.Nodes[n].NumPorts)/fabric.TablePorts; r.Mod++ {
				out = append(out, r)
			}
			return out
		}
		r.Attr, r.Mod = mad.AttrPortInfo, uint32(p.Num)
		out = append(out, r)
	}
	return out
}

// remap carries what the fabric is known to hold over to a new set of indices.
func (s *Subnet) remap(f *fabric.Fabric, res *discover.Result) tables {
	t := tables{lft: make([][]uint8, len(f.Switches)), mft: make(mcast.Tables, len(f.Switches)), fresh: make([]bool, len(f.Switches)),
		dark: make([]bool, len(f.Switches)), pkeys: res.PKeys, asked: make(program.Asked, len(f.Ports)), lanes: make([]uint8, len(f.Ports)), heard: make([]bool, len(f.Ports))}
	if s.fab == nil {
		for i := range t.fresh {
			t.fresh[i] = true
		}
		return t
	}
	for n := range f.Nodes {
		o := s.fab.NodeByGUID(f.Nodes[n].GUID)
		if o == fabric.None || res.Fresh[n] || s.fab.Nodes[o].NumPorts != f.Nodes[n].NumPorts {
			if sw := f.Nodes[n].Switch; sw != fabric.None {
				t.fresh[sw] = true
			}
			continue
		}
		a, count := f.PortRange(int32(n))
		b, _ := s.fab.PortRange(o)
		copy(t.asked[a:a+count], s.have.asked[b:b+count])
		copy(t.lanes[a:a+count], s.have.lanes[b:b+count])
		for k := range count {
			// The SA forgets a port that is not connected.
			t.heard[a+k] = s.have.heard[b+k] && s.fab.EndPortByGUID(s.fab.Ports[b+k].GUID) == b+k
		}
		if sw, old := f.Nodes[n].Switch, s.fab.Nodes[o].Switch; sw != fabric.None && old != fabric.None {
			t.lft[sw], t.fresh[sw], t.dark[sw] = s.have.lft[old], s.have.fresh[old], s.have.dark[old]
			if int(old) < len(s.have.mft) {
				t.mft[sw] = s.have.mft[old]
			}
		}
	}
	return t
}

// sameShape tells that two fabrics have the same nodes, links and LIDs, so that
// the routes of one serve the other.
func sameShape(a, b *fabric.Fabric) bool {
	if a == nil || len(a.Nodes) != len(b.Nodes) || len(a.Ports) != len(b.Ports) {
		return false
	}
	for i := range a.Nodes {
		if a.Nodes[i].GUID != b.Nodes[i].GUID {
			return false
		}
	}
	for i := range a.Ports {
		x, y := &a.Ports[i], &b.Ports[i]
		if x.Peer != y.Peer || x.LID != y.LID || x.LMC != y.LMC {
			return false
		}
	}
	return true
}

// configure brings the fabric from what a walk found to what it should be.
func (s *Subnet) configure(ctx context.Context, res *discover.Result, t0 time.Time, n0 uint64, kind, reason string) error {
	if res.Fabric == nil {
		return errRestart
	}
	for _, d := range res.Duplicates {
		s.warnOnce("dup"+d.GUID.String(), "duplicate GUID", "problem", d.String())
	}
	for _, w := range append(slices.Clone(res.Warnings), res.Silent...) {
		s.warnOnce(w, "discovery", "problem", w)
	}
	memory, opt := s.memory, lid.Options{LMC: s.cfg.LMC, Reassign: s.cfg.Reassign && s.fab == nil}
	a, err := compute(ctx, s, func() lid.Result { return lid.Assign(res.Fabric, memory, opt) })
	if err != nil {
		return err
	}
	for _, w := range a.Warnings {
		s.warnOnce(w, "LIDs", "problem", w)
	}
	f := a.Fabric
	pol := s.cfg.Policy
	pol.SMLID = f.Ports[f.SMPort].LID
	have := s.remap(f, res)

	if err := s.readLFTs(ctx, f, &have); err != nil {
		return err
	}
	keyed := program.ReadPKeys{Fabric: f, Tables: have.pkeys}
	if err := s.pump(ctx, &keyed); err != nil {
		return err
	}
	for _, p := range keyed.Failed {
		have.pkeys[p] = pkey.PowerOn // asked again when it comes back
		s.warnOnce("pkeys"+f.Ports[p].GUID.String(), "a port does not answer P_KeyTable, it is taken to hold the default key", "link_port", f.PortName(p))
	}
	var warn []string
	if !sameShape(s.fab, f) || s.want.lft == nil {
		opt := s.cfg.Route
		opt.Previous, opt.Order = have.lft, s.want.order
		if s.cfg.QoS != nil && !s.laneless {
			opt.Layers = 8
		}
		r, err := compute(ctx, s, func() built { return build(f, opt, s.cfg.QoS) })
		if err != nil {
			return err
		}
		if r.lack != nil {
			s.warnOnce("layers", "routing does without service levels", "why", r.lack)
		}
		if r.err != nil {
			s.log.Error("no routes", "err", r.err)
			return s.pause(ctx, time.Second)
		}
		s.compareRoutes(&r.Result)
		s.want = routes{lft: r.LFT, sl: r.SL, layers: r.NumLayers, engine: r.Engine, order: r.Order, worst: r.Worst, bound: r.Bound, qos: r.qos}
		warn = r.Warnings
	}
	want := s.want.lft
	if s.want.qos != nil {
		pol.Lanes = make([]uint8, len(f.Ports))
		for i := range pol.Lanes {
			pol.Lanes[i] = s.want.qos.OperVLs(int32(i))
		}
	}
	if s.want.sl != nil {
		// What hosts ask the manager takes the way that its level is free of
		// deadlocks on, as everything else.
		pol.SMSLs = make([]ib.SL, len(f.Ports))
		for _, e := range f.EndPorts {
			pol.SMSLs[e] = levelTo(f, s.want.sl, e)
		}
	}
	partitions := s.cfg.Partitions
	held := have.pkeys
	keys, err := compute(ctx, s, func() pkey.Plan { return pkey.Tables(f, partitions, held) })
	if err != nil {
		return err
	}
	for _, e := range f.EndPorts {
		// A host may restart after its table was read and before its port is
		// Active, and nothing shows it: what a port holds in Init is either
		// what was read or nothing.
		if p := &f.Ports[e]; p.Num != 0 && p.Info.State() == ib.PortInit && have.pkeys[e] != nil && keys.Keys[e] == nil && !slices.Equal(keys.Members[e], pkey.PowerOn) {
			keys.Keys[e], have.pkeys[e] = keys.Members[e], pkey.PowerOn
		}
	}
	keys.Enforce(f, s.cfg.Enforce, have.pkeys)
	pol.Enforcement = keys.Enforcement
	for _, w := range append(warn, keys.Warnings...) {
		s.warnOnce(w, "routes and partitions", "problem", w)
	}

	// Tables, switches and the ports that are up already.
	failed := 0
	bad := make([]bool, len(f.Nodes)) // nodes that did not take what they were told
	due := make([]bool, len(f.Nodes)) // nodes to be tried again
	lanes := false                    // a switch refused what keeps service levels apart
	fail := func(node int32, r *smp.Reply) {
		failed++
		if !due[node] {
			due[node] = true
			s.warnOnce("set"+f.Nodes[node].GUID.String(), "a node does not take what it is told", "node", f.Nodes[node].Name(), "guid", f.Nodes[node].GUID.String(),
				"attribute", mad.AttrName(mad.ClassSubnDR, r.Attr), "modifier", r.Mod, "timeout", r.Timeout, "status", uint16(r.Status))
		}
		switch r.Attr {
		case mad.AttrSLtoVL, mad.AttrVLArb, mad.AttrPKeyTable, mad.AttrGUIDInfo:
			// The port does what it can without: it is not kept down for that.
			lanes = lanes || r.Attr == mad.AttrSLtoVL && !r.Timeout && f.Nodes[node].Switch != fabric.None
		default:
			bad[node] = true
		}
	}
	var refused []uint64                   // ports that did not take a block of their P_Key table
	owned := make([]bool, len(f.Switches)) // rows of have.lft that are not shared with the published ones
	done := func(r *smp.Reply) {
		switch r.Attr {
		case mad.AttrLFT, mad.AttrSwitchInfo, mad.AttrSLtoVL, mad.AttrVLArb:
			sw := r.Tag
			if r.Attr == mad.AttrSLtoVL || r.Attr == mad.AttrVLArb {
				if !r.OK() {
					fail(f.Ports[r.Tag].Node, r)
					have.lanes[r.Tag] = 0
				}
				return
			}
			if !r.OK() {
				fail(f.Switches[sw].Node, r)
				return
			}
			if r.Attr == mad.AttrSwitchInfo {
				f.Switches[sw].Info = fabric.SwitchInfoOf(&r.Data)
				if told := fabric.SwitchInfoOf(&r.Request.Data); told.PortStateChange() {
					f.Switches[sw].Info.ClearPortStateChange()
					have.dark[sw] = true
				}
				return
			}
			if have.lft[sw] == nil && !owned[sw] {
				return // a new switch has the wanted table when no block failed
			}
			if !owned[sw] {
				have.lft[sw], owned[sw] = slices.Clone(have.lft[sw]), true
			}
			have.lft[sw] = program.PutLFT(have.lft[sw], &r.Request)
		case mad.AttrPortInfo:
			if !r.OK() {
				fail(f.Ports[r.Tag].Node, r)
				return
			}
			if told := fabric.PortInfoOf(&r.Request.Data); told.ClientReregister() {
				have.heard[r.Tag] = true
			}
			met, was := f.Ports[r.Tag].Known, f.Ports[r.Tag].Info.State()
			program.Answered(f, have.asked, r)
			if f.IsEndPort(int32(r.Tag)) && met && was >= ib.PortArmed && f.Ports[r.Tag].Info.State() <= ib.PortInit {
				// Its host restarted since it was looked at: what was read
				// of it before holds no more.
				have.pkeys[r.Tag], have.heard[r.Tag] = nil, false
				s.ev.guids, s.ev.reason = append(s.ev.guids, f.Nodes[f.Ports[r.Tag].Node].GUID), "a port restarted during the sweep"
			}
			if p := &f.Ports[r.Tag]; !met && p.Num == 0 && p.Info.CapMask()&fabric.CapIsSM != 0 && int32(r.Tag) != f.SMPort {
				// A manager inside a switch that nothing was known of.
				s.ev.ports, s.ev.reason = append(s.ev.ports, p.LID), "another manager in a switch"
			}
		case mad.AttrGUIDInfo:
			if !r.OK() {
				fail(f.Ports[r.Tag].Node, r)
			}
		case mad.AttrPKeyTable:
			if !r.OK() {
				fail(f.Ports[r.Tag].Node, r)
				refused = append(refused, r.Tag)
			}
		}
	}
	if s.reregister {
		clear(have.heard)
		s.lastJoin = time.Now()
		s.mcastHold = s.lastJoin.Add(mcastMost)
	}
	// SwitchInfo first: a switch that restarts after that shows LinearFDBTop 0
	// to the next light sweep, whatever else it had been told.
	reqs := program.Switches(f, pol, a.Top)
	sets := len(reqs)
	told := make([]uint64, 0, sets)
	for i := range reqs {
		told = append(told, reqs[i].Tag)
	}
	if err := s.pump(ctx, &smp.List{Requests: reqs, Done: done}); err != nil {
		return err
	}
	if s.fab == nil {
		// One that restarted between its discovery and that Set shows nothing
		// any more: its port 0 and its table are set whatever they answered.
		for _, sw := range told {
			have.lft[sw] = nil
			p0 := f.Port(f.Switches[sw].Node, 0)
			f.Ports[p0].Info.SetLID(0)
		}
	}
	lft := program.LFT{Fabric: f, Have: have.lft, Want: want, Done: done}
	if err := s.pump(ctx, &lft); err != nil {
		return err
	}
	// A switch port checks P_Keys once it has its table, not before.
	reqs = program.PKeys(f, have.pkeys, keys.Keys)
	sets += len(reqs)
	told = told[:0]
	for i := range reqs {
		told = append(told, reqs[i].Tag)
	}
	if err := s.pump(ctx, &smp.List{Requests: reqs, Done: done}); err != nil {
		return err
	}
	for _, p := range told {
		if !slices.Contains(refused, p) {
			have.pkeys[p] = keys.Keys[p]
		} else if pol.Enforcement != nil {
			pol.Enforcement[p] = 0
		}
	}
	reqs = nil
	// The SA must know the ports before the first of them can ask: those that
	// are told to register again do so at once, and ask a second time only
	// after three.
	st := sa.State{Fabric: f, LFT: want, SL: s.want.sl, MFT: have.mft, PKeys: keys.Members, Groups: keys.Groups, SMs: s.smRecords(f, res), QoS: s.want.qos}
	sweepsAgain := s.fab != nil
	if !sweepsAgain {
		s.apply(s.admin.SetState(s.now(), st))
	}
	for _, g := range s.rereg {
		if p := f.EndPortByGUID(g); p != fabric.None {
			have.heard[p] = false
		}
	}
	// What the clients of a port had asked for is unknown to this SA, or
	// forgotten, until they heard from this manager: after a takeover, and when a
	// part of the subnet that was cut off comes back with its ports Active.
	rereg := make([]bool, len(f.Ports))
	for _, p := range f.EndPorts {
		q := &f.Ports[p]
		rereg[p] = q.Num != 0 && q.Info.State() == ib.PortActive && q.Info.CapMask()&fabric.CapClientReregister != 0 && !have.heard[p]
	}
	if s.want.qos != nil {
		reqs = append(reqs, program.QoS(f, s.want.qos, have.lanes)...)
		have.lanes = slices.Clone(pol.Lanes)
	}
	reqs = append(reqs, s.aliasGUIDs(f)...)
	ports := program.Ports{Fabric: f, Policy: pol, Asked: have.asked, Stage: program.Configure, Reregister: rereg, Done: done}
	if err := s.pump(ctx, &ports); err != nil {
		return err
	}
	if err := s.pump(ctx, &smp.List{Requests: reqs, Done: done}); err != nil {
		return err
	}
	sets += lft.Count + ports.Count + len(reqs)
	for i := range f.Switches {
		if have.lft[i] == nil && !bad[f.Switches[i].Node] {
			have.lft[i] = want[i]
		}
	}
	s.reregister, s.rereg = false, nil
	s.fab = f
	s.have, s.top, s.memory = have, a.Top, a.Memory
	s.saved = s.saved && !a.Changed

	for _, stage := range []program.Stage{program.Arm, program.Configure, program.Activate} {
		ports := program.Ports{Fabric: f, Policy: pol, Asked: have.asked, Stage: stage, Done: done, Skip: func(i int32) bool {
			p := &f.Ports[i]
			return bad[p.Node] || p.Peer != fabric.None && bad[f.Ports[p.Peer].Node]
		}}
		if err := s.pump(ctx, &ports); err != nil {
			return err
		}
	}
	st.Fabric = f
	s.apply(s.admin.SetState(s.now(), st))
	s.mcastDirty = s.mcastDirty || res.Changed || !sweepsAgain
	if err := s.programMulticast(ctx); err != nil {
		return err
	}
	changed := res.Changed || !sweepsAgain || sets > 0
	s.quietUntil = time.Time{}
	if s.fruitless++; changed {
		s.fruitless = 0
	} else {
		s.quietUntil = time.Now().Add(min(time.Millisecond<<min(s.fruitless, 10), 200*time.Millisecond))
	}
	if lanes && s.want.layers > 1 {
		s.warnOnce("laneless", "a switch does not take its SL-to-VL table; routing does without service levels")
		s.laneless, s.want.lft = true, nil
		s.ev.full, s.ev.reason = true, "a switch refused its SL-to-VL table"
	}
	s.trouble(f, due, failed, res)
	s.finish(f, t0, n0, kind, reason, failed, changed || reason != "")
	s.save()
	return nil
}

// levelTo is the service level between the manager and an end port, which is
// the same both ways.
func levelTo(f *fabric.Fabric, sl route.Layers, port int32) ib.SL {
	a, _ := f.SwitchOf(f.SMPort)
	b, _ := f.SwitchOf(port)
	if a == fabric.None || b == fabric.None || a == b {
		return 0
	}
	return sl.SL(a, b)
}

// aliasGUIDs gives the Sets of GUIDInfo that the SA was asked for, in order.
func (s *Subnet) aliasGUIDs(f *fabric.Fabric) []smp.Request {
	keys := slices.SortedFunc(maps.Keys(s.guids), func(a, b guidKey) int {
		return cmp.Or(cmp.Compare(a.port, b.port), cmp.Compare(a.block, b.block))
	})
	var out []smp.Request
	for _, k := range keys {
		g := s.guids[k]
		p := f.EndPortByGUID(k.port)
		if p == fabric.None {
			continue
		}
		path, ok := program.PathTo(f, p)
		if !ok {
			continue
		}
		r := smp.Request{Method: mad.MethodSet, Attr: mad.AttrGUIDInfo, Mod: uint32(k.block), Path: path, Tag: uint64(p), MKey: program.Key(f, p)}
		g.Append(r.Data[:0])
		out = append(out, r)
	}
	clear(s.guids)
	return out
}

// readLFTs reads the forwarding tables of switches that somebody configured and
// nothing is known of: a manager that takes over keeps the routes that are as
// good as its own, and sends nothing that is there. A table that cannot be read
// is written anew.
func (s *Subnet) readLFTs(ctx context.Context, f *fabric.Fabric, have *tables) error {
	l := program.ReadLFT{Fabric: f, Skip: func(sw int) bool { return have.lft[sw] != nil }}
	if err := s.pump(ctx, &l); err != nil {
		return err
	}
	for i, row := range l.Rows {
		if have.lft[i] == nil {
			have.lft[i] = row
		}
	}
	return nil
}

// trouble plans the next look at what failed, later each time.
func (s *Subnet) trouble(f *fabric.Fabric, bad []bool, failed int, res *discover.Result) {
	// What an earlier sweep failed at and this one did not look at is still due.
	s.silentAt = slices.DeleteFunc(s.silentAt, func(g ib.GUID) bool {
		return s.looked == nil || s.looked[g] || f.NodeByGUID(g) == fabric.None
	})
	for i, b := range bad {
		if b {
			s.silentAt = append(s.silentAt, f.Nodes[i].GUID)
		}
	}
	s.silentAt = append(s.silentAt, res.SilentAt...)
	slices.Sort(s.silentAt)
	s.silentAt = slices.Compact(s.silentAt)
	if len(s.silentAt) == 0 {
		s.troubled, s.retryAt = 0, time.Time{}
		return
	}
	if !s.retryAt.IsZero() && len(res.SilentAt) == 0 && failed == 0 {
		return // as planned
	}
	wait := min(time.Second<<min(s.troubled, 8), 2*time.Minute)
	s.troubled++
	s.retryAt = time.Now().Add(wait)
}

// fallFactor is by how much the busiest link may get busier, beside what the
// cabling allows, before that is a warning.
const fallFactor = 2

// compareRoutes warns when tables are much worse than the last.
func (s *Subnet) compareRoutes(r *route.Result) {
	old := &s.want
	if old.worst == 0 || old.bound == 0 || r.Bound == 0 || r.Worst/r.Bound <= fallFactor*old.worst/old.bound {
		return
	}
	s.log.Warn("routes are less balanced than before", "busiest_link_flows", math.Round(r.Worst), "at_best", math.Round(r.Bound),
		"before", math.Round(old.worst), "at_best_before", math.Round(old.bound), "routing", r.Engine, "routing_before", old.engine)
}

// finish reports a sweep.
func (s *Subnet) finish(f *fabric.Fabric, t0 time.Time, n0 uint64, kind, reason string, failed int, say bool) {
	s.sweeps++
	s.shown = f
	st := SweepStats{Kind: kind, Reason: reason, At: t0, Duration: time.Since(t0), SMPs: s.counters.SMPs - n0,
		Nodes: len(f.Nodes), Switches: len(f.Switches), Links: f.Links(), Routing: s.want.engine, Failed: failed}
	s.lastSweep = st
	if say {
		s.log.Info("subnet up", "sweep", kind, "reason", reason, "nodes", st.Nodes, "switches", st.Switches, "links", st.Links,
			"smps", st.SMPs, "duration", st.Duration.Round(time.Microsecond).String(), "routing", st.Routing, "busiest_link_flows", math.Round(s.want.worst), "failed", failed)
	}
	s.publish()
}

// smRecords lists the managers for the SA: this one and the others.
func (s *Subnet) smRecords(f *fabric.Fabric, res *discover.Result) []sa.SMInfo {
	out := []sa.SMInfo{{Port: f.SMPort, Info: s.elect.Info(s.act.Load())}}
	for _, p := range s.elect.Peers() {
		if i := f.EndPortByGUID(p.Info.GUID); i != fabric.None && i != f.SMPort {
			out = append(out, sa.SMInfo{Port: i, Info: p.Info})
		}
	}
	return out
}

// mcastDue tells that members changed since the multicast tables were written,
// and that they are not held back.
func (s *Subnet) mcastDue() bool {
	return s.mcastDirty && s.fab != nil && !time.Now().Before(s.mcastHeld())
}

// After a takeover the tables of the former master go on working until the
// first member that joins again has them written without the others: so they
// are held until nobody has joined for a while.
const (
	mcastQuiet = 300 * time.Millisecond
	mcastMost  = 2 * time.Second
)

// mcastHeld is until when the multicast tables are held back.
func (s *Subnet) mcastHeld() time.Time {
	if t := s.lastJoin.Add(mcastQuiet); t.Before(s.mcastHold) {
		return t
	}
	return s.mcastHold
}

// programMulticast writes the multicast tables that differ.
func (s *Subnet) programMulticast(ctx context.Context) error {
	if !s.mcastDue() {
		return nil
	}
	s.mcastDirty = false
	f := s.fab
	groups := s.admin.Groups()
	want, err := compute(ctx, s, func() mcast.Tables { return mcast.Build(f, groups) })
	if err != nil {
		s.mcastDirty = true
		return err
	}
	have := s.have.mft
	reqs := program.MFT(f, have, want, s.have.fresh)
	again := map[uint64]bool{}
	err = s.pump(ctx, &smp.List{Requests: reqs, Done: func(r *smp.Reply) {
		if !r.OK() {
			again[r.Tag] = true
		}
	}})
	if err != nil {
		s.mcastDirty = true
		return err
	}
	// A switch that did not take a block is one that nothing is known of.
	fresh := make([]bool, len(f.Switches))
	for i := range fresh {
		fresh[i] = again[uint64(i)]
		if fresh[i] {
			s.warnOnce("mft"+f.Nodes[f.Switches[i].Node].GUID.String(), "a switch does not take its multicast table", "node", f.Nodes[f.Switches[i].Node].Name())
		}
	}
	s.have.mft, s.have.fresh = want, fresh
	s.admin.SetMFT(want)
	return nil
}
