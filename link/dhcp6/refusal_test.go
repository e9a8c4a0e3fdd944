package dhcp6

import (
	"strings"
	"testing"
	"time"

	"ibnetworkd/link"
)

// What a server says of an address that it is asked to renew.
func TestRefusals(t *testing.T) {
	for name, c := range map[string]struct {
		answer func(*answer)
		state  link.DHCPState
		lost   bool
		sent   string
	}{
		"NoBinding":    {code(statusNoBinding), link.DHCPRequesting, false, "request fd00:11::100 of a server"},
		"NotOnLink":    {code(statusNotOnLink), link.DHCPWaiting, true, ""},
		"UnspecFail":   {code(statusUnspecFail), link.DHCPRenewing, false, ""},
		"taken back":   {func(a *answer) { a.life = [4]uint32{} }, link.DHCPWaiting, true, ""},
		"NoAddrsAvail": {code(statusNoAddrs), link.DHCPRenewing, false, ""},
		"unknown":      {code(99), link.DHCPRenewing, false, ""},
		"another back": {func(a *answer) { a.addr, a.life = address2, [4]uint32{} }, link.DHCPRenewing, false, ""},
		"no IA":        {func(a *answer) { a.noIA = true }, link.DHCPRenewing, false, ""},
		"another IAID": {func(a *answer) { a.noIA, a.top = true, append(a.top, option{optIANA, make([]byte, 12)}) },
			link.DHCPRenewing, false, ""},
		"other server": {func(a *answer) { a.server = []byte{1, 2, 3} }, link.DHCPRenewing, false, ""},
		"another one":  {func(a *answer) { a.addr = address2 }, link.DHCPBound, false, ""},
	} {
		h := newHost(t, config(), nil, false)
		h.bind()
		h.wait(1500 * time.Second)
		h.take()
		h.hear(typeReply, c.answer)
		h.state(c.state)
		if got := strings.Join(h.take(), ", "); got != c.sent || (h.c.View().Lease == nil) != c.lost {
			t.Errorf("%s: sent %q, lease %v", name, got, h.c.View().Lease)
		}
		h.wait(10 * time.Minute)
		if h.c.Deadline() == 0 {
			t.Errorf("%s: stuck", name)
		}
	}
}

// A second server without a free address, which answers first, does not end a lease that is
// in use: it is asked for again, and used to its end.
func TestRefusedInUse(t *testing.T) {
	second := func(s status) func(*answer) {
		return func(a *answer) { a.code, a.server = s, []byte{0, 3, 0, 1, 9, 9, 9, 9, 9, 9} }
	}
	for _, first := range []status{statusNoAddrs, statusNoBinding} {
		h := newHost(t, config(), nil, false)
		h.bind()
		h.wait(2500 * time.Second)
		h.state(link.DHCPRebinding)
		h.hear(typeReply, second(first))
		h.hear(typeReply, second(statusNoAddrs)) // to the request, after NoBinding
		if v := h.c.View(); v.Lease == nil || v.Refusal != "NoAddrsAvail" || h.c.Deadline() == 0 {
			t.Fatalf("%s: %+v", first, v)
		}
		h.take()
		for h.c.View().Tries == 0 && len(h.sent) == 0 {
			h.wait(100 * time.Millisecond)
		}
		if words := h.take(); first == statusNoBinding && strings.Join(words, ", ") != "solicit fd00:11::100" {
			t.Errorf("%s: %q", first, words)
		}
		h.wait(time.Minute)
		if words := h.take(); len(words) == 0 || h.c.View().Lease == nil {
			t.Errorf("%s: %q", first, words)
		}
		h.wait(20 * time.Minute)
		if h.c.View().Lease != nil {
			t.Errorf("%s: used after its end", first)
		}
	}
	// One that ends while the client waits ends in time.
	h := newHost(t, config(), nil, false)
	h.bind()
	h.wait(2500 * time.Second)
	h.c.penalty, h.now = 7, at(h.c.lease.Until())-10*time.Second
	h.hear(typeReply, second(statusNoBinding))
	h.hear(typeReply, second(statusNoAddrs))
	h.state(link.DHCPWaiting)
	h.wait(11 * time.Second)
	if h.c.View().Lease != nil {
		t.Error("used after its end")
	}
}

// Whatever servers answer to one message changes the view once, and a refusal is forgotten when
// a later message has no answer.
func TestRefusalOfEachMessage(t *testing.T) {
	h := newHost(t, config(), nil, false)
	h.up(false)
	views := map[string]bool{}
	for i := range 100 {
		h.hear(typeAdvertise, code(statusNoAddrs+status(i)))
		v := h.c.View()
		views[v.Refusal] = true
	}
	if len(views) != 1 || !views["NoAddrsAvail"] {
		t.Errorf("%v", views)
	}
	for h.take(); len(h.sent) == 0; {
		h.wait(100 * time.Millisecond)
	}
	if v := h.c.View(); v.Refusal != "NoAddrsAvail" {
		t.Errorf("before an answer to the next message: %+v", v)
	}
	h.hear(typeAdvertise, code(77))
	if v := h.c.View(); v.Refusal != "unknown status" {
		t.Errorf("%+v", v)
	}
	h.wait(time.Minute)
	if v := h.c.View(); v.Refusal != "" || v.Refused.IsValid() || v.Tries != 4 {
		t.Errorf("%+v", v)
	}
	h.hear(typeAdvertise, code(statusNoAddrs))
	h.step(h.c.Carrier(h.now, false, 1, false))
	if v := h.c.View(); v.Refusal != "" {
		t.Errorf("without a carrier: %+v", v)
	}
}

// What is noted of an answer says what it is.
func TestAnswersInWords(t *testing.T) {
	h := newHost(t, config(), nil, false)
	h.bind()
	h.wait(1500 * time.Second)
	h.hear(typeAdvertise, nil)
	if d := h.c.Drops(); d.Contradictory != 1 || d.Last != "an advertisement that was not requested" {
		t.Errorf("%+v", d)
	}
	h.hear(typeReply, func(a *answer) { a.life = [4]uint32{} })
	if v := h.c.View(); v.Lease != nil || v.Refusal != "it takes the address back" || v.Refused != server {
		t.Errorf("%+v", v)
	}
	cut := func(a *answer) { a.noIA = true; a.top = append(a.top, option{optStatus, []byte{0}}) }
	cfg := config()
	cfg.Information = true
	info := newHost(t, cfg, nil, false)
	confirm := newHost(t, config(), lease(), true)
	for _, h := range []*host{info, confirm} {
		h.up(false)
		h.hear(typeReply, cut)
		if d := h.c.Drops(); d.Contradictory != 1 || d.Last != "a status of less than 2 bytes" {
			t.Errorf("%+v", d)
		}
	}
	// An answer that comes with the end of the lease is no refusal.
	confirm.now = 4500 * time.Second
	confirm.hear(typeReply, func(a *answer) { a.noIA = true })
	confirm.state(link.DHCPSelecting)
	if v := confirm.c.View(); v.Lease != nil || v.Refusal != "" {
		t.Errorf("%+v", v)
	}
}
