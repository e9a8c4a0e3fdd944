package sa

import (
	"testing"
	"time"

	"ibnetworkd/ib"
	"ibnetworkd/lab/gen"
	"ibnetworkd/sm/mad"
)

// A request for paths that cannot exist makes the SA check no more pairs than
// allowed: the manager answers other managers in the same goroutine.
func TestWorkIsBounded(t *testing.T) {
	w := newWorld(t, gen.LIDs(gen.FatTree2(8, 4), 7), "")
	c := w.cas()
	w.s.cfg.MaxWork = 5000
	for _, tt := range []struct {
		name string
		m    mad.Method
		attr mad.AttrID
		mask mad.CompMask
		rec  appender
		want mad.Status
	}{
		{"all paths with a key that nobody has", mad.MethodGetTable, mad.AttrPathRecord, mad.CompPRPKey, &mad.PathRecord{PKey: 0x8123},
			mad.StatusSANoResources},
		{"all LIDs of two ports", mad.MethodGetTable, mad.AttrPathRecord, mad.CompPRSGID | mad.CompPRDGID | mad.CompPRPKey,
			&mad.PathRecord{SGID: w.gid(c[0]), DGID: w.gid(c[1]), PKey: 0x8123}, mad.StatusSANoResources},
		{"several ports", mad.MethodGetMulti, mad.AttrMultiPathRecord, mad.CompMPRSGIDCount | mad.CompMPRDGIDCount | mad.CompMPRPKey,
			&mad.MultiPathRecord{SGIDs: []ib.GID{w.gid(c[0]), w.gid(c[1])}, DGIDs: []ib.GID{w.gid(c[2]), w.gid(c[3])}, PKey: 0x8123},
			mad.StatusSANoResources},
		{"one path", mad.MethodGet, mad.AttrPathRecord, mad.CompPRSGID | mad.CompPRDGID,
			&mad.PathRecord{SGID: w.gid(c[0]), DGID: w.gid(c[1])}, mad.StatusOK},
		{"a few paths", mad.MethodGetTable, mad.AttrPathRecord, mad.CompPRSGID | mad.CompPRDGID | mad.CompPRNumbPath,
			&mad.PathRecord{SGID: w.gid(c[0]), DGID: w.gid(c[1]), NumbPath: 100}, mad.StatusOK},
	} {
		if st, _ := w.ask(c[0], 0, tt.m, tt.attr, tt.mask, tt.rec); st != tt.want {
			t.Errorf("%s: status %#x, want %#x", tt.name, st, tt.want)
		}
		if n := w.s.q.work; n > w.s.cfg.MaxWork+1 {
			t.Errorf("%s: %d pairs were looked at", tt.name, n)
		}
	}
}

// All memberships together are bounded, and places come free again.
func TestMembersAreBounded(t *testing.T) {
	w := newWorld(t, gen.LIDs(gen.Star(8, 36), 0), "")
	w.s.cfg.MaxMembers = 5
	all := w.s.GroupList()[0].Record.MGID
	refused := 0
	for _, p := range w.cas() {
		r := mad.MCMemberRecord{MGID: all, PortGID: w.gid(p), JoinState: mad.JoinFull}
		if st, _ := w.ask(p, 0, mad.MethodSet, mad.AttrMCMemberRecord, joinMask, &r); st == mad.StatusSANoResources {
			refused++
		}
	}
	if refused != len(w.cas())-5 {
		t.Errorf("%d of %d joins refused, 5 are allowed", refused, len(w.cas()))
	}
	first, last := w.cas()[0], w.cas()[7]
	leave := mad.MCMemberRecord{MGID: all, PortGID: w.gid(first), JoinState: mad.JoinFull}
	if st, _ := w.ask(first, 0, mad.MethodDelete, mad.AttrMCMemberRecord, joinMask, &leave); st != 0 {
		t.Fatalf("leave: status %#x", st)
	}
	join := mad.MCMemberRecord{MGID: all, PortGID: w.gid(last), JoinState: mad.JoinFull}
	if st, _ := w.ask(last, 0, mad.MethodSet, mad.AttrMCMemberRecord, joinMask, &join); st != 0 {
		t.Errorf("join in a free place: status %#x", st)
	}
	w.check()
}

