package worker

import (
	"maps"
	"slices"
	"time"

	"ibnetworkd/ib"
	"ibnetworkd/internal/backoff"
	"ibnetworkd/smctl"
)

// publish reports the status if it changed, and returns when a master in it expires
// unless it answers again.
func (c *Controller) publish(now time.Time) (end time.Time) {
	out := make([]smctl.Status, 0, len(c.table))
	for _, g := range slices.Sorted(maps.Keys(c.table)) {
		e := c.table[g]
		if e.port.LinkLayer != ib.LinkLayerInfiniBand {
			continue
		}
		s := smctl.Status{PortGUID: g.String(), IBDevice: e.port.IBDev, Port: e.port.Num, Manage: e.port.Policy.Manage.String(),
			Engine: e.port.Policy.Engine.String(),
			Unit:   e.port.Policy.Unit, Phase: e.dec.Phase, Reason: e.dec.Reason, NextCheck: e.dec.Until.Truncate(time.Second),
			Worker: e.worker.Unit, WorkerState: e.worker.State.String(), WorkerSince: e.wall, Override: e.worker.Override.String(), Starts: e.starts,
			Next: e.dec.Next, WorkerText: e.worker.StatusText.String()}
		if !e.known && e.worker.State == smctl.WorkerInactive {
			s.WorkerState = "" // it may run
		}
		if e.files != nil {
			s.FileProblem = e.files.Problem
		}
		if e.dec.Until.IsZero() {
			s.NextCheck = time.Time{}
		}
		if m, ok := smctl.MasterOf(e.port.Port, e.dec.Phase, e.answer, now); ok {
			end = backoff.Sooner(end, e.answer.At.Add(smctl.MasterLife))
			s.Master = &smctl.Master{GUID: m.GUID.String(), LID: uint16(m.LID), Priority: m.Priority, State: m.State.String(), Node: m.Node}
		}
		out = append(out, s)
	}
	if slices.EqualFunc(out, c.lastPublished, sameStatus) {
		return end
	}
	c.lastPublished = out
	c.cfg.Publish(slices.Clone(out))
	return end
}

// sameStatus compares all but the time of the next check, which every query
// moves and which would make a signal each.
func sameStatus(a, b smctl.Status) bool {
	am, bm := a.Master, b.Master
	a.Master, b.Master = nil, nil
	a.NextCheck, b.NextCheck = time.Time{}, time.Time{}
	return a == b && (am == nil) == (bm == nil) && (am == nil || *am == *bm)
}
