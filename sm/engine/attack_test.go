package engine_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"ibnetworkd/ib"
	"ibnetworkd/lab/gen"
	"ibnetworkd/lab/simfabric"
	"ibnetworkd/sm/engine"
	"ibnetworkd/sm/mad"
	"ibnetworkd/sm/program"
	"ibnetworkd/sm/transport"
)

// villain is a host whose root means harm, with what its port can send.
type villain struct {
	*flooder
	w     *world
	port  int32
	keyed bool          // the managers have keys of their own
	poses atomic.Uint32 // as a manager in this state, 0xff: as none
	key   atomic.Uint64
}

func (w *world) villain(r *rand.Rand, port int32, keyed bool) *villain {
	v := &villain{w: w, port: port, keyed: keyed}
	v.poses.Store(0xff)
	raw, err := w.sim.OpenRaw(w.f.Ports[port].GUID, func(p *transport.Packet) {
		if s := v.poses.Load(); s != 0xff && mad.AttrOf(&p.MAD) == mad.AttrSMInfo && !mad.MethodOf(&p.MAD).IsResponse() && mad.ClassOf(&p.MAD).IsSMP() {
			q := *p
			q.MAD[3] = uint8(mad.MethodGetResp)
			if mad.ClassOf(&q.MAD) == mad.ClassSubnDR {
				q.MAD[4] |= 0x80
			}
			i := mad.SMInfo{GUID: w.f.Ports[port].GUID, SMKey: v.key.Load(), ActCount: 1, Priority: 15, State: mad.SMState(s)}
			d := mad.SMPData(&q.MAD)
			*d = [64]byte{}
			i.Append(d[:0])
			go v.raw.Send(&q)
		}
	})
	if err != nil {
		w.t.Fatal(err)
	}
	v.flooder = &flooder{raw: raw, gid: ib.MakeGID(ib.DefaultPrefix, w.f.Ports[port].GUID)}
	return v
}

// strike does one evil thing and says what.
func (v *villain) strike(r *rand.Rand) string {
	f := v.w.f
	if pi, err := v.w.sim.PortInfo(f.Nodes[f.Ports[v.port].Node].GUID, f.Ports[v.port].Num); err == nil {
		v.sm = pi.MasterSMLID
	}
	n := 1 << r.IntN(9)
	many := func(what string, f func()) string {
		for range n {
			f()
		}
		return fmt.Sprintf("%d %s", n, what)
	}
	lids := len(f.EndPorts) + 3
	switch r.IntN(10) {
	case 0:
		return many("requests for all paths", v.paths)
	case 1:
		return many("joins", v.join)
	case 2:
		return many("subscriptions", v.subscribe)
	case 3:
		return many("traps 128", func() { v.trap(mad.TrapLinkStateChange, lids) })
	case 4:
		return many("traps 144", func() { v.trap(mad.TrapCapMaskChange, lids) })
	case 5:
		return many("noise", func() { v.noise(r) })
	case 6:
		// A partition's group, with a key that the host may not have.
		key := ib.PKey(0x8000 | r.IntN(5))
		g := ib.GID{0xff, 0x12, 0x40, 0x1b, byte(key >> 8), byte(key), 12: 0xff, 13: 0xff, 14: 0xff, 15: 0xff}
		return many("joins of partitions", func() {
			v.sa(mad.MethodSet, mad.AttrMCMemberRecord, mad.CompMCMGID|mad.CompMCPortGID|mad.CompMCJoinState|mad.CompMCPKey,
				&mad.MCMemberRecord{MGID: g, PortGID: v.gid, JoinState: mad.JoinFull, PKey: key})
		})
	}
	if !v.keyed {
		return "nothing"
	}
	switch r.IntN(3) {
	case 0:
		state := []uint32{0xff, uint32(mad.SMMaster), uint32(mad.SMStandby), uint32(mad.SMDiscovering), uint32(mad.SMNotActive)}[r.IntN(5)]
		v.key.Store([]uint64{0, 1, 77}[r.IntN(3)])
		v.poses.Store(state)
		_ = v.raw.SetIsSM(state != 0xff)
		return fmt.Sprintf("poses as a manager in state %#x with key %d", state, v.key.Load())
	case 1:
		return many("orders to managers", func() {
			v.n++
			info := mad.SMInfo{GUID: v.w.f.Ports[v.port].GUID, SMKey: v.key.Load(), State: mad.SMMaster, Priority: 15}
			p := transport.Packet{LID: ib.LID(1 + r.IntN(lids))}
			mad.PutLR(&p.MAD, mad.MethodSet, mad.AttrSMInfo, uint32(1+r.IntN(5)), v.n, ib.MKey(r.IntN(3)), info.Append(nil))
			v.raw.Send(&p)
		})
	default:
		return many("Sets without the M_Key", func() {
			v.n++
			p := transport.Packet{LID: ib.LID(1 + r.IntN(lids))}
			var data [64]byte
			for i := range data {
				data[i] = byte(r.Uint32())
			}
			a := []mad.AttrID{mad.AttrPortInfo, mad.AttrSwitchInfo, mad.AttrLFT, mad.AttrPKeyTable, mad.AttrMFT}[r.IntN(5)]
			mad.PutLR(&p.MAD, mad.MethodSet, a, uint32(r.IntN(3)), v.n, ib.MKey(r.IntN(3)), data[:])
			v.raw.Send(&p)
		})
	}
}

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
	begin := time.Now()
	sequences, strikes, failed := uint64(0), 0, 0
	for seed := first; seed < first+most && (limit == 0 || time.Since(begin) < limit) && failed < 10; seed++ {
		story, n, err := attack(t, seed)
		sequences++
		strikes += n
		if err != nil {
			failed++
			t.Errorf("sequence %d (IBNET_SEED=%d repeats it): %v\n%s", seed, seed, err, strings.Join(story, "\n"))
		}
		if sequences%1000 == 0 {
			t.Logf("%d sequences, %d strikes, %d failures in %v, %d MiB in use", sequences, strikes, failed, time.Since(begin).Round(time.Second), heapMiB())
		}
	}
	if h := heapMiB(); h > 100 {
		t.Errorf("%d MiB are in use after the attack", h)
	}
	t.Logf("%d sequences, %d strikes, %d failures", sequences, strikes, failed)
}

