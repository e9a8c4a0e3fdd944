package dhcp

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"ibnetworkd/ib"
	"ibnetworkd/internal/testkit"
	"ibnetworkd/link"
	"ibnetworkd/link/arp"
	"ibnetworkd/units"
)

var (
	portGUID = []byte{0, 2, 0xc9, 3, 0, 0xa, 0xbc, 0xdf}
	ipoibHW  = ib.MustParseHWAddr("80:00:02:08:fe:80:00:00:00:00:00:00:00:02:c9:03:00:0a:bc:df")
	server   = netip.MustParseAddr("10.11.0.1")
	address  = netip.MustParseAddr("10.11.0.100")
)

func ipoib() Config {
	return Config{HType: 32, HWAddr: ipoibHW, ClientID: append([]byte{32}, portGUID...), Hostname: "node17", Release: true}
}

// host runs a client against the test, which is the network.
type host struct {
	t   *testing.T
	c   *Client
	now time.Duration
	// sent are the messages since the last call of take.
	sent []Send
}

func newHost(t *testing.T, cfg Config, saved *link.Lease, inUse bool) *host {
	return &host{t: t, c: New(cfg, 1, saved, inUse), now: 1000 * time.Second}
}

func (h *host) step(s []Send) { h.sent = append(h.sent, s...) }

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

// take gives the messages that were sent, in words, and forgets them.
func (h *host) take() (words []string) {
	h.t.Helper()
	for _, s := range h.sent {
		if s.EtherType == arp.EtherType {
			a, ok := arp.Parse(s.Data, h.c.cfg.HWAddr.Len())
			if !ok {
				h.t.Fatalf("ARP % x", s.Data)
			}
			words = append(words, fmt.Sprintf("arp %s %s", a.Sender, a.Target))
			continue
		}
		m := h.message(s)
		to := "broadcast"
		if s.To != nil {
			to = "unicast"
		}
		word := names[m.kind()] + " " + to
		if a := m.addr(optAddress); a.IsValid() {
			word += " " + a.String()
		}
		words = append(words, word)
	}
	h.sent = nil
	return words
}

var names = map[byte]string{1: "discover", 2: "offer", 3: "request", 4: "decline", 5: "ack", 6: "nak", 7: "release"}

func (h *host) message(s Send) *message {
	h.t.Helper()
	// A server reads port 67: the ports are exchanged for the reader.
	b := append([]byte(nil), s.Data...)
	copy(b[20:24], []byte{b[22], b[23], b[20], b[21]})
	p, err := parseDatagram(b, false)
	testkit.NoError(h.t, err)
	m, err := decode(p)
	testkit.NoError(h.t, err)
	return m
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
		h.t.Fatalf("%s, want %s", got, s)
	}
}

// reply is an answer of a server; change changes it.
type reply struct {
	message
	opts []option
}

func (h *host) answer(kind byte, change func(*reply)) []byte {
	r := &reply{message: message{op: 2, htype: byte(h.c.cfg.HType), xid: h.c.xid, yiaddr: address}}
	if h.c.cfg.HType == 1 {
		r.chaddr = h.c.cfg.HWAddr.Bytes()
	}
	four := func(n uint32) []byte { return binary.BigEndian.AppendUint32(nil, n) }
	r.opts = []option{{optType, []byte{kind}}, {optServer, server.AsSlice()}, {optLifetime, four(3600)}, {optMask, []byte{255, 255, 255, 0}},
		{optRouter, []byte{10, 11, 0, 254}}, {optDNS, []byte{10, 11, 0, 53}}, {optDomain, []byte("ib.example")}, {optClientID, h.c.cfg.ClientID}}
	if kind == typeNak {
		r.yiaddr, r.opts = netip.Addr{}, r.opts[:2]
	}
	if change != nil {
		change(r)
	}
	b := r.encode(r.opts)
	if r.yiaddr.Is4() {
		copy(b[16:], r.yiaddr.AsSlice())
	}
	d := datagram(server, address, b)
	copy(d[20:24], []byte{d[22], d[23], d[20], d[21]})
	return d
}

func (h *host) hear(kind byte, change func(*reply)) {
	h.t.Helper()
	h.step(h.c.Packet(h.now, h.answer(kind, change), false))
}

