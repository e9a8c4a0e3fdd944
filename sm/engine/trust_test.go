package engine_test

import (
	"log/slog"
	"runtime"
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
	"ibnetworkd/sm/program"
	"ibnetworkd/sm/smp"
	"ibnetworkd/sm/transport"
)

func heapMiB() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc >> 20
}

const secret = 0x1234567890abcdef

// A manager that does not show the key is not handed the subnet, however high its
// priority; one that shows it is. With the default key it need not show any.
func TestForeignKey(t *testing.T) {
	for _, tt := range []struct {
		own, theirs uint64
		want        string
	}{
		{secret, 0, "Master"}, {secret, 1, "Master"}, {secret, 0x4242, "Master"}, {secret, secret, "Standby"},
		{1, 0, "Standby"}, {1, 1, "Standby"}, {1, 2, "Master"}, {0, 2, "Standby"},
	} {
		inWorld(t, gen.Star(6, 8), simfabric.Options{}, func(t *testing.T, w *world, f *fabric.Fabric, hosts []int32) {
			s, _ := w.manager(hosts[0], engine.Config{Priority: 14, SMKey: tt.own, Sweep: 200 * time.Millisecond})
			w.settle(hosts[0], s, time.Second)
			o := w.other(t, hosts[2], mad.SMInfo{Priority: 15, State: mad.SMStandby, SMKey: tt.theirs})
			o.set(func(o *other) { o.obeys = true })
			time.Sleep(5 * time.Second)
			synctest.Wait()
			if x := s.Snapshot(); x.State != tt.want {
				t.Errorf("key %#x beside a better manager with key %#x: %s, want %s", tt.own, tt.theirs, x.State, tt.want)
			}
			o.mu.Lock()
			defer o.mu.Unlock()
			if tt.want == "Master" && o.seen.SMKey == secret {
				t.Error("the key was shown to the other manager")
			}
		})
	}
}

// An ordinary host that asks does not see the key, by LID or by directed route;
// the host of another manager that has it does.
func TestKeyIsHidden(t *testing.T) {
	inWorld(t, gen.Star(6, 8), simfabric.Options{}, func(t *testing.T, w *world, f *fabric.Fabric, hosts []int32) {
		a, _ := w.manager(hosts[0], engine.Config{Priority: 14, SMKey: secret})
		w.settle(hosts[0], a, time.Second)
		b, _ := w.manager(hosts[3], engine.Config{Priority: 1, SMKey: secret})
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if x := b.Snapshot(); x.State != "Standby" {
			t.Fatalf("the worse manager is %s", x.State)
		}
		x := a.Snapshot()
		if len(x.Others) != 1 {
			t.Fatalf("the master knows %v", x.Others)
		}
		ask := func(c *client, lid ib.LID, path []uint8, key ib.MKey, data []byte) (i mad.SMInfo, err error) {
			c.tid++
			k := transport.Packet{LID: lid}
			if path != nil {
				k.LID = ib.LIDPermissive
				mad.PutDR(&k.MAD, mad.MethodGet, mad.AttrSMInfo, 0, uint64(c.tid), key, path, data)
			} else {
				mad.PutLR(&k.MAD, mad.MethodGet, mad.AttrSMInfo, 0, uint64(c.tid), key, data)
			}
			r, err := c.exchange(&k)
			i.Decode(mad.SMPData(&r.MAD)[:])
			return i, err
		}
		claim := (&mad.SMInfo{GUID: f.Ports[hosts[2]].GUID, State: mad.SMMaster, Priority: 15}).Append(nil)
		c := w.client(t, hosts[2])
		for what, m := range map[string]struct {
			guid  ib.GUID
			state mad.SMState
		}{"the master": {f.Ports[hosts[0]].GUID, mad.SMMaster}, "the standby": {f.Ports[hosts[3]].GUID, mad.SMStandby}} {
			to := x.Fabric.EndPortByGUID(m.guid)
			path := pathFrom(t, x.Fabric, x.Fabric.EndPortByGUID(f.Ports[hosts[2]].GUID), to)
			for how, got := range map[string]func() (mad.SMInfo, error){
				"by LID":                          func() (mad.SMInfo, error) { return ask(c, x.Fabric.Ports[to].LID, nil, 0, nil) },
				"by LID, claiming to be master":   func() (mad.SMInfo, error) { return ask(c, x.Fabric.Ports[to].LID, nil, 0, claim) },
				"by route":                        func() (mad.SMInfo, error) { return ask(c, 0, path, 0, nil) },
				"by route, claiming to be master": func() (mad.SMInfo, error) { return ask(c, 0, path, 0, claim) },
				"with an M_Key":                   func() (mad.SMInfo, error) { return ask(c, 0, path, 7, nil) },
			} {
				i, err := got()
				if err != nil || i.GUID != m.guid || i.State != m.state || i.SMKey != 0 {
					t.Errorf("%s asked %s: %+v, %v; want it without its key", what, how, i, err)
				}
			}
		}
	})
}

