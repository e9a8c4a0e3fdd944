package daemon

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"ibnetworkd/ib"
	"ibnetworkd/internal/testkit"
	"ibnetworkd/link"
	"ibnetworkd/units"
)

func TestLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sys, n := system(t, 1), &notes{}
		r := launch(t, sys, n, map[string]string{"10.ibnetwork": unit0})
		want := strings.Join([]string{
			"ip link set ib0 type ipoib mode connected", "ip link set ib0 mtu 65520", "ip link set ib0 up",
			"ip address add 10.0.0.1/24 broadcast 10.0.0.255 dev ib0", "ip link add link ib0 name ib0.8001 type ipoib pkey 0x8001",
			"ip link set ib0.8001 up",
		}, "\n")
		if got := strings.Join(sys.take(), "\n"); got != want {
			t.Errorf("ops:\n%s\nwant:\n%s", got, want)
		}
		if s := r.link("ib0"); s.State != link.StateConfigured || s.Oper != units.OperRoutable || !s.Online {
			t.Errorf("ib0 is %s/%s online %v: %v", s.State, s.Oper, s.Online, s.Reasons)
		}
		if s := r.link("ib0.8001"); s.State != link.StateConfigured || !s.MadeByUs {
			t.Errorf("ib0.8001 is %s, made by us %v", s.State, s.MadeByUs)
		}

		// Nothing happens by itself but the slow read of the ports, after the events of what was done.
		time.Sleep(time.Second)
		looks := sys.looked()
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if d := sys.looked() - looks; d > 10 {
			t.Errorf("%d looks in ten idle minutes", d)
		}

		// An edit does what it says.
		r.f.set("10.ibnetwork", strings.ReplaceAll(unit0, "10.0.0.1/24", "10.0.0.2/24"))
		testkit.NoError(t, r.Reload(t.Context()))
		if got := strings.Join(sys.take(), "\n"); got != "ip address delete 10.0.0.1/24 dev ib0\n"+
			"ip address add 10.0.0.2/24 broadcast 10.0.0.255 dev ib0" {
			t.Errorf("ops of the edit:\n%s", got)
		}

		// A restart with unchanged units does nothing.
		r.stop()
		r = launch(t, sys, n, r.f.m)
		if got := sys.take(); len(got) > 0 {
			t.Errorf("ops of a restart: %q", got)
		}

		// The unit goes, and what it made.
		r.f.set("10.ibnetwork", "")
		r.Wake(Scope{Reload: true})
		time.Sleep(time.Second)
		synctest.Wait()
		if got := strings.Join(sys.take(), "\n"); got != "ip link delete ib0.8001\nip address delete 10.0.0.2/24 dev ib0" {
			t.Errorf("ops when the unit goes:\n%s", got)
		}
		r.stop()
	})
}

func TestRetry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sys, n := system(t, 2), &notes{}
		busy := true
		sys.fail = func(op link.Op) error {
			if busy && strings.Contains(op.String(), "mode connected") {
				return fmt.Errorf("set mode: %w", syscall.EBUSY)
			}
			return nil
		}
		r := launch(t, sys, n, map[string]string{"10.ibnetwork": unit0, "20.ibnetwork": "[Match]\nName=ib1\n[Network]\nAddress=10.1.0.1/24\n"})
		if s := r.link("ib1"); s.State != link.StateConfigured {
			t.Errorf("one bad link stopped the other: ib1 is %s", s.State)
		}
		if s := r.link("ib0"); s.State != link.StateFailed || s.Reason().Code != link.CodeRetry {
			t.Errorf("ib0 is %s: %v", s.State, s.Reasons)
		}
		time.Sleep(5 * time.Second)
		synctest.Wait()
		sys.mu.Lock()
		busy = false
		sys.mu.Unlock()
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if s := r.link("ib0"); s.State != link.StateConfigured {
			t.Errorf("ib0 is %s: %v", s.State, s.Reasons)
		}
		tries := strings.Count(strings.Join(sys.take(), "\n"), "mode connected")
		if tries < 3 || tries > 12 {
			t.Errorf("%d tries in the time of a back-off", tries)
		}
		if c := strings.Count(r.log.String(), "level=WARN msg=\"ip link set ib0 type ipoib mode connected did not"); c != 1 {
			t.Errorf("the failure is logged %d times", c)
		}
		r.stop()
	})
}

