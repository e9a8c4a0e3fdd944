package daemon

import (
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"ibnetworkd/internal/kernel/kerneltest"
	"ibnetworkd/internal/kernel/procsys"
	"ibnetworkd/internal/kernel/rtnl"
	"ibnetworkd/internal/testkit"
	"ibnetworkd/link"
)

// Neighbours are read for the unit that a link gets by what is read in the same cycle.
func TestNeighborsOfTheNextUnit(t *testing.T) {
	f := &files{m: map[string]string{"10.ibnetwork": "[Match]\nName=ib0\n",
		"20.ibnetwork": "[Match]\nName=storage0\n[Neighbor]\nAddress=10.0.0.2\n" +
			"LinkLayerAddress=80:00:00:48:fe:80:00:00:00:00:00:00:00:02:c9:03:00:0a:bc:de\n"}}
	d := New(Config{System: system(t, 1), Store: &notes{}, Load: f.load})
	d.rec = &link.Record{}
	testkit.NoError(t, d.cycle(t.Context(), everything))
	s := *d.snap
	l := s.Links[0]
	if d.needs(everything).Neighbors(&s, &l) {
		t.Error("ib0 is read for a unit without neighbours")
	}
	l.Name = "storage0"
	s.Links = []link.Link{l}
	for _, sc := range []Scope{everything, {RDMA: true}, {Links: map[int]bool{l.Index: true}}, {Force: map[int]bool{l.Index: true}}} {
		if !d.needs(sc).Neighbors(&s, &l) {
			t.Errorf("%s: storage0 is read for the unit of ib0", sc.String())
		}
	}
}

// A link that was not to be read before is read at once, then with the link only.
func TestObserveNeighbors(t *testing.T) {
	kerneltest.Isolate(t)
	for _, c := range []string{"link add va type veth peer name vb", "link set va up",
		"neigh add 10.0.0.2 lladdr 02:00:00:00:00:02 dev va nud permanent"} {
		if out, err := exec.Command("ip", strings.Fields(c)...).CombinedOutput(); err != nil {
			t.Skipf("ip %s: %s %v", c, out, err)
		}
	}
	rt, err := rtnl.Dial()
	testkit.NoError(t, err)
	defer func() { _ = rt.Close() }()
	o, va := &Observer{rt: rt}, kerneltest.InterfaceIndex("va")
	s := &link.Snapshot{Links: []link.Link{{Index: kerneltest.InterfaceIndex("vb"), Name: "vb"}, {Index: va, Name: "va"}}}
	want := func(*link.Snapshot, *link.Link) bool { return true }
	observe := func(sc Scope) {
		t.Helper()
		testkit.NoError(t, o.observeNeighbors(s, sc, want))
	}
	observe(Scope{RDMA: true})
	n := s.Links[1].Neighbors
	if len(n) != 1 || n[0].IP != netip.MustParseAddr("10.0.0.2") || s.Links[0].Neighbors == nil || len(s.Links[0].Neighbors) != 0 {
		t.Fatalf("%+v", s.Links)
	}
	if out, err := exec.Command("ip", "neigh", "del", "10.0.0.2", "dev", "va").CombinedOutput(); err != nil {
		t.Fatalf("%s %v", out, err)
	}
	if observe(Scope{RDMA: true}); len(s.Links[1].Neighbors) != 1 {
		t.Error("a link that is not in the scope is read again")
	}
	if observe(Scope{Links: map[int]bool{va: true}}); len(s.Links[1].Neighbors) != 0 {
		t.Errorf("%+v", s.Links[1].Neighbors)
	}
}

// What the kernel checks when a token goes is read of a link that no unit governs any more.
func TestSysctlsOfTheRecord(t *testing.T) {
	d := New(Config{System: system(t, 1), Store: &notes{}, Load: (&files{}).load})
	d.rec = &link.Record{}
	testkit.NoError(t, d.cycle(t.Context(), everything))
	l := &d.snap.Links[0]
	if d.needs(everything).Sysctls != nil {
		t.Error("settings are read for nothing")
	}
	d.rec.Links = []*link.LinkRecord{{Ifindex: l.Index, Name: l.Name, Tokens: []netip.Addr{netip.MustParseAddr("::5")}}}
	if read := d.needs(everything).Sysctls; read == nil || !slices.Contains(read(d.snap, l), "ipv6/accept_ra") {
		t.Error("accept_ra is not read")
	}
}

// A setting that another program has changed is read at a reload, one of a link that no event named is not else.
func TestSysctlsAtReload(t *testing.T) {
	o := &Observer{proc: procsys.New(t.TempDir())}
	file, err := o.proc.Path(procsys.IPv4, "ib0", "arp_ignore")
	if err == nil {
		err = os.MkdirAll(filepath.Dir(file), 0o700)
	}
	if err == nil {
		err = os.WriteFile(file, []byte("0\n"), 0o600)
	}
	testkit.NoError(t, err)
	const key = "ipv4/arp_ignore"
	s := &link.Snapshot{Links: []link.Link{{Index: 5, Name: "ib0", Sysctl: map[string]string{key: "1"}}}}
	w := Needs{Sysctls: func(*link.Snapshot, *link.Link) []string { return []string{key} }}
	for _, x := range []struct {
		sc   Scope
		want string
	}{{Scope{Addrs: true, Due: true}, "1"}, {Scope{Reload: true}, "0"}} {
		before := s.Links
		o.observeSysctls(s, x.sc, w)
		if got := s.Links[0].Sysctl[key]; got != x.want {
			t.Errorf("%s: %s is %s, want %s", x.sc.String(), key, got, x.want)
		}
		if before[0].Sysctl[key] != "1" {
			t.Error("the snapshot before was changed")
		}
	}
}
