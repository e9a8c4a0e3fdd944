// Package resolvconf keeps link.ResolvConfFile: the name servers of all links, for hosts without systemd-resolved.
package resolvconf

import (
	"context"
	"log/slog"
	"os"
	"strings"
	"time"

	"ibnetworkd/daemon"
	"ibnetworkd/internal/smallfile"
	"ibnetworkd/link"
)

// File is the file.
type File struct {
	log  *slog.Logger
	path string
	last string // belongs to Update
	want chan string
}

// New makes a File at a path whose directory exists.
func New(log *slog.Logger, path string) *File {
	return &File{log: log, path: path, want: make(chan string, 1)}
}

// Update takes what the loop has observed. It never blocks, and belongs to one goroutine.
func (f *File) Update(v daemon.View) {
	if v.Snapshot == nil {
		return
	}
	text := link.ResolvConf(v.Snapshot, v.Served)
	if text != f.last {
		f.last = text
		daemon.Replace(f.want, text)
	}
}

// Run writes the file until ctx ends: it begins with the first name server or search domain, and stays.
func (f *File) Run(ctx context.Context) error {
	var again <-chan time.Time
	want, warned := "", false
	for {
		select {
		case <-ctx.Done():
			return nil
		case want = <-f.want:
		case <-again:
		}
		err := f.write(want)
		again = nil
		if err != nil {
			again = time.After(pause)
			if !warned {
				f.log.Warn("name servers are not written, will retry", "file", f.path, "error", err)
			}
		}
		warned = err != nil
	}
}

// pause is how long after the file could not be written it is retried: nothing reports that a
// disk has space again.
const pause = time.Second

func (f *File) write(want string) error {
	old, err := os.ReadFile(f.path)
	if string(old) == want || err != nil && strings.Count(want, "\n") < 2 {
		return nil
	}
	return smallfile.Replace(f.path, []byte(want), 0o644)
}
