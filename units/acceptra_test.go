package units

import (
	"strings"
	"testing"
)

// What the kernel has no setting for is refused by name, with what to write instead; the tokens
// that it has are accepted, once for a link.
func TestAcceptRA(t *testing.T) {
	for _, tt := range []struct{ keys, next, token string }{
		{"RouteTable=100", "write [VRF]", ""},
		{"Token=::1", "", "::1"},
		{"Token=static:::1a:2b", "", "::1a:2b"},
		{"Token=eui64", "", "eui64"},
		{"Token=fd00:9::7", "it is read as ::7", "::7"},
		{"Token=::1\nToken=static:::1", "", "::1"},
		{"Token=::1\nToken=", "", ""},
		{"Token=::1\nToken=\nToken=::2", "", "::2"},
		{"[Network]\nIPv6Token=::1", "", "::1"},
		{"[Network]\nIPv6Token=::1\nIPv6Token=", "", ""},
		{"Token=::1\nToken=::2", "write Token= without a value before it", "::1"},
		{"Token=::1\nToken=eui64", "write Token= without a value before it", "::1"},
		{"Token=::1\n[Network]\nIPv6Token=::2", "write Token= without a value before it", "::1"},
		{"Token=fd00::", "the last 64 bits", ""},
		{"Token=::", "the last 64 bits", ""},
		{"Token=10.0.0.1", "neither eui64 nor an IPv6 address", ""},
		{"Token=prefixstable", "write IPv6LinkLocalAddressGenerationMode=stable-privacy", ""},
		{"Token=prefixstable:fd00::", "write IPv6LinkLocalAddressGenerationMode=stable-privacy", ""},
		{"Token=::1\n[Link]\nARP=no", "remove one of the two", "::1"},
		{"Token=eui64\n[Network]\nIPv6LinkLocalAddressGenerationMode=random", "the same way", "eui64"},
	} {
		u, problems := VerifyFile("10-ib0.ibnetwork", []byte("[Match]\nName=ib0\n[Network]\nIPv6AcceptRA=yes\n[IPv6AcceptRA]\n"+tt.keys+"\n"))
		if (tt.next == "") != (len(problems) == 0) || len(problems) > 1 || tt.next != "" && !strings.Contains(problems[0].String(), tt.next) {
			t.Errorf("%s: %v", tt.keys, problems)
		}
		got := ""
		if u.IPv6AcceptRA.Token.Set {
			got = u.IPv6AcceptRA.Token.V.String()
		}
		if got != tt.token {
			t.Errorf("%s: Token=%s, want %q", tt.keys, got, tt.token)
		}
	}
	_, problems := VerifyFile("10-ib0.ibnetwork", []byte("[Match]\nName=ib0\n[Network]\nIPv6Token=::1\n"))
	if len(problems) != 1 || !strings.Contains(problems[0].String(), "IPv6AcceptRA=yes") {
		t.Errorf("a token without IPv6AcceptRA=: %v", problems)
	}
}
