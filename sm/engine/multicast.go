package engine

import (
	"context"
	"ibnetworkd/sm/mcast"
	"ibnetworkd/sm/program"
	"ibnetworkd/sm/smp"
	"time"
)

// mcastDue reports whether members changed since the multicast tables were written,
// and the tables are not delayed.
func (s *Subnet) mcastDue() bool {
	return s.served.mcastDirty && s.prog.fabric != nil && !time.Now().Before(s.mcastDelayed())
}

// After a takeover the tables of the former master go on working until the first
// member that joins again has them written without the others: so they are delayed
// until no member has joined for a while.
const (
	mcastQuiet = 300 * time.Millisecond
	mcastMost  = 2 * time.Second
)

// delayMulticast delays the multicast tables from now on.
func (s *Subnet) delayMulticast() {
	s.served.lastJoin = time.Now()
	s.served.mcastLatest = s.served.lastJoin.Add(mcastMost)
}

// mcastDelayed is until when the multicast tables are delayed.
func (s *Subnet) mcastDelayed() time.Time {
	if t := s.served.lastJoin.Add(mcastQuiet); t.Before(s.served.mcastLatest) {
		return t
	}
	return s.served.mcastLatest
}

// programMulticast writes the multicast tables that differ.
func (s *Subnet) programMulticast(ctx context.Context) error {
	if !s.mcastDue() {
		return nil
	}
	s.served.mcastDirty = false
	f := s.prog.fabric
	groups := s.served.admin.Groups()
	g := s.routed(f)
	trunk := s.prog.want.trunk
	want, err := compute(ctx, s, func() mcast.Tables { return mcast.BuildOn(g, trunk, groups) })
	if err != nil {
		s.served.mcastDirty = true
		return err
	}
	have := s.prog.have.mft
	reqs := program.MFT(f, have, want, s.prog.have.unknownMFT)
	again := map[uint64]bool{}
	err = s.pump(ctx, &smp.List{Requests: reqs, Done: func(r *smp.Reply) {
		if !r.OK() {
			again[r.Tag] = true
		}
	}})
	if err != nil {
		s.served.mcastDirty = true
		return err
	}
	// A switch that did not take a block is one that nothing is known of.
	unknown := make([]bool, len(f.Switches))
	for i := range unknown {
		unknown[i] = again[uint64(i)]
		if unknown[i] {
			s.warnOnce("mft"+f.Nodes[f.Switches[i].Node].GUID.String(), "switch rejected its multicast table", "node",
				f.Nodes[f.Switches[i].Node].Name())
		}
	}
	s.prog.have.mft, s.prog.have.unknownMFT = want, unknown
	s.served.admin.SetMFT(want)
	return nil
}
