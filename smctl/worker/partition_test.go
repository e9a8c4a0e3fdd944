package worker

import (
	"slices"
	"testing"
	"testing/fstest"

	"ibnetworkd/smctl"
	"ibnetworkd/units"
)

// A Partition= line of a unit is one argument of the worker.
func TestPartitionLine(t *testing.T) {
	const line = "0x8001 Name=storage  Members=ALL,0x0002c903000abcde=limited MTU=4096 Rate=100Gb/s"
	load := func(text string) *units.Set {
		return units.Load([]units.Root{{Path: "/etc/systemd/network", FS: fstest.MapFS{
			"a.ibnetwork": {Data: []byte("[Match]\nName=ib*\n[SubnetManager]\nManage=auto\n" + text)}}}})
	}
	set := load("Partition=" + line + "\nPartition=2 IPoIB=no\n")
	if len(set.Problems) > 0 {
		t.Fatal(set.Problems)
	}
	opts := Options(smctl.PolicyOf(set.Units[0]))
	if !slices.Contains(opts, "--partition="+line) || !slices.Contains(opts, "--partition=2 IPoIB=no") {
		t.Fatalf("options %q", opts)
	}
	if set = load("Partition=0x8000\n"); len(set.Problems) != 1 {
		t.Errorf("a P_Key that is none: %v", set.Problems)
	}
}
