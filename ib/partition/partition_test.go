package partition

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ibnetworkd/ib"
	"ibnetworkd/internal/testkit"
)

func TestParse(t *testing.T) {
	all := []Member{{Select: All, Membership: Limited}, {Select: Self, Membership: Full}}
	dflt := Partition{Name: "Default", PKey: 0x7fff, Members: all}
	with := func(ps ...Partition) []Partition { return append([]Partition{dflt}, ps...) }
	for _, tt := range []struct {
		name, in string
		want     []Partition
		errs     []string
	}{
		{name: "OK empty", in: "", want: with()},
		{name: "OK default", in: "Default=0x7fff,ipoib:ALL=full;\n", want: []Partition{{Name: "Default", PKey: 0x7fff, IPoIB: true,
			Members: append(slices.Clone(all), Member{Select: All, Membership: Full})}}},
		{name: "OK manual's prefixes and generated key", in: " NewPartition , ipoib : 0x123456=full, 0x3456789034=limi, 0x2134af2306 ;\n",
			want: with(Partition{Name: "NewPartition", PKey: 1, IPoIB: true, Members: []Member{
				{GUID: 0x123456, Membership: Full}, {GUID: 0x3456789034}, {GUID: 0x2134af2306}}})},
		{name: "OK split over definitions and lines", in: "ShareIO = 0x80 , defmember=full : 0x1,\n 0x2\n , 0x3=both;\nShareIO = 0x8080 " +
			": 17=limited ; # end\n",
			want: with(Partition{Name: "ShareIO", PKey: 0x80, Members: []Member{{GUID: 1, Membership: Full}, {GUID: 2, Membership: Full},
				{GUID: 3, Membership: Both}, {GUID: 17}}})},
		{name: "OK number as name", in: "0x8002:ALL_SWITCHES;", want: with(Partition{PKey: 2, Members: []Member{{Select: AllSwitches}}})},
		{name: "OK two definitions on a line, none ended by a semicolon at the end", in: "a=1:SELF;b=2:NONE,ALL_CAS=full,ALL_ROUTERS", want: with(
			Partition{Name: "a", PKey: 1, Members: []Member{{Select: Self}}},
			Partition{Name: "b", PKey: 2, Members: []Member{{Select: AllCAs, Membership: Full}, {Select: AllRouters}}})},
		{name: "OK codes", in: "a=1,ipoib,mtu=5,rate=7,sl=3,scope=2,scope=5,Q_Key=0x1b,TClass=4,FlowLabel=9:;", want: with(
			Partition{Name: "a", PKey: 1, IPoIB: true,
				Params: Params{MTU: ib.MTU4096, Rate: 7, SL: 3, QKey: 0x1b, TClass: 4, FlowLabel: 9, Scopes: 1<<2 | 1<<5}})},
		{name: "OK human units", in: "a=1,ipoib,mtu=4096,rate=100Gb/s:;b=2,rate=2.5g:;", want: with(
			Partition{Name: "a", PKey: 1, IPoIB: true, Params: Params{MTU: ib.MTU4096, Rate: 16}},
			Partition{Name: "b", PKey: 2, Params: Params{Rate: 2}})},
		{name: "OK generated keys step around given ones", in: "x:SELF;y=1:SELF;z:SELF;x:ALL;", want: with(
			Partition{Name: "y", PKey: 1, Members: []Member{{Select: Self}}},
			Partition{Name: "x", PKey: 2, Members: []Member{{Select: Self}, {Select: All}}},
			Partition{Name: "z", PKey: 3, Members: []Member{{Select: Self}}})},
		{name: "OK groups", in: "Default=0x7fff,ipoib:\n\tmgid=ff12:401b::0707,sl=1 # random IPv4 group\n\tmgid=ff12:601b::16    # " +
			"MLDv2\n\tmgid=ff12::1,sl=1,Q_Key=0xDEADBEEF,rate=3,mtu=2 # other\n\tALL=full;\n",
			want: []Partition{{Name: "Default", PKey: 0x7fff, IPoIB: true,
				Groups: []Group{
					{gid("ff12:401b::707"), Params{SL: 1}},
					{gid("ff12:601b::16"), Params{}},
					{gid("ff12::1"), Params{SL: 1, QKey: 0xdeadbeef, Rate: 3, MTU: 2}}},
				Members: append(slices.Clone(all), Member{Select: All, Membership: Full})}}},
		{name: "bad: everything at once", in: "a : 0x1=ful,0x2=most\n ,SELFISH;\nb=0x8000:ALL;\nc=1,mtu=9000,rate=100,speed=3:ALL;\nno colon;\n",
			want: with(Partition{Name: "c", PKey: 1, Members: []Member{{Select: All}}},
				Partition{Name: "a", PKey: 2, Members: []Member{{GUID: 1, Membership: Full}}}),
			errs: []string{
				`f:1:17: membership "most" of "0x2" is none of full, limited, both`,
				`f:2:3: "SELFISH" is not a port: write a port GUID such as 0x0002c903000abcde, or ALL, ALL_CAS, ALL_SWITCHES, ALL_ROUTERS, SELF`,
				`f:3:3: P_Key 0x8000 is not valid: its low 15 bits are zero`,
				`f:4:9: mtu=9000: an InfiniBand MTU is 256, 512, 1024, 2048 or 4096 bytes (or code 1 to 5)`,
				`f:4:19: rate=100: not a rate; write it with its unit, such as 100Gb/s, or as a code from 2 to 23`,
				`f:4:23: unknown partition flag "speed"; known are ipoib, indx0, defmember, mtu, rate, sl, scope, Q_Key, TClass, FlowLabel`,
				`f:5:1: partition definition "no colon" has no ':' before its members; write "Name=0x8001 : ALL=full ;"`,
			}},
		{name: "bad group", in: "a=1,ipoib:\nmgid=fe80::1\nmgid=ff12:401b:8002::1\nmgid=ff12:401b::2,mtu=1\nmgid=zz\n;",
			want: with(Partition{Name: "a", PKey: 1, IPoIB: true, Groups: []Group{{gid("ff12:401b::2"), Params{MTU: 1}}}}),
			errs: []string{
				`f:1:1: group ff12:401b:0000:0000:0000:0000:0000:0002 has an MTU or rate of its own, but IP groups of partition 0x8001 must have those of its broadcast group`,
				`f:2:6: mgid=fe80::1 is not a multicast GID: it does not start with ff`,
				`f:3:6: group ff12:401b:8002:0000:0000:0000:0000:0001 carries P_Key 0x8002, but the partition has 0x8001; write 0000 there to have it filled in`,
				`f:5:6: mgid="zz" is not of the form of an IPv6 address`,
			}},
		{name: "bad values", in: "a=1,sl=16,scope=0,ipoib=1,defmember=,FlowLabel=0x100000,mtu:=full,0,0x10000000000000000;",
			want: with(Partition{Name: "a", PKey: 1, IPoIB: true}),
			errs: []string{
				`f:1:8: sl=16: not a number from 0 to 15`,
				`f:1:17: scope=0: scope 0 is reserved; 2 is the subnet`,
				`f:1:19: flag ipoib takes no value`,
				`f:1:37: defmember="" is none of full, limited, both`,
				`f:1:48: FlowLabel=0x100000: not a number from 0 to 1048575`,
				`f:1:57: partition flag mtu needs a value`,
				`f:1:61: a port GUID or ALL, ALL_CAS, ALL_SWITCHES, ALL_ROUTERS, SELF is missing before '='`,
				`f:1:67: port GUID 0 means no port: write a port GUID such as 0x0002c903000abcde, or ALL, ALL_CAS, ALL_SWITCHES, ALL_ROUTERS, SELF`,
				`f:1:69: port GUID "0x10000000000000000" has more than 64 bits: write a port GUID such as 0x0002c903000abcde, or ALL, ALL_CAS, ALL_SWITCHES, ALL_ROUTERS, SELF`,
			}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := Parse("f", []byte(tt.in))
			testkit.Diff(t, "partitions", tt.want, got.Partitions)
			var msgs []string
			var es ib.FileErrors
			if errors.As(err, &es) {
				for _, e := range es {
					msgs = append(msgs, e.Error())
				}
			} else if err != nil {
				t.Fatal(err)
			}
			testkit.Diff(t, "errors", tt.errs, msgs)
		})
	}
}

