package roce

import (
	"fmt"
	"strings"

	"ibnetworkd/link/cardstate"
)

// The values that a plan is made of, as an observer reads them.
type (
	State      = cardstate.State
	Device     = cardstate.Device
	Port       = cardstate.Port
	PortType   = cardstate.PortType
	Defaults   = cardstate.Defaults
	GID        = cardstate.GID
	GIDUser    = cardstate.GIDUser
	Link       = cardstate.Link
	SoftDevice = cardstate.SoftDevice
	Ethtool    = cardstate.Ethtool
	TSA        = cardstate.TSA
	DCB        = cardstate.DCB
	Classes    = cardstate.Classes
	Buffers    = cardstate.Buffers
	SRIOV      = cardstate.SRIOV
	VF         = cardstate.VF
)

// Priorities is the number of priorities and of traffic classes (IEEE 802.1Q).
const Priorities = cardstate.Priorities

// The algorithms that a plan knows.
const (
	Strict = cardstate.Strict
	ETS    = cardstate.ETS
)

// ModprobeFile is where mlx4's options are kept if a unit asks for it.
const ModprobeFile = "/etc/modprobe.d/ibnetworkd-mlx4.conf"

// DCBX flags (include/uapi/linux/dcbnl.h, DCB_CAP_DCBX_*).
const (
	DCBXHost    uint8 = 0x01
	DCBXManaged uint8 = 0x02
	DCBXIEEE    uint8 = 0x08
)

// priorities prints a set of priorities: "3,5", "none".
func priorities(set uint8) string {
	var out []string
	for p := range Priorities {
		if set&(1<<p) != 0 {
			out = append(out, fmt.Sprint(p))
		}
	}
	if out == nil {
		return "none"
	}
	return strings.Join(out, ",")
}
