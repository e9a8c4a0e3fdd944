package sa

import (
	"ibnetworkd/ib"
	"ibnetworkd/sm/fabric"
	"ibnetworkd/sm/mcast"
)

// SetMFT stores multicast tables that were written between two sweeps, for
// MFTRecord.
func (s *Service) SetMFT(t mcast.Tables) { s.state.MFT = t }

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
