package sa

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ibnetworkd/ib"
	"ibnetworkd/ib/partition"
	"ibnetworkd/lab/gen"
	"ibnetworkd/sm/fabric"
	"ibnetworkd/sm/mad"
	"ibnetworkd/sm/route"
)

// slowed is a fabric with the link of an adapter's port at a quarter of its
// width.
func slowed(f *fabric.Fabric, port int32) *fabric.Fabric {
	f = f.Clone()
	f.Ports[port].Info.SetWidthActive(1)
	f.Ports[f.Ports[port].Peer].Info.SetWidthActive(1)
	return f
}

// A group gets slower at once when a slow member joins, and its members are asked to
// register again; it gets faster only when it has no members.
func TestGroupFollowsItsMembers(t *testing.T) {
	f := gen.LIDs(gen.Star(4, 8), 0)
	w := newWorld(t, f, "")
	c := w.cas()
	all := partition.BroadcastMGID(0xffff)
	join := func(p int32) (mad.MCMemberRecord, mad.Status) {
		var r mad.MCMemberRecord
		st, recs := w.ask(p, 0, mad.MethodSet, mad.AttrMCMemberRecord, joinMask|mad.CompMCPKey,
			&mad.MCMemberRecord{MGID: all, PortGID: w.gid(p), PKey: 0xffff, JoinState: 1})
		if st == 0 {
			_ = r.Decode(recs[0])
		}
		return r, st
	}
	if r, st := join(c[1]); st != 0 || r.Rate != 16 {
		t.Fatalf("rate %v, status %#x", r.Rate, st)
	}
	w.f = slowed(f, c[2])
	ch := w.s.SetState(0, stateOf(t, w.f, ""))
	if d := cmp.Diff([]ib.GUID{w.f.Ports[c[1]].GUID}, ch.Reregister); d != "" {
		t.Errorf("to register again: %s", d)
	}
	if r, st := join(c[2]); st != 0 || r.Rate.Tenths() != 250 {
		t.Errorf("the slow member: rate %v, status %#x", r.Rate, st)
	}
	w.f = f
	if ch = w.s.SetState(0, stateOf(t, f, "")); len(ch.Reregister) != 0 {
		t.Errorf("a faster link makes %v register again", ch.Reregister)
	}
	if r, _ := join(c[3]); r.Rate.Tenths() != 250 {
		t.Errorf("rate %v while there are members", r.Rate)
	}
	for _, p := range c[1:4] {
		w.ask(p, 0, mad.MethodDelete, mad.AttrMCMemberRecord, joinMask, &mad.MCMemberRecord{MGID: all, PortGID: w.gid(p), JoinState: 1})
	}
	w.s.SetState(0, stateOf(t, f, ""))
	if r, _ := join(c[1]); r.Rate != 16 {
		t.Errorf("rate %v after all had left", r.Rate)
	}
	// A port slower than a group that another port created is refused.
	fast := mad.MCMemberRecord{MGID: ib.GID{0xff, 0x12, 15: 1}, PortGID: w.gid(c[1]), PKey: 0xffff, JoinState: 1}
	if st, _ := w.ask(c[1], 0, mad.MethodSet, mad.AttrMCMemberRecord, createMask, &fast); st != 0 {
		t.Fatalf("status %#x", st)
	}
	w.f = slowed(f, c[2])
	w.s.SetState(0, stateOf(t, w.f, ""))
	fast.PortGID = w.gid(c[2])
	if st, _ := w.ask(c[2], 0, mad.MethodSet, mad.AttrMCMemberRecord, createMask, &fast); st != mad.StatusSAReqInvalid {
		t.Errorf("a slow port in a fast group: status %#x", st)
	}
	w.check()
}

// A partition that is taken away takes its members out of the groups.
func TestPartitionTakenAway(t *testing.T) {
	f := gen.LIDs(gen.Star(3, 8), 0)
	w := newWorld(t, f, "a=1,ipoib:ALL=full;")
	p := w.cas()[1]
	if st, _ := w.ask(p, 0, mad.MethodSet, mad.AttrMCMemberRecord, joinMask,
		&mad.MCMemberRecord{MGID: partition.BroadcastMGID(1), PortGID: w.gid(p), JoinState: 1}); st != 0 {
		t.Fatalf("status %#x", st)
	}
	ch := w.s.SetState(0, stateOf(t, f, ""))
	if !ch.Groups || w.s.groups[partition.BroadcastMGID(1)] != nil {
		t.Errorf("changes %+v, groups %+v", ch, w.s.GroupList())
	}
	w.check()
}

