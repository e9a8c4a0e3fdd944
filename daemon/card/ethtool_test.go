package card

import (
	"context"
	"errors"
	"maps"
	"os/exec"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"ibnetworkd/internal/kernel/ethtool"
	"ibnetworkd/internal/kernel/kerneltest"
	"ibnetworkd/internal/kernel/modules"
	"ibnetworkd/internal/kernel/sysfs"
	"ibnetworkd/internal/testkit"
	"ibnetworkd/link"
	"ibnetworkd/roce"
	"ibnetworkd/units"
)

// Every setting has the attribute of its name in ethtool_netlink.h.
func TestEthtoolAttributes(t *testing.T) {
	want := map[string][2]uint16{
		"RxBufferSize":                        {unix.ETHTOOL_A_RINGS_RX, unix.ETHTOOL_A_RINGS_RX_MAX},
		"RxMiniBufferSize":                    {unix.ETHTOOL_A_RINGS_RX_MINI, unix.ETHTOOL_A_RINGS_RX_MINI_MAX},
		"RxJumboBufferSize":                   {unix.ETHTOOL_A_RINGS_RX_JUMBO, unix.ETHTOOL_A_RINGS_RX_JUMBO_MAX},
		"TxBufferSize":                        {unix.ETHTOOL_A_RINGS_TX, unix.ETHTOOL_A_RINGS_TX_MAX},
		"RxChannels":                          {unix.ETHTOOL_A_CHANNELS_RX_COUNT, unix.ETHTOOL_A_CHANNELS_RX_MAX},
		"TxChannels":                          {unix.ETHTOOL_A_CHANNELS_TX_COUNT, unix.ETHTOOL_A_CHANNELS_TX_MAX},
		"OtherChannels":                       {unix.ETHTOOL_A_CHANNELS_OTHER_COUNT, unix.ETHTOOL_A_CHANNELS_OTHER_MAX},
		"CombinedChannels":                    {unix.ETHTOOL_A_CHANNELS_COMBINED_COUNT, unix.ETHTOOL_A_CHANNELS_COMBINED_MAX},
		"RxCoalesceSec":                       {unix.ETHTOOL_A_COALESCE_RX_USECS},
		"RxMaxCoalescedFrames":                {unix.ETHTOOL_A_COALESCE_RX_MAX_FRAMES},
		"RxCoalesceIrqSec":                    {unix.ETHTOOL_A_COALESCE_RX_USECS_IRQ},
		"RxMaxCoalescedIrqFrames":             {unix.ETHTOOL_A_COALESCE_RX_MAX_FRAMES_IRQ},
		"TxCoalesceSec":                       {unix.ETHTOOL_A_COALESCE_TX_USECS},
		"TxMaxCoalescedFrames":                {unix.ETHTOOL_A_COALESCE_TX_MAX_FRAMES},
		"TxCoalesceIrqSec":                    {unix.ETHTOOL_A_COALESCE_TX_USECS_IRQ},
		"TxMaxCoalescedIrqFrames":             {unix.ETHTOOL_A_COALESCE_TX_MAX_FRAMES_IRQ},
		"StatisticsBlockCoalesceSec":          {unix.ETHTOOL_A_COALESCE_STATS_BLOCK_USECS},
		"UseAdaptiveRxCoalesce":               {unix.ETHTOOL_A_COALESCE_USE_ADAPTIVE_RX},
		"UseAdaptiveTxCoalesce":               {unix.ETHTOOL_A_COALESCE_USE_ADAPTIVE_TX},
		"CoalescePacketRateLow":               {unix.ETHTOOL_A_COALESCE_PKT_RATE_LOW},
		"RxCoalesceLowSec":                    {unix.ETHTOOL_A_COALESCE_RX_USECS_LOW},
		"RxMaxCoalescedLowFrames":             {unix.ETHTOOL_A_COALESCE_RX_MAX_FRAMES_LOW},
		"TxCoalesceLowSec":                    {unix.ETHTOOL_A_COALESCE_TX_USECS_LOW},
		"TxMaxCoalescedLowFrames":             {unix.ETHTOOL_A_COALESCE_TX_MAX_FRAMES_LOW},
		"CoalescePacketRateHigh":              {unix.ETHTOOL_A_COALESCE_PKT_RATE_HIGH},
		"RxCoalesceHighSec":                   {unix.ETHTOOL_A_COALESCE_RX_USECS_HIGH},
		"RxMaxCoalescedHighFrames":            {unix.ETHTOOL_A_COALESCE_RX_MAX_FRAMES_HIGH},
		"TxCoalesceHighSec":                   {unix.ETHTOOL_A_COALESCE_TX_USECS_HIGH},
		"TxMaxCoalescedHighFrames":            {unix.ETHTOOL_A_COALESCE_TX_MAX_FRAMES_HIGH},
		"CoalescePacketRateSampleIntervalSec": {unix.ETHTOOL_A_COALESCE_RATE_SAMPLE_INTERVAL},
	}
	got := map[string][2]uint16{}
	for p := range units.EthtoolParams {
		value, limit := attribute(p)
		got[p.Key()] = [2]uint16{value, limit}
	}
	if !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// On this machine's kernel: what is set is read back, and what is refused has a reason.
func TestEthtoolLive(t *testing.T) {
	kerneltest.Isolate(t)
	add := exec.Command("ip", "link", "add", "va", "numrxqueues", "4", "numtxqueues", "4", "type", "veth")
	if out, err := add.CombinedOutput(); err != nil {
		t.Skipf("no veth: %s %v", out, err)
	}
	if _, err := ethtool.Dial(); errors.Is(err, ethtool.ErrNone) {
		t.Skip(err)
	}
	const rx, combined = units.EthtoolParam(4), units.EthtoolParam(7)
	on := link.Target{Link: "va", Ifindex: kerneltest.InterfaceIndex("va")}
	u := &units.Unit{Link: units.Link{Ethtool: []units.Value[units.EthtoolSetting]{units.Some(units.EthtoolSetting{Param: rx, N: 2})}}}
	set := func(p units.EthtoolParam, n uint32) roce.SetEthtool {
		return roce.SetEthtool{On: on, Group: p.Group(), Settings: []units.EthtoolSetting{{Param: p, N: n}}}
	}
	o := &Observer{queues: map[int]roce.Answers{}}
	read := func() map[units.EthtoolParam]roce.Ethtool {
		var x roce.Link
		o.ethtool(on.Ifindex, u, false, &x)
		return x.Ethtool
	}
	e := newExecutor(sysfs.New("/"), modules.Loader{})
	defer e.rest()
	if have := read(); have[rx].N != 4 || have[rx].Max != 4 || have[rx].Asked != nil {
		t.Errorf("before: %+v", have)
	}
	op := set(rx, 2)
	testkit.NoError(t, e.apply(context.Background(), op))
	o.requested(op)
	have := read()
	if x := have[rx]; x.N != 2 || x.Asked != nil {
		t.Errorf("after: %+v", x)
	}
	if _, ok := have[combined]; ok {
		t.Error("veth has combined channels")
	}
	// Another program comes between the request and the reading.
	o.requested(op)
	testkit.NoError(t, e.apply(context.Background(), set(rx, 4)))
	if x := read()[rx]; x.N != 4 || x.Asked != nil {
		t.Errorf("after another program: %+v", x)
	}
	err := e.apply(context.Background(), set(combined, 9))
	if why, _, ok := Explain(set(combined, 9), err, "invalid argument"); !ok || why.Code != link.CodeRefused {
		t.Errorf("%v: %+v", err, why)
	}
}

// Only what a driver does not have is read as absent: what cannot be read now is as it was,
// is read again later, and is no answer to a request.
func TestEthtoolUnread(t *testing.T) {
	const rx, combined = units.EthtoolParam(0), units.EthtoolParam(7)
	only := func(ps ...units.EthtoolParam) *units.Unit {
		u := &units.Unit{}
		for _, p := range ps {
			u.Link.Ethtool = append(u.Link.Ethtool, units.Some(units.EthtoolSetting{Param: p, N: 2000}))
		}
		return u
	}
	timers := 0
	o := &Observer{queues: map[int]roce.Answers{}, again: map[int]time.Time{}, cfg: Config{Later: func(int, time.Duration) { timers++ }}}
	rings := ethtool.Values{unix.ETHTOOL_A_RINGS_RX: 1024, unix.ETHTOOL_A_RINGS_RX_MAX: 8192}
	at1024 := map[units.EthtoolParam]roce.Ethtool{rx: {N: 1024, Max: 8192}}
	type groups = map[units.EthtoolGroup]string
	for _, tt := range []struct {
		name   string
		busy   bool
		v      ethtool.Values
		err    error
		u      *units.Unit
		want   map[units.EthtoolParam]roce.Ethtool
		read   groups
		timers int
	}{
		{name: "busy before anything was read", busy: true, u: only(rx), want: map[units.EthtoolParam]roce.Ethtool{}, read: groups{}},
		{name: "no descriptor left", err: unix.EMFILE, u: only(rx), want: map[units.EthtoolParam]roce.Ethtool{},
			read: groups{units.EthtoolRings: "too many open files"}, timers: 1},
		{name: "read", v: rings, u: only(rx), want: at1024, read: groups{units.EthtoolRings: ""}, timers: 1},
		{name: "detached", err: unix.ENODEV, u: only(rx), want: at1024, read: groups{units.EthtoolRings: "no such device"}, timers: 1},
		{name: "read again", v: rings, u: only(rx), want: at1024, read: groups{units.EthtoolRings: ""}, timers: 1},
		{name: "busy when the unit got another group", busy: true, u: only(rx, combined), want: at1024,
			read: groups{units.EthtoolRings: ""}, timers: 1},
		{name: "the driver has none", err: unix.EOPNOTSUPP, u: only(rx), want: map[units.EthtoolParam]roce.Ethtool{},
			read: groups{units.EthtoolRings: ""}, timers: 1},
	} {
		var x roce.Link
		o.groups(4, tt.u, tt.busy, func(int, ethtool.Group) (ethtool.Values, error) {
			if tt.busy {
				t.Errorf("%s: a busy driver is queried", tt.name)
			}
			return tt.v, tt.err
		}, &x)
		if diff := cmp.Diff(roce.Link{Ethtool: tt.want, EthtoolRead: tt.read}, x); diff != "" || timers != tt.timers {
			t.Errorf("%s: %d timers (-want +got):\n%s", tt.name, timers, diff)
		}
		o.last = &roce.State{Links: map[int]roce.Link{4: x}}
	}
	// What was read before a request is not its answer.
	o.last.Links[4] = roce.Link{Ethtool: at1024, EthtoolRead: groups{units.EthtoolRings: ""}}
	o.requested(roce.SetEthtool{On: link.Target{Ifindex: 4}, Settings: []units.EthtoolSetting{{Param: rx, N: 2000}}})
	for _, tt := range []struct {
		v     ethtool.Values
		err   error
		asked bool
	}{{err: unix.EBUSY}, {v: ethtool.Values{unix.ETHTOOL_A_RINGS_RX: 2048}, asked: true}} {
		var x roce.Link
		o.groups(4, only(rx), false, func(int, ethtool.Group) (ethtool.Values, error) { return tt.v, tt.err }, &x)
		if got := x.Ethtool[rx].Asked; (got != nil) != tt.asked {
			t.Errorf("%+v: the answer to %v", x.Ethtool[rx], got)
		}
	}
}
