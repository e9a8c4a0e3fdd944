package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"ibnetworkd/ib"
	"ibnetworkd/internal/testkit"
	"ibnetworkd/lab/gen"
	"ibnetworkd/lab/simfabric"
	"ibnetworkd/lab/simfabric/server"
	"ibnetworkd/sm/mad"
	"ibnetworkd/sm/transport"
)

// inProcess is a rig whose simulator runs in the test, so that the test can
// play hosts and read the subnet.
func inProcess(t *testing.T, tl *tools, f func() *simfabric.Sim) (*rig, *simfabric.Sim) {
	t.Helper()
	sim := f()
	r := &rig{t: tl, kind: "ibnetsim", dir: t.TempDir(), sock: fmt.Sprintf("smtest%d-%d", os.Getpid(), rigs.Add(1))}
	srv, err := server.Listen(sim, r.sock, nil)
	testkit.NoError(t, err)
	t.Cleanup(func() {
		for _, m := range r.sms {
			m.kill()
		}
		srv.Close()
		sim.Close()
	})
	return r, sim
}

func star6() *simfabric.Sim { return simfabric.New(gen.Star(6, 36), simfabric.Options{}) }

func mustRun(t *testing.T, r *rig, sm, host string, prio int) *manager {
	t.Helper()
	m, err := r.run(sm, host, prio, true)
	testkit.NoError(t, err)
	return m
}

func until(t *testing.T, what string, limit time.Duration, ok func() bool) time.Duration {
	t.Helper()
	begin := time.Now()
	for !ok() {
		if time.Since(begin) > limit {
			t.Fatalf("%s: not within %v", what, limit)
		}
		time.Sleep(2 * time.Millisecond)
	}
	return time.Since(begin)
}

// followed is the subnet manager that every linked adapter port follows, 0 while
// they disagree.
func followed(sim *simfabric.Sim) (l ib.LID) {
	for _, e := range sim.EndPorts() {
		if e.NodeType == ib.NodeSwitch || !e.Up {
			continue
		}
		if e.SMLID == 0 || e.State != ib.PortActive || l != 0 && e.SMLID != l {
			return 0
		}
		l = e.SMLID
	}
	return l
}

func lidOf(sim *simfabric.Sim, host string) ib.LID {
	if h := sim.FindHost(host); len(h) > 0 {
		return h[0].LID
	}
	return 0
}

// TestMixedManagers lets ibnetsm and opensm share a subnet: the better one is
// master, whichever comes first, and the other takes over.
func TestMixedManagers(t *testing.T) {
	tl := rigTools(t, "opensm")
	follows := func(sim *simfabric.Sim, host string) func() bool {
		return func() bool { l := followed(sim); return l != 0 && l == lidOf(sim, host) }
	}
	for _, c := range []struct {
		name             string
		first, second    string
		prio1, prio2     int
		master, takeover string // hosts; takeover: who is master after the master was killed, "" not tried
		limit            time.Duration
	}{
		{"better opensm joins ibnetsm", "ibnetsm", "opensm", 1, 15, "H-00002", "H-00001", 15 * time.Second},
		{"better ibnetsm joins opensm", "opensm", "ibnetsm", 1, 10, "H-00002", "", 15 * time.Second},
		{"worse opensm joins ibnetsm", "ibnetsm", "opensm", 10, 1, "H-00001", "", 15 * time.Second},
		{"worse ibnetsm joins opensm", "opensm", "ibnetsm", 10, 1, "H-00001", "H-00002", 15 * time.Second},
		{"equal, lower GUID wins", "ibnetsm", "opensm", 5, 5, "H-00001", "", 15 * time.Second},
		{"equal, lower GUID is opensm", "opensm", "ibnetsm", 5, 5, "H-00001", "H-00002", 15 * time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r, sim := inProcess(t, tl, star6)
			a := mustRun(t, r, c.first, "H-00001", c.prio1)
			until(t, "the first manager is up", 10*time.Second, follows(sim, "H-00001"))
			b := mustRun(t, r, c.second, "H-00002", c.prio2)
			if c.master != "H-00001" {
				until(t, "the second manager is master", c.limit, follows(sim, c.master))
			} else {
				until(t, "the second manager announces itself", 10*time.Second, func() bool { return sim.FindHost("H-00002")[0].IsSM })
			}
			for range 20 { // it stays so
				time.Sleep(100 * time.Millisecond)
				if l := followed(sim); l != lidOf(sim, c.master) {
					t.Fatalf("ports follow LID %s, the master is %s", l, lidOf(sim, c.master))
				}
			}
			if c.takeover == "" {
				return
			}
			master := a
			if c.master == "H-00002" {
				master = b
			}
			master.kill()
			took := until(t, "the other takes over", 5*time.Second, follows(sim, c.takeover))
			t.Logf("taken over after %v", took)
		})
	}
}