// A port may join for another of its partition; then either may end it, but no
// other port ends a membership that a port took up itself.
func TestProxyJoin(t *testing.T) {
	w := newWorld(t, gen.LIDs(gen.Star(4, 8), 0), "")
	c := w.cas()
	id := ib.GID{0xff, 0x12, 15: 3}
	r := mad.MCMemberRecord{MGID: id, PortGID: w.gid(c[1]), PKey: 0xffff, JoinState: 1}
	if st, _ := w.ask(c[1], 0, mad.MethodSet, mad.AttrMCMemberRecord, createMask, &r); st != 0 {
		t.Fatalf("status %#x", st)
	}
	if st, _ := w.ask(c[2], 0, mad.MethodDelete, mad.AttrMCMemberRecord, joinMask, &r); st != mad.StatusSAReqInvalid {
		t.Errorf("end of another's membership: status %#x", st)
	}
	r.PortGID = w.gid(c[3])
	if st, _ := w.ask(c[2], 0, mad.MethodSet, mad.AttrMCMemberRecord, joinMask, &r); st != 0 {
		t.Fatalf("proxy join: status %#x", st)
	}
	_, recs := w.ask(c[2], 1, mad.MethodGet, mad.AttrMCMemberRecord, mad.CompMCMGID|mad.CompMCPortGID, &r)
	var got mad.MCMemberRecord
	if _ = got.Decode(recs[0]); !got.ProxyJoin || got.PortGID != w.gid(c[3]) || got.JoinState != 1 {
		t.Errorf("member %+v", got)
	}
	if st, recs := w.ask(c[2], 1, mad.MethodGetTable, mad.AttrMCMemberRecord, mad.CompMCMGID, &r); st != 0 || len(recs) != 2 {
		t.Errorf("%d members, status %#x", len(recs), st)
	}
	if st, recs := w.ask(c[2], 0, mad.MethodGet, mad.AttrMCMemberRecord, mad.CompMCMGID, &r); st != 0 {
		t.Errorf("status %#x", st)
	} else if _ = got.Decode(recs[0]); !got.PortGID.IsZero() || got.JoinState != 0 {
		t.Errorf("an untrusted answer names a member: %+v", got)
	}
	if st, _ := w.ask(c[1], 0, mad.MethodDelete, mad.AttrMCMemberRecord, joinMask, &r); st != 0 {
		t.Errorf("end of a proxy membership: status %#x", st)
	}
	w.check()
}

// Alias GUIDs: made up or chosen, found by paths and joins, refused to others,
// and their groups go with them.
func TestAliasGUIDs(t *testing.T) {
	w := newWorld(t, gen.LIDs(gen.Star(4, 8), 0), "")
	c := w.cas()
	set := func(req, port int32, key uint64, m mad.Method, r mad.GUIDInfoRecord, bits mad.CompMask) (mad.GUIDInfo, mad.Status) {
		r.LID = w.f.Ports[port].LID
		st, recs := w.ask(req, key, m, mad.AttrGUIDInfoRecord, mad.CompGIRLID|mad.CompGIRBlock|bits, &r)
		var out mad.GUIDInfoRecord
		if st == 0 {
			_ = out.Decode(recs[0])
		}
		return out.Info, st
	}
	r := mad.GUIDInfoRecord{Info: mad.GUIDInfo{0: 5, 1: 0x77}}
	got, st := set(c[1], c[1], 0, mad.MethodSet, r, mad.CompGIRGID0|mad.CompGIRGID0<<1|mad.CompGIRGID0<<2)
	if st != 0 || got[0] != w.f.Ports[c[1]].GUID || got[1] != 0x77 || got[2] == 0 {
		t.Fatalf("GUIDs %v, status %#x", got, st)
	}
	if len(w.ch.GUIDs) != 1 || w.ch.GUIDs[0].GUIDs != got || w.ch.GUIDs[0].Port != w.f.Ports[c[1]].GUID {
		t.Errorf("to write: %+v", w.ch.GUIDs)
	}
	if _, st := set(c[2], c[1], 0, mad.MethodSet, r, mad.CompGIRGID0<<3); st != mad.StatusSADenied {
		t.Errorf("set by another port: status %#x", st)
	}
	if _, st := set(c[2], c[2], 0, mad.MethodSet, r, mad.CompGIRGID0<<1); st != mad.StatusSAReqInvalid {
		t.Errorf("a GUID of another port: status %#x", st)
	}
	if _, st := set(c[1], c[1], 0, mad.MethodSet, mad.GUIDInfoRecord{Block: 99}, mad.CompGIRGID0); st != mad.StatusSANoRecords {
		t.Errorf("a block that the port does not have: status %#x", st)
	}
	alias := ib.MakeGID(w.f.Prefix, 0x77)
	st, recs := w.ask(c[3], 0, mad.MethodGet, mad.AttrPathRecord, mad.CompPRSGID|mad.CompPRDGID,
		&mad.PathRecord{SGID: w.gid(c[3]), DGID: alias})
	var pr mad.PathRecord
	if st != 0 {
		t.Fatalf("path to an alias: status %#x", st)
	}
	if _ = pr.Decode(recs[0]); pr.DGID != alias || pr.DLID != w.f.Ports[c[1]].LID {
		t.Errorf("path %+v", pr)
	}
	id := ib.GID{0xff, 0x12, 15: 9}
	if st, _ := w.ask(c[1], 0, mad.MethodSet, mad.AttrMCMemberRecord, createMask,
		&mad.MCMemberRecord{MGID: id, PortGID: alias, PKey: 0xffff, JoinState: 1}); st != 0 {
		t.Fatalf("join of an alias: status %#x", st)
	}
	w.check()
	// A sweep keeps them.
	w.s.SetState(0, stateOf(t, w.f, ""))
	if w.s.byGUID(0x77) != c[1] || w.s.groups[id] == nil {
		t.Error("a sweep loses alias GUIDs or their groups")
	}
	if got, st := set(c[2], c[1], 1, mad.MethodDelete, r, mad.CompGIRGID0<<1); st != 0 || got[1] != 0 || got[2] == 0 {
		t.Errorf("after the delete: %v, status %#x", got, st)
	}
	if w.s.groups[id] != nil || !w.ch.Groups {
		t.Error("the alias' group outlives it")
	}
	w.check()
}