// set replaces an option of an answer.
func set(code byte, value ...byte) func(*reply) {
	return func(r *reply) {
		for i := range r.opts {
			if r.opts[i].code == code {
				r.opts[i].value = value
				return
			}
		}
		r.opts = append(r.opts, option{code, value})
	}
}

// bind brings a client to a lease.
func (h *host) bind() {
	h.t.Helper()
	h.step(h.c.Carrier(h.now, true, 0, false))
	h.hear(typeOffer, nil)
	h.hear(typeAck, nil)
	h.take()
	h.state(link.DHCPBound)
}

func TestAcquire(t *testing.T) {
	h := newHost(t, ipoib(), nil, false)
	h.state(link.DHCPStopped)
	h.step(h.c.Carrier(h.now, true, 0, false))
	m := h.message(h.sent[0])
	if m.htype != 32 || len(m.chaddr) != 0 || !m.broadcast || string(m.options[optClientID]) != string(h.c.cfg.ClientID) ||
		string(m.options[OptionHostname]) != "node17" || m.options[optRequest][1] != optRoutes {
		t.Errorf("RFC 4390 wants another message: %+v", m)
	}
	h.want("discover broadcast")
	h.hear(typeOffer, nil)
	h.want("request broadcast 10.11.0.100")
	h.hear(typeAck, nil)
	h.state(link.DHCPBound)
	l := h.c.View().Lease
	if l.Address.String() != "10.11.0.100/24" || l.Gateway.String() != "10.11.0.254" || l.Domain != "ib.example" || l.Until() != 1000+3600 {
		t.Errorf("%+v", l)
	}
	h.want()
}

// Nothing answers: the waits grow, and the tries are counted up to four.
func TestSilence(t *testing.T) {
	h := newHost(t, ipoib(), nil, false)
	h.step(h.c.Carrier(h.now, true, 0, false))
	for _, x := range []struct {
		after time.Duration
		tries int
	}{{time.Second, 0}, {45 * time.Second, 4}, {time.Hour, 4}} {
		h.wait(x.after)
		if got := h.c.View().Tries; got != x.tries {
			t.Errorf("%d tries after %v, want %d", got, x.after, x.tries)
		}
	}
	if n := len(h.take()); n < 50 || n > 90 {
		t.Errorf("%d messages in an hour", n)
	}
	h.step(h.c.Carrier(h.now, false, 0, false))
	h.wait(time.Hour)
	h.want()
}

// A lease is renewed with its server at half its time, with all servers at 7/8, and given
// up at its end.
func TestRenewal(t *testing.T) {
	h := newHost(t, ipoib(), nil, false)
	h.bind()
	h.wait(1690 * time.Second)
	h.want()
	h.wait(115 * time.Second)
	h.state(link.DHCPRenewing)
	if ip, about := h.c.Listens(); !ip || about != server && about.IsValid() {
		t.Errorf("listens to %v %v", ip, about)
	}
	h.take()
	h.step(h.c.Renew(h.now)) // by hand: all servers, at once
	h.want("request broadcast")
	h.hear(typeAck, nil)
	h.state(link.DHCPBound)
	until := h.c.View().Lease.Until()

	for h.c.View().State == link.DHCPBound {
		h.wait(time.Second)
	}
	h.step(h.c.ARP(h.now, arp.Packet{Op: arp.Reply,
		From: ib.MustParseHWAddr("80:00:02:09:fe:80:00:00:00:00:00:00:00:02:c9:03:00:0a:bc:d0"), Sender: server,
		Target: address}.Encode(32)))
	words := h.take()
	if len(words) < 2 || words[0] != "arp 10.11.0.100 10.11.0.1" || words[len(words)-1] != "request unicast" {
		t.Errorf("renewed by %q", words)
	}
	h.wait(at(h.c.View().Lease.Rebind) - h.now)
	h.state(link.DHCPRebinding)
	h.take()
	h.wait(at(until) - h.now - time.Second)
	if h.c.View().Lease == nil {
		t.Fatal("given up before the end")
	}
	for _, w := range h.take() {
		if w != "request broadcast" {
			t.Errorf("rebinding by %q", w)
		}
	}
	h.wait(2 * time.Second)
	h.state(link.DHCPSelecting)
	if h.c.View().Lease != nil {
		t.Error("used after its end")
	}
}

