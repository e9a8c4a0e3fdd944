package engine_test

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
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
	"ibnetworkd/sm/program"
	"ibnetworkd/sm/transport"
)

func TestPolicyReachesPorts(t *testing.T) {
	inWorld(t, gen.FatTree2(8, 4), simfabric.Options{}, func(t *testing.T, w *world, f *fabric.Fabric, _ []int32) {
		pol := program.DefaultPolicy()
		pol.MKey, pol.MKeyLease, pol.Protect, pol.Prefix = 0x1234, 60, 1, 0xfec0000000000007
		s, _ := w.manager(f.SMPort, engine.Config{Policy: pol, LMC: 2})
		synctest.Wait()
		for _, p := range s.Snapshot().Fabric.EndPorts {
			q := s.Snapshot().Fabric.Ports[p]
			pi, err := w.sim.PortInfo(s.Snapshot().Fabric.Nodes[q.Node].GUID, q.Num)
			testkit.NoError(t, err)
			lmc := ib.LMC(2)
			if q.Num == 0 {
				lmc = 0
			}
			if pi.MKey() != 0x1234 || pi.MKeyLease() != 60 || pi.GIDPrefix() != pol.Prefix || pi.LMC() != lmc || int(pi.LID())%lmc.Count() != 0 {
				t.Fatalf("%s: %+v", s.Snapshot().Fabric.PortName(p), pi)
			}
		}
		// Every one of a port's LIDs leads to it.
		for _, a := range f.EndPorts {
			for _, b := range f.EndPorts {
				pi, _ := w.sim.PortInfo(f.Nodes[f.Ports[b].Node].GUID, f.Ports[b].Num)
				for k := range pi.LMC().Count() {
					if f.Ports[a].Num != 0 && w.sim.Reaches(f.Ports[a].GUID, pi.LID()+ib.LID(k)) != f.Ports[b].GUID {
						t.Fatalf("from %s LID %v does not lead to %s", f.PortName(a), pi.LID()+ib.LID(k), f.PortName(b))
					}
				}
			}
		}
		// What the ports are protected with the manager knows.
		w.sim.Cut(f.Nodes[f.Ports[f.EndPorts[5]].Node].GUID, 1)
		time.Sleep(time.Second)
		w.sim.Restore(f.Nodes[f.Ports[f.EndPorts[5]].Node].GUID, 1)
		time.Sleep(time.Second)
		synctest.Wait()
		if !w.sim.AllActive() {
			t.Error("a protected port did not come back")
		}
	})
}

func TestPartitions(t *testing.T) {
	inWorld(t, gen.Star(3, 8), simfabric.Options{}, func(t *testing.T, w *world, f *fabric.Fabric, _ []int32) {
		cfg, err := partition.Parse("p", []byte("Default=0x7fff, ipoib : ALL=limited, SELF=full;\nstorage=0x0001, ipoib : ALL=full;\n"))
		testkit.NoError(t, err)
		w.manager(f.SMPort, engine.Config{Partitions: cfg})
		synctest.Wait()
		for _, p := range f.EndPorts {
			if f.Ports[p].Num == 0 {
				continue
			}
			k, _ := w.sim.PKeys(f.Nodes[f.Ports[p].Node].GUID, 1)
			want := ib.PKey(0x7fff)
			if p == f.SMPort {
				want = 0xffff
			}
			if k[0] != want || k[1] != 0x8001 || k[2] != 0 {
				t.Errorf("%s: %v", f.PortName(p), k[:4])
			}
		}
	})
}

func TestNodeDescriptionChange(t *testing.T) {
	inWorld(t, gen.Star(3, 8), simfabric.Options{}, func(t *testing.T, w *world, f *fabric.Fabric, _ []int32) {
		s, _ := w.manager(f.SMPort, engine.Config{})
		synctest.Wait()
		n := f.Ports[f.EndPorts[1]].Node
		w.sim.SetDescription(f.Nodes[n].GUID, "renamed mlx5_0")
		time.Sleep(100 * time.Millisecond)
		synctest.Wait()
		x := s.Snapshot().Fabric
		if d := x.Nodes[x.NodeByGUID(f.Nodes[n].GUID)].Desc; d != "renamed mlx5_0" {
			t.Errorf("description is %q", d)
		}
	})
}

