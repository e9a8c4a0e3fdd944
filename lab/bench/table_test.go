package bench

import (
	"net/netip"
	"strings"
	"testing"

	"ibnetworkd/internal/testkit"

	"golang.org/x/sys/unix"
)

func TestTable(t *testing.T) {
	var b table
	for _, f := range []struct {
		c contestant
		f cell
	}{
		{networkd, cell{value: 2}},
		{networkManager, cell{value: 0.5, note: "right 1 of 2"}},
		{ifupdown, cell{none: "not right: ib1: mode datagram"}},
		{ours, cell{value: 1}},
		{withOpensm(ours), cell{}},
	} {
		b.add("work", "s", f.c, f.f)
	}
	b.add("a work with a longer name", "", networkd, cell{value: 3})
	b.add("a work with a longer name", "", ours, cell{none: "not right: all"})
	want := `work                      contestant                 figure    ours/it
work, s                   ibnetworkd                      1           
                          systemd-networkd                2       0.50
                          NetworkManager                0.5       2.00  <- ours is behind  (right 1 of 2)
                          ifupdown                        -          -  not right: ib1: mode datagram
                          ibnetworkd on opensm            0          -  <- ours is behind
a work with a longer name ibnetworkd                      -          -  not right: all
                          systemd-networkd                3           
`
	testkit.Diff(t, "", want, b.String())
}

func TestChosen(t *testing.T) {
	for names, want := range map[string]string{
		"":                         "ibnetworkd",
		"networkd":                 "systemd-networkd ibnetworkd",
		"ifupdown, NetworkManager": "NetworkManager ifupdown ibnetworkd",
		"systemd-networkd opensm":  "systemd-networkd ibnetworkd",
		"netplan":                  "",
	} {
		got, err := chosen(names)
		var s []string
		for _, c := range got {
			s = append(s, c.name)
		}
		if strings.Join(s, " ") != want || (err != nil) != (want == "") {
			t.Errorf("-against=%q: %v, %v", names, s, err)
		}
	}
}

// Every contestant gets the whole wanted configuration of a link.
func TestFiles(t *testing.T) {
	specs := fabric(1, 1, 1, true)
	specs[0].mtu = 65520
	for _, c := range all {
		text := ""
		for _, f := range c.files(specs, true) {
			text += f
		}
		for _, w := range []string{"ib0.8001", "65520", "connected", specs[0].addr.String(), specs[1].addr.String()} {
			if !strings.Contains(text, w) {
				t.Errorf("%s is not told %s:\n%s", c, w, text)
			}
		}
		// Decimal in NetworkManager's keyfiles.
		if !strings.Contains(text, "0x8001") && !strings.Contains(text, "p-key=32769") {
			t.Errorf("%s is not told the P_Key:\n%s", c, text)
		}
	}
}

func TestLacks(t *testing.T) {
	a := netip.MustParsePrefix("10.0.0.1/24")
	w := wish{name: "ib0", mtu: 65520, mode: 1, addr: a}
	n := &nic{name: "ib0", mtu: 2044, mode: -1}
	for _, step := range []struct {
		do   func()
		want string
	}{
		{func() {}, "down, mode unknown, MTU 2044, no address"},
		{func() { n.flags, n.mode = unix.IFF_UP, 0 }, "no carrier, mode datagram, MTU 2044, no address"},
		{func() { n.flags |= lowerUp; n.addrs = map[netip.Prefix]bool{a: true} }, "mode datagram, MTU 2044"},
		{func() { n.mode, n.mtu = 1, 65520 }, ""},
	} {
		step.do()
		if got := n.lacks(w); got != step.want || n.fulfils(w) != (step.want == "") {
			t.Errorf("%q and fulfilled %v, want %q", got, n.fulfils(w), step.want)
		}
	}
}

// A process that ends takes nothing off what the others have done.
func TestUsageSince(t *testing.T) {
	old := usage{ctxt: 350, byPID: map[string]int{"1": 50, "2": 300}}
	now := usage{ctxt: 61, byPID: map[string]int{"1": 57, "3": 4}}
	if d := now.since(old); d.ctxt != 11 {
		t.Errorf("%d context switches, want 11", d.ctxt)
	}
}
