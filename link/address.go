package link

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"ibnetworkd/units"
)

type wantedAddress struct {
	Address
	// explicit parts are compared, the others are left as they are
	labelSet, broadcastSet, lifetimeSet bool
	probe                               bool // by ARP, before it is set
	linkLocal                           bool // chosen for the link
}

// wantedAddresses are the addresses that a unit gives a link, of which those of leases
// end with them.
func wantedAddresses(l *Link, u *units.Unit, addrs []units.Address) []wantedAddress {
	var out []wantedAddress
	for i := range addrs {
		x := &addrs[i]
		p := x.Address.V
		is6 := p.Addr().Is6()
		w := wantedAddress{Address: Address{Prefix: p, Valid: Forever, Preferred: Forever}}
		w.Peer = x.Peer.Or(netip.Prefix{})
		w.Label, w.labelSet = x.Label.Get()
		if is6 {
			w.Label, w.labelSet = "", false
		}
		if lt, ok := x.PreferredLifetime.Get(); ok {
			w.Preferred, w.lifetimeSet = uint32(lt), true
		}
		lease := l.leaseOf(u, p)
		if lease != nil && lease.preferred() != Forever {
			w.Valid, w.Preferred, w.Until, w.lifetimeSet = lease.Lifetime, lease.preferred(), lease.Until(), false
			if w.Until == 0 {
				w.Until = lease.Granted + uint64(w.Preferred)
			}
		}
		w.Scope = scopeOfAddress(p.Addr(), x.Scope)
		w.Metric = x.RouteMetric.Or(0)
		if !is6 {
			br := x.Broadcast.Or(units.Broadcast{Derive: true})
			w.broadcastSet = x.Broadcast.Set
			switch {
			case br.Addr.IsValid():
				w.Broadcast = br.Addr
			case br.Derive && p.Bits() <= 30 && !w.Peer.IsValid():
				w.Broadcast = lastAddr(p)
			}
		}
		bit := func(v bool, f uint32) {
			if v {
				w.Flags |= f
			}
		}
		bit(x.HomeAddress.Or(false), AddrHome)
		bit(x.ManageTemporaryAddress.Or(false), AddrManageTemp)
		bit(!x.AddPrefixRoute.Or(true), AddrNoPrefixRoute)
		bit(x.AutoJoin.Or(false), AddrMulticastJoin)
		switch dad := x.DuplicateAddressDetection.Or(u.Network.DuplicateAddressDetection.Or(units.DADIPv6)); {
		case is6:
			bit(dad == units.DADNone || dad == units.DADIPv4, AddrNoDAD)
		case lease == nil: // that is probed by the client, with SendDecline=yes
			w.probe = dad.IPv4() && l.probes()
		}
		if slices.ContainsFunc(out, func(o wantedAddress) bool { return sameAddress(o.Address, w.Address) }) {
			continue
		}
		out = append(out, w)
	}
	if WantsLinkLocal(l, u) {
		if w := wantedLinkLocal(l); w.linkLocal {
			out = append(out, w)
		}
	}
	// One address with several peers or prefixes is probed for all of them.
	probed := map[netip.Addr]bool{}
	for _, w := range out {
		if w.probe {
			probed[w.Prefix.Addr()] = true
		}
	}
	for i := range out {
		out[i].probe = probed[out[i].Prefix.Addr()]
	}
	return out
}

// detected reports whether an address has an end and the kernel checks whether another host
// has it.
func (w *wantedAddress) detected() bool {
	return w.Valid != Forever && w.Prefix.Addr().Is6() && w.Flags&AddrNoDAD == 0
}

func scopeOfAddress(a netip.Addr, v units.Value[units.Scope]) uint8 {
	if s, ok := v.Get(); ok && a.Is4() {
		return uint8(s)
	}
	if a.Is6() {
		return ScopeGlobal // the kernel derives it from the address
	}
	if a.IsLoopback() {
		return ScopeHost
	}
	return ScopeGlobal
}

func lastAddr(p netip.Prefix) netip.Addr {
	b := p.Masked().Addr().As4()
	for i := p.Bits(); i < 32; i++ {
		b[i/8] |= 0x80 >> (i % 8)
	}
	return netip.AddrFrom4(b)
}

// mustRemake reports that a part of the address that the kernel does not change
// in place differs.
func mustRemake(w wantedAddress, l *Link) bool {
	for _, x := range l.Addresses {
		if !sameAddress(x, w.Address) {
			continue
		}
		if w.labelSet && x.Label != w.Label || w.broadcastSet && x.Broadcast != w.Broadcast {
			return true
		}
		if x.Prefix.Addr().Is6() {
			return x.Prefix.Bits() != w.Prefix.Bits()
		}
		const fixed = AddrNoPrefixRoute | AddrMulticastJoin
		return x.Flags&fixed != w.Flags&fixed || x.Scope != w.Scope
	}
	return false
}