// attack is one sequence of events.
func attack(t *testing.T, seed uint64) (story []string, strikes int, failure error) {
	synctest.Test(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(seed, 26))
		f := gen.Random(seed, 1+r.IntN(5), r.IntN(6), 4+r.IntN(7))
		w := newWorld(t, f, simfabric.Options{Seed: seed, DelayMin: 10 * time.Microsecond, DelayMax: time.Duration(20+r.IntN(300)) * time.Microsecond})
		var hosts []int32
		for _, p := range f.EndPorts {
			if f.Ports[p].Num == 1 {
				hosts = append(hosts, p)
			}
		}
		cfg := engine.Config{Partitions: w.partitions(r, t), Window: 1 + r.IntN(40), SMKey: 1}
		keyed := r.IntN(3) > 0
		if keyed {
			cfg.SMKey = secret
			cfg.Policy = program.DefaultPolicy()
			cfg.Policy.MKey, cfg.Policy.Protect = 0x5ec2e7, uint8(r.IntN(2))
		}
		order := r.Perm(len(hosts))
		var seats []*seat
		for _, i := range order[:min(len(hosts)-2, 1+r.IntN(2))] {
			s := &seat{port: hosts[i], prio: uint8(r.IntN(3))}
			seats = append(seats, s)
			w.sit(s, cfg)
		}
		var villains []*villain
		for _, i := range order[len(seats) : len(seats)+1+r.IntN(min(2, len(hosts)-len(seats)-1))] {
			villains = append(villains, w.villain(r, hosts[i], keyed))
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
					e := w.event(r, hosts[0])
					story = append(story, e)
					if name, ok := strings.CutPrefix(e, "reboot "); ok {
						for _, s := range seats {
							if s.sub != nil && f.Nodes[f.Ports[s.port].Node].Name() == name {
								s.kill()
							}
						}
					}
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
			if o.sub != nil && slices.Contains(live, o.port) && (o.prio > best.prio || o.prio == best.prio && w.f.Ports[o.port].GUID < w.f.Ports[best.port].GUID) {
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

// answers asks the SA from a host.
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
