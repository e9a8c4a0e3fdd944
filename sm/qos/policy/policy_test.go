package policy

import (
	"strings"
	"testing"

	"ibnetworkd/ib"
	"ibnetworkd/internal/testkit"
	"ibnetworkd/lab/gen"
)

const whole = `# every keyword
port-groups
    port-group
        name: Storage
        use: targets   # a description
        port-guid: 0x0002c90000100005, 0x0002c90000100009-0x0002c9000010000b
        port-guid: 0xffffffffffffffff
    end-port-group
    port-group
        name: Virtual Servers
        port-name: H-00001/P1, H-00002/P1
    end-port-group
    port-group
        name: Part
        pkey: 0x8001-0x8003
        partition: lab
    end-port-group
    port-group
        name: Managers
        node-type: self, SWITCH
    end-port-group
end-port-groups
qos-setup
    vlarb-tables
    end-vlarb-tables
end-qos-setup
qos-levels
    qos-level
        name: DEFAULT
        sl: 1
    end-qos-level
    qos-level
        name: Wide
        sl: 3
        mtu-limit: 4
        rate-limit: 3
        packet-life: 12
        path-bits: 0-1
        pkey: 0x7fff
    end-qos-level
end-qos-levels
qos-match-rules
    qos-match-rule
        use: storage
        source: Virtual Servers
        destination: Storage, Managers
        service-id: 22, 0x100-0x1ff
        qos-class: 7-9,11
        pkey: 0xffff
        qos-level-name: Wide
    end-qos-match-rule
    qos-match-rule
        destination: Part
        qos-level-name: Wide
    end-qos-match-rule
end-qos-match-rules
qos-ulps
    default                            : 0 # the level DEFAULT goes before it
    sdp, port-num 30000                : 2
    sdp                                : 4
    rds                                : 5
    iser, port-num 900-901             : 6
    iser                               : 7
    ipoib, pkey 0x0001                 : 8
    ipoib                              : 9
    any, service-id 0x6234             : 10
    srp, target-port-guid 0x0002c90000100007 : 11
    any, target-port-guid 0x0002c9000010000d-0x0002c9000010000f : 12
end-qos-ulps
`

func TestPolicy(t *testing.T) {
	p, err := Parse("q.conf", []byte(whole))
	testkit.NoError(t, err)
	if len(p.Notes) != 2 || !strings.Contains(p.Notes[0], "q.conf:23: qos-setup") || !strings.Contains(p.Notes[1],
		"q.conf:38: path-bits") {
		t.Errorf("notes %q", p.Notes)
	}
	f := gen.FatTree2(8, 4)
	host := func(n int) int32 { return f.EndPortByGUID(gen.HostGUID + ib.GUID(2*n-1)) }
	b := p.Bind(f, func(port int32) []ib.PKey { return map[int32][]ib.PKey{host(9): {0x8003}, host(10): {0x44}}[port] },
		func(name string) (ib.PKey, bool) { return 0x8044, name == "lab" })
	for _, tt := range []struct {
		name string
		r    Request
		want ib.SL
	}{
		{"nothing", Request{Source: host(11), Target: host(12)}, 1},
		{"all of the first rule", Request{Source: host(1), Target: host(3), ServiceID: 0x123, HasServiceID: true, PKey: 0x7fff, HasPKey: true,
			Class: 11, HasClass: true}, 3},
		{"the class is missing", Request{Source: host(1), Target: host(3), ServiceID: 0x123, HasServiceID: true,
			PKey: 0x7fff, HasPKey: true}, 9},
		{"another class", Request{Source: host(1), Target: host(3), ServiceID: 22, HasServiceID: true, Class: 10, HasClass: true}, 1},
		{"by partition", Request{Source: host(1), Target: host(9)}, 3},
		{"by name of the partition", Request{Source: host(1), Target: host(10)}, 3},
		{"sdp to a port", Request{Source: host(1), Target: host(2), ServiceID: 0x10000 + 30000, HasServiceID: true}, 2},
		{"sdp", Request{Source: host(1), Target: host(2), ServiceID: 0x1ffff, HasServiceID: true}, 4},
		{"rds", Request{Source: host(1), Target: host(2), ServiceID: 0x10648ca, HasServiceID: true}, 5},
		{"iser to a port", Request{Source: host(1), Target: host(2), ServiceID: 0x1060000 + 901, HasServiceID: true}, 6},
		{"iser", Request{Source: host(1), Target: host(2), ServiceID: 0x1060000 + 3260, HasServiceID: true}, 7},
		{"ipoib of a partition", Request{Source: host(1), Target: host(2), PKey: 0x8001, HasPKey: true}, 8},
		{"ipoib", Request{Source: host(1), Target: host(2), PKey: 0xffff, HasPKey: true}, 9},
		{"a service", Request{Source: host(1), Target: host(2), ServiceID: 0x6234, HasServiceID: true}, 10},
		{"srp", Request{Source: host(1), Target: host(4)}, 11},
		{"a range of targets", Request{Source: host(1), Target: host(8)}, 12},
	} {
		l := b.Level(&tt.r)
		if l == nil || l.SL != tt.want {
			t.Errorf("%s: %+v, want service level %d", tt.name, l, tt.want)
		}
	}
	for g, want := range map[string]int{"Storage": 3, "Virtual Servers": 2, "Part": 2, "Managers": 1 + len(f.Switches)} {
		n := 0
		for i := range p.Groups {
			for _, in := range b.in[i] {
				if in && p.Groups[i].Name == g {
					n++
				}
			}
		}
		if n != want {
			t.Errorf("%s has %d ports, want %d", g, n, want)
		}
	}
	if l := p.Levels[1]; !l.Has.MTU || l.MTU != ib.MTU2048 || !l.Has.Rate || l.Rate != 3 || !l.Has.Life || l.Life != 12 || l.Allows(0x8001) ||
		!l.Allows(0xffff) {
		t.Errorf("%+v", l)
	}
}

