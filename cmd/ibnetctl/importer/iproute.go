package importer

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// routeWords are the words of ip route and the keys of [Route].
var routeWords = map[string]string{
	"via": "Gateway", "metric": "Metric", "preference": "Metric", "priority": "Metric", "table": "Table", "src": "PreferredSource",
	"scope": "Scope", "nhid": "NextHop",
	"proto": "Protocol", "protocol": "Protocol", "mtu": "MTUBytes", "initcwnd": "InitialCongestionWindow",
	"initrwnd": "InitialAdvertisedReceiveWindow",
	"advmss":   "TCPAdvertisedMaximumSegmentSize", "congctl": "TCPCongestionControlAlgorithm", "hoplimit": "HopLimit",
	"pref": "IPv6Preference", "from": "Source",
	"rto_min": "TCPRetransmissionTimeoutSec", "quickack": "QuickAck", "fastopen_no_cookie": "FastOpenNoCookie",
}

var routeTypes = []string{"unicast", "local", "broadcast", "anycast", "multicast", "blackhole", "unreachable", "prohibit", "throw"}

// ipRoute reads the arguments of ip route add. why is not empty for a route that
// a [Route] section cannot say.
func ipRoute(w []string, six bool) (dev string, dirs [][2]string, why string) {
	for _, v := range w {
		six = six || strings.Contains(v, ":")
	}
	dst := ""
	for i := 0; i < len(w); i++ {
		k := w[i]
		arg := func() (string, bool) {
			if i+1 >= len(w) {
				return "", false
			}
			i++
			return w[i], true
		}
		key, known := routeWords[k]
		switch {
		case slices.Contains(routeTypes, k) && dst == "":
			if k != "unicast" {
				dirs = append(dirs, [2]string{"Type", k})
			}
		case k == "to" && dst == "":
			continue
		case dst == "":
			if dst = k; dst == "default" || dst == "any" || dst == "all" || dst == "0/0" {
				dst = "0.0.0.0/0"
				if six {
					dst = "::/0"
				}
			}
			p, err := prefix(dst)
			if err != nil {
				return "", nil, whyValue
			}
			dirs = append([][2]string{{"Destination", p.Masked().String()}}, dirs...)
		case k == "dev" || k == "oif":
			v, ok := arg()
			if !ok {
				return "", nil, whyValue
			}
			dev = v
		case k == "onlink":
			dirs = append(dirs, [2]string{"GatewayOnLink", "yes"})
		case k == "nexthop":
			v := ""
			for i+1 < len(w) && w[i+1] != "nexthop" {
				i++
				if i+1 >= len(w) {
					return "", nil, whyValue
				}
				switch w[i] {
				case "via":
					v = w[i+1] + v
				case "dev":
					if h, rest, ok := strings.Cut(v, " "); ok {
						v = h + "@" + w[i+1] + " " + rest
					} else {
						v += "@" + w[i+1]
					}
				case "weight":
					v += " " + w[i+1]
				default:
					return "", nil, fmt.Sprintf("[Route] has no key for %q of a next hop", w[i])
				}
				i++
			}
			dirs = append(dirs, [2]string{"MultiPathRoute", v})
		case known:
			v, ok := arg()
			if !ok {
				return "", nil, whyValue
			}
			switch {
			case k == "mtu" && v == "lock":
				return "", nil, "[Route] has no key for a locked MTU"
			case k == "via" && (v == "inet" || v == "inet6"):
				if v, ok = arg(); !ok {
					return "", nil, whyValue
				}
			case k == "via" && unspecified(v):
				continue // as without it
			case k == "quickack" || k == "fastopen_no_cookie":
				if v, ok = boolean(v); !ok {
					return "", nil, whyValue
				}
			}
			dirs = append(dirs, [2]string{key, v})
		default:
			return "", nil, fmt.Sprintf("[Route] has no key for %q", k)
		}
	}
	if dst == "" {
		return "", nil, "a route without a destination"
	}
	for i, x := range dirs {
		if slices.ContainsFunc(dirs[:i], func(y [2]string) bool { return y[0] == x[0] && x[0] != "MultiPathRoute" }) {
			return "", nil, fmt.Sprintf("%s= is given twice", x[0])
		}
	}
	return dev, dirs, ""
}

// prefix reads an address with or without a length.
func prefix(s string) (netip.Prefix, error) {
	if a, err := netip.ParseAddr(s); err == nil {
		return netip.PrefixFrom(a, a.BitLen()), nil
	}
	return netip.ParsePrefix(s)
}

