package units

import (
	"fmt"
)

func (p *parser) address(x *Address, shorthand bool) bool {
	if x.Template.Set {
		return p.derivedAddress(x)
	}
	if !x.Address.Set {
		if !shorthand {
			p.problem(x.Pos, Warning, notUsed, "[Address] has no Address=")
		}
		return false
	}
	a := x.Address.V
	if !p.addressKeys(x, a.Addr().Is4(), a.Bits(), a) {
		return false
	}
	for i := range p.u.Addresses {
		o := &p.u.Addresses[i]
		// IPv6 knows an address once per link; IPv4 distinguishes prefix and peer.
		same := o.Address.V.Addr() == a.Addr() && (a.Addr().Is6() || o.Address.V == a && o.Peer.V == x.Peer.V)
		if same {
			p.at("Address", "Address").problem(x.Address.Pos, Warning, "the second one is not used",
				"address %s is given twice, first at %s", a, o.Address.Pos)
			return false
		}
	}
	return true
}

// addressKeys takes away the keys that are not for the family or length of an address;
// false where the section cannot be used.
func (p *parser) addressKeys(x *Address, is4 bool, bits int, a fmt.Stringer) bool {
	if x.Peer.Set && x.Peer.V.Addr().Is4() != is4 {
		p.at("Address", "Peer").problem(x.Peer.Pos, Warning, notUsed, "Peer=%s and Address=%s are of different families", x.Peer.V, a)
		return false
	}
	only := func(set bool, key string, pos Place, v4 bool, clear func()) {
		if set && is4 != v4 {
			family := "IPv6"
			if v4 {
				family = "IPv4"
			}
			p.at("Address", key).problem(pos, Warning, "the key is ignored", "%s= is for %s addresses only, and %s is not one",
				key, family, a)
			clear()
		}
	}
	only(x.Broadcast.Set, "Broadcast", x.Broadcast.Pos, true, func() { x.Broadcast = Value[Broadcast]{} })
	only(x.Label.Set, "Label", x.Label.Pos, true, func() { x.Label = Value[string]{} })
	only(x.Scope.Set, "Scope", x.Scope.Pos, true, func() { x.Scope = Value[Scope]{} })
	only(x.HomeAddress.Set, "HomeAddress", x.HomeAddress.Pos, false, func() { x.HomeAddress = Value[bool]{} })
	only(x.ManageTemporaryAddress.Set, "ManageTemporaryAddress", x.ManageTemporaryAddress.Pos, false,
		func() { x.ManageTemporaryAddress = Value[bool]{} })
	if x.ManageTemporaryAddress.Or(false) && bits != 64 {
		p.at("Address", "ManageTemporaryAddress").problem(x.ManageTemporaryAddress.Pos, Warning, "the key is ignored",
			"ManageTemporaryAddress= needs a prefix length of 64, %s has %d", a, bits)
		x.ManageTemporaryAddress = Value[bool]{}
	}
	return true
}

// derivedAddress checks an address that is derived.
func (p *parser) derivedAddress(x *Address) bool {
	t := x.Template.V
	if !p.addressKeys(x, !t.Is6(), t.bits, t) {
		return false
	}
	for i := range p.u.Addresses {
		if o := &p.u.Addresses[i]; o.Template.Set && o.Template.V.text == t.text {
			p.at("Address", "Address").problem(x.Template.Pos, Warning, "the second one is not used",
				"address %s is given twice, first at %s", t, o.Template.Pos)
			return false
		}
	}
	return true
}
