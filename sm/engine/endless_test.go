package engine_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"ibnetworkd/ib"
	"ibnetworkd/lab/gen"
	"ibnetworkd/lab/simfabric"
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
	q.MAD[3], q.MAD[4] = uint8(mad.MethodGetResp), q.MAD[4]|0x80
	d := mad.SMPData(&q.MAD)
	*d = [64]byte{}
	switch m.Attr {
	case mad.AttrNodeInfo:
		n := e.node(path)
		n.Append(d[:0])
	case mad.AttrPortInfo:
		d[32], d[33] = byte(ib.PortInit), byte(ib.PhysLinkUp)<<4|2
	case mad.AttrNodeDescription:
		copy(d[:], "liar")
	}
	e.mu.Lock()
	e.lies++
	e.in = append(e.in, q)
	e.mu.Unlock()
	e.wake()
	return nil
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

// told is how many lies there were.
func (e *endless) told() int {
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
		n := mad.NodeInfo{BaseVersion: 1, ClassVersion: 1, NodeType: ib.NodeSwitch, NumPorts: ports, NodeGUID: g, PortGUID: g, SystemImageGUID: g, LocalPortNum: 1, PartitionCap: 32}
		if hosts && len(path) > 4 && path[len(path)-1] > 2 {
			n.NodeType = ib.NodeCA
		}
		return n
	}
}

// However much one device pretends to be, the rest comes up in its usual time and
// with little more SMPs, in bounded memory, and the log names the port.
func TestEndlessDevice(t *testing.T) {
	for _, tt := range []struct {
		name string
		node func([]uint8) mad.NodeInfo
		most int // lies of the first sweep
	}{
		{"254 ports", liarNode(254, false), 10_000},
		{"36 ports", liarNode(36, false), 10_000},
		{"3 ports", liarNode(3, false), 10_000},
		{"254 ports with hosts", liarNode(254, true), 30_000},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := gen.FatTree2(8, 4)
				hosts := hostsOf(f)
				w := newWorld(t, f, simfabric.Options{})
				defer w.close()
				// The liar has the place of the last host.
				evil := hosts[len(hosts)-1]
				path := pathFrom(t, f, f.SMPort, evil)
				leaf := f.Nodes[f.Ports[f.Ports[evil].Peer].Node].GUID
				e := &endless{begin: path, node: tt.node, ready: make(chan struct{}, 1)}
				log := new(buffer)
				s, _ := w.managerOn(f.SMPort, engine.Config{Log: slog.New(slog.NewTextHandler(log, nil))}, func(tr transport.Transport) transport.Transport {
					e.Transport = tr
					w.wg.Go(e.listen)
					return e
				})
				time.Sleep(100 * time.Millisecond)
				synctest.Wait()
				x := s.Snapshot()
				if x.State != "Master" {
					t.Fatalf("after 100 ms: %s, %d lies", x.State, e.told())
				}
				for _, h := range hosts {
					if h == evil {
						continue
					}
					if pi, err := w.sim.PortInfo(f.Nodes[f.Ports[h].Node].GUID, f.Ports[h].Num); err != nil || pi.State != ib.PortActive {
						t.Errorf("%s is %v, %v", f.PortName(h), pi.State, err)
					}
				}
				if e.told() > tt.most {
					t.Errorf("%d SMPs went to the liar, want at most %d", e.told(), tt.most)
				}
				if h := heapMiB(); h > 100 {
					t.Errorf("%d MiB are in use", h)
				}
				want := fmt.Sprintf("[%d]", f.Ports[f.Ports[evil].Peer].Num)
				if l := log.String(); !strings.Contains(l, "hang on one link each") || !strings.Contains(l, want) {
					t.Errorf("the log does not name port %s of %v:\n%.2000s", want, leaf, l)
				}
				if n := x.Fabric.NodeByGUID(leaf); n == fabric.None || len(x.Retrying) != 1 || x.Retrying[0] != leaf {
					t.Errorf("the status names %v, want the switch that the liar hangs on, %v", x.Retrying, leaf)
				}
				// It is tried again, less and less often; the subnet goes on.
				before := e.told()
				time.Sleep(10 * time.Minute)
				synctest.Wait()
				if n := e.told() - before; n > 15*tt.most || n == 0 {
					t.Errorf("%d SMPs went to the liar in ten minutes", n)
				}
			})
		})
	}
}
