package ib

import "testing"

func TestMGID(t *testing.T) {
	for _, c := range []struct {
		gid          string
		ip, assigned bool
		flags, scope uint8
		key          PKey
	}{
		{"ff12:401b:ffff::ffff:ffff", true, false, 1, 2, 0xffff},
		{"ff15:601b:8001::1", true, false, 1, 5, 0x8001},
		{"ff12:a01b:fe80::1", false, true, 1, 2, 0xfe80},
		{"ff0e:1:2::3", false, false, 0, 14, 2},
	} {
		g, err := ParseGID(c.gid)
		if err != nil {
			t.Fatal(err)
		}
		if g.IsIP() != c.ip || g.IsAssigned() != c.assigned || g.Flags() != c.flags || g.Scope() != c.scope || g.GroupPKey() != c.key {
			t.Errorf("%s: IP %v, assigned %v, flags %d, scope %d, P_Key %v", c.gid, g.IsIP(), g.IsAssigned(), g.Flags(), g.Scope(),
				g.GroupPKey())
		}
		if g.WithScope(g.Scope()).WithGroupPKey(g.GroupPKey()) != g || g.WithScope(9).Scope() != 9 ||
			g.WithGroupPKey(0x1234).GroupPKey() != 0x1234 {
			t.Errorf("%s: what is set is not what is read", c.gid)
		}
	}
	if got := AssignedMGID(2, DefaultPrefix, 7).String(); got != "ff12:a01b:fe80:0000:0000:0000:0000:0007" {
		t.Error(got)
	}
}
