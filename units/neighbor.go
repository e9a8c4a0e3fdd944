package units

import (
	"fmt"
	"net/netip"
	"slices"

	"ibnetworkd/ib"
)

// Neighbor is one [Neighbor]: an entry of the neighbour table that stays. Both keys
// are always set.
type Neighbor struct {
	Section
	Address Value[netip.Addr]
	// LinkLayerAddress has 6 bytes (Ethernet) or 20 (IPoIB).
	LinkLayerAddress Value[ib.HWAddr]
}

func neighborSection() SectionSpec {
	linkLayer := scalar(func(x *Neighbor) *Value[ib.HWAddr] { return &x.LinkLayerAddress }, parseLinkLayer)
	return SectionSpec{
		Name: "Neighbor", Repeat: true, open: func(u *Unit) (any, *Section) { o := &Neighbor{}; return o, &o.Section },
		Keys: []Key{
			{Name: "Address", Networkd: true, essential: true,
				apply: scalar(func(x *Neighbor) *Value[netip.Addr] { return &x.Address }, parseNeighbor)},
			{Name: "LinkLayerAddress", Networkd: true, essential: true,
				apply: linkLayer},
			{Name: "MACAddress", Networkd: true, apply: setter{set: linkLayer.set}},
		},
	}
}

func parseNeighbor(s string) (netip.Addr, error) {
	a, err := parseAddr(s)
	if err == nil && (a.IsUnspecified() || a.IsMulticast()) {
		return a, fmt.Errorf("%q is not the address of one host", ib.Clip(s))
	}
	return a, err
}

func parseLinkLayer(s string) (ib.HWAddr, error) {
	if _, err := netip.ParseAddr(s); err == nil {
		return ib.HWAddr{}, fmt.Errorf("%q is an IP address, which neighbours on tunnels have; leave a tunnel to systemd-networkd", ib.Clip(s))
	}
	a, err := ib.ParseHWAddr(s)
	switch {
	case err != nil:
		return a, err
	case a.Len() == 8:
		return a, fmt.Errorf("%q is a port GUID; write the 20 bytes that \"ip link show\" prints on the other host", ib.Clip(s))
	case a.IsIPoIB() && a.GUID() == 0:
		return a, fmt.Errorf("%q has no port GUID in its last 8 bytes", ib.Clip(s))
	}
	return a, nil
}

func (p *parser) neighbor(x *Neighbor) bool {
	switch {
	case !x.Address.Set:
		p.problem(x.Pos, Warning, notUsed, "[Neighbor] has no Address=")
		return false
	case !x.LinkLayerAddress.Set:
		p.problem(x.Pos, Warning, notUsed, "[Neighbor] has no LinkLayerAddress=")
		return false
	}
	// The later one counts, as in systemd-networkd.
	p.u.Neighbors = slices.DeleteFunc(p.u.Neighbors, func(o Neighbor) bool {
		same := o.Address.V == x.Address.V
		if same {
			p.at("Neighbor", "Address").problem(o.Address.Pos, Warning, "the first one is not used",
				"neighbour %s is given twice, again at %s", o.Address.V, x.Address.Pos)
		}
		return same
	})
	return true
}
