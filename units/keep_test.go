package units

import (
	"errors"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"
)

// failFS fails to read what is in broken, with EIO as it were.
type failFS struct {
	fstest.MapFS
	broken map[string]bool
}

var errIO = errors.New("input/output error")

func (f failFS) Open(name string) (fs.File, error) {
	if f.broken[name] {
		return nil, &fs.PathError{Op: "open", Path: name, Err: errIO}
	}
	return f.MapFS.Open(name)
}

func (f failFS) ReadDir(name string) ([]fs.DirEntry, error) {
	if f.broken[name] {
		return nil, &fs.PathError{Op: "open", Path: name, Err: errIO}
	}
	return f.MapFS.ReadDir(name)
}

const goodUnit = "[Match]\nName=ib0\n[Link]\nMTUBytes=2044\n[Network]\nAddress=10.0.0.1/24\n"

// TestLastGood puts a unit in force, does something to its files, and says what
// is in force then.
func TestLastGood(t *testing.T) {
	const (
		etc, lib = "/etc/systemd/network", "/usr/lib/systemd/network"
		main     = "10-ib0.ibnetwork"
		drop     = main + ".d/mtu.conf"
		dropText = "[Link]\nMTUBytes=2000\n"
	)
	type step struct {
		name   string
		change func(etc, lib failFS)
		kept   bool
		mtu    int // 0 is no unit
		say    string
	}
	write := func(name, text string) func(e, l failFS) {
		return func(e, _ failFS) { e.MapFS[name] = &fstest.MapFile{Data: []byte(text)} }
	}
	for _, tt := range []step{
		{"nothing", func(e, l failFS) {}, false, 2000, ""},
		{"truncated", write(main, ""), true, 2000,
			"the file is empty now, which does not mask a unit in force; to mask it: ibnetctl mask; the last good version of the " +
				"unit stays in force"},
		{"a slip in the header of Match", write(main, strings.Replace(goodUnit, "Match", "Mtch", 1)), true, 2000,
			"unknown section [Mtch]; the last good version of the unit stays in force; did you mean [Match]?"},
		{"a slip in a key of Match", write(main, strings.Replace(goodUnit, "Name", "Nmae", 1)), true, 2000,
			"[Match] unknown key \"Nmae\"; the last good version"},
		{"not UTF-8", write(main, "\xff\xfe"+goodUnit), true, 2000,
			"byte 0xff is not valid UTF-8; the last good version of the unit stays in force"},
		{"cut off in a header", write(main, goodUnit[:19]), true, 2000, "section header \"[L\" does not end with \"]\"; the last good"},
		{"cut off in a value", write(main, goodUnit[:len(goodUnit)-6]), true, 2000, "\"10.0.0\" is not an IP address; the last good"},
		{"cut off between two lines", write(main, goodUnit[:17]), false, 2000, ""},
		{"cut off in a value that still parses", write(main, goodUnit[:len(goodUnit)-2]), false, 2000, ""},
		{"NUL bytes at the end", write(main, goodUnit[:38]+strings.Repeat("\x00", len(goodUnit)-38)), true, 2000,
			"the file has a NUL byte at offset 38; the last good version"},
		{"NUL bytes in the drop-in", write(drop, dropText+"\x00"), true, 2000, "NUL byte at offset 21"},
		{"a new drop-in cannot be read", func(e, _ failFS) {
			e.MapFS[main+".d/new.conf"], e.broken[main+".d/new.conf"] = &fstest.MapFile{}, true
		}, true, 2000, "cannot be read: input/output error; the last good"},
		{"a bad value in the middle", write(main, strings.Replace(goodUnit, "2044", "x", 1)), false, 2000, "MTUBytes= stays unset"},
		{"a directory in its place", func(e, _ failFS) { e.MapFS[main] = &fstest.MapFile{Mode: fs.ModeDir} }, true, 2000,
			"not a regular file but a directory; the last good"},
		{"a pipe in its place", func(e, _ failFS) { e.MapFS[main] = &fstest.MapFile{Mode: fs.ModeNamedPipe} }, true, 2000,
			"not a regular file but a pipe; the last good"},
		{"a link to nothing", func(e, _ failFS) {
			e.MapFS[main] = &fstest.MapFile{Mode: fs.ModeSymlink, Data: []byte("nothing")}
		}, true, 2000, "the file is a dangling symbolic link; the last good"},
		{"a link to /dev/null", func(e, _ failFS) {
			e.MapFS[main] = &fstest.MapFile{Mode: fs.ModeSymlink, Data: []byte("/dev/null")}
		}, false, 0, ""},
		{"a chain of links to /dev/null", func(e, _ failFS) {
			e.MapFS[main] = &fstest.MapFile{Mode: fs.ModeSymlink, Data: []byte("a")}
			e.MapFS["a"] = &fstest.MapFile{Mode: fs.ModeSymlink, Data: []byte("../../../dev/null")}
		}, false, 0, ""},
		{"removed", func(e, _ failFS) { delete(e.MapFS, main) }, false, 0, "no unit directory has a file 10-ib0.ibnetwork"},
		{"the file cannot be read", func(e, _ failFS) { e.broken[main] = true }, true, 2000,
			"the file cannot be read: input/output error; the last good"},
		{"the directory cannot be read", func(e, _ failFS) { e.broken["."] = true }, false, 2000,
			"the directory cannot be read: input/output error; will retry; the files that it had are used"},
		{"nothing can be read", func(e, _ failFS) { e.broken["."], e.broken[main], e.broken[drop] = true, true, true }, true,
			2000, "will retry"},
		{"the directory of drop-ins cannot be read", func(e, _ failFS) { e.broken[main+".d"] = true }, false, 2000, "will retry"},
		{"the drop-in is truncated", write(drop, ""), true, 2000, "the file is empty now"},
		{"the drop-in is cut off", write(drop, "[Lin"), true, 2000, "does not end with"},
		{"the drop-in cannot be read", func(e, _ failFS) { e.broken[drop] = true }, true, 2000, "cannot be read"},
		{"the drop-in is removed", func(e, _ failFS) { delete(e.MapFS, drop) }, false, 2044, ""},
		{"the drop-in is masked", func(e, _ failFS) {
			e.MapFS[drop] = &fstest.MapFile{Mode: fs.ModeSymlink, Data: []byte("/dev/null")}
		}, false, 2044, ""},
		{"a new drop-in is bad", write(main+".d/new.conf", "[Lin"), false, 2000, "does not end with \"]\"; the file is not used"},
		{"a new drop-in is bad and matches", write(main+".d/new.conf", "[Match]\nName=\xff\n"), true, 2000,
			"is not valid UTF-8; the last good"},
		{"a new empty drop-in", write(main+".d/new.conf", ""), false, 2000, ""},
		{"a bad file of higher priority", func(e, l failFS) {
			l.MapFS[main], l.MapFS[drop] = e.MapFS[main], e.MapFS[drop]
			delete(e.MapFS, drop)
			e.MapFS[main] = &fstest.MapFile{Data: []byte("[")}
		}, true, 2000, "does not end with"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			e, l := failFS{fstest.MapFS{}, map[string]bool{}}, failFS{fstest.MapFS{}, map[string]bool{}}
			roots := []Root{{etc, e}, {lib, l}}
			e.MapFS[main] = &fstest.MapFile{Data: []byte(goodUnit)}
			e.MapFS[drop] = &fstest.MapFile{Data: []byte(dropText)}
			good := Load(roots)
			before := maps.Clone(e.MapFS)
			if len(good.Units) != 1 || len(good.Problems) != 0 {
				t.Fatalf("%+v", good)
			}
			tt.change(e, l)
			set := Reload(good, roots)
			for range 2 { // it does not depend on how often it is read
				u := set.Unit("10-ib0")
				switch {
				case (u == nil) != (tt.mtu == 0):
					t.Fatalf("unit %+v, problems %v", u, set.Problems)
				case u != nil && (u.Kept != tt.kept || u.Link.MTUBytes.V.Bytes != tt.mtu):
					t.Errorf("kept %v, MTU %d: %v", u.Kept, u.Link.MTUBytes.V.Bytes, set.Problems)
				case u != nil && tt.kept && !Diff(good, set).Empty():
					t.Errorf("differs: %+v", Diff(good, set))
				}
				if tt.say == "" && len(set.Problems) > 0 ||
					!slices.ContainsFunc(append(set.Problems, Problem{}),
						func(p Problem) bool { return strings.Contains(p.String(), tt.say) }) {
					t.Errorf("problems %v", set.Problems)
				}
				if set.Unread != (len(e.broken) > 0) {
					t.Errorf("read again: %v", set.Unread)
				}
				set = Reload(set, roots)
			}
			// What was there before is as good as ever, also with the same times.
			clear(e.broken)
			clear(e.MapFS)
			clear(l.MapFS)
			maps.Copy(e.MapFS, before)
			set = Reload(set, roots)
			if u := set.Unit("10-ib0"); u == nil || u.Kept || len(set.Problems) > 0 || !Diff(good, set).Empty() {
				t.Errorf("after the repair: %+v, %v", u, set.Problems)
			}
			e.MapFS[main] = &fstest.MapFile{Data: []byte("[Match]\nName=ib1\n"), ModTime: time.Unix(1, 0)}
			if u := Reload(set, roots).Unit("10-ib0"); u == nil || u.Kept || u.Match.Name[0].V.Glob != "ib1" {
				t.Errorf("a good version is not taken: %+v", u)
			}
		})
	}
}