// A request with a limited key of the requester's own partition gets a path.
func TestLimitedKeys(t *testing.T) {
	w := newWorld(t, gen.LIDs(gen.Star(3, 8), 0), "Default=0x7fff,ipoib:ALL=limited,SELF=full;")
	c := w.cas()
	for _, k := range []ib.PKey{0x7fff, 0xffff} {
		st, recs := w.ask(c[1], 0, mad.MethodGet, mad.AttrPathRecord, mad.CompPRSGID|mad.CompPRDGID|mad.CompPRPKey,
			&mad.PathRecord{SGID: w.gid(c[1]), DGID: w.gid(w.f.SMPort), PKey: k})
		var r mad.PathRecord
		if st != 0 {
			t.Fatalf("P_Key %v: status %#x", k, st)
		}
		if _ = r.Decode(recs[0]); r.PKey != k {
			t.Errorf("asked with %v, answered %v", k, r.PKey)
		}
	}
}

// The MTU and rate of a path are those of its slowest link, wherever that is.
func TestPathOfSlowLink(t *testing.T) {
	f := gen.LIDs(gen.Mesh([]int{4}, 1), 0)
	for i := range f.Ports {
		p := &f.Ports[i]
		if p.Peer == fabric.None || f.Nodes[p.Node].Switch != 1 || f.Nodes[f.Ports[p.Peer].Node].Switch != 2 {
			continue
		}
		p.Info.SetWidthActive(1)
		f.Ports[p.Peer].Info.SetWidthActive(1)
		p.Info.SetMTUCap(ib.MTU1024)
	}
	w := newWorld(t, f, "")
	host := func(sw int32) int32 {
		for _, e := range w.cas() {
			if s, _ := f.SwitchOf(e); s == sw {
				return e
			}
		}
		t.Fatal("no host")
		return 0
	}
	for _, tt := range []struct {
		a, b int32
		mtu  ib.MTU
		rate int
	}{{0, 1, ib.MTU4096, 1000}, {0, 3, ib.MTU1024, 250}, {3, 0, ib.MTU1024, 250}, {2, 3, ib.MTU4096, 1000}} {
		_, recs := w.ask(host(tt.a), 0, mad.MethodGet, mad.AttrPathRecord, mad.CompPRSGID|mad.CompPRDGID,
			&mad.PathRecord{SGID: w.gid(host(tt.a)), DGID: w.gid(host(tt.b))})
		var r mad.PathRecord
		if _ = r.Decode(recs[0]); r.MTU != tt.mtu || r.Rate.Tenths() != tt.rate {
			t.Errorf("from switch %d to %d: MTU %v, rate %v", tt.a, tt.b, r.MTU, r.Rate)
		}
	}
}

