package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"ibnetworkd/cmd/ibnetctl/answer"
	"ibnetworkd/daemon/bus/api"
	"ibnetworkd/internal/kernel/sysfs"
	"ibnetworkd/link"
	"ibnetworkd/smctl"
)

func stateStyle(s link.Status) string {
	switch s.State {
	case link.StateConfigured:
		return good
	case link.StateFailed:
		return bad
	case link.StateUnmanaged:
		return faint
	}
	return soso
}

func portStyle(state string) string {
	switch state {
	case "Active":
		return good
	case "Down":
		return bad
	}
	return soso
}

func (a *app) listCmd() *cobra.Command {
	var all bool
	c := &cobra.Command{
		Use: "list [LINK...]", Short: "list links, one per line",
		Annotations: map[string]string{paged: "yes"},
		Long: "Lists the links that ibnetworkd handles: IPoIB interfaces, interfaces on RDMA ports, and those that a unit " +
			"matches. --all lists every interface of the host. A LINK may be a shell pattern such as 'ib*'.",
		ValidArgsFunction: a.completeSeen,
		RunE: func(cmd *cobra.Command, args []string) error {
			d, err := a.describe(cmd.Context())
			if err != nil {
				return err
			}
			links, missing := pick(d.Links, parents(d, args))
			if !all && len(args) == 0 {
				links = ours(links)
			}
			switch {
			case len(links) == 0 && missing != nil:
				return missing
			case a.json:
				return cmp.Or(a.emit(answer.List{Schema: answer.Schema, Links: links}), missing)
			case len(links) == 0:
				fmt.Fprintln(a.err, "No InfiniBand or RoCE link on this host (all links: --all). For the reason: ibnetctl diagnose")
				return nil
			}
			a.linkTable(links)
			return missing
		},
	}
	c.Flags().BoolVarP(&all, "all", "a", false, "include every interface of the host")
	return c
}

// ours are the links that concern us: over RDMA ports, or with a unit.
func ours(links []link.Status) []link.Status {
	out := []link.Status{}
	for _, l := range links {
		if l.Kind == "ipoib" || l.IBDevice != "" || l.Unit != "" || l.MadeByUs {
			out = append(out, l)
		}
	}
	return out
}

// noLink is the error of a name that no link has, noPort that of a name that no
// port has.
func noLink(name string) error {
	return fail(exitNoSuch, "%s: no such link (for all: ibnetctl list --all)", name)
}

func noPort(name string) error {
	return fail(exitNoSuch, "%s: no such port (for all: ibnetctl ports)", name)
}

// pick finds the named links, all without a name. The error is about the names
// that no link has; the others are found all the same.
func pick(links []link.Status, names []string) ([]link.Status, error) {
	if len(names) == 0 {
		return links, nil
	}
	out := []link.Status{}
	var missing []error
	for _, n := range names {
		if i := slices.IndexFunc(links, func(l link.Status) bool { return l.Name == n }); i >= 0 {
			out = append(out, links[i])
		} else if hits := fitting(links, n); isPattern(n) && len(hits) > 0 {
			out = append(out, hits...)
		} else {
			missing = append(missing, noLink(n))
		}
	}
	return unique(out, func(l link.Status) string { return l.Name }), joined(missing)
}

// pickPorts finds the named ports as pick does links.
func pickPorts(d *api.Description, names []string) ([]link.PortStatus, error) {
	if len(names) == 0 {
		return d.Ports, nil
	}
	out := []link.PortStatus{}
	var missing []error
	for _, n := range names {
		if p := findPort(d, n); p != nil {
			out = append(out, *p)
		} else if hits := fittingPorts(d, n); isPattern(n) && len(hits) > 0 {
			out = append(out, hits...)
		} else {
			missing = append(missing, noPort(n))
		}
	}
	return unique(out, func(p link.PortStatus) string { return fmt.Sprintf("%s/%d", p.IBDevice, p.Port) }), joined(missing)
}

