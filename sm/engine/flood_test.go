package engine_test

import (
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
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

// until waits in real time.
func until(t *testing.T, most time.Duration, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(most); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("after %v: not %s", most, what)
		}
	}
}

// flooder sends what a hostile program on a host can: requests as raw packets,
// the answers to which it ignores.
type flooder struct {
	raw *simfabric.Raw
	sm  ib.LID
	gid ib.GID
	n   uint64

	path []uint8 // to the manager
}

func (w *world) flooder(t *testing.T, port int32) *flooder {
	t.Helper()
	raw, err := w.sim.OpenRaw(w.f.Ports[port].GUID, func(*transport.Packet) {})
	testkit.NoError(t, err)
	pi, err := w.sim.PortInfo(w.f.Nodes[w.f.Ports[port].Node].GUID, w.f.Ports[port].Num)
	testkit.NoError(t, err)
	return &flooder{raw: raw, sm: pi.MasterSMLID(), gid: ib.MakeGID(ib.DefaultPrefix, w.f.Ports[port].GUID)}
}

func (f *flooder) sa(m mad.Method, a mad.AttrID, mask mad.CompMask, rec interface{ Append([]byte) []byte }) {
	f.n++
	h := mad.NewSA(m, a, uint32(f.n), mask)
	k := transport.Packet{LID: f.sm, QPN: 1}
	k.SetMessage(rec.Append(h.Append(nil)), false)
	mad.SetTID(&k.MAD, f.n)
	f.raw.Send(&k)
}

func (f *flooder) paths() { f.sa(mad.MethodGetTable, mad.AttrPathRecord, 0, &mad.PathRecord{}) }

func (f *flooder) join() {
	g := ib.GID{0xff, 0x12, 0x60, 0x1b, 0xff, 0xff, 12: byte(f.n >> 24), 13: byte(f.n >> 16), 14: byte(f.n >> 8), 15: byte(f.n)}
	f.sa(mad.MethodSet, mad.AttrMCMemberRecord,
		mad.CompMCMGID|mad.CompMCPortGID|mad.CompMCJoinState|mad.CompMCQKey|mad.CompMCPKey|mad.CompMCSL|mad.CompMCFlowLabel|mad.CompMCTClass,
		&mad.MCMemberRecord{MGID: g, PortGID: f.gid, JoinState: mad.JoinFull, QKey: 0xb1b, PKey: 0xffff})
}

func (f *flooder) subscribe() {
	f.sa(mad.MethodSet, mad.AttrInformInfo, 0, &mad.InformInfo{LIDRangeBegin: 0xffff, Subscribe: true, Generic: true, Type: 0xffff,
		TrapNumber: uint16(f.n), QPN: 1, Producer: 0xffffff})
}

func (f *flooder) trap(kind uint16, top int) {
	f.n++
	n := mad.Notice{Generic: true, Type: mad.NoticeUrgent, Producer: 2, TrapNumber: kind, IssuerLID: ib.LID(1 + f.n%uint64(top))}
	n.SetDetailSwitchLID(n.IssuerLID)
	p := transport.Packet{LID: f.sm}
	mad.PutLR(&p.MAD, mad.MethodTrap, mad.AttrNotice, 0, f.n, 0, n.AppendSMP(nil))
	f.raw.Send(&p)
}

func (f *flooder) noise(rnd *rand.Rand) {
	var p transport.Packet
	p.LID, p.QPN = f.sm, 1
	h := mad.NewSA(mad.Method(rnd.IntN(256)), mad.AttrID(rnd.IntN(256)), rnd.Uint32(), mad.CompMask(rnd.Uint64()))
	h.Append(p.MAD[:0])
	for i := mad.SADataOffset; i < mad.Size; i++ {
		p.MAD[i] = byte(rnd.Uint32())
	}
	f.raw.Send(&p)
}

// smInfo sends a question for SMInfo or an order, of which no two are the same.
func (f *flooder) smInfo(m mad.Method, path []uint8) {
	f.n++
	info := mad.SMInfo{GUID: ib.GUID(f.n), State: mad.SMMaster, Priority: 15, ActCount: uint32(f.n)}
	p := transport.Packet{LID: f.sm}
	mod := uint32(m-mad.MethodGet) * mad.SMInfoHandover
	if path == nil {
		mad.PutLR(&p.MAD, m, mad.AttrSMInfo, mod, f.n, 0, info.Append(nil))
	} else {
		p.LID = ib.LIDPermissive
		mad.PutDR(&p.MAD, m, mad.AttrSMInfo, mod, f.n, 0, path, info.Append(nil))
	}
	f.raw.Send(&p)
}

// tableTime is what the answer to a request for all paths costs, askTime any other
// request, both as measured with 648 hosts.
const (
	tableTime = 35 * time.Millisecond
	askTime   = 50 * time.Microsecond
)

// charged has a manager's requests cost time.
func charged(s *engine.Subnet) {
	s.Charge(func(p *transport.Packet) {
		if mad.ClassOf(&p.MAD) == mad.ClassSA && mad.MethodOf(&p.MAD) == mad.MethodGetTable {
			time.Sleep(tableTime)
			return
		}
		time.Sleep(askTime)
	})
}

