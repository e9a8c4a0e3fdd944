package dump

import (
	"bytes"
	"strings"
	"testing"

	"ibnetworkd/internal/testkit"
	"ibnetworkd/lab/gen"
	"ibnetworkd/sm/fabric"
	"ibnetworkd/sm/lid"
	"ibnetworkd/sm/mcast"
	"ibnetworkd/sm/route"
)

// ring has six switches, each with one host.
func ring(t testing.TB) (*fabric.Fabric, [][]uint8) {
	t.Helper()
	f := lid.Assign(gen.Ring(6, 1), nil, lid.Options{LMC: 1}).Fabric
	r, err := route.Build(f, route.Options{Engine: route.UpDown})
	testkit.NoError(t, err)
	return f, r.LFT
}

// The contents of opensm's own files are compared in lab/smbench; here is what a
// healthy fabric does not show.
func TestOddTables(t *testing.T) {
	f, lft := ring(t)
	text := func() (lfts, fdbs string) {
		var a, b bytes.Buffer
		testkit.NoError(t, LFTs(&a, f, lft))
		testkit.NoError(t, FDBs(&b, f, lft))
		return a.String(), b.String()
	}
	_, fdbs := text()
	if !strings.Contains(fdbs, "possible via port") || strings.Contains(fdbs, "UNREACHABLE\n0x0002") || strings.Count(fdbs, "Switch 0x") != 6 {
		t.Errorf("up/down on a ring has a way that is not the shortest:\n%s", fdbs)
	}
	host := f.Ports[f.EndPorts[0]].LID
	lft[3][host] = route.NoPort
	lft[4] = nil
	lft[5] = lft[5][:3]
	f.Ports[f.EndPorts[1]].LID = 0
	lft[1][host] = 1
	f.Ports[f.Port(f.Switches[1].Node, 1)].Peer = fabric.None
	lfts, fdbs := text()
	for _, want := range []string{"0x0004 001 # unknown node and type\n",
		"Unicast lids [0-18] of switch Lid 1 guid 0x0002c90000f00000 ('S-0001'):\n",
		"0x0002 003 # Channel Adapter portguid 0x0002c90000100001: 'H-00001'\n"} {
		if !strings.Contains(lfts, want) {
			t.Errorf("no %q in\n%s", want, lfts)
		}
	}
	if strings.Count(lfts, "Unicast lids") != 5 || strings.Count(fdbs, "dump_ucast_routes") != 5 ||
		!strings.Contains(fdbs, "0x0004 : UNREACHABLE\n") ||
		!strings.Contains(fdbs, "0x0002 : 001  : 256   : No ") {
		t.Errorf("%s\n%s", lfts, fdbs)
	}
}

func TestGroupsAndLIDs(t *testing.T) {
	f, _ := ring(t)
	var b bytes.Buffer
	var s mcast.PortSet
	s.Add(0)
	s.Add(17)
	s.Add(200)
	testkit.NoError(t, MFTs(&b, f, mcast.Tables{nil, {{MLID: 0xc001, Ports: s}, {MLID: 0xc002}}}))
	if want := "\nSwitch 0x0002c90000f00001\nLID    : Out Port(s)\n0xC001 : 0x000  0x011  0x0C8 \n"; b.String() != want {
		t.Errorf("%q, want %q", b.String(), want)
	}
	b.Reset()
	f.Ports[f.EndPorts[1]].LID = 0
	testkit.NoError(t, GUID2LID(&b, f))
	if l := strings.Split(b.String(), "\n\n"); len(l) != 12 || l[0] != "0x0002c90000100001 0x0002 0x0003" || l[11] != "" {
		t.Errorf("%q", l)
	}
}
