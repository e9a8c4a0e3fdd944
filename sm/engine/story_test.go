package engine_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"ibnetworkd/ib"
	"ibnetworkd/ib/partition"
	"ibnetworkd/lab/gen"
	"ibnetworkd/lab/simfabric"
	"ibnetworkd/sm/engine"
	"ibnetworkd/sm/mad"
	"ibnetworkd/sm/smp"
	"ibnetworkd/sm/transport"
)

// listener is a host that is in multicast groups: it joins when its port becomes
// Active or it is asked to register again, and tries again after a second, as
// the kernel's clients do.
type listener struct {
	w     *world
	port  int32
	state map[ib.GID]uint8 // join state it wants in each group
	told  chan struct{}

	mu     sync.Mutex
	joined map[ib.GID]ib.LID
}

func (l *listener) forget() {
	l.mu.Lock()
	clear(l.joined)
	l.mu.Unlock()
	select {
	case l.told <- struct{}{}:
	default:
	}
}

func (l *listener) in(g ib.GID) (ib.LID, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	m, ok := l.joined[g]
	return m, ok
}

func (l *listener) run(ctx context.Context) {
	for ctx.Err() == nil {
		if tr, err := l.w.sim.OpenClient(l.w.f.Ports[l.port].GUID, false); err == nil {
			l.session(ctx, tr)
			tr.Close()
		}
		l.forget() // the host restarted
		select {
		case <-ctx.Done():
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// session joins until the host goes down.
func (l *listener) session(ctx context.Context, tr transport.Transport) {
	in := make(chan transport.Packet)
	sctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	wg.Go(func() {
		defer close(in)
		b := make([]transport.Packet, 1)
		for {
			if _, err := tr.Recv(sctx, b); err != nil {
				return
			}
			select {
			case in <- b[0]:
			case <-sctx.Done():
				return
			}
		}
	})
	groups := slices.SortedFunc(maps.Keys(l.state), func(a, b ib.GID) int { return slices.Compare(a[:], b[:]) })
	self := ib.MakeGID(ib.DefaultPrefix, l.w.f.Ports[l.port].GUID)
	asked := map[uint32]ib.GID{}
	tid := uint32(0)
	ask := func() {
		p, err := tr.Port()
		if err != nil || p.State != ib.PortActive || p.SMLID == 0 {
			return
		}
		clear(asked)
		for _, g := range groups {
			if _, ok := l.in(g); ok {
				continue
			}
			tid++
			asked[tid] = g
			h := mad.NewSA(mad.MethodSet, mad.AttrMCMemberRecord, tid, mad.CompMCMGID|mad.CompMCPortGID|mad.CompMCJoinState|
				mad.CompMCQKey|mad.CompMCPKey|mad.CompMCTClass|mad.CompMCFlowLabel|mad.CompMCSL)
			r := mad.MCMemberRecord{MGID: g, PortGID: self, JoinState: l.state[g], PKey: ib.DefaultPKey, QKey: 0xb1b}
			k := transport.Packet{LID: p.SMLID, QPN: 1, Timeout: 300 * time.Millisecond, Retries: 1}
			k.SetMessage(r.Append(h.Append(nil)), false)
			_ = tr.Send(&k)
		}
	}
	again := time.NewTicker(time.Second)
	defer again.Stop()
	ask()
	for {
		select {
		case p, ok := <-in:
			if !ok {
				return
			}
			g, mine := asked[uint32(mad.TIDOf(&p.MAD))]
			if mine && p.Err == nil && mad.StatusOf(&p.MAD) == 0 {
				var r mad.MCMemberRecord
				if r.Decode(p.Bytes()[mad.SADataOffset:]) == nil {
					l.mu.Lock()
					l.joined[g] = r.MLID
					l.mu.Unlock()
				}
			}
		case <-l.told:
			ask()
		case <-again.C:
			ask()
		case <-ctx.Done():
			return
		}
	}
}

// multicast verifies that a member's packets reach every receiving member of its part
// of the subnet once, and no other port, and counts the memberships.
func (w *world) multicast(live []int32, ls []*listener) (members int, err error) {
	byGroup := map[ib.GID][]*listener{}
	for _, l := range ls {
		if !slices.Contains(live, l.port) {
			continue
		}
		for g := range l.state {
			byGroup[g] = append(byGroup[g], l)
			members++
		}
	}
	for g, in := range byGroup {
		mlid, _ := in[0].in(g)
		for _, l := range in {
			if m, ok := l.in(g); !ok || m != mlid {
				return 0, fmt.Errorf("%s is in group %v: %v, by %v; %s by %v", w.f.PortName(l.port), g, ok, m, w.f.PortName(in[0].port), mlid)
			}
			var want []ib.GUID
			for _, o := range in {
				if o != l && o.state[g]&(mad.JoinFull|mad.JoinNon) != 0 {
					want = append(want, w.f.Ports[o.port].GUID)
				}
			}
			got := w.sim.Multicast(w.f.Ports[l.port].GUID, mlid)
			slices.Sort(want)
			slices.Sort(got)
			if !slices.Equal(got, want) {
				return 0, fmt.Errorf("from %s group %v (%v) reaches %v, want %v", w.f.PortName(l.port), g, mlid, got, want)
			}
		}
	}
	return members, nil
}

// seat is a port where a manager runs, or did.
type seat struct {
	port int32
	prio uint8
	sub  *engine.Subnet // nil: none runs
	kill func()         // as kill -9
	stop func()         // in an orderly way
}

// eventAmong is event, which ends the manager of a node that restarts.
func (w *world) eventAmong(r *rand.Rand, keep int32, seats []*seat) string {
	e := w.event(r, keep)
	if name, ok := strings.CutPrefix(e, "reboot "); ok {
		for _, s := range seats {
			if s.sub != nil && w.f.Nodes[w.f.Ports[s.port].Node].Name() == name {
				s.kill()
			}
		}
	}
	return e
}

// sit starts a manager.
func (w *world) sit(s *seat, cfg engine.Config) {
	tr, err := w.sim.Open(w.f.Ports[s.port].GUID)
	if err != nil {
		return // its host is without power, or the last one is not gone yet
	}
	cfg.Priority, cfg.Log = s.prio, logger().With("sm", w.f.PortName(s.port))
	if w.between != nil {
		tr = w.between(s.port, tr)
	}
	sub := engine.New(tr, cfg)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	w.wg.Go(func() {
		defer close(done)
		if err := sub.Run(ctx); err != nil && !errors.Is(err, transport.ErrClosed) && !errors.Is(err, transport.ErrGone) {
			w.t.Errorf("manager on %s: %v", w.f.PortName(s.port), err)
		}
	})
	s.sub = sub
	s.kill = func() { tr.Close(); cancel(); <-done; s.sub = nil }
	s.stop = func() { cancel(); <-done; s.sub = nil }
}

// settled verifies the invariants of the whole subnet: in each part that is
// connected, the best manager that runs is the only master, and its tables are
// correct.
func (w *world) settled(seats []*seat, ls []*listener) error {
	for _, s := range seats {
		if s.sub == nil {
			continue
		}
		live := w.live(s.port)
		best := s
		standing := func(x *seat) smp.Standing { return smp.Standing{Priority: x.prio, GUID: w.f.Ports[x.port].GUID} }
		for _, o := range seats {
			if o.sub != nil && slices.Contains(live, o.port) && standing(o).Better(standing(best)) {
				best = o
			}
		}
		if best != s {
			if x := s.sub.Snapshot(); x == nil || x.State != "Standby" {
				return fmt.Errorf("%s is no standby", w.f.PortName(s.port))
			}
			continue
		}
		if s.sub.Snapshot() == nil {
			return fmt.Errorf("%s has not begun", w.f.PortName(s.port))
		}
		if err := w.check(s.port, s.sub); err != nil {
			return fmt.Errorf("%s: %w", w.f.PortName(s.port), err)
		}
		if len(live) < 2 {
			continue
		}
		members, err := w.multicast(live, ls)
		if err != nil {
			return err
		}
		if err := s.sub.Leaks(members); err != nil {
			return fmt.Errorf("%s: %w", w.f.PortName(s.port), err)
		}
	}
	return nil
}

// partitions makes a configuration of its own for each seed, and what it means.
func (w *world) partitions(r *rand.Rand, t *testing.T) partition.Config {
	w.keys = map[int32][]ib.PKey{}
	text := "Default=0x7fff, ipoib : ALL=full;\n"
	for k := range r.IntN(4) {
		var m []string
		for _, p := range w.f.EndPorts {
			if w.f.Ports[p].Num == 0 || r.IntN(3) == 0 {
				continue
			}
			key, word := ib.PKey(k+1), "limited"
			if r.IntN(2) == 0 {
				key, word = key|0x8000, "full"
			}
			w.keys[p] = append(w.keys[p], key)
			m = append(m, fmt.Sprintf("%v=%s", w.f.Ports[p].GUID, word))
		}
		if len(m) > 0 {
			text += fmt.Sprintf("p%d=0x%04x, ipoib : %s;\n", k+1, k+1, strings.Join(m, ", "))
		}
	}
	for p := range w.keys {
		slices.Sort(w.keys[p])
	}
	cfg, err := partition.Parse("partitions.conf", []byte(text))
	if err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	return cfg
}

// Managers that are killed, stopped and started, hosts and switches that restart,
// links that are cut and flap, packets that get lost: whenever nothing happens for a
// while, everything is correct.
func TestWholeStory(t *testing.T) {
	for seed := range seeds(t) {
		var story []string
		ok := t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := rand.New(rand.NewPCG(seed, 79))
				f := gen.Random(seed, 1+r.IntN(6), r.IntN(8), 4+r.IntN(9))
				told := map[ib.GUID]*listener{}
				opt := simfabric.Options{Seed: seed, DelayMin: 10 * time.Microsecond, DelayMax: time.Duration(20+r.IntN(1000)) * time.Microsecond,
					Reregister: func(g ib.GUID) {
						if l := told[g]; l != nil {
							l.forget()
						}
					}}
				switch seed % 3 {
				case 1:
					opt.Loss = 0.01
				case 2:
					opt.Duplicate = 0.02
				}
				var hosts []int32
				for _, p := range f.EndPorts {
					if f.Ports[p].Num == 1 {
						hosts = append(hosts, p)
					}
				}
				// In the simulator's callbacks from the start: the map is not
				// changed any more.
				var ls []*listener
				for _, p := range hosts {
					l := &listener{port: p, state: map[ib.GID]uint8{}, told: make(chan struct{}, 1), joined: map[ib.GID]ib.LID{}}
					for g := range 3 {
						if k := r.IntN(6); k < 3 {
							l.state[ib.GID{0xff, 0x12, 15: byte(g + 1)}] = []uint8{mad.JoinFull, mad.JoinFull, mad.JoinSendOnlyFull}[k]
						}
					}
					if len(l.state) > 0 {
						ls = append(ls, l)
						told[f.Ports[p].GUID] = l
					}
				}
				w := newWorld(t, f, opt)
				cfg := engine.Config{Partitions: w.partitions(r, t), Window: 1 + r.IntN(40)}
				ctx, cancel := context.WithCancel(t.Context())
				for _, l := range ls {
					l.w = w
					w.wg.Go(func() { l.run(ctx) })
				}
				var seats []*seat
				for _, i := range r.Perm(len(hosts))[:min(len(hosts), 1+r.IntN(3))] {
					s := &seat{port: hosts[i], prio: uint8(r.IntN(3))}
					seats = append(seats, s)
					w.sit(s, cfg)
				}
				defer func() {
					for _, s := range seats {
						if s.sub != nil {
							s.stop()
						}
					}
					cancel()
					w.close()
				}()
				settle := func() {
					t.Helper()
					t0 := time.Now()
					for {
						synctest.Wait()
						err := w.settled(seats, ls)
						if err == nil {
							break
						}
						if time.Since(t0) > 20*time.Minute {
							t.Fatalf("not settled: %v", err)
						}
						time.Sleep(50 * time.Millisecond)
					}
					story = append(story, fmt.Sprintf("settled in %v", time.Since(t0)))
				}
				settle()
				for range 3 + r.IntN(4) {
					for range 1 + r.IntN(3) {
						s := seats[r.IntN(len(seats))]
						switch k := r.IntN(8); {
						case k == 0 && s.sub != nil:
							story = append(story, "kill the manager on "+f.PortName(s.port))
							s.kill()
						case k == 1 && s.sub != nil:
							story = append(story, "stop the manager on "+f.PortName(s.port))
							s.stop()
						case k == 2 && s.sub != nil:
							story = append(story, "restart the host of the manager "+f.PortName(s.port))
							w.sim.Reboot(f.Nodes[f.Ports[s.port].Node].GUID)
							s.kill()
						case k <= 4 && s.sub == nil:
							story = append(story, "start a manager on "+f.PortName(s.port))
							w.sit(s, cfg)
						default:
							story = append(story, w.eventAmong(r, hosts[0], seats))
						}
						if r.IntN(2) == 0 {
							time.Sleep(time.Duration(r.IntN(300)) * time.Millisecond)
						}
					}
					settle()
				}
			})
		})
		if !ok {
			t.Log(strings.Join(story, "\n"))
			return
		}
	}
}