// A link without a carrier keeps its lease until it ends.
func TestExpiryWithoutCarrier(t *testing.T) {
	h := newHost(t, ipoib(), nil, false)
	h.bind()
	h.step(h.c.Carrier(h.now, false, 0, false))
	h.wait(3599 * time.Second)
	if h.c.View().Lease == nil {
		t.Error("given up early")
	}
	h.wait(2 * time.Second)
	if h.c.View().Lease != nil || h.c.Deadline() != 0 {
		t.Error("used after its end")
	}
	h.want()
}

// A carrier that was lost and is back before anybody saw it: the lease is asked for again, and
// used meanwhile.
func TestCarrierLostMeanwhile(t *testing.T) {
	h := newHost(t, ipoib(), nil, false)
	h.bind()
	h.step(h.c.Carrier(h.now, true, 0, false))
	h.state(link.DHCPBound)
	h.want()
	h.step(h.c.Carrier(h.now, true, 1, false))
	h.state(link.DHCPRebooting)
	h.want("request broadcast 10.11.0.100")
	if h.c.View().Lease == nil {
		t.Error("the lease is not used while it is confirmed")
	}
	h.step(h.c.Renew(h.now)) // it is asked for already, and may not be the link's address any more
	h.state(link.DHCPRebooting)
	h.hear(typeAck, nil)
	h.take()
	h.step(h.c.Carrier(h.now, true, 1, false))
	h.state(link.DHCPBound)
	h.want()
}

func kept(now time.Duration) *link.Lease {
	s := seconds(now)
	return &link.Lease{Address: netip.MustParsePrefix("10.11.0.100/24"), Server: server, Lifetime: 3600, Granted: s - 10, Renew: s + 1790,
		Rebind: s + 3140}
}

// A restart of the daemon goes on; one of the driver asks for the same address.
func TestRestart(t *testing.T) {
	h := newHost(t, ipoib(), kept(1000*time.Second), true)
	h.step(h.c.Carrier(h.now, true, 0, true))
	h.state(link.DHCPBound)
	h.want()

	h = newHost(t, ipoib(), kept(1000*time.Second), false)
	h.step(h.c.Carrier(h.now, true, 0, false))
	h.state(link.DHCPRebooting)
	if h.c.View().Lease != nil {
		t.Error("used before it is confirmed")
	}
	h.want("request broadcast 10.11.0.100")
	h.hear(typeAck, nil)
	h.state(link.DHCPBound)

	// No server: the rest of the lease is used.
	h = newHost(t, ipoib(), kept(1000*time.Second), false)
	h.step(h.c.Carrier(h.now, true, 0, false))
	h.wait(time.Minute)
	h.state(link.DHCPBound)
	if n := len(h.take()); n != mostTries {
		t.Errorf("%d requests", n)
	}

	// Refused: another address.
	h = newHost(t, ipoib(), kept(1000*time.Second), false)
	h.step(h.c.Carrier(h.now, true, 0, false))
	h.hear(typeNak, nil)
	h.state(link.DHCPWaiting)
	h.wait(time.Second)
	h.want("request broadcast 10.11.0.100", "discover broadcast")
}

// Refusals without end do not make a storm.
func TestRefusals(t *testing.T) {
	h := newHost(t, ipoib(), nil, false)
	h.step(h.c.Carrier(h.now, true, 0, false))
	for end := h.now + time.Hour; h.now < end; {
		switch h.c.View().State {
		case link.DHCPSelecting:
			h.hear(typeOffer, nil)
		case link.DHCPRequesting:
			h.hear(typeNak, nil)
		}
		h.wait(100 * time.Millisecond)
	}
	if n := len(h.take()); n > 150 {
		t.Errorf("%d messages in an hour", n)
	}
}

