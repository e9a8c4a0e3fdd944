package hosts

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"ibnetworkd/units"
)

func set(t testing.TB, table string, files ...string) *units.Set {
	t.Helper()
	m := fstest.MapFS{}
	for i, f := range files {
		m[fmt.Sprintf("%d0.ibnetwork", i+1)] = &fstest.MapFile{Data: []byte(f)}
	}
	s := units.Load([]units.Root{{Path: "/etc/systemd/network", FS: m}})
	s.WithTables(nil, func(string) ([]byte, error) { return []byte(table), nil })
	if len(s.Problems) > 0 {
		t.Fatal(s.Problems)
	}
	return s
}

func plan(t testing.TB, s *units.Set, text string) string {
	t.Helper()
	list, problems := Parse("hosts", text)
	var b strings.Builder
	for _, p := range problems {
		fmt.Fprintln(&b, p)
	}
	rows, collisions := Plan(s, list)
	for _, r := range rows {
		fmt.Fprintf(&b, "%s %s%s %s %v", r.Host, r.Link, r.GUID, strings.TrimPrefix(r.Unit, "/etc/systemd/network/"), r.Addresses)
		b.WriteString(strings.TrimSuffix(" "+r.Why(), " ") + "\n")
	}
	for _, c := range collisions {
		fmt.Fprintf(&b, "%s: %s\n", c.Address, strings.Join(c.Holders, ", "))
	}
	return b.String()
}

func TestPlan(t *testing.T) {
	s := set(t, "node1 10.5.0.1/16\n0x2 10.5.0.2/16\n",
		"[Match]\nName=ib0\nHost=node*\n[Network]\nAddress=10.3.{eno1.3}.{eno1.4}/16\n",
		"[Match]\nName=ib1\n[Network]\nAddressTable=/t\n",
		"[Match]\nHost=head\nType=infiniband\n[Network]\nAddress=10.3.0.1/16\n")
	got := plan(t, s, `# HOST and what is known of it
node1 ib0 ib1 eno1=192.168.5.1/24
node2 ib0 ib1=0x2 eno1=192.168.5.1/16
node3 ib0 ib1   # no source
node1 ib0
no=de
node4 ib0 eno1=x eno1=10.0.0.4/8
head 0x9 ib7
`)
	const want = `hosts:5:1: warning: host "node1" is on line 2 already; it is left out
hosts:6:1: warning: "no=de" is not a host name; it is left out
hosts:7:11: warning: "eno1=x" is not an address with its prefix length, such as eno1=192.168.5.17/24; it is left out
node1 ib0 10.ibnetwork [10.3.5.1/16]
node1 ib1 20.ibnetwork [10.5.0.1/16]
node2 ib0 10.ibnetwork [10.3.5.1/16]
node2 ib10x0000000000000002 20.ibnetwork [10.5.0.2/16]
node3 ib0 10.ibnetwork [] 10.3.{eno1.3}.{eno1.4}/16: there is no link eno1 to derive the address from
node3 ib1 20.ibnetwork [] /t has no line for the host "node3"
node4 ib0 10.ibnetwork [10.3.0.4/16]
head 0x0000000000000009 20.ibnetwork [] /t has no line for the host "head" or the GUID 0x0000000000000009; not known from the list: Name=ib1
head 0x0000000000000009 30.ibnetwork [10.3.0.1/16]
head ib7 30.ibnetwork [10.3.0.1/16] not known from the list: Type=infiniband
192.168.5.1: node1 eno1, node2 eno1
10.3.5.1: node1 ib0, node2 ib0
10.3.0.1: head, head ib7
`
	if got != want {
		t.Errorf("%s", got)
	}
}