func gid(s string) ib.GID { return ib.GID(netip.MustParseAddr(s).As16()) }

func TestParseRule(t *testing.T) {
	for _, tt := range []struct {
		in   string
		want Partition
		err  string
	}{
		{in: "0x8001", want: Partition{PKey: 1, IPoIB: true, Members: []Member{{Select: All, Membership: Full}}}},
		{in: "0x8001 Name=storage Members=0x10,0002:c903:000a:bcde=limited,SELF=both MTU=4096 Rate=100Gb/s SL=1 Index0=yes QKey=0x5 " +
			"TClass=1 Scope=5",
			want: Partition{Name: "storage", PKey: 1, IPoIB: true, Index0: true,
				Params:  Params{MTU: 5, Rate: 16, SL: 1, QKey: 5, TClass: 1, Scopes: 1 << 5},
				Members: []Member{{GUID: 0x10, Membership: Full}, {GUID: 0x2c903000abcde}, {Select: Self, Membership: Both}}}},
		{in: "0x0002 IPoIB=no Members=all_cas", want: Partition{PKey: 2, Members: []Member{{Select: AllCAs}}}},
		{in: "", err: "a partition needs a P_Key, as in Partition=0x8001 Members=ALL"},
		{in: "0x18001", err: `P_Key "0x18001" is not a number from 0x0001 to 0xffff with low 15 bits that are not zero`},
		{in: "1 Members", err: `"Members" is not of the form Name=value`},
		{in: "1 Members=ALL,,SELF", err: `"" is not a port: write a port GUID such as 0x0002c903000abcde, or ALL, ALL_CAS, ALL_SWITCHES, ALL_ROUTERS, SELF`},
		{in: "1 MTU=1500", err: `MTU=1500: an InfiniBand MTU is 256, 512, 1024, 2048 or 4096 bytes (or code 1 to 5)`},
		{in: "1 Rate=17Gb/s", err: `Rate=17Gb/s: no InfiniBand link runs at this rate; 2.5, 10, 20, 40, 56, 100, 200, 400, 800 Gb/s are some that do`},
		{in: "1 Sl=1", err: `unknown word "Sl"; known are Name, Members, IPoIB, Index0, MTU, Rate, SL, QKey, TClass, Scope`},
		{in: "1 IPoIB=maybe", err: `IPoIB="maybe" is neither yes nor no`},
	} {
		got, err := ParseRule(tt.in)
		if e := fmt.Sprint(err); err != nil && e != tt.err || err == nil && tt.err != "" {
			t.Errorf("ParseRule(%q) error %v, want %v", tt.in, err, tt.err)
		}
		if err == nil {
			if d := cmp.Diff(tt.want, got); d != "" {
				t.Errorf("ParseRule(%q) (-want +got):\n%s", tt.in, d)
			}
		}
	}
}

