package main

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/fstest"

	"ibnetworkd/daemon"
	"ibnetworkd/daemon/card"
	"ibnetworkd/daemon/smfeed"
	"ibnetworkd/ib"
	"ibnetworkd/internal/testkit"
	"ibnetworkd/link"
	"ibnetworkd/smctl/worker"
	"ibnetworkd/units"
)

// still is a system that changes when a test sets it, and refuses every operation.
type still struct{ snap atomic.Pointer[link.Snapshot] }

func (s *still) Observe(daemon.Scope, daemon.Needs) (*link.Snapshot, error) {
	c := *s.snap.Load()
	return &c, nil
}

func (*still) Finished() []card.Result             { return nil }
func (*still) Cancel(func(link.Op) bool) []link.Op { return nil }
func (*still) Apply(_ context.Context, steps []link.Step, done func(link.Op, error)) {
	for _, s := range steps {
		done(s.Op, fmt.Errorf("%s is not permitted", s.Op))
	}
}

// What ibnetctl --no-bus says of the subnet manager of each port is what the daemon
// does, at each step of what links and units go through: both go by the plan's
// answer, and ibnetctl reads the record that the daemon has written.
func TestNoBusAgrees(t *testing.T) {
	const (
		byName = "[Match]\nName=ib0\n[SubnetManager]\nManage=auto\n"
		always = "[Match]\nName=ib0\n[SubnetManager]\nManage=always\n"
		byPort = "[Match]\nIBDevice=mlx5_0\nDriver=mlx5_core\n[SubnetManager]\nManage=always\n"
	)
	a := &app{root: t.TempDir()}
	store, err := daemon.NewStore(filepath.Join(a.root, stateDir))
	testkit.NoError(t, err)
	defer func() { _ = store.Close() }()
	now := link.Snapshot{Schema: 1, Devices: []link.Device{
		{Name: "mlx5_0", Driver: "mlx5_core", Ports: []link.Port{{Num: 1, GUID: 1,
			Layer: ib.LinkLayerInfiniBand, State: ib.PortInit, Phys: ib.PhysLinkUp}}},
		{Name: "mlx5_1", Driver: "mlx5_core", Ports: []link.Port{{Num: 1, GUID: 2,
			Layer: ib.LinkLayerInfiniBand, State: ib.PortInit, Phys: ib.PhysLinkUp}}},
	}}
	now.Host.Udev = true
	sys := &still{}
	first := now
	sys.snap.Store(&first)
	ib0 := link.Link{Index: 3, Name: "ib0", Type: link.ARPHRDInfiniBand, Kind: "ipoib", IPoIB: &link.IPoIB{PKey: 0xffff},
		IBDevice: "mlx5_0", Port: 1, Udev: link.Udev{Initialized: true}}
	files := struct {
		sync.Mutex
		m map[string]string
	}{m: map[string]string{}}
	load := func() *units.Set {
		files.Lock()
		defer files.Unlock()
		fs := fstest.MapFS{}
		for name, text := range files.m {
			fs[name] = &fstest.MapFile{Data: []byte(text), Mode: 0o644}
		}
		return units.Load([]units.Root{{Path: "/etc/systemd/network", FS: fs}})
	}
	var does atomic.Pointer[[]worker.Port]
	d := daemon.New(daemon.Config{System: sys, Store: store, Load: load,
		OnChange: []func(daemon.View){func(v daemon.View) { ports := smfeed.Ports(v); does.Store(&ports) }}})
	testkit.Run(t, d.Run)
	for _, step := range []struct {
		name   string
		change func()
		want   string // Manage= of mlx5_0/1 and its unit
	}{
		{"no unit", func() { now.Links = []link.Link{ib0} }, "no "},
		{"a unit", func() { files.m["20-a.ibnetwork"] = byName }, "auto /etc/systemd/network/20-a.ibnetwork"},
		{"the interface goes into another namespace", func() { now.Links = nil }, "auto /etc/systemd/network/20-a.ibnetwork"},
		{"the unit changes meanwhile", func() { files.m["20-a.ibnetwork"] = always }, "always /etc/systemd/network/20-a.ibnetwork"},
		{"a new one that udev has not seen", func() {
			l := ib0
			l.Index, l.Udev.Initialized = 4, false
			now.Links = []link.Link{l}
			files.m["10-p.ibnetwork"] = "[Match]\nProperty=ID_X=1\n"
		}, "always /etc/systemd/network/20-a.ibnetwork"},
		{"the port matches where its interface does not", func() {
			l := ib0
			l.Driver = "other"
			now.Links = []link.Link{l}
			clear(files.m)
			files.m["30-c.ibnetwork"] = byPort
		}, "no "},
		{"the port without an interface", func() { now.Links = nil }, "always /etc/systemd/network/30-c.ibnetwork"},
		{"no unit any more", func() { clear(files.m) }, "no "},
	} {
		files.Lock()
		step.change()
		files.Unlock()
		c := now
		sys.snap.Store(&c)
		testkit.NoError(t, d.Reload(t.Context()))
		rec, err := a.record()
		testkit.NoError(t, err)
		var daemonSays, ibnetctlSays []string
		for _, p := range *does.Load() {
			daemonSays = append(daemonSays, fmt.Sprintf("%s: %s %s", p.Port, p.Policy.Manage, p.Policy.Unit))
		}
		for _, s := range newSystem(&c, load(), rec).subnetManagers("") {
			if s.Phase != phaseUnknown { // one that the daemon started may run
				t.Errorf("%s: phase %q without the daemon", step.name, s.Phase)
			}
			ibnetctlSays = append(ibnetctlSays, fmt.Sprintf("%s/%d: %s %s", s.IBDevice, s.Port, s.Manage, s.Unit))
		}
		if want := []string{"mlx5_0/1: " + step.want, "mlx5_1/1: no "}; !slices.Equal(daemonSays, want) || !slices.Equal(ibnetctlSays, want) {
			t.Errorf("%s:\nthe daemon  %q\nibnetctl    %q\nwant        %q", step.name, daemonSays, ibnetctlSays, want)
		}
	}
}
