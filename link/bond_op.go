package link

import "fmt"

// AddBond makes a bond. On names it (Ifindex 0).
type AddBond struct {
	On
	MTU int // bytes, 0 for the kernel's own
	BondOptions
}

// SetMaster makes a link, which must be down, a slave of a bond, and up; or puts it
// into a VRF; or (Release) takes it out of either.
type SetMaster struct {
	On
	Master  Target
	VRF     bool // Master is a VRF: the link need not be down
	Release bool
}

// SetBond changes the options of a bond; those of fixed are the same.
type SetBond struct {
	On
	Has BondOptions
	BondOptions
}

// SetPrimary sets the slave of a bond that is active whenever it has carrier.
type SetPrimary struct {
	On
	Slave Target
}

// String prints ip link add NAME type bond.
func (o AddBond) String() string {
	mtu := ""
	if o.MTU != 0 {
		mtu = fmt.Sprintf(" mtu %d", o.MTU)
	}
	return fmt.Sprintf("ip link add name %s%s type bond %s", o.On.Link, mtu, o.differing(bondDefaults))
}

// String prints ip link set NAME master BOND, or nomaster.
func (o SetMaster) String() string {
	if o.Release {
		return "ip link set " + o.On.Link + " nomaster"
	}
	return "ip link set " + o.On.Link + " master " + o.Master.Link
}

// String prints ip link set NAME type bond OPTION VALUE...
func (o SetBond) String() string {
	return fmt.Sprintf("ip link set %s type bond %s", o.On.Link, o.differing(o.Has))
}

// String prints ip link set NAME type bond primary SLAVE.
func (o SetPrimary) String() string {
	return fmt.Sprintf("ip link set %s type bond primary %s", o.On.Link, o.Slave.Link)
}
