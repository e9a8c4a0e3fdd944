package importer

import (
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
)

// dhcpKey is a key of [DHCPv4] or [DHCPv6], and how the value of a source is read.
// What it reads as empty is the default.
type dhcpKey struct {
	key  string
	read func(string) (value string, ok bool)
}

// Reasons for keys about DHCP.
const (
	whyNoDHCPKey     = "[%s] has no key for it"
	whyAskAlways     = "ibnetworkd sends requests until a server answers"
	whyUnused        = "ibnetworkd uses no host name of a lease without UseHostname=yes"
	whyNetworkdAlone = "netplan gives it to systemd-networkd alone"
	whyNoDHCP        = "for DHCP, which the link does not use"
)

func verbatim(s string) (string, bool) { return s, true }

func decimalNumber(s string) (string, bool) { return decimal(s), number(s) }

// dhcpSetting carries over a key about DHCP by its name in the source.
func (d *draft) dhcpSetting(section string, keys map[string]dhcpKey, name, value string, it *item) {
	k, known := keys[name]
	if !known {
		it.left(fmt.Sprintf(whyNoDHCPKey, section))
		return
	}
	switch v, ok := k.read(value); {
	case !ok:
		it.left(whyValue)
	case v == "":
		it.unneeded("the default")
	default:
		d.set(section, k.key, v, it)
	}
}

// byAdvertisements makes DHCPv6 wait for router advertisements, as systemd-networkd does.
func (d *draft) byAdvertisements(it *item) { d.set("DHCPv6", "WithoutRA", "no", it) }

// hexBytes are bytes in hexadecimal with colons between them, without them.
func hexBytes(s string) (string, bool) {
	if !strings.Contains(s, ":") {
		return "", false
	}
	var out strings.Builder
	for _, b := range strings.Split(s, ":") {
		if len(b) == 0 || len(b) > 2 {
			return "", false
		}
		out.WriteString(strings.Repeat("0", 2-len(b)) + strings.ToLower(b))
	}
	_, err := hex.DecodeString(out.String())
	return out.String(), err == nil
}

// clientID reads a client identifier of NetworkManager or wicked: bytes, or a text, which
// is sent with the type 0. The words that stand for identifiers that ibnetworkd cannot
// make are not read.
func clientID(s string) (string, bool) {
	switch s {
	case "mac":
		return s, true
	case "perm-mac", "duid", "ipv6-duid", "stable", "none", "iaid+duid", "":
		return "", false
	case "ll":
		return "mac", true
	}
	if h, ok := hexBytes(s); ok {
		return "0x" + h, true
	}
	return "0x00" + hex.EncodeToString([]byte(s)), true
}

var duidTypes = map[string]string{"0001": "link-layer-time", "0002": "vendor", "0003": "link-layer", "0004": "uuid"}

// duid carries over an identifier of DHCPv6: a word, or bytes of which the first two are
// the type.
func (d *draft) duid(s string, it *item) {
	if s == "ll" {
		d.set("DHCPv6", "DUIDType", "link-layer", it)
		return
	}
	h, ok := hexBytes(s)
	if !ok || len(h) < 6 || duidTypes[h[:4]] == "" {
		it.left("ibnetworkd cannot make this identifier: write DUIDType= and DUIDRawData= into [DHCPv6] with the one that the server has")
		return
	}
	d.set("DHCPv6", "DUIDType", duidTypes[h[:4]], it)
	d.set("DHCPv6", "DUIDRawData", h[4:], it)
}

// nmClient begins DHCP of IPv4 as NetworkManager does it: the identifier is the type and
// the hardware address if none is given, domains are used unless name servers are not,
// the metric is that of the kind of device (nm_device_get_route_metric_default), and the
// MTU of the lease counts if none is given (NM_DEVICE_MTU_SOURCE_IP_CONFIG in nm-device.c).
func (d *draft) nmClient(hasID, noDNS bool, from ...*item) {
	d.dhcp("ipv4", from...)
	if !hasID {
		d.preset("DHCPv4", "ClientIdentifier", "mac")
	}
	if !noDNS {
		d.preset("DHCPv4", "UseDomains", "yes")
	}
	d.preset("DHCPv4", "RouteMetric", map[bool]string{true: "300", false: "150"}[d.bond])
	d.leaseMTU = true
}

