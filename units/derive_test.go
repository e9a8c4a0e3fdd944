package units

import (
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"

	"ibnetworkd/ib"
)

func origin(name string, addrs ...string) Origin {
	o := Origin{Names: strings.Fields(name)}
	for _, a := range addrs {
		o.IPv4 = append(o.IPv4, netip.MustParsePrefix(a))
	}
	return o
}

func TestDerive(t *testing.T) {
	node := Origins{Hostname: "rack3-node017.cluster7.example", Link: "ib2", Others: []Origin{
		origin("eno1 enp1s0", "192.168.5.17/16"), origin("eno2"), origin("br-1", "10.0.1.2/22"),
		origin("bond0", "10.1.2.3/24", "10.1.2.200/32"), origin("two", "10.1.2.3/24", "10.9.2.3/24"),
	}}
	for _, c := range []struct{ template, want string }{
		{"10.3.{eno1.3}.{eno1.4}/16", "10.3.5.17/16"},
		{"10.3.{enp1s0.3}.{eno[12].4}/16", "10.3.5.17/16"},
		{"10.3.0.0+{eno1}/16", "10.3.5.17/16"},
		{"10.3.0.0+{br-1}/16", "10.3.1.2/16"},
		{"10.3.0.{br-1.4-1}/16", "10.3.0.1/16"},
		{"10.3.0.{bond0.4}/24", "10.3.0.3/24"},
		{"10.3.0.{host}/24", "10.3.0.17/24"},
		{"10.3.{host:1}.{host:2}/16", "10.3.3.17/16"},
		{"10.{link+3}.0.{host+100}/16", "10.5.0.117/16"},
		{"10.3.0.0+{host}/16", "10.3.0.17/16"},
		{"fd00:{link}::{host}/64", "fd00:2::17/64"},
		{"{host}::1/64", "17::1/64"},
		{"fd00:3::+{host}/64", "fd00:3::11/64"},
		{"10.3.0.{two.4}/24", `two has 2 IPv4 addresses (10.1.2.3/24 and 10.9.2.3/24): which one to derive from is not known`},
		{"10.3.0.{eno2.4}/24", "eno2 has no IPv4 address yet to derive the address from"},
		{"10.3.0.{eth9.4}/24", "there is no link eth9 to derive the address from"},
		{"10.3.0.{host:3}/24", `the host name "rack3-node017" has 2 numbers, not 3`},
		{"10.3.0.{host+250}/24", "{host+250} is 267, which does not fit (0 to 255)"},
		{"10.3.0.{host-18}/24", "{host-18} is -1, which does not fit (0 to 255)"},
		{"10.3.0.250+{host}/24", "10.3.0.250 and 17 are outside of the network 10.3.0.0/24"},
		{"255.255.255.250+{host}/8", "255.255.255.250 and 17 are outside of the network 255.0.0.0/8"},
		{"10.3.0.{host-17}/24", "the address would be 10.3.0.0/24, the address of the network itself"},
		{"10.3.0.{host+238}/24", "the address would be 10.3.0.255/24, the network's broadcast address"},
		{"{host+207}.0.0.1/24", "the address would be 224.0.0.1/24, a multicast address"},
	} {
		tm, err := parseTemplate(c.template)
		if err != nil {
			t.Errorf("%s: %v", c.template, err)
			continue
		}
		p, missing, _ := tm.Derive(&node)
		got := missing
		if missing == "" {
			got = p.String()
			if !tm.Fits(p) {
				t.Errorf("%s gives %s, which it says it cannot", c.template, p)
			}
		}
		if got != c.want {
			t.Errorf("%s: %s, not %s", c.template, got, c.want)
		}
	}
}