// A service with a key is replaced and deleted by who registered it, by who
// knows the key, and by the trusted.
func TestServiceKey(t *testing.T) {
	w := newWorld(t, gen.LIDs(gen.Star(4, 8), 0), "")
	owner, other := w.cas()[1], w.cas()[2]
	const mask = mad.CompSRServiceID | mad.CompSRGID | mad.CompSRKey | mad.CompSRName
	rec := func(key byte) *mad.ServiceRecord {
		return &mad.ServiceRecord{ServiceID: 7, GID: w.gid(owner), Key: [16]byte{0: key}, Name: [64]byte{'a'}}
	}
	for _, tt := range []struct {
		name string
		port int32
		smk  uint64
		m    mad.Method
		key  byte
		want mad.Status
	}{
		{"register", owner, 0, mad.MethodSet, 9, mad.StatusOK},
		{"replace without the key", other, 0, mad.MethodSet, 0, mad.StatusSADenied},
		{"replace with another key", other, 0, mad.MethodSet, 8, mad.StatusSADenied},
		{"delete without the key", other, 0, mad.MethodDelete, 0, mad.StatusSADenied},
		{"replace with the key", other, 0, mad.MethodSet, 9, mad.StatusOK},
		{"the owner replaces", owner, 0, mad.MethodSet, 9, mad.StatusOK},
		{"the trusted delete", other, 1, mad.MethodDelete, 0, mad.StatusOK},
		{"register without a key", owner, 0, mad.MethodSet, 0, mad.StatusOK},
		{"anybody deletes that", other, 0, mad.MethodDelete, 0, mad.StatusOK},
		{"gone", other, 0, mad.MethodDelete, 0, mad.StatusSANoRecords},
	} {
		if st, _ := w.ask(tt.port, tt.smk, tt.m, mad.AttrServiceRecord, mask, rec(tt.key)); st != tt.want {
			t.Errorf("%s: status %#x, want %#x", tt.name, st, tt.want)
		}
		w.check()
	}
}

// Notices of key violations have keys: a subscriber to everything gets them only
// if it is trusted.
func TestSecurityTraps(t *testing.T) {
	w := newWorld(t, gen.LIDs(gen.Star(4, 8), 0), "")
	c := w.cas()
	all := mad.InformInfo{LIDRangeBegin: 0xffff, Generic: true, Subscribe: true, Type: 0xffff, TrapNumber: mad.TrapAll, Producer: 0xffffff}
	for i, key := range []uint64{0, 1} {
		if st, _ := w.ask(c[1+i], key, mad.MethodSet, mad.AttrInformInfo, 0, &all); st != 0 {
			t.Fatalf("subscribe: status %#x", st)
		}
	}
	for trap, want := range map[uint16]int{128: 2, 144: 2, 255: 2, 256: 1, 257: 1, 258: 1, 259: 1, 260: 2} {
		n := mad.Notice{Generic: true, Type: mad.NoticeSecurity, Producer: 1, TrapNumber: trap, IssuerLID: w.f.Ports[c[3]].LID}
		got := w.s.Forward(n)
		if len(got) != want || want == 1 && got[0].LID != w.f.Ports[c[2]].LID {
			t.Errorf("trap %d: %d reports, want %d", trap, len(got), want)
		}
	}
}

// Many ports that appear at once times many subscribers are a bounded number of
// reports.
func TestReportsAreBounded(t *testing.T) {
	whole := gen.LIDs(gen.Star(12, 36), 0)
	w := newWorld(t, whole, "")
	w.s.cfg.MaxReports = 10
	all := mad.InformInfo{LIDRangeBegin: 0xffff, Generic: true, Subscribe: true, Type: 0xffff, TrapNumber: mad.TrapAll, Producer: 0xffffff}
	for _, p := range w.cas()[:4] {
		if st, _ := w.ask(p, 0, mad.MethodSet, mad.AttrInformInfo, 0, &all); st != 0 {
			t.Fatalf("subscribe: status %#x", st)
		}
	}
	small := stateOf(t, gen.LIDs(gen.Star(4, 36), 0), "")
	if ch := w.s.SetState(0, small); len(ch.Reports) > 10 {
		t.Errorf("%d reports", len(ch.Reports))
	}
	ch := w.s.SetState(0, stateOf(t, whole, ""))
	if c := w.s.Counters(); len(ch.Reports) != 10 || c.Unsent == 0 {
		t.Errorf("%d reports, %d not sent", len(ch.Reports), c.Unsent)
	}
	w.check()
}

// A port that is in no partition gets no path and sees no port, and its requests do
// no harm.
func TestPortWithoutKeys(t *testing.T) {
	w := newWorld(t, gen.LIDs(gen.Star(4, 8), 0), "")
	c := w.cas()
	st := w.s.state
	st.PKeys = append([][]ib.PKey(nil), st.PKeys...)
	for len(st.PKeys) <= int(c[1]) {
		st.PKeys = append(st.PKeys, nil)
	}
	st.PKeys[c[1]] = []ib.PKey{}
	w.s.SetState(0, st)
	for _, p := range []struct{ from, to int32 }{{c[1], c[2]}, {c[2], c[1]}, {c[1], c[1]}} {
		status, recs := w.ask(p.from, 0, mad.MethodGet, mad.AttrPathRecord, mad.CompPRSGID|mad.CompPRDGID,
			&mad.PathRecord{SGID: w.gid(p.from), DGID: w.gid(p.to)})
		if status == 0 {
			t.Errorf("a path without a key: %x", recs)
		}
	}
	if _, recs := w.ask(c[1], 0, mad.MethodGetTable, mad.AttrNodeRecord, 0, &mad.NodeRecord{}); len(recs) != 1 {
		t.Errorf("it sees %d nodes, want itself", len(recs))
	}
	w.now = time.Second
	w.check()
}

