package dhcp6

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"ibnetworkd/link"
	"ibnetworkd/link/dhcp"
)

var (
	own      = netip.MustParseAddr("fe80::202:c903:a:bcdf")
	server   = netip.MustParseAddr("fe80::1")
	address1 = netip.MustParseAddr("fd00:11::100")
	address2 = netip.MustParseAddr("fd00:11::200")
)

func config() Config {
	return Config{ClientID: []byte{0, 2, 0, 0, 0xab, 0x11, 1, 2, 3, 4, 5, 6, 7, 8}, IAID: 7, Hostname: "node17", Release: true}
}

// host runs a client against the test, which is the network.
type host struct {
	t    testing.TB
	c    *Client
	now  time.Duration
	sent []dhcp.Send
	at   []time.Duration // when they were sent
}

func newHost(t testing.TB, cfg Config, saved *link.Lease, inUse bool) *host {
	h := &host{t: t, c: New(cfg, 1, saved, inUse), now: 1000 * time.Second}
	h.step(h.c.Addresses(h.now, own, nil))
	return h
}

func (h *host) step(s []dhcp.Send) {
	for _, x := range s {
		h.sent, h.at = append(h.sent, x), append(h.at, h.now)
	}
}

// up gives the link its carrier, and lets the delay of the first message pass.
func (h *host) up(resumed bool) {
	h.step(h.c.Carrier(h.now, true, 0, resumed))
	if h.c.tries == 0 && h.c.state != link.DHCPBound {
		h.wait(maxDelay)
		h.now = h.c.began // no later than the first message
	}
}

// wait lets time pass.
func (h *host) wait(d time.Duration) {
	for end := h.now + d; ; {
		next := h.c.Deadline()
		if next == 0 || next > end {
			h.now = end
			return
		}
		h.now = max(h.now, next)
		h.step(h.c.Tick(h.now))
	}
}

var names = map[byte]string{1: "solicit", 3: "request", 4: "confirm", 5: "renew", 6: "rebind", 8: "release", 9: "decline",
	11: "information"}

// read reads a message of the client as a server does.
func (h *host) read(s dhcp.Send) *message {
	h.t.Helper()
	b := slices.Clone(s.Data)
	copy(b[40:44], []byte{b[42], b[43], b[40], b[41]})
	p, from, err := parseDatagram(b, servers, false)
	if err != nil || from != own {
		h.t.Fatalf("%v from %s", err, from)
	}
	m, err := decode(p)
	if err != nil {
		h.t.Fatal(err)
	}
	return m
}

// take gives the messages that were sent, in words, and forgets them.
func (h *host) take() (words []string) {
	h.t.Helper()
	for _, s := range h.sent {
		m := h.read(s)
		word := names[m.kind]
		if ia := m.opts.get(optIANA); len(ia) >= 12 {
			if o, _ := decodeOptions(ia[12:]); o.has(optIAAddr) {
				word += " " + netip.AddrFrom16([16]byte(o.get(optIAAddr))).String()
			}
		}
		if m.opts.has(optServerID) {
			word += " of a server"
		}
		words = append(words, word)
	}
	h.sent, h.at = nil, nil
	return words
}

func (h *host) want(words ...string) {
	h.t.Helper()
	if got := h.take(); strings.Join(got, ", ") != strings.Join(words, ", ") {
		h.t.Fatalf("sent %q, want %q", got, words)
	}
}

func (h *host) state(s link.DHCPState) {
	h.t.Helper()
	if got := h.c.View().State; got != s {
		h.t.Fatalf("%s, want %s (%+v)", got, s, h.c.drops)
	}
}

// answer is of a server. An address for an hour; change changes the options.
type answer struct {
	kind   byte
	xid    uint32
	addr   netip.Addr
	life   [4]uint32 // T1, T2, preferred, valid
	code   status    // of the IA
	top    options
	noIA   bool
	server []byte
	to     netip.Addr
}

