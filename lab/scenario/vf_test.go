package scenario

import (
	"fmt"
	"os"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"time"

	"ibnetworkd/daemon/bus/api"
	"ibnetworkd/ib"
	"ibnetworkd/internal/kernel/rtnl"
	"ibnetworkd/internal/kernel/sysfs"
	"ibnetworkd/lab"
	"ibnetworkd/link"
	"ibnetworkd/roce"
)

// Virtual functions with GUIDs made from the card's, which a driver restart
// forgets and the daemon sets again.
func TestVirtualFunctions(t *testing.T) {
	t.Parallel()
	withAndWithoutUdev(t, lab.Config{Bins: []string{ibnetworkd, ibnetctl}, Files: map[string]string{
		unitDir + "10-pf.ibnetwork": "[Match]\nName=ib0\n[VirtualFunctions]\nCount=2\nNodeGUID=auto\nPortGUID=auto\nLinkState=enable\n" +
			"[VF]\nVirtualFunction=1\nPortGUID=0x0002c903000abcde\nLinkState=disable\n",
	}}, func(g *lab.G) {
		g.SM(lab.SM{Dev: "swib1", NoWait: true})
		d := startDaemon(g)
		f := sysfs.New("/")
		check := func() {
			g.Helper()
			g.WaitFor(15*time.Second, func() string {
				c, err := rtnl.Dial()
				if err != nil {
					return err.Error()
				}
				defer func() { _ = c.Close() }()
				l, err := c.LinkByName("ib0", true)
				if err != nil {
					return err.Error()
				}
				pf := l.Address.GUID()
				if len(l.VFs) != 2 {
					return fmt.Sprintf("%d virtual functions\n%s", len(l.VFs), tail(d.p.Output(), 10))
				}
				for i, want := range []struct {
					node, port ib.GUID
					state      rtnl.VFLinkState
				}{{roce.NodeGUIDFor(pf, 0), roce.PortGUIDFor(pf, 0), rtnl.VFEnable}, {roce.NodeGUIDFor(pf, 1), 0x0002c903000abcde, rtnl.VFDisable}} {
					v := l.VFs[i]
					if v.NodeGUID == nil || *v.NodeGUID != want.node || v.PortGUID == nil || *v.PortGUID != want.port || v.LinkState == nil ||
						*v.LinkState != want.state {
						return fmt.Sprintf("function %d is %+v, want %+v", i, v, want)
					}
					// What the function says of itself.
					_, fns, err := f.NetDevice("ib0")
					if err != nil || fns == nil || len(fns.VFs) != 2 {
						return fmt.Sprint(fns, err)
					}
					devs, err := f.IBDevices()
					if err != nil {
						return err.Error()
					}
					own := ib.GUID(0)
					for _, x := range devs {
						if x.Bus.Name == fns.VFs[i] {
							own = x.NodeGUID
						}
					}
					if own != want.node {
						return fmt.Sprintf("function %d (%s) says it is %v, want %v", i, fns.VFs[i], own, want.node)
					}
				}
				return ""
			})
		}
		check()
		st := d.wait("ib0", "content with its virtual functions", 10*time.Second,
			func(s link.Status) bool { return attr(s, "VF 1 LinkState").Actual == "disable" })
		for _, name := range []string{"Count", "VF 0 NodeGUID", "VF 1 PortGUID", "VF 1 LinkState"} {
			if a := attr(st, name); !a.OK() || a.Wanted == "" {
				g.Errorf("%s: %+v", name, a)
			}
		}
		// Another program sets one to nothing.
		g.Exec("ip", "link", "set", "dev", "ib0", "vf", "0", "node_guid", "00:00:00:00:00:00:00:01")
		d.p.Signal(syscall.SIGHUP)
		check()
		restartDriver(g, "swib0")
		check()
	})
}

