package roce

import (
	"cmp"
	"fmt"
	"strings"

	"ibnetworkd/ib"
	"ibnetworkd/link"
)

// isBond reports whether a link joins Ethernet links, so that its RDMA ports are
// theirs: the GIDs of a slave's port are made of the addresses of the bond
// (roce_gid_mgmt.c, add_netdev_upper_ips). mlx5 makes one device of both ports
// then, whose interface is the active slave.
func isBond(l *link.Link) bool {
	return (l.Kind == "bond" || l.Kind == "team") && !l.IsInfiniBand()
}

// slaves are the links below a bond, by index.
func slaves(s *link.Snapshot, bond *link.Link) []*link.Link { return s.Slaves(bond.Index) }

// bondOf is the bond that a link is a slave of, nil for none.
func bondOf(s *link.Snapshot, l *link.Link) *link.Link {
	if l.Master == 0 {
		return nil
	}
	if b, ok := s.Link(l.Master); ok && isBond(b) {
		return b
	}
	return nil
}

// IsSlave reports whether a link is a slave of a bond.
func IsSlave(s *link.Snapshot, l *link.Link) bool { return bondOf(s, l) != nil }

func linkNames(ls []*link.Link) string {
	var out []string
	for _, l := range ls {
		out = append(out, l.Name)
	}
	return strings.Join(out, " ")
}

// rdmaModule is the module with the RDMA device for the driver of an Ethernet
// card.
func rdmaModule(driver string) string {
	return map[string]string{
		"mlx4_core": "mlx4_ib", "mlx5_core": "mlx5_ib", "bnxt_en": "bnxt_re", "ice": "irdma", "i40e": "irdma",
		"hns3": "hns_roce_hw_v2", "qede": "qedr", "mana": "mana_ib",
	}[driver]
}

// noDevice is the reason for a link without an RDMA device. Soft RoCE is advised
// only where no card is that has RDMA of its own.
func (p *planner) noDevice() link.Reason {
	why := link.Reason{
		Code: link.CodeUnsupported,
		Text: p.l.Name + " has no RDMA device",
		Next: "write [SoftRoCE], or load the RDMA driver of its card",
	}
	ls := []*link.Link{p.l}
	if isBond(p.l) {
		ls = slaves(p.b.Base, p.l)
		why.Text = fmt.Sprintf("none of the slaves of %s (%s) has an RDMA device", p.l.Name, linkNames(ls))
		if len(ls) == 0 {
			why.Text, why.Next = p.l.Name+" has no slaves, whose RDMA device would be its own", "ip link set dev LINK master "+p.l.Name
		}
	}
	for _, l := range ls {
		switch m := rdmaModule(l.Driver); {
		case m == "":
			continue
		case m == "irdma":
			why.Next = "modprobe irdma; where the card has a switch for RoCE: devlink dev param show (enable_roce)"
		case m == "mlx5_ib":
			why.Next = "modprobe mlx5_ib; if it is loaded, RoCE may be off: devlink dev param show (enable_roce)"
		default:
			why.Next = "modprobe " + m
		}
	}
	if p.b.Base.Host.RDMAExclusive {
		why.Text += " in this network namespace (rdma system: netns exclusive)"
		why.Next += "; if it is in another one: ip netns exec NAMESPACE rdma dev"
	}
	return why
}

// bondSlave notes what a unit of a bond's slave asks of RDMA-CM, which is the
// bond's: connections go by its addresses. It reports false for other links.
func (p *planner) bondSlave(not func(wait bool, why link.Reason)) bool {
	b := bondOf(p.b.Base, p.l)
	if b == nil {
		return false
	}
	not(
		false,
		link.Reason{Code: link.CodeUnsupported, Text: fmt.Sprintf("%s is a slave of %s, whose addresses RDMA connections use", p.l.Name, b.Name),
			Next: fmt.Sprintf("write Version=, DSCP= and TypeOfService= in the unit of %s", b.Name)},
	)
	return true
}

// bondDCB notes that what DCB has is set at the slaves, and reports true for a
// bond.
func (p *planner) bondDCB() bool {
	if !isBond(p.l) {
		return false
	}
	on := linkNames(slaves(p.b.Base, p.l))
	on = cmp.Or(on, "its slaves")
	p.cannot("DCB", "yes", link.Reason{Code: link.CodeUnsupported,
		Text: fmt.Sprintf("%s is a bond: flow control, classes, trust, priorities by DSCP, buffers and ECN are settings of its slaves (%s)",
			p.l.Name, on),
		Next: "write these keys of [RoCE] in a unit with [Match] Name=" + on})
	return true
}

// shown is the device that serves a bond, which is not the bond's by its name.
func (p *planner) shown() {
	if isBond(p.l) && p.roce != nil && p.roce.Layer == ib.LinkLayerEthernet {
		p.attr(link.Attribute{Name: "RDMADevice", Actual: fmt.Sprintf("%s/%d", p.roceOn.IBDevice, p.roceOn.Port)})
	}
}
