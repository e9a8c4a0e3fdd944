package sa_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"ibnetworkd/ib"
	"ibnetworkd/ib/partition"
	"ibnetworkd/internal/testkit"
	"ibnetworkd/lab/gen"
	"ibnetworkd/lab/simfabric"
	"ibnetworkd/sm/engine"
	"ibnetworkd/sm/fabric"
	"ibnetworkd/sm/mad"
	"ibnetworkd/sm/transport"
)

// host is a client of the SA on a port of the simulated subnet.
type host struct {
	t    *testing.T
	guid ib.GUID
	tr   transport.Transport
	tid  uint32

	mu      sync.Mutex
	answers map[uint32]transport.Packet
	reports []string
	wake    chan struct{}
}

// subnet is a manager and hosts on a simulated subnet.
type subnet struct {
	t    *testing.T
	f    *fabric.Fabric
	sim  *simfabric.Sim
	stop []func()
}

func start(t *testing.T, f *fabric.Fabric, cfg engine.Config) *subnet {
	s := &subnet{t: t, f: f, sim: simfabric.New(f, simfabric.Options{})}
	tr, err := s.sim.Open(f.Ports[f.SMPort].GUID)
	testkit.NoError(t, err)
	sm := engine.New(tr, cfg)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); _ = sm.Run(ctx) }()
	s.stop = append(s.stop, func() { cancel(); <-done; tr.Close() })
	time.Sleep(2 * time.Second) // virtual
	return s
}

func (s *subnet) close() {
	for _, f := range slices.Backward(s.stop) {
		f()
	}
	s.sim.Close()
}

// host opens a port and receives on it: answers go to the request that waits for
// them, reports are kept and answered as the architecture requires (IBTA 13.4.9).
func (s *subnet) host(port int32) *host {
	guid := s.f.Ports[port].GUID
	tr, err := s.sim.Open(guid)
	testkit.NoError(s.t, err)
	h := &host{t: s.t, guid: guid, tr: tr, answers: map[uint32]transport.Packet{}, wake: make(chan struct{}, 1)}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		in := make([]transport.Packet, 16)
		for {
			n, err := tr.Recv(ctx, in)
			if err != nil {
				return
			}
			for i := range in[:n] {
				h.got(&in[i])
			}
		}
	}()
	s.stop = append(s.stop, func() { cancel(); <-done; tr.Close() })
	return h
}

func (h *host) got(p *transport.Packet) {
	h.mu.Lock()
	defer h.mu.Unlock()
	var x mad.SAHeader
	if err := x.Decode(p.Bytes()); err != nil || x.Class != mad.ClassSA {
		return
	}
	if x.Method == mad.MethodReport {
		var n mad.Notice
		if n.Decode(p.MAD[mad.SADataOffset:]) == nil {
			g := n.DetailGID()
			h.reports = append(h.reports, fmt.Sprintf("%d %v", n.TrapNumber, g))
		}
		r := transport.Packet{LID: p.LID, QPN: p.QPN, MAD: p.MAD}
		x.Method = mad.MethodReportResp
		x.Put(&r.MAD)
		_ = h.tr.Send(&r)
		return
	}
	h.answers[uint32(x.TID)] = *p
	select {
	case h.wake <- struct{}{}:
	default:
	}
}

// ask sends a request and waits for the answer.
func (h *host) ask(key uint64, m mad.Method, a mad.AttrID, mask mad.CompMask, rec interface{ Append([]byte) []byte }) (mad.Status,
	[][]byte) {
	h.t.Helper()
	pi, err := h.tr.Port()
	testkit.NoError(h.t, err)
	h.tid++
	x := mad.NewSA(m, a, h.tid, mask)
	x.SMKey = key
	p := transport.Packet{LID: pi.SMLID, QPN: 1, Timeout: time.Second, Retries: 3}
	p.SetMessage(rec.Append(x.Append(nil)), m == mad.MethodGetMulti)
	testkit.NoError(h.t, h.tr.Send(&p))
	for {
		h.mu.Lock()
		r, ok := h.answers[h.tid]
		delete(h.answers, h.tid)
		h.mu.Unlock()
		if !ok {
			<-h.wake
			continue
		}
		if r.Err != nil {
			h.t.Fatalf("%v of %#x: %v", m, a, r.Err)
		}
		var y mad.SAHeader
		b := r.Bytes()
		_ = y.Decode(b)
		var out [][]byte
		if n := int(y.AttrOffset) * 8; n > 0 && y.Status == 0 {
			if b = b[mad.SADataOffset:]; m != mad.MethodGetTable && m != mad.MethodGetMulti {
				b = b[:n]
			}
			for ; len(b) >= n; b = b[n:] {
				out = append(out, b[:n])
			}
		}
		return y.Status, out
	}
}

