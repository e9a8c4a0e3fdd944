package roce

import (
	"slices"
	"testing"

	"ibnetworkd/internal/testkit"
	"ibnetworkd/link"
	"ibnetworkd/units"
)

func TestEthtool(t *testing.T) {
	const none = "the driver of eth0 does not support RxMiniBufferSize= / remove RxMiniBufferSize=; ethtool -g eth0 prints what it has"
	ask := func(p units.EthtoolParam, n, asked uint32) func(*link.Snapshot, *State) {
		return func(_ *link.Snapshot, st *State) {
			x := st.Links[2].Ethtool[p]
			x.N, x.Asked = n, &asked
			st.Links[2].Ethtool[p] = x
		}
	}
	for _, tt := range []struct {
		name, text   string
		change       func(*link.Snapshot, *State)
		ops, blocked []string
		actual       string
	}{
		{name: "OK rings", text: "RxBufferSize=4096\nTxBufferSize=max\n", ops: []string{"ethtool -G eth0 rx 4096 tx 8192"}, actual: "1024"},
		{name: "OK every group", text: "RxBufferSize=4096\nCombinedChannels=max\nRxCoalesceSec=20us\nUseAdaptiveRxCoalesce=no\n",
			ops:    []string{"ethtool -G eth0 rx 4096", "ethtool -L eth0 combined 8", "ethtool -C eth0 rx-usecs 20 adaptive-rx off"},
			actual: "1024"},
		{name: "OK as wanted", text: "RxBufferSize=1024\nCombinedChannels=4\nRxCoalesceSec=8us\nUseAdaptiveRxCoalesce=yes\n", actual: "1024"},
		{name: "OK the driver has rounded it", text: "RxBufferSize=3000\n", change: ask(0, 4096, 3000), actual: "4096 (rounded by the driver)"},
		{name: "OK mlx5 has rounded it before", text: "RxBufferSize=1000\n", actual: "1024 (rounded by the driver)"},
		{name: "OK another driver would not round it", text: "RxBufferSize=1000\n", change: func(s *link.Snapshot, _ *State) {
			s.Links[0].Driver = "bnxt_en"
		}, ops: []string{"ethtool -G eth0 rx 1000"}, actual: "1024"},
		{name: "OK it was rounded from another value", text: "RxBufferSize=3000\n", change: ask(0, 4096, 4000),
			ops: []string{"ethtool -G eth0 rx 3000"}, actual: "4096"},
		{name: "OK more than there is", text: "RxBufferSize=9000\nTxBufferSize=2048\n",
			ops: []string{"ethtool -G eth0 rx 8192 tx 2048"}, actual: "1024"},
		{name: "OK more than there is, of which it has the most", text: "CombinedChannels=99\n", change: func(_ *link.Snapshot, st *State) {
			st.Links[2].Ethtool[7] = Ethtool{N: 8, Max: 8}
		}, actual: "8 (the most that the driver takes)"},
		{name: "bad the driver has none", text: "RxMiniBufferSize=max\n", blocked: []string{none}},
		{name: "bad the kernel has nothing", text: "TxBufferSize=max\n", change: func(_ *link.Snapshot, st *State) { st.Links[2] = Link{} },
			blocked: []string{"this kernel has no ethtool netlink, so that TxBufferSize= of eth0 cannot be set / boot Linux 5.7 or later with " +
				"CONFIG_ETHTOOL_NETLINK, or write TxBufferSize= into a .link file"}},
		{name: "wait the card is busy since before it was read", text: "RxBufferSize=2048\nCombinedChannels=2\n",
			change: func(_ *link.Snapshot, st *State) {
				x := st.Links[2]
				x.Ethtool, x.EthtoolRead = map[units.EthtoolParam]Ethtool{7: {N: 4}}, map[units.EthtoolGroup]string{units.EthtoolChannels: ""}
				st.Links[2] = x
			}, ops: []string{"ethtool -L eth0 combined 2"},
			blocked: []string{`what "ethtool -g eth0" prints is read when the driver has ended its present work`}},
		{name: "wait the device is detached", text: "RxBufferSize=1000\nTxBufferSize=2048\nRxMiniBufferSize=8\nCombinedChannels=2\n",
			change: func(_ *link.Snapshot, st *State) { st.Links[2].EthtoolRead[units.EthtoolRings] = "no such device" },
			ops:    []string{"ethtool -L eth0 combined 2"}, actual: "1024 (rounded by the driver)",
			blocked: []string{`what "ethtool -g eth0" prints could not be read (no such device) / will retry`}},
		{name: "bad another program", text: "RxBufferSize=2048\n", change: func(_ *link.Snapshot, st *State) {
			st.Contested = map[string]int{"eth0\x00ethtool -G": flapLimit}
		}, blocked: []string{"another program changes RxBufferSize= of eth0 back each time; it is left as it is / find it: tuned, " +
			"NetworkManager, ethtool in a boot script; stop it, then: ibnetctl reconfigure eth0"}, actual: "1024"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s, st := system()
			if tt.change != nil {
				tt.change(s, st)
			}
			r := run(s, st, 2, unit(t, "[Link]\n"+tt.text))
			testkit.Diff(t, "", tt.ops, r.ops)
			testkit.Diff(t, "blocked", tt.blocked, r.blocked)
			if i := slices.IndexFunc(r.attrs, func(a link.Attribute) bool { return a.Name != "GID" }); r.attrs[i].Actual != tt.actual {
				t.Errorf("%+v, want %q", r.attrs[i], tt.actual)
			}
		})
	}
}

// A setting that a request for another one resets is requested again; a driver that rounds it
// is believed then.
func TestAnswers(t *testing.T) {
	const tx = units.TxCoalesceSec
	for _, tt := range []struct {
		name  string
		param units.EthtoolParam
		reads []uint32 // one after each request for 20
		ok    []bool
	}{
		{"OK a ring is believed at once", 0, []uint32{32}, []bool{true}},
		{"bad another program's ring", 0, []uint32{64}, []bool{false}},
		{"OK mlx5 resets it once", tx, []uint32{16, 20}, []bool{false, false}},
		{"OK a driver rounds it", tx, []uint32{16, 16}, []bool{false, true}},
		{"OK after another program", tx, []uint32{16, 18, 16, 16}, []bool{false, false, false, true}},
		{"bad another program sets it back", tx, []uint32{8, 8, 8}, []bool{false, false, false}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			as := Answers{}
			for i, n := range tt.reads {
				as.Request(SetEthtool{Group: tt.param.Group(), Settings: []units.EthtoolSetting{{Param: tt.param, N: 20}}})
				as.Read(tt.param, n)
				if x := as.Read(tt.param, n); (x != nil) != tt.ok[i] || x != nil && *x != 20 {
					t.Errorf("request %d, %d is read: %v", i+1, n, x)
				}
			}
			if x := as.Read(tt.param, 17); x != nil {
				t.Errorf("what was set later is the answer to %d", *x)
			}
			as.Request(SetEthtool{Settings: []units.EthtoolSetting{{Param: tt.param, N: 24}}})
			if x := as.Read(tt.param, 16); x != nil && tt.param == tx {
				t.Errorf("the first answer to another value is believed: %d", *x)
			}
		})
	}
}
