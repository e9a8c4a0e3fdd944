package rtnl

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"ibnetworkd/internal/kernel/kerneltest"
	"ibnetworkd/internal/testkit"
)

// A link is moved to another network namespace, is up and read there, and is deleted there.
func TestNamespaces(t *testing.T) {
	c := dial(t)
	a, _ := pair(t, c)
	other := kerneltest.OtherNamespace(t)
	fd := int(other.Fd())
	if err := InNamespace("/proc/thread-self/ns/net", func(own int) error {
		if !OwnNamespace(own) || OwnNamespace(fd) || NamespaceFile(fd) == NamespaceFile(own) || NamespaceFile(-1) != "" {
			t.Errorf("own: %v %s, other: %v %s", OwnNamespace(own), NamespaceFile(own), OwnNamespace(fd), NamespaceFile(fd))
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
	if id, err := c.NamespaceID(fd); id != -1 || err != nil {
		t.Errorf("before: %d, %v", id, err)
	}
	do(t, c, MoveLink(a.Index, fd))
	id, err := c.NamespaceID(fd)
	if id < 0 || err != nil {
		t.Fatalf("after: %d, %v", id, err)
	}
	l, err := c.LinkIn(id, 0, "va")
	if err != nil || !l.Up() {
		t.Fatalf("by name: %+v, %v", l, err)
	}
	if x, err := c.LinkIn(id, l.Index, ""); err != nil || x.Name != "va" {
		t.Errorf("by index: %+v, %v", x, err)
	}
	isVA := func(x Link) bool { return x.Name == "va" && x.Index == l.Index }
	if ls, err := c.LinksIn(id); err != nil || !slices.ContainsFunc(ls, isVA) {
		t.Errorf("all: %+v, %v", ls, err)
	}
	if ids, err := c.NamespaceIDs(); err != nil || !slices.Contains(ids, id) || slices.Contains(ids, id+70) {
		t.Errorf("numbers %v without %d: %v", ids, id, err)
	}
	if _, err := c.LinkByName("va", false); !errors.Is(err, unix.ENODEV) {
		t.Errorf("it is here: %v", err)
	}
	do(t, c, DelLinkIn(id, l.Index))
	if _, err := c.LinkIn(id, l.Index, ""); !errors.Is(err, unix.ENODEV) {
		t.Errorf("deleted: %v", err)
	}
	if _, err := c.LinkIn(id+70, 1, ""); !errors.Is(err, unix.EINVAL) {
		t.Errorf("no such namespace: %v", err)
	}
	f, err := os.Create(filepath.Join(t.TempDir(), "file"))
	testkit.NoError(t, err)
	defer func() { _ = f.Close() }()
	if _, err := c.NamespaceID(int(f.Fd())); !errors.Is(err, unix.EINVAL) {
		t.Errorf("a file: %v", err)
	}
}

// A VLAN is made in another network namespace: up only while its parent is up. The
// namespace has a number only once it is given one.
func TestVLANInNamespace(t *testing.T) {
	c := dial(t)
	a, _ := pair(t, c)
	fd := int(kerneltest.OtherNamespace(t).Fd())
	v := VLANSpec{Parent: a.Index, Name: "v7", ID: 7, Namespace: &fd, Up: true}
	do(t, c, SetLink(a.Index, LinkChange{Up: new(false)}))
	if err := c.Do(NewVLAN(v)); errors.Is(err, unix.EOPNOTSUPP) {
		t.Skip("no VLANs")
	} else if !errors.Is(err, unix.ENETDOWN) {
		t.Errorf("with its parent down: %v", err)
	}
	do(t, c, SetLink(a.Index, LinkChange{Up: new(true)}))
	do(t, c, NewVLAN(v))
	if id, err := c.NamespaceID(fd); id != -1 || err != nil {
		t.Errorf("before: %d, %v", id, err)
	}
	for range 2 {
		if err := c.NumberNamespace(fd); err != nil {
			t.Error(err)
		}
	}
	id, err := c.NamespaceID(fd)
	if id < 0 || err != nil {
		t.Fatalf("after: %d, %v", id, err)
	}
	if l, err := c.LinkIn(id, 0, "v7"); err != nil || !l.Up() || l.Parent != a.Index || l.VLAN == nil || l.VLAN.ID != 7 {
		t.Errorf("%+v, %v", l, err)
	}
}

// The message about a moved link has the number of its namespace, which is invalid once the
// namespace has ended.
func TestNumbersOfNamespaces(t *testing.T) {
	c := dial(t)
	a, _ := pair(t, c)
	ev := listen(t, 0)
	other := kerneltest.OtherNamespace(t)
	do(t, c, MoveLink(a.Index, int(other.Fd())))
	var moved Event
	testkit.NoError(t, kerneltest.Until(ev, func(all []Event, _ bool) bool {
		i := slices.IndexFunc(all, func(e Event) bool { return e.Type == LinkMoved })
		if i >= 0 {
			moved = all[i]
		}
		return i >= 0
	}))
	if gone := c.GoneNamespaces([]int{moved.NSID, -1, 4711}); moved.Name != "va" || !slices.Equal(gone, []int{4711}) {
		t.Fatalf("%+v, these are gone: %v", moved, gone)
	}
	testkit.NoError(t, other.Close())
	for end := time.Now().Add(20 * time.Second); !slices.Equal(c.GoneNamespaces([]int{moved.NSID}), []int{moved.NSID}); {
		if time.Now().After(end) {
			t.Fatal("the number stays")
		}
		time.Sleep(10 * time.Millisecond)
	}
}
