package daemon

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"ibnetworkd/daemon/card"
	"ibnetworkd/internal/kernel/nl"
	"ibnetworkd/internal/kernel/procsys"
	"ibnetworkd/internal/kernel/rtnl"
	ipoibrtnl "ibnetworkd/internal/kernel/rtnl/ipoib"
	"ibnetworkd/link"
)

// Extra carries out the operations of another room. It reports false for an
// operation that is not its own.
type Extra func(ctx context.Context, op link.Op) (handled bool, err error)

// Kernel is the real system: the observer's eyes and the hands that go with
// them.
type Kernel struct {
	*Observer
	Extra []Extra
}

// pipeline is how many requests go into one system call: enough to make its cost
// small beside that of the requests, few enough that the first links are in use,
// and others get the processor, while the last are still worked on.
const pipeline = 16

// Apply carries out steps in order and calls done for each as soon as its
// result is known. Netlink requests go out many in one system call; one that
// fails does not keep the others from being tried.
func (k *Kernel) Apply(ctx context.Context, steps []link.Step, done func(op link.Op, err error)) {
	var batch []rtnl.Request
	var ops []link.Op
	made := map[string]int{}
	fresh := false
	flush := func() {
		if len(batch) == 0 {
			return
		}
		for i, err := range k.rt.DoAll(batch) {
			done(ops[i], err)
		}
		batch, ops = batch[:0], ops[:0]
	}
	for _, s := range steps {
		if ctx.Err() != nil {
			flush()
			return
		}
		op := s.Op
		t := op.Target()
		_, add := op.(link.AddChild)
		if t.Ifindex == 0 && t.Link != "" && !add {
			// The link is one of those just made: its index is known when
			// its request has been answered.
			if fresh {
				flush()
				fresh = false
			}
			if made[t.Link] == 0 {
				l, err := k.rt.LinkByName(t.Link, false)
				if err != nil {
					done(op, err)
					continue
				}
				made[t.Link] = l.Index
			}
			t.Ifindex = made[t.Link]
		}
		if o, ok := op.(link.SetMode); ok {
			flush()
			fresh = false
			if k.setMode(o, t.Ifindex) {
				done(op, nil)
				continue
			}
		}
		r, ok := request(op, t.Ifindex)
		if ok {
			fresh = fresh || add
			batch, ops = append(batch, r), append(ops, op)
			if len(batch) == pipeline {
				flush()
				fresh = false
			}
			continue
		}
		flush()
		fresh = false
		done(op, k.other(ctx, op, t.Ifindex))
	}
	flush()
}

// setMode changes the mode of an IPoIB link by its file in sysfs. It reports false
// if that is not possible: rtnetlink is asked then, and gives the reason if there
// is one. The file comes first because ipoib_set_mode lets the RTNL go in between:
// where another task has taken it meanwhile, rtnetlink goes on as if it were still
// its own, and releases it (ipoib_changelink; Linux 6.1 to 7.2).
func (k *Kernel) setMode(o link.SetMode, index int) bool {
	return k.sys.SetIPoIBMode(o.On.Link, index, o.Mode.String()) == nil
}

// other carries out what is not a request of rtnetlink.
func (k *Kernel) other(ctx context.Context, op link.Op, index int) error {
	switch o := op.(type) {
	case link.SetSysctl:
		fam, leaf, _ := strings.Cut(o.Key, "/")
		return k.proc.Set(procsys.Family(fam), o.On.Link, leaf, o.Value)
	case link.SetDNS:
		return k.dns.set(ctx, index, o)
	}
	if handled, err := k.card.Apply(ctx, op); handled {
		return err
	}
	for _, x := range k.Extra {
		if handled, err := x(ctx, op); handled {
			return err
		}
	}
	return fmt.Errorf("%w: no one carries out %q", errors.ErrUnsupported, op.String())
}