func TestConflict(t *testing.T) {
	cfg := ipoib()
	cfg.Probe = true
	h := newHost(t, cfg, nil, false)
	h.step(h.c.Carrier(h.now, true, 0, false))
	h.hear(typeOffer, nil)
	h.hear(typeAck, nil)
	h.state(link.DHCPProbing)
	if h.c.View().Lease != nil {
		t.Error("used before it is probed")
	}
	h.take()
	h.wait(8 * time.Second)
	h.state(link.DHCPBound)
	h.want("arp 0.0.0.0 10.11.0.100", "arp 0.0.0.0 10.11.0.100", "arp 0.0.0.0 10.11.0.100")
	// In use it is found to be another host's.
	h.step(h.c.Conflict(h.now, netip.Addr{}))
	h.step(h.c.Conflict(h.now, netip.MustParseAddr("10.11.0.101")))
	h.state(link.DHCPBound)
	h.step(h.c.Conflict(h.now, address))
	h.want("decline broadcast 10.11.0.100")
	if v := h.c.View(); v.State != link.DHCPWaiting || v.Conflict != address || v.Lease != nil || h.c.Lease() != nil {
		t.Errorf("%+v", v)
	}
	h.step(h.c.Conflict(h.now, address))
	h.want()

	h = newHost(t, cfg, nil, false)
	h.step(h.c.Carrier(h.now, true, 0, false))
	h.hear(typeOffer, nil)
	h.hear(typeAck, nil)
	h.wait(1500 * time.Millisecond)
	h.take()
	own := arp.Packet{Op: arp.Request, From: ipoibHW, Sender: netip.IPv4Unspecified(), Target: address}
	h.step(h.c.ARP(h.now, own.Encode(32)))
	h.state(link.DHCPProbing)
	own.Op, own.Sender, own.From = arp.Reply, address, ib.MustParseHWAddr("00:00:02:09:fe:80:00:00:00:00:00:00:00:02:c9:03:00:0a:bc:d0")
	h.step(h.c.ARP(h.now, own.Encode(32)))
	h.want("decline broadcast 10.11.0.100")
	if v := h.c.View(); v.State != link.DHCPWaiting || v.Conflict != address {
		t.Errorf("%+v", v)
	}
	h.wait(8 * time.Second)
	h.want()
	h.wait(10 * time.Second)
	if w := h.take(); len(w) == 0 || w[0] != "discover broadcast" {
		t.Errorf("%q", w)
	}
}

func TestRelease(t *testing.T) {
	h := newHost(t, ipoib(), nil, false)
	h.bind()
	h.step(h.c.End(h.now))
	m := h.message(h.sent[0])
	if m.ciaddr != address || m.addr(optServer) != server {
		t.Errorf("%+v", m)
	}
	h.want("release broadcast")
	h.wait(time.Hour)
	h.want()
}

// A server beyond a router is asked over it.
func TestNextHop(t *testing.T) {
	far := netip.MustParseAddr("192.0.2.1")
	for _, x := range []struct {
		routes []link.LeaseRoute
		want   string
	}{
		{nil, "10.11.0.254"},
		{[]link.LeaseRoute{{Dst: netip.MustParsePrefix("0.0.0.0/0"), Gateway: netip.MustParseAddr("10.11.0.7")},
			{Dst: netip.MustParsePrefix("192.0.2.0/24"), Gateway: netip.MustParseAddr("10.11.0.8")}}, "10.11.0.8"},
		{[]link.LeaseRoute{{Dst: netip.MustParsePrefix("192.0.2.0/24"), Gateway: netip.IPv4Unspecified()}}, "192.0.2.1"},
	} {
		c := &Client{lease: &link.Lease{Address: netip.MustParsePrefix("10.11.0.100/24"), Server: far,
			Gateway: netip.MustParseAddr("10.11.0.254"), Routes: x.routes}}
		if got := c.nextHop(); got.String() != x.want {
			t.Errorf("%v: %s, want %s", x.routes, got, x.want)
		}
	}
}

