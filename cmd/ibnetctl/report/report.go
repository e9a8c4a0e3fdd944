// Package report is the archive that `ibnetctl report` writes and that
// `ibnetctl --report` reads: text files by slash path, and a list of what was
// left out. It collects files of the system by rules and never decides what
// they mean.
package report

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
	"unicode/utf8"
)

// Names of the files of a report that are not copies of the system's.
const (
	Summary = "report.txt"   // what the report holds and what it lacks
	Capture = "capture.json" // as `ibnetctl capture` writes it
	Daemon  = "daemon.json"  // what the daemon describes, as `ibnetctl status --json`
	Journal = "journal.txt"
	RDMA    = "rdma.json"    // answers of RDMA netlink
	DCB     = "dcb.json"     // answers of DCB netlink, by interface
	Devlink = "devlink.json" // answers of devlink
	Drivers = "drivers.json" // answers of ETHTOOL_GDRVINFO, by interface
	System  = "system"       // the directory of copies of the system's files
)

// Bounds of a report. Reading and collecting keep them alike.
const (
	MaxFile  = 256 << 10 // bytes of one copied file
	MaxBig   = 64 << 20  // bytes of one of the files named above
	MaxTotal = 128 << 20 // bytes of all files
	MaxFiles = 20000
)

// Report is the content of an archive. It is not safe for concurrent use.
type Report struct {
	Files   map[string][]byte // by slash path, valid in the sense of fs.ValidPath
	Omitted []Omission
	total   int
}

// Omission is something that a report lacks.
type Omission struct {
	What string // a path or a subject
	Why  string
}

// Add adds a file. A file that goes beyond the bounds is listed as left out.
func (r *Report) Add(name string, text []byte) {
	switch {
	case !fs.ValidPath(name) || name == ".":
		r.Omit(name, "not a path inside of a report")
		return
	case len(text) > MaxBig || r.total+len(text) > MaxTotal || len(r.Files) >= MaxFiles:
		r.Omit(name, "the report would become too large")
		return
	}
	if r.Files == nil {
		r.Files = map[string][]byte{}
	}
	r.total += len(text) - len(r.Files[name])
	r.Files[name] = text
}

// Omit notes that something is left out.
func (r *Report) Omit(what, why string) { r.Omitted = append(r.Omitted, Omission{what, why}) }

// Paths are the names of the files, in order.
func (r *Report) Paths() []string { return slices.Sorted(maps.Keys(r.Files)) }

// Rewrite replaces each file by what f makes of it.
func (r *Report) Rewrite(f func(string) string) {
	for p, text := range r.Files {
		r.Files[p] = []byte(f(string(text)))
	}
}

// Rule names files of the system that are copied.
type Rule struct {
	Glob string // a pattern of path.Match for each component, relative to the root
	Keep string // words of which a line must have one to be copied; "" copies all
}

// Copy copies the files of fsys that match the rules to the directory System.
// What cannot be read, is too large or is not text is listed as left out; files
// that do not exist are not.
func (r *Report) Copy(fsys fs.FS, rules []Rule) {
	for _, rule := range rules {
		names, err := fs.Glob(fsys, rule.Glob)
		if err != nil {
			r.Omit(rule.Glob, err.Error())
			continue
		}
		for _, n := range names {
			text, why := read(fsys, n)
			switch {
			case why != "":
				r.Omit("/"+n, why)
				continue
			case text == nil:
				continue
			}
			if rule.Keep != "" {
				text = keep(text, strings.Fields(rule.Keep))
			}
			if len(text) > 0 {
				r.Add(path.Join(System, n), text)
			}
		}
	}
}

// read reads a regular file; nil without a reason is a directory or nothing.
func read(fsys fs.FS, name string) (text []byte, why string) {
	st, err := fs.Stat(fsys, name)
	if err != nil || !st.Mode().IsRegular() {
		return nil, ""
	}
	f, err := fsys.Open(name)
	if err != nil {
		return nil, reason(err)
	}
	defer f.Close()
	text, err = io.ReadAll(io.LimitReader(f, MaxFile+1))
	switch {
	case err != nil:
		return nil, reason(err)
	case len(text) > MaxFile:
		return nil, fmt.Sprintf("larger than %d bytes", MaxFile)
	case !utf8.Valid(text) || bytes.IndexByte(text, 0) >= 0:
		return nil, "not text"
	}
	return text, ""
}

// reason is an error without the path, which is beside it.
func reason(err error) string {
	var pe *fs.PathError
	if errors.As(err, &pe) {
		err = pe.Err
	}
	return err.Error()
}

// keep are the lines that have one of the words.
func keep(text []byte, words []string) []byte {
	var out bytes.Buffer
	for line := range strings.Lines(string(text)) {
		if slices.ContainsFunc(words, func(w string) bool { return strings.Contains(line, w) }) {
			out.WriteString(line)
		}
	}
	return out.Bytes()
}