// A node that is unplugged here and plugged in there is found, with its LID.
func TestNodeMoves(t *testing.T) {
	opt := simfabric.Options{DelayMin: time.Microsecond, DelayMax: 20 * time.Microsecond}
	inWorld(t, gen.FatTree2(8, 4), opt, func(t *testing.T, w *world, f *fabric.Fabric, _ []int32) {
		s, _ := w.manager(f.SMPort, engine.Config{})
		time.Sleep(time.Second)
		synctest.Wait()
		x := s.Snapshot().Fabric
		var host int32
		for _, p := range x.EndPorts {
			if x.Ports[p].Num != 0 && p != x.SMPort {
				host = p
			}
		}
		was := x.Ports[host].LID
		g := x.Ports[host].GUID
		up := x.Ports[x.Ports[host].Peer]
		// To a free port of the switch that has most of them free.
		to, port := ib.GUID(0), uint8(0)
		for i := range f.Switches {
			n := f.Switches[i].Node
			first, count := f.PortRange(n)
			for p := first + 1; p < first+count; p++ {
				if f.Ports[p].Peer == fabric.None {
					to, port = f.Nodes[n].GUID, f.Ports[p].Num
				}
			}
		}
		if to == 0 {
			t.Skip("no free port")
		}
		testkit.NoError(t, w.sim.Move(x.Nodes[up.Node].GUID, up.Num, to, port))
		time.Sleep(5 * time.Second)
		synctest.Wait()
		x = s.Snapshot().Fabric
		p := x.EndPortByGUID(g)
		if p == fabric.None || x.Ports[p].LID != was || !w.sim.AllActive() {
			t.Fatalf("moved node: port %d, all active %v", p, w.sim.AllActive())
		}
		if q := x.Ports[x.Ports[p].Peer]; x.Nodes[q.Node].GUID != to || q.Num != port {
			t.Errorf("is at %s", x.PortName(x.Ports[p].Peer))
		}
	})
}

// A port that never answers does not delay the others, and is retried.
func TestMuteNode(t *testing.T) {
	inWorld(t, gen.FatTree2(8, 4), simfabric.Options{}, func(t *testing.T, w *world, f *fabric.Fabric, _ []int32) {
		g := f.Nodes[f.Ports[f.EndPorts[5]].Node].GUID
		w.sim.Mute(g, true)
		s, _ := w.manager(f.SMPort, engine.Config{})
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if x := s.Snapshot(); x.State != "Master" || len(x.Fabric.Nodes) != len(f.Nodes)-1 || len(x.Retrying) == 0 {
			t.Fatalf("%s, %d nodes, retrying %v", x.State, len(x.Fabric.Nodes), x.Retrying)
		}
		w.sim.Mute(g, false)
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		if !w.sim.AllActive() {
			t.Error("the node that answers again is not up")
		}
	})
}

// The same subnet gives the same forwarding tables, however it answers.
func TestSameTables(t *testing.T) {
	f := gen.Random(3, 6, 9, 12)
	var first string
	for seed := range uint64(5) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, f, simfabric.Options{Seed: seed, DelayMin: time.Microsecond, DelayMax: 3 * time.Millisecond})
			defer w.close()
			s, _ := w.manager(f.SMPort, engine.Config{Window: 1 + 7*int(seed)})
			w.settle(f.SMPort, s, 10*time.Second)
			var b strings.Builder
			for i := range f.Switches {
				_, lft, _, err := w.sim.SwitchTables(f.Nodes[f.Switches[i].Node].GUID)
				testkit.NoError(t, err)
				b.Write(lft)
			}
			if first == "" {
				first = b.String()
			} else if first != b.String() {
				t.Error("the tables depend on the order of answers")
			}
		})
	}
}

// A manager does not touch the fabric while it walks it and finds a master.
func TestStandbySetsNothing(t *testing.T) {
	inWorld(t, gen.FatTree2(8, 4), simfabric.Options{}, func(t *testing.T, w *world, f *fabric.Fabric, _ []int32) {
		a, _ := w.manager(f.SMPort, engine.Config{Priority: 5, Sweep: -1})
		w.settle(f.SMPort, a, time.Second)
		sets := func() (n uint64) {
			for _, c := range w.sim.Counters().SMPs {
				n += uint64(c.Set)
			}
			return n
		}
		before := sets()
		b, _ := w.manager(f.EndPorts[6], engine.Config{Priority: 1})
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if b.Snapshot().State != "Standby" {
			t.Fatal(b.Snapshot().State)
		}
		if n := sets() - before; n != 0 {
			t.Errorf("%d Sets", n)
		}
	})
}

// script is a transport that plays packets and answers nothing.
type script struct {
	in   []transport.Packet
	sent int
	done chan struct{}
	once sync.Once
}

