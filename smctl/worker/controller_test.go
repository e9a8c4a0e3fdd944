package worker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"ibnetworkd/ib"
	"ibnetworkd/sm/transport"
	"ibnetworkd/smctl"
)

// units is a service manager in memory; it outlives controllers.
type unitsInMemory struct {
	mu      sync.Mutex
	state   map[string]State
	changes chan string
	starts  int
	stops   int
	policy  smctl.Policy
	reloads int
	deaf    error // Reload fails
	broken  error // Start fails
	stuck   error // Stop fails
	crash   bool  // what is started fails at once
	down    bool  // no connection
}

func newUnits() *unitsInMemory {
	return &unitsInMemory{state: map[string]State{}, changes: make(chan string, 100)}
}

func (u *unitsInMemory) set(name string, s smctl.WorkerState, result string) {
	u.state[name] = State{State: s, Since: time.Now(), Result: result}
	if s == smctl.WorkerActive {
		u.state[name] = State{State: s, Since: time.Now(), Said: smctl.Said{State: smctl.SMMaster, Known: true}}
	}
	u.changes <- name
}

func (u *unitsInMemory) Start(_ context.Context, x Unit) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.down {
		return ErrNoSystemd
	}
	if u.broken != nil {
		return u.broken
	}
	u.starts++
	u.policy = x.Policy
	u.set(x.Name, smctl.WorkerActivating, "")
	time.AfterFunc(300*time.Millisecond, func() {
		u.mu.Lock()
		defer u.mu.Unlock()
		if u.crash {
			u.set(x.Name, smctl.WorkerFailed, "exit status 1")
		} else {
			u.set(x.Name, smctl.WorkerActive, "")
		}
	})
	return nil
}

func (u *unitsInMemory) Stop(_ context.Context, name string) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.stops++
	if u.stuck != nil {
		return u.stuck
	}
	u.set(name, smctl.WorkerInactive, "")
	return nil
}

func (u *unitsInMemory) Reload(_ context.Context, name string) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.deaf != nil {
		return u.deaf
	}
	u.reloads++
	return nil
}

func (u *unitsInMemory) State(_ context.Context, name string) (State, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.down {
		return State{}, ErrNoSystemd
	}
	return u.state[name], nil
}

func (u *unitsInMemory) Follow(bool) {}

func (u *unitsInMemory) Changes() <-chan string { return u.changes }

// change changes how it behaves from now on.
func (u *unitsInMemory) change(f func()) {
	u.mu.Lock()
	defer u.mu.Unlock()
	f()
}

func (u *unitsInMemory) counts() (starts, stops int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.starts, u.stops
}

// air is a fabric that answers.
type air struct {
	mu   sync.Mutex
	sms  []smctl.SMInfo
	err  error
	slow time.Duration // until a walk has its answer
}

func (a *air) Walk(ctx context.Context, _ string, _ int) ([]smctl.SMInfo, error) {
	a.mu.Lock()
	sms, err, slow := a.sms, a.err, a.slow
	a.mu.Unlock()
	select {
	case <-time.After(slow):
	case <-ctx.Done():
	}
	return sms, err
}

func (a *air) AskLID(context.Context, string, int, ib.LID) ([]smctl.SMInfo, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.sms, a.err
}

// set says which subnet managers answer from now on.
func (a *air) set(sms ...smctl.SMInfo) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.sms = sms
}

type bench struct {
	t      *testing.T
	units  *unitsInMemory
	air    *air
	keep   Keeper
	mu     sync.Mutex
	last   []smctl.Status
	pubs   int
	cancel context.CancelFunc
	c      *Controller
	port   Port
	fmu    sync.Mutex
	files  smctl.Files
	slow   time.Duration // until they are read
	bar    smctl.Bar
	vpd    error
	// waiting are the files that Waiting was given last.
	waiting []string
}

const guid1 ib.GUID = 0x0002c903000abcde

