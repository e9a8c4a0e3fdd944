package engine

import (
	"context"
	"errors"
	"math"
	"slices"
	"time"

	"ibnetworkd/ib"
	"ibnetworkd/sm/discover"
	"ibnetworkd/sm/fabric"
	"ibnetworkd/sm/lid"
	"ibnetworkd/sm/mad"
	"ibnetworkd/sm/pkey"
	"ibnetworkd/sm/program"
	"ibnetworkd/sm/smp"
)

// sweep brings the fabric from what one walk found to what it should be. Each
// stage is a method; the fabric and the tables are the sweep's own until keep
// makes them the manager's.
type sweep struct {
	s            *Subnet
	kind, reason string    // full, partial or light, and what led to it
	asked        bool      // for by an administrator or a setting
	begin        time.Time // of the walk
	sent         uint64    // SMPs that were sent before
	first        bool      // as master, nothing that is programmed is known: set by configure

	res       *discover.Result
	f         *fabric.Fabric // what was found, and what each answer changes
	lids      lid.Result
	owner     []int32 // LIDs of f
	sameShape bool    // as the last: set by assignLIDs
	pol       program.Policy
	have      tables // the known contents of f
	keys      pkey.Plan

	sets        int             // requests that change something, without Arm and Activate
	failed      int             // of those, how many were not answered with success
	bad         []bool          // by node: it refused what its ports need
	due         []bool          // by node: it refused something, and is retried
	ownLFT      []bool          // by switch: the row of have.lft is not shared with a published one
	refusedKeys map[uint64]bool // ports that refused a block of their P_Key table
	unmapped    map[int32]bool  // switches by node that did not take an SL-to-VL table: whether they refused it
	was         routes          // before the sweep
	regained    bool            // levels are possible again: set by forgetUnmapped and unmappedChanged
}

// stage is a step of a sweep; each begins when all SMPs of the one before it
// have been answered or given up.
type stage func(*sweep, context.Context) error

// stages are all steps of a sweep in their order.
var stages = [...]stage{
	(*sweep).assignLIDs,
	(*sweep).readLFTs,
	(*sweep).readPKeys,
	(*sweep).route,
	(*sweep).planPKeys,
	(*sweep).setSwitches,
	(*sweep).setLanes, // SL2VL and VLArb of ports that are up
	(*sweep).setLevels,
	(*sweep).setLFTs,
	(*sweep).setPKeys,
	(*sweep).serve,
	(*sweep).setLinkedPorts, // PortInfo and GUIDInfo of ports that are up
	(*sweep).keep,
	(*sweep).arm,
	(*sweep).setArmed,
	(*sweep).activate,
	(*sweep).reportPorts,
	(*sweep).multicast,
	(*sweep).remember,
}

// errNoRoutes ends a sweep for whose fabric no routes can be computed.
var errNoRoutes = errors.New("no routes")

// newSweep begins a sweep, before its walk.
func (s *Subnet) newSweep(kind, reason string) *sweep {
	return &sweep{s: s, kind: kind, reason: reason, asked: s.ev.resweep, begin: time.Now(), sent: s.counters.SMPs}
}

// configure runs the stages on what the walk found.
func (w *sweep) configure(ctx context.Context, res *discover.Result) error {
	if w.res = res; res.Fabric == nil {
		return errRestart
	}
	w.first = w.s.prog.fabric == nil
	for _, d := range res.Duplicates {
		key := "dup" + d.GUID.String()
		if d.Port {
			key += d.AtPeer // not one of several cables
		}
		w.s.warnOnce(key, "duplicate GUID", "problem", d.String())
	}
	w.warn("discovery", append(slices.Clone(res.Warnings), res.Silent...))
	w.s.sweeps.note(res)
	for _, run := range stages {
		switch err := run(w, ctx); {
		case errors.Is(err, errNoRoutes):
			return w.s.pause(ctx, time.Second)
		case err != nil:
			return err
		}
	}
	w.finish()
	return nil
}

// problemsMost bounds the problems of discovery that are kept for the status.
const problemsMost = 32

// note keeps the problems that a walk found at nodes that are there. One of a part keeps
// those of other nodes, and of its own those that it would not find again.
func (s *sweeps) note(res *discover.Result) {
	was := s.problems
	s.problems = nil
	add := func(p discover.Problem) {
		if len(s.problems) < problemsMost && (p.At == 0 || res.Fabric.NodeByGUID(p.At) != fabric.None) &&
			!slices.ContainsFunc(s.problems, func(o discover.Problem) bool { return o.Text == p.Text }) {
			s.problems = append(s.problems, p)
		}
	}
	for _, p := range was {
		if s.scope != nil && (p.Lasts || !res.Read[p.At]) {
			add(p)
		}
	}
	for _, p := range res.Problems {
		add(p)
	}
}