// Each mistake has its place.
func TestMistakes(t *testing.T) {
	for _, x := range []struct{ text, want string }{
		{"qos-level",
			`f:1:1: "qos-level": want port-groups`},
		{"qos-levels\n qos-level\n  name: A",
			"f:3:1: the file ends without end-qos-level"},
		{"qos-levels\n qos-level\n  sl: 16",
			`f:3:7: "16": want a number from 0 to 15`},
		{"qos-levels\n qos-level\n  mtu-limit: 9",
			`f:3:14: "9": want the code of an MTU`},
		{"qos-levels\nqos-level\nsl: 1\nend-qos-level\nend-qos-levels",
			"f:4:1: the qos-level of line 2 has no name"},
		{"qos-levels\nqos-level\nname: A\nend-qos-level\nqos-level\nname: A\nend-qos-level\nend-qos-levels",
			`f:7:1: the qos-level "A" of line 5 is the second`},
		{"port-groups\nport-group\nname: A\nports: 1",
			`f:4:1: "ports" is not a key of a port-group`},
		{"port-groups\nport-group\nport-guid: 5-2",
			`f:3:12: "5-2": the range ends before`},
		{"port-groups\nport-group\nport-name: a, b/P1",
			`f:3:12: "a": want a node description`},
		{"qos-match-rules\nqos-match-rule\n source: X\n qos-level-name: Y\nend-qos-match-rule\nend-qos-match-rules",
			"f:3:10: no port-group has the name \"X\"\n" +
				`f:4:18: no qos-level has the name "Y"`},
		{"qos-match-rules\nqos-match-rule\npkey: 1\nend-qos-match-rule\nend-qos-match-rules",
			"f:4:1: the rule of line 2 has no qos-level-name"},
		{"qos-ulps\n http : 3", `f:2:2: "http": want default`},
		{"qos-ulps\n sdp : x", `f:2:8: "x": want a number`},
		{"qos-ulps\n sdp, pkey 1: 2", `f:2:2: "sdp, pkey 1": want default`},
		{"qos-ulps\n default 3", `f:2:2: "default 3": want a protocol`},
	} {
		text, want := x.text, x.want
		if _, err := Parse("f", []byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
	if p, err := Parse("f", nil); err != nil || p.Default != -1 || len(p.Notes) != 1 {
		t.Errorf("an empty file: %+v, %v", p, err)
	}
}

func FuzzPolicy(f *testing.F) {
	f.Add([]byte(whole))
	f.Add([]byte("qos-match-rules\nqos-match-rule\nqos-level-name: A\nend-qos-match-rule\nend-qos-match-rules\n"))
	fab := gen.Star(3, 4)
	f.Fuzz(func(t *testing.T, b []byte) {
		p, err := Parse("f", b)
		if err != nil {
			for _, e := range err.(ib.FileErrors) {
				if e.Line < 1 || e.Col < 1 || e.Line > strings.Count(string(b), "\n")+1 {
					t.Fatalf("%v of %d lines", e, strings.Count(string(b), "\n")+1)
				}
			}
			return
		}
		if n := len(p.Groups) + len(p.Levels) + len(p.Rules); n > len(b) {
			t.Fatalf("%d items of %d bytes", n, len(b))
		}
		bound := p.Bind(fab, func(int32) []ib.PKey { return nil }, func(string) (ib.PKey, bool) { return 0, false })
		for _, has := range []bool{false, true} {
			for _, e := range fab.EndPorts {
				l := bound.Level(&Request{Source: fab.EndPorts[0], Target: e, ServiceID: 0x10001, PKey: 0xffff, HasServiceID: has, HasPKey: has})
				if l != nil && (l.SL > 15 || l.Has.MTU && !l.MTU.IsValid() || l.Has.Rate && !l.Rate.IsValid() || l.Life > 63) {
					t.Fatalf("%+v", l)
				}
			}
		}
	})
}

// A group has the ports of all P_Keys of a range, whatever its length.
func TestGroupOfManyPKeys(t *testing.T) {
	p, err := Parse("f", []byte("port-groups\nport-group\nname: all\npkey: 0x0001-0x7fff\nend-port-group\nend-port-groups\n"))
	testkit.NoError(t, err)
	f := gen.FatTree2(4, 2)
	in, out := f.EndPorts[len(f.EndPorts)-1], f.EndPorts[len(f.EndPorts)-2]
	b := p.Bind(f, func(port int32) []ib.PKey { return map[int32][]ib.PKey{in: {0xd001}, out: {0x8000}}[port] },
		func(string) (ib.PKey, bool) { return 0, false })
	if !b.in[0][in] || b.in[0][out] {
		t.Errorf("the port with 0xd001 is in the group: %v; that with 0x8000: %v", b.in[0][in], b.in[0][out])
	}
}
