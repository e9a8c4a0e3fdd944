package diagnose

import (
	"cmp"
	"fmt"
	"strings"

	"ibnetworkd/ib"
	"ibnetworkd/link"
	"ibnetworkd/units"
)

func (w *walker) linkLayer() bool {
	u := w.unit()
	want, where, other := ib.LinkLayerUnspecified, "", ""
	if u != nil {
		if t, ok := u.Port.Type.Get(); ok {
			switch t {
			case units.PortTypeIB:
				want = ib.LinkLayerInfiniBand
			case units.PortTypeEth:
				want = ib.LinkLayerEthernet
			}
			where = fmt.Sprintf("%s has [Port] Type=%v", u.Path, t)
		} else if u.IPoIB.Present || len(u.Partitions) > 0 {
			want, where = ib.LinkLayerInfiniBand, u.Path+" has IPoIB settings"
		} else if u.RoCE.Present {
			want, where, other = ib.LinkLayerEthernet, u.Path+" has a [RoCE] section", "remove [RoCE] from the unit; or, for an Ethernet port: "
		}
	}
	if want == ib.LinkLayerUnspecified || want == w.p.Layer {
		w.ok("link layer", "%v", w.p.Layer)
		return true
	}
	why := w.typeStays()
	if why.Text != "" {
		where += ": " + why.Text
	}
	w.fail("link layer", codeLinkLayer, cmp.Or(why.Next, other+w.typeCommand(want)), "the port's link layer is %v, but %s", w.p.Layer, where)
	return false
}

// typeStays is why the daemon does not set [Port] Type=, as the status has it.
func (w *walker) typeStays() link.Reason {
	var as []link.Attribute
	for _, l := range w.links {
		if st := w.status(l); st != nil {
			as = append(as, st.Attributes...)
		}
	}
	for _, p := range w.in.Report.Ports {
		if p.IBDevice == w.d.Name && p.Port == w.p.Num {
			as = append(as, p.Attributes...)
		}
	}
	for _, a := range as {
		if a.Name == "Type" && a.Why.Text != "" {
			return a.Why
		}
	}
	return link.Reason{}
}

// typeCommand is how the port's type is changed on this adapter.
func (w *walker) typeCommand(want ib.LinkLayer) string {
	word, n := "ib", 1
	if want == ib.LinkLayerEthernet {
		word, n = "eth", 2
	}
	if strings.HasPrefix(w.d.Driver, "mlx5") || strings.HasPrefix(w.d.Name, "mlx5") {
		return fmt.Sprintf("mstconfig -d %s set LINK_TYPE_P%d=%d, then mstfwreset or a cold reboot", cmp.Or(w.d.Parent, "<pci address>"),
			w.p.Num, n)
	}
	return fmt.Sprintf("devlink port set %s/%s/%d type %s   (or [Port] Type=%s in the unit; not every adapter supports it)",
		cmp.Or(w.d.Bus, "pci"), cmp.Or(w.d.Parent, "<pci address>"), w.p.Num, word, word)
}

func (w *walker) ethernet() {
	if w.p.State == ib.PortActive {
		w.ok("state", "Active; an Ethernet port needs no subnet manager")
	} else if w.spare() {
		w.checks = append(w.checks, Check{Name: "cable", Result: Spare, Code: link.CodeCable,
			Text: fmt.Sprintf("%v (%v): no carrier, and no unit for this port", w.p.State, w.p.Phys)})
		return
	} else {
		w.fail("cable", link.CodeCable, fmt.Sprintf("ip link set %[1]s up; ip -s link show %[1]s", w.netdev()),
			"the Ethernet port is %v (%v)", w.p.State, w.p.Phys)
		return
	}
	for _, l := range w.links {
		w.address(l)
		w.elsewhere(l)
	}
}

// netdev is the port's interface.
func (w *walker) netdev() string {
	if len(w.links) > 0 {
		return w.links[0].Name
	}
	return "<interface>"
}

func (w *walker) cable() bool {
	p := w.p
	if w.spare() {
		w.checks = append(w.checks, Check{Name: "cable", Result: Spare, Code: link.CodeCable,
			Text: fmt.Sprintf("%v: no cable, and no unit for this port", p.Phys)})
		return false
	}
	switch p.Phys {
	case ib.PhysLinkUp:
		rate := ""
		if p.Rate != "" {
			rate = ", " + p.Rate
		}
		w.ok("cable", "LinkUp%s", rate)
		return true
	case ib.PhysPolling, ib.PhysSleep:
		w.fail("cable", link.CodeCable, "check both ends of the cable and the LEDs, that the other end is powered, and that its port type is ib",
			"%v: no cable, or nothing answers at its other end", p.Phys)
	case ib.PhysDisabled:
		// without -P it looks for a port that is not disabled
		w.fail("cable", link.CodePortDisabled, fmt.Sprintf("ibportstate -C %s -P %d -D 0 %d enable", w.d.Name, p.Num, p.Num),
			"the port was disabled by an administrator")
	case ib.PhysTraining, ib.PhysLinkRecovery:
		w.fail("cable", link.CodeTraining, fmt.Sprintf("watch -n1 cat /sys/class/infiniband/%s/ports/%d/phys_state; if it does not "+
			"change, reseat or replace the cable", w.d.Name, p.Num),
			"%v: link training does not finish, or errors bring the link down repeatedly", p.Phys)
	case 0:
		if p.State >= ib.PortInit {
			w.ok("cable", "the driver reports no physical state; the logical one is %v", p.State)
			return true
		}
		w.fail("cable", link.CodePortDown, "ibstat "+w.d.Name, "the port is %v and the driver reports no physical state", p.State)
	default:
		w.fail("cable", link.CodePortDown, "ibstat "+w.d.Name, "the physical state is %v", p.Phys)
	}
	return false
}