func newBench(t *testing.T) *bench {
	b := &bench{t: t, units: newUnits(), air: &air{}, keep: Dir(t.TempDir())}
	b.port = Port{Port: smctl.Port{GUID: guid1, IBDev: "swib0", Num: 1, Present: true, LinkLayer: ib.LinkLayerInfiniBand,
		State: ib.PortInit, Phys: ib.PhysLinkUp},
		Policy: smctl.Policy{Manage: smctl.ManageAuto, StartDelay: 2 * time.Second, StopDelay: 20 * time.Second,
			StopWhenForeignMaster: true, Unit: "/etc/systemd/network/a.ibnetwork", Priority: 3}}
	return b
}

// boot starts a controller, as the daemon does when it starts.
func (b *bench) boot() {
	ctx, cancel := context.WithCancel(context.Background())
	b.cancel = cancel
	b.c = New(Config{Manager: b.units, Prober: b.air, Keeper: b.keep,
		Check: func(smctl.Policy) smctl.Files {
			b.fmu.Lock()
			slow := b.slow
			b.fmu.Unlock()
			time.Sleep(slow)
			b.fmu.Lock()
			defer b.fmu.Unlock()
			return b.files
		},
		Inspect: func(string, int) (smctl.Bar, bool, error) {
			b.fmu.Lock()
			defer b.fmu.Unlock()
			if b.vpd != nil {
				return smctl.BarUnknown, false, b.vpd
			}
			return b.bar, true, nil
		},
		Waiting: func(paths []string) {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.waiting = paths
		},
		Publish: func(s []smctl.Status) {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.last, b.pubs = s, b.pubs+1
		}})
	go func() { _ = b.c.Run(ctx) }()
	b.c.Update([]Port{b.port})
}

// lead boots a controller for the first time and has its worker become master.
func (b *bench) lead() smctl.Status {
	b.t.Helper()
	b.boot()
	b.wait(5 * time.Second)
	b.active(1, 1)
	s := b.wait(time.Second)
	b.want(s, smctl.PhaseMaster, 1, 0)
	return s
}

func (b *bench) kill() { b.cancel(); synctest.Wait() }

func (b *bench) wait(d time.Duration) smctl.Status {
	b.t.Helper()
	all := b.published(d)
	if len(all) == 0 {
		b.t.Fatal("nothing published")
	}
	return all[0]
}

// published is what is known of all ports after a time.
func (b *bench) published(d time.Duration) []smctl.Status {
	time.Sleep(d)
	synctest.Wait()
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.last
}

// active is what a running worker does to the port.
func (b *bench) active(lid, smlid ib.LID) {
	b.port.State, b.port.LID, b.port.SMLID = ib.PortActive, lid, smlid
	b.c.Update([]Port{b.port})
}

func (b *bench) want(s smctl.Status, phase smctl.Phase, starts, stops int) {
	b.t.Helper()
	if s.Phase != string(phase) {
		b.t.Errorf("phase %s (%s), want %s", s.Phase, s.Reason, phase)
	}
	if x, y := b.units.counts(); x != starts || y != stops {
		b.t.Errorf("%d starts and %d stops, want %d and %d", x, y, starts, stops)
	}
}

func TestStartedOnceOverRestarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.boot()
		b.want(b.wait(time.Second), smctl.PhaseSettling, 0, 0)
		b.wait(4 * time.Second)
		b.active(1, 1)
		s := b.wait(time.Second)
		b.want(s, smctl.PhaseMaster, 1, 0)
		if s.Worker != "ibnetsm@0x0002c903000abcde.service" || s.WorkerState != "active" || b.units.policy.Priority != 3 {
			t.Errorf("%+v, policy %+v", s, b.units.policy)
		}
		for range 3 { // kill -9 of the daemon
			b.kill()
			b.boot()
			b.want(b.wait(30*time.Second), smctl.PhaseMaster, 1, 0)
		}
		// daemon-reload and a bus that comes and goes
		for range 5 {
			b.units.changes <- ""
		}
		b.units.change(func() { b.units.down = true })
		b.units.changes <- ""
		b.want(b.wait(7*time.Second), smctl.PhaseBlocked, 1, 0)
		b.units.change(func() { b.units.down = false })
		b.units.changes <- ""
		b.want(b.wait(10*time.Second), smctl.PhaseMaster, 1, 0)
		b.kill()
	})
}

func TestWorkerDiesAndComesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.units.crash = true
		b.boot()
		s := b.wait(5 * time.Second)
		b.want(s, smctl.PhaseBackingOff, 1, 0)
		if !strings.Contains(s.Reason, "exit status 1") {
			t.Errorf("reason %q", s.Reason)
		}
		b.wait(60 * time.Second)
		if n, _ := b.units.counts(); n < 3 || n > 5 {
			t.Errorf("%d starts in a minute", n)
		}
		b.units.change(func() { b.units.crash = false })
		b.wait(2 * time.Minute)
		b.active(1, 1)
		if s := b.wait(time.Second); s.Phase != "master" {
			t.Errorf("%s: %s", s.Phase, s.Reason)
		}
		b.kill()
	})
}

func TestStartRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.units.broken = errors.New("systemd says: Unit ibnetsm@.service not found")
		b.boot()
		s := b.wait(5 * time.Second)
		b.want(s, smctl.PhaseBackingOff, 0, 0)
		if !strings.Contains(s.Reason, "not found") {
			t.Errorf("reason %q", s.Reason)
		}
		b.kill()
	})
}

func TestYieldsAndTakesOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.lead()
		foreign := smctl.SMInfo{GUID: 9, LID: 7, Priority: 14, State: smctl.SMMaster}
		b.air.set(foreign)
		b.active(1, 7)
		s := b.wait(5 * time.Second)
		b.want(s, smctl.PhaseStandby, 1, 0)
		if s.Master == nil || s.Master.Priority != 14 {
			t.Errorf("master %+v", s.Master)
		}
		b.want(b.wait(20*time.Second), smctl.PhaseServed, 1, 1)
		b.air.set()
		b.wait(20 * time.Second)
		b.active(1, 1)
		b.want(b.wait(time.Second), smctl.PhaseMaster, 2, 1)
		b.kill()
	})
}

func TestByHand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.lead()
		ctx := context.Background()
		if err := b.c.Stop(ctx, "swib0", 1); err != nil {
			t.Fatal(err)
		}
		b.want(b.wait(time.Minute), smctl.PhaseHeld, 1, 1)
		b.kill()
		b.boot() // remembered
		b.want(b.wait(time.Minute), smctl.PhaseHeld, 1, 1)
		if err := b.c.Start(ctx, "swib0", 1); err != nil {
			t.Fatal(err)
		}
		b.wait(20 * time.Second)
		if n, _ := b.units.counts(); n != 2 {
			t.Errorf("%d starts after it was given back", n)
		}
		if err := b.c.Start(ctx, "swib9", 1); err == nil {
			t.Error("a port that is not there was started")
		}
		// Without a unit: by hand only.
		b.port.Policy = smctl.Policy{}
		b.c.Update([]Port{b.port})
		b.want(b.wait(smctl.UnitGrace+time.Second), smctl.PhaseOff, 2, 2)
		if err := b.c.Start(ctx, "swib0", 1); err != nil {
			t.Fatal(err)
		}
		b.want(b.wait(time.Minute), smctl.PhaseMaster, 3, 2)
		if err := b.c.Stop(ctx, "swib0", 1); err != nil {
			t.Fatal(err)
		}
		b.want(b.wait(time.Minute), smctl.PhaseOff, 3, 3)
		b.kill()
	})
}

