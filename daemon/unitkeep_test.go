package daemon

import (
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"ibnetworkd/internal/testkit"
	"ibnetworkd/link"
	"ibnetworkd/units"
)

// unitDir makes the first unit directory below a new root.
func unitDir(t *testing.T) (root, dir string) {
	t.Helper()
	root = t.TempDir()
	dir = filepath.Join(root, units.Dirs[0])
	testkit.NoError(t, os.MkdirAll(dir, 0o755))
	return root, dir
}

// noDescriptors lets the process open nothing until the returned function runs.
func noDescriptors(t *testing.T) (again func()) {
	t.Helper()
	var old unix.Rlimit
	testkit.NoError(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &old))
	testkit.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 0, Max: old.Max}))
	again = func() { _ = unix.Setrlimit(unix.RLIMIT_NOFILE, &old) }
	t.Cleanup(again)
	return again
}

// With a full descriptor table no unit is removed, what the daemon made stays, and
// an edit is applied as soon as the files can be read again, without an event.
func TestFullDescriptorTable(t *testing.T) {
	root, dir := unitDir(t)
	main := filepath.Join(dir, "10.ibnetwork")
	testkit.WriteFile(t, main, unit0)
	testkit.WriteFile(t, filepath.Join(dir, "10.ibnetwork.d", "a.conf"), "[Network]\nAddress=10.0.1.1/24\n")
	synctest.Test(t, func(t *testing.T) {
		dirs := NewUnitDirs(root)
		sys := system(t, 1)
		r := launchLoad(t, sys, &notes{}, nil, dirs.Load)
		sys.take()
		testkit.WriteFile(t, main, strings.ReplaceAll(unit0, "10.0.0.1/24", "10.0.0.2/24"))
		again := noDescriptors(t)
		for range 3 {
			testkit.NoError(t, r.Reload(t.Context()))
			time.Sleep(10 * time.Minute)
		}
		synctest.Wait()
		if ops := sys.take(); len(ops) > 0 {
			t.Errorf("ops: %q", ops)
		}
		rep := r.Report()
		if !slices.ContainsFunc(rep.Problems, func(p string) bool {
			return strings.Contains(p,
				"the directory cannot be read: too many open files")
		}) {
			t.Errorf("problems: %q", rep.Problems)
		}
		again()
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if got := strings.Join(sys.take(), "\n"); got != "ip address delete 10.0.0.1/24 dev ib0\n"+
			"ip address add 10.0.0.2/24 broadcast 10.0.0.255 dev ib0" {
			t.Errorf("ops afterwards: %s", got)
		}
		if rep := r.Report(); len(rep.Problems) > 0 {
			t.Errorf("problems afterwards: %q", rep.Problems)
		}
		r.stop()
		// Four directories and one of drop-ins: each once, and once that it is gone.
		if n := strings.Count(r.log.String(), "directory cannot be read"); n != 10 {
			t.Errorf("logged %d times:\n%s", n, r.log)
		}
	})
}

