package daemon

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"ibnetworkd/daemon/card"
	"ibnetworkd/internal/kernel/nl"
	"ibnetworkd/link"
)

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
	case link.DelRule, link.DelNeighbor, link.DelNextHop:
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
			return verdictGiveUp, say(link.CodeRefused, checkIPv6(name), "the kernel refused %s on %s (%s)", o.Address.Prefix, name, words)
		}
	case link.AddRoute:
		switch {
		case is(unix.EEXIST):
			return verdictRetry, say(link.CodeRetry, "ip route show "+o.Route.Dst.String()+"; give one of the two another Metric=",
				"another route to %s with metric %d exists", o.Route.Dst, o.Route.Metric)
		case o.Route.NextHopID != 0 && is(unix.ENETUNREACH, unix.EHOSTUNREACH, unix.EINVAL):
			return verdictRetry, say(link.CodeRetry,
				"check NextHop=, Scope= and PreferredSource= against \"ip nexthop show\" and the addresses of this host",
				"the kernel refused the route to %s over nexthop %d, of the unit of %s (%s)", o.Route.Dst, o.Route.NextHopID, name, words)
		case is(unix.ENETUNREACH, unix.EHOSTUNREACH, unix.EINVAL):
			next := "check Gateway= and PreferredSource= against the link's addresses"
			if cc := o.Route.Congestion; cc != "" && strings.Contains(words, "congestion") {
				next = fmt.Sprintf("modprobe tcp_%s, or write one of \"sysctl net.ipv4.tcp_available_congestion_control\" in "+
					"TCPCongestionControlAlgorithm=", cc)
			}
			return verdictRetry, say(link.CodeRetry, next, "the kernel refused the route to %s over %s (%s)", o.Route.Dst, name, words)
		case is(unix.ENETDOWN):
			return verdictRetry, say(link.CodeRetry, "ip link set "+name+" up", "%s went down before the route to %s was set", name, o.Route.Dst)
		}
	case link.SetNeighbor:
		if is(unix.EINVAL) {
			return verdictGiveUp, say(link.CodeRefused, "correct LinkLayerAddress= in [Neighbor]; IPv6 needs an MTU of 1280 at least",
				"the kernel refused neighbour %s on %s (%s)", o.Neighbor, name, words)
		}
	case link.SetNextHop:
		switch {
		case is(unix.EEXIST):
			return verdictForeign, link.Reason{}
		case is(unix.EACCES) && o.NextHop.Family == 6:
			return verdictGiveUp, say(link.CodeRefused, checkIPv6(name), "the kernel refused nexthop %s on %s (%s)", o.NextHop, name, words)
		case is(unix.EOPNOTSUPP):
			return verdictGiveUp, say(link.CodeUnsupported, "write MultiPathRoute= or Gateway= in [Route], or boot Linux 5.3 or newer",
				"this kernel has no nexthop objects for %s (%s)", name, words)
		case is(unix.ENETDOWN):
			return verdictRetry, say(link.CodeRetry, "ip link show "+name, "%s lost its carrier before nexthop %d was set", name, o.NextHop.ID)
		case is(unix.ENETUNREACH, unix.EHOSTUNREACH, unix.EINVAL):
			return verdictRetry, say(link.CodeRetry, "check Gateway= and Group= in [NextHop] against the link's addresses and \"ip nexthop show\"",
				"the kernel refused nexthop %s on %s (%s)", o.NextHop, name, words)
		}
	case link.SetToken:
		if is(unix.EINVAL, unix.EAFNOSUPPORT) {
			conf := "net.ipv6.conf." + name
			if o.Token.IsUnspecified() {
				// What is read again says whether the kernel lets it go.
				return verdictRetry, say(link.CodeRetry, "sysctl -w "+conf+".accept_ra=2",
					"%s keeps its token of router advertisements while it accepts none (%s)", name, words)
			}
			return verdictGiveUp, say(link.CodeRefused, "check that "+conf+".accept_ra is 2 and "+conf+".router_solicitations not 0, and "+
				checkIPv6(name), "%s refused the token %s of router advertisements (%s)", name, o.Token, words)
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
			return verdictGiveUp, say(link.CodeRefused, "remove GUID=; the GUID of a virtual function is set from its physical function",
				"%s refused the GUID %s (%s)", name, o.Addr.GUID(), words)
		}
	case link.AddChild:
		switch {
		case is(unix.EEXIST):
			return verdictGiveUp, say(link.CodeNameTaken, "write another Name= in [Partition]", "the name %s is taken", name)
		case is(unix.EINVAL):
			return verdictGiveUp, say(link.CodeRefused, "check PartitionKey=",
				"the kernel refused a child with P_Key %s on %s (%s)", o.PKey, o.Parent.Link, words)
		}
	case link.MoveLink:
		ns := link.NamespaceName(o.Namespace)
		switch {
		case is(unix.EEXIST):
			return verdictGiveUp, say(link.CodeNameTaken,
				"write another Name= in [Partition], or "+link.InNamespace(o.Namespace, "link delete "+name),
				"the name %s is taken in network namespace %s", name, ns)
		case is(unix.ENOENT, unix.EINVAL):
			return verdictRetry, say(link.CodeRetry, "check that "+o.Namespace+" is a network namespace",
				"%s was not moved to network namespace %s (%s)", name, ns, words)
		}
	case link.DelMoved:
		if is(unix.ENODEV, unix.EINVAL) {
			return verdictDone, link.Reason{}
		}
	case link.AddBond, link.AddVRF, link.SetMaster:
		if v, why := classifyMaster(op, err, words); why != (link.Reason{}) {
			return v, why
		}
	case link.SetDNS:
		return classifyDNS(name, err)
	case link.SetSysctl:
		if errors.Is(err, unix.ENOENT) {
			return verdictGiveUp, say(link.CodeUnsupported, "remove the key from the unit, or boot a kernel that has /proc/sys/net/"+
				strings.Replace(o.Key,
					"/", "/conf/"+name+"/", 1), "this kernel has no setting %s for %s", o.Key, name)
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
		return verdictGone, say(link.CodeRetry, "will retry; check the links and devices that it names; to do it by hand: "+op.String(),
			"%s failed: a link or device that it names does not exist (%s)", op, words)
	case is(unix.EPERM, unix.EACCES):
		return verdictGiveUp, say(link.CodeRefused,
			"run ibnetworkd as its service does: with CAP_NET_ADMIN, and with /proc/sys and /sys writable",
			"not permitted: %s (%s)", op, words)
	case is(unix.EBUSY, unix.EAGAIN, unix.EINTR, unix.ENOBUFS, unix.ENOMEM, unix.ETIMEDOUT, unix.ENETDOWN):
		return verdictRetry, say(link.CodeRetry, "nothing: will retry", "%s did not succeed yet (%s)", op, words)
	case is(unix.EOPNOTSUPP), errors.Is(err, errors.ErrUnsupported):
		return verdictGiveUp, say(link.CodeUnsupported,
			"remove the key from the unit: the kernel or the driver of "+name+" does not have it", "%s is not supported here (%s)", op, words)
	case is(unix.EINVAL, unix.ERANGE):
		return verdictGiveUp, say(link.CodeRefused,
			"try the command by hand, and read dmesg; then change the value in the unit", "the kernel refused: %s (%s)", op, words)
	}
	return verdictRetry, say(link.CodeRetry, "will retry; to do it by hand: "+op.String(), "%s failed (%s)", op, words)
}

// checkIPv6 is what to do where a link takes nothing of IPv6.
func checkIPv6(name string) string {
	return "check net.ipv6.conf." + name + ".disable_ipv6 and the link's MTU (1280 at least)"
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
