package kernel_test

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"ibnetworkd/ib"
	"ibnetworkd/internal/kernel/dcb"
	"ibnetworkd/internal/kernel/devlink"
	"ibnetworkd/internal/kernel/kerneltest"
	"ibnetworkd/internal/kernel/nl"
	"ibnetworkd/internal/kernel/rdmanl"
	"ibnetworkd/internal/kernel/rtnl"
	"ibnetworkd/internal/testkit"
	"ibnetworkd/lab"
)

// TestBytes compares requests with those of iproute2, as the kernel's netlink
// tap sees both.
func TestBytes(t *testing.T) {
	lab.Run(t, lab.Config{Userland: lab.Debian}, func(g *lab.G) {
		runtime.LockOSThread() // the tap sees all of one network namespace
		link := ethernet(g)
		g.Exec("ip", "link", "add", "nlmon0", "type", "nlmon")
		g.Exec("ip", "link", "set", "nlmon0", "up")
		g.Sh("echo '11 1' > /sys/bus/netdevsim/new_device")
		rt := dialRT(g)
		dl, err := devlink.Dial()
		testkit.NoError(g, err)
		dc, err := dcb.Dial()
		testkit.NoError(g, err)
		ib1, eth := waitLink(g, rt, "ib1"), waitLink(g, rt, link)
		mac := ib.MustParseHWAddr("02:00:00:00:00:07")
		state, err := dc.Get(link)
		testkit.NoError(g, err)
		vf := func(c rtnl.VFChange) func() { return func() { _ = rt.Do(rtnl.SetVF(ib1.Index, 0, c)) } }
		pfc := *state.PFC
		pfc.Enabled |= 1 << 3
		ets := *state.ETS
		ets.TSA[0], ets.TxBW[0], ets.PrioTC[3] = dcb.ETS, 100, 3
		buffer := *state.Buffer
		buffer.PrioBuffer[3] = 1
		app := dcb.App{Selector: dcb.DSCP, Priority: 3, Protocol: 26}
		for _, tt := range []struct {
			family  int
			command string
			ours    func()
		}{
			{unix.NETLINK_GENERIC, "devlink port set netdevsim/netdevsim11/0 type eth",
				func() { _ = dl.Do(dl.SetPortType("netdevsim", "netdevsim11", 0, devlink.TypeEth)) }},
			{unix.NETLINK_ROUTE, "dcb app add dev " + link + " dscp-prio 26:3", func() { _ = dc.AddApps(link, app) }},
			{unix.NETLINK_ROUTE, "dcb app del dev " + link + " dscp-prio 26:3", func() { _ = dc.DelApps(link, app) }},
			{unix.NETLINK_ROUTE, "dcb pfc set dev " + link + " prio-pfc 3:on", func() { _ = dc.SetPFC(link, pfc) }},
			{unix.NETLINK_ROUTE, "dcb ets set dev " + link + " tc-tsa 0:ets tc-bw 0:100 prio-tc 3:3", func() { _ = dc.SetETS(link, ets) }},
			{unix.NETLINK_ROUTE, "dcb buffer set dev " + link + " prio-buffer 3:1", func() { _ = dc.SetBuffer(link, buffer) }},
			{unix.NETLINK_ROUTE, "dcb dcbx set dev " + link + " host ieee", func() { _ = dc.SetDCBX(link, dcb.DCBXHost|dcb.DCBXIEEE) }},
			{unix.NETLINK_ROUTE, "ip link set dev ib1 vf 0 node_guid 00:02:c9:03:00:0a:bc:de",
				vf(rtnl.VFChange{NodeGUID: new(ib.GUID(0x0002c903000abcde))})},
			{unix.NETLINK_ROUTE, "ip link set dev ib1 vf 0 port_guid 00:02:c9:03:00:0a:bc:df",
				vf(rtnl.VFChange{PortGUID: new(ib.GUID(0x0002c903000abcdf))})},
			{unix.NETLINK_ROUTE, "ip link set dev ib1 vf 0 state enable", vf(rtnl.VFChange{LinkState: new(rtnl.VFEnable)})},
			{unix.NETLINK_ROUTE, "ip link set dev ib1 vf 0 state disable", vf(rtnl.VFChange{LinkState: new(rtnl.VFDisable)})},
			{unix.NETLINK_ROUTE, "ip link set dev ib1 vf 0 state auto", vf(rtnl.VFChange{LinkState: new(rtnl.VFAuto)})},
			{unix.NETLINK_ROUTE, "ip link set dev ib1 vf 0 trust off", vf(rtnl.VFChange{Trust: new(false)})},
			{unix.NETLINK_ROUTE, "ip link set dev ib1 vf 0 spoofchk on", vf(rtnl.VFChange{SpoofCheck: new(true)})},
			{unix.NETLINK_ROUTE, "ip link set dev " + link + " vf 0 mac 02:00:00:00:00:07",
				func() { _ = rt.Do(rtnl.SetVF(eth.Index, 0, rtnl.VFChange{MAC: mac})) }},
			{unix.NETLINK_ROUTE, "ip link set dev ib1 vf 0 vlan 7", vf(rtnl.VFChange{VLAN: new(uint16(7))})},
			{unix.NETLINK_ROUTE, "ip link set dev ib1 vf 0 vlan 7 qos 3", vf(rtnl.VFChange{VLAN: new(uint16(7)), QoS: 3})},
			{unix.NETLINK_ROUTE, "ip link set dev ib1 vf 0 vlan 7 qos 3 proto 802.1ad",
				vf(rtnl.VFChange{VLAN: new(uint16(7)), QoS: 3, VLANProto: unix.ETH_P_8021AD})},
			{unix.NETLINK_ROUTE, "ip link add link " + link + " name v7 type vlan id 7", func() {
				_ = rt.Do(rtnl.NewVLAN(rtnl.VLANSpec{Parent: eth.Index, Name: "v7", ID: 7}))
			}},
			{unix.NETLINK_ROUTE, "ip link add link " + link + " name v8 type vlan protocol 802.1ad id 8 reorder_hdr off gvrp on " +
				"loose_binding on ingress-qos-map 1:2 egress-qos-map 3:4", func() {
				_ = rt.Do(rtnl.NewVLAN(rtnl.VLANSpec{Parent: eth.Index, Name: "v8", ID: 8, Protocol: unix.ETH_P_8021AD,
					ReorderHeader: new(false), GVRP: new(true), LooseBinding: new(true),
					Ingress: []rtnl.QoSMap{{From: 1, To: 2}}, Egress: []rtnl.QoSMap{{From: 3, To: 4}}}))
			}},
			{unix.NETLINK_ROUTE, "ip link set dev v8 type vlan gvrp off ingress-qos-map 1:0 egress-qos-map 3:0 5:5", func() {
				v8, err := rt.LinkByName("v8", false)
				testkit.NoError(g, err)
				_ = rt.Do(rtnl.SetVLAN(v8.Index, rtnl.VLANSpec{GVRP: new(false), Ingress: []rtnl.QoSMap{{From: 1}},
					Egress: []rtnl.QoSMap{{From: 3}, {From: 5, To: 5}}}))
				v8, err = rt.LinkByName("v8", false)
				if want := (rtnl.VLAN{ID: 8, Protocol: unix.ETH_P_8021AD, Flags: 4, Egress: map[uint32]uint32{5: 5}}); err != nil ||
					!cmp.Equal(*v8.VLAN, want) {
					g.Errorf("v8 is %+v, %v, want %+v", v8.VLAN, err, want)
				}
			}},
			{unix.NETLINK_ROUTE, "ip link add link " + link + " name m8 address 02:00:00:00:00:07 type macvlan mode bridge", func() {
				_ = rt.Do(rtnl.NewVLAN(rtnl.VLANSpec{Parent: eth.Index, Name: "m8", Address: mac, Kind: "macvlan", Mode: new(uint16(4))}))
			}},
			{unix.NETLINK_ROUTE, "ip link set dev m8 type macvlan mode private", func() {
				m8, err := rt.LinkByName("m8", false)
				testkit.NoError(g, err)
				_ = rt.Do(rtnl.SetVLAN(m8.Index, rtnl.VLANSpec{Kind: "macvlan", Mode: new(uint16(1))}))
			}},
			{unix.NETLINK_ROUTE, "ip link add link " + link + " name i8 type ipvlan mode l3s private", func() {
				err := rt.Do(rtnl.NewVLAN(rtnl.VLANSpec{Parent: eth.Index, Name: "i8", Kind: "ipvlan", Mode: new(uint16(2)), Flags: new(uint16(1))}))
				if !errors.Is(err, unix.EBUSY) {
					g.Errorf("an ipvlan beside a macvlan: %v", err)
				}
			}},
			{unix.NETLINK_ROUTE, "dcb pfc set dev " + link + " delay 300", func() { p := pfc; p.Delay = 300; _ = dc.SetPFC(link, p) }},
			{unix.NETLINK_ROUTE, "dcb app add dev " + link + " dscp-prio 26:3 48:6", func() {
				_ = dc.AddApps(link, app, dcb.App{Selector: dcb.DSCP, Priority: 6, Protocol: 48})
			}},
			{unix.NETLINK_ROUTE, "ip link set dev ib1 vf 0 trust on", vf(rtnl.VFChange{Trust: new(true)})},
			{unix.NETLINK_ROUTE, "ip link set dev ib1 vf 0 spoofchk off", vf(rtnl.VFChange{SpoofCheck: new(false)})},
			{unix.NETLINK_ROUTE, "ip link set dev ib1 vf 0 max_tx_rate 100 min_tx_rate 10",
				vf(rtnl.VFChange{MinTxRate: new(10), MaxTxRate: new(100)})},
		} {
			args := strings.Fields(tt.command)
			var out string
			theirs := canonical(tt.family, kerneltest.Requests(g.T, "nlmon0", tt.family, func() { out, _ = g.Try(args[0], args[1:]...) }))
			ours := canonical(tt.family, kerneltest.Requests(g.T, "nlmon0", tt.family, tt.ours))
			// The tools ask before they set; the last request is the change. They
			// leave the port id to the kernel, which fills it into its answers.
			theirs = slices.DeleteFunc(theirs, func(m []byte) bool { return binary.NativeEndian.Uint32(m[12:]) != 0 })
			if len(theirs) == 0 || len(ours) == 0 {
				g.Errorf("%s: %d requests, ours %d\n%s", tt.command, len(theirs), len(ours), out)
				continue
			}
			want := theirs[len(theirs)-1]
			clear(want[8:16])
			same := slices.ContainsFunc(ours, func(m []byte) bool {
				clear(m[8:16])
				return cmp.Equal(m, want)
			})
			if !same {
				g.Errorf("%s:\nsends\n% x\nwe send\n% x\n%s", tt.command, want, ours[len(ours)-1], out)
			}
		}
	})
}

