package card

import (
	"fmt"
	"math"
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"ibnetworkd/link"
	"ibnetworkd/roce"
)

// Another program that takes an index, after it was given, says nothing about what was
// given there: the index is free as soon as the program has left it.
func TestIndexTaken(t *testing.T) {
	x := newTree(t)
	o := New(x.root, nil, Config{})
	defer func() { _ = o.Close() }()
	entry := func(i, gid, kind string) {
		dir := "sys/devices/pci/" + pf + "/infiniband/mlx5_0/ports/1/"
		x.write(dir+"gids/"+i, gid+"\n")
		x.write(dir+"gid_attrs/types/"+i, kind+"\n")
		x.write(dir+"gid_attrs/ndevs/"+i, "lo\n")
	}
	s := snapshot()
	d, l := &s.Devices[0], &s.Links[0]
	stuck := func(gid string, addrs ...string) []int {
		entry("2", gid, "IB/RoCE v1")
		entry("3", gid, "RoCE v2")
		l.Addresses = nil
		for _, a := range addrs {
			l.Addresses = append(l.Addresses, link.Address{Prefix: netip.MustParsePrefix(a)})
		}
		return o.gids(d, &d.Ports[0], []*link.Link{l}, []int{3}, true).GIDStuck
	}
	const own, none = "0000:0000:0000:0000:0000:ffff:0a08:0001", "0000:0000:0000:0000:0000:0000:0000:0000"
	move := roce.MoveGID{On: link.Target{Link: "lo", IBDevice: "mlx5_0", Port: 1}, Index: 3}
	if err := o.Moving(move); err != nil {
		t.Fatal(err)
	}
	if got := stuck(own, "10.8.0.1/24"); len(got) > 0 {
		t.Errorf("given, and stuck: %v", got)
	}
	if got := stuck(none); len(got) > 0 {
		t.Errorf("removed by another program, and stuck: %v", got)
	}
	if err := o.Moving(move); err != nil {
		t.Fatal(err)
	}
	if got := stuck(none); len(got) != 1 {
		t.Errorf("not given, and not stuck: %v", got)
	}
}

// A table from which a unit wants an index is read again until it agrees with the addresses: soon, then never later
// than a quarter of the time that it has taken, for a second at least, and not forever.
func TestIndexReadAgain(t *testing.T) {
	x := newTree(t)
	var waits []time.Duration
	o := New(x.root, nil, Config{Later: func(_ int, after time.Duration) { waits = append(waits, after) }})
	defer func() { _ = o.Close() }()
	s := snapshot() // whose address is not in the table
	d, l := &s.Devices[0], &s.Links[0]
	var taken time.Duration
	for n := 0; ; n++ {
		o.gids(d, &d.Ports[0], []*link.Link{l}, []int{3}, true)
		if len(waits) == n {
			break
		}
		if wait := waits[n]; len(waits) != n+1 || n > 30 || wait > indexFirst+taken/4 {
			t.Fatalf("after %v: read again in %v", taken, waits[n:])
		}
		taken += waits[n]
	}
	if taken < time.Second || taken > 2*time.Second {
		t.Errorf("read again %d times in %v", len(waits), taken)
	}
}

