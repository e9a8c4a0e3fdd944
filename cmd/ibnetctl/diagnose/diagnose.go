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

// Input is what the tree reads.
type Input struct {
	Snapshot *link.Snapshot
	Report   link.Report
	SMs      []smctl.Status
	// Units may be nil; without it a wrong link type is not recognised.
	Units *units.Set
	// Unit is the name of the only unit to walk: its mistakes, and the ports
	// and links that it applies to. Empty is all.
	Unit string
	// All makes ports and links without a unit that are not in use
	// blocked, for hosts all of whose ports must be connected.
	All bool
	// Missing are the modules of ib_core and ib_umad that are known not to
	// be loaded; a captured system does not tell.
	Missing []string
	// StartDaemon is the step that starts ibnetworkd where it is not running, so that no
	// unit is applied; empty otherwise.
	StartDaemon string
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
	// Spare is a port that has no cable, or a link that is down, and that no
	// unit applies to.
	Spare Result = "spare"
	// Unchecked is what is not known.
	Unchecked Result = "unchecked"
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

// Chain is the checks of one port or bond, in order.
type Chain struct {
	On     string  `json:"on"` // mlx5_0/1, bond0, a unit, or host
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
	codeNoDaemon  link.Code = "daemon-not-running"
)

// Run walks all ports and the bonds, or the one named by only (mlx5_0/1, an
// interface over it, or a bond).
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
	h := host(in)
	if len(h.Checks) > 0 {
		out = append(out, h)
	}
	before := len(out)
	if only == "" {
		out = withNotices(in, out)
	}
	for d, p := range in.Snapshot.Ports() {
		w := walker{in: in, d: d, p: p, links: linksOf(in.Snapshot, d.Name, p.Num), named: only != ""}
		if !w.selected(only) || unit != nil && !w.ofUnit(unit) {
			continue
		}
		w.walk()
		out = append(out, Chain{On: w.name(), Checks: w.checks})
	}
	if out = append(out, bondChains(in, only, unit)...); only != "" && len(out) == before && !h.Failed() {
		return nil // nothing has that name
	}
	return out
}

// host checks what concerns no single port: the daemon, and whether there are devices.
func host(in Input) Chain {
	c := Chain{On: "host"}
	if in.StartDaemon != "" && in.Units != nil && len(in.Units.Units) > 0 {
		c.Checks = append(c.Checks, Check{Name: "daemon", Result: Warn, Code: codeNoDaemon, Next: in.StartDaemon,
			Text: "ibnetworkd is not running: no unit is applied, and no subnet manager is started"})
	}
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
		return l.Name == only || slices.Contains(l.AltNames, only) || w.asksElsewhere(l, only)
	})
}

func (w *walker) ok(name, format string, a ...any) {
	w.checks = append(w.checks, Check{Name: name, Result: OK, Text: fmt.Sprintf(format, a...)})
}

// fail adds what blocks the way; on a port that nothing uses it is a note.
func (w *walker) fail(name string, code link.Code, next, format string, a ...any) {
	r := Fail
	if w.idle() {
		r = Warn
	}
	w.checks = append(w.checks, Check{Name: name, Result: r, Code: code, Next: next, Text: fmt.Sprintf(format, a...)})
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

func (w *walker) status(l *link.Link) *link.Status {
	for i := range w.in.Report.Links {
		if s := &w.in.Report.Links[i]; s.Ifindex == l.Index || s.Ifindex == 0 && s.Name == l.Name {
			return s
		}
	}
	return nil
}
