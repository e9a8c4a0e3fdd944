// Package leasename gives the host the name of a lease: by systemd-hostnamed, since the daemon's
// sandbox does not permit sethostname(2), or by that call on a host without systemd-hostnamed.
package leasename

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/godbus/dbus/v5"
	"golang.org/x/sys/unix"

	"ibnetworkd/daemon"
	"ibnetworkd/internal/busconn"
	"ibnetworkd/internal/smallfile"
	"ibnetworkd/link"
)

const (
	patience = 10 * time.Second // for an answer of a service that may start for the call
	again    = time.Minute      // after a failure, twice that after the next one
	atMost   = time.Hour
)

// Setter sets the name.
type Setter struct {
	log    *slog.Logger
	bus    string
	handed *daemon.Handed // the name; belongs to Run
	settle time.Duration
	reread func(links map[int]bool)
	direct direct
	last   string // belongs to Update
	want   chan want

	mu      sync.Mutex // guards what follows
	trouble string
	has     string // the name of the host after the last call
}

type want struct {
	name  string
	links map[int]bool // whose status shows it
}

// New makes a Setter on a bus, "" for the system bus. file records the name that was set, to be taken
// back when no unit asks for it after a restart. reread is called with the links whose status changes.
func New(log *slog.Logger, bus, file string, reread func(links map[int]bool)) *Setter {
	return &Setter{log: log, bus: bus, handed: daemon.OpenHanded(log, file), settle: daemon.HandedSettle, reread: reread,
		direct: direct{static: staticName, get: os.Hostname, set: func(name string) error { return unix.Sethostname([]byte(name)) }},
		want:   make(chan want, 1)}
}

// Update takes what the loop has observed. It never blocks, and belongs to one goroutine.
func (s *Setter) Update(v daemon.View) {
	if v.Snapshot == nil {
		return
	}
	name, on := link.LeaseHostname(v.Snapshot, v.Served)
	if name != s.last {
		s.last = name
		w := want{name: name}
		if name != "" {
			w.links = map[int]bool{on: true}
		}
		daemon.Replace(s.want, w)
	}
}

// Complete adds to a snapshot why the name cannot be set.
func (s *Setter) Complete(snap *link.Snapshot) {
	s.mu.Lock()
	defer s.mu.Unlock()
	snap.Host.HostnameTrouble, snap.Host.LeaseHostname = s.trouble, s.has
}

// Run sets the name until ctx ends, and the static one again when no lease has one.
func (s *Setter) Run(ctx context.Context) error {
	var w want
	var retry <-chan time.Time
	pause := again
	if len(s.handed.Items()) > 0 {
		retry = time.After(s.settle)
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case w = <-s.want:
			pause = again
		case <-retry:
		}
		retry = nil
		has, err := s.set(ctx, w.name)
		trouble := ""
		if err != nil {
			retry, trouble = time.After(pause), err.Error()
			pause = min(2*pause, atMost)
		}
		s.mu.Lock()
		changed := trouble != s.trouble || has != s.has
		s.trouble, s.has = trouble, has
		s.mu.Unlock()
		if changed && err != nil {
			s.log.Warn("the host does not get the name of the lease, will retry", "name", w.name, "error", err)
		}
		if changed && len(w.links) > 0 {
			s.reread(w.links)
		}
	}
}

// set sets the name by systemd-hostnamed or, if that fails, directly, and returns the name that the
// host has then; an empty name is the static one. A name is taken back only if the host still has it.
func (s *Setter) set(ctx context.Context, name string) (has string, err error) {
	has, err = s.setByBus(ctx, name)
	if err == nil || ctx.Err() != nil {
		return has, err
	}
	has, refused := s.setDirectly(name)
	if refused != nil {
		return "", fmt.Errorf("%w; sethostname: %w", err, refused)
	}
	return has, nil
}

// direct reads and sets the name of the host without systemd-hostnamed.
type direct struct {
	static func() string
	get    func() (string, error)
	set    func(name string) error
}

// staticName is the name in hostname(5). "localhost" counts as none, as with DHCP clients.
func staticName() string {
	b, err := smallfile.ReadRegular("/etc/hostname", 4096)
	if err != nil {
		return ""
	}
	for l := range strings.Lines(string(b)) {
		if l = strings.TrimSpace(l); l != "" && !strings.HasPrefix(l, "#") {
			if l == "localhost" {
				break
			}
			return l
		}
	}
	return ""
}

// setDirectly sets the name by sethostname(2), unless there is a static one.
func (s *Setter) setDirectly(name string) (has string, err error) {
	has, err = s.direct.get()
	if err != nil {
		return "", err
	}
	static := s.direct.static()
	before := s.handed.Items()
	if name == "" && !slices.Contains(before, has) || name != "" && static != "" {
		s.handed.Set(nil) // another program has set the name, or the static one has precedence
		return has, nil
	}
	to := cmp.Or(name, static, "localhost")
	s.handed.Add([]string{to})
	if err := s.direct.set(to); err != nil {
		s.handed.Set(before)
		return "", err
	}
	s.handed.Set(strings.Fields(name))
	return to, nil
}

// setByBus sets the name by systemd-hostnamed, which the bus starts.
func (s *Setter) setByBus(ctx context.Context, name string) (has string, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	conn, err := busconn.Join(ctx, busconn.Config{Address: s.bus})
	if err != nil {
		return "", fmt.Errorf("join the system bus: %w", err)
	}
	defer conn.Close()
	o := conn.Object("org.freedesktop.hostname1", "/org/freedesktop/hostname1")
	get := func() (string, error) {
		var v dbus.Variant
		err := o.CallWithContext(ctx, "org.freedesktop.DBus.Properties.Get", 0, "org.freedesktop.hostname1", "Hostname").Store(&v)
		if err != nil {
			return "", fmt.Errorf("get the name from systemd-hostnamed: %w", err)
		}
		has, _ := v.Value().(string)
		return busconn.Clean(has), nil
	}
	if name == "" {
		has, err := get()
		if err != nil {
			return "", err
		}
		if !slices.Contains(s.handed.Items(), has) {
			s.handed.Set(nil)
			return has, nil
		}
	}
	names := strings.Fields(name)
	s.handed.Add(names)
	if err := o.CallWithContext(ctx, "org.freedesktop.hostname1.SetHostname", 0, name, false).Err; err != nil {
		return "", fmt.Errorf("SetHostname of systemd-hostnamed: %w", err)
	}
	s.handed.Set(names)
	return get()
}
