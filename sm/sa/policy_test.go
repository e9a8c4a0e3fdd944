package sa

import (
	"testing"

	"ibnetworkd/ib"
	"ibnetworkd/internal/testkit"
	"ibnetworkd/lab/gen"
	"ibnetworkd/sm/mad"
	"ibnetworkd/sm/qos/policy"
)

// Paths get the level that the QoS policy has for them, and its limits; a request for
// another service level or partition than it allows has no path.
func TestPolicyInPathRecords(t *testing.T) {
	f := gen.LIDs(gen.FatTree2(8, 2), 0)
	w := newWorld(t, f, "Default=0x7fff,ipoib,sl=2:ALL=full;a=1:ALL=full;")
	p, err := policy.Parse("q", []byte("qos-levels\nqos-level\nname: L\nsl: 5\nmtu-limit: 3\nrate-limit: 2\npacket-life: 9\npkey: 0x1\n"+
		"end-qos-level\nend-qos-levels\n"+
		"qos-match-rules\nqos-match-rule\nservice-id: 0x77\nqos-level-name: L\nend-qos-match-rule\nqos-match-rule\n"+
		"qos-class: 4\nqos-level-name: L\nend-qos-match-rule\nend-qos-match-rules\nqos-ulps\nany, pkey 0x7fff: 6\nend-qos-ulps\n"))
	testkit.NoError(t, err)
	st := stateOf(t, f, "Default=0x7fff,ipoib,sl=2:ALL=full;a=1:ALL=full;")
	st.Policy = p.Bind(f, func(int32) []ib.PKey { return []ib.PKey{0xffff} }, func(string) (ib.PKey, bool) { return 0, false })
	w.s.SetState(0, st)
	cas := w.cas()
	gid := func(p int32) ib.GID { return ib.MakeGID(f.Prefix, f.Ports[p].GUID) }
	base := mad.PathRecord{SGID: gid(cas[0]), DGID: gid(cas[3])}
	for _, tt := range []struct {
		name string
		mask mad.CompMask
		set  func(*mad.PathRecord)
		st   mad.Status
		sl   ib.SL
		mtu  ib.MTU
		rate ib.Rate
		life uint8
		pkey ib.PKey
	}{
		{name: "no rule: the partition's level", sl: 2, mtu: ib.MTU4096, life: 18, pkey: 0xffff},
		{name: "service", mask: mad.CompPRServiceID, set: func(r *mad.PathRecord) { r.ServiceID = 0x77 }, sl: 5,
			mtu: ib.MTU1024, rate: 2, life: 9,
			pkey: 0x8001},
		{name: "class", mask: mad.CompPRQoSClass, set: func(r *mad.PathRecord) { r.QoSClass = 4 }, sl: 5, mtu: ib.MTU1024,
			rate: 2, life: 9, pkey: 0x8001},
		{name: "partition", mask: mad.CompPRPKey, set: func(r *mad.PathRecord) { r.PKey = 0xffff }, sl: 6, mtu: ib.MTU4096,
			life: 18, pkey: 0xffff},
		{name: "another service level", mask: mad.CompPRServiceID | mad.CompPRSL,
			set: func(r *mad.PathRecord) { r.ServiceID, r.SL = 0x77, 4 },
			st:  mad.StatusSANoRecords},
		{name: "the same service level", mask: mad.CompPRServiceID | mad.CompPRSL,
			set: func(r *mad.PathRecord) { r.ServiceID, r.SL = 0x77, 5 }, sl: 5,
			mtu: ib.MTU1024, rate: 2, life: 9, pkey: 0x8001},
		{name: "a partition that the level has not", mask: mad.CompPRServiceID | mad.CompPRPKey,
			set: func(r *mad.PathRecord) { r.ServiceID, r.PKey = 0x77, 0xffff }, st: mad.StatusSANoRecords},
	} {
		r := base
		if tt.set != nil {
			tt.set(&r)
		}
		got, recs := w.ask(cas[0], 0, mad.MethodGet, mad.AttrPathRecord, tt.mask|mad.CompPRSGID|mad.CompPRDGID, &r)
		if got != tt.st {
			t.Errorf("%s: status %#x, want %#x", tt.name, uint16(got), uint16(tt.st))
			continue
		}
		if tt.st != 0 {
			continue
		}
		var a mad.PathRecord
		testkit.NoError(t, a.Decode(recs[0]))
		if a.SL != tt.sl || a.MTU != tt.mtu || tt.rate != 0 && a.Rate != tt.rate || a.LifeTime != tt.life || a.PKey != tt.pkey {
			t.Errorf("%s: SL %d, MTU %v, rate %v, life %d, P_Key %v", tt.name, a.SL, a.MTU, a.Rate, a.LifeTime, a.PKey)
		}
	}
}