// Ours is given back a second after the fabric was asked: it had no manager then, and
// has another's now.
func TestGivenBackToAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.boot()
		for i := 0; b.wait(10*time.Millisecond).WorkerState != smctl.WorkerActive.String(); i++ {
			if i == 1000 {
				t.Fatal("ours was not started")
			}
		}
		b.active(1, 1)
		if err := b.c.Stop(t.Context(), "swib0", 1); err != nil {
			t.Fatal(err)
		}
		b.want(b.wait(100*time.Millisecond), smctl.PhaseHeld, 1, 1)
		b.air.set(smctl.SMInfo{GUID: guid1 + 1, LID: 2, Priority: 0, State: smctl.SMMaster})
		b.port.State, b.port.SMLID = ib.PortInit, 2
		b.c.Update([]Port{b.port})
		b.wait(100 * time.Millisecond)
		if err := b.c.Start(t.Context(), "swib0", 1); err != nil {
			t.Fatal(err)
		}
		b.want(b.wait(100*time.Millisecond), smctl.PhaseForeign, 1, 1)
		b.kill()
	})
}

// The fabric is being asked while ours is stopped and given back: that answer does not
// count any more when it comes.
func TestGivenBackWhileAsking(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.air.slow = 3 * time.Second
		b.boot()
		for i := 0; b.wait(10*time.Millisecond).Phase != string(smctl.PhaseAsking); i++ {
			if i == 1000 {
				t.Fatal("the fabric was not asked")
			}
		}
		if err := b.c.Stop(t.Context(), "swib0", 1); err != nil {
			t.Fatal(err)
		}
		b.want(b.wait(100*time.Millisecond), smctl.PhaseHeld, 0, 0)
		b.air.set(smctl.SMInfo{GUID: guid1 + 1, LID: 2, Priority: 0, State: smctl.SMMaster})
		if err := b.c.Start(t.Context(), "swib0", 1); err != nil {
			t.Fatal(err)
		}
		b.want(b.wait(5*time.Second), smctl.PhaseForeign, 0, 0)
		b.kill()
	})
}

// slowDisk takes its time for what is saved first.
type slowDisk struct {
	Keeper
	quick *atomic.Bool
}

func (d slowDisk) Save(g ib.GUID, k Kept) error {
	if !d.quick.Swap(true) {
		time.Sleep(time.Second)
	}
	return d.Keeper.Save(g, k)
}

// What a person asks for while a start is under way is not forgotten over it.
func TestByHandWhileStarting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.keep = slowDisk{b.keep, new(atomic.Bool)}
		b.port.Policy.Manage = smctl.ManageAlways
		b.boot()
		b.wait(100 * time.Millisecond)
		if err := b.c.Stop(context.Background(), "swib0", 1); err != nil {
			t.Fatal(err)
		}
		b.want(b.wait(time.Minute), smctl.PhaseHeld, 1, 1)
		if k := b.keep.Load(guid1); k.Hand != smctl.HandStop {
			t.Errorf("kept is %+v", k)
		}
		b.kill()
	})
}

func TestPortGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.lead()
		b.c.Update(nil)
		if left := b.published(time.Second); len(left) > 0 {
			t.Errorf("a port that has gone is still there: %+v", left)
		}
		if _, stops := b.units.counts(); stops != 1 {
			t.Errorf("%d stops after the device went", stops)
		}
		b.c.Update([]Port{b.port})
		b.wait(30 * time.Second)
		if n, _ := b.units.counts(); n != 2 {
			t.Errorf("%d starts after the device came back", n)
		}
		b.kill()
	})
}

func TestReadOnlyRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.keep = Dir("/proc/nowhere")
		b.boot()
		b.wait(5 * time.Second)
		if n, _ := b.units.counts(); n != 1 {
			t.Errorf("%d starts: default options need no file", n)
		}
		b.kill()
		b = newBench(t)
		b.keep = Dir("/proc/nowhere")
		b.port.Policy.PartitionsFile = "/etc/p.conf"
		b.boot()
		s := b.wait(5 * time.Second)
		b.want(s, smctl.PhaseBackingOff, 0, 0)
		if !strings.Contains(s.Reason, "cannot be written") {
			t.Errorf("reason %q", s.Reason)
		}
		b.kill()
	})
}