func (h *host) gid() ib.GID { return ib.MakeGID(ib.DefaultPrefix, h.guid) }

// taken gives the reports since the last call.
func (h *host) taken() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	r := h.reports
	h.reports = nil
	slices.Sort(r)
	return r
}

// joinGroup joins as ib_ipoib joins a group other than the broadcast group.
func (h *host) joinGroup(id ib.GID, state uint8) (mad.MCMemberRecord, mad.Status) {
	const mask = mad.CompMCMGID | mad.CompMCPortGID | mad.CompMCPKey | mad.CompMCJoinState | mad.CompMCQKey |
		mad.CompMCTClass | mad.CompMCSL | mad.CompMCFlowLabel
	var r mad.MCMemberRecord
	st, recs := h.ask(0, mad.MethodSet, mad.AttrMCMemberRecord, mask,
		&mad.MCMemberRecord{MGID: id, PortGID: h.gid(), PKey: 0xffff, QKey: 0xb1b, JoinState: state})
	if st == 0 {
		_ = r.Decode(recs[0])
	}
	return r, st
}

func (h *host) leaveGroup(id ib.GID, state uint8) mad.Status {
	st, _ := h.ask(0, mad.MethodDelete, mad.AttrMCMemberRecord, mad.CompMCMGID|mad.CompMCPortGID|mad.CompMCJoinState,
		&mad.MCMemberRecord{MGID: id, PortGID: h.gid(), JoinState: state})
	return st
}

