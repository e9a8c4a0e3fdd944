package daemon

import (
	"maps"
	"slices"
	"time"

	"ibnetworkd/link"
	"ibnetworkd/units"
)

// reload reads the units and adds the links that a changed unit has or had to
// dirty.
func (d *Daemon) reload(dirty *dirty) bool {
	set := d.cfg.Load()
	old := d.set
	d.set = set
	d.readAgain(set)
	if old == nil {
		d.logProblems(set)
		return true
	}
	diff := units.Diff(old, set)
	d.governing.Links = maps.Clone(d.governing.Links) // the last View has it
	other := d.logProblems(set)
	if diff.Empty() {
		if other {
			d.newProblems(set, dirty)
		}
		return other
	}
	d.log.Info("units changed", as(msgUnits, "added", diff.Added, "removed", diff.Removed, "changed", diff.Changed)...)
	touched := map[string]bool{}
	for _, n := range slices.Concat(diff.Added, diff.Removed, diff.Changed) {
		touched[n] = true
	}
	if d.snap == nil {
		return true
	}
	by := make(map[string]*units.Unit, len(set.Units))
	for _, u := range set.Units {
		by[u.Name] = u
	}
	dirty.ports = true
	names := map[string]bool{}
	for i := range d.snap.Links {
		l := &d.snap.Links[i]
		had := d.governing.Links[l.Index].Unit
		again := had != nil && touched[had.Name]
		if had != nil && !again && by[had.Name] != had {
			d.governing.Links[l.Index] = link.Governed{Unit: by[had.Name]}
			dirty.add(l.Index) // other problems
		}
		// A unit that came or changed governs a link before one that is later in the order.
		for _, n := range slices.Concat(diff.Added, diff.Changed) {
			if again || had != nil && had.Name < n || by[n] == nil {
				continue
			}
			again = link.Matches(d.snap, by[n], l) != units.No
		}
		if again {
			dirty.add(l.Index)
			names[l.Name] = true
			// The next observation is for the unit that the link will have.
			delete(d.governing.Links, l.Index)
		}
	}
	d.delayed.request(names, true)
	return true
}

// newProblems marks the links whose unit is the same and has other problems now.
func (d *Daemon) newProblems(set *units.Set, dirty *dirty) {
	by := make(map[string]*units.Unit, len(set.Units))
	for _, u := range set.Units {
		by[u.Name] = u
	}
	for i, g := range d.governing.Links {
		if g.Unit != nil && by[g.Unit.Name] != nil && by[g.Unit.Name] != g.Unit {
			d.governing.Links[i] = link.Governed{Unit: by[g.Unit.Name]}
			dirty.add(i)
		}
	}
}

// readFirst and readMost are the pauses between attempts to read unit files that
// could not be read: no event reports that a descriptor or memory is free again.
const (
	readFirst = time.Second
	readMost  = time.Minute
)

// readAgain sets when the unit files are read again by themselves.
func (d *Daemon) readAgain(set *units.Set) {
	if !set.Unread {
		d.readNext, d.readPause = set.Settles, 0
		if !set.Settles.After(time.Now()) {
			d.readNext = time.Time{} // where edits wait for a reload, this one does too
		}
		return
	}
	d.readPause = min(max(2*d.readPause, readFirst), readMost)
	d.readNext = time.Now().Add(d.readPause)
}
