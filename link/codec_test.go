package link

import (
	"bytes"
	"encoding/json"
	"net/netip"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"ibnetworkd/ib"
	"ibnetworkd/internal/testkit"
)

func sample(t testing.TB) *Snapshot {
	hw := ib.MustParseHWAddr("80:00:00:48:fe:80:00:00:00:00:00:00:00:02:c9:03:00:ab:cd:01")
	s := &Snapshot{
		Schema: SnapshotSchema,
		Devices: []Device{{Name: "mlx5_0", NodeGUID: 0x0002c90300abcd00, NodeDesc: "node7.site.example mlx5_0", Ports: []Port{{
			Num: 1, Layer: ib.LinkLayerInfiniBand, State: ib.PortActive, Phys: ib.PhysLinkUp, GUID: 0x0002c90300abcd01,
			PKeys: []ib.PKey{0xffff, 0x8001}}}}},
		Links: []Link{
			{Index: 4, Name: "ib0", Type: 32, Kind: "ipoib", HWAddr: hw, MTU: 65520, IPoIB: &IPoIB{PKey: 0xffff, Mode: ib.ModeConnected},
				IBDevice: "mlx5_0", Port: 1,
				Addresses: []Address{{Prefix: netip.MustParsePrefix("172.31.7.9/16"), Valid: Forever, Preferred: Forever},
					{Prefix: netip.MustParsePrefix("fe80::2:c903:ab:cd01/64")}},
				Routes: []Route{{Dst: netip.MustParsePrefix("172.31.0.0/16"), PrefSrc: netip.MustParseAddr("172.31.7.9"), Table: 254},
					{Dst: netip.MustParsePrefix("0.0.0.0/0"), Gateway: netip.MustParseAddr("172.31.0.1"), Table: 254}}},
			{Index: 9, Name: "ib0.8001", Type: 32, Kind: "ipoib", HWAddr: hw, Parent: 4, IPoIB: &IPoIB{PKey: 0x8001}, IBDevice: "mlx5_0", Port: 1,
				Udev: Udev{Initialized: true, Properties: map[string]string{"ID_SERIAL": "secret"}}},
		},
		Rules: []Rule{{Family: 4, Priority: 9, From: netip.MustParsePrefix("172.31.0.0/16"), Table: 7, Type: 1, SuppressPrefix: -1,
			SuppressIfGroup: -1}},
	}
	s.Host.Facts.Hostname = "node7"
	return s
}

func encode(t testing.TB, s *Snapshot) []byte {
	t.Helper()
	b, err := json.Marshal(s)
	testkit.NoError(t, err)
	return b
}

func decode(b []byte) (*Snapshot, error) {
	s := &Snapshot{}
	if err := json.Unmarshal(b, s); err != nil {
		return nil, err
	}
	return s, s.Check()
}

func TestSnapshotRoundTrip(t *testing.T) {
	want := sample(t)
	got, err := decode(encode(t, want))
	testkit.NoError(t, err)
	testkit.Diff(t, "", want, got, cmp.AllowUnexported(ib.HWAddr{}), cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{}),
		cmpopts.EquateEmpty())
}