// "No such device" about a link that is there is an error like others: it is not
// tried again at once, and it is reported. For one that is gone, it is nothing.
func TestNoSuchDevice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sys := system(t, 1)
		var goes bool
		sys.fail = func(op link.Op) error {
			if strings.Contains(op.String(), "mode connected") {
				if goes {
					c := *sys.m.Snapshot()
					c.Links = nil
					sys.m = link.NewModel(&c)
				}
				return fmt.Errorf("change link 10: %w", syscall.ENODEV)
			}
			return nil
		}
		r := launch(t, sys, &notes{}, map[string]string{"10.ibnetwork": unit0})
		defer r.stop()
		if n := strings.Count(strings.Join(sys.take(), "\n"), "mode connected"); n != 1 {
			t.Errorf("tried %d times at once", n)
		}
		if s := r.link("ib0"); s.State != link.StateFailed || s.Reason().Code != link.CodeRetry || s.Reason().Next == "" {
			t.Errorf("ib0 is %s: %v", s.State, s.Reasons)
		}
		sys.mu.Lock()
		goes = true
		sys.mu.Unlock()
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		const absent = "msg=\"ip link set ib0 type ipoib mode connected failed: a link or device that it names does not exist"
		if n := len(r.delayed.m); n != 0 || strings.Count(r.log.String(), absent) != 1 {
			t.Errorf("%d operations are delayed on a link that went:\n%s", n, r.log)
		}
	})
}

// What was learned of operations that no unit asks for any more is forgotten.
func TestHoldsForget(t *testing.T) {
	h, now := newDelays(), time.Unix(0, 0)
	for i := range 100 {
		op := link.SetMTU{On: link.Target{Link: "ib0"}, MTU: 100 + i}
		for range 3 {
			h.add(op, link.Reason{}, i%2 == 0, linkState{}, now)
			h.request(map[string]bool{"ib0": true}, false)
		}
		now = now.Add(time.Minute)
	}
	if n := len(h.m) + len(h.last); n > 30 {
		t.Errorf("%d operations are remembered", n)
	}
	// Failing again waits longer each time, up to a bound.
	op := link.SetMTU{On: link.Target{Link: "ib1"}, MTU: 1}
	var waits []time.Duration
	for range 12 {
		h.add(op, link.Reason{}, true, linkState{}, now)
		wait := h.m[link.DelayKey(op)].wait
		waits = append(waits, wait)
		now = now.Add(wait)
		if len(h.due(now)) == 0 {
			t.Fatal("not due")
		}
	}
	if waits[0] != refuseFirst || waits[1] != 2*refuseFirst || waits[11] != refuseMost {
		t.Errorf("waits %v", waits)
	}
}

func TestPortComes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sys := system(t, 1)
		sys.change(func(s *link.Snapshot) {
			p := &s.Devices[0].Ports[0]
			p.State, p.SMLID = ib.PortInit, 0
		})
		r := launch(t, sys, &notes{}, map[string]string{"10.ibnetwork": unit0})
		changes, cancel := r.Subscribe()
		if s := r.link("ib0"); s.Reason().Code != link.CodeNoSM {
			t.Errorf("reasons %v", s.Reasons)
		}
		sys.change(func(s *link.Snapshot) { s.Devices[0].Ports[0].State = ib.PortActive })
		time.Sleep(1100 * time.Millisecond) // no event comes: the fast timer sees it
		synctest.Wait()
		if s := r.link("ib0"); s.State != link.StateConfigured || !s.Carrier {
			t.Errorf("ib0 is %s carrier %v: %v", s.State, s.Carrier, s.Reasons)
		}
		c := <-changes
		if len(c.Links) == 0 || !c.PortsChanged {
			t.Errorf("change %+v", c)
		}
		cancel()
		r.stop()
	})
}

// What a turn was about is done when the system can be read again: an edit,
// an operation whose time had come, a status that was not reported.
func TestLookFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sys := system(t, 1)
		r := launch(t, sys, &notes{}, map[string]string{"10.ibnetwork": unit0})
		defer r.stop()
		sys.take()
		changes, cancel := r.Subscribe()
		defer cancel()
		blind := func(err error) {
			sys.mu.Lock()
			defer sys.mu.Unlock()
			sys.blind = err
		}
		blind(errors.New("no buffer space available"))
		r.f.set("10.ibnetwork", strings.ReplaceAll(unit0, "10.0.0.1/24", "10.0.0.2/24"))
		if err := r.Reload(t.Context()); err == nil {
			t.Error("a reload that did nothing has no error")
		}
		if _, err := r.Plan(t.Context()); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		blind(nil)
		time.Sleep(time.Second)
		synctest.Wait()
		if got := strings.Join(sys.take(), "\n"); got != "ip address delete 10.0.0.1/24 dev ib0\n"+
			"ip address add 10.0.0.2/24 broadcast 10.0.0.255 dev ib0" {
			t.Errorf("ops after the looks that failed:\n%s", got)
		}
		select {
		case c := <-changes:
			if !c.Reloaded || len(c.Links) == 0 {
				t.Errorf("told of %+v", c)
			}
		default:
			t.Error("told of nothing")
		}
		if n := strings.Count(r.log.String(), "no buffer space"); n != 1 {
			t.Errorf("said %d times", n)
		}
	})
}

