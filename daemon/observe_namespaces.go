package daemon

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"ibnetworkd/internal/kernel/rtnl"
	"ibnetworkd/link"
	"ibnetworkd/units"
)

// namespacesOf are the paths of the network namespaces that units name.
func namespacesOf(set *units.Set) (out []string) {
	for _, u := range set.Units {
		for i := range u.Partitions {
			out = append(out, u.Partitions[i].Namespace())
		}
		for i := range u.VLANs {
			out = append(out, u.VLANs[i].Namespace())
		}
	}
	slices.Sort(out)
	return slices.DeleteFunc(slices.Compact(out), func(p string) bool { return p == "" })
}

func (w *Needs) namespaces(set *units.Set, rec *link.Record) {
	w.Namespaces = namespacesOf(set)
	if rec != nil {
		w.Moved = rec.Moved
	}
}

// ip netns add makes a file and mounts the network namespace there, for which no event
// comes: a file that is younger than mountMost is read again after each mountPause.
const (
	mountPause = 250 * time.Millisecond
	mountMost  = time.Minute
)

// observeNamespaces reads which of the network namespaces of units exist, and what of
// this program is there. Whether namespaces to which others moved links still exist is read
// with links, because the kernel frees the number of a namespace before it deletes its VLANs.
func (o *Observer) observeNamespaces(s *link.Snapshot, sc Scope, w Needs) {
	s.Namespaces, s.Moved = nil, nil
	for _, path := range w.Namespaces {
		id, err := o.namespace(path)
		if err == nil {
			s.Namespaces = append(s.Namespaces, link.Namespace{Path: path, ID: id})
			continue
		}
		st, missing := os.Stat(filepath.Join("/", o.root, path))
		if missing == nil && errors.Is(err, unix.EINVAL) && time.Since(st.ModTime()) < mountMost {
			o.awaitMount()
		}
	}
	for _, m := range w.Moved {
		// A P_Key child is moved back when its namespace ends, a VLAN is deleted.
		deleted := m.Kind == link.KindVLAN && (sc.All || len(sc.Links) > 0)
		if m.Namespace == "" {
			if deleted && len(o.rt.GoneNamespaces([]int{m.NSID})) > 0 {
				s.Moved = append(s.Moved, link.MovedLink{Made: m.Made, NSID: m.NSID})
			}
			continue
		}
		if x, ok := o.movedLink(m, deleted); ok {
			s.Moved = append(s.Moved, x)
		}
	}
}

// movedLink reads what is in the network namespace of its unit; deleted says that it is
// so with the namespace.
func (o *Observer) movedLink(m link.Moved, deleted bool) (x link.MovedLink, ok bool) {
	x = link.MovedLink{Made: m.Made, NSID: m.NSID}
	if m.Index == 0 {
		id, err := o.namespace(m.Namespace)
		switch {
		case err != nil:
			return x, deleted
		case id < 0:
			return x, true // it has a number before a link of this program is in it
		}
		x.NSID = id
	}
	l, err := o.rt.LinkIn(x.NSID, m.Index, m.Name)
	switch {
	case err == nil:
		if y := dumped(&l); m.Fits(l.Parent, y.IPoIB, y.VLAN) {
			x.Index, x.MTU, x.Up, x.VLAN = l.Index, l.MTU, l.Up(), y.VLAN
		}
	case errors.Is(err, unix.EINVAL) && deleted:
	case !errors.Is(err, unix.ENODEV):
		return x, false // with the namespace itself it comes back
	}
	return x, true
}

func (o *Observer) awaitMount() {
	switch {
	case o.wake == nil:
	case o.mount == nil:
		o.mount = time.AfterFunc(mountPause, func() { o.wake(Scope{Reload: true}) })
	default:
		o.mount.Reset(mountPause)
	}
}

// namespace is the kernel's number of a network namespace, -1 for none. The error is
// EINVAL for a file that is no namespace.
func (o *Observer) namespace(path string) (id int, err error) {
	err = o.inNamespace(path, func(fd int) (err error) {
		id, err = o.rt.NamespaceID(fd)
		return err
	})
	return id, err
}

// inNamespace opens a network namespace for f.
func (o *Observer) inNamespace(path string, f func(fd int) error) error {
	return rtnl.InNamespace(filepath.Join("/", o.root, path), f)
}
