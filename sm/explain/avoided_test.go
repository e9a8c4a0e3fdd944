package explain

import (
	"strings"
	"testing"

	"ibnetworkd/ib"
	"ibnetworkd/lab/gen"
	"ibnetworkd/sm/fabric"
)

// Ports that would lead nearer but for a drained switch are named as such, beside it and on it.
func TestDrainedIsNamed(t *testing.T) {
	f := gen.HyperX([]int{4, 4}, 2)
	r := compute(t, f, Options{})
	for _, h := range path(t, r, "H-00001", "H-00012").Hops {
		if strings.Contains(h.Why, "drained") {
			t.Errorf("without a drained switch: %s", h.Why)
		}
	}
	r = compute(t, f, Options{Drained: []ib.GUID{f.Nodes[f.Switches[1].Node].GUID}})
	for from, want := range map[string][]string{
		"H-00001": {"", "; port 3 would lead nearer if no switch were drained", "", ""},
		"H-00003": {"", "; port 6 would lead nearer if no switch were drained", "; port 3 would lead nearer if no switch were drained", "", ""},
	} {
		hops := path(t, r, from, "H-00012").Hops
		if len(hops) != len(want) {
			t.Fatalf("%s: %d hops", from, len(hops))
		}
		for i, h := range hops {
			if !strings.HasSuffix(h.Why, want[i]) || want[i] == "" && strings.Contains(h.Why, "drained") {
				t.Errorf("%s: %s: %q", from, r.Fabric.PortName(h.Out), h.Why)
			}
		}
	}
}

// A path to a further LID of a port that the engine would not take has its reason.
func TestFurtherLIDs(t *testing.T) {
	lmc := ib.LMC(1)
	r := compute(t, gen.Torus([]int{6, 6}, 1), Options{LMC: &lmc})
	reasons := 0
	for _, a := range r.Fabric.EndPorts {
		for _, b := range r.Fabric.EndPorts {
			if s, _ := r.Fabric.SwitchOf(a); a == b || s == fabric.None || r.Fabric.Ports[b].LMC == 0 {
				continue
			}
			for l := range ib.LID(2) {
				for _, h := range r.Path(a, r.Fabric.Ports[a].LID, b, r.Fabric.Ports[b].LID+l, 0).Hops {
					switch further := strings.Contains(h.Why, "paths to the LIDs of a port have fewer switches in common this way"); {
					case further && l == 0, strings.Contains(h.Why, "not among") && !further:
						t.Fatalf("LID %d: %q", r.Fabric.Ports[b].LID+l, h.Why)
					case further:
						reasons++
					}
				}
			}
		}
	}
	if reasons == 0 {
		t.Error("no path is one that the engine would not take")
	}
}
