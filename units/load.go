package units

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	"ibnetworkd/ib"
)

// Load reads all units of the given directories, which are in falling
// priority. It never fails: what cannot be read is a problem of the set.
func Load(roots []Root) *Set {
	return Reload(nil, roots)
}

// Reload is Load for a caller that has an earlier set. A unit whose files have
// not changed is the same *Unit again, so that a reload costs as much as what
// was edited. A directory that cannot be read has the files that it had in prev,
// and a unit of prev keeps its last good version while a file of it is broken
// (see Unit.Kept).
func Reload(prev *Set, roots []Root) *Set {
	return (&loader{roots: roots, asked: true}).run(prev)
}

// Reread is Reload after an event, without a request: a file in force that may be
// half written is used once it has been unchanged for SettleTime, which Set.Settles
// announces. now should have a monotonic reading.
func Reread(prev *Set, roots []Root, now time.Time) *Set {
	return (&loader{roots: roots, now: now}).run(prev)
}

func (l *loader) run(prev *Set) *Set {
	l.set = &Set{listed: map[string][]string{}, pending: map[string]pending{}}
	if prev != nil {
		l.prev = make(map[string]*Unit, len(prev.Units))
		for _, u := range prev.Units {
			l.prev[u.Name] = u
		}
		l.listed, l.pending = prev.listed, prev.pending
	}
	l.load()
	return l.set
}

// same reports whether a unit was made of these files.
func (u *Unit) same(files []source) bool {
	return slices.EqualFunc(u.Files, files, func(f File, s source) bool {
		return f.Path == s.file.Path && f.DropIn == s.file.DropIn && f.ModTime.Equal(s.file.ModTime) && f.Text == s.file.Text
	})
}

// VerifyFile reads one file by itself, without drop-ins, as ibnetctl verify FILE
// does. The unit is nil if the file cannot be used; the problems are all.
func VerifyFile(name string, data []byte) (*Unit, []Problem) {
	f := lex(name, string(data))
	base := path.Base(name)
	u, problems := assemble(base, name, []source{{file: File{Path: name, Size: int64(len(data)), Sum: sha256.Sum256(data),
		Text: string(data)}, raw: f}})
	if !strings.HasSuffix(base, Suffix) && !strings.HasSuffix(base, ".conf") {
		problems = append([]Problem{{Pos: Position{File: name}, Severity: Warning,
			Message: fmt.Sprintf("the name does not end with %s", Suffix), Kept: "the daemon does not read the file"}}, problems...)
	}
	return u, problems
}

// source is one file of a unit, lexed when it is needed.
type source struct {
	file File
	raw  *rawFile
	// bad is why nothing of the file can be used, for one that could not be
	// read or is empty; unread that its content is not known.
	bad    *Problem
	unread bool
}

// assemble applies the files of a unit in order.
func assemble(name, path string, files []source) (*Unit, []Problem) {
	u := &Unit{Name: name, Path: path}
	p := parser{u: u, sections: sectionByName}
	usable := true
	for i, s := range files {
		if s.bad != nil {
			p.problems = append(p.problems, *s.bad)
			usable = usable && s.file.DropIn
			if s.unread {
				// What the drop-in would keep the unit away from is not known.
				p.problems[len(p.problems)-1].Kept += ", and " + matchesNothing
				u.Match.addInvalid("", PlaceOf(s.bad.Pos))
			}
			continue
		}
		s.file.Refused = s.raw.refused
		u.Files = append(u.Files, s.file)
		p.file(s.raw)
		if !s.raw.refused {
			continue
		}
		if i == 0 && !s.file.DropIn {
			usable = false
		} else if hasMatch(s.file.Text) {
			// What the drop-in would keep the unit away from is not known.
			p.problems[len(p.problems)-1].Kept += ", and " + matchesNothing
			u.Match.addInvalid("", PlaceOf(p.problems[len(p.problems)-1].Pos))
		}
	}
	if usable {
		usable = p.finish()
	}
	sortProblemsByFile(p.problems, u.Files)
	u.Problems = p.problems
	if !usable {
		return nil, p.problems
	}
	return u, p.problems
}

// hasMatch reports whether a text has a line that begins as a [Match] header.
func hasMatch(text string) bool {
	for line := range strings.SplitSeq(strings.ReplaceAll(text, "\r", "\n"), "\n") {
		if strings.HasPrefix(strings.TrimLeft(line, blanks), "[Match") {
			return true
		}
	}
	return false
}

