// Package testkit is what tests of several packages share.
package testkit

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Buffer is a bytes.Buffer for several goroutines.
type Buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

// Write appends p.
func (b *Buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

// String is what was written since the last Reset.
func (b *Buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// Reset empties it.
func (b *Buffer) Reset() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.b.Reset()
}

// NoError ends the test if there is an error.
func NoError(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Diff is an error of the test if two values differ; what names them, unless the test does.
func Diff(t testing.TB, what string, want, got any, opts ...cmp.Option) {
	t.Helper()
	if d := cmp.Diff(want, got, opts...); d != "" {
		t.Errorf("%s (-want +got):\n%s", what, d)
	}
}

// WriteFiles makes files below root, of texts by names; a text that begins with "->" is where
// a symbolic link leads.
func WriteFiles(t testing.TB, root string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		WriteFile(t, filepath.Join(root, name), text)
	}
}

// WriteFile makes a file and its directories, or a symbolic link as WriteFiles does.
func WriteFile(t testing.TB, path, text string) {
	t.Helper()
	err := os.MkdirAll(filepath.Dir(path), 0o755)
	if to, ok := strings.CutPrefix(text, "->"); ok && err == nil {
		err = os.Symlink(to, path)
	} else if err == nil {
		err = os.WriteFile(path, []byte(text), 0o644)
	}
	NoError(t, err)
}

// ReadFile is what a file has.
func ReadFile(t testing.TB, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	NoError(t, err)
	return b
}

// Run has a task run until the test ends; an error that it returns is one of the test.
func Run(t testing.TB, task func(context.Context) error) {
	ended := make(chan error)
	go func() { ended <- task(t.Context()) }()
	t.Cleanup(func() {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
