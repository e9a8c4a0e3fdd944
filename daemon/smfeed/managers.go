package smfeed

import (
	"maps"
	"sync"

	"ibnetworkd/daemon/bus/api"
	"ibnetworkd/ib"
	"ibnetworkd/link"
	"ibnetworkd/smctl"
	"ibnetworkd/units"
)

// Managers is what the subnet manager control knows of the managers of ports, for
// the reasons and next steps of links. Its methods may be called from any goroutine.
type Managers struct {
	mu    sync.Mutex
	sms   []smctl.Status
	units *units.Set
	of    map[ib.GUID]link.Manager
}

// SetStates takes the states of all ports and reports whether what is known has
// changed.
func (m *Managers) SetStates(sms []smctl.Status) (changed bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.sms = sms
	return m.join()
}

// SetUnits takes the units, which name the files of partitions, and reports whether
// what is known has changed.
func (m *Managers) SetUnits(set *units.Set) (changed bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if set == m.units {
		return false
	}
	m.units = set
	return m.join()
}

func (m *Managers) join() bool {
	of := map[ib.GUID]link.Manager{}
	for _, s := range m.sms {
		if g, err := ib.ParseGUID(s.PortGUID); err == nil {
			if x := api.ManagerOf(s, m.units); x != (link.Manager{}) {
				of[g] = x
			}
		}
	}
	if maps.Equal(of, m.of) {
		return false
	}
	m.of = of
	return true
}

// Complete adds what is known of the managers to a snapshot.
func (m *Managers) Complete(snap *link.Snapshot) {
	m.mu.Lock()
	defer m.mu.Unlock()
	link.SetEachPort(snap, func(p *link.Port) *link.Manager { return &p.Manager },
		func(p *link.Port) link.Manager { return m.of[p.GUID] })
}