// Of a table that was read, entries far behind the last used one are read again only if it lacks an address for long.
func TestIndexFarBehind(t *testing.T) {
	x := newTree(t)
	later := 0
	o := New(x.root, nil, Config{Later: func(int, time.Duration) { later++ }})
	defer func() { _ = o.Close() }()
	s := snapshot()
	d, l := &s.Devices[0], &s.Links[0]
	o.atStart = d.Index
	enter := func(i int, ip string) {
		dir := "sys/devices/pci/" + pf + "/infiniband/mlx5_0/ports/1/"
		x.write(fmt.Sprintf("%sgids/%d", dir, i), "0000:0000:0000:0000:0000:ffff:"+ip+"\n")
		x.write(fmt.Sprintf("%sgid_attrs/types/%d", dir, i), "RoCE v2\n")
		x.write(fmt.Sprintf("%sgid_attrs/ndevs/%d", dir, i), "lo\n")
	}
	read := func(addrs ...string) (indexes []int) {
		l.Addresses = nil
		for _, a := range addrs {
			l.Addresses = append(l.Addresses, link.Address{Prefix: netip.MustParsePrefix(a)})
		}
		for _, e := range o.gids(d, &d.Ports[0], []*link.Link{l}, []int{3}, true).GIDs {
			indexes = append(indexes, e.Index)
		}
		return indexes
	}
	enter(3, "0a08:0001")
	enter(90, "0a08:0002") // is read at first
	both := []string{"10.8.0.1/24", "10.8.0.2/24"}
	if got := read(both...); !slices.Equal(got, []int{0, 1, 3, 90}) {
		t.Errorf("at first: %v", got)
	}
	x.write("sys/devices/pci/"+pf+"/infiniband/mlx5_0/ports/1/gids/90", "0000:0000:0000:0000:0000:0000:0000:0000\n")
	if got := read("10.8.0.1/24"); !slices.Equal(got, []int{0, 1, 3}) {
		t.Errorf("without it: %v", got)
	}
	enter(3+spareGIDs, "0a08:0002") // near enough
	if got := read(both...); !slices.Equal(got, []int{0, 1, 3, 3 + spareGIDs}) {
		t.Errorf("near: %v", got)
	}
	enter(100, "0a08:0003")
	later = 0
	for n := 0; ; n++ {
		got := read(append(both, "10.8.0.3/24")...)
		if n == wholeAfter+1 {
			if !slices.Equal(got, []int{0, 1, 3, 3 + spareGIDs, 100}) {
				t.Errorf("far: %v", got)
			}
			break
		}
		if len(got) != 4 || later != n+1 {
			t.Fatalf("far: %v, read again %d times of %d", got, later, n)
		}
	}
}

// Of a device that came while the daemon runs no entry far behind is read at first where an index is asked for; where
// the table does not agree, all are read after some times, after more, and the last time: each is a file.
func TestEndOfTable(t *testing.T) {
	near := 3 + 1 + spareGIDs
	some := []roce.GID{{Index: 1}}
	for _, c := range []struct {
		name string
		last table
		dev  uint32
		want int
	}{
		{"a device of before", table{}, 2, math.MaxInt},
		{"a device that came", table{}, 5, near},
		{"a device that came again", table{dev: 2, gids: []roce.GID{{Index: 90}}, unsettled: 1}, 5, near},
		{"a table that was read", table{dev: 2, gids: []roce.GID{{Index: 90}}}, 2, 90 + 1 + spareGIDs},
		{"a short one", table{dev: 2, gids: some}, 2, near},
		{"four times", table{dev: 5, gids: some, unsettled: 4}, 5, math.MaxInt},
		{"four times, empty", table{dev: 5, unsettled: 4}, 5, math.MaxInt},
		{"five times", table{dev: 5, gids: some, unsettled: 5}, 5, near},
		{"eight times", table{dev: 5, gids: some, unsettled: 8}, 5, math.MaxInt},
		{"seventeen times", table{dev: 5, gids: some, unsettled: 17}, 5, near},
		{"the last time", table{dev: 5, gids: some, unsettled: indexTries - 1}, 5, math.MaxInt},
		{"for an event after it", table{dev: 5, gids: some, unsettled: indexTries}, 5, math.MaxInt},
	} {
		o := Observer{atStart: 2}
		if got := o.end(c.last, c.dev, []int{3}, indexTries); got != c.want {
			t.Errorf("%s: %d, want %d", c.name, got, c.want)
		}
	}
	o := Observer{atStart: 2}
	if first, next := o.end(table{}, 5, nil, settleTries), o.end(table{dev: 5, gids: some}, 5, nil, settleTries); first != math.MaxInt ||
		next != 1+1+spareGIDs {
		t.Errorf("without an index that is asked for: %d, then %d", first, next)
	}
}

// Of a table, all of many addresses that came at once are read: those that count too, whose entries each follow one of
// RoCE v1 that has the same address.
func TestIndexesTogether(t *testing.T) {
	x := newTree(t)
	o := New(x.root, nil, Config{})
	defer func() { _ = o.Close() }()
	s := snapshot()
	d, l := &s.Devices[0], &s.Links[0]
	enter := func(i, host int, kind string) {
		dir := "sys/devices/pci/" + pf + "/infiniband/mlx5_0/ports/1/"
		x.write(fmt.Sprintf("%sgids/%d", dir, i), fmt.Sprintf("0000:0000:0000:0000:0000:ffff:0a08:%04x\n", host))
		x.write(fmt.Sprintf("%sgid_attrs/types/%d", dir, i), kind+"\n")
		x.write(fmt.Sprintf("%sgid_attrs/ndevs/%d", dir, i), "lo\n")
	}
	last := func(hosts int) *roce.GID {
		l.Addresses = nil
		for h := range hosts {
			l.Addresses = append(l.Addresses, link.Address{Prefix: netip.MustParsePrefix(fmt.Sprintf("10.8.0.%d/24", h+1))})
		}
		gids, one := o.gids(d, &d.Ports[0], []*link.Link{l}, nil, false).GIDs, *l
		one.Addresses = l.Addresses[hosts-1:]
		return roce.Select(gids, &one, nil).V4
	}
	enter(3, 1, "RoCE v2") // whose entry of RoCE v1 is free
	if got := last(1); got == nil || got.Index != 3 {
		t.Errorf("at first: %v", got)
	}
	enter(2, 2, "IB/RoCE v1")
	enter(4, 2, "RoCE v2")
	for h := 3; h <= 10; h++ {
		enter(2*h-1, h, "IB/RoCE v1")
		enter(2*h, h, "RoCE v2")
	}
	if got := last(10); got == nil || got.Index != 20 {
		t.Errorf("the last of ten: %v", got)
	}
}

