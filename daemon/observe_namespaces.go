package daemon

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"ibnetworkd/link"
	"ibnetworkd/units"
)

// namespacesOf are the paths of the network namespaces that units name.
func namespacesOf(set *units.Set) (out []string) {
	for _, u := range set.Units {
		for i := range u.Partitions {
			if p := u.Partitions[i].Namespace(); p != "" {
				out = append(out, p)
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
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
		x := link.MovedLink{Made: m.Made, NSID: m.NSID}
		if m.Namespace == "" {
			// A P_Key child is moved back when its namespace ends.
			if m.Kind == "vlan" && (sc.All || len(sc.Links) > 0) && len(o.rt.GoneNamespaces([]int{m.NSID})) > 0 {
				s.Moved = append(s.Moved, x)
			}
			continue
		}
		if m.Index == 0 {
			id, err := o.namespace(m.Namespace)
			if err != nil || id < 0 {
				continue
			}
			x.NSID = id
		}
		l, err := o.rt.LinkIn(x.NSID, m.Index, m.Name)
		switch {
		case err == nil && l.IPoIB != nil && l.Parent == m.On && l.IPoIB.PKey.Base() == m.PKey.Base():
			x.Index, x.MTU, x.Up = l.Index, l.MTU, l.Up()
		case err != nil && !errors.Is(err, unix.ENODEV):
			continue // with the namespace itself it comes back
		}
		s.Moved = append(s.Moved, x)
	}
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

// inNamespace opens a network namespace for f. Others than regular files, which a
// namespace counts as, are not opened.
func (o *Observer) inNamespace(path string, f func(fd int) error) error {
	path = filepath.Join("/", o.root, path)
	st, err := os.Stat(path)
	if err != nil {
		return err
	}
	if !st.Mode().IsRegular() {
		return &os.PathError{Op: "open", Path: path, Err: unix.EINVAL}
	}
	n, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = n.Close() }()
	return f(int(n.Fd()))
}