// leaseMTUs makes links use the MTU of a lease where the tool does so by itself.
func (im *importer) leaseMTUs() {
	for _, d := range im.drafts {
		if _, fixed := d.sec("Link").get("MTUBytes"); d.leaseMTU && !fixed {
			d.preset("DHCPv4", "UseMTU", "yes")
		}
	}
}

// unknownMetric notes that the metric of the routes of DHCP depends on a program that no
// file names.
func (im *importer) unknownMetric(d *draft, of string) {
	mode, _ := d.sec("Network").get("DHCP")
	if _, said := d.sec("DHCPv4").get("RouteMetric"); !said && (mode == "ipv4" || mode == "yes") {
		im.note("%s: the metric of the routes of DHCP is that of %s (dhclient: 0): ip route shows it; write it as RouteMetric= into [DHCPv4]",
			d.target(), of)
	}
}

// noAdvertRoutes leaves out the routes of router advertisements. By default the kernel takes
// only default routes of them, and those to the prefixes on the link
// (accept_ra_rt_info_max_plen).
func (d *draft) noAdvertRoutes(set func(key, value string), key string) {
	d.noRoutes = key
	set("UseGateway", "no")
}

// advertMetric sets the metric of default routes of router advertisements.
func advertMetric(set func(key, value string), value string, it *item) {
	switch v, ok := nmMetric(value); {
	case !ok:
		it.left(whyValue)
	case v == "":
		it.unneeded("the default")
	case v == "0":
		it.unneeded("the kernel's, 1024")
	default:
		set("RouteMetric", v)
	}
}

// adverts makes links accept router advertisements where systemd-networkd does so by
// itself: with an IPv6 link-local address, and not as the port of a bond.
func (im *importer) adverts() {
	for _, d := range im.drafts {
		ll, _ := d.sec("Network").get("LinkLocalAddressing")
		_, port := d.sec("Bond").get("Name")
		b, _ := boolean(ll)
		if d.noRoutes != "" {
			im.note("%s: UseGateway=no in [IPv6AcceptRA] is for %s: routes to the prefixes on the link stay", d.target(), d.noRoutes)
		}
		if d.accepts && d.configuresIP() && !port && (ll == "" || b == "yes" || ll == "ipv6") {
			d.preset("Network", "IPv6AcceptRA", "yes")
		}
	}
}

// keyfileDHCP4 and keyfileDHCP6 are keys of NetworkManager's [ipv4] and [ipv6].
var (
	keyfileDHCP4 = map[string]dhcpKey{"dhcp-client-id": {"ClientIdentifier", clientID}, "dhcp-send-hostname": {"SendHostname", nmTernary},
		"dhcp-hostname": {"Hostname", verbatim}, "dhcp-fqdn": {"Hostname", verbatim}, "dhcp-iaid": {"IAID", decimalNumber},
		"dhcp-vendor-class-identifier": {"VendorClassIdentifier", verbatim}, "dhcp-send-release": {"SendRelease", nmTernary}}
	keyfileDHCP6 = map[string]dhcpKey{"dhcp-send-hostname": {"SendHostname", nmTernary}, "dhcp-hostname": {"Hostname", verbatim},
		"dhcp-iaid": {"IAID", decimalNumber}, "dhcp-send-release": {"SendRelease", nmTernary}}
)

// nmTernary reads a boolean of NetworkManager of which -1 is the default.
func nmTernary(s string) (string, bool) {
	if s == "-1" || s == "default" {
		return "", true
	}
	return keyfileBool(s)
}

