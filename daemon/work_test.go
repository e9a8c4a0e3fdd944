package daemon

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"ibnetworkd/daemon/card"
	"ibnetworkd/internal/testkit"
	"ibnetworkd/link"
	"ibnetworkd/roce"
	"ibnetworkd/units"
)

// slowSystem has a card whose operations take a time beside the loop: those on
// addresses of ib0 stand for the slow ones.
type slowSystem struct {
	*memory
	each    time.Duration
	wake    func(Scope)
	fail    error
	busy    bool
	queue   []link.Op
	results []card.Result
	began   int
	// stuck keeps the effect of what is going on from coming, as a killed process.
	stuck bool
}

func (s *slowSystem) Apply(ctx context.Context, steps []link.Step, done func(link.Op, error)) {
	s.mu.Lock()
	was := s.busy
	s.mu.Unlock()
	for _, st := range steps {
		_, add := st.Op.(link.AddAddress)
		_, del := st.Op.(link.DelAddress)
		if st.Op.Target().Link != "ib0" || !add && !del {
			s.memory.Apply(ctx, []link.Step{st}, done)
			continue
		}
		s.mu.Lock()
		if !was {
			s.queue = append(s.queue, st.Op)
			if !s.busy {
				s.busy = true
				go s.work()
			}
		}
		s.mu.Unlock()
		done(st.Op, &card.InProgress{Queued: !was, What: "the driver of ib0 is slow"})
	}
}

func (s *slowSystem) work() {
	for {
		s.mu.Lock()
		op := s.queue[0]
		s.began++
		s.mu.Unlock()
		time.Sleep(s.each)
		s.mu.Lock()
		if s.stuck {
			s.mu.Unlock()
			return
		}
		err := s.fail
		if err == nil {
			err = s.m.Apply(op)
		}
		s.results = append(s.results, card.Result{Op: op, Err: err})
		s.queue = s.queue[1:]
		s.busy = len(s.queue) > 0
		busy, wake := s.busy, s.wake
		s.mu.Unlock()
		wake(Scope{Work: true})
		if !busy {
			return
		}
	}
}

func (s *slowSystem) Finished() []card.Result {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := s.results
	s.results = nil
	return out
}

func (s *slowSystem) Cancel(drop func(link.Op) bool) (out []link.Op) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.queue) < 2 {
		return nil
	}
	s.queue = slices.DeleteFunc(s.queue, func(op link.Op) bool {
		if op == s.queue[0] || !drop(op) {
			return false
		}
		out = append(out, op)
		return true
	})
	return out
}

const slowUnit = "[Match]\nName=ib0\n[Network]\nAddress=10.0.0.1/24\nAddress=10.0.0.2/24\nAddress=10.0.0.3/24\n"

func launchSlow(t *testing.T, sys *slowSystem, n *notes, f *files) *rig {
	t.Helper()
	return start(t, sys, n, f, nil, func(w func(Scope)) {
		sys.mu.Lock()
		defer sys.mu.Unlock()
		sys.wake, sys.memory.wake = w, w
	})
}

func addresses(r *rig, name string) int { return len(r.link(name).Addresses) }

