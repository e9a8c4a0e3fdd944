package plan_test

import (
	"strings"
	"testing"

	"ibnetworkd/daemon/plan"
	"ibnetworkd/ib"
	"ibnetworkd/internal/testkit"
	"ibnetworkd/link"
	"ibnetworkd/roce"
	"ibnetworkd/units"
)

// Enhanced IPoIB of mlx5 refuses another number of channels beside P_Key children
// (mlx5i_set_channels): they are made after it, and one that exists is named.
func TestChannelsBeforeChildren(t *testing.T) {
	set := load(t, map[string]string{"10.ibnetwork": "[Match]\nName=ib0\n[Link]\nCombinedChannels=2\n[Partition]\nPartitionKey=0x8001\n"})
	const channels, child = "ethtool -L ib0 combined 2", "ip link add link ib0 name ib0.8001 type ipoib pkey 0x8001\nip link set ib0.8001 up"
	const combined = units.EthtoolParam(7)
	const first = "CombinedChannels= of ib0 comes first: its driver refuses it beside P_Key children"
	for _, tt := range []struct {
		name    string
		driver  string
		have    uint32 // channels, 0 before they are read
		child   bool
		delayed link.Code
		ops     []string
		blocked []string
	}{
		{name: "OK channels first", have: 4, ops: []string{channels}, blocked: []string{first}},
		{name: "OK then the child", have: 2, ops: []string{child}},
		{name: "OK another driver takes both", driver: "mlx4_core", have: 4, ops: []string{channels, child}},
		{name: "wait for what it has", blocked: []string{`what "ethtool -l ib0" prints is read when the driver has ended its present work`}},
		{name: "wait for the driver", have: 4, delayed: link.CodeInProgress, blocked: []string{"delayed"}},
		{name: "OK the driver has refused it", have: 4, delayed: link.CodeRefused, ops: []string{child}, blocked: []string{"delayed"}},
		{name: "bad a child exists", have: 4, child: true,
			blocked: []string{"the driver of ib0 refuses CombinedChannels= beside P_Key children (ib0.8001)"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := oneLink(t)
			l := &s.Links[0]
			l.Flags |= link.FlagUp
			if l.HWAddr, l.Driver, l.NetDriver = ib.MustParseHWAddr(udAddr), "mlx5_core", "mlx5_core[ib_ipoib]"; tt.driver != "" {
				l.Driver, l.NetDriver = tt.driver, "ib_ipoib"
			}
			if tt.child {
				c := *l
				c.Index, c.Name, c.Parent, c.IPoIB = 5, "ib0.8001", 4, &link.IPoIB{PKey: 0x8001}
				s.Links = append(s.Links, c)
			}
			state := roce.Link{Ethtool: map[units.EthtoolParam]roce.Ethtool{}, EthtoolRead: map[units.EthtoolGroup]string{}}
			if tt.have != 0 {
				state.Ethtool[combined] = roce.Ethtool{N: tt.have, Max: 8}
				state.EthtoolRead[units.EthtoolChannels] = ""
			}
			s.Card = &roce.State{Links: map[int]roce.Link{4: state}}
			delayed := map[string]link.Reason{}
			if tt.delayed != "" {
				op := roce.SetEthtool{On: link.TargetOf(l), Group: units.EthtoolChannels,
					Settings: []units.EthtoolSetting{{Param: combined, N: 2}}}
				delayed[link.DelayKey(op)] = link.Reason{Code: tt.delayed, Text: "delayed"}
			}
			rec := &link.Record{Links: []*link.LinkRecord{{Ifindex: 4, Name: "ib0", Activated: true},
				{Ifindex: 5, Name: "ib0.8001", Child: true, Parent: 4, PKey: ib.PKey(0x8001), Activated: true}}}
			if !tt.child {
				rec.Links = rec.Links[:1]
			}
			r := plan.Make(plan.Input{Snapshot: s, Units: set, Record: rec, Delayed: delayed})
			testkit.Diff(t, "plan", strings.Join(tt.ops, "\n"), strings.Join(r.Plan.Commands(), "\n"))
			var blocked []string
			for _, x := range r.Plan.Blocked {
				if len(blocked) == 0 || blocked[0] != x.Reason.Text {
					blocked = append(blocked, x.Reason.Text)
				}
			}
			testkit.Diff(t, "blocked", tt.blocked, blocked)
		})
	}
}
