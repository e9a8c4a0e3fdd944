package sa

import (
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"ibnetworkd/ib"
	"ibnetworkd/ib/partition"
	"ibnetworkd/lab/gen"
	"ibnetworkd/sm/fabric"
	"ibnetworkd/sm/mad"
	"ibnetworkd/sm/mcast"
)

// check verifies the invariants after any sequence of requests.
func (w *world) check() {
	s := w.s
	w.t.Helper()
	used := map[ib.LID]int{}
	for id, g := range s.groups {
		used[g.rec.MLID]++
		if id != g.rec.MGID || !g.rec.MLID.IsMulticast() || int(g.rec.MLID-ib.LIDMulticastMin) >= s.mlidCap || !g.rec.MTU.IsValid() ||
			!g.rec.Rate.IsValid() {
			w.t.Fatalf("group %v: %+v", id, g.rec)
		}
		keeps := g.fixed
		for k, m := range g.members {
			p := s.byGUID(k)
			if p == fabric.None || m.state == 0 || m.state > 15 || !s.inPartition(p, g.rec.PKey) {
				w.t.Fatalf("member %v of %v: %+v, port %d", k, id, m, p)
			}
			keeps = keeps || m.keeps()
		}
		if !keeps {
			w.t.Fatalf("group %v lives without reason: %+v", id, g)
		}
	}
	if len(used) != len(s.mlids) {
		w.t.Fatalf("MLIDs %v, kept %v", used, s.mlids)
	}
	for l, n := range used {
		if s.mlids[l] != n {
			w.t.Fatalf("MLID %v is used %d times, kept %d", l, n, s.mlids[l])
		}
	}
	own := map[ib.GUID]int{}
	for _, x := range s.subs {
		own[x.owner]++
	}
	for _, x := range s.services {
		own[x.owner]++
	}
	for g, n := range own {
		if s.perPort[g] != n || n > s.cfg.MaxPerPort {
			w.t.Fatalf("port %v owns %d, kept %d", g, n, s.perPort[g])
		}
	}
	subs := 0
	for o, l := range s.subsOf {
		for _, x := range l {
			if x.owner != o || !slices.Contains(s.subs, x) {
				w.t.Fatalf("a subscription of %v stands under %v", x.owner, o)
			}
		}
		if subs += len(l); len(l) == 0 {
			w.t.Fatalf("%v has a list of no subscriptions", o)
		}
	}
	if subs != len(s.subs) {
		w.t.Fatalf("%d subscriptions, %d by subscriber", len(s.subs), subs)
	}
	if at, ok := s.NextTick(); true {
		first := time.Duration(0)
		for _, x := range s.services {
			if x.expire != 0 && (first == 0 || x.expire < first) {
				first = x.expire
			}
		}
		if at != first || ok != (first != 0) {
			w.t.Fatalf("next lease ends at %v (%v), want %v", at, ok, first)
		}
	}
	if l := s.sortedServices(); len(l) != len(s.services) {
		w.t.Fatalf("%d services in order, %d in all", len(l), len(s.services))
	}
	if len(own) != len(s.perPort) {
		w.t.Fatalf("owners %v, kept %v", own, s.perPort)
	}
	members := 0
	for _, g := range s.groups {
		members += len(g.members)
	}
	if members != s.members {
		w.t.Fatalf("%d members, kept %d", members, s.members)
	}
	joins := map[ib.GUID]int{}
	for _, g := range s.groups {
		for _, m := range g.members {
			joins[m.by]++
		}
	}
	if !maps.Equal(joins, s.joins) {
		w.t.Fatalf("memberships by requester %v, kept %v", joins, s.joins)
	}
	aliases := 0
	for _, m := range s.guids {
		aliases += len(m)
	}
	if aliases != len(s.alias) {
		w.t.Fatalf("%d alias GUIDs in ports, %d in the index", aliases, len(s.alias))
	}
}

