package engine_test

import (
	"context"
	"slices"
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

// A host that only claims to be master is not shown the SM_Key by a standby,
// whatever it requests: it has not configured that manager's port.
func TestKeyAndMasterByWord(t *testing.T) {
	inWorld(t, gen.Star(6, 8), simfabric.Options{}, func(t *testing.T, w *world, f *fabric.Fabric, hosts []int32) {
		a, stop := w.manager(hosts[0], engine.Config{Priority: 14, SMKey: secret})
		w.settle(hosts[0], a, time.Second)
		x := a.Snapshot()
		path := pathFrom(t, x.Fabric, x.Fabric.EndPortByGUID(f.Ports[hosts[2]].GUID), x.Fabric.EndPortByGUID(f.Ports[hosts[3]].GUID))
		lid := x.Fabric.Ports[x.Fabric.EndPortByGUID(f.Ports[hosts[3]].GUID)].LID
		stop()
		o := w.other(t, hosts[2], mad.SMInfo{Priority: 15, State: mad.SMMaster})
		b, _ := w.manager(hosts[3], engine.Config{Priority: 1, SMKey: secret})
		standby := 0
		for n := range 8 {
			time.Sleep(time.Second)
			if b.Refresh().State == "Standby" {
				standby++
			}
			var data [64]byte
			if n%2 == 1 {
				o.set(func(o *other) { o.info.Append(data[:0]) })
			}
			k := transport.Packet{Timeout: 100 * time.Millisecond}
			mad.PutLR(&k.MAD, mad.MethodGet, mad.AttrSMInfo, 0, uint64(n+1), 0, data[:])
			if k.LID = lid; n%4 > 1 {
				k.LID = 0xffff
				mad.PutDR(&k.MAD, mad.MethodGet, mad.AttrSMInfo, 0, uint64(n+1), 0, path, data[:])
			}
			testkit.NoError(t, o.tr.Send(&k))
		}
		synctest.Wait()
		o.set(func(o *other) {
			if standby == 0 || slices.Contains(o.keys, uint64(secret)) {
				t.Errorf("stood by for %d s, the keys shown were %#x", standby, o.keys)
			}
		})
		w.settle(hosts[3], b, 15*time.Second)
	})
}

// A host that answers SMInfo with the GUID of another port is no manager: it
// neither keeps one with a key from the subnet nor gets the other one ignored.
func TestBorrowedGUID(t *testing.T) {
	inWorld(t, gen.Star(6, 8), simfabric.Options{}, func(t *testing.T, w *world, f *fabric.Fabric, hosts []int32) {
		o := w.other(t, hosts[2], mad.SMInfo{Priority: 15, State: mad.SMMaster})
		o.set(func(o *other) { o.info.GUID = f.Ports[hosts[3]].GUID })
		a, _ := w.manager(hosts[0], engine.Config{Priority: 5, SMKey: secret})
		w.settle(hosts[0], a, time.Second)
		b, _ := w.manager(hosts[3], engine.Config{Priority: 14, SMKey: secret})
		time.Sleep(20 * time.Second)
		w.settle(hosts[3], b, 20*time.Second)
		if x := a.Snapshot(); x.State != "Standby" {
			t.Errorf("the worse manager is %s", x.State)
		}
	})
}

// A liar that takes another GUID all the time, with the state of a master, does
// not keep a manager with a key from the subnet for longer than one that does not.
func TestChangingGUID(t *testing.T) {
	inWorld(t, gen.Star(6, 8), simfabric.Options{}, func(t *testing.T, w *world, f *fabric.Fabric, hosts []int32) {
		o := w.other(t, hosts[2], mad.SMInfo{Priority: 15, State: mad.SMMaster})
		s, _ := w.manager(hosts[0], engine.Config{Priority: 14, SMKey: secret})
		end := time.Now().Add(30 * time.Second)
		for n := uint64(0); time.Now().Before(end); n++ {
			time.Sleep(300 * time.Millisecond)
			o.set(func(o *other) {
				if o.info.GUID++; n%3 == 0 {
					o.info.GUID = f.Ports[hosts[2]].GUID
				}
			})
		}
		synctest.Wait()
		if err := w.check(hosts[0], s); err != nil {
			t.Error(err)
		}
	})
}

// However many orders and questions for SMInfo one host sends, by whatever route,
// another's are answered.
func TestSMInfoFlood(t *testing.T) {
	inWorld(t, gen.FatTree2(8, 4), simfabric.Options{}, func(t *testing.T, w *world, f *fabric.Fabric, hosts []int32) {
		a, _ := w.manager(hosts[0], engine.Config{Priority: 14, SMKey: secret})
		w.settle(hosts[0], a, time.Second)
		b, _ := w.manager(hosts[9], engine.Config{Priority: 1, SMKey: secret})
		time.Sleep(5 * time.Second)
		to, evil := f.SMPort, hosts[5]
		path := pathFrom(t, f, evil, to)
		raw, err := w.sim.OpenRaw(f.Ports[evil].GUID, func(*transport.Packet) {})
		testkit.NoError(t, err)
		defer raw.Close()
		c := w.client(t, hosts[9+1])
		honest := pathFrom(t, f, hosts[9+1], to)
		n := uint64(0)
		for range 200 {
			a.Hold(func() { time.Sleep(5 * time.Millisecond) }) // busy
			for i := range 1000 {
				n++
				k := transport.Packet{LID: 0xffff}
				info := mad.SMInfo{GUID: f.Ports[evil].GUID, State: mad.SMMaster, Priority: 15, ActCount: uint32(n)}
				m := []mad.Method{mad.MethodGet, mad.MethodSet}[i%2]
				mod := uint32(0)
				if m == mad.MethodSet {
					mod = mad.SMInfoHandover
				}
				mad.PutDR(&k.MAD, m, mad.AttrSMInfo, mod, n, 0, path, info.Append(nil))
				raw.Send(&k)
			}
			for _, m := range []mad.Method{mad.MethodGet, mad.MethodSet} {
				c.tid++
				k := transport.Packet{LID: 0xffff, Timeout: 100 * time.Millisecond}
				info := mad.SMInfo{GUID: f.Ports[hosts[10]].GUID, State: mad.SMStandby}
				mad.PutDR(&k.MAD, m, mad.AttrSMInfo, mad.SMInfoHandover*uint32(m-mad.MethodGet), uint64(c.tid), 0, honest, info.Append(nil))
				if r, err := c.exchange(&k); err != nil || mad.StatusOf(&r.MAD)&mad.StatusBusy != 0 {
					t.Fatalf("after %d of another host: %v of SMInfo: %v, status %#x", n, m, err, uint16(mad.StatusOf(&r.MAD)))
				}
			}
		}
		if x, y := a.Refresh(), b.Refresh(); x.State != "Master" || y.State != "Standby" {
			t.Errorf("the managers are %s and %s", x.State, y.State)
		}
		if h := heapMiB(); h > 100 {
			t.Errorf("%d MiB are in use", h)
		}
	})
}

// Two managers with one key that were masters of two subnets become one when these
// are joined, though neither shows the key to one that does not prove to have it.
func TestTwoMastersWithKey(t *testing.T) {
	inWorld(t, gen.Mesh([]int{2}, 2), simfabric.Options{}, func(t *testing.T, w *world, f *fabric.Fabric, _ []int32) {
		var hosts [2][]int32
		for _, h := range hostsOf(f) {
			i := 0
			if f.Ports[f.Ports[h].Peer].Node != f.Switches[0].Node {
				i = 1
			}
			hosts[i] = append(hosts[i], h)
		}
		node := f.Switches[0].Node
		between := uint8(0)
		first, n := f.PortRange(node)
		for p := first + 1; p < first+n; p++ {
			if q := f.Ports[p].Peer; q >= 0 && f.Ports[q].Node == f.Switches[1].Node {
				between = f.Ports[p].Num
			}
		}
		testkit.NoError(t, w.sim.Cut(f.Nodes[node].GUID, between))
		liar := w.other(t, hosts[0][1], mad.SMInfo{Priority: 15, State: mad.SMMaster})
		a, _ := w.manager(hosts[0][0], engine.Config{Priority: 5, SMKey: secret})
		b, _ := w.manager(hosts[1][0], engine.Config{Priority: 3, SMKey: secret})
		time.Sleep(20 * time.Second)
		if x, y := a.Refresh(), b.Refresh(); x.State != "Master" || y.State != "Master" {
			t.Fatalf("apart they are %s and %s", x.State, y.State)
		}
		testkit.NoError(t, w.sim.Restore(f.Nodes[node].GUID, between))
		w.settle(hosts[0][0], a, 15*time.Second)
		if y := b.Refresh(); y.State != "Standby" {
			t.Errorf("the worse manager is %s", y.State)
		}
		liar.set(func(o *other) {
			if slices.Contains(o.keys, uint64(secret)) {
				t.Error("the liar was shown the key")
			}
		})
	})
}

// confused is a transport in a subnet where a node answers with another attribute
// than it was asked for.
type confused struct {
	transport.Transport
	attr mad.AttrID
	from uint8 // the last hop of the route to it
}

func (c *confused) Recv(ctx context.Context, in []transport.Packet) (int, error) {
	n, err := c.Transport.Recv(ctx, in)
	for i := range in[:n] {
		p := &in[i]
		var m mad.SMP
		m.Decode(&p.MAD)
		if path := m.Path(); p.Err == nil && m.Class == mad.ClassSubnDR && m.Method.IsResponse() && m.Attr == c.attr && len(path) > 0 &&
			path[len(path)-1] == c.from {
			m.Attr = mad.AttrGUIDInfo
			m.Put(&p.MAD)
		}
	}
	return n, err
}

// An answer with another attribute than was asked for is none: the manager goes on.
func TestAnswerOfAnotherKind(t *testing.T) {
	for _, a := range []mad.AttrID{mad.AttrNodeInfo, mad.AttrNodeDescription, mad.AttrPortInfo, mad.AttrPKeyTable, mad.AttrSMInfo} {
		inWorld(t, gen.Star(6, 8), simfabric.Options{}, func(t *testing.T, w *world, f *fabric.Fabric, hosts []int32) {
			w.other(t, hosts[3], mad.SMInfo{Priority: 1, State: mad.SMStandby})
			s, _ := w.managerOn(hosts[0], engine.Config{Priority: 5}, func(tr transport.Transport) transport.Transport {
				return &confused{tr, a, f.Ports[f.Ports[hosts[3]].Peer].Num}
			})
			time.Sleep(20 * time.Second)
			synctest.Wait()
			if x := s.Refresh(); x.State != "Master" || x.Sweeps == 0 {
				t.Fatalf("attribute %v: %s after %d sweeps", a, x.State, x.Sweeps)
			}
			for _, h := range hosts {
				if pi, err := w.sim.PortInfo(f.Nodes[f.Ports[h].Node].GUID, 1); h != hosts[3] && (err != nil || pi.State() != ib.PortActive) {
					t.Errorf("attribute %v: %s is %v", a, f.PortName(h), pi.State())
				}
			}
		})
	}
}