func TestTemplateMistakes(t *testing.T) {
	for _, c := range []struct{ template, want string }{
		{"10.3.0.{host}", "needs a prefix length"},
		{"10.3.0.{host/16", "the braces do not come in pairs"},
		{"10.3.0.}host{/16", "the braces do not come in pairs"},
		{"10.3.0.1{host}/16", "{host} must be an octet of the address"},
		{"10.3.{host}{host}/16", "{host} must be an octet of the address"},
		{"10.3.{host}/16", "it is not an IP address with fields in braces"},
		{"10.3.0.{host}/33", "the prefix length is 1 to 32"},
		{"10.3.0.{host}/0", "the prefix length is 1 to 32"},
		{"10.3.0.{}/16", `"{}" is not host, link`},
		{"10.3.0.{host:0}/16", "write {host:1} for the first number"},
		{"10.3.0.{hostname}/16", "write {host} for the number"},
		{"10.3.0.{eno1}/16", "write {eno1.4} for an octet"},
		{"10.3.0.0+{eno1}+{host}/16", "one field is added to an address"},
		{"ten+{eno1}/16", `"ten" is not an IP address`},
		{"10.3.0.{a b.4}/16", "is not host, link"},
		{"fd00::1{host}/64", "{host} must be a group of the address"},
	} {
		u, problems := VerifyFile("a.ibnetwork", []byte("[Match]\nName=ib0\n[Network]\nAddress="+c.template+"\n"))
		if len(problems) != 1 || !strings.Contains(problems[0].String(), c.want) || len(u.Addresses) > 0 {
			t.Errorf("%s: %v, not %s", c.template, problems, c.want)
		}
	}
	// A bad assignment leaves the good one before it, whichever of the two forms it has.
	for _, pair := range [][2]string{{"10.0.0.{host}/24", "bad"}, {"10.0.0.1/24", "10.{bad}"}, {"10.0.0.{host}/24", "10.{bad}"}} {
		u, problems := VerifyFile("a.ibnetwork", []byte("[Match]\nName=ib0\n[Address]\nAddress="+pair[0]+"\nAddress="+pair[1]+"\n"))
		if len(problems) != 1 || !strings.Contains(problems[0].Kept, "previous value") || !strings.Contains(u.Format(), "Address="+pair[0]+"\n") {
			t.Errorf("%v: %v\n%s", pair, problems, u.Format())
		}
	}
}

const table = `# one line for each node
node001            10.3.0.1/16 fd00:3::1/64
NODE002.example    10.3.0.2/16   ; with its domain
node003/ib1        10.4.0.3/16
node003            10.3.0.3/16
0x0002c903000a1b2c 10.3.0.4/16
0002:c903:000a:1b2d	10.3.0.5/16
`

func TestAddressTable(t *testing.T) {
	tab := ParseAddressTable("/t", table)
	if len(tab.Problems) > 0 {
		t.Fatal(tab.Problems)
	}
	for _, c := range []struct {
		host, link string
		guid       ib.GUID
		want       string
	}{
		{"node001", "ib0", 0, "10.3.0.1/16 fd00:3::1/64"},
		{"Node001.example", "ib0", 0, "10.3.0.1/16 fd00:3::1/64"},
		{"node002", "ib0", 0, "10.3.0.2/16"},
		{"node002.example", "ib0", 0, "10.3.0.2/16"},
		{"node002.elsewhere", "ib0", 7, `has no line for the host "node002.elsewhere" or the GUID 0x0000000000000007`},
		{"node003", "ib0", 0, "10.3.0.3/16"},
		{"node003", "ib1", 0x0002c903000a1b2c, "10.4.0.3/16"},
		{"node003", "ib0", 0x0002c903000a1b2c, "10.3.0.4/16"},
		{"x", "ib0", 0x0002c903000a1b2d, "10.3.0.5/16"},
		{"node1", "ib0", 0, `has no line for the host "node1"`},
	} {
		list, missing, _ := tab.Of(&Origins{Hostname: c.host, Link: c.link, GUID: c.guid})
		got := missing
		if missing == "" {
			var w []string
			for _, p := range list {
				w = append(w, p.V.String())
			}
			got = strings.Join(w, " ")
		}
		if got != c.want {
			t.Errorf("%s %s %s: %s, not %s", c.host, c.link, c.guid, got, c.want)
		}
	}
}

