// Package diagnose walks from the cable to the IP address of each InfiniBand
// port and says where the way is blocked, and what to type next. It is a pure
// decision tree over a snapshot and what the daemon says of it: the same tree
// answers on a live system and on a captured one.
package diagnose

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strings"

	"ibnetworkd/ib"
	"ibnetworkd/link"
	"ibnetworkd/smctl"
	"ibnetworkd/units"
)

// Input is what the tree looks at.
type Input struct {
	Snapshot *link.Snapshot
	Report   link.Report
	SMs      []smctl.Status
	// Units may be nil; without it a wrong link type is not recognised.
	Units *units.Set
	// Unit is the name of the only unit to walk: its mistakes, and the ports
	// and links that it applies to. Empty is all.
	Unit string
	// All makes a port that is spare (no cable and no unit) one that is
	// blocked, for hosts all of whose ports must be connected.
	All bool
	// Missing are the modules of ib_core and ib_umad that are known not to
	// be loaded; a captured system does not tell.
	Missing []string
	// Asked is what the subnet managers of Active ports answered, by the name of
	// the port; nil where none was asked, as on a captured system.
	Asked map[string]Asked
}

// Asked is what became of the questions to the subnet manager of a port.
type Asked struct {
	// Not is why it was not asked, empty if it was.
	Not string
	// SM is its answer to SMInfo, nil for none.
	SM *smctl.Master
	// SA is whether its subnet administrator answered for its ClassPortInfo.
	SA bool
}

// Result of one check.
type Result string

// The results. After a fail the later checks of a chain are not made.
const (
	OK   Result = "ok"
	Warn Result = "warn"
	Fail Result = "fail"
	// Spare is a port that has no cable and that no unit wants.
	Spare Result = "spare"
)

// Check is one step of the way from cable to IP.
type Check struct {
	Name   string    `json:"name"` // stable word: module, device, guid, cable ...
	Result Result    `json:"result"`
	Code   link.Code `json:"code,omitempty"`
	Text   string    `json:"text"`
	// Next is the command to type next, or a short sentence.
	Next string `json:"next,omitempty"`
	// Link is the interface that the check is about, "" for the port.
	Link string `json:"link,omitempty"`
}

// Chain is the checks of one port, in order.
type Chain struct {
	On     string  `json:"on"` // mlx5_0/1, or host
	Checks []Check `json:"checks"`
}

// Failed reports whether a check failed.
func (c Chain) Failed() bool {
	return slices.ContainsFunc(c.Checks, func(k Check) bool { return k.Result == Fail })
}

// Mistaken reports whether the chain has a mistake in a unit file, also one
// that leaves the way open.
func (c Chain) Mistaken() bool {
	return slices.ContainsFunc(c.Checks, func(k Check) bool { return k.Code == codeUnitProblem })
}

// Blocked reports whether a check failed that is not a mistake in a unit file.
func (c Chain) Blocked() bool {
	return slices.ContainsFunc(c.Checks, func(k Check) bool { return k.Result == Fail && k.Code != codeUnitProblem })
}

// Codes that only this tree uses.
const (
	codeNoDevice  link.Code = "no-rdma-device"
	codeZeroGUID  link.Code = "zero-guid"
	codeLinkLayer link.Code = "wrong-link-layer"
	codeNoUmad    link.Code = "umad-missing"
)

// Run walks all ports, or the one named by only (mlx5_0/1, or an interface
// over it).
func Run(in Input, only string) []Chain {
	var out []Chain
	if only == "" {
		out = unitChains(in)
	}
	var unit *units.Unit
	if in.Unit != "" {
		if in.Units == nil {
			return nil
		}
		if unit = in.Units.Unit(in.Unit); unit == nil {
			return nil
		}
	}
	if only == "" && unit == nil || len(in.Snapshot.Devices) == 0 {
		if c := host(in); len(c.Checks) > 0 {
			out = append(out, c)
		}
	}
	if only == "" {
		out = withNotices(in, out)
	}
	for i := range in.Snapshot.Devices {
		d := &in.Snapshot.Devices[i]
		for j := range d.Ports {
			p := &d.Ports[j]
			w := walker{in: in, d: d, p: p, links: linksOf(in.Snapshot, d.Name, p.Num), named: only != ""}
			if !w.selected(only) || unit != nil && !w.ofUnit(unit) {
				continue
			}
			w.walk()
			out = append(out, Chain{On: w.name(), Checks: w.checks})
		}
	}
	return out
}