func (a *app) linkTable(links []link.Status) {
	var rows [][]cell
	for _, l := range links {
		idx := ""
		if l.Ifindex != 0 {
			idx = fmt.Sprint(l.Ifindex)
		}
		port := l.IBDevice
		if l.Port != 0 {
			port = fmt.Sprintf("%s/%d", l.IBDevice, l.Port)
		}
		rows = append(rows, []cell{{idx, faint}, {l.Name, bold}, {cmp.Or(l.Kind, "-"), ""}, {cmp.Or(port, "-"), ""}, {cmp.Or(l.PKey, "-"), ""},
			{string(l.Oper), ""}, {string(l.State), stateStyle(l)}, {l.Reason().Text, ""}})
		rows = append(rows, awayRows(l, port)...)
	}
	a.table("", []string{"IDX", "LINK", "TYPE", "PORT", "PKEY", "OPERATIONAL", "SETUP", "WHY"}, rows, "IDX", "PKEY")
}

func (a *app) portsCmd() *cobra.Command {
	return &cobra.Command{
		Use: "ports [PORT...]", Short: "list RDMA ports, in ibstat's terms",
		Annotations:       map[string]string{paged: "yes"},
		Long:              "Lists the RDMA ports, or prints all details of the named ones. A PORT may be a shell pattern such as 'mlx5_*'.",
		ValidArgsFunction: a.completePorts,
		RunE: func(cmd *cobra.Command, args []string) error {
			d, err := a.describe(cmd.Context())
			if err != nil {
				return err
			}
			ports, missing := pickPorts(d, args)
			if len(ports) == 0 && missing != nil {
				return missing
			}
			if a.json {
				return cmp.Or(a.emit(answer.Ports{Schema: answer.Schema, Ports: ports}), missing)
			}
			if len(ports) == 0 {
				fmt.Fprintln(a.out, "No RDMA port on this host. For the reason: ibnetctl diagnose")
				return nil
			}
			if len(args) > 0 {
				for _, p := range ports {
					a.portDetail(d, p)
				}
				return missing
			}
			a.portTable(ports)
			return nil
		},
	}
}

func (a *app) portTable(ports []link.PortStatus) {
	var rows [][]cell
	for _, p := range ports {
		rows = append(rows, []cell{{fmt.Sprintf("%s/%d", p.IBDevice, p.Port), bold}, {p.LinkLayer, ""}, {p.State, portStyle(p.State)},
			{p.PhysState, ""},
			{cmp.Or(p.Rate, "-"), ""}, {fmt.Sprint(p.LID), ""}, {fmt.Sprint(p.SMLID), ""}, {p.PortGUID, ""},
			{cmp.Or(strings.Join(p.Links, " "), "-"), ""}, {p.Reason.Text, ""}})
	}
	a.table("", []string{"PORT", "LINK LAYER", "STATE", "PHYSICAL", "RATE", "LID", "SM LID", "PORT GUID", "LINKS", "WHY"}, rows,
		"PORT GUID", "LINK LAYER", "PHYSICAL", "LINKS")
}

func findPort(d *api.Description, name string) *link.PortStatus {
	for i := range d.Ports {
		p := &d.Ports[i]
		if name == fmt.Sprintf("%s/%d", p.IBDevice, p.Port) || strings.EqualFold(name, p.PortGUID) {
			return p
		}
	}
	// A device name alone means its only port, a link the port below it.
	var only *link.PortStatus
	for i := range d.Ports {
		if d.Ports[i].IBDevice == name {
			if only != nil {
				return nil
			}
			only = &d.Ports[i]
		}
	}
	if i := slices.IndexFunc(d.Links, func(l link.Status) bool { return l.Name == name && l.Port != 0 }); only == nil && i >= 0 {
		return findPort(d, fmt.Sprintf("%s/%d", d.Links[i].IBDevice, d.Links[i].Port))
	}
	return only
}

func findSM(d *api.Description, dev string, port int) *smctl.Status {
	for i := range d.SubnetManagers {
		if s := &d.SubnetManagers[i]; s.IBDevice == dev && s.Port == port {
			return s
		}
	}
	return nil
}