func TestAddressTableMistakes(t *testing.T) {
	tab := ParseAddressTable("/t", `node1 10.0.0.1/24
node2 10.0.0.1/24
 node1 10.0.0.9/24
node3
node4 10.0.0.300/24 10.0.0.4/24
10.0.0.5/24 node5
0xzz 10.0.0.6/24
node7 10.0.0.7
no*e 10.0.0.8/24
node9/a:b 10.0.0.9/24
0x0 10.0.0.9/24
`)
	var got []string
	for _, p := range tab.Problems {
		got = append(got, p.String())
	}
	want := []string{
		`/t:2:7: warning: 10.0.0.1 is that of node1, line 1; the address is not used here`,
		`/t:3:2: warning: node1 has a line already, line 1; the line is not used`,
		`/t:4:1: warning: node3 has no address: write ADDRESS/LENGTH behind it; the line is not used`,
		`/t:5:7: warning: "10.0.0.300" is not an IP address; the address is not used`,
		`/t:6:1: warning: "10.0.0.5/24" is an address, but a line begins with a host name or a GUID; the line is not used`,
		`/t:7:1: warning: GUID "0xzz" has a character that is not a hexadecimal digit; the line is not used`,
		`/t:8:7: warning: "10.0.0.7" has no prefix length; it is read as 10.0.0.7/32`,
		`/t:9:1: warning: "no*e" is not a host name, HOST/LINK or GUID; the line is not used`,
		`/t:10:1: warning: "a:b" is not an interface name: character ':' is not allowed; the line is not used`,
		`/t:11:1: warning: GUID "0x0" is not that of a port; the line is not used`,
	}
	for i := range max(len(got), len(want)) {
		if i >= len(got) || i >= len(want) || got[i] != want[i] {
			t.Errorf("problem %d of %d:\n%q", i+1, len(want), got[min(i, len(got)-1)])
		}
	}
	if list, _, _ := tab.Of(&Origins{Hostname: "node4"}); len(list) != 1 ||
		list[0].V.String() != "10.0.0.4/24" || list[0].Pos.String() != "/t:5:21" {
		t.Errorf("%v", list)
	}
	if _, missing, _ := tab.Of(&Origins{Hostname: "node2"}); missing != "line 2 has no address that can be used" {
		t.Error(missing)
	}
}

// A table that cannot be read, or has a mistake, takes no address away.
func TestTableInForce(t *testing.T) {
	u, problems := VerifyFile("a.ibnetwork", []byte("[Match]\nName=ib0\n[Network]\nAddressTable=/t\n"))
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	load := func(prev *Set, text string, err error) *Set {
		return (&Set{Units: []*Unit{u}}).WithTables(prev, func(string) ([]byte, error) { return []byte(text), err })
	}
	was := netip.MustParsePrefix("10.0.0.1/24")
	host := func(s *Set) (string, bool) {
		out, not := u.AddressesOn(&Origins{Hostname: "n1", Tables: s.Tables})
		if len(out) == 1 {
			return out[0].Address.V.String(), false
		}
		return "", not[0].Keeps(was)
	}
	good := load(nil, "n1 10.0.0.1/24\n", nil)
	for _, c := range []struct {
		name string
		set  *Set
		want string
		keep bool
	}{
		{"good", good, "10.0.0.1/24", false},
		{"unreadable", load(good, "", fmt.Errorf("input/output error")), "10.0.0.1/24", false},
		{"unreadable at the start", load(nil, "", fmt.Errorf("input/output error")), "", true},
		{"typo", load(good, "n1 10.0.0.1x/24\n", nil), "", true},
		{"typo elsewhere", load(good, "n2 x\n", nil), "", true},
		{"removed", load(good, "n2 10.0.0.2/24\n", nil), "", false},
		{"changed", load(good, "n1 10.0.0.5/24\n", nil), "10.0.0.5/24", false},
	} {
		got, keep := host(c.set)
		if got != c.want || keep != c.keep {
			t.Errorf("%s: %q %v", c.name, got, keep)
		}
	}
	if same := load(good, "n1 10.0.0.1/24\n", nil); !Diff(good, same).Empty() {
		t.Error("a table that is the same is a change")
	}
	if d := Diff(good, load(good, "n1 10.0.0.5/24\n", nil)); !slices.Equal(d.Changed, []string{"a.ibnetwork"}) {
		t.Errorf("%+v", d)
	}
	lost := load(good, "", fmt.Errorf("input/output error"))
	if p := lost.Problems[0].String(); p != "a.ibnetwork:4:14: warning: AddressTable=/t cannot be read: input/output error; "+
		"the last good version stays in force" || !lost.Unread {
		t.Error(p)
	}
	if d := Diff(lost, load(lost, "", fmt.Errorf("input/output error"))); !d.Empty() {
		t.Errorf("the same error again is a change: %+v", d)
	}
	if again := load(lost, "n1 10.0.0.1/24\n", nil); len(again.Problems) > 0 || again.Unread {
		t.Error(again.Problems)
	}
}