// keyfileDHCP carries over a key dhcp-* of [ipv4] or [ipv6].
func keyfileDHCP(d *draft, e *entry) {
	section, keys := "DHCPv4", keyfileDHCP4
	if e.section == "ipv6" {
		section, keys = "DHCPv6", keyfileDHCP6
	}
	switch {
	case e.key == "dhcp-timeout":
		e.unneeded(whyAskAlways)
	case e.key == "dhcp-duid" && e.section == "ipv6":
		d.duid(e.value, e.item)
	case e.key == "dhcp-reject-servers" && e.section == "ipv4":
		for _, x := range strings.FieldsFunc(e.value, func(r rune) bool { return r == ';' || r == ',' || r == ' ' }) {
			d.sec("DHCPv4").add("DenyList", x, e.item)
		}
	case e.key == "dhcp-iaid" && !number(e.value):
		e.left("ibnetworkd makes the number of the name of the interface: write IAID= into [" + section + "] with the one that the server has")
	case e.key == "dhcp-client-id" && !readable(clientID, e.value):
		e.left("ibnetworkd cannot make this identifier: write ClientIdentifier= into [DHCPv4] with the one that the server has")
	default:
		d.dhcpSetting(section, keys, e.key, e.value, e.item)
	}
}

func readable(read func(string) (string, bool), s string) bool {
	_, ok := read(s)
	return ok
}

// ifcfgDHCP4 and ifcfgDHCP6 are keys of RHEL's ifcfg.
var (
	ifcfgDHCP4 = map[string]dhcpKey{"DHCP_HOSTNAME": {"Hostname", verbatim}, "DHCP_FQDN": {"Hostname", verbatim},
		"DHCP_SEND_HOSTNAME": {"SendHostname", ifcfgBool}, "DHCP_CLIENT_ID": {"ClientIdentifier", clientID},
		"DHCP_VENDOR_CLASS_IDENTIFIER": {"VendorClassIdentifier", verbatim}, "DHCP_IAID": {"IAID", decimalNumber}}
	ifcfgDHCP6 = map[string]dhcpKey{"DHCPV6_HOSTNAME": {"Hostname", verbatim}, "DHCPV6_SEND_HOSTNAME": {"SendHostname", ifcfgBool},
		"DHCPV6_IAID": {"IAID", decimalNumber}}
)

// isIfcfgDHCP reports the keys about DHCP but those that ask for it.
func isIfcfgDHCP(key string) bool {
	return strings.HasPrefix(key, "DHCP_") || strings.HasPrefix(key, "DHCPV6_") || key == "IPV4_DHCP_TIMEOUT" ||
		key == "IPV6_DHCP_TIMEOUT" || key == "PERSISTENT_DHCLIENT"
}

// ifcfgDHCPKey carries over a key about DHCP.
func ifcfgDHCPKey(d *draft, v variables, a *variable) {
	six := strings.HasPrefix(a.key, "DHCPV6_") || strings.HasPrefix(a.key, "IPV6")
	switch {
	case !six && !ifcfgDHCP(v), six && !ifcfgYes(v.get("DHCPV6C")) && !ifcfgAdverts(d, v):
		a.unneeded(whyNoDHCP)
	case strings.HasSuffix(a.key, "_TIMEOUT"), a.key == "PERSISTENT_DHCLIENT":
		a.unneeded(whyAskAlways)
	case a.key == "DHCPV6_DUID":
		d.duid(a.value, a.item)
	case a.key == "DHCP_CLIENT_ID" && !readable(clientID, a.value):
		a.left("ibnetworkd cannot make this identifier: write ClientIdentifier= into [DHCPv4] with the one that the server has")
	case six:
		d.dhcpSetting("DHCPv6", ifcfgDHCP6, a.key, a.value, a.item)
	default:
		d.dhcpSetting("DHCPv4", ifcfgDHCP4, a.key, a.value, a.item)
	}
}

// netplanDHCP4 and netplanDHCP6 are keys of dhcp4-overrides and dhcp6-overrides.
var (
	netplanDHCP4 = map[string]dhcpKey{"use-dns": {"UseDNS", boolean}, "use-domains": {"UseDomains", boolOrRoute},
		"use-ntp": {"UseNTP", boolean}, "use-mtu": {"UseMTU", boolean}, "use-routes": {"UseRoutes", boolean},
		"use-hostname": {"UseHostname", boolean}, "route-metric": {"RouteMetric", decimalNumber},
		"send-hostname": {"SendHostname", boolean}, "hostname": {"Hostname", verbatim}}
	netplanDHCP6 = map[string]dhcpKey{"use-dns": {"UseDNS", boolean}, "use-ntp": {"UseNTP", boolean},
		"use-domains":   {"UseDomains", boolOrRoute},
		"send-hostname": {"SendHostname", boolean}, "hostname": {"Hostname", verbatim}}
)