// What osmtest's event flows would check if they did anything: a subscriber
// gets reports 64 to 67, each once, until it unsubscribes; a lease runs out;
// members of a group get its packets and no other port does.
func TestLive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := gen.FatTree2(8, 4)
		s := start(t, f, engine.Config{})
		defer s.close()
		cas := slices.DeleteFunc(gen.Hosts(f), func(e int32) bool { return e == f.SMPort })
		a, b, c := s.host(cas[0]), s.host(cas[5]), s.host(cas[10])

		subscribe := func(trap uint16, on bool) mad.Status {
			st, _ := a.ask(0, mad.MethodSet, mad.AttrInformInfo, 0, &mad.InformInfo{LIDRangeBegin: 0xffff, Generic: true, Subscribe: on,
				Type: 0xffff, TrapNumber: trap, Producer: 0xffffff, QPN: 1})
			return st
		}
		for trap := mad.TrapGIDInService; trap <= mad.TrapMcastGroupDeleted; trap++ {
			if st := subscribe(trap, true); st != 0 {
				t.Fatalf("subscription to %d: status %#x", trap, st)
			}
		}
		expect := func(what string, want ...string) {
			t.Helper()
			time.Sleep(5 * time.Second)
			if d := cmp.Diff(want, a.taken()); d != "" {
				t.Errorf("%s: reports (-want +got):\n%s", what, d)
			}
		}
		id := ib.GID{0xff, 0x12, 0x40, 0x1b, 0xff, 0xff, 15: 0x77}
		rb, st := b.joinGroup(id, mad.JoinFull)
		if st != 0 {
			t.Fatalf("join: status %#x", st)
		}
		expect("group made", fmt.Sprintf("66 %v", id))
		if _, st := c.joinGroup(id, mad.JoinFull); st != 0 {
			t.Fatalf("join: status %#x", st)
		}
		if _, st := a.joinGroup(id, mad.JoinSendOnlyFull); st != 0 {
			t.Fatalf("send-only join: status %#x", st)
		}
		expect("members come")
		reach := func(from *host, want ...*host) {
			t.Helper()
			got := s.sim.Multicast(from.guid, rb.MLID)
			var to []ib.GUID
			for _, h := range want {
				to = append(to, h.guid)
			}
			slices.Sort(got)
			slices.Sort(to)
			if d := cmp.Diff(to, got); d != "" {
				t.Errorf("packets from %v (-want +got):\n%s", from.guid, d)
			}
		}
		reach(b, c)
		reach(c, b)
		reach(a, b, c)
		if st := b.leaveGroup(id, mad.JoinFull); st != 0 {
			t.Errorf("leave: status %#x", st)
		}
		expect("a member leaves")
		reach(a, c)
		for _, x := range []*host{c, a} {
			state := mad.JoinFull
			if x == a {
				state = mad.JoinSendOnlyFull
			}
			if st := x.leaveGroup(id, state); st != 0 {
				t.Errorf("leave: status %#x", st)
			}
		}
		expect("group gone", fmt.Sprintf("67 %v", id))

		// A cable out and in again.
		away := f.Ports[cas[12]]
		sw := f.Ports[away.Peer]
		testkit.NoError(t, s.sim.Cut(f.Nodes[sw.Node].GUID, sw.Num))
		expect("cut", fmt.Sprintf("65 %v", ib.MakeGID(ib.DefaultPrefix, away.GUID)))
		testkit.NoError(t, s.sim.Restore(f.Nodes[sw.Node].GUID, sw.Num))
		expect("back", fmt.Sprintf("64 %v", ib.MakeGID(ib.DefaultPrefix, away.GUID)))

		// Traps that the manager receives are forwarded as well.
		if st := subscribe(mad.TrapCapMaskChange, true); st != 0 {
			t.Fatalf("subscription to 144: status %#x", st)
		}
		for trap := mad.TrapGIDInService; trap <= mad.TrapMcastGroupDeleted; trap++ {
			if st := subscribe(trap, false); st != 0 {
				t.Errorf("end of the subscription to %d: status %#x", trap, st)
			}
		}
		if _, st := b.joinGroup(id, mad.JoinFull); st != 0 {
			t.Fatalf("join: status %#x", st)
		}
		expect("after the end of the subscription")

		// A lease of ten seconds.
		svc := mad.ServiceRecord{ServiceID: 0x77, GID: a.gid(), PKey: 0xffff, Lease: 10}
		if st, _ := a.ask(0, mad.MethodSet, mad.AttrServiceRecord, mad.CompSRServiceID|mad.CompSRGID|mad.CompSRPKey|mad.CompSRLease,
			&svc); st != 0 {
			t.Fatalf("service: status %#x", st)
		}
		found := func() int {
			_, recs := b.ask(0, mad.MethodGetTable, mad.AttrServiceRecord, mad.CompSRServiceID, &svc)
			return len(recs)
		}
		time.Sleep(9 * time.Second)
		if n := found(); n != 1 {
			t.Errorf("%d services within the lease", n)
		}
		time.Sleep(2 * time.Second)
		if n := found(); n != 0 {
			t.Errorf("%d services after the lease", n)
		}

		// Answers of many segments, and a question of several GIDs.
		if st, recs := b.ask(0, mad.MethodGetTable, mad.AttrNodeRecord, 0, &mad.NodeRecord{}); st != 0 || len(recs) != len(f.EndPorts) {
			t.Errorf("%d nodes, want %d, status %#x", len(recs), len(f.EndPorts), st)
		}
		if st, recs := b.ask(0, mad.MethodGetTable, mad.AttrPathRecord, 0, &mad.PathRecord{}); st != 0 ||
			len(recs) != len(f.EndPorts)*len(f.EndPorts) {
			t.Errorf("%d paths, want %d, status %#x", len(recs), len(f.EndPorts)*len(f.EndPorts), st)
		}
		if st, recs := b.ask(0, mad.MethodGetMulti, mad.AttrMultiPathRecord, mad.CompMPRSGIDCount|mad.CompMPRDGIDCount,
			&mad.MultiPathRecord{SGIDs: []ib.GID{b.gid()}, DGIDs: []ib.GID{a.gid(), c.gid()}}); st != 0 || len(recs) != 2 {
			t.Errorf("%d paths of a MultiPathRecord, status %#x", len(recs), st)
		}
		// What ib_ipoib needs: the broadcast group is there before anybody.
		st, recs := b.ask(0, mad.MethodSet, mad.AttrMCMemberRecord, mad.CompMCMGID|mad.CompMCPortGID|mad.CompMCPKey|mad.CompMCJoinState,
			&mad.MCMemberRecord{MGID: partition.BroadcastMGID(0xffff), PortGID: b.gid(), PKey: 0xffff, JoinState: 1})
		if st != 0 {
			t.Fatalf("broadcast group: status %#x", st)
		}
		var bc mad.MCMemberRecord
		if _ = bc.Decode(recs[0]); bc.MTU != ib.MTU4096 || bc.Rate != 16 || bc.MLID != ib.LIDMulticastMin {
			t.Errorf("broadcast group %+v", bc)
		}
	})
}
