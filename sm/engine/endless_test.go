package engine_test

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"ibnetworkd/ib"
	"ibnetworkd/internal/testkit"
	"ibnetworkd/lab/gen"
	"ibnetworkd/lab/simfabric"
	"ibnetworkd/sm/discover"
	"ibnetworkd/sm/engine"
	"ibnetworkd/sm/fabric"
	"ibnetworkd/sm/mad"
	"ibnetworkd/sm/transport"
)

// endless is a device that answers for a subnet without end behind itself: what is
// asked of any node behind the port that begin leads to.
type endless struct {
	transport.Transport
	begin []uint8
	node  func(path []uint8) mad.NodeInfo
	delay time.Duration // to each answer

	mu    sync.Mutex
	lies  int
	in    []transport.Packet
	err   error
	ready chan struct{}
}

func (e *endless) Send(p *transport.Packet) error {
	var m mad.SMP
	m.Decode(&p.MAD)
	path := m.Path()
	if m.Class != mad.ClassSubnDR || m.Method.IsResponse() || len(path) < len(e.begin) || string(path[:len(e.begin)]) != string(e.begin) {
		return e.Transport.Send(p)
	}
	q := *p
	lie(&q.MAD, m.Attr, e.node(path))
	e.mu.Lock()
	e.lies++
	e.mu.Unlock()
	tell := func() {
		e.mu.Lock()
		e.in = append(e.in, q)
		e.mu.Unlock()
		e.wake()
	}
	if e.delay == 0 {
		tell()
	} else {
		time.AfterFunc(e.delay, tell)
	}
	return nil
}

// lie makes a request its answer by a switch that does not exist.
func lie(b *mad.Buf, a mad.AttrID, n mad.NodeInfo) {
	mad.SetAnswer(b, mad.MethodGetResp)
	d := mad.SMPData(b)
	*d = [64]byte{}
	switch a {
	case mad.AttrNodeInfo:
		n.Append(d[:0])
	case mad.AttrPortInfo:
		var pi mad.PortInfo
		pi.SetState(ib.PortInit)
		pi.SetPhysState(ib.PhysLinkUp)
		pi.SetLinkDownDefault(2)
		pi.Append(d[:0])
	case mad.AttrNodeDescription:
		copy(d[:], "liar")
	}
}

// listen takes over what the port receives.
func (e *endless) listen() {
	b := make([]transport.Packet, 64)
	for {
		n, err := e.Transport.Recv(context.Background(), b)
		e.mu.Lock()
		e.in, e.err = append(e.in, b[:n]...), err
		e.mu.Unlock()
		e.wake()
		if err != nil {
			return
		}
	}
}

func (e *endless) wake() {
	select {
	case e.ready <- struct{}{}:
	default:
	}
}