func boolOrRoute(s string) (string, bool) {
	if s == "route" {
		return s, true
	}
	return boolean(s)
}

// netplanDHCP carries over a key about DHCP of a device.
func netplanDHCP(d *draft, all *netplanDevice, n *ynode) {
	on := func(key string) bool { return yes(all.str(key)) }
	switch n.key {
	case "dhcp4", "dhcp6":
		switch b, ok := boolean(n.value); {
		case !ok:
			n.left(whyValue)
		case b == "no":
			n.unneeded("the default")
		case n.key == "dhcp4" && all.manager == "NetworkManager":
			d.nmClient(false, isNo(all.str("dhcp4-overrides", "use-dns")), n.it)
		case n.key == "dhcp4":
			d.dhcp("ipv4", n.it)
		default:
			d.dhcp("ipv6", n.it)
			d.byAdvertisements(n.it)
			if all.manager == "NetworkManager" {
				d.preset("Network", "IPv6AcceptRA", "yes") // method=auto
				if !isNo(all.str("dhcp6-overrides", "use-dns")) {
					d.preset("DHCPv6", "UseDomains", "yes")
				}
			}
		}
	case "dhcp-identifier":
		switch {
		case !on("dhcp4"):
			n.unneeded(whyNoDHCP)
		case all.manager == "NetworkManager":
			n.unneeded(whyNetworkdAlone)
		case n.value == "mac" || n.value == "duid":
			d.set("DHCPv4", "ClientIdentifier", n.value, n.it)
		default:
			n.left(whyValue)
		}
	default:
		family := strings.TrimSuffix(n.key, "-overrides")
		section, keys := "DHCPv4", netplanDHCP4
		if family == "dhcp6" {
			section, keys = "DHCPv6", netplanDHCP6
		}
		for _, k := range n.kids {
			b, isBool := boolean(k.value)
			unused := isBool && b == "no" && k.key == "use-hostname" && section == "DHCPv6"
			switch _, known := keys[k.key]; {
			case !on(family) && (known || unused):
				k.unneeded(whyNoDHCP)
			case unused:
				k.unneeded(whyUnused)
			default:
				d.dhcpSetting(section, keys, k.key, k.value, k.it)
			}
		}
	}
}

// netplanClient is what netplan writes for systemd-networkd without overrides, and what
// that does by itself.
func (d *draft) netplanClient(dev *netplanDevice) {
	if yes(dev.str("dhcp4")) {
		d.preset("DHCPv4", "RouteMetric", "100")
		d.leaseMTU = true
	}
	d.accepts = true
}

// isNo reports a boolean that is not yes, nor left to its default.
func isNo(s string) bool {
	b, ok := boolean(s)
	return ok && b != "yes"
}

// nmstateDHCP carries over a key about DHCP of a family of a link; n is the family, k
// the key.
func nmstateDHCP(d *draft, n, k *ynode) {
	six := n.key == "ipv6"
	b, isBool := boolean(k.value)
	switch {
	case k.key == "dhcp" && !isBool:
		k.left(whyValue)
	case k.key == "dhcp" && b == "no":
		k.unneeded("the default")
	case k.key == "dhcp" && !six:
		d.nmClient(n.get("dhcp-client-id") != nil, isNo(n.str("auto-dns")), k.it)
	case k.key == "dhcp":
		d.dhcp("ipv6", k.it)
		if yes(n.str("autoconf")) {
			d.byAdvertisements(k.it)
		}
		if !isNo(n.str("auto-dns")) {
			d.preset("DHCPv6", "UseDomains", "yes")
		}
	case six && yes(n.str("autoconf")) && k.key == "auto-route-metric":
		advertMetric(func(key, value string) { d.set("IPv6AcceptRA", key, value, k.it) }, k.value, k.it)
	case six && yes(n.str("autoconf")) && k.key == "auto-route-table-id":
		k.left(whyRATable)
	case !yes(n.str("dhcp")):
		k.unneeded(whyAutomatic)
	case k.key == "dhcp-duid":
		d.duid(k.value, k.it)
	case k.key == "dhcp-client-id" && !readable(clientID, k.value):
		k.left("ibnetworkd cannot make this identifier: write ClientIdentifier= into [DHCPv4] with the one that the server has")
	case six && (k.key == "auto-route-table-id" || k.key == "auto-route-metric"):
		k.unneeded("DHCPv6 brings no routes")
	default:
		d.dhcpSetting(map[bool]string{true: "DHCPv6", false: "DHCPv4"}[six], map[string]dhcpKey{"dhcp-send-hostname": {"SendHostname", boolean},
			"dhcp-custom-hostname": {"Hostname", verbatim}, "dhcp-client-id": {"ClientIdentifier", clientID},
			"auto-route-table-id": {"RouteTable", notZero}, "auto-route-metric": {"RouteMetric", decimalNumber}}, k.key, k.value, k.it)
	}
}