// pathFrom is a directed route from one host to another.
func pathFrom(t *testing.T, f *fabric.Fabric, from, to int32) []uint8 {
	t.Helper()
	at := map[int32][]uint8{f.Ports[f.Ports[from].Peer].Node: {f.Ports[from].Num}}
	for q := []int32{f.Ports[f.Ports[from].Peer].Node}; len(q) > 0; q = q[1:] {
		first, n := f.PortRange(q[0])
		for p := first + 1; p < first+n; p++ {
			o := f.Ports[p].Peer
			if o == fabric.None {
				continue
			}
			path := smp.PathTo(at[q[0]], f.Ports[p].Num)
			if o == to {
				return path
			}
			if m := f.Ports[o].Node; f.Nodes[m].Switch != fabric.None && at[m] == nil {
				at[m] = path
				q = append(q, m)
			}
		}
	}
	t.Fatal("no path")
	return nil
}

// Orders come from a trusted master alone, with the M_Key where there is one.
func TestOrders(t *testing.T) {
	const mkey = 0x77
	for _, tt := range []struct {
		name  string
		cfg   engine.Config
		key   uint64
		mkey  ib.MKey
		state mad.SMState
		mod   uint32
		want  string // of a standby afterwards
	}{
		{"disable", engine.Config{SMKey: secret}, secret, 0, mad.SMMaster, mad.SMInfoDisable, "NotActive"},
		{"disable without the key", engine.Config{SMKey: secret}, 0, 0, mad.SMMaster, mad.SMInfoDisable, "Standby"},
		{"disable with another key", engine.Config{SMKey: secret}, 5, 0, mad.SMMaster, mad.SMInfoDisable, "Standby"},
		{"disable by a standby", engine.Config{SMKey: secret}, secret, 0, mad.SMStandby, mad.SMInfoDisable, "Standby"},
		{"handover by a standby", engine.Config{SMKey: secret}, secret, 0, mad.SMStandby, mad.SMInfoHandover, "Standby"},
		{"handover without the key", engine.Config{SMKey: secret}, 0, 0, mad.SMMaster, mad.SMInfoHandover, "Standby"},
		{"handover", engine.Config{SMKey: secret}, secret, 0, mad.SMMaster, mad.SMInfoHandover, "Master"},
		{"handover with the default key", engine.Config{SMKey: 1}, 0, 0, mad.SMMaster, mad.SMInfoHandover, "Master"},
		{"disable without the M_Key", mkeyed(engine.Config{SMKey: secret}, mkey), secret, 0, mad.SMMaster, mad.SMInfoDisable, "Standby"},
		{"disable with the M_Key", mkeyed(engine.Config{SMKey: secret}, mkey), secret, mkey, mad.SMMaster, mad.SMInfoDisable, "NotActive"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			inWorld(t, gen.Star(6, 8), simfabric.Options{}, func(t *testing.T, w *world, f *fabric.Fabric, hosts []int32) {
				tt.cfg.Priority = 14
				a, _ := w.manager(hosts[0], tt.cfg)
				w.settle(hosts[0], a, time.Second)
				tt.cfg.Priority = 1
				b, _ := w.manager(hosts[3], tt.cfg)
				time.Sleep(time.Second)
				synctest.Wait()
				if x := b.Snapshot(); x.State != "Standby" {
					t.Fatalf("the worse manager is %s", x.State)
				}
				c := w.client(t, hosts[2])
				info := mad.SMInfo{GUID: f.Ports[hosts[2]].GUID, SMKey: tt.key, State: tt.state, Priority: 15}
				k := transport.Packet{LID: a.Snapshot().Fabric.Ports[a.Snapshot().Fabric.EndPortByGUID(f.Ports[hosts[3]].GUID)].LID}
				c.tid = 1
				mad.PutLR(&k.MAD, mad.MethodSet, mad.AttrSMInfo, tt.mod, 1, tt.mkey, info.Append(nil))
				// The better manager would take the subnet back at once.
				testkit.NoError(t, w.sim.Mute(f.Nodes[f.Ports[hosts[0]].Node].GUID, true))
				r, err := c.exchange(&k)
				synctest.Wait()
				if x := b.Refresh(); x.State != tt.want {
					t.Errorf("%s (status %#x, %v), want %s", x.State, uint16(mad.StatusOf(&r.MAD)), err, tt.want)
				}
				if (err == nil && mad.StatusOf(&r.MAD) == 0) != (tt.want != "Standby") {
					t.Errorf("status %#x, %v", uint16(mad.StatusOf(&r.MAD)), err)
				}
				var shown mad.SMInfo
				if err == nil && shown.Decode(mad.SMPData(&r.MAD)[:]) == nil && tt.key != secret && shown.SMKey == secret {
					t.Error("the answer shows the key")
				}
			})
		})
	}
}

