package sa

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"ibnetworkd/ib"
	"ibnetworkd/ib/partition"
	"ibnetworkd/internal/testkit"
	"ibnetworkd/lab/gen"
	"ibnetworkd/sm/fabric"
	"ibnetworkd/sm/mad"
	"ibnetworkd/sm/mcast"
	"ibnetworkd/sm/pkey"
	"ibnetworkd/sm/qos"
	"ibnetworkd/sm/route"
)

// stateOf is a fabric as the engine would leave it.
func stateOf(t testing.TB, f *fabric.Fabric, conf string) State {
	t.Helper()
	cfg := partition.Default()
	if conf != "" {
		var err error
		if cfg, err = partition.Parse("partitions.conf", []byte(conf)); err != nil {
			t.Fatal(err)
		}
	}
	r, err := route.Build(f, route.Options{})
	testkit.NoError(t, err)
	plan := pkey.Tables(f, cfg, nil)
	q, err := qos.Build(f, r.NumLayers, qos.Options{})
	testkit.NoError(t, err)
	return State{Fabric: f, LFT: r.LFT, SL: r.SL, PKeys: plan.Members, Groups: plan.Groups, QoS: q,
		SMs: []SMInfo{{Port: f.SMPort, Info: mad.SMInfo{GUID: f.Ports[f.SMPort].GUID, SMKey: 7, Priority: 3, State: 3}}}}
}

// world is a Service on a fabric with a way to ask it.
type world struct {
	t   testing.TB
	s   *Service
	f   *fabric.Fabric
	now time.Duration
	tid uint32
	mod uint32 // attribute modifier of the next requests
	ch  Changes
}

func newWorld(t testing.TB, f *fabric.Fabric, conf string) *world {
	w := &world{t: t, s: New(Config{}), f: f}
	w.s.SetState(0, stateOf(t, f, conf))
	return w
}

// cas are the ports of adapters, in GUID order.
func (w *world) cas() []int32 { return gen.Hosts(w.f) }

type appender interface{ Append([]byte) []byte }

// ask sends a request from a port and gives status and records.
func (w *world) ask(port int32, key uint64, m mad.Method, a mad.AttrID, mask mad.CompMask, rec appender) (mad.Status, [][]byte) {
	w.t.Helper()
	w.tid++
	h := mad.NewSA(m, a, w.tid, mask)
	h.SMKey, h.Mod = key, w.mod
	msg := rec.Append(h.Append(nil))
	reply, ch := w.s.Handle(w.now, Request{LID: w.f.Ports[port].LID, QP: 1, MAD: msg})
	w.ch = ch
	if reply.MAD == nil {
		w.t.Fatalf("no answer to %v of attribute %#x", m, a)
	}
	var r mad.SAHeader
	testkit.NoError(w.t, r.Decode(reply.MAD))
	if r.TID != h.TID || r.Attr != a || !r.Method.IsResponse() || r.SMKey != 0 {
		w.t.Fatalf("answer header %+v to %+v", r, h)
	}
	body := reply.MAD[mad.SADataOffset:]
	if table := m == mad.MethodGetTable || m == mad.MethodGetMulti; reply.RMPP != (table && r.Status == 0) {
		w.t.Fatalf("RMPP %v for %v with status %#x", reply.RMPP, m, r.Status)
	}
	var out [][]byte
	if n := int(r.AttrOffset) * 8; n > 0 {
		for len(body) >= n {
			out = append(out, body[:n])
			body = body[n:]
		}
	}
	if len(out) == 0 && len(body) > 0 {
		out = append(out, body)
	}
	return r.Status, out
}

func (w *world) gid(port int32) ib.GID { return ib.MakeGID(w.f.Prefix, w.f.Ports[port].GUID) }

