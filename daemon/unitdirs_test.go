package daemon

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ibnetworkd/internal/testkit"
	"ibnetworkd/units"
)

// TestUnitDirs edits unit directories at random and compares what UnitDirs gives
// with what a fresh reader gives: with a watch, and without.
func TestUnitDirs(t *testing.T) {
	for _, watched := range []bool{false, true} {
		t.Run(fmt.Sprintf("watched %v", watched), func(t *testing.T) {
			root := t.TempDir()
			var dirs []string
			for _, d := range units.Dirs {
				dirs = append(dirs, filepath.Join(root, d), filepath.Join(root, d, "1.ibnetwork.d"))
			}
			u := NewUnitDirs(root)
			if watched {
				u.SetWatching(nil)
			}
			r := rand.New(rand.NewPCG(1, 2))
			for n := range 400 {
				dir := dirs[r.IntN(len(dirs))]
				testkit.NoError(t, os.MkdirAll(dir, 0o755))
				name := fmt.Sprintf("%d.ibnetwork", r.IntN(4))
				if filepath.Ext(dir) == ".d" {
					name = fmt.Sprintf("%d.conf", r.IntN(3))
				}
				p := filepath.Join(dir, name)
				switch r.IntN(6) {
				case 0:
					_ = os.Remove(p)
				case 1:
					_ = os.Remove(p)
					testkit.NoError(t, os.Symlink("/dev/null", p))
				case 2:
					_ = os.Remove(p)
					target := filepath.Join(root, "target")
					testkit.NoError(t, os.WriteFile(target, fmt.Appendf(nil, "[Match]\nName=t%d\n", n), 0o644))
					testkit.NoError(t, os.Symlink(target, p))
				default:
					_ = os.Remove(p)
					testkit.NoError(t, os.WriteFile(p, fmt.Appendf(nil, "[Match]\nName=ib%d\nBad=%d\n", n, n), 0o644))
				}
				u.MarkChanged(p)
				if r.IntN(3) == 0 {
					continue // several edits before a load
				}
				if r.IntN(20) == 0 {
					u.Invalidate()
				}
				if d := cmp.Diff(text(NewUnitDirs(root).Load()), text(u.Load())); d != "" {
					t.Fatalf("step %d (-fresh +kept):\n%s", n, d)
				}
			}
		})
	}
}

func text(s *units.Set) (out []string) {
	for _, u := range s.Units {
		for _, f := range u.Files {
			out = append(out, fmt.Sprintf("%s %s %x", u.Name, f.Path, f.Sum))
		}
	}
	for _, p := range s.Problems {
		out = append(out, p.String())
	}
	for _, k := range s.Skipped {
		out = append(out, k.Path+" "+k.Why)
	}
	return out
}

// A long file is read to its end, and one that is too long is not used in part.
func TestLongUnit(t *testing.T) {
	root := t.TempDir()
	dir := filepath.Join(root, units.Dirs[0])
	testkit.NoError(t, os.MkdirAll(dir, 0o755))
	line := append(bytes.Repeat([]byte("#"), 1<<16-1), '\n')
	for size, used := range map[int]bool{9 << 20: true, units.MaxFile + 1: false} {
		text := append([]byte("[Match]\nName=ib0\n"), bytes.Repeat(line, size/len(line))...)
		text = append(text, "[Link]\nMTUBytes=2044\n"...)
		testkit.NoError(t, os.WriteFile(filepath.Join(dir, "1.ibnetwork"), text, 0o644))
		set := NewUnitDirs(root).Load()
		if ok := len(set.Units) == 1 && set.Units[0].Link.MTUBytes.V.Bytes == 2044; ok != used || used != (len(set.Problems) == 0) {
			t.Errorf("%d bytes: %d units, %v", len(text), len(set.Units), set.Problems)
		}
	}
}