// A last line without a newline that had the same problem before is no sign of a
// file that is being written.
func TestNeverEndedInNewline(t *testing.T) {
	const last = "[Network]\nAddress=10.0.0.1"
	tree := fstest.MapFS{"10-a.ibnetwork": {Data: []byte("[Match]\nName=ib0\n" + last)}}
	roots := []Root{{"/etc", tree}}
	set := Load(roots)
	tree["10-a.ibnetwork"] = &fstest.MapFile{Data: []byte("[Match]\nName=ib1\n" + last)}
	set = Reload(set, roots)
	if u := set.Unit("10-a"); u == nil || u.Kept || u.Match.Name[0].V.Glob != "ib1" {
		t.Fatalf("%+v", set)
	}
	// With another problem there it is kept, however often it is read.
	tree["10-a.ibnetwork"] = &fstest.MapFile{Data: []byte("[Match]\nName=ib2\n" + last[:len(last)-2])}
	for range 3 {
		set = Reload(set, roots)
		if u := set.Unit("10-a"); u == nil || !u.Kept || u.Match.Name[0].V.Glob != "ib1" {
			t.Fatalf("%+v", set)
		}
	}
}

// Without a version in force a bad file is none: an empty one is a mask.
func TestNeverGood(t *testing.T) {
	e := fstest.MapFS{"10-a.ibnetwork": {}, "20-b.ibnetwork": {Data: []byte("[Match")},
		"30-c.ibnetwork": {Data: []byte("[Match]\nName=\xff\n")}}
	roots := []Root{{"/etc", e}}
	set := Load(roots)
	for range 2 {
		if len(set.Units) != 0 || len(set.Skipped) != 1 || set.Skipped[0].Why != isEmpty || len(set.Problems) != 2 {
			t.Errorf("%+v", set)
		}
		set = Reload(set, roots)
	}
}

