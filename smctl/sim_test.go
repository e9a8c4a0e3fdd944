package smctl

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"ibnetworkd/ib"
)

// The model: one switch, a port a node, virtual time in ticks. A worker needs
// startUp to open its device (from then on a walk sees it), discovers for
// sweep, and becomes master unless it has seen one that is master or a
// discovering one that outranks it. The master makes all ports Active. A
// standby that misses the master for poll takes over.
const (
	tick     = 20 * time.Millisecond
	startUp  = 200 * time.Millisecond
	walkTime = 60 * time.Millisecond
	lidTime  = 20 * time.Millisecond
	lidQuiet = 600 * time.Millisecond // an SMInfo without an answer, with its retries
	poll     = 3 * time.Second
	stopTime = 200 * time.Millisecond
)

type simSM struct {
	guid    ib.GUID
	prio    uint8
	lid     ib.LID
	state   SMState
	visible time.Time // when the issm device is open
	ready   time.Time // when discovery ends
	lost    time.Time // when a standby first missed its master
	comp    int       // which connected part of the fabric it is in
}

type simNode struct {
	m       Memory
	policy  Policy
	port    Port
	worker  Worker
	hand    Override
	answer  Answer
	pending Answer // arrives at pending.At
	due     time.Time
	changed bool // an input changed since the last decision
	sm      *simSM
	starts  int
	stops   int
	dead    bool // worker cannot run
	last    Decision
	start   time.Time // of the node
	comp    int       // which connected part of the fabric it is in
	off     bool      // without power
	reached time.Time // when its link came up last, or it came into another part
}

// linked reports whether the port of a node that runs has a cable.
func (n *simNode) linked() bool { return !n.off && n.port.Phys == ib.PhysLinkUp }

type sim struct {
	t     *testing.T
	now   time.Time
	nodes []*simNode
	alien *simSM // a foreign subnet manager, such as a switch's
	sweep time.Duration
	log   []string
	// lose is how many of 100 questions are lost; r decides which.
	lose int
	deaf bool // walks lose answers too
	r    *rand.Rand
	// stopped, if set, is called with each decision to stop a worker.
	stopped func(n *simNode, dec Decision)
}

func newSim(t *testing.T, n int, r *rand.Rand, boot time.Duration, pol Policy) *sim {
	s := &sim{t: t, now: time.Unix(1000, 0), sweep: 150*time.Millisecond + time.Duration(n)*time.Millisecond, r: r}
	base := ib.GUID(0x0002c90300000000 + r.Uint64N(1<<30))
	for i := range n {
		start := s.now
		if boot > 0 {
			start = start.Add(time.Duration(r.Int64N(int64(boot))))
		}
		s.nodes = append(s.nodes, &simNode{
			policy: pol, start: start, changed: true,
			port: Port{GUID: base + ib.GUID(2*i+1), IBDev: "swib0", Num: 1, LID: 0,
				LinkLayer: ib.LinkLayerInfiniBand, State: ib.PortInit, Phys: ib.PhysLinkUp},
			worker: Worker{Unit: fmt.Sprintf("ibnetsm@%d.service", i), State: WorkerInactive},
		})
	}
	return s
}

// sms are the subnet managers of a part of the fabric.
func (s *sim) sms(comp int) []*simSM {
	var out []*simSM
	for _, n := range s.nodes {
		if n.sm != nil && n.comp == comp && n.linked() && !s.now.Before(n.sm.visible) {
			n.sm.comp, n.sm.lid = comp, n.port.LID
			out = append(out, n.sm)
		}
	}
	if s.alien != nil && s.alien.comp == comp {
		out = append(out, s.alien)
	}
	return out
}

func (m *simSM) info() SMInfo {
	return SMInfo{GUID: m.guid, LID: m.lid, Priority: m.prio, State: m.state}
}

// comps are the parts that the fabric is in.
func (s *sim) comps() map[int]bool {
	out := map[int]bool{}
	for _, n := range s.nodes {
		if n.linked() {
			out[n.comp] = true
		}
	}
	if s.alien != nil {
		out[s.alien.comp] = true
	}
	return out
}

// elect moves the subnet managers on by one tick.
func (s *sim) elect() {
	for c := range s.comps() {
		s.electIn(s.sms(c))
	}
}