// An edited [SubnetManager] section reaches a worker that runs, also when the
// daemon did not run while it was edited.
func TestSettingsChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.lead()
		// ibnetsm reads all its settings again, and a bad key file with them: it runs on.
		b.port.Policy.Priority, b.port.Policy.KeyFile = 7, "/etc/keys"
		b.c.Update([]Port{b.port})
		b.want(b.wait(time.Second), smctl.PhaseMaster, 1, 0)
		if got := b.keep.Load(guid1).Settings; got != smctl.Settings(b.port.Policy) {
			t.Errorf("given %q", got)
		}
		b.want(b.wait(time.Minute), smctl.PhaseMaster, 1, 0)
		b.kill()
		b.port.Policy.Partitions = "0x8001 Name=a\n"
		b.boot()
		b.want(b.wait(time.Second), smctl.PhaseMaster, 1, 0)
		b.kill()
		b.boot()
		b.want(b.wait(time.Minute), smctl.PhaseMaster, 1, 0)
		b.kill()
		if b.units.reloads != 2 {
			t.Errorf("%d reloads for two edits", b.units.reloads)
		}
	})
}

// A reload that fails is tried again, also where the unit names no files.
func TestReloadFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.lead()
		b.units.change(func() { b.units.deaf = errors.New("systemd says: no") })
		b.port.Policy.Partitions = "0x8001 Name=a\n"
		b.c.Update([]Port{b.port})
		b.want(b.wait(time.Second), smctl.PhaseMaster, 1, 0)
		b.units.change(func() { b.units.deaf = nil })
		b.want(b.wait(time.Minute), smctl.PhaseMaster, 1, 0)
		if b.units.reloads != 1 {
			t.Errorf("%d reloads once they are possible", b.units.reloads)
		}
		b.kill()
	})
}

// A question that is refused QP0 while the worker runs stops nothing; one before it was
// started stays until another is answered.
func TestRefusedQuestion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		refuse := func(b *bench, err error) {
			b.air.mu.Lock()
			defer b.air.mu.Unlock()
			b.air.err = err
		}
		no := fmt.Errorf("port swib0/1 refuses QP0: %w", transport.ErrNoQP0)
		b := newBench(t)
		b.lead()
		b.active(1, 7)
		refuse(b, no)
		b.want(b.wait(time.Minute), smctl.PhaseStandby, 1, 0)
		b.kill()

		b = newBench(t)
		refuse(b, no)
		b.boot()
		b.want(b.wait(10*time.Second), smctl.PhaseNoQP0, 0, 0)
		b.mu.Lock()
		pubs := b.pubs
		b.mu.Unlock()
		b.want(b.wait(30*time.Minute), smctl.PhaseNoQP0, 0, 0)
		if b.mu.Lock(); b.pubs != pubs {
			t.Errorf("%d changes of status in half an hour", b.pubs-pubs)
		}
		b.mu.Unlock()
		refuse(b, nil)
		b.wait(30 * time.Minute)
		if starts, _ := b.units.counts(); starts != 1 {
			t.Errorf("%d starts once QP0 is there", starts)
		}
		b.kill()
	})
}

// A port on which the worker is refused QP0 has one phase, whatever is asked or fails
// meanwhile, until a question gets through.
func TestRefusedStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.port.Policy.Manage = smctl.ManageAlways
		air := func(err error) {
			b.air.mu.Lock()
			defer b.air.mu.Unlock()
			b.air.err = err
		}
		air(fmt.Errorf("port swib0/1 refuses QP0: %w", transport.ErrNoQP0))
		b.boot()
		b.wait(5 * time.Second)
		const unit = "ibnetsm@0x0002c903000abcde.service"
		b.units.change(func() {
			b.units.state[unit] = State{State: smctl.WorkerFailed, Since: time.Now(), Wall: time.Now(), Result: "exit status 4",
				Refused: true}
			b.units.changes <- unit
		})
		b.want(b.wait(time.Second), smctl.PhaseNoQP0, 1, 0)
		b.mu.Lock()
		pubs := b.pubs
		b.mu.Unlock()
		b.wait(10 * time.Minute)
		air(errors.New("device or resource busy"))
		b.want(b.wait(time.Hour), smctl.PhaseNoQP0, 1, 0)
		if b.mu.Lock(); b.pubs != pubs {
			t.Errorf("%d changes of status", b.pubs-pubs)
		}
		b.mu.Unlock()
		air(nil)
		b.wait(30 * time.Minute)
		if starts, _ := b.units.counts(); starts != 2 {
			t.Errorf("%d starts once QP0 is there", starts)
		}
		b.kill()
	})
}

