package engine_test

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"ibnetworkd/ib"
	"ibnetworkd/ib/partition"
	"ibnetworkd/internal/testkit"
	"ibnetworkd/lab/gen"
	"ibnetworkd/lab/simfabric"
	"ibnetworkd/sm/engine"
	"ibnetworkd/sm/fabric"
	"ibnetworkd/sm/mad"
	"ibnetworkd/sm/pkey"
	"ibnetworkd/sm/transport"
)

// guarded checks what the switch ports that hosts are attached to let pass.
func (w *world) guarded(in, out bool, want func(host int32) []ib.PKey) error {
	for i := range w.f.Ports {
		p := &w.f.Ports[i]
		if p.Num == 0 || w.f.Nodes[p.Node].Switch == fabric.None || p.Peer == fabric.None {
			continue
		}
		g := w.f.Nodes[p.Node].GUID
		pi, err := w.sim.PortInfo(g, p.Num)
		if err != nil {
			return err
		}
		host := w.f.Nodes[w.f.Ports[p.Peer].Node].Switch == fabric.None
		e := pi.Enforcement()
		if e&mad.EnforceInbound != 0 != (host && in) || e&mad.EnforceOutbound != 0 != (host && out) {
			return fmt.Errorf("%s: enforcement %x", w.f.PortName(int32(i)), e)
		}
		if !host || !in && !out {
			continue
		}
		k, _ := w.sim.PKeys(g, p.Num)
		k = slices.DeleteFunc(k, func(k ib.PKey) bool { return k == 0 })
		if x := want(p.Peer); !slices.Equal(k, x) {
			return fmt.Errorf("%s: %v, want %v", w.f.PortName(int32(i)), k, x)
		}
	}
	return nil
}

// Switches check P_Keys where hosts are attached to, in every case with the keys that
// the host was given: after a change, a restart and a takeover too.
func TestPartitionEnforcement(t *testing.T) {
	inWorld(t, gen.FatTree2(8, 4), simfabric.Options{}, func(t *testing.T, w *world, f *fabric.Fabric, _ []int32) {
		parse := func(s string) partition.Config {
			c, err := partition.Parse("p", []byte(s))
			testkit.NoError(t, err)
			return c
		}
		hosts := hostsOf(f)
		a, b := hosts[2], hosts[9]
		storage := fmt.Sprintf("Default=0x7fff, ipoib : ALL=limited, SELF=full;\nstorage=0x0001 : %v=full, %v=limited;\n",
			f.Ports[a].GUID, f.Ports[b].GUID)
		keys := func(h int32) []ib.PKey {
			if h == a || h == b {
				return []ib.PKey{0xffff, 0x8001}
			}
			return []ib.PKey{0xffff}
		}
		ok := func(what string, err error) {
			t.Helper()
			if err != nil {
				t.Fatalf("%s: %v", what, err)
			}
		}
		settle := func() { time.Sleep(2 * time.Second); synctest.Wait() }

		s, stop := w.manager(f.SMPort, engine.Config{Partitions: parse(storage)})
		settle()
		ok("first sweep", w.guarded(true, true, keys))
		before := w.total()
		s.Resweep(false, "test")
		synctest.Wait()
		if n := w.total() - before; n != len(f.Switches) {
			t.Errorf("a resweep with nothing changed takes %d SMPs", n)
		}
		// A leaf restarts: its tables are gone.
		w.sim.Reboot(f.Nodes[f.Ports[f.Ports[a].Peer].Node].GUID)
		settle()
		ok("restart of a switch", w.guarded(true, true, keys))
		if !w.sim.AllActive() {
			t.Fatal("not all Active")
		}
		// Another partition, and one of the members leaves the first.
		s.SetPartitions(parse(fmt.Sprintf("Default=0x7fff, ipoib : ALL=full;\nstorage=0x0001 : %v=full;\nother=0x0002 : %v=full;\n",
			f.Ports[a].GUID, f.Ports[b].GUID)), "test")
		settle()
		ok("other partitions", w.guarded(true, true, func(h int32) []ib.PKey {
			switch h {
			case a:
				return []ib.PKey{0xffff, 0x8001}
			case b:
				return []ib.PKey{0xffff, 0x8002}
			}
			return []ib.PKey{0xffff}
		}))
		// The default partition alone needs no check, and leaves none behind.
		s.SetPartitions(partition.Config{}, "test")
		settle()
		ok("default partition", w.guarded(false, false, nil))
		s.SetPartitions(parse(storage), "test")
		settle()
		stop()
		// Another manager checks in one direction only.
		_, stop = w.manager(hosts[5], engine.Config{Partitions: parse(storage), Enforce: pkey.EnforceOut})
		settle()
		ok("takeover", w.guarded(false, true, keys))
		stop()
		_, _ = w.manager(hosts[5], engine.Config{Partitions: parse(storage), Enforce: pkey.EnforceOff})
		settle()
		ok("off", w.guarded(false, false, nil))
	})
}

