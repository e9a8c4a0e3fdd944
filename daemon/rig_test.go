package daemon

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"testing/fstest"
	"testing/synctest"

	"ibnetworkd/daemon/card"
	"ibnetworkd/ib"
	"ibnetworkd/internal/testkit"
	"ibnetworkd/link"
	"ibnetworkd/units"
)

// memory is a system in memory: link.Model is its kernel.
type memory struct {
	mu    sync.Mutex
	m     *link.Model
	fail  func(op link.Op) error
	after func(op link.Op) // that was carried out
	ops   []string
	looks int
	blind error       // of the looks
	wake  func(Scope) // receives every operation, as rtnetlink reports
}

func (s *memory) Observe(Scope, Needs) (*link.Snapshot, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.looks++
	if s.blind != nil {
		return nil, s.blind
	}
	s.m.Settle()
	c := *s.m.Snapshot()
	s.m = link.NewModel(&c)
	s.m.Truth = s.truth()
	return &c, nil
}

var theTruth = &link.Truth{AdapterMTU: 4092, ConnectedMTU: 65520,
	GroupMTU: map[ib.PKey]int{0x7fff: 2044, 1: 2044, 2: 2044, 3: 2044}, Asked: map[int]int{}}

func (s *memory) truth() *link.Truth { return theTruth }

func (s *memory) Apply(ctx context.Context, steps []link.Step, done func(link.Op, error)) {
	var failed failures
	for _, st := range steps {
		if ctx.Err() != nil {
			return
		}
		if err := failed.hold(st.Op); err != nil {
			failed.note(st.Op, err)
			done(st.Op, err)
			continue
		}
		s.mu.Lock()
		var err error
		if s.fail != nil {
			err = s.fail(st.Op)
		}
		if err == nil {
			err = s.m.Apply(st.Op)
		}
		s.ops = append(s.ops, st.Op.String())
		w := s.wake
		s.mu.Unlock()
		if err == nil && s.after != nil {
			s.after(st.Op)
		}
		failed.note(st.Op, err)
		done(st.Op, err)
		if w != nil {
			w(Scope{Addrs: true})
		}
	}
}

func (*memory) Finished() []card.Result { return nil }

func (*memory) Cancel(func(link.Op) bool) []link.Op { return nil }

func (s *memory) change(f func(*link.Snapshot)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := *s.m.Snapshot()
	c.Links = append([]link.Link(nil), c.Links...)
	c.Devices = append([]link.Device(nil), c.Devices...)
	for i := range c.Devices {
		c.Devices[i].Ports = append([]link.Port(nil), c.Devices[i].Ports...)
	}
	f(&c)
	s.m = link.NewModel(&c)
	s.m.Truth = s.truth()
}

func (s *memory) looked() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.looks
}

func (s *memory) take() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.ops
	s.ops = nil
	return o
}

// notes keeps the record in memory.
type notes struct {
	mu      sync.Mutex
	rec     []byte
	saves   int
	reports int
	fail    error
	full    error // for the report
}

func (n *notes) LoadRecord() (*link.Record, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.rec == nil {
		return &link.Record{}, nil
	}
	return link.DecodeRecord(n.rec)
}

func (n *notes) SaveRecord(r *link.Record) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.fail != nil {
		return n.fail
	}
	b, err := r.Encode()
	n.rec = b
	n.saves++
	return err
}

func (n *notes) SaveReport(link.Report, func(string) bool) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.reports++
	return n.full
}

func system(t testing.TB, devices int) *memory {
	s := &link.Snapshot{Schema: 1}
	for d := range devices {
		a := ib.MustParseHWAddr(fmt.Sprintf("80:00:00:48:fe:80:00:00:00:00:00:00:00:02:c9:03:00:00:%02x:%02x", (d+1)/256, (d+1)%256))
		s.Devices = append(s.Devices, link.Device{Name: fmt.Sprintf("mlx5_%03d", d), NodeGUID: ib.GUID(d + 1), Ports: []link.Port{{
			Num: 1, Layer: ib.LinkLayerInfiniBand, State: ib.PortActive, Phys: ib.PhysLinkUp, GUID: a.GUID(), LID: 3, SMLID: 1,
			PKeys: []ib.PKey{0xffff, 0x8001, 0x8002},
		}}})
		s.Links = append(s.Links, link.Link{Index: 10 + d, Name: fmt.Sprintf("ib%d", d), Type: link.ARPHRDInfiniBand, Kind: "ipoib",
			Flags: link.FlagMulti, MTU: 4092,
			HWAddr: a, IPoIB: &link.IPoIB{PKey: 0xffff}, IBDevice: fmt.Sprintf("mlx5_%03d", d), Port: 1, Sysctl: map[string]string{}})
	}
	m := &memory{m: link.NewModel(s)}
	m.m.Truth = m.truth()
	return m
}

// files are units that a test edits.
type files struct {
	mu sync.Mutex
	m  map[string]string
}

func (f *files) set(name, text string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if text == "" {
		delete(f.m, name)
		return
	}
	f.m[name] = text
}

func (f *files) load() *units.Set {
	f.mu.Lock()
	defer f.mu.Unlock()
	fs := fstest.MapFS{}
	for n, t := range f.m {
		fs[n] = &fstest.MapFile{Data: []byte(t), Mode: 0o644}
	}
	return units.Load([]units.Root{{Path: "/etc/systemd/network", FS: fs}})
}

type rig struct {
	*Daemon
	sys  *memory
	f    *files
	n    *notes
	log  *testkit.Buffer
	stop func()
}

// launch runs a daemon inside a synctest bubble.
func launch(t *testing.T, sys *memory, n *notes, texts map[string]string) *rig {
	t.Helper()
	return launchLoad(t, sys, n, &files{m: texts}, nil)
}

// launchLoad is launch with another way to read units, if load is not nil.
func launchLoad(t *testing.T, sys *memory, n *notes, f *files, load func() *units.Set) *rig {
	t.Helper()
	r := start(t, sys, n, f, load, func(w func(Scope)) { sys.wake = w })
	r.sys = sys
	return r
}

// start runs a daemon on any system; wake is handed what wakes it.
func start(t *testing.T, sys System, n *notes, f *files, load func() *units.Set, wake func(func(Scope))) *rig {
	t.Helper()
	return startWith(t, Config{System: sys, Load: load}, n, f, wake)
}

// startWith is start with the parts of a Config.
func startWith(t *testing.T, cfg Config, n *notes, f *files, wake func(func(Scope))) *rig {
	t.Helper()
	r := &rig{n: n, f: f, log: new(testkit.Buffer)}
	if cfg.Load == nil {
		cfg.Load = f.load
	}
	cfg.Store, cfg.Log = n, slog.New(slog.NewTextHandler(r.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	r.Daemon = New(cfg)
	wake(r.Wake)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- r.Run(ctx) }()
	r.stop = func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
	synctest.Wait()
	return r
}

func (r *rig) link(name string) link.Status {
	for _, s := range r.Report().Links {
		if s.Name == name {
			return s
		}
	}
	return link.Status{}
}

const unit0 = "[Match]\nName=ib0\n[IPoIB]\nMode=connected\n[Link]\nMTUBytes=65520\n[Network]\nAddress=10.0.0.1/24\n[Partition]\n" +
	"PartitionKey=0x8001\n"
