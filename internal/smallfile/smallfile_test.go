package smallfile

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"ibnetworkd/internal/testkit"
)

func TestReadEachSize(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	for _, n := range []int{0, 1, 4095, 4096, 4097, 8192, 10000} {
		want := bytes.Repeat([]byte("x"), n)
		testkit.NoError(t, os.WriteFile(path, want, 0o644))
		if got, err := Read(path, 10000); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%d bytes: %d, %v", n, len(got), err)
		}
		if _, err := Read(path, n); err != nil {
			t.Errorf("just %d bytes: %v", n, err)
		}
		if got, err := ReadTo(path, make([]byte, n+1)); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%d bytes to a buffer: %d, %v", n, len(got), err)
		}
		if _, err := ReadTo(path, make([]byte, n)); !errors.Is(err, ErrTooLarge) {
			t.Errorf("%d bytes to a buffer of as many: %v", n, err)
		}
		if got, err := ReadRegular(path, 1<<20); err != nil || !bytes.Equal(got, want) || n > 0 && cap(got) > n+1 {
			t.Errorf("%d bytes of a regular file: %d in %d, %v", n, len(got), cap(got), err)
		}
		if n > 0 {
			if _, err := Read(path, n-1); !errors.Is(err, ErrTooLarge) {
				t.Errorf("%d bytes where %d are allowed: %v", n, n-1, err)
			}
		}
	}
	if _, err := Read(path+"x", 1); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	if _, err := Read(filepath.Dir(path), 1); err == nil {
		t.Error("a directory was read")
	}
}

// Settings are read as package os reads them.
func TestReadSettings(t *testing.T) {
	for _, p := range []string{"/proc/sys/kernel/hostname", "/proc/sys/kernel/ostype", "/sys/class/net/lo/mtu"} {
		want, err := os.ReadFile(p)
		if err != nil {
			continue
		}
		if got, err := Read(p, 4096); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: %q, %v, want %q", p, got, err, want)
		}
	}
}

func TestReplace(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "f")
	for _, text := range []string{"one", "a longer one", ""} {
		testkit.NoError(t, Replace(path, []byte(text), 0o640))
		if b, err := os.ReadFile(path); err != nil || string(b) != text {
			t.Errorf("%q, %v", b, err)
		}
	}
	if st, err := os.Stat(path); err != nil || st.Mode().Perm() != 0o640 {
		t.Error(st.Mode(), err)
	}
	// What cannot be replaced leaves nothing behind.
	testkit.NoError(t, os.MkdirAll(filepath.Join(dir, "d", "x"), 0o755))
	if err := Replace(filepath.Join(dir, "d"), nil, 0o644); err == nil {
		t.Error("a directory was replaced")
	}
	es, err := os.ReadDir(dir)
	if err != nil || len(es) != 2 {
		t.Error(es, err)
	}
	if err := Replace(filepath.Join(dir, "none", "f"), nil, 0o644); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
}

func TestWriteMakesNoFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	if err := Write(path, []byte("x")); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	testkit.NoError(t, os.WriteFile(path, nil, 0o644))
	if err := Write(path, []byte("x")); err != nil {
		t.Error(err)
	}
}
