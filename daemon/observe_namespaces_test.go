package daemon

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"ibnetworkd/internal/kernel/kerneltest"
	"ibnetworkd/internal/kernel/rtnl"
	"ibnetworkd/internal/testkit"
	"ibnetworkd/link"
)

// netns makes a network namespace that ends when the file is closed, with a path below root.
func netns(t *testing.T, root, path string) *os.File {
	t.Helper()
	f := kerneltest.OtherNamespace(t)
	at := filepath.Join(root, path)
	_ = os.Remove(at)
	err := os.MkdirAll(filepath.Dir(at), 0o700)
	if err == nil {
		err = os.Symlink(fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), f.Fd()), at)
	}
	testkit.NoError(t, err)
	return f
}

// What was in a network namespace that has ended is not taken for deleted by another program because the
// next namespace of that name has its number: P_Key children come back, others are made again when the
// kernel has deleted them.
func TestNamespaceWithNumberOfTheLast(t *testing.T) {
	kerneltest.Isolate(t)
	rt, err := rtnl.Dial()
	testkit.NoError(t, err)
	defer func() { _ = rt.Close() }()
	// end waits until the numbers of namespaces are free.
	end := func(f *os.File) {
		t.Helper()
		_ = f.Close()
		for last := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
			if ids, err := rt.NamespaceIDs(); err != nil || time.Now().After(last) {
				t.Fatal("the number stays", err)
			} else if len(ids) == 0 {
				return
			}
		}
	}
	for _, kind := range []string{link.KindVLAN, "macvlan", "ipvlan", "ipoib"} {
		for _, numbered := range []string{"by the search", "by another program", "after a restart"} {
			root, path := t.TempDir(), "/run/netns/job"
			o := &Observer{rt: rt, root: root}
			m := link.Moved{Made: link.Made{Kind: kind, Name: "job0", On: 2}, Namespace: path, Index: 70}
			s := &link.Snapshot{Links: []link.Link{{Index: 2, Name: "eth0"}}}
			observe := func(sc Scope) []link.MovedLink {
				next := *s
				o.observeNamespaces(&next, sc, Needs{Namespaces: []string{path}, Moved: []link.Moved{m}})
				s, o.last = &next, &next
				return s.Moved
			}
			ns := netns(t, root, path)
			number := func(f *os.File) int {
				t.Helper()
				testkit.NoError(t, rt.NumberNamespace(int(f.Fd())))
				id, err := rt.NamespaceID(int(f.Fd()))
				if err != nil || id < 0 {
					t.Fatal(id, err)
				}
				return id
			}
			m.NSID = number(ns)
			m.File = rtnl.NamespaceFile(int(ns.Fd()))
			// Without an end of the namespace, it was deleted or moved by another program.
			s.Moved = []link.MovedLink{{Made: m.Made, NSID: m.NSID, Index: m.Index}}
			if o.last = s; numbered != "after a restart" {
				got := observe(Scope{RDMA: true})
				if len(got) != 1 || got[0].Index != 0 || (got[0].Lost == nil) != (kind == link.KindVLAN) {
					t.Errorf("%s: not found in its namespace: %+v", kind, got)
				}
				if again := observe(Scope{Reload: true}); kind != link.KindVLAN && (len(again) != 1 || again[0].Lost == nil) {
					t.Errorf("%s: not found in its namespace, again: %+v", kind, again)
				}
			}
			s.Moved = []link.MovedLink{{Made: m.Made, NSID: m.NSID, Index: m.Index}}
			end(ns)
			next := netns(t, root, path)
			wait := func(when string, sc Scope) {
				t.Helper()
				if got := observe(sc); len(got) > 0 {
					t.Errorf("%s, numbered %s: %s: %+v", kind, numbered, when, got)
				}
			}
			switch numbered {
			case "by another program":
				number(next)
			case "after a restart":
				number(next)
				o.last = nil
			}
			wait("at first", Scope{RDMA: true})
			wait("at a reload", Scope{Reload: true})
			wait("later", Scope{RDMA: true})
			if id := number(next); id != m.NSID {
				t.Errorf("%s, numbered %s: the number of the next namespace is %d, was %d", kind, numbered, id, m.NSID)
			}
			// An event of the link below comes when the kernel has deleted a VLAN or the like.
			got := observe(Scope{Links: map[int]bool{2: true}})
			deleted := slices.ContainsFunc(got, func(x link.MovedLink) bool { return x.Index == 0 && x.Lost == nil })
			if len(got) > 1 || deleted != link.IsVLAN(kind) || !deleted && len(got) > 0 {
				t.Errorf("%s, numbered %s: after the event: %+v", kind, numbered, got)
			}
			end(next)
		}
	}
}
