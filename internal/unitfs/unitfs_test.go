package unitfs

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"ibnetworkd/internal/testkit"
	"ibnetworkd/units"
)

var _ units.MaskFS = (*Dir)(nil)

// TestRoot lays links out below a root: none leaves it, and those to /dev/null are
// masks, over whatever chain.
func TestRoot(t *testing.T) {
	const dir = "/etc/systemd/network"
	root := t.TempDir()
	outside := filepath.Join(t.TempDir(), "outside")
	testkit.WriteFile(t, outside, "[Match]\nName=outside\n")
	at := func(p string) string { return filepath.Join(root, p) }
	for _, d := range []string{dir, "/nix/store/x", "/srv"} {
		testkit.NoError(t, os.MkdirAll(at(d), 0o755))
	}
	testkit.WriteFile(t, at("/srv/good"), "[Match]\nName=inside\n")
	for name, target := range map[string]string{
		"/etc/static":           "/nix/store/x",
		"/nix/store/x/masked":   "/dev/null",
		"/nix/store/x/good":     "../../../srv/good",
		dir + "/10.ibnetwork":   "/srv/good",
		dir + "/11.ibnetwork":   "/etc/static/good",
		dir + "/12.ibnetwork":   "../../../../../../../../../../srv/good",
		dir + "/20.ibnetwork":   "/dev/null",
		dir + "/21.ibnetwork":   "/etc/static/masked",
		dir + "/22.ibnetwork":   "../../../dev/null",
		dir + "/23.ibnetwork":   "21.ibnetwork",
		dir + "/30.ibnetwork":   outside,
		dir + "/31.ibnetwork":   "31.ibnetwork",
		dir + "/32.ibnetwork":   "nothing",
		dir + "/.hidden":        "/srv/good",
		"/run/systemd":          "/etc/systemd",
		"/usr/lib/systemd":      outside + "/..",
		"/usr/local/lib/broken": "x",
	} {
		testkit.WriteFile(t, at(name), "->"+target)
	}
	testkit.NoError(t, unix.Mkfifo(at(dir+"/40.ibnetwork"), 0o644))
	var roots []units.Root
	for _, d := range units.Dirs {
		roots = append(roots, units.Root{Path: d, FS: New(root, d)})
	}
	loaded := make(chan *units.Set, 1)
	go func() { loaded <- units.Load(roots) }()
	var set *units.Set
	select {
	case set = <-loaded:
	case <-time.After(10 * time.Second):
		t.Fatal("a pipe is waited for")
	}
	want := map[string]string{"10": "inside", "11": "inside", "12": "inside"}
	for _, u := range set.Units {
		name := u.Name[:2]
		if want[name] != u.Match.Name[0].V.Glob {
			t.Errorf("%s matches %s", name, u.Match.Name[0].V.Glob)
		}
		delete(want, name)
	}
	masked := map[string]bool{"20": true, "21": true, "22": true, "23": true}
	for _, s := range set.Skipped {
		if s.Masked {
			delete(masked, s.Name[:2])
		}
	}
	bad := map[string]bool{"30": true, "31": true, "32": true, "40": true}
	for _, p := range set.Problems {
		delete(bad, filepath.Base(p.Pos.File)[:2])
	}
	if len(want)+len(masked)+len(bad) > 0 {
		t.Errorf("missing: units %v, masks %v, problems %v; problems %v", want, masked, bad, set.Problems)
	}
}

// The system's own root is followed as the kernel does, and no name goes up.
func TestOpen(t *testing.T) {
	d := New("/", t.TempDir())
	if _, err := d.Open("nothing"); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	if _, err := d.Open("../x"); !errors.Is(err, fs.ErrInvalid) {
		t.Error(err)
	}
	if _, err := New("/", "/etc/passwd").ReadDir("."); err == nil {
		t.Error("a file was read as a directory")
	}
	if _, err := New("/", "/etc/passwd/x").ReadDir("."); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	null, err := New("/", "/dev").Masked("null")
	if err != nil || !null {
		t.Error(null, err)
	}
	f, err := New("/", "/dev").Open("zero")
	testkit.NoError(t, err)
	if st, err := f.Stat(); err != nil || st.Mode().IsRegular() {
		t.Error(st, err)
	}
	if n, err := f.Read(make([]byte, 1)); n > 0 || err == nil {
		t.Error("a device was read")
	}
}