// In a subnet with a partition of its own for every host and lost packets, all
// that share one reach each other through the switches' checks.
func TestEnforcementUnderLoss(t *testing.T) {
	for seed := range uint64(8) {
		opt := simfabric.Options{Seed: seed, Loss: 0.03}
		inWorld(t, gen.Random(seed, 4, 6, 8), opt, func(t *testing.T, w *world, f *fabric.Fabric, _ []int32) {
			conf := "Default=0x7fff, ipoib : ALL=limited, SELF=full;\n"
			for i, e := range f.EndPorts {
				conf += fmt.Sprintf("p%d=0x%04x : %v=full, SELF=limited;\n", i, i+1, f.Ports[e].GUID)
			}
			c, err := partition.Parse("p", []byte(conf))
			testkit.NoError(t, err)
			w.manager(f.SMPort, engine.Config{Partitions: c})
			time.Sleep(10 * time.Minute)
			synctest.Wait()
			if !w.sim.AllActive() {
				t.Fatal("not all Active")
			}
			err = w.guarded(true, true, func(h int32) []ib.PKey {
				at, _ := w.sim.PKeys(f.Nodes[f.Ports[h].Node].GUID, f.Ports[h].Num)
				var k []ib.PKey
				for _, x := range at {
					if x != 0 {
						k = append(k, x.AsFull())
					}
				}
				return k
			})
			if err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
		})
	}
}

// A manager that ends before it gave ports LIDs leaves P_Key tables that another one does not
// take for those of ports out of reset for long.
func TestKeysWithoutLID(t *testing.T) {
	inWorld(t, gen.FatTree2(8, 4), simfabric.Options{}, func(t *testing.T, w *world, f *fabric.Fabric, hosts []int32) {
		storage, err := partition.Parse("p", fmt.Appendf(nil, "Default=0x7fff : ALL=full;\nstorage=0x0001 : %v=full;\n", f.Ports[hosts[3]].GUID))
		testkit.NoError(t, err)
		_, stop := w.managerOn(f.SMPort, engine.Config{Partitions: storage}, func(tr transport.Transport) transport.Transport {
			return losing{tr, func(p *transport.Packet) bool {
				return mad.ClassOf(&p.MAD) == mad.ClassSubnDR && mad.AttrOf(&p.MAD) == mad.AttrPortInfo && mad.MethodOf(&p.MAD) == mad.MethodSet
			}}
		})
		time.Sleep(time.Second)
		stop()
		keys := func() []ib.PKey {
			k, _ := w.sim.PKeys(f.Nodes[f.Ports[hosts[3]].Node].GUID, 1)
			return slices.DeleteFunc(k, func(k ib.PKey) bool { return k == 0 })
		}
		info, err := w.sim.PortInfo(f.Nodes[f.Ports[hosts[3]].Node].GUID, 1)
		if had := keys(); err != nil || info.LID() != 0 || !slices.Equal(had, []ib.PKey{0xffff, 0x8001}) {
			t.Fatalf("the first manager leaves %v and LID %v, %v", had, info.LID(), err)
		}
		_, _ = w.manager(f.SMPort, engine.Config{})
		time.Sleep(5 * time.Second)
		p := w.linkBetweenSwitches(0)
		testkit.NoError(t, w.sim.Cut(f.Nodes[f.Ports[p].Node].GUID, f.Ports[p].Num))
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if has := keys(); !slices.Equal(has, []ib.PKey{0xffff}) {
			t.Errorf("a port that the first manager gave no LID has %v", has)
		}
	})
}
