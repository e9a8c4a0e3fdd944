package link

import (
	"net/netip"
	"testing"
	"testing/fstest"

	"ibnetworkd/units"
)

// What counts as online, by [Link] RequiredForOnline=, RequiredFamilyForOnline=
// and the addresses that the link has.
func TestOnline(t *testing.T) {
	const v4, v6, ll6 = "10.0.0.1/24", "fd00::1/64", "fe80::1/64"
	tests := []struct {
		name, link string // of [Link]
		ip         bool   // the unit has an IP part
		addresses  []string
		required   bool
		online     bool
	}{
		{"OK an address", "", true, []string{v4}, true, true},
		{"OK link-local is enough", "", true, []string{ll6}, true, true},
		{"OK no address", "", true, nil, true, false},
		{"OK no IP part", "", false, nil, true, true},
		{"OK not required", "RequiredForOnline=no\n", true, nil, false, false},
		{"OK manual is not required", "ActivationPolicy=manual\n", true, nil, false, false},
		{"OK manual and required", "ActivationPolicy=manual\nRequiredForOnline=yes\n", true, []string{v4}, true, true},
		{"OK routable", "RequiredForOnline=routable\n", true, []string{ll6}, true, false},
		{"OK IPv4 wanted, IPv6 there", "RequiredFamilyForOnline=ipv4\n", true, []string{v6}, true, false},
		{"OK IPv4 wanted and there", "RequiredFamilyForOnline=ipv4\n", true, []string{v4}, true, true},
		{"OK IPv6 wanted, IPv4 there", "RequiredFamilyForOnline=ipv6\n", true, []string{v4}, true, false},
		{"OK IPv6 link-local", "RequiredFamilyForOnline=ipv6\n", true, []string{v4, ll6}, true, true},
		{"OK IPv6 routable wanted", "RequiredFamilyForOnline=ipv6\nRequiredForOnline=routable\n", true, []string{v4, ll6}, true, false},
		{"OK both wanted, one there", "RequiredFamilyForOnline=both\n", true, []string{v4}, true, false},
		{"OK both wanted and there", "RequiredFamilyForOnline=both\nRequiredForOnline=routable\n", true, []string{v4, v6}, true, true},
		{"OK a family is wanted of a link whose addresses others give", "RequiredFamilyForOnline=ipv4\n", false, nil, true, false},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			text := "[Match]\nName=ib0\n[Link]\n" + tc.link
			if tc.ip {
				text += "[Network]\n"
			}
			set := units.Load([]units.Root{{Path: "/etc/systemd/network", FS: fstest.MapFS{"a.ibnetwork": {Data: []byte(text)}}}})
			if len(set.Problems) > 0 {
				t.Fatal(set.Problems)
			}
			l := Link{Index: 2, Name: "ib0", Kind: "ipoib", Flags: FlagUp | FlagLowerUp}
			for _, a := range tc.addresses {
				l.Addresses = append(l.Addresses, Address{Prefix: netip.MustParsePrefix(a)})
			}
			got := BuildStatus(StatusInput{Snapshot: &Snapshot{Links: []Link{l}}, Link: &l, Unit: set.Units[0]})
			if got.Required != tc.required || got.Required && got.Online != tc.online {
				t.Errorf("required %v, online %v (%s), want %v, %v", got.Required, got.Online, got.Oper, tc.required, tc.online)
			}
		})
	}
}