// What ib_ipoib asks when an interface comes up: the broadcast group by name,
// a group with the parameters of the broadcast group, and a path.
func TestIPoIB(t *testing.T) {
	w := newWorld(t, gen.LIDs(gen.FatTree2(8, 4), 0), "")
	a, b := w.cas()[0], w.cas()[5]
	all := partition.BroadcastMGID(0xffff)
	var bc mad.MCMemberRecord
	for _, p := range []int32{a, b} {
		st, recs := w.ask(p, 0, mad.MethodSet, mad.AttrMCMemberRecord, joinMask|mad.CompMCPKey,
			&mad.MCMemberRecord{MGID: all, PortGID: w.gid(p), PKey: 0xffff, JoinState: mad.JoinFull})
		if st != 0 || len(recs) != 1 {
			t.Fatalf("join of the broadcast group: status %#x", st)
		}
		testkit.NoError(t, bc.Decode(recs[0]))
		if bc.MLID != 0xc000 || bc.QKey != 0xb1b || bc.MTU != ib.MTU4096 || bc.Rate != 16 || bc.JoinState != 1 || bc.PortGID != w.gid(p) ||
			bc.MTUSel != mad.SelExact || bc.RateSel != mad.SelExact || bc.Scope != 2 || bc.PKey != 0xffff {
			t.Errorf("broadcast group %+v", bc)
		}
		if !w.ch.Groups {
			t.Error("a join must change the multicast tables")
		}
	}
	// Joined again, as after ClientReregister: nothing changes.
	w.ask(b, 0, mad.MethodSet, mad.AttrMCMemberRecord, joinMask|mad.CompMCPKey,
		&mad.MCMemberRecord{MGID: all, PortGID: w.gid(b), PKey: 0xffff, JoinState: mad.JoinFull})
	if w.ch.Groups {
		t.Error("a second join changes the multicast tables")
	}
	full := joinMask | mad.CompMCPKey | mad.CompMCQKey | mad.CompMCMTUSel | mad.CompMCMTU | mad.CompMCTClass | mad.CompMCRateSel |
		mad.CompMCRate | mad.CompMCSL | mad.CompMCFlowLabel | mad.CompMCHopLimit
	g := bc
	g.MGID, g.PortGID, g.JoinState = mustGID("ff12:401b:ffff::1"), w.gid(a), mad.JoinFull
	st, recs := w.ask(a, 0, mad.MethodSet, mad.AttrMCMemberRecord, full, &g)
	if st != 0 {
		t.Fatalf("join of 224.0.0.1: status %#x", st)
	}
	var got mad.MCMemberRecord
	_ = got.Decode(recs[0])
	if got.MLID == bc.MLID || got.MLID >= ib.LIDMulticastMin+mlidWindow {
		t.Errorf("MLID %v", got.MLID)
	}
	g.PortGID, g.JoinState = w.gid(b), mad.JoinSendOnlyFull
	if st, _ := w.ask(b, 0, mad.MethodSet, mad.AttrMCMemberRecord, full, &g); st != 0 {
		t.Fatalf("send-only join: status %#x", st)
	}
	groups := w.s.Groups()
	want := []mcast.Group{
		{MLID: got.MLID, Members: []mcast.Member{{Port: a}, {Port: b, SendOnly: true}}},
		{MLID: 0xc000, Members: []mcast.Member{{Port: a}, {Port: b}}},
	}
	testkit.Diff(t, "groups", want, groups)
	g.QKey++
	g.MGID[15] = 9
	if st, _ := w.ask(b, 0, mad.MethodSet, mad.AttrMCMemberRecord, full, &g); st != mad.StatusSAReqInvalid {
		t.Errorf("a group with another Q_Key than the broadcast group: status %#x", st)
	}

	pr := mad.PathRecord{DGID: w.gid(b), SGID: w.gid(a), NumbPath: 1, PKey: 0xffff}
	st, recs = w.ask(a, 0, mad.MethodGet, mad.AttrPathRecord,
		mad.CompPRDGID|mad.CompPRSGID|mad.CompPRNumbPath|mad.CompPRTClass|mad.CompPRPKey, &pr)
	if st != 0 || len(recs) != 1 {
		t.Fatalf("path: status %#x, %d records", st, len(recs))
	}
	_ = pr.Decode(recs[0])
	if pr.DLID != w.f.Ports[b].LID || pr.SLID != w.f.Ports[a].LID || pr.MTU != ib.MTU4096 || pr.Rate != 16 || pr.PKey != 0xffff ||
		!pr.Reversible ||
		pr.LifeTime != 18 || pr.HopLimit != 0 {
		t.Errorf("path %+v", pr)
	}

	// Leaving: the group that was joined is deleted with its last full member.
	for _, x := range []struct {
		port  int32
		state uint8
	}{{a, mad.JoinFull}, {b, mad.JoinSendOnlyFull}} {
		st, _ := w.ask(x.port, 0, mad.MethodDelete, mad.AttrMCMemberRecord, joinMask,
			&mad.MCMemberRecord{MGID: mustGID("ff12:401b:ffff::1"), PortGID: w.gid(x.port), JoinState: x.state})
		if st != 0 {
			t.Errorf("leave: status %#x", st)
		}
	}
	if l := w.s.GroupList(); len(l) != 1 || l[0].Members != 2 || !l[0].Fixed {
		t.Errorf("groups left %+v", l)
	}
}

