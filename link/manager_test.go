package link

import (
	"strings"
	"testing"

	"ibnetworkd/ib"
)

// Next steps about partitions name the place that the subnet manager reads, and a
// link that cannot join because no subnet manager answers reports that.
func TestManagerSteps(t *testing.T) {
	for _, tt := range []struct {
		name string
		m    Manager
		want string // of a step of each kind
	}{
		{"nothing known", Manager{}, "where the subnet manager at LID 7 runs (ibnetctl sm status names its host), in the partitions " +
			"that it reads: "},
		{"another's, by name", Manager{Host: "head HCA-1", GUID: 0x0002c90300000001}, `on host "head HCA-1", which runs the subnet manager ` +
			`(port GUID 0x0002c90300000001), in the partitions that it reads: `},
		{"another's, by GUID", Manager{GUID: 0x0002c90300000001}, "on the host with port GUID 0x0002c90300000001, which runs the " +
			"subnet manager, in the partitions that it reads: "},
		{"ours, a file", Manager{Ours: true, Builtin: true, Unit: "/u/a.ibnetwork", File: "/etc/p.conf"}, "in /etc/p.conf: "},
		{"ours, no file", Manager{Ours: true, Builtin: true, Unit: "/u/a.ibnetwork"}, "in /u/a.ibnetwork, [SubnetManager]: Partition=0x8001 "},
		{"ours by hand", Manager{Ours: true, Builtin: true}, "write a unit for this port with [SubnetManager] Partition=0x8001 "},
		{"our opensm", Manager{Ours: true, Unit: "/u/a.ibnetwork"}, "in /etc/opensm/partitions.conf of this host: "},
	} {
		p := Port{Num: 1, GUID: 0x0002c903000abcde, SMLID: 7, Manager: tt.m}
		for _, s := range []string{p.MemberStep(1), p.GroupStep(1), p.MTUStep(1)} {
			if !strings.HasPrefix(s, tt.want) {
				t.Errorf("%s: %q, want %q", tt.name, s, tt.want)
			}
		}
	}
	s := &Snapshot{Devices: []Device{{Name: "mlx5_0", Ports: []Port{{Num: 1, Layer: ib.LinkLayerInfiniBand, State: ib.PortActive,
		Phys: ib.PhysLinkUp, LID: 3, SMLID: 7, PKeys: []ib.PKey{0xffff}}}}},
		Links: []Link{{Index: 4, Name: "ib0", Flags: FlagUp, IPoIB: &IPoIB{PKey: 0xffff}, IBDevice: "mlx5_0", Port: 1}}}
	if r := carrierReason(s, &s.Links[0]); r.Code != CodeJoin || strings.HasPrefix(r.Next, "give") {
		t.Errorf("%+v", r)
	}
	s.Devices[0].Ports[0].Manager.Silent = true
	if r := carrierReason(s, &s.Links[0]); r.Code != CodeNoSM || !strings.HasSuffix(r.Text, "the subnet manager at LID 7 does "+
		"not answer") || strings.Contains(r.Next, "ipoib") {
		t.Errorf("%+v", r)
	}
}
