package sa

import "ibnetworkd/sm/mcast"

// SetMFT stores multicast tables that were written between two sweeps, for
// MFTRecord.
func (s *Service) SetMFT(t mcast.Tables) { s.state.MFT = t }
