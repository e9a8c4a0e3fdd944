package build

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"ibnetworkd/internal/testkit"
)

func builder(t *testing.T) *Builder {
	t.Helper()
	t.Setenv("IBNET_CACHE", t.TempDir())
	b, err := New(t.Output())
	testkit.NoError(t, err)
	return b
}

func TestKeyKeepsPartsApart(t *testing.T) {
	if key("ab", "c") == key("a", "bc") {
		t.Error("two lists of parts have one key")
	}
}

// Many that want one thing get one build, complete under its final name.
func TestOnce(t *testing.T) {
	b := builder(t)
	dir := filepath.Join(b.Cache, "kind", "thing")
	var builds atomic.Int32
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			err := b.once(t.Context(), "thing", dir, func(tmp string) error {
				builds.Add(1)
				return os.WriteFile(filepath.Join(tmp, "f"), []byte("x"), 0o644)
			})
			if err != nil {
				t.Error(err)
			}
			if _, err := os.Stat(filepath.Join(dir, "f")); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if n := builds.Load(); n != 1 {
		t.Errorf("%d builds", n)
	}
}

func TestOnceFails(t *testing.T) {
	b := builder(t)
	dir := filepath.Join(b.Cache, "kind", "thing")
	broken := errors.New("broken")
	if err := b.once(t.Context(), "thing", dir, func(string) error { return broken }); !errors.Is(err, broken) {
		t.Errorf("got %v", err)
	}
	if m, _ := filepath.Glob(dir + "*"); len(m) != 0 {
		t.Errorf("left behind: %v", m)
	}
}

// A build that was killed leaves file systems mounted in its folder; the next build starts empty.
func TestOnceAfterKill(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root mounts")
	}
	b := builder(t)
	dir := filepath.Join(b.Cache, "kind", "thing")
	partial := dir + ".partial"
	for _, m := range []string{"proc", "dev", "dev/shm"} {
		at := filepath.Join(partial, m)
		testkit.NoError(t, os.MkdirAll(at, 0o755))
		if err := syscall.Mount("lab", at, "tmpfs", 0, ""); err != nil {
			t.Skip(err) // no right to
		}
		t.Cleanup(func() { _ = syscall.Unmount(at, syscall.MNT_DETACH) })
	}
	testkit.NoError(t, syscall.Mount("lab", filepath.Join(partial, "proc"), "tmpfs", syscall.MS_REMOUNT|syscall.MS_RDONLY, ""))
	testkit.NoError(t, b.once(t.Context(), "thing", dir, func(tmp string) error {
		left, err := os.ReadDir(tmp)
		if len(left) != 0 {
			t.Errorf("left behind: %v", left)
		}
		return err
	}))
}

func TestLockCancelled(t *testing.T) {
	b := builder(t)
	unlock, err := b.lock(t.Context(), "x", "x")
	testkit.NoError(t, err)
	defer unlock()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := b.lock(ctx, "x", "x"); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func TestRunReportsTheEnd(t *testing.T) {
	b := builder(t)
	log := filepath.Join(b.Cache, "log")
	err := b.run(t.Context(), step{what: "x", log: log}, "sh", "-c", "echo one; echo two >&2; exit 3")
	if err == nil || !strings.Contains(err.Error(), "two") || !strings.Contains(err.Error(), log) ||
		!strings.Contains(err.Error(), "exit status 3") {
		t.Errorf("got %v", err)
	}
	if text, _ := os.ReadFile(log); !strings.Contains(string(text), "one\ntwo") {
		t.Errorf("log: %q", text)
	}
}

func TestCheckConfig(t *testing.T) {
	file := filepath.Join(t.TempDir(), ".config")
	testkit.WriteFile(t, file, "CONFIG_A=y\nCONFIG_S=\"x\"\n# CONFIG_B is not set\n")
	for _, tc := range []struct{ name, want, err string }{
		{"OK", "CONFIG_A=y\nCONFIG_S=\"x\"\n", ""},
		{"OK switched off", "CONFIG_A=y\nCONFIG_B=n\nCONFIG_C=n\n", ""},
		{"OK replaced", "CONFIG_A=m\nCONFIG_A=y\n", ""},
		{"OK comment", "# CONFIG_Z=y\n", ""},
		{"bad lost", "CONFIG_A=y\nCONFIG_Z=y\n", "CONFIG_Z=y"},
		{"bad on", "CONFIG_A=n\n", "CONFIG_A=n"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			err := checkConfig(tc.want, file)
			if tc.err == "" && err != nil || tc.err != "" && (err == nil || !strings.Contains(err.Error(), tc.err)) {
				t.Errorf("got %v, want %q", err, tc.err)
			}
		})
	}
}