func (s *sim) electIn(all []*simSM) {
	for _, m := range all {
		switch m.state {
		case SMNotActive:
			m.state, m.ready = SMDiscovering, s.now.Add(s.sweep)
		case SMDiscovering:
			if s.now.Before(m.ready) {
				continue
			}
			m.state = SMMaster
			for _, o := range all {
				if o == m {
					continue
				}
				if o.state == SMMaster && !m.info().Outranks(o.prio, o.guid) ||
					(o.state == SMDiscovering || o.state == SMMaster) && o.info().Outranks(m.prio, m.guid) {
					m.state = SMStandby
				}
			}
			if m.state == SMMaster {
				for _, o := range all { // hand-over
					if o != m && o.state == SMMaster {
						o.state = SMStandby
					}
				}
				s.program(m)
			}
		case SMMaster:
			// Two masters that can see each other again: the lower gives way
			// after its next sweep.
			better := slices.ContainsFunc(all,
				func(o *simSM) bool { return o != m && o.state == SMMaster && o.info().Outranks(m.prio, m.guid) })
			switch {
			case !better:
				m.ready = time.Time{}
			case m.ready.IsZero() || !m.ready.After(s.now.Add(-poll)):
				m.ready = s.now.Add(s.sweep)
			case !s.now.Before(m.ready):
				m.state, m.lost = SMStandby, time.Time{}
			}
		case SMStandby:
			if slices.ContainsFunc(all, func(o *simSM) bool { return o.state == SMMaster }) {
				m.lost = time.Time{}
			} else if m.lost.IsZero() {
				m.lost = s.now
			} else if s.now.Sub(m.lost) >= poll {
				m.lost, m.state, m.ready = time.Time{}, SMDiscovering, s.now.Add(s.sweep)
			}
		}
	}
}

// program makes all ports of the master's part Active. Ports keep the LID that
// they have; of two that have the same one, from two parts that have become
// one, the later gets another.
func (s *sim) program(m *simSM) {
	taken := map[ib.LID]bool{3000: true}
	ours := func(n *simNode) bool { return n.comp == m.comp && n.linked() && !s.now.Before(n.start) }
	for _, n := range s.nodes {
		if ours(n) {
			if taken[n.port.LID] {
				n.port.LID = 0
			}
			taken[n.port.LID] = true
		}
	}
	next := ib.LID(1)
	for _, n := range s.nodes {
		if !ours(n) {
			continue
		}
		if n.port.LID == 0 {
			for taken[next] {
				next++
			}
			n.port.LID, taken[next] = next, true
		}
		if n.sm != nil {
			n.sm.lid = n.port.LID
		}
	}
	for _, n := range s.nodes {
		if ours(n) {
			n.port.State, n.port.SMLID = ib.PortActive, m.lid
			n.changed = true
		}
	}
}

// twice reports whether two ports of a part have one LID, as when two parts have
// become one: the master's sweep finds that.
func (s *sim) twice(comp int) bool {
	seen := map[ib.LID]bool{}
	for _, n := range s.nodes {
		if n.comp == comp && n.linked() && n.port.LID != 0 {
			if seen[n.port.LID] {
				return true
			}
			seen[n.port.LID] = true
		}
	}
	return false
}

// late gives nodes that came after the sweep what a light sweep gives them.
func (s *sim) late() {
	for c := range s.comps() {
		for _, m := range s.sms(c) {
			if m.state == SMMaster && (s.twice(c) || slices.ContainsFunc(s.nodes, func(n *simNode) bool {
				return n.comp == c && n.linked() && !s.now.Before(n.start.Add(s.sweep)) && !s.now.Before(n.reached.Add(s.sweep)) &&
					(n.port.SMLID != m.lid || n.port.State != ib.PortActive)
			})) {
				s.program(m)
				break
			}
		}
	}
}

func (s *sim) run(d time.Duration) {
	for end := s.now.Add(d); s.now.Before(end); s.now = s.now.Add(tick) {
		s.elect()
		s.late()
		for i, n := range s.nodes {
			if s.now.Before(n.start) || n.off {
				continue
			}
			s.node(i, n)
		}
	}
}