func (h *host) answer(kind byte, change func(*answer)) []byte {
	a := &answer{kind: kind, xid: h.c.xid, addr: address1, life: [4]uint32{0, 0, 3000, 3600},
		server: []byte{0, 3, 0, 1, 1, 2, 3, 4, 5, 6}, to: own}
	a.top = options{{optClientID, h.c.cfg.ClientID}, {optDNS, netip.MustParseAddr("fd00:11::53").AsSlice()},
		{optDomains, append(dhcp.Labels(nil, "ib.example"), 0)}}
	if change != nil {
		change(a)
	}
	if !a.noIA {
		b := binary.BigEndian.AppendUint32(nil, h.c.cfg.IAID)
		b = binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(b, a.life[0]), a.life[1])
		if a.code != statusSuccess {
			b = options{{optStatus, binary.BigEndian.AppendUint16(nil, uint16(a.code))}}.append(b)
		} else {
			v := binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(a.addr.AsSlice(), a.life[2]), a.life[3])
			b = options{{optIAAddr, v}}.append(b)
		}
		a.top = append(a.top, option{optIANA, b})
	}
	if a.server != nil {
		a.top = append(a.top, option{optServerID, a.server})
	}
	return toClient((&message{a.kind, a.xid, a.top}).encode(), a.to)
}

// toClient is a packet of the server.
func toClient(payload []byte, to netip.Addr) []byte {
	d := datagram(server, payload)
	copy(d[24:40], to.AsSlice())
	copy(d[40:44], []byte{d[42], d[43], d[40], d[41]})
	d[46], d[47] = 0, 0
	binary.BigEndian.PutUint16(d[46:], dhcp.Checksum(pseudo(d[8:40], len(d)-40), d[40:]))
	return d
}

func (h *host) hear(kind byte, change func(*answer)) {
	h.t.Helper()
	h.step(h.c.Packet(h.now, h.answer(kind, change), false))
}

func code(s status) func(*answer) { return func(a *answer) { a.code = s } }

func top(code uint16, v ...byte) func(*answer) {
	return func(a *answer) { a.top = append(a.top, option{code, v}) }
}

// bind brings a client to a lease.
func (h *host) bind() {
	h.t.Helper()
	h.up(false)
	h.hear(typeAdvertise, top(optPreference, 255))
	h.hear(typeReply, nil)
	h.take()
	h.state(link.DHCPBound)
}

func lease() *link.Lease {
	return &link.Lease{Address: netip.PrefixFrom(address1, 128), Server: server, ServerID: "00030001010203040506",
		Lifetime: 3600, Preferred: 3000, Granted: 900, Renew: 2400, Rebind: 3300}
}

func TestAcquire(t *testing.T) {
	h := newHost(t, config(), nil, false)
	h.state(link.DHCPStopped)
	h.up(false)
	m := h.read(h.sent[0])
	if string(m.opts.get(optClientID)) != string(h.c.cfg.ClientID) || string(m.opts.get(optFQDN)) != "\x01\x06node17" ||
		len(m.opts.get(optIANA)) != 12 || m.opts.has(optRapidCommit) || !m.opts.has(optElapsed) || !m.opts.has(optRequest) {
		t.Errorf("%+v", m)
	}
	h.want("solicit")

	// The first second is for all servers to answer: the one that is preferred is requested.
	h.hear(typeAdvertise, nil)
	h.hear(typeAdvertise, func(a *answer) {
		a.addr, a.server = address2, []byte{0, 3, 0, 1, 9, 9, 9, 9, 9, 9}
		a.top = append(a.top, option{optPreference, []byte{10}})
	})
	h.hear(typeAdvertise, top(optPreference, 5))
	h.want()
	h.wait(1100 * time.Millisecond)
	h.want("request fd00:11::200 of a server")
	h.hear(typeReply, nil) // of another server
	h.state(link.DHCPRequesting)
	h.hear(typeReply, func(a *answer) { a.addr, a.server = address2, []byte{0, 3, 0, 1, 9, 9, 9, 9, 9, 9} })
	h.state(link.DHCPBound)
	l := h.c.View().Lease
	sent := seconds(h.now)
	if l.Address.String() != "fd00:11::200/128" || l.ServerID != "00030001090909090909" || l.Server != server || l.Search[0] != "ib.example" ||
		l.DNS[0].String() != "fd00:11::53" || l.Until() != sent+3600 || l.Renew != sent+1500 || l.Rebind != sent+2400 {
		t.Errorf("%+v at %d", l, sent)
	}
}

// A server's first answer is enough where both sides let it.
func TestRapidCommit(t *testing.T) {
	cfg := config()
	cfg.RapidCommit = true
	for want, c := range map[link.DHCPState]func(*answer){link.DHCPBound: top(optRapidCommit), link.DHCPSelecting: nil} {
		h := newHost(t, cfg, nil, false)
		h.up(false)
		h.hear(typeReply, c)
		h.state(want)
	}
}