func TestResolve(t *testing.T) {
	ports := []Port{
		{GUID: 3, Type: ib.NodeCA, MTU: ib.MTU4096, Rate: 16},
		{GUID: 1, Type: ib.NodeCA, MTU: ib.MTU4096, Rate: 7},
		{GUID: 9, Type: ib.NodeSwitch},
		{GUID: 2, Type: ib.NodeCA, MTU: ib.MTU2048, Rate: 3},
	}
	cfg, err := Parse("f", []byte("Default=0x7fff,ipoib:ALL=full,2=limited;\nfast=1,ipoib,indx0:1,3=full;\n"+
		"slow=2,ipoib,mtu=4096:ALL_CAS=both,SELF=limited;\nnone=3,ipoib,scope=5:;"))
	if err != nil {
		t.Fatal(err)
	}
	r := cfg.Resolve(ports, 2)
	testkit.Diff(t, "keys", map[ib.GUID][]Key{
		1: {{0xffff, false}, {0x0001, true}, {0x8002, false}, {0x0002, false}},
		2: {{0xffff, false}, {0x0002, false}},
		3: {{0xffff, false}, {0x8001, true}, {0x8002, false}, {0x0002, false}},
		9: {{0xffff, false}},
	}, r.Keys)
	testkit.Diff(t, "groups", []Precreated{
		{MGID: gid("ff12:401b:ffff::ffff:ffff"), PKey: 0xffff, MTU: ib.MTU2048, Rate: 3, QKey: 0xb1b, Scope: 2, Name: "Default",
			AutoMTU: true, AutoRate: true, SlowMTU: ib.MTU2048, SlowRate: 3},
		{MGID: gid("ff12:401b:8001::ffff:ffff"), PKey: 0x8001, MTU: ib.MTU4096, Rate: 7, QKey: 0xb1b, Scope: 2, Name: "fast",
			AutoMTU: true, AutoRate: true, SlowMTU: ib.MTU4096, SlowRate: 7},
		{MGID: gid("ff12:401b:8002::ffff:ffff"), PKey: 0x8002, MTU: ib.MTU4096, Rate: 3, QKey: 0xb1b, Scope: 2, Name: "slow",
			AutoRate: true, SlowMTU: ib.MTU2048, SlowRate: 3},
		{MGID: gid("ff15:401b:8003::ffff:ffff"), PKey: 0x8003, MTU: ib.MTU2048, Rate: 3, QKey: 0xb1b, Scope: 5, HopLimit: 255,
			Name: "none", AutoMTU: true, AutoRate: true},
	}, r.Groups)
	for range 5 {
		rand.Shuffle(len(ports), func(i, j int) { ports[i], ports[j] = ports[j], ports[i] })
		if d := cmp.Diff(r, cfg.Resolve(ports, 2)); d != "" {
			t.Errorf("the order of the ports shows (-first +shuffled):\n%s", d)
		}
	}
}

