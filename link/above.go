package link

import (
	"fmt"
	"slices"
)

// stacked are the kinds whose parent is the link below them. That of others is the peer
// (veth), the link of a tunnel's packets (gre), or one beside them (ipoib).
var stacked = [...]string{"vlan", "macvlan", "macvtap", "ipvlan", "ipvtap", "macsec", "vxlan", "dsa"}

// receiving are those of them that take the packets of the link below as its only receiver
// (netdev_rx_handler_register).
var receiving = [...]string{"macvlan", "macvtap", "ipvlan", "ipvtap", "macsec"}

// Above reports whether a link is on another one, at any depth: a VLAN or the like of it, or a
// bond or VRF that it is in. The kernel refuses it as a slave of that one
// (net/core/dev.c, __netdev_upper_dev_link).
func (s *Snapshot) Above(l, lower *Link) bool {
	for below, i := []int{l.Index}, 0; i < len(below); i++ {
		x, ok := s.Link(below[i])
		if !ok {
			continue
		}
		next := s.Slaves(x.Index)
		if p, ok := s.Link(x.Parent); ok && x.Parent != 0 && slices.Contains(stacked[:], x.Kind) {
			next = append(next, p)
		}
		for _, n := range next {
			if n.Index == lower.Index {
				return true
			}
			if !slices.Contains(below, n.Index) {
				below = append(below, n.Index)
			}
		}
	}
	return false
}

// above is the reason why a link cannot be in one that it is on.
func above(l, m *Link) Reason {
	return Reason{Code: CodeUnsupported, Text: fmt.Sprintf("%s is on %s, and its unit is one for the links in %s", l.Name, m.Name, m.Name),
		Next: "match the links of that unit by PermanentMACAddress= or Name=, and write a unit with Name=" + l.Name + " for this one"}
}

// receiver is the link that receives the packets of another one in its place, nil for none.
func (s *Snapshot) receiver(l *Link) *Link {
	for i := range s.Links {
		if x := &s.Links[i]; x.Parent == l.Index && x.Index != l.Index && slices.Contains(receiving[:], x.Kind) {
			return x
		}
	}
	return nil
}
