package daemon

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"ibnetworkd/daemon/card"
	"ibnetworkd/link"
)

// absence is an operation of which the kernel said that its link is not there.
type absence struct {
	op  link.Op
	why link.Reason // if it is there all the same
	err error
}

// exists reports whether what an operation is about is in the snapshot.
func (d *Daemon) exists(op link.Op) (ok bool) {
	t := op.Target()
	switch o := op.(type) {
	case link.AddChild:
		t = o.Parent
	case link.AddBond, link.AddVRF:
		t = link.Target{}
	}
	switch {
	case t.Ifindex != 0:
		_, ok = d.snap.Link(t.Ifindex)
	case t.Link != "":
		_, ok = d.snap.LinkByName(t.Link)
	case t.IBDevice != "":
		_, ok = d.snap.Device(t.IBDevice)
	default:
		ok = true // the host
	}
	return ok
}

// delay has an operation that failed wait, and says why.
func (d *Daemon) delay(op link.Op, why link.Reason, refused bool, err error, args ...any) {
	var on linkState
	if d.snap != nil {
		l, _ := d.snap.LinkByName(op.Target().Link)
		on = stateOf(l)
	}
	d.delayed.add(op, why, refused, on, time.Now())
	d.logOnce(op.Target().String(), failedOp(op), why.Text, slog.LevelWarn,
		as(msgRefused, append(args, "code", string(why.Code), "error", err, "next", why.Next)...)...)
}

// delayAbsent delays the operations whose links the kernel did not find and that are
// there all the same.
func (d *Daemon) delayAbsent(gone []absence) {
	for _, g := range gone {
		if d.exists(g.op) {
			d.delay(g.op, g.why, false, g.err)
		}
	}
}

func failedOp(op link.Op) string { return "failed " + op.String() }

// apply carries steps out and gives the links to read again, and the
// operations whose links the kernel could not find.
func (d *Daemon) apply(ctx context.Context, steps []link.Step) (touched dirty, gone []absence) {
	unit := make(map[string]string, len(steps))
	for _, s := range steps {
		d.intend(s.Op)
		unit[link.DelayKey(s.Op)] = s.Unit
		t := s.Op.Target()
		if t.Ifindex != 0 || t.Link == "" && t.IBDevice != "" {
			touched.target(t)
		}
		if c, ok := s.Op.(link.AddChild); ok {
			touched.target(c.Parent)
		}
	}
	// The record goes first: a kill between here and the effect leaves a note
	// of something that is not there, never something of ours without a note.
	d.save()
	d.cfg.System.Apply(ctx, steps, func(op link.Op, err error) {
		if a := d.result(op, unit[link.DelayKey(op)], err); a != nil {
			gone = append(gone, *a)
		}
		if o, ok := op.(link.DelMoved); ok {
			d.intendAfter(o.Moved.Made, steps)
		}
	})
	d.save()
	return touched, gone
}

// intend notes what an operation is about to make, and whether the record has it from
// before: the plan removes it first then.
func (d *Daemon) intend(op link.Op) {
	if o, ok := op.(link.Maker); ok {
		if m, remove := o.Makes(); !remove && !sends(op) {
			d.noted[m] = d.rec.Notes(m)
		}
	}
	d.rec.Intend(op)
}

// intendAfter notes what a plan makes in the place of a link of another network namespace: the
// record could not have both.
func (d *Daemon) intendAfter(deleted link.Made, steps []link.Step) {
	for _, s := range steps {
		if m, ok := link.Sent(s.Op); ok && m.Made == deleted {
			d.rec.Intend(s.Op)
			d.save()
		}
	}
}

func sends(op link.Op) bool { _, ok := link.Sent(op); return ok }

// done notes that an operation has taken effect.
func (d *Daemon) done(op link.Op) {
	if o, ok := op.(link.Maker); ok {
		m, _ := o.Makes()
		delete(d.noted, m)
	}
	d.rec.Done(op)
	d.delayed.done(op)
}

// failed takes back the intention of an operation that had no effect. What was to be
// made and was not removed before stays in the record.
func (d *Daemon) failed(op link.Op) {
	if o, ok := op.(link.Maker); ok {
		if m, remove := o.Makes(); !remove && !sends(op) {
			ours := d.noted[m]
			if delete(d.noted, m); ours {
				return
			}
		}
	}
	d.rec.Failed(op)
}

// result notes what became of an operation. It gives an absence if the kernel said
// that its link is not there.
func (d *Daemon) result(op link.Op, unit string, err error) *absence {
	args := []any{"op", op.String()}
	if t := op.Target(); t.Link != "" {
		args = append(args, "link", t.Link)
	}
	if unit != "" {
		args = append(args, "unit", unit)
	}
	var later *card.InProgress
	var held heldError
	switch {
	case err == nil:
		d.done(op)
		d.forgetLog(op.Target().String(), failedOp(op))
		d.log.Info("done", as(msgOperation, args...)...)
		return nil
	case errors.As(err, &later):
		d.addOngoing(op, unit, later, args...)
		return nil
	case errors.As(err, &held):
		d.failed(op)
		d.log.Debug("held back", append(args, "after", held.by.String())...)
		return nil
	}
	v, why := classify(op, err)
	switch v {
	case verdictDone:
		d.done(op)
	case verdictForeign:
		d.failed(op)
		d.delayed.done(op)
	case verdictGone:
		d.failed(op)
		d.log.Debug("the link went away", append(args, "error", err)...)
		return &absence{op, why, err}
	case verdictRetry, verdictGiveUp:
		d.failed(op)
		d.delay(op, why, v == verdictGiveUp, err, args...)
	}
	return nil
}

// keepAgain is how long after a file could not be written it is retried: nothing
// reports that a disk has space again.
const keepAgain = time.Second

func (d *Daemon) save() {
	if err := d.cfg.Store.SaveRecord(d.rec); err != nil {
		d.logOnce("", "record", err.Error(), slog.LevelError, "effect", "what is made from now on is not removed after a restart")
		d.recordNext = time.Now().Add(keepAgain)
		return
	}
	d.forgetLog("", "record")
	d.recordNext = time.Time{}
}