func (e *endless) Recv(ctx context.Context, into []transport.Packet) (int, error) {
	for {
		e.mu.Lock()
		n, err := copy(into, e.in), e.err
		e.in = e.in[n:]
		e.mu.Unlock()
		if n > 0 {
			return n, nil
		}
		if err != nil {
			return 0, err
		}
		select {
		case <-e.ready:
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
}

// falseAnswers returns how many false answers were given.
func (e *endless) falseAnswers() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.lies
}

// guidOf is a GUID for each path.
func guidOf(path []uint8) ib.GUID {
	h := ib.GUID(0xcbf29ce484222325)
	for _, b := range path {
		h = (h ^ ib.GUID(b)) * 0x100000001b3
	}
	return h | 1<<63
}

func liarNode(ports uint8, hosts bool) func(path []uint8) mad.NodeInfo {
	return func(path []uint8) mad.NodeInfo {
		g := guidOf(path)
		n := mad.NodeInfo{BaseVersion: 1, ClassVersion: 1, NodeType: ib.NodeSwitch, NumPorts: ports, NodeGUID: g, PortGUID: g,
			SystemImageGUID: g, LocalPortNum: 1, PartitionCap: 32}
		if hosts && len(path) > 4 && path[len(path)-1] > 2 {
			n.NodeType = ib.NodeCA
		}
		return n
	}
}

// doubled is a liar whose switches have two links to each of the next, by ports
// of one pair; ring one whose switches are in rings of some size, each of which has
// a ring behind each switch.
func doubled(ports uint8) func(path []uint8) mad.NodeInfo {
	tree := liarNode(ports, false)
	return func(path []uint8) mad.NodeInfo {
		q := slices.Clone(path)
		for i := range q[4:] {
			q[4+i] &^= 1
		}
		n := tree(q)
		if len(path) > 4 {
			n.LocalPortNum = path[len(path)-1]&1 + 2
		}
		return n
	}
}

// ring follows a path: ports 1 and 2 are the way round, each other port leads to
// port 3 of a switch of another ring.
func ring(ports uint8, size int) func(path []uint8) mad.NodeInfo {
	tree := liarNode(ports, false)
	return func(path []uint8) mad.NodeInfo {
		at, place, entry := slices.Clone(path[:4]), 0, uint8(3)
		for _, p := range path[4:] {
			switch {
			case p == 1:
				place, entry = (place+1)%size, 2
			case p == 2:
				place, entry = (place+size-1)%size, 1
			case p == 3 && len(at) > 4:
				entry, place = at[len(at)-1], int(at[len(at)-3])<<8|int(at[len(at)-2])
				at = at[:len(at)-3]
			default:
				at, place, entry = append(at, byte(place>>8), byte(place), p), 0, 3
			}
		}
		n := tree(append(at, byte(place>>8), byte(place)))
		n.LocalPortNum = entry
		return n
	}
}

// behindAdapter is a liar of whose switches port 3 of each pretends to be cabled to the second port of an honest adapter.
func behindAdapter(ports uint8, a *fabric.Node) func(path []uint8) mad.NodeInfo {
	tree := liarNode(ports, false)
	return func(path []uint8) mad.NodeInfo {
		if path[len(path)-1] != 3 {
			return tree(path)
		}
		return mad.NodeInfo{BaseVersion: 1, ClassVersion: 1, NodeType: ib.NodeCA, NumPorts: a.NumPorts, NodeGUID: a.GUID,
			PortGUID: a.GUID + 0x77, SystemImageGUID: a.SystemGUID, DeviceID: a.DeviceID, LocalPortNum: 2, PartitionCap: 32}
	}
}

// twoPorts is a small tree of adapters whose second ports are unplugged.
func twoPorts() *fabric.Fabric {
	m := gen.New()
	spine, first := m.Switch(8), 0
	for i := range 4 {
		leaf := m.Switch(8)
		m.Link(spine, i+1, leaf, 8)
		for k := range 4 {
			h := m.Host(2)
			m.Link(leaf, k+1, h, 1)
			if i+k == 0 {
				first = h
			}
		}
	}
	return m.Done(first)
}

// However much one device pretends to be, the rest comes up in its usual time and
// with little more SMPs, in bounded memory, and the log names the port.
func TestEndlessDevice(t *testing.T) {
	for _, tt := range []struct {
		name  string
		node  func([]uint8) mad.NodeInfo
		most  int           // false answers of the first sweep
		later int           // false answers of ten minutes
		delay time.Duration // to each lie
		up    time.Duration // when the rest is up
	}{
		{"254 ports", liarNode(254, false), 10_000, 150_000, 0, 100 * time.Millisecond},
		{"36 ports", liarNode(36, false), 10_000, 150_000, 0, 100 * time.Millisecond},
		{"3 ports", liarNode(3, false), 10_000, 150_000, 0, 100 * time.Millisecond},
		{"254 ports with hosts", liarNode(254, true), 30_000, 450_000, 0, 100 * time.Millisecond},
		{"254 ports, doubled links", doubled(254), 25_000, 1_000_000, 0, 100 * time.Millisecond},
		{"36 ports, doubled links", doubled(36), 25_000, 1_000_000, 0, 100 * time.Millisecond},
		{"rings of 4", ring(36, 4), 25_000, 1_000_000, 0, 100 * time.Millisecond},
		{"rings of 200", ring(254, 200), 25_000, 1_000_000, 0, 100 * time.Millisecond},
		{"a ring of 60000", ring(3, 60_000), 25_000, 1_000_000, 0, 100 * time.Millisecond},
		{"36 ports, behind the manager's adapter", nil, 10_000, 150_000, 0, 100 * time.Millisecond},
		{"36 ports, behind an adapter", nil, 10_000, 150_000, 0, 100 * time.Millisecond},
		{"254 ports, slow", liarNode(254, false), 10_000, 150_000, 190 * time.Millisecond, 5 * time.Second},
		{"254 ports, doubled links, slow", doubled(254), 10_000, 150_000, 190 * time.Millisecond, 5 * time.Second},
		{"rings of 200, slow", ring(254, 200), 10_000, 150_000, 190 * time.Millisecond, 5 * time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := gen.FatTree2(8, 4)
				if tt.node == nil {
					f = twoPorts()
				}
				hosts := slices.DeleteFunc(hostsOf(f), func(p int32) bool { return f.Ports[p].Peer == fabric.None })
				switch tt.name {
				case "36 ports, behind the manager's adapter":
					tt.node = behindAdapter(36, &f.Nodes[f.Ports[f.SMPort].Node])
				case "36 ports, behind an adapter":
					tt.node = behindAdapter(36, &f.Nodes[f.Ports[hosts[5]].Node])
				}
				w := newWorld(t, f, simfabric.Options{})
				defer w.close()
				// The liar has the place of the last host.
				evil := hosts[len(hosts)-1]
				path := pathFrom(t, f, f.SMPort, evil)
				leaf := f.Nodes[f.Ports[f.Ports[evil].Peer].Node].GUID
				e := &endless{begin: path, node: tt.node, delay: tt.delay, ready: make(chan struct{}, 1)}
				log := new(testkit.Buffer)
				s, _ := w.managerOn(f.SMPort, engine.Config{Log: slog.New(slog.NewTextHandler(log, nil))},
					func(tr transport.Transport) transport.Transport {
						e.Transport = tr
						w.wg.Go(e.listen)
						return e
					})
				time.Sleep(tt.up)
				synctest.Wait()
				x := s.Snapshot()
				if x.State != "Master" {
					t.Fatalf("after %v: %s, %d lies", tt.up, x.State, e.falseAnswers())
				}
				for _, h := range hosts {
					if h == evil {
						continue
					}
					if pi, err := w.sim.PortInfo(f.Nodes[f.Ports[h].Node].GUID, f.Ports[h].Num); err != nil || pi.State() != ib.PortActive {
						t.Errorf("%s is %v, %v", f.PortName(h), pi.State(), err)
					}
				}
				if e.falseAnswers() > tt.most {
					t.Errorf("%d SMPs went to the liar, want at most %d", e.falseAnswers(), tt.most)
				}
				if h := heapMiB(); h > 100 {
					t.Errorf("%d MiB are in use", h)
				}
				want := "path " + discover.PathString(path)
				if l := log.String(); !strings.Contains(l, "by one link each") && !strings.Contains(l, "only this link connects") ||
					!strings.Contains(l, want) {
					t.Errorf("the log does not name %s:\n%.2000s", want, l)
				}
				if n := x.Fabric.NodeByGUID(leaf); n == fabric.None || len(x.Retrying) == 0 {
					t.Errorf("the status names %v, want a switch", x.Retrying)
				}
				// It is retried, less and less often; the subnet goes on.
				before := e.falseAnswers()
				time.Sleep(10 * time.Minute)
				synctest.Wait()
				if n := e.falseAnswers() - before; n > tt.later || n == 0 {
					t.Errorf("%d SMPs went to the liar in ten minutes", n)
				}
				if h := heapMiB(); h > 200 {
					t.Errorf("%d MiB are in use", h)
				}
				if x := s.Snapshot(); x.State != "Master" || w.sim.Reaches(f.Ports[hosts[0]].GUID,
					x.Fabric.Ports[x.Fabric.EndPortByGUID(f.Ports[hosts[3]].GUID)].LID) != f.Ports[hosts[3]].GUID {
					t.Errorf("%s, and hosts do not reach each other", x.State)
				}
			})
		})
	}
}

// A real subnet behind one link that is larger than what is walked at once comes up
// after the rest, and stays through later walks.
func TestIsland(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := gen.New()
		stub := m.Switch(4)
		first := m.Host(1)
		m.Link(stub, 1, first, 1)
		const side = 18
		var sw [side * side]int
		for i := range sw {
			sw[i] = m.Switch(5)
		}
		for i := range sw {
			m.Link(sw[i], 1, sw[i/side*side+(i+1)%side], 2)
			m.Link(sw[i], 3, sw[(i+side)%len(sw)], 4)
		}
		m.Link(stub, 2, sw[0], 5)
		host := m.Host(1)
		m.Link(sw[side], 5, host, 1)
		f := m.Done(first)
		w := newWorld(t, f, simfabric.Options{})
		defer w.close()
		s, _ := w.manager(f.SMPort, engine.Config{})
		w.settle(f.SMPort, s, 3*time.Second)
		s.Resweep(true, "test")
		synctest.Wait()
		for range 50 {
			time.Sleep(100 * time.Millisecond)
			if x := s.Snapshot(); len(x.Fabric.Switches) != len(sw)+1 {
				t.Fatalf("after a second sweep there are %d switches", len(x.Fabric.Switches))
			}
		}
	})
}
