package daemon

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"ibnetworkd/internal/smallfile"
	"ibnetworkd/link"
)

// Store keeps the record of what was made and the report for readers without a
// bus, below one directory.
type Store struct {
	dir    string
	lock   *os.File
	record hash // of what was last written
	report hash
	parts  map[string][]byte
	// texts are buffers that are used again, until a collection: hundreds of links
	// make hundreds of KiB.
	texts sync.Pool
}

type hash [sha256.Size]byte

// Names of the files below the state directory.
const (
	RecordFile = "record.json"
	ReportFile = "state.json"
)

// ErrRunning means that another daemon keeps its state in the same directory.
var ErrRunning = errors.New("another ibnetworkd is running")

// NewStore makes the directory if it is missing, takes it for this process alone, and removes
// the report of an earlier run, which is out of date. With ErrRunning the caller must not go
// on; with any other error the store is there, and gives the reason at each write.
func NewStore(dir string) (*Store, error) {
	s := &Store{dir: dir, parts: map[string][]byte{}}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return s, fmt.Errorf("make the state directory: %w", err)
	}
	f, err := os.OpenFile(filepath.Join(dir, ".lock"), os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return s, fmt.Errorf("lock the state directory: %w", err)
	}
	// The lock ends with the process, however it ends.
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return s, fmt.Errorf("%w: it holds the state directory %s", ErrRunning, dir)
		}
		return s, fmt.Errorf("lock the state directory: %w", err)
	}
	s.lock = f
	return s, s.RemoveReport()
}

// Close unlocks the directory.
func (s *Store) Close() error {
	if s.lock == nil {
		return nil
	}
	return s.lock.Close()
}

// RemoveReport removes the report, at the end of the daemon. The record stays.
func (s *Store) RemoveReport() error {
	if err := os.Remove(filepath.Join(s.dir, ReportFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove the old report: %w", err)
	}
	return nil
}

// LoadRecord reads the record; without one, or with one that cannot be read,
// nothing is ours, and the error says why.
func (s *Store) LoadRecord() (*link.Record, error) {
	b, err := os.ReadFile(filepath.Join(s.dir, RecordFile))
	if errors.Is(err, fs.ErrNotExist) {
		return &link.Record{}, nil
	}
	if err != nil {
		return &link.Record{}, err
	}
	r, err := link.DecodeRecord(b)
	if err != nil {
		return &link.Record{}, fmt.Errorf("%s: %w", filepath.Join(s.dir, RecordFile), err)
	}
	s.record = sha256.Sum256(b)
	return r, nil
}

func (s *Store) text() *bytes.Buffer {
	b, ok := s.texts.Get().(*bytes.Buffer)
	if !ok {
		b = &bytes.Buffer{}
	}
	b.Reset()
	return b
}

// SaveRecord writes the record if it differs from the file.
func (s *Store) SaveRecord(r *link.Record) error {
	b := s.text()
	defer s.texts.Put(b)
	if err := r.EncodeTo(b); err != nil {
		return fmt.Errorf("encode the record: %w", err)
	}
	h := hash(sha256.Sum256(b.Bytes()))
	if h == s.record {
		return nil
	}
	if err := s.write(RecordFile, b.Bytes()); err != nil {
		return err
	}
	s.record = h
	return nil
}

func (s *Store) write(name string, b []byte) error {
	return smallfile.Replace(filepath.Join(s.dir, name), b, 0o644)
}

// SaveReport writes the report; the text of links that have not changed is not
// made again.
func (s *Store) SaveReport(r link.Report, changed func(name string) bool) error {
	b := s.text()
	defer s.texts.Put(b)
	b.WriteString(`{"links":[`)
	seen := make(map[string]bool, len(r.Links))
	for i, st := range r.Links {
		seen[st.Name] = true
		p, ok := s.parts[st.Name]
		if !ok || changed(st.Name) {
			t, err := json.Marshal(st)
			if err != nil {
				return fmt.Errorf("encode the report: %w", err)
			}
			p = t
			s.parts[st.Name] = p
		}
		if i > 0 {
			b.WriteByte(',')
		}
		b.Write(p)
	}
	for n := range s.parts {
		if !seen[n] {
			delete(s.parts, n)
		}
	}
	r.Links, r.Ports = nil, slices.Concat([]link.PortStatus{}, r.Ports)
	rest, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("encode the report: %w", err)
	}
	b.WriteByte(']')
	b.Write(bytes.TrimPrefix(rest, []byte(`{"links":null`)))
	b.WriteByte('\n')
	h := hash(sha256.Sum256(b.Bytes()))
	if h == s.report {
		return nil
	}
	if err := s.write(ReportFile, b.Bytes()); err != nil {
		return err
	}
	s.report = h
	return nil
}

// ReadReport reads the report that a running daemon keeps below dir.
func ReadReport(dir string) (link.Report, error) {
	b, err := os.ReadFile(filepath.Join(dir, ReportFile))
	if err != nil {
		return link.Report{}, err
	}
	var r link.Report
	if err := json.Unmarshal(b, &r); err != nil {
		return link.Report{}, fmt.Errorf("%s: %w", filepath.Join(dir, ReportFile), err)
	}
	return r, nil
}
