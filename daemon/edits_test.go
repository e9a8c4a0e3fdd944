package daemon

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"ibnetworkd/internal/testkit"
	"ibnetworkd/link"
)

// What waits for a reload is what differs from the last load, whenever it is asked: a
// reload before the event of an edit has come, an edit taken back and a file that no
// load reads leave nothing behind.
func TestEdits(t *testing.T) {
	root, dir := unitDir(t)
	main := filepath.Join(dir, "10.ibnetwork")
	testkit.WriteFile(t, main, unit0)
	dirs := NewUnitDirs(root)
	dirs.SetWatching(nil)
	dirs.Load()
	said := ""
	edits := NewEdits(dirs, func(n ...link.Notice) {
		said = ""
		for _, x := range n {
			said += x.Text
		}
	})
	touch := func(path, text string) {
		t.Helper()
		if text == "" {
			testkit.NoError(t, os.Remove(path))
		} else {
			testkit.WriteFile(t, path, text)
		}
		dirs.MarkChanged(path)
		edits.Units()
	}
	check := func(what string, want ...string) {
		t.Helper()
		for _, w := range want {
			if !strings.Contains(said, w) {
				t.Errorf("%s: %q, want %q", what, said, w)
			}
		}
		if len(want) == 0 && said != "" {
			t.Errorf("%s: %q", what, said)
		}
	}
	edited := strings.Replace(unit0, "10.0.0.1", "10.0.0.2", 1)
	touch(main, edited)
	check("an edit", "edits wait for a reload: "+main)
	touch(main, unit0)
	check("an edit taken back")
	touch(filepath.Join(dir, "x.txt"), "x")
	check("a file that is none of ours")
	touch(main, edited)
	dirs.Load()
	edits.Units()
	check("a reload")
	edits.Units() // the event of the edit comes late
	check("an event after the reload")
	touch(filepath.Join(dir, "10.ibnetwork.d/a.conf"), "[Link]\nMTUBytes=2000\n")
	check("a drop-in", "a.conf")
	edits.Files([]string{"/etc/p.conf"})
	check("another file too", "a.conf, /etc/p.conf")
	touch(filepath.Join(dir, "10.ibnetwork.d/a.conf"), "")
	check("the drop-in is removed", "reload: /etc/p.conf")
	edits.Files(nil)
	check("nothing waits")
	testkit.NoError(t, os.Remove(main))
	testkit.NoError(t, os.Symlink("/dev/null", main))
	dirs.MarkChanged(main)
	edits.Units()
	check("a mask", main)
	dirs.Load()
	touch(main, "")
	check("a mask of nothing is removed", main)
	if set := dirs.Load(); len(set.Units) != 0 {
		t.Errorf("%+v", set)
	}
}