// While a card takes minutes the loop answers at once, another link is configured,
// the slow one is configuring and says what is waited for, and in the end all is
// as the unit says.
func TestSlowCard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sys, n := &slowSystem{memory: system(t, 2), each: 30 * time.Second}, &notes{}
		f := &files{m: map[string]string{"10.ibnetwork": slowUnit, "20.ibnetwork": "[Match]\nName=ib1\n[Network]\nAddress=10.1.0.1/24\n"}}
		start := time.Now()
		r := launchSlow(t, sys, n, f)
		time.Sleep(time.Second)
		synctest.Wait()
		if s := r.link("ib1"); s.State != link.StateConfigured {
			t.Errorf("ib1 is %s beside a slow card", s.State)
		}
		s := r.link("ib0")
		if s.State != link.StateConfiguring || s.Reason().Code != link.CodeInProgress || s.Reason().Text != "the driver of ib0 is slow" {
			t.Errorf("ib0 is %s: %+v", s.State, s.Reason())
		}
		for what, ask := range map[string]func(context.Context) error{
			"Alive": r.Alive, "Reload": r.Reload, "Up": func(c context.Context) error { return r.SetAdmin(c, "ib1", true) },
			"Reconfigure": func(c context.Context) error { return r.Reconfigure(c, "ib1") },
			"Plan":        func(c context.Context) error { _, err := r.Plan(c); return err },
		} {
			asked := time.Now()
			if err := ask(t.Context()); err != nil || time.Since(asked) > 50*time.Millisecond {
				t.Errorf("%s took %v: %v", what, time.Since(asked), err)
			}
		}
		// What is being made is in the record, although it is not to be seen yet.
		if rec, err := n.LoadRecord(); err != nil || len(rec.Links) != 2 || len(rec.Links[0].Addresses) != 3 {
			t.Errorf("the record has %+v, %v", rec.Links, err)
		}
		time.Sleep(91 * time.Second)
		synctest.Wait()
		if s := r.link("ib0"); s.State != link.StateConfigured || len(s.Addresses) != 3 {
			t.Errorf("after %v ib0 is %s with %d addresses: %v", time.Since(start), s.State, len(s.Addresses), s.Reasons)
		}
		if sys.began != 3 {
			t.Errorf("%d operations for three addresses", sys.began)
		}
		r.stop()
	})
}

// What was queued for another unit than the present one is not carried out, and what
// waits for the card comes after it.
func TestSlowCardEdited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sys, n := &slowSystem{memory: system(t, 1), each: 30 * time.Second}, &notes{}
		f := &files{m: map[string]string{"10.ibnetwork": slowUnit}}
		r := launchSlow(t, sys, n, f)
		f.set("10.ibnetwork", "[Match]\nName=ib0\n[Network]\nAddress=10.0.0.9/24\n")
		testkit.NoError(t, r.Reload(t.Context()))
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		s := r.link("ib0")
		if s.State != link.StateConfigured || strings.Join(s.Addresses, " ") != "10.0.0.9/24" {
			t.Errorf("ib0 is %s with %v: %v", s.State, s.Addresses, s.Reasons)
		}
		// The one that had begun, its removal, and the new one.
		if sys.began != 3 {
			t.Errorf("%d operations", sys.began)
		}
		r.stop()
	})
}

// cancels is a system with operations that have not begun.
type cancels struct {
	*memory
	ops []link.Op
}

func (c *cancels) Cancel(func(link.Op) bool) []link.Op { return c.ops }

// A soft device that was to be made again under its name keeps its note while it is
// there, and only then.
func TestCancelMaker(t *testing.T) {
	for _, there := range []bool{true, false} {
		sys := &cancels{memory: system(t, 1)}
		d := New(Config{System: sys, Store: &notes{}, Log: slog.New(slog.DiscardHandler)})
		d.snap = &link.Snapshot{Links: sys.m.Snapshot().Links}
		if there {
			d.snap.Devices = []link.Device{{Name: "rxe0", Index: 7}}
		}
		on := link.TargetOf(&d.snap.Links[0])
		del, add := roce.DelSoft{On: on, Name: "rxe0", Index: 7}, roce.AddSoft{On: on, Name: "rxe0", Driver: units.SoftSIW}
		d.rec = &link.Record{}
		d.rec.Intend(roce.AddSoft{On: on, Name: "rxe0", Driver: units.SoftRXE})
		for _, op := range []link.Op{del, add} {
			d.rec.Intend(op)
			d.addOngoing(op, "", &card.InProgress{Queued: true})
		}
		sys.ops = []link.Op{del, add}
		d.cancel(dirty{links: map[int]bool{on.Ifindex: true}})
		d.reconcile()
		if kept := len(d.rec.Made) == 1; kept != there || len(d.ongoing) != 0 {
			t.Errorf("the device is there: %v, the record has %v, going on %d", there, d.rec.Made, len(d.ongoing))
		}
	}
}

