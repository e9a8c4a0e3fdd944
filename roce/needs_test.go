package roce

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ibnetworkd/internal/testkit"
	"ibnetworkd/link"
	"ibnetworkd/units"
)

// A recorded snapshot plans as the observed one does.
func TestRecorded(t *testing.T) {
	s, st := system()
	u := unit(t, "[RoCE]\nVersion=2\n")
	if got := run(s, nil, 2, u).ops; got != nil {
		t.Errorf("without a state: %v", got)
	}
	want := run(s, st, 2, u).ops
	text, err := json.Marshal(s)
	testkit.NoError(t, err)
	back := &link.Snapshot{}
	testkit.NoError(t, errors.Join(json.Unmarshal(text, back), back.Check()))
	if diff := cmp.Diff(want, run(back, back.Card, 2, u).ops); diff != "" || len(want) == 0 {
		t.Errorf("recorded (-want +got):\n%s", diff)
	}
}

func TestChanged(t *testing.T) {
	state := func(f func(*State)) *State {
		_, st := system()
		if f != nil {
			f(st)
		}
		return st
	}
	for name, tt := range map[string]struct {
		f     func(*State)
		links map[int]bool
		ports bool
	}{
		"OK nothing": {nil, map[int]bool{}, false},
		"OK one":     {func(s *State) { *s.Links[2].DCB.PFC = 1 }, map[int]bool{2: true}, false},
		"OK gone":    {func(s *State) { delete(s.Links, 3) }, map[int]bool{3: true}, false},
		"OK all":     {func(s *State) { s.Agents = []string{"lldpad"} }, map[int]bool{2: true, 3: true}, true},
	} {
		links, ports := Changed(state(nil), state(tt.f))
		if diff := cmp.Diff(tt.links, links); diff != "" || ports != tt.ports {
			t.Errorf("%s: ports %v (-want +got):\n%s", name, ports, diff)
		}
	}
	if links, ports := Changed(nil, state(nil)); len(links) != 2 || !ports {
		t.Errorf("from nothing: %v, %v", links, ports)
	}
}

// What a unit asks for is read, and nothing else; each section makes the planner
// read the cards.
func TestNeeds(t *testing.T) {
	for text, want := range map[string]Needs{
		"":                                       {},
		"[Network]\nAddress=10.0.0.1/24\n":       {},
		"[Port]\nType=eth\n":                     {Sections: true, PortType: true},
		"[Port]\nNodeDescription=x\n":            {Sections: true, NodeDesc: true},
		"[RoCE]\nVersion=2\n":                    {Sections: true, Defaults: true},
		"[RoCE]\nDSCP=26\nPriority=3\n":          {Sections: true, Defaults: true, DCB: true},
		"[RoCE]\nPFC=3\nWriteModprobeFile=yes\n": {Sections: true, DCB: true, Modprobe: true},
		"[RoCE]\nECN=3\n":                        {Sections: true, ECN: true},
		"[SoftRoCE]\n":                           {Sections: true, Soft: true},
		"[VLAN]\nId=7\n":                         {Sections: true},
		"[VF]\nVirtualFunction=0\nTrust=yes\n":   {Sections: true, Functions: true},
		"[VirtualFunctions]\nCount=2\n":          {Sections: true, Functions: true},
	} {
		u := unit(t, text)
		if diff := cmp.Diff(want, NeedsOf(u)); diff != "" {
			t.Errorf("%q (-want +got):\n%s", text, diff)
		}
		if got := NeedsCards(nil, []*units.Unit{u}); got != want.Sections {
			t.Errorf("%q: NeedsCards %v", text, got)
		}
	}
	s, _ := system()
	if !NeedsCards(s, nil) {
		t.Error("the GIDs of an Ethernet port are not read")
	}
}
