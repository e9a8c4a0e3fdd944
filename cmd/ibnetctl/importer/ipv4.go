package importer

import (
	"slices"
	"strconv"
	"strings"
)

const (
	whyNoIPv4    = "for IPv4 addresses, which the link does not have"
	whyNoProbes  = "IPv4 addresses are not probed unless a unit asks for it"
	whyFallback  = "a unit has no address for when DHCP fails: LinkLocalAddressing=ipv4 in [Network] is one beside that of DHCP"
	whyNotProbed = "an IPv4 address is announced where it is probed: write DuplicateAddressDetection=both into [Network]"
)

// linkLocal4 notes that the link has an IPv4 link-local address.
func (d *draft) linkLocal4(from ...*item) { d.local4 = append(d.local4, from...) }

// probe4 notes that the IPv4 addresses of the link are probed before use.
func (d *draft) probe4(from ...*item) { d.probes4 = append(d.probes4, from...) }

// dadTimeout carries over how long NetworkManager probes an IPv4 address.
func (d *draft) dadTimeout(value string, it *item) {
	switch n, err := strconv.Atoi(value); {
	case err != nil || n < -1:
		it.left(whyValue)
	case n == -1:
		it.unneeded("the default")
	case n == 0:
		it.unneeded(whyNoProbes)
	default:
		d.probe4(it)
	}
}

// keyfileLinkLocal carries over ipv4.link-local (NMSettingIP4LinkLocal): a number or a word.
func keyfileLinkLocal(d *draft, e *entry, by map[string]*entry) {
	switch e.value {
	case "0", "1", "default", "auto":
		e.unneeded("the default")
	case "2", "disabled":
		e.unneeded("the link gets no IPv4 link-local address unless a unit asks for it")
	case "3", "enabled":
		if by["ipv4.method"].value == "disabled" { // of NetworkManager.conf: in a profile it is an error
			e.left("not used: method=disabled has no addresses and routes")
			return
		}
		d.linkLocal4(e.item)
	case "4", "fallback":
		e.left(whyFallback)
	default:
		e.left(whyValue)
	}
}

// ipv4 writes what the lines about IPv4 link-local addresses and probes come to.
func (im *importer) ipv4() {
	for _, d := range im.drafts {
		d.writeLinkLocal4()
		d.writeProbes4()
	}
}

func (d *draft) writeLinkLocal4() {
	if len(d.local4) == 0 {
		return
	}
	ll := d.sec("Network").keys["LinkLocalAddressing"]
	switch {
	case ll == nil:
		d.set("Network", "LinkLocalAddressing", "yes", d.local4...) // the IPv6 one is the default
		return
	case ll.value == "no":
		ll.value = "ipv4"
	case ll.value == "ipv6":
		ll.value = "yes"
	}
	ll.from = append(ll.from, d.local4...)
}

func (d *draft) writeProbes4() {
	if len(d.probes4) == 0 {
		return
	}
	set, dhcp := len(d.local4) > 0, d.sec("Network").keys["DHCP"]
	d.each(func(_ *section, x *directive) {
		set = set || x.key == "Address" && !strings.Contains(x.value, ":")
	})
	lease := dhcp != nil && slices.Contains([]string{"ipv4", "yes"}, dhcp.value)
	if set {
		d.set("Network", "DuplicateAddressDetection", "both", d.probes4...)
	}
	if lease {
		d.set("DHCPv4", "SendDecline", "yes", d.probes4...)
	}
	if !set && !lease {
		for _, it := range d.probes4 {
			it.unneeded(whyNoIPv4)
		}
	}
}

// ifcfgProbes carries over NetworkManager's keys of how long an address is probed, in
// milliseconds or seconds.
func ifcfgProbes(d *draft, v variables, a *variable) {
	switch {
	case d.nm.others:
		a.left(whyUnknown)
	case a.key == "ARPING_WAIT" && v.by["ACD_TIMEOUT"] != nil:
		a.superseded("ACD_TIMEOUT", v.get("ACD_TIMEOUT"))
	default:
		d.dadTimeout(a.value, a.item)
	}
}

// wickedProbes carries over the keys about probes of ifcfg(5) of wicked.
func wickedProbes(d *draft, v variables, a *variable) {
	check := yes(v.get("CHECK_DUPLICATE_IP"))
	switch b, ok := boolean(a.value); {
	case a.value == "":
		a.unneeded("it is empty")
	case !ok && (a.key != "SEND_GRATUITOUS_ARP" || a.value != "auto"):
		a.left(whyValue)
	case b == "no" && a.key == "CHECK_DUPLICATE_IP":
		a.unneeded(whyNoProbes)
	case a.key == "SEND_GRATUITOUS_ARP" && (b != "yes" || check):
		a.unneeded("addresses are announced where they are probed")
	case a.key == "CHECK_DUPLICATE_IP":
		d.probe4(a.item)
	default:
		a.left(whyNotProbed)
	}
}
