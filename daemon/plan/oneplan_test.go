package plan_test

import (
	"strings"
	"testing"

	"ibnetworkd/daemon/plan"
	"ibnetworkd/ib"
	"ibnetworkd/link"
)

// secondPort adds ib1, which is as ib0, and other links.
func secondPort(s *link.Snapshot, more ...link.Link) *link.Link {
	x := s.Links[0]
	x.Index, x.Name = 5, "ib1"
	s.Links = append(append(s.Links, x), more...)
	return &s.Links[1]
}

// otherVRF is a VRF blue with another table than the units want.
func otherVRF() link.Link {
	return link.Link{Index: 6, Name: "blue", Type: 1, Kind: link.KindVRF, Flags: link.FlagUp, VRF: &link.VRF{Table: 5}}
}

// One plan is enough where a link depends on what the plan makes of another one.
func TestOnePlan(t *testing.T) {
	for _, tt := range []struct {
		name  string
		units map[string]string
		sys   func(*link.Snapshot)
		rec   *link.Record
		want  string // a part
	}{
		{
			name: "an address derived from that of a child", want: "ip link set ib0.8001 up\n" +
				"ip address add 10.1.0.2/24 broadcast 10.1.0.255 dev ib0.8001\nip address add 10.6.0.2/16 broadcast 10.6.255.255 dev ib0\n",
			units: map[string]string{
				"10.ibnetwork": "[Match]\nName=ib0\n[Partition]\nPartitionKey=0x8001\n[Network]\nAddress=10.6.0.0+{ib0.*}/16\n",
				"20.ibnetwork": "[Match]\nName=ib0.*\n[Network]\nAddress=10.1.0.2/24\n",
			},
		},
		{
			name: "an address derived from that of a bond that is made", want: "ip address add 10.1.0.2/24 broadcast 10.1.0.255 dev bond0\n" +
				"ip address add 10.6.0.2/16 broadcast 10.6.255.255 dev ib1\n",
			units: map[string]string{
				"10.ibnetwork": "[Match]\nName=ib0\n[Bond]\nName=bond0\n",
				"20.ibnetwork": "[Match]\nName=bond0\n[Network]\nAddress=10.1.0.2/24\nConfigureWithoutCarrier=yes\n",
				"30.ibnetwork": "[Match]\nName=ib1\n[Network]\nAddress=10.6.0.0+{bond0}/16\n",
			},
			sys: func(s *link.Snapshot) { secondPort(s) },
		},
		{
			name: "addresses derived from each other", want: "# waiting: ib0: ib0.8001 derives its own address from another link\n" +
				"#   next: derive both from the same link\n# waiting: ib0.8001: ib0 derives its own address from another link\n",
			units: map[string]string{
				"10.ibnetwork": "[Match]\nName=ib0\n[Partition]\nPartitionKey=0x8001\n[Network]\nAddress=10.6.0.0+{ib0.*}/16\n",
				"20.ibnetwork": "[Match]\nName=ib0.*\n[Network]\nAddress=10.7.0.0+{ib0}/16\n",
			},
		},
		{
			name: "a bond that the unit of a child makes",
			want: "ip link add name bond0 mtu 4092 type bond mode active-backup miimon 20 fail_over_mac active\n" +
				"ip link set ib0 master bond0\nip link set ib0 up\nip link add link ib0 name ib0.8001 type ipoib pkey 0x8001\n" +
				"ip link set ib0.8001 master bond0\nip link set ib0.8001 up\n",
			units: map[string]string{
				"10.ibnetwork": "[Match]\nName=ib0\n[Partition]\nPartitionKey=0x8001\n[Network]\nBond=bond0\n",
				"20.ibnetwork": "[Match]\nName=ib0.*\n[Bond]\nName=bond0\nMIIMonitorSec=20ms\n",
			},
		},
		{
			name: "a VRF that the unit of a child makes", want: "ip link add name blue type vrf table 7\nip link set blue up\n" +
				"ip link set ib0 master blue\nip link set ib0 up\nip link add link ib0 name ib0.8001 type ipoib pkey 0x8001\n" +
				"ip link set ib0.8001 master blue\nip link set ib0.8001 up\n",
			units: map[string]string{
				"10.ibnetwork": "[Match]\nName=ib0\n[Partition]\nPartitionKey=0x8001\n[Network]\nVRF=blue\n",
				"20.ibnetwork": "[Match]\nName=ib0.*\n[VRF]\nName=blue\nTable=7\n",
			},
		},
		{
			name: "a VRF that the unit of a later link makes again", want: "ip link delete blue\nip link add name blue type vrf table 7\n" +
				"ip link set blue up\nip link set ib0 master blue\nip link set ib0 up\nip link set ib1 master blue\nip link set ib1 up\n",
			units: map[string]string{
				"10.ibnetwork": "[Match]\nName=ib0\n[Network]\nVRF=blue\n",
				"20.ibnetwork": "[Match]\nName=ib1\n[VRF]\nName=blue\nTable=7\n",
			},
			sys: func(s *link.Snapshot) {
				secondPort(s, otherVRF())
				s.Links[0].Master, s.Links[0].SlaveKind = 6, link.KindVRF
			},
			rec: &link.Record{Links: []*link.LinkRecord{{Ifindex: 6, Name: "blue", VRF: true, Activated: true}}},
		},
		{
			name: "a VRF of another program that the unit of a later link wants otherwise", want: "ip link set ib0 master blue\n" +
				"ip link set ib0 up\nip link set ib1 up\n",
			units: map[string]string{
				"10.ibnetwork": "[Match]\nName=ib0\n[Network]\nVRF=blue\n",
				"20.ibnetwork": "[Match]\nName=ib1\n[VRF]\nName=blue\nTable=7\n",
			},
			sys: func(s *link.Snapshot) { secondPort(s, otherVRF()) },
		},
		{
			name: "a bond that the unit of a later link makes again", want: "ip link delete bond0\n" +
				"ip link add name bond0 mtu 4092 type bond mode active-backup miimon 10 fail_over_mac active\n" +
				"ip link set ib0 master bond0\nip link set ib0 up\nip link set ib1 master bond0\nip link set ib1 up\n",
			units: map[string]string{
				"10.ibnetwork": "[Match]\nName=ib0\n[Network]\nBond=bond0\n",
				"20.ibnetwork": "[Match]\nName=ib1\n[Bond]\nName=bond0\n",
			},
			sys: func(s *link.Snapshot) {
				secondPort(s, link.Link{Index: 6, Name: "bond0", Type: 1, Kind: "bond", MTU: 1500, Bond: &link.Bond{}})
			},
			rec: &link.Record{Links: []*link.LinkRecord{{Ifindex: 6, Name: "bond0", Bond: true}}},
		},
		{
			name: "a child that cannot be made makes no bond", want: "# waiting: ib0: the bond bond0 of Bond= does not exist\n",
			units: map[string]string{
				"10.ibnetwork": "[Match]\nName=ib0\n[Partition]\nPartitionKey=0x8001\nName=averyveryverylongname\n[Network]\nBond=bond0\n",
				"20.ibnetwork": "[Match]\nPartitionKey=0x8001\n[Bond]\nName=bond0\n",
			},
		},
		{
			name: "a bond whose maker is in another one", want: "ip link set ib0 master bond1\n",
			units: map[string]string{
				"10.ibnetwork": "[Match]\nName=ib0\n[Network]\nBond=bond1\n",
				"20.ibnetwork": "[Match]\nName=ib1\n[Bond]\nName=bond1\n",
			},
			sys: func(s *link.Snapshot) {
				secondPort(s, link.Link{Index: 6, Name: "bond0", Type: s.Links[0].Type, Kind: "bond", MTU: 4092, Bond: &link.Bond{
					BondOptions: link.BondOptions{Mode: 1}}}).Master = 6
			},
		},
		{
			name: "the name of a child that goes to a network namespace", want: "ip link set x netns job up\nip link set ib0 up\n" +
				"ip link add link ib0 name x type ipoib pkey 0x8001\n",
			units: map[string]string{
				"10.ibnetwork": "[Match]\nName=ib0\n[Partition]\nPartitionKey=0x8001\nName=x\n",
				"20.ibnetwork": "[Match]\nName=ib1\n[Partition]\nPartitionKey=0x8002\nName=x\nNetworkNamespace=job\n",
			},
			sys: func(s *link.Snapshot) {
				s.Namespaces = []link.Namespace{{Path: "/run/netns/job", ID: -1}}
				c := link.ChildOf(secondPort(s), "x", 0x8002)
				c.Index = 6
				s.Links = append(s.Links, c)
			},
			rec: &link.Record{Links: []*link.LinkRecord{{Ifindex: 6, Name: "x", Child: true, Parent: 5, PKey: 0x8002}}},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := oneLink(t)
			s.Devices[0].Ports[0].PKeys = []ib.PKey{0xffff, 0x8001, 0x8002}
			if tt.sys != nil {
				tt.sys(s)
			}
			rec := tt.rec
			if rec == nil {
				rec = &link.Record{}
			}
			r := plan.Make(plan.Input{Snapshot: s, Units: load(t, tt.units), Record: rec})
			if !strings.Contains(r.Plan.String(), tt.want) {
				t.Errorf("%s", r.Plan.String())
			}
		})
	}
}