// answers is a system that answers with these errors, at once or from a worker.
type answers struct {
	*memory
	errs    map[string]error // by operation
	later   bool
	results []card.Result
}

func (a *answers) Apply(_ context.Context, steps []link.Step, done func(link.Op, error)) {
	for _, s := range steps {
		err := a.errs[s.Op.String()]
		if a.later {
			a.results = append(a.results, card.Result{Op: s.Op, Err: err})
			err = &card.InProgress{Queued: true}
		}
		done(s.Op, err)
	}
}

func (a *answers) Finished() []card.Result {
	if len(a.results) == 0 {
		return nil
	}
	r := a.results[:1]
	a.results = a.results[1:]
	return r
}

// What could not be removed, and is there when it is to be made again, is still ours.
func TestMakerStays(t *testing.T) {
	on := link.Target{Link: "ib0", Ifindex: 2}
	for _, ops := range [][2]link.Maker{
		{roce.DelSoft{On: on, Name: "rxe0", Index: 7}, roce.AddSoft{On: on, Name: "rxe0", Driver: units.SoftSIW}},
		{roce.DelVLAN{On: on, Name: "v8"}, roce.AddVLAN{On: on, Name: "v8"}},
	} {
		for _, c := range []struct {
			ours     bool
			del, add error
			kept     bool
		}{
			{true, unix.EBUSY, unix.EEXIST, true},
			{true, unix.EBUSY, unix.EBUSY, true},
			{true, nil, unix.EEXIST, false}, // another program was faster
			{false, unix.EBUSY, unix.EEXIST, false},
			{true, nil, nil, true},
		} {
			for _, later := range []bool{false, true} {
				sys := &answers{memory: system(t, 1), later: later, errs: map[string]error{ops[0].String(): c.del, ops[1].String(): c.add}}
				d := New(Config{System: sys, Store: &notes{}, Log: slog.New(slog.DiscardHandler)})
				d.rec, d.snap = &link.Record{}, sys.m.Snapshot()
				if c.ours {
					d.rec.Intend(ops[1])
				}
				d.apply(t.Context(), []link.Step{{Op: ops[0]}, {Op: ops[1]}})
				for range sys.results {
					d.adoptResults(&Scope{}, &dirty{})
				}
				if kept := len(d.rec.Made) == 1; kept != c.kept || len(d.noted) != 0 || len(d.ongoing) != 0 {
					t.Errorf("%s, %+v, later %v: the record has %v", ops[1], c, later, d.rec.Made)
				}
			}
		}
	}
}

// What is queued for a link that goes is not carried out, also not on the one that
// comes back under its name.
func TestSlowCardGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sys, n := &slowSystem{memory: system(t, 1), each: 30 * time.Second}, &notes{}
		r := launchSlow(t, sys, n, &files{m: map[string]string{"10.ibnetwork": slowUnit}})
		time.Sleep(10 * time.Second)
		var was link.Link
		sys.change(func(s *link.Snapshot) {
			i := slices.IndexFunc(s.Links, func(l link.Link) bool { return l.Name == "ib0" })
			was = s.Links[i]
			s.Links = slices.Delete(s.Links, i, i+1)
		})
		r.Wake(Scope{All: true})
		time.Sleep(time.Second)
		sys.change(func(s *link.Snapshot) {
			was.Index = 20
			s.Links = append(s.Links, was)
		})
		r.Wake(Scope{All: true})
		time.Sleep(10 * time.Second)
		synctest.Wait()
		sys.mu.Lock()
		if len(sys.queue) != 1 {
			t.Errorf("of the link that went %d operations are queued", len(sys.queue))
		}
		sys.mu.Unlock()
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		// The one that had begun, and the three of the new link.
		if s := r.link("ib0"); s.State != link.StateConfigured || len(s.Addresses) != 3 || sys.began != 4 {
			t.Errorf("ib0 is %s with %d addresses after %d operations: %v", s.State, len(s.Addresses), sys.began, s.Reasons)
		}
		r.stop()
	})
}