// sortProblemsByFile orders by the files' order of application, then by place.
func sortProblemsByFile(ps []Problem, files []File) {
	order := make(map[string]int, len(files))
	for i, f := range files {
		order[f.Path] = i
	}
	slices.SortStableFunc(ps, func(a, b Problem) int {
		if d := order[a.Pos.File] - order[b.Pos.File]; d != 0 {
			return d
		}
		if d := a.Pos.Line - b.Pos.Line; d != 0 {
			return d
		}
		return a.Pos.Column - b.Pos.Column
	})
}

// found is a file of one name in the directory of highest priority that has it.
type found struct {
	root int
	// name is the path below the root.
	name string
}

type loader struct {
	roots []Root
	set   *Set
	prev  map[string]*Unit // by name
	// listed are the names that a directory had when it was last read, by path.
	listed map[string][]string
	// pending are the files that seemed half written in the last load, by path.
	pending map[string]pending
	// now is the time of a Reread; asked marks a load on request.
	now   time.Time
	asked bool
	// dropIns maps a unit's name to its drop-in directories by root.
	dropIns map[string][]int
}

func (l *loader) problem(path, kept, format string, args ...any) {
	l.set.Problems = append(l.set.Problems, Problem{Pos: Position{File: path}, Severity: Warning,
		Message: fmt.Sprintf(format, args...), Kept: kept})
}

func (l *loader) load() {
	l.dropIns = map[string][]int{}
	byName := map[string]found{}
	var names []string
	for r := range l.roots {
		for _, n := range l.list(r, ".") {
			if base, ok := strings.CutSuffix(n, ".d"); ok && strings.HasSuffix(base, Suffix) {
				l.dropIns[base] = append(l.dropIns[base], r)
				continue
			}
			if !strings.HasSuffix(n, Suffix) {
				l.misnamed(r, n)
				continue
			}
			if l.first(byName, n, found{r, n}, n, false) {
				names = append(names, n)
			}
		}
	}
	slices.Sort(names)
	for _, n := range names {
		l.unit(n, byName[n])
	}
	l.orphans(byName)
	slices.SortStableFunc(l.set.Skipped, func(a, b Skipped) int {
		return strings.Compare(a.Name+"\x00"+a.Path, b.Name+"\x00"+b.Path)
	})
}

// first keeps the first file of a name; others are hidden by it.
func (l *loader) first(byName map[string]found, name string, f found, unit string, dropIn bool) bool {
	if at, ok := byName[name]; ok {
		l.skip(unit, f.root, f.name, "hidden by "+l.path(at.root, at.name), false, dropIn)
		return false
	}
	byName[name] = f
	return true
}

// orphans reports drop-in directories of units that do not exist.
func (l *loader) orphans(byName map[string]found) {
	for _, unit := range slices.Sorted(maps.Keys(l.dropIns)) {
		if _, ok := byName[unit]; ok {
			continue
		}
		for _, r := range l.dropIns[unit] {
			l.problem(l.path(r, unit+".d"), "its drop-ins are not used", "no unit directory has a file %s", ib.Clip(unit))
		}
	}
}

// misnamed reports a name that was probably meant for a unit.
func (l *loader) misnamed(root int, name string) {
	base, conf := strings.CutSuffix(name, ".conf")
	if conf && strings.HasSuffix(base, Suffix) {
		l.problem(l.path(root, name), "the file is not used", "a unit ends in %s, a drop-in is in a directory %s.d",
			Suffix, ib.Clip(base))
		return
	}
	if ext := slip(name, Suffix); ext != "" && ext != ".network" {
		l.problem(l.path(root, name), "the file is not used", "unknown suffix %q, did you mean %s?", ib.Clip(ext), Suffix)
	}
}

// slip is the suffix of a name where it was probably meant to be another one;
// editors' backups are none.
func slip(name, suffix string) string {
	if ext := path.Ext(name); len(ext) > 2 && strings.IndexByte("~#", ext[len(ext)-1]) < 0 && nearest(ext, []string{suffix}) != "" {
		return ext
	}
	return ""
}

func (l *loader) path(root int, name string) string { return path.Join(l.roots[root].Path, name) }

func (l *loader) skip(name string, root int, file, why string, masked, dropIn bool) {
	l.set.Skipped = append(l.set.Skipped, Skipped{Name: name, Path: l.path(root, file), Why: why, Masked: masked, DropIn: dropIn})
}

