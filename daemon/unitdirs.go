package daemon

import (
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"ibnetworkd/internal/smallfile"
	"ibnetworkd/internal/unitfs"
	"ibnetworkd/units"
)

// UnitDirs reads the unit directories again and again at the cost of what has
// changed: a file is read when its stat data differ from the last time, and not
// even checked if a watch on its directory has said nothing about it.
type UnitDirs struct {
	root string
	copy copies

	mu      sync.Mutex
	watched bool            // a watch reports every change
	stale   bool            // the next load reads the stat data of every file
	asked   bool            // a person asked for the next load
	changed map[string]bool // files with events since the last load
	files   map[string]*unitFile
	last    *units.Set
	// watchTables has changes of files reported from now on, by MarkChanged; nil
	// without a watch.
	watchTables func(paths []string)
}

type unitFile struct {
	stat unix.Stat_t
	data []byte
	link bool // reached through a symbolic link: its target is not watched
	seen bool // in this load
}

// NewUnitDirs reads below root, which stands for /.
func NewUnitDirs(root string) *UnitDirs {
	return &UnitDirs{root: filepath.Join("/", root), stale: true, changed: map[string]bool{}, files: map[string]*unitFile{}}
}

// SetWatching is called when a watch reports changes from now on, by MarkChanged.
// tables, if not nil, has it report those of address tables too.
func (u *UnitDirs) SetWatching(tables func(paths []string)) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.watched, u.stale, u.watchTables = true, true, tables
}

// MarkChanged makes the next load read a file if its stat data differ.
func (u *UnitDirs) MarkChanged(path string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.changed[path] = true
}

// Invalidate makes the next load one that was requested: it checks every file and
// waits for none.
func (u *UnitDirs) Invalidate() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.stale, u.asked = true, true
}

// lost makes the next load check every file: the watch has lost events.
func (u *UnitDirs) lost() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.stale = true
}

// Load reads the unit files.
func (u *UnitDirs) Load() *units.Set {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, f := range u.files {
		f.seen = false
	}
	var roots []units.Root
	for _, d := range units.Dirs {
		r := units.Root{Path: filepath.Join(u.root, d),
			FS: &unitFS{u: u, Dir: unitfs.New(u.root, d), dir: filepath.Join(u.root, d), regular: map[string]bool{}}}
		roots = append(roots, r)
	}
	if u.last == nil {
		u.last = u.copy.load(u.root)
	}
	var set *units.Set
	if u.asked {
		set = units.Reload(u.last, roots)
	} else {
		set = units.Reread(u.last, roots, time.Now())
	}
	if u.watchTables != nil {
		u.watchTables(u.tables(set)) // before they are read, so that no change is missed
	}
	set = set.WithTables(u.last, u.table)
	u.last, u.asked = set, false
	for p, f := range u.files {
		if !f.seen {
			delete(u.files, p)
		}
	}
	clear(u.changed)
	// What could not be read is read in the next load, event or not.
	u.stale = set.Unread
	u.copy.save(set)
	return set
}

// table reads an address table.
func (u *UnitDirs) table(p string) ([]byte, error) {
	return unitfs.ReadFile(u.root, p, units.MaxTable)
}