// Before the first look there is no plan, and asking for one is no crash.
func TestNeverLooked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sys := system(t, 1)
		sys.blind = errors.New("blind")
		r := launch(t, sys, &notes{}, map[string]string{"10.ibnetwork": unit0})
		defer r.stop()
		if _, err := r.Plan(t.Context()); err == nil {
			t.Error("a plan of nothing")
		}
	})
}

// The old name of a renamed link is gone for everyone who keeps links by name.
func TestRenameIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sys := system(t, 2)
		r := launch(t, sys, &notes{}, map[string]string{"10.ibnetwork": "[Match]\nName=ib1\n"})
		defer r.stop()
		changes, cancel := r.Subscribe()
		defer cancel()
		sys.change(func(s *link.Snapshot) { s.Links[0].Name = "storage" })
		r.Wake(Scope{Links: map[int]bool{10: true}})
		time.Sleep(time.Second)
		synctest.Wait()
		c := <-changes
		if len(c.Gone) != 1 || c.Gone[0] != "ib0" || len(c.Links) != 1 || c.Links[0].Name != "storage" {
			t.Errorf("change %+v", c)
		}
	})
}

// What is removed is noticed by what needed it: a child that a user deletes is made
// again, a name is free again, a link that was followed is followed no more.
func TestLinkGoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sys := system(t, 2)
		sys.change(func(s *link.Snapshot) {
			s.Links = append(s.Links, link.Link{Index: 50, Name: "taken", Type: 1},
				link.Link{Index: 51, Name: "up1", Type: 1, Flags: link.FlagUp | link.FlagLowerUp, Sysctl: map[string]string{}})
		})
		r := launch(t, sys, &notes{}, map[string]string{
			"10.ibnetwork": "[Match]\nName=ib0\n[Partition]\nPartitionKey=0x8001\n[Partition]\nPartitionKey=0x8002\nName=taken\n",
			"20.ibnetwork": "[Match]\nName=ib1\n[Link]\nActivationPolicy=bound\n[Network]\nBindCarrier=up1\n[RoutingPolicyRule]\n" +
				"From=10.0.0.0/8\nTable=7\nPriority=100\n",
		})
		defer r.stop()
		sys.take()
		for _, step := range []struct{ name, want string }{
			{"ib0.8001", "ip link add link ib0 name ib0.8001 type ipoib pkey 0x8001\nip link set ib0.8001 up"},
			{"taken", "ip link add link ib0 name taken type ipoib pkey 0x8002\nip link set taken up"},
			{"up1", ""},
			{"ib1", "ip rule delete from 10.0.0.0/8 priority 100 protocol static table 7"},
		} {
			index := 0
			sys.change(func(s *link.Snapshot) {
				l, ok := s.LinkByName(step.name)
				if !ok {
					t.Fatal(step.name + " is not there")
				}
				index = l.Index
				s.Links = slices.DeleteFunc(s.Links, func(x link.Link) bool { return x.Index == index })
			})
			r.Wake(Scope{Links: map[int]bool{index: true}})
			time.Sleep(time.Second)
			synctest.Wait()
			if got := strings.Join(sys.take(), "\n"); got != step.want {
				t.Errorf("ops after %s went:\n%s\nwant:\n%s", step.name, got, step.want)
			}
			if s := r.link("ib1"); step.name == "up1" && !strings.Contains(s.Reason().Text, "matches no link to follow") {
				t.Errorf("ib1 follows what is gone: %v", s.Reasons)
			}
		}
	})
}

// observed is a system that observes always the same.
type observed struct {
	System
	snap *link.Snapshot
	err  error
}

func (o observed) Observe(Scope, Needs) (*link.Snapshot, error) { return o.snap, o.err }

// Each part adds to a snapshot in its order, also to one that comes with an error; none
// is called without a snapshot.
func TestCompleted(t *testing.T) {
	broken := errors.New("broken")
	add := func(name string) func(*link.Snapshot) {
		return func(s *link.Snapshot) { s.Links = append(s.Links, link.Link{Name: name}) }
	}
	for _, o := range []observed{{snap: &link.Snapshot{}}, {snap: &link.Snapshot{}, err: broken}, {err: broken}} {
		snap, err := Completed{o, []func(*link.Snapshot){add("a"), add("b")}}.Observe(Scope{}, Needs{})
		if err != o.err || snap != o.snap {
			t.Errorf("%+v: %v, %v", o, snap, err)
		}
		if snap != nil && (len(snap.Links) != 2 || snap.Links[0].Name != "a" || snap.Links[1].Name != "b") {
			t.Errorf("%+v", snap.Links)
		}
	}
}