// list gives the names in a directory, without hidden ones; one that is absent is
// empty, one that cannot be read has what it had.
func (l *loader) list(root int, dir string) []string {
	if l.roots[root].FS == nil {
		return nil
	}
	p := l.path(root, dir)
	entries, err := fs.ReadDir(l.roots[root].FS, dir)
	names := make([]string, 0, len(entries))
	for _, e := range entries {
		names = append(names, e.Name())
	}
	switch {
	case absent(err):
		return nil
	case err != nil:
		l.set.Unread = true
		kept := "will retry; its files are not used"
		if old := l.listed[p]; len(old) > 0 {
			names, kept = append(names, old...), "will retry; the files that it had are used"
		}
		l.problem(p, kept, "the directory cannot be read: %v", cause(err))
	}
	slices.Sort(names)
	names = slices.DeleteFunc(slices.Compact(names), func(n string) bool { return strings.HasPrefix(n, ".") })
	l.set.listed[p] = names
	return names
}

// absent reports an error that says that nothing of the name exists.
func absent(err error) bool {
	return errors.Is(err, fs.ErrNotExist)
}

func (l *loader) readDropIns(unit string) []source {
	byName := map[string]found{}
	var names []string
	for _, r := range l.dropIns[unit] {
		dir := unit + ".d"
		for _, n := range l.list(r, dir) {
			file := path.Join(dir, n)
			if !strings.HasSuffix(n, ".conf") {
				if ext := slip(n, ".conf"); ext != "" {
					l.problem(l.path(r, file), "the file is not used", "unknown suffix %q, did you mean .conf?", ib.Clip(ext))
				}
				continue
			}
			if l.first(byName, n, found{r, file}, unit, true) {
				names = append(names, n)
			}
		}
	}
	slices.Sort(names)
	var out []source
	for _, n := range names {
		at := byName[n]
		s, why := l.read(at, true, l.prev[unit])
		switch why {
		case "":
			out = append(out, s)
		case isGone:
		default:
			l.skip(unit, at.root, at.name, why, true, true)
		}
	}
	return out
}

const (
	isGone   = "gone"
	isLinked = "masked: the file is a link to /dev/null"
	isEmpty  = "masked: the file is empty"
)

// read reads one file. skip says why there is nothing to read of it. inForce is
// the unit's version in force; an empty file masks only what is not of it.
func (l *loader) read(at found, dropIn bool, inForce *Unit) (s source, skip string) {
	fsys, p := l.roots[at.root].FS, l.path(at.root, at.name)
	s = source{file: File{Path: p, DropIn: dropIn}}
	bad := func(format string, args ...any) (source, string) {
		s.bad = &Problem{Pos: Position{File: p}, Severity: Error, Message: fmt.Sprintf(format, args...), Kept: notUsedFile}
		return s, ""
	}
	unread := func(err error) (source, string) {
		s.unread = true
		if errors.Is(err, ErrTooLarge) {
			return bad("%v", ErrTooLarge)
		}
		l.set.Unread = true
		return bad("the file cannot be read: %v", cause(err))
	}
	switch null, err := masks(fsys, at.name, p); {
	case err == nil && null:
		return s, isLinked
	case err != nil && !absent(err):
		return unread(err)
	}
	f, err := fsys.Open(at.name)
	switch {
	case absent(err):
		if rl, ok := fsys.(fs.ReadLinkFS); ok {
			if fi, err := rl.Lstat(at.name); err == nil && fi.Mode()&fs.ModeSymlink != 0 {
				return bad("the file is a dangling symbolic link")
			}
		}
		return s, isGone
	case err != nil:
		return unread(err)
	}
	defer f.Close()
	fi, err := f.Stat()
	if err != nil {
		return unread(err)
	}
	if !fi.Mode().IsRegular() {
		return bad("not a regular file but %s", modeWord(fi.Mode()))
	}
	var b bytes.Buffer
	if n := fi.Size(); n > 0 && n <= MaxFile {
		b.Grow(int(n) + bytes.MinRead)
	}
	if _, err := b.ReadFrom(io.LimitReader(f, MaxFile+1)); err != nil {
		return unread(err)
	}
	if b.Len() == 0 {
		if inForce.has(p) {
			return bad("the file is empty now, which does not mask a unit in force; to mask it: ibnetctl mask")
		}
		return s, isEmpty
	}
	s.file.Text = b.String()
	s.file.Size, s.file.ModTime = int64(len(s.file.Text)), fi.ModTime()
	return s, ""
}