func (w *sweep) warn(about string, problems []string) {
	for _, p := range problems {
		w.s.warnOnce(p, about, "problem", p)
	}
}

// send pumps requests whose answers the sweep takes.
func (w *sweep) send(ctx context.Context, reqs []smp.Request) error {
	return w.s.pump(ctx, &smp.List{Requests: reqs, Done: w.answered})
}

// After sayFirst sweeps in a row that changed nothing, one each sayEvery is logged.
const sayFirst, sayEvery = 4, time.Second

// finish plans what the sweep leaves to do, and reports it.
func (w *sweep) finish() {
	s := w.s
	changed := w.res.Changed || w.first || w.sets > 0
	s.sweeps.quietUntil = time.Time{}
	if s.sweeps.fruitless++; changed {
		s.sweeps.fruitless = 0
	} else {
		s.sweeps.quietUntil = time.Now().Add(min(time.Millisecond<<min(s.sweeps.fruitless, 10), 200*time.Millisecond))
	}
	w.retry()
	again := s.sweeps.fruitless > sayFirst && time.Since(s.sweeps.said) < sayEvery
	w.report(w.f, changed || w.asked || w.reason != "" && !again)
	s.save()
}

// retry schedules the next read of what failed, later each time.
func (w *sweep) retry() {
	s, res := w.s, w.res
	// What an earlier sweep failed at and this one did not read is still due.
	s.sweeps.failedAt = slices.DeleteFunc(s.sweeps.failedAt, func(g ib.GUID) bool {
		return s.sweeps.scope == nil || s.sweeps.scope[g] || w.f.NodeByGUID(g) == fabric.None
	})
	for i, b := range w.due {
		if b {
			s.sweeps.failedAt = append(s.sweeps.failedAt, w.f.Nodes[i].GUID)
		}
	}
	s.sweeps.failedAt = append(s.sweeps.failedAt, res.SilentAt...)
	slices.Sort(s.sweeps.failedAt)
	s.sweeps.failedAt = slices.Compact(s.sweeps.failedAt)
	if len(s.sweeps.failedAt) == 0 {
		s.sweeps.failures, s.sweeps.retryAt = 0, time.Time{}
		return
	}
	if !s.sweeps.retryAt.IsZero() && len(res.SilentAt) == 0 && w.failed == 0 {
		return // as planned
	}
	wait := min(time.Second<<min(s.sweeps.failures, 8), 2*time.Minute)
	s.sweeps.failures++
	s.sweeps.retryAt = time.Now().Add(wait)
}

// report publishes the outcome of a sweep, and logs it if asked to.
func (w *sweep) report(f *fabric.Fabric, say bool) {
	s := w.s
	s.sweeps.count++
	s.prog.shown = f
	st := SweepStats{Kind: w.kind, Reason: w.reason, At: w.begin, Duration: time.Since(w.begin), SMPs: s.counters.SMPs - w.sent,
		Nodes: len(f.Nodes), Switches: len(f.Switches), Links: f.Links(), Routing: s.prog.want.engine, Failed: w.failed}
	s.sweeps.last = st
	s.publish() // before the log: programs that read it query the status then
	if say {
		s.sweeps.said = time.Now()
		log := s.log
		if n := s.prog.want.layers; n > 1 {
			log = log.With("service_levels", n)
		}
		log.Info("subnet up", "sweep", st.Kind, "reason", st.Reason, "nodes", st.Nodes, "switches", st.Switches, "links", st.Links,
			"smps", st.SMPs, "duration", st.Duration.Round(time.Microsecond).String(), "routing", st.Routing,
			"busiest_link_flows", math.Round(s.prog.want.worst), "failed", st.Failed)
	}
}

// fail notes a request that a node did not answer with success.
func (w *sweep) fail(node int32, r *smp.Reply) {
	w.failed++
	n := &w.f.Nodes[node]
	if !w.due[node] {
		w.due[node] = true
		w.s.warnOnce("set"+n.GUID.String(), "node rejected a Set", "node", n.Name(), "guid", n.GUID.String(),
			"attribute", mad.AttrName(mad.ClassSubnDR, r.Attr), "modifier", r.Mod, "timeout", r.Timeout, "status", uint16(r.Status))
	}
	switch r.Attr {
	case mad.AttrSLtoVL, mad.AttrVLArb, mad.AttrPKeyTable, mad.AttrGUIDInfo:
		// The port does what it can without: it is not kept down for that.
		if r.Attr == mad.AttrSLtoVL && n.Switch != fabric.None {
			w.unmapped[node] = w.unmapped[node] || !r.Timeout
		}
	default:
		w.bad[node] = true
	}
}
