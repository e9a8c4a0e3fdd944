package ipoib

import (
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"ibnetworkd/ib"
	"ibnetworkd/internal/testkit"
	"ibnetworkd/link"
	"ibnetworkd/units"
)

const (
	cmAddr = "80:00:00:48:fe:80:00:00:00:00:00:00:00:02:c9:03:00:00:00:01"
	udAddr = "00:00:00:48:fe:80:00:00:00:00:00:00:00:02:c9:03:00:00:00:01" // without connected mode
)

// host is a system with one port and its interface ib0, which is down.
func host(t testing.TB, addr string) *link.Snapshot {
	t.Helper()
	hw := ib.MustParseHWAddr(addr)
	return &link.Snapshot{
		Schema: link.SnapshotSchema,
		Devices: []link.Device{{Name: "mlx5_0", NodeGUID: 1, Ports: []link.Port{{
			Num: 1, Layer: ib.LinkLayerInfiniBand, State: ib.PortActive, Phys: ib.PhysLinkUp,
			GUID: 0x0002c90300000001, LID: 3, SMLID: 1, PKeys: []ib.PKey{0xffff},
		}}}},
		Links: []link.Link{{
			Index: 4, Name: "ib0", Type: link.ARPHRDInfiniBand, Kind: "ipoib", Flags: link.FlagMulti, MTU: 4092, MaxMTU: 65520,
			HWAddr: hw, IPoIB: &link.IPoIB{PKey: 0xffff}, IBDevice: "mlx5_0", Port: 1,
		}},
	}
}

// unit reads the text of a unit for the link ib0.
func unit(t testing.TB, text string) *units.Unit {
	t.Helper()
	fs := fstest.MapFS{"10.ibnetwork": {Data: []byte("[Match]\nName=ib0\n" + text)}}
	set := units.Load([]units.Root{{Path: "/etc/systemd/network", FS: fs}})
	if len(set.Units) != 1 {
		t.Fatalf("%v", set.Problems)
	}
	return set.Units[0]
}

// moved is a record of a child that was moved to another network namespace.
func moved(name string, parent int) *link.Record {
	return &link.Record{Moved: []link.Moved{{Made: link.Made{Kind: "ipoib", Name: name, On: parent}}}}
}

