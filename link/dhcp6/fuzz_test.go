package dhcp6

import (
	"testing"
	"time"

	"ibnetworkd/link"
	"ibnetworkd/link/dhcp"
)

// FuzzClient has a network say anything, in an order of its own, to a client. Whatever it
// is: what is used of a lease is sound, the client sends little, and it goes on.
func FuzzClient(f *testing.F) {
	h := newHost(f, config(), nil, false)
	h.up(false)
	payload := func(kind byte, change func(*answer)) []byte { return h.answer(kind, change)[ipHeader+udpHeader:] }
	f.Add([]byte{0, 2, 5, 1}, payload(typeAdvertise, nil), payload(typeReply, nil), false, false)
	f.Add([]byte{1, 0x1f, 0x1f, 1, 0x1f}, payload(typeAdvertise, nil), payload(typeReply, top(optRapidCommit)), false, true)
	f.Add([]byte{0, 1, 0x20, 0, 0x31, 1}, payload(typeAdvertise, top(optPreference, 255)), payload(typeReply, code(statusNoBinding)),
		false, false)
	f.Add([]byte{1, 0x1f, 1}, payload(typeAdvertise, nil), payload(typeReply, func(a *answer) { a.noIA = true }), true, false)
	f.Fuzz(func(t *testing.T, script, first, second []byte, information, rapid bool) {
		if len(script) > 64 || len(first) > 5000 || len(second) > 5000 {
			return
		}
		cfg := config()
		cfg.Information, cfg.RapidCommit = information, rapid
		h := newHost(t, cfg, nil, false)
		start := h.now
		h.up(false)
		for _, b := range script {
			text := first
			if b&1 != 0 {
				text = second
			}
			text = append([]byte(nil), text...)
			if b&2 == 0 && len(text) >= header { // in the transaction, as one who listens to it would
				copy(text[1:], []byte{byte(h.c.xid >> 16), byte(h.c.xid >> 8), byte(h.c.xid)})
			}
			switch b & 0x30 {
			case 0x10:
				h.wait(time.Duration(b&15) * time.Minute)
			case 0x20:
				if l := h.c.View().Lease; l != nil && b&4 != 0 {
					h.step(h.c.Addresses(h.now, own, append(h.c.View().Lease.DNS, l.Address.Addr())))
				}
				h.step(h.c.Renew(h.now))
			case 0x30:
				h.step(h.c.Carrier(h.now, b&4 != 0, uint32(b&8), b&1 != 0))
			default:
				h.step(h.c.Packet(h.now, toClient(text, own), true))
			}
			sound(t, h)
		}
		h.step(h.c.Carrier(h.now, true, 0, false))
		h.wait(10 * time.Minute)
		sound(t, h)
		// A server may give the shortest lease again and again.
		if n := len(h.sent); n > 32+16*len(script)+int((h.now-start)/time.Second) {
			t.Errorf("%d packets in %v", n, h.now-start)
		}
		if v := h.c.View(); h.c.Deadline() == 0 && (v.Lease == nil || v.Lease.Lifetime != link.Forever) {
			t.Errorf("stuck in %s", v.State)
		}
	})
}

// sound checks what a lease brings.
func sound(t *testing.T, h *host) {
	l := h.c.View().Lease
	if l == nil {
		return
	}
	if l.Address.IsValid() == h.c.cfg.Information || l.Address.IsValid() && (!usable(l.Address.Addr()) || l.Address.Bits() != 128) {
		t.Errorf("address of %+v", l)
	}
	if l.Lifetime != link.Forever && (l.Lifetime < leastLifetime || l.Preferred > l.Lifetime || l.Renew < l.Granted+leastT1 ||
		l.Renew > l.Rebind ||
		l.Rebind >= l.Until()) || l.Over(seconds(h.now)) && h.c.Deadline() == 0 {
		t.Errorf("times of %+v", l)
	}
	if len(l.DNS) > mostServers || len(l.NTP) > mostServers || len(l.ServerID) > 2*longestID || len(l.Search) > 16 {
		t.Errorf("too much: %+v", l)
	}
	for _, a := range append(l.DNS, l.NTP...) {
		if !usable(a) && !a.IsLinkLocalUnicast() {
			t.Errorf("server %s", a)
		}
	}
	for _, d := range l.Search {
		if !dhcp.ValidName(d) {
			t.Errorf("domain %q", d)
		}
	}
}

// FuzzDecode: a message that is read is written as it was.
func FuzzDecode(f *testing.F) {
	h := newHost(f, config(), nil, false)
	h.up(false)
	for _, kind := range []byte{typeAdvertise, typeReply} {
		f.Add(h.answer(kind, nil)[ipHeader+udpHeader:])
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := decode(b)
		if err != nil {
			return
		}
		if len(m.opts) > mostOptions || len(b) > dhcp.MaxMessage {
			t.Errorf("%d options in %d bytes", len(m.opts), len(b))
		}
		if string(m.encode()) != string(b) {
			t.Errorf("% x, written as % x", b, m.encode())
		}
	})
}
