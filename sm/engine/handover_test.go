package engine_test

import (
	"context"
	"log/slog"
	"strings"
	"sync"
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
	"ibnetworkd/sm/sa"
	"ibnetworkd/sm/saprobe"
	"ibnetworkd/sm/transport"
)

// However long the new master takes to learn the subnet, hosts get answers all
// the time: when a better manager joins, and when the master is stopped.
func TestHandoverIsNotHeard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const delay = 2 * time.Millisecond
		f := gen.FatTree2(8, 4)
		w := newWorld(t, f, simfabric.Options{DelayMin: delay, DelayMax: delay})
		defer w.close()
		hosts := hostsOf(f)
		// One SMP at a time: a sweep takes a second.
		a, _ := w.manager(hosts[0], engine.Config{Priority: 1, Window: 1})
		w.settle(hosts[0], a, time.Minute)
		tr, err := w.sim.OpenClient(f.Ports[hosts[9]].GUID, false)
		testkit.NoError(t, err)
		p := saprobe.Start(tr)
		defer p.Stop()
		testkit.NoError(t, p.WaitAnswer(time.Now(), time.Second))
		quiet := func(what string, begin time.Time) {
			t.Helper()
			if err := p.WaitAnswer(time.Now(), time.Second); err != nil {
				t.Fatalf("%s: %v", what, err)
			}
			took := time.Since(begin)
			if d := p.Silence(begin); d > 2*saprobe.Every+8*delay {
				t.Errorf("%s: the SA was silent for %v of %v", what, d, took)
			} else {
				t.Logf("%s: silent for %v of %v", what, d, took)
			}
		}
		begin := time.Now()
		b, stop := w.manager(hosts[5], engine.Config{Priority: 9, Window: 1})
		w.settle(hosts[5], b, time.Minute)
		quiet("a better manager joins", begin)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if x := a.Snapshot(); x.State != "Standby" {
			t.Fatalf("the worse manager is %s", x.State)
		}
		begin = time.Now()
		stop()
		w.settle(hosts[0], a, time.Minute)
		quiet("the master is stopped", begin)
	})
}

// other is a subnet manager that a test plays.
type other struct {
	tr     transport.Transport
	mu     sync.Mutex
	info   mad.SMInfo
	status mad.Status
	obeys  bool       // takes the subnet when it is handed over
	seen   mad.SMInfo // what a Set showed last
	traps  int
	keys   []uint64 // SM_Keys that were shown to it

	handsOver bool // when a trap comes while it is master
}

func (o *other) set(f func(*other)) {
	o.mu.Lock()
	defer o.mu.Unlock()
	f(o)
}

func (w *world) other(t *testing.T, port int32, info mad.SMInfo) *other {
	t.Helper()
	tr, err := w.sim.Open(w.f.Ports[port].GUID)
	testkit.NoError(t, err)
	testkit.NoError(t, tr.SetIsSM(true))
	info.GUID = w.f.Ports[port].GUID
	o := &other{tr: tr, info: info}
	w.stop = append(w.stop, func() { tr.Close() })
	w.wg.Go(func() {
		in := make([]transport.Packet, 1)
		for {
			if _, err := tr.Recv(context.Background(), in); err != nil {
				return
			}
			p := in[0]
			var i mad.SMInfo
			if p.Err == nil && mad.AttrOf(&p.MAD) == mad.AttrSMInfo && i.Decode(mad.SMPData(&p.MAD)[:]) == nil && i.SMKey != 0 {
				o.set(func(o *other) { o.keys = append(o.keys, i.SMKey) })
			}
			if mad.MethodOf(&p.MAD) == mad.MethodTrap {
				o.set(func(o *other) {
					o.traps++
					if o.handsOver && o.info.State == mad.SMMaster {
						var k transport.Packet
						k.LID = p.LID
						mad.PutLR(&k.MAD, mad.MethodSet, mad.AttrSMInfo, mad.SMInfoHandover, 77, 0, o.info.Append(nil))
						o.info.State = mad.SMStandby
						_ = tr.Send(&k)
					}
				})
			}
			if m := mad.MethodOf(&p.MAD); m != mad.MethodGet && m != mad.MethodSet || mad.AttrOf(&p.MAD) != mad.AttrSMInfo {
				continue
			}
			o.mu.Lock()
			if mad.MethodOf(&p.MAD) == mad.MethodSet {
				if o.seen.Decode(mad.SMPData(&p.MAD)[:]); !o.obeys {
					o.mu.Unlock()
					continue
				}
				o.info.State = mad.SMMaster
			}
			p.MAD[3] = uint8(mad.MethodGetResp)
			mad.SetStatus(&p.MAD, o.status|mad.StatusDirection)
			o.info.Append(mad.SMPData(&p.MAD)[:0])
			o.mu.Unlock()
			_ = tr.Send(&p)
		}
	})
	return o
}