// eachManager runs f on a subnet that one of the managers has configured.
func eachManager(t *testing.T, f func(t *testing.T, sim *simfabric.Sim)) {
	tl := rigTools(t, "opensm")
	for _, sm := range []string{"opensm", "ibnetsm"} {
		t.Run(sm, func(t *testing.T) {
			t.Parallel()
			r, sim := inProcess(t, tl, star6)
			m := mustRun(t, r, sm, "H-00001", 5)
			if _, err := m.waitUp(1, 10*time.Second); err != nil {
				t.Fatal(err)
			}
			until(t, "all ports are Active", 10*time.Second, func() bool { return followed(sim) != 0 })
			time.Sleep(300 * time.Millisecond) // opensm says it is up before its SA answers
			f(t, sim)
		})
	}
}

// TestReports subscribes to the SA's notices and lets each of traps 64 to 67
// happen, with both managers: exactly one report each, with the right GID, and
// none after the subscription ended.
func TestReports(t *testing.T) {
	eachManager(t, func(t *testing.T, sim *simfabric.Sim) {
		sub := newSubscriber(t, sim, "H-00002")
		member := newSubscriber(t, sim, "H-00003")
		victim := sim.FindHost("H-00005")[0]
		all := mad.InformInfo{LIDRangeBegin: 0xffff, LIDRangeEnd: 0, Generic: true, Subscribe: true, Type: 0xffff,
			TrapNumber: mad.TrapAll, Producer: 0xffffff, RespTimeValue: 18, QPN: 1}
		if st := sub.inform(all); st != 0 {
			t.Fatalf("subscribe: status 0x%04x", uint16(st))
		}
		gid := ib.MakeGID(ib.DefaultPrefix, victim.PortGUID)
		testkit.NoError(t, sim.Cut(victim.NodeGUID, 1))
		sub.expect(mad.TrapGIDOutOfService, gid)
		testkit.NoError(t, sim.Restore(victim.NodeGUID, 1))
		sub.expect(mad.TrapGIDInService, gid)
		group, _ := ib.ParseGID("ff12:401b:ffff::1234:5678")
		if st := member.join(group, mad.MethodSet); st != 0 {
			t.Fatalf("create a group: status 0x%04x", uint16(st))
		}
		sub.expect(mad.TrapMcastGroupCreated, group)
		if st := member.join(group, mad.MethodDelete); st != 0 {
			t.Fatalf("leave the group: status 0x%04x", uint16(st))
		}
		sub.expect(mad.TrapMcastGroupDeleted, group)
		all.Subscribe = false
		if st := sub.inform(all); st != 0 {
			t.Fatalf("unsubscribe: status 0x%04x", uint16(st))
		}
		if st := member.join(group, mad.MethodSet); st != 0 {
			t.Fatalf("create the group again: status 0x%04x", uint16(st))
		}
		time.Sleep(500 * time.Millisecond)
		if l := sub.drain(); len(l) != 0 {
			t.Errorf("reports after the end of the subscription: %+v", l)
		}
	})
}

