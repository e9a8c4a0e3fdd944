package daemon

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"ibnetworkd/internal/smallfile"
	"ibnetworkd/internal/unitfs"
	"ibnetworkd/link"
	"ibnetworkd/units"
)

// Edits publishes which files a reload would change something with, where edits wait
// for one. What is published is compared again after each event and each reload, so
// that it does not depend on which came first.
type Edits struct {
	dirs    *UnitDirs
	publish func(...link.Notice)

	mu    sync.Mutex
	files []string // other files that wait, sorted
}

// NewEdits compares the units of dirs; publish replaces the notices about edits.
func NewEdits(dirs *UnitDirs, publish func(...link.Notice)) *Edits {
	return &Edits{dirs: dirs, publish: publish}
}

// Units compares the unit files on disk with those of the last load.
func (e *Edits) Units() {
	if e == nil {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.publish(link.EditsNotices(slices.Concat(e.dirs.Waiting(), e.files))...)
}

// Files replaces the files beside units that wait.
func (e *Edits) Files(paths []string) {
	if e == nil {
		return
	}
	e.mu.Lock()
	e.files = slices.Clone(paths)
	e.mu.Unlock()
	e.Units()
}

// Waiting are the unit files with events since the last load that a reload would
// change something with.
func (u *UnitDirs) Waiting() []string {
	u.mu.Lock()
	defer u.mu.Unlock()
	if len(u.changed) == 0 || u.last == nil {
		return nil
	}
	var roots []units.Root
	for _, d := range units.Dirs {
		roots = append(roots, units.Root{Path: filepath.Join(u.root, d), FS: unitfs.New(u.root, d)})
	}
	next := units.Reload(u.last, roots).WithTables(u.last, u.table)
	if units.Diff(u.last, next).Empty() && slices.Equal(u.last.Problems, next.Problems) && slices.Equal(u.last.Skipped, next.Skipped) {
		return nil
	}
	all := slices.Sorted(maps.Keys(u.changed))
	// A file that is what it was at the load is none of them.
	if some := slices.DeleteFunc(slices.Clone(all), u.unchanged); len(some) > 0 {
		return some
	}
	return all
}

// unchanged reports whether a file has the content of the last load, or was absent
// then and is now, as a temporary one.
func (u *UnitDirs) unchanged(p string) bool {
	f := u.files[p]
	if t := u.last.Tables[strings.TrimPrefix(p, strings.TrimSuffix(u.root, "/"))]; t != nil {
		data, err := u.table(t.Path)
		return err == nil && string(data) == t.Text
	}
	if f == nil {
		_, err := os.Lstat(p)
		return os.IsNotExist(err)
	}
	data, err := smallfile.ReadRegular(p, units.MaxFile)
	return err == nil && string(data) == string(f.data)
}
