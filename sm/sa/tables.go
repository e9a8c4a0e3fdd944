package sa

import "ibnetworkd/sm/mcast"

// SetMFT takes over multicast tables that were written between two sweeps, so
// that MFTRecord tells what the switches hold.
func (s *Service) SetMFT(t mcast.Tables) { s.state.MFT = t }