func TestEdit(t *testing.T) {
	file := filepath.Join(t.TempDir(), "a.c")
	for _, tc := range []struct{ name, text, want, err string }{
		{"OK", "a;\nb;\n", "a;\nc;\nb;\n", ""},
		{"bad gone", "a;\n", "a;\n", "0 times"},
		{"bad twice", "b;\nb;\n", "b;\nb;\n", "2 times"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			testkit.WriteFile(t, file, tc.text)
			err := edit(file, "b;\n", "c;\nb;\n")
			if tc.err == "" && err != nil || tc.err != "" && (err == nil || !strings.Contains(err.Error(), tc.err)) {
				t.Errorf("got %v, want %q", err, tc.err)
			}
			if got, err := os.ReadFile(file); err != nil || string(got) != tc.want {
				t.Errorf("%q, %v; want %q", got, err, tc.want)
			}
		})
	}
}

// bzImage makes the smallest file that has a kernel's header.
func bzImage(payload []byte) []byte {
	b := make([]byte, 1024)
	b[0x1f1] = 1
	binary.LittleEndian.PutUint32(b[0x248:], 0)
	binary.LittleEndian.PutUint32(b[0x24c:], uint32(len(payload)))
	return append(b, payload...)
}

func zip(s string) []byte {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	fmt.Fprint(w, s)
	w.Close()
	return b.Bytes()
}

func TestUnpackKernel(t *testing.T) {
	dir := t.TempDir()
	in, out := filepath.Join(dir, "in"), filepath.Join(dir, "out")
	for _, tc := range []struct {
		name string
		text []byte
		err  string
	}{
		{"OK", bzImage(zip("\x7fELF...")), ""},
		{"bad short", []byte("x"), "not a kernel"},
		{"bad length", bzImage(zip("\x7fELF"))[:1030], "damaged"},
		{"bad payload", bzImage(zip("text")), "not an ELF"},
		{"bad compression", bzImage([]byte("12345678")), "unknown compression"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			testkit.NoError(t, os.WriteFile(in, tc.text, 0o644))
			err := unpackKernel(in, out)
			if tc.err == "" && err != nil || tc.err != "" && (err == nil || !strings.Contains(err.Error(), tc.err)) {
				t.Errorf("got %v, want %q", err, tc.err)
			}
		})
	}
}

func FuzzUnpackKernel(f *testing.F) {
	f.Add(bzImage(zip("\x7fELF...")))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) > 0x250 && bytes.Contains(b, []byte{0xfd, '7', 'z'}) || bytes.Contains(b, []byte{0x28, 0xb5, 0x2f}) {
			t.Skip("needs a program for each input")
		}
		dir := t.TempDir()
		in := filepath.Join(dir, "in")
		testkit.NoError(t, os.WriteFile(in, b, 0o644))
		_ = unpackKernel(in, filepath.Join(dir, "out"))
	})
}

// Half a package that a killed download left is no package, and one that is whole is
// fetched once.
func TestDownload(t *testing.T) {
	b := builder(t)
	bin := t.TempDir()
	write := func(script string) {
		t.Helper()
		testkit.NoError(t, os.WriteFile(filepath.Join(bin, "apt-get"), []byte("#!/bin/sh\n"+script), 0o755))
	}
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	// A mirror that goes away in the middle.
	write("[ \"$2\" = download ] && echo half > \"$3_1.0_amd64.deb\"; exit 100\n")
	if _, err := b.Packages(t.Context(), "some"); !errors.Is(err, ErrUnavailable) {
		t.Errorf("a broken mirror: %v", err)
	}
	write("[ \"$2\" = download ] && echo whole > \"$3_1.0_amd64.deb\"\n")
	for range 2 {
		files, err := b.Packages(t.Context(), "some")
		testkit.NoError(t, err)
		if text, _ := os.ReadFile(files[0]); string(text) != "whole\n" {
			t.Errorf("got %q", text)
		}
		write("exit 100\n") // not asked again
	}
	if m, _ := filepath.Glob(filepath.Join(b.Cache, "debs/extra/*")); len(m) != 1 {
		t.Errorf("left behind: %v", m)
	}
}

// Unused results are pruned for new ones.
func TestPrune(t *testing.T) {
	b := builder(t)
	kind := filepath.Join(b.Cache, "kind")
	have := func() string {
		var names []string
		entries, _ := os.ReadDir(kind)
		for _, e := range entries {
			names = append(names, e.Name())
		}
		return strings.Join(names, " ")
	}
	for name, age := range map[string]time.Duration{
		"forgotten": 40 * 24 * time.Hour, "old": 40 * 24 * time.Hour, "recent": 20 * 24 * time.Hour,
		"killed.partial": 2 * 24 * time.Hour, "running.partial": time.Hour,
	} {
		dir := filepath.Join(kind, name)
		testkit.NoError(t, os.MkdirAll(dir, 0o755))
		at := time.Now().Add(-age)
		testkit.NoError(t, os.Chtimes(dir, at, at))
	}
	for _, name := range []string{"old", "new"} { // the old one is there, and used by that
		testkit.NoError(t, b.once(t.Context(), name, filepath.Join(kind, name), func(string) error { return nil }))
	}
	if got, want := have(), "new old recent running.partial"; got != want {
		t.Errorf("left are %q, want %q", got, want)
	}
}