func mustGID(s string) ib.GID { return ib.GID(netip.MustParseAddr(s).As16()) }

// Queries of every kind find what is there.
// able is a PortInfoRecord with some capabilities.
func able(mask uint32) *mad.PortInfoRecord {
	var r mad.PortInfoRecord
	r.Info.SetCapMask(mask)
	return &r
}

func TestRecords(t *testing.T) {
	f := gen.LIDs(gen.FatTree2(8, 4), 0)
	w := newWorld(t, f, "")
	st := w.s.state
	st.MFT = mcast.Build(f, []mcast.Group{{MLID: 0xc000, Members: []mcast.Member{{Port: w.cas()[0]}, {Port: w.cas()[7]}}}})
	w.s.SetState(0, st)
	me, other := w.cas()[0], w.cas()[9]
	lid := f.Ports[other].LID
	sw := f.Ports[f.Port(f.Switches[1].Node, 0)].LID
	links := 2 * f.Links()
	ports := len(w.cas()) + len(f.Switches)*9
	for _, tt := range []struct {
		name   string
		key    uint64
		attr   mad.AttrID
		mask   mad.CompMask
		rec    appender
		n      int
		status mad.Status
	}{
		{"all nodes", 0, mad.AttrNodeRecord, 0, &mad.NodeRecord{}, len(f.EndPorts), 0},
		{"node by LID", 0, mad.AttrNodeRecord, mad.CompNRLID, &mad.NodeRecord{LID: lid}, 1, 0},
		{"node by LID and wrong type", 0, mad.AttrNodeRecord, mad.CompNRLID | mad.CompNRNodeType,
			&mad.NodeRecord{LID: lid, Info: mad.NodeInfo{NodeType: ib.NodeSwitch}}, 0, 0},
		{"node by port GUID", 0, mad.AttrNodeRecord, mad.CompNRPortGUID,
			&mad.NodeRecord{Info: mad.NodeInfo{PortGUID: f.Ports[other].GUID}}, 1, 0},
		{"node by node GUID", 0, mad.AttrNodeRecord, mad.CompNRNodeGUID,
			&mad.NodeRecord{Info: mad.NodeInfo{NodeGUID: f.Nodes[f.Ports[other].Node].GUID}}, 1, 0},
		{"node by description", 0, mad.AttrNodeRecord, mad.CompNRDescription,
			&mad.NodeRecord{Description: mad.NewNodeDescription("H-00003")}, 1, 0},
		{"switches", 0, mad.AttrNodeRecord, mad.CompNRNodeType, &mad.NodeRecord{Info: mad.NodeInfo{NodeType: ib.NodeSwitch}}, len(f.Switches), 0},
		{"all ports", 0, mad.AttrPortInfoRecord, 0, &mad.PortInfoRecord{}, ports, 0},
		{"ports of a switch", 0, mad.AttrPortInfoRecord, mad.CompPIRLID, &mad.PortInfoRecord{LID: sw}, 9, 0},
		{"a port of a switch", 0, mad.AttrPortInfoRecord, mad.CompPIRLID | mad.CompPIRPort, &mad.PortInfoRecord{LID: sw, Port: 3}, 1, 0},
		{"ports by capability bit", 0, mad.AttrPortInfoRecord, mad.CompPIRCapMask,
			able(mad.CapTrap), ports, 0},
		{"switch info", 0, mad.AttrSwitchInfoRecord, 0, &mad.SwitchInfoRecord{}, len(f.Switches), 0},
		{"switch info of an adapter", 0, mad.AttrSwitchInfoRecord, mad.CompSWIRLID, &mad.SwitchInfoRecord{LID: lid}, 0, 0},
		{"LFT", 0, mad.AttrLFTRecord, mad.CompLFTLID, &mad.LFTRecord{LID: sw}, 1, 0},
		{"LFT block that is not there", 0, mad.AttrLFTRecord, mad.CompLFTLID | mad.CompLFTBlock, &mad.LFTRecord{LID: sw, Block: 9}, 0, 0},
		{"MFT", 0, mad.AttrMFTRecord, 0, &mad.MFTRecord{}, 3, 0},
		{"SL to VL of an adapter", 0, mad.AttrSLtoVLRecord, mad.CompSLVLLID, &mad.SLtoVLRecord{LID: lid}, 1, 0},
		{"SL to VL of a switch", 0, mad.AttrSLtoVLRecord, mad.CompSLVLLID, &mad.SLtoVLRecord{LID: sw}, 81, 0},
		{"VL arbitration", 0, mad.AttrVLArbRecord, mad.CompVLARLID, &mad.VLArbRecord{LID: lid}, 4, 0},
		{"SM info", 0, mad.AttrSMInfoRecord, 0, &mad.SMInfoRecord{}, 1, 0},
		{"all links", 0, mad.AttrLinkRecord, 0, &mad.LinkRecord{}, links, 0},
		{"links from a LID", 0, mad.AttrLinkRecord, mad.CompLRFromLID, &mad.LinkRecord{FromLID: lid}, 1, 0},
		{"links to a LID", 0, mad.AttrLinkRecord, mad.CompLRToLID, &mad.LinkRecord{ToLID: lid}, 1, 0},
		{"P_Keys without trust", 0, mad.AttrPKeyTableRecord, mad.CompPKTRLID, &mad.PKeyTableRecord{LID: lid}, 0, mad.StatusSAReqInvalid},
		{"P_Keys", 1, mad.AttrPKeyTableRecord, mad.CompPKTRLID, &mad.PKeyTableRecord{LID: lid}, 2, 0},
		{"a block of P_Keys", 1, mad.AttrPKeyTableRecord, mad.CompPKTRLID | mad.CompPKTRBlock, &mad.PKeyTableRecord{LID: lid, Block: 1}, 1, 0},
		{"ports with a manager", 0, mad.AttrPortInfoRecord, mad.CompPIRCapMask,
			able(mad.CapIsSM), 1, 0},
		{"GUIDs", 0, mad.AttrGUIDInfoRecord, mad.CompGIRLID, &mad.GUIDInfoRecord{LID: lid}, 4, 0},
		{"groups", 0, mad.AttrMCMemberRecord, 0, &mad.MCMemberRecord{}, 1, 0},
		{"members", 1, mad.AttrMCMemberRecord, 0, &mad.MCMemberRecord{}, 0, 0},
		{"all paths", 0, mad.AttrPathRecord, 0, &mad.PathRecord{}, len(f.EndPorts) * len(f.EndPorts), 0},
		{"paths from a LID", 0, mad.AttrPathRecord, mad.CompPRSLID, &mad.PathRecord{SLID: lid}, len(f.EndPorts), 0},
		{"path with a foreign GID", 0, mad.AttrPathRecord, mad.CompPRSGID | mad.CompPRDGID,
			&mad.PathRecord{SGID: w.gid(me), DGID: mustGID("fec0::1")}, 0, mad.StatusSAInvalidGID},
		{"path to an unknown LID", 0, mad.AttrPathRecord, mad.CompPRDLID, &mad.PathRecord{DLID: 999}, 0, 0},
		{"path with GID and LID of two ports", 0, mad.AttrPathRecord, mad.CompPRSGID | mad.CompPRSLID,
			&mad.PathRecord{SGID: w.gid(me), SLID: lid}, 0, mad.StatusSAReqInvalid},
		{"path with half a service ID", 0, mad.AttrPathRecord, mad.CompPRServiceIDLSB, &mad.PathRecord{}, 0, mad.StatusSAInsufComps},
		{"path with an MTU that does not exist", 0, mad.AttrPathRecord, mad.CompPRMTU | mad.CompPRMTUSel, &mad.PathRecord{MTU: 9}, 0,
			mad.StatusSAReqInvalid},
		{"path faster than the link", 0, mad.AttrPathRecord, mad.CompPRSLID | mad.CompPRDLID | mad.CompPRRate | mad.CompPRRateSel,
			&mad.PathRecord{SLID: f.Ports[me].LID, DLID: lid, RateSel: mad.SelExact, Rate: 18}, 0, 0},
		{"path slower than the link", 0, mad.AttrPathRecord, mad.CompPRSLID | mad.CompPRDLID | mad.CompPRRate | mad.CompPRRateSel,
			&mad.PathRecord{SLID: f.Ports[me].LID, DLID: lid, RateSel: mad.SelLess, Rate: 16}, 1, 0},
		{"path to a group", 0, mad.AttrPathRecord, mad.CompPRDGID, &mad.PathRecord{DGID: partition.BroadcastMGID(0xffff)}, 1, 0},
		{"path to a group from a port outside", 0, mad.AttrPathRecord, mad.CompPRDGID | mad.CompPRSGID,
			&mad.PathRecord{SGID: w.gid(me), DGID: partition.BroadcastMGID(0xffff)}, 0, 0},
		{"subscriptions", 0, mad.AttrInformInfoRecord, 0, &mad.InformInfoRecord{}, 0, 0},
		{"services", 0, mad.AttrServiceRecord, 0, &mad.ServiceRecord{}, 0, 0},
		{"no such attribute", 0, mad.AttrTraceRecord, 0, &mad.LinkRecord{}, 0, mad.StatusBadAttr},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w.t, w.mod = t, 0
			if tt.attr == mad.AttrPortInfoRecord {
				w.mod = 1 << 31 // capability masks by bit
			}
			st, recs := w.ask(me, tt.key, mad.MethodGetTable, tt.attr, tt.mask, tt.rec)
			if st != tt.status || st == 0 && len(recs) != tt.n {
				t.Errorf("status %#x, %d records; want %#x, %d", st, len(recs), tt.status, tt.n)
			}
			if tt.status != 0 || tt.attr == mad.AttrTraceRecord {
				return
			}
			// Get gives one record, and says so when there are none or many.
			want := mad.StatusOK
			switch {
			case tt.n == 0:
				want = mad.StatusSANoRecords
			case tt.n > 1 && tt.attr != mad.AttrPathRecord:
				want = mad.StatusSATooMany
			}
			if st, recs := w.ask(me, tt.key, mad.MethodGet, tt.attr, tt.mask, tt.rec); st != want || st == 0 && len(recs) != 1 {
				t.Errorf("Get: status %#x, %d records; want %#x", st, len(recs), want)
			}
		})
	}
}

