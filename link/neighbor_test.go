package link

import (
	"net/netip"
	"testing"

	"ibnetworkd/ib"
)

func TestNeighbors(t *testing.T) {
	const hw = "80:00:00:48:fe:80:00:00:00:00:00:00:00:02:c9:03:00:0a:bc:de"
	const one = "[Neighbor]\nAddress=10.0.0.2\nLinkLayerAddress=" + hw + "\n"
	lladdr := ib.MustParseHWAddr(hw)
	other := lladdr
	if err := other.UnmarshalText([]byte("80:00:00:49:fe:80:00:00:00:00:00:00:00:02:c9:03:00:0a:bc:de")); err != nil {
		t.Fatal(err)
	}
	at := func(a ib.HWAddr, made bool) func(*Snapshot, *Record) {
		return func(s *Snapshot, r *Record) {
			n := []Neighbor{{netip.MustParseAddr("10.0.0.2"), a}}
			s.Links[1].Neighbors = n
			if made {
				r.Links = []*LinkRecord{{Ifindex: 4, Name: "ib0", Activated: true, Neighbors: n}}
			}
		}
	}
	testPlans(t, []planCase{
		{name: "OK none there", unit: one, want: "ip neighbour replace 10.0.0.2 lladdr " + hw + " dev ib0 nud permanent\n"},
		{name: "OK both families", unit: one + "[Neighbor]\nAddress=fd00::2\nLinkLayerAddress=" + hw + "\n", want: "" +
			"ip neighbour replace 10.0.0.2 lladdr " + hw + " dev ib0 nud permanent\n" +
			"ip neighbour replace fd00::2 lladdr " + hw + " dev ib0 nud permanent\n"},
		{name: "OK it is as wanted", unit: one, sys: at(lladdr, false)},
		{name: "OK the other host has another queue pair now", unit: one, sys: at(other, true), want: "" +
			"ip neighbour replace 10.0.0.2 lladdr " + hw + " dev ib0 nud permanent\n"},
		{name: "bad one of another program", unit: one, sys: at(other, false), want: "" +
			"# blocked: ib0: a permanent neighbour 10.0.0.2 exists on ib0 already, and was not made by ibnetworkd\n" +
			"#   then: ip neighbour replace 10.0.0.2 lladdr " + hw + " dev ib0 nud permanent\n" +
			"#   next: ip neighbour delete 10.0.0.2 dev ib0\n"},
		{name: "bad an Ethernet address", unit: "[Neighbor]\nAddress=10.0.0.2\nLinkLayerAddress=02:00:00:00:00:02\n", want: "" +
			"# blocked: ib0 is an IPoIB link: the address of neighbour 10.0.0.2 has 6 bytes, not 20\n" +
			"#   then: ip neighbour replace 10.0.0.2 lladdr 02:00:00:00:00:02 dev ib0 nud permanent\n" +
			"#   next: correct LinkLayerAddress= in [Neighbor]; \"ip link show\" prints it on the other host\n"},
		{name: "OK after the link comes up", unit: one, sys: down, want: "ip link set ib0 up\n" +
			"ip neighbour replace 10.0.0.2 lladdr " + hw + " dev ib0 nud permanent\n"},
		{name: "bad the link stays down", unit: "[Link]\nActivationPolicy=manual\n" + one, sys: down, want: "" +
			"# waiting: ib0 is down: a neighbour needs it up\n" +
			"#   then: ip neighbour replace 10.0.0.2 lladdr " + hw + " dev ib0 nud permanent\n" +
			"#   next: ip link set ib0 up\n"},
		{name: "OK the section went", unit: "[Network]\n", sys: at(lladdr, true), want: "ip neighbour delete 10.0.0.2 dev ib0\n"},
		{name: "OK the unit went", sys: at(lladdr, true), want: "ip neighbour delete 10.0.0.2 dev ib0\n"},
		{name: "OK another program's stays", sys: at(lladdr, false)},
	})
}