// rest lets a minute pass, and the daemon do what it has to do then.
func rest() {
	time.Sleep(time.Minute)
	synctest.Wait()
}

func TestRecordCannotBeWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &notes{fail: errors.New("no space left on device")}
		r := launch(t, system(t, 1), n, map[string]string{"10.ibnetwork": unit0})
		if s := r.link("ib0"); s.State != link.StateConfigured {
			t.Errorf("ib0 is %s", s.State)
		}
		rest()
		if c := strings.Count(r.log.String(), "no space left"); c != 1 {
			t.Errorf("said %d times", c)
		}
		// It is written once it can be, though nothing happens.
		n.mu.Lock()
		n.fail = nil
		n.mu.Unlock()
		rest()
		n.mu.Lock()
		if n.saves != 1 {
			t.Errorf("written %d times", n.saves)
		}
		n.mu.Unlock()
		r.stop()
	})
}

// A report that cannot be written is reported once for each time that this begins.
func TestReportCannotBeWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &notes{}
		r := launch(t, system(t, 1), n, map[string]string{"10.ibnetwork": unit0})
		defer r.stop()
		for i, full := range []error{errors.New("no space left"), errors.New("no space left"), nil, errors.New("no space left")} {
			n.mu.Lock()
			n.full = full
			n.mu.Unlock()
			r.f.set("10.ibnetwork", strings.ReplaceAll(unit0, "10.0.0.1/24", fmt.Sprintf("10.0.0.%d/24", i+2)))
			testkit.NoError(t, r.Reload(t.Context()))
			rest()
		}
		if c := strings.Count(r.log.String(), "no space left"); c != 2 {
			t.Errorf("said %d times", c)
		}
		// It is written once it can be, though nothing happens, and not again.
		n.mu.Lock()
		n.full, n.reports = nil, 0
		n.mu.Unlock()
		rest()
		n.mu.Lock()
		if n.reports != 1 {
			t.Errorf("written %d times", n.reports)
		}
		n.mu.Unlock()
	})
}

// BenchmarkEdit is one edited address among 320 links, without the kernel.
func BenchmarkEdit(b *testing.B) {
	dir := b.TempDir()
	testkit.NoError(b, os.MkdirAll(filepath.Join(dir, units.Dirs[0]), 0o755))
	write := func(i, host int) {
		text := fmt.Sprintf("[Match]\nName=ib%d\n[Network]\nAddress=10.%d.%d.%d/24\n", i, i/200, i%200, host)
		testkit.WriteFile(b, filepath.Join(dir, units.Dirs[0], fmt.Sprintf("%03d.ibnetwork", i)), text)
	}
	const n = 320
	for i := range n {
		write(i, 1)
	}
	sys := system(b, n)
	store, err := NewStore(b.TempDir())
	testkit.NoError(b, err)
	dirs := NewUnitDirs(dir)
	dirs.SetWatching(nil)
	d := New(Config{System: sys, Store: store, Load: dirs.Load})
	if d.rec, err = store.LoadRecord(); err != nil {
		b.Fatal(err)
	}
	testkit.NoError(b, d.cycle(b.Context(), everything))
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		write(7, 2+i%100)
		dirs.MarkChanged(filepath.Join(dir, units.Dirs[0], "007.ibnetwork"))
		testkit.NoError(b, d.cycle(b.Context(), Scope{Reload: true}))
	}
}

// asking notes for which unit a look is.
type asking struct {
	*memory
	units []string
}

func (a *asking) Observe(sc Scope, w Needs) (*link.Snapshot, error) {
	s, err := a.memory.Observe(sc, w)
	if err == nil && w.LinkUnit != nil {
		text := "none"
		if u := w.LinkUnit(s, &s.Links[0]); u != nil {
			text = fmt.Sprintf("PFC %b", u.RoCE.PFC.V)
		}
		a.units = append(a.units, text)
	}
	return s, err
}

// The look of a reload is for the units as they are now.
func TestLookForTheNewUnit(t *testing.T) {
	sys := &asking{memory: system(t, 1)}
	f := &files{m: map[string]string{"10.ibnetwork": "[Match]\nName=ib0\n[RoCE]\nVersion=2\n"}}
	d := New(Config{System: sys, Store: &notes{}, Load: f.load})
	d.rec = &link.Record{}
	testkit.NoError(t, d.cycle(t.Context(), everything))
	f.set("10.ibnetwork", "[Match]\nName=ib0\n[RoCE]\nPFC=3\n")
	sys.units = nil
	testkit.NoError(t, d.cycle(t.Context(), Scope{Reload: true}))
	if len(sys.units) == 0 || sys.units[0] != "PFC 1000" {
		t.Errorf("looked for %q", sys.units)
	}
}