// TestChildren checks the P_Key children that are refused: none is made on another
// partition or twice, and another program's is not changed.
func TestChildren(t *testing.T) {
	child := func(s *link.Snapshot, index int, name string, key ib.PKey) {
		c := s.Links[0]
		c.Index, c.Name, c.Parent, c.IPoIB = index, name, 4, &link.IPoIB{PKey: key}
		s.Links = append(s.Links, c)
	}
	p := func(name string) func(*link.Snapshot) { return func(s *link.Snapshot) { child(s, 9, name, 0x8001) } }
	made := func(name string, key ib.PKey) *link.Record {
		return &link.Record{Links: []*link.LinkRecord{
			{Ifindex: 4, Name: "ib0", Activated: true}, {Ifindex: 9, Name: name, Child: true, Parent: 4, PKey: key, Activated: true},
		}}
	}
	away := func(index int) *link.Record {
		return &link.Record{Moved: []link.Moved{{Made: link.Made{Kind: "ipoib", Name: "ib0.8001", On: 4}, Namespace: "/run/netns/job",
			PKey: 0x8001, NSID: 3, Index: index}}}
	}
	job := func(s *link.Snapshot) {
		s.Namespaces = []link.Namespace{{Path: "/run/netns/job", ID: 3}}
		s.Moved = []link.MovedLink{{Made: link.Made{Kind: "ipoib", Name: "ib0.8001", On: 4}, NSID: 3, Index: 21, Up: true}}
	}
	lost := func(at link.Lost) func(*link.Snapshot) {
		return func(s *link.Snapshot) {
			job(s)
			s.Namespaces = append(s.Namespaces, link.Namespace{Path: "/run/netns/two", ID: -1})
			s.Moved = []link.MovedLink{{Made: s.Moved[0].Made, NSID: 3, Lost: &at}}
		}
	}
	const one = "[Partition]\nPartitionKey=0x8001\n"
	for _, tt := range []struct {
		name, unit string
		on         int // index of the parent, 4 if 0
		sys        func(*link.Snapshot)
		rec        *link.Record
		want       string
		code       link.Code
		away       string // namespace and state of the link in another namespace
	}{
		{name: "OK two", unit: one + "[Partition]\nPartitionKey=2\nName=storage\n", want: "" +
			"ip link add link ib0 name ib0.8001 type ipoib pkey 0x8001\nip link add link ib0 name storage type ipoib pkey 0x8002\n"},
		{name: "OK there already", unit: one, sys: p("ib0.8001"), rec: made("ib0.8001", 0x8001)},
		{name: "bad the parent's own key", unit: "[Partition]\nPartitionKey=0x7fff\n", code: link.CodePKeyDuplicate},
		{name: "bad someone else has the key", unit: one, sys: p("theirs"), code: link.CodePKeyForeign},
		{name: "OK someone else has made it under the name asked for", unit: one + "Name=theirs\n", sys: p("theirs")},
		{name: "bad moved to another namespace", unit: one, code: link.CodeMoved, rec: moved("ib0.8001", 4), away: " not checked"},
		{name: "OK one of another parent was moved", unit: one, rec: moved("ib0.8001", 3),
			want: "ip link add link ib0 name ib0.8001 type ipoib pkey 0x8001\n"},
		{name: "OK for another namespace", unit: one + "NetworkNamespace=job\n",
			sys:  func(s *link.Snapshot) { s.Namespaces = []link.Namespace{{Path: "/run/netns/job", ID: -1}} },
			want: "ip link add link ib0 name ib0.8001 type ipoib pkey 0x8001\n"},
		{name: "bad for one that does not exist", unit: one + "NetworkNamespace=job\n", code: link.CodeNoNamespace,
			away: "job absent"},
		{name: "bad for another namespace, not ours", unit: one + "NetworkNamespace=job\n", code: link.CodePKeyForeign,
			sys: func(s *link.Snapshot) {
				s.Namespaces = []link.Namespace{{Path: "/run/netns/job", ID: 3}}
				child(s, 9, "ib0.8001", 0x8001)
			}},
		{name: "OK is there", unit: one + "NetworkNamespace=job\n", rec: away(21), sys: job, away: "job up"},
		{name: "OK is there and not read yet", unit: one + "NetworkNamespace=job\n", rec: away(0), away: "job not checked",
			sys: func(s *link.Snapshot) { job(s); s.Moved = nil }},
		{name: "OK is there and down", unit: one + "NetworkNamespace=job\n", rec: away(21), away: "job down", code: link.CodeLinkDown,
			sys: func(s *link.Snapshot) { job(s); s.Moved[0].Up = false }},
		{name: "OK is there, the parent was renamed", unit: one + "NetworkNamespace=job\n", rec: away(21), away: "job up",
			sys: func(s *link.Snapshot) { job(s); s.Links[0].Name = "ibnew" }},
		{name: "bad is in one that had the name", unit: one + "NetworkNamespace=job\n", rec: away(21), code: link.CodeMoved,
			sys: func(s *link.Snapshot) { job(s); s.Namespaces[0].ID = 4 }, away: "job not checked"},
		{name: "bad did not come back", unit: one + "NetworkNamespace=job\n", rec: away(21), code: link.CodeMoved, away: "job absent"},
		{name: "bad was moved on", unit: one + "NetworkNamespace=job\n", rec: away(21), code: link.CodeMoved, away: "job absent",
			sys: lost(link.Lost{Path: "/run/netns/two", NSID: 5, Index: 30})},
		{name: "bad is in no namespace that can be seen", unit: one + "NetworkNamespace=job\n", rec: away(21), code: link.CodeMoved,
			sys: lost(link.Lost{}), away: "job absent"},
		{name: "bad was moved on, then the namespace was edited", unit: one + "NetworkNamespace=two\n", rec: away(21), code: link.CodeMoved,
			sys: lost(link.Lost{Path: "/run/netns/three", NSID: 5, Index: 30}), away: "job absent"},
		{name: "OK was moved on, then the section went", rec: away(21), sys: lost(link.Lost{Path: "/run/netns/two", NSID: 5, Index: 30})},
		{name: "OK was renamed, then the section went", rec: away(21), sys: func(s *link.Snapshot) { job(s); s.Moved[0].Called = "eth0" },
			want: "ip -n job link delete eth0\n"},
		{name: "OK the namespace was edited", unit: one + "NetworkNamespace=/run/netns/two\n", rec: away(21),
			sys: func(s *link.Snapshot) {
				job(s)
				s.Namespaces = append(s.Namespaces, link.Namespace{Path: "/run/netns/two", ID: -1})
			},
			want: "ip -n job link delete ib0.8001\nip link add link ib0 name ib0.8001 type ipoib pkey 0x8001\n"},
		{name: "OK the section went, from another namespace", rec: away(21), sys: job, want: "ip -n job link delete ib0.8001\n"},
		{name: "bad the section went, and where it is is not known", rec: away(0), sys: job, code: link.CodeMoved},
		{name: "bad the name was edited, and where it is is not known", unit: one + "Name=other\n", rec: away(0), sys: job,
			code: link.CodeMoved, away: "job up"},
		{name: "bad the name is taken", unit: one + "Name=ib0\n", code: link.CodeNameTaken},
		{name: "bad on a child", unit: "[Partition]\nPartitionKey=0x8002\n", on: 9, sys: p("p"), code: link.CodeChildOfChild},
		{name: "bad on Ethernet", unit: one, on: 10, code: link.CodeNotIPoIB,
			sys: func(s *link.Snapshot) { s.Links = append(s.Links, link.Link{Index: 10, Name: "eth0", Type: 1}) }},
		{name: "bad a name that is too long", unit: one, sys: func(s *link.Snapshot) { s.Links[0].Name = "a-long-name" },
			code: link.CodeNameTaken},
		{name: "OK the key was edited", unit: "[Partition]\nPartitionKey=0x8002\nName=p\n", sys: p("p"), rec: made("p", 0x8001),
			want: "ip link delete p\nip link add link ib0 name p type ipoib pkey 0x8002\n"},
		{name: "OK the name was edited", unit: one + "Name=q\n", sys: p("p"), rec: made("p", 0x8001),
			want: "ip link delete p\nip link add link ib0 name q type ipoib pkey 0x8001\n"},
		{name: "OK someone renamed it", unit: one + "Name=p\n", sys: p("other"), rec: made("p", 0x8001)},
		{name: "OK someone renamed the parent", unit: one, sys: p("ibold.8001"), rec: made("ibold.8001", 0x8001)},
		{name: "OK the section went", sys: p("p"), rec: made("p", 0x8001), want: "ip link delete p\n"},
		{name: "OK the section went, not ours", sys: p("p")},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := host(t, cmAddr)
			if tt.sys != nil {
				tt.sys(s)
			}
			if tt.on == 0 {
				tt.on = 4
			}
			u := unit(t, tt.unit)
			b := link.NewBuilder(s, tt.rec, nil)
			DropChildren(b, tt.on, u)
			AddChildren(b, tt.on, u)
			testkit.Diff(t, "plan", tt.want, strings.Join(append(b.Plan.Commands(), ""), "\n"))
			var code link.Code
			for _, x := range b.Plan.Blocked {
				code = x.Reason.Code
			}
			if code != tt.code {
				t.Errorf("blocked %q, want %q: %v", code, tt.code, b.Plan.Blocked)
			}
			away := ""
			for _, a := range b.Attributes(tt.on) {
				if a.Away != (link.Away{}) {
					away = a.Away.Namespace + " " + a.Away.State
				}
				if a.Away.Name != "" && (a.Away.Kind != "ipoib" || a.Away.PKey != "0x8001" && a.Away.Namespace != "") {
					t.Errorf("%+v", a.Away)
				}
			}
			if away != tt.away {
				t.Errorf("in another namespace: %q, want %q", away, tt.away)
			}
		})
	}
}

