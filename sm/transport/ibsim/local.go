package ibsim

// PortInfo is the PortInfo of the port attached to, in wire form. The simulator
// tells it over its control socket, so that a manager need not ask by SMP.
// (What it tells there as NodeInfo has the node's GUID as the port's.)
func (t *Transport) PortInfo() ([64]byte, bool) {
	c := Ctl{Type: CtlGetPortInfo}
	if t.question(&c) != nil {
		return [64]byte{}, false
	}
	return [64]byte(c.Data[:64]), true
}
