package engine_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"ibnetworkd/lab/gen"
	"ibnetworkd/lab/simfabric"
	"ibnetworkd/sm/engine"
	"ibnetworkd/sm/mad"
	"ibnetworkd/sm/program"
	"ibnetworkd/sm/transport"
)

// found are the seeds of sequences that once failed: by a device that became another
// one while a manager walked, by parts left out of a walk that were not its own, and by
// a link that went down during a sweep.
var found = []uint64{1769, 2345, 14151, 41197, 91481}

// TestAttack: random subnets on which things happen as in TestWholeStory, with
// hosts that attack. Whenever it is quiet for a while, each connected part has one
// master, which is the best of the honest managers, the honest ports are Active,
// the SA answers, no port has a key of a partition that it is not in, and what the
// manager keeps is bounded. IBNET_ATTACK=30m: up to 100,000 sequences in that time.
func TestAttack(t *testing.T) {
	most, limit := uint64(25), time.Duration(0)
	first := uint64(0)
	if s := os.Getenv("IBNET_ATTACK"); s != "" {
		d, err := time.ParseDuration(s)
		if err != nil {
			t.Fatal(err)
		}
		most, limit = 100_000, d
	} else if testing.Short() {
		most = 10
	}
	if s := os.Getenv("IBNET_SEED"); s != "" {
		if _, err := fmt.Sscan(s, &first); err != nil {
			t.Fatal(err)
		}
		most = 1
	}
	seeds := found
	if most == 1 || limit != 0 {
		seeds = nil
	}
	// A sequence waits for its own goroutines most of the time, and its garbage is
	// that of whole subnets: several at once, collected rarely, keep the processors busy.
	defer debug.SetGCPercent(debug.SetGCPercent(400))
	var mu sync.Mutex // guards what follows
	begin := time.Now()
	next, sequences, strikes, failed := first, 0, 0, 0
	take := func() (seed uint64, ok bool) {
		mu.Lock()
		defer mu.Unlock()
		if n := len(seeds); n > 0 {
			seed, seeds = seeds[n-1], seeds[:n-1]
			return seed, true
		}
		if next == first+most || limit != 0 && time.Since(begin) >= limit || failed >= 10 {
			return 0, false
		}
		next++
		return next - 1, true
	}
	count := func(n int, err error) {
		mu.Lock()
		defer mu.Unlock()
		sequences++
		strikes += n
		if err != nil {
			failed++
		}
		if sequences%1000 == 0 {
			t.Logf("%d sequences, %d strikes, %d failures in %v", sequences, strikes, failed, time.Since(begin).Round(time.Second))
		}
	}
	t.Run("sequences", func(t *testing.T) {
		for range 2 * runtime.GOMAXPROCS(0) {
			t.Run("", func(t *testing.T) {
				t.Parallel()
				for seed, ok := take(); ok; seed, ok = take() {
					story, n, err := attack(t, seed)
					if err != nil {
						t.Errorf("sequence %d (IBNET_SEED=%d repeats it): %v\n%s", seed, seed, err, strings.Join(story, "\n"))
					}
					count(n, err)
				}
			})
		}
	})
	if h := heapMiB(); h > 100 {
		t.Errorf("%d MiB are in use after the attack", h)
	}
	t.Logf("%d sequences, %d strikes, %d failures in %v", sequences, strikes, failed, time.Since(begin).Round(time.Second))
}