// nmMetric reads a metric of which -1 is the default.
func nmMetric(s string) (string, bool) {
	if s == "-1" {
		return "", true
	}
	return decimalNumber(s)
}

// notZero reads a table of which 0 is the default.
func notZero(s string) (string, bool) {
	s, ok := decimalNumber(s)
	if s == "0" {
		s = ""
	}
	return s, ok
}

// wickedDHCP4 are keys of SUSE's ifcfg (ifcfg-dhcp(5)).
var wickedDHCP4 = map[string]dhcpKey{"DHCLIENT_CLIENT_ID": {"ClientIdentifier", clientID},
	"DHCLIENT_SET_HOSTNAME":      {"UseHostname", boolean},
	"DHCLIENT_ROUTE_PRIORITY":    {"RouteMetric", decimalNumber},
	"DHCLIENT_SET_DEFAULT_ROUTE": {"UseGateway", boolean}, "DHCLIENT_VENDOR_CLASS_ID": {"VendorClassIdentifier", verbatim},
	"DHCLIENT_RELEASE_BEFORE_QUIT": {"SendRelease", boolean}, "DHCLIENT_HOSTNAME_OPTION": {"Hostname", autoName}}

// wickedModes are words of DHCLIENT6_MODE= and of WithoutRA=; others are as auto, which
// leaves it to router advertisements.
var wickedModes = map[string]string{"managed": "solicit", "info": "information-request"}

func autoName(s string) (string, bool) {
	if s == "AUTO" {
		return "", true
	}
	return s, s != ""
}

// wickedDHCP carries over BOOTPROTO= or a key about DHCP.
func wickedDHCP(d *draft, v variables, a *variable) {
	protos := strings.Split(strings.TrimSpace(v.get("BOOTPROTO")), "+")
	for i := range protos {
		protos[i] = strings.TrimSpace(protos[i])
	}
	four, six := slices.Contains(protos, "dhcp4"), slices.Contains(protos, "dhcp6")
	if slices.Contains(protos, "dhcp") {
		four, six = true, true
	}
	switch {
	case a.key == "BOOTPROTO":
		for _, p := range protos {
			switch it := a.part(p); p {
			case "dhcp":
				d.dhcp("ipv4", it)
				d.dhcp("ipv6", it)
			case "dhcp4":
				d.dhcp("ipv4", it)
			case "dhcp6":
				d.dhcp("ipv6", it)
			case "static", "none":
				it.unneeded("addresses are written one by one")
			case "autoip":
				if four {
					it.left(whyFallback)
				} else {
					d.linkLocal4(it)
				}
			default:
				it.left("no method that ibnetworkd has")
			}
		}
		if six && wickedModes[v.get("DHCLIENT6_MODE")] == "" {
			d.byAdvertisements(a.parts[0])
		}
		if four {
			d.preset("DHCPv4", "RouteMetric", "0") // wicked's without DHCLIENT_ROUTE_PRIORITY=
		}
	case a.key == "DHCLIENT6_MODE":
		switch {
		case !six:
			a.unneeded(whyNoDHCP)
		case a.value == "auto" || a.value == "":
			a.unneeded("the default")
		case wickedModes[a.value] == "":
			a.left("not a mode of wicked, which uses auto then")
		default:
			d.set("DHCPv6", "WithoutRA", wickedModes[a.value], a.item)
		}
	case !four && !(six && strings.HasPrefix(a.key, "DHCLIENT6")):
		a.unneeded(whyNoDHCP)
	case strings.HasPrefix(a.key, "DHCLIENT6"):
		d.dhcpSetting("DHCPv6", nil, a.key, a.value, a.item)
	case a.value == "":
		a.unneeded("it is empty")
	case a.key == "DHCLIENT_SET_HOSTNAME":
		if b, ok := boolean(a.value); ok && b == "no" {
			a.unneeded(whyUnused)
		} else {
			d.dhcpSetting("DHCPv4", wickedDHCP4, a.key, a.value, a.item)
		}
	default:
		d.dhcpSetting("DHCPv4", wickedDHCP4, a.key, a.value, a.item)
	}
}

