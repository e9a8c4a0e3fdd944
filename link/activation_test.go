package link

import (
	"strings"
	"testing"

	"ibnetworkd/units"
)

// A P_Key child that the kernel took down with its parent was not taken down by hand.
func TestChildDownWithParent(t *testing.T) {
	for name, c := range map[string]struct {
		parent func(s *Snapshot, child *Link)
		text   string
	}{
		"here":      {parent: func(s *Snapshot, _ *Link) { s.Links[1].Flags = 0 }, text: "ib0.8001 is down with its parent ib0"},
		"elsewhere": {parent: func(_ *Snapshot, c *Link) { c.Parent = 99 }, text: "its parent, which is in another"},
		"by hand":   {parent: func(s *Snapshot, _ *Link) { s.Links[1].Flags |= FlagUp }, text: "was brought down by hand"},
	} {
		t.Run(name, func(t *testing.T) {
			s := host(t)
			child := ChildOf(&s.Links[1], "ib0.8001", 0x8001)
			child.Index, child.Flags = 21, 0
			c.parent(s, &child)
			s.Links = append(s.Links, child)
			b := NewBuilder(s, &Record{Links: []*LinkRecord{{Ifindex: 21, Name: child.Name, Child: true, Activated: true}}}, nil)
			PlanActivation(b, 21, units.ActivationUp)
			if a := b.Attributes(21); len(a) != 1 || a[0].Why.Code != CodeLinkDown || !strings.Contains(a[0].Why.Text, c.text) {
				t.Errorf("%+v", a)
			}
		})
	}
}

func TestActivation(t *testing.T) {
	const bound = "[Link]\nActivationPolicy=bound\n[Network]\nBindCarrier=up*\n"
	activated := func(s *Snapshot, r *Record) {
		down(s, r)
		r.Links = []*LinkRecord{{Ifindex: 4, Name: "ib0", Activated: true}}
	}
	testPlans(t, []planCase{
		{name: "OK flags and group", unit: "[Link]\nPromiscuous=yes\nARP=no\nAllMulticast=yes\nMulticast=no\nGroup=7\n", want: "" +
			"ip link set ib0 allmulticast on\n" +
			"ip link set ib0 multicast off\n" +
			"ip link set ib0 promisc on\n" +
			"ip link set ib0 arp off\n" +
			"ip link set ib0 group 7\n"},
		{name: "OK comes up", unit: "[Link]\nActivationPolicy=up\n", sys: down, want: "ip link set ib0 up\n"},
		{name: "bad taken down by hand", unit: "[Link]\nActivationPolicy=up\n", sys: activated},
		{name: "OK always up", unit: "[Link]\nActivationPolicy=always-up\n", sys: activated, want: "ip link set ib0 up\n"},
		{name: "OK taken down once", unit: "[Link]\nActivationPolicy=down\n", want: "ip link set ib0 down\n"},
		{name: "OK brought up by hand since", unit: "[Link]\nActivationPolicy=down\n", sys: func(_ *Snapshot, r *Record) {
			r.Links = []*LinkRecord{{Ifindex: 4, Name: "ib0", Deactivated: true}}
		}},
		{name: "OK always down", unit: "[Link]\nActivationPolicy=always-down\n", want: "ip link set ib0 down\n"},
		{name: "OK manual", unit: "[Link]\nActivationPolicy=manual\n", sys: down},
		{name: "OK follows the carrier of another", unit: bound, sys: func(s *Snapshot, r *Record) {
			down(s, r)
			s.Links = append(s.Links, Link{Index: 90, Name: "up1", Type: 1, Flags: FlagUp},
				Link{Index: 91, Name: "x", AltNames: []string{"up2"}, Type: 1, Flags: FlagUp | FlagLowerUp})
		}, want: "ip link set ib0 up\n"},
		{name: "OK and goes down with it", unit: bound, sys: func(s *Snapshot, _ *Record) {
			s.Links = append(s.Links, Link{Index: 90, Name: "up1", Type: 1, Flags: FlagUp}, Link{Index: 91, Name: "up2", Type: 1,
				Flags: FlagLowerUp})
		}, want: "ip link set ib0 down\n"},
		{name: "bad nothing to follow", unit: bound, sys: down, want: "" +
			"# waiting: ib0: BindCarrier=up* matches no link to follow: ib0 stays down\n" +
			"#   next: compare BindCarrier= with: ip -br link\n"},
		{name: "bad names nothing to follow", unit: "[Link]\nActivationPolicy=bound\n", want: "" +
			"# blocked: ib0: ActivationPolicy=bound names no links to follow: ib0 stays up\n" +
			"#   next: write BindCarrier= in [Network]\n"},
	})
}

// Why a link is down comes first, what waits for it to come up after it.
func TestDownComesFirst(t *testing.T) {
	s, u := host(t), unit(t, "[Network]\nAddress=10.0.0.1/24\nGateway=10.0.0.254\n")
	r := &Record{Links: []*LinkRecord{{Ifindex: 4, Name: "ib0", Activated: true}}}
	down(s, r)
	b := planIB0(s, u, r, nil)
	st := BuildStatus(StatusInput{Snapshot: s, Link: &s.Links[1], Unit: u, Attributes: b.Attributes(4), Blocked: b.Plan.Blocked})
	first := st.Reason()
	if len(st.Reasons) < 2 || !strings.Contains(first.Text, "brought down by hand") || !strings.Contains(first.Next, "ibnetctl up ib0") {
		t.Errorf("%+v", st.Reasons)
	}
}