// What the list does not tell is reported, not taken as true; the unit that governs is the
// daemon's choice; a bond has the addresses in place of its slaves.
func TestPlanSaysWhatIsNotKnown(t *testing.T) {
	s := set(t, "",
		"[Match]\nHost=vlan*\nPartitionKey=0x8001\nKernelVersion=>=6\n[Network]\nAddress=10.8.0.0+{host}/16\n",
		"[Match]\nHost=0123456789abcdef0123456789abcdef\n[Network]\nAddress=10.9.0.1/16\n",
		"[Match]\nName=ib0 ib1\n[Bond]\nName=bond0\n",
		"[Match]\nKind=bond\nType=infiniband\n[Network]\nAddress=10.3.0.0+{host}/16\n",
		"[Match]\nName=ib3\n[Network]\nDHCP=yes\n",
		"[Match]\nName=ib4\n[Link]\nUnmanaged=yes\n",
		"[Match]\nName=ib5\n[IPoIB]\nMode=connected\n",
		"[Match]\nName=ib6\n[Network]\nAddress=10.3.0.1/16\n")
	got := plan(t, s, "node1 ib0 ib1\nvlan2 ib6\nnode3 ib3 ib4 ib5 ib9\nnode4\n")
	const id = "not known from the list: Host=0123456789abcdef0123456789abcdef"
	const want = `node1 ib0 20.ibnetwork [10.9.0.1/16] ` + id + `
node1 ib0 30.ibnetwork [] slave of bond0; only if 20.ibnetwork does not match
node1 ib1 20.ibnetwork [10.9.0.1/16] ` + id + `
node1 ib1 30.ibnetwork [] slave of bond0; only if 20.ibnetwork does not match
node1 bond0 20.ibnetwork [10.9.0.1/16] ` + id + `
node1 bond0 40.ibnetwork [10.3.0.1/16] not known from the list: Type=infiniband; only if 20.ibnetwork does not match
`
	if !strings.HasPrefix(got, want) {
		t.Errorf("%s", got)
	}
	for _, line := range []string{
		"vlan2 ib6 10.ibnetwork [10.8.0.2/16] not known from the list: PartitionKey=0x8001 KernelVersion=>=6\n",
		"vlan2 ib6 80.ibnetwork [10.3.0.1/16] only if 40.ibnetwork does not match\n",
		"node3 ib3 50.ibnetwork [] DHCP=yes; only if 40.ibnetwork does not match\n",
		"node3 ib4 60.ibnetwork [] Unmanaged=yes; only if 40.ibnetwork does not match\n",
		"node3 ib5 70.ibnetwork [] the unit gives no address; only if 40.ibnetwork does not match\n",
		"node4  10.ibnetwork", "node4  50.ibnetwork [] DHCP=yes",
	} {
		if strings.HasPrefix(line, "node4  10") == strings.Contains(got, line) {
			t.Errorf("%q in\n%s", line, got)
		}
	}
}

// A thousand hosts take a moment, and each gets its own.
func TestThousandHosts(t *testing.T) {
	s := set(t, "",
		"[Match]\nType=infiniband\n[Network]\nAddress=10.3.0.0+{host}/16\nAddress=10.4.0.0+{eno1}/16\n")
	var b strings.Builder
	for i := range 1000 {
		fmt.Fprintf(&b, "node%04d eno1=172.16.%d.%d/12\n", i+1, (i+1)/256, (i+1)%256)
	}
	start := time.Now()
	list, problems := Parse("hosts", b.String())
	rows, collisions := Plan(s, list)
	if len(problems) > 0 || len(collisions) > 0 || len(rows) != 1000 || time.Since(start) > 5*time.Second {
		t.Fatalf("%v %v %d rows in %v", problems, collisions, len(rows), time.Since(start))
	}
	if got := rows[999].Addresses; !slices.Equal(got, []string{"10.3.3.232/16", "10.4.3.232/16"}) {
		t.Error(got)
	}
}

// FuzzParse reads any list: each problem has its place, no host comes twice, and what
// is planned is as long as the list.
func FuzzParse(f *testing.F) {
	s := set(f, "node1 10.5.0.1/16\n", "[Match]\nType=infiniband\n[Network]\nAddress=10.3.0.0+{host}/16\nAddressTable=/t\n")
	f.Add("node1 ib0 0x2 ib1=0x3 eno1=10.0.0.1/8\nnode1\n# x\n\xff=\x00 a=b\n")
	f.Fuzz(func(t *testing.T, text string) {
		list, problems := Parse("hosts", text)
		if len(problems) > maxProblems {
			t.Fatal(len(problems))
		}
		for _, p := range problems {
			if p.Pos.Line < 1 || p.Pos.Line > strings.Count(text, "\n")+1 || p.Pos.Column < 1 || strings.ContainsAny(p.String(), "\n\x00") {
				t.Fatalf("%+v", p)
			}
		}
		seen, n := map[string]bool{}, 0
		for _, h := range list {
			if seen[h.Name] || h.Name == "" || len(h.Targets)+len(h.Others) > maxWords {
				t.Fatalf("%+v", h)
			}
			seen[h.Name] = true
			n += max(len(h.Targets), 1)
		}
		rows, collisions := Plan(s, list)
		if len(rows) != n {
			t.Fatalf("%d rows for %d links", len(rows), n)
		}
		for _, c := range collisions {
			if len(c.Holders) < 2 {
				t.Fatalf("%+v", c)
			}
		}
	})
}
