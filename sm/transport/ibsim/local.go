package ibsim

import "ibnetworkd/sm/mad"

// NodeInfo is the NodeInfo of the node attached to. The simulator tells it over
// its control socket, so that the manager need not ask by SMP.
func (t *Transport) NodeInfo() (ni mad.NodeInfo, ok bool) {
	c := Ctl{Type: CtlGetNodeInfo}
	if t.question(&c) != nil {
		return ni, false
	}
	return ni, ni.Decode(c.Data[:]) == nil
}

// PortInfo is the PortInfo of the port attached to, in wire form.
func (t *Transport) PortInfo() ([64]byte, bool) {
	c := Ctl{Type: CtlGetPortInfo}
	if t.question(&c) != nil {
		return [64]byte{}, false
	}
	return [64]byte(c.Data[:64]), true
}
