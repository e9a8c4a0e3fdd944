package main

import (
	"maps"
	"slices"
	"sync"

	"ibnetworkd/daemon"
	"ibnetworkd/daemon/bus/api"
	"ibnetworkd/ib"
	"ibnetworkd/link"
	"ibnetworkd/smctl"
	"ibnetworkd/units"
)

// managers is what the subnet manager control knows of the managers of ports, for
// the reasons and next steps of links.
type managers struct {
	mu     sync.Mutex
	sms    []smctl.Status
	loaded *units.Set
	of     map[ib.GUID]link.Manager
}

// set takes the states of all ports and reports whether what is known has changed.
func (m *managers) set(sms []smctl.Status) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.sms = sms
	return m.work()
}

// units takes the units, which name the files of partitions.
func (m *managers) units(set *units.Set) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.loaded = set
	return m.work()
}

func (m *managers) work() bool {
	of := map[ib.GUID]link.Manager{}
	for _, s := range m.sms {
		if g, err := ib.ParseGUID(s.PortGUID); err == nil {
			if x := api.ManagerOf(s, m.loaded); x != (link.Manager{}) {
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

// managerSystem adds to each picture what is known of the subnet managers.
type managerSystem struct {
	daemon.System
	known *managers
}

// Look implements daemon.System.
func (s managerSystem) Look(sc daemon.Scope, n daemon.Wants) (*link.Snapshot, error) {
	snap, err := s.System.Look(sc, n)
	if snap == nil {
		return snap, err
	}
	s.known.mu.Lock()
	defer s.known.mu.Unlock()
	// The devices may be the last picture's, which is not changed any more.
	copied := false
	for i := range snap.Devices {
		for j := range snap.Devices[i].Ports {
			p := &snap.Devices[i].Ports[j]
			m := s.known.of[p.GUID]
			if p.Manager == m {
				continue
			}
			if !copied {
				snap.Devices = slices.Clone(snap.Devices)
				for n := range snap.Devices {
					snap.Devices[n].Ports = slices.Clone(snap.Devices[n].Ports)
				}
				copied = true
			}
			snap.Devices[i].Ports[j].Manager = m
		}
	}
	return snap, err
}