// A file that may be half written is applied once it has not changed for a while,
// without an event; the status says so until then.
func TestHalfWrittenUnit(t *testing.T) {
	root, dir := unitDir(t)
	main := filepath.Join(dir, "10.ibnetwork")
	testkit.WriteFile(t, main, unit0+"\n")
	synctest.Test(t, func(t *testing.T) {
		dirs := NewUnitDirs(root)
		sys := system(t, 1)
		r := launchLoad(t, sys, &notes{}, nil, dirs.Load)
		sys.take()
		edited := strings.ReplaceAll(unit0, "10.0.0.1/24", "10.0.0.2/24")
		testkit.WriteFile(t, main, strings.TrimRight(edited, "\n"))
		r.Wake(Scope{Reload: true})
		time.Sleep(units.SettleTime - time.Second)
		synctest.Wait()
		if ops, st := sys.take(), r.link("ib0"); len(ops) > 0 || len(st.Problems) != 1 ||
			!strings.Contains(st.Problems[0], "may be half written") {
			t.Errorf("ops %q, problems %q", ops, st.Problems)
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		r.stop()
		if got, st := strings.Join(sys.take(), "\n"), r.link("ib0"); !strings.Contains(got, "add 10.0.0.2/24") || len(st.Problems) > 0 {
			t.Errorf("ops %s, problems %q", got, st.Problems)
		}
	})
}

// A unit file that is dropped in and refused is in the log once and in the report,
// as is one of a unit in force that breaks, which takes nothing from its link.
func TestProblemsAreReported(t *testing.T) {
	root, dir := unitDir(t)
	main, bad := filepath.Join(dir, "10.ibnetwork"), filepath.Join(dir, "20.ibnetwork")
	testkit.WriteFile(t, main, unit0)
	synctest.Test(t, func(t *testing.T) {
		dirs := NewUnitDirs(root)
		sys := system(t, 1)
		r := launchLoad(t, sys, &notes{}, nil, dirs.Load)
		changes, cancel := r.Subscribe()
		reload := func(want ...string) {
			t.Helper()
			testkit.NoError(t, r.Reload(t.Context()))
			got := r.Report().Problems
			ok := len(got) == len(want)
			for i := range got {
				ok = ok && strings.Contains(got[i], want[i])
			}
			if !ok {
				t.Errorf("problems %q, not %q", got, want)
			}
		}
		sys.take()
		const nmae = `unknown key "Nmae"`
		testkit.WriteFile(t, bad, "[Match]\nNmae=ib0\n")
		reload(nmae)
		if c := <-changes; !c.Reloaded || len(c.Problems) != 1 {
			t.Errorf("change %+v", c)
		}
		testkit.WriteFile(t, filepath.Join(dir, "30.ibnetwork"), "[Match]\nName=ib9\n")
		reload(nmae)
		testkit.WriteFile(t, main, strings.Replace(unit0, "[Match]", "[Mtch]", 1))
		reload("unknown section [Mtch]; the last good version of the unit stays in force", nmae)
		testkit.WriteFile(t, main, "")
		reload("the file is empty now", nmae)
		st := r.link("ib0")
		if st.State != link.StateConfigured || len(st.Problems) != 1 || !strings.Contains(st.Problems[0], "the last good version") {
			t.Errorf("ib0: %s, problems %q", st.State, st.Problems)
		}
		if ops := sys.take(); len(ops) > 0 {
			t.Errorf("ops: %q", ops)
		}
		testkit.WriteFile(t, main, unit0)
		testkit.WriteFile(t, bad, "[Match]\nName=ib8\n")
		reload()
		if st := r.link("ib0"); len(st.Problems) > 0 {
			t.Errorf("ib0 still has %q", st.Problems)
		}
		synctest.Wait()
		log := r.log.String()
		if n := strings.Count(log, "Nmae"); n != 2 || strings.Count(log, "gone: ") != 3 {
			t.Errorf("logged %d times:\n%s", n, log)
		}
		// What people filter by: the link, its unit and port, and the line of a mistake.
		for _, want := range []string{"link=ib0 old=new new=configured/routable unit=" + main + " RDMA_PORT=mlx5_000/1",
			"CONFIG_FILE=" + bad + " CONFIG_LINE=2"} {
			if !strings.Contains(log, want) {
				t.Errorf("the log lacks %q:\n%s", want, log)
			}
		}
		testkit.NoError(t, os.Remove(main))
		reload()
		if ops := strings.Join(sys.take(), "\n"); !strings.Contains(ops, "ip address delete 10.0.0.1/24 dev ib0") {
			t.Errorf("a removed unit: %s", ops)
		}
		cancel()
		for range changes {
		}
		r.stop()
	})
}

// A restart while a file is broken knows its last good version; a removed file has
// none, and a file that was never good neither.
func TestLastGoodOverRestart(t *testing.T) {
	root, dir := unitDir(t)
	state := filepath.Join(t.TempDir(), UnitCopies)
	main := filepath.Join(dir, "10.ibnetwork")
	drop := filepath.Join(dir, "10.ibnetwork.d", "a.conf")
	start := func() (*UnitDirs, *units.Set) {
		u := NewUnitDirs(root)
		u.KeepCopies(state, slog.New(slog.DiscardHandler))
		return u, u.Load()
	}
	testkit.WriteFile(t, main, unit0)
	testkit.WriteFile(t, drop, "[Network]\nAddress=10.0.1.1/24\n")
	testkit.WriteFile(t, filepath.Join(dir, "20.ibnetwork"), "[Match]\nName=ib9\n")
	testkit.WriteFile(t, filepath.Join(dir, "30.ibnetwork"), "[Match")
	u, good := start()
	if len(good.Units) != 2 {
		t.Fatalf("%+v", good)
	}
	testkit.WriteFile(t, main, "")
	testkit.WriteFile(t, drop, "[Netw")
	testkit.WriteFile(t, filepath.Join(dir, "30.ibnetwork"), "[Matc")
	testkit.NoError(t, os.Remove(filepath.Join(dir, "20.ibnetwork")))
	for _, first := range []bool{true, false, false} {
		set := u.Load()
		if !first {
			u, set = start()
		}
		k := set.Unit("10")
		if len(set.Units) != 1 || k == nil || !k.Kept || len(k.Addresses) != 2 || len(set.Problems) != 3 {
			t.Fatalf("%+v", set)
		}
	}
	if _, err := os.Stat(filepath.Join(state, units.Dirs[0], "20.ibnetwork")); err == nil {
		t.Error("the copy of a removed unit is still there")
	}
	testkit.WriteFile(t, main, unit0)
	testkit.WriteFile(t, drop, "[Network]\nAddress=10.0.2.1/24\n")
	if _, set := start(); len(set.Units) != 1 || set.Unit("10").Kept || set.Unit("10").Addresses[1].Address.V.String() != "10.0.2.1/24" {
		t.Errorf("%+v", set)
	}
	// A state directory that cannot be written stops nothing.
	testkit.WriteFile(t, filepath.Join(root, "file"), "")
	u = NewUnitDirs(root)
	u.KeepCopies(filepath.Join(root, "file", "x"), slog.New(slog.DiscardHandler))
	if set := u.Load(); len(set.Units) != 1 {
		t.Errorf("%+v", set)
	}
}

// A pipe that takes a file's place is not waited for, whichever call meets it.
func TestPipeInPlace(t *testing.T) {
	root, dir := unitDir(t)
	p := filepath.Join(dir, "10.ibnetwork")
	testkit.WriteFile(t, p, unit0)
	u := NewUnitDirs(root)
	u.Load()
	testkit.NoError(t, os.Remove(p))
	testkit.NoError(t, unix.Mkfifo(p, 0o644))
	done := make(chan *units.Set, 1)
	go func() {
		u.MarkChanged(p)
		set := u.Load()
		// As if stat had still seen the file.
		if _, err := (&unitFS{u: u, dir: dir, regular: map[string]bool{"10.ibnetwork": true}}).Open("10.ibnetwork"); err != nil {
			t.Error(err)
		}
		done <- set
	}()
	select {
	case set := <-done:
		if k := set.Unit("10"); k == nil || !k.Kept {
			t.Errorf("%+v", set)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("it hangs")
	}
}
