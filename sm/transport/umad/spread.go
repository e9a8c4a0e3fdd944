package umad

import (
	"errors"
	"fmt"
	"sync"
	"syscall"

	"ibnetworkd/internal/kernel/umad"
	"ibnetworkd/sm/mad"
	"ibnetworkd/sm/transport"
)

// sendAgents is how many agents send requests by directed routes. Linux since 2025 keeps
// back SMPs of an agent that has 128 without an outcome, a quarter of the receive queue
// (drivers/infiniband/core/mad.c, mad_is_for_backlog; the SA class has 16). A lost one counts
// until its time-out: many agents are room for those. A file has 32 at most (user_mad.c).
const sendAgents = 24

// spread distributes requests over agents: each goes to the one with the fewest that have
// no outcome.
type spread struct {
	mu    sync.Mutex
	agent []uint32
	open  []int // by index of agent
}

func (s *spread) add(agent uint32) { s.agent, s.open = append(s.agent, agent), append(s.open, 0) }

// fill adds agents up to sendAgents. That the kernel gives no more (ENOMEM, user_mad.c) is no
// error, one of the device is: transport.ErrGone if it is gone.
func (s *spread) fill(register func(umad.Agent) (uint32, error)) error {
	for len(s.agent) < sendAgents {
		id, err := register(umad.Agent{QPN: 0, Class: uint8(mad.ClassSubnDR), Version: mad.SMPClassV})
		switch {
		case errors.Is(err, syscall.ENOMEM):
			return nil
		case isGone(err):
			return fmt.Errorf("%w (%v)", transport.ErrGone, err)
		case err != nil:
			return err
		}
		s.add(id)
	}
	return nil
}

// pick gives the agent for a request.
func (s *spread) pick() uint32 {
	s.mu.Lock()
	defer s.mu.Unlock()
	best := 0
	for i, n := range s.open {
		if n < s.open[best] {
			best = i
		}
	}
	s.open[best]++
	return s.agent[best]
}

// done notes the outcome of a request of an agent. Some have none (see Forgets): what
// remains counted makes an agent seem busier, and so be taken less, than others.
func (s *spread) done(agent uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, a := range s.agent {
		if a == agent {
			s.open[i] = max(0, s.open[i]-1)
		}
	}
}
