package link

import (
	"fmt"

	"ibnetworkd/ib"
)

// Manager is what this host knows of the subnet manager of a port, beside its LID;
// the zero value knows nothing.
type Manager struct {
	// Silent is that it was asked and does not answer.
	Silent bool `json:"silent,omitempty"`
	// Starts is that this host starts one unless another answers first.
	Starts bool `json:"starts,omitempty"`
	// Ours is whether the master runs on this host. Unit is then the unit file with
	// its [SubnetManager] section, and File that section's PartitionsFile=.
	Ours bool   `json:"ours,omitempty"`
	Unit string `json:"unit,omitempty"`
	File string `json:"file,omitempty"`
	// Builtin is whether it is ibnetsm, which reads Partition= of units.
	Builtin bool `json:"builtin,omitempty"`
	// Host is the node description of the master's host, GUID its port's.
	Host string  `json:"host,omitempty"`
	GUID ib.GUID `json:"guid,omitempty"`
}

// startStep is how a port gets a subnet manager: by itself, or by a command.
func (m *Manager) startStep(port, command string) string {
	if m.Starts {
		return fmt.Sprintf("wait: this host starts a subnet manager if no other answers; ibnetctl sm status %s shows when", port)
	}
	return command
}

// PartitionStep is where and how a partition is changed for a port: line is what a
// file of partitions says, rule the same as Partition= of a unit.
func (p *Port) PartitionStep(line, rule string) string {
	m := &p.Manager
	switch {
	case m.Ours && m.File != "":
		return fmt.Sprintf("in %s: %s", m.File, line)
	case m.Ours && m.Builtin && m.Unit != "":
		return fmt.Sprintf("in %s, [SubnetManager]: Partition=%s", m.Unit, rule)
	case m.Ours && m.Builtin:
		return fmt.Sprintf("write a unit for this port with [SubnetManager] Partition=%s", rule)
	case m.Ours:
		return fmt.Sprintf("in /etc/opensm/partitions.conf of this host: %s", line)
	case m.Host != "":
		return fmt.Sprintf("on host %q, which runs the subnet manager (port GUID %v), in the partitions that it reads: %s", m.Host, m.GUID, line)
	case m.GUID != 0:
		return fmt.Sprintf("on the host with port GUID %v, which runs the subnet manager, in the partitions that it reads: %s", m.GUID, line)
	}
	return fmt.Sprintf(
		"where the subnet manager at LID %d runs (ibnetctl sm status names its host), in the partitions that it reads: %s",
		uint16(p.SMLID),
		line,
	)
}

// MemberStep is how the subnet manager makes the port a full member of a partition.
func (p *Port) MemberStep(key ib.PKey) string {
	base := uint16(key.Base())
	return p.PartitionStep(fmt.Sprintf("p%04x=0x%04x, ipoib : %v=full;", base, base, p.GUID),
		fmt.Sprintf("0x%04x Members=%v=full", base|0x8000, p.GUID))
}

// GroupStep is how the subnet manager gives a partition a broadcast group.
func (p *Port) GroupStep(key ib.PKey) string {
	base := uint16(key.Base())
	return p.PartitionStep(fmt.Sprintf("give partition 0x%04x the ipoib flag", base), fmt.Sprintf("0x%04x IPoIB=yes", base|0x8000))
}

// MTUStep is how the broadcast group of a partition gets the largest MTU.
func (p *Port) MTUStep(key ib.PKey) string {
	base := uint16(key.Base())
	return p.PartitionStep(fmt.Sprintf("give partition 0x%04x mtu=5 (4096 bytes), if all adapters and switches can", base),
		fmt.Sprintf("0x%04x MTU=4096", base|0x8000))
}