func TestMultiPath(t *testing.T) {
	w := newWorld(t, gen.LIDs(gen.FatTree2(8, 4), 1), "")
	a, b, c := w.cas()[0], w.cas()[5], w.cas()[9]
	counts := mad.CompMPRSGIDCount | mad.CompMPRDGIDCount
	for _, tt := range []struct {
		name   string
		mask   mad.CompMask
		rec    mad.MultiPathRecord
		n      int
		status mad.Status
	}{
		{"one to two", counts, mad.MultiPathRecord{SGIDs: []ib.GID{w.gid(a)}, DGIDs: []ib.GID{w.gid(b), w.gid(c)}}, 8, 0},
		{"two paths", counts | mad.CompMPRNumbPath,
			mad.MultiPathRecord{NumbPath: 2, SGIDs: []ib.GID{w.gid(a)}, DGIDs: []ib.GID{w.gid(b), w.gid(c)}}, 2, 0},
		{"no counts", mad.CompMPRNumbPath, mad.MultiPathRecord{SGIDs: []ib.GID{w.gid(a)}, DGIDs: []ib.GID{w.gid(b)}}, 0, mad.StatusSAInsufComps},
		{"unknown GID", counts, mad.MultiPathRecord{SGIDs: []ib.GID{w.gid(a)}, DGIDs: []ib.GID{{15: 1}}}, 0, mad.StatusSAInvalidGID},
		{"no destination", counts, mad.MultiPathRecord{SGIDs: []ib.GID{w.gid(a)}}, 0, mad.StatusSAReqInvalid},
	} {
		st, recs := w.ask(a, 0, mad.MethodGetMulti, mad.AttrMultiPathRecord, tt.mask, &tt.rec)
		if st != tt.status || st == 0 && len(recs) != tt.n {
			t.Errorf("%s: status %#x, %d records; want %#x, %d", tt.name, st, len(recs), tt.status, tt.n)
		}
	}
}

