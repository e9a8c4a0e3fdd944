package worker

import (
	"context"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"time"

	"github.com/fsnotify/fsnotify"
)

// filePause is how long a file must be quiet before it is read: an editor writes it
// in several steps.
const filePause = 150 * time.Millisecond

// FileWatch watches files by the folders that they are in: a file that is replaced
// is another one, and one that does not exist may come.
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

// Run watches until ctx ends. While there are no files it holds no descriptor.
func (w *FileWatch) Run(ctx context.Context) error {
	var fw *fsnotify.Watcher
	defer func() {
		if fw != nil {
			_ = fw.Close()
		}
	}()
	var events chan fsnotify.Event
	var lost chan error
	var paths []string
	pause := time.NewTimer(time.Hour)
	pause.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case paths = <-w.paths:
			if fw != nil {
				_ = fw.Close()
				fw, events, lost = nil, nil, nil
			}
			if len(paths) == 0 {
				continue
			}
			var err error
			if fw, err = fsnotify.NewWatcher(); err != nil {
				w.log.Warn("the files of [SubnetManager] are not watched: changes need a reload", "error", err)
				fw = nil
				continue
			}
			dirs := map[string]bool{}
			for _, p := range paths {
				dirs[filepath.Dir(p)] = true
				// A link's file is changed where it is.
				if real, err := filepath.EvalSymlinks(p); err == nil && real != p {
					dirs[filepath.Dir(real)] = true
					paths = append(slices.Clone(paths), real)
				}
			}
			for _, d := range slices.Sorted(maps.Keys(dirs)) {
				if err := fw.Add(d); err != nil {
					w.log.Warn("a folder is not watched: changes there need a reload", "path", d, "error", err)
				}
			}
			events, lost = fw.Events, fw.Errors
			pause.Reset(filePause) // what changed before it was watched
		case e, ok := <-events:
			if !ok {
				events = nil
			} else if slices.Contains(paths, e.Name) {
				pause.Reset(filePause)
			}
		case _, ok := <-lost:
			if !ok {
				lost = nil
			} else {
				pause.Reset(filePause)
			}
		case <-pause.C:
			w.changed()
		}
	}
}