// The rules for making a group, one by one (IBTA 15.2.5.17, o15-0.1.x).
func TestCreateRules(t *testing.T) {
	exact, less, greater, best := mad.SelExact, mad.SelLess, mad.SelGreater, mad.SelBest
	const mtu, rate, life = mad.CompMCMTUSel | mad.CompMCMTU, mad.CompMCRateSel | mad.CompMCRate, mad.CompMCLifeTimeSel | mad.CompMCLifeTime
	for _, tt := range []struct {
		name   string
		mask   mad.CompMask
		edit   func(*mad.MCMemberRecord)
		status mad.Status
		want   func(*mad.MCMemberRecord) bool
	}{
		{"OK plain", createMask, func(r *mad.MCMemberRecord) {}, 0, func(r *mad.MCMemberRecord) bool {
			return r.MTU == ib.MTU4096 && r.Rate == 16 && r.LifeTime == 18 && r.Scope == 2 && r.HopLimit == 0
		}},
		{"OK the SA makes the MGID", createMask, func(r *mad.MCMemberRecord) { r.MGID = ib.GID{} }, 0, func(r *mad.MCMemberRecord) bool {
			return r.MGID[0] == 0xff && r.MGID[1] == 0x12 && r.MGID[2] == 0xa0 && r.MGID[3] == 0x1b
		}},
		{"OK and with a scope", createMask | mad.CompMCScope, func(r *mad.MCMemberRecord) { r.MGID, r.Scope = ib.GID{}, 5 }, 0,
			func(r *mad.MCMemberRecord) bool {
				return r.MGID[1] == 0x15 && r.Scope == 5
			}},
		{"OK exact MTU and rate", createMask | mtu | rate,
			func(r *mad.MCMemberRecord) { r.MTUSel, r.MTU, r.RateSel, r.Rate = exact, 3, exact, 3 }, 0,
			func(r *mad.MCMemberRecord) bool { return r.MTU == 3 && r.Rate == 3 }},
		{"OK less", createMask | mtu | rate, func(r *mad.MCMemberRecord) { r.MTUSel, r.MTU, r.RateSel, r.Rate = less, 5, less, 16 }, 0,
			func(r *mad.MCMemberRecord) bool { return r.MTU == 4 && r.Rate.Tenths() < 1000 && r.Rate != 0 }},
		{"OK less than more than the port can", createMask | rate, func(r *mad.MCMemberRecord) { r.RateSel, r.Rate = less, 18 }, 0,
			func(r *mad.MCMemberRecord) bool { return r.Rate == 16 }},
		{"OK greater", createMask | mtu | rate, func(r *mad.MCMemberRecord) { r.MTUSel, r.MTU, r.RateSel, r.Rate = greater, 1, greater, 2 }, 0,
			func(r *mad.MCMemberRecord) bool { return r.MTU == 5 && r.Rate == 16 }},
		{"OK best", createMask | mtu | rate, func(r *mad.MCMemberRecord) { r.MTUSel, r.MTU, r.RateSel, r.Rate = best, 1, best, 2 }, 0,
			func(r *mad.MCMemberRecord) bool { return r.MTU == 5 && r.Rate == 16 }},
		{"OK life time", createMask | life, func(r *mad.MCMemberRecord) { r.LifeTimeSel, r.LifeTime = less, 10 }, 0,
			func(r *mad.MCMemberRecord) bool { return r.LifeTime == 9 }},
		{"OK MLID asked for", createMask | mad.CompMCMLID, func(r *mad.MCMemberRecord) { r.MLID = 0xc044 }, 0,
			func(r *mad.MCMemberRecord) bool { return r.MLID == 0xc044 }},
		{"OK flags 0", createMask, func(r *mad.MCMemberRecord) { r.MGID = ib.GID{0xff, 0x02, 15: 1} }, 0, nil},
		{"OK IPv6 of IPoIB", createMask, func(r *mad.MCMemberRecord) { r.MGID, r.QKey = mustGID("ff12:601b:ffff::1"), 0xb1b }, 0, nil},
		{"bad no P_Key", createMask &^ mad.CompMCPKey, func(r *mad.MCMemberRecord) {}, mad.StatusSAInsufComps, nil},
		{"bad no SL", createMask &^ mad.CompMCSL, func(r *mad.MCMemberRecord) {}, mad.StatusSAInsufComps, nil},
		{"bad no PortGID", createMask &^ mad.CompMCPortGID, func(r *mad.MCMemberRecord) {}, mad.StatusSAInsufComps, nil},
		{"bad P_Key", createMask, func(r *mad.MCMemberRecord) { r.PKey = 0x8000 }, mad.StatusSAReqInvalid, nil},
		{"bad partition", createMask, func(r *mad.MCMemberRecord) { r.PKey = 0x8001 }, mad.StatusSAReqInvalid, nil},
		{"bad join state", createMask, func(r *mad.MCMemberRecord) { r.JoinState = mad.JoinNon }, mad.StatusSAReqInvalid, nil},
		{"bad prefix of the port", createMask, func(r *mad.MCMemberRecord) { r.PortGID[0] = 0xfc }, mad.StatusSAInvalidGID, nil},
		{"bad port", createMask, func(r *mad.MCMemberRecord) { r.PortGID[15]++; r.PortGID[9]++ }, mad.StatusSAReqInvalid, nil},
		{"bad MGID", createMask, func(r *mad.MCMemberRecord) { r.MGID[0] = 0xfa }, mad.StatusSAReqInvalid, nil},
		{"bad flags", createMask, func(r *mad.MCMemberRecord) { r.MGID[1] = 0x22 }, mad.StatusSAReqInvalid, nil},
		{"bad MGID of the SA's own kind", createMask, func(r *mad.MCMemberRecord) { r.MGID = ib.GID{0xff, 0x12, 0xa0, 0x1b} },
			mad.StatusSAReqInvalid, nil},
		{"bad IPoIB without its broadcast group", createMask, func(r *mad.MCMemberRecord) { r.MGID = mustGID("ff15:401b:ffff::1") },
			mad.StatusSAReqInvalid, nil},
		{"bad MTU code", createMask | mtu, func(r *mad.MCMemberRecord) { r.MTUSel, r.MTU = exact, 6 }, mad.StatusSAReqInvalid, nil},
		{"bad rate code", createMask | rate, func(r *mad.MCMemberRecord) { r.RateSel, r.Rate = exact, 1 }, mad.StatusSAReqInvalid, nil},
		{"bad rate above the port's", createMask | rate, func(r *mad.MCMemberRecord) { r.RateSel, r.Rate = exact, 18 },
			mad.StatusSAReqInvalid, nil},
		{"bad above 4096", createMask | mtu, func(r *mad.MCMemberRecord) { r.MTUSel, r.MTU = greater, 5 }, mad.StatusSAReqInvalid, nil},
		{"bad below 256", createMask | mtu, func(r *mad.MCMemberRecord) { r.MTUSel, r.MTU = less, 1 }, mad.StatusSAReqInvalid, nil},
		{"bad below 2.5", createMask | rate, func(r *mad.MCMemberRecord) { r.RateSel, r.Rate = less, 2 }, mad.StatusSAReqInvalid, nil},
		{"bad above all rates", createMask | rate, func(r *mad.MCMemberRecord) { r.RateSel, r.Rate = greater, 16 }, mad.StatusSAReqInvalid, nil},
		{"bad life below 0", createMask | life, func(r *mad.MCMemberRecord) { r.LifeTimeSel, r.LifeTime = less, 0 }, mad.StatusSAReqInvalid, nil},
		{"bad life above 63", createMask | life, func(r *mad.MCMemberRecord) { r.LifeTimeSel, r.LifeTime = greater, 63 },
			mad.StatusSAReqInvalid, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t, gen.LIDs(gen.Star(3, 8), 0), "")
			p := w.cas()[1]
			r := mad.MCMemberRecord{MGID: ib.GID{0xff, 0x12, 15: 1}, PortGID: w.gid(p), PKey: 0xffff, JoinState: 1}
			tt.edit(&r)
			st, recs := w.ask(p, 0, mad.MethodSet, mad.AttrMCMemberRecord, tt.mask, &r)
			if st != tt.status {
				t.Fatalf("status %#x, want %#x", st, tt.status)
			}
			if st == 0 {
				var got mad.MCMemberRecord
				if _ = got.Decode(recs[0]); got.MTUSel != exact || got.RateSel != exact || got.LifeTimeSel != exact || tt.want != nil &&
					!tt.want(&got) {
					t.Errorf("group %+v", got)
				}
				// To find it by what it is.
				if st, recs := w.ask(p, 0, mad.MethodGet, mad.AttrMCMemberRecord,
					mad.CompMCMLID|mtu|rate|life|mad.CompMCScope|mad.CompMCPKey|mad.CompMCQKey, &got); st != 0 || len(recs) != 1 {
					t.Errorf("look-up: status %#x", st)
				}
			} else if len(w.s.groups) != 1 {
				t.Errorf("a refused request made a group: %+v", w.s.GroupList())
			}
			w.check()
		})
	}
}

