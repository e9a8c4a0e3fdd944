package link

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Check puts a snapshot that was read from a file in order, and refuses one that no
// observer makes: the order and what is compared with are part of its meaning.
func (s *Snapshot) Check() error {
	if s.Schema != SnapshotSchema {
		return fmt.Errorf("snapshot has schema %d, this version reads %d", s.Schema, SnapshotSchema)
	}
	s.sort()
	for i := range s.Links {
		l := &s.Links[i]
		if i > 0 && s.Links[i-1].Index == l.Index || l.Index <= 0 {
			return fmt.Errorf("snapshot: link index %d is not positive, or duplicate", l.Index)
		}
		for _, a := range l.Addresses {
			if !a.Prefix.IsValid() {
				return fmt.Errorf("snapshot: link %s has an address without a prefix", l.Name)
			}
		}
		for _, r := range l.Routes {
			if !r.Dst.IsValid() {
				return fmt.Errorf("snapshot: link %s has a route without a destination", l.Name)
			}
		}
	}
	return nil
}

func (s *Snapshot) sortNextHops() {
	slices.SortStableFunc(s.NextHops, func(a, b NextHopObject) int { return cmp.Compare(a.ID, b.ID) })
}

func (s *Snapshot) sort() {
	s.sortNextHops()
	slices.SortStableFunc(s.Links, func(a, b Link) int { return a.Index - b.Index })
	slices.SortStableFunc(s.Devices, func(a, b Device) int { return strings.Compare(a.Name, b.Name) })
	for i := range s.Devices {
		slices.SortStableFunc(s.Devices[i].Ports, func(a, b Port) int { return a.Num - b.Num })
	}
	for i := range s.Links {
		l := &s.Links[i]
		slices.SortStableFunc(l.Addresses, func(a, b Address) int {
			if c := a.Prefix.Addr().Compare(b.Prefix.Addr()); c != 0 {
				return c
			}
			return a.Prefix.Bits() - b.Prefix.Bits()
		})
		slices.SortStableFunc(l.Neighbors, func(a, b Neighbor) int { return a.IP.Compare(b.IP) })
	}
}
