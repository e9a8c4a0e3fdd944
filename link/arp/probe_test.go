package arp

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"testing/quick"
	"time"

	"ibnetworkd/ib"
	"ibnetworkd/link"
)

var (
	about = netip.MustParseAddr("10.11.0.7")
	own   = ib.MustParseHWAddr("80:00:02:08:fe:80:00:00:00:00:00:00:00:02:c9:03:00:0a:bc:d1")
	other = ib.MustParseHWAddr("80:00:02:09:fe:80:00:00:00:00:00:00:00:02:c9:03:00:0a:bc:d9")
)

// ours are the hardware addresses of the host.
var (
	second = ib.MustParseHWAddr("80:00:02:08:fe:80:00:00:00:00:00:00:00:02:c9:03:00:0a:bc:d2")
	ours   = []ib.HWAddr{ib.MustParseHWAddr("00:00:00:00:00:00"), own, second}
)

// line is a link with one prober, at a time.
type line struct {
	*testing.T
	p    *Prober
	now  time.Duration
	sent []string
}

func newLine(t *testing.T, seed uint64) *line {
	return &line{T: t, p: New(Config{HType: 32, HWAddr: own}, about, seed), now: time.Hour}
}

func (l *line) take(packets [][]byte) {
	l.Helper()
	for _, b := range packets {
		a, ok := Parse(b, 20)
		if !ok || a.From != own || a.Target != about || a.Op != Request {
			l.Fatalf("% x", b)
		}
		l.sent = append(l.sent, map[bool]string{true: "probe", false: "announce"}[a.Sender.IsUnspecified()])
	}
}

func (l *line) link(carrier bool, downs uint32, inUse bool) { l.p.Link(l.now, carrier, downs, inUse) }

// pass has time pass, and does what becomes due.
func (l *line) pass(d time.Duration) {
	l.Helper()
	end := l.now + d
	for due := l.p.Deadline(); due != 0 && due <= end; due = l.p.Deadline() {
		l.now = max(l.now, due)
		l.take(l.p.Tick(l.now))
	}
	l.now = end
}

func (l *line) hear(a Packet) {
	l.Helper()
	l.take(l.p.ARP(l.now, a.Encode(32), ours))
}

func (l *line) want(state link.ProbeState, sent ...string) {
	l.Helper()
	if v := l.p.View(); v.State != state || (state == link.ProbeConflict) != (v.By != ib.HWAddr{}) || v.Address != about {
		l.Errorf("%+v, want %s", v, state)
	}
	if got := strings.Join(l.sent, " "); got != strings.Join(sent, " ") {
		l.Errorf("sent %q, want %q", got, sent)
	}
	l.sent = nil
}

func TestFreeAddress(t *testing.T) {
	for seed := range uint64(50) {
		l := newLine(t, seed)
		l.want(link.ProbeStopped)
		l.pass(time.Hour)
		l.link(true, 0, false)
		begin := l.now
		for l.p.View().State != link.ProbeFree {
			l.pass(10 * time.Millisecond)
		}
		if took := l.now - begin; took < 4*time.Second || took > 7*time.Second+100*time.Millisecond {
			t.Errorf("seed %d: %v", seed, took)
		}
		l.want(link.ProbeFree, "probe", "probe", "probe")
		l.link(true, 0, true) // the link has it now: its Announcer announces it
		l.pass(time.Hour)
		l.want(link.ProbeFree)
		l.link(false, 1, true)
		l.pass(time.Hour)
		l.want(link.ProbeStopped)
	}
}

func TestAddressOfAnotherHost(t *testing.T) {
	none := netip.IPv4Unspecified()
	for name, a := range map[string]Packet{
		"a reply":           {Op: Reply, From: other, Sender: about, To: own, Target: none},
		"a request":         {Op: Request, From: other, Sender: about, Target: netip.MustParseAddr("10.11.0.9")},
		"the host probes":   {Op: Request, From: other, Sender: none, Target: about},
		"a claim, no flags": {Op: Reply, From: ib.MustParseHWAddr("00" + other.String()[2:]), Sender: about, Target: none},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLine(t, 1)
			l.link(true, 0, false)
			l.pass(1500 * time.Millisecond)
			l.sent = nil
			l.hear(a)
			l.want(link.ProbeConflict)
			l.pass(RateLimitInterval - time.Millisecond)
			l.want(link.ProbeConflict)
			l.pass(10 * time.Second) // the other host has gone
			l.want(link.ProbeFree, "probe", "probe", "probe")
		})
	}
}

