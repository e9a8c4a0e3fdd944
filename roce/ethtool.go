package roce

import (
	"fmt"
	"math/bits"
	"strings"

	"ibnetworkd/link"
	"ibnetworkd/units"
)

// SetEthtool sets settings of one group of a link's queues.
type SetEthtool struct {
	link.On
	Group units.EthtoolGroup
	// Settings are in the order of units.EthtoolParam; none is Max.
	Settings []units.EthtoolSetting
}

// ethtoolOption is the option of ethtool that sets a group; in lower case it shows it.
func ethtoolOption(g units.EthtoolGroup) string { return [...]string{"-G", "-L", "-C"}[g] }

// EthtoolShow is the command that shows a group of a link's settings.
func EthtoolShow(g units.EthtoolGroup, name string) string {
	return "ethtool " + strings.ToLower(ethtoolOption(g)) + " " + name
}

// String prints ethtool -G, -L or -C.
func (o SetEthtool) String() string {
	var b strings.Builder
	b.WriteString("ethtool " + ethtoolOption(o.Group) + " " + o.On.Link)
	for _, s := range o.Settings {
		if s.Param.Bool() {
			fmt.Fprintf(&b, " %s %s", s.Param.Word(), onOff(s.N != 0))
		} else {
			fmt.Fprintf(&b, " %s %d", s.Param.Word(), s.N)
		}
	}
	return b.String()
}

// Keys are the unit's keys behind the operation: "RxBufferSize= and TxBufferSize=".
func (o SetEthtool) Keys() string {
	var out []string
	for _, s := range o.Settings {
		out = append(out, s.Param.Key()+"=")
	}
	return strings.Join(out, " and ")
}

// Effect implements link.Effecter: the drivers of RDMA cards (mlx4, mlx5, bnxt, ice)
// close and open a link that is up for other rings or channels.
func (o SetEthtool) Effect(s *link.Snapshot) string {
	if l, ok := s.Link(o.On.Ifindex); !ok || !l.Up() || o.Group == units.EthtoolCoalesce {
		return ""
	}
	return o.On.Link + " stops for a moment: most drivers open its queues again"
}

// ringSize is what a driver that rounds makes of a size: mlx4_en_set_ringparam,
// mlx5e_ethtool_set_ringparam, ice_set_ringparam. It counts where the driver's answer to
// an earlier request is not known.
func ringSize(driver string, n uint32) uint32 {
	switch driver {
	case "mlx4_core", "mlx5_core":
		return 1 << bits.Len32(n-1)
	case "ice":
		return (n + 31) &^ 31
	}
	return n
}

// roundedTo reports whether a setting is what the driver makes of n.
func roundedTo(g units.EthtoolGroup, driver string, n uint32, now Ethtool) bool {
	if now.Asked != nil {
		return *now.Asked == n
	}
	return g == units.EthtoolRings && now.N == ringSize(driver, n)
}

// ethtool plans the settings of a link's queues, a group at a time.
func (p *planner) ethtool() {
	want := p.u.Link.Ethtool
	for len(want) > 0 {
		n := 1
		for n < len(want) && want[n].V.Param.Group() == want[0].V.Param.Group() {
			n++
		}
		p.ethtoolGroup(want[0].V.Param.Group(), want[:n])
		want = want[n:]
	}
}

