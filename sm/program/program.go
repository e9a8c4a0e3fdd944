// Package program is the difference between what the fabric has and what it
// should have, as requests.
//
// It owns the wanted values of PortInfo and SwitchInfo and the block layout of
// the tables. It does no I/O: small batches are functions from values to values,
// large ones are sources that make each request when it is its turn. The engine
// sends them, one batch after the other is acknowledged, and keeps what the
// fabric has. First sweep, resweep after an event and takeover are the same
// code: what the fabric has is not sent.
//
// Order matters and is the caller's: tables first (LFT, Switches, Ports with
// Configure), then Arm, then Activate, each when the one before has been
// acknowledged, so that no port carries data while a forwarding table on its
// way is not written.
package program

import (
	"ibnetworkd/ib"
	"ibnetworkd/sm/fabric"
	"ibnetworkd/sm/mad"
	"ibnetworkd/sm/smp"
)

// Policy is what the manager wants of every port and switch.
type Policy struct {
	SMLID ib.LID // of the master, written to every end port
	SMSL  ib.SL
	// SMSLs has the service level to the master of each end port, by index
	// into Fabric.Ports, where routing needs several; nil means SMSL.
	SMSLs     []ib.SL
	MKey      ib.MKey
	MKeyLease uint16 // seconds
	Protect   uint8  // M_Key protection level, 0..3
	Prefix    uint64
	// SubnetTimeout is the code (4.096 us * 2^n) of the longest way of a MAD.
	SubnetTimeout uint8
	PacketLife    uint8 // SwitchInfo:LifeTimeValue code
	HOQLife       uint8 // head-of-queue lifetime code between switches
	LeafHOQLife   uint8 // and towards adapters
	VLStall       uint8
	OperVLs       uint8  // most operational VLs, coded as PortInfo:VLCap; 0 as many as both ends have
	MaxMTU        ib.MTU // 0: as large as both ends have
	VLHighLimit   uint8  // written with VLs set
	// VLs has the code of the operational VLs of each port, by index into
	// Fabric.Ports; nil leaves them to OperVLs and the capabilities.
	VLs []uint8
	// Enforcement has what switch ports check, by index into Fabric.Ports (see
	// pkey.Plan); nil for none.
	Enforcement []mad.Enforcement
}

// DefaultPolicy is the policy of a subnet without settings; the values are those
// that fabrics have run with for years.
func DefaultPolicy() Policy {
	return Policy{Prefix: ib.DefaultPrefix, SubnetTimeout: 18, PacketLife: 18, HOQLife: 18, LeafHOQLife: 16, VLStall: 7}
}

// Stage is a step of bringing up ports.
type Stage uint8

// The stages in order.
const (
	Configure Stage = iota // ports that are up and switch ports 0: everything but the state
	Arm                    // Initializing to Armed with everything else in the same Set
	Activate               // Armed to Active
)

// PathTo is the directed route to where a port's SMPs are answered: for an
// external switch port the switch, for an adapter port that port itself. It is
// false when there is none.
func PathTo(f *fabric.Fabric, port int32) ([]uint8, bool) {
	p := &f.Ports[port]
	n := &f.Nodes[p.Node]
	if n.Switch != fabric.None {
		return n.Path, true
	}
	if port == f.SMPort {
		return nil, true
	}
	if p.Peer == fabric.None {
		return nil, false
	}
	q := &f.Ports[p.Peer]
	m := &f.Nodes[q.Node]
	if m.Switch == fabric.None && p.Peer != f.SMPort {
		return nil, false
	}
	return smp.PathTo(m.Path, q.Num), true
}

// Key is the M_Key that a port of a node requires in a Set. It is what the port
// shows: a manager that goes leaves its key behind, and a port whose protection is
// level 0, as configured or because the lease has run out, shows it to every
// manager so that the next one can take over (IBA vol 1, 14.2.4.1). 0 is a port
// without a key, or one that hides it: then the manager's own is used.
func Key(f *fabric.Fabric, port int32) ib.MKey {
	n := f.Ports[port].Node
	if f.Nodes[n].Switch != fabric.None {
		port = f.Port(n, 0) // a switch has one key, that of its port 0
	}
	return f.Ports[port].Info.MKey()
}
