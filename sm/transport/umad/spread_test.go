package umad

import (
	"errors"
	"fmt"
	"syscall"
	"testing"

	"ibnetworkd/internal/kernel/umad"
	"ibnetworkd/sm/transport"
)

// A kernel that gives fewer agents is none that has lost the device.
func TestFill(t *testing.T) {
	for _, tt := range []struct {
		err  syscall.Errno
		want error
	}{{0, nil}, {syscall.ENOMEM, nil}, {syscall.EPIPE, transport.ErrGone}, {syscall.ENODEV, transport.ErrGone},
		{syscall.EIO, transport.ErrGone}, {syscall.EINVAL, syscall.EINVAL}} {
		var s spread
		s.add(1)
		n := uint32(1)
		err := s.fill(func(umad.Agent) (uint32, error) {
			if n++; tt.err != 0 && n > 3 {
				return 0, fmt.Errorf("umad0: register: %w", tt.err)
			}
			return n, nil
		})
		want := 3
		if tt.err == 0 {
			want = sendAgents
		}
		if !errors.Is(err, tt.want) || len(s.agent) != want || len(s.open) != want {
			t.Errorf("%v: %d agents, %v", tt.err, len(s.agent), err)
		}
	}
}

// Requests go to the agent with the fewest under way, whichever order their outcomes have,
// and an outcome that was not counted does not count.
func TestSpread(t *testing.T) {
	var s spread
	for a := range uint32(4) {
		s.add(10 + a)
	}
	most := func(n int) {
		t.Helper()
		sum := 0
		for _, k := range s.open {
			if sum += k; k > n {
				t.Errorf("%v, at most %d of an agent", s.open, n)
			}
		}
	}
	for range 20 {
		s.pick()
	}
	most(5)
	for range 5 {
		s.done(12)
	}
	s.done(12)
	s.done(99)
	for range 5 {
		if a := s.pick(); a != 12 {
			t.Errorf("agent %d with %v", a, s.open)
		}
	}
	s.pick()
	most(6)
}