func mkeyed(c engine.Config, k ib.MKey) engine.Config {
	c.Policy = program.DefaultPolicy()
	c.Policy.MKey, c.Policy.Protect = k, 1
	return c
}

// Two masters see each other within a poll interval, whatever made them two: the
// worse hands over, the better announces itself.
func TestTwoMasters(t *testing.T) {
	inWorld(t, gen.Star(6, 8), simfabric.Options{}, func(t *testing.T, w *world, f *fabric.Fabric, hosts []int32) {
		s, _ := w.manager(hosts[0], engine.Config{Priority: 5, Sweep: time.Hour, SMKey: 1})
		w.settle(hosts[0], s, time.Second)
		o := w.other(t, hosts[2], mad.SMInfo{Priority: 15, State: mad.SMNotActive})
		o.set(func(o *other) { o.obeys = true })
		worse := w.other(t, hosts[4], mad.SMInfo{Priority: 1, State: mad.SMStandby})
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if x := s.Snapshot(); x.State != "Master" {
			t.Fatalf("%s beside a manager at rest", x.State)
		}
		worse.set(func(o *other) { o.info.State = mad.SMMaster })
		time.Sleep(500 * time.Millisecond) // the interval is 250 ms
		synctest.Wait()
		worse.set(func(o *other) {
			if o.traps == 0 {
				t.Error("a worse master is not told")
			}
			o.info.State = mad.SMStandby
		})
		o.set(func(o *other) { o.info.State = mad.SMMaster })
		time.Sleep(500 * time.Millisecond)
		synctest.Wait()
		if x := s.Snapshot(); x.State != "Standby" {
			t.Errorf("%s beside a better master", x.State)
		}
	})
}

// However long a master computes, it is not taken for gone: SMInfo is answered
// beside that.
func TestThinkingMasterIsAlive(t *testing.T) {
	inWorld(t, gen.FatTree2(8, 4), simfabric.Options{}, func(t *testing.T, w *world, f *fabric.Fabric, hosts []int32) {
		a, _ := w.manager(hosts[0], engine.Config{Priority: 14})
		w.settle(hosts[0], a, time.Second)
		b, _ := w.manager(hosts[5], engine.Config{Priority: 1})
		time.Sleep(time.Second)
		a.Hold(func() { time.Sleep(10 * time.Second) })
		time.Sleep(9 * time.Second)
		synctest.Wait()
		if x := b.Snapshot(); x.State != "Standby" {
			t.Errorf("the standby is %s while the master is busy", x.State)
		}
	})
}

