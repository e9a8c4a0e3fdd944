package link

import (
	"fmt"
	"strings"

	"ibnetworkd/units"
)

// BondOptions are settings of a bond in the kernel's numbers (net/bond_options.h);
// times are milliseconds.
type BondOptions struct {
	Mode        uint8  `json:"mode"` // BOND_MODE_*
	FailOverMAC uint8  `json:"fail_over_mac,omitempty"`
	HashPolicy  uint8  `json:"xmit_hash_policy,omitempty"`
	LACPRate    uint8  `json:"lacp_rate,omitempty"`
	AdSelect    uint8  `json:"ad_select,omitempty"`
	MIIMon      uint32 `json:"miimon,omitempty"` // 0 for off
	UpDelay     uint32 `json:"updelay,omitempty"`
	DownDelay   uint32 `json:"downdelay,omitempty"`
	MinLinks    uint32 `json:"min_links,omitempty"`
}

// bondDefaults are the kernel's for a bond that is made without options.
var bondDefaults = BondOptions{Mode: 0xff}

// fixed are the options that the kernel changes without slaves or with the bond down
// only. LACP's rate counts in its mode.
func (o BondOptions) fixed() BondOptions {
	f := BondOptions{Mode: o.Mode, FailOverMAC: o.FailOverMAC, AdSelect: o.AdSelect}
	if o.Mode == uint8(units.Bond8023AD) {
		f.LACPRate = o.LACPRate
	}
	return f
}

// withFixed are the options with what fixed gives of others.
func (o BondOptions) withFixed(x BondOptions) BondOptions {
	o.Mode, o.FailOverMAC, o.AdSelect, o.LACPRate = x.Mode, x.FailOverMAC, x.AdSelect, x.LACPRate
	return o
}

// differing are the options that are not the same in another set, as ip has them.
func (o BondOptions) differing(x BondOptions) string {
	var out []string
	add := func(name string, a, b uint32, word fmt.Stringer) {
		switch {
		case a == b:
		case word != nil:
			out = append(out, name+" "+word.String())
		default:
			out = append(out, fmt.Sprintf("%s %d", name, a))
		}
	}
	add("mode", uint32(o.Mode), uint32(x.Mode), units.BondMode(o.Mode))
	add("miimon", o.MIIMon, x.MIIMon, nil)
	add("updelay", o.UpDelay, x.UpDelay, nil)
	add("downdelay", o.DownDelay, x.DownDelay, nil)
	add("fail_over_mac", uint32(o.FailOverMAC), uint32(x.FailOverMAC), units.FailOverMAC(o.FailOverMAC))
	add("xmit_hash_policy", uint32(o.HashPolicy), uint32(x.HashPolicy), units.BondHash(o.HashPolicy))
	add("min_links", o.MinLinks, x.MinLinks, nil)
	add("lacp_rate", uint32(o.LACPRate), uint32(x.LACPRate), units.LACPRate(o.LACPRate))
	add("ad_select", uint32(o.AdSelect), uint32(x.AdSelect), units.AdSelect(o.AdSelect))
	return strings.Join(out, " ")
}

// Bond has the attributes of IFLA_INFO_KIND bond that planning uses.
type Bond struct {
	BondOptions
	Primary int `json:"primary,omitempty"` // index of a slave, 0 for none
	Active  int `json:"active,omitempty"`  // index of a slave, 0 for none
	// Partner reports that a switch answers the LACP of a bond in mode 802.3ad.
	Partner bool `json:"lacp_partner,omitempty"`
}

// Slaves lists the links whose master is a link, by index.
func (s *Snapshot) Slaves(index int) []*Link {
	var out []*Link
	for i := range s.Links {
		if l := &s.Links[i]; index != 0 && l.Master == index && l.Index != index {
			out = append(out, l)
		}
	}
	return out
}

// BondMTU is the largest MTU in bytes that all slaves of a bond of IPoIB links have,
// 0 for other links and without slaves.
func (s *Snapshot) BondMTU(l *Link) (least int) {
	if l.Bond == nil || !l.IsInfiniBand() {
		return 0
	}
	for _, x := range s.Slaves(l.Index) {
		if least == 0 || x.MTU < least {
			least = x.MTU
		}
	}
	return least
}

func (m *Model) addBond(o AddBond) error {
	if o.On.Link == "" || len(o.On.Link) > 15 {
		return errInvalid
	}
	if _, taken := m.snap.LinkByName(o.On.Link); taken {
		return errExist
	}
	m.last++
	b := Link{
		Index: m.last, Name: o.On.Link, Type: 1, Kind: "bond", Flags: FlagMulti, MTU: cmpOr(o.MTU, 1500), MaxMTU: 65535,
		Bond: &Bond{BondOptions: o.BondOptions}, Sysctl: map[string]string{},
	}
	m.fresh[b.Index], m.own[b.Index] = true, true
	m.snap.Links = append(m.snap.Links, b)
	return nil
}

// setMaster follows bond_enslave and __bond_release_one: a slave is down before,
// gets the MTU of the bond, and is brought up; released, it is down.
func (m *Model) setMaster(l *Link, o SetMaster) error {
	if o.Release {
		if l.SlaveKind == KindVRF {
			m.leaveVRF(l)
			return nil
		}
		l.Master = 0
		m.setUp(l, false)
		return nil
	}
	b, err := m.find(o.Master)
	if err != nil {
		return err
	}
	if m.snap.Above(l, b) {
		return errBusy
	}
	if b.VRF != nil {
		return m.enterVRF(l, b.Index)
	}
	slaves := m.snap.Slaves(b.Index)
	switch {
	case b.Bond == nil || b.Index == l.Index, l.IsInfiniBand() && b.Bond.Mode != uint8(units.BondActiveBackup):
		return errInvalid
	case l.Up() || l.Master != 0 || m.snap.receiver(l) != nil:
		return errBusy
	case len(slaves) == 0:
		b.Type, b.HWAddr = l.Type, l.HWAddr
	case b.Type != l.Type:
		return errInvalid
	}
	if err := m.setMTU(l, b.MTU); err != nil {
		return err
	}
	l.Master = b.Index
	m.setUp(l, true)
	return nil
}

// setBond carries out the settings of a bond.
func (m *Model) setBond(l *Link, op Op) error {
	if l.Bond == nil {
		return errInvalid
	}
	switch o := op.(type) {
	case SetBond:
		if len(m.snap.Slaves(l.Index)) > 0 && o.fixed() != l.Bond.fixed() {
			return errBusy
		}
		l.Bond.BondOptions = o.BondOptions
	case SetPrimary:
		s, err := m.find(o.Slave)
		if err != nil {
			return err
		}
		l.Bond.Primary = s.Index
	}
	return nil
}

// deleteMaster releases the links of a bond or VRF and deletes it.
func (m *Model) deleteMaster(index int) {
	for _, s := range m.snap.Slaves(index) {
		w := m.write(s.Index)
		if w.SlaveKind == KindVRF {
			m.leaveVRF(w)
			continue
		}
		w.Master = 0
		m.setUp(w, false)
	}
	m.delete(index)
}
