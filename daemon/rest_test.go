package daemon

import (
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"ibnetworkd/ib"
	"ibnetworkd/internal/kernel/sysfs"
	"ibnetworkd/internal/kernel/uevent"
	"ibnetworkd/internal/testkit"
	"ibnetworkd/link"
)

// idle is a source of events that never has one.
type idle struct{ ready chan time.Time }

func (idle) Take() Scope { return Scope{} }

// Ready notes that the loop begins to wait.
func (e idle) Ready() { e.ready <- time.Now() }

func (e idle) taken() (out []time.Time) {
	for len(e.ready) > 0 {
		out = append(out, <-e.ready)
	}
	return out
}

// An idle loop wakes only to read the ports, and reports to the watchdog then; without ports
// it wakes for the watchdog.
func TestWakesAtRest(t *testing.T) {
	for name, c := range map[string]struct {
		devices, wakes int
		texts          map[string]string
	}{
		"an Active port": {1, 10, map[string]string{"10.ibnetwork": unit0}}, "no device": {0, 6, nil},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				events, fed := idle{make(chan time.Time, 1000)}, make(chan time.Time, 1000)
				sys := system(t, c.devices)
				r := startWith(t, Config{System: sys, Events: events, Watchdog: 3 * time.Minute, Notify: func(s string) {
					if s == "WATCHDOG=1" {
						fed <- time.Now()
					}
				}}, &notes{}, &files{m: c.texts}, func(w func(Scope)) { sys.wake = w })
				defer r.stop()
				time.Sleep(10 * time.Second)
				events.taken()
				last := time.Now()
				for len(fed) > 0 {
					last = <-fed
				}
				time.Sleep(10 * time.Minute)
				synctest.Wait()
				if n := len(events.taken()); n > c.wakes {
					t.Errorf("%d wake-ups in 10 minutes, want %d", n, c.wakes)
				}
				for at := range len(fed) {
					now := <-fed
					if now.Sub(last) > 90*time.Second {
						t.Errorf("report %d to the watchdog of 3 min comes after %v", at, now.Sub(last))
					}
					last = now
				}
				if d := time.Since(last); d > 90*time.Second {
					t.Errorf("no report to the watchdog for %v", d)
				}
			})
		})
	}
}

// What is noted as work is the start, also one that has nothing to do, and each cycle
// that does something or finds another state, but not the reading of ports at rest.
func TestWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sys := system(t, 1)
		unit := &files{m: map[string]string{"10.ibnetwork": unit0}}
		for _, start := range []string{"a link to be configured", "all as it is to be"} {
			work := 0
			r := startWith(t, Config{System: sys, OnWork: func() { work++ }}, &notes{}, unit, func(w func(Scope)) { sys.wake = w })
			time.Sleep(10 * time.Second)
			if synctest.Wait(); work == 0 {
				t.Errorf("%s: no work", start)
			}
			work = 0
			time.Sleep(10 * time.Minute)
			if synctest.Wait(); work > 0 {
				t.Errorf("%s: work %d times in 10 minutes of rest", start, work)
			}
			sys.change(func(s *link.Snapshot) { s.Devices[0].Ports[0].State = ib.PortDown })
			r.Wake(Scope{All: true})
			time.Sleep(time.Second)
			if synctest.Wait(); work == 0 {
				t.Errorf("%s: the port went down: no work", start)
			}
			sys.change(func(s *link.Snapshot) { s.Devices[0].Ports[0].State = ib.PortActive })
			r.stop()
		}
	})
}

// scoped notes the scopes of observations.
type scoped struct {
	*memory
	scopes chan Scope
}

func (s scoped) Observe(sc Scope, n Needs) (*link.Snapshot, error) {
	s.scopes <- sc
	return s.memory.Observe(sc, n)
}

