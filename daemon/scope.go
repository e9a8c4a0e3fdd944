package daemon

import (
	"fmt"
	"maps"
	"strings"

	"ibnetworkd/link"
)

// Scope is what to observe. The zero Scope is nothing. Scopes only ever grow
// when they are joined: a hint too many costs time, one too few an error.
type Scope struct {
	All bool // everything, after an overrun or at the start
	// First limits the full observation, with All, to so many links and their
	// children: on a host with hundreds the first are in use sooner.
	First  int
	Reload bool         // the unit files
	Links  map[int]bool // these links with their udev record
	// Reread reports that the observer has Links read again after a time of its own, not an event
	// that others of the same change may follow.
	Reread bool
	Addrs  bool // the addresses of all links
	Routes bool
	Rules  bool
	RDMA   bool // RDMA devices and the ports' state
	PKeys  bool // the partition tables too
	// Entries compares the entries of partition tables that links use.
	Entries bool
	// KeysOf are links whose ports' partition tables are observed.
	KeysOf map[int]bool
	// Moved are links that are in another network namespace now.
	Moved []link.MoveEvent
	// Udev are those of Links that udevd has finished with.
	Udev map[int]bool
	// Events reports that event sources have something to read.
	Events bool
	// Due reports that the time of delayed operations has come.
	Due bool
	// Work reports that operations beside the loop have ended.
	Work bool
	// Force plans these links although nothing of theirs has changed, and
	// forgets what was refused there.
	Force map[int]bool
}

// Empty reports that there is nothing to observe.
func (s *Scope) Empty() bool {
	return !s.All && !s.Reload && len(s.Links) == 0 && !s.Addrs && !s.Routes && !s.Rules && !s.RDMA && !s.PKeys && len(s.KeysOf) == 0 &&
		!s.Events && !s.Due && !s.Work && len(s.Force) == 0
}

// Join adds another scope.
func (s *Scope) Join(o Scope) {
	s.All = s.All || o.All
	s.Reload = s.Reload || o.Reload
	s.Reread = s.Reread || o.Reread
	s.Addrs = s.Addrs || o.Addrs
	s.Routes = s.Routes || o.Routes
	s.Rules = s.Rules || o.Rules
	s.RDMA = s.RDMA || o.RDMA
	s.PKeys, s.Entries = s.PKeys || o.PKeys, s.Entries || o.Entries
	s.Events = s.Events || o.Events
	s.Due = s.Due || o.Due
	s.Work = s.Work || o.Work
	s.Links, s.Udev, s.Force = joined(s.Links, o.Links), joined(s.Udev, o.Udev), joined(s.Force, o.Force)
	s.KeysOf = joined(s.KeysOf, o.KeysOf)
	s.Moved = append(s.Moved, o.Moved...)
}

// joined adds links to a set, which it may change.
func joined(to, links map[int]bool) map[int]bool {
	if to == nil && len(links) > 0 {
		to = map[int]bool{}
	}
	maps.Copy(to, links)
	return to
}

func (s *Scope) link(index int) { s.Links = joined(s.Links, map[int]bool{index: true}) }

// lazy reports that there is something to observe on which no caller waits:
// addresses that have passed duplicate address detection, routes of the
// kernel's own.
func (s *Scope) lazy() bool {
	o := *s
	o.Addrs, o.Routes, o.Rules = false, false, false
	return o.Empty() && !s.Empty()
}

// String lists the parts for a log.
func (s Scope) String() string {
	var w []string
	for _, p := range []struct {
		on   bool
		word string
	}{{s.All, "all"}, {s.Reload, "units"}, {s.Addrs, "addresses"}, {s.Routes, "routes"}, {s.Rules, "rules"}, {s.RDMA, "rdma"},
		{s.PKeys || len(s.KeysOf) > 0, "pkeys"}, {s.Events, "events"}, {s.Due, "due"}, {s.Work, "work"}} {
		if p.on {
			w = append(w, p.word)
		}
	}
	if n := len(s.Links); n > 0 {
		w = append(w, fmt.Sprintf("%d links", n))
	}
	return strings.Join(w, " ")
}
