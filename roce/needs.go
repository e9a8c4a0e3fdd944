package roce

import (
	"bytes"
	"reflect"
	"slices"

	"ibnetworkd/ib"
	"ibnetworkd/link"
	"ibnetworkd/units"
)

// Wants reports whether a unit asks for anything of this package on a link, so
// that the observer looks at the rest of it.
func Wants(s *link.Snapshot, l *link.Link, u *units.Unit) bool {
	if u == nil || l.IsChild() {
		return false
	}
	if l.Kind == "vlan" {
		_, ports := PortsOn(s, l)
		return slices.ContainsFunc(ports, func(p *link.Port) bool { return p.Layer == ib.LinkLayerEthernet })
	}
	if u.Port.Present || u.RoCE.Present || u.SoftRoCE.Present || len(u.VLANs) > 0 || u.VirtualFunctions.Present || len(u.VFs) > 0 {
		return true
	}
	_, ports := PortsOn(s, l)
	return slices.ContainsFunc(ports, func(p *link.Port) bool { return p.Layer == ib.LinkLayerEthernet }) // its GID indexes
}

// WantsDCB reports whether a unit asks for anything that DCB has.
func WantsDCB(u *units.Unit) bool { return u.RoCE.Present && wantsDCB(&u.RoCE) }

// Changed gives the links for which two encoded states differ; 0 stands for ports
// without a link.
func Changed(old, now []byte) map[int]bool {
	if bytes.Equal(old, now) {
		return nil
	}
	out := map[int]bool{}
	a, errA := Decode(old)
	b, errB := Decode(now)
	if errA != nil || a == nil {
		a = &State{}
	}
	if errB != nil || b == nil {
		b = &State{}
	}
	rest := func(s *State) State {
		c := *s
		c.Links = nil
		return c
	}
	all := !reflect.DeepEqual(rest(a), rest(b))
	if all {
		out[0] = true
	}
	for _, s := range []*State{a, b} {
		for i := range s.Links {
			if all || !reflect.DeepEqual(a.Links[i], b.Links[i]) {
				out[i] = true
			}
		}
	}
	return out
}