func TestTable(t *testing.T) {
	k := func(ks ...ib.PKey) (out []Key) {
		for _, x := range ks {
			out = append(out, Key{PKey: x})
		}
		return out
	}
	for _, tt := range []struct {
		name          string
		have          []ib.PKey
		want          []Key
		capacity      int
		table, droped []ib.PKey
	}{
		{"OK fresh", make([]ib.PKey, 4), k(0x8001, 0xffff), 4, []ib.PKey{0xffff, 0x8001, 0, 0}, nil},
		{"OK nothing changes", []ib.PKey{0xffff, 0, 0x8002, 0x8001}, k(0xffff, 0x8001, 0x8002), 4, []ib.PKey{0xffff, 0, 0x8002, 0x8001}, nil},
		{"OK removed and added keep positions", []ib.PKey{0xffff, 0x8009, 0x8002}, k(0xffff, 0x8002, 0x8001), 4,
			[]ib.PKey{0xffff, 0x8001, 0x8002}, nil},
		{"OK membership changes in place", []ib.PKey{0xffff, 0x8001, 0x8002}, k(0x7fff, 0x8002, 1), 4, []ib.PKey{0x7fff, 1, 0x8002}, nil},
		{"OK both", []ib.PKey{0xffff, 0x0001}, k(0xffff, 0x8001, 1), 4, []ib.PKey{0xffff, 1, 0x8001}, nil},
		{"OK default key moves to index 0", []ib.PKey{0x8001, 0xffff, 0x8002}, k(0x8001, 0x8002, 0xffff), 4,
			[]ib.PKey{0xffff, 0x8001, 0x8002}, nil},
		{"OK index 0 asked for", []ib.PKey{0xffff, 0x8002, 0x8001}, []Key{{0xffff, false}, {0x8001, true}, {0x8002, false}}, 4,
			[]ib.PKey{0x8001, 0x8002, 0xffff}, nil},
		{"OK duplicates in the old table", []ib.PKey{0xffff, 0x8001, 0x8001}, k(0xffff, 0x8001), 4, []ib.PKey{0xffff, 0x8001, 0}, nil},
		{"bad too many", []ib.PKey{0, 0}, k(0x8001, 0x8002, 0xffff), 2, []ib.PKey{0xffff, 0x8001}, []ib.PKey{0x8002}},
		{"bad no capacity", nil, k(0xffff), 0, []ib.PKey{}, []ib.PKey{0xffff}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			table, dropped := Table(tt.have, tt.want, tt.capacity)
			testkit.Diff(t, "table", tt.table, table)
			testkit.Diff(t, "dropped", tt.droped, dropped)
		})
	}
}

