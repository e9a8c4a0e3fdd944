package engine

import (
	"context"
	"fmt"
	"slices"
	"time"

	"ibnetworkd/ib"
	"ibnetworkd/sm/discover"
	"ibnetworkd/sm/elect"
	"ibnetworkd/sm/fabric"
	"ibnetworkd/sm/mad"
	"ibnetworkd/sm/program"
	"ibnetworkd/sm/smp"
)

// fullSweep discovers the whole subnet as master.
func (s *Subnet) fullSweep(ctx context.Context) error {
	ev := s.ev
	w := s.newSweep("full", ev.reason)
	s.ev, s.sweeps.scope = events{}, nil
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
	return w.configure(ctx, res)
}

// walk makes a discovery.
func (s *Subnet) walk(ctx context.Context, d *discover.Discovery) (*discover.Result, error) {
	if err := s.pump(ctx, d); err != nil {
		return nil, err
	}
	return compute(ctx, s, d.Result)
}

// others lets the election see the managers that a master's walk met.
func (s *Subnet) others(ctx context.Context, res *discover.Result) error {
	s.managers.silent = nil
	for _, x := range res.SMs {
		if path, ok := program.PathTo(res.Fabric, x.Port); ok && x.Silent {
			p := &res.Fabric.Ports[x.Port]
			s.managers.silent = append(s.managers.silent, elect.Peer{Info: mad.SMInfo{GUID: p.GUID}, LID: p.Info.LID(), Path: path})
		}
	}
	return s.handOver(ctx, s.elect.Discovered(s.peers(res)))
}

// handOver hands over to a better manager, at most once a second.
func (s *Subnet) handOver(ctx context.Context, a elect.Action) error {
	if a != elect.Handover || time.Now().Before(s.managers.handoverUntil) {
		return nil
	}
	p := s.elect.Target()
	if s.followers.copying(p.Info.GUID, p.Info.State == mad.SMStandby, time.Now()) {
		return nil // the next poll of the others decides again
	}
	s.log.Info("handing over to a better manager", "to", p.Info.GUID.String(), "priority", p.Info.Priority, "to_lid", p.LID.String())
	s.managers.handoverUntil = time.Now().Add(time.Second)
	return s.handover(ctx, p)
}

// handover sends another manager the request to take over. Its answer without an error is the
// acceptance: the Acknowledge is optional, and not every manager sends it.
func (s *Subnet) handover(ctx context.Context, p elect.Peer) error {
	r := smp.Request{Method: mad.MethodSet, Attr: mad.AttrSMInfo, Mod: mad.SMInfoHandover, Path: p.Path}
	info := s.elect.Info(s.self.act.Load())
	info.Append(r.Data[:0])
	var refusal *smp.Reply
	l := &smp.List{Requests: []smp.Request{r}, Done: func(r *smp.Reply) {
		if r.OK() {
			s.elect.Received(mad.SMInfoAcknowledge, p)
			s.former.until = time.Now().Add(lingerMost)
		} else if r.Timeout || r.Status&mad.StatusBusy == 0 {
			refusal = &smp.Reply{Timeout: r.Timeout, Status: r.Status}
		}
	}}
	if err := s.pump(ctx, l); err != nil || refusal == nil {
		return err
	}
	if !refusal.Timeout {
		// A manager that ends was still master when it was met.
		if err := s.askPeers(ctx, false); err != nil {
			return err
		}
	}
	if s.elect.State() == mad.SMMaster && !s.elect.IsNotActive(p.Info.GUID) {
		s.refused(p, refusal)
	}
	return nil
}

