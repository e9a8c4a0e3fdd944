package diagnose

import (
	"cmp"
	"fmt"
	"strings"

	"ibnetworkd/ib"
	"ibnetworkd/link"
)

// interfaces checks the IPoIB links over an Active port.
func (w *walker) interfaces() {
	if len(w.links) == 0 {
		if w.in.Snapshot.Host.NoIPoIB {
			w.fail("interface", link.CodeNoModule, "modprobe ib_ipoib",
				"the port is Active, but it has no network interface: ib_ipoib is not loaded")
		} else {
			w.fail("interface", link.CodeNoModule, "ip -all netns exec ip -br link; dmesg | grep -i ipoib",
				"the port is Active and ib_ipoib is loaded, but the port has no network interface in this network namespace")
		}
		return
	}
	for _, l := range w.links {
		start := len(w.checks)
		w.ipoib(l)
		for i := start; i < len(w.checks); i++ {
			w.checks[i].Link = l.Name
		}
		w.elsewhere(l)
	}
	// Children that the unit asks for and that are not there.
	for _, s := range w.in.Report.Links {
		if s.IBDevice == w.d.Name && s.Port == w.p.Num && s.Ifindex == 0 {
			r := s.Reason()
			n := len(w.checks)
			w.fail("interface", r.Code, r.Next, "%s is wanted but does not exist: %s", s.Name, cmp.Or(r.Text, "it is about to be created"))
			w.checks[n].Link = s.Name
		}
	}
}

// governed reports that a unit applies to a link, or has made it.
func governed(st *link.Status) bool { return st != nil && (st.Unit != "" || st.MadeByUs) }

func (w *walker) ipoib(l *link.Link) {
	st := w.status(l)
	if st != nil {
		switch r := st.Reason(); r.Code {
		case link.CodeUdev:
			w.fail("interface", r.Code, cmp.Or(r.Next, "udevadm info /sys/class/net/"+l.Name), "%s", r.Text)
			return
		case link.CodeOtherManager:
			w.warn("interface", r.Code, r.Next, "%s", r.Text)
		}
	}
	if !l.Up() {
		next := w.upStep(l, st)
		code, why := link.CodeLinkDown, ""
		if !governed(st) && !w.named && !w.in.All {
			w.checks = append(w.checks, Check{Name: "interface", Result: Spare, Code: code,
				Text: l.Name + " is administratively down, and no unit applies to it", Next: "ibnetctl edit 10-" + l.Name + ", if it is to be used"})
			return
		}
		if st != nil {
			if r := st.Reason(); r.Text != "" {
				why = ": " + r.Text
			}
			if !governed(st) {
				next = "ip link set " + l.Name + " up; or write a unit that matches " + l.Name
			}
		}
		w.fail("interface", code, next, "%s is administratively down%s", l.Name, why)
		return
	}
	w.ok("interface", "%s is up", l.Name)

	if l.IPoIB != nil && !w.partition(l.IPoIB.PKey) {
		return
	}
	if !l.Carrier() {
		w.fail("multicast group", link.CodeJoin, "dmesg | grep 'multicast join'; saquery -g; if the group is missing, "+w.p.GroupStep(pkeyOf(l)),
			"the port is Active and the P_Key is granted, but %s has no carrier: the subnet manager does not admit it to the broadcast "+
				"group (no such group, other rate or MTU, or a changed hardware address)", l.Name)
		return
	}
	w.ok("multicast group", "joined, carrier is on")

	if st != nil {
		for _, a := range st.Attributes {
			if a.Name != "Mode" && a.Name != "MTUBytes" {
				continue
			}
			name := map[string]string{"Mode": "mode", "MTUBytes": "MTU"}[a.Name]
			if a.OK() {
				if a.Actual != "" {
					w.ok(name, "%s", a.Actual)
				}
				continue
			}
			w.fail(name, a.Why.Code, a.Why.Next, "%s", cmp.Or(a.Why.Text, fmt.Sprintf("wanted %s, actual %s", a.Wanted, a.Actual)))
		}
	}
	w.address(l)
}