// A problem in [Match] makes a unit match nothing, whatever else it says.
func TestProblemsInMatch(t *testing.T) {
	all := &Facts{Name: Know("ib0"), Type: Know("infiniband"), Driver: Know("mlx5_core"), OriginalName: Know("ib0")}
	for text, want := range map[string]bool{
		"Type=infiniband":                       true,
		"Type=infiniband\nX-Comment=1":          true,
		"Type=infiniband\nName":                 false,
		"Type=infiniband\n=ib0":                 false,
		"Type=infiniband\nNmae=ib0":             false,
		"Type=infiniband\nSSID=x":               false,
		"Type=infiniband\nName=ib:1":            false,
		"Type=infiniband\nName=ib0 ib:1":        false,
		"Type=infiniband\nName=ib:1\nName=ib0":  false,
		"Type=infiniband\nName=ib:1\nName=":     true,
		"Type=infiniband\nName=!ib1 ib:0":       false,
		"Type=infiniband\nName=ib0 # my card":   false,
		"Type=infiniband\nDriver=\"mlx5_core":   false,
		"Type=infiniband\nArchitecture=amd":     false,
		"Type=infiniband\n[Mtch]\nName=ib7":     false,
		"Type=infiniband\n[Match ]\nName=ib7":   false,
		"Type=infiniband\n[Link]\nGarbage":      true,
		"Type=infiniband\n[Match]\nName":        false,
		"Type=infiniband\nName=ib0\n[Link]\nx=": true,
	} {
		u, problems := VerifyFile("a.ibnetwork", []byte("[Match]\n"+text+"\n"))
		if u == nil {
			t.Errorf("%q: %v", text, problems)
			continue
		}
		v, why := u.Match.Matches(all)
		if (v == Yes) != want {
			t.Errorf("%q: %v (%s), problems %v", text, v, why, problems)
		}
		said := slices.ContainsFunc(problems, func(p Problem) bool { return strings.Contains(p.Kept, matchesNothing) })
		if said == want {
			t.Errorf("%q: problems %v", text, problems)
		}
	}
}

