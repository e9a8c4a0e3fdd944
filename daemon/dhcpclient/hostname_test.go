package dhcpclient

import (
	"testing"

	"ibnetworkd/link"
	"ibnetworkd/units"
)

// A name is asked for with UseHostname=yes alone, once.
func TestRequestHostname(t *testing.T) {
	for text, want := range map[string]int{
		"": 0, "UseHostname=no\n": 0, "UseHostname=yes\n": 1, "UseHostname=yes\nRequestOptions=12 66\n": 1,
	} {
		u, _ := units.VerifyFile("10-ib0.ibnetwork", []byte("[Match]\nName=ib0\n[Network]\nDHCP=ipv4\n[DHCPv4]\n"+text))
		n := 0
		for _, o := range config4(&link.Snapshot{}, &link.Link{Name: "ib0", Type: link.ARPHRDInfiniBand}, u, identity{}).Request {
			if o == 12 {
				n++
			}
		}
		if n != want {
			t.Errorf("%q: requested %d times, want %d", text, n, want)
		}
	}
}