// Whatever one host sends, the others have their answers within 100 ms and no
// manager changes its state. The time is virtual: a request costs what it was
// measured to cost, not what it takes here.
func TestFlood(t *testing.T) {
	const most = 100 * time.Millisecond
	for _, tt := range []struct {
		name  string
		burst int // at once, before the first question
		turn  int // each 10 ms
		send  func(f *flooder, w *world, rnd *rand.Rand)
	}{
		{"paths, 2000 at once", 2000, 0, func(f *flooder, _ *world, _ *rand.Rand) { f.paths() }},
		{"paths, 200 a second", 0, 2, func(f *flooder, _ *world, _ *rand.Rand) { f.paths() }},
		{"paths, 10,000 a second", 2000, 100, func(f *flooder, _ *world, _ *rand.Rand) { f.paths() }},
		{"joins", 2000, 100, func(f *flooder, _ *world, _ *rand.Rand) { f.join() }},
		{"subscriptions", 2000, 100, func(f *flooder, _ *world, _ *rand.Rand) { f.subscribe() }},
		{"trap 128", 2000, 100, func(f *flooder, w *world, _ *rand.Rand) { f.trap(mad.TrapLinkStateChange, len(w.f.EndPorts)) }},
		{"trap 144", 2000, 100, func(f *flooder, w *world, _ *rand.Rand) { f.trap(mad.TrapCapMaskChange, len(w.f.EndPorts)) }},
		{"SMInfo by LID", 2000, 100, func(f *flooder, _ *world, _ *rand.Rand) { f.smInfo(mad.MethodGet, nil) }},
		{"SMInfo by route", 2000, 100, func(f *flooder, _ *world, _ *rand.Rand) { f.smInfo(mad.MethodGet, f.path) }},
		{"orders by LID", 2000, 100, func(f *flooder, _ *world, _ *rand.Rand) { f.smInfo(mad.MethodSet, nil) }},
		{"orders by route", 2000, 100, func(f *flooder, _ *world, _ *rand.Rand) { f.smInfo(mad.MethodSet, f.path) }},
		{"noise", 2000, 100, func(f *flooder, _ *world, rnd *rand.Rand) { f.noise(rnd) }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			inWorld(t, gen.FatTree2(8, 4), simfabric.Options{TrapRepeats: -1}, func(t *testing.T, w *world, f *fabric.Fabric, hosts []int32) {
				a, _ := w.manager(hosts[0], engine.Config{Priority: 14, SMKey: secret})
				w.settle(hosts[0], a, time.Second)
				b, _ := w.manager(hosts[1], engine.Config{Priority: 1, SMKey: secret})
				time.Sleep(5 * time.Second)
				charged(a)
				charged(b)
				evil := w.flooder(t, hosts[5])
				evil.path = pathFrom(t, f, hosts[5], hosts[0])
				c := w.client(t, hosts[9])
				rnd := rand.New(rand.NewPCG(1, 1))
				for range tt.burst {
					tt.send(evil, w, rnd)
				}
				stop := make(chan struct{})
				defer close(stop)
				w.wg.Go(func() {
					tick := time.NewTicker(10 * time.Millisecond)
					defer tick.Stop()
					for {
						select {
						case <-tick.C:
							for range tt.turn {
								tt.send(evil, w, rnd)
							}
						case <-stop:
							return
						}
					}
				})
				worst := time.Duration(0)
				for range 100 {
					t0 := time.Now()
					if _, _, err := c.ask(mad.MethodGet, mad.AttrClassPortInfo, 0, &mad.ClassPortInfo{}); err != nil {
						t.Fatalf("another host has no answer: %v", err)
					}
					worst = max(worst, time.Since(t0))
					time.Sleep(5 * time.Millisecond)
				}
				if worst > most {
					t.Errorf("another host's slowest answer took %v, want at most %v", worst, most)
				}
				x, y := a.Refresh(), b.Refresh()
				if x.State != "Master" || y.State != "Standby" {
					t.Fatalf("the managers are %s and %s", x.State, y.State)
				}
				if h := heapMiB(); h > 200 {
					t.Errorf("%d MiB are in use", h)
				}
				t.Logf("slowest %v; %d requests were answered BUSY", worst, x.Counters.Busy)
			})
		})
	}
}

// A hundred hosts that ask for all paths at once, as from cron, are all
// answered, and others do not wait for them.
func TestCrowd(t *testing.T) {
	f := gen.FatTree2(36, 6)
	w := newWorld(t, f, simfabric.Options{})
	defer w.close()
	hosts := hostsOf(f)
	a, _ := w.manager(hosts[0], engine.Config{})
	until(t, 30*time.Second, "up", func() bool { x := a.Snapshot(); return x != nil && x.State == "Master" && w.sim.AllActive() })
	retries := 60
	if runtime.GOMAXPROCS(0) == 1 {
		retries = 200 // with the race detector
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	answered := 0
	for _, h := range hosts[5:105] {
		c := w.client(t, h)
		wg.Go(func() {
			h := mad.NewSA(mad.MethodGetTable, mad.AttrPathRecord, 1, 0)
			c.tid = 1
			p := transport.Packet{LID: mustPort(t, c).SMLID, QPN: 1, Timeout: time.Second, Retries: retries}
			p.SetMessage((&mad.PathRecord{}).Append(h.Append(nil)), false)
			if err := c.tr.Send(&p); err != nil {
				return
			}
			in := make([]transport.Packet, 1)
			if _, err := c.tr.Recv(t.Context(), in); err == nil && in[0].Err == nil && mad.StatusOf(&in[0].MAD) == 0 &&
				len(in[0].Bytes()) > mad.PathRecordLen*len(hosts) {
				mu.Lock()
				answered++
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	if answered != 100 {
		t.Errorf("%d of 100 hosts were answered", answered)
	}
}

func mustPort(t *testing.T, c *client) transport.Port {
	t.Helper()
	p, err := c.tr.Port()
	if err != nil {
		t.Error(err)
	}
	return p
}
