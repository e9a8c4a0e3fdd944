package units

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
)

// Load reads all units of the given directories, which stand in falling
// priority. It never fails: what cannot be read is a problem of the set.
func Load(roots []Root) *Set {
	return Reload(nil, roots)
}

// Reload is Load for a caller that has an earlier set: a unit whose files have
// not changed is the same *Unit again, so that a reload costs as much as what
// was edited.
func Reload(prev *Set, roots []Root) *Set {
	l := &loader{roots: roots, set: &Set{}}
	if prev != nil {
		l.prev = make(map[string]*Unit, len(prev.Units))
		for _, u := range prev.Units {
			l.prev[u.Name] = u
		}
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
	u, problems := assemble(base, name, []source{{file: File{Path: name, Size: int64(len(data)), Sum: sha256.Sum256(data), Text: string(data)}, raw: f}})
	if !strings.HasSuffix(base, Suffix) && !strings.HasSuffix(base, ".conf") {
		problems = append([]Problem{{Pos: Position{File: name}, Severity: Warning, Message: fmt.Sprintf("the name does not end with %s", Suffix), Kept: "the daemon does not read the file"}}, problems...)
	}
	return u, problems
}

// source is one file of a unit, lexed when it is needed.
type source struct {
	file File
	raw  *rawFile
}

// assemble applies the files of a unit in order.
func assemble(name, path string, files []source) (*Unit, []Problem) {
	u := &Unit{Name: name, Path: path}
	p := parser{u: u}
	usable := true
	for i, s := range files {
		s.file.Refused = s.raw.refused
		u.Files = append(u.Files, s.file)
		p.file(s.raw)
		if s.raw.refused && i == 0 && !s.file.DropIn {
			usable = false
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
	// dropIns maps a unit's name to its drop-in directories by root.
	dropIns map[string][]int
}

func (l *loader) problem(path string, sev Severity, kept, format string, args ...any) {
	l.set.Problems = append(l.set.Problems, Problem{Pos: Position{File: path}, Severity: sev, Message: fmt.Sprintf(format, args...), Kept: kept})
}

func (l *loader) load() {
	l.dropIns = map[string][]int{}
	byName := map[string]found{}
	var names []string
	for r := range l.roots {
		for _, e := range l.list(r, ".") {
			n := e.Name()
			if base, ok := strings.CutSuffix(n, ".d"); ok && strings.HasSuffix(base, Suffix) {
				l.dropIns[base] = append(l.dropIns[base], r)
				continue
			}
			if !strings.HasSuffix(n, Suffix) {
				continue
			}
			if at, ok := byName[n]; ok {
				l.skip(n, r, n, fmt.Sprintf("hidden by %s", l.path(at.root, at.name)), false)
				continue
			}
			byName[n] = found{r, n}
			names = append(names, n)
		}
	}
	slices.Sort(names)
	for _, n := range names {
		l.unit(n, byName[n])
	}
	slices.SortStableFunc(l.set.Skipped, func(a, b Skipped) int {
		return strings.Compare(a.Name+"\x00"+a.Path, b.Name+"\x00"+b.Path)
	})
}

func (l *loader) path(root int, name string) string { return path.Join(l.roots[root].Path, name) }

func (l *loader) skip(name string, root int, file, why string, masked bool) {
	l.set.Skipped = append(l.set.Skipped, Skipped{Name: name, Path: l.path(root, file), Why: why, Masked: masked})
}

// list reads a directory; one that is absent is empty.
func (l *loader) list(root int, dir string) []fs.DirEntry {
	if l.roots[root].FS == nil {
		return nil
	}
	entries, err := fs.ReadDir(l.roots[root].FS, dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		l.problem(l.path(root, dir), Warning, "its files are not used", "the directory cannot be read: %v", cause(err))
	}
	// What was read before the error is still good.
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	return entries
}

// unit reads one main file with its drop-ins.
func (l *loader) unit(name string, at found) {
	main, masked, ok := l.read(at, false)
	if masked {
		l.skip(name, at.root, at.name, "masked: the file is empty or a link to /dev/null", true)
		return
	}
	if !ok {
		return
	}
	files := []source{main}
	files = append(files, l.readDropIns(name)...)
	if u := l.prev[name]; u != nil && u.same(files) {
		l.set.Problems = append(l.set.Problems, u.Problems...)
		l.set.Units = append(l.set.Units, u)
		return
	}
	for i := range files {
		f := &files[i]
		f.file.Sum = sha256.Sum256([]byte(f.file.Text))
		f.raw = lex(f.file.Path, f.file.Text)
	}
	u, problems := assemble(name, main.file.Path, files)
	l.set.Problems = append(l.set.Problems, problems...)
	if u != nil {
		l.set.Units = append(l.set.Units, u)
	}
}

func (l *loader) readDropIns(unit string) []source {
	byName := map[string]found{}
	var names []string
	for _, r := range l.dropIns[unit] {
		dir := unit + ".d"
		for _, e := range l.list(r, dir) {
			n := e.Name()
			if !strings.HasSuffix(n, ".conf") {
				continue
			}
			file := path.Join(dir, n)
			if at, ok := byName[n]; ok {
				l.skip(unit, r, file, fmt.Sprintf("hidden by %s", l.path(at.root, at.name)), false)
				continue
			}
			byName[n] = found{r, file}
			names = append(names, n)
		}
	}
	slices.Sort(names)
	var out []source
	for _, n := range names {
		at := byName[n]
		s, masked, ok := l.read(at, true)
		if masked {
			l.skip(unit, at.root, at.name, "masked: the file is empty or a link to /dev/null", true)
			continue
		}
		if ok {
			out = append(out, s)
		}
	}
	return out
}

// read reads one file; ok is false with a problem noted.
func (l *loader) read(at found, dropIn bool) (s source, masked, ok bool) {
	fsys, p := l.roots[at.root].FS, l.path(at.root, at.name)
	refuse := func(format string, args ...any) (source, bool, bool) {
		l.problem(p, Error, "the file is not used", format, args...)
		return source{}, false, false
	}
	if rl, is := fsys.(fs.ReadLinkFS); is {
		if fi, err := rl.Lstat(at.name); err == nil && fi.Mode()&fs.ModeSymlink != 0 {
			target, err := rl.ReadLink(at.name)
			if err == nil && isDevNull(target, path.Dir(p)) {
				return source{}, true, false
			}
		}
	}
	f, err := fsys.Open(at.name)
	if err != nil {
		return refuse("the file cannot be opened: %v", cause(err))
	}
	defer f.Close()
	fi, err := f.Stat()
	if err != nil {
		return refuse("the file cannot be looked at: %v", cause(err))
	}
	if !fi.Mode().IsRegular() {
		return refuse("this is not a regular file but %s", modeWord(fi.Mode()))
	}
	var b bytes.Buffer
	if n := fi.Size(); n > 0 && n <= MaxFile {
		b.Grow(int(n) + bytes.MinRead)
	}
	if _, err := b.ReadFrom(io.LimitReader(f, MaxFile+1)); err != nil {
		return refuse("the file cannot be read: %v", cause(err))
	}
	if b.Len() == 0 {
		return source{}, true, false
	}
	text := b.String()
	return source{file: File{Path: p, DropIn: dropIn, Size: int64(len(text)), ModTime: fi.ModTime(), Text: text}}, false, true
}

// isDevNull resolves a link's target by its text alone.
func isDevNull(target, dir string) bool {
	if !path.IsAbs(target) {
		target = path.Join(dir, target)
	}
	return path.Clean(target) == "/dev/null"
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

// Diff compares two loads. A unit has changed when one of its files has other
// content or stands elsewhere; a file that was only touched has not.
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
			if !SameFiles(a[0], b[0]) {
				c.Changed = append(c.Changed, b[0].Name)
			}
			a, b = a[1:], b[1:]
		}
	}
	return c
}

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