// Waits are those of RFC 8415, section 15: the double, a tenth more or less, up to a bound.
func TestRetransmission(t *testing.T) {
	h := newHost(t, config(), nil, false)
	h.up(false)
	h.wait(6 * time.Hour)
	last := time.Duration(0)
	for i := 1; i < len(h.at); i++ {
		wait := h.at[i] - h.at[i-1]
		lo, hi := last*19/10, last*21/10
		switch {
		case i == 1:
			lo, hi = time.Second+1, 1100*time.Millisecond
		case wait > 3240*time.Second:
			lo, hi = 3240*time.Second, 3960*time.Second
		}
		if wait < lo || wait > hi {
			t.Errorf("wait %d is %v after %v", i, wait, last)
		}
		last = wait
	}
	if n := len(h.at); n < 14 || n > 20 {
		t.Errorf("%d messages in 6 hours", n)
	}
	if v := h.c.View(); v.Tries != 4 {
		t.Errorf("%+v", v)
	}
	// A server may change the bound, also one that gives nothing.
	h.hear(typeAdvertise, func(a *answer) {
		a.code = statusNoAddrs
		a.top = append(a.top, option{optSolMaxRT, []byte{0, 0, 0, 60}})
	})
	if v := h.c.View(); v.Refusal != "NoAddrsAvail" || v.Refused != server {
		t.Errorf("%+v", v)
	}
	h.wait(70 * time.Minute)
	h.take()
	h.wait(10 * time.Minute)
	if n := len(h.sent); n < 9 || n > 12 {
		t.Errorf("%d messages in 10 minutes with SOL_MAX_RT of 60 s", n)
	}
}

func TestRequestGivesUp(t *testing.T) {
	h := newHost(t, config(), nil, false)
	h.up(false)
	h.take()
	h.hear(typeAdvertise, top(optPreference, 255))
	h.wait(5 * time.Minute)
	words := h.take()
	n := slices.Index(words, "solicit")
	if n != reqTries {
		t.Errorf("%d requests: %q", n, words)
	}
}

func TestRenew(t *testing.T) {
	h := newHost(t, config(), nil, false)
	h.bind()
	for h.c.View().State == link.DHCPBound {
		h.wait(time.Second)
	}
	h.state(link.DHCPRenewing)
	if left := 2500*time.Second - h.now; left < -time.Second || left > 95*time.Second {
		t.Errorf("renewed %v before T1", left)
	}
	h.want("renew fd00:11::100 of a server")
	h.hear(typeReply, nil)
	h.state(link.DHCPBound)
	if got := h.c.View().Lease; got.Until() < seconds(h.now)+3590 {
		t.Errorf("%+v at %d", got, seconds(h.now))
	}
	// Without an answer all servers are asked from T2 on; at the end there is no lease.
	h.wait(2400*time.Second - time.Minute)
	h.state(link.DHCPRenewing)
	h.wait(2 * time.Minute)
	h.state(link.DHCPRebinding)
	if words := h.take(); words[len(words)-1] != "rebind fd00:11::100" {
		t.Errorf("%q", words)
	}
	if v := h.c.View(); v.Lease == nil {
		t.Errorf("%+v", v)
	}
	h.wait(20 * time.Minute)
	h.state(link.DHCPSelecting)
	if v := h.c.View(); v.Lease != nil {
		t.Errorf("%+v", v.Lease)
	}
}

// A former lease: used where the daemon alone was away, confirmed else, and given up where it
// is of another network.
func TestFormerLease(t *testing.T) {
	h := newHost(t, config(), lease(), true)
	h.up(true)
	h.state(link.DHCPBound)
	h.want()
	// The carrier is lost for a moment.
	h.step(h.c.Carrier(h.now, true, 1, false))
	h.state(link.DHCPRebooting)
	h.wait(time.Second)
	h.want("confirm fd00:11::100")
	h.hear(typeReply, func(a *answer) { a.noIA = true })
	h.state(link.DHCPBound)
	if h.c.View().Lease.Until() != 4500 {
		t.Errorf("%+v", h.c.View().Lease)
	}

	away := newHost(t, config(), lease(), false)
	away.up(false)
	if v := away.c.View(); v.Lease != nil || away.c.Lease() == nil {
		t.Errorf("before it is confirmed: %+v", v)
	}
	away.wait(12 * time.Second)
	away.state(link.DHCPBound)
	if words := away.take(); len(words) < 3 || words[0] != "confirm fd00:11::100" {
		t.Errorf("%q", words)
	}

	moved := newHost(t, config(), lease(), true)
	moved.up(false)
	moved.take()
	moved.hear(typeReply, func(a *answer) { a.noIA = true; a.top = append(a.top, option{optStatus, []byte{0, 4, 'x'}}) })
	moved.state(link.DHCPSelecting)
	moved.want("solicit")
	if v := moved.c.View(); v.Lease != nil || v.Refusal != "NotOnLink" {
		t.Errorf("%+v", v)
	}

	over := newHost(t, config(), lease(), true)
	over.now = 5000 * time.Second
	over.up(true)
	over.want("solicit")
}

