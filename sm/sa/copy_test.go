package sa

import (
	"bytes"
	"testing"
	"time"

	"ibnetworkd/ib"
	"ibnetworkd/lab/gen"
	"ibnetworkd/sm/fabric"
	"ibnetworkd/sm/mad"
	"ibnetworkd/sm/route"
)

// active makes all ports of adapters Active: others are not restored.
func active(f *fabric.Fabric) *fabric.Fabric {
	for _, e := range f.EndPorts {
		f.Ports[e].Info.SetState(ib.PortActive)
	}
	return f
}

// tables are the answers that a standby at a port gets.
func (w *world) tables(port int32, manager bool) (out [len(Copies)][]byte) {
	w.t.Helper()
	for i, a := range Copies {
		h := mad.NewSA(mad.MethodGetTable, a, 7, 0)
		h.SMKey = 1
		r, _ := w.s.Handle(w.now, Request{LID: w.f.Ports[port].LID, QP: 1, Manager: manager, MAD: append(h.Append(nil), make([]byte, 200)...)})
		if r.MAD == nil {
			w.t.Fatalf("no table of %#x", a)
		}
		out[i] = bytes.Clone(r.MAD)
	}
	return out
}

// A standby has of a master's registrations what the master has: each kind, of hosts
// in partitions that the standby is not in, with the MLIDs that hosts know.
func TestRestore(t *testing.T) {
	f := active(gen.LIDs(gen.FatTree2(8, 2), 1))
	cas := (&world{f: f}).cas()
	conf := "Default=0x7fff,ipoib:ALL=full;a=1,ipoib:SELF=full," + f.Ports[cas[3]].GUID.String() + "=full," +
		f.Ports[cas[4]].GUID.String() + "=full;"
	f.Ports[cas[3]].Info.SetGUIDCap(16)
	w := newWorld(t, f, conf)
	gid := func(p int32) ib.GID { return ib.MakeGID(f.Prefix, f.Ports[p].GUID) }
	must := func(st mad.Status, _ [][]byte) {
		t.Helper()
		if st != 0 {
			t.Fatalf("status %#x", st)
		}
	}
	before := w.s.Version()
	join := func(by int32, r mad.MCMemberRecord) {
		t.Helper()
		must(w.ask(by, 0, mad.MethodSet, mad.AttrMCMemberRecord, createMask, &r))
	}
	alias := ib.GUID(0xabc)
	must(w.ask(cas[3], 0, mad.MethodSet, mad.AttrGUIDInfoRecord, mad.CompGIRLID|mad.CompGIRBlock|mad.CompGIRGID0<<2,
		&mad.GUIDInfoRecord{LID: f.Ports[cas[3]].LID, Block: 1, Info: mad.GUIDInfo{2: alias}}))
	secret := ib.GID{0xff, 0x12, 15: 9}
	join(cas[3], mad.MCMemberRecord{MGID: secret, PortGID: gid(cas[3]), JoinState: mad.JoinFull, PKey: 0x8001, QKey: 5})
	join(cas[4], mad.MCMemberRecord{MGID: secret, PortGID: gid(cas[4]), JoinState: mad.JoinNon, PKey: 0x8001, QKey: 5})
	join(cas[3], mad.MCMemberRecord{MGID: ib.GID{0xff, 0x12, 15: 8}, PortGID: ib.MakeGID(f.Prefix, alias), JoinState: mad.JoinFull,
		PKey: 0xffff})
	join(cas[2], mad.MCMemberRecord{MGID: ib.GID{0xff, 0x12, 15: 8}, PortGID: gid(cas[1]), JoinState: mad.JoinNon, PKey: 0xffff}) // by proxy
	must(w.ask(cas[4], 0, mad.MethodSet, mad.AttrServiceRecord, mad.CompSRServiceID|mad.CompSRGID|mad.CompSRPKey|mad.CompSRKey|mad.CompSRLease,
		&mad.ServiceRecord{ServiceID: 77, GID: gid(cas[4]), PKey: 0x8001, Key: [16]byte{1}, Lease: 100}))
	must(w.ask(cas[5], 1, mad.MethodSet, mad.AttrInformInfo, 0, &mad.InformInfo{LIDRangeBegin: ib.LIDPermissive, Generic: true,
		Subscribe: true, Type: 0xffff, TrapNumber: mad.TrapAll, Producer: 0xffffff}))
	if v := w.s.Version(); v == before || !w.s.CanCopy() {
		t.Fatalf("version %d after %d, can be copied: %v", v, before, w.s.CanCopy())
	}
	// A standby in the default partition alone.
	want := w.tables(cas[6], true)
	if r, err := ParseRegistrations(w.tables(cas[6], false)); err != nil || r.Members() != 2 {
		t.Errorf("one that is no manager sees %d members, %v; want those of the default partition", r.Members(), err)
	}
	r, err := ParseRegistrations(want)
	if err != nil {
		t.Fatal(err)
	}
	successor := &world{t: t, s: New(Config{}), f: f, now: 3 * time.Second}
	c, err := successor.s.Restore(0, &r, f)
	if err != nil || len(c.GUIDs) != 1 || c.GUIDs[0].Block != 1 || c.GUIDs[0].GUIDs[2] != alias {
		t.Fatalf("%+v, %v", c, err)
	}
	c = successor.s.SetState(successor.now, stateOf(t, f, conf))
	successor.check()
	if len(c.Reregister) != 0 {
		t.Errorf("%d ports are asked to register again", len(c.Reregister))
	}
	w.now = successor.now // services' leases go on
	want = w.tables(cas[6], true)
	for i, got := range successor.tables(cas[6], true) {
		if !bytes.Equal(got, want[i]) {
			t.Errorf("%s: %x, want %x", mad.AttrName(mad.ClassSA, Copies[i]), got, want[i])
		}
	}
	// A port that is not Active registers when it is.
	f.Ports[cas[3]].Info.SetState(ib.PortInit)
	successor = &world{t: t, s: New(Config{}), f: f}
	if _, err = successor.s.Restore(0, &r, f); err != nil {
		t.Fatal(err)
	}
	successor.s.SetState(0, stateOf(t, f, conf))
	successor.check()
	if successor.s.groups[secret] != nil || successor.s.members != 0 {
		t.Errorf("groups that a port that is down has kept are left: %d members", successor.s.members)
	}
	// A service of another's GID has its owner in no record.
	must(w.ask(cas[4], 0, mad.MethodSet, mad.AttrServiceRecord, mad.CompSRServiceID|mad.CompSRGID,
		&mad.ServiceRecord{ServiceID: 78, GID: gid(cas[1])}))
	if w.s.CanCopy() {
		t.Error("a service whose owner is in no record can be copied")
	}
}