// A failure beside the loop is a failure as any: with its sentence, tried again.
func TestSlowCardFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sys, n := &slowSystem{memory: system(t, 1), each: time.Second, fail: errors.New("no luck")}, &notes{}
		r := launchSlow(t, sys, n, &files{m: map[string]string{"10.ibnetwork": slowUnit}})
		time.Sleep(3200 * time.Millisecond)
		synctest.Wait()
		if s := r.link("ib0"); s.State != link.StateFailed || !strings.Contains(s.Reason().Text, "no luck") {
			t.Errorf("ib0 is %s: %+v", s.State, s.Reason())
		}
		sys.mu.Lock()
		sys.fail = nil
		sys.mu.Unlock()
		time.Sleep(time.Minute)
		synctest.Wait()
		if s := r.link("ib0"); s.State != link.StateConfigured {
			t.Errorf("ib0 is %s: %v", s.State, s.Reasons)
		}
		r.stop()
	})
}

// A link that comes back under its name while its card is at work is configured when
// the work is done.
func TestSlowCardLinkComesBack(t *testing.T) {
	for _, fail := range []error{unix.ENODEV, errors.New("no luck")} {
		synctest.Test(t, func(t *testing.T) {
			sys, n := &slowSystem{memory: system(t, 1), each: 30 * time.Second}, &notes{}
			sys.fail = fail
			r := launchSlow(t, sys, n, &files{m: map[string]string{"10.ibnetwork": slowUnit}})
			time.Sleep(10 * time.Second)
			sys.change(func(s *link.Snapshot) { s.Links[0].Index = 20 })
			r.Wake(Scope{All: true})
			time.Sleep(time.Second)
			synctest.Wait()
			if s := r.link("ib0"); s.Ifindex != 20 || s.State != link.StateConfiguring {
				t.Errorf("the link that came back: %d is %s", s.Ifindex, s.State)
			}
			time.Sleep(85 * time.Second)
			sys.mu.Lock()
			sys.fail = nil
			sys.mu.Unlock()
			time.Sleep(10 * time.Minute)
			synctest.Wait()
			if s := r.link("ib0"); s.State != link.StateConfigured || len(s.Addresses) != 3 {
				t.Errorf("ib0 is %s with %d addresses: %v", s.State, len(s.Addresses), s.Reasons)
			}
			r.stop()
		})
	}
}

// The end of the daemon does not wait for a card, and the next one comes to the
// same end, whether the effect came or not.
func TestSlowCardEnds(t *testing.T) {
	for _, came := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			sys, n := &slowSystem{memory: system(t, 1), each: 30 * time.Second}, &notes{}
			f := &files{m: map[string]string{"10.ibnetwork": slowUnit}}
			r := launchSlow(t, sys, n, f)
			time.Sleep(40 * time.Second)
			ask := time.Now()
			r.stop()
			if took := time.Since(ask); took != 0 {
				t.Errorf("the end took %v", took)
			}
			sys.mu.Lock()
			sys.stuck = !came
			sys.mu.Unlock()
			time.Sleep(2 * time.Minute)
			sys.mu.Lock()
			sys.stuck, sys.busy, sys.queue, sys.results = false, false, nil, nil
			sys.mu.Unlock()
			r = launchSlow(t, sys, n, f)
			time.Sleep(2 * time.Minute)
			synctest.Wait()
			if s := r.link("ib0"); s.State != link.StateConfigured || addresses(r, "ib0") != 3 {
				t.Errorf("ib0 is %s with %v", s.State, s.Addresses)
			}
			// All three are ours, so that they go with the unit.
			f.set("10.ibnetwork", "")
			testkit.NoError(t, r.Reload(t.Context()))
			time.Sleep(2 * time.Minute)
			synctest.Wait()
			if n := addresses(r, "ib0"); n != 0 {
				t.Errorf("%d addresses stay", n)
			}
			r.stop()
		})
	}
}
