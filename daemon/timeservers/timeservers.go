// Package timeservers passes the time servers of leases to systemd-timesyncd and chronyd.
package timeservers

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/godbus/dbus/v5"

	"ibnetworkd/daemon"
	"ibnetworkd/internal/backoff"
	"ibnetworkd/internal/busconn"
	"ibnetworkd/link"
)

const (
	name    = "org.freedesktop.timesync1"
	object  = "/org/freedesktop/timesync1"
	manager = "org.freedesktop.timesync1.Manager"

	patience = 5 * time.Second  // for an answer
	again    = 30 * time.Second // after one that did not come, or a refusal
)

// Timesyncd passes them to systemd-timesyncd.
type Timesyncd struct {
	log    *slog.Logger
	bus    string
	handed *daemon.Handed // the servers; belongs to Run
	settle time.Duration
	reread func(links map[int]bool)
	inbox

	mu      sync.Mutex // guards what follows
	running bool       // systemd-timesyncd is on the bus
	given   []string   // what it has, without those of its own file
}

// inbox passes the servers of the leases from the loop to Run.
type inbox struct {
	last want // belongs to Update
	want chan want
}

type want struct {
	servers []string
	links   map[int]bool // that have them
}

// NewTimesyncd makes a Timesyncd on a bus, "" for the system bus. file records what was handed over, to be
// removed when nothing asks for it after a restart. reread is called with the links whose status changes.
func NewTimesyncd(log *slog.Logger, bus, file string, reread func(links map[int]bool)) *Timesyncd {
	return &Timesyncd{log: log, bus: bus, handed: daemon.OpenHanded(log, file), settle: daemon.HandedSettle, reread: reread,
		inbox: inbox{want: make(chan want, 1)}}
}

// Update takes what the loop has observed. It never blocks, and belongs to one goroutine.
func (s *inbox) Update(v daemon.View) {
	if v.Snapshot == nil {
		return
	}
	w := want{links: map[int]bool{}}
	w.servers = link.TimeServers(v.Snapshot, v.Served)
	if slices.Equal(w.servers, s.last.servers) {
		return
	}
	for i := range v.Snapshot.Links {
		if l := &v.Snapshot.Links[i]; l.DHCP != nil || l.DHCP6 != nil {
			w.links[l.Index] = true
		}
	}
	s.last = w
	daemon.Replace(s.want, w)
}

// Complete adds to a snapshot whether systemd-timesyncd runs and what it was given.
func (s *Timesyncd) Complete(snap *link.Snapshot) {
	s.mu.Lock()
	defer s.mu.Unlock()
	snap.Host.Timesync, snap.Host.TimeServers = s.running, s.given
}

func (s *Timesyncd) set(running bool, given []string, w want) {
	s.mu.Lock()
	same := running == s.running && slices.Equal(given, s.given)
	s.running, s.given = running, given
	s.mu.Unlock()
	if !same {
		s.reread(w.links)
	}
}

// Run passes the servers until ctx ends. The bus is joined when there is a first server, or one
// that was handed over before and that no lease has any more.
func (s *Timesyncd) Run(ctx context.Context) error {
	var w want
	if len(s.handed.Items()) > 0 {
		select {
		case <-ctx.Done():
			return nil
		case w = <-s.want:
		case <-time.After(s.settle):
		}
	}
	pause := backoff.Pause{Socket: backoff.SystemBus}
	for {
		for len(w.servers) == 0 && len(s.handed.Items()) == 0 {
			select {
			case <-ctx.Done():
				return nil
			case w = <-s.want:
			}
		}
		if s.follow(ctx, &w) {
			pause.Reset()
		}
		s.set(false, nil, w)
		if !pause.Wait(ctx) {
			return nil
		}
		select {
		case w = <-s.want:
		default:
		}
	}
}

// follow is one life of a connection, and reports whether there was one.
func (s *Timesyncd) follow(ctx context.Context, w *want) (joined bool) {
	conn, err := busconn.Join(ctx, busconn.Config{Address: s.bus})
	if err != nil {
		return false
	}
	defer conn.Close()
	signals := make(chan *dbus.Signal, 16)
	conn.Signal(signals)
	owner, err := conn.TrustOwner(ctx, name)
	if err != nil {
		return false
	}
	var given []string // by this connection
	warned := false
	for {
		var retry <-chan time.Time
		if owner == "" { // it forgets them when it ends
			given = nil
			s.handed.Set(nil)
		} else if !slices.Equal(given, w.servers) || len(w.servers) == 0 && len(s.handed.Items()) > 0 {
			before := s.handed.Items()
			s.handed.Add(w.servers)
			if err := hand(ctx, conn.Conn, w.servers, before); err == nil {
				given, warned = w.servers, false
				s.handed.Set(given)
			} else if retry = time.After(again); !warned {
				warned = true
				s.log.Warn("systemd-timesyncd does not accept the time servers of leases, will retry", "servers", w.servers, "error", err)
			}
		}
		s.set(owner != "", given, *w)
		select {
		case <-ctx.Done():
			return true
		case *w = <-s.want:
		case <-retry:
		case sig, ok := <-signals:
			if !ok {
				return true
			}
			if sig.Name == "org.freedesktop.DBus.NameOwnerChanged" && len(sig.Body) == 3 {
				owner, _ = sig.Body[2].(string)
				given = nil // another one has none
			}
		}
	}
}

// hand sets the servers, or none where systemd-timesyncd has some of before. Those of
// timesyncd.conf stay before them: it queries none of its file while it has others that were set so.
func hand(ctx context.Context, conn *dbus.Conn, servers, before []string) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	o := conn.Object(name, object)
	get := func(property string) ([]string, error) {
		var v dbus.Variant
		err := o.CallWithContext(ctx, "org.freedesktop.DBus.Properties.Get", dbus.FlagNoAutoStart, manager, property).Store(&v)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", property, err)
		}
		out, _ := v.Value().([]string)
		return out, nil
	}
	all := []string{}
	if len(servers) == 0 {
		has, err := get("RuntimeNTPServers")
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(before, func(a string) bool { return slices.Contains(has, a) }) {
			return nil // it has restarted, or those of another program
		}
	} else {
		own, err := get("SystemNTPServers")
		if err != nil {
			return err
		}
		for _, a := range slices.Concat(own, servers) {
			if !slices.Contains(all, a) {
				all = append(all, a)
			}
		}
	}
	if err := o.CallWithContext(ctx, manager+".SetRuntimeNTPServers", dbus.FlagNoAutoStart, all).Err; err != nil {
		return fmt.Errorf("SetRuntimeNTPServers: %w", err)
	}
	return nil
}
