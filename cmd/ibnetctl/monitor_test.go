package main

import (
	"bytes"
	"context"
	"errors"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"ibnetworkd/daemon/bus/api"
	"ibnetworkd/internal/testkit"
	"ibnetworkd/link"
)

// Without a bus the daemon is called when its report changes, and each change of a link and of the daemon
// itself is printed.
func TestMonitorBySocket(t *testing.T) {
	dir := t.TempDir()
	var mu sync.Mutex
	state, err := link.StateConfiguring, error(nil)
	set := func(s link.State, e error) {
		mu.Lock()
		state, err = s, e
		mu.Unlock()
		testkit.WriteFile(t, filepath.Join(dir, "report.json"), string(s))
	}
	out := &testkit.Buffer{}
	m := &monitor{app: &app{out: out, err: &bytes.Buffer{}}, describe: func(context.Context) (*api.Description, error) {
		mu.Lock()
		defer mu.Unlock()
		return &api.Description{Links: []link.Status{{Name: "ib0", State: state}}}, err
	}}
	testkit.Run(t, func(ctx context.Context) error { return m.bySocket(ctx, dir) })
	until := func(want string) {
		t.Helper()
		for end := time.Now().Add(30 * time.Second); !strings.Contains(out.String(), want); time.Sleep(5 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("got %q, want %q", out.String(), want)
			}
		}
	}
	for end := time.Now().Add(30 * time.Second); !strings.Contains(out.String(), "state configuring -> configured"); {
		set(link.StateConfiguring, nil) // it may not watch yet
		time.Sleep(20 * time.Millisecond)
		set(link.StateConfigured, nil)
		time.Sleep(20 * time.Millisecond)
		if time.Now().After(end) {
			t.Fatalf("got %q", out.String())
		}
	}
	set("", errors.New("connection refused"))
	until("ibnetworkd: state running -> gone\n")
	set(link.StateFailed, nil)
	until("ibnetworkd: state gone -> running\n")
	until("ib0: state configured -> failed\n")
}