// canonical zeroes what a tool leaves to chance: padding, and the version of a
// generic netlink family, which iproute2 before 6.8 forgot to fill in.
func canonical(family int, ms [][]byte) [][]byte {
	head := map[uint16]int{unix.RTM_SETDCB: 4, unix.RTM_GETDCB: 4, unix.RTM_NEWLINK: 16, unix.RTM_SETLINK: 16, unix.RTM_GETLINK: 16}
	for _, m := range ms {
		if family == unix.NETLINK_GENERIC {
			m[17], m[18], m[19] = 0, 0, 0
			kerneltest.ClearPadding(m, 20)
		} else if n, ok := head[binary.NativeEndian.Uint16(m[4:])]; ok {
			kerneltest.ClearPadding(m, 16+n)
		}
	}
	return ms
}

// rename gives an RDMA device a new name: RDMA_NLDEV_CMD_SET of rdma_netlink.h.
func rename(index uint32, name string) rtnl.Request {
	const nldev, set, attrIndex, attrName = 5, 2, 1, 2
	return nl.NewRequest("rename an RDMA device", nldev<<10|set, 0, nl.Build().Uint32(attrIndex, index).String(attrName, name))
}

// TestUsers counts who has a device open, and their connections.
func TestUsers(t *testing.T) {
	lab.Run(t, lab.Config{Userland: lab.Debian}, func(g *lab.G) {
		g.Sh("ip link add va type veth peer name vb; ip link set vb up; ip link set va up; ip address add 10.8.0.1/24 dev va; rdma link " +
			"add rxe0 type rxe netdev va")
		c, err := rdmanl.Dial()
		testkit.NoError(g, err)
		devs, err := c.Devices()
		testkit.NoError(g, err)
		i := slices.IndexFunc(devs, func(d rdmanl.Device) bool { return d.Name == "rxe0" })
		users := func(some bool) {
			g.Helper()
			g.WaitFor(10*time.Second, func() string {
				u, err := c.Users(devs[i].Index)
				if err != nil || u.Programs > 0 != some || u.Connections > 0 != some {
					return fmt.Sprintf("%+v, %v, want some: %v", u, err, some)
				}
				return ""
			})
		}
		users(false)
		p := g.Start("rping", "-s", "-a", "10.8.0.1")
		users(true)
		p.Kill()
		users(false)
		if _, err := c.Users(4711); err == nil {
			g.Error("a device that is not there has users")
		}
	})
}