// What a path is asked to be, and what it is then.
func TestPathSelectors(t *testing.T) {
	w := newWorld(t, gen.LIDs(gen.Star(3, 8), 0), "")
	a, b := w.cas()[1], w.cas()[2]
	const mtu, rate, life = mad.CompPRMTUSel | mad.CompPRMTU, mad.CompPRRateSel | mad.CompPRRate, mad.CompPRLifeTimeSel | mad.CompPRLifeTime
	for _, tt := range []struct {
		name string
		mask mad.CompMask
		req  mad.PathRecord
		want string // "" for no path
	}{
		{"any", 0, mad.PathRecord{}, "4096 100 Gb/s 18 SL 0"},
		{"exact", mtu | rate | life, mad.PathRecord{MTUSel: mad.SelExact, MTU: 4, RateSel: mad.SelExact, Rate: 7,
			LifeTimeSel: mad.SelExact, LifeTime: 16}, "2048 40 Gb/s 16 SL 0"},
		{"less", mtu | rate, mad.PathRecord{MTUSel: mad.SelLess, MTU: 5, RateSel: mad.SelLess, Rate: 16}, "2048 80 Gb/s 18 SL 0"},
		{"less than the least", mtu, mad.PathRecord{MTUSel: mad.SelLess, MTU: 1}, ""},
		{"slower than the slowest", rate, mad.PathRecord{RateSel: mad.SelLess, Rate: 2}, ""},
		{"greater", mtu | rate, mad.PathRecord{MTUSel: mad.SelGreater, MTU: 4, RateSel: mad.SelGreater, Rate: 7}, "4096 100 Gb/s 18 SL 0"},
		{"greater than there is", rate, mad.PathRecord{RateSel: mad.SelGreater, Rate: 16}, ""},
		{"best", mtu | rate | life, mad.PathRecord{MTUSel: mad.SelBest, MTU: 1, RateSel: mad.SelBest, Rate: 2, LifeTimeSel: mad.SelBest},
			"4096 100 Gb/s 18 SL 0"},
		{"longer life", life, mad.PathRecord{LifeTimeSel: mad.SelGreater, LifeTime: 17}, "4096 100 Gb/s 18 SL 0"},
		{"longest life", life, mad.PathRecord{LifeTimeSel: mad.SelGreater, LifeTime: 63}, ""},
		{"shorter life", life, mad.PathRecord{LifeTimeSel: mad.SelLess, LifeTime: 18}, "4096 100 Gb/s 17 SL 0"},
		{"no life", life, mad.PathRecord{LifeTimeSel: mad.SelLess, LifeTime: 1}, ""},
		{"exactly too long", life, mad.PathRecord{LifeTimeSel: mad.SelExact, LifeTime: 19}, ""},
		{"SL", mad.CompPRSL, mad.PathRecord{SL: 3}, "4096 100 Gb/s 18 SL 3"},
		{"raw", mad.CompPRRawTraffic, mad.PathRecord{RawTraffic: true}, "4096 100 Gb/s 18 SL 0"},
	} {
		tt.req.SGID, tt.req.DGID = w.gid(a), w.gid(b)
		st, recs := w.ask(a, 0, mad.MethodGet, mad.AttrPathRecord, mad.CompPRSGID|mad.CompPRDGID|tt.mask, &tt.req)
		got := ""
		if st == 0 {
			var r mad.PathRecord
			_ = r.Decode(recs[0])
			got = fmt.Sprintf("%v %v %d SL %d", r.MTU, r.Rate, r.LifeTime, r.SL)
		}
		if got != tt.want {
			t.Errorf("%s: %q (status %#x), want %q", tt.name, got, st, tt.want)
		}
	}
}

