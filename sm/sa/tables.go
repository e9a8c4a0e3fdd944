package sa

import (
	"ibnetworkd/ib"
	"ibnetworkd/sm/fabric"
	"ibnetworkd/sm/mcast"
	"ibnetworkd/sm/route"
)

// SetMFT stores multicast tables that were written between two sweeps, for
// MFTRecord.
func (s *Service) SetMFT(t mcast.Tables) { s.state.MFT = t }

// SetLevels replaces the service levels, by the switches with the node GUIDs at, before
// tables are written that need them. The fabric and all else stay until SetState.
func (s *Service) SetLevels(sl route.Layers, at []ib.GUID) {
	if s.f != nil {
		s.state.SL = sl.Carry(at, s.f)
	}
}

// LevelTo is the service level of routing between the manager's port and a LID, 0
// without one.
func (s *Service) LevelTo(l ib.LID) ib.SL {
	if s.state.SL == nil || int(l) >= len(s.owner) || s.owner[l] == fabric.None {
		return 0
	}
	a, _ := s.f.SwitchOf(s.f.SMPort)
	b, _ := s.f.SwitchOf(s.owner[l])
	if a == fabric.None || b == fabric.None {
		return 0
	}
	return s.state.SL.SL(a, b)
}