// MaskFS is a file system that follows links itself; see Root.
type MaskFS interface {
	fs.FS
	// Masked reports whether name is a link that ends at /dev/null, over whatever
	// chain of links.
	Masked(name string) (bool, error)
}

// maxLinks bounds a chain of links, as the kernel's MAXSYMLINKS does.
const maxLinks = 40

// ErrTooLarge is what an FS may return for a file of more than MaxFile bytes.
var ErrTooLarge = fmt.Errorf("the file has more than %d MiB", MaxFile>>20)

// masks reports whether the file is a link to /dev/null, where p is its path.
// Without MaskFS a chain is followed inside the file system only.
func masks(fsys fs.FS, name, p string) (bool, error) {
	if m, ok := fsys.(MaskFS); ok {
		return m.Masked(name)
	}
	rl, ok := fsys.(fs.ReadLinkFS)
	if !ok {
		return false, nil
	}
	dir := strings.TrimSuffix(p, name)
	for range maxLinks {
		fi, err := rl.Lstat(name)
		if err != nil || fi.Mode()&fs.ModeSymlink == 0 {
			return false, err
		}
		target, err := rl.ReadLink(name)
		if err != nil {
			return false, err
		}
		if !path.IsAbs(target) {
			target = path.Join(dir, path.Dir(name), target)
		}
		if path.Clean(target) == "/dev/null" {
			return true, nil
		}
		next, inside := strings.CutPrefix(path.Clean(target), dir)
		if !inside {
			return false, nil
		}
		name = next
	}
	return false, nil
}

func modeWord(m fs.FileMode) string {
	switch {
	case m.IsDir():
		return "a directory"
	case m&fs.ModeNamedPipe != 0:
		return "a pipe"
	case m&fs.ModeSocket != 0:
		return "a socket"
	case m&fs.ModeDevice != 0:
		return "a device"
	}
	return m.String()
}

// cause is an error without the path that the message has already.
func cause(err error) error {
	var pe *fs.PathError
	if errors.As(err, &pe) {
		return pe.Err
	}
	return err
}

// Cat writes the unit's files in the order they apply, each under a comment with
// its path, as systemctl cat does.
func Cat(w io.Writer, u *Unit) error {
	for i, f := range u.Files {
		sep := ""
		if i > 0 {
			sep = "\n"
		}
		end := ""
		if !strings.HasSuffix(f.Text, "\n") {
			end = "\n"
		}
		if _, err := fmt.Fprintf(w, "%s# %s\n%s%s", sep, f.Path, f.Text, end); err != nil {
			return err
		}
	}
	return nil
}

// Changes is the difference of two loads by unit name, each list sorted.
type Changes struct {
	Added, Removed, Changed []string
}

// Empty reports whether nothing differs.
func (c Changes) Empty() bool { return len(c.Added)+len(c.Removed)+len(c.Changed) == 0 }

// Diff compares two loads. A unit has changed when one of its files or its table has
// other content or another path; a file that was only touched has not.
func Diff(old, new *Set) Changes {
	var c Changes
	a, b := old.units(), new.units()
	for len(a) > 0 || len(b) > 0 {
		switch {
		case len(a) == 0 || len(b) > 0 && b[0].Name < a[0].Name:
			c.Added = append(c.Added, b[0].Name)
			b = b[1:]
		case len(b) == 0 || a[0].Name < b[0].Name:
			c.Removed = append(c.Removed, a[0].Name)
			a = a[1:]
		default:
			if !SameFiles(a[0], b[0]) || old.table(a[0]) != new.table(b[0]) {
				c.Changed = append(c.Changed, b[0].Name)
			}
			a, b = a[1:], b[1:]
		}
	}
	return c
}

// table is the address table of a unit, nil for none.
func (s *Set) table(u *Unit) *AddressTable { return s.Tables[u.Network.AddressTable.V] }

func (s *Set) units() []*Unit {
	if s == nil {
		return nil
	}
	return s.Units
}

// SameFiles reports whether two units were read from the same files with the
// same content.
func SameFiles(a, b *Unit) bool {
	return slices.EqualFunc(a.Files, b.Files, func(x, y File) bool { return x.Path == y.Path && x.DropIn == y.DropIn && x.Sum == y.Sum })
}