// The path of a partition's member never leads to a port it may not talk to, and
// no port sees ports it shares no partition with.
func TestPartitionsSeparate(t *testing.T) {
	f := gen.LIDs(gen.Star(4, 8), 0)
	guid := func(i int) ib.GUID { return f.Ports[(&world{f: f}).cas()[i]].GUID }
	conf := fmt.Sprintf("Default=0x7fff,ipoib:ALL=limited,SELF=full;a=1,ipoib:%v=full,%v=full;b=2,ipoib:%v=full,%v=limited;", guid(1),
		guid(2), guid(1), guid(3))
	w := newWorld(t, f, conf)
	c := w.cas()
	pair := func(req, x, y int32, k ib.PKey) mad.Status {
		mask := mad.CompPRDGID | mad.CompPRSGID
		if k != 0 {
			mask |= mad.CompPRPKey
		}
		st, recs := w.ask(req, 0, mad.MethodGet, mad.AttrPathRecord, mask, &mad.PathRecord{SGID: w.gid(x), DGID: w.gid(y), PKey: k})
		if st == 0 {
			var r mad.PathRecord
			_ = r.Decode(recs[0])
			if k == 0 && !(w.s.inPartition(x, r.PKey) && w.s.inPartition(y, r.PKey)) {
				t.Errorf("path with P_Key %v", r.PKey)
			}
		}
		return st
	}
	for _, tt := range []struct {
		name      string
		req, x, y int32
		k         ib.PKey
		want      mad.Status
	}{
		{"both full", c[1], c[1], c[2], 0x8001, 0},
		{"any shared", c[1], c[1], c[2], 0, 0},
		{"full and limited", c[1], c[1], c[3], 0x8002, 0},
		{"not a member", c[1], c[1], c[2], 0x8002, mad.StatusSANoRecords},
		{"two limited members of the default partition", c[2], c[2], c[3], 0, mad.StatusSANoRecords},
		{"to the manager by limited membership", c[3], c[3], c[0], 0, 0},
		{"asked by a stranger", c[3], c[1], c[2], 0x8001, mad.StatusSANoRecords},
	} {
		if st := pair(tt.req, tt.x, tt.y, tt.k); st != tt.want {
			t.Errorf("%s: status %#x, want %#x", tt.name, st, tt.want)
		}
	}
	if st, recs := w.ask(c[3], 0, mad.MethodGetTable, mad.AttrNodeRecord, 0, &mad.NodeRecord{}); st != 0 || len(recs) != 3 {
		t.Errorf("a limited member sees %d nodes, want itself, its partner and the manager (status %#x)", len(recs), st)
	}
	join := func(p int32, k ib.PKey) mad.Status {
		st, _ := w.ask(p, 0, mad.MethodSet, mad.AttrMCMemberRecord, joinMask|mad.CompMCPKey,
			&mad.MCMemberRecord{MGID: partition.BroadcastMGID(k), PortGID: w.gid(p), PKey: k, JoinState: 1})
		return st
	}
	if st := join(c[2], 0x8001); st != 0 {
		t.Errorf("join of a member: %#x", st)
	}
	if st := join(c[3], 0x8001); st != mad.StatusSAReqInvalid {
		t.Errorf("join of a stranger: %#x", st)
	}
	if st := join(c[3], 0x0002); st != 0 {
		t.Errorf("join of a limited member: %#x", st)
	}
}