// A subscription takes what its fields name and nothing else.
func TestSubscriptionRules(t *testing.T) {
	w := newWorld(t, gen.LIDs(gen.Star(4, 8), 0), "")
	c := w.cas()
	lid := w.f.Ports[c[2]].LID
	trap := mad.Notice{Generic: true, Type: mad.NoticeInfo, Producer: 1, TrapNumber: 144, IssuerLID: lid}
	base := mad.InformInfo{LIDRangeBegin: 0xffff, Generic: true, Subscribe: true, Type: 0xffff, TrapNumber: 0xffff, Producer: 0xffffff}
	for _, tt := range []struct {
		name string
		edit func(*mad.InformInfo)
		n    int
	}{
		{"everything", func(i *mad.InformInfo) {}, 1},
		{"this trap", func(i *mad.InformInfo) { i.TrapNumber = 144 }, 1},
		{"another trap", func(i *mad.InformInfo) { i.TrapNumber = 128 }, 0},
		{"this type", func(i *mad.InformInfo) { i.Type = uint16(mad.NoticeInfo) }, 1},
		{"another type", func(i *mad.InformInfo) { i.Type = uint16(mad.NoticeUrgent) }, 0},
		{"this producer", func(i *mad.InformInfo) { i.Producer = 1 }, 1},
		{"another producer", func(i *mad.InformInfo) { i.Producer = 2 }, 0},
		{"this port by GID", func(i *mad.InformInfo) { i.GID = w.gid(c[2]) }, 1},
		{"another port by GID", func(i *mad.InformInfo) { i.GID = w.gid(c[3]) }, 0},
		{"LIDs around it", func(i *mad.InformInfo) { i.LIDRangeBegin, i.LIDRangeEnd = lid-1, lid+1 }, 1},
		{"its LID alone", func(i *mad.InformInfo) { i.LIDRangeBegin = lid }, 1},
		{"other LIDs", func(i *mad.InformInfo) { i.LIDRangeBegin, i.LIDRangeEnd = lid+1, lid+1 }, 0},
		{"vendor's", func(i *mad.InformInfo) { i.Generic = false }, 0},
	} {
		i := base
		tt.edit(&i)
		if st, _ := w.ask(c[1], 0, mad.MethodSet, mad.AttrInformInfo, 0, &i); st != 0 {
			t.Fatalf("%s: status %#x", tt.name, st)
		}
		if n := len(w.s.Forward(trap)); n != tt.n {
			t.Errorf("%s: %d reports, want %d", tt.name, n, tt.n)
		}
		i.Subscribe = false
		if st, _ := w.ask(c[1], 0, mad.MethodSet, mad.AttrInformInfo, 0, &i); st != 0 {
			t.Errorf("%s: end: status %#x", tt.name, st)
		}
	}
	for name, edit := range map[string]func(*mad.InformInfo){
		"a GID that is not there": func(i *mad.InformInfo) { i.GID = ib.GID{0xfe, 0x80, 15: 99} },
		"LIDs that are not there": func(i *mad.InformInfo) { i.LIDRangeBegin = 999 },
		"security without trust":  func(i *mad.InformInfo) { i.TrapNumber = 256 },
	} {
		i := base
		edit(&i)
		if st, _ := w.ask(c[1], 0, mad.MethodSet, mad.AttrInformInfo, 0, &i); st != mad.StatusSAReqInvalid {
			t.Errorf("%s: status %#x", name, st)
		}
	}
}

