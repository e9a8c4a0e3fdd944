// Package envfile keeps a file for each link on an RDMA port, with what job launchers
// (NCCL, UCX) need to know of it: device, port and GID index.
package envfile

import (
	"context"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"ibnetworkd/daemon"
	"ibnetworkd/ib"
	"ibnetworkd/internal/smallfile"
	"ibnetworkd/link"
	"ibnetworkd/roce"
)

// The kernel enters a GID some time after its address (ib_cache_gid_mgmt works in a
// queue of its own) without an event: the table is read again after these times.
const (
	gidFirst = 50 * time.Millisecond
	// gidSettle is how long a table may be wrong after a change of addresses: the
	// entry of one that was removed may still be in it.
	gidSettle = time.Second
	gidMost   = 5 * time.Second
)

// Files are the environment files of a directory, one LINK.env for each link.
type Files struct {
	log    *slog.Logger
	dir    string
	read   func(links map[int]bool)
	settle settling // belongs to Update, as last
	last   wanted
	want   chan wanted
}

// wanted is the text of each file by the name of its link, and the links, by index, whose GID tables
// may not be complete yet.
type wanted struct {
	texts map[string]string
	late  map[int]bool
}

// New makes Files in a directory that may be missing. read has the GID tables of
// links, by index, read again; it must not block.
func New(log *slog.Logger, dir string, read func(links map[int]bool)) *Files {
	return &Files{log: log, dir: dir, read: read, want: make(chan wanted, 1), settle: settling{}}
}

// settling has the addresses of links by index, and since when.
type settling map[int]addresses

type addresses struct {
	list  []link.Address
	since time.Time
}

// changed notes the addresses of a link. It reports whether they have changed less
// than gidSettle ago.
func (s settling) changed(l *link.Link, now time.Time) bool {
	x, ok := s[l.Index]
	if !ok || !slices.EqualFunc(x.list, l.Addresses, func(a, b link.Address) bool { return a.Prefix == b.Prefix }) {
		x = addresses{l.Addresses, now}
		s[l.Index] = x
	}
	return now.Sub(x.since) < gidSettle
}

func (s settling) forget(snap *link.Snapshot) {
	maps.DeleteFunc(s, func(i int, _ addresses) bool { _, ok := snap.Link(i); return !ok })
}

// texts are the files as they are to be, where former are those of before.
func texts(v daemon.View, settle settling, now time.Time, former map[string]string) wanted {
	want, late := map[string]string{}, map[int]bool{}
	s := v.Snapshot
	st := s.Card
	if st == nil {
		st = &roce.State{}
	}
	derivation := link.NewDerivation(v.Units, v.Governing.UnitOf)
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
			ofUnit, _ := derivation.Addresses(s, l, v.Governing.UnitOf(l))
			x = roce.Select(gids, l, ofUnit)
			recent := settle.changed(l, now)
			if recent || lacksIPv4(l, x) {
				late[l.Index] = true
			}
			if (link.IsVLAN(l.Kind) || roce.IsSlave(s, l)) && x.Preferred() == nil {
				continue // the GIDs of its parent, or of its bond, are not its own
			}
			if u := v.Governing.UnitOf(l); recent && x.V4 == nil && u != nil && u.RoCE.GIDIndex.Set && former[l.Name] != "" {
				// The address is on its way back to its index: no job is to start with another GID.
				want[l.Name] = former[l.Name]
				continue
			}
		}
		want[l.Name] = roce.Env(l, d.Name, p.Num, x)
	}
	return wanted{want, late}
}

// lacksIPv4 reports that a link that is up has an IPv4 address and no GID of it.
func lacksIPv4(l *link.Link, x roce.Indexes) bool {
	return l.Up() && x.V4 == nil && slices.ContainsFunc(l.Addresses, func(a link.Address) bool { return a.Prefix.Addr().Is4() })
}

// Update takes what the loop has observed. It never blocks, and belongs to one
// goroutine.
func (f *Files) Update(v daemon.View) {
	if v.Snapshot == nil {
		return
	}
	f.settle.forget(v.Snapshot)
	want := texts(v, f.settle, time.Now(), f.last.texts)
	if !maps.Equal(want.texts, f.last.texts) || !maps.Equal(want.late, f.last.late) {
		f.last = want
		daemon.Replace(f.want, want)
	}
}

// Run writes and removes files until ctx ends. What is in the directory from an
// earlier run is rewritten or removed.
func (f *Files) Run(ctx context.Context) error {
	written := map[string]string{}
	if old, err := os.ReadDir(f.dir); err == nil {
		for _, e := range old {
			if name, ok := strings.CutSuffix(e.Name(), ".env"); ok {
				written[name] = ""
			}
		}
	}
	var want wanted
	wait := gidFirst
	var again <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return nil
		case want = <-f.want:
			wait = gidFirst
		case <-again:
			wait *= 2
		}
		f.write(written, want.texts)
		again = nil
		if len(want.late) > 0 && wait <= gidMost {
			f.read(want.late)
			again = time.After(wait)
		}
	}
}

// write brings the directory from what was written to what is wanted.
func (f *Files) write(written, want map[string]string) {
	if len(want) > 0 {
		if err := os.MkdirAll(f.dir, 0o755); err != nil {
			f.log.Warn("environment files are not written", "error", err)
			return
		}
	}
	for name, text := range want {
		old, had := written[name]
		if had && old == text {
			continue
		}
		if err := smallfile.Replace(f.path(name), []byte(text), 0o644); err != nil {
			f.log.Warn("environment file is not written", "link", name, "error", err)
			continue
		}
		written[name] = text
		if had && old != "" {
			f.log.Info("environment file changed", "link", name, "gid_index", gidIndex(old)+" -> "+gidIndex(text))
		}
	}
	for name := range written {
		if _, ok := want[name]; !ok {
			_ = os.Remove(f.path(name))
			delete(written, name)
		}
	}
}

func (f *Files) path(link string) string { return filepath.Join(f.dir, link+".env") }

// gidIndex is the GID index that a file gives NCCL, "none" if it gives none.
func gidIndex(text string) string {
	for line := range strings.Lines(text) {
		if v, ok := strings.CutPrefix(line, "NCCL_IB_GID_INDEX="); ok {
			return strings.TrimSpace(v)
		}
	}
	return "none"
}
