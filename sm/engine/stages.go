package engine

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"ibnetworkd/ib"
	"ibnetworkd/sm/fabric"
	"ibnetworkd/sm/lid"
	"ibnetworkd/sm/mad"
	"ibnetworkd/sm/pkey"
	"ibnetworkd/sm/program"
	"ibnetworkd/sm/qos"
	"ibnetworkd/sm/qos/policy"
	"ibnetworkd/sm/route"
	"ibnetworkd/sm/sa"
	"ibnetworkd/sm/smp"
)

// assignLIDs gives every end port its LID, and carries over what is known of the
// fabric to the indices of this one.
func (w *sweep) assignLIDs(ctx context.Context) error {
	prog, res, opt := &w.s.prog, w.res, lid.Options{LMC: w.s.cfg.LMC, Reassign: w.s.cfg.Reassign && w.first}
	type assigned struct {
		lids  lid.Result
		owner []int32
		have  tables
		shape bool
	}
	old, had, memory := prog.fabric, prog.have, prog.memory
	a, err := compute(ctx, w.s, func() (a assigned) {
		a.lids = lid.Assign(res.Fabric, memory, opt)
		f := a.lids.Fabric
		a.owner, a.have, a.shape = f.LIDs(), remap(old, &had, f, res), sameShape(old, f)
		return a
	})
	if err != nil {
		return err
	}
	w.lids, w.owner, w.have, w.sameShape = a.lids, a.owner, a.have, a.shape
	w.warn("LIDs", w.lids.Warnings)
	w.f = w.lids.Fabric
	w.pol = w.s.cfg.Policy
	w.pol.SMLID = w.f.Ports[w.f.SMPort].LID
	w.bad, w.due = make([]bool, len(w.f.Nodes)), make([]bool, len(w.f.Nodes))
	w.ownLFT, w.refusedKeys = make([]bool, len(w.f.Switches)), map[uint64]bool{}
	w.unmapped, w.was = map[int32]bool{}, w.s.prog.want
	w.inheritLevels()
	w.forgetUnmapped()
	return nil
}

// readLFTs reads the forwarding tables of switches that another manager
// configured: routes that are as good as its own stay, and what is there is not
// sent. A table that cannot be read is written whole.
func (w *sweep) readLFTs(ctx context.Context) error {
	l := program.ReadLFT{Fabric: w.f, Skip: func(sw int) bool { return w.have.lft[sw] != nil }}
	if err := w.s.pump(ctx, &l); err != nil {
		return err
	}
	for i, row := range l.Rows {
		if w.have.lft[i] == nil {
			w.have.lft[i] = row
		}
	}
	return nil
}

// readPKeys reads the P_Key tables of adapters that another manager configured. Those of
// ports out of reset are known (IBA vol 1, 10.9.2), and stay so after they get a LID.
func (w *sweep) readPKeys(ctx context.Context) error {
	l := program.ReadPKeys{Fabric: w.f, Tables: w.have.pkeys}
	if err := w.s.pump(ctx, &l); err != nil {
		return err
	}
	for _, p := range l.Failed {
		w.have.pkeys[p] = pkey.PowerOn // read again when it comes back
		w.s.warnOnce("pkeys"+w.f.Ports[p].GUID.String(), "a port does not answer P_KeyTable and is assumed to have the default key",
			"link_port", w.f.PortName(p))
	}
	for _, e := range w.f.EndPorts {
		p := &w.f.Ports[e]
		sw, _ := w.f.SwitchOf(e)
		// P_Keys are written before LIDs: a manager that ended between the two left a switch
		// with its SwitchInfo set. The next sweep reads the table then.
		begun := w.first && sw != fabric.None && w.f.Switches[sw].Info.LinearFDBTop() != 0
		if w.have.pkeys[e] == nil && p.Num != 0 && p.Known && !p.Info.LID().IsUnicast() && !begun {
			w.have.pkeys[e] = pkey.PowerOn
		}
	}
	return nil
}