// While no link waits for a key, the partition tables are read much less often than the ports.
func TestTablesAtRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sys := scoped{system(t, 1), make(chan Scope, 1000)}
		r := start(t, sys, &notes{}, &files{m: map[string]string{"10.ibnetwork": unit0}}, nil, func(w func(Scope)) { sys.wake = w })
		defer r.stop()
		for _, tt := range []struct {
			keys               []ib.PKey
			forTime            time.Duration
			most, least, ports int
		}{{[]ib.PKey{0xffff, 0x8001}, time.Hour, 6, 5, 59}, {[]ib.PKey{0xffff}, 10 * time.Second, 10, 9, 9}} {
			sys.change(func(s *link.Snapshot) {
				s.Devices[0].Ports[0].PKeys = tt.keys
				for i := range s.Links {
					if s.Links[i].IPoIB.PKey == 0x8001 && len(tt.keys) == 1 {
						s.Links[i].Flags &^= link.FlagLowerUp
					}
				}
			})
			r.Wake(Scope{RDMA: true, Links: map[int]bool{10: true}})
			time.Sleep(time.Second)
			tables, ports := 0, 0
			for len(sys.scopes) > 0 {
				<-sys.scopes
			}
			time.Sleep(tt.forTime)
			synctest.Wait()
			for len(sys.scopes) > 0 {
				ports++
				if sc := <-sys.scopes; sc.PKeys {
					tables++
				}
			}
			if tables > tt.most || tables < tt.least || ports < tt.ports {
				t.Errorf("with keys %v in %v: %d reads of the tables, %d of the ports", tt.keys, tt.forTime, tables, ports)
			}
		}
	})
}

// The ports are read as often when the loop wakes for something else in between.
func TestPortsBesideOtherWakes(t *testing.T) {
	for name, c := range map[string]struct{ watchdog, every time.Duration }{
		"a watchdog of 1 min": {watchdog: time.Minute}, "an address each 10 s": {every: 10 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				sys := scoped{system(t, 1), make(chan Scope, 1000)}
				r := startWith(t, Config{System: sys, Watchdog: c.watchdog}, &notes{}, &files{m: map[string]string{"10.ibnetwork": unit0}},
					func(w func(Scope)) { sys.wake = w })
				defer r.stop()
				time.Sleep(10 * time.Second)
				for len(sys.scopes) > 0 {
					<-sys.scopes
				}
				if c.every == 0 {
					time.Sleep(10 * time.Minute)
				} else {
					for end := time.Now().Add(10 * time.Minute); time.Now().Before(end); time.Sleep(c.every) {
						r.Wake(Scope{Addrs: true})
					}
				}
				synctest.Wait()
				ports := 0
				for len(sys.scopes) > 0 {
					if sc := <-sys.scopes; sc.RDMA {
						ports++
					}
				}
				if ports < 9 || ports > 10 {
					t.Errorf("the ports are read %d times in 10 minutes, want 10", ports)
				}
			})
		})
	}
}

// An event that concerns neither links nor ports causes no wait and no observation.
func TestOtherEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		events := idle{make(chan time.Time, 1000)}
		sys := system(t, 1)
		r := startWith(t, Config{System: sys, Events: events}, &notes{}, &files{m: map[string]string{"10.ibnetwork": unit0}},
			func(w func(Scope)) { sys.wake = w })
		defer r.stop()
		time.Sleep(10 * time.Second)
		events.taken()
		looks, at := sys.looked(), time.Now()
		r.Wake(Scope{Events: true})
		synctest.Wait()
		if again := events.taken(); len(again) != 1 || !again[0].Equal(at) || sys.looked() != looks {
			t.Errorf("the loop waits again after %s, %d observations", since(at, again), sys.looked()-looks)
		}
	})
}