// partition checks that the port has a P_Key.
func (w *walker) partition(k ib.PKey) bool {
	if len(w.p.PKeys) > 0 && !w.p.HasPKey(k) {
		w.fail("partition", link.CodePKeyMissing,
			w.p.MemberStep(k)+"   (then ibnetctl monitor)",
			"the subnet manager has not granted P_Key %v to port %s (granted: %s)", k, w.name(), keys(w.p.PKeys))
		return false
	}
	member := "full"
	for _, o := range w.p.PKeys {
		if o.Base() == k.Base() && !o.Full() {
			member = "limited"
		}
		if o == k {
			member = "full"
			break
		}
	}
	if member == "limited" {
		w.warn("partition", "", w.p.MemberStep(k)+"   (or accept that limited members cannot communicate with each other)",
			"P_Key %v is granted with limited membership", k)
	} else {
		w.ok("partition", "P_Key %v is granted", k)
	}
	return true
}

// upStep is how a link comes up: by the daemon, which applies its unit when it starts.
func (w *walker) upStep(l *link.Link, st *link.Status) string {
	if w.in.StartDaemon != "" && st != nil && st.Unit != "" {
		return w.in.StartDaemon
	}
	return "ibnetctl up " + l.Name
}

func (w *walker) address(l *link.Link) {
	for _, a := range l.Addresses {
		if a.Flags&link.AddrDADFailed != 0 {
			w.fail("address", link.CodeAddressConflict, "ip -6 neigh show "+a.Prefix.Addr().String()+"; change one of the two addresses",
				"another host on the link already uses %v (duplicate address detection failed)", a.Prefix.Addr())
			return
		}
	}
	st := w.status(l)
	wants := false // an address
	before := len(w.checks)
	if st != nil {
		for _, a := range st.Attributes {
			wants = wants || a.Name == "Address" || a.Name == "DHCP" || a.Name == "DHCPv6" || a.Name == "Bond"
			if a.Name == "Mode" || a.Name == "MTUBytes" || a.Away.Name != "" || bondSettings[a.Name] != "" || a.OK() {
				continue
			}
			if a.Name == "Address" {
				text := a.Wanted + " is not set"
				if a.Actual != "" {
					text = a.Actual + " is set"
				}
				w.fail("address", a.Why.Code, a.Why.Next, "%s: %s", text, cmp.Or(a.Why.Text, "it is being added"))
				continue
			}
			w.fail("setting", a.Why.Code, a.Why.Next, "%s: wanted %s, actual %s: %s", a.Name, a.Wanted, cmp.Or(a.Actual, "not set"),
				cmp.Or(a.Why.Text, "it is being set"))
		}
		if st.State == link.StateFailed || st.State == link.StateConfiguring {
			r := st.Reason()
			if w.checks[len(w.checks)-1].Result != Fail {
				w.fail("address", r.Code, cmp.Or(r.Next, "ibnetctl status "+l.Name), "%s is %s: %s", l.Name, st.State,
					cmp.Or(r.Text, "operations are in progress"))
			}
			return
		}
	}
	var have []string
	for _, a := range l.Addresses {
		if ip := a.Prefix.Addr(); !ip.IsLinkLocalUnicast() || wants && ip.Is4() {
			have = append(have, a.Prefix.String())
		}
	}
	switch {
	case len(have) > 0:
		w.ok("address", "%s", strings.Join(have, ", "))
	case wants && len(w.checks) > before: // said above
	case w.slaveOf(l) != "":
		w.ok("address", "%s is a slave of %s, which has the addresses", l.Name, w.slaveOf(l))
	case st != nil && st.Unit != "":
		w.warn("address", "", "add [Network] Address= to "+st.Unit+", or ignore this if another program sets the address",
			"%s works but has no address, and its unit sets none", l.Name)
	case st != nil && st.Reason().Code == link.CodeNoUnit && st.Reason().Next != "":
		w.warn("address", link.CodeNoUnit, st.Reason().Next, "%s works but has no address: %s", l.Name, st.Reason().Text)
	default:
		w.warn("address", link.CodeNoUnit, "ibnetctl edit 10-"+l.Name+"   (writes /etc/systemd/network/10-"+l.Name+".ibnetwork)",
			"%s works but has no address, and no unit matches it", l.Name)
	}
}

// slaveOf is the bond that a link is a slave of, empty for none.
func (w *walker) slaveOf(l *link.Link) string {
	if m, ok := w.in.Snapshot.Link(l.Master); ok && m.Bond != nil {
		return m.Name
	}
	return ""
}

// pkeyOf is the P_Key of a link, the default one of what has none.
func pkeyOf(l *link.Link) ib.PKey {
	if l.IPoIB == nil {
		return 0xffff
	}
	return l.IPoIB.PKey
}

func keys(ks []ib.PKey) string {
	s := make([]string, len(ks))
	for i, k := range ks {
		s[i] = k.String()
	}
	return strings.Join(s, " ")
}
