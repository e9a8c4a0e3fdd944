package dhcpclient

import (
	"bytes"
	"fmt"
	"log/slog"
	"net/netip"
	"testing"

	"ibnetworkd/daemon"
	"ibnetworkd/ib"
	"ibnetworkd/link"
	"ibnetworkd/units"
)

// viewOf is what the loop has observed of links with units by name.
func viewOf(t *testing.T, texts map[string]string, links ...link.Link) daemon.View {
	t.Helper()
	v := daemon.View{Snapshot: &link.Snapshot{Links: links}, Governing: link.Governing{Links: map[int]link.Governed{}}}
	for _, l := range links {
		if text := texts[l.Name]; text != "" {
			u, problems := units.VerifyFile("10-"+l.Name+".ibnetwork", []byte("[Match]\nName="+l.Name+"\n"+text))
			if u == nil || len(problems) > 0 {
				t.Fatal(problems)
			}
			v.Governing.Links[l.Index] = link.Governed{Unit: u}
		}
	}
	return v
}

// ipoibAddr is the hardware address of the n-th port.
func ipoibAddr(n byte) ib.HWAddr {
	b := make([]byte, 20)
	b[3], b[4], b[5], b[19] = n, 0xfe, 0x80, n
	a, _ := ib.HWAddrFrom(b)
	return a
}

// bondOf is an IPoIB bond with ib0 and ib1 of which one is active.
func bondOf(active byte, addrs ...link.Address) []link.Link {
	const up = link.FlagUp | link.FlagLowerUp
	l := []link.Link{{Index: 1, Name: "ib0", Master: 9}, {Index: 2, Name: "ib1", Master: 9},
		{Index: 9, Name: "ipbond", Kind: "bond", Bond: &link.Bond{}, Flags: up, Addresses: addrs}}
	for i := range l {
		l[i].Type, l[i].HWAddr = link.ARPHRDInfiniBand, ipoibAddr(byte(i+1))
	}
	l[2].HWAddr = ipoibAddr(active)
	return l
}

// The lease of a bond is kept when another slave becomes active, and after a restart beside: servers know the bond by
// one identifier, whatever it is made of.
func TestBondFailover(t *testing.T) {
	four := &link.Lease{Address: netip.MustParsePrefix("10.4.0.100/24"), Server: netip.MustParseAddr("10.4.0.250"), Lifetime: link.Forever}
	six := &link.Lease{Address: netip.MustParsePrefix("fd00::100/128"), Server: netip.MustParseAddr("fe80::1"), ServerID: "0003",
		Lifetime: link.Forever}
	addrs := []link.Address{{Prefix: four.Address}, {Prefix: six.Address}, {Prefix: netip.MustParsePrefix("fe80::7/64")}}
	for _, text := range []string{"", "[DHCPv4]\nClientIdentifier=duid\n", "[DHCPv4]\nClientIdentifier=duid-only\n",
		"[DHCPv4]\nClientIdentifier=mac\n", "[DHCPv4]\nClientIdentifier=flexboot\n", "[DHCPv6]\nDUIDType=link-layer\n"} {
		for _, machine := range []string{"", "0123456789abcdef0123456789abcdef"} {
			texts := map[string]string{"ipbond": "[Network]\nDHCP=yes\n" + text, "ib0": "[Bond]\nName=ipbond\n"}
			view := func(active byte) daemon.View {
				v := viewOf(t, texts, bondOf(active, addrs...)...)
				v.Snapshot.Host.Facts.MachineID = machine
				return v
			}
			dir := t.TempDir()
			begin := func() *Clients { return New(slog.New(slog.DiscardHandler), dir, "/nonexistent", func(map[int]bool) {}) }
			c := begin()
			c.Update(view(1))
			for k, w := range c.want {
				lease := four
				if k.six {
					lease = six
				}
				if err := c.store(k.six).save((&client{wanted: w, key: k}).save(lease)); err != nil {
					t.Fatal(err)
				}
			}
			c = begin()
			ids := map[key][]byte{}
			check := func(what string) {
				t.Helper()
				c.reconcile()
				for _, k := range []key{{9, false}, {9, true}} {
					name := fmt.Sprintf("%q, machine %q, %s, IPv6 %t", text, machine, what, k.six)
					x := c.clients[k]
					if x == nil || x.m.Lease() == nil || x.m.View().Lease == nil {
						t.Fatalf("%s: the lease is lost: %+v", name, x)
					}
					if l := c.store(k.six).load()["ipbond"]; !l.Lease.Address.IsValid() {
						t.Errorf("%s: the file is gone", name)
					}
					if ids[k] == nil {
						ids[k] = x.id
					}
					if !bytes.Equal(ids[k], x.id) {
						t.Errorf("%s: identifier %x, was %x", name, x.id, ids[k])
					}
				}
			}
			c.Update(view(1))
			check("at first")
			c.Update(view(2))
			check("ib1 active")
			// The slave that the identifier is of leaves: as long as the bond has its lease, it stays.
			v := view(2)
			v.Snapshot.Links = v.Snapshot.Links[1:]
			c.Update(v)
			check("without ib0")
			c = begin()
			c.Update(v)
			check("after a restart")
		}
	}
}

