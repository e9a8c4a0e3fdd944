package umad

import (
	"errors"
	"fmt"
	"syscall"
	"testing"
	"time"

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

// No more than MaxSending is sent within the time that the kernel keeps an
// unacknowledged message, and more can be sent after it.
func TestUnderway(t *testing.T) {
	var u underway
	now := time.Unix(1000, 0)
	const n = transport.MaxSending / 16
	took := 0
	for range 40 {
		if u.reserve(now, n) {
			took++
		}
		if u.reserve(now, 1) {
			u.refused(1) // what the kernel does not take does not count
		}
		now = now.Add(retries / 40)
	}
	if took != 16 {
		t.Errorf("%d messages within %v, want 16", took, retries)
	}
	if now = now.Add(retries + retries/8); !u.reserve(now, transport.MaxSending) || u.reserve(now, 1) {
		t.Error("no room after all that was sent is gone, or too much")
	}
	if now = now.Add(100 * retries); !u.reserve(now, transport.MaxSending) {
		t.Error("no room after a long time")
	}
}