// host checks what is not about one port.
func host(in Input) Chain {
	c := Chain{On: "host"}
	if len(in.Snapshot.Devices) > 0 {
		return c
	}
	if slices.Contains(in.Missing, "ib_core") {
		c.Checks = append(c.Checks, Check{Name: "module", Result: Fail, Code: link.CodeNoModule,
			Text: "the kernel's InfiniBand core (ib_core) is not loaded, so no adapter is visible",
			Next: "lspci -nn | grep -i -e infiniband -e mellanox; modprobe mlx5_ib   (mlx4_ib for ConnectX-2 and -3, hfi1 for Omni-Path)"})
		return c
	}
	c.Checks = append(c.Checks, Check{Name: "device", Result: Fail, Code: codeNoDevice,
		Text: "no RDMA device: no adapter is installed, or its driver is not loaded or did not bind",
		Next: "lspci -nnk -d 15b3: ; dmesg | grep -i -e mlx -e infiniband"})
	return c
}

func linksOf(s *link.Snapshot, dev string, port int) []*link.Link {
	var out []*link.Link
	for i := range s.Links {
		if l := &s.Links[i]; l.IBDevice == dev && l.Port == port {
			out = append(out, l)
		}
	}
	return out
}

type walker struct {
	in     Input
	d      *link.Device
	p      *link.Port
	links  []*link.Link
	named  bool // the port was asked for by name
	checks []Check
}

func (w *walker) name() string { return fmt.Sprintf("%s/%d", w.d.Name, w.p.Num) }

func (w *walker) selected(only string) bool {
	if only == "" || only == w.name() || only == w.d.Name || strings.EqualFold(only, w.p.GUID.String()) {
		return true
	}
	return slices.ContainsFunc(w.links, func(l *link.Link) bool {
		return l.Name == only || slices.Contains(l.AltNames, only)
	})
}

func (w *walker) ok(name, format string, a ...any) {
	w.checks = append(w.checks, Check{Name: name, Result: OK, Text: fmt.Sprintf(format, a...)})
}

func (w *walker) fail(name string, code link.Code, next, format string, a ...any) {
	w.checks = append(w.checks, Check{Name: name, Result: Fail, Code: code, Next: next, Text: fmt.Sprintf(format, a...)})
}

func (w *walker) warn(name string, code link.Code, next, format string, a ...any) {
	w.checks = append(w.checks, Check{Name: name, Result: Warn, Code: code, Next: next, Text: fmt.Sprintf(format, a...)})
}

// walk makes the checks of the port, then of each link over it.
func (w *walker) walk() {
	d, p := w.d, w.p
	by := ""
	if d.Driver != "" {
		by = ", driver " + d.Driver
	}
	w.ok("device", "RDMA device %s (node GUID %v%s)", d.Name, d.NodeGUID, by)
	if !w.linkLayer() {
		return
	}
	if p.Layer == ib.LinkLayerEthernet {
		w.ethernet()
		return
	}
	if p.GUID.IsZero() || d.NodeGUID.IsZero() {
		w.fail("guid", codeZeroGUID, w.guidCommand(),
			"the GUID is zero, as of a virtual function without one: subnet managers ignore the port")
		return
	}
	w.ok("guid", "port GUID %v", p.GUID)
	if !w.cable() || !w.state() {
		return
	}
	w.interfaces()
}

// guidCommand is how a virtual function gets its GUIDs, which it takes when its
// driver is bound.
func (w *walker) guidCommand() string {
	bus, drv, dev := cmp.Or(w.d.Bus, "pci"), cmp.Or(w.d.Driver, "<driver>"), cmp.Or(w.d.Parent, "<device>")
	return fmt.Sprintf("on the host of the physical function: ip link set <pf> vf <n> node_guid <guid>; ip link set <pf> vf <n> "+
		"port_guid <guid>; "+
		"then on this host: echo %s > /sys/bus/%s/drivers/%s/unbind; echo %s > /sys/bus/%s/drivers/%s/bind   (or a [VF] section in the "+
		"unit of the physical function)", dev, bus, drv, dev, bus, drv)
}

// unit finds the unit of the port's main interface.
func (w *walker) unit() *units.Unit {
	if w.in.Units == nil {
		return nil
	}
	file := ""
	for _, ps := range w.in.Report.Ports {
		if ps.IBDevice == w.d.Name && ps.Port == w.p.Num {
			file = ps.Unit
		}
	}
	if file == "" {
		for _, l := range w.links {
			if s := w.status(l); s != nil && !l.IsChild() {
				file = s.Unit
			}
		}
	}
	if file == "" {
		return nil
	}
	return w.in.Units.Unit(path.Base(file))
}

func (w *walker) linkLayer() bool {
	u := w.unit()
	want, where := ib.LinkLayerUnspecified, ""
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
			want, where = ib.LinkLayerEthernet, u.Path+" has a [RoCE] section"
		}
	}
	if want == ib.LinkLayerUnspecified || want == w.p.Layer {
		w.ok("link layer", "%v", w.p.Layer)
		return true
	}
	w.fail("link layer", codeLinkLayer, w.typeCommand(want), "the port's link layer is %v, but %s", w.p.Layer, where)
	return false
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