// reports gives trap numbers and GIDs of reports.
func reports(t *testing.T, rs []Report) (out []string) {
	for _, r := range rs {
		var n mad.Notice
		testkit.NoError(t, n.Decode(r.MAD[mad.SADataOffset:]))
		g := n.DetailGID()
		out = append(out, fmt.Sprintf("%d of %v to %v QP %d", n.TrapNumber, g, r.LID, r.QP))
	}
	return out
}

func TestReports(t *testing.T) {
	f := gen.LIDs(gen.Star(4, 8), 0)
	w := newWorld(t, f, "")
	c := w.cas()
	sub := func(p int32, trap uint16, on bool) mad.Status {
		st, _ := w.ask(p, 0, mad.MethodSet, mad.AttrInformInfo, 0, &mad.InformInfo{LIDRangeBegin: 0xffff, Generic: true, Subscribe: on,
			Type: 0xffff, TrapNumber: trap, Producer: 0xffffff, QPN: 1})
		return st
	}
	for _, trap := range []uint16{64, 65, 66, 67} {
		if st := sub(c[1], trap, true); st != 0 {
			t.Fatalf("subscription to %d: status %#x", trap, st)
		}
		if st := sub(c[1], trap, true); st != 0 {
			t.Errorf("the same again: status %#x", st)
		}
	}
	if st := sub(c[1], 257, true); st != mad.StatusSAReqInvalid {
		t.Errorf("untrusted subscription to a security trap: status %#x", st)
	}
	if st, recs := w.ask(c[2], 0, mad.MethodGetTable, mad.AttrInformInfoRecord, 0, &mad.InformInfoRecord{}); st != 0 || len(recs) != 4 {
		t.Errorf("%d subscriptions, status %#x", len(recs), st)
	}
	g := mad.MCMemberRecord{MGID: mustGID("ff12:401b:ffff::5"), PortGID: w.gid(c[2]), PKey: 0xffff, QKey: 0xb1b, JoinState: 1}
	w.ask(c[2], 0, mad.MethodSet, mad.AttrMCMemberRecord, createMask, &g)
	lid := f.Ports[c[1]].LID
	testkit.Diff(t, "", []string{fmt.Sprintf("66 of %v to %v QP 1", g.MGID, lid)}, reports(t, w.ch.Reports))
	w.ask(c[2], 0, mad.MethodDelete, mad.AttrMCMemberRecord, joinMask, &g)
	testkit.Diff(t, "", []string{fmt.Sprintf("67 of %v to %v QP 1", g.MGID, lid)}, reports(t, w.ch.Reports))
	// A port that goes takes its groups with it.
	w.ask(c[3], 0, mad.MethodSet, mad.AttrMCMemberRecord, createMask,
		func() *mad.MCMemberRecord { x := g; x.PortGID = w.gid(c[3]); return &x }())
	gone := f.Ports[c[3]]
	small := gen.LIDs(gen.Star(3, 8), 0)
	ch := w.s.SetState(0, stateOf(t, small, ""))
	testkit.Diff(t, "", []string{
		fmt.Sprintf("65 of %v to %v QP 1", ib.MakeGID(f.Prefix, gone.GUID), lid),
		fmt.Sprintf("67 of %v to %v QP 1", g.MGID, lid)}, reports(t, ch.Reports))
	ch = w.s.SetState(0, stateOf(t, f, ""))
	testkit.Diff(t, "", []string{fmt.Sprintf("64 of %v to %v QP 1", ib.MakeGID(f.Prefix, gone.GUID), lid)}, reports(t, ch.Reports))
	for _, trap := range []uint16{64, 65, 66, 67} {
		if st := sub(c[1], trap, false); st != 0 {
			t.Errorf("end of the subscription to %d: status %#x", trap, st)
		}
		if st := sub(c[1], trap, false); st != mad.StatusSAReqInvalid {
			t.Errorf("end of no subscription: status %#x", st)
		}
	}
	if len(w.s.subs) != 0 || len(w.s.perPort) != 0 {
		t.Errorf("left over: %v, %v", w.s.subs, w.s.perPort)
	}
}

