package filewatch

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"ibnetworkd/internal/testkit"

	"github.com/fsnotify/fsnotify"
)

// files runs a Files; seen waits until it reports a change.
func files(t *testing.T) (w *Files, seen func(what string)) {
	changed := make(chan struct{}, 1)
	w = NewFiles(slog.New(slog.DiscardHandler), func() { changed <- struct{}{} })
	go func() { _ = w.Run(t.Context()) }()
	return w, func(what string) {
		t.Helper()
		select {
		case <-changed:
		case <-time.After(5 * time.Second):
			t.Fatalf("%s: not seen", what)
		}
	}
}

// The creation, change and removal of a file are reported, also if its directories do not
// exist yet or are removed and re-created, or if its path is not clean.
func TestFiles(t *testing.T) {
	root := t.TempDir()
	w, seen := files(t)
	file := filepath.Join(root, "a/b/p.conf")
	w.Watch([]string{root + "/a//b/./p.conf"})
	do := func(what string, err error) {
		t.Helper()
		testkit.NoError(t, err)
		seen(what)
	}
	seen("the start")
	do("a directory above", os.Mkdir(filepath.Join(root, "a"), 0o755))
	do("the directory", os.Mkdir(filepath.Join(root, "a/b"), 0o755))
	do("the file", os.WriteFile(file, []byte("1"), 0o644))
	do("an edit", os.WriteFile(file, []byte("2"), 0o644))
	do("the directory's removal", os.RemoveAll(filepath.Join(root, "a")))
	do("both directories", os.MkdirAll(filepath.Join(root, "a/b"), 0o755))
	do("the file again", os.WriteFile(file, []byte("3"), 0o644))
	do("a link in its place", func() error {
		if err := os.WriteFile(filepath.Join(root, "real"), nil, 0o644); err != nil {
			return err
		}
		_ = os.Remove(file)
		return os.Symlink(filepath.Join(root, "real"), file)
	}())
	do("an edit behind the link", os.WriteFile(filepath.Join(root, "real"), []byte("4"), 0o644))
}

// The watch of / names what is in it with two slashes, as when a file's first directory does
// not exist yet.
func TestNameBelowRoot(t *testing.T) {
	w, err := New(slog.New(slog.DiscardHandler))
	testkit.NoError(t, err)
	got := make(chan bool)
	go w.Run(t.Context(), func(e fsnotify.Event) bool {
		got <- Leads(e.Name, []string{"/data/p.conf"})
		return false
	}, nil)
	w.fs.Events <- fsnotify.Event{Name: "//data", Op: fsnotify.Create}
	if !<-got {
		t.Error("a directory that appears below / is not seen")
	}
}

// An empty directory is seen to go also while a program is in it, so that a file in
// the next one is seen.
func TestRemovedInUse(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a")
	testkit.NoError(t, os.Mkdir(dir, 0o755))
	f, err := os.Open(dir)
	testkit.NoError(t, err)
	defer f.Close()
	w, seen := files(t)
	w.Watch([]string{filepath.Join(dir, "p.conf")})
	seen("the start")
	testkit.NoError(t, os.Remove(dir))
	seen("the removal")
	testkit.WriteFile(t, filepath.Join(dir, "p.conf"), "")
	seen("the file")
}

// A watched directory that is moved and removed at once, which makes the watcher report an
// error, does not keep a caller of Add waiting and counts as lost changes.
func TestMovedAndRemoved(t *testing.T) {
	root := t.TempDir()
	dir := filepath.Join(root, "a")
	testkit.NoError(t, os.Mkdir(dir, 0o755))
	w, err := New(slog.New(slog.DiscardHandler))
	testkit.NoError(t, err)
	w.Add(dir)
	for _, name := range []string{"b", "c"} {
		testkit.NoError(t, os.Mkdir(filepath.Join(dir, name), 0o755))
	}
	added, lost := make(chan error), make(chan struct{}, 1)
	go w.Run(t.Context(), func(e fsnotify.Event) bool {
		switch {
		case e.Name == "":
			lost <- struct{}{}
		case e.Name == filepath.Join(dir, "b") && e.Op == fsnotify.Create:
			// The creation of c waits to be received: what comes now is not read before it.
			err := os.Rename(dir, dir+"2")
			added <- errors.Join(err, os.RemoveAll(dir+"2"))
		case e.Name == filepath.Join(dir, "c") && e.Op == fsnotify.Create:
			time.Sleep(100 * time.Millisecond) // until the move is handled
			w.Add(root)
			added <- nil
		}
		return false
	}, nil)
	for range 2 {
		select {
		case err := <-added:
			testkit.NoError(t, err)
		case <-time.After(5 * time.Second):
			t.Fatal("Add does not return")
		}
	}
	select {
	case <-lost:
	case <-time.After(5 * time.Second):
		t.Error("the lost changes are not reported")
	}
}

// Two files of one directory that is named in two ways are both watched, and one stays
// watched without the other.
func TestOneDirectory(t *testing.T) {
	root := t.TempDir()
	real, link := filepath.Join(root, "real"), filepath.Join(root, "link")
	testkit.NoError(t, errors.Join(os.Mkdir(real, 0o755), os.Symlink(real, link)))
	w, seen := files(t)
	p, q, r := filepath.Join(link, "p"), filepath.Join(real, "q"), filepath.Join(real, "r")
	for _, files := range [][]string{{p, q, r}, {q, r}, {r}, {r, p}, {p}} {
		w.Watch(files)
		seen("the start")
		for _, f := range files {
			testkit.NoError(t, os.WriteFile(f, nil, 0o644))
			seen(f)
		}
	}
}