// A start by hand on a port that is barred, or about which that is not known, is
// refused with the reason and is not remembered.
func TestRefusedByHand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for say, set := range map[string]func(b *bench){
			"cannot be read":    func(b *bench) { b.vpd = errors.New("input/output error") },
			"manages the NVSwi": func(b *bench) { b.bar = smctl.BarNVSwitch },
			"IsSMDisabled":      func(b *bench) { b.port.Barred = smctl.BarSMDisabled },
		} {
			b := newBench(t)
			set(b)
			b.boot()
			b.wait(time.Second)
			if err := b.c.Start(t.Context(), "swib0", 1); err == nil || !strings.Contains(err.Error(), say) {
				t.Errorf("%s: %v", say, err)
			}
			b.wait(time.Minute)
			if starts, _ := b.units.counts(); starts > 0 || b.keep.Load(guid1).Hand != smctl.HandNone {
				t.Errorf("%s: %d starts, remembered %v", say, starts, b.keep.Load(guid1).Hand)
			}
			b.kill()
		}
	})
}

// A master that is gone is named no longer.
func TestMasterIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.air.set(smctl.SMInfo{GUID: 9, LID: 7, Priority: 14, State: smctl.SMMaster})
		b.port.State, b.port.LID, b.port.SMLID = ib.PortActive, 1, 7
		b.boot()
		if s := b.wait(5 * time.Second); s.Master == nil || s.Master.GUID != ib.GUID(9).String() {
			t.Fatalf("%+v", s)
		}
		b.port.Policy.Manage = smctl.ManageNo // no questions from now on
		b.c.Update([]Port{b.port})
		if s := b.wait(time.Minute); s.Master != nil {
			t.Errorf("after a minute without a question: %+v", s.Master)
		}
		b.kill()
	})
}

// With another Engine= the program of the former one goes, whoever started it.
func TestEngineChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.port.Policy.Engine = smctl.EngineOpenSM
		if s := b.lead(); s.Worker != "ibnetsm-opensm-0x0002c903000abcde.service" {
			t.Errorf("worker %s", s.Worker)
		}
		b.port.Policy.Engine = smctl.EngineBuiltin
		b.c.Update([]Port{b.port})
		check := func(starts, stops int, runs, gone string) {
			t.Helper()
			s := b.wait(time.Second)
			b.want(s, smctl.PhaseMaster, starts, stops)
			b.units.mu.Lock()
			defer b.units.mu.Unlock()
			if s.Worker != runs || b.units.state[runs].State != smctl.WorkerActive || b.units.state[gone].State != smctl.WorkerInactive {
				t.Errorf("%s: %+v", s.Worker, b.units.state)
			}
		}
		const builtin, opensm = "ibnetsm@0x0002c903000abcde.service", "ibnetsm-opensm-0x0002c903000abcde.service"
		check(2, 1, builtin, opensm)
		b.kill()
		b.port.Policy.Engine = smctl.EngineOpenSM
		b.boot()
		check(3, 2, opensm, builtin)
		b.kill()

		// The unit was taken away while the daemon did not run.
		b.port.Policy = smctl.Policy{}
		b.boot()
		b.want(b.wait(smctl.UnitGrace+time.Second), smctl.PhaseOff, 3, 3)
		b.kill()
	})
}