// Names that were meant for units, and those that editors and package managers
// leave behind.
func TestNames(t *testing.T) {
	good := &fstest.MapFile{Data: []byte(goodUnit)}
	tree := fstest.MapFS{"10-a.ibnetwork": good}
	for _, n := range strings.Fields(".10-b.ibnetwork .#10-a.ibnetwork .ansible_tmpq2w10-a.ibnetwork #10-a.ibnetwork# " +
		"10-a.ibnetwork~ 10-a.ibnetwork.bak 10-a.ibnetwork.dpkg-old 10-a.ibnetwork.rpmsave 10-a.network README 10-x.link " +
		".10-a.ibnetwork.d/x.conf 10-a.ibnetwork.d/.x.conf 10-a.ibnetwork.d/x.conf~ 10-a.ibnetwork.d/README.txt") {
		tree[n] = good
	}
	set := Load([]Root{{"/etc", tree}})
	if len(set.Units) != 1 || len(set.Units[0].Files) != 1 || len(set.Problems) != 0 || len(set.Skipped) != 0 {
		t.Fatalf("%+v", set)
	}
	for name, say := range map[string]string{
		"30-x.ibnetwrok":          "unknown suffix \".ibnetwrok\", did you mean .ibnetwork?",
		"30-x.IBNetwork":          "did you mean .ibnetwork?",
		"40-x.ibnetwork.conf":     "a unit ends in .ibnetwork, a drop-in is in a directory 40-x.ibnetwork.d",
		"10-a.ibnetwork.d/x.cnf":  "did you mean .conf?",
		"50-x.ibnetwork.d/x.conf": "no unit directory has a file 50-x.ibnetwork",
	} {
		set := Load([]Root{{"/etc", fstest.MapFS{"10-a.ibnetwork": good, name: good}}, {"/usr/lib", fstest.MapFS{}}})
		if len(set.Units) != 1 || len(set.Problems) != 1 || !strings.Contains(set.Problems[0].String(), say) {
			t.Errorf("%s: %v", name, set.Problems)
		}
	}
}