// The removal of a link, which rtnetlink reports, is not observed again for udevd.
func TestDeviceEvents(t *testing.T) {
	for _, c := range []struct {
		e    uevent.Event
		want string
	}{
		{uevent.Event{Action: "add", Subsystem: "net", IfIndex: 4}, "1 links"},
		{uevent.Event{Action: "remove", Subsystem: "net", IfIndex: 4}, ""},
		{uevent.Event{Action: "remove", Subsystem: "infiniband"}, "rdma"},
	} {
		var s Scope
		if s.device(uevent.Udev, c.e); s.String() != c.want || s.Empty() != (c.want == "") {
			t.Errorf("%+v: %q, want %q", c.e, s.String(), c.want)
		}
	}
}

// tables are the partition tables of ports 1 of devices in a tree of files.
type tables struct {
	t    *testing.T
	root string
}

func (f tables) write(dev string, keys ...string) {
	f.t.Helper()
	dir := filepath.Join(f.root, "sys/class/infiniband", dev, "ports/1/pkeys")
	for i, k := range append(keys, slices.Repeat([]string{"0x0000"}, holes)...) {
		testkit.WriteFile(f.t, filepath.Join(dir, fmt.Sprint(i)), k+"\n")
	}
}

func (f tables) observer() *Observer {
	return &Observer{root: f.root, sys: sysfs.New(f.root), ports: map[portID]staticPort{}}
}

// When a link loses its carrier, only the partition table of its port is read; that of a port
// that is not Active is read on request only. What is compared in between are the entries of
// keys that links have, here or in other network namespaces.
func TestKeysOfPort(t *testing.T) {
	f := tables{t, t.TempDir()}
	o := f.observer()
	s := &link.Snapshot{}
	for i, dev := range []string{"mlx5_0", "mlx5_1"} {
		o.ports[portID{dev, 1}] = staticPort{layer: ib.LinkLayerInfiniBand}
		s.Devices = append(s.Devices, link.Device{Name: dev, Ports: []link.Port{{Num: 1}}})
		s.Links = append(s.Links, link.Link{Index: i + 1, IBDevice: dev, Port: 1, IPoIB: &link.IPoIB{PKey: 0xffff}})
	}
	keys := func(sc Scope, moved ...link.Moved) (out []ib.PKey) {
		o.observePKeys(s, sc, Needs{Moved: moved})
		for _, d := range s.Devices {
			out = append(out, d.Ports[0].PKeys...)
		}
		return out
	}
	entries, away := Scope{RDMA: true, Entries: true}, link.Moved{Made: link.Made{On: 2}, PKey: 0x8005}
	for _, step := range []struct {
		key   string
		state ib.PortState
		sc    Scope
		moved []link.Moved
		want  []ib.PKey
	}{
		{"0xffff", ib.PortInit, Scope{RDMA: true, KeysOf: map[int]bool{2: true}}, nil, nil},
		{"0xffff", ib.PortActive, Scope{RDMA: true}, nil, []ib.PKey{0xffff, 0xffff}},
		{"0x8001", ib.PortActive, Scope{RDMA: true, KeysOf: map[int]bool{2: true}}, nil, []ib.PKey{0xffff, 0x8001}},
		{"0x8002", ib.PortActive, Scope{RDMA: true}, nil, []ib.PKey{0xffff, 0x8001}},
		{"0x8002", ib.PortActive, Scope{PKeys: true}, nil, []ib.PKey{0x8002, 0x8002}},
		{"0x8003", ib.PortDown, Scope{PKeys: true}, nil, []ib.PKey{0x8003, 0x8003}},
		{"0xffff", ib.PortActive, Scope{PKeys: true}, nil, []ib.PKey{0xffff, 0xffff}},
		{"0x7fff", ib.PortActive, Scope{RDMA: true}, nil, []ib.PKey{0xffff, 0xffff}},
		{"0x7fff", ib.PortActive, entries, nil, []ib.PKey{0x7fff, 0x7fff}},
		{"0x8005", ib.PortDown, entries, nil, []ib.PKey{0x7fff, 0x7fff}},
		{"0x8005", ib.PortActive, entries, nil, []ib.PKey{0x8005, 0x8005}},
		{"0x0005", ib.PortActive, entries, nil, []ib.PKey{0x8005, 0x8005}},
		{"0x0005", ib.PortActive, entries, []link.Moved{away}, []ib.PKey{0x8005, 0x0005}},
	} {
		f.write("mlx5_0", step.key)
		f.write("mlx5_1", step.key)
		for id, st := range o.ports {
			st.state = step.state
			o.ports[id] = st
		}
		if got := keys(step.sc, step.moved...); !slices.Equal(got, step.want) {
			t.Errorf("%s with %s of ports that are %v: %v, want %v", step.sc, step.key, step.state, got, step.want)
		}
	}
}