// networkdModes are the words of DHCP= of older versions.
var networkdModes = map[string]string{"both": "yes", "v4": "ipv4", "v6": "ipv6", "none": "no"}

// networkdDHCP carries over DHCP= of systemd-networkd, which begins DHCPv6 by router
// advertisements unless WithoutRA= says otherwise.
func networkdDHCP(d *draft, e *entry, all []*entry) {
	mode := e.value
	if b, ok := boolean(mode); ok {
		mode = b
	} else if m := networkdModes[mode]; m != "" {
		mode = m
	}
	if mode == "no" {
		e.unneeded("the default")
		return
	}
	d.set("Network", "DHCP", mode, e.item)
	said := func(x *entry) bool { return x.section == "DHCPv6" && x.key == "WithoutRA" }
	if (mode == "yes" || mode == "ipv6") && !slices.ContainsFunc(all, said) {
		d.byAdvertisements(e.item)
	}
}

// bothFamilies are keys of [DHCP] that count for DHCPv6 too, unless [DHCPv6] has them.
var bothFamilies = map[string]bool{"UseDNS": true, "UseDomains": true, "UseNTP": true, "SendHostname": true}

// networkdClient is the section of a unit that a key of [DHCP], [DHCPv4] or [DHCPv6] is
// for, nil if nothing is left to do. A key that counts for both families is set in [DHCPv6]
// as well: those of [DHCP], and IAID= (config_parse_iaid).
func networkdClient(d *draft, e *entry, all []*entry, four, six bool) *section {
	has := func(section string) bool {
		return slices.ContainsFunc(all, func(x *entry) bool { return x.section == section && x.key == e.key && x.value != "" })
	}
	own := e.section == "DHCPv6"
	both := e.section == "DHCP" && bothFamilies[e.key] || !own && e.key == "IAID"
	four = four && !own && !(e.section == "DHCP" && has("DHCPv4"))
	six = six && (own || both && !has("DHCPv6"))
	switch b, ok := boolean(e.value); {
	case !four && !six:
		e.unneeded("for DHCP and router advertisements")
		return nil
	case ok && b == "no" && e.key == "UseHostname":
		e.unneeded(whyUnused)
		return nil
	case own && e.key == "WithoutRA" && e.value == "": // the default
		d.byAdvertisements(e.item)
		return nil
	case !four:
		return d.sec("DHCPv6")
	case six && e.value != "":
		d.set("DHCPv6", e.key, e.value, e.item)
	}
	return d.sec("DHCPv4")
}

// configuresIP reports whether a draft has more than the link itself.
func (d *draft) configuresIP() bool {
	return slices.ContainsFunc(d.ordered(), func(s *section) bool {
		return slices.Contains([]string{"Network", "IPv6AcceptRA", "Address", "Route", "RoutingPolicyRule", "Neighbor", "NextHop"}, s.name)
	})
}

// dhcpOptions are the options of the method dhcp beside metric.
var dhcpOptions = map[string]bool{"hostname": true, "vendor": true, "client": true, "leasetime": true, "leasehours": true}

// ifaceDHCP carries over an option of a stanza with the method dhcp (interfaces(5)).
func ifaceDHCP(d *draft, o *variable) {
	d.dhcpSetting("DHCPv4", map[string]dhcpKey{"hostname": {"Hostname", verbatim}, "vendor": {"VendorClassIdentifier", verbatim},
		"client": {"ClientIdentifier", clientID}, "metric": {"RouteMetric", decimalNumber}}, o.key, o.value, o.item)
}