// A port with several LIDs is found by each of them.
func TestAnyLIDOfAPort(t *testing.T) {
	f := gen.LIDs(gen.FatTree2(8, 2), 2)
	w := newWorld(t, f, "")
	a, b := w.cas()[0], w.cas()[3]
	lid := f.Ports[b].LID + 3
	for _, tt := range []struct {
		attr mad.AttrID
		mask mad.CompMask
		rec  appender
		n    int
	}{
		{mad.AttrNodeRecord, mad.CompNRLID, &mad.NodeRecord{LID: lid}, 1},
		{mad.AttrPortInfoRecord, mad.CompPIRLID, &mad.PortInfoRecord{LID: lid}, 1},
		{mad.AttrVLArbRecord, mad.CompVLARLID, &mad.VLArbRecord{LID: lid}, 4},
		{mad.AttrSLtoVLRecord, mad.CompSLVLLID, &mad.SLtoVLRecord{LID: lid}, 1},
		{mad.AttrGUIDInfoRecord, mad.CompGIRLID | mad.CompGIRBlock, &mad.GUIDInfoRecord{LID: lid}, 1},
		{mad.AttrLinkRecord, mad.CompLRFromLID, &mad.LinkRecord{FromLID: lid}, 1},
		{mad.AttrLinkRecord, mad.CompLRToLID, &mad.LinkRecord{ToLID: lid}, 1},
		{mad.AttrLinkRecord, mad.CompLRToLID | mad.CompLRFromLID, &mad.LinkRecord{ToLID: lid, FromLID: f.Ports[a].LID}, 0},
		{mad.AttrPathRecord, mad.CompPRSGID | mad.CompPRDLID, &mad.PathRecord{SGID: w.gid(a), DLID: lid}, 4},
		{mad.AttrPathRecord, mad.CompPRSGID | mad.CompPRDGID, &mad.PathRecord{SGID: w.gid(a), DGID: w.gid(b)}, 16},
		{mad.AttrPathRecord, mad.CompPRSGID | mad.CompPRDGID | mad.CompPRNumbPath,
			&mad.PathRecord{SGID: w.gid(a), DGID: w.gid(b), NumbPath: 3}, 3},
	} {
		if st, recs := w.ask(a, 0, mad.MethodGetTable, tt.attr, tt.mask, tt.rec); st != 0 || len(recs) != tt.n {
			t.Errorf("attribute %#x: %d records, want %d; status %#x", tt.attr, len(recs), tt.n, st)
		}
	}
}