func (s *script) Send(p *transport.Packet) error { s.sent++; return nil }
func (s *script) Recv(ctx context.Context, into []transport.Packet) (int, error) {
	if len(s.in) > 0 {
		n := copy(into, s.in)
		s.in = s.in[n:]
		return n, nil
	}
	select {
	case <-ctx.Done():
		return 0, ctx.Err()
	case <-s.done:
		return 0, transport.ErrClosed
	}
}
func (s *script) SetIsSM(bool) error { return nil }
func (s *script) Port() (transport.Port, error) {
	return transport.Port{Device: "x", Num: 1, PortGUID: 1, NodeGUID: 1, State: ib.PortInit, PhysState: ib.PhysLinkUp}, nil
}
func (s *script) Close() error { s.once.Do(func() { close(s.done) }); return nil }

// Whatever arrives, it neither panics nor hangs nor grows without bound.
func FuzzPackets(f *testing.F) {
	var b mad.Buf
	mad.PutLR(&b, mad.MethodTrap, mad.AttrNotice, 0, 1, 0, nil)
	f.Add(b[:])
	mad.PutDR(&b, mad.MethodGet, mad.AttrSMInfo, 0, 1, 0, []uint8{1, 2}, nil)
	f.Add(b[:])
	mad.PutDR(&b, mad.MethodSet, mad.AttrSMInfo, 1, 1, 0, []uint8{1}, bytes.Repeat([]byte{7}, 64))
	f.Add(b[:])
	mad.PutDR(&b, mad.MethodGetResp, mad.AttrNodeInfo, 0, 1<<16, 0, nil, []byte{1, 1, 2, 36, 0, 0, 0, 0, 0, 0, 0, 1})
	f.Add(b[:])
	f.Fuzz(func(t *testing.T, in []byte) {
		synctest.Test(t, func(t *testing.T) {
			tr := &script{done: make(chan struct{})}
			for k := 0; k < 64 && len(in) > 0; k++ {
				var p transport.Packet
				n := copy(p.MAD[:], in)
				in = in[n:]
				if k%2 == 0 {
					p.LID = ib.LIDPermissive
				}
				tr.in = append(tr.in, p)
			}
			s := engine.New(tr, engine.Config{})
			ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
			defer cancel()
			s.Run(ctx)
		})
	})
}

// A switch whose forwarding table is too short for the LIDs in use serves those
// that fit.
func TestSmallForwardingTable(t *testing.T) {
	inWorld(t, gen.FatTree2(8, 4), simfabric.Options{}, func(t *testing.T, w *world, f *fabric.Fabric, hosts []int32) {
		// With eight LIDs a host some are beyond the first 64.
		leaf, _ := f.SwitchOf(hosts[9])
		small := f.Nodes[f.Switches[leaf].Node].GUID
		testkit.NoError(t, w.sim.SetSwitchInfo(small, func(i *mad.SwitchInfo) { i.SetLinearFDBCap(64) }))
		s, _ := w.manager(hosts[0], engine.Config{LMC: 3})
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if !w.sim.AllActive() {
			t.Error("not all ports are Active")
		}
		x := s.Snapshot()
		if x.TopLID < 64 || len(x.Retrying) > 0 || x.Counters.Errors > 0 {
			t.Errorf("LIDs up to %v, %d refused, retrying %v", x.TopLID, x.Counters.Errors, x.Retrying)
		}
	})
}

// Removed keys leave holes in a port's table. The keys behind them stay at their
// index, and a manager that restarts sees them: what is not granted any more goes,
// what is granted does not appear twice.
func TestPKeyHoles(t *testing.T) {
	inWorld(t, gen.Star(3, 8), simfabric.Options{}, func(t *testing.T, w *world, f *fabric.Fabric, _ []int32) {
		for _, granted := range [][]ib.PKey{keysTo(40), {1, 2, 3, 4, 35, 36}, {1, 2, 3, 4, 35}, {2, 35}} {
			text := "Default=0x7fff, ipoib : ALL=full;\n"
			for _, k := range granted {
				text += fmt.Sprintf("p%d=0x%x : ALL=full;\n", k, uint16(k))
			}
			cfg, err := partition.Parse("p", []byte(text))
			testkit.NoError(t, err)
			s, stop := w.manager(f.SMPort, engine.Config{Partitions: cfg})
			w.settle(f.SMPort, s, time.Second)
			for _, p := range f.EndPorts {
				if f.Ports[p].Num == 0 {
					continue
				}
				want := make([]ib.PKey, 64)
				want[0] = ib.DefaultPKey
				for _, k := range granted {
					want[k] = k.AsFull()
				}
				if k, _ := w.sim.PKeys(f.Nodes[f.Ports[p].Node].GUID, 1); !slices.Equal(k, want) {
					t.Fatalf("%s, granted %v: %v", f.PortName(p), granted, k)
				}
			}
			stop()
		}
	})
}

func keysTo(n ib.PKey) (l []ib.PKey) {
	for k := ib.PKey(1); k <= n; k++ {
		l = append(l, k)
	}
	return l
}
