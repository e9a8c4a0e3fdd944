package scenario

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"ibnetworkd/internal/kernel/ethtool"
	"ibnetworkd/internal/kernel/rtnl"
	"ibnetworkd/internal/testkit"
	"ibnetworkd/lab"
	"ibnetworkd/link"
)

// The sizes of rings that drivers of cards round, or limit, are set once and are what the
// unit asks for.
func TestRingsOfDrivers(t *testing.T) {
	t.Parallel()
	commands := []string{}
	files := exampleFiles(t)
	drivers := []string{"mlx5_core", "ice", "bnxt_en"}
	for i, name := range drivers {
		commands = append(commands, fmt.Sprintf("type h%d/1 eth", i), fmt.Sprintf("driver h%d %s", i, name))
		files[fmt.Sprintf("%s%d-eth.ibnetwork", unitDir, 10+i)] = "[Match]\nDriver=" + name + "\n[Link]\nRxBufferSize=1100\nTxBufferSize=max\n"
	}
	// Enhanced IPoIB refuses another number of channels once there is a P_Key child.
	commands = append(commands, "driver h3 mlx5_core", "ipoib h3 enhanced")
	files[unitDir+"05-ib.ibnetwork"] = "[Match]\nType=infiniband\nDriver=mlx5_core\nPartitionKey=0xffff\n[Link]\nCombinedChannels=2\n" +
		"[Partition]\nPartitionKey=0x8001\nName=storage\n"
	// The kernel of UML has no ethtool netlink.
	c := lab.Config{Userland: lab.Debian, Machine: lab.QEMU, HCAs: 4, Bins: []string{ibnetworkd}, Commands: commands, Files: files}
	lab.Run(t, c, func(g *lab.G) {
		d := startDaemon(g)
		for i, want := range []struct{ rx, tx string }{{"2048 (rounded by the driver)", "8192"}, {"1120 (rounded by the driver)", "8160"},
			{"1100", "2047"}} {
			g.WaitFor(20*time.Second, func() string {
				for _, s := range d.report().Links {
					if s.IBDevice != fmt.Sprintf("swib%d", i) || s.Kind != "ether" {
						continue
					}
					rx, tx := attr(s, "RxBufferSize"), attr(s, "TxBufferSize")
					if rx.OK() && rx.Actual == want.rx && tx.OK() && tx.Actual == want.tx {
						return ""
					}
					return fmt.Sprintf("%s: %+v %+v, want %+v", drivers[i], rx, tx, want)
				}
				return drivers[i] + ": no link"
			})
		}
		name := ""
		for _, s := range d.report().Links {
			if s.IBDevice == "swib0" && s.Kind == "ether" {
				name = s.Name
			}
		}
		g.Write(unitDir+"10-eth.ibnetwork", strings.Replace(g.Read(examples+"61-rings.ibnetwork"), "ens1f0np0", name, 1))
		d.wait(name, "as in the example", 20*time.Second, func(s link.Status) bool {
			rx := attr(s, "RxBufferSize")
			return rx.OK() && rx.Actual == "8192" && attr(s, "RxCoalesceSec").Wanted == "20us"
		})
		d.wait("storage", "made", 20*time.Second, func(s link.Status) bool { return s.Name != "" })
		for _, s := range d.report().Links {
			if a := attr(s, "CombinedChannels"); s.IBDevice == "swib3" && s.Parent == "" && (!a.OK() || a.Actual != "2") {
				g.Errorf("%+v", a)
			}
		}
		g.Sh("ip link delete storage; true")
		d.wait("storage", "made again", 20*time.Second, func(s link.Status) bool { return s.Name != "" })
		quiet(g, d)
	})
}

