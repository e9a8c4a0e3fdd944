package dhcp

import (
	"strings"
	"testing"
)

// The name of a lease is one that a host can have, or none.
func TestHostname(t *testing.T) {
	a, b := strings.Repeat("a", 32), strings.Repeat("b", 31)
	for name, want := range map[string]string{
		"node17": "node17", "node17\x00": "node17", "node17.example.": "node17.example", "": "", "localhost": "", "a b": "", "-a": "",
		"../x": "", "\x1b[2J": "", a + "." + b: a + "." + b, a + ".b" + b: "",
	} {
		h := newHost(t, ipoib(), nil, false)
		h.step(h.c.Carrier(h.now, true, 0, false))
		h.hear(typeOffer, nil)
		h.hear(typeAck, set(OptionHostname, []byte(name)...))
		if l := h.c.View().Lease; l == nil || l.Hostname != want {
			t.Errorf("%q: %+v, want %q", name, l, want)
		}
	}
}