// tables are the paths of the address tables that units name, below the root, and what
// they are links to; and of their network namespaces.
func (u *UnitDirs) tables(set *units.Set) []string {
	var out []string
	if set != nil {
		for _, p := range namespacesOf(set) {
			out = append(out, filepath.Join(u.root, p))
		}
		for _, x := range set.Units {
			if p, ok := x.Network.AddressTable.Get(); ok {
				out = append(out, filepath.Join(u.root, p))
				if _, host, err := unitfs.Resolve(u.root, p); err == nil {
					out = append(out, host)
				}
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// lastTables are those of the last load.
func (u *UnitDirs) lastTables() []string {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.tables(u.last)
}

// read gives a file's content, from memory if it cannot have changed.
func (u *UnitDirs) read(p, host string, regular bool) (*unitFile, error) {
	f := u.files[p]
	if f != nil && u.watched && !u.stale && !u.changed[p] && !f.link {
		f.seen = true
		return f, nil
	}
	var st unix.Stat_t
	if err := unix.Stat(host, &st); err != nil {
		return nil, unitfs.Plain(&fs.PathError{Op: "stat", Path: p, Err: err})
	}
	if f != nil && f.stat.Ino == st.Ino && f.stat.Dev == st.Dev && f.stat.Size == st.Size && f.stat.Mtim == st.Mtim && f.stat.Ctim == st.Ctim {
		f.seen = true
		return f, nil
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return &unitFile{stat: st}, nil
	}
	if st.Size > units.MaxFile {
		return nil, units.ErrTooLarge
	}
	// What changes between the two is seen the next time: the stat data are
	// then older than the content.
	data, err := smallfile.ReadRegular(host, units.MaxFile)
	if err != nil {
		return nil, unitfs.Plain(err)
	}
	f = &unitFile{stat: st, data: data, link: !regular, seen: true}
	u.files[p] = f
	return f, nil
}

// unitFS is one unit directory as the parser reads it: links are followed by Dir,
// contents come from memory where they can.
type unitFS struct {
	*unitfs.Dir
	u       *UnitDirs
	dir     string
	regular map[string]bool // names that their directory lists as regular files
}

func (s *unitFS) Open(name string) (fs.File, error) {
	p := filepath.Join(s.dir, name)
	host := p
	if !s.regular[name] {
		var err error
		if host, err = s.Host(name); err != nil {
			return nil, err
		}
	}
	f, err := s.u.read(p, host, s.regular[name])
	if err != nil {
		return nil, err
	}
	return &openUnit{f: f, name: path.Base(name), r: bytes.NewReader(f.data)}, nil
}

func (s *unitFS) ReadDir(name string) ([]fs.DirEntry, error) {
	es, err := s.Dir.ReadDir(name)
	for _, e := range es {
		if e.Type().IsRegular() {
			s.regular[path.Join(name, e.Name())] = true
		}
	}
	return es, err
}

func (s *unitFS) Masked(name string) (bool, error) {
	if s.regular[name] {
		return false, nil
	}
	return s.Dir.Masked(name)
}

type openUnit struct {
	f    *unitFile
	name string
	r    io.Reader
}

func (o *openUnit) Read(b []byte) (int, error) { return o.r.Read(b) }
func (o *openUnit) Close() error               { return nil }
func (o *openUnit) Stat() (fs.FileInfo, error) { return unitInfo{o.name, &o.f.stat}, nil }

// unitInfo is a file's stat data; st is nil where only the kind is known.
type unitInfo struct {
	name string
	st   *unix.Stat_t
}

func (i unitInfo) Name() string { return i.name }
func (i unitInfo) IsDir() bool  { return i.Mode().IsDir() }
func (i unitInfo) Sys() any     { return i.st }

func (i unitInfo) Size() int64 {
	if i.st == nil {
		return 0
	}
	return i.st.Size
}

func (i unitInfo) ModTime() time.Time {
	if i.st == nil {
		return time.Time{}
	}
	return time.Unix(i.st.Mtim.Unix())
}

func (i unitInfo) Mode() fs.FileMode {
	if i.st == nil {
		return 0
	}
	m := fs.FileMode(i.st.Mode & 0o777)
	switch i.st.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
		m |= fs.ModeDir
	case unix.S_IFIFO:
		m |= fs.ModeNamedPipe
	case unix.S_IFSOCK:
		m |= fs.ModeSocket
	case unix.S_IFBLK:
		m |= fs.ModeDevice
	case unix.S_IFCHR:
		m |= fs.ModeDevice | fs.ModeCharDevice
	case unix.S_IFLNK:
		m |= fs.ModeSymlink
	}
	return m
}

// String names the directories for a log.
func (u *UnitDirs) String() string {
	return fmt.Sprintf("%s below %s", strings.Join(units.Dirs, ", "), u.root)
}
