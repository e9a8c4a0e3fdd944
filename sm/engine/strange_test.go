package engine_test

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"ibnetworkd/ib"
	"ibnetworkd/internal/testkit"
	"ibnetworkd/lab/gen"
	"ibnetworkd/lab/simfabric"
	"ibnetworkd/sm/engine"
	"ibnetworkd/sm/fabric"
	"ibnetworkd/sm/mad"
	"ibnetworkd/sm/transport"
)

// altered is a transport in a subnet where nodes answer NodeInfo as alter changes it.
type altered struct {
	transport.Transport
	f     *fabric.Fabric
	port  int32
	alter func(node int32, ni *mad.NodeInfo)
}

func (a altered) Recv(ctx context.Context, in []transport.Packet) (int, error) {
	n, err := a.Transport.Recv(ctx, in)
	for i := range in[:n] {
		p := &in[i]
		var m mad.SMP
		m.Decode(&p.MAD)
		var ni mad.NodeInfo
		if p.Err != nil || m.Class != mad.ClassSubnDR || !m.Method.IsResponse() || m.Attr != mad.AttrNodeInfo || ni.Decode(m.Data[:]) != nil {
			continue
		}
		at := a.port
		for _, hop := range m.Path() {
			at = a.f.Ports[a.f.Port(a.f.Ports[at].Node, hop)].Peer
		}
		a.alter(a.f.Ports[at].Node, &ni)
		ni.Append(m.Data[:0])
		m.Put(&p.MAD)
	}
	return n, err
}

// A node without a GUID, with that of another one, or with one that changes keeps no
// honest port down, no LID is used twice, and one sentence says where it is cabled and
// what to do.
func TestStrangeNodes(t *testing.T) {
	f := gen.FatTree2(8, 4)
	hosts := hostsOf(f)
	last := len(hosts) - 1
	host := func(k int) int32 { return f.Ports[hosts[k]].Node }
	leaf := f.Ports[f.Ports[hosts[last]].Peer].Node
	var spine int32
	for p := f.Port(leaf, 1); f.Nodes[spine].Switch == fabric.None || spine == leaf; p++ {
		spine = f.Ports[f.Ports[p].Peer].Node
	}
	n := uint64(0)
	next := func() ib.GUID { n++; return ib.GUID(0xabc000000000 + n) }
	zero := func(ni *mad.NodeInfo) { ni.NodeGUID = 0 }
	zeroPort := func(ni *mad.NodeInfo) { ni.PortGUID = 0 }
	same := func(ni *mad.NodeInfo) { ni.PortGUID = 0xabc }
	change := func(ni *mad.NodeInfo) { ni.NodeGUID = next() }
	changeBoth := func(ni *mad.NodeInfo) { ni.NodeGUID = next(); ni.PortGUID = ni.NodeGUID }
	once := func(ni *mad.NodeInfo) {
		if n++; n > 1 {
			ni.NodeGUID = 0xabc
		}
	}
	for _, tt := range []struct {
		name  string
		nodes []int32
		alter func(*mad.NodeInfo)
		lost  []int32  // hosts that are left out
		want  []string // one line each
	}{
		{"host with node GUID 0", []int32{host(last)}, zero, []int32{host(last)},
			[]string{"the node at S-0004[4], path 0,1,5,7,4, has node GUID 0 and is left out; write"}},
		{"hosts with node GUID 0", []int32{host(5), host(last)}, zero, []int32{host(5), host(last)},
			[]string{"the node at S-0002[2], ", "the node at S-0004[4], "}},
		{"hosts with port GUID 0", []int32{host(5), host(last)}, zeroPort, []int32{host(5), host(last)},
			[]string{"the node at S-0002[2], path 0,1,5,3,2, has port GUID 0", "the node at S-0004[4], "}},
		{"hosts with one port GUID", []int32{host(5), host(6), host(last)}, same, []int32{host(6), host(last)},
			[]string{"path 0,1,5,3,2 (S-0002[2], used) and at path 0,1,5,3,3 (S-0002[3], left out); write", "(S-0004[4], left out)"}},
		{"spine with node GUID 0", []int32{spine}, zero, []int32{spine},
			[]string{"the switch at S-0001[5], S-0001[7], S-0002[5], S-0002[7], 4 more ports, path 0,1,5, has node GUID 0"}},
		{"switches with port GUID 0", []int32{spine, leaf}, zeroPort, nil,
			[]string{"the switch at S-0001[5], path 0,1,5, has port GUID 0x0000000000000000, which is none; its node GUID is used",
				"the switch at S-0005[7], path 0,1,5,7, has port GUID"}},
		{"switches and a host with one port GUID", []int32{spine, leaf, host(last)}, same, nil,
			[]string{"at S-0001[5], path 0,1,5, has port GUID 0x0000000000000abc, which another port has too", "the switch at S-0005[7]"}},
		{"host that changes its GUID", []int32{host(last)}, changeBoth, nil, nil},
		{"spine that changes its GUID", []int32{spine}, change, nil,
			[]string{"at S-0001[5], path 0,1,5, changes its node GUID"}},
		{"spine that changes both GUIDs", []int32{spine}, changeBoth, nil, []string{"at S-0001[5], path 0,1,5, changes its node GUID"}},
		{"leaf that changes both GUIDs", []int32{leaf}, changeBoth, nil, []string{"at S-0005[7], path 0,1,5,7, changes its node GUID"}},
		{"spine that changes its GUID once", []int32{spine}, once, nil,
			[]string{"changes its node GUID: it has shown 0x0002c90000f00004 and 0x0000000000000abc; it is used as 0x0000000000000abc"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n = 0
				log := new(testkit.Buffer)
				w := newWorld(t, f, simfabric.Options{DelayMin: 20 * time.Microsecond, DelayMax: 20 * time.Microsecond})
				defer w.close()
				s, _ := w.managerOn(f.SMPort, engine.Config{Log: slog.New(slog.NewTextHandler(log, nil))},
					func(tr transport.Transport) transport.Transport {
						return altered{tr, f, f.SMPort, func(i int32, ni *mad.NodeInfo) {
							if slices.Contains(tt.nodes, i) {
								tt.alter(ni)
							}
						}}
					})
				time.Sleep(10 * time.Second)
				synctest.Wait()
				if x := s.Snapshot(); len(x.Fabric.Nodes) != len(f.Nodes)-len(tt.lost) {
					t.Errorf("%d nodes, want %d", len(x.Fabric.Nodes), len(f.Nodes)-len(tt.lost))
				}
				w.othersWork(t, tt.lost)
				var warned []string
				for l := range strings.Lines(log.String()) {
					if strings.Contains(l, "level=WARN") {
						warned = append(warned, l)
					}
				}
				if len(warned) != len(tt.want) {
					t.Errorf("%d warnings, want %d:\n%s", len(warned), len(tt.want), log)
				}
				for _, want := range tt.want {
					if !slices.ContainsFunc(warned, func(l string) bool { return strings.Contains(l, want) && strings.Contains(l, "ibnetsm resweep") }) {
						t.Errorf("no warning has %q:\n%s", want, strings.Join(warned, ""))
					}
				}
			})
		})
	}
}

