package dhcp

import (
	"net/netip"
	"testing"
	"time"

	"ibnetworkd/link"
)

// FuzzClient has a network say anything, in an order of its own, to a client. Whatever it
// is: what is used of a lease is sound, the client sends little, and it goes on.
func FuzzClient(f *testing.F) {
	seed := newSeed(f)
	f.Add([]byte{0, 2, 5}, seed(typeOffer, nil), seed(typeAck, nil), true)
	f.Add([]byte{0, 1, 9, 3, 3, 3}, seed(typeOffer, set(optRoutes, 24, 10, 1, 2, 10, 11, 0, 1)), seed(typeNak, nil), false)
	f.Add([]byte{0, 4, 1}, seed(typeOffer, set(optSearch, 3, 'f', 'o', 'o', 0, 0xc0, 0)), seed(typeAck, set(optOverload, 3)), true)
	f.Fuzz(func(t *testing.T, script, first, second []byte, probe bool) {
		if len(script) > 64 {
			return
		}
		cfg := ipoib()
		cfg.Probe = probe
		h := newHost(t, cfg, nil, false)
		start := h.now
		h.step(h.c.Carrier(h.now, true, 0, false))
		for _, b := range script {
			text := first
			if b&1 != 0 {
				text = second
			}
			text = append([]byte(nil), text...)
			if b&2 == 0 && len(text) >= 36 { // in the transaction, as one who listens to it would
				copy(text[32:36], []byte{byte(h.c.xid >> 24), byte(h.c.xid >> 16), byte(h.c.xid >> 8), byte(h.c.xid)})
			}
			switch b & 0x30 {
			case 0x10:
				h.wait(time.Duration(b) * time.Second)
			case 0x20:
				h.step(h.c.ARP(h.now, text))
			case 0x30:
				h.step(h.c.Carrier(h.now, b&4 != 0, uint32(b&8), false))
			default:
				h.step(h.c.Packet(h.now, text, true))
			}
			sound(t, h)
		}
		h.step(h.c.Carrier(h.now, true, 0, false))
		h.wait(10 * time.Minute)
		sound(t, h)
		// A server may give the shortest lease again and again.
		if n := len(h.sent); n > 16+8*len(script)+int((h.now-start)/time.Second) {
			t.Errorf("%d packets in %v", n, h.now-start)
		}
		if v := h.c.View(); v.Lease == nil && h.c.Deadline() == 0 {
			t.Errorf("stuck in %s", v.State)
		}
	})
}

// sound checks what a lease brings.
func sound(t *testing.T, h *host) {
	v := h.c.View()
	if v.Lease == nil {
		return
	}
	l := v.Lease
	a := l.Address.Addr()
	if !usable(a) || l.Address.Bits() < 1 || !usable(l.Server) || a == l.Server || l.Over(seconds(h.now)) && h.c.Deadline() == 0 {
		t.Errorf("%+v", l)
	}
	if l.Lifetime != link.Forever && (l.Lifetime < leastLifetime || l.Renew >= l.Rebind || l.Rebind >= l.Until()) {
		t.Errorf("times of %+v", l)
	}
	if len(l.DNS) > mostServers || len(l.NTP) > mostServers || len(l.Routes) > mostRoutes || len(l.Search) > mostDomains {
		t.Errorf("too much: %+v", l)
	}
	for _, r := range l.Routes {
		if r.Dst != r.Dst.Masked() || !usable(r.Gateway) && r.Gateway != netip.IPv4Unspecified() {
			t.Errorf("route %+v", r)
		}
	}
	for _, d := range append(l.Search, l.Domain, l.Hostname) {
		if d != "" && !ValidName(d) {
			t.Errorf("domain %q", d)
		}
	}
}

func newSeed(f *testing.F) func(kind byte, change func(*reply)) []byte {
	h := &host{c: New(ipoib(), 1, nil, false), now: 1000 * time.Second}
	h.c.Carrier(h.now, true, 0, false)
	return h.answer
}

// FuzzDecode: a message that is read has what its bytes have, and is read again as it is
// written.
func FuzzDecode(f *testing.F) {
	seed := newSeed(f)
	for _, kind := range []byte{typeOffer, typeAck, typeNak} {
		f.Add(seed(kind, nil)[ipHeader+udpHeader:])
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := decode(b)
		if err != nil {
			return
		}
		total := 0
		var opts []option
		for code := range 256 {
			if v := m.options[byte(code)]; len(v) > 0 {
				total += len(v)
				opts = append(opts, option{byte(code), v})
			}
		}
		if total > len(b) {
			t.Fatalf("%d bytes of options in %d bytes", total, len(b))
		}
		if Domains(m.options[optSearch]) != nil && len(m.options[optSearch]) == 0 {
			t.Error("domains of nothing")
		}
		again, err := decode(m.encode(opts))
		if err != nil && total < 2000 {
			t.Fatal(err)
		}
		for _, o := range opts {
			if err == nil && string(again.options[o.code]) != string(o.value) {
				t.Errorf("option %d: % x, written as % x", o.code, o.value, again.options[o.code])
			}
		}
	})
}