// request is the rtnetlink message for an operation.
func request(op link.Op, index int) (rtnl.Request, bool) {
	switch o := op.(type) {
	case link.SetUp:
		return rtnl.SetLink(index, rtnl.LinkChange{Up: &o.Up}), true
	case link.SetMTU:
		return rtnl.SetLink(index, rtnl.LinkChange{MTU: o.MTU}), true
	case link.SetMode:
		m := ipoibrtnl.Datagram
		if o.Mode == link.ModeConnected {
			m = ipoibrtnl.Connected
		}
		return rtnl.SetLink(index, rtnl.LinkChange{Mode: &m}), true
	case link.SetUmcast:
		return rtnl.SetLink(index, rtnl.LinkChange{UMcast: &o.Set}), true
	case link.SetFlag:
		if o.Flag == link.FlagAllMulti {
			return rtnl.SetLink(index, rtnl.LinkChange{AllMulti: &o.Set}), true
		}
		switch arp := !o.Set; o.Flag {
		case link.FlagPromisc:
			return rtnl.SetLink(index, rtnl.LinkChange{Promisc: &o.Set}), true
		case link.FlagNoARP:
			return rtnl.SetLink(index, rtnl.LinkChange{ARP: &arp}), true
		}
		return rtnl.SetLink(index, rtnl.LinkChange{Multicast: &o.Set}), true
	case link.SetGroup:
		return rtnl.SetLink(index, rtnl.LinkChange{Group: &o.Group}), true
	case link.SetGUID:
		return rtnl.SetLink(index, rtnl.LinkChange{Address: o.Addr}), true
	case link.AddChild:
		return rtnl.NewIPoIBChild(rtnl.IPoIBChild{Parent: o.Parent.Ifindex, Name: o.On.Link, PKey: o.PKey}), true
	case link.DelLink:
		return rtnl.DelLink(index), true
	case link.AddAddress:
		if o.Replace {
			return rtnl.ReplaceAddress(address(o.Address, index)), true
		}
		return rtnl.AddAddress(address(o.Address, index)), true
	case link.RestoreAddress:
		return rtnl.ReplaceAddress(address(o.Address, index)), true
	case link.DelAddress:
		return rtnl.DelAddress(address(o.Address, index)), true
	case link.AddRoute:
		if o.Replace {
			return rtnl.ReplaceRoute(route(o.Route, o.On.Link, index)), true
		}
		return rtnl.AddRoute(route(o.Route, o.On.Link, index)), true
	case link.DelRoute:
		return rtnl.DelRoute(route(o.Route, o.On.Link, index)), true
	case link.AddRule:
		return rtnl.AddRule(rule(o.Rule)), true
	case link.DelRule:
		return rtnl.DelRule(rule(o.Rule)), true
	}
	return rtnl.Request{}, false
}

// readOnlyFlags are set by the kernel alone.
const readOnlyFlags = link.AddrSecondary | link.AddrDADFailed | link.AddrDeprecated | link.AddrTentative | link.AddrPermanent | link.AddrStablePrivacy

func address(a link.Address, index int) rtnl.Address {
	out := rtnl.Address{
		Index: index, Prefix: a.Prefix, Broadcast: a.Broadcast, Label: a.Label, Scope: a.Scope, Flags: a.Flags &^ readOnlyFlags,
		Valid: a.Valid, Preferred: a.Preferred, Metric: a.Metric,
	}
	if a.Peer.IsValid() {
		out.Peer = a.Peer.Addr()
		out.Prefix = netip.PrefixFrom(a.Prefix.Addr(), a.Peer.Bits())
	}
	return out
}

// route is for the link of that name and index, which the plan may not have known
// yet.
func route(r link.Route, name string, index int) rtnl.Route {
	out := rtnl.Route{
		Family: unix.AF_INET, Dst: r.Dst, Src: r.Src, Gateway: r.Gateway, OutIf: index, PrefSrc: r.PrefSrc, Table: r.Table, Metric: r.Metric,
		Type: r.Type, Scope: r.Scope, Proto: r.Protocol, TOS: r.TOS, Pref: r.Pref,
		Metrics: rtnl.Metrics{MTU: r.MTU, AdvMSS: r.AdvMSS, HopLimit: r.HopLimit, InitCwnd: r.InitCwnd, InitRwnd: r.InitRwnd,
			RTOMin: r.RTOMin, QuickAck: r.QuickAck, FastOpenNoCookie: r.FastOpenNoCookie, CongestionControl: r.Congestion},
	}
	if r.Dst.Addr().Is6() {
		out.Family = unix.AF_INET6
	}
	if r.OnLink {
		out.Flags |= unix.RTNH_F_ONLINK
	}
	if r.LeadsNowhere() {
		out.OutIf = 0
	}
	for _, h := range r.NextHops {
		n := h.Ifindex
		if h.Dev == name {
			n = index
		}
		out.NextHops = append(out.NextHops, rtnl.NextHop{OutIf: n, Gateway: h.Gateway, Weight: h.Weight})
		out.OutIf = 0
	}
	return out
}

