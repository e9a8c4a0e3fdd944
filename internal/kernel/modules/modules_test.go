package modules

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"ibnetworkd/internal/testkit"
)

// A modprobe of the test's own, first in PATH.
func fake(t *testing.T, script string) string {
	dir := t.TempDir()
	testkit.NoError(t, os.WriteFile(filepath.Join(dir, "modprobe"), []byte("#!/bin/sh\n"+script), 0o755))
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	return filepath.Join(dir, "log")
}

func TestLoad(t *testing.T) {
	log := fake(t, `echo "$@" >> "$(dirname "$0")/log"`)
	testkit.NoError(t, (Loader{}).Load(context.Background(), "ib_umad", "rdma-rxe"))
	b, err := os.ReadFile(log)
	if want := "--use-blacklist -- ib_umad\n--use-blacklist -- rdma-rxe\n"; string(b) != want || err != nil {
		t.Errorf("modprobe was called with %q, want %q", b, want)
	}
	for _, n := range []string{"", "-r", "a b", "../x", "a\x00"} {
		if err := (Loader{}).Load(context.Background(), n); err == nil {
			t.Errorf("bad name %q: no error", n)
		}
	}
}

func TestLoadKeepsTheWords(t *testing.T) {
	fake(t, "echo 'modprobe: FATAL: Module ib_umad not found' >&2; exit 1")
	if err := (Loader{}).Load(context.Background(), "ib_umad"); err == nil || !strings.Contains(err.Error(), "not found") {
		t.Errorf("got %v", err)
	}
}

func TestLoadEndsWithItsContext(t *testing.T) {
	fake(t, "exec sleep 60")
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	if err := (Loader{}).Load(ctx, "ib_umad"); err == nil || !strings.Contains(err.Error(), "deadline") {
		t.Errorf("got %v", err)
	}
}

func TestPresent(t *testing.T) {
	root := t.TempDir()
	testkit.NoError(t, os.MkdirAll(filepath.Join(root, "sys/module/rdma_rxe"), 0o755))
	for module, want := range map[string]bool{"rdma_rxe": true, "rdma-rxe": true, "siw": false} {
		if got := Present(root)(module); got != want {
			t.Errorf("%s: %v", module, got)
		}
	}
}