// TestRDMABytes does what TestBytes does for a family that the tap does not
// show: strace prints what the tool sends.
func TestRDMABytes(t *testing.T) {
	lab.Run(t, lab.Config{Userland: lab.Debian}, func(g *lab.G) {
		g.Exec("ip", "link", "add", "va", "type", "veth", "peer", "name", "vb")
		rd, err := rdmanl.Dial()
		testkit.NoError(g, err)
		index := func(name string) uint32 {
			devs, err := rd.Devices()
			testkit.NoError(g, err)
			for _, d := range devs {
				if d.Name == name {
					return d.Index
				}
			}
			g.Fatalf("no device %s", name)
			return 0
		}
		for _, tt := range []struct {
			command string
			ours    func() rtnl.Request // asked for before the command runs
		}{
			{"rdma link add rxe0 type rxe netdev va", func() rtnl.Request { return rdmanl.NewLink("rxe0", "rxe", "va") }},
			{"rdma dev set rxe0 name rxe1", func() rtnl.Request { return rename(index("rxe0"), "rxe1") }},
			{"rdma link delete rxe1", func() rtnl.Request { return rdmanl.DelLink(index("rxe1")) }},
		} {
			r := tt.ours()
			if r.Err != nil {
				g.Error(r.Err)
				continue
			}
			h := binary.NativeEndian
			want := h.AppendUint32(nil, uint32(16+len(r.Data)))
			want = h.AppendUint16(want, r.Type)
			want = h.AppendUint16(want, unix.NLM_F_REQUEST|unix.NLM_F_ACK|uint16(r.Flags))
			want = append(append(want, make([]byte, 8)...), r.Data...)
			args := append([]string{"-e", "trace=sendto,sendmsg", "-e", "write=3,4,5"}, strings.Fields(tt.command)...)
			out := g.Exec("strace", args...)
			sent := straceWrites(out)
			if len(sent) == 0 {
				g.Errorf("%s: nothing seen in\n%s", tt.command, out)
				continue
			}
			got := sent[len(sent)-1]
			clear(got[8:16])
			kerneltest.ClearPadding(got, 16)
			if !cmp.Equal(got, want) {
				g.Errorf("%s:\nsends\n% x\nwe send\n% x", tt.command, got, want)
			}
		}
	})
}

// straceWrites reads the hex dumps of strace -e write.
func straceWrites(out string) (ms [][]byte) {
	for line := range strings.Lines(out) {
		f, ok := strings.CutPrefix(line, " | ")
		if !ok || len(f) < 6 {
			continue
		}
		if f[:5] == "00000" {
			ms = append(ms, nil)
		}
		f = f[5:]
		if i := strings.LastIndex(f[:min(len(f), 56)], "  "); len(f) > 54 && i > 0 {
			f = f[:54]
		}
		for _, x := range strings.Fields(f) {
			b, err := hex.DecodeString(x)
			if err != nil || len(b) != 1 {
				break
			}
			ms[len(ms)-1] = append(ms[len(ms)-1], b[0])
		}
	}
	return ms
}