func (a *app) statusCmd() *cobra.Command {
	var stats bool
	c := &cobra.Command{
		Use: "status [LINK|PORT...]", Short: "show actual and wanted settings, and why they differ",
		Annotations: map[string]string{paged: "yes"},
		Long: `Prints all links, ports and subnet managers at a glance, or all details of the
named links (ib0) and ports (mlx5_0/1). For each setting that differs from the
unit, the reason and the next step are shown. A name may be a
shell pattern such as 'ib*' or 'mlx5_*', which matches ports and the links that
ibnetctl list shows.

With --stats it prints what the kernel and the adapter have counted for each link and
port: packets and bytes, and the other counters that are not 0. For a link in another
network namespace it prints the command that shows its counters.`,
		ValidArgsFunction: a.completeBoth,
		RunE: func(cmd *cobra.Command, args []string) error {
			if stats && a.recorded != "" {
				return fail(exitUsage, "--stats reads this host: it does not work on a report")
			}
			d, err := a.describe(cmd.Context())
			if err != nil {
				return err
			}
			if stats {
				return a.stats(sysfs.New(""), d, args)
			}
			return a.status(d, args)
		},
	}
	c.Flags().BoolVarP(&stats, "stats", "s", false, "show the counters of links and ports")
	return c
}

// status prints everything, or what is known of the named links and ports.
func (a *app) status(d *api.Description, args []string) error {
	if len(args) == 0 {
		if a.json {
			return a.emit(d)
		}
		a.overview(d)
		return nil
	}
	if a.json {
		args = parents(d, args)
	} else if args = a.awayDetails(d, args); len(args) == 0 {
		return nil
	}
	links, ports, missing := pickBoth(d, args)
	if a.json && len(links)+len(ports) > 0 {
		return cmp.Or(a.emit(answer.Some{Schema: answer.Schema, Links: links, Ports: ports}), missing)
	}
	for _, l := range links {
		a.linkDetail(d, l)
	}
	for _, p := range ports {
		a.portDetail(d, p)
	}
	return missing
}

// pickBoth finds links and ports by their names. The error is about the names of neither.
func pickBoth(d *api.Description, args []string) (links []link.Status, ports []link.PortStatus, err error) {
	links, ports = []link.Status{}, []link.PortStatus{}
	var missing []error
	for _, n := range args {
		ls, noLink := pick(d.Links, []string{n})
		links = append(links, ls...)
		if noLink == nil && !isPattern(n) {
			continue
		}
		ps, noPort := pickPorts(d, []string{n})
		ports = append(ports, ps...)
		if noLink != nil && noPort != nil {
			missing = append(missing, fail(exitNoSuch, "%s: no such link or port (for all: ibnetctl list --all, ibnetctl ports)", n))
		}
	}
	return unique(links, func(l link.Status) string { return l.Name }), ports, joined(missing)
}

func (a *app) overview(d *api.Description) {
	links := ours(d.Links)
	if len(d.Ports) == 0 && len(links) == 0 {
		fmt.Fprintln(a.out, "No RDMA port on this host. For the reason: ibnetctl diagnose")
	}
	if len(d.Ports) > 0 {
		a.portTable(d.Ports)
		fmt.Fprintln(a.out)
	}
	if len(links) > 0 {
		a.linkTable(links)
		style := map[string]string{"online": good, "partial": soso, "offline": bad}[d.Online]
		fmt.Fprintf(a.out, "\nOnline: %s\n", a.paint(style, d.Online))
	}
	shown := slices.DeleteFunc(slices.Clone(d.SubnetManagers), func(s smctl.Status) bool {
		return s.Phase == smctl.PhaseOff || s.Phase == phaseUnknown
	})
	if len(shown) > 0 {
		fmt.Fprintln(a.out)
		a.smTable(shown)
	}
	if len(d.Notices) > 0 {
		fmt.Fprintln(a.out)
		a.printNotices("", d.Notices)
	}
	if n := len(d.Problems); n > 0 {
		fmt.Fprintf(a.out, "\n%s\n", a.paint(soso, fmt.Sprintf("%d %s in unit files (ibnetctl verify):", n, plural(n, "problem", "problems"))))
		for i, p := range d.Problems {
			if i == 5 {
				fmt.Fprintf(a.out, "  ... and %d more\n", n-i)
				break
			}
			a.say("  ", 4, p)
		}
	}
}

func plural(n int, one, many string) string {
	if n == 1 {
		return one
	}
	return many
}

