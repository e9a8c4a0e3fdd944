package units

import (
	"strings"
	"testing"
)

// What the kernel has no setting for is refused by name, with what to write instead.
func TestAcceptRARefused(t *testing.T) {
	for key, next := range map[string]string{"RouteTable=100": "write [VRF]", "Token=::1": "write the address in full"} {
		_, problems := VerifyFile("10-ib0.ibnetwork", []byte("[Match]\nName=ib0\n[Network]\nIPv6AcceptRA=yes\n[IPv6AcceptRA]\n"+key+"\n"))
		if len(problems) != 1 || !strings.Contains(problems[0].String(), next) {
			t.Errorf("%s: %v", key, problems)
		}
	}
}