// Limited members of a partition cannot talk, so they do not learn of each
// other: no paths, no records, no reports, no services, and neither can join for
// another. The full member sees all of them, and makes no path between them.
func TestLimitedMembersApart(t *testing.T) {
	w := newWorld(t, gen.LIDs(gen.Star(4, 8), 0), "Default=0x7fff,ipoib:ALL=limited,SELF=full;")
	full := w.f.SMPort
	var c []int32
	for _, p := range w.cas() {
		if p != full {
			c = append(c, p)
		}
	}
	a, b := c[0], c[1]
	service := mad.ServiceRecord{ServiceID: 5, GID: w.gid(b), PKey: 0x7fff}
	if st, _ := w.ask(b, 0, mad.MethodSet, mad.AttrServiceRecord, mad.CompSRServiceID|mad.CompSRGID|mad.CompSRPKey, &service); st != 0 {
		t.Fatalf("register: status %#x", st)
	}
	info := mad.InformInfo{LIDRangeBegin: 0xffff, Generic: true, Subscribe: true, Type: 0xffff, TrapNumber: mad.TrapAll, Producer: 0xffffff}
	if st, _ := w.ask(b, 0, mad.MethodSet, mad.AttrInformInfo, 0, &info); st != 0 {
		t.Fatalf("subscribe: status %#x", st)
	}
	lid := w.f.Ports[b].LID
	const ends = mad.CompPRSGID | mad.CompPRDGID
	for _, tt := range []struct {
		name string
		m    mad.Method
		attr mad.AttrID
		mask mad.CompMask
		rec  appender
	}{
		{"paths", mad.MethodGetTable, mad.AttrPathRecord, ends, &mad.PathRecord{SGID: w.gid(a), DGID: w.gid(b)}},
		{"paths by LID", mad.MethodGetTable, mad.AttrPathRecord, mad.CompPRSLID | mad.CompPRDLID,
			&mad.PathRecord{SLID: w.f.Ports[a].LID, DLID: lid}},
		{"paths with the limited key", mad.MethodGetTable, mad.AttrPathRecord, ends | mad.CompPRPKey,
			&mad.PathRecord{SGID: w.gid(a), DGID: w.gid(b), PKey: 0x7fff}},
		{"paths with the full key", mad.MethodGetTable, mad.AttrPathRecord, ends | mad.CompPRPKey,
			&mad.PathRecord{SGID: w.gid(a), DGID: w.gid(b), PKey: 0xffff}},
		{"raw paths", mad.MethodGetTable, mad.AttrPathRecord, ends | mad.CompPRRawTraffic,
			&mad.PathRecord{SGID: w.gid(a), DGID: w.gid(b), RawTraffic: true}},
		{"several paths", mad.MethodGetMulti, mad.AttrMultiPathRecord, mad.CompMPRSGIDCount | mad.CompMPRDGIDCount,
			&mad.MultiPathRecord{SGIDs: []ib.GID{w.gid(a)}, DGIDs: []ib.GID{w.gid(b)}}},
		{"node", mad.MethodGetTable, mad.AttrNodeRecord, mad.CompNRLID, &mad.NodeRecord{LID: lid}},
		{"node by port GUID", mad.MethodGetTable, mad.AttrNodeRecord, mad.CompNRPortGUID,
			&mad.NodeRecord{Info: mad.NodeInfo{PortGUID: w.f.Ports[b].GUID}}},
		{"port", mad.MethodGetTable, mad.AttrPortInfoRecord, mad.CompPIRLID, &mad.PortInfoRecord{LID: lid}},
		{"GUIDs", mad.MethodGetTable, mad.AttrGUIDInfoRecord, mad.CompGIRLID, &mad.GUIDInfoRecord{LID: lid}},
		{"arbitration", mad.MethodGetTable, mad.AttrVLArbRecord, mad.CompVLARLID, &mad.VLArbRecord{LID: lid}},
		{"lanes", mad.MethodGetTable, mad.AttrSLtoVLRecord, mad.CompSLVLLID, &mad.SLtoVLRecord{LID: lid}},
		{"links", mad.MethodGetTable, mad.AttrLinkRecord, mad.CompLRFromLID, &mad.LinkRecord{FromLID: lid}},
		{"links to it", mad.MethodGetTable, mad.AttrLinkRecord, mad.CompLRToLID, &mad.LinkRecord{ToLID: lid}},
		{"services", mad.MethodGetTable, mad.AttrServiceRecord, mad.CompSRServiceID, &service},
		{"subscriptions", mad.MethodGetTable, mad.AttrInformInfoRecord, 0, &mad.InformInfoRecord{}},
	} {
		if st, recs := w.ask(a, 0, tt.m, tt.attr, tt.mask, tt.rec); len(recs) != 0 {
			t.Errorf("%s: %d records of another limited member, status %#x", tt.name, len(recs), st)
		}
	}
	for _, mask := range []mad.CompMask{ends, ends | mad.CompPRPKey} {
		if _, recs := w.ask(full, 1, mad.MethodGetTable, mad.AttrPathRecord, mask,
			&mad.PathRecord{SGID: w.gid(a), DGID: w.gid(b), PKey: 0x7fff}); len(recs) != 0 {
			t.Errorf("the full member is told of %d paths between limited ones", len(recs))
		}
	}
	if _, recs := w.ask(full, 0, mad.MethodGetTable, mad.AttrServiceRecord, mad.CompSRServiceID, &service); len(recs) != 1 {
		t.Errorf("the full member sees %d services", len(recs))
	}
	watch := mad.InformInfo{GID: w.gid(b), Generic: true, Subscribe: true, Type: 0xffff, TrapNumber: mad.TrapAll, Producer: 0xffffff}
	if st, _ := w.ask(a, 0, mad.MethodSet, mad.AttrInformInfo, 0, &watch); st != mad.StatusSAReqInvalid {
		t.Errorf("a subscription to another limited member: status %#x", st)
	}
	if got := w.s.Forward(mad.Notice{Generic: true, Type: mad.NoticeInfo, Producer: 1, TrapNumber: 144,
		IssuerLID: w.f.Ports[a].LID}); len(got) != 0 {
		t.Errorf("%d reports of another limited member", len(got))
	}
	join := mad.MCMemberRecord{MGID: w.s.GroupList()[0].Record.MGID, PortGID: w.gid(b), JoinState: mad.JoinFull}
	if st, _ := w.ask(a, 0, mad.MethodSet, mad.AttrMCMemberRecord, joinMask, &join); st != mad.StatusSAReqInvalid {
		t.Errorf("a limited member joins for another: status %#x", st)
	}
}