// Of two managers with one priority that start in the same instant the one with the
// lower GUID ends as master, whatever the other had done when it was met: also a
// master that has no LID yet, and discovers others only when it gets a request.
func TestSameInstant(t *testing.T) {
	for _, tt := range []struct {
		name  string
		met   mad.SMState
		later mad.SMState   // what it is afterwards
		after time.Duration // when that is
		lid   bool          // it has configured the link before it is met
	}{
		{"discovering", mad.SMDiscovering, mad.SMStandby, 0, false},
		{"discovering, then master", mad.SMDiscovering, mad.SMMaster, 10 * time.Millisecond, false},
		{"master without LIDs", mad.SMMaster, mad.SMMaster, 10 * time.Millisecond, false},
		{"master without LIDs for long", mad.SMMaster, mad.SMMaster, 3 * time.Second, false},
		{"master", mad.SMMaster, mad.SMMaster, 0, true},
		{"standby", mad.SMStandby, mad.SMStandby, 0, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			opt := simfabric.Options{DelayMin: time.Millisecond, DelayMax: 2 * time.Millisecond}
			inWorld(t, gen.Pair(), opt, func(t *testing.T, w *world, f *fabric.Fabric, hosts []int32) {
				if f.Ports[hosts[0]].GUID > f.Ports[hosts[1]].GUID {
					hosts[0], hosts[1] = hosts[1], hosts[0]
				}
				o := w.other(t, hosts[1], mad.SMInfo{Priority: 5, State: tt.met, SMKey: 1})
				o.set(func(o *other) { o.handsOver = true })
				configure := func() {
					for i, h := range hosts {
						n := f.Nodes[f.Ports[h].Node].GUID
						_ = w.sim.SetPortInfo(n, f.Ports[h].Num, func(p *mad.PortInfo) {
							p.SetLID(ib.LID(i + 1))
							p.SetMasterSMLID(2)
							p.SetState(ib.PortActive)
						})
					}
				}
				if tt.lid {
					configure()
				}
				s, _ := w.manager(hosts[0], engine.Config{Priority: 5, SMKey: 1})
				time.Sleep(tt.after)
				o.set(func(o *other) {
					if o.info.State == tt.met {
						o.info.State = tt.later
					}
				})
				if tt.later == mad.SMMaster && !tt.lid {
					configure()
				}
				time.Sleep(20 * time.Second)
				synctest.Wait()
				o.set(func(o *other) {
					if x := s.Snapshot(); x.State != "Master" || o.info.State == mad.SMMaster {
						t.Errorf("the better is %s, the other %v", x.State, o.info.State)
					}
				})
			})
		})
	}
}

// Two masters with different keys report each other and why neither hands over, in
// the log, the status and the metrics, and detect LIDs that are used twice.
func TestRivals(t *testing.T) {
	inWorld(t, gen.FatTree2(8, 4), simfabric.Options{}, func(t *testing.T, w *world, f *fabric.Fabric, hosts []int32) {
		log := new(testkit.Buffer)
		a, _ := w.manager(hosts[0], engine.Config{Priority: 14, SMKey: secret, Sweep: time.Second, Log: slog.New(slog.NewTextHandler(log, nil))})
		w.settle(hosts[0], a, time.Second)
		o := w.other(t, hosts[5], mad.SMInfo{Priority: 3, State: mad.SMMaster, SMKey: 77})
		time.Sleep(30 * time.Second)
		synctest.Wait()
		g := f.Ports[hosts[5]].GUID
		if s := log.String(); strings.Count(s, "has another SM_Key") != 1 || !strings.Contains(s, "guid="+g.String()) ||
			!strings.Contains(s, "priority=3") {
			t.Errorf("the log is:\n%s", s)
		}
		x := a.Refresh()
		if len(x.Others) != 1 || x.Others[0].GUID != g || x.Others[0].Problem == "" || x.State != "Master" {
			t.Errorf("%s beside %+v", x.State, x.Others)
		}
		// What another master does: a LID that another port has.
		n := f.Nodes[f.Ports[hosts[7]].Node].GUID
		pi, _ := w.sim.PortInfo(f.Nodes[f.Ports[hosts[8]].Node].GUID, f.Ports[hosts[8]].Num)
		testkit.NoError(t, w.sim.SetPortInfo(n, f.Ports[hosts[7]].Num, func(p *mad.PortInfo) { p.SetLID(pi.LID()) }))
		seen := false
		for range 40 {
			time.Sleep(100 * time.Millisecond)
			var m strings.Builder
			x = a.Refresh()
			x.WriteMetrics(&m)
			seen = seen || x.DoubledLIDs == 1 && strings.Contains(m.String(), "doubled_lids{") && strings.Contains(m.String(), "untrusted_managers{")
		}
		if !seen || !strings.Contains(log.String(), "used_twice=1") {
			t.Errorf("a LID is used twice and nothing says so:\n%s", log.String())
		}
		w.settle(hosts[0], a, time.Second) // it was mended
		o.set(func(o *other) { o.info.State = mad.SMStandby })
	})
}

