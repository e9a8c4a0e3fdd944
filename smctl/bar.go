package smctl

import (
	"bytes"
	"fmt"
)

// Bar is why no subnet manager may or can run on a port. It overrules units and
// people: such a port never sends an SMP that changes a fabric.
type Bar uint8

// The reasons, in the order in which they are named.
const (
	BarNone       Bar = iota
	BarUnread         // it is not known yet whether there is one
	BarUnknown        // the PCI VPD, which would say it, cannot be read
	BarOmniPath       // the fabric speaks Omni-Path's protocol
	BarNVSwitch       // the PCI VPD holds SMDL=SW_MNG
	BarSMDisabled     // PortInfo:CapabilityMask.IsSMDisabled (IBTA 14.2.5.6, bit 10)
	BarNoQP0          // the kernel has no issm device for the port, or refuses QP0
)

// forbids reports whether a worker that runs is stopped for it. One that runs has
// QP0 whatever a question says, and ends with a status of its own when it has not.
func (b Bar) forbids() bool { return b > BarUnknown && b != BarNoQP0 }

// Refuses is why a start by hand is refused: the port is barred for good, or its bar
// could not be read. A port without QP0 is probed again instead.
func Refuses(p Port) error {
	if p.Barred <= BarUnread || p.Barred == BarNoQP0 {
		return nil
	}
	d := barred(p)
	return fmt.Errorf("%v: %s: %s; next: %s", p, d.Phase, d.Reason, d.Next)
}

// barred is the phase of a barred port, why it is, and what can be done.
func barred(p Port) Decision {
	dec := func(ph Phase, next, format string, a ...any) Decision {
		return Decision{Phase: ph, Reason: fmt.Sprintf(format, a...), Next: next}
	}
	switch p.Barred {
	case BarUnread:
		return dec(PhaseSettling, "", "%s: PCI VPD not read yet", p.IBDev)
	case BarUnknown:
		return dec(PhaseBlocked, fmt.Sprintf("dmesg | grep -i vpd; od -c /sys/class/infiniband/%s/device/vpd", p.IBDev),
			"the PCI VPD of %s, which shows whether it manages NVSwitches, cannot be read", p.IBDev)
	case BarOmniPath:
		return dec(PhaseOmniPath, "run opafm on one host of the fabric: systemctl enable --now opafm",
			"%v is an Omni-Path port: its fabric needs Omni-Path's fabric manager, not an InfiniBand subnet manager", p)
	case BarNVSwitch:
		return dec(PhaseNVSwitch, "remove Manage= for this port: NVIDIA's fabric manager (nvlsm) serves it",
			"%s manages the NVSwitches of this host (its PCI VPD holds SMDL=SW_MNG): no InfiniBand subnet manager may run on it", p.IBDev)
	case BarSMDisabled:
		return dec(PhaseSMDisabled, "run the subnet manager on another port or host, or change the firmware's setting",
			"the firmware of %s forbids a subnet manager on port %d (IsSMDisabled)", p.IBDev, p.Num)
	}
	return dec(PhaseNoQP0, fmt.Sprintf("run the subnet manager on the physical function or on another host; for a port of several "+
		"planes: rdma dev add smi0 type SMI parent %s; "+
		"for a ConnectX-6 with firmware 20.40 update the firmware", p.IBDev),
		"port %v carries no subnet management packets: no issm device, or QP0 is refused (a virtual function, a port of several "+
			"planes, or its firmware)", p)
}

// BarOfVPD is what the PCI vital product data of a device says. The devices that
// manage the NVSwitches of HGX B100, B200 and B300 boards have the same PCI id as a
// ConnectX-7 and differ by a vendor's field.
func BarOfVPD(vpd []byte) Bar {
	if bytes.Contains(vpd, []byte("SMDL=SW_MNG")) {
		return BarNVSwitch
	}
	return BarNone
}

// capSMDisabled is IsSMDisabled of PortInfo:CapabilityMask (IBTA 14.2.5.6).
const capSMDisabled = 1 << 10

// BarOfPort is what the kernel says of a port: its capability mask, and the
// protocol of its device as RDMA netlink has it (ib, opa, ...).
func BarOfPort(capMask uint64, protocol string) Bar {
	switch {
	case protocol == "opa":
		return BarOmniPath
	case capMask&capSMDisabled != 0:
		return BarSMDisabled
	}
	return BarNone
}