// FuzzAddressTable parses any bytes as a table: each problem has a position, an address
// has one owner, and the key of each line is found.
func FuzzAddressTable(f *testing.F) {
	f.Add(table)
	f.Add("node1 10.0.0.1/24\nnode1 10.0.0.1/24\r\n0x1 ::1/64 # x\n;\n\x00/\xff 1\n")
	f.Fuzz(func(t *testing.T, text string) {
		tab := ParseAddressTable("/t", text)
		lines := strings.Count(text, "\n") + 1
		for _, p := range tab.Problems {
			if p.Message == "" || p.Pos.File != "/t" || p.Pos.Line > lines || strings.ContainsAny(p.String(), "\n\x00") {
				t.Fatalf("%+v", p)
			}
		}
		if len(tab.Problems) > maxTableProblems+1 || len(tab.lines) > lines {
			t.Fatalf("%d problems, %d lines of %d", len(tab.Problems), len(tab.lines), lines)
		}
		held := map[netip.Addr]bool{}
		for _, l := range tab.lines {
			for _, a := range l.addrs {
				if held[a.V.Addr()] || !a.V.IsValid() || a.V.Addr().IsMulticast() {
					t.Fatalf("%s", a.V)
				}
				held[a.V.Addr()] = true
			}
			o := Origins{}
			if g, err := ib.ParseGUID(l.key); err == nil && strings.HasPrefix(l.key, "0x") {
				o.GUID = g
			} else {
				o.Hostname, o.Link, _ = strings.Cut(l.key, "/")
			}
			if got, _, _ := tab.Of(&o); len(l.addrs) > 0 && !reflect.DeepEqual(got, l.addrs) {
				t.Fatalf("%s: %v, not %v", l.key, got, l.addrs)
			}
		}
		if again := ParseAddressTable("/t", text); !reflect.DeepEqual(again, tab) {
			t.Fatal("the second time it is another")
		}
	})
}

// FuzzDerive derives any template on any host: what comes out is an address of the
// template's form, or there is a reason.
func FuzzDerive(f *testing.F) {
	for _, s := range []string{"10.3.{eno1.3}.{eno1.4}/16", "10.3.0.0+{host}/16", "fd00:{link}::{host:2+7}/64", "10.0.0.0+{e*}/8"} {
		f.Add(s, "node17", "ib0", []byte{192, 168, 5, 17, 16})
	}
	f.Fuzz(func(t *testing.T, template, host, link string, addr []byte) {
		tm, err := parseTemplate(template)
		if err != nil {
			if strings.ContainsAny(err.Error(), "\n\x00") {
				t.Fatalf("%q", err)
			}
			return
		}
		o := Origins{Hostname: host, Link: link}
		for len(addr) >= 5 {
			p := netip.PrefixFrom(netip.AddrFrom4([4]byte(addr)), int(addr[4])%33)
			o.Others = append(o.Others, Origin{Names: []string{"eno1"}, IPv4: []netip.Prefix{p}})
			addr = addr[5:]
		}
		p, missing, next := tm.Derive(&o)
		switch {
		case missing != "":
			if strings.ContainsAny(missing+next, "\n\x00") || p.IsValid() {
				t.Fatalf("%q %q %v", missing, next, p)
			}
		case !p.IsValid() || p.Bits() != tm.bits || p.Addr().Is6() != tm.is6 || unusable(p) != "" || !tm.Fits(p):
			t.Fatalf("%s on %+v gives %s", template, o, p)
		}
		again, err := parseTemplate(tm.String())
		if err != nil || !reflect.DeepEqual(again, tm) {
			t.Fatalf("%v", err)
		}
	})
}
