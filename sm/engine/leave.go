package engine

import (
	"context"
	"ibnetworkd/sm/mad"
	"time"
)

// end hands over and leaves.
func (s *Subnet) end() {
	if s.elect.State() == mad.SMMaster && len(s.elect.Peers()) > 0 {
		ctx, cancel := context.WithTimeout(context.Background(), s.cfg.HandoverWait)
		s.askPeers(ctx, false)
		cancel()
	}
	if p, ok := s.elect.Leave(); ok {
		ctx, cancel := context.WithTimeout(context.Background(), s.cfg.HandoverWait)
		defer cancel()
		s.log.Info("handing over", "to", p.Info.GUID.String(), "to_lid", p.LID.String())
		s.handover(ctx, p)
		s.elect.Retire()
		for s.lingers() && s.wait(context.Background(), 20*time.Millisecond, nil) == nil {
			if s.awaitSuccessor() != nil {
				break
			}
		}
	}
	s.tr.SetIsSM(false)
	s.log.Info("stopped")
}

// lingerMost bounds how long a new master may take until the old one leaves it
// alone; lingerQuiet is how long no question must have come.
const (
	lingerMost  = 5 * time.Second
	lingerQuiet = 100 * time.Millisecond
)

// lingers reports whether this manager has handed over and the new master may not serve yet: it
// has to discover the subnet first, and hosts query the old one until it has set their ports.
// What they only read is as true as before.
func (s *Subnet) lingers() bool { return time.Now().Before(s.former.until) }

// awaitSuccessor ends that once the new master has set the local port and there were no
// requests for a while: it sets one port after the other.
func (s *Subnet) awaitSuccessor() error {
	p, err := s.tr.Port()
	if err != nil {
		return err
	}
	if p.SMLID == s.port.LID {
		s.former.asked = time.Now()
	} else if time.Since(s.former.asked) > lingerQuiet {
		s.former.until = time.Time{}
	}
	return nil
}