// partialSweep reads what the pending events name. A light sweep first reads whether
// a port of any switch changed, and becomes partial if one did.
func (s *Subnet) partialSweep(ctx context.Context) error {
	ev := s.ev
	w := s.newSweep("partial", ev.reason)
	s.ev = events{}
	f := s.prog.fabric
	suspects := ev.suspects(f, s.prog.owner)
	if ev.light || ev.resweep {
		found, err := s.askSwitches(ctx, f, ev.resweep)
		if err != nil {
			return err
		}
		if len(found) > 0 && w.reason == "" {
			w.reason = "a switch reports changed ports"
		}
		suspects = append(suspects, found...)
		if len(suspects)+len(ev.ports)+len(ev.descs) == 0 && !ev.apply {
			return w.light(ctx, f, ev.resweep)
		}
	}
	s.sweeps.scope = make(map[ib.GUID]bool, len(suspects))
	for _, n := range suspects {
		s.sweeps.scope[f.Nodes[n].GUID] = true
	}
	opt, pkeys := s.options(), s.prog.have.pkeys
	d, err := compute(ctx, s, func() *discover.Discovery { return discover.Resume(opt, f, pkeys, suspects) })
	if err != nil {
		return err
	}
	ev.ask(d, f, s.prog.owner)
	res, err := s.walk(ctx, d)
	if err != nil {
		return err
	}
	if res.Fabric == nil {
		s.ev.full, s.ev.reason = true, w.reason
		return nil
	}
	if res.Lost {
		s.sweeps.flaps.Need(time.Now())
		s.ev.full, s.ev.reason = true, "a link that goes down too often alone leads to a part of the subnet"
		return nil
	}
	w.warn("a link goes down too often", res.Flapping)
	if len(res.SMs) > 0 || s.knowsPeers() {
		// A walk of a part sees a part of the managers: keep the others.
		if err := s.others(ctx, s.mergePeers(res)); err != nil {
			return err
		}
	}
	if s.elect.State() != mad.SMMaster {
		return errRestart
	}
	return w.configure(ctx, res)
}

// suspects are the nodes to read again that the events name.
func (e *events) suspects(f *fabric.Fabric, lids []int32) (out []int32) {
	for _, l := range e.switches {
		if p := at(lids, l); p != fabric.None && f.Nodes[f.Ports[p].Node].Switch != fabric.None {
			out = append(out, f.Ports[p].Node)
		}
	}
	for _, g := range e.guids {
		if n := f.NodeByGUID(g); n != fabric.None {
			out = append(out, n)
		}
	}
	return out
}

// ask adds to a walk the single ports and descriptions that the events name, each once.
func (e *events) ask(d *discover.Discovery, f *fabric.Fabric, lids []int32) {
	slices.Sort(e.ports)
	slices.Sort(e.descs)
	for _, l := range slices.Compact(e.ports) {
		if p := at(lids, l); p != fabric.None && (f.Ports[p].Peer != fabric.None || f.Ports[p].Num == 0) {
			d.AskPort(f.Ports[p].Node, f.Ports[p].Num)
		}
	}
	for _, l := range slices.Compact(e.descs) {
		if p := at(lids, l); p != fabric.None {
			d.AskDescription(f.Ports[p].Node)
		}
	}
}

// at is the port that a LID belongs to, by the map of Fabric.LIDs, or None.
func at(lids []int32, l ib.LID) int32 {
	if int(l) < len(lids) {
		return lids[l]
	}
	return fabric.None
}

func (s *Subnet) knowsPeers() bool { return len(s.elect.Peers())+len(s.managers.silent) > 0 }

// mergePeers adds the managers known before that are still in the fabric and
// still say so.
func (s *Subnet) mergePeers(res *discover.Result) *discover.Result {
	m := *res
	for k, p := range slices.Concat(s.elect.Peers(), s.managers.silent) {
		i := res.Fabric.EndPortByGUID(p.Info.GUID)
		if i == fabric.None || res.Fabric.Ports[i].Info.CapMask()&mad.CapIsSM == 0 ||
			slices.ContainsFunc(res.SMs, func(x discover.SM) bool { return x.Port == i }) {
			continue
		}
		m.SMs = append(slices.Clone(m.SMs), discover.SM{Port: i, Info: p.Info, Silent: k >= len(s.elect.Peers())})
	}
	return &m
}
