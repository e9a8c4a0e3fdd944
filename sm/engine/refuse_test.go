package engine_test

import (
	"context"
	"log/slog"
	"strings"
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
	"ibnetworkd/sm/qos"
	"ibnetworkd/sm/transport"
)

// refusal is a transport on which some nodes refuse some requests: their answers get
// a status.
type refusal struct {
	transport.Transport
	refuse func(path []uint8, a mad.AttrID, mod uint32) bool
	silent bool // they do not answer instead
}

func (r refusal) Recv(ctx context.Context, into []transport.Packet) (int, error) {
	n, err := r.Transport.Recv(ctx, into)
	for i := range into[:n] {
		p := &into[i]
		if p.Err == nil && mad.ClassOf(&p.MAD) == mad.ClassSubnDR && mad.MethodOf(&p.MAD) == mad.MethodGetResp && mad.TIDOf(&p.MAD)>>31&1 == 0 {
			var m mad.SMP
			m.Decode(&p.MAD)
			switch hit := r.refuse(m.Path(), m.Attr, m.Mod); {
			case hit && r.silent:
				p.Err = transport.ErrTimeout
			case hit:
				mad.SetStatus(&p.MAD, mad.StatusInvalidField|mad.StatusDirection)
			}
		}
	}
	return n, err
}

// A node that refuses what is not needed to carry packets is brought up all the
// same, with what is attached to it; the log and the status name it.
func TestRefusedTables(t *testing.T) {
	keyed, err := partition.Parse("partitions", []byte("Default=0x7fff, defmember=full: ALL;\nblue=0x0b01, defmember=full: ALL;\n"))
	testkit.NoError(t, err)
	for _, tt := range []struct {
		name string
		attr mad.AttrID
		cfg  engine.Config
		host bool
	}{
		{"a host's P_Key table", mad.AttrPKeyTable, engine.Config{Partitions: keyed}, true},
		{"switches' P_Key tables", mad.AttrPKeyTable, engine.Config{Partitions: keyed, Enforce: pkey.EnforceBoth}, false},
		{"switches' SL to VL tables", mad.AttrSLtoVL, engine.Config{QoS: &qos.Options{}}, false},
		{"switches' VL arbitration", mad.AttrVLArb, engine.Config{QoS: &qos.Options{}}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := gen.FatTree2(8, 4)
				w := newWorld(t, f, simfabric.Options{})
				w.keys = nil
				defer w.close()
				hosts := hostsOf(f)
				log := new(testkit.Buffer)
				tt.cfg.Log = slog.New(slog.NewTextHandler(log, nil))
				s, _ := w.managerOn(f.SMPort, tt.cfg, func(tr transport.Transport) transport.Transport {
					return refusal{Transport: tr, refuse: func(path []uint8, a mad.AttrID, mod uint32) bool {
						if a != tt.attr || len(path) == 0 {
							return false
						}
						if tt.host {
							return len(path) == 4 && path[3] == 1
						}
						return len(path) == 3 // leaves
					}}
				})
				w.settle(hosts[0], s, 2*time.Second)
				if x := s.Snapshot(); !w.sim.AllActive() || len(x.Retrying) == 0 {
					t.Errorf("all active: %v, %d nodes are named", w.sim.AllActive(), len(x.Retrying))
				}
				if l := log.String(); !strings.Contains(l, "attribute="+mad.AttrName(mad.ClassSubnDR, tt.attr)) ||
					!strings.Contains(l, "status=") || !strings.Contains(l, "guid=") {
					t.Errorf("the log is:\n%s", l)
				}
			})
		})
	}
}

// Where routing needs lanes that a switch does not give, it does without.
func TestRefusedLanes(t *testing.T) {
	inWorld(t, gen.Torus([]int{5, 5}, 1), simfabric.Options{}, func(t *testing.T, w *world, f *fabric.Fabric, _ []int32) {
		s, _ := w.managerOn(f.SMPort, engine.Config{QoS: &qos.Options{}}, func(tr transport.Transport) transport.Transport {
			return refusal{Transport: tr, refuse: func(path []uint8, a mad.AttrID, mod uint32) bool { return a == mad.AttrSLtoVL && len(path) == 3 }}
		})
		// settle finds a credit loop where only service levels prevent one.
		w.settle(f.SMPort, s, 5*time.Second)
	})
}

// A host 63 hops away is reached; what is behind a switch 63 hops away is reported as
// out of reach, and not as a duplicate.
func TestLongChain(t *testing.T) {
	for _, n := range []int{62, 63, 64} {
		inWorld(t, gen.Mesh([]int{n}, 1), simfabric.Options{}, func(t *testing.T, w *world, f *fabric.Fabric, _ []int32) {
			log := new(testkit.Buffer)
			s, _ := w.manager(f.SMPort, engine.Config{Log: slog.New(slog.NewTextHandler(log, nil))})
			time.Sleep(5 * time.Second)
			synctest.Wait()
			x := s.Snapshot()
			far := max(0, n-62) + max(0, n-63)
			if len(x.Fabric.Nodes) != len(f.Nodes)-far {
				t.Errorf("chain of %d: %d of %d nodes were found, want all but %d", n, len(x.Fabric.Nodes), len(f.Nodes), far)
			}
			if said := strings.Contains(log.String(), "out of reach"); said != (far > 0) || strings.Contains(log.String(), "duplicate") {
				t.Errorf("chain of %d: the log is\n%s", n, log.String())
			}
			if shown := strings.Join(x.Problems, "\n"); strings.Contains(shown, "behind port S-0063[") != (far > 0) || far == 0 && shown != "" {
				t.Errorf("chain of %d: the status has %q", n, x.Problems)
			}
			for _, e := range x.Fabric.EndPorts {
				p := &x.Fabric.Ports[e]
				if pi, err := w.sim.PortInfo(x.Fabric.Nodes[p.Node].GUID, p.Num); p.Num != 0 && (err != nil || pi.State() != ib.PortActive) {
					t.Errorf("chain of %d: %s is %v, %v", n, x.Fabric.PortName(e), pi.State(), err)
				}
			}
		})
	}
}