// A worker that could not be stopped is not taken for one that has failed.
func TestStopRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.lead()
		b.units.change(func() { b.units.stuck = errors.New("systemd says: no") })
		if err := b.c.Stop(context.Background(), "swib0", 1); err != nil {
			t.Fatal(err)
		}
		if s := b.wait(time.Second); s.Phase != "blocked" || !strings.Contains(s.Reason, "systemd says: no") {
			t.Errorf("%s: %s", s.Phase, s.Reason)
		}
		b.wait(20 * time.Second)
		if starts, stops := b.units.counts(); starts != 1 || stops < 3 {
			t.Errorf("%d starts, %d stops", starts, stops)
		}
		b.units.change(func() { b.units.stuck = nil })
		if s := b.wait(20 * time.Second); s.Phase != "held" {
			t.Errorf("%s: %s", s.Phase, s.Reason)
		}
		b.kill()
	})
}

// What is kept is read back, whatever is in the settings.
func TestKept(t *testing.T) {
	d := Dir(t.TempDir())
	if k := d.Load(guid1); k != (Kept{}) {
		t.Errorf("nothing was saved, and there is %+v", k)
	}
	for _, k := range []Kept{
		{Settings: smctl.Settings(smctl.Policy{})},
		{Engine: smctl.EngineOpenSM, Settings: smctl.Settings(smctl.Policy{PartitionsFile: `/etc/a "b" \c.conf`,
			Partitions: "0x8001 Name=a\n"}), Files: "abc", Hand: smctl.HandStop},
	} {
		if err := d.Save(guid1, k); err != nil {
			t.Fatal(err)
		}
		if got := d.Load(guid1); got != k {
			t.Errorf("%+v became %+v", k, got)
		}
	}
}

// file says what the files of the settings hold from now on.
func (b *bench) file(f smctl.Files) {
	b.fmu.Lock()
	b.files = f
	b.fmu.Unlock()
	b.c.Reread()
}

// A file that becomes bad, and settings that name a bad one, leave the worker
// alone; once they are right it is reloaded. Another setting is a reload too, but not
// beside a bad file.
func TestBadFileStopsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.port.Policy.PartitionsFile = "/etc/p.conf"
		b.files = smctl.Files{Digest: "good"}
		b.lead()
		reloads := func(want int) {
			t.Helper()
			b.units.mu.Lock()
			defer b.units.mu.Unlock()
			if b.units.reloads != want {
				t.Errorf("%d reloads, want %d", b.units.reloads, want)
			}
		}
		b.file(smctl.Files{Digest: "bad", Problem: "/etc/p.conf:2:9: no number"})
		s := b.wait(time.Minute)
		b.want(s, smctl.PhaseMaster, 1, 0)
		if reloads(0); !strings.Contains(s.Reason, "/etc/p.conf:2:9: no number") || s.FileProblem == "" {
			t.Errorf("%+v", s)
		}
		// Another priority waits for the file.
		b.port.Policy.Priority = 9
		b.c.Update([]Port{b.port})
		b.want(b.wait(time.Minute), smctl.PhaseMaster, 1, 0)
		b.port.Policy.Priority = 3
		b.c.Update([]Port{b.port})
		b.file(smctl.Files{Digest: "other"})
		b.want(b.wait(time.Second), smctl.PhaseMaster, 1, 0)
		reloads(1)
		// Another file of that kind, and another rule.
		b.port.Policy.PartitionsFile, b.port.Policy.Partitions = "/etc/q.conf", "0x8001\n"
		b.c.Update([]Port{b.port})
		b.want(b.wait(time.Second), smctl.PhaseMaster, 1, 0)
		reloads(2)
		// A daemon that starts again does not reload for nothing.
		b.kill()
		b.boot()
		b.want(b.wait(time.Minute), smctl.PhaseMaster, 1, 0)
		reloads(2)
		b.port.Policy.Priority = 9
		b.c.Update([]Port{b.port})
		b.want(b.wait(5*time.Second), smctl.PhaseMaster, 1, 0)
		reloads(3)
		b.kill()
	})
}

