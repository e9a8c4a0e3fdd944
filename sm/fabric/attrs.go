package fabric

import (
	"ibnetworkd/ib"
	"ibnetworkd/sm/mad"
)

// PortInfo and SwitchInfo are the attributes as the node sent them.
type (
	PortInfo   = mad.PortInfo
	SwitchInfo = mad.SwitchInfo
)

// TablePorts is the number of ports in a block of SwitchPortStateTable, of four
// bits each, from port 0 on.
const TablePorts = 128

// StateInTable is the state of port p, counted from the first port of the given
// blocks of a SwitchPortStateTable.
func StateInTable(blocks []byte, p int) ib.PortState {
	return ib.PortState(blocks[p/2] >> (4 * (1 - p%2)) & 15)
}
