package card

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"ibnetworkd/link"
	"ibnetworkd/roce"
)

// InProgress is the error of Apply for an operation that takes longer than a
// netlink round trip: the worker of its card carries it out, or will.
type InProgress struct {
	// Queued reports that the worker has the operation, so that Finished gives its
	// result. Otherwise the card is busy with the operations of an earlier plan, and
	// this one has to be planned again from what they leave behind.
	Queued bool
	// What names the operation that is waited for.
	What string
}

// Error is a sentence for the link's status.
func (e *InProgress) Error() string {
	if e.Queued {
		return e.What
	}
	return "waiting for the card: " + e.What
}

// Result is what became of an operation that a worker had.
type Result struct {
	Op  link.Op
	Err error
}

// slow reports whether an operation makes drivers probe or open their queues again, or
// needs the result of one that does: those of a card go through its worker in the order of the plan.
func slow(op link.Op) bool {
	switch op.(type) {
	case roce.SetPortType, roce.SetAutoprobe, roce.SetVFs, roce.SetVF, roce.SetVFGUIDs, roce.RebindVF, roce.AddSoft, roce.DelSoft,
		roce.SetEthtool:
		return true
	}
	return false
}

// doing returns what is waited for while an operation is carried out.
func doing(op link.Op) string {
	on := op.Target()
	switch o := op.(type) {
	case roce.SetPortType:
		return fmt.Sprintf("the driver of %s/%s changes port %d to %s", o.Port.Bus, o.Port.Dev, portOf(o), o.Type)
	case roce.SetVFs:
		if o.Count == 0 {
			return fmt.Sprintf("the driver of %s removes its %d virtual functions", on, o.Old)
		}
		return fmt.Sprintf("the driver of %s creates %d virtual functions", on, o.Count)
	case roce.SetVF:
		return fmt.Sprintf("%s of virtual function %d of %s is being set", o.Attr, o.VF, on)
	case roce.SetVFGUIDs:
		return fmt.Sprintf("virtual function %d of %s gets its GUIDs", o.VF, on)
	case roce.RebindVF:
		return fmt.Sprintf("the driver of virtual function %d of %s starts again", o.VF, on)
	case roce.AddSoft:
		return fmt.Sprintf("the %s device %s is being created on %s", o.Driver, o.Name, on)
	case roce.SetEthtool:
		return fmt.Sprintf("the driver of %s sets %s", on, o.Keys())
	case roce.DelSoft:
		return fmt.Sprintf("the RDMA device %s is being removed from %s", o.Name, on)
	}
	return op.String()
}

// maxQueue bounds the operations that the worker of one card has. What a plan has
// beyond them is planned again when they are done.
const maxQueue = 256

// runner carries out the operations of one card; *executor is one.
type runner interface {
	apply(ctx context.Context, op link.Op) error
	// rest is called when there is nothing more to do.
	rest()
}

// workers have one goroutine for each card that has something to do. All methods
// but work are called from the loop.
type workers struct {
	open func() runner // for a card
	// ended is called from a worker after each operation.
	ended func()
	busy  map[string]bool // cards that had work when the snapshot was begun

	mu     sync.Mutex           // guards the rest
	queues map[string][]link.Op // by card: the first is being carried out
	done   []Result
}

func newWorkers(open func() runner) *workers {
	return &workers{open: open, ended: func() {}, queues: map[string][]link.Op{}}
}

// begin is called before a snapshot is read. A plan made from it does not know what
// the workers that are busy now leave behind.
func (w *workers) begin() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.busy = map[string]bool{}
	for card := range w.queues {
		w.busy[card] = true
	}
}

// submit hands an operation to the worker of its card, which it starts if there
// is none.
func (w *workers) submit(ctx context.Context, card string, op link.Op) *InProgress {
	w.mu.Lock()
	defer w.mu.Unlock()
	q := w.queues[card]
	if w.busy[card] || len(q) >= maxQueue {
		what := op
		if len(q) > 0 {
			what = q[0]
		}
		return &InProgress{What: doing(what)}
	}
	w.queues[card] = append(q, op)
	if len(q) == 0 {
		go w.work(ctx, card, w.open())
	}
	return &InProgress{Queued: true, What: doing(op)}
}

// work carries out what a card's queue has, and ends with it or with ctx.
func (w *workers) work(ctx context.Context, card string, run runner) {
	for more := true; more; {
		w.mu.Lock()
		op := w.queues[card][0]
		w.mu.Unlock()
		err := run.apply(ctx, op)
		w.mu.Lock()
		w.done = append(w.done, Result{op, err})
		w.queues[card] = w.queues[card][1:]
		if more = len(w.queues[card]) > 0 && ctx.Err() == nil; !more {
			// The card is free before the loop receives the last result.
			delete(w.queues, card)
			run.rest()
		}
		w.mu.Unlock()
		w.ended()
	}
}

// finished takes the results that have come since the last call.
func (w *workers) finished() []Result {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := w.done
	w.done = nil
	return out
}

// cancel removes from the queues the operations that drop names and that have not
// begun.
func (w *workers) cancel(drop func(link.Op) bool) (out []link.Op) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for card, q := range w.queues {
		rest := slices.DeleteFunc(slices.Clone(q[1:]), func(op link.Op) bool {
			if !drop(op) {
				return false
			}
			out = append(out, op)
			return true
		})
		w.queues[card] = append(q[:1:1], rest...)
	}
	return out
}

func (w *workers) working(card string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.queues[card]) > 0
}

// any reports whether any card has work.
func (w *workers) any() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.queues) > 0
}