// TestLease registers a service for two seconds: it is there, and it is gone.
func TestLease(t *testing.T) {
	eachManager(t, func(t *testing.T, sim *simfabric.Sim) {
		s := newSubscriber(t, sim, "H-00002")
		rec := mad.ServiceRecord{ServiceID: 0x1234, GID: ib.MakeGID(ib.DefaultPrefix, s.port.PortGUID), PKey: ib.DefaultPKey, Lease: 2}
		copy(rec.Name[:], "lease")
		mask := mad.CompSRServiceID | mad.CompSRGID | mad.CompSRPKey | mad.CompSRLease | mad.CompSRName
		if p := s.sa(mad.MethodSet, mad.AttrServiceRecord, mask, &rec); mad.StatusOf(&p.MAD) != 0 {
			t.Fatalf("register: status 0x%04x", uint16(mad.StatusOf(&p.MAD)))
		}
		there := func() bool {
			p := s.sa(mad.MethodGet, mad.AttrServiceRecord, mad.CompSRServiceID, &rec)
			return mad.StatusOf(&p.MAD) == 0
		}
		if !there() {
			t.Fatal("the service is not there")
		}
		took := until(t, "the lease ends", 10*time.Second, func() bool { return !there() })
		if took < 1500*time.Millisecond {
			t.Errorf("a lease of 2 s ended after %v", took)
		}
	})
}

// subscriber is a host's program that asks the SA and takes its reports.
type subscriber struct {
	t    *testing.T
	tr   transport.Transport
	port transport.Port
	tid  uint32
	got  []mad.Notice
}

func newSubscriber(t *testing.T, sim *simfabric.Sim, host string) *subscriber {
	t.Helper()
	h := sim.FindHost(host)[0]
	tr, err := sim.OpenClient(h.PortGUID, true)
	testkit.NoError(t, err)
	t.Cleanup(func() { tr.Close() })
	p, err := tr.Port()
	testkit.NoError(t, err)
	return &subscriber{t: t, tr: tr, port: p}
}

// recv takes what comes until ok says so, and acknowledges reports.
func (s *subscriber) recv(limit time.Duration, ok func(*transport.Packet) bool) bool {
	ctx, cancel := context.WithTimeout(s.t.Context(), limit)
	defer cancel()
	var in [1]transport.Packet
	for {
		if _, err := s.tr.Recv(ctx, in[:]); err != nil {
			return false
		}
		p := in[0]
		if p.Err == nil && mad.MethodOf(&p.MAD) == mad.MethodReport {
			var n mad.Notice
			_ = n.Decode(p.MAD[mad.SADataOffset:])
			s.got = append(s.got, n)
			r := p
			r.MAD[3] = uint8(mad.MethodReportResp)
			if err := s.tr.Send(&r); err != nil {
				s.t.Error(err)
			}
		}
		if ok(&p) {
			return true
		}
	}
}

func (s *subscriber) sa(m mad.Method, a mad.AttrID, mask mad.CompMask, rec interface{ Append([]byte) []byte }) (answer transport.Packet) {
	s.t.Helper()
	s.tid++
	var p transport.Packet
	port, err := s.tr.Port()
	testkit.NoError(s.t, err)
	p.LID, p.QPN, p.Timeout, p.Retries = port.SMLID, 1, time.Second, 5
	h := mad.NewSA(m, a, s.tid, mask)
	p.SetMessage(rec.Append(h.Append(nil)), false)
	testkit.NoError(s.t, s.tr.Send(&p))
	if !s.recv(20*time.Second, func(p *transport.Packet) bool {
		answer = *p
		return uint32(mad.TIDOf(&p.MAD)) == s.tid && (p.Err != nil || mad.MethodOf(&p.MAD).IsResponse())
	}) || answer.Err != nil {
		s.t.Fatalf("SA %v of attribute 0x%x: %v", m, uint16(a), answer.Err)
	}
	return answer
}

