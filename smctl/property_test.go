package smctl

import (
	"cmp"
	"flag"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"ibnetworkd/ib"
)

// manySeeds is for longer runs by hand.
var manySeeds = flag.Uint64("seeds", 80, "random fabrics of TestOneMasterWhateverHappens")

// cut takes a node's cable out and plug puts it in again, into a part of the
// fabric.
func (s *sim) cut(n *simNode) {
	n.port.Phys, n.port.State, n.changed = ib.PhysPolling, ib.PortDown, true
}

func (s *sim) plug(n *simNode, comp int) {
	n.comp, n.reached = comp, s.now
	n.port.Phys, n.port.State, n.changed = ib.PhysLinkUp, ib.PortInit, true
}

// power takes a node's power away; boot brings it back knowing nothing.
func (s *sim) power(n *simNode) {
	n.off, n.sm = true, nil
	n.worker.State, n.worker.Since, n.worker.Result = WorkerInactive, s.now, ""
	n.m, n.answer, n.pending, n.due = Memory{}, Answer{}, Answer{}, time.Time{}
	n.port.LID, n.port.SMLID, n.port.IsSM = 0, 0, false
}

func (s *sim) boot(n *simNode, comp int) {
	n.off = false
	n.start = s.now
	s.plug(n, comp)
}

// daemon forgets what the daemon of a node knew, as a restart does.
func (n *simNode) daemon() {
	n.m, n.answer, n.pending, n.due, n.changed = Memory{}, Answer{}, Answer{}, time.Time{}, true
}

// chaos does one random thing.
func (s *sim) chaos(parts int) string {
	r := s.r
	n := s.nodes[r.IntN(len(s.nodes))]
	i := n.port.GUID
	var masters []*simNode
	for _, x := range s.nodes {
		if !x.off && x.sm != nil && x.sm.state == SMMaster {
			masters = append(masters, x)
		}
	}
	switch r.IntN(12) {
	case 0:
		if !n.off {
			s.power(n)
			return fmt.Sprintf("power of %v", i)
		}
	case 1, 2:
		if n.off {
			s.boot(n, r.IntN(parts))
			return fmt.Sprintf("boot of %v into %d", i, n.comp)
		}
	case 3:
		if !n.off {
			s.cut(n)
			return fmt.Sprintf("cable of %v", i)
		}
	case 4, 5:
		if !n.off && !n.linked() {
			s.plug(n, r.IntN(parts))
			return fmt.Sprintf("plug of %v into %d", i, n.comp)
		}
	case 6:
		// Cables between switches: the ports see nothing.
		for _, x := range s.nodes {
			x.comp = r.IntN(parts)
		}
		return "cut between switches"
	case 7:
		for _, x := range s.nodes {
			x.comp = 0
		}
		if s.alien != nil {
			s.alien.comp = 0
		}
		return "all parts joined"
	case 8, 9:
		if len(masters) > 0 {
			m := masters[r.IntN(len(masters))]
			if r.IntN(2) == 0 {
				s.power(m)
				return fmt.Sprintf("power of master %v", m.port.GUID)
			}
			s.kill(m)
			return fmt.Sprintf("kill of master %v", m.port.GUID)
		}
	case 10:
		if s.alien == nil {
			s.alien = &simSM{guid: ib.GUID(r.Uint64N(1 << 52)), prio: uint8(r.IntN(16)), lid: 3000, comp: r.IntN(parts)}
			return fmt.Sprintf("foreign manager of priority %d in %d", s.alien.prio, s.alien.comp)
		}
		s.alien = nil
		return "foreign manager gone"
	case 11:
		n.daemon()
		return fmt.Sprintf("daemon of %v", i)
	}
	return ""
}

// wrong returns what is not as it must be once the fabric has been left alone.
func (s *sim) wrong() string {
	for c := range s.comps() {
		masters, workers, ports := 0, 0, 0
		var lid ib.LID
		for _, m := range s.sms(c) {
			if m.state == SMMaster {
				masters++
				lid = m.lid
			}
		}
		for _, n := range s.nodes {
			if n.comp != c || !n.linked() {
				continue
			}
			ports++
			if n.worker.State != WorkerInactive && n.worker.State != WorkerFailed {
				workers++
			}
			if n.port.State != ib.PortActive || n.port.SMLID != lid {
				return fmt.Sprintf("part %d: port %v is %v with SM LID %d, the master's is %d", c, n.port.GUID, n.port.State,
					n.port.SMLID, lid)
			}
		}
		if ports == 0 {
			continue
		}
		if masters != 1 || workers > 1 {
			return fmt.Sprintf("part %d with %d ports: %d masters, %d workers", c, ports, masters, workers)
		}
		if s.alien != nil && s.alien.comp == c && s.alien.state == SMMaster && workers > 0 {
			return fmt.Sprintf("part %d: a worker beside a foreign master", c)
		}
	}
	for _, n := range s.nodes {
		if !n.off && !n.linked() && n.worker.State == WorkerActive {
			return fmt.Sprintf("a worker on %v, which has no link", n.port.GUID)
		}
	}
	return ""
}

