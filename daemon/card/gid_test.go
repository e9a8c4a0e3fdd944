package card

import (
	"net/netip"
	"testing"
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
