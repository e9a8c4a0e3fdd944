package units

import (
	"strings"
	"testing"
)

// A [VRF] that is wrong does not let the addresses of its links out into the main table.
func TestVRFSection(t *testing.T) {
	for _, tt := range []struct{ text, vrf, problem string }{
		{"[VRF]\nName=red\nTable=100\n", "red", ""},
		{"[VRF]\nName=red\n", "red", "[VRF] has no Table=, the number of its routing table, as in Table=100; " +
			"addresses wait until another program makes red"},
		{"[VRF]\nName=red\nTable=main\n", "red", "table 254 is one of the host's own"},
		{"[VRF]\nName=red\nTable=x\n", "red", "addresses wait until another program makes red"},
		{"[VRF]\nTable=100\n", "", "[VRF] has no Name="},
		{"[VRF]\nName=red\nTable=100\n[Network]\nVRF=blue\n", "red", "VRF=blue is another VRF than Name=red"},
		{"[VRF]\nName=red\n[Network]\nVRF=blue\n", "red", "VRF=blue is another VRF than Name=red"},
		{"[Bond]\nName=bond0\n[VRF]\nName=red\nTable=100\n", "", "a slave of bond0 cannot be in a VRF"},
		{"[Bond]\nName=bond0\n[Network]\nVRF=red\n", "", "a slave of bond0 cannot be in a VRF"},
	} {
		u, problems := VerifyFile("/etc/systemd/network/a.ibnetwork", []byte("[Match]\nName=ib0\n"+tt.text))
		var all []string
		for _, p := range problems {
			all = append(all, p.String())
		}
		got := strings.Join(all, "\n")
		if vrf, _ := u.VRFName(); vrf != tt.vrf || !strings.Contains(got, tt.problem) || tt.problem == "" && got != "" {
			t.Errorf("%s\nVRF %q: %s", tt.text, vrf, got)
		}
	}
}