// field prints one line, or a wrapped text, of a detail.
func (a *app) field(name, text string) { a.say(fmt.Sprintf("%14s: ", name), 16, text) }

// known prints a field unless it is empty.
func (a *app) known(name, text string) {
	if text != "" {
		a.field(name, text)
	}
}

// nextStep prints the next step of a detail, if there is one.
func (a *app) nextStep(text string) {
	if text != "" {
		a.step("     Next step: ", 16, text)
	}
}

func (a *app) linkDetail(d *api.Description, l link.Status) {
	fmt.Fprintf(a.out, "%s %s: %s (%s)\n", a.paint(stateStyle(l), "●"), a.paint(bold, l.Name), l.Oper,
		a.paint(stateStyle(l), string(l.State)))
	for i, r := range l.Reasons {
		name := "Why"
		if i > 0 {
			name = "also"
		}
		a.field(name, a.paint(bold, r.Text))
		a.nextStep(r.Next)
	}
	a.field("Unit", cmp.Or(l.Unit, "none matches"))
	for _, f := range l.DropIns {
		a.field("drop-in", f)
	}
	kind := cmp.Or(l.Kind, "-")
	if l.PKey != "" {
		kind += ", P_Key " + l.PKey
	}
	if l.Parent != "" {
		kind += ", on " + l.Parent
	}
	if l.MadeByUs {
		kind += ", created by ibnetworkd"
	}
	a.field("Type", kind)
	if l.IBDevice != "" {
		if p := findPort(d, fmt.Sprintf("%s/%d", l.IBDevice, l.Port)); p != nil {
			a.field("Port", portLine(*p))
		}
	}
	a.known("Address", l.HWAddr)
	online := "not required"
	if l.Required {
		online = "no"
		if l.Online {
			online = "yes"
		}
		if l.RequiredMin != "" {
			online += fmt.Sprintf(" (required: %s to %s)", l.RequiredMin, cmp.Or(string(l.RequiredMax), "routable"))
		}
	}
	a.field("Online", online)
	for i, ip := range l.Addresses {
		if i > 0 {
			fmt.Fprintf(a.out, "%14s  %s\n", "", ip)
			continue
		}
		a.field("IP", ip)
	}
	a.settings(l.Attributes, l.Pending)
	for _, p := range l.Problems {
		a.say("    ", 4, a.paint(soso, p))
	}
	fmt.Fprintln(a.out)
}

// settings prints what is wanted beside what is, and what is still to be done.
func (a *app) settings(attributes []link.Attribute, pending []string) {
	if len(attributes) > 0 {
		fmt.Fprintln(a.out)
		var rows [][]cell
		for _, at := range attributes {
			style := good
			if at.Wanted == "" {
				style = ""
			} else if !at.OK() {
				style = bad
			}
			rows = append(rows, []cell{{at.Name, bold}, {cmp.Or(at.Wanted, "-"), ""}, {cmp.Or(at.Actual, "-"), style}, {at.Why.Text, ""}})
		}
		a.table("    ", []string{"SETTING", "WANTED", "ACTUAL", "WHY"}, rows)
	}
	if len(pending) > 0 {
		fmt.Fprintln(a.out, "\n    not done yet:")
		for _, p := range pending {
			fmt.Fprintln(a.out, "      "+p)
		}
	}
}

func portLine(p link.PortStatus) string {
	s := fmt.Sprintf("%s/%d, %s, %s, %s", p.IBDevice, p.Port, p.LinkLayer, p.State, p.PhysState)
	if p.Rate != "" {
		s += ", " + p.Rate
	}
	if p.LinkLayer == "InfiniBand" {
		s += fmt.Sprintf(", LID %d, SM LID %d", p.LID, p.SMLID)
	}
	return s
}