func fuzzWorld(t testing.TB) *world {
	f := gen.LIDs(gen.FatTree2(8, 2), 1)
	return newWorld(t, f, "Default=0x7fff,ipoib:ALL=full;a=1,ipoib:ALL_CAS=limited,SELF=full;")
}

var fuzzAttrs = func() (out []mad.AttrID) {
	for a := mad.AttrID(0); a < 0x100; a++ {
		if handlers[a] != nil {
			out = append(out, a)
		}
	}
	return out
}()

// Whatever arrives, the SA answers in form or not at all, and keeps its own
// state consistent.
func FuzzHandle(f *testing.F) {
	for i, a := range fuzzAttrs {
		rec := make([]byte, 200)
		copy(rec, []byte{0xff, 0x12, 0x40, 0x1b, 0xff, 0xff})
		f.Add(uint8(2), uint16(a), uint64(0xffffffff), uint64(i%2), uint16(1+i), rec)
	}
	f.Add(uint8(0x12), uint16(mad.AttrPathRecord), uint64(0), uint64(0), uint16(3), []byte{1})
	f.Fuzz(func(t *testing.T, method uint8, attr uint16, mask, key uint64, lid uint16, rec []byte) {
		w := fuzzWorld(t)
		for range 2 { // the second time meets what the first left
			h := mad.NewSA(mad.Method(method), mad.AttrID(attr), 7, mad.CompMask(mask))
			h.SMKey = key
			msg := append(h.Append(nil), rec...)
			reply, _ := w.s.Handle(w.now, Request{LID: ib.LID(lid), QP: 1, MAD: msg})
			if reply.MAD != nil {
				var r mad.SAHeader
				if err := r.Decode(reply.MAD); err != nil || !r.Method.IsResponse() || r.TID != 7 {
					t.Fatalf("answer %+v, %v", r, err)
				}
				if !reply.RMPP && len(reply.MAD) > mad.Size {
					t.Fatalf("%d bytes without RMPP", len(reply.MAD))
				}
				if n := int(r.AttrOffset) * 8; r.Status == 0 && reply.RMPP && (n == 0 || (len(reply.MAD)-mad.SADataOffset)%n != 0) {
					t.Fatalf("%d bytes of records at %d", len(reply.MAD)-mad.SADataOffset, n)
				}
			}
			w.check()
		}
		w.s.Tick(time.Hour)
		w.s.SetState(0, w.s.state)
		w.check()
	})
}

// FuzzMessage feeds whole messages, cut and bent anywhere.
func FuzzMessage(f *testing.F) {
	h := mad.NewSA(mad.MethodGetTable, mad.AttrNodeRecord, 1, 0)
	f.Add(h.Append(nil))
	f.Add([]byte{1, 3, 2, 1})
	f.Fuzz(func(t *testing.T, msg []byte) {
		w := fuzzWorld(t)
		w.s.Handle(0, Request{LID: 1, QP: 1, MAD: msg})
		w.check()
	})
}

