package engine

import (
	"fmt"

	"ibnetworkd/sm/transport"
)

// Leaks says what of the manager's state belongs to nothing any more. It must
// have settled.
func (s *Subnet) Leaks(members int) (err error) {
	done := make(chan struct{})
	s.do(func() {
		defer close(done)
		have := 0
		for _, g := range s.admin.GroupList() {
			have += g.Members
		}
		switch {
		case s.fly != 0 || len(s.idle) != len(s.slots):
			err = fmt.Errorf("%d requests under way, %d of %d slots free", s.fly, len(s.idle), len(s.slots))
		case have != members:
			err = fmt.Errorf("the SA has %d memberships, hosts have %d", have, members)
		case len(s.guids) != 0 || len(s.rereg) != 0 || s.ev.any():
			err = fmt.Errorf("work is left: %d blocks of GUIDs, %d ports to register again, events %+v", len(s.guids), len(s.rereg), s.ev)
		case len(s.have.lft) != len(s.fab.Switches) || len(s.have.mft) > len(s.fab.Switches) || len(s.have.pkeys) != len(s.fab.Ports):
			err = fmt.Errorf("tables of %d and %d switches are kept, there are %d", len(s.have.lft), len(s.have.mft), len(s.fab.Switches))
		case len(s.strangers) > len(s.fab.EndPorts):
			err = fmt.Errorf("%d ports are remembered as asking, of %d", len(s.strangers), len(s.fab.EndPorts))
		}
	})
	<-done
	return err
}

// Hold keeps the manager from everything else until f returns.
func (s *Subnet) Hold(f func()) { s.do(f) }

// Charge has each request cost the time that f takes.
func (s *Subnet) Charge(f func(*transport.Packet)) { s.do(func() { s.charge = f }) }
