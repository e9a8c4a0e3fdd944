package card

import (
	"maps"
	"math"
	"slices"
	"time"

	"ibnetworkd/ib"
	"ibnetworkd/internal/kernel/configfs"
	"ibnetworkd/link"
	"ibnetworkd/roce"
	"ibnetworkd/units"
)

func (o *Observer) defaults(dev string, port int) *roce.Defaults {
	d, err := o.cm.Get(dev, port)
	if err != nil {
		return nil
	}
	out := &roce.Defaults{Version: 1, ToS: d.ToS}
	if d.RoCEMode == configfs.RoCEv2 {
		out.Version = 2
	}
	return out
}

// tableOf is a GID table's place.
type tableOf struct {
	link int
	dev  string
	port int
}

// table is a GID table as it was read for a link.
type table struct {
	dev   uint32 // index of the RDMA device
	state ib.PortState
	addrs []link.Address
	gids  []roce.GID
	// unsettled counts the times in a row that the table did not agree with the
	// addresses.
	unsettled int
	pending   bool // a move may not have taken effect
	slots     int
	users     []roce.GIDUser
	again     time.Time // when it is read again for an index that it does not have
}

// A table that does not agree with the addresses is read again after
// settleFirst, then after twice the time, settleTries times in all. One that
// never agrees is a driver's own affair.
const (
	settleFirst = 50 * time.Millisecond
	settleTries = 7
	// The same where a unit asks for an index, after a quarter more each time: a table that agrees is
	// read a quarter too late at most. A table without the index is read each second: no event says that
	// a queue pair has ended.
	indexFirst = 3 * time.Millisecond
	indexTries = 21
	// The kernel uses the first free entry. A reading ends so many free entries behind the last used one. The whole table,
	// some hundred files, is read the first time if others may have used it before, and after wholeAfter, twice as many, ...
	// readings that do not agree, and the last time.
	spareGIDs  = 16
	wholeAfter = 4
	indexEach  = time.Second
)

// gids is the table of a port for the link on it, which comes first, and its
// VLANs. want are the indexes that their units ask for.
func (o *Observer) gids(d *link.Device, p *link.Port, on []*link.Link, want []int, all bool) roce.Port {
	l := on[0]
	at := tableOf{l.Index, d.Name, p.Num}
	addrs := l.Addresses
	for _, v := range on[1:] {
		addrs = slices.Concat(addrs, v.Addresses)
	}
	if t, ok := o.tables[at]; ok && !all && !t.pending && t.dev == d.Index && t.state == p.State && slices.Equal(t.addrs, addrs) &&
		hasAll(t.gids, on, want) {
		return t.port(nil)
	}
	old := o.tables[at]
	t := table{dev: d.Index, state: p.State, addrs: addrs, again: old.again}
	pause, tries := settlePause, settleTries
	if len(want) > 0 {
		if t.slots = old.slots; t.slots == 0 || old.dev != t.dev {
			t.slots, _ = o.sys.GIDTableSize(d.Name, p.Num)
		}
		pause, tries = indexPause, indexTries
	}
	t.gids = o.readGIDs(d.Name, p.Num, o.end(old, d.Index, want, tries))
	settled := !slices.ContainsFunc(on, func(l *link.Link) bool { return !roce.Settled(t.gids, l) })
	if old.dev != t.dev {
		maps.DeleteFunc(o.moves, func(m movedTo, _ moved) bool { return m.dev == d.Name && m.port == p.Num })
	}
	stuck, wait := o.judge(d.Name, p.Num, t.gids, addrs, settled)
	t.pending = wait > 0
	if t.pending && o.cfg.Later != nil {
		o.cfg.Later(l.Index, wait)
	}
	if !hasAll(t.gids, on, want) {
		t.users = o.gidUsers(d.Index)
		if o.cfg.Later != nil && settled && !t.pending && time.Now().After(t.again) {
			wait := indexEach
			if len(stuck) > 0 {
				wait = min(wait, time.Until(o.moves[movedTo{d.Name, p.Num, stuck[0]}].until))
			}
			t.again = time.Now().Add(wait)
			o.cfg.Later(l.Index, wait)
		}
	}
	if !settled {
		if slices.Equal(old.addrs, t.addrs) && old.dev == t.dev && old.state == t.state {
			t.unsettled = old.unsettled + 1
		}
		if o.cfg.Later != nil && t.unsettled < tries {
			o.cfg.Later(l.Index, pause(t.unsettled))
		}
	}
	o.tables[at] = t
	return t.port(stuck)
}

// end is the index at which the next reading of a device's table ends, after the last reading.
func (o *Observer) end(last table, dev uint32, want []int, tries int) int {
	n := slices.Max(append([]int{0}, want...))
	switch {
	case last.dev == dev && readsWhole(last.unsettled, tries):
		return math.MaxInt
	case last.dev == dev && last.gids != nil:
		n = max(n, last.gids[len(last.gids)-1].Index)
	case dev <= o.atStart || len(want) == 0: // without an index that is asked for, the next reading may be a second later
		return math.MaxInt
	}
	return n + 1 + spareGIDs
}

// readsWhole reports whether the whole table is read after so many readings that did not agree, of tries.
func readsWhole(unsettled, tries int) bool {
	return unsettled == wholeAfter || unsettled == 2*wholeAfter || unsettled == 4*wholeAfter || unsettled >= tries-1
}

func settlePause(unsettled int) time.Duration { return settleFirst << unsettled }

func indexPause(unsettled int) time.Duration {
	d := indexFirst
	for range unsettled {
		d += d / 4
	}
	return d
}

func (t table) port(stuck []int) roce.Port {
	return roce.Port{GIDs: t.gids, GIDSlots: t.slots, GIDUsers: t.users, GIDStuck: stuck, GIDPending: t.pending}
}

// indexesOf are the indexes that the units of links ask for.
func indexesOf(on []*link.Link, unit func(*link.Link) *units.Unit) (want []int) {
	for _, l := range on {
		if u := unit(l); u != nil && u.RoCE.GIDIndex.Set {
			want = append(want, u.RoCE.GIDIndex.V)
		}
	}
	return want
}

// hasAll reports whether a table has RoCE v2 entries of IPv4 addresses of the links
// at the indexes.
func hasAll(gids []roce.GID, on []*link.Link, want []int) bool {
	for _, w := range want {
		if !slices.ContainsFunc(gids, func(e roce.GID) bool {
			return e.Index == w && e.Version == 2 && e.IP().Is4() &&
				slices.ContainsFunc(on, func(l *link.Link) bool { return l.Name == e.Netdev })
		}) {
			return false
		}
	}
	return true
}

func (o *Observer) readGIDs(dev string, port, end int) []roce.GID {
	es, err := o.sys.GIDsBelow(dev, port, end, spareGIDs)
	if err != nil && len(es) == 0 {
		return nil
	}
	var out []roce.GID
	for _, e := range es {
		v := 0
		switch e.Type {
		case configfs.RoCEv1:
			v = 1
		case configfs.RoCEv2:
			v = 2
		default:
			continue // iWARP has a GID without a version
		}
		out = append(out, roce.GID{Index: e.Index, GID: e.GID, Version: v, Netdev: e.Netdev})
	}
	return out
}