// Thousands of random joins, leaves, subscriptions, services, alias GUIDs and
// changes of the subnet, against a naive model of who is in which group.
func TestRandomEvents(t *testing.T) {
	steps := 30000
	if testing.Short() {
		steps = 5000
	}
	rnd := rand.New(rand.NewPCG(11, 12))
	big, small := gen.LIDs(gen.Star(8, 12), 0), gen.LIDs(gen.Star(5, 12), 0)
	w := newWorld(t, big, "")
	type key struct {
		mgid ib.GID
		guid ib.GUID
	}
	model := map[key]uint8{}
	fixed := partition.BroadcastMGID(0xffff)
	mgids := []ib.GID{fixed}
	for i := range 6 {
		mgids = append(mgids, mustGID([]string{"ff12:401b:ffff::1", "ff12:601b:ffff::2", "ff12::1", "ff15::2", "ff12:401b:ffff::9",
			"ff18:a01b::7"}[i]))
	}
	// reap is the rule: a group without a full member, of either kind, is deleted.
	reap := func(id ib.GID) {
		for k, s := range model {
			if k.mgid == id && s&(mad.JoinFull|mad.JoinSendOnlyFull) != 0 {
				return
			}
		}
		for k := range model {
			if k.mgid == id && id != fixed {
				delete(model, k)
			}
		}
	}
	lives := func(id ib.GID) bool {
		for k := range model {
			if k.mgid == id {
				return true
			}
		}
		return id == fixed
	}
	for step := range steps {
		c := w.cas()
		p := c[rnd.IntN(len(c))]
		guid := w.f.Ports[p].GUID
		id := mgids[rnd.IntN(len(mgids))]
		switch n := rnd.IntN(20); {
		case n < 9:
			state := uint8(rnd.IntN(16))
			mask := mad.CompMask(createMask)
			if rnd.IntN(4) == 0 {
				mask = joinMask
			}
			st, _ := w.ask(p, 0, mad.MethodSet, mad.AttrMCMemberRecord, mask,
				&mad.MCMemberRecord{MGID: id, PortGID: w.gid(p), PKey: 0xffff, QKey: 0xb1b, JoinState: state})
			k := key{id, guid}
			ok := state != 0 && (lives(id) || mask == createMask && state&(mad.JoinFull|mad.JoinSendOnlyFull) != 0)
			if (st == 0) != ok {
				t.Fatalf("step %d: join of %v with %d: status %#x, model %v", step, id, state, st, ok)
			}
			if ok {
				model[k] |= state
			}
		case n < 15:
			state := uint8(rnd.IntN(16))
			st, _ := w.ask(p, 0, mad.MethodDelete, mad.AttrMCMemberRecord, joinMask,
				&mad.MCMemberRecord{MGID: id, PortGID: w.gid(p), JoinState: state})
			k := key{id, guid}
			ok := state != 0 && model[k] != 0 && state&^model[k] == 0
			if (st == 0) != ok {
				t.Fatalf("step %d: leave of %v with %d: status %#x, model %v (has %d)", step, id, state, st, ok, model[k])
			}
			if ok {
				if model[k] &^= state; model[k] == 0 {
					delete(model, k)
				}
				reap(id)
			}
		case n < 16:
			r := mad.GUIDInfoRecord{LID: w.f.Ports[p].LID, Block: uint8(rnd.IntN(4))}
			r.Info[rnd.IntN(8)] = ib.GUID(rnd.IntN(5))
			m := []mad.Method{mad.MethodSet, mad.MethodDelete}[rnd.IntN(2)]
			w.ask(p, 0, m, mad.AttrGUIDInfoRecord, mad.CompGIRLID|mad.CompGIRBlock|mad.CompMask(0xff0), &r)
		case n < 17:
			w.ask(p, 0, mad.MethodSet, mad.AttrInformInfo, 0, &mad.InformInfo{LIDRangeBegin: 0xffff, Generic: true, Subscribe: rnd.IntN(2) == 0,
				Type: 0xffff, TrapNumber: uint16(64 + rnd.IntN(4)), Producer: 0xffffff})
		case n < 18:
			w.now += time.Second
			w.ask(p, 0, mad.MethodSet, mad.AttrServiceRecord, mad.CompSRServiceID|mad.CompSRGID|mad.CompSRLease,
				&mad.ServiceRecord{ServiceID: uint64(rnd.IntN(9)), GID: w.gid(p), Lease: uint32(rnd.IntN(9))})
			if at, ok := w.s.NextTick(); ok && at <= w.now {
				w.s.Tick(w.now)
			}
		default:
			if rnd.IntN(10) > 0 {
				continue
			}
			w.f = []*fabric.Fabric{big, small}[rnd.IntN(2)]
			w.s.SetState(w.now, stateOf(t, w.f, ""))
			for k := range model {
				if w.f.EndPortByGUID(k.guid) == fabric.None {
					delete(model, k)
				}
			}
			for _, id := range mgids {
				reap(id)
			}
		}
		w.check()
		// Who gets packets is what the model says.
		if step%50 == 0 {
			tab := mcast.Build(w.f, w.s.Groups())
			for _, id := range mgids {
				want := map[int32]bool{}
				for k, s := range model {
					if k.mgid == id && s&(mad.JoinFull|mad.JoinNon) != 0 {
						want[w.f.EndPortByGUID(k.guid)] = true
					}
				}
				g := w.s.groups[id]
				if g == nil {
					if len(want) > 0 {
						t.Fatalf("step %d: group %v is gone", step, id)
					}
					continue
				}
				ports := tab.Ports(0, g.rec.MLID)
				if ports.Len() != len(want) {
					t.Fatalf("step %d: %v goes to %d ports, model %d", step, id, ports.Len(), len(want))
				}
				for p := range want {
					if _, out := w.f.SwitchOf(p); !ports.Has(out) {
						t.Fatalf("step %d: %v does not go to %s", step, id, w.f.PortName(p))
					}
				}
			}
		}
	}
}