// Whatever happens to hosts, cables, switches, workers and other hosts' subnet
// managers: once nothing changes, each connected part of the fabric has exactly
// one master and no needless worker, and nothing is started or stopped any more.
// No worker that was the only master of its part is ever stopped, unless its port
// or its link is gone.
func TestOneMasterWhateverHappens(t *testing.T) {
	seeds := *manySeeds
	if testing.Short() {
		seeds = 30
	}
	var worst, sum time.Duration
	for seed := range seeds {
		r := rand.New(rand.NewPCG(seed, 77))
		n, parts := 1+r.IntN(10), 1+r.IntN(3)
		pol := autoPolicy
		pol.StartDelay = []time.Duration{0, 500 * time.Millisecond, time.Second, 5 * time.Second}[r.IntN(4)]
		pol.StopDelay = []time.Duration{0, time.Second, 5 * time.Second, 30 * time.Second}[r.IntN(4)]
		s := newSim(t, n, r, time.Duration(r.IntN(20)+1)*time.Second, pol)
		if r.IntN(2) == 0 {
			for _, x := range s.nodes {
				x.policy.Priority = uint8(r.IntN(4))
			}
		}
		say := func(format string, a ...any) {
			s.log = append(s.log, fmt.Sprintf("%v --- %s", s.now.Sub(time.Unix(1000, 0)), fmt.Sprintf(format, a...)))
		}
		s.stopped = func(x *simNode, dec Decision) {
			if !x.linked() || x.sm == nil || x.sm.state != SMMaster {
				return
			}
			for _, o := range s.sms(x.comp) {
				if o != x.sm && o.state != SMNotActive {
					return
				}
			}
			s.dump()
			t.Fatalf("seed %d: the only master of its part was stopped: %s", seed, dec.Reason)
		}
		s.lose, s.deaf = r.IntN(3)*10, true
		for end := s.now.Add(90 * time.Second); s.now.Before(end); {
			s.run(time.Duration(r.Int64N(int64(8 * time.Second))))
			if what := s.chaos(parts); what != "" {
				say("%s", what)
			}
		}
		for _, x := range s.nodes {
			if x.off && r.IntN(2) == 0 {
				s.boot(x, 0)
				say("boot of %v", x.port.GUID)
			}
		}
		// A worker that was killed often is waited for.
		say("left alone")
		s.deaf = false
		alone, right := s.now, time.Time{}
		_, _, starts, _ := s.count()
		for s.now.Sub(alone) < 6*time.Minute {
			s.run(500 * time.Millisecond)
			_, _, now, _ := s.count()
			if s.wrong() != "" || now != starts {
				right, starts = time.Time{}, now
			} else if right.IsZero() {
				right = s.now
			} else if s.now.Sub(right) > time.Minute {
				break
			}
		}
		if right.IsZero() || s.now.Sub(right) < time.Minute {
			s.dump()
			for _, x := range s.nodes {
				state := "none"
				if x.sm != nil {
					state = x.sm.state.String()
				}
				t.Logf("%v part %d linked %v LID %d SM LID %d priority %d worker %v SM %s: %s", x.port.GUID, x.comp, x.linked(),
					x.port.LID, x.port.SMLID, x.policy.Priority, x.worker.State, state, x.last.Reason)
			}
			t.Fatalf("seed %d, %d nodes, %+v: after %v %s", seed, n, pol, s.now.Sub(alone), cmp.Or(s.wrong(), "workers are still started"))
		}
		worst, sum = max(worst, right.Sub(alone)), sum+right.Sub(alone)
	}
	t.Logf("right %v after the last event on the average, %v at most", (sum / time.Duration(seeds)).Round(time.Second),
		worst.Round(time.Second))
}
