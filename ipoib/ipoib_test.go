package ipoib

import (
	"slices"
	"strings"
	"testing"

	"ibnetworkd/ib"
	"ibnetworkd/link"
	"ibnetworkd/units"
)

func TestCandidates(t *testing.T) {
	for _, tt := range []struct {
		mode  ib.IPoIBMode
		limit int
		want  []int
	}{
		{ib.ModeDatagram, 4092, []int{4092, 2044, 1020, 508, 252}},
		{ib.ModeDatagram, 2044, []int{2044, 1020, 508, 252}},
		{ib.ModeDatagram, 3000, []int{3000, 2044, 1020, 508, 252}},
		{ib.ModeConnected, 65520, []int{65520, 49136, 32752, 16368, 8176}},
		{ib.ModeConnected, 9000, []int{9000, 8176}},
	} {
		if got := candidates(tt.mode, tt.limit); !slices.Equal(got, tt.want) {
			t.Errorf("%s up to %d: %v, want %v", tt.mode, tt.limit, got, tt.want)
		}
	}
}

func some[T any](v T) units.Value[T] { return units.Some(v) }

func TestMTU(t *testing.T) {
	hw := ib.MustParseHWAddr("80:00:00:48:fe:80:00:00:00:00:00:00:00:02:c9:03:00:00:00:01")
	on := link.Target{Link: "ib0", Ifindex: 4, IBDevice: "mlx5_0", Port: 1}
	refused := func(mtu int) map[string]link.Reason {
		return map[string]link.Reason{link.DelayKey(link.SetMTU{On: on, MTU: mtu}): {Code: link.CodeRefused, Text: "ib0 refused it"}}
	}
	for _, tt := range []struct {
		name    string
		mode    ib.IPoIBMode
		mtu     int
		flags   uint32
		want    units.MTU
		rec     *link.LinkRecord
		delayed map[string]link.Reason
		ops     string
		why     link.Code
		inText  string
		opa     bool
	}{
		{name: "OK max on Omni-Path keeps what it has", opa: true, mtu: 10236, want: units.MTU{Max: true}},
		{name: "OK max on Omni-Path", opa: true, mtu: 4092, want: units.MTU{Max: true}, ops: "ip link set ib0 mtu 10236"},
		{name: "OK a number on Omni-Path", opa: true, mtu: 4092, want: units.MTU{Bytes: 8188}, ops: "ip link set ib0 mtu 8188"},
		{name: "bad more than Omni-Path takes", opa: true, mtu: 10236, want: units.MTU{Bytes: 65520}, why: link.CodeMTUMode,
			inText: "at most 10236"},
		{name: "OK there already", mtu: 2044, want: units.MTU{Bytes: 2044}},
		{name: "OK asked", mtu: 2044, want: units.MTU{Bytes: 4092}, ops: "ip link set ib0 mtu 4092"},
		{name: "OK the group allows less, and that is " +
			"known", mtu: 2044, flags: link.FlagUp | link.FlagLowerUp, want: units.MTU{Bytes: 4092}, rec: &link.LinkRecord{Ifindex: 4,
			AskedMTU: 4092, GotMTU: 2044},
			why: link.CodeMTUGroup, inText: "wanted 4092, the fabric's broadcast group allows 2044 (group MTU 2048; the subnet manager sets it)"},
		{name: "OK max takes what the group allows without a " +
			"word", mtu: 2044, flags: link.FlagUp | link.FlagLowerUp, want: units.MTU{Max: true}, rec: &link.LinkRecord{Ifindex: 4,
			AskedMTU: 4092, GotMTU: 2044}},
		{name: "OK the group has changed: asked " +
			"again", mtu: 1020, want: units.MTU{Bytes: 4092}, rec: &link.LinkRecord{Ifindex: 4, AskedMTU: 4092, GotMTU: 2044},
			ops: "ip link set ib0 mtu 4092"},
		{name: "OK no group allows that, it is another program's: asked " +
			"again", mtu: 1513, flags: link.FlagUp | link.FlagLowerUp, want: units.MTU{Bytes: 2044}, rec: &link.LinkRecord{Ifindex: 4,
			AskedMTU: 2044, GotMTU: 1513}, ops: "ip link set ib0 mtu 2044"},
		{name: "OK no group raises it, it is another program's: asked " +
			"again", mtu: 4092, flags: link.FlagUp | link.FlagLowerUp, want: units.MTU{Bytes: 2044}, rec: &link.LinkRecord{Ifindex: 4,
			AskedMTU: 2044, GotMTU: 4092}, ops: "ip link set ib0 mtu 2044"},
		{name: "bad more than datagram takes", mtu: 2044, want: units.MTU{Bytes: 65520}, ops: "ip link set ib0 mtu " +
			"4092", why: link.CodeMTUMode, inText: "wanted 65520"},
		{name: "OK max on an adapter that takes 2K", mtu: 1020, want: units.MTU{Max: true}, delayed: refused(4092),
			ops: "ip link set ib0 mtu 2044"},
		{name: "bad a number on an adapter that takes 2K", mtu: 1020, want: units.MTU{Bytes: 4092}, delayed: refused(4092),
			ops: "ip link set ib0 mtu 2044", why: link.CodeMTUAdapter},
		{name: "OK connected", mode: ib.ModeConnected, mtu: 2044, want: units.MTU{Max: true}, ops: "ip link set ib0 mtu 65520"},
		{name: "bad more than connected takes", mode: ib.ModeConnected, mtu: 65520, want: units.MTU{Bytes: 70000}, why: link.CodeMTUAdapter},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := &link.Snapshot{Links: []link.Link{{Index: 4, Name: "ib0", Type: link.ARPHRDInfiniBand, Flags: tt.flags, MTU: tt.mtu,
				HWAddr: hw, IPoIB: &link.IPoIB{PKey: 0xffff, Mode: tt.mode}, IBDevice: "mlx5_0", Port: 1}}}
			if tt.opa {
				s.Devices = []link.Device{{Name: "mlx5_0", Protocol: "opa"}}
			}
			rec := &link.Record{}
			if tt.rec != nil {
				rec.Links = []*link.LinkRecord{tt.rec}
			}
			b := link.NewBuilder(s, rec, tt.delayed)
			Plan(b, 4, Want{MTU: some(tt.want)})
			if got := strings.Join(b.Plan.Commands(), "\n"); got != tt.ops {
				t.Errorf("ops %q, want %q", got, tt.ops)
			}
			a := b.Attributes(4)
			if len(a) != 1 || a[0].Why.Code != tt.why || !strings.Contains(a[0].Why.Text, tt.inText) {
				t.Errorf("attribute %+v, want %q", a, tt.why)
			}
		})
	}
}
