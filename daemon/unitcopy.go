package daemon

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"ibnetworkd/internal/smallfile"
	"ibnetworkd/internal/unitfs"
	"ibnetworkd/units"
)

// UnitCopies is the directory below the state directory with the unit files that
// are in force, so that a restart knows the last good version of a file that is
// broken then.
const UnitCopies = "units"

// copies keeps the files in force below dir, by the same paths; "" keeps none.
type copies struct {
	dir    string
	root   string // what the paths of units begin with
	log    *slog.Logger
	sums   map[string][sha256.Size]byte // of what is below dir
	logged string                       // the last text in the log
}

// maxCopies and maxCopied bound the copies in files and bytes: /run is memory.
const (
	maxCopies = 4096
	maxCopied = 16 << 20
)

// KeepCopies has the files in force copied below dir, after each load that changed
// them. An error is logged once and does not stop anything.
func (u *UnitDirs) KeepCopies(dir string, log *slog.Logger) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.copy = copies{dir: dir, log: log}
}

// load reads the units of an earlier run; nil if there are none.
func (c *copies) load(root string) *units.Set {
	if c.dir == "" {
		return nil
	}
	c.root = root
	var roots []units.Root
	for _, d := range units.Dirs {
		roots = append(roots, units.Root{Path: filepath.Join(root, d), FS: unitfs.New(c.dir, d)})
	}
	set := units.Load(roots)
	c.sums = map[string][sha256.Size]byte{}
	for _, u := range set.Units {
		for _, f := range u.Files {
			c.sums[f.Path] = f.Sum
		}
	}
	if len(c.sums) == 0 {
		// The copies belong to units that no longer exist, or are damaged.
		c.fail(os.RemoveAll(c.dir))
	}
	return set
}

// save writes the files that are not below dir yet and removes those that are no
// longer in force.
func (c *copies) save(set *units.Set) {
	if c.dir == "" {
		return
	}
	var failed error
	now := make(map[string][sha256.Size]byte, len(c.sums))
	size := 0
	for _, u := range set.Units {
		for _, f := range u.Files {
			if f.Refused {
				continue
			}
			if size += len(f.Text); size > maxCopied || len(now) >= maxCopies {
				failed = fmt.Errorf("more than %d files or %d MiB", maxCopies, maxCopied>>20)
				break
			}
			if c.sums[f.Path] != f.Sum {
				p := c.path(f.Path)
				err := os.MkdirAll(filepath.Dir(p), 0o700)
				if err == nil {
					err = smallfile.Replace(p, []byte(f.Text), 0o600)
				}
				if err != nil {
					failed = err
					continue
				}
			}
			now[f.Path] = f.Sum
		}
	}
	for p := range c.sums {
		if _, ok := now[p]; ok {
			continue
		}
		if err := os.Remove(c.path(p)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			failed = err
		}
		_ = os.Remove(filepath.Dir(c.path(p))) // a directory of drop-ins that is empty now
	}
	c.sums = now
	c.fail(failed)
}

// path is where the copy of a unit's file is.
func (c *copies) path(p string) string {
	return filepath.Join(c.dir, strings.TrimPrefix(p, filepath.Clean(c.root)))
}

// fail logs an error that is not the last one.
func (c *copies) fail(err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	if text != "" && text != c.logged && c.log != nil {
		c.log.Warn("the unit files in force cannot be copied", "error", err, "effect",
			"a file that is broken when ibnetworkd starts again has no last good version")
	}
	c.logged = text
}
