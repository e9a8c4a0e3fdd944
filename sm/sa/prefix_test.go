package sa

import (
	"testing"

	"ibnetworkd/ib"
	"ibnetworkd/lab/gen"
	"ibnetworkd/sm/fabric"
	"ibnetworkd/sm/guidfile"
	"ibnetworkd/sm/mad"
)

// A path to a GID of another subnet leads to the router that the prefix routes name; the
// first line that fits and whose router is there counts.
func TestPrefixRoutes(t *testing.T) {
	f := gen.LIDs(gen.FatTree2(8, 4), 0)
	w := newWorld(t, f, "")
	cas := w.cas()
	first, second := cas[2], cas[5]
	for _, p := range []int32{first, second} {
		f.Nodes[f.Ports[p].Node].Type = ib.NodeRouter
	}
	guid := func(p int32) ib.GUID { return f.Ports[p].GUID }
	const far = 0xfec0000000000009
	type routes = []guidfile.PrefixRoute
	for name, tt := range map[string]struct {
		routes routes
		want   int32 // the port that the path leads to
		st     mad.Status
		dlid   ib.LID // asked for
	}{
		"none":                     {nil, 0, mad.StatusSAInvalidGID, 0},
		"the prefix":               {routes{{Prefix: far, Router: guid(second)}}, second, 0, 0},
		"another prefix":           {routes{{Prefix: far + 1, Router: guid(second)}}, 0, mad.StatusSAInvalidGID, 0},
		"any router":               {routes{{Prefix: far}}, first, 0, 0},
		"anything":                 {routes{{}}, first, 0, 0},
		"the order counts":         {routes{{Router: guid(second)}, {Prefix: far, Router: guid(first)}}, second, 0, 0},
		"the first is not there":   {routes{{Prefix: far, Router: 0x99}, {Prefix: far, Router: guid(second)}}, second, 0, 0},
		"no router":                {routes{{Prefix: far, Router: guid(cas[1])}}, 0, mad.StatusSAInvalidGID, 0},
		"the LID of the router":    {routes{{}}, first, 0, f.Ports[first].LID},
		"the LID of another":       {routes{{}}, 0, mad.StatusSAReqInvalid, f.Ports[second].LID},
		"a LID that nothing has":   {routes{{}}, 0, mad.StatusSANoRecords, 0xb000},
		"a switch is not a router": {routes{{Router: guid(f.Port(f.Switches[0].Node, 0))}}, 0, mad.StatusSAInvalidGID, 0},
	} {
		st := stateOf(t, f, "")
		st.PrefixRoutes = tt.routes
		w.s.SetState(0, st)
		r := mad.PathRecord{SGID: ib.MakeGID(f.Prefix, guid(cas[0])), DGID: ib.MakeGID(far, 0x1234), DLID: tt.dlid}
		mask := mad.CompPRSGID | mad.CompPRDGID
		if tt.dlid != 0 {
			mask |= mad.CompPRDLID
		}
		got, recs := w.ask(cas[0], 0, mad.MethodGet, mad.AttrPathRecord, mask, &r)
		if got != tt.st {
			t.Errorf("%s: status %#x, want %#x", name, uint16(got), uint16(tt.st))
		}
		if got != 0 || tt.st != 0 {
			continue
		}
		var a mad.PathRecord
		if err := a.Decode(recs[0]); err != nil {
			t.Fatal(err)
		}
		if a.DLID != f.Ports[tt.want].LID || a.DGID != r.DGID || a.HopLimit != 255 || a.SLID != f.Ports[cas[0]].LID {
			t.Errorf("%s: %+v, want the LID %v", name, a, f.Ports[tt.want].LID)
		}
	}
	// A path within the subnet has no hop limit, and its source is never of another subnet.
	in := mad.PathRecord{SGID: ib.MakeGID(f.Prefix, guid(cas[0])), DGID: ib.MakeGID(f.Prefix, guid(cas[1]))}
	_, recs := w.ask(cas[0], 0, mad.MethodGet, mad.AttrPathRecord, mad.CompPRSGID|mad.CompPRDGID, &in)
	var a mad.PathRecord
	if err := a.Decode(recs[0]); err != nil || a.HopLimit != 0 {
		t.Errorf("%+v %v", a, err)
	}
	// Nor is a link-local one, whatever the routes are.
	st := stateOf(t, f, "")
	st.PrefixRoutes = routes{{}, {Prefix: ib.DefaultPrefix + 1}}
	w.s.SetState(0, st)
	for prefix, want := range map[uint64]mad.Status{ib.DefaultPrefix + 1: mad.StatusSAInvalidGID, 0xfebf<<48 + 7: mad.StatusSAInvalidGID,
		0xfec0 << 48: 0} {
		in.DGID = ib.MakeGID(prefix, 0x1234)
		if st, _ := w.ask(cas[0], 0, mad.MethodGet, mad.AttrPathRecord, mad.CompPRSGID|mad.CompPRDGID, &in); st != want {
			t.Errorf("a path to %v: status %#x, want %#x", in.DGID, uint16(st), uint16(want))
		}
	}
	in.SGID = ib.MakeGID(far, 1)
	if st, _ := w.ask(cas[0], 0, mad.MethodGet, mad.AttrPathRecord, mad.CompPRSGID|mad.CompPRDGID, &in); st != mad.StatusSAInvalidGID {
		t.Errorf("a source of another subnet: %#x", uint16(st))
	}
	if got := MissingRouters(f, routes{{Prefix: far, Router: 0x99}, {}}); len(got) != 1 ||
		got[0] != "prefix route: prefix 0xfec0000000000009: 0x0000000000000099 is not a port of a router of the subnet" {
		t.Errorf("%q", got)
	}
	if got := MissingRouters(&fabric.Fabric{}, routes{{}}); len(got) != 1 || got[0] != "prefix route: any prefix: the subnet has no router" {
		t.Errorf("%q", got)
	}
}