// A file in force that ends inside a line is used once it has been the same for a
// while, or when a person asks for it.
func TestHalfWritten(t *testing.T) {
	const ended, open = goodUnit, "[Match]\nName=ib0\n[Link]\nMTUBytes=2044"
	cases := []struct {
		name, old, new string
		waits          bool
	}{
		{"cut off inside a value", ended, ended[:len(ended)-2], true},
		{"cut off before the last newline", ended, ended[:len(ended)-1], true},
		{"another text without a newline", ended, strings.Replace(ended, "2044", "2000", 1)[:len(ended)-2], true},
		{"trailing lines removed", ended, "[Match]\nName=ib0\n", false},
		{"never ended in a newline", open, strings.Replace(open, "2044", "2000", 1), false},
		{"never ended in a newline, cut off inside a line", open, open[:len(open)-1], true},
		{"never ended in a newline, trailing lines removed", open, "[Match]\nName=ib0\n[Link]", false},
		{"CR ends a line too", ended, strings.ReplaceAll(ended, "\n", "\r"), false},
	}
	for _, tt := range cases {
		t.Run(tt.name, func(t *testing.T) {
			tree := fstest.MapFS{"10-a.ibnetwork": {Data: []byte(tt.old)}}
			roots, now := []Root{{"/etc", tree}}, time.Unix(1000, 0)
			good := Load(roots)
			tree["10-a.ibnetwork"] = &fstest.MapFile{Data: []byte(tt.new)}
			inForce := func(s *Set) bool { u := s.Unit("10-a"); return u != nil && !u.Kept && u.Files[0].Text == tt.new }
			if set := Reload(good, roots); !inForce(set) || !set.Settles.IsZero() {
				t.Errorf("a person asked: %+v", set)
			}
			set := Reread(good, roots, now)
			if inForce(set) == tt.waits || set.Settles.IsZero() == tt.waits {
				t.Fatalf("in force %v, settles %v: %v", inForce(set), set.Settles, set.Problems)
			}
			if !tt.waits {
				return
			}
			if p := set.Problems; len(p) != 1 || p[0].Kept != lastGood || !Diff(good, set).Empty() {
				t.Errorf("%v", p)
			}
			// What goes on being written goes on waiting.
			tree["10-a.ibnetwork"].Data = append([]byte(tt.new), '#')
			set = Reread(set, roots, now.Add(SettleTime-1))
			tree["10-a.ibnetwork"].Data = []byte(tt.new)
			set = Reread(set, roots, now.Add(SettleTime))
			if due := now.Add(2 * SettleTime); inForce(set) || !set.Settles.Equal(due) {
				t.Fatalf("settles %v, want %v", set.Settles, due)
			}
			set = Reread(set, roots, set.Settles)
			for range 2 {
				if !inForce(set) || !set.Settles.IsZero() || len(set.Problems) > 0 {
					t.Fatalf("%+v", set)
				}
				set = Reread(set, roots, now.Add(time.Hour))
			}
		})
	}
}

// A file whose end is not understood is kept out by that alone: no time changes it.
func TestHalfWrittenAndBad(t *testing.T) {
	tree := fstest.MapFS{"10-a.ibnetwork": {Data: []byte(goodUnit)}}
	roots, now := []Root{{"/etc", tree}}, time.Unix(1000, 0)
	set := Load(roots)
	tree["10-a.ibnetwork"] = &fstest.MapFile{Data: []byte(goodUnit[:len(goodUnit)-6])}
	for range 3 {
		now = now.Add(SettleTime)
		if set = Reread(set, roots, now); !set.Settles.IsZero() || !set.Unit("10-a").Kept || len(set.Problems) != 1 {
			t.Fatalf("%+v", set)
		}
	}
}

// A drop-in whose content is not known, with nothing in force, makes the unit match
// nothing until it can be read.
func TestUnreadDropIn(t *testing.T) {
	const main, drop = "10-a.ibnetwork", "10-a.ibnetwork.d/x.conf"
	tree := failFS{fstest.MapFS{main: {Data: []byte(goodUnit)}, drop: {Data: []byte("[Match]\nHost=other\n")}}, map[string]bool{drop: true}}
	roots := []Root{{"/etc", tree}}
	set := Load(roots)
	facts := &Facts{Name: Know("ib0"), Type: Know("infiniband")}
	u := set.Unit("10-a")
	if v, _ := u.Match.Matches(facts); v != No || !set.Unread || len(set.Problems) != 1 ||
		!strings.HasSuffix(set.Problems[0].String(), matchesNothing) {
		t.Fatalf("%v: %v", v, set.Problems)
	}
	clear(tree.broken)
	if set = Reload(set, roots); len(set.Problems) > 0 || len(set.Unit("10-a").Match.Invalid) > 0 {
		t.Errorf("%v", set.Problems)
	}
}