// Rings, channels and coalescing of a link are set, set again after another program,
// and left alone once it goes on; what a driver does not have is reported.
func TestEthtool(t *testing.T) {
	t.Parallel()
	const unit = "[Match]\nName=sim0\n[Link]\nRxBufferSize=2048\nTxBufferSize=max\nCombinedChannels=2\nRxCoalesceSec=20us\n" +
		"RxMaxCoalescedFrames=64\nUseAdaptiveTxCoalesce=yes\n"
	lab.Run(t, lab.Config{Userland: lab.Debian, Bins: []string{ibnetworkd}, Files: map[string]string{
		unitDir + "10-sim0.ibnetwork": unit,
		unitDir + "20-ib0.ibnetwork":  "[Match]\nName=ib0\n[Link]\nRxBufferSize=1024\nRxCoalesceSec=16us\n",
		unitDir + "30-va.ibnetwork":   "[Match]\nName=va\n[Link]\nRxChannels=2\nTxChannels=max\nCombinedChannels=2\n",
	}}, func(g *lab.G) {
		g.SM(lab.SM{})
		g.Sh("echo '11 1 4' > /sys/bus/netdevsim/new_device; ip link set $(ls /sys/bus/netdevsim/devices/netdevsim11/net) name sim0")
		g.Sh("ip link add va numrxqueues 4 numtxqueues 4 type veth peer name vb numrxqueues 4 numtxqueues 4; ip link set vb up")
		rt, err := rtnl.Dial()
		testkit.NoError(g, err)
		d := startDaemon(g)
		wait := func(name, key, actual, why string) {
			g.Helper()
			d.wait(name, key+" "+actual+" "+why, 20*time.Second, func(s link.Status) bool {
				a := attr(s, key)
				return a.Actual == actual && strings.Contains(a.Why.Text, why) && a.OK() == (why == "")
			})
		}
		et, err := ethtool.Dial()
		if errors.Is(err, ethtool.ErrNone) { // before Linux 5.7, or configured so
			wait("sim0", "RxBufferSize", "", "this kernel has no ethtool netlink")
			return
		}
		testkit.NoError(g, err)
		index := func(name string) int {
			l, err := rt.LinkByName(name, false)
			testkit.NoError(g, err)
			return l.Index
		}
		get := func(name string, group ethtool.Group) ethtool.Values {
			v, err := et.Get(index(name), group)
			testkit.NoError(g, err)
			return v
		}
		is := func(name string, group ethtool.Group, want ethtool.Values) {
			g.Helper()
			g.WaitFor(10*time.Second, func() string {
				v := get(name, group)
				for attr, n := range want {
					if v[attr] != n {
						return fmt.Sprintf("%s of %s are %v, want %v", group, name, v, want)
					}
				}
				return ""
			})
		}
		rings := ethtool.Values{unix.ETHTOOL_A_RINGS_RX: 2048, unix.ETHTOOL_A_RINGS_TX: 4096}
		is("sim0", ethtool.Rings, rings)
		is("sim0", ethtool.Channels, ethtool.Values{unix.ETHTOOL_A_CHANNELS_COMBINED_COUNT: 2})
		is("sim0", ethtool.Coalesce, ethtool.Values{unix.ETHTOOL_A_COALESCE_RX_USECS: 20, unix.ETHTOOL_A_COALESCE_RX_MAX_FRAMES: 64,
			unix.ETHTOOL_A_COALESCE_USE_ADAPTIVE_TX: 1})
		is("va", ethtool.Channels, ethtool.Values{unix.ETHTOOL_A_CHANNELS_RX_COUNT: 2, unix.ETHTOOL_A_CHANNELS_TX_COUNT: 4})
		wait("sim0", "RxBufferSize", "2048", "")
		wait("sim0", "RxCoalesceSec", "20us", "")
		wait("sim0", "UseAdaptiveTxCoalesce", "yes", "")
		wait("va", "CombinedChannels", "", "the driver of va does not support CombinedChannels=")
		wait("ib0", "RxBufferSize", "", "the driver of ib0 does not support RxBufferSize=")
		g.Logf("ib0: %v", get("ib0", ethtool.Coalesce))
		quiet(g, d)

		g.Write(unitDir+"10-sim0.ibnetwork", strings.Replace(unit, "max", "9000", 1))
		wait("sim0", "TxBufferSize", "4096 (the most that the driver takes)", "")
		g.Write(unitDir+"10-sim0.ibnetwork", unit)
		for range 5 {
			is("sim0", ethtool.Rings, rings)
			testkit.NoError(g, et.Do(et.Set(index("sim0"), ethtool.Rings, ethtool.Values{unix.ETHTOOL_A_RINGS_RX: 512})))
		}
		wait("sim0", "RxBufferSize", "512", "another program changes")
	})
}