func (s *sim) node(i int, n *simNode) {
	n.port.Present = true
	if isSM := n.sm != nil && !s.now.Before(n.sm.visible); isSM != n.port.IsSM && n.worker.State != WorkerActivating {
		n.port.IsSM, n.changed = isSM, true
	}
	// Jobs of the service manager end.
	switch n.worker.State {
	case WorkerActivating:
		if s.now.Sub(n.worker.Since) >= startUp {
			n.worker.State, n.worker.Since, n.changed = WorkerActive, s.now, true
			if n.dead {
				n.worker.State, n.worker.Result, n.sm = WorkerFailed, "exit status 1", nil
			}
		}
	case WorkerDeactivating:
		if s.now.Sub(n.worker.Since) >= stopTime {
			n.worker.State, n.worker.Since, n.changed, n.sm = WorkerInactive, s.now, true, nil
		}
	}
	if !n.pending.At.IsZero() && !s.now.Before(n.pending.At) {
		if n.pending.Question == AskWalk {
			for _, m := range s.sms(n.comp) {
				if n.linked() && !(s.deaf && s.r.IntN(100) < s.lose) {
					n.pending.SMs = append(n.pending.SMs, m.info())
				}
			}
		}
		n.answer, n.pending, n.changed = n.pending, Answer{}, true
		n.answer.At = s.now
	}
	if !n.changed && (n.due.IsZero() || s.now.Before(n.due)) {
		return
	}
	if !n.pending.At.IsZero() {
		return
	}
	in := Input{Now: s.now, Policy: n.policy, Port: n.port, Answer: n.answer, Worker: n.worker}
	in.Worker.Override = n.hand
	// Every other one is an opensm, which says nothing to systemd.
	if n.worker.State == WorkerActive && n.sm != nil && i%2 == 0 {
		in.Worker.StatusText = StatusText{State: n.sm.state, Known: true}
	}
	var dec Decision
	n.m, dec = Decide(n.m, in)
	if dec.Reason == "" || dec.Phase == "" {
		s.t.Fatalf("node %d: decision without words: %+v", i, dec)
	}
	if dec.Action != n.last.Action || dec.Phase != n.last.Phase {
		s.log = append(s.log, fmt.Sprintf("%v node %d: %v %s: %s", s.now.Sub(time.Unix(1000, 0)), i, dec.Action, dec.Phase, dec.Reason))
	}
	n.last, n.due, n.changed = dec, dec.Until, false
	switch dec.Action {
	case Wait:
		if !dec.Until.IsZero() && !dec.Until.After(s.now) {
			s.t.Fatalf("node %d waits for the past: %+v", i, dec)
		}
	case Ask:
		n.pending = Answer{Question: dec.Question, At: s.now.Add(walkTime)}
		if dec.Question == AskLID {
			n.pending.LID = n.port.SMLID
			n.pending.At = s.now.Add(lidQuiet)
			for _, m := range s.sms(n.comp) {
				if m.lid == n.port.SMLID && n.linked() && s.r.IntN(100) >= s.lose {
					n.pending.SMs = []SMInfo{m.info()}
					n.pending.At = s.now.Add(lidTime)
				}
			}
		}
	case Start:
		if n.worker.State == WorkerActive || n.worker.State == WorkerActivating {
			s.t.Fatalf("node %d: started twice", i)
		}
		n.starts++
		n.worker.State, n.worker.Since, n.changed = WorkerActivating, s.now, true
		n.sm = &simSM{guid: n.port.GUID, prio: n.policy.Priority, lid: n.port.LID, visible: s.now.Add(startUp), comp: n.comp}
	case Stop:
		if s.stopped != nil {
			s.stopped(n, dec)
		}
		n.stops++
		n.worker.State, n.worker.Since, n.changed = WorkerDeactivating, s.now, true
	}
}

func (s *sim) kill(n *simNode) {
	n.sm = nil
	n.worker.State, n.worker.Since, n.worker.Result = WorkerFailed, s.now, "signal KILL"
	n.changed = true
}

func (s *sim) count() (masters, running, starts, active int) {
	for _, n := range s.nodes {
		if n.sm != nil && n.sm.state == SMMaster {
			masters++
		}
		if n.worker.State == WorkerActive {
			running++
		}
		starts += n.starts
		if n.port.State == ib.PortActive {
			active++
		}
	}
	return
}

func (s *sim) dump() {
	s.t.Helper()
	if len(s.log) > 60 {
		s.log = s.log[len(s.log)-60:]
	}
	for _, l := range s.log {
		s.t.Log(l)
	}
}

