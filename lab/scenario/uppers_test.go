package scenario

import (
	"os"
	"strings"
	"testing"
	"time"

	"ibnetworkd/lab"
)

// What the kernel lets stand on an IPoIB interface: the table of
// docs/tasks/beside-networkd.md, asked of the kernel.
func TestUppersOfIPoIB(t *testing.T) {
	t.Parallel()
	lab.Run(t, lab.Config{Userland: lab.Debian, HCAs: 2}, func(g *lab.G) {
		g.Wait("two IPoIB interfaces", 20*time.Second, func() bool {
			_, a := os.Stat("/sys/class/net/ib0")
			_, b := os.Stat("/sys/class/net/ib1")
			return a == nil && b == nil
		})
		const bond = "ip link del u0 2>/dev/null; ip link set ib0 down; ip link set ib1 down; "
		for _, x := range []struct {
			name, script string
			want         string // what the last command printed, or a part of it
		}{
			{"macvlan", "ip link add u0 link ib0 type macvlan", "Invalid argument"},
			{"ipvlan", "ip link add u0 link ib0 type ipvlan", "Invalid argument"},
			{"VLAN", "ip link add u0 link ib0 type vlan id 7", "VLANs not supported on device"},
			{"bridge", "ip link add u0 type bridge; ip link set ib0 master u0", "Invalid argument"},
			{"VRF", "ip link add u0 type vrf table 77; ip link set ib0 master u0; ip -o link show ib0", "master u0"},
			{"bond, round robin", bond + "ip link add u0 type bond mode balance-rr; ip link set ib0 master u0", "Only active-backup mode"},
			{"bond, 802.3ad", bond + "ip link add u0 type bond mode 802.3ad; ip link set ib0 master u0", "requires Ethernet devices"},
			{"bond, active-backup", bond + "ip link add u0 type bond mode active-backup miimon 100; ip link set ib0 master u0 &&" +
				" ip link set ib1 master u0 && cat /sys/class/net/u0/type /sys/class/net/u0/bonding/fail_over_mac" +
				" /sys/class/net/u0/bonding/slaves | tr '\\n' ' '", "32 active 1 ib0 ib1"},
		} {
			out := g.Sh("%s", "( "+x.script+" ) 2>&1 || true\n"+
				"ip link set ib0 nomaster; ip link set ib1 nomaster; ip link del u0 2>/dev/null || true")
			g.Logf("%s: %s", x.name, strings.TrimSpace(out))
			if !strings.Contains(out, x.want) {
				g.Errorf("%s on IPoIB: %q, want %q", x.name, out, x.want)
			}
		}
	})
}
