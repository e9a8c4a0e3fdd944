package roce

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"ibnetworkd/link"
)

// MoveGID removes addresses and adds them again so that the RoCE v2 GID of the first
// has the index. Helpers are temporary addresses that no host uses: Fill are added
// below the first, Keep for the time in which a link would have no IPv4 address, when
// the kernel removes its routes.
type MoveGID struct {
	link.On // the link of the first address
	Index   int
	From    int               `json:",omitempty"` // the index that the GID has before, 0 for none
	Move    []link.AddAddress // in the order of adding
	Fill    []link.AddAddress
	Keep    []link.AddAddress
}

// HelperProtocol marks the temporary addresses (IFA_PROTO); the kernel's own numbers
// are small.
const HelperProtocol = 95

// mostHelpers is how many addresses there are in the last block of 169.254.0.0/16,
// which RFC 3927 reserves.
const mostHelpers = 254

// isHelper reports whether an address is a temporary one of a MoveGID.
func isHelper(a link.Address) bool {
	return a.Protocol == HelperProtocol && helpers.Contains(a.Prefix.Addr())
}

var helpers = netip.MustParsePrefix("169.254.255.0/24")

func helper(on link.Target, ip netip.Addr, bits int) link.AddAddress {
	return link.AddAddress{On: on, Address: link.Address{Prefix: netip.PrefixFrom(ip, bits), Scope: link.ScopeLink,
		Flags: link.AddrNoPrefixRoute, Valid: link.Forever, Preferred: link.Forever, Protocol: HelperProtocol}}
}

// move makes the operation for what find has found.
func (p *indexer) move(a member, moved []member, fillers int) MoveGID {
	op := MoveGID{On: p.on, Index: p.want}
	if e, ok := p.port.GIDOf(a.addr.Prefix.Addr(), a.on.Link, 2); ok {
		op.From = e.Index
	}
	op.On.IBDevice, op.On.Port = p.roceOn.IBDevice, p.roceOn.Port
	used := map[netip.Addr]bool{}
	for i := range p.b.Model.Snapshot().Links {
		for _, x := range p.b.Model.Snapshot().Links[i].Addresses {
			used[x.Prefix.Addr()] = true
		}
	}
	next := helpers.Addr()
	free := func() netip.Addr {
		for next = next.Next(); used[next] && helpers.Contains(next); next = next.Next() {
		}
		return next
	}
	gone := map[int]int{}
	for _, m := range append([]member{a}, moved...) {
		x := m.addr
		x.Flags &^= link.AddrSecondary
		if x.Prefix.Addr().Is6() {
			x.Flags |= link.AddrNoDAD // it has passed
		} else {
			gone[m.on.Ifindex]++
		}
		op.Move = append(op.Move, link.AddAddress{On: m.on, Address: x})
	}
	for _, m := range op.Move {
		l := p.b.Link(m.On.Ifindex)
		left := -gone[m.On.Ifindex]
		for _, x := range l.Addresses {
			if x.Prefix.Addr().Is4() {
				left++
			}
		}
		if left == 0 && m.Address.Prefix.Addr().Is4() && !slices.ContainsFunc(op.Keep, func(k link.AddAddress) bool { return k.On == m.On }) {
			op.Keep = append(op.Keep, helper(m.On, free(), 32))
		}
	}
	for range fillers {
		op.Fill = append(op.Fill, helper(p.on, free(), 32))
	}
	return op
}

// Steps are the changes in order. The entry of an address goes from the table when
// any address with its bits is removed (roce_gid_mgmt.c does not count): so a second
// one with another prefix length, added and removed, keeps Keep out of the table.
func (o MoveGID) Steps() (out []link.Op) {
	del := func(a link.AddAddress) { out = append(out, link.DelAddress{On: a.On, Address: a.Address}) }
	for _, k := range o.Keep {
		twin := helper(k.On, k.Address.Prefix.Addr(), 31)
		out = append(out, k, twin)
		del(twin)
	}
	for _, m := range slices.Backward(o.Move) {
		del(m)
	}
	for _, list := range [][]link.AddAddress{o.Fill, o.Move} {
		for _, a := range list {
			out = append(out, a)
		}
	}
	for _, list := range [][]link.AddAddress{o.Fill, o.Keep} {
		for _, a := range list {
			del(a)
		}
	}
	return out
}

// String prints the commands of Steps.
func (o MoveGID) String() string {
	var out []string
	for _, s := range o.Steps() {
		out = append(out, s.String())
	}
	return strings.Join(out, " && ")
}

// ApplyTo carries the operation out on a model. What is to be removed may be gone.
func (o MoveGID) ApplyTo(m *link.Model) error {
	for _, s := range o.Steps() {
		err := m.Apply(s)
		if _, del := s.(link.DelAddress); err != nil && !del {
			return err
		}
	}
	return nil
}

// Effect implements link.Effecter.
func (o MoveGID) Effect(*link.Snapshot) string {
	var ips []string
	for _, m := range o.Move {
		ips = append(ips, m.Address.Prefix.Addr().String())
	}
	return fmt.Sprintf("%s is removed and added again: what uses it is interrupted", strings.Join(ips, ", "))
}
