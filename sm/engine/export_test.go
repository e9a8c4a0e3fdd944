package engine

import (
	"fmt"

	"ibnetworkd/sm/transport"
)

// Leaks returns an error if state of the manager belongs to nothing any more. It must
// have settled.
func (s *Subnet) Leaks(members int) (err error) {
	done := make(chan struct{})
	s.do(func() {
		defer close(done)
		have := 0
		for _, g := range s.served.admin.GroupList() {
			have += g.Members
		}
		switch {
		case s.win.live != 0 || len(s.win.idle) != len(s.win.slots):
			err = fmt.Errorf("%d requests under way, %d of %d slots free", s.win.live, len(s.win.idle), len(s.win.slots))
		case have != members:
			err = fmt.Errorf("the SA has %d memberships, hosts have %d", have, members)
		case len(s.served.guids) != 0 || len(s.served.reregister) != 0 || s.ev.any():
			err = fmt.Errorf("work is left: %d blocks of GUIDs, %d ports to register again, events %+v", len(s.served.guids),
				len(s.served.reregister), s.ev)
		case len(s.prog.have.lft) != len(s.prog.fabric.Switches) || len(s.prog.have.mft) > len(s.prog.fabric.Switches) ||
			len(s.prog.have.pkeys) != len(s.prog.fabric.Ports):
			err = fmt.Errorf("tables of %d and %d switches are kept, there are %d", len(s.prog.have.lft), len(s.prog.have.mft),
				len(s.prog.fabric.Switches))
		case len(s.managers.unknownPeers) > len(s.prog.fabric.EndPorts):
			err = fmt.Errorf("%d ports are remembered as asking, of %d", len(s.managers.unknownPeers), len(s.prog.fabric.EndPorts))
		}
	})
	<-done
	return err
}

// Hold blocks the manager until f returns.
func (s *Subnet) Hold(f func()) { s.do(f) }

// Charge has each request cost the time that f takes.
func (s *Subnet) Charge(f func(*transport.Packet)) { s.do(func() { s.served.charge = f }) }
