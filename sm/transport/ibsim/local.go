package ibsim

import "ibnetworkd/sm/fabric"

// PortInfo is the PortInfo of the port attached to. The simulator
// tells it over its control socket, so that a manager need not ask by SMP.
// (What it tells there as NodeInfo has the node's GUID as the port's.)
func (t *Transport) PortInfo() (fabric.PortInfo, bool) {
	c := Ctl{Type: CtlGetPortInfo}
	if t.question(&c) != nil {
		return fabric.PortInfo{}, false
	}
	return fabric.PortInfoOf((*[64]byte)(c.Data[:])), true
}
