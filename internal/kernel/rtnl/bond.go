package rtnl

import (
	"fmt"
	"slices"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"ibnetworkd/internal/kernel/nl"
)

// BondOptions are settings of a bond in the kernel's numbers (net/bond_options.h);
// times are milliseconds.
type BondOptions struct {
	Mode, FailOverMAC, HashPolicy, LACPRate, AdSelect uint8
	MIIMon, UpDelay, DownDelay, MinLinks              uint32
}

// Bond is what the bonding module reports of its interface.
type Bond struct {
	BondOptions
	Active  int // index of the active slave, 0 for none
	Primary int // index of the primary slave, 0 for none
	// Partner reports that a switch answers the LACP of a bond in mode 802.3ad.
	Partner bool
}

// attributes of include/uapi/linux/if_link.h
const (
	iflaBondMode        = 1
	iflaBondActiveSlave = 2
	iflaBondMIIMon      = 3
	iflaBondUpDelay     = 4
	iflaBondDownDelay   = 5
	iflaBondPrimary     = 11
	iflaBondFailOverMAC = 13
	iflaBondHashPolicy  = 14
	iflaBondMinLinks    = 18
	iflaBondLACPRate    = 21
	iflaBondAdSelect    = 22
	iflaBondAdInfo      = 23

	iflaBondAdInfoPartnerMAC = 5
)

// fields are the options by their attributes, in the order in which bond_changelink
// applies them.
func (b *BondOptions) fields() []bondField {
	return []bondField{
		{iflaBondMode, &b.Mode, nil}, {iflaBondMIIMon, nil, &b.MIIMon}, {iflaBondUpDelay, nil, &b.UpDelay},
		{iflaBondDownDelay, nil, &b.DownDelay}, {iflaBondFailOverMAC, &b.FailOverMAC, nil}, {iflaBondHashPolicy, &b.HashPolicy, nil},
		{iflaBondMinLinks, nil, &b.MinLinks}, {iflaBondLACPRate, &b.LACPRate, nil}, {iflaBondAdSelect, &b.AdSelect, nil},
	}
}

// bondField is an attribute of one byte or of 32 bits.
type bondField struct {
	attr  uint16
	short *uint8
	long  *uint32
}

func decodeBond(a *nl.Attrs) *Bond {
	b := &Bond{}
	fields := b.fields()
	for a.Next() {
		switch a.Type() {
		case iflaBondActiveSlave:
			b.Active = a.Index()
		case iflaBondPrimary:
			b.Primary = a.Index()
		case iflaBondAdInfo:
			for n := a.Nested(); n.Next(); {
				if n.Type() == iflaBondAdInfoPartnerMAC {
					b.Partner = slices.ContainsFunc(n.Bytes(), func(x byte) bool { return x != 0 })
				}
			}
		}
		for _, f := range fields {
			switch {
			case f.attr != a.Type():
			case f.short != nil:
				*f.short = a.Uint8()
			default:
				*f.long = a.Uint32()
			}
		}
	}
	return b
}

// put writes the options that differ from those that a bond has. LACP's rate can be
// set in mode 802.3ad only, and delays are kept as multiples of MIIMon.
func (b BondOptions) put(w *nl.Builder, has BondOptions) {
	if b.MIIMon != has.MIIMon {
		has.UpDelay, has.DownDelay = ^b.UpDelay, ^b.DownDelay
	}
	old := has.fields()
	for i, f := range b.fields() {
		switch {
		case f.attr == iflaBondLACPRate && b.Mode != bondMode8023AD:
		case f.short != nil && *f.short != *old[i].short:
			w.Uint8(f.attr, *f.short)
		case f.long != nil && *f.long != *old[i].long:
			w.Uint32(f.attr, *f.long)
		}
	}
}

const bondMode8023AD = 4 // BOND_MODE_8023AD of include/uapi/linux/if_bonding.h

// BondSpec describes a bond to be made.
type BondSpec struct {
	Name string
	MTU  int // bytes, 0 for the kernel's own
	BondOptions
}

// NewBond makes a bond.
func NewBond(b BondSpec) Request {
	w := nl.Build(make([]byte, sizeIfInfo)...).String(unix.IFLA_IFNAME, b.Name)
	if b.MTU != 0 {
		w.Uint32(unix.IFLA_MTU, uint32(b.MTU))
	}
	w.Nest(unix.IFLA_LINKINFO, func(w *nl.Builder) {
		w.Raw(iflaInfoKind, []byte("bond"))
		w.Nest(iflaInfoData, func(w *nl.Builder) {
			// The module's parameters may have changed its defaults: all are written.
			not := BondOptions{^b.Mode, ^b.FailOverMAC, ^b.HashPolicy, ^b.LACPRate, ^b.AdSelect, ^b.MIIMon, ^b.UpDelay, ^b.DownDelay, ^b.MinLinks}
			b.put(w, not)
		})
	})
	return nl.NewRequest("add bond "+b.Name, unix.RTM_NEWLINK, netlink.Create|netlink.Excl, w)
}

// NewVRF makes a VRF with a routing table.
func NewVRF(name string, table uint32) Request {
	w := nl.Build(make([]byte, sizeIfInfo)...).String(unix.IFLA_IFNAME, name)
	w.Nest(unix.IFLA_LINKINFO, func(w *nl.Builder) {
		w.Raw(iflaInfoKind, []byte("vrf"))
		w.Nest(iflaInfoData, func(w *nl.Builder) { w.Uint32(iflaVRFTable, table) })
	})
	return nl.NewRequest("add VRF "+name, unix.RTM_NEWLINK, netlink.Create|netlink.Excl, w)
}

// SetBond changes the options of a bond that differ from those that it has.
func SetBond(index int, has, want BondOptions) Request {
	return setBond(index, func(w *nl.Builder) { want.put(w, has) })
}

// SetBondPrimary sets the primary slave of a bond by its index.
func SetBondPrimary(index, slave int) Request {
	return setBond(index, func(w *nl.Builder) { w.Uint32(iflaBondPrimary, uint32(slave)) })
}

func setBond(index int, data func(w *nl.Builder)) Request {
	m := make([]byte, sizeIfInfo)
	ne.PutUint32(m[4:], uint32(index))
	w := nl.Build(m...)
	w.Nest(unix.IFLA_LINKINFO, func(w *nl.Builder) {
		w.Raw(iflaInfoKind, []byte("bond"))
		w.Nest(iflaInfoData, data)
	})
	return nl.NewRequest(fmt.Sprintf("change bond link %d", index), unix.RTM_NEWLINK, 0, w)
}