// route computes forwarding tables, service levels and lanes, unless the fabric
// has the shape of the last.
func (w *sweep) route(ctx context.Context) error {
	s, f := w.s, w.f
	if !w.sameShape || s.prog.want.lft == nil || s.prog.reroute || isDue(s.prog.want.compareAt, time.Now()) {
		g := s.routed(f)
		opt, q, own := w.routeOptions(g)
		opt.Early, opt.Processors = !w.first && !w.sameShape && !s.prog.reroute, s.cfg.Processors
		s.prog.reroute = false
		alone, again, sm := w.first && s.copied.regs == nil, s.prog.want.lft != nil, w.pol.SMLID
		r, err := compute(ctx, s, func() built {
			var last *remembered
			if alone {
				last = s.readRoutes()
			}
			b := last.recall(g, opt, q)
			if b.known != nil && b.refused == nil && b.qos != nil && !again { // else tables may be written
				b.lanes = recalledLanes(f, b.qos, last.Lanes, sm, opt.Previous)
			}
			return b
		})
		if err != nil {
			return err
		}
		if r.refused != nil {
			s.log.Warn("remembered routes are not used, new ones are computed", "err", r.refused)
		}
		if r.known != nil {
			s.prog.levels = pathLevels{r.known.SL, r.known.At}
		}
		if r.lanes.VLs != nil {
			w.have.lanes = r.lanes
		}
		if r.lack != nil {
			s.warnOnce("layers", "routing uses no service levels", "why", r.lack)
		}
		if r.err != nil {
			s.log.Error("no routes", "err", r.err)
			return errNoRoutes
		}
		w.useRoutes(g, opt, &r, own)
	}
	if s.prog.want.qos != nil {
		w.pol.VLs = make([]uint8, len(f.Ports))
		for i := range w.pol.VLs {
			w.pol.VLs[i] = s.prog.want.qos.OperVLs(int32(i))
		}
	}
	w.pol.SMSLs = nil
	if s.prog.want.sl != nil {
		// What hosts ask the manager takes the way that its level is free of
		// deadlocks on, as everything else.
		w.pol.SMSLs = make([]ib.SL, len(f.Ports))
		for _, e := range f.EndPorts {
			w.pol.SMSLs[e] = levelTo(f, s.prog.want.sl, e)
		}
	}
	return nil
}

// useRoutes makes computed routes those that the fabric is to have, and reports how they
// differ from the last and what they do not follow.
func (w *sweep) useRoutes(g *fabric.Fabric, opt route.Options, r *built, own []string) {
	s := w.s
	s.logDrains(w.f)
	s.prog.want = routes{lft: r.LFT, sl: r.SL, layers: r.NumLayers, engine: r.Engine, order: r.Order, worst: r.Worst, levels: opt.Layers,
		bound: r.Bound, qos: r.qos, trunk: r.Trunk, at: g.SwitchGUIDs(), noTree: r.NoTree, warnings: r.Warnings}
	if r.Early {
		s.prog.want.compareAt = time.Now().Add(compareDelay)
	} else {
		s.compareRoutes(&r.Result)
	}
	s.served.mcastDirty = s.served.mcastDirty || !slices.Equal(opt.Trunk, r.Trunk)
	if r.SL != nil && len(own) > 0 {
		s.warnOnce("policy", "routes need service levels for themselves here, those chosen for something else are not used",
			"routing", r.Engine, "not_used", strings.Join(own, ", "))
	}
	w.warn("routes and partitions", r.Warnings)
}

// routeOptions are the options for routes of g, the lanes that they may use, and what has
// service levels of its own.
func (w *sweep) routeOptions(g *fabric.Fabric) (opt route.Options, q *qos.Options, own []string) {
	s := w.s
	opt = s.cfg.Route
	opt.Previous, opt.Order, opt.Before = w.have.lft, w.was.order, w.was.engine
	if w.was.noTree != "" {
		opt.Before = route.FatTree // so that the reason is kept
	}
	opt.SL, opt.Trunk = w.was.sl.Carry(w.was.at, g), route.CarryTrunk(w.was.trunk, w.was.at, g)
	if q = s.cfg.QoS; q != nil {
		inUse, fewest := w.lanesInUse()
		q = &qos.Options{MaxVLs: q.MaxVLs, Weights: q.Weights, High: q.High, InUse: inUse}
		if w.regained {
			opt.Order, opt.Before = nil, "" // routes without enough lanes are no order to keep
		}
		if len(s.prog.noVLs) == 0 {
			opt.Layers = min(levels(q), fewest)
		}
	}
	own = s.cfg.ownLevels()
	opt.OwnLevels = len(own) > 0
	return opt, q, own
}

// planPKeys applies the partitions to the fabric.
func (w *sweep) planPKeys(ctx context.Context) (err error) {
	f, partitions, tables, enforce := w.f, w.s.cfg.Partitions, w.have.pkeys, w.s.cfg.Enforce
	w.keys, err = compute(ctx, w.s, func() pkey.Plan {
		keys := pkey.Tables(f, partitions, tables)
		for _, e := range f.EndPorts {
			// A host may restart after its table was read and before its port is
			// Active, without a trace: a port in Init has either what was read or
			// nothing.
			if p := &f.Ports[e]; p.Num != 0 && p.Info.State() == ib.PortInit && tables[e] != nil && keys.Keys[e] == nil &&
				!slices.Equal(keys.Members[e], pkey.PowerOn) {
				keys.Keys[e], tables[e] = keys.Members[e], pkey.PowerOn
			}
		}
		keys.Enforce(f, enforce, tables)
		return keys
	})
	if err != nil {
		return err
	}
	w.pol.Enforcement = w.keys.Enforcement
	w.warn("routes and partitions", w.keys.Warnings)
	return nil
}

