package roce

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"

	"ibnetworkd/ib"
	"ibnetworkd/internal/testkit"
	"ibnetworkd/link"
)

func TestAutoGUIDs(t *testing.T) {
	seen := map[ib.GUID]string{}
	for _, pf := range []ib.GUID{0x0002c903000abcde, 0x0002c903000abcdf, 0xb83fd20300123456, 0xb83fd2fffe123457, 0x506b4b03000abcde} {
		for vf := range 300 {
			for name, g := range map[string]ib.GUID{"node": NodeGUIDFor(pf, vf), "port": PortGUIDFor(pf, vf)} {
				id := fmt.Sprintf("%v %d %s", pf, vf, name)
				if old, dup := seen[g]; dup {
					t.Fatalf("%v is the GUID of %s and of %s", g, old, id)
				}
				seen[g] = id
				if g>>57&1 == 0 || g == pf {
					t.Fatalf("%s: %v is not marked as assigned locally", id, g)
				}
			}
		}
	}
	if a, b := NodeGUIDFor(0x0002c903000abcde, 3), NodeGUIDFor(0x0002c903000abcde, 3); a != b {
		t.Error("not the same twice")
	}
}

func entry(index int, g ib.GID, version int, dev string) GID {
	return GID{Index: index, GID: g, Version: version, Netdev: dev}
}

func TestSelect(t *testing.T) {
	addr := func(s string, flags uint32) link.Address {
		return link.Address{Prefix: netip.MustParsePrefix(s), Flags: flags}
	}
	l := &link.Link{Name: "eth0", Addresses: []link.Address{addr("fe80::1/64", 0), addr("fd00::9/64", link.AddrDeprecated),
		addr("10.0.0.1/24", 0), addr("fd00::1/64", 0)}}
	table := []GID{
		entry(0, gid("fe80::1"), 1, "eth0"), entry(1, gid("fe80::1"), 2, "eth0"), entry(2, gid("::ffff:10.0.0.1"), 2, "eth1"),
		entry(9, gid("::ffff:10.0.0.1"), 2, "eth0"), entry(8, gid("::ffff:10.0.0.1"), 1, "eth0"), entry(4, gid("fd00::9"), 2, "eth0"),
		entry(6, gid("fd00::1"), 2, "eth0"),
	}
	want := Env(l, "mlx5_0", 1, Select(table, l, nil))
	testkit.Diff(t, "", `# RDMA port of the link eth0; ibnetworkd rewrites this file when it changes.
IBNET_LINK=eth0
IBNET_RDMA_DEVICE=mlx5_0
IBNET_RDMA_PORT=1
NCCL_IB_HCA="=mlx5_0:1"
UCX_NET_DEVICES=mlx5_0:1
NCCL_IB_GID_INDEX=9
UCX_IB_GID_INDEX=9
IBNET_GID_INDEX_IPV4=9
IBNET_GID_IPV4=0000:0000:0000:0000:0000:ffff:0a00:0001
IBNET_GID_INDEX_IPV6=6
IBNET_GID_IPV6=fd00:0000:0000:0000:0000:0000:0000:0001
IBNET_GID_INDEX_V1=8
IBNET_GID_V1=0000:0000:0000:0000:0000:ffff:0a00:0001
`, want)
	// The order of the table does not matter.
	r := rand.New(rand.NewPCG(1, 1))
	for range 50 {
		r.Shuffle(len(table), func(i, j int) { table[i], table[j] = table[j], table[i] })
		if got := Env(l, "mlx5_0", 1, Select(table, l, nil)); got != want {
			t.Fatalf("another order gives\n%s", got)
		}
	}
	// The unit's own address precedes one that another program added earlier.
	two := &link.Link{Name: "eth0", Addresses: []link.Address{addr("10.9.9.9/24", 0), addr("10.0.0.1/24", 0)}}
	both := []GID{{Index: 3, GID: gid("::ffff:10.9.9.9"), Version: 2, Netdev: "eth0"}, {Index: 5, GID: gid("::ffff:10.0.0.1"),
		Version: 2, Netdev: "eth0"}}
	if x := Select(both, two, unit(t, "[Network]\nAddress=10.0.0.1/24\n").Addresses); x.V4 == nil || x.V4.Index != 5 {
		t.Errorf("with the unit: %+v", x.V4)
	}
	if x := Select(both, two, nil); x.V4 == nil || x.V4.Index != 3 {
		t.Errorf("without a unit: %+v", x.V4)
	}
	if x := Select(nil, l, nil); x.Preferred() != nil {
		t.Error("an index out of nothing")
	}
	if x := Select(table, &link.Link{Name: "eth0", Addresses: []link.Address{addr("fe80::1/64", 0)}}, nil); x.Preferred().Index != 1 {
		t.Errorf("link-local only: %+v", x)
	}
}

// A table is settled when it has what the link has, and nothing of what it had.
func TestSettled(t *testing.T) {
	addr := func(s string) link.Address { return link.Address{Prefix: netip.MustParsePrefix(s)} }
	entry := func(s, netdev string) GID { return GID{GID: netip.MustParseAddr(s).As16(), Version: 2, Netdev: netdev} }
	own, v4, v6, vlan := entry("fe80::1", "eth0"), entry("::ffff:10.0.0.1", "eth0"), entry("fd00::1", "eth0"),
		entry("::ffff:10.7.0.1", "eth0.7")
	for _, c := range []struct {
		name  string
		table []GID
		addrs []link.Address
		want  bool
	}{
		{"agrees", []GID{own, v4, v6, vlan}, []link.Address{addr("10.0.0.1/24"), addr("fd00::1/64"), addr("fe80::1/64")}, true},
		{"without the link-local address", []GID{own, v4}, []link.Address{addr("10.0.0.1/24")}, true},
		{"an address to come", []GID{own}, []link.Address{addr("10.0.0.1/24")}, false},
		{"a link-local address to come", []GID{v4}, []link.Address{addr("10.0.0.1/24"), addr("fe80::1/64")}, false},
		{"an address that has gone", []GID{own, v4, v6}, []link.Address{addr("10.0.0.1/24")}, false},
		{"the address of another interface", []GID{own, entry("::ffff:10.0.0.1", "eth1")}, []link.Address{addr("10.0.0.1/24")}, false},
	} {
		if got := Settled(c.table, &link.Link{Name: "eth0", Addresses: c.addrs}); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}