func rule(r link.Rule) rtnl.Rule {
	out := rtnl.Rule{
		Family: unix.AF_INET, Priority: r.Priority, HasPriority: r.Priority != 0, Action: r.Type, From: r.From, To: r.To, TOS: r.TOS, Table: r.Table,
		FwMark: r.FWMark, FwMask: r.FWMask, IIF: r.IIF, OIF: r.OIF, IPProto: r.IPProto,
		SPort: rtnl.PortRange{First: r.SrcPort[0], Last: r.SrcPort[1]}, DPort: rtnl.PortRange{First: r.DstPort[0], Last: r.DstPort[1]},
		UID: rtnl.UIDRange{First: r.UIDRange[0], Last: r.UIDRange[1], Set: r.HasUIDRange}, L3MDev: r.L3MDev, Goto: r.Goto, Proto: r.Protocol, Invert: r.Invert,
	}
	if r.Family == 6 {
		out.Family = unix.AF_INET6
	}
	if r.SuppressPrefix >= 0 {
		out.SuppressPrefixLen = rtnl.Optional{Value: uint32(r.SuppressPrefix), Set: true}
	}
	if r.SuppressIfGroup >= 0 {
		out.SuppressIfGroup = rtnl.Optional{Value: uint32(r.SuppressIfGroup), Set: true}
	}
	return out
}

// verdict is what is done about a failed operation.
type verdict uint8

const (
	verdictDone    verdict = iota // the effect is there all the same
	verdictForeign                // it is there, and someone else made it
	verdictGone                   // the link went away, and its removal is on the way as an event; if not, as Retry
	verdictRetry                  // passing: tried again soon, and on the next event
	verdictGiveUp                 // refused: tried again when something that matters changes, and now and then
)