func (a *app) portDetail(d *api.Description, p link.PortStatus) {
	fmt.Fprintf(a.out, "%s %s: %s, %s\n", a.paint(portStyle(p.State), "●"), a.paint(bold, fmt.Sprintf("%s/%d", p.IBDevice, p.Port)),
		a.paint(portStyle(p.State), p.State), p.PhysState)
	if p.Reason.Text != "" {
		a.field("Why", a.paint(bold, p.Reason.Text))
		a.nextStep(p.Reason.Next)
	}
	a.field("Link layer", p.LinkLayer)
	a.known("Rate", p.Rate)
	if p.LinkLayer == "InfiniBand" {
		a.field("Base lid", fmt.Sprint(p.LID))
		a.field("SM lid", fmt.Sprint(p.SMLID))
		a.known("Subnet prefix", p.SubnetPrefix)
	}
	a.field("Port GUID", p.PortGUID)
	a.field("Node GUID", p.NodeGUID)
	a.known("P_Keys", strings.Join(p.PKeys, " "))
	a.field("Links", cmp.Or(strings.Join(p.Links, " "), "none"))
	a.known("Unit", p.Unit)
	if s := findSM(d, p.IBDevice, p.Port); s != nil {
		a.field("Subnet mgr", fmt.Sprintf("%s: %s", s.Phase, s.Reason))
		a.nextStep(s.Next)
		if s.Worker != "" {
			a.field("Worker", fmt.Sprintf("%s (%s)", s.Worker, cmp.Or(s.WorkerState, stateUnknown)))
		}
	}
	a.settings(p.Attributes, p.Pending)
	fmt.Fprintln(a.out)
}

func (a *app) smTable(sms []smctl.Status) {
	var rows [][]cell
	for _, s := range sms {
		style := soso
		switch s.Phase {
		case smctl.PhaseMaster, smctl.PhaseServed, smctl.PhaseStandby:
			style = good
		case smctl.PhaseOff, smctl.PhaseStopped, smctl.PhaseNoLink, phaseUnknown:
			style = faint
		case smctl.PhaseBackingOff, smctl.PhaseBlocked, smctl.PhaseNoQP0, smctl.PhaseSMDisabled, smctl.PhaseNVSwitch, smctl.PhaseOmniPath:
			style = bad
		}
		worker := cmp.Or(s.WorkerState, "-")
		if s.Override != "" {
			worker += " (by hand: " + s.Override + ")"
		}
		rows = append(rows, []cell{{fmt.Sprintf("%s/%d", s.IBDevice, s.Port), bold}, {s.Manage, ""}, {s.Engine, ""}, {string(s.Phase), style},
			{worker, ""}, {masterCell(s), ""}, {s.Reason, ""}})
	}
	a.table("", []string{"SUBNET MANAGER", "MANAGE", "ENGINE", "PHASE", "WORKER", "MASTER", "WHY"}, rows, "ENGINE", "MANAGE")
}

// masterCell is who is master, in a few words.
func masterCell(s smctl.Status) string {
	switch {
	case s.Phase == smctl.PhaseMaster:
		return "this host"
	case s.Master == nil:
		return "-"
	}
	return fmt.Sprintf("%s (LID %d)", cmp.Or(s.Master.Node, s.Master.GUID), s.Master.LID)
}

// completions

func (a *app) completeFrom(cmd *cobra.Command, f func(*api.Description) []string) ([]string, cobra.ShellCompDirective) {
	ctx, cancel := context.WithTimeout(cmd.Context(), 2*time.Second)
	defer cancel()
	quiet := *a
	quiet.json = true
	d, err := quiet.describe(ctx)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return f(d), cobra.ShellCompDirectiveNoFileComp
}

func linkNames(d *api.Description) []string {
	var out []string
	for _, l := range ours(d.Links) {
		out = append(out, l.Name+"\t"+string(l.State))
	}
	return out
}

func portNames(d *api.Description) []string {
	var out []string
	for _, p := range d.Ports {
		out = append(out, fmt.Sprintf("%s/%d\t%s", p.IBDevice, p.Port, p.State))
	}
	return out
}

// one completes the first argument only.
func one(f cobra.CompletionFunc) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, s string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return f(cmd, args, s)
	}
}

func (a *app) completeLinks(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	return a.completeFrom(cmd, linkNames)
}

func (a *app) completePorts(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	return a.completeFrom(cmd, portNames)
}

func (a *app) completeBoth(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	return a.completeFrom(cmd, func(d *api.Description) []string { return slices.Concat(linkNames(d), awayNames(d), portNames(d)) })
}