// The levels of paths of more switches than a record has are copied whole, and change the
// version when they change.
func TestCopyLevels(t *testing.T) {
	f := active(gen.LIDs(gen.FatTree2(8, 2), 1))
	w := newWorld(t, f, "")
	const n = mad.PathLevelsBlock + 3
	l := Levels{SL: make(route.Layers, n)}
	for i := range n {
		l.At, l.SL[i] = append(l.At, ib.GUID(i+1)), make([]uint8, n)
		for k := range l.SL[i] {
			l.SL[i][k] = uint8(i+k) & 7
		}
	}
	l.Trunk, l.Order = []uint8{3, 0, 5}, []ib.GUID{2, 3, 1}
	one := Levels{At: l.At, Order: l.Order}
	drained := []ib.GUID{2, 0x4242}
	for _, want := range []Levels{l, one, {}, {At: l.At, SL: l.SL, Drained: drained}, {Drained: drained}} {
		v := w.s.Version()
		w.s.SetLevels(want)
		if w.s.Version() == v {
			t.Error("other levels have the same version")
		}
		v = w.s.Version()
		w.s.SetLevels(want)
		if w.s.Version() != v {
			t.Error("the same levels have another version")
		}
		tables := w.tables(w.cas()[0], true)
		r, err := ParseRegistrations(tables)
		if got := r.Levels(); err != nil || !got.equal(&want) || (got.SL == nil) != (want.SL == nil) {
			t.Errorf("%d of %d switches, trunk %v, order %v, %v", len(got.At), len(want.At), got.Trunk, got.Order, err)
		}
		if want.Drained != nil {
			b := tables[0]
			tables[0] = append(b, b[len(b)-mad.PathLevelsRecordLen:]...)
			if _, err := ParseRegistrations(tables); err == nil {
				t.Error("a switch that is drained twice is accepted")
			}
		} else if len(want.At) > 0 {
			b := tables[0]
			tables[0] = b[:len(b)-mad.PathLevelsRecordLen]
			if _, err := ParseRegistrations(tables); want.SL != nil && err == nil {
				t.Error("a table without its end is accepted")
			}
			tables[0] = append(b, b[mad.SADataOffset:]...)
			if _, err := ParseRegistrations(tables); err == nil {
				t.Error("a table with all switches twice is accepted")
			}
		}
	}
	h := mad.NewSA(mad.MethodGetTable, mad.AttrPathLevelsRecord, 7, 0)
	r, _ := w.s.Handle(w.now, Request{LID: f.Ports[w.cas()[0]].LID, QP: 1, MAD: append(h.Append(nil), make([]byte, 200)...)})
	if err := h.Decode(r.MAD); err != nil || h.Status == 0 {
		t.Errorf("a host reads levels, %v", err)
	}
}

