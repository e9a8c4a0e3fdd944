package ibsim

import (
	"ibnetworkd/sm/fabric"
	"ibnetworkd/sm/mad"
)

// PortInfo is the PortInfo of the local port, from the simulator's control socket,
// so that a manager need not query it by SMP. (NodeInfo there has the node's GUID as
// the port's.)
func (t *Transport) PortInfo() (fabric.PortInfo, bool) {
	c := Ctl{Type: CtlGetPortInfo}
	if t.question(&c) != nil {
		return fabric.PortInfo{}, false
	}
	return mad.PortInfoOf((*[64]byte)(c.Data[:])), true
}