// One host that makes groups without end leaves the others their part of the
// multicast LIDs, and its own come free again.
func TestGroupShare(t *testing.T) {
	w := newWorld(t, gen.LIDs(gen.Star(8, 36), 0), "")
	evil, honest := w.cas()[0], w.cas()[1]
	mask := mad.CompMCMGID | mad.CompMCPortGID | mad.CompMCJoinState | mad.CompMCQKey | mad.CompMCPKey |
		mad.CompMCSL | mad.CompMCFlowLabel | mad.CompMCTClass
	set := func(p int32, m mad.Method, n int) mad.Status {
		r := mad.MCMemberRecord{MGID: ib.GID{0xff, 0x12, 0x60, 0x1b, 0xff, 0xff, 13: byte(n >> 16), 14: byte(n >> 8), 15: byte(n)},
			PortGID: w.gid(p), JoinState: mad.JoinFull, QKey: 0xb1b, PKey: ib.DefaultPKey}
		st, _ := w.ask(p, 0, m, mad.AttrMCMemberRecord, mask, &r)
		return st
	}
	made := 0
	for n := range 20000 {
		switch st := set(evil, mad.MethodSet, n); st {
		case mad.StatusOK:
			made++
		case mad.StatusSANoResources:
		default:
			t.Fatalf("group %d: status %#x", n, st)
		}
	}
	if made != w.s.groupShare() || made > multicastLIDs(w.f)/4 || made > 1024 {
		t.Errorf("one host made %d groups, its share is %d of %d", made, w.s.groupShare(), multicastLIDs(w.f))
	}
	for n := range 100 {
		if st := set(honest, mad.MethodSet, 1<<20+n); st != mad.StatusOK {
			t.Fatalf("another host's group %d: status %#x", n, st)
		}
		if st := set(honest, mad.MethodSet, n); st != mad.StatusOK {
			t.Fatalf("another host joins group %d: status %#x", n, st)
		}
	}
	for n := range 200 { // those that the other one joined live on, and still count
		set(evil, mad.MethodDelete, n)
	}
	again := 0
	for n := range 200 {
		if set(evil, mad.MethodSet, 2<<20+n) == mad.StatusOK {
			again++
		}
	}
	if again != 100 {
		t.Errorf("after the end of 100 groups %d new ones were made", again)
	}
}