// othersWork verifies that the ports of all nodes but some are Active, with LIDs of their
// own that lead to them.
func (w *world) othersWork(t *testing.T, but []int32) {
	t.Helper()
	at := map[ib.LID]int32{}
	for _, e := range w.f.EndPorts {
		p := &w.f.Ports[e]
		if slices.Contains(but, p.Node) {
			continue
		}
		pi, err := w.sim.PortInfo(w.f.Nodes[p.Node].GUID, p.Num)
		if err != nil || pi.State() != ib.PortActive || pi.LID() == 0 {
			t.Errorf("%s: %v, LID %v", w.f.PortName(e), pi.State(), pi.LID())
		}
		if o, ok := at[pi.LID()]; ok {
			t.Errorf("LID %v is of %s and %s", pi.LID(), w.f.PortName(o), w.f.PortName(e))
		}
		at[pi.LID()] = e
	}
	for _, a := range at {
		for l, b := range at {
			if got := w.sim.Reaches(w.f.Ports[a].GUID, l); w.f.Ports[a].Num != 0 && got != w.f.Ports[b].GUID {
				t.Errorf("from %s LID %v of %s leads to %v", w.f.PortName(a), l, w.f.PortName(b), got)
			}
		}
	}
}

// A switch that has more or fewer ports after a restart is configured with those, and
// is no duplicate.
func TestPortCountChanges(t *testing.T) {
	for _, restart := range []bool{true, false} {
		for _, d := range [][2]uint8{{8, 11}, {11, 8}} {
			synctest.Test(t, func(t *testing.T) {
				f := gen.FatTree2(8, 2)
				log := new(testkit.Buffer)
				w := newWorld(t, f, simfabric.Options{DelayMin: 20 * time.Microsecond, DelayMax: 20 * time.Microsecond})
				defer w.close()
				g := f.Nodes[f.Ports[f.Ports[hostsOf(f)[len(hostsOf(f))-1]].Peer].Node].GUID
				set := func(n uint8) { w.sim.SetNodeInfo(g, func(ni *mad.NodeInfo) { ni.NumPorts = n }) }
				s, _ := w.manager(f.SMPort, engine.Config{Log: slog.New(slog.NewTextHandler(log, nil))})
				set(d[0])
				time.Sleep(3 * time.Second)
				set(d[1])
				if restart {
					w.sim.Reboot(g)
				} else {
					s.Resweep(true, "a person asks")
				}
				time.Sleep(10 * time.Second)
				synctest.Wait()
				x := s.Snapshot()
				if n := x.Fabric.Nodes[x.Fabric.NodeByGUID(g)].NumPorts; n != d[1] {
					t.Errorf("%d ports, want %d", n, d[1])
				}
				if strings.Contains(log.String(), "duplicate") || restart != strings.Contains(log.String(), "ports now and had") {
					t.Error(log)
				}
				w.othersWork(t, nil)
			})
		}
	}
}