// On a torus routed over service levels, paths carry the level that keeps them
// free of deadlock, the same both ways, whatever was wished.
func TestPathLayers(t *testing.T) {
	f := gen.LIDs(gen.Torus([]int{5, 6}, 1), 0)
	for i := range f.Ports {
		f.Ports[i].Info.SetVLCap(4) // eight lanes
	}
	r, err := route.Build(f, route.Options{Layers: 8})
	if err != nil || r.NumLayers < 2 {
		t.Fatalf("%d layers, %v", r.NumLayers, err)
	}
	w := newWorld(t, f, "")
	st := w.s.state
	st.LFT, st.SL = r.LFT, r.SL
	w.s.SetState(0, st)
	sls := map[ib.SL]bool{}
	for _, a := range w.cas() {
		for _, b := range w.cas() {
			path := func(x, y int32, mask mad.CompMask, sl ib.SL) (ib.SL, mad.Status) {
				st, recs := w.ask(x, 0, mad.MethodGet, mad.AttrPathRecord, mad.CompPRSGID|mad.CompPRDGID|mask,
					&mad.PathRecord{SGID: w.gid(x), DGID: w.gid(y), SL: sl})
				var r mad.PathRecord
				if st == 0 {
					_ = r.Decode(recs[0])
				}
				return r.SL, st
			}
			there, s1 := path(a, b, 0, 0)
			back, s2 := path(b, a, 0, 0)
			sa, _ := f.SwitchOf(a)
			sb, _ := f.SwitchOf(b)
			if s1 != 0 || s2 != 0 || there != back || there != r.SL.SL(sa, sb) {
				t.Fatalf("SL %d there, %d back, status %#x %#x", there, back, s1, s2)
			}
			if _, s := path(a, b, mad.CompPRSL, there+1); s != mad.StatusSANoRecords {
				t.Fatalf("a path with another SL: status %#x", s)
			}
			sls[there] = true
		}
	}
	if len(sls) != r.NumLayers {
		t.Errorf("levels in use %v, layers %d", sls, r.NumLayers)
	}
}

// Two managers, asked in different orders, give groups the same LIDs, in few
// blocks of the tables.
func TestMLIDsFollowFromMGIDs(t *testing.T) {
	f := gen.LIDs(gen.Star(3, 8), 0)
	mlids := func(order []int) map[ib.GID]ib.LID {
		w := newWorld(t, f, "")
		p := w.cas()[1]
		out := map[ib.GID]ib.LID{}
		for _, i := range order {
			id := mustGID("ff12:401b:ffff::e000:0")
			id[15] = byte(i)
			st, recs := w.ask(p, 0, mad.MethodSet, mad.AttrMCMemberRecord, createMask,
				&mad.MCMemberRecord{MGID: id, PortGID: w.gid(p), PKey: 0xffff, QKey: 0xb1b, JoinState: 1})
			if st != 0 {
				t.Fatalf("status %#x", st)
			}
			var r mad.MCMemberRecord
			_ = r.Decode(recs[0])
			out[id] = r.MLID
		}
		w.check()
		return out
	}
	var up, down []int
	for i := range 30 {
		up, down = append(up, i), append(down, 29-i)
	}
	a, b := mlids(up), mlids(down)
	same := 0
	for id, l := range a {
		if l >= ib.LIDMulticastMin+mlidWindow {
			t.Errorf("%v has %v", id, l)
		}
		if b[id] == l {
			same++
		}
	}
	if same < 25 {
		t.Errorf("%d of 30 groups have the same LID", same)
	}
}
