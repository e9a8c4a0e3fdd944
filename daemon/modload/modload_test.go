package modload

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"testing/synctest"
	"time"

	"ibnetworkd/link"
	"ibnetworkd/smctl/worker"
	"ibnetworkd/units"
)

// systemd is one whose answers a test gives.
type systemd struct {
	tried, up chan struct{}
	mu        sync.Mutex // guards what follows, and the test's notices
	err       map[string]error
	asked     []string
	loaded    map[string]bool
}

func (s *systemd) Tried() <-chan struct{}     { return s.tried }
func (s *systemd) Connected() <-chan struct{} { return s.up }
func (s *systemd) LoadModule(_ context.Context, name string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = append(s.asked, name)
	err := s.err[name]
	if err == nil && name != "alias" {
		s.loaded[name] = true
	}
	return err
}

func set(modules ...string) *units.Set {
	fs := fstest.MapFS{}
	for i, m := range modules {
		fs[string(rune('1'+i))+".ibnetwork"] = &fstest.MapFile{Data: []byte("[Match]\nName=ib0\n[Modules]\nLoad=" + m + "\n"), Mode: 0o644}
	}
	return units.Load([]units.Root{{Path: "/etc/systemd/network", FS: fs}})
}

// Each module is loaded once while a unit names it; what fails is a notice, and is
// tried again.
func TestLoader(t *testing.T) {
	t.Setenv("PATH", t.TempDir()) // without modprobe
	synctest.Test(t, func(t *testing.T) {
		s := &systemd{tried: make(chan struct{}), up: make(chan struct{}), err: map[string]error{}, loaded: map[string]bool{"ib_umad": true}}
		var notices []link.Notice
		locked := func(f func()) {
			s.mu.Lock()
			defer s.mu.Unlock()
			f()
		}
		l := New(Config{Log: slog.New(slog.DiscardHandler), Systemd: s,
			Present: func(m string) (ok bool) { locked(func() { ok = s.loaded[m] }); return ok },
			Notice:  func(n ...link.Notice) { locked(func() { notices = n }) }})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- l.Run(ctx) }()
		see := func(what, asked, notice string) {
			t.Helper()
			synctest.Wait()
			s.mu.Lock()
			defer s.mu.Unlock()
			got := ""
			for _, n := range notices {
				got += n.Unit + ": " + n.Text + "\n"
			}
			if a := strings.Join(s.asked, " "); a != asked || !strings.Contains(got, notice) || (notice == "") != (got == "") {
				t.Errorf("%s: asked for %q, want %q; notices %q, want %q", what, a, asked, got, notice)
			}
			s.asked = nil
		}
		l.Update(set("ib_umad", "ib_ipoib", "ib_ipoib"))
		see("before systemd was tried", "", "")
		close(s.tried)
		see("then", "ib_ipoib", "")
		l.Update(set("ib_umad", "ib_ipoib"))
		see("the same again", "", "")

		locked(func() { s.err["bad"] = errors.New("exit status 1") })
		l.Update(set("bad", "alias"))
		see("a load fails", "bad alias",
			"1.ibnetwork: the module bad (Load=, /etc/systemd/network/1.ibnetwork:4:6) cannot be loaded: load module bad: exit status 1")
		if len(notices) != 2 || !strings.Contains(notices[1].Text, "alias or built in") {
			t.Errorf("notices %v", notices)
		}
		locked(func() { delete(s.err, "bad") })
		time.Sleep(retry)
		see("a minute later", "bad alias", "alias or built in")

		locked(func() { s.err["late"] = worker.ErrNoSystemd })
		l.Update(set("late"))
		see("no systemd, and no modprobe", "late", "executable file not found")
		locked(func() { delete(s.err, "late") })
		s.up <- struct{}{}
		see("systemd comes", "late", "")
		s.up <- struct{}{}
		see("and again", "", "")
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// Without a context there is no answer to wait for.
func TestModulesEndWithTheirContext(t *testing.T) {
	l := New(Config{Systemd: &systemd{tried: make(chan struct{})}})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := l.Modules().Load(ctx, "ib_umad"); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}
