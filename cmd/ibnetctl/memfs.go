package main

import (
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
	"time"
)

// memFS is a tree of text files in memory, by slash path; directories are
// implied. It gives captured unit files to the parser.
type memFS map[string]string

func (m memFS) add(name, text string) {
	if fs.ValidPath(name) {
		m[name] = text
	}
}

// Open implements fs.FS.
func (m memFS) Open(name string) (fs.File, error) {
	if !fs.ValidPath(name) {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrInvalid}
	}
	if text, ok := m[name]; ok {
		return &memFile{memInfo{path.Base(name), int64(len(text)), false}, strings.NewReader(text), nil}, nil
	}
	prefix := name + "/"
	if name == "." {
		prefix = ""
	}
	seen := map[string]fs.DirEntry{}
	for p, text := range m {
		rest, ok := strings.CutPrefix(p, prefix)
		if !ok {
			continue
		}
		base, _, deeper := strings.Cut(rest, "/")
		info := memInfo{base, 0, true}
		if !deeper {
			info = memInfo{base, int64(len(text)), false}
		}
		seen[base] = fs.FileInfoToDirEntry(info)
	}
	if len(seen) == 0 && name != "." {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}
	var es []fs.DirEntry
	for _, e := range seen {
		es = append(es, e)
	}
	slices.SortFunc(es, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	return &memFile{memInfo{path.Base(name), 0, true}, strings.NewReader(""), es}, nil
}

type memInfo struct {
	name string
	size int64
	dir  bool
}

func (i memInfo) Name() string       { return i.name }
func (i memInfo) Size() int64        { return i.size }
func (i memInfo) ModTime() time.Time { return time.Time{} }
func (i memInfo) IsDir() bool        { return i.dir }
func (i memInfo) Sys() any           { return nil }
func (i memInfo) Mode() fs.FileMode {
	if i.dir {
		return fs.ModeDir | 0o555
	}
	return 0o444
}

type memFile struct {
	info    memInfo
	r       *strings.Reader
	entries []fs.DirEntry
}

// Stat implements fs.File.
func (f *memFile) Stat() (fs.FileInfo, error) { return f.info, nil }

// Read implements fs.File.
func (f *memFile) Read(b []byte) (int, error) { return f.r.Read(b) }

// Close implements fs.File.
func (f *memFile) Close() error { return nil }

// ReadDir implements fs.ReadDirFile.
func (f *memFile) ReadDir(n int) ([]fs.DirEntry, error) {
	if n <= 0 {
		out := f.entries
		f.entries = nil
		return out, nil
	}
	if len(f.entries) == 0 {
		return nil, io.EOF
	}
	n = min(n, len(f.entries))
	out := f.entries[:n]
	f.entries = f.entries[n:]
	return out, nil
}
