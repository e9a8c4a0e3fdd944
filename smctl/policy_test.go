package smctl

import (
	"cmp"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"ibnetworkd/units"
)

// Each key of [SubnetManager] reaches the policy, and each that is not about when to
// start and stop one reaches the settings of the subnet manager.
func TestPolicyOfEveryKey(t *testing.T) {
	of := func(line string) Policy {
		t.Helper()
		set := units.Load([]units.Root{{Path: "/etc/systemd/network", FS: fstest.MapFS{"a.ibnetwork": {
			Data: []byte("[Match]\nName=ib0\n[SubnetManager]\nX-Nothing=1\n" + line + "\n"), Mode: 0o644}}}})
		if len(set.Problems) > 0 {
			t.Fatalf("%s: %v", line, set.Problems)
		}
		return PolicyOf(set.Units[0])
	}
	ours := []string{"Manage", "Engine", "StartDelaySec", "StopWhenForeignMaster", "StopDelaySec"}
	// Of keys whose example is the default.
	other := map[string]string{"StartDelaySec": "7s", "StopDelaySec": "7s", "LMC": "3"}
	none := of("")
	n := 0
	for _, s := range units.Schema() {
		if s.Name != "SubnetManager" {
			continue
		}
		for _, k := range s.Keys {
			n++
			reaches, line := false, false
			for _, v := range append(k.Values, cmp.Or(other[k.Name], k.Example)) {
				p := of(k.Name + "=" + v)
				reaches = reaches || !reflect.DeepEqual(p, none)
				line = line || Settings(p) != Settings(none) && strings.Contains("\n"+Settings(p), "\n"+k.Name+"=")
			}
			if !reaches {
				t.Errorf("%s= has no effect", k.Name)
			}
			if line == slices.Contains(ours, k.Name) {
				t.Errorf("%s= is in the settings of the subnet manager: %v", k.Name, line)
			}
		}
	}
	if n < 20 {
		t.Errorf("%d keys", n)
	}
}