// classify is the one place where errors become decisions.
func classify(op link.Op, err error) (verdict, link.Reason) {
	is := func(es ...unix.Errno) bool {
		return slices.ContainsFunc(es, func(e unix.Errno) bool { return errors.Is(err, e) })
	}
	say := func(code link.Code, next, format string, a ...any) link.Reason {
		return link.Reason{Code: code, Text: fmt.Sprintf(format, a...), Next: next}
	}
	words := kernelWords(err)
	name := op.Target().String()
	switch o := op.(type) {
	case link.DelAddress:
		if is(unix.EADDRNOTAVAIL, unix.ENODEV) {
			return verdictDone, link.Reason{}
		}
	case link.DelRoute:
		if is(unix.ESRCH, unix.ENODEV, unix.ENOENT) {
			return verdictDone, link.Reason{}
		}
	case link.DelRule:
		if is(unix.ENOENT) {
			return verdictDone, link.Reason{}
		}
	case link.DelLink:
		if is(unix.ENODEV) {
			return verdictDone, link.Reason{}
		}
	case link.AddRule:
		if is(unix.EEXIST) {
			return verdictForeign, link.Reason{}
		}
	case link.AddAddress:
		switch {
		case is(unix.EEXIST):
			return verdictForeign, link.Reason{}
		case is(unix.EACCES, unix.EINVAL) && o.Address.Prefix.Addr().Is6():
			return verdictGiveUp, say(link.CodeRefused, "look at net.ipv6.conf."+name+".disable_ipv6 and the link's MTU (1280 at least)",
				"the kernel refused %s on %s (%s)", o.Address.Prefix, name, words)
		}
	case link.AddRoute:
		switch {
		case is(unix.EEXIST):
			return verdictRetry, say(link.CodeRetry, "ip route show "+o.Route.Dst.String()+"; give one of the two another Metric=",
				"another route to %s with metric %d is there already", o.Route.Dst, o.Route.Metric)
		case is(unix.ENETUNREACH, unix.EHOSTUNREACH, unix.EINVAL):
			return verdictRetry, say(link.CodeRetry, "check Gateway= and PreferredSource= against the link's addresses",
				"the kernel refused the route to %s over %s (%s)", o.Route.Dst, name, words)
		case is(unix.ENETDOWN):
			return verdictRetry, say(link.CodeRetry, "ip link set "+name+" up", "%s went down before the route to %s was set", name, o.Route.Dst)
		}
	case link.SetMode:
		if is(unix.EINVAL) {
			return verdictGiveUp, say(link.CodeRefused, "write Mode=auto to accept datagram",
				"%s refused %s mode (%s): enhanced IPoIB, or a kernel without CONFIG_INFINIBAND_IPOIB_CM", name, o.Mode, words)
		}
	case link.SetMTU:
		if is(unix.EINVAL, unix.ERANGE) {
			return verdictGiveUp, say(link.CodeRefused, "write MTUBytes=max to take the largest that it allows",
				"%s refused an MTU of %d (%s): more than the adapter or the mode allows", name, o.MTU, words)
		}
	case link.SetGUID:
		if is(unix.EINVAL, unix.EOPNOTSUPP, unix.EADDRNOTAVAIL) {
			return verdictGiveUp, say(link.CodeRefused, "take GUID= away; the GUID of a virtual function is set from its physical function",
				"%s refused the GUID %s (%s)", name, o.Addr.GUID(), words)
		}
	case link.AddChild:
		switch {
		case is(unix.EEXIST):
			return verdictGiveUp, say(link.CodeNameTaken, "write another Name= in [Partition]", "the name %s is taken", name)
		case is(unix.EINVAL):
			return verdictGiveUp, say(link.CodeRefused, "check PartitionKey=", "the kernel refused a child with P_Key %s on %s (%s)", o.PKey, o.Parent.Link, words)
		}
	case link.SetDNS:
		return classifyDNS(name, err)
	case link.SetSysctl:
		if errors.Is(err, unix.ENOENT) {
			return verdictGiveUp, say(link.CodeUnsupported, "take the key out of the unit, or boot a kernel that has /proc/sys/net/"+strings.Replace(o.Key, "/", "/conf/"+name+"/", 1), "this kernel has no setting %s for %s", o.Key, name)
		}
	}
	if why, retry, ok := card.Explain(op, err, words); ok {
		if retry {
			return verdictRetry, why
		}
		return verdictGiveUp, why
	}
	switch {
	case is(unix.ENODEV, unix.ENXIO):
		return verdictGone, say(link.CodeRetry, "look at the links and devices that it names: it is tried again; by hand it is: "+op.String(), "the kernel does not find what %s is about (%s)", op, words)
	case is(unix.EPERM, unix.EACCES):
		return verdictGiveUp, say(link.CodeRefused, "run ibnetworkd as its service does: with CAP_NET_ADMIN, and with /proc/sys and /sys writable",
			"not permitted: %s (%s)", op, words)
	case is(unix.EBUSY, unix.EAGAIN, unix.EINTR, unix.ENOBUFS, unix.ENOMEM, unix.ETIMEDOUT, unix.ENETDOWN):
		return verdictRetry, say(link.CodeRetry, "nothing: it is tried again by itself", "%s did not succeed yet (%s)", op, words)
	case is(unix.EOPNOTSUPP), errors.Is(err, errors.ErrUnsupported):
		return verdictGiveUp, say(link.CodeUnsupported, "take the key out of the unit: the kernel or the driver of "+name+" does not have it", "%s is not supported here (%s)", op, words)
	case is(unix.EINVAL, unix.ERANGE):
		return verdictGiveUp, say(link.CodeRefused, "try the command by hand, and look into dmesg; then change the value in the unit", "the kernel refused: %s (%s)", op, words)
	}
	return verdictRetry, say(link.CodeRetry, "it is tried again; by hand it is: "+op.String(), "%s failed (%s)", op, words)
}

// kernelWords are the kernel's own, without what the request was: that the
// sentence says already.
func kernelWords(err error) string {
	var e *nl.Error
	if errors.As(err, &e) {
		switch {
		case e.Message != "" && e.Errno != 0:
			return e.Errno.Error() + ": " + strings.TrimSuffix(e.Message, ".")
		case e.Errno != 0:
			return e.Errno.Error()
		}
	}
	return err.Error()
}
