package worker

import (
	"slices"
	"testing"
	"testing/fstest"

	"ibnetworkd/sm/partition"
	"ibnetworkd/smctl"
	"ibnetworkd/units"
)

// A Partition= line of a unit reaches the worker's command line in a form that
// systemd does not cut up and that means the same.
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
	i := slices.Index(opts, "--partition=0x8001;Name=storage;Members=ALL,0x0002c903000abcde=limited;MTU=4096;Rate=100Gb/s")
	if i < 0 || !slices.Contains(opts, "--partition=2;IPoIB=no") {
		t.Fatalf("options %q", opts)
	}
	a, err := partition.ParseRule(line)
	if err != nil {
		t.Fatal(err)
	}
	b, err := partition.ParseRule(opts[i][len("--partition="):])
	if err != nil || a.PKey != b.PKey || a.Name != b.Name || a.Params != b.Params || !slices.Equal(a.Members, b.Members) {
		t.Errorf("%+v became %+v, %v", a, b, err)
	}
	if set = load("Partition=0x8000\n"); len(set.Problems) != 1 {
		t.Errorf("a P_Key that is none: %v", set.Problems)
	}
}