// The virtual functions of an Ethernet port: rates, VLANs, addresses, trust and
// spoof check, as asked, back after a driver restart and after another program's
// change, and as they were where the card refuses or makes another value of it.
func TestVirtualFunctionsOfEthernet(t *testing.T) {
	t.Parallel()
	unit := func(rate string, count int) string {
		return fmt.Sprintf(`[Match]
IBDevice=swib0
Port=1
[Port]
Type=eth
[VirtualFunctions]
Count=%d
Trust=yes
LinkState=enable
[VF]
VirtualFunction=0
MACAddress=02:00:00:00:aa:01
VLANId=100
QualityOfService=3
MinRate=1G
MaxRate=%s
MACSpoofCheck=yes
Trust=no
LinkState=auto
[VF]
VirtualFunction=1
VLANId=7
VLANProtocol=802.1ad
MaxRate=2G
`, count, rate)
	}
	policy, _ := os.ReadFile("../../dist/dbus/org.ibnetwork1.conf") // not there in the guest, where the file is
	lab.Run(t, lab.Config{Userland: lab.Debian, Bins: []string{ibnetworkd, ibnetctl}, Files: map[string]string{
		unitDir + "10-pf.ibnetwork": unit("10G", 2), "/usr/share/dbus-1/system.d/org.ibnetwork1.conf": string(policy),
	}}, func(g *lab.G) {
		g.Sh("mkdir -p /run/dbus && dbus-daemon --system --fork")
		d := startDaemon(g)
		var eth string
		vfs := func() []rtnl.VF {
			c, err := rtnl.Dial()
			if err != nil {
				g.Fatal(err)
			}
			defer func() { _ = c.Close() }()
			l, err := c.LinkByName(eth, true)
			if err != nil {
				return nil
			}
			return l.VFs
		}
		mac := ib.MustParseHWAddr("02:00:00:00:aa:01")
		// right holds what the kernel reports of the functions against the unit.
		right := func(rate, count int) {
			g.Helper()
			yes, no, auto, enable := true, false, rtnl.VFAuto, rtnl.VFEnable
			want := []rtnl.VF{
				{Index: 0, MAC: mac, VLAN: 100, QoS: 3, VLANProto: 0x8100, MinTxRate: 1000, MaxTxRate: rate, Trust: &no, SpoofCheck: &yes,
					LinkState: &auto},
				{Index: 1, VLAN: 7, VLANProto: 0x88a8, MaxTxRate: 2000, Trust: &yes, SpoofCheck: &no, LinkState: &enable},
				{Index: 2, Trust: &yes, SpoofCheck: &no, LinkState: &enable},
			}[:count]
			g.WaitFor(20*time.Second, func() string {
				eth = ""
				for _, s := range d.report().Links {
					if s.IBDevice == "swib0" && s.Port == 1 && s.Kind == "ether" {
						eth = s.Name
					}
				}
				got := vfs()
				for i := range got {
					if !got[i].MAC.IsValid() || got[i].MAC.String() == "00:00:00:00:00:00" {
						got[i].MAC = ib.HWAddr{}
					}
				}
				if !reflect.DeepEqual(got, want) {
					return fmt.Sprintf("%s has\n%+v, want\n%+v\n%s", eth, got, want, tail(d.p.Output(), 15))
				}
				return ""
			})
		}
		right(10000, 2)
		st := d.wait(eth, "content with its virtual functions", 10*time.Second,
			func(s link.Status) bool { return attr(s, "VF 1 MaxRate").Actual == "0-2000" })
		for _, name := range []string{"Count", "VF 0 MACAddress", "VF 0 VLANId", "VF 0 MaxRate", "VF 0 Trust", "VF 0 MACSpoofCheck",
			"VF 0 LinkState", "VF 1 VLANId", "VF 1 Trust"} {
			if a := attr(st, name); !a.OK() || a.Wanted == "" || a.Wanted != a.Actual {
				g.Errorf("%s: %+v", name, a)
			}
		}
		g.WaitFor(10*time.Second, func() string { // it learns that after the file
			if out, err := g.Try("busctl", "get-property", "org.ibnetwork1", api.LinkPath(st.Ifindex), "org.ibnetwork1.Link",
				"Settings"); !strings.Contains(out, `"VF 0 VLANId" "vlan 100 qos 3" "vlan 100 qos 3"`) {
				return fmt.Sprintf("the bus says %v\n%s", err, out)
			}
			return ""
		})
		if out := g.Exec("ibnetctl", "plan"); strings.Contains(out, " vf ") {
			g.Errorf("something is left to plan:\n%s", out)
		}

		// Another program sets things; the daemon corrects them.
		g.Exec("ip", "link", "set", "dev", eth, "vf", "0", "trust", "on")
		g.Exec("ip", "link", "set", "dev", eth, "vf", "1", "vlan", "0")
		g.Exec("ip", "link", "set", "dev", eth, "vf", "0", "max_tx_rate", "5000", "min_tx_rate", "0")
		d.p.Signal(syscall.SIGHUP)
		right(10000, 2)

		// A rate that the card refuses, and one of which it makes another.
		for rate, words := range map[string]string{"40G": "refuses max_tx_rate 40000 min_tx_rate 1000",
			"5M": "did not take max_tx_rate 5 min_tx_rate 0"} {
			text := unit(rate, 2)
			if rate == "5M" {
				text = strings.ReplaceAll(text, "MinRate=1G", "MinRate=0")
			}
			g.Write(unitDir+"10-pf.ibnetwork", text)
			d.p.Signal(syscall.SIGHUP)
			st := d.wait(eth, "told that the card does not take the rate", 15*time.Second,
				func(s link.Status) bool { return strings.Contains(attr(s, "VF 0 MaxRate").Why.Text, words) })
			g.Log(attr(st, "VF 0 MaxRate").Why.Text + "; " + attr(st, "VF 0 MaxRate").Why.Next)
			right(10000, 2)
			if a := attr(d.status(eth), "VF 1 MaxRate"); !a.OK() {
				g.Errorf("the other function is to blame too: %+v", a)
			}
		}

		// Another number: all that is asked of the functions is there on the new
		// ones; a number that there is no room for leaves those that were there,
		// without an end of tries.
		g.Write(unitDir+"10-pf.ibnetwork", unit("10G", 3))
		d.p.Signal(syscall.SIGHUP)
		right(10000, 3)
		g.Ctl("vf h0 room 3")
		g.Write(unitDir+"10-pf.ibnetwork", unit("10G", 5))
		d.p.Signal(syscall.SIGHUP)
		st = d.wait(eth, "told that there is no room", 15*time.Second,
			func(s link.Status) bool { return attr(s, "Count").Why.Code == link.CodeRefused })
		if why := attr(st, "Count").Why; !strings.Contains(why.Text, "did not make 5 virtual functions") ||
			!strings.Contains(why.Text, "the former number 3 is back") {
			g.Errorf("%+v", why)
		}
		right(10000, 3)
		g.Write(unitDir+"10-pf.ibnetwork", unit("10G", 99))
		d.p.Signal(syscall.SIGHUP)
		d.wait(eth, "told how many there can be", 10*time.Second,
			func(s link.Status) bool { return strings.Contains(attr(s, "Count").Why.Text, "at most 8") })
		right(10000, 3)

		// A driver restart takes all of it away.
		g.Write(unitDir+"10-pf.ibnetwork", unit("10G", 2))
		d.p.Signal(syscall.SIGHUP)
		right(10000, 2)
		restartDriver(g, "swib0")
		right(10000, 2)
	})
}