// A leased address, which the DHCP client has probed, is probed again after a loss of the carrier. It
// is defended once, and lost to a host that answers a probe, or claims it twice in ten seconds.
func TestLeased(t *testing.T) {
	claim := Packet{Op: Reply, From: other, Sender: about, Target: netip.IPv4Unspecified()}
	lost := func(l *line, want bool) {
		t.Helper()
		if v := l.p.View(); v.Lost != want {
			t.Errorf("%+v, want lost %v", v, want)
		}
	}
	bound := func() *line {
		l := newLine(t, 1)
		l.p = New(Config{HType: 32, HWAddr: own, Leased: true}, about, 1)
		l.link(true, 3, true)
		l.pass(time.Hour)
		l.want(link.ProbeFree)
		return l
	}
	l := bound()
	l.link(true, 4, true)
	l.pass(10 * time.Second)
	l.want(link.ProbeFree, "probe", "probe", "probe")
	lost(l, false)

	l = bound()
	l.link(false, 4, true)
	l.link(true, 4, true)
	l.pass(1500 * time.Millisecond)
	l.hear(claim)
	l.want(link.ProbeConflict, "probe")
	lost(l, true)

	// A bond has another hardware address after a failover, also while it probes.
	l = bound()
	l.link(true, 4, true)
	l.pass(1500 * time.Millisecond)
	l.p.Readdress(Config{HType: 32, HWAddr: own, Leased: true})
	l.link(true, 4, true)
	l.pass(10 * time.Second)
	l.want(link.ProbeFree, "probe", "probe", "probe", "probe")

	l = bound()
	l.p.Readdress(Config{HType: 32, HWAddr: own, Leased: true})
	l.link(true, 3, true)
	l.pass(10 * time.Second)
	l.want(link.ProbeFree)

	l = bound()
	l.hear(claim)
	l.want(link.ProbeConflict, "announce")
	lost(l, false)
	l.pass(DefendInterval)
	l.hear(claim)
	l.want(link.ProbeConflict, "announce")
	lost(l, false)
	l.pass(DefendInterval - time.Second)
	l.hear(claim)
	l.want(link.ProbeConflict)
	lost(l, true)
}

// What is no conflict: own packets, also with other flags, questions about the address,
// and what is no ARP packet of the link.
func TestNoConflict(t *testing.T) {
	l := newLine(t, 1)
	l.link(true, 0, false)
	l.pass(1500 * time.Millisecond)
	l.sent = nil
	l.hear(Packet{Op: Request, From: own, Sender: netip.IPv4Unspecified(), Target: about})
	l.hear(Packet{Op: Reply, From: ib.MustParseHWAddr("00" + own.String()[2:]), Sender: about, Target: about})
	l.hear(Packet{Op: Request, From: other, Sender: netip.MustParseAddr("10.11.0.9"), Target: about})
	l.hear(Packet{Op: Reply, From: second, To: own, Sender: about, Target: netip.IPv4Unspecified()}) // this host's second rail
	l.take(l.p.ARP(l.now, nil, ours))
	l.take(l.p.ARP(l.now, Packet{Op: 7, From: other, Sender: about, Target: about}.Encode(32), ours))
	l.take(l.p.ARP(l.now, Packet{Op: Reply, From: ib.MustParseHWAddr("02:00:00:00:00:01"), Sender: about, Target: about}.Encode(1), ours))
	l.want(link.ProbeProbing)
}

// An address that the link has is kept and defended, once in ten seconds.
func TestDefence(t *testing.T) {
	l := newLine(t, 1)
	l.link(true, 0, true)
	l.pass(time.Minute)
	l.want(link.ProbeFree, "probe", "probe", "probe")
	claim := Packet{Op: Request, From: other, Sender: about, Target: about}
	for range 1000 {
		l.hear(claim)
		l.now += time.Millisecond
	}
	l.want(link.ProbeConflict, "announce")
	forged := claim
	forged.From = ib.MustParseHWAddr("80:00:02:0a" + other.String()[11:])
	l.hear(forged)
	if v := l.p.View(); v.By != other {
		t.Errorf("%+v", v) // a flood would be a flood of changes
	}
	l.pass(10 * time.Second)
	l.hear(claim)
	l.want(link.ProbeConflict, "announce")
	l.hear(Packet{Op: Request, From: other, Sender: netip.IPv4Unspecified(), Target: about}) // the kernel answers it
	l.pass(2 * time.Minute)
	l.want(link.ProbeFree, "probe", "probe", "probe")
	l.link(true, 1, true) // a loss of carrier that ended at once: on another fabric, perhaps
	l.pass(time.Minute)
	l.want(link.ProbeFree, "probe", "probe", "probe")
}

func FuzzParse(f *testing.F) {
	f.Add(Packet{Op: Reply, From: other, To: own, Sender: about, Target: about}.Encode(32), 20)
	f.Add(Packet{Op: Request, From: ib.MustParseHWAddr("02:00:00:00:00:01"), To: ib.MustParseHWAddr("02:00:00:00:00:02"),
		Sender: about, Target: about}.Encode(1), 6)
	f.Fuzz(func(t *testing.T, b []byte, n int) {
		a, ok := Parse(b, n)
		if !ok {
			return
		}
		if b2 := a.Encode(uint16(b[0])<<8 | uint16(b[1])); string(b2) != string(b[:len(b2)]) {
			t.Errorf("% x\n% x", b, b2)
		}
	})
}

// Whatever is received, little is sent: three probes a minute and what RFC 5227 allows in
// defence.
func TestFewPackets(t *testing.T) {
	if err := quick.Check(func(seed uint64, steps []byte) bool {
		l := newLine(t, seed)
		begin := l.now
		downs, inUse := uint32(0), false
		l.link(true, downs, inUse)
		for _, s := range steps {
			switch s % 4 {
			case 0:
				l.hear(Packet{Op: Reply, From: other, Sender: about, Target: about})
			case 1:
				l.hear(Packet{Op: Request, From: other, Sender: netip.IPv4Unspecified(), Target: about})
			case 2:
				inUse = !inUse
				l.link(true, downs, inUse)
			default:
				l.pass(time.Duration(s) * 20 * time.Millisecond)
			}
		}
		most := 10 + int((l.now-begin)/time.Second) + 2*len(steps)/4
		return len(l.sent) <= most || fail(t, fmt.Sprint(len(l.sent), " of ", most))
	}, nil); err != nil {
		t.Error(err)
	}
}

func fail(t *testing.T, why string) bool { t.Log(why); return false }