// A switch that gets ports without a restart, as by a module that is plugged in, reports
// that one of them came up; they are found, and the others go on.
func TestPortsAreAdded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := gen.Star(8, 8)
		log := new(testkit.Buffer)
		w := newWorld(t, f, simfabric.Options{})
		defer w.close()
		sw := &f.Nodes[f.Switches[0].Node]
		set := func(n uint8) { w.sim.SetNodeInfo(sw.GUID, func(ni *mad.NodeInfo) { ni.NumPorts = n }) }
		set(5)
		for p := uint8(6); p <= 8; p++ {
			w.sim.Cut(sw.GUID, p)
		}
		s, _ := w.manager(f.SMPort, engine.Config{Log: slog.New(slog.NewTextHandler(log, nil))})
		time.Sleep(5 * time.Second)
		if n := len(s.Snapshot().Fabric.EndPorts); n != 6 {
			t.Fatalf("%d end ports", n)
		}
		before := w.sim.Counters().SMPs[mad.AttrNodeInfo].Get
		w.sim.Flap(sw.GUID, 3)
		time.Sleep(5 * time.Second)
		if n := w.sim.Counters().SMPs[mad.AttrNodeInfo].Get - before; n != 1 { // of the host
			t.Errorf("a link that flaps costs %d NodeInfo", n)
		}
		set(8)
		for p := uint8(6); p <= 8; p++ {
			w.sim.Restore(sw.GUID, p)
		}
		time.Sleep(5 * time.Second)
		synctest.Wait()
		w.settle(f.SMPort, s, time.Second)
		if strings.Contains(log.String(), "duplicate") || strings.Contains(log.String(), "WARN") {
			t.Error(log)
		}
		w.othersWork(t, nil)
	})
}

// An adapter with two ports that resets as another device, after its firmware was changed,
// comes back with both of them, whichever is found first, and is no duplicate.
func TestDeviceChanges(t *testing.T) {
	for name, reset := range map[string]func(w *world, g ib.GUID){
		"both ports":      func(w *world, g ib.GUID) { w.sim.Reboot(g) },
		"the first port":  func(w *world, g ib.GUID) { w.sim.Flap(g, 1) },
		"the second port": func(w *world, g ib.GUID) { w.sim.Flap(g, 2) },
		"one after the other": func(w *world, g ib.GUID) {
			w.sim.Flap(g, 2)
			time.Sleep(3 * time.Second)
			w.sim.Flap(g, 1)
		},
	} {
		for seed := range 3 {
			synctest.Test(t, func(t *testing.T) {
				m := gen.New()
				a, b := m.Switch(8), m.Switch(8)
				m.Link(a, 7, b, 7)
				m.Link(a, 8, b, 8)
				sm, two, other := m.Host(1), m.Host(2), m.Host(1)
				m.Link(sm, 1, a, 1)
				m.Link(two, 1, []int{a, b, a}[seed], 2)
				m.Link(two, 2, []int{b, a, a}[seed], 3)
				m.Link(other, 1, b, 1)
				f := m.Done(sm)
				log := new(testkit.Buffer)
				w := newWorld(t, f, simfabric.Options{DelayMin: 20 * time.Microsecond, DelayMax: 20 * time.Microsecond})
				defer w.close()
				var g ib.GUID
				for i := range f.Nodes {
					if f.Nodes[i].Switch == fabric.None && f.Nodes[i].NumPorts == 2 {
						g = f.Nodes[i].GUID
					}
				}
				s, _ := w.manager(f.SMPort, engine.Config{Log: slog.New(slog.NewTextHandler(log, nil))})
				w.settle(f.SMPort, s, 3*time.Second)
				w.sim.SetNodeInfo(g, func(ni *mad.NodeInfo) { ni.DeviceID++ })
				reset(w, g)
				time.Sleep(10 * time.Second)
				synctest.Wait()
				w.settle(f.SMPort, s, time.Second)
				x := s.Snapshot().Fabric
				if n := x.NodeByGUID(g); x.Nodes[n].DeviceID != f.Nodes[f.NodeByGUID(g)].DeviceID+1 {
					t.Errorf("%s, %d: device %#x", name, seed, x.Nodes[n].DeviceID)
				}
				if strings.Contains(log.String(), "WARN") {
					t.Errorf("%s, %d: %s", name, seed, log)
				}
				w.othersWork(t, nil)
			})
		}
	}
}
