package daemon

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"ibnetworkd/internal/testkit"
	"ibnetworkd/link"
	"ibnetworkd/units"
)

// A network namespace that a unit names is watched, also before its directory exists.
func TestNamespaceIsWatched(t *testing.T) {
	root, dir := unitDir(t)
	testkit.WriteFile(t, filepath.Join(dir, "10.ibnetwork"), "[Match]\nName=ib0\n[Partition]\nPartitionKey=1\nNetworkNamespace=job\n")
	dirs := NewUnitDirs(root)
	dirs.Load()
	woken := make(chan struct{}, 9)
	watchUnits(t, dirs, func() { woken <- struct{}{} })
	ns := filepath.Join(root, units.NamespaceDir, "job")
	testkit.WriteFile(t, ns, "")
	for _, what := range []string{"comes", "goes"} {
		select {
		case <-woken:
		case <-time.After(20 * time.Second):
			t.Fatalf("no event of a namespace that %s", what)
		}
		_ = os.Remove(ns)
	}
}

// A table is read with the units, watched wherever it is, also before it exists and
// behind a link, and an edit of it is one that waits where edits do.
func TestAddressTableIsWatched(t *testing.T) {
	root, dir := unitDir(t)
	table := filepath.Join(root, "etc/ibnetworkd/addresses")
	testkit.WriteFile(t, filepath.Join(dir, "10.ibnetwork"), "[Match]\nName=ib0\n[Network]\nAddressTable=/etc/ibnetworkd/addresses\n")
	dirs := NewUnitDirs(root)
	set := dirs.Load()
	woken := make(chan struct{}, 1)
	watchUnits(t, dirs, func() {
		select {
		case woken <- struct{}{}:
		default:
		}
	})
	if len(set.Problems) != 1 {
		t.Errorf("%v", set.Problems)
	}
	next := func(what, want string) {
		t.Helper()
		select {
		case <-woken:
		case <-time.After(20 * time.Second):
			t.Fatalf("%s: no event", what)
		}
		for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(20 * time.Millisecond) {
			was := set
			set = dirs.Load()
			out, _ := set.Units[0].AddressesOn(&units.Origins{Hostname: "n1", Tables: set.Tables})
			if len(out) == 1 && out[0].Address.V.String() == want {
				if units.Diff(was, set).Empty() {
					t.Errorf("%s: no change", what)
				}
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("%s: %v, %v", what, out, set.Problems)
			}
		}
	}
	testkit.WriteFile(t, table, "n1 10.0.0.1/24\n")
	next("a table that comes", "10.0.0.1/24")
	testkit.WriteFile(t, table+".new", "n1 10.0.0.2/24\n")
	testkit.NoError(t, os.Rename(table+".new", table))
	next("a table in its place", "10.0.0.2/24")
	other := filepath.Join(root, "srv/addresses")
	testkit.WriteFile(t, other, "n1 10.0.0.3/24\n")
	testkit.NoError(t, os.Remove(table))
	testkit.NoError(t, os.Symlink("/srv/addresses", table))
	next("a link", "10.0.0.3/24")
	testkit.WriteFile(t, other, "n1 10.0.0.4/24\n")
	next("the file behind a link", "10.0.0.4/24")

	said := 0
	edits := NewEdits(dirs, func(n ...link.Notice) { said = len(n) })
	testkit.WriteFile(t, other, "n1 10.0.0.5/24\n")
	select {
	case <-woken:
	case <-time.After(20 * time.Second):
		t.Fatal("no event")
	}
	if edits.Units(); said != 1 {
		t.Errorf("%d notices of an edit that waits", said)
	}
	testkit.WriteFile(t, other, "n1 10.0.0.4/24\n")
	if edits.Units(); said != 0 {
		t.Errorf("%d notices of an edit taken back", said)
	}
}
