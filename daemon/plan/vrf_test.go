package plan_test

import (
	"fmt"
	"strings"
	"testing"

	"ibnetworkd/ib"
	"ibnetworkd/link"
	"ibnetworkd/units"
)

// Units that name VRFs and their tables, also one VRF with two tables and one table for two VRFs, take one plan from each
// state to each other: where two contradict each other, one of them is refused.
func TestVRFTables(t *testing.T) {
	kinds := []string{"", "[Network]\nVRF=blue\n", "[VRF]\nName=blue\nTable=5\n", "[VRF]\nName=blue\nTable=7\n", "[VRF]\nName=red\nTable=5\n"}
	every := 7 // of 62,500; both are prime, so that each kind of unit takes part
	if testing.Short() {
		every = 43
	}
	sets := map[string]*units.Set{}
	var all []string
	for a := range kinds {
		for b := range kinds {
			for c := range kinds {
				name := fmt.Sprint(a, b, c)
				all = append(all, name)
				sets[name] = load(t, map[string]string{"10.ibnetwork": "[Match]\nName=ib0\n" + kinds[a],
					"20.ibnetwork": "[Match]\nName=ib1\n" + kinds[b], "30.ibnetwork": "[Match]\nName=ib2\n" + kinds[c]})
			}
		}
	}
	for _, foreign := range []string{"", "VRF", "bridge of ib0", "bridge of ib1"} {
		for i, from := range all {
			for k, to := range all {
				if (i*len(all)+k)%every != 0 {
					continue
				}
				s := oneLink(t)
				if foreign == "VRF" {
					s.Links = append(s.Links, otherVRF())
				}
				for n, name := range []string{"ib1", "ib2"} {
					p, x := s.Devices[0].Ports[0], s.Links[0]
					p.Num, p.GUID = n+2, p.GUID+ib.GUID(n+1)
					x.Index, x.Name, x.Port = 10+n, name, p.Num
					s.Devices[0].Ports, s.Links = append(s.Devices[0].Ports, p), append(s.Links, x)
				}
				if port, busy := strings.CutPrefix(foreign, "bridge of "); busy {
					l, _ := s.LinkByName(port)
					l.Master = 20
					s.Links = append(s.Links, link.Link{Index: 20, Name: "br0", Type: 1, Kind: "bridge"})
				}
				w := &world{m: link.NewModel(s), rec: &link.Record{}}
				w.m.Truth = &link.Truth{AdapterMTU: 4092, ConnectedMTU: 65520, Asked: map[int]int{}}
				t.Run(fmt.Sprintf("%s to %s, foreign %s", from, to, foreign), func(t *testing.T) {
					w.m.Settle()
					w.settle(t, sets[from], map[string]link.Reason{})
					w.settle(t, sets[to], map[string]link.Reason{})
					w.narrow(t, sets[to], map[string]link.Reason{})
				})
			}
		}
	}
}
