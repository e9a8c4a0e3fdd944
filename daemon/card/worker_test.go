package card

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"ibnetworkd/internal/kernel/kerneltest"
	"ibnetworkd/internal/kernel/modules"
	"ibnetworkd/internal/kernel/sysfs"
	"ibnetworkd/link"
	"ibnetworkd/roce"
)

// slowCard takes a time for each operation.
type slowCard struct {
	each   time.Duration
	began  []string
	fail   error
	rested int
}

func (c *slowCard) apply(_ context.Context, op link.Op) error {
	c.began = append(c.began, op.String())
	time.Sleep(c.each) // a driver does not know of a context
	return c.fail
}

func (c *slowCard) rest() { c.rested++ }

func rebind(index, n int) roce.RebindVF {
	return roce.RebindVF{On: link.Target{Link: "ib0", Ifindex: index}, VF: n, Bus: "pci", Dev: "0000:3b:00.1"}
}

// submit is what Apply does, for a card by name.
func submit(w *workers, ctx context.Context, card string, op link.Op) bool {
	return w.submit(ctx, card, op).Queued
}

func ops(rs []Result) (out []string) {
	for _, r := range rs {
		out = append(out, r.Op.String())
	}
	return out
}

// One card's operations are carried out in their order, another card's beside
// them, and nothing that asks for them waits.
func TestWorkers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var cards []*slowCard
		w := newWorkers(func() runner { c := &slowCard{each: 30 * time.Second}; cards = append(cards, c); return c })
		var ended atomic.Int32
		w.ended = func() { ended.Add(1) }
		start := time.Now()
		w.begin()
		for n := range 8 {
			if !submit(w, t.Context(), "slow", rebind(2, n)) {
				t.Fatal("not queued")
			}
		}
		time.Sleep(time.Second)
		w.begin()
		if !submit(w, t.Context(), "other", rebind(3, 0)) {
			t.Error("another card waits")
		}
		// The next plan does not know what the queue leaves behind.
		if e := w.submit(t.Context(), "slow", rebind(2, 9)); e.Queued ||
			e.Error() != "waiting for the card: the driver of virtual function 0 of ib0 starts again" {
			t.Errorf("a busy card has it: %+v", e)
		}
		time.Sleep(30*time.Second + time.Millisecond)
		if rs := w.finished(); len(rs) != 2 || ended.Load() != 2 {
			t.Errorf("%d results, woken %d times", len(rs), ended.Load())
		}
		if w.working("other") || !w.working("slow") || !w.any() {
			t.Error("the other card is at work, or the slow one is not")
		}
		synctest.Wait()
		for w.any() {
			time.Sleep(time.Second)
		}
		if took := time.Since(start).Round(time.Second); took != 240*time.Second {
			t.Errorf("8 functions of 30 s took %v", took)
		}
		if rs := w.finished(); len(rs) != 7 || len(w.finished()) != 0 {
			t.Errorf("%d results", len(rs))
		}
		if len(cards[0].began) != 8 || !slices.IsSorted(cards[0].began) || cards[0].rested != 1 {
			t.Errorf("%q, rested %d times", cards[0].began, cards[0].rested)
		}
		w.begin()
		if !submit(w, t.Context(), "slow", rebind(2, 9)) || len(cards) != 3 {
			t.Error("a card that has done its work is not free")
		}
		synctest.Wait()
		time.Sleep(time.Minute)
	})
}

// A plan that was made while the card was at work is not carried out when the work
// has ended since.
func TestWorkersStalePlan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorkers(func() runner { return &slowCard{each: time.Second} })
		w.begin()
		submit(w, t.Context(), "a", rebind(2, 0))
		w.begin()
		time.Sleep(2 * time.Second)
		if w.any() {
			t.Fatal("the work has not ended")
		}
		if e := w.submit(t.Context(), "a", rebind(2, 1)); e.Queued || e.What == "" {
			t.Errorf("%+v", e)
		}
		// The result that brings the next plan is still to come.
		if len(w.finished()) != 1 {
			t.Error("nothing brings another plan")
		}
		w.begin()
		if !submit(w, t.Context(), "a", rebind(2, 1)) {
			t.Error("the next plan waits")
		}
		time.Sleep(2 * time.Second)
	})
}

// What a plan has beyond the bound waits, and a queue ends with ctx.
func TestWorkersBound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &slowCard{each: time.Second}
		w := newWorkers(func() runner { return c })
		ctx, cancel := context.WithCancel(t.Context())
		w.begin()
		queued := 0
		for n := range maxQueue + 10 {
			if submit(w, ctx, "a", rebind(2, n)) {
				queued++
			}
		}
		if queued != maxQueue {
			t.Errorf("queued %d", queued)
		}
		time.Sleep(2500 * time.Millisecond)
		begin := time.Now()
		cancel()
		if time.Since(begin) != 0 {
			t.Error("the end waits for the driver")
		}
		synctest.Wait()
		time.Sleep(time.Second)
		if len(c.began) != 3 || w.any() || len(w.finished()) != 3 {
			t.Errorf("began %d after the end", len(c.began))
		}
	})
}

// What has not begun can be cancelled, by link.
func TestWorkersCancel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &slowCard{each: time.Second, fail: errors.New("no")}
		w := newWorkers(func() runner { return c })
		w.begin()
		for n, index := range []int{2, 2, 3, 2} {
			submit(w, t.Context(), "a", rebind(index, n))
		}
		synctest.Wait()
		on2 := func(op link.Op) bool { return op.Target().Ifindex == 2 }
		out := w.cancel(on2)
		if len(out) != 2 {
			t.Errorf("cancelled %v", out)
		}
		time.Sleep(time.Minute)
		rs := w.finished()
		if diff := cmp.Diff([]string{rebind(2, 0).String(), rebind(3, 2).String()}, ops(rs)); diff != "" || rs[0].Err == nil {
			t.Errorf("(-want +got):\n%s", diff)
		}
		if w.cancel(on2) != nil {
			t.Error("cancelled what is done")
		}
	})
}

// Every operation that goes to a worker says what is waited for, in words and not
// by its command; the others are not slow.
func TestSlowOperations(t *testing.T) {
	kerneltest.Isolate(t)
	e := newExecutor(sysfs.New(t.TempDir()),
		modules.Loader{Ask: func(context.Context, string) (bool, error) { return true, errors.New("none") }})
	defer e.rest()
	n := 0
	for _, op := range roce.Ops() {
		if !slow(op) {
			continue
		}
		n++
		if _, probe := op.(roce.SetAutoprobe); !probe && doing(op) == op.String() {
			t.Errorf("%T has no words", op)
		}
		if err := e.apply(t.Context(), op); errors.Is(err, errUnknown) {
			t.Errorf("%T: no worker carries it out", op)
		}
	}
	if n < 8 {
		t.Errorf("%d slow operations", n)
	}
}
