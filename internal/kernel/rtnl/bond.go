package rtnl

import (
	"fmt"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"ibnetworkd/internal/kernel/nl"
)

// Bond is what the bonding module reports of its interface.
type Bond struct {
	Mode    uint8  // BOND_MODE_* of if_bonding.h
	Active  int    // index of the active slave, 0 for none
	MIIMon  uint32 // milliseconds
	Primary int    // index of the primary slave, 0 for none
}

// attributes and values of include/uapi/linux/if_link.h and net/bond_options.h
const (
	iflaBondMode        = 1
	iflaBondActiveSlave = 2
	iflaBondMIIMon      = 3
	iflaBondPrimary     = 11
	iflaBondFailOverMAC = 13

	bondActiveBackup = 1
	bondFOMActive    = 1
)

func decodeBond(a *nl.Attrs) *Bond {
	b := &Bond{}
	for a.Next() {
		switch a.Type() {
		case iflaBondMode:
			b.Mode = a.Uint8()
		case iflaBondActiveSlave:
			b.Active = a.Index()
		case iflaBondMIIMon:
			b.MIIMon = a.Uint32()
		case iflaBondPrimary:
			b.Primary = a.Index()
		}
	}
	return b
}

// BondSpec describes a bond to be made.
type BondSpec struct {
	Name   string
	MTU    int    // bytes, 0 for the kernel's own
	MIIMon uint32 // milliseconds
}

// NewBond makes a bond in mode active-backup, which takes the hardware address of
// its active slave.
func NewBond(b BondSpec) Request {
	w := nl.Build(make([]byte, sizeIfInfo)...).String(unix.IFLA_IFNAME, b.Name)
	if b.MTU != 0 {
		w.Uint32(unix.IFLA_MTU, uint32(b.MTU))
	}
	w.Nest(unix.IFLA_LINKINFO, func(w *nl.Builder) {
		w.Raw(iflaInfoKind, []byte("bond"))
		w.Nest(iflaInfoData, func(w *nl.Builder) {
			w.Uint8(iflaBondMode, bondActiveBackup).Uint32(iflaBondMIIMon, b.MIIMon).Uint8(iflaBondFailOverMAC, bondFOMActive)
		})
	})
	return nl.NewRequest("add bond "+b.Name, unix.RTM_NEWLINK, netlink.Create|netlink.Excl, w)
}

// SetBondMIIMon sets how often a bond reads the carriers of its slaves, in
// milliseconds.
func SetBondMIIMon(index int, miimon uint32) Request {
	return setBond(index, iflaBondMIIMon, miimon)
}

// SetBondPrimary sets the primary slave of a bond by its index.
func SetBondPrimary(index, slave int) Request {
	return setBond(index, iflaBondPrimary, uint32(slave))
}

func setBond(index int, attr uint16, value uint32) Request {
	m := make([]byte, sizeIfInfo)
	ne.PutUint32(m[4:], uint32(index))
	w := nl.Build(m...)
	w.Nest(unix.IFLA_LINKINFO, func(w *nl.Builder) {
		w.Raw(iflaInfoKind, []byte("bond"))
		w.Nest(iflaInfoData, func(w *nl.Builder) { w.Uint32(attr, value) })
	})
	return nl.NewRequest(fmt.Sprintf("change bond link %d", index), unix.RTM_NEWLINK, 0, w)
}