// attack is one sequence of events.
func attack(t *testing.T, seed uint64) (story []string, strikes int, failure error) {
	synctest.Test(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(seed, 26))
		f := gen.Random(seed, 1+r.IntN(5), r.IntN(6), 4+r.IntN(7))
		w := newWorld(t, f, simfabric.Options{Seed: seed, DelayMin: 10 * time.Microsecond,
			DelayMax: time.Duration(20+r.IntN(300)) * time.Microsecond})
		var hosts []int32
		for _, p := range f.EndPorts {
			if f.Ports[p].Num == 1 {
				hosts = append(hosts, p)
			}
		}
		cfg := engine.Config{Partitions: w.partitions(r, t), Window: 8 + r.IntN(33), SMKey: 1}
		keyed, mkeys := r.IntN(3) > 0, false
		if keyed {
			cfg.SMKey = secret
			if mkeys = r.IntN(2) == 0; mkeys {
				cfg.Policy = program.DefaultPolicy()
				cfg.Policy.MKey, cfg.Policy.Protect = 0x5ec2e7, uint8(r.IntN(2))
			}
		}
		order := r.Perm(len(hosts))
		sits := min(len(hosts)-2, 1+r.IntN(2))
		var villains []*villain
		for _, i := range order[sits : sits+1+r.IntN(min(2, len(hosts)-sits-1))] {
			villains = append(villains, w.villain(r, hosts[i], keyed, mkeys))
		}
		w.between = func(port int32, tr transport.Transport) transport.Transport {
			return &deceived{Transport: tr, f: f, port: port, liars: villains, asked: map[uint32]deceit{}}
		}
		var seats []*seat
		for _, i := range order[:sits] {
			s := &seat{port: hosts[i], prio: uint8(r.IntN(3))}
			seats = append(seats, s)
			w.sit(s, cfg)
		}
		ask := hosts[order[len(order)-1]]
		defer func() {
			for _, v := range villains {
				v.raw.Close()
			}
			for _, s := range seats {
				if s.sub != nil {
					s.stop()
				}
			}
			w.close()
		}()
		settle := func() bool {
			for _, v := range villains {
				v.turn(0) // a malicious device is part of no subnet
			}
			t0 := time.Now()
			for {
				synctest.Wait()
				err := w.honest(seats)
				if err == nil {
					err = w.answers(seats, ask)
				}
				if err == nil {
					break
				}
				if time.Since(t0) > 5*time.Minute {
					failure = fmt.Errorf("not settled: %w", err)
					return false
				}
				time.Sleep(50 * time.Millisecond)
			}
			story = append(story, fmt.Sprintf("settled in %v", time.Since(t0)))
			return true
		}
		if !settle() {
			return
		}
		for range 2 + r.IntN(3) {
			for range 1 + r.IntN(5) {
				s := seats[r.IntN(len(seats))]
				switch k := r.IntN(12); {
				case k == 0 && s.sub != nil:
					story = append(story, "kill the manager on "+f.PortName(s.port))
					s.kill()
				case k == 1 && s.sub != nil:
					story = append(story, "stop the manager on "+f.PortName(s.port))
					s.stop()
				case k <= 3 && s.sub == nil:
					story = append(story, "start a manager on "+f.PortName(s.port))
					w.sit(s, cfg)
				case k <= 5:
					story = append(story, w.eventAmong(r, hosts[0], seats))
				default:
					v := villains[r.IntN(len(villains))]
					story = append(story, f.PortName(v.port)+": "+v.strike(r))
					strikes++
				}
				if r.IntN(2) == 0 {
					time.Sleep(time.Duration(r.IntN(300)) * time.Millisecond)
				}
			}
			if !settle() {
				return
			}
			for _, v := range villains {
				if v.stole.Load() {
					failure = fmt.Errorf("%s was shown the SM_Key", f.PortName(v.port))
					return
				}
			}
		}
	})
	return story, strikes, failure
}

// honest is settled without what hosts have joined.
func (w *world) honest(seats []*seat) error {
	for _, s := range seats {
		if s.sub == nil {
			continue
		}
		live := w.live(s.port)
		best := s
		for _, o := range seats {
			if o.sub != nil && slices.Contains(live, o.port) &&
				(o.prio > best.prio || o.prio == best.prio && w.f.Ports[o.port].GUID < w.f.Ports[best.port].GUID) {
				best = o
			}
		}
		x := s.sub.Snapshot()
		if best != s {
			if x == nil || x.State != "Standby" {
				return fmt.Errorf("%s is no standby", w.f.PortName(s.port))
			}
			continue
		}
		if x == nil {
			return fmt.Errorf("%s has not begun", w.f.PortName(s.port))
		}
		if err := w.check(s.port, s.sub); err != nil {
			return fmt.Errorf("%s: %w", w.f.PortName(s.port), err)
		}
	}
	return nil
}

// answers queries the SA from a host.
func (w *world) answers(seats []*seat, port int32) error {
	served := false
	for _, s := range seats {
		served = served || s.sub != nil && slices.Contains(w.live(s.port), port)
	}
	q := w.f.Ports[port].Peer
	if !served || w.off[w.f.Ports[port].Node] || w.cut[min(port, q)] {
		return nil
	}
	tr, err := w.sim.OpenClient(w.f.Ports[port].GUID, false)
	if err != nil {
		return nil // it is one of the managers' hosts, or is down
	}
	defer tr.Close()
	p, err := tr.Port()
	if err != nil || p.SMLID == 0 {
		return errors.New("the host has no subnet manager")
	}
	h := mad.NewSA(mad.MethodGet, mad.AttrClassPortInfo, 1, 0)
	k := transport.Packet{LID: p.SMLID, QPN: 1, Timeout: 100 * time.Millisecond}
	k.SetMessage((&mad.ClassPortInfo{}).Append(h.Append(nil)), false)
	if err := tr.Send(&k); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	in := make([]transport.Packet, 1)
	if _, err := tr.Recv(ctx, in); err != nil || in[0].Err != nil {
		return fmt.Errorf("the SA does not answer: %w", errors.Join(err, in[0].Err))
	}
	return nil
}