// Of many entries no more than entriesAtOnce are compared at a time, and each in its turn.
func TestEntriesInTurn(t *testing.T) {
	f := tables{t, t.TempDir()}
	o, id, need := f.observer(), portID{"mlx5_0", 1}, map[ib.PKey]bool{}
	const links = 3 * entriesAtOnce
	var keys []string
	for k := range ib.PKey(2 * links) {
		keys = append(keys, (k + 1).AsFull().String())
		need[k+1] = k%2 == 0
	}
	f.write("mlx5_0", keys...)
	st := staticPort{}
	st.pkeys, st.at = o.pkeysUntil(id, need, false)
	if o.entryChanged(id, &st, need) {
		t.Error("an entry has changed that has not")
	}
	keys[7] = "0x0008" // no link has it
	f.write("mlx5_0", keys...)
	for range 4 {
		if o.entryChanged(id, &st, need) {
			t.Error("the entry of another key is compared")
		}
	}
	keys[8] = "0x0009"
	f.write("mlx5_0", keys...)
	found := 0
	for range 2 * links / entriesAtOnce {
		if o.entryChanged(id, &st, need) {
			found++
		}
	}
	if found != 2 {
		t.Errorf("the entry is compared %d times in two turns", found)
	}
}

// withTables is a system whose ports have partition tables in files.
type withTables struct {
	*memory
	o *Observer
}

func (s withTables) Observe(sc Scope, n Needs) (*link.Snapshot, error) {
	snap, err := s.memory.Observe(sc, n)
	if err != nil {
		return nil, err
	}
	snap.Devices = slices.Clone(snap.Devices) // the former snapshot has others, as the kernel is read
	for i := range snap.Devices {
		snap.Devices[i].Ports = slices.Clone(snap.Devices[i].Ports)
	}
	s.o.observePKeys(snap, sc, n)
	return snap, nil
}

// Another membership in the same entry of the partition table, for which there is no event,
// is known after a minute, without more wake-ups.
func TestMembershipAtRest(t *testing.T) {
	f := tables{t, t.TempDir()}
	f.write("mlx5_000", "0xffff", "0x8001")
	synctest.Test(t, func(t *testing.T) {
		sys := withTables{system(t, 1), f.observer()}
		sys.o.ports[portID{"mlx5_000", 1}] = staticPort{layer: ib.LinkLayerInfiniBand, state: ib.PortActive}
		events := idle{make(chan time.Time, 1000)}
		r := startWith(t, Config{System: sys, Events: events}, &notes{}, &files{m: map[string]string{"10.ibnetwork": unit0}},
			func(w func(Scope)) { sys.wake = w })
		defer r.stop()
		time.Sleep(150 * time.Second)
		events.taken()
		for _, key := range []ib.PKey{0x0001, 0x8001} {
			f.write("mlx5_000", "0xffff", key.String())
			time.Sleep(61 * time.Second)
			synctest.Wait()
			if got := r.Snapshot().Devices[0].Ports[0].PKeys; !slices.Equal(got, []ib.PKey{0xffff, key}) {
				t.Errorf("a minute after the entry became %s: %v", key, got)
			}
		}
		if n := len(events.taken()); n > 3 {
			t.Errorf("%d wake-ups in two minutes", n)
		}
	})
}