// A table computed for random keys contains each once, stays within the capacity,
// keeps the existing entries, and is a fixed point.
func TestTableProperties(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 20000 {
		capacity := 1 + rnd.IntN(40)
		have := make([]ib.PKey, rnd.IntN(capacity+1))
		for i := range have {
			if rnd.IntN(3) > 0 {
				have[i] = ib.PKey(rnd.IntN(12)) | ib.PKey(rnd.IntN(2))<<15
			}
		}
		want := []Key{{0xffff, false}}
		for range rnd.IntN(10) {
			want = append(want, Key{ib.PKey(1+rnd.IntN(12)) | ib.PKey(rnd.IntN(2))<<15, rnd.IntN(8) == 0})
		}
		table, dropped := Table(have, want, capacity)
		if len(table) > max(capacity, len(have)) {
			t.Fatalf("table of %d entries for a capacity of %d", len(table), capacity)
		}
		for _, k := range want {
			n := 0
			for _, x := range table {
				if x == k.PKey {
					n++
				}
			}
			if d := slices.Contains(dropped, k.PKey); n == 0 && !d || n > 1 || n == 1 && d {
				t.Fatalf("have %v want %v: key %v is %d times in %v, dropped %v", have, want, k.PKey, n, table, dropped)
			}
		}
		for i, x := range table {
			if x != 0 && !slices.ContainsFunc(want, func(k Key) bool { return k.PKey == x }) {
				t.Fatalf("have %v want %v: %v at %d was not asked for", have, want, x, i)
			}
			if i > 0 && x != 0 && x != table[0] && slices.Contains(have, x) && !slices.Contains(have[:min(i, len(have))], x) &&
				(i >= len(have) || have[i] != x) {
				j := slices.Index(have, x)
				if j != 0 {
					t.Fatalf("have %v want %v: %v moved from %d to %d", have, want, x, j, i)
				}
			}
		}
		if again, _ := Table(table, want, capacity); !slices.Equal(again, table) {
			t.Fatalf("have %v want %v: second run turns %v into %v", have, want, table, again)
		}
	}
}

func TestDefaultAndRules(t *testing.T) {
	r := Default().Resolve([]Port{{GUID: 5, Type: ib.NodeCA, MTU: 5, Rate: 16}}, 5)
	testkit.Diff(t, "", map[ib.GUID][]Key{5: {{0xffff, false}}}, r.Keys)
	if len(r.Groups) != 1 || r.Groups[0].MTU != 5 || r.Groups[0].Rate != 16 || r.Groups[0].MGID != BroadcastMGID(0x7fff) {
		t.Errorf("broadcast group %+v", r.Groups)
	}
	rule, err := ParseRule("0x8001 Members=5")
	if err != nil {
		t.Fatal(err)
	}
	if c := Rules(rule); len(c.Partitions) != 2 || c.Partitions[0].Members[0].Membership != Full {
		t.Errorf("%+v", c)
	}
	def, _ := ParseRule("0xffff Members=SELF")
	if c := Rules(def); len(c.Partitions) != 1 || c.Partitions[0].Members[0].Membership != Limited {
		t.Errorf("%+v", c)
	}
}

func FuzzParse(f *testing.F) {
	files, _ := filepath.Glob("testdata/*.conf")
	for _, n := range files {
		if b, err := os.ReadFile(n); err == nil {
			f.Add(b)
		}
	}
	f.Add([]byte("a=1,mtu=5:mgid=ff12::1,sl=3\nALL;;b:0x1=full"))
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := Parse("f", b)
		var es ib.FileErrors
		if err != nil && (!errors.As(err, &es) || len(es) == 0 || len(es) > maxErrors) {
			t.Fatalf("error %v", err)
		}
		lines := strings.Count(string(b), "\n") + 1
		for _, e := range es {
			if e.Line < 1 || e.Line > lines || e.Col < 1 || e.Col > len(b)+1 || strings.Contains(e.Msg, "\n") {
				t.Fatalf("position or text of %q", e.Error())
			}
		}
		seen := map[ib.PKey]bool{}
		for _, p := range c.Partitions {
			if !p.PKey.IsValid() || p.PKey.Full() || seen[p.PKey] {
				t.Fatalf("P_Key %v in %+v", p.PKey, c)
			}
			seen[p.PKey] = true
		}
		c.Resolve([]Port{{GUID: 1, Type: ib.NodeCA}, {GUID: 2, Type: ib.NodeSwitch}}, 1)
	})
}

func FuzzParseRule(f *testing.F) {
	f.Add("0x8001 Name=storage Members=ALL,0x1=both MTU=4096 Rate=100Gb/s")
	f.Fuzz(func(t *testing.T, s string) {
		if p, err := ParseRule(s); err == nil && (!p.PKey.IsValid() || p.PKey.Full()) {
			t.Fatalf("%q gave P_Key %v", s, p.PKey)
		}
	})
}