var autoPolicy = Policy{Manage: ManageAuto, StartDelay: 3 * time.Second, StopDelay: DefaultStopDelay,
	StopWhenForeignMaster: true, Unit: "/etc/systemd/network/ib.ibnetwork"}

// Many nodes boot with Manage=auto: all ports become Active, one worker stays,
// few were started at all.
func TestManyNodesBoot(t *testing.T) {
	total, runs := 0, 0
	for _, n := range []int{1, 2, 3, 8, 40, 300, 1000} {
		for seed := range uint64(6) {
			if n > 300 && (seed > 1 || testing.Short()) {
				break
			}
			boot := []time.Duration{0, 500 * time.Millisecond, 20 * time.Second}[seed%3]
			r := rand.New(rand.NewPCG(seed, uint64(n)))
			s := newSim(t, n, r, boot, autoPolicy)
			s.run(boot + 12*time.Second)
			masters, _, starts, active := s.count()
			if masters != 1 || active != n {
				s.dump()
				t.Fatalf("n=%d seed=%d: %d masters, %d of %d ports active", n, seed, masters, active, n)
			}
			total, runs = total+starts, runs+1
			if starts > 6 {
				t.Errorf("n=%d seed=%d boot=%v: %d workers were started", n, seed, boot, starts)
			}
			s.run(DefaultStopDelay + 10*time.Second)
			masters, running, after, _ := s.count()
			if masters != 1 || running != 1 || after != starts {
				s.dump()
				t.Fatalf("n=%d seed=%d: at the end %d masters, %d workers, %d starts (%d before)", n, seed, masters, running, after, starts)
			}
			for i, n := range s.nodes {
				if n.starts > 1 {
					t.Errorf("node %d started %d times", i, n.starts)
				}
			}
		}
	}
	t.Logf("%.2f starts per fabric over %d runs", float64(total)/float64(runs), runs)
}

// A fabric with a subnet manager of its own: no host ever starts one.
func TestForeignMasterIsLeftAlone(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	s := newSim(t, 50, r, time.Second, autoPolicy)
	s.alien = &simSM{guid: 0xffff, prio: 0, lid: 1}
	s.run(5 * time.Minute)
	if _, running, starts, active := s.count(); running != 0 || starts != 0 || active != 50 {
		s.dump()
		t.Fatalf("%d running, %d started, %d active", running, starts, active)
	}
}

// The master is killed; the ports stay Active with its LID. One of the others
// must take over. Then a better master appears on another host and the local ones
// must stop; when it is gone, a local one must be back.
func TestTakeOver(t *testing.T) {
	for seed := range uint64(8) {
		r := rand.New(rand.NewPCG(seed, 9))
		s := newSim(t, 2+int(seed)*5, r, 0, autoPolicy)
		s.run(60 * time.Second)
		var first *simNode
		for _, n := range s.nodes {
			if n.sm != nil {
				first = n
			}
		}
		if first == nil {
			s.dump()
			t.Fatal("no master to begin with")
		}
		first.dead = true
		s.kill(first)
		s.run(25 * time.Second)
		masters, _, _, _ := s.count()
		if masters != 1 || first.sm != nil && first.sm.state == SMMaster {
			s.dump()
			t.Fatalf("seed %d: %d masters after the first was killed", seed, masters)
		}
		s.alien = &simSM{guid: 0x1, prio: 14, lid: 3000}
		s.run(DefaultStopDelay + 20*time.Second)
		if _, running, _, _ := s.count(); running != 0 {
			s.dump()
			t.Fatalf("seed %d: %d workers beside a better master", seed, running)
		}
		s.alien = nil
		s.run(30 * time.Second)
		if masters, _, _, _ := s.count(); masters != 1 {
			s.dump()
			t.Fatalf("seed %d: %d masters after the foreign one died", seed, masters)
		}
	}
}

// A worker that cannot run is tried with growing waits and never given up.
func TestBackOff(t *testing.T) {
	s := newSim(t, 1, rand.New(rand.NewPCG(1, 1)), 0, autoPolicy)
	s.nodes[0].dead = true
	s.run(30 * time.Minute)
	n := s.nodes[0].starts
	if n < 6 || n > 14 {
		t.Errorf("%d starts in half an hour", n)
	}
	s.nodes[0].dead = false
	s.run(BackOffMax + 20*time.Second)
	if masters, _, _, _ := s.count(); masters != 1 {
		s.dump()
		t.Error("not started once it could run")
	}
}
