package units

import (
	"fmt"
	"runtime"
	"testing"
	"testing/fstest"
)

// A host with hundreds of links has a unit for each.
func TestMemoryOfUnits(t *testing.T) {
	const units = 500
	m := fstest.MapFS{}
	for i := range units {
		m[fmt.Sprintf("10-%03d.ibnetwork", i)] = &fstest.MapFile{Data: fmt.Appendf(nil,
			"[Match]\nName=ib%d\n[IPoIB]\nMode=datagram\n[Network]\nAddress=10.%d.%d.1/24\nIPv6AcceptRA=no\n", i, i>>8, i&255)}
	}
	used := func() uint64 {
		runtime.GC()
		runtime.GC() // what is freed after the first, such as the pools
		var s runtime.MemStats
		runtime.ReadMemStats(&s)
		return s.HeapAlloc
	}
	before := used()
	set := Load([]Root{{Path: "/etc/systemd/network", FS: m}})
	each := (used() - before) / units
	t.Logf("%d bytes for each unit", each)
	if len(set.Units) != units || len(set.Problems) > 0 {
		t.Fatalf("%d units, %v", len(set.Units), set.Problems)
	}
	if each > 6<<10 {
		t.Errorf("%d bytes for each unit, want at most 6 KiB", each)
	}
}
