package plan_test

import (
	"net/netip"
	"strings"
	"testing"

	"ibnetworkd/daemon/plan"
	"ibnetworkd/link"
)

// A link whose address is derived from that of another is planned whenever the other
// is, in the same plan and after it.
func TestDerivedAddressFollows(t *testing.T) {
	set := load(t, map[string]string{
		"10.ibnetwork": "[Match]\nName=ib0\n[Network]\nAddress=10.3.0.0+{ib1}/16\n",
		"20.ibnetwork": "[Match]\nName=ib1\n[Network]\nAddress=10.2.5.17/16\n",
		"30.ibnetwork": "[Match]\nName=ib2\n[Network]\nAddress=10.4.0.0+{ib0}/16\n",
	})
	s := &link.Snapshot{Schema: link.SnapshotSchema}
	for i, n := range []string{"ib0", "ib1", "ib2"} {
		s.Links = append(s.Links, link.Link{Index: i + 3, Name: n, Type: 1, Flags: link.FlagUp | link.FlagLowerUp})
	}
	r := plan.Make(plan.Input{Snapshot: s, Units: set, Record: &link.Record{}})
	const want = "ip address add 10.2.5.17/16 broadcast 10.2.255.255 dev ib1\n" +
		"ip address add 10.3.5.17/16 broadcast 10.3.255.255 dev ib0\n" +
		"# waiting: ib2: ib0 derives its own address from another link\n" +
		"#   next: derive both from the same link\n"
	if got := r.Plan.String(); got != want {
		t.Errorf("%s", got)
	}
	for i := range s.Links[:1] {
		s.Links[i].Addresses = []link.Address{{Prefix: netip.MustParsePrefix("10.3.5.17/16"), Valid: link.Forever, Preferred: link.Forever}}
	}
	rec := &link.Record{Links: []*link.LinkRecord{{Ifindex: 3, Name: "ib0", Addresses: s.Links[0].Addresses}}}
	s.Links[1].Addresses = []link.Address{{Prefix: netip.MustParsePrefix("10.2.5.18/16"), Valid: link.Forever, Preferred: link.Forever}}
	none := load(t, map[string]string{"10.ibnetwork": "[Match]\nName=ib0\n[Network]\nAddress=10.3.0.0+{ib1}/16\n"})
	r = plan.Make(plan.Input{Snapshot: s, Units: none, Record: rec, Scope: map[int]bool{4: true},
		Prev: map[int]link.Governed{3: {Unit: none.Units[0]}}})
	if got := r.Plan.String(); got != "ip address delete 10.3.5.17/16 dev ib0\nip address add 10.3.5.18/16 broadcast 10.3.255.255 dev ib0\n" {
		t.Errorf("%s", got)
	}
	if st := r.Links; len(st) != 2 || st[0].State != link.StateConfiguring {
		t.Errorf("%+v", st)
	}
}

// A link joins a bond or VRF that the unit of a later link makes, whose address is derived
// from the first's.
func TestJoinsBeforeTheMaker(t *testing.T) {
	for _, tc := range []struct{ join, makes, want string }{
		{"VRF=blue", "[VRF]\nName=blue\nTable=7\n", "ip link add name blue type vrf table 7\nip link set blue up\n" +
			"ip link set ib0 master blue\nip address add 10.2.5.17/16 broadcast 10.2.255.255 dev ib0\n" +
			"ip link set ib1 master blue\nip address add 10.3.5.17/16 broadcast 10.3.255.255 dev ib1\n"},
		{"Bond=bond0", "[Bond]\nName=bond0\n[VRF]\nName=blue\nTable=7\n",
			"ip link add name bond0 mtu 1500 type bond mode active-backup miimon 10\n" +
				"ip link set ib0 down\nip link set ib0 master bond0\nip link set ib0 up\n"},
	} {
		set := load(t, map[string]string{
			"10.ibnetwork": "[Match]\nName=ib0\n[Network]\nAddress=10.2.5.17/16\n" + tc.join + "\n",
			"20.ibnetwork": "[Match]\nName=ib1\n" + tc.makes + "[Network]\nAddress=10.3.0.0+{ib0}/16\n",
		})
		s := &link.Snapshot{Schema: link.SnapshotSchema}
		for i, n := range []string{"ib0", "ib1"} {
			s.Links = append(s.Links, link.Link{Index: i + 3, Name: n, Type: 1, MTU: 1500, Flags: link.FlagUp | link.FlagLowerUp})
		}
		r := plan.Make(plan.Input{Snapshot: s, Units: set, Record: &link.Record{}})
		if got := r.Plan.String(); !strings.HasPrefix(got, tc.want) {
			t.Errorf("%s: %s", tc.join, got)
		}
	}
}