// Files that cannot be read within the time do not end the back-off: they are not known
// to have changed.
func TestSlowFilesAreNoEdit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.port.Policy.PartitionsFile = "/srv/p.conf"
		b.files = smctl.Files{Digest: "good"}
		b.units.crash = true
		b.boot()
		b.wait(time.Minute)
		before, _ := b.units.counts()
		for range 12 {
			b.fmu.Lock()
			b.slow = 15 * time.Second
			b.fmu.Unlock()
			b.c.Reread()
			b.wait(12 * time.Second)
			b.fmu.Lock()
			b.slow = 0
			b.fmu.Unlock()
			b.c.Reread()
			b.wait(12 * time.Second)
		}
		if n, _ := b.units.counts(); n-before > 4 {
			t.Errorf("%d starts in 5 minutes", n-before)
		}
		b.wait(time.Minute) // what still reads ends
		b.kill()
	})
}

// An edit ends the back-off, and a start with a bad file is a start.
func TestEditIsTriedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.port.Policy.PartitionsFile = "/etc/p.conf"
		b.files = smctl.Files{Digest: "bad", Problem: "/etc/p.conf: no such file"}
		b.units.crash = true
		b.boot()
		b.wait(3 * time.Minute)
		n, _ := b.units.counts()
		if n < 2 {
			t.Fatalf("%d starts", n)
		}
		b.units.change(func() { b.units.crash = false })
		b.file(smctl.Files{Digest: "good"})
		b.wait(2 * time.Second)
		if m, _ := b.units.counts(); m != n+1 {
			t.Errorf("%d starts within 2 s of the edit", m-n)
		}
		b.kill()
	})
}

// Files that are compared only wait until they are read again, whichever request
// comes first, and one that is what it was waits no longer.
func TestCompare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.port.Policy.PartitionsFile, b.port.Policy.NodeNameMap = "/etc/p.conf", "/etc/n.conf"
		was := smctl.Files{Digest: "partitions:text:1 names:text:1"}
		now := smctl.Files{Digest: "partitions:text:2 names:text:1", Problem: "/etc/p.conf:1:1: bad"}
		b.files = was
		b.lead()
		check := func(what string, reloads int, waiting ...string) {
			t.Helper()
			b.wait(2 * time.Second)
			b.mu.Lock()
			defer b.mu.Unlock()
			if !slices.Equal(b.waiting, waiting) || b.units.reloads != reloads || len(waiting) > 0 && b.last[0].FileProblem != "" {
				t.Errorf("%s: waiting %q, want %q; %d reloads, problem %q", what, b.waiting, waiting, b.units.reloads,
					b.last[0].FileProblem)
			}
		}
		put := func(f smctl.Files) {
			b.fmu.Lock()
			defer b.fmu.Unlock()
			b.files = f
		}
		check("the start", 0)
		put(now)
		b.c.Compare()
		check("an edit", 0, "/etc/p.conf")
		put(was)
		b.c.Compare()
		check("an edit taken back", 0)
		now.Problem = ""
		put(now)
		b.c.Compare()
		b.c.Reread()
		check("compared and read again", 1)
		put(was)
		b.c.Reread()
		b.c.Compare()
		check("read again and compared", 2)
		b.kill()
	})
}

// A device that manages NVSwitches, and one whose VPD cannot be read, is never
// asked from, not even by hand.
func TestDeviceOfNVSwitch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.bar = smctl.BarNVSwitch
		b.air.err = errors.New("asked")
		b.boot()
		b.want(b.wait(time.Minute), smctl.PhaseNVSwitch, 0, 0)
		if err := b.c.Start(context.Background(), "swib0", 1); err == nil {
			t.Error("a start by hand is accepted")
		}
		b.want(b.wait(time.Minute), smctl.PhaseNVSwitch, 0, 0)
		b.kill()
		b = newBench(t)
		b.vpd = errors.New("input/output error")
		b.boot()
		b.want(b.wait(time.Minute), smctl.PhaseBlocked, 0, 0)
		b.fmu.Lock()
		b.vpd = nil
		b.fmu.Unlock()
		b.wait(2 * time.Minute)
		if n, _ := b.units.counts(); n != 1 {
			t.Errorf("%d starts once the VPD could be read", n)
		}
		b.kill()
	})
}
