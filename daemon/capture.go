package daemon

import (
	"fmt"

	"ibnetworkd/link"
	"ibnetworkd/units"
)

// Observe reads everything once and gives the whole snapshot, for a plan or a
// capture outside of the daemon. set says which settings of links matter; nil
// reads none; rec has what routers had advertised, nil nothing.
func Observe(root string, set *units.Set, rec *link.Record) (*link.Snapshot, error) {
	o, err := NewObserver(ObserverConfig{Root: root})
	if err != nil {
		return nil, err
	}
	defer func() { _ = o.Close() }()
	w := Needs{Routes: true, Rules: true, PKeys: true, Resolved: true, Advertised: withAdvertised(rec)}
	if set != nil {
		unitOf := func(s *link.Snapshot, l *link.Link) *units.Unit { return link.Govern(s, set, l).Unit }
		w.Neighbors = neighborsOf(set, rec, unitOf)
		w.NextHops = nextHopsOf(set, rec)
		w.namespaces(set, rec)
		w.LinkUnit, w.PortUnit = unitOf, portUnit(set)
		w.Sysctls = sysctlsOf(set, rec, unitOf)
	}
	s, err := o.Observe(everything, w)
	if err != nil {
		return nil, fmt.Errorf("read the system: %w", err)
	}
	return s, nil
}
