package worker

import (
	"strings"
	"testing"
	"testing/fstest"

	"ibnetworkd/smctl"
	"ibnetworkd/units"
)

// A Partition= line of a unit is one line of the worker's settings.
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
	got := smctl.Settings(smctl.PolicyOf(set.Units[0]))
	if !strings.Contains(got, "\nPartition="+line+"\n") || !strings.Contains(got, "\nPartition=2 IPoIB=no\n") {
		t.Fatalf("settings %q", got)
	}
	if set = load("Partition=0x8000\n"); len(set.Problems) != 1 {
		t.Errorf("a P_Key that is none: %v", set.Problems)
	}
}