// A client that asks for as much as it can gets a refusal, not the memory.
func TestBounds(t *testing.T) {
	w := newWorld(t, gen.LIDs(gen.Star(3, 8), 0), "")
	w.s.cfg.MaxPerPort, w.s.cfg.MaxAnswer, w.s.cfg.MaxGroups = 20, 2000, 10
	p := w.cas()[1]
	last := map[mad.AttrID]mad.Status{}
	for i := range 50 {
		last[mad.AttrServiceRecord], _ = w.ask(p, 0, mad.MethodSet, mad.AttrServiceRecord, mad.CompSRServiceID|mad.CompSRGID,
			&mad.ServiceRecord{ServiceID: uint64(i), GID: w.gid(p)})
		last[mad.AttrMCMemberRecord], _ = w.ask(p, 0, mad.MethodSet, mad.AttrMCMemberRecord, createMask,
			&mad.MCMemberRecord{MGID: ib.GID{0xff, 0x12, 15: byte(i)}, PortGID: w.gid(p), PKey: 0xffff, JoinState: 1})
	}
	if last[mad.AttrServiceRecord] != mad.StatusSANoResources || last[mad.AttrMCMemberRecord] != mad.StatusSANoResources {
		t.Errorf("statuses %v", last)
	}
	if st, _ := w.ask(p, 0, mad.MethodGetTable, mad.AttrServiceRecord, 0, &mad.ServiceRecord{}); st != mad.StatusSANoResources {
		t.Errorf("an answer above the limit: status %#x", st)
	}
	w.s.cfg.MaxGroups, w.s.cfg.MaxJoins = 1000, 15
	for i := range 50 {
		last[mad.AttrMCMemberRecord], _ = w.ask(p, 0, mad.MethodSet, mad.AttrMCMemberRecord, createMask,
			&mad.MCMemberRecord{MGID: ib.GID{0xff, 0x12, 14: 1, 15: byte(i)}, PortGID: w.gid(p), PKey: 0xffff, JoinState: 1})
	}
	if last[mad.AttrMCMemberRecord] != mad.StatusSANoResources || len(w.s.groups) > 20 {
		t.Errorf("status %#x, %d groups", last[mad.AttrMCMemberRecord], len(w.s.groups))
	}
	w.check()
	for _, msg := range [][]byte{nil, make([]byte, 55), make([]byte, 256)} {
		if r, _ := w.s.Handle(0, Request{LID: w.f.Ports[p].LID, MAD: msg}); r.MAD != nil {
			t.Errorf("an answer to %d zeros", len(msg))
		}
	}
	h := mad.NewSA(mad.MethodGet, mad.AttrNodeRecord, 1, 0)
	if r, _ := w.s.Handle(0, Request{LID: 77, MAD: h.Append(nil)}); r.MAD != nil {
		t.Error("an answer to a stranger")
	}
	h.SMKey = 99
	if r, _ := w.s.Handle(0, Request{LID: w.f.Ports[p].LID, MAD: h.Append(nil)}); r.MAD != nil {
		t.Error("an answer to a wrong key")
	}
	if c := w.s.Counters(); c.Malformed != 3 || c.Unknown != 1 || c.Untrusted != 1 {
		t.Errorf("counters %+v", c)
	}
}

