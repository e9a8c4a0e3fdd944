package main

import (
	"context"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"ibnetworkd/daemon"
	"ibnetworkd/daemon/cardwatch"
	"ibnetworkd/ib"
	"ibnetworkd/internal/smallfile"
	"ibnetworkd/link"
	"ibnetworkd/roce"
)

func init() {
	e := &envFiles{wake: make(chan struct{}, 1)}
	onTurn = append(onTurn, e.turn)
	extraTasks = append(extraTasks, func(v env) task {
		e.log, e.dir, e.daemon = v.log, filepath.Join(v.stateDir, "links"), v.daemon
		return task{"environment files", e.run}
	}, func(v env) task {
		return task{"host name", func(ctx context.Context) error {
			if err := cardwatch.Hostname(ctx, func() { renamed(v.daemon) }); err != nil {
				v.log.Warn("changes of the host's name are not seen", "error", err)
				<-ctx.Done()
			}
			return nil
		}}
	})
}

// renamed looks again at the links whose port may have the host's name in its
// node description.
func renamed(d *daemon.Daemon) {
	links := map[int]bool{}
	if s := d.Snapshot(); s != nil {
		for i := range s.Links {
			l := &s.Links[i]
			if _, p := roce.PortOf(s, l); p != nil && !l.IsChild() {
				links[l.Index] = true
			}
		}
	}
	d.Wake(daemon.Scope{Reload: true, RDMA: true, Force: links})
}

// envFiles keeps a file for each link on an RDMA port, with what job launchers
// want to know of it.
type envFiles struct {
	log    *slog.Logger
	dir    string
	daemon *daemon.Daemon
	wake   chan struct{}

	mu   sync.Mutex
	want map[string]string // text by link
	late map[int]bool      // links whose GID table may not be what it will be
	// addrs are the addresses of links as last seen, and since when.
	addrs map[int]seenAddrs
}

type seenAddrs struct {
	addrs []link.Address
	since time.Time
}

// changed reports whether a link's addresses have changed a moment ago.
func (e *envFiles) changed(l *link.Link, now time.Time) bool {
	x, ok := e.addrs[l.Index]
	if !ok || !slices.EqualFunc(x.addrs, l.Addresses, func(a, b link.Address) bool { return a.Prefix == b.Prefix }) {
		if e.addrs == nil {
			e.addrs = map[int]seenAddrs{}
		}
		x = seenAddrs{l.Addresses, now}
		e.addrs[l.Index] = x
	}
	return now.Sub(x.since) < gidSettle
}

// turn is called from the daemon's loop and only notes what is to be written.
func (e *envFiles) turn(v daemon.View) {
	s := v.Snapshot
	if s == nil {
		return
	}
	st := s.Card
	if st == nil {
		st = &roce.State{}
	}
	want, late := map[string]string{}, map[int]bool{}
	now := time.Now()
	maps.DeleteFunc(e.addrs, func(i int, _ seenAddrs) bool { _, ok := s.Link(i); return !ok })
	for i := range s.Links {
		l := &s.Links[i]
		if l.IsChild() || strings.ContainsRune(l.Name, '/') {
			continue
		}
		d, p := roce.RoCEPortOf(s, st, l)
		if p == nil {
			continue
		}
		var x roce.Indexes
		if p.Layer == ib.LinkLayerEthernet {
			gids := st.Devices[d.Name].Ports[p.Num].GIDs
			if len(gids) == 0 {
				continue // iWARP, or a link that no unit matches
			}
			x = roce.Select(gids, l, v.Governing.Links[l.Index].Unit)
			if e.changed(l, now) {
				late[l.Index] = true
			}
			for _, a := range l.Addresses {
				if a.Prefix.Addr().Is4() && l.Up() && x.V4 == nil {
					late[l.Index] = true
				}
			}
			if (l.Kind == "vlan" || roce.IsSlave(s, l)) && x.Preferred() == nil {
				continue // the GIDs of its parent, or of its bond, are not its own
			}
		}
		want[l.Name] = roce.Env(l, d.Name, p.Num, x)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if maps.Equal(want, e.want) && maps.Equal(late, e.late) {
		return
	}
	e.want, e.late = want, late
	select {
	case e.wake <- struct{}{}:
	default:
	}
}

// The kernel enters a GID some time after its address (ib_cache_gid_mgmt works
// in a queue of its own) and tells nobody: look again after these times.
const (
	gidFirst = 50 * time.Millisecond
	// gidSettle is how long a table is not believed after a change of addresses:
	// the entry of one that went may still be there, and go later.
	gidSettle = time.Second
	gidMost   = 5 * time.Second
)

func (e *envFiles) run(ctx context.Context) error {
	written := map[string]string{}
	if old, err := os.ReadDir(e.dir); err == nil {
		for _, f := range old {
			if name, ok := strings.CutSuffix(f.Name(), ".env"); ok {
				written[name] = "" // of an earlier run: rewritten or removed
			}
		}
	}
	wait := gidFirst
	var again <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-e.wake:
			wait = gidFirst
		case <-again:
			wait *= 2
		}
		e.mu.Lock()
		want, late := e.want, maps.Clone(e.late)
		e.mu.Unlock()
		e.write(written, want)
		again = nil
		if len(late) > 0 && wait <= gidMost {
			e.daemon.Wake(daemon.Scope{Links: late})
			again = time.After(wait)
		}
	}
}

func (e *envFiles) write(written, want map[string]string) {
	if len(want) > 0 {
		if err := os.MkdirAll(e.dir, 0o755); err != nil {
			e.log.Warn("environment files are not written", "error", err)
			return
		}
	}
	for name, text := range want {
		old, had := written[name]
		if had && old == text {
			continue
		}
		if err := smallfile.Replace(filepath.Join(e.dir, name+".env"), []byte(text), 0o644); err != nil {
			e.log.Warn("environment file is not written", "link", name, "error", err)
			continue
		}
		written[name] = text
		if had && old != "" {
			e.log.Info("environment file changed", "link", name, "gid_index", gidIndex(old)+" -> "+gidIndex(text))
		}
	}
	for name := range written {
		if _, ok := want[name]; !ok {
			_ = os.Remove(filepath.Join(e.dir, name+".env"))
			delete(written, name)
		}
	}
}

// gidIndex is the index that a file tells NCCL, "none" if it tells none.
func gidIndex(text string) string {
	for line := range strings.Lines(text) {
		if v, ok := strings.CutPrefix(line, "NCCL_IB_GID_INDEX="); ok {
			return strings.TrimSpace(v)
		}
	}
	return "none"
}