// A master that is busy counts as alive; one whose host answers that it has no
// manager does not.
func TestBusyMasterIsAlive(t *testing.T) {
	inWorld(t, gen.FatTree2(8, 4), simfabric.Options{}, func(t *testing.T, w *world, f *fabric.Fabric, hosts []int32) {
		o := w.other(t, hosts[0], mad.SMInfo{Priority: 9, State: mad.SMMaster})
		s, _ := w.manager(hosts[5], engine.Config{})
		state := func(status mad.Status, want string) {
			t.Helper()
			o.mu.Lock()
			o.status = status
			o.mu.Unlock()
			time.Sleep(5 * time.Second)
			synctest.Wait()
			if x := s.Snapshot(); x.State != want {
				t.Errorf("with status %#x: %s, want %s", uint16(status), x.State, want)
			}
		}
		state(mad.StatusOK, "Standby")
		state(mad.StatusBusy, "Standby")
		state(mad.StatusBadAttr, "Master")
	})
}

// Managers with the same key hand over, others do not.
func TestSMKey(t *testing.T) {
	for _, tt := range []struct {
		key  uint64
		want string
	}{{0x5ec2e7, "Master"}, {7, "Standby"}} {
		inWorld(t, gen.FatTree2(8, 4), simfabric.Options{}, func(t *testing.T, w *world, f *fabric.Fabric, hosts []int32) {
			a, _ := w.manager(hosts[0], engine.Config{SMKey: 0x5ec2e7})
			w.settle(hosts[0], a, time.Second)
			b, _ := w.manager(hosts[5], engine.Config{SMKey: tt.key, Priority: 9})
			time.Sleep(time.Minute)
			synctest.Wait()
			if x := b.Snapshot(); x.State != tt.want {
				t.Errorf("with key %#x: %s, want %s", tt.key, x.State, tt.want)
			}
		})
	}
}

// A better manager that does not answer a handover once is asked again at once, for SMPs may
// be lost; one that never does, a few times a minute.
func TestHandoverLost(t *testing.T) {
	inWorld(t, gen.FatTree2(8, 4), simfabric.Options{}, func(t *testing.T, w *world, f *fabric.Fabric, hosts []int32) {
		var log testkit.Buffer
		a, _ := w.manager(hosts[0], engine.Config{Log: slog.New(slog.NewTextHandler(&log, nil))})
		w.settle(hosts[0], a, time.Second)
		o := w.other(t, hosts[5], mad.SMInfo{Priority: 9, State: mad.SMStandby})
		wait := func(text string, most time.Duration) {
			t.Helper()
			for range most / (100 * time.Millisecond) {
				if time.Sleep(100 * time.Millisecond); strings.Contains(log.String(), text) {
					return
				}
			}
			t.Fatalf("no %q in %v:\n%s", text, most, log.String())
		}
		wait("handover not answered", time.Minute)
		if strings.Contains(log.String(), "refused the subnet") {
			t.Errorf("one lost SMP is a refusal:\n%s", log.String())
		}
		wait("refused the subnet", 20*time.Second)
		time.Sleep(5 * time.Minute)
		if n := strings.Count(log.String(), "handing over"); n < 6 || n > 14 {
			t.Errorf("%d handovers in 5 minutes", n)
		}
		// After the pause, one that is not answered does not stop the next.
		for range 2 {
			n := strings.Count(log.String(), "handover not answered")
			for strings.Count(log.String(), "handover not answered") == n {
				time.Sleep(100 * time.Millisecond)
			}
		}
		o.set(func(o *other) { o.obeys = true })
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if x := a.Snapshot(); x.State != "Standby" {
			t.Errorf("%s:\n%s", x.State, log.String())
		}
	})
}