// A table that is as it was before a move is read again soon and for a bounded time, also if another address of the link has
// the index; then the index is stuck, for longer each time, until the table has changed.
func TestMovePending(t *testing.T) {
	x := newTree(t)
	enter := func(i int, ip string) {
		dir := "sys/devices/pci/" + pf + "/infiniband/mlx5_0/ports/1/"
		for v, kind := range []string{"IB/RoCE v1", "RoCE v2"} {
			x.write(fmt.Sprintf("%sgids/%d", dir, i-1+v), "0000:0000:0000:0000:0000:ffff:"+ip+"\n")
			x.write(fmt.Sprintf("%sgid_attrs/types/%d", dir, i-1+v), kind+"\n")
			x.write(fmt.Sprintf("%sgid_attrs/ndevs/%d", dir, i-1+v), "lo\n")
		}
	}
	enter(3, "0a08:0002")
	enter(5, "0a08:0001")
	synctest.Test(t, func(t *testing.T) {
		var wait time.Duration
		o := New(x.root, nil, Config{Later: func(_ int, after time.Duration) { wait = after }})
		defer func() { _ = o.Close() }()
		s := snapshot()
		d, l := &s.Devices[0], &s.Links[0]
		l.Addresses = []link.Address{{Prefix: netip.MustParsePrefix("10.8.0.1/24")}, {Prefix: netip.MustParsePrefix("10.8.0.2/24")}}
		read := func(all bool) roce.Port { return o.gids(d, &d.Ports[0], []*link.Link{l}, []int{3}, all) }
		if p := read(true); p.GIDPending || len(p.GIDStuck) > 0 {
			t.Fatalf("before: %+v", p)
		}
		move := roce.MoveGID{On: link.Target{Link: "lo", IBDevice: "mlx5_0", Port: 1}, Index: 3, From: 5,
			Move: []link.AddAddress{{Address: l.Addresses[0]}}}
		most := appliedFirst
		for range 8 {
			begin := time.Now()
			if err := o.Moving(move); err != nil {
				t.Fatal(err)
			}
			reads := 0
			p := read(true)
			for ; p.GIDPending; p = read(false) {
				taken := time.Since(begin)
				if reads++; reads > 30 || wait <= 0 || wait > indexFirst+taken/4 || len(p.GIDStuck) > 0 {
					t.Fatalf("after %v: read again in %v, %+v", taken, wait, p)
				}
				time.Sleep(wait)
			}
			if taken := time.Since(begin); taken != most || !slices.Equal(p.GIDStuck, []int{3}) {
				t.Errorf("%v, want %v: %+v", taken, most, p)
			}
			most = min(2*most, appliedMost)
			time.Sleep(time.Until(o.moves[movedTo{"mlx5_0", 1, 3}].until))
		}
		if err := o.Moving(move); err != nil {
			t.Fatal(err)
		}
		if p := read(true); !p.GIDPending {
			t.Errorf("moved again: %+v", p)
		}
		both := l.Addresses
		l.Addresses = both[:1]
		read(true) // another program removes an address and adds it again
		l.Addresses = both
		if p := read(true); p.GIDPending || len(p.GIDStuck) > 0 {
			t.Errorf("superseded: %+v", p)
		}
		if err := o.Moving(move); err != nil {
			t.Fatal(err)
		}
		enter(5, "0a08:0002")
		enter(3, "0a08:0001")
		if p := read(true); p.GIDPending || len(p.GIDStuck) > 0 || len(o.moves) > 0 {
			t.Errorf("applied: %+v", p)
		}
	})
}
