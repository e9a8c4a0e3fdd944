package daemon

import (
	"slices"

	"ibnetworkd/link"
	"ibnetworkd/roce"
	"ibnetworkd/units"
)

// needs returns what the units and the record make worth reading. A link that the scope
// names may get another unit by what is read, and is read for that one.
func (d *Daemon) needs(sc Scope) Needs {
	w := Needs{Rules: len(d.rec.Rules) > 0, Routes: len(d.rec.Routes) > 0 || len(d.rec.Kept) > 0}
	for _, e := range d.rec.Links {
		w.Routes = w.Routes || len(e.Routes) > 0
		w.Resolved = w.Resolved || e.DNS != nil
	}
	if d.snap == nil {
		w.Advertised = withAdvertised(d.rec)
	}
	for _, u := range d.set.Units {
		w.Routes = w.Routes || len(u.Routes) > 0 || u.UsesDHCP()
		w.Rules = w.Rules || len(u.Rules) > 0
		w.Resolved = w.Resolved || link.NeedsResolved(u) || link.UsesAdvertised(u) || link.UsesLeaseDNS(u)
	}
	unitOf := func(s *link.Snapshot, l *link.Link) *units.Unit {
		again := sc.All || sc.RDMA || sc.PKeys || sc.Links[l.Index] || sc.Force[l.Index]
		if u := d.governing.Links[l.Index].Unit; u != nil && !again {
			if _, known := d.status[l.Index]; known {
				return u
			}
		}
		return link.Govern(s, d.set, l).Unit
	}
	w.Sysctls = sysctlsOf(d.set, d.rec, unitOf)
	w.Neighbors = neighborsOf(d.set, d.rec, unitOf)
	w.NextHops = nextHopsOf(d.set, d.rec)
	w.namespaces(d.set, d.rec)
	w.Routes = w.Routes || w.NextHops != nil
	if roce.NeedsCards(d.snap, d.set.Units) {
		w.LinkUnit, w.PortUnit = unitOf, portUnit(d.set)
	}
	return w
}

// sysctlsOf lists the settings of a link that its unit and its record need, nil where no
// unit and no record needs any.
func sysctlsOf(set *units.Set, rec *link.Record, unitOf func(*link.Snapshot, *link.Link) *units.Unit) func(*link.Snapshot,
	*link.Link) []string {
	by := map[*units.Unit][]string{}
	for _, u := range set.Units {
		if s := link.Sysctls(u); len(s) > 0 {
			by[u] = s
		}
	}
	if len(by) == 0 && (rec == nil || !slices.ContainsFunc(rec.Links, func(e *link.LinkRecord) bool { return len(e.Sysctls()) > 0 })) {
		return nil
	}
	return func(s *link.Snapshot, l *link.Link) []string {
		keys := by[unitOf(s, l)]
		if e := rec.Of(l); e != nil {
			keys = slices.Concat(keys, e.Sysctls())
		}
		return keys
	}
}

// neighborsOf returns the links on which permanent neighbours are wanted or recorded, nil
// where no unit has any.
func neighborsOf(set *units.Set, rec *link.Record, unitOf func(*link.Snapshot, *link.Link) *units.Unit) func(*link.Snapshot,
	*link.Link) bool {
	some := rec != nil && slices.ContainsFunc(rec.Links, func(e *link.LinkRecord) bool { return len(e.Neighbors) > 0 })
	if !some && !slices.ContainsFunc(set.Units, func(u *units.Unit) bool { return len(u.Neighbors) > 0 }) {
		return nil
	}
	return func(s *link.Snapshot, l *link.Link) bool {
		if e := rec.Of(l); e != nil && len(e.Neighbors) > 0 {
			return true
		}
		u := unitOf(s, l)
		return u != nil && len(u.Neighbors) > 0
	}
}

// withAdvertised lists the links on which routers had advertised something.
func withAdvertised(rec *link.Record) (out []*link.LinkRecord) {
	if rec == nil {
		return nil
	}
	for _, e := range rec.Links {
		if e.Advertised != nil {
			out = append(out, e)
		}
	}
	return out
}

// portUnit gives the unit that matches a port by itself.
func portUnit(set *units.Set) func(s *link.Snapshot, d *link.Device, p *link.Port) *units.Unit {
	return func(s *link.Snapshot, d *link.Device, p *link.Port) *units.Unit {
		return link.GovernPort(s, set, d, p).Unit
	}
}

// Needs is what a plan needs of the system beyond links and addresses,
// so that an observation costs no more than it is worth. A capture wants all.
type Needs struct {
	Routes, Rules bool
	// PKeys asks for every entry of the partition tables; otherwise reading ends
	// where a table seems to.
	PKeys bool
	// Sysctls lists the settings to read of a link; nil reads none.
	Sysctls func(s *link.Snapshot, l *link.Link) []string
	// Neighbors reports whether to read the permanent neighbours of a link; nil reads none.
	Neighbors func(s *link.Snapshot, l *link.Link) bool
	// NextHops are the IDs of the nexthop objects to read; nil reads none. With it goes
	// Routes.
	NextHops map[uint32]bool
	// Namespaces are the paths of the network namespaces to read, Moved the links to read
	// in others.
	Namespaces []string
	Moved      []link.Moved
	// LinkUnit gives the unit of a link for what package roce reads; nil if no
	// unit asks for any of it.
	LinkUnit func(s *link.Snapshot, l *link.Link) *units.Unit
	// PortUnit is the same for a port that has no network interface; it is set
	// if Card is.
	PortUnit func(s *link.Snapshot, d *link.Device, p *link.Port) *units.Unit
	// Resolved asks who systemd-resolved is.
	Resolved bool
	// Advertised are the records of links where routers had advertised something
	// before the daemon was started again, for the first observation only.
	Advertised []*link.LinkRecord
}
