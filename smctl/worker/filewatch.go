package worker

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/fsnotify/fsnotify"
)

// filePause is how long a file must be quiet before it is read: an editor writes it
// in several steps.
const filePause = 150 * time.Millisecond

// FileWatch watches files by the directories that they are in: a file that is replaced
// is another one, and one that does not exist may appear, its directory too.
type FileWatch struct {
	log     *slog.Logger
	changed func()
	paths   chan []string
}

// NewFileWatch makes a FileWatch that calls changed when a file has changed.
func NewFileWatch(log *slog.Logger, changed func()) *FileWatch {
	return &FileWatch{log: log, changed: changed, paths: make(chan []string, 1)}
}

// Watch replaces the files. It never blocks: the newest list wins.
func (w *FileWatch) Watch(paths []string) {
	for {
		select {
		case w.paths <- paths:
			return
		default:
		}
		select {
		case <-w.paths:
		default:
		}
	}
}

// Run watches until ctx ends. While there are no files it has no descriptor.
func (w *FileWatch) Run(ctx context.Context) error {
	var at *armed
	defer func() { at.close() }()
	pause := time.NewTimer(time.Hour)
	pause.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case paths := <-w.paths:
			at.close()
			if at = w.open(paths); at != nil {
				pause.Reset(filePause) // what changed before it was watched
			}
		case e := <-at.events():
			if at.concerns(e.Name) {
				at.arm()
				pause.Reset(filePause)
			}
		case <-at.errors():
			at.arm()
			pause.Reset(filePause)
		case <-pause.C:
			w.changed()
		}
	}
}

// armed is a watcher on the directories of some files.
type armed struct {
	log     *slog.Logger
	watcher *fsnotify.Watcher
	paths   []string // as configured, clean
	names   []string // those, and where their links end
	failed  map[string]bool
}

// open watches the directories of files; nil without files.
func (w *FileWatch) open(paths []string) *armed {
	if len(paths) == 0 {
		return nil
	}
	fw, err := fsnotify.NewWatcher()
	if err != nil {
		w.log.Warn("the files of [SubnetManager] are not watched: changes need a reload", "error", err)
		return nil
	}
	a := &armed{log: w.log, watcher: fw, failed: map[string]bool{}}
	for _, p := range paths {
		a.paths = append(a.paths, filepath.Clean(p))
	}
	a.arm()
	return a
}

// arm watches the directory of each file, or the nearest parent that exists.
func (a *armed) arm() {
	a.names = slices.Clone(a.paths)
	for _, p := range a.paths {
		// A link's file is changed where it is.
		if real, err := filepath.EvalSymlinks(p); err == nil && real != p {
			a.names = append(a.names, real)
		}
	}
	for _, p := range a.names {
		a.add(filepath.Dir(p))
	}
}

// add watches a directory, or the nearest parent that exists.
func (a *armed) add(dir string) {
	err := a.watcher.Add(dir)
	if parent := filepath.Dir(dir); errors.Is(err, fs.ErrNotExist) && parent != dir {
		a.add(parent)
		if _, err := os.Stat(dir); err == nil {
			a.add(dir) // made meanwhile: there was no event
		}
		return
	}
	if err != nil && !a.failed[dir] {
		a.failed[dir] = true
		a.log.Warn("a directory is not watched: changes there need a reload", "path", dir, "error", err)
	}
}

// concerns reports whether name is a file that is watched, or a directory that one is
// in, at any depth.
func (a *armed) concerns(name string) bool {
	return slices.ContainsFunc(a.names, func(p string) bool { return p == name || strings.HasPrefix(p, name+"/") })
}

func (a *armed) events() <-chan fsnotify.Event {
	if a == nil {
		return nil
	}
	return a.watcher.Events
}

func (a *armed) errors() <-chan error {
	if a == nil {
		return nil
	}
	return a.watcher.Errors
}

func (a *armed) close() {
	if a != nil {
		_ = a.watcher.Close()
	}
}
