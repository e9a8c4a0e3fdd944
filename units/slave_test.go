package units

import (
	"strings"
	"testing"
)

// Each key that has no effect on a bond's slave is warned of at its place, and what a
// slave does have is not.
func TestKeysOfASlave(t *testing.T) {
	text := "[Match]\nName=ib0\n[Bond]\nName=bond0\n[Link]\nMTUBytes=2044\n[Network]\nDescription=x\nPrimarySlave=yes\n" +
		"DHCP=yes\nIPv6AcceptRA=yes\nLinkLocalAddressing=ipv4\nDNS=10.0.0.1\nDNS=10.0.0.2\nMultiRail=yes\n" +
		"[RoCE]\nGIDIndex=3\n[DHCPv4]\nUseDNS=no\n"
	u, problems := VerifyFile("/a.ibnetwork", []byte(text))
	var got []string
	for _, p := range problems {
		got = append(got, strings.TrimPrefix(p.String(), "/a.ibnetwork:"))
	}
	const tail = " is on a slave of bond0: move it to a unit with [Match] Name=bond0; it has no effect"
	want := strings.Join([]string{"9:6: warning: DHCP=" + tail, "13:5: warning: DNS=" + tail, "11:21: warning: LinkLocalAddressing=" + tail,
		"10:14: warning: IPv6AcceptRA=" + tail, "14:11: warning: MultiRail=" + tail, "18:8: warning: UseDNS=" + tail,
		"16:10: warning: GIDIndex=" + tail}, "\n")
	for _, w := range strings.Split(want, "\n") {
		if _, line, _ := strings.Cut(w, ": warning"); !strings.Contains(strings.Join(got, "\n"), line) {
			t.Errorf("no %q", w)
		}
	}
	if len(got) != 7 || u.Network.Description.V != "x" {
		t.Errorf("%d: %s", len(got), strings.Join(got, "\n"))
	}
	// Only the bond's unit has them without a word.
	if _, problems := VerifyFile("/a.ibnetwork", []byte(strings.Replace(text, "[Bond]\nName=bond0\n", "", 1))); len(problems) != 2 {
		t.Error(problems) // PrimarySlave=, and DHCPv6 without a link-local address
	}
}

// GIDIndex= in a unit whose bond is rejected, or of a slave, has no advice to give the link an address.
func TestGIDIndexBesideBond(t *testing.T) {
	for bond, want := range map[string]string{
		"[Bond]\nMode=active-backup\n":         "[Bond] has no Name=",
		"[Bond]\nName=eth0\n":                  "cannot be a slave of itself",
		"[Network]\nBond=eth0\n":               "cannot be a slave of itself",
		"[Network]\nBond=a/b\n":                "is not an interface name",
		"[Bond]\nName=bond0\n":                 "GIDIndex= is on a slave of bond0",
		"[Bond]\nName=a/b\n[Port]\nType=eth\n": "is not an interface name",
	} {
		_, problems := VerifyFile("/a.ibnetwork", []byte("[Match]\nName=eth0\n"+bond+"[RoCE]\nGIDIndex=3\n"))
		found := 0
		for _, p := range problems {
			if strings.Contains(p.String(), want) {
				found++
			}
			if strings.Contains(p.String(), "which has none") {
				t.Errorf("%q: %v", bond, p)
			}
		}
		if found != 1 {
			t.Errorf("%q: %v", bond, problems)
		}
	}
}

// A unit of a slave may turn off what a slave does not have.
func TestAddressesOfASlaveAreOff(t *testing.T) {
	const text = "[Match]\nName=ib0\n[Bond]\nName=bond0\n[Network]\nDHCP=no\nIPv6AcceptRA=no\nLinkLocalAddressing=no\n"
	if _, problems := VerifyFile("/a.ibnetwork", []byte(text)); len(problems) != 0 {
		t.Error(problems)
	}
}

// A link is neither its own slave nor its own child.
func TestOwnName(t *testing.T) {
	u, problems := VerifyFile("/a.ibnetwork", []byte("[Match]\nName=ib0 ib1\n[Bond]\nName=ib0\n[Partition]\nPartitionKey=0x8001\nName=ib1\n"))
	if len(problems) != 2 || u.Bond.Name.Set || problems[0].Pos.Line != 4 || problems[1].Pos.Line != 7 {
		t.Error(problems)
	}
	for _, text := range []string{"[VRF]\nName=e0\nTable=100\n", "[Network]\nVRF=e0\n", "[VLAN]\nName=e0\nId=7\n", "[MACVLAN]\nName=e0\n"} {
		u, problems := VerifyFile("/a.ibnetwork", []byte("[Match]\nName=e0\n"+text))
		if vrf, _ := u.VRFName(); len(problems) != 1 || problems[0].Pos.Line != 4 || vrf != "" || len(u.VLANs) > 0 {
			t.Errorf("%s: %v, VRF %q, %v", text, problems, vrf, u.VLANs)
		}
	}
}
