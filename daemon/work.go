package daemon

import (
	"time"

	"ibnetworkd/daemon/card"
	"ibnetworkd/link"
)

// ongoing are the operations that the workers of the cards have, and those that
// wait for a card to be done, by link.DelayKey. The plan does not ask for either.
type ongoing map[string]ongoingOp

type ongoingOp struct {
	op     link.Op
	unit   string
	queued bool // its result comes with System.Finished
	why    link.Reason
}

// addOngoing notes an operation that was not carried out at once.
func (d *Daemon) addOngoing(op link.Op, unit string, p *card.InProgress, args ...any) {
	why := link.Reason{Code: link.CodeInProgress, Text: p.Error()}
	d.ongoing[link.DelayKey(op)] = ongoingOp{op, unit, p.Queued, why}
	if p.Queued {
		d.log.Info("started", append(args, "waiting_for", p.What)...)
	} else {
		d.log.Debug("waits for its card", append(args, "waiting_for", p.What)...)
	}
}

// adoptResults notes the results that the workers have, and has everything that
// waited for their cards planned again from what they left behind.
func (d *Daemon) adoptResults(sc *Scope, dirty *dirty) (gone []absence) {
	rs := d.cfg.System.Finished()
	if len(rs) == 0 {
		return nil
	}
	sc.RDMA = true
	again := func(op link.Op) {
		t := op.Target()
		if l := d.at(t); l != nil {
			t.Ifindex = l.Index
		}
		dirty.target(t)
		if t.Ifindex != 0 {
			sc.link(t.Ifindex)
		}
		if _, ok := op.(link.Maker); ok {
			sc.All = true // a link or an RDMA device
		}
	}
	for _, r := range rs {
		key := link.DelayKey(r.Op)
		unit := d.ongoing[key].unit
		delete(d.ongoing, key)
		again(r.Op)
		if a := d.result(r.Op, unit, r.Err); a != nil {
			gone = append(gone, *a)
		}
	}
	for key, b := range d.ongoing {
		if !b.queued {
			delete(d.ongoing, key)
			again(b.op)
		}
	}
	d.save()
	d.moved = time.Now()
	return gone
}

// cancel has what is queued for links whose units have changed planned again.
func (d *Daemon) cancel(what dirty) {
	if !what.empty() {
		d.cancelIf(func(op link.Op) bool { return what.has(op.Target()) })
	}
}

// cancelGone cancels what is queued for links and devices that are gone: what comes
// back under their names is another.
func (d *Daemon) cancelGone() { d.cancelIf(func(op link.Op) bool { return !d.exists(op) }) }

func (d *Daemon) cancelIf(drop func(link.Op) bool) {
	if len(d.ongoing) == 0 {
		return
	}
	for _, op := range d.cfg.System.Cancel(drop) {
		delete(d.ongoing, link.DelayKey(op))
		// What would have been made may be there from before, under the same name:
		// the record forgets what the next snapshot does not have.
		if _, ok := op.(link.Maker); !ok {
			d.rec.Failed(op)
		}
		d.log.Info("cancelled before it began", "op", op.String())
	}
}

// reasons are what the plan does not ask for now: what failed and what goes on.
func (d *Daemon) reasons() map[string]link.Reason {
	out := d.delayed.reasons()
	if len(d.ongoing) == 0 {
		return out
	}
	if out == nil {
		out = map[string]link.Reason{}
	}
	for key, b := range d.ongoing {
		out[key] = b.why
	}
	return out
}

// reconcile brings the record in line with the snapshot. What is being made is not
// to be seen yet and stays in the record.
func (d *Daemon) reconcile() (changed bool) {
	changed = d.rec.Reconcile(d.snap)
	for _, b := range d.ongoing {
		if b.queued {
			d.rec.Intend(b.op)
		}
	}
	return changed
}