func (s *subscriber) inform(i mad.InformInfo) mad.Status {
	p := s.sa(mad.MethodSet, mad.AttrInformInfo, 0, &i)
	return mad.StatusOf(&p.MAD)
}

func (s *subscriber) join(g ib.GID, m mad.Method) mad.Status {
	r := mad.MCMemberRecord{MGID: g, PortGID: ib.MakeGID(ib.DefaultPrefix, s.port.PortGUID), QKey: 0xb1b, PKey: ib.DefaultPKey,
		JoinState: mad.JoinFull}
	mask := mad.CompMCMGID | mad.CompMCPortGID | mad.CompMCJoinState
	if m == mad.MethodSet {
		mask |= mad.CompMCQKey | mad.CompMCPKey | mad.CompMCSL | mad.CompMCFlowLabel | mad.CompMCTClass
	}
	p := s.sa(m, mad.AttrMCMemberRecord, mask, &r)
	return mad.StatusOf(&p.MAD)
}

func (s *subscriber) drain() []mad.Notice {
	s.recv(10*time.Millisecond, func(*transport.Packet) bool { return false })
	l := s.got
	s.got = nil
	return l
}

// expect waits for one report of a trap about a GID. Others (a manager may report
// traps 128 and 144 too) are skipped.
func (s *subscriber) expect(trap uint16, g ib.GID) {
	s.t.Helper()
	is := func(n mad.Notice) bool { return n.Generic && n.TrapNumber == trap && n.DetailGID() == g }
	if !slices.ContainsFunc(s.got, is) && !s.recv(15*time.Second, func(*transport.Packet) bool { return slices.ContainsFunc(s.got, is) }) {
		s.t.Fatalf("no report of trap %d for %s; got %+v", trap, g, s.got)
	}
	time.Sleep(200 * time.Millisecond)
	n := 0
	for _, x := range s.drain() {
		if is(x) {
			n++
		}
	}
	if n != 1 {
		s.t.Errorf("trap %d is reported %d times", trap, n)
	}
}

// TestIbdm lets ibutils judge what ibnetsm programmed: all pairs connected, no
// credit loop.
func TestIbdm(t *testing.T) {
	tl := rigTools(t, "ibdiagnet", "ibdmchk")
	for _, name := range []string{"ft2-16", "ring-8", "torus-4x4", "mesh-4x4"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, err := tl.start("ibnetsim", name)
			testkit.NoError(t, err)
			t.Cleanup(r.stop)
			m := mustRun(t, r, "ibnetsm", "H-00001", 5)
			if _, err := m.waitUp(1, 20*time.Second); err != nil {
				t.Fatal(err)
			}
			tool := func(args ...string) string {
				ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
				defer cancel()
				c := exec.CommandContext(ctx, args[0], args[1:]...)
				c.Dir = r.dir
				if c.Env, err = r.env("H-00002", true); err != nil {
					t.Fatal(err)
				}
				b, _ := c.CombinedOutput() // ibdmchk crashes at its end, after all checks
				return string(b)
			}
			o := tool("sh", "-c", ibdiagnet)
			if strings.Contains(o, "-E-") || !strings.Contains(o, "STAGE") {
				t.Errorf("ibdiagnet:\n%s", o)
			}
			dg := filepath.Join(r.dir, "dg")
			o = tool("ibdmchk", "-s", filepath.Join(dg, "ibdiagnet.lst"), "-f", filepath.Join(dg, "ibdiagnet.fdbs"), "-m",
				filepath.Join(dg, "ibdiagnet.mcfdbs"))
			if strings.Contains(o, "-E-") || !strings.Contains(o, "no credit loops found") {
				t.Errorf("ibdmchk:\n%s", tail([]byte(o), 4000))
			}
		})
	}
}