func (p *planner) ethtoolGroup(g units.EthtoolGroup, want []units.Value[units.EthtoolSetting]) {
	have := p.st.Links[p.index].Ethtool
	failed, read := p.st.Links[p.index].EthtoolRead[g]
	op := SetEthtool{On: p.on, Group: g}
	var attrs []link.Attribute
	for _, w := range want {
		a := link.Attribute{Name: w.V.Param.Key(), Wanted: w.V.String()}
		now, ok := have[w.V.Param]
		to := units.EthtoolSetting{Param: w.V.Param, N: w.V.N}
		limited := now.Max != 0 && to.N > now.Max
		if w.V.Max || limited {
			to.N = now.Max
		}
		if ok {
			a.Actual = units.EthtoolSetting{Param: to.Param, N: now.N}.String()
		}
		switch {
		case have == nil:
			p.block(a, nil, link.Reason{
				Code: link.CodeUnsupported,
				Text: fmt.Sprintf("this kernel has no ethtool netlink, so that %s= of %s cannot be set", a.Name, p.l.Name),
				Next: fmt.Sprintf("boot Linux 5.7 or later with CONFIG_ETHTOOL_NETLINK, or write %s= into a .link file", a.Name),
			})
		case ok && to.N == now.N:
			if limited {
				a.Actual += " (the most that the driver takes)"
			}
			p.attr(a)
		case ok && roundedTo(g, p.l.Driver, to.N, now):
			a.Actual += " (rounded by the driver)"
			p.attr(a)
		case !read || failed != "":
			a.Why = unread(EthtoolShow(g, p.l.Name), failed)
			p.attr(a)
			p.b.Block(p.on, nil, true, a.Why)
			p.beforeChildren(g, a.Why)
		case !ok:
			p.block(a, nil, link.Reason{
				Code: link.CodeUnsupported,
				Text: fmt.Sprintf("the driver of %s does not support %s=", p.l.Name, a.Name),
				Next: fmt.Sprintf("remove %s=; %s prints what it has", a.Name, EthtoolShow(g, p.l.Name)),
			})
		default:
			op.Settings = append(op.Settings, to)
			attrs = append(attrs, a)
		}
	}
	if len(attrs) == 0 {
		return
	}
	why := p.besideChildren(op)
	if why == (link.Reason{}) {
		var planned bool
		if why, planned = p.try(op.Keys(), op); planned {
			p.beforeChildren(g, link.Reason{Code: link.CodeInProgress,
				Text: fmt.Sprintf("%s of %s comes first: its driver refuses it beside P_Key children", op.Keys(), p.l.Name)})
		}
		p.beforeChildren(g, why)
	}
	for _, a := range attrs {
		a.Why = why
		p.attr(a)
	}
}

// besideChildren returns why a link with enhanced IPoIB keeps the number of its channels: the
// driver refuses another one beside P_Key children (mlx5i_set_channels).
func (p *planner) besideChildren(op SetEthtool) link.Reason {
	children := p.b.Model.Snapshot().Children(p.index)
	if op.Group != units.EthtoolChannels || !p.l.EnhancedIPoIB() || len(children) == 0 {
		return link.Reason{}
	}
	var names []string
	for _, c := range children {
		names = append(names, c.Name)
	}
	why := link.Reason{Code: link.CodeRefused,
		Text: fmt.Sprintf("the driver of %s refuses %s beside P_Key children (%s)", p.l.Name, op.Keys(), strings.Join(names, ", ")),
		Next: "ip link delete " + names[0] + "; those of units are created again after it"}
	if len(names) > 1 {
		why.Next = "delete each of them by ip link delete; those of units are created again after it"
	}
	p.b.Block(p.on, op, false, why)
	return why
}

// beforeChildren has the P_Key children of a link with enhanced IPoIB wait while a setting
// of its channels is in progress.
func (p *planner) beforeChildren(g units.EthtoolGroup, why link.Reason) {
	if g != units.EthtoolChannels || !p.l.EnhancedIPoIB() || why.Code != link.CodeInProgress {
		return
	}
	if p.b.ChildWait == nil {
		p.b.ChildWait = map[int]link.Reason{}
	}
	p.b.ChildWait[p.index] = why
}

// unread returns why nothing is planned for a group that the command show prints; failed is
// why it could not be read, "" where nothing has tried yet.
func unread(show, failed string) link.Reason {
	if failed == "" {
		return link.Reason{Code: link.CodeInProgress,
			Text: fmt.Sprintf("what %q prints is read when the driver has ended its present work", show)}
	}
	return link.Reason{Code: link.CodeRetry, Text: fmt.Sprintf("what %q prints could not be read (%s)", show, failed),
		Next: "will retry"}
}
