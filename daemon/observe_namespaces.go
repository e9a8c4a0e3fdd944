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
		n := link.Namespace{Path: path}
		err := o.inNamespace(path, func(fd int) (err error) {
			n.Own = rtnl.OwnNamespace(fd)
			n.ID, err = o.rt.NamespaceID(fd)
			return err
		})
		if err == nil {
			s.Namespaces = append(s.Namespaces, n)
			continue
		}
		st, missing := os.Stat(filepath.Join("/", o.root, path))
		if missing == nil && errors.Is(err, unix.EINVAL) && time.Since(st.ModTime()) < mountMost {
			o.awaitMount()
		}
	}
	for _, m := range w.Moved {
		// A P_Key child is moved back when its namespace ends, others are deleted.
		deleted := link.IsVLAN(m.Kind) && (sc.All || len(sc.Links) > 0)
		if m.Namespace == "" {
			if deleted && len(o.rt.GoneNamespaces([]int{m.NSID})) > 0 {
				s.Moved = append(s.Moved, link.MovedLink{Made: m.Made, NSID: m.NSID})
			}
			continue
		}
		x, ok := o.movedLink(m, deleted)
		if m.Index != 0 && x.Index == 0 {
			at, ended := o.lost(s, m, sc)
			switch {
			case at != nil:
				x.Lost, ok = at, true
			case ended:
				ok = deleted
			}
			if id, file, err := o.namespace(m.Namespace); at != nil && at.Index != 0 && err == nil && at.NSID == id {
				m.NSID, m.Index, m.File = id, at.Index, file // it has left and come back
				x, ok = o.movedLink(m, deleted)
			}
		}
		if ok {
			s.Moved = append(s.Moved, x)
		}
	}
}

// movedLink reads what is in the network namespace of its unit; deleted says that it is
// so with the namespace.
func (o *Observer) movedLink(m link.Moved, deleted bool) (x link.MovedLink, ok bool) {
	x = link.MovedLink{Made: m.Made, NSID: m.NSID, File: m.File}
	if m.Index == 0 {
		id, file, err := o.namespace(m.Namespace)
		switch {
		case err != nil:
			return x, deleted
		case id < 0:
			return x, true // it has a number before a link of this program is in it
		}
		x.NSID, x.File = id, file
	}
	l, err := o.rt.LinkIn(x.NSID, m.Index, m.Name)
	switch {
	case err == nil:
		if fits(m, &l) {
			x.Index, x.MTU, x.Up, x.VLAN = l.Index, l.MTU, l.Up(), dumped(&l).VLAN
			if l.Name != m.Name {
				x.Called = l.Name
			}
		}
	case errors.Is(err, unix.EINVAL) && deleted:
	case !errors.Is(err, unix.ENODEV):
		return x, false // with the namespace itself it comes back
	}
	return x, true
}

// fits reports whether a link of another network namespace has what identifies one that
// was moved. The index of a parent in that namespace is none of this one.
func fits(m link.Moved, l *rtnl.Link) bool {
	x := dumped(l)
	return (l.ParentElsewhere || !link.IsVLAN(m.Kind)) && m.Fits(l.Kind, l.Parent, x.IPoIB, x.VLAN)
}

// lost returns where a link is that is not in the network namespace of its unit,
// nil where it is known to be deleted or to have come back, and where its namespace has ended:
// the kernel then deletes it or moves it back, but later. Of a VLAN that is not found the
// kernel knows: it makes no second one. The other namespaces are read again at a
// reload, by request, and with everything.
func (o *Observer) lost(s *link.Snapshot, m link.Moved, sc Scope) (at *link.Lost, ended bool) {
	parent, ok := s.Link(m.On)
	byName := link.IsVLAN(m.Kind) && m.Kind != link.KindVLAN
	back := func(l link.Link) bool {
		return m.Fits(l.Kind, l.Parent, l.IPoIB, l.VLAN) && (!byName || l.Name == m.Name)
	}
	if !ok || slices.ContainsFunc(s.Links, back) {
		return nil, false
	}
	ended = o.ended(m) // before the search, which may give the number to another namespace
	is := func(l *rtnl.Link) bool {
		if link.IsVLAN(m.Kind) {
			return l.Name == m.Name && fits(m, l)
		}
		return fits(m, l) && l.Address.GUID() == parent.HWAddr.GUID()
	}
	search := sc.All || sc.Reload || len(sc.Force) > 0 || o.last == nil
	if !search {
		i := slices.IndexFunc(o.last.Moved, func(x link.MovedLink) bool { return x.Made == m.Made })
		if i < 0 {
			return nil, true
		}
		at := o.last.Moved[i].Lost
		if at != nil && at.Index == 0 && !ended {
			return at, false
		}
		if at != nil && at.Index != 0 {
			if l, err := o.rt.LinkIn(at.NSID, at.Index, ""); err == nil && is(&l) {
				return at, false
			}
		}
	}
	if at := o.find(s, is); at != nil || ended || m.Kind == link.KindVLAN {
		return at, ended
	}
	return &link.Lost{}, false
}

// ended reports whether the network namespace in which a link was found has ended, or lost its
// name. Its number does not say so: the kernel gives it to the next one.
func (o *Observer) ended(m link.Moved) bool {
	_, file, _ := o.namespace(m.Namespace)
	return file != m.File
}

// find looks for a link in the network namespaces that have a name or are known to this
// one by a number, nil if it is in none.
func (o *Observer) find(s *link.Snapshot, is func(*rtnl.Link) bool) *link.Lost {
	paths := map[int]string{}
	for _, n := range s.Namespaces {
		paths[n.ID] = n.Path
	}
	named, _ := os.ReadDir(filepath.Join("/", o.root, units.NamespaceDir))
	for _, e := range named {
		path := units.NamespaceDir + e.Name()
		err := o.inNamespace(path, o.rt.NumberNamespace)
		id, _, err2 := o.namespace(path)
		if err == nil && err2 == nil && id >= 0 {
			paths[id] = path
		}
	}
	ids, _ := o.rt.NamespaceIDs()
	for _, id := range ids {
		links, err := o.rt.LinksIn(id)
		if err != nil {
			continue
		}
		if i := slices.IndexFunc(links, func(l rtnl.Link) bool { return is(&l) }); i >= 0 {
			return &link.Lost{Path: paths[id], NSID: id, Index: links[i].Index, Name: links[i].Name}
		}
	}
	return nil
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

// namespace is the kernel's number of a network namespace, -1 for none, and what identifies it. The
// error is EINVAL for a file that is no namespace.
func (o *Observer) namespace(path string) (id int, file string, err error) {
	err = o.inNamespace(path, func(fd int) (err error) {
		file = rtnl.NamespaceFile(fd)
		id, err = o.rt.NamespaceID(fd)
		return err
	})
	return id, file, err
}

// inNamespace opens a network namespace for f.
func (o *Observer) inNamespace(path string, f func(fd int) error) error {
	return rtnl.InNamespace(filepath.Join("/", o.root, path), f)
}