// The identity of a bond is of the primary slave, or of the first by name among those that its units ask for.
func TestIdentity(t *testing.T) {
	guid := func(n byte) ib.HWAddr { a := ipoibAddr(n); return port(&link.Link{HWAddr: a}) }
	primary := bondOf(1)
	primary[2].Bond.Primary = 2
	alone := bondOf(2)
	alone[0].Master = 0
	mac := func(s string) ib.HWAddr { a, _ := ib.ParseHWAddr(s); return a }
	vlan := []link.Link{
		{Index: 1, Name: "eth0", Type: 1, Master: 9, HWAddr: mac("02:00:00:00:00:09"), PermAddr: mac("02:00:00:00:00:01")},
		{Index: 9, Name: "bond0", Kind: "bond", Type: 1, Bond: &link.Bond{}, HWAddr: mac("02:00:00:00:00:09")},
		{Index: 10, Name: "bond0.5", Kind: "vlan", Type: 1, Parent: 9, HWAddr: mac("02:00:00:00:00:09")}}
	veth := []link.Link{{Index: 1, Name: "va", Kind: "veth", Type: 1, Parent: 2, HWAddr: mac("02:00:00:00:00:0a")},
		{Index: 2, Name: "vb", Kind: "veth", Type: 1, Parent: 1, HWAddr: mac("02:00:00:00:00:0b")}}
	dhcp := map[string]string{"ib0": "[Network]\nDHCP=ipv4\n"}
	for _, tt := range []struct {
		what  string
		links []link.Link
		units map[string]string
		of    int
		kept  ib.HWAddr
		want  identity
	}{
		{"the first", bondOf(2), nil, 2, ib.HWAddr{}, identity{"ipbond", guid(1), true}},
		{"the one of before", bondOf(1), nil, 2, guid(2), identity{"ipbond", guid(2), true}},
		{"the primary one", primary, nil, 2, ib.HWAddr{}, identity{"ipbond", guid(2), true}},
		{"one that is still to join", alone, map[string]string{"ib0": "[Bond]\nName=ipbond\n"}, 2, ib.HWAddr{},
			identity{"ipbond", guid(1), true}},
		{"the primary one of a unit", bondOf(1), map[string]string{"ib1": "[Bond]\nName=ipbond\nPrimary=ib1\n"}, 2, ib.HWAddr{},
			identity{"ipbond", guid(2), true}},
		{"one in the bond", alone, nil, 2, ib.HWAddr{}, identity{"ipbond", guid(2), true}},
		{"one that has left for a lease of its own", alone, dhcp, 2, guid(1), identity{"ipbond", guid(2), true}},
		{"one that has left for another bond", alone, map[string]string{"ib0": "[Bond]\nName=other\n"}, 2, guid(1),
			identity{"ipbond", guid(2), true}},
		{"one that is away", alone, nil, 2, guid(1), identity{"ipbond", guid(1), true}},
		{"no slave", bondOf(1)[2:], nil, 0, ib.HWAddr{}, identity{"ipbond", ipoibAddr(1), false}},
		{"no bond", bondOf(1), nil, 1, guid(1), identity{"", ipoibAddr(2), false}},
		{"an end of a veth", veth, nil, 0, ib.HWAddr{}, identity{"", mac("02:00:00:00:00:0a"), false}},
		{"a VLAN on a bond", vlan, nil, 2, ib.HWAddr{}, identity{"bond0.5", mac("02:00:00:00:00:01"), true}},
	} {
		v := viewOf(t, tt.units, tt.links...)
		if got := identify(v, &v.Snapshot.Links[tt.of], tt.kept); got != tt.want {
			t.Errorf("%s: %+v, want %+v", tt.what, got, tt.want)
		}
	}
}
