package daemon

import (
	"time"

	"ibnetworkd/ib"
	"ibnetworkd/link"
)

// portWait is the time until the ports are read next.
func (d *Daemon) portWait() time.Duration {
	if d.snap == nil || len(d.snap.Devices) == 0 {
		return 24 * time.Hour // there is an event for the first device
	}
	if !d.waitsForPort() {
		return d.cfg.SlowPort
	}
	if time.Since(d.moved) < portPatience {
		return d.cfg.FastPort
	}
	return min(portBackOff*d.cfg.FastPort, d.cfg.SlowPort)
}

// A port that waits, for a cable for example, is read each FastPort until
// nothing has happened for portPatience, then less often by portBackOff: reading costs
// some firmware commands at each port of the host.
const (
	portPatience = time.Minute
	portBackOff  = 10
)

// slowTables is the time between two reads of all partition tables, in SlowPort intervals,
// while no link waits for a key. Each entry is a file, and with some drivers a firmware command.
const slowTables = 10

// waitsForPort reports whether a port that matters is not as a link needs it.
func (d *Daemon) waitsForPort() bool {
	if d.waitsForPKey() {
		return true
	}
	for i := range d.snap.Links {
		l := &d.snap.Links[i]
		if !d.cares(l) {
			continue
		}
		if _, p := d.snap.PortOf(l); p != nil && p.Layer == ib.LinkLayerInfiniBand && p.State != ib.PortActive {
			return true
		}
	}
	return false
}

// cares reports whether a unit of ours applies to the link or its parent.
func (d *Daemon) cares(l *link.Link) bool {
	st, ok := d.status[l.Index]
	return ok && st.State != link.StateUnmanaged && l.IPoIB != nil
}

// waitsForPKey reports whether a link waits for the subnet manager to grant its
// partition, which comes without an event if the table alone changes.
func (d *Daemon) waitsForPKey() bool {
	for i := range d.snap.Links {
		l := &d.snap.Links[i]
		if !d.cares(l) || l.Carrier() || !l.Up() {
			continue
		}
		if _, p := d.snap.PortOf(l); p != nil && p.State == ib.PortActive && !p.HasPKey(l.IPoIB.PKey) {
			return true
		}
	}
	return false
}
