package engine

import (
	"context"
	"ibnetworkd/sm/mcast"
	"ibnetworkd/sm/program"
	"ibnetworkd/sm/smp"
	"time"
)

// mcastDue tells that members changed since the multicast tables were written,
// and that they are not held back.
func (s *Subnet) mcastDue() bool {
	return s.mcastDirty && s.fab != nil && !time.Now().Before(s.mcastHeld())
}

// After a takeover the tables of the former master go on working until the
// first member that joins again has them written without the others: so they
// are held until nobody has joined for a while.
const (
	mcastQuiet = 300 * time.Millisecond
	mcastMost  = 2 * time.Second
)

// holdMulticast holds the multicast tables back from now on.
func (s *Subnet) holdMulticast() {
	s.lastJoin = time.Now()
	s.mcastHold = s.lastJoin.Add(mcastMost)
}

// mcastHeld is until when the multicast tables are held back.
func (s *Subnet) mcastHeld() time.Time {
	if t := s.lastJoin.Add(mcastQuiet); t.Before(s.mcastHold) {
		return t
	}
	return s.mcastHold
}

// programMulticast writes the multicast tables that differ.
func (s *Subnet) programMulticast(ctx context.Context) error {
	if !s.mcastDue() {
		return nil
	}
	s.mcastDirty = false
	f := s.fab
	groups := s.admin.Groups()
	want, err := compute(ctx, s, func() mcast.Tables { return mcast.Build(f, groups) })
	if err != nil {
		s.mcastDirty = true
		return err
	}
	have := s.have.mft
	reqs := program.MFT(f, have, want, s.have.fresh)
	again := map[uint64]bool{}
	err = s.pump(ctx, &smp.List{Requests: reqs, Done: func(r *smp.Reply) {
		if !r.OK() {
			again[r.Tag] = true
		}
	}})
	if err != nil {
		s.mcastDirty = true
		return err
	}
	// A switch that did not take a block is one that nothing is known of.
	fresh := make([]bool, len(f.Switches))
	for i := range fresh {
		fresh[i] = again[uint64(i)]
		if fresh[i] {
			s.warnOnce("mft"+f.Nodes[f.Switches[i].Node].GUID.String(), "switch rejected its multicast table", "node", f.Nodes[f.Switches[i].Node].Name())
		}
	}
	s.have.mft, s.have.fresh = want, fresh
	s.admin.SetMFT(want)
	return nil
}
