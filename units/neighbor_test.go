package units

import (
	"strings"
	"testing"
)

// MACAddress= is LinkLayerAddress=, as in older .network files.
func TestNeighborOldName(t *testing.T) {
	u, problems := VerifyFile("10-ib0.ibnetwork", []byte("[Match]\nName=ib0\n[Neighbor]\nAddress=10.0.0.2\nMACAddress=02:00:00:00:00:02\n"))
	if len(problems) != 0 || len(u.Neighbors) != 1 || !strings.Contains(u.Format(), "\nLinkLayerAddress=02:00:00:00:00:02\n") {
		t.Errorf("%v\n%s", problems, u.Format())
	}
}

// GIDIndex= without an IPv4 address of the unit has a warning.
func TestGIDIndexNeedsAddress(t *testing.T) {
	for network, want := range map[string]int{
		"":                                             0,
		"[Network]\nAddress=10.0.0.1/24\n":             1,
		"[Network]\nDHCP=ipv4\n":                       1,
		"[Network]\nDHCP=ipv6\n":                       0,
		"[Network]\nAddress=fd00::1/64\n":              0,
		"[Network]\nAddressTable=/etc/t\n":             1,
		"[Network]\nLinkLocalAddressing=yes\n":         1,
		"[Network]\nAddress=10.1.{eno1.3}.{host}/16\n": 1,
	} {
		_, problems := VerifyFile("10-eth0.ibnetwork", []byte("[Match]\nName=eth0\n"+network+"[RoCE]\nGIDIndex=3\n"))
		if (len(problems) == 0) != (want == 1) || len(problems) == 1 && !strings.Contains(problems[0].String(), "write Address= or DHCP=ipv4") {
			t.Errorf("%q: %v", network, problems)
		}
	}
}
