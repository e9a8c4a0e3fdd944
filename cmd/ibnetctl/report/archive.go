package report

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
	"time"
)

// Write writes the report as a gzipped tar archive with one directory, whose
// name is dir. The same report gives the same bytes.
func (r *Report) Write(w io.Writer, dir string, at time.Time) error {
	z := gzip.NewWriter(w)
	t := tar.NewWriter(z)
	for _, p := range r.Paths() {
		h := &tar.Header{Name: path.Join(dir, p), Mode: 0o600, Size: int64(len(r.Files[p])), ModTime: at, Format: tar.FormatPAX}
		if err := t.WriteHeader(h); err != nil {
			return err
		}
		if _, err := t.Write(r.Files[p]); err != nil {
			return err
		}
	}
	if err := t.Close(); err != nil {
		return err
	}
	return z.Close()
}

// IsArchive reports whether a file that begins with head is a gzipped one.
func IsArchive(head []byte) bool { return bytes.HasPrefix(head, []byte{0x1f, 0x8b}) }

// Read reads an archive as Write makes it. It is an error if the archive is
// damaged, larger than the bounds, or holds no capture.
func Read(f io.Reader) (*Report, error) {
	z, err := gzip.NewReader(f)
	if err != nil {
		return nil, fmt.Errorf("not an archive of ibnetctl report: %w", err)
	}
	defer z.Close()
	// A small archive may unpack to an endless one.
	t := tar.NewReader(io.LimitReader(z, MaxTotal+MaxFiles*2048))
	r := &Report{}
	for n := 0; ; n++ {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("damaged archive: %w", err)
		}
		if n >= MaxFiles {
			return nil, fmt.Errorf("the archive has more than %d files", MaxFiles)
		}
		if h.Typeflag != tar.TypeReg {
			continue
		}
		_, name, ok := strings.Cut(h.Name, "/")
		if !ok || !fs.ValidPath(name) {
			continue
		}
		text, err := io.ReadAll(io.LimitReader(t, MaxBig+1))
		if err != nil {
			return nil, fmt.Errorf("damaged archive: %s: %w", name, err)
		}
		if len(text) > MaxBig || r.total+len(text) > MaxTotal {
			return nil, fmt.Errorf("the archive unpacks to more than a report holds (%d bytes)", MaxTotal)
		}
		r.Add(name, text)
	}
	return r.check()
}

// ReadDir reads an unpacked report.
func ReadDir(dir string) (*Report, error) {
	r := &Report{}
	fsys := os.DirFS(dir)
	err := fs.WalkDir(fsys, ".", func(p string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		text, err := fs.ReadFile(fsys, p)
		if err != nil {
			return err
		}
		if len(r.Files) >= MaxFiles || len(text) > MaxBig || r.total+len(text) > MaxTotal {
			return fmt.Errorf("%s: the directory holds more than a report does", p)
		}
		r.Add(p, text)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return r.check()
}

func (r *Report) check() (*Report, error) {
	if r.Files[Capture] == nil {
		return nil, fmt.Errorf("not a report of ibnetctl: it has no %s", Capture)
	}
	return r, nil
}