// With all multicast LIDs taken, groups of IPoIB share one, others are refused.
func TestMLIDsRunOut(t *testing.T) {
	f := gen.LIDs(gen.Star(3, 8), 0)
	f.Switches[0].Info.SetCaps(49152, 5, 64)
	w := newWorld(t, f, "")
	p := w.cas()[1]
	var lidsSeen = map[ib.LID]int{}
	for i := range 20 {
		id := mustGID("ff12:601b:ffff::1:ff00:0")
		id[15] = byte(i)
		st, recs := w.ask(p, 0, mad.MethodSet, mad.AttrMCMemberRecord, createMask,
			&mad.MCMemberRecord{MGID: id, PortGID: w.gid(p), PKey: 0xffff, QKey: 0xb1b, JoinState: 1})
		if st != 0 {
			t.Fatalf("group %d: status %#x", i, st)
		}
		var r mad.MCMemberRecord
		_ = r.Decode(recs[0])
		lidsSeen[r.MLID]++
	}
	if len(lidsSeen) != 4 || lidsSeen[0xc001] != 5 || lidsSeen[ib.LIDMulticastMin] != 0 {
		t.Errorf("MLIDs %v", lidsSeen)
	}
	if st, _ := w.ask(p, 0, mad.MethodSet, mad.AttrMCMemberRecord, createMask,
		&mad.MCMemberRecord{MGID: ib.GID{0xff, 0x12, 15: 1}, PortGID: w.gid(p), PKey: 0xffff, JoinState: 1}); st != mad.StatusSANoResources {
		t.Errorf("a group that is not of IPoIB: status %#x", st)
	}
	w.check()
}

func BenchmarkPathRecord(b *testing.B) {
	f := gen.LIDs(gen.FatTree3(36, 6, 18), 0)
	w := newWorld(b, f, "")
	c := w.cas()
	msgs := make([][]byte, 1000)
	reqs := make([]Request, len(msgs))
	for i := range msgs {
		x, y := c[(i*7919)%len(c)], c[(i*104729)%len(c)]
		h := mad.NewSA(mad.MethodGet, mad.AttrPathRecord, uint32(i), mad.CompPRDGID|mad.CompPRSGID|mad.CompPRNumbPath|mad.CompPRPKey)
		r := mad.PathRecord{DGID: w.gid(y), SGID: w.gid(x), NumbPath: 1, PKey: 0xffff}
		msgs[i] = r.Append(h.Append(nil))
		reqs[i] = Request{LID: f.Ports[x].LID, QP: 1, MAD: msgs[i]}
	}
	b.ReportAllocs()
	b.ResetTimer()
	for i := range b.N {
		if r, _ := w.s.Handle(0, reqs[i%len(reqs)]); r.MAD == nil || r.MAD[4] != 0 || r.MAD[5] != 0 {
			b.Fatal("no path")
		}
	}
}

func BenchmarkPortInfoRecord(b *testing.B) {
	f := gen.LIDs(gen.FatTree3(36, 6, 18), 0)
	w := newWorld(b, f, "")
	c := w.cas()
	h := mad.NewSA(mad.MethodGet, mad.AttrPortInfoRecord, 1, mad.CompPIRLID)
	r := mad.PortInfoRecord{LID: f.Ports[c[5]].LID}
	req := Request{LID: f.Ports[c[0]].LID, QP: 1, MAD: r.Append(h.Append(nil))}
	b.ReportAllocs()
	for b.Loop() {
		w.s.Handle(0, req)
	}
}