// deleteAddress deletes a recorded address, and plans to restore the addresses of
// the same subnet that the kernel may delete with a primary one.
func deleteAddress(b *Builder, index int, a Address, wantA []wantedAddress) {
	l := b.Link(index)
	i := slices.IndexFunc(l.Addresses, func(x Address) bool { return sameAddress(x, a) })
	if i < 0 {
		return
	}
	now := l.Addresses[i]
	rec := b.Record.Of(l)
	var along []Address
	if now.Flags&AddrSecondary == 0 && l.Sysctl["ipv4/promote_secondaries"] != "1" {
		for _, x := range l.Addresses {
			ours := rec != nil && slices.ContainsFunc(rec.Addresses, func(r Address) bool { return sameAddress(r, x) })
			wanted := slices.ContainsFunc(wantA, func(w wantedAddress) bool { return sameAddress(w.Address, x) })
			if !sameAddress(x, a) && SameSubnet(x, now) && (!ours || wanted) {
				along = append(along, x)
			}
		}
	}
	if !b.Do(DelAddress{On: b.Model.Target(l), Address: now}) {
		return
	}
	for _, x := range along {
		x.Flags &^= AddrSecondary
		op := RestoreAddress{On: b.Model.Target(l), Address: x}
		b.Do(op)
	}
}

// String prints ip address replace ADDRESS dev NAME.
func (o RestoreAddress) String() string {
	return "ip address replace " + o.Address.String() + " dev " + o.On.Link
}

// ApplyTo carries the operation out on a model.
func (o RestoreAddress) ApplyTo(m *Model) error {
	l, err := m.find(o.On)
	if err != nil {
		return err
	}
	return m.addAddress(l, AddAddress{On: o.On, Address: o.Address, Replace: true})
}

func (w wantedAddress) text() string {
	if w.Peer.IsValid() {
		return w.Prefix.Addr().String() + " peer " + w.Peer.String()
	}
	return w.Prefix.String()
}

// addressDiffers compares what the kernel changes in place.
func addressDiffers(w wantedAddress, x Address) bool {
	// Of an IPv4 address without an end the kernel says that it is preferred
	// for ever, and by the flag that it is not (inet_fill_ifaddr).
	if w.lifetimeSet && (w.Preferred == 0) != (x.Preferred == 0 || x.Flags&AddrDeprecated != 0) {
		return true
	}
	if w.Metric != 0 && x.Metric != w.Metric {
		return true
	}
	if x.Valid != 0 && (x.Valid == Forever) != (w.Valid == Forever) {
		return true
	}
	if w.Prefix.Addr().Is6() {
		const live = AddrManageTemp | AddrNoPrefixRoute
		return x.Flags&live != w.Flags&live
	}
	return false
}

// addressWait returns why addresses are not set yet.
func addressWait(b *Builder, index int, u *units.Unit) (Reason, bool) {
	l := b.Link(index)
	if why := vrfWait(b, l, u); why != (Reason{}) {
		return why, true
	}
	if !l.Up() {
		return Reason{Code: CodeLinkDown, Text: l.Name + " is down", Next: "ip link set " + l.Name + " up"}, !withoutCarrier(u)
	}
	if l.IPoIB == nil || l.Carrier() || withoutCarrier(u) {
		return Reason{}, false
	}
	if portReady(b.Base, l) {
		return Reason{}, false
	}
	// What is set already stays when the port goes; nothing new comes.
	return carrierReason(b.Base, l), true
}

func withoutCarrier(u *units.Unit) bool {
	return u.Network.ConfigureWithoutCarrier.Or(u.Link.ActivationPolicy.Or(units.ActivationUp) == units.ActivationAlwaysUp)
}

// String prints the address as ip address add takes it.
func (a Address) String() string {
	var b strings.Builder
	if a.Peer.IsValid() {
		b.WriteString(a.Prefix.Addr().String() + " peer " + a.Peer.String())
	} else {
		b.WriteString(a.Prefix.String())
	}
	if a.Broadcast.IsValid() {
		b.WriteString(" broadcast " + a.Broadcast.String())
	}
	if a.Label != "" {
		b.WriteString(" label " + a.Label)
	}
	if a.Scope != 0 {
		b.WriteString(" scope " + scopeName(a.Scope))
	}
	if a.Metric != 0 {
		fmt.Fprintf(&b, " metric %d", a.Metric)
	}
	for _, f := range addressFlagWords {
		if a.Flags&f.bit != 0 {
			b.WriteString(" " + f.word)
		}
	}
	if a.Valid != Forever && a.Valid != 0 {
		fmt.Fprintf(&b, " valid_lft %d", a.Valid)
	}
	if a.Preferred != Forever && (a.Preferred != 0 || a.Valid != 0) {
		fmt.Fprintf(&b, " preferred_lft %d", a.Preferred)
	}
	return b.String()
}

var addressFlagWords = []struct {
	bit  uint32
	word string
}{
	{AddrNoDAD, "nodad"}, {AddrHome, "home"}, {AddrManageTemp, "mngtmpaddr"},
	{AddrNoPrefixRoute, "noprefixroute"}, {AddrMulticastJoin, "autojoin"},
}