func (w *walker) sm() *smctl.Status {
	for i := range w.in.SMs {
		s := &w.in.SMs[i]
		if s.IBDevice == w.d.Name && s.Port == w.p.Num {
			return s
		}
	}
	return nil
}

func (w *walker) state() bool {
	p := w.p
	switch p.State {
	case ib.PortActive, ib.PortActiveDefer:
		return w.answers()
	case ib.PortArmed:
		w.fail("subnet manager", link.CodeSMBusy, fmt.Sprintf("ibnetctl diagnose %s again in a few seconds; if it is still Armed, query "+
			"that subnet manager: sminfo -C %s -P %d", w.name(), w.d.Name, p.Num),
			"Armed: a subnet manager (LID %d) is about to activate the port", uint16(p.SMLID))
		return false
	case ib.PortInit:
	default:
		w.fail("subnet manager", link.CodePortDown, "ibnetctl monitor", "the physical link is up, the logical state is still %v", p.State)
		return false
	}

	// Initialize: why does nobody bring it to Active?
	umad := !slices.Contains(w.in.Missing, "ib_umad")
	sm := w.sm()
	switch {
	case sm != nil && sm.Phase != "off":
		next := "ibnetctl sm status " + w.name()
		switch sm.Phase {
		case "backing-off", "master", "starting":
			next = "journalctl -u " + sm.Worker
		case "blocked":
			if !umad {
				next = "modprobe ib_umad"
			}
		case "held":
			next = "ibnetctl sm start " + w.name()
		case "foreign":
			next = fmt.Sprintf("smpquery -C %s -P %d -D portinfo 0: if MkeyViolations rises, an M_Key locks it out; otherwise read its log",
				w.d.Name, p.Num)
		}
		w.fail("subnet manager", link.CodeNoSM, next, "Initializing: no subnet manager has configured the port: %s", sm.Reason)
	case p.SMLID != 0:
		w.fail("subnet manager", link.CodeSMBusy, fmt.Sprintf("query it: sminfo -C %s -P %d; if it answers, read its log, otherwise: "+
			"ibnetctl sm start %s", w.d.Name, p.Num, w.name()),
			"Initializing: the subnet manager at LID %d configured the port before, but not again", uint16(p.SMLID))
	case !umad:
		w.fail("subnet manager", codeNoUmad, "modprobe ib_umad",
			"Initializing: no subnet manager has configured the port, and none can run on this host: ib_umad is not loaded")
	default:
		w.fail("subnet manager", link.CodeNoSM, w.smNext(),
			"Initializing: the link is up, but no subnet manager has configured the port%s", w.smWhy(sm))
	}
	return false
}

// answers says whether the subnet manager of an Active port is alive. Without one
// all that is configured goes on, and nothing new joins.
func (w *walker) answers() bool {
	p := w.p
	const name = "subnet manager"
	at := fmt.Sprintf("%v, LID %d", p.State, uint16(p.LID))
	asked, ok := w.in.Asked[w.name()]
	switch sm := w.sm(); {
	case ok && asked.Not == "" && asked.SM != nil && asked.SM.State == "Master" && asked.SA:
		w.ok(name, "%s; the master answers: %s", at, Master(asked.SM))
	case ok && asked.Not == "" && asked.SM != nil && asked.SM.State != "Master":
		w.fail(name, link.CodeNoSM, "ibnetctl sm topology "+w.name()+" shows all subnet managers of the fabric",
			"%s; the subnet manager at LID %d answers that it is %s, not master: %s", at, uint16(p.SMLID), asked.SM.State, Master(asked.SM))
	case ok && asked.Not == "" && asked.SM != nil:
		w.fail(name, link.CodeSMBusy, fmt.Sprintf("ibnetctl diagnose %s again in a few seconds; if nothing changes, restart that subnet "+
			"manager", w.name()),
			"%s; the master answers, but its subnet administrator does not, so no port can join a group: %s", at, Master(asked.SM))
	case ok && asked.Not == "":
		w.fail(name, link.CodeNoSM, w.smNext(), "%s; the subnet manager at LID %d does not answer: existing connections continue, but "+
			"no port can join a group%s", at, uint16(p.SMLID), w.smAlso(sm))
	case sm != nil && (sm.Phase == "master" || sm.Phase == "served") && sm.Master != nil:
		w.ok(name, "%s; the master answered the daemon: %s", at, Master(sm.Master))
	case sm != nil && sm.Phase == "master":
		w.ok(name, "%s; this host runs the master (%s)", at, sm.Worker)
	case sm != nil && (sm.Phase == "settling" || sm.Phase == "asking" || sm.Phase == "backing-off"):
		w.fail(name, link.CodeNoSM, "ibnetctl sm status "+w.name(), "%s; %s", at, sm.Reason)
	default:
		w.warn(name, "", fmt.Sprintf("query it: sudo ibnetctl diagnose %s", w.name()),
			"%s; the subnet manager at LID %d was not queried%s", at, uint16(p.SMLID), parens(asked.Not))
	}
	failed := w.checks[len(w.checks)-1].Result == Fail
	if sm := w.sm(); sm != nil && sm.FileProblem != "" {
		w.warn("subnet manager file", "", "ibnetctl verify", "%s", sm.FileProblem)
	}
	return !failed
}