// What cannot be used is dropped and counted, and does not change the state.
func TestBadServers(t *testing.T) {
	ether := Config{HType: 1, HWAddr: ib.MustParseHWAddr("00:02:c9:0a:bc:df"), ClientID: []byte{1, 0, 2, 0xc9, 0xa, 0xbc, 0xdf}}
	for _, x := range []struct {
		name   string
		cfg    Config
		change func(*reply)
		want   link.DHCPDrops
	}{
		{"another transaction", ipoib(), func(r *reply) { r.xid++ }, link.DHCPDrops{Foreign: 1}},
		{"a request", ipoib(), func(r *reply) { r.op = 1 }, link.DHCPDrops{Foreign: 1}},
		{"another client", ipoib(), set(optClientID, 32, 1, 2, 3), link.DHCPDrops{Foreign: 1}},
		{"another hardware address", ether, func(r *reply) { r.chaddr = []byte{0, 2, 0xc9, 1, 1, 1} }, link.DHCPDrops{Foreign: 1}},
		{"no hardware address", ether, func(r *reply) { r.chaddr = nil }, link.DHCPDrops{Foreign: 1}},
		{"no server", ipoib(), set(optServer), link.DHCPDrops{Contradictory: 1}},
		{"two servers", ipoib(), set(optServer, 10, 11, 0, 1, 10, 11, 0, 2), link.DHCPDrops{Contradictory: 1}},
		{"a multicast server", ipoib(), set(optServer, 224, 0, 0, 1), link.DHCPDrops{Contradictory: 1}},
		{"no lifetime", ipoib(), set(optLifetime), link.DHCPDrops{Contradictory: 1}},
		{"a lifetime of a second", ipoib(), set(optLifetime, 0, 0, 0, 1), link.DHCPDrops{Contradictory: 1}},
		{"a mask with holes", ipoib(), set(optMask, 255, 0, 255, 0), link.DHCPDrops{Contradictory: 1}},
		{"an empty mask", ipoib(), set(optMask, 0, 0, 0, 0), link.DHCPDrops{Contradictory: 1}},
		{"no address", ipoib(), func(r *reply) { r.yiaddr = netip.Addr{} }, link.DHCPDrops{Contradictory: 1}},
		{"loopback", ipoib(), func(r *reply) { r.yiaddr = netip.MustParseAddr("127.0.0.1") }, link.DHCPDrops{Contradictory: 1}},
		{"the broadcast address", ipoib(), func(r *reply) { r.yiaddr = netip.MustParseAddr("10.11.0.255") }, link.DHCPDrops{Contradictory: 1}},
		{"the server's address", ipoib(), func(r *reply) { r.yiaddr = server }, link.DHCPDrops{Contradictory: 1}},
		{"no type", ipoib(), set(optType, 9), link.DHCPDrops{Malformed: 1}},
		{"a server that is denied", func() Config {
			c := ipoib()
			c.Deny = []netip.Prefix{netip.MustParsePrefix("10.11.0.1/32")}
			return c
		}(), nil, link.DHCPDrops{Foreign: 1}},
		{"a server that is not allowed", func() Config {
			c := ipoib()
			c.Allow = []netip.Prefix{netip.MustParsePrefix("10.11.0.2/32")}
			return c
		}(), nil, link.DHCPDrops{Foreign: 1}},
	} {
		h := newHost(t, x.cfg, nil, false)
		h.step(h.c.Carrier(h.now, true, 0, false))
		h.take()
		h.hear(typeOffer, x.change)
		got := h.c.Drops()
		got.Last = ""
		if got != x.want {
			t.Errorf("%s: %+v, want %+v", x.name, h.c.Drops(), x.want)
		}
		h.state(link.DHCPSelecting)
		h.want()
	}
}

// An acknowledgement must be that of what was asked for.
func TestBadAcknowledgements(t *testing.T) {
	other := func(r *reply) { r.yiaddr = netip.MustParseAddr("10.11.0.101") }
	for _, x := range []struct {
		name   string
		kind   byte
		change func(*reply)
	}{
		{"another address", typeAck, other}, {"another server", typeAck, set(optServer, 10, 11, 0, 2)},
		{"refusal of another server", typeNak, set(optServer, 10, 11, 0, 2)}, {"refusal without a server", typeNak, set(optServer)},
	} {
		h := newHost(t, ipoib(), nil, false)
		h.step(h.c.Carrier(h.now, true, 0, false))
		h.hear(typeOffer, nil)
		h.hear(x.kind, x.change)
		h.state(link.DHCPRequesting)
		if d := h.c.Drops(); d.Foreign+d.Contradictory != 1 {
			t.Errorf("%s: %+v", x.name, d)
		}
	}
	h := newHost(t, ipoib(), nil, false)
	h.bind()
	h.step(h.c.Renew(h.now))
	h.hear(typeAck, other)
	h.state(link.DHCPRebinding)
	if h.c.View().Lease.Address.Addr() != address {
		t.Error("the address changed in a renewal")
	}
}

