package worker

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"ibnetworkd/ib"
	"ibnetworkd/smctl"
)

// units is a service manager in memory, shared by successive controllers.
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
		u.state[name] = State{State: s, Since: time.Now(), StatusText: smctl.StatusText{State: smctl.SMMaster, Known: true}}
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

// set sets which subnet managers answer from now on.
func (a *air) set(sms ...smctl.SMInfo) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.sms = sms
}

type bench struct {
	t      *testing.T
	units  *unitsInMemory
	air    *air
	keep   StateStore
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
	b.c = New(Config{Manager: b.units, Prober: b.air, StateStore: b.keep,
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
	if s.Phase != phase {
		b.t.Errorf("phase %s (%s), want %s", s.Phase, s.Reason, phase)
	}
	if x, y := b.units.counts(); x != starts || y != stops {
		b.t.Errorf("%d starts and %d stops, want %d and %d", x, y, starts, stops)
	}
}

// file sets what the files of the settings contain from now on.
func (b *bench) file(f smctl.Files) {
	b.fmu.Lock()
	b.files = f
	b.fmu.Unlock()
	b.c.Reread()
}
