package engine_test

import (
	"context"
	"sync"
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
	"ibnetworkd/sm/sa"
	"ibnetworkd/sm/transport"
)

var testGroups = []ib.GID{{0xff, 0x12, 15: 1}, {0xff, 0x12, 15: 2}}

// members are hosts that join the groups of testGroups whenever they are asked to
// register, and when their ports become Active.
type members struct {
	mu    sync.Mutex
	hosts map[ib.GUID]*listener
	asked atomic.Int64
}

func (m *members) reregister(g ib.GUID) {
	m.asked.Add(1)
	m.mu.Lock()
	defer m.mu.Unlock()
	if l := m.hosts[g]; l != nil {
		l.forget()
	}
}

// begin lets the hosts at the ports run.
func (m *members) begin(ctx context.Context, w *world, ports []int32) (ls []*listener) {
	state := map[ib.GID]uint8{}
	for _, g := range testGroups {
		state[g] = mad.JoinFull
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, p := range ports {
		l := &listener{w: w, port: p, state: state, told: make(chan struct{}, 1), joined: map[ib.GID]ib.LID{}}
		m.hosts[w.f.Ports[p].GUID] = l
		w.wg.Go(func() { l.run(ctx) })
		ls = append(ls, l)
	}
	return ls
}

// joined counts the memberships that hosts know of.
func joined(ls []*listener) (n int) {
	for _, l := range ls {
		l.mu.Lock()
		n += len(l.joined)
		l.mu.Unlock()
	}
	return n
}

// What a takeover costs 972 hosts that are in two groups each: SMPs by what they set,
// requests to register and joins, where the standby has no copy and where it has.
func TestTakeoverOf972(t *testing.T) {
	if testing.Short() {
		t.Skip("12 s")
	}
	type cost struct {
		gets, portInfo, lft, mft, asked int
		joins                           uint64
	}
	f := gen.FatTree3(36, 3, 18)
	hosts := hostsOf(f)
	end := map[string]func(stop func(), kill func()){
		"the master dies":       func(_, kill func()) { kill() },
		"the master hands over": func(stop, _ func()) { stop() },
	}
	for name, end := range end {
		got := map[string]cost{}
		for how, cfg := range map[string]engine.Config{"no copy": {SA: sa.Config{SAKey: 2}}, "copy": {Reregister: engine.ReregisterNever},
			"adapters that do not report it": {}} {
			synctest.Test(t, func(t *testing.T) {
				m := &members{hosts: map[ib.GUID]*listener{}}
				w := newWorld(t, f, simfabric.Options{Reregister: m.reregister})
				ctx, cancel := context.WithCancel(context.Background())
				defer w.close()
				defer cancel()
				a := &seat{port: hosts[0], prio: 5}
				w.sit(a, engine.Config{Sweep: -1})
				time.Sleep(10 * time.Second)
				cfg.Sweep, cfg.Priority = -1, 1
				b, _ := w.manager(hosts[500], cfg)
				ls := m.begin(ctx, w, hosts)
				time.Sleep(10 * time.Second)
				synctest.Wait()
				if n := joined(ls); n != 2*len(hosts) {
					t.Fatalf("%d memberships", n)
				}
				before, asked := w.sim.Counters(), m.asked.Load()
				end(a.stop, a.kill)
				time.Sleep(20 * time.Second)
				synctest.Wait()
				x := b.Refresh()
				if err := b.Leaks(2 * len(hosts)); err != nil || x.State != "Master" || joined(ls) != 2*len(hosts) {
					t.Errorf("%s, %s: %s, %v; hosts have %d memberships", name, how, x.State, err, joined(ls))
				}
				for _, l := range ls[:1] {
					for g := range l.state {
						mlid, _ := l.in(g)
						if n := len(w.sim.Multicast(w.f.Ports[l.port].GUID, mlid)); n != len(hosts)-1 {
							t.Errorf("%s, %s: a packet to %v reaches %d hosts", name, how, g, n)
						}
					}
				}
				after := w.sim.Counters()
				c := cost{asked: int(m.asked.Load() - asked), joins: x.SACounters.Requests["MCMemberRecord"]}
				set := func(at mad.AttrID) int { return int(after.SMPs[at].Set - before.SMPs[at].Set) }
				for at := range after.SMPs {
					if at != mad.AttrSMInfo {
						c.gets += int(after.SMPs[at].Get - before.SMPs[at].Get)
					}
				}
				c.portInfo, c.lft, c.mft = set(mad.AttrPortInfo), set(mad.AttrLFT), set(mad.AttrMFT)
				got[how] = c
			})
		}
		for how, c := range got {
			// Two changes that are reported together are read once.
			if c.gets < 14490 || c.gets > 14502 {
				t.Errorf("%s, %s: %d Gets, want 14490 to 14502", name, how, c.gets)
			}
			c.gets = 14502
			got[how] = c
		}
		want := cost{gets: 14502, portInfo: 1107, lft: 0, mft: 235, asked: 972, joins: 1944}
		if got["no copy"] != want || got["adapters that do not report it"] != want {
			t.Errorf("%s: %+v, want %+v", name, got, want)
		}
		if want.asked, want.joins = 0, 0; got["copy"] != want {
			t.Errorf("%s, with a copy: %+v, want %+v", name, got["copy"], want)
		}
	}
}

// A host that was answered is a member whatever happens to the master then.
func TestAnsweredIsCopied(t *testing.T) {
	inWorld(t, gen.FatTree2(8, 4), simfabric.Options{}, func(t *testing.T, w *world, f *fabric.Fabric, hosts []int32) {
		a := &seat{port: hosts[0], prio: 5}
		w.sit(a, engine.Config{})
		w.settle(hosts[0], a.sub, time.Second)
		b, stopB := w.manager(hosts[5], engine.Config{})
		time.Sleep(5*time.Second + 7*time.Millisecond)
		c := w.client(t, hosts[2])
		join := func(what string, most time.Duration) {
			t.Helper()
			c.tid++
			h := mad.NewSA(mad.MethodSet, mad.AttrMCMemberRecord, c.tid, mad.CompMCMGID|mad.CompMCPortGID|mad.CompMCJoinState|
				mad.CompMCQKey|mad.CompMCPKey|mad.CompMCTClass|mad.CompMCFlowLabel|mad.CompMCSL)
			r := mad.MCMemberRecord{MGID: ib.GID{0xff, 0x12, 14: 1, 15: uint8(c.tid)}, JoinState: mad.JoinFull, PKey: ib.DefaultPKey,
				PortGID: ib.MakeGID(ib.DefaultPrefix, f.Ports[hosts[2]].GUID)}
			p, _ := c.tr.Port()
			k := transport.Packet{LID: p.SMLID, QPN: 1}
			k.SetMessage(r.Append(h.Append(nil)), false)
			begin := time.Now()
			for {
				got, err := c.exchange(&k) // repeats after 200 ms
				if err == nil && mad.StatusOf(&got.MAD) == 0 {
					break
				}
				if time.Since(begin) > 2*most {
					t.Fatalf("%s: %v, status %#x", what, err, uint16(mad.StatusOf(&got.MAD)))
				}
			}
			if d := time.Since(begin); d > most {
				t.Errorf("%s: answered after %v", what, d)
			} else {
				t.Logf("%s: answered after %v", what, d)
			}
		}
		join("with a standby", 300*time.Millisecond)
		a.kill()
		w.settle(hosts[5], b, 10*time.Second)
		if err := b.Leaks(1); err != nil {
			t.Error(err)
		}
		w.sit(a, engine.Config{})
		w.settle(hosts[0], a.sub, 10*time.Second)
		time.Sleep(time.Second)
		if err := a.sub.Leaks(1); err != nil {
			t.Error(err)
		}
		// A standby that dies delays the next answers until its lease has run out.
		stopB()
		join("without a standby", 2*time.Second)
		join("later", 50*time.Millisecond)
		a.stop()
	})
}