// What hosts registered with a manager before another one was master is forgotten: a
// group that they made again with the other may be a different one now. It begins with
// what they registered with the other if it may copy that.
func TestFormerMasterForgets(t *testing.T) {
	for _, key := range []uint64{0, 2} {
		synctest.Test(t, func(t *testing.T) { testFormerMaster(t, key) })
	}
}

func testFormerMaster(t *testing.T, key uint64) {
	copies := 0
	if key == 0 {
		copies = 1
	}
	f := gen.FatTree2(8, 4)
	w := newWorld(t, f, simfabric.Options{})
	defer w.close()
	hosts := hostsOf(f)
	a, _ := w.manager(hosts[0], engine.Config{})
	w.settle(hosts[0], a, time.Second)
	c := w.client(t, hosts[2])
	join := func(m mad.Method, q ib.QKey) {
		t.Helper()
		st, _, err := c.ask(m, mad.AttrMCMemberRecord, mad.CompMCMGID|mad.CompMCPortGID|mad.CompMCJoinState|
			mad.CompMCQKey|mad.CompMCPKey|mad.CompMCTClass|mad.CompMCFlowLabel|mad.CompMCSL,
			&mad.MCMemberRecord{MGID: ib.GID{0xff, 0x12, 15: 1}, PortGID: ib.MakeGID(ib.DefaultPrefix, f.Ports[hosts[2]].GUID),
				JoinState: mad.JoinFull, PKey: ib.DefaultPKey, QKey: q})
		if st != 0 || err != nil {
			t.Errorf("join with Q_Key %#x: status %#x, %v", uint32(q), uint16(st), err)
		}
	}
	join(mad.MethodSet, 1)
	b, stop := w.manager(hosts[5], engine.Config{Priority: 9, SA: sa.Config{SAKey: key}})
	w.settle(hosts[5], b, 10*time.Second)
	if copies > 0 {
		join(mad.MethodDelete, 1)
	}
	join(mad.MethodSet, 2)
	time.Sleep(time.Second)
	stop()
	w.settle(hosts[0], a, 10*time.Second)
	if err := a.Leaks(copies); err != nil {
		t.Error(err)
	}
	join(mad.MethodSet, 2)
}

// A manager that is handed the subnet while it walks it serves with what it
// found and does not walk it again.
func TestHandoverWhileDiscovering(t *testing.T) {
	opt := simfabric.Options{DelayMin: 5 * time.Millisecond, DelayMax: 5 * time.Millisecond}
	inWorld(t, gen.FatTree2(8, 4), opt, func(t *testing.T, w *world, f *fabric.Fabric, hosts []int32) {
		a, stop := w.manager(hosts[0], engine.Config{})
		w.settle(hosts[0], a, 10*time.Second)
		g, n := f.Nodes[f.Ports[hosts[5]].Node].GUID, f.Ports[hosts[5]].Num
		pi, err := w.sim.PortInfo(g, n)
		testkit.NoError(t, err)
		stop()
		c := w.client(t, hosts[3])
		log := new(testkit.Buffer)
		b, _ := w.manager(hosts[5], engine.Config{Log: slog.New(slog.NewTextHandler(log, nil))})
		time.Sleep(30 * time.Millisecond)
		if x := b.Snapshot(); x.State != "Discovering" {
			t.Fatalf("%s already", x.State)
		}
		info := mad.SMInfo{GUID: f.Ports[hosts[3]].GUID, State: mad.SMMaster}
		k := transport.Packet{LID: pi.LID()}
		mad.PutLR(&k.MAD, mad.MethodSet, mad.AttrSMInfo, mad.SMInfoHandover, 1, 0, info.Append(nil))
		c.tid = 1
		if r, err := c.exchange(&k); err != nil || mad.StatusOf(&r.MAD) != 0 {
			t.Fatalf("status %#x, %v", uint16(mad.StatusOf(&r.MAD)), err)
		}
		w.settle(hosts[5], b, 10*time.Second)
		if s := log.String(); strings.Count(s, "sweep=full") != 1 || !strings.Contains(s, "was=Discovering now=Master") {
			t.Error(s)
		}
	})
}