func TestServiceLeases(t *testing.T) {
	w := newWorld(t, gen.LIDs(gen.Star(3, 8), 0), "")
	p := w.cas()[1]
	set := func(id uint64, lease uint32, mask mad.CompMask) mad.Status {
		r := mad.ServiceRecord{ServiceID: id, GID: w.gid(p), PKey: 0xffff, Lease: lease, Key: [16]byte{1, 2}}
		copy(r.Name[:], "a service")
		st, _ := w.ask(p, 0, mad.MethodSet, mad.AttrServiceRecord, mad.CompSRServiceID|mad.CompSRGID|mad.CompSRName|mad.CompSRKey|mask, &r)
		return st
	}
	count := func(mask mad.CompMask, r mad.ServiceRecord) int {
		st, recs := w.ask(p, 0, mad.MethodGetTable, mad.AttrServiceRecord, mask, &r)
		if st != 0 {
			t.Errorf("status %#x", st)
		}
		return len(recs)
	}
	if st := set(5, 10, mad.CompSRLease); st != 0 {
		t.Fatalf("status %#x", st)
	}
	if st := set(6, 0, 0); st != 0 {
		t.Fatalf("status %#x", st)
	}
	name := mad.ServiceRecord{}
	copy(name.Name[:], "a service")
	if n := count(mad.CompSRName, name); n != 2 {
		t.Errorf("%d services by name", n)
	}
	name.Name[3] = 'x'
	if n := count(mad.CompSRName, name); n != 0 {
		t.Errorf("%d services by a wrong name", n)
	}
	_, recs := w.ask(p, 0, mad.MethodGet, mad.AttrServiceRecord, mad.CompSRServiceID, &mad.ServiceRecord{ServiceID: 5})
	var r mad.ServiceRecord
	_ = r.Decode(recs[0])
	if r.Key != [16]byte{} || r.Lease != 10 || r.PKey != 0xffff {
		t.Errorf("untrusted answer %+v", r)
	}
	_, recs = w.ask(p, 1, mad.MethodGet, mad.AttrServiceRecord, mad.CompSRServiceID, &mad.ServiceRecord{ServiceID: 5})
	if _ = r.Decode(recs[0]); r.Key[1] != 2 {
		t.Errorf("trusted answer %+v", r)
	}
	if at, ok := w.s.NextTick(); !ok || at != 10*time.Second {
		t.Errorf("next tick %v %v", at, ok)
	}
	w.s.Tick(9 * time.Second)
	if n := count(0, r); n != 2 {
		t.Errorf("%d services before the lease ends", n)
	}
	w.s.Tick(10 * time.Second)
	if n := count(0, r); n != 1 {
		t.Errorf("%d services after the lease ended", n)
	}
	if st, _ := w.ask(p, 0, mad.MethodDelete, mad.AttrServiceRecord, mad.CompSRServiceID|mad.CompSRGID,
		&mad.ServiceRecord{ServiceID: 6, GID: w.gid(p)}); st != 0 {
		t.Errorf("delete: status %#x", st)
	}
	if st, _ := w.ask(p, 0, mad.MethodDelete, mad.AttrServiceRecord, mad.CompSRServiceID|mad.CompSRGID,
		&mad.ServiceRecord{ServiceID: 6, GID: w.gid(p)}); st != mad.StatusSANoRecords {
		t.Errorf("delete again: status %#x", st)
	}
	if len(w.s.perPort) != 0 {
		t.Errorf("left over %v", w.s.perPort)
	}
}