// A host that only says to be master keeps a manager with a key of its own from
// the subnet for a while, not for ever.
func TestMasterByWord(t *testing.T) {
	for _, state := range []mad.SMState{mad.SMMaster, mad.SMDiscovering, mad.SMStandby} {
		inWorld(t, gen.Star(6, 8), simfabric.Options{}, func(t *testing.T, w *world, f *fabric.Fabric, hosts []int32) {
			w.other(t, hosts[2], mad.SMInfo{Priority: 15, State: state})
			s, _ := w.manager(hosts[0], engine.Config{Priority: 14, SMKey: secret})
			w.settle(hosts[0], s, 15*time.Second)
		})
	}
}

// A manager with the default key and one with a key of its own, which it hides: each
// says whom it sees, in the log once a minute, in the status and by the metric, and
// the master does not hand over again and again, whichever of them is better. Given
// one key, the better becomes master.
func TestDefaultBesideOwnKey(t *testing.T) {
	for _, tt := range []struct {
		name            string
		key, other      uint64
		first, priority uint8
	}{
		{"default key, better, is master", 1, secret, 9, 3},
		{"default key, worse, is master", 1, secret, 3, 9},
		{"own key, better, is master", secret, 1, 9, 3},
		{"own key, worse, is master", secret, 1, 3, 9},
	} {
		t.Run(tt.name, func(t *testing.T) {
			inWorld(t, gen.Star(6, 8), simfabric.Options{}, func(t *testing.T, w *world, f *fabric.Fabric, hosts []int32) {
				logs := [2]*testkit.Buffer{new(testkit.Buffer), new(testkit.Buffer)}
				logger := func(i int) *slog.Logger { return slog.New(slog.NewTextHandler(logs[i], nil)) }
				a, _ := w.manager(hosts[0], engine.Config{Priority: tt.first, SMKey: tt.key, Log: logger(0)})
				w.settle(hosts[0], a, time.Second)
				b, stop := w.manager(hosts[3], engine.Config{Priority: tt.priority, SMKey: tt.other, Log: logger(1)})
				const minutes = 5
				time.Sleep(minutes * time.Minute)
				synctest.Wait()
				if x, y := a.Refresh(), b.Refresh(); x.State != "Master" || y.State != "Standby" || len(x.Others) != 1 ||
					x.Others[0].Problem == "" || y.Master == nil || y.Master.Problem == "" {
					t.Errorf("%s beside %+v; %s with master %+v", x.State, x.Others, y.State, y.Master)
				}
				for i, s := range []*engine.Subnet{a, b} {
					var m strings.Builder
					s.Snapshot().WriteMetrics(&m)
					if !strings.Contains(m.String(), `untrusted_managers{ibdev="sim0",port="1"} 1`) {
						t.Errorf("metrics of manager %d:\n%s", i, m.String())
					}
					text := logs[i].String()
					if n := strings.Count(text, "another subnet manager "); n < minutes-1 || n > minutes+1 {
						t.Errorf("manager %d says %d times in %d minutes whom it sees:\n%s", i, n, minutes, text)
					}
					if n := strings.Count(text, "\n"); n > 6*minutes {
						t.Errorf("manager %d: %d lines in %d minutes:\n%s", i, n, minutes, text)
					}
				}
				stop()
				time.Sleep(time.Second)
				b, _ = w.manager(hosts[3], engine.Config{Priority: tt.priority, SMKey: tt.key, Log: logger(1)})
				time.Sleep(10 * time.Second)
				synctest.Wait()
				best, worst := a, b
				if tt.priority > tt.first {
					best, worst = b, a
				}
				if x, y := best.Refresh(), worst.Refresh(); x.State != "Master" || y.State != "Standby" || y.Master.Problem != "" {
					t.Errorf("with one key: %s beside %s, %+v", x.State, y.State, y.Master)
				}
			})
		})
	}
}