func TestCheckRefuses(t *testing.T) {
	for name, text := range map[string]string{
		"bad other schema": `{"schema":99}`, "bad not JSON": "x",
		"bad twice the same index":   `{"schema":1,"links":[{"index":1,"hw_addr":""},{"index":1,"hw_addr":""}]}`,
		"bad address without prefix": `{"schema":1,"links":[{"index":1,"hw_addr":"","addresses":[{"prefix":""}]}]}`,
	} {
		if _, err := decode([]byte(text)); err == nil || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func FuzzDecodeSnapshot(f *testing.F) {
	f.Add(encode(f, sample(f)))
	f.Add([]byte(`{"schema":1,"links":[{"index":1,"hw_addr":"","ipoib":{},"routes":[{"dst":"10.0.0.0/8","nexthops":[{}]}]}]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := decode(b)
		if err != nil {
			return
		}
		first := encode(t, s)
		again, err := decode(first)
		if err != nil {
			t.Fatalf("what was written cannot be read: %v", err)
		}
		if second := encode(t, again); !bytes.Equal(first, second) {
			t.Fatal("two ways to write one snapshot")
		}
		for i := range s.Links {
			BuildStatus(StatusInput{Snapshot: s, Link: &s.Links[i]})
			factsOf(s, &s.Links[i])
		}
	})
}

func FuzzDecodeRecord(f *testing.F) {
	r := &Record{Links: []*LinkRecord{{Ifindex: 4, Name: "ib0", Addresses: []Address{{Prefix: netip.MustParsePrefix("10.0.0.1/8")}}}}}
	b, err := r.Encode()
	testkit.NoError(f, err)
	f.Add(b)
	f.Add([]byte(`{"schema":1,"links":[null,{"child":true}]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := DecodeRecord(b)
		if err != nil {
			return
		}
		s := sample(t)
		r.Reconcile(s)
		for i := range s.Links {
			r.Of(&s.Links[i])
		}
	})
}

// Recorded objects that disappear are forgotten: one that another program then makes
// belongs to that program.
func TestReconcileForgets(t *testing.T) {
	p := netip.MustParsePrefix
	there := Route{Dst: p("10.2.0.0/16"), Table: TableMain, Type: RouteUnicast}
	nowhere := Route{Dst: p("10.3.0.0/16"), Table: TableMain, Type: RouteBlackhole}
	rule := func(prio uint32) Rule {
		return Rule{Family: 4, Priority: prio, From: p("10.0.0.0/8"), Table: 7, Type: RuleToTable, SuppressPrefix: -1, SuppressIfGroup: -1}
	}
	s := &Snapshot{Links: []Link{
		{Index: 1, Name: "lo", Routes: []Route{nowhere}},
		{Index: 4, Name: "ib0", Addresses: []Address{{Prefix: p("10.0.0.1/24")}}, Routes: []Route{there}}, {Index: 5, Name: "ib0.7"},
	}, Devices: []Device{{Name: "rxe_ib0"}}, Rules: []Rule{rule(32765)}}
	r := &Record{
		Links: []*LinkRecord{{Ifindex: 4, Name: "ib0", Addresses: []Address{{Prefix: p("10.0.0.1/24")}, {Prefix: p("fd00::1/64")}},
			Routes: []Route{there, nowhere, {Dst: p("10.4.0.0/16"), Table: TableMain, Type: RouteUnicast}}}},
		Rules: []Rule{rule(0), rule(9)},
		Made: []Made{{Kind: "vlan", Name: "ib0.7", On: 4}, {Kind: "vlan", Name: "ib0.8", On: 4}, {Kind: "soft", Name: "rxe_ib0",
			On: 4}, {Kind: "soft", Name: "rxe_1", On: 4}},
	}
	if !r.Reconcile(s) {
		t.Error("nothing has changed")
	}
	want := &Record{
		Links: []*LinkRecord{{Ifindex: 4, Name: "ib0", Addresses: []Address{{Prefix: p("10.0.0.1/24")}}, Routes: []Route{there, nowhere}}},
		Rules: []Rule{rule(0)},
		Made:  []Made{{Kind: "vlan", Name: "ib0.7", On: 4}, {Kind: "soft", Name: "rxe_ib0", On: 4}},
	}
	if !reflect.DeepEqual(r, want) {
		t.Errorf("the record is %+v", r)
	}
	if r.Reconcile(s) {
		t.Error("the second time something has changed")
	}
}

func TestOpText(t *testing.T) {
	on := Target{Link: "ib0", Ifindex: 4}
	p, a := netip.MustParsePrefix, netip.MustParseAddr
	for _, tt := range []struct {
		op   Op
		want string
	}{
		{SetUp{on, true}, "ip link set ib0 up"},
		{SetUmcast{on, true}, "ip link set ib0 type ipoib umcast 1"},
		{SetFlag{on, FlagAllMulti, false}, "ip link set ib0 allmulticast off"},
		{AddAddress{On: on, Address: Address{Prefix: p("10.0.0.1/32"), Peer: p("10.0.0.2/32"), Valid: Forever, Preferred: Forever}},
			"ip address add 10.0.0.1 peer 10.0.0.2/32 dev ib0"},
		{AddAddress{On: on, Address: Address{Prefix: p("fd00::1/64"), Flags: AddrNoDAD | AddrNoPrefixRoute, Valid: Forever}},
			"ip address add fd00::1/64 nodad noprefixroute preferred_lft 0 dev ib0"},
		{AddRoute{On: on, Route: Route{Dst: p("0.0.0.0/0"), Gateway: a("10.0.0.9"), Table: 254, Type: 1, Protocol: 4, Metric: 7,
			OnLink: true}}, "ip route add default via 10.0.0.9 dev ib0 proto static metric 7 onlink"},
		{AddRoute{On: on, Route: Route{Dst: p("10.0.0.0/8"), Gateway: a("fe80::1"), Table: 100, Type: 1}}, "ip route add 10.0.0.0/8 " +
			"via inet6 fe80::1 dev ib0 table 100"},
		{DelRoute{on, Route{Dst: p("10.0.0.0/8"), Type: RouteBlackhole, Table: 254}}, "ip route delete blackhole 10.0.0.0/8"},
		{AddRule{Rule: Rule{Family: 6, Priority: 5, From: p("fd00::/8"), Table: 9, Type: 1, SuppressPrefix: 0, SuppressIfGroup: -1}},
			"ip -6 rule add from fd00::/8 priority 5 table 9 suppress_prefixlength 0"},
		{SetSysctl{on, "ipv6/accept_ra", "0"}, "sysctl -w net.ipv6.conf.ib0.accept_ra=0"},
		{SetSysctl{Target{Link: "ib0.8001"}, "ipv6/accept_ra", "0"}, "sysctl -w net/ipv6/conf/ib0.8001/accept_ra=0"},
		{SetDNS{On: on, Servers: []string{"10.0.0.53"}, Domains: []string{"~."}, Default: Yes}, "resolvectl dns ib0 10.0.0.53 && " +
			"resolvectl domain ib0 ~. && resolvectl default-route ib0 yes"},
		{SetDNS{On: on, Revert: true}, "resolvectl revert ib0"},
		{SetDNS{On: on, RevertFirst: true, Resolve: Resolve{LLMNR: "no", DNSSEC: "yes", NTA: []string{"a.example", "b.example"}}},
			"resolvectl revert ib0 && resolvectl dns ib0 && resolvectl llmnr ib0 no && resolvectl dnssec ib0 yes && resolvectl nta ib0 " +
				"a.example b.example"},
		{SetFlag{on, FlagPromisc, true}, "ip link set ib0 promisc on"},
		{SetFlag{on, FlagNoARP, true}, "ip link set ib0 arp off"},
		{SetGroup{on, 7}, "ip link set ib0 group 7"},
	} {
		if got := tt.op.String(); got != tt.want {
			t.Errorf("%T: %q, want %q", tt.op, got, tt.want)
		}
	}
}
