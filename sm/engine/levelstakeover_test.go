package engine_test

import (
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"ibnetworkd/ib"
	"ibnetworkd/lab/gen"
	"ibnetworkd/lab/simfabric"
	"ibnetworkd/sm/engine"
	"ibnetworkd/sm/fabric"
	"ibnetworkd/sm/mad"
	"ibnetworkd/sm/qos"
	"ibnetworkd/sm/transport"
)

// takeover is a master with levels that are not those of a computation from nothing, and
// a standby.
type takeover struct {
	*world
	asked     *askings
	master    *seat
	successor *engine.Subnet
	copies    atomic.Int32 // that the standby asked for
	all       []*client    // one for each host, all at one that no cut separates
}

func newTakeover(t *testing.T, first int, opt simfabric.Options) *takeover {
	f := gen.CutCables(gen.Torus([]int{5, 5}, 1), 3, 6)
	x := &takeover{asked: &askings{hosts: map[ib.GUID]int{}}}
	opt.Reregister = x.asked.note
	x.world = newWorld(t, f, opt)
	hosts := hostsOf(f)
	x.master = &seat{port: hosts[0], prio: 5}
	x.sit(x.master, engine.Config{QoS: &qos.Options{}})
	x.stop = append(x.stop, func() {
		if x.master.sub != nil {
			x.master.kill()
		}
	})
	time.Sleep(5 * time.Second)
	cfg := engine.Config{QoS: &qos.Options{}, Priority: 1, Reregister: engine.ReregisterNever}
	x.successor, _ = x.managerOn(hosts[len(hosts)-3], cfg, func(tr transport.Transport) transport.Transport {
		return losing{tr, func(p *transport.Packet) bool {
			if mad.ClassOf(&p.MAD) == mad.ClassSA && mad.AttrOf(&p.MAD) == mad.AttrPathLevelsRecord {
				x.copies.Add(1)
			}
			return false
		}}
	})
	x.all = slices.Repeat([]*client{x.client(t, hosts[3])}, len(hosts))
	for k := range 3 {
		x.cutAt(first + 16*k)
		time.Sleep(5 * time.Second)
	}
	synctest.Wait()
	return x
}

func (x *takeover) cutAt(n int) {
	p := x.linkBetweenSwitches(n)
	x.sim.Cut(x.f.Nodes[x.f.Ports[p].Node].GUID, x.f.Ports[p].Num)
}

// differ counts levels that are not the same any more, and the hosts of these that were
// not asked to register.
func (x *takeover) differ(t *testing.T, f *fabric.Fabric, before map[[2]ib.LID]ib.SL, asked map[ib.GUID]int) (levels, missed int) {
	t.Helper()
	lids, who := f.LIDs(), map[ib.GUID]bool{}
	for k, l := range x.levels(t, f, x.all) {
		if before[k] != l {
			levels++
			if g := f.Ports[lids[k[0]]].GUID; asked[g] == 0 {
				who[g] = true
			}
		}
	}
	return levels, len(who)
}

// A manager that takes over goes on with the levels in force, so that it changes none and
// asks no host, but for registrations that it does not have.
func TestTakeoverKeepsLevels(t *testing.T) {
	for name, end := range map[string]func(*seat){
		"the master dies":       func(s *seat) { s.kill() },
		"the master hands over": func(s *seat) { s.stop() },
		"no registrations":      func(s *seat) { s.kill() },
	} {
		for n := range 3 {
			synctest.Test(t, func(t *testing.T) {
				x := newTakeover(t, 5+7*n, simfabric.Options{})
				defer x.close()
				want := 0
				if name == "no registrations" {
					// A service of another's GID has its owner in no record.
					r := mad.ServiceRecord{ServiceID: 78, GID: ib.MakeGID(ib.DefaultPrefix, x.f.Ports[hostsOf(x.f)[5]].GUID)}
					if st, _, err := x.all[0].ask(mad.MethodSet, mad.AttrServiceRecord, mad.CompSRServiceID|mad.CompSRGID, &r); st != 0 || err != nil {
						t.Fatal(st, err)
					}
					time.Sleep(5 * time.Second)
					want = len(x.all)
				}
				was := x.master.sub.Snapshot()
				before := x.levels(t, was.Fabric, x.all)
				x.asked.take()
				end(x.master)
				time.Sleep(20 * time.Second)
				synctest.Wait()
				now := x.successor.Snapshot()
				asked := x.asked.take()
				differ, _ := x.differ(t, now.Fabric, before, asked)
				if now.State != "Master" || was.Layers < 2 || differ > 0 || len(asked) != want {
					t.Errorf("%s: %s on %d layers, then %s on %d (%s): %d of %d levels differ, %d hosts are asked, want %d", name, was.Routing,
						was.Layers, now.Routing, now.Layers, now.State, differ, len(before), len(asked), want)
				}
			})
		}
	}
}

// A switch that is away during the takeover comes back with other levels perhaps: hosts
// elsewhere may have those that the former master gave.
func TestLevelsOfReturningSwitchAfterTakeover(t *testing.T) {
	changed := 0
	for _, n := range []int{6, 12, 18} {
		synctest.Test(t, func(t *testing.T) {
			x := newTakeover(t, 5, simfabric.Options{})
			defer x.close()
			before := x.levels(t, x.master.sub.Snapshot().Fabric, x.all)
			x.asked.take()
			g := x.f.Nodes[x.f.Switches[n].Node].GUID
			x.sim.PowerOff(g)
			time.Sleep(10 * time.Second)
			x.master.kill()
			time.Sleep(10 * time.Second)
			x.sim.PowerOn(g)
			time.Sleep(20 * time.Second)
			synctest.Wait()
			differ, missed := x.differ(t, x.successor.Snapshot().Fabric, before, x.asked.take())
			changed += differ
			if missed > 0 {
				t.Errorf("switch %d: of %d levels that differ %d hosts are not asked", n, differ, missed)
			}
		})
	}
	if changed == 0 {
		t.Error("no level changed: nothing was tested")
	}
}

// No host gets a new level before the standby has it: one that does not know of it can
// neither keep it nor ask the host to give it up.
func TestNewLevelsAreCopiedFirst(t *testing.T) {
	changed := 0
	for n := range 6 {
		synctest.Test(t, func(t *testing.T) {
			x := newTakeover(t, 5, simfabric.Options{DelayMin: 100 * time.Microsecond, DelayMax: 100 * time.Microsecond})
			defer x.close()
			before := x.levels(t, x.master.sub.Snapshot().Fabric, x.all)
			copies := x.copies.Load()
			begin := time.Now()
			x.cutAt(7 + 7*n)
			for given := false; !given && time.Since(begin) < 2*time.Second; {
				for k, was := range before {
					if given = x.all[0].level(t, k) != was; given {
						changed++
						break
					}
				}
			}
			if took := time.Since(begin); x.copies.Load() == copies && took < 2*time.Second {
				t.Errorf("cable %d: a host has a new level after %v, the standby does not", n, took)
			}
		})
	}
	if changed == 0 {
		t.Error("no level changed: nothing was tested")
	}
}