// Times that contradict each other are replaced.
func TestTimes(t *testing.T) {
	for _, x := range []struct{ t1, t2, want1, want2 uint32 }{
		{0, 0, 1800, 3150}, {3000, 1000, 1800, 3150}, {100, 200, 100, 200}, {100, 4000, 1800, 3150},
	} {
		h := newHost(t, ipoib(), nil, false)
		h.step(h.c.Carrier(h.now, true, 0, false))
		h.hear(typeOffer, nil)
		h.hear(typeAck, func(r *reply) {
			r.opts = append(r.opts, option{optT1, binary.BigEndian.AppendUint32(nil, x.t1)},
				option{optT2, binary.BigEndian.AppendUint32(nil, x.t2)})
		})
		l := h.c.View().Lease
		if l == nil || l.Renew != 1000+uint64(x.want1) || l.Rebind != 1000+uint64(x.want2) {
			t.Errorf("%d %d: %+v", x.t1, x.t2, l)
		}
	}
}

func TestClientID(t *testing.T) {
	const machine = "0123456789abcdef0123456789abcdef"
	for _, x := range []struct {
		kind  units.ClientIDKind
		htype uint16
		want  string
	}{
		{units.ClientIDMAC, 32, "20 00 02 c9 03 00 0a bc df"},
		{units.ClientIDMAC, 1, "01 00 02 c9 0a bc df"},
		{units.ClientIDFlexBoot, 32, "ff 00 00 00 00 00 02 00 00 02 c9 00 00 02 c9 03 00 0a bc df"},
	} {
		a := ipoibHW
		if x.htype == 1 {
			a = ib.MustParseHWAddr("00:02:c9:0a:bc:df")
		}
		got := fmt.Sprintf("% x", ClientID(units.ClientIdentifier{Kind: x.kind}, x.htype, a, "", machine, units.Value[uint32]{}))
		if got != x.want {
			t.Errorf("%v of %d: %s, want %s", x.kind, x.htype, got, x.want)
		}
	}
	long := ClientID(units.ClientIdentifier{}, 32, ipoibHW, "ibp8s0", machine, units.Some(uint32(7)))
	if got := fmt.Sprintf("% x", long[:11]); got != "ff 00 00 00 07 00 02 00 00 ab 11" || len(long) != 19 {
		t.Errorf("duid: %s, %d bytes", got, len(long))
	}
	only := ClientID(units.ClientIdentifier{Kind: units.ClientIDDUIDOnly}, 32, ipoibHW, "", machine, units.Value[uint32]{})
	if len(only) != 15 {
		t.Errorf("duid-only: % x", only)
	}
}

// The test vector of the paper's appendix A.
func TestSipHash(t *testing.T) {
	key, text := make([]byte, 16), make([]byte, 15)
	for i := range key {
		key[i] = byte(i)
	}
	copy(text, key)
	if got := siphash(string(key), text); got != 0xa129ca6149be45e5 {
		t.Errorf("%#x", got)
	}
}

// Why an answer could not be used counts until one can.
func TestLastDrop(t *testing.T) {
	h := newHost(t, ipoib(), nil, false)
	h.step(h.c.Carrier(h.now, true, 0, false))
	h.take()
	h.hear(typeOffer, set(optMask, 255, 0, 255, 0))
	if d := h.c.Drops(); d.Last == "" || d.Contradictory != 1 {
		t.Errorf("%+v", d)
	}
	h.hear(typeOffer, nil)
	h.hear(typeAck, nil)
	h.state(link.DHCPBound)
	if d := h.c.Drops(); d.Last != "" || d.Contradictory != 1 {
		t.Errorf("with a lease %+v", d)
	}
}
