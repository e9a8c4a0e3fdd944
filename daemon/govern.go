package daemon

import (
	"ibnetworkd/daemon/plan"
	"ibnetworkd/link"
	"ibnetworkd/units"
)

// View is what the last cycle observed, and which unit governs what. It is not
// changed afterwards.
type View struct {
	Snapshot  *link.Snapshot
	Units     *units.Set
	Governing link.Governing
}

// Served is the unit of a link that this daemon configures, nil for none: see plan.Served.
func (v View) Served(l *link.Link) *units.Unit { return plan.Served(v.Snapshot, v.Governing, l) }

// governPorts finds the units of the ports, and notes them in the record.
func (d *Daemon) governPorts() {
	d.governing.Ports = link.GovernPorts(d.snap, d.set, d.governing.Links, d.rec)
	if d.rec.RememberPorts(d.snap, d.governing.Ports) {
		d.save()
	}
}
