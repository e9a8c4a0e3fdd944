// Package filewatch reports changes of files and directories, also of those that do not
// exist yet.
package filewatch

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fsnotify/fsnotify"
	"golang.org/x/sys/unix"
)

// pause is the time without changes after which files are read: an editor writes a file
// in several steps, a package manager writes many files.
const pause = 150 * time.Millisecond

// Watcher watches directories.
type Watcher struct {
	log    *slog.Logger
	fs     *fsnotify.Watcher
	lost   chan struct{}
	mu     sync.Mutex
	failed map[string]bool
	names  map[string][]string // by a directory's path without symbolic links: what else Add got
}

// New makes a Watcher, for one Run.
func New(log *slog.Logger) (*Watcher, error) {
	fw, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, err
	}
	w := &Watcher{log: log, fs: fw, lost: make(chan struct{}, 1), failed: map[string]bool{}, names: map[string][]string{}}
	go func() {
		// fsnotify keeps its lock until an error is received: Add would wait for it.
		for range fw.Errors {
			select {
			case w.lost <- struct{}{}:
			default:
			}
		}
	}()
	return w, nil
}

// Add watches directories; for one that does not exist, the nearest parent that does.
func (w *Watcher) Add(dirs ...string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, d := range dirs {
		w.add(d)
	}
}

func (w *Watcher) add(dir string) {
	parent, err := filepath.Dir(dir), w.watch(dir)
	switch {
	case err == nil || errors.Is(err, fsnotify.ErrClosed):
		// The end of a directory that is in use, or in which a file is open, is reported to a
		// watch of its parent only.
		_ = w.watch(parent)
	case parent != dir && (errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR)):
		w.add(parent)
		if _, err := os.Stat(dir); err == nil {
			w.add(dir) // made meanwhile: there was no event
		}
	case !w.failed[dir]:
		w.failed[dir] = true
		w.log.Warn("cannot watch a directory: changes there need a reload", "path", dir, "error", err)
	}
}

// watch watches one directory. The kernel has one watch for each, whatever its name.
func (w *Watcher) watch(dir string) error {
	real, err := filepath.EvalSymlinks(dir)
	if err == nil {
		err = w.fs.Add(real)
	}
	if err == nil && real != dir && !slices.Contains(w.names[real], dir) {
		w.names[real] = append(w.names[real], dir)
	}
	return err
}

// namesOf is a path and its other names below what was added.
func (w *Watcher) namesOf(path string) []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := append([]string{path}, w.names[path]...)
	for _, d := range w.names[filepath.Dir(path)] {
		out = append(out, filepath.Join(d, filepath.Base(path)))
	}
	return out
}

// Run calls event for each change until ctx ends, by each name of what has changed, and with a
// zero Event if changes were lost. It calls quiet once event has returned true and has not done so again for pause.
func (w *Watcher) Run(ctx context.Context, event func(fsnotify.Event) bool, quiet func()) {
	defer func() { _ = w.fs.Close() }()
	t := time.NewTimer(time.Hour)
	t.Stop()
	for {
		var e fsnotify.Event
		select {
		case <-ctx.Done():
			return
		case e = <-w.fs.Events:
			e.Name = filepath.Clean(e.Name) // what is in / begins with //
		case <-w.lost:
		case <-t.C:
			quiet()
			continue
		}
		for _, e.Name = range w.namesOf(e.Name) {
			if event(e) {
				t.Reset(pause)
			}
		}
	}
}

// Leads reports whether name is one of paths or a directory above one of them.
func Leads(name string, paths []string) bool {
	return slices.ContainsFunc(paths, func(p string) bool { return p == name || strings.HasPrefix(p, name+"/") })
}

// Files watches files through their directories, because a file may be replaced, and it or
// its directory may not exist yet.
type Files struct {
	log     *slog.Logger
	changed func()
	paths   chan []string
}

// NewFiles makes a Files that calls changed when a file has changed.
func NewFiles(log *slog.Logger, changed func()) *Files {
	return &Files{log: log, changed: changed, paths: make(chan []string, 1)}
}

// Watch replaces the files. It never blocks: the newest list wins.
func (f *Files) Watch(paths []string) {
	for {
		select {
		case f.paths <- paths:
			return
		default:
		}
		select {
		case <-f.paths:
		default:
		}
	}
}

// Run watches until ctx ends. While there are no files it has no descriptor.
func (f *Files) Run(ctx context.Context) error {
	stop := func() {}
	defer func() { stop() }()
	for {
		select {
		case <-ctx.Done():
			return nil
		case paths := <-f.paths:
			stop()
			of, cancel := context.WithCancel(ctx)
			var g sync.WaitGroup
			g.Go(func() { f.watch(of, paths) })
			stop = func() { cancel(); g.Wait() }
		}
	}
}

func (f *Files) watch(ctx context.Context, paths []string) {
	if len(paths) == 0 {
		return
	}
	w, err := New(f.log)
	if err != nil {
		f.log.Warn("cannot watch files: changes there need a reload", "files", paths, "error", err)
		return
	}
	var names []string // paths, and the targets of those that are symbolic links
	arm := func() {
		names = nil
		for _, p := range paths {
			w.Add(filepath.Dir(p)) // before the link is read: it may change
			names = append(names, filepath.Clean(p))
			if target, err := filepath.EvalSymlinks(p); err == nil {
				w.Add(filepath.Dir(target))
				names = append(names, target)
			}
		}
		f.changed()
	}
	arm()
	w.Run(ctx, func(e fsnotify.Event) bool { return e.Name == "" || Leads(e.Name, names) }, arm)
}