// setSwitches sets SwitchInfo, before all else: a switch that restarts after that
// shows LinearFDBTop 0 to the next light sweep, whatever else was set in it.
func (w *sweep) setSwitches(ctx context.Context) error {
	if s := w.s; s.sweeps.reregister {
		clear(w.have.reregistered)
		s.delayMulticast()
	}
	reqs := program.Switches(w.f, w.pol, w.lids.Top)
	w.sets += len(reqs)
	set := tags(reqs)
	if err := w.send(ctx, reqs); err != nil || !w.first {
		return err
	}
	// One that restarted between its discovery and that Set shows nothing any
	// more: its port 0 and its table are set whatever they answered.
	for _, sw := range set {
		w.have.lft[sw] = nil
		first, count := w.f.PortRange(w.f.Switches[sw].Node)
		clear(w.have.lanes.VLs[first : first+count])
		w.f.Ports[w.f.Port(w.f.Switches[sw].Node, 0)].Info.SetLID(0)
	}
	return nil
}

// setLFTs writes the blocks of the forwarding tables that differ.
func (w *sweep) setLFTs(ctx context.Context) error {
	l := program.LFT{Fabric: w.f, Have: w.have.lft, Want: w.s.prog.want.lft, Done: w.answered}
	err := w.s.pump(ctx, &l)
	w.sets += l.Count
	return err
}

// setPKeys writes the P_Key tables that differ. A switch port checks P_Keys once
// it has its table, not before.
func (w *sweep) setPKeys(ctx context.Context) error {
	reqs := program.PKeys(w.f, w.have.pkeys, w.keys.Keys)
	w.sets += len(reqs)
	set := tags(reqs)
	if err := w.send(ctx, reqs); err != nil {
		return err
	}
	for _, p := range set {
		if !w.refusedKeys[p] {
			w.have.pkeys[p] = w.keys.Keys[p]
			continue
		}
		if w.pol.Enforcement != nil {
			w.pol.Enforcement[p] = 0
		}
		if w.f.IsEndPort(int32(p)) {
			w.have.pkeys[p] = nil // read again: some of it may be written
		}
	}
	return nil
}

// serve lets the SA answer from the fabric of this sweep before the first port that it
// makes Active can send a request: hosts join the broadcast group at that moment, those
// that get a ClientReregister register again, and a kernel repeats what is not answered
// after 0.3 or 3 seconds. Reports of ports that came wait for reportPorts.
func (w *sweep) serve(ctx context.Context) error {
	s := w.s
	bound, err := w.bindPolicy(ctx)
	if err != nil {
		return err
	}
	view := sa.State{Fabric: w.f, LFT: s.prog.want.lft, SL: s.prog.want.sl, MFT: w.have.mft, PKeys: w.keys.Members, Groups: w.keys.Groups,
		SMs: s.smRecords(w.f), QoS: s.prog.want.qos, Policy: bound, PrefixRoutes: s.cfg.PrefixRoutes}
	w.warn("paths to other subnets", sa.MissingRouters(w.f, s.cfg.PrefixRoutes))
	if view, err = compute(ctx, s, view.Indexed); err != nil {
		return err
	}
	if w.first {
		s.followers.begin()
		w.restore()
	}
	c := s.served.admin.SetState(s.now(), view)
	s.served.arrivals, c.Reports = append(s.served.arrivals, c.Reports...), nil
	s.apply(c)
	return nil
}

// bindPolicy finds the ports that the QoS policy names.
func (w *sweep) bindPolicy(ctx context.Context) (*policy.Bound, error) {
	p, f, keys, partitions := w.s.cfg.QoSPolicy, w.f, w.keys.Members, w.s.cfg.Partitions.Partitions
	if p == nil {
		return nil, nil
	}
	own := func(port int32) []ib.PKey {
		if keys[port] == nil {
			return pkey.PowerOn
		}
		return keys[port]
	}
	name := func(name string) (ib.PKey, bool) {
		for i := range partitions {
			if partitions[i].Name == name {
				return partitions[i].PKey, true
			}
		}
		return 0, false
	}
	return compute(ctx, w.s, func() *policy.Bound { return p.Bind(f, own, name) })
}