// The status of a child that another program renamed or moved on has where it is to be and where it is.
func TestChildChangedElsewhere(t *testing.T) {
	const again = "; ibnetctl reconfigure ib0 makes another one"
	for _, c := range []struct {
		name               string
		is                 link.MovedLink
		actual, text, next string
		away               link.Away
	}{
		{"renamed", link.MovedLink{Index: 21, Up: true, MTU: 2044, Called: "eth0"},
			"0x8001 ib0.8001 in network namespace job, where its name is eth0", "", "",
			link.Away{Name: "eth0", Asked: "ib0.8001", Ifindex: 21, MTU: 2044, State: "up"}},
		{"renamed and down", link.MovedLink{Index: 21, Called: "eth0"}, "0x8001 ib0.8001 in network namespace job, where its name is eth0",
			"ib0.8001 is down in network namespace job", "ip -n job link set eth0 up",
			link.Away{Name: "eth0", Asked: "ib0.8001", Ifindex: 21, State: "down"}},
		{"moved on", link.MovedLink{Lost: &link.Lost{Path: "/run/netns/two", NSID: 5, Index: 30}}, "",
			"ib0.8001 is not in network namespace job: another program moved it to network namespace two",
			"ip -n two link set ib0.8001 netns job" + again, link.Away{Name: "ib0.8001", State: "absent"}},
		{"renamed and moved on", link.MovedLink{Lost: &link.Lost{Path: "/run/netns/two", NSID: 5, Index: 30, Name: "eth0"}}, "",
			"ib0.8001 is not in network namespace job: another program moved it to network namespace two",
			"ip -n two link set eth0 netns job" + again, link.Away{Name: "ib0.8001", State: "absent"}},
		{"to one without a name", link.MovedLink{Lost: &link.Lost{NSID: 5, Index: 30}}, "",
			"ib0.8001 is not in network namespace job: another program moved it to one without a name (number 5 of ip netns list-id)",
			"lsns --type=net; nsenter --net=/proc/PID/ns/net ip link show ib0.8001" + again, link.Away{Name: "ib0.8001", State: "absent"}},
		{"not found", link.MovedLink{Lost: &link.Lost{}}, "", "ib0.8001 is no longer in network namespace job: another program deleted it, " +
			"or moved it to a network namespace that ibnetworkd cannot see", "ibnetctl reconfigure ib0 makes another one; to find it: " +
			"lsns --type=net; nsenter --net=/proc/PID/ns/net ip link show type ipoib", link.Away{Name: "ib0.8001", State: "absent"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := host(t, cmAddr)
			made := link.Made{Kind: "ipoib", Name: "ib0.8001", On: 4}
			s.Namespaces = []link.Namespace{{Path: "/run/netns/job", ID: 3}}
			c.is.Made, c.is.NSID = made, 3
			s.Moved = []link.MovedLink{c.is}
			rec := &link.Record{Moved: []link.Moved{{Made: made, Namespace: "/run/netns/job", PKey: 0x8001, NSID: 3, Index: 21}}}
			if before := rec.Clone(); rec.Reconcile(s) || !cmp.Equal(rec.Moved, before.Moved) {
				t.Errorf("the record is %+v", rec.Moved)
			}
			b := link.NewBuilder(s, rec, nil)
			AddChildren(b, 4, unit(t, "[Partition]\nPartitionKey=0x8001\nNetworkNamespace=job\n"))
			if len(b.Plan.Steps) > 0 {
				t.Errorf("it is made again: %s", b.Plan)
			}
			c.away.Kind, c.away.PKey, c.away.Namespace = "ipoib", "0x8001", "job"
			a := b.Attributes(4)[0]
			if a.Actual != c.actual || a.Why.Text != c.text || a.Why.Next != c.next || a.Away != c.away {
				t.Errorf("%+v", a)
			}
			if rec.Return(4, s); (len(rec.Moved) == 0) != (c.is.Index == 0) {
				t.Errorf("after a request: %+v", rec.Moved)
			}
		})
	}
}