// Another host has the address.
func TestDecline(t *testing.T) {
	h := newHost(t, config(), nil, false)
	h.bind()
	h.step(h.c.Addresses(h.now, own, []netip.Addr{address2}))
	h.state(link.DHCPBound)
	h.step(h.c.Addresses(h.now, own, []netip.Addr{address1}))
	h.want("decline fd00:11::100 of a server")
	if v := h.c.View(); v.Lease != nil || v.Conflict != address1 || h.c.Lease() != nil {
		t.Errorf("%+v", v)
	}
	h.wait(2 * time.Second)
	h.want("decline fd00:11::100 of a server")
	h.hear(typeReply, func(a *answer) { a.noIA = true })
	h.wait(10 * time.Second)
	h.want()
	for h.c.View().State == link.DHCPWaiting {
		h.wait(100 * time.Millisecond)
	}
	h.want("solicit")
	h.hear(typeAdvertise, top(optPreference, 255))
	h.hear(typeReply, func(a *answer) { a.addr = address2 })
	if v := h.c.View(); v.Conflict.IsValid() || v.Lease.Address.Addr() != address2 {
		t.Errorf("%+v", v)
	}
	// Without an answer the client goes on, too.
	h.step(h.c.Addresses(h.now, own, []netip.Addr{address2}))
	h.take()
	h.wait(20 * time.Second)
	if words := h.take(); strings.Count(strings.Join(words, ", "), "decline") != decTries-1 || words[decTries-1] != "solicit" {
		t.Errorf("%q", words)
	}
}

func TestRelease(t *testing.T) {
	for release, want := range map[bool][]string{true: {"release fd00:11::100 of a server"}, false: nil} {
		cfg := config()
		cfg.Release = release
		h := newHost(t, cfg, nil, false)
		h.bind()
		h.step(h.c.End(h.now))
		h.want(want...)
		if h.c.Lease() != nil || h.c.Deadline() != 0 {
			t.Errorf("%+v", h.c.View())
		}
	}
}

// Without an address: name servers alone, which stay while no server answers.
func TestInformation(t *testing.T) {
	cfg := config()
	cfg.Information = true
	h := newHost(t, cfg, lease(), true) // of another mode: not used
	h.up(false)
	m := h.read(h.sent[0])
	if m.opts.has(optIANA) || m.opts.has(optFQDN) {
		t.Errorf("%+v", m)
	}
	h.want("information")
	ntp := func(a *answer) {
		a.noIA = true
		a.top = append(a.top, option{optRefresh, []byte{0, 0, 0, 1}},
			option{optNTP, options{{ntpServer, netip.MustParseAddr("fd00:11::123").AsSlice()}}.append(nil)})
	}
	h.hear(typeReply, ntp)
	h.state(link.DHCPBound)
	l := h.c.View().Lease
	if l.Address.IsValid() || len(l.DNS) != 1 || len(l.NTP) != 1 || l.Renew != l.Granted+leastRefresh {
		t.Errorf("%+v", l)
	}
	h.wait(30 * time.Minute)
	h.state(link.DHCPRenewing)
	if v := h.c.View(); v.Lease != l || v.Tries == 0 {
		t.Errorf("%+v", v)
	}
	h.hear(typeReply, ntp)
	h.state(link.DHCPBound)
	h.take()
	h.step(h.c.Renew(h.now))
	h.want("information")

	kept := newHost(t, cfg, h.c.Lease(), true)
	kept.now = h.now
	kept.up(true)
	kept.state(link.DHCPBound)
	kept.want()
}

// A link without a link-local address waits for it.
func TestLinkLocal(t *testing.T) {
	h := newHost(t, config(), nil, false)
	h.step(h.c.Addresses(h.now, netip.Addr{}, nil))
	h.step(h.c.Carrier(h.now, true, 0, false))
	h.wait(time.Minute)
	h.want()
	h.state(link.DHCPStopped)
	h.step(h.c.Addresses(h.now, own, nil))
	h.up(false)
	h.want("solicit")
}
