package filewatch

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/fsnotify/fsnotify"
)

// The creation, change and removal of a file are reported, also if its directories do not
// exist yet or are removed and re-created, or if its path is not clean.
func TestFiles(t *testing.T) {
	root := t.TempDir()
	changed := make(chan struct{}, 1)
	w := NewFiles(slog.New(slog.DiscardHandler), func() { changed <- struct{}{} })
	go func() { _ = w.Run(t.Context()) }()
	file := filepath.Join(root, "a/b/p.conf")
	w.Watch([]string{root + "/a//b/./p.conf"})
	seen := func(what string) {
		t.Helper()
		select {
		case <-changed:
		case <-time.After(5 * time.Second):
			t.Fatalf("%s: not seen", what)
		}
	}
	do := func(what string, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
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
	if err != nil {
		t.Fatal(err)
	}
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