// A key that names no partition, and one that is asked for twice, come from no unit
// file; the planner does not rely on it.
func TestBadKeys(t *testing.T) {
	s := host(t, cmAddr)
	if r := keyRefusal(&s.Links[0], 0x8000); r.Code != link.CodePKeyInvalid {
		t.Errorf("%+v", r)
	}
	u := unit(t, "[Partition]\nPartitionKey=1\n")
	u.Partitions = append(u.Partitions, u.Partitions[0])
	b := link.NewBuilder(s, nil, nil)
	if AddChildren(b, 4, u); len(b.Plan.Steps) != 1 || len(b.Plan.Blocked) != 1 || b.Plan.Blocked[0].Reason.Code != link.CodePKeyDuplicate {
		t.Errorf("%s", b.Plan)
	}
}

// The InfiniBand part of a link: GUID, mode, MTU and multicast filter.
func TestPlan(t *testing.T) {
	const max = "[Link]\nMTUBytes=max\n"
	up := func(s *link.Snapshot) { s.Links[0].Flags |= link.FlagUp | link.FlagLowerUp }
	for _, tt := range []struct {
		name, unit, addr string
		sys              func(*link.Snapshot)
		held             map[string]link.Reason
		want             string
	}{
		{name: "OK the wiki page's link", unit: "[Link]\nMTUBytes=65520\n[IPoIB]\nMode=connected\n", want: "" +
			"ip link set ib0 type ipoib mode connected\n" +
			"ip link set ib0 mtu 65520\n"},
		{name: "bad connected mode on an adapter that cannot", unit: "[Link]\nMTUBytes=65520\n[IPoIB]\nMode=connected\n", addr: udAddr, want: "" +
			"# blocked: ib0 does not offer connected mode (no RC flag in its address 00:00:00:48...): enhanced IPoIB, " +
			"or a kernel without CONFIG_INFINIBAND_IPOIB_CM\n" +
			"#   then: ip link set ib0 type ipoib mode connected\n" +
			"#   next: write Mode=auto to accept datagram: its MTU is 4092 at most, where the group of the partition has an MTU of " +
			"4096 (MTUBytes=max)\n" +
			"# blocked: ib0: wanted 65520, datagram mode takes at most 4092; more needs connected mode\n" +
			"#   then: ip link set ib0 mtu 65520\n" +
			"#   next: write MTUBytes=max: the link has no connected mode\n"},
		{name: "OK the same with a driver that can be told", unit: "[IPoIB]\nMode=connected\n", addr: udAddr,
			sys: func(s *link.Snapshot) { s.Host.EnhancedSwitch = true }, want: "" +
				"# blocked: ib0 does not offer connected mode (no RC flag in its address 00:00:00:48...): enhanced IPoIB, " +
				"or a kernel without CONFIG_INFINIBAND_IPOIB_CM\n" +
				"#   then: ip link set ib0 type ipoib mode connected\n" +
				"#   next: write Mode=auto to accept datagram, or load the driver with \"options ib_ipoib ipoib_enhanced=0\" in modprobe.d\n"},
		{name: "bad connected mode where udev names enhanced IPoIB", unit: "[IPoIB]\nMode=connected\n", addr: udAddr,
			sys: func(s *link.Snapshot) { s.Links[0].Driver, s.Links[0].NetDriver = "mlx5_core", "mlx5_core[ib_ipoib]" }, want: "" +
				"# blocked: ib0 does not offer connected mode (no RC flag in its address 00:00:00:48...): the enhanced IPoIB of " +
				"mlx5_core has datagram mode only\n" +
				"#   then: ip link set ib0 type ipoib mode connected\n" +
				"#   next: write Mode=auto to accept datagram: its MTU is 4092 at most, where the group of the partition has an MTU of " +
				"4096 (MTUBytes=max)\n"},
		{name: "OK auto and max are silent there", unit: max + "[IPoIB]\nMode=auto\n", addr: udAddr},
		{name: "OK auto takes connected mode", unit: max + "[IPoIB]\nMode=auto\n", want: "" +
			"ip link set ib0 type ipoib mode connected\n" +
			"ip link set ib0 mtu 65520\n"},
		{name: "OK back to datagram", unit: "[IPoIB]\nMode=datagram\n", sys: func(s *link.Snapshot) { s.Links[0].IPoIB.Mode = ib.ModeConnected },
			want: "ip link set ib0 type ipoib mode datagram\n"},
		{name: "bad more than connected mode takes", unit: "[Link]\nMTUBytes=65521\n[IPoIB]\nMode=connected\n", want: "" +
			"ip link set ib0 type ipoib mode connected\n" +
			"ip link set ib0 mtu 65520\n" +
			"# blocked: ib0: wanted 65521, connected mode takes at most 65520\n" +
			"#   then: ip link set ib0 mtu 65521\n" +
			"#   next: write MTUBytes=max\n"},
		{name: "OK the multicast filter", unit: "[IPoIB]\nIgnoreUserspaceMulticastGroups=yes\n", want: "ip link set ib0 type ipoib umcast 1\n"},
		{name: "OK a new GUID", unit: "[Link]\nGUID=0x0002c90300000099\n",
			want: "ip link set ib0 address 80:00:00:48:fe:80:00:00:00:00:00:00:00:02:c9:03:00:00:00:99\n"},
		{name: "OK a new GUID needs the link down", unit: "[Link]\nGUID=0x0002c90300000099\n", sys: up, want: "" +
			"ip link set ib0 down\n" +
			"ip link set ib0 address 80:00:00:48:fe:80:00:00:00:00:00:00:00:02:c9:03:00:00:00:99\n" +
			"ip link set ib0 up\n"},
		{name: "OK the GUID that it has", unit: "[Link]\nGUID=0x0002c90300000001\n", sys: up},
		{name: "bad a GUID that was refused", unit: "[Link]\nGUID=0x0002c90300000099\n", sys: up,
			held: map[string]link.Reason{"ib0\x00ip link set ib0 address " +
				"80:00:00:48:fe:80:00:00:00:00:00:00:00:02:c9:03:00:00:00:99": {Code: link.CodeRefused, Text: "refused"}},
			want: "# blocked: ib0: refused\n" +
				"#   then: ip link set ib0 address 80:00:00:48:fe:80:00:00:00:00:00:00:00:02:c9:03:00:00:00:99\n"},
		{name: "bad no address to put a GUID in", unit: "[Link]\nGUID=0x0002c90300000099\n",
			sys:  func(s *link.Snapshot) { s.Links[0].HWAddr = ib.HWAddr{} },
			want: "# blocked: ib0 has no 20-byte InfiniBand address\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.addr == "" {
				tt.addr = cmAddr
			}
			s := host(t, tt.addr)
			if tt.sys != nil {
				tt.sys(s)
			}
			b := link.NewBuilder(s, nil, tt.held)
			Plan(b, 4, WantOf(unit(t, tt.unit), nil))
			testkit.Diff(t, "plan", tt.want, b.Plan.String())
		})
	}
}

// What a child's own unit says counts more than the [Partition] that made it.
func TestWantOf(t *testing.T) {
	parent := unit(t, "[Partition]\nPartitionKey=0x8001\nMode=connected\nMTUBytes=max\nIgnoreUserspaceMulticastGroups=yes\n")
	c := &link.Link{IPoIB: &link.IPoIB{PKey: 1}}
	p := PartitionOf(c, parent)
	if p == nil || PartitionOf(c, nil) != nil || PartitionOf(&link.Link{IPoIB: &link.IPoIB{PKey: 2}}, parent) != nil {
		t.Fatalf("partition %+v", p)
	}
	if w := WantOf(nil, p); w.Mode.V != units.ModeConnected || !w.MTU.V.Max || !w.Umcast.V || w.GUID.Set {
		t.Errorf("of the parent: %+v", w)
	}
	own := unit(t, "[Link]\nMTUBytes=2044\nGUID=0x7\n[IPoIB]\nMode=datagram\nIgnoreUserspaceMulticastGroups=no\n")
	if w := WantOf(own, p); w.Mode.V != units.ModeDatagram || w.MTU.V.Bytes != 2044 || w.Umcast.V || w.GUID.V != 7 {
		t.Errorf("of its own: %+v", w)
	}
}
