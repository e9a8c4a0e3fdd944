package daemon

import (
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"ibnetworkd/link"
)

// observeNeighbors reads the permanent neighbours of the links that want has. The kernel deletes
// them when a link goes down, so they are read with the link, and where a link that gets a
// unit with neighbours was not read (nil); other changes are not followed.
func (o *Observer) observeNeighbors(s *link.Snapshot, sc Scope, want func(*link.Snapshot, *link.Link) bool) error {
	var failed error
	s.Links = replaceEach(s.Links, func(l *link.Link) bool {
		if want == nil || !want(s, l) {
			had := l.Neighbors != nil
			l.Neighbors = nil
			return had
		}
		if l.Neighbors != nil && !sc.All && !sc.Reload && !sc.Links[l.Index] && !sc.Force[l.Index] {
			return false
		}
		raw, err := o.rt.Neighbors(l.Index)
		if err != nil {
			if !errors.Is(err, unix.ENODEV) { // its removal is on the way as an event
				failed = fmt.Errorf("list neighbours: %w", err)
			}
			return false
		}
		now := []link.Neighbor{}
		for _, n := range raw {
			now = append(now, link.Neighbor{IP: n.IP, HWAddr: n.Address})
		}
		slices.SortFunc(now, func(a, b link.Neighbor) int { return a.IP.Compare(b.IP) })
		same := l.Neighbors != nil && slices.Equal(l.Neighbors, now)
		l.Neighbors = now
		return !same
	})
	return failed
}