// A virtual function that does not take its GUIDs keeps those it had.
func TestVirtualFunctionRollsBack(t *testing.T) {
	t.Parallel()
	unit := func(guid string) string {
		return "[Match]\nName=ib0\n[VirtualFunctions]\nCount=1\n[VF]\nVirtualFunction=0\nNodeGUID=" + guid + "\nPortGUID=" + guid + "\n"
	}
	const good, refused, ignored = ib.GUID(0x0002c903000abc01), ib.GUID(0x0002c903000abc02), ib.GUID(0x0002c903000abc03)
	lab.Run(t, lab.Config{Userland: lab.Debian, Bins: []string{ibnetworkd, ibnetctl},
		Files: map[string]string{unitDir + "10-pf.ibnetwork": unit(good.String())}}, func(g *lab.G) {
		g.Opensm(lab.SM{Dev: "swib1", NoWait: true})
		g.Ctl("vf h0 refuse %016x", uint64(refused))
		g.Ctl("vf h0 ignore %016x", uint64(ignored))
		d := startDaemon(g)
		f := sysfs.New("/")
		// has says what the physical function and the virtual one tell.
		has := func() (pf ib.GUID, vf ib.GUID, err error) {
			c, err := rtnl.Dial()
			if err != nil {
				return 0, 0, err
			}
			defer func() { _ = c.Close() }()
			l, err := c.LinkByName("ib0", true)
			if err != nil || len(l.VFs) != 1 || l.VFs[0].NodeGUID == nil {
				return 0, 0, fmt.Errorf("functions %+v, %w", l.VFs, err)
			}
			_, fns, err := f.NetDevice("ib0")
			if err != nil || fns == nil || len(fns.VFs) != 1 {
				return 0, 0, fmt.Errorf("%+v, %w", fns, err)
			}
			devs, err := f.IBDevices()
			for _, x := range devs {
				if x.Bus.Name == fns.VFs[0] {
					vf = x.NodeGUID
				}
			}
			return *l.VFs[0].NodeGUID, vf, err
		}
		both := func(want ib.GUID) {
			g.Helper()
			g.WaitFor(15*time.Second, func() string {
				if pf, vf, err := has(); err != nil || pf != want || vf != want {
					return fmt.Sprintf("the card says %v, the function %v, want %v (%v)\n%s", pf, vf, want, err, tail(d.p.Output(), 10))
				}
				return ""
			})
		}
		both(good)
		for _, bad := range []ib.GUID{refused, ignored} {
			g.Write(unitDir+"10-pf.ibnetwork", unit(bad.String()))
			d.p.Signal(syscall.SIGHUP)
			st := d.wait("ib0", "told that the function does not take its GUID", 15*time.Second, func(s link.Status) bool {
				a := attr(s, "VF 0 NodeGUID")
				return a.Wanted == bad.String() && a.Actual == good.String() && a.Why.Code == link.CodeRefused
			})
			why := attr(st, "VF 0 NodeGUID").Why
			g.Logf("%s; %s", why.Text, why.Next)
			if !strings.Contains(why.Text, "is back") || !strings.Contains(why.Text, "did not take node_guid 00:02:c9:03:00:0a:bc:0") {
				g.Errorf("%q does not tell what was done", why.Text)
			}
			both(good)
		}
		g.Write(unitDir+"10-pf.ibnetwork", unit("0x0002c903000abc04"))
		d.p.Signal(syscall.SIGHUP)
		both(0x0002c903000abc04)
	})
}