// Whatever tables arrive: they are refused, or the SA is as consistent as ever.
func FuzzRestore(f *testing.F) {
	fab := active(gen.LIDs(gen.FatTree2(8, 2), 1))
	w := newWorld(f, fab, "")
	gid := ib.MakeGID(fab.Prefix, fab.Ports[w.cas()[3]].GUID)
	w.ask(w.cas()[3], 0, mad.MethodSet, mad.AttrMCMemberRecord, createMask, &mad.MCMemberRecord{MGID: ib.GID{0xff, 0x12, 15: 8}, PortGID: gid,
		JoinState: mad.JoinFull, PKey: 0xffff})
	w.ask(w.cas()[3], 0, mad.MethodSet, mad.AttrServiceRecord, mad.CompSRServiceID|mad.CompSRGID, &mad.ServiceRecord{ServiceID: 78, GID: gid})
	s := w.tables(w.cas()[0], true)
	f.Add(s[0], s[1], s[2], s[3], s[4])
	own := (&mad.GUIDInfoRecord{LID: 1, Info: mad.GUIDInfo{gid.GUID(), 0x99}}).Append(nil)
	f.Add(s[0], s[1], s[2], s[3], append(s[4][:mad.SADataOffset:mad.SADataOffset], own...))
	w.s.SetLevels(Levels{At: []ib.GUID{5, 6}, Drained: []ib.GUID{2, 0x4242}})
	f.Add(w.tables(w.cas()[0], true)[0], s[1], s[2], s[3], s[4])
	f.Fuzz(func(t *testing.T, z, a, b, c, d []byte) {
		r, err := ParseRegistrations([len(Copies)][]byte{z, a, b, c, d})
		if n := len(r.members) + len(r.services) + len(r.subs) + len(r.aliases)/8; n > (len(z)+len(a)+len(b)+len(c)+len(d))/32 {
			t.Fatalf("%d records of %d bytes", n, len(a)+len(b)+len(c)+len(d))
		}
		if err != nil {
			return
		}
		x := &world{t: t, s: New(Config{MaxMembers: 8, MaxPerPort: 2, MaxServices: 4}), f: fab}
		if _, err := x.s.Restore(time.Second, &r, fab); err != nil && (x.s.members != 0 || len(x.s.services)+len(x.s.subs)+len(x.s.guids) != 0) {
			t.Fatal("refused and kept")
		}
		x.s.SetState(2*time.Second, stateOf(t, fab, ""))
		x.s.Tick(2 * time.Second)
		x.check()
	})
}