// smAlso is what the daemon says beside.
func (w *walker) smAlso(sm *smctl.Status) string {
	if sm == nil || sm.Phase == "off" || sm.Phase == "served" || sm.Phase == "master" {
		return ""
	}
	return "; " + sm.Reason
}

func parens(s string) string {
	if s == "" {
		return ""
	}
	return " (" + s + ")"
}

// Master names a subnet manager: host, port GUID, LID and priority.
func Master(m *smctl.Master) string {
	on := ""
	if m.Node != "" {
		on = fmt.Sprintf("%q, ", m.Node)
	}
	return fmt.Sprintf("%sport GUID %s, LID %d, priority %d", on, m.GUID, m.LID, m.Priority)
}

func (w *walker) smWhy(sm *smctl.Status) string {
	if sm != nil && sm.Reason != "" {
		return ", and this host runs none: " + sm.Reason
	}
	return ", and none is managed on this host"
}

func (w *walker) smNext() string {
	if u := w.unit(); u != nil {
		return fmt.Sprintf("add [SubnetManager] Manage=auto to %s, then ibnetctl reload (or, once: ibnetctl sm start %s)", u.Path, w.name())
	}
	return fmt.Sprintf("ibnetctl sm start %s; or write a unit with [SubnetManager] Manage=auto", w.name())
}

func (w *walker) status(l *link.Link) *link.Status {
	for i := range w.in.Report.Links {
		if s := &w.in.Report.Links[i]; s.Ifindex == l.Index || s.Ifindex == 0 && s.Name == l.Name {
			return s
		}
	}
	return nil
}

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
		next := "ibnetctl up " + l.Name
		code, why := link.CodeLinkDown, ""
		if st != nil {
			if r := st.Reason(); r.Text != "" {
				why = ": " + r.Text
			}
			if st.Unit == "" {
				next = "ip link set " + l.Name + " up; or write a unit that matches " + l.Name
			}
		}
		w.fail("interface", code, next, "%s is administratively down%s", l.Name, why)
		return
	}
	w.ok("interface", "%s is up", l.Name)

	if l.IPoIB != nil {
		k := l.IPoIB.PKey
		if len(w.p.PKeys) > 0 && !w.p.HasPKey(k) {
			w.fail("partition", link.CodePKeyMissing,
				w.p.MemberStep(k)+"   (then ibnetctl monitor)",
				"the subnet manager has not granted P_Key %v to port %s (granted: %s)", k, w.name(), keys(w.p.PKeys))
			return
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

func (w *walker) address(l *link.Link) {
	for _, a := range l.Addresses {
		if a.Flags&link.AddrDADFailed != 0 {
			w.fail("address", link.CodeAddressConflict, "ip -6 neigh show "+a.Prefix.Addr().String()+"; change one of the two addresses",
				"another host on the link already uses %v (duplicate address detection failed)", a.Prefix.Addr())
			return
		}
	}
	st := w.status(l)
	if st != nil {
		for _, a := range st.Attributes {
			if a.Name == "Mode" || a.Name == "MTUBytes" || a.OK() {
				continue
			}
			if a.Name == "Address" {
				w.fail("address", a.Why.Code, a.Why.Next, "%s is not set: %s", a.Wanted, cmp.Or(a.Why.Text, "it is being added"))
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
		if !a.Prefix.Addr().IsLinkLocalUnicast() {
			have = append(have, a.Prefix.String())
		}
	}
	switch {
	case len(have) > 0:
		w.ok("address", "%s", strings.Join(have, ", "))
	case st != nil && st.Unit != "":
		w.warn("address", "", "add [Network] Address= to "+st.Unit+", or ignore this if another program sets the address",
			"%s works but has no address, and its unit sets none", l.Name)
	default:
		w.warn("address", link.CodeNoUnit, "ibnetctl edit 10-"+l.Name+"   (writes /etc/systemd/network/10-"+l.Name+".ibnetwork)",
			"%s works but has no address, and no unit matches it", l.Name)
	}
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