// ipNextHop reads the arguments of ip nexthop add. why is not empty for a nexthop that a
// [NextHop] section cannot say.
func ipNextHop(w []string, six bool) (id, dev string, group []string, dirs [][2]string, why string) {
	family := six
	for i := 0; i < len(w); i++ {
		k := w[i]
		switch k {
		case "onlink":
			dirs = append(dirs, [2]string{"OnLink", "yes"})
			continue
		case "blackhole":
			dirs = append(dirs, [2]string{"Blackhole", "yes"})
			continue
		}
		if i++; i >= len(w) {
			return "", "", nil, nil, whyValue
		}
		switch v := w[i]; k {
		case "id":
			id = v
		case "dev":
			dev = v
		case "via":
			if (v == "inet" || v == "inet6") && i+1 < len(w) {
				i++
				v = w[i]
			}
			dirs, family = append(dirs, [2]string{"Gateway", v}), false
		case "group":
			for m := range strings.SplitSeq(v, "/") {
				member, _, _ := strings.Cut(m, ",")
				group = append(group, member)
			}
			dirs, family = append(dirs, [2]string{"Group", strings.NewReplacer("/", " ", ",", ":").Replace(v)}), false
		case "type":
			if v != "mpath" {
				return "", "", nil, nil, "[NextHop] has no key for groups of type " + v
			}
		case "proto", "protocol":
			if v != "static" {
				return "", "", nil, nil, "a nexthop of protocol " + v + "; those of units are of protocol static"
			}
		default:
			return "", "", nil, nil, fmt.Sprintf("[NextHop] has no key for %q", k)
		}
	}
	if id == "" {
		return "", "", nil, nil, "a nexthop whose ID the kernel chooses; write [NextHop] with an Id= into the unit of its link"
	}
	if family {
		dirs = append(dirs, [2]string{"Family", "ipv6"})
	}
	return id, dev, group, append([][2]string{{"Id", id}}, dirs...), ""
}

// ruleWords are the words of ip rule and the keys of [RoutingPolicyRule].
var ruleWords = map[string]string{
	"from": "From", "to": "To", "table": "Table", "lookup": "Table", "priority": "Priority", "pref": "Priority",
	"preference": "Priority", "order": "Priority",
	"iif": "IncomingInterface", "dev": "IncomingInterface", "oif": "OutgoingInterface", "fwmark": "FirewallMark",
	"tos": "TypeOfService", "dsfield": "TypeOfService",
	"ipproto": "IPProtocol", "sport": "SourcePort", "dport": "DestinationPort", "uidrange": "User",
	"suppress_prefixlength": "SuppressPrefixLength",
	"sup_pl":                "SuppressPrefixLength", "suppress_ifgroup": "SuppressInterfaceGroup", "goto": "GoTo",
}

// ipRule reads the arguments of ip rule add. why is not empty for a rule that
// a [RoutingPolicyRule] section cannot say.
func ipRule(w []string, six bool) (dirs [][2]string, why string) {
	ends := false
	for i := 0; i < len(w); i++ {
		k := w[i]
		key, known := ruleWords[k]
		switch {
		case k == "not":
			dirs = append(dirs, [2]string{"InvertRule", "yes"})
		case k == "l3mdev":
			dirs = append(dirs, [2]string{"L3MasterDevice", "yes"})
		case k == "blackhole" || k == "unreachable" || k == "prohibit" || k == "nop":
			dirs = append(dirs, [2]string{"Type", k})
		case k == "type" && i+1 < len(w):
			i++
			dirs = append(dirs, [2]string{"Type", w[i]})
		case known && i+1 < len(w):
			i++
			v := w[i]
			if (k == "from" || k == "to") && (v == "all" || v == "any" || v == "default") {
				continue
			}
			if k == "from" || k == "to" {
				p, err := prefix(v)
				if err != nil {
					return nil, whyValue
				}
				ends, six = true, six || p.Addr().Is6()
			}
			if k == "goto" {
				dirs = append(dirs, [2]string{"Type", "goto"})
			}
			if key == "TypeOfService" && strings.HasPrefix(v, "0x") {
				return nil, "a type of service in hexadecimal; write it as a number into TypeOfService="
			}
			dirs = append(dirs, [2]string{key, v})
		default:
			return nil, fmt.Sprintf("[RoutingPolicyRule] has no key for %q", k)
		}
	}
	if six && !ends {
		dirs = append(dirs, [2]string{"Family", "ipv6"})
	}
	if len(dirs) == 0 {
		return nil, whyValue
	}
	return dirs, ""
}