// setLinkedPorts sets PortInfo of switch ports 0 and of ports that are up, then
// alias GUIDs.
func (w *sweep) setLinkedPorts(ctx context.Context) error {
	rereg := w.reregisterPorts()
	reqs := w.s.aliasGUIDs(w.f)
	w.sets += len(reqs)
	ports := program.Ports{Fabric: w.f, Policy: w.pol, Declined: w.have.declined, Stage: program.Configure, Reregister: rereg,
		Done: w.answered}
	err := w.s.pump(ctx, &ports)
	w.sets += ports.Count
	if err != nil {
		return err
	}
	return w.send(ctx, reqs)
}

// reregisterPorts are the Active ports whose clients must register with this SA:
// what they asked for is unknown to it, or forgotten, after a takeover, and when
// a part of the subnet that was cut off comes back with its ports Active.
func (w *sweep) reregisterPorts() []bool {
	for _, g := range w.s.served.reregister {
		if p := w.f.EndPortByGUID(g); p != fabric.None {
			w.have.reregistered[p] = false
		}
	}
	out := make([]bool, len(w.f.Ports))
	for _, i := range w.f.EndPorts {
		p := &w.f.Ports[i]
		out[i] = p.Num != 0 && p.Info.State() == ib.PortActive && p.Info.CapMask()&mad.CapClientReregister != 0 && !w.have.reregistered[i]
	}
	return out
}

// keep makes the fabric and its tables the manager's: from here on a sweep that
// is left early has them as they are.
func (w *sweep) keep(context.Context) error {
	for i := range w.f.Switches {
		if w.have.lft[i] == nil && !w.bad[w.f.Switches[i].Node] {
			w.have.lft[i] = w.s.prog.want.lft[i]
		}
	}
	s := w.s
	s.sweeps.reregister, s.served.reregister = false, nil
	s.prog.fabric, s.prog.owner = w.f, w.owner
	s.prog.have, s.prog.top, s.prog.memory = w.have, w.lids.Top, w.lids.Memory
	s.prog.saved = s.prog.saved && !w.lids.Changed
	return nil
}

// arm brings ports from Initializing to Armed.
func (w *sweep) arm(ctx context.Context) error { return w.setPorts(ctx, program.Arm) }

// setArmed sets what the answers of armed ports show to be missing.
func (w *sweep) setArmed(ctx context.Context) error { return w.setPorts(ctx, program.Configure) }

// activate brings ports from Armed to Active.
func (w *sweep) activate(ctx context.Context) error { return w.setPorts(ctx, program.Activate) }

// setPorts is one of the last three: without the ports of nodes that refused
// something, and those at the other ends of their links.
func (w *sweep) setPorts(ctx context.Context, st program.Stage) error {
	return w.s.pump(ctx, &program.Ports{Fabric: w.f, Policy: w.pol, Declined: w.have.declined, Stage: st, Done: w.answered,
		Skip: func(i int32) bool {
			p := &w.f.Ports[i]
			return w.bad[p.Node] || p.Peer != fabric.None && w.bad[w.f.Ports[p.Peer].Node]
		}})
}

// reportPorts reports ports that came or went to those that subscribed to that.
func (w *sweep) reportPorts(context.Context) error {
	w.s.send(w.s.served.arrivals)
	w.s.served.arrivals = nil
	return nil
}

// multicast writes the multicast tables unless they are delayed.
func (w *sweep) multicast(ctx context.Context) error {
	s := w.s
	s.served.mcastDirty = s.served.mcastDirty || w.res.Changed || w.first
	return s.programMulticast(ctx)
}

// tags are those of requests, in order.
func tags(reqs []smp.Request) []uint64 {
	out := make([]uint64, len(reqs))
	for i := range reqs {
		out[i] = reqs[i].Tag
	}
	return out
}

// aliasGUIDs gives the Sets of GUIDInfo that the SA was asked for, in order.
func (s *Subnet) aliasGUIDs(f *fabric.Fabric) []smp.Request {
	keys := slices.SortedFunc(maps.Keys(s.served.guids), func(a, b guidKey) int {
		return cmp.Or(cmp.Compare(a.port, b.port), cmp.Compare(a.block, b.block))
	})
	var out []smp.Request
	for _, k := range keys {
		g := s.served.guids[k]
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
	clear(s.served.guids)
	return out
}

// smRecords lists the managers for the SA: this one and the others.
func (s *Subnet) smRecords(f *fabric.Fabric) []sa.SMInfo {
	out := []sa.SMInfo{{Port: f.SMPort, Info: s.elect.Info(s.self.act.Load())}}
	for _, p := range s.elect.Peers() {
		if i := f.EndPortByGUID(p.Info.GUID); i != fabric.None && i != f.SMPort {
			out = append(out, sa.SMInfo{Port: i, Info: p.Info})
		}
	}
	return out
}
