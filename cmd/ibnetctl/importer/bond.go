package importer

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// A bond of IPoIB links is a draft with the IP part and, until bonds, with [Bond];
// a port is a draft that has Name= in [Bond].

// port is the name of a port, or of what a link is a port of, with the line that
// says so.
type port struct {
	name string
	it   *item
}

// bondKeys are the options of the kernel's bonding driver, and their keys in [Bond].
var bondKeys = map[string]string{"mode": "Mode", "primary": "Primary", "miimon": "MIIMonitorSec", "updelay": "UpDelaySec",
	"downdelay": "DownDelaySec", "fail_over_mac": "FailOverMACPolicy", "xmit_hash_policy": "TransmitHashPolicy",
	"lacp_rate": "LACPTransmitRate", "ad_select": "AdSelect", "min_links": "MinLinks"}

// bondAliases are the names that netplan has for options of the driver.
var bondAliases = map[string]string{"mii_monitor_interval": "miimon", "up_delay": "updelay", "down_delay": "downdelay",
	"fail_over_mac_policy": "fail_over_mac", "transmit_hash_policy": "xmit_hash_policy", "arp_interval": "arp_interval",
	"arp_ip_targets": "arp_ip_target", "primary_reselect_policy": "primary_reselect"}

// whyOwnPorts is why nothing has to be done for what a bond does with its ports.
const whyOwnPorts = "the ports have units of their own"

// bondModes are the modes by their numbers (if_bonding.h).
var bondModes = []string{"balance-rr", "active-backup", "balance-xor", "broadcast", "802.3ad", "balance-tlb", "balance-alb"}

// bondOption carries over an option of a bond by its name in the driver or in
// netplan. A time without a unit is in milliseconds.
func (d *draft) bondOption(name, value string, it *item) {
	name = strings.ReplaceAll(name, "-", "_")
	name = cmp.Or(bondAliases[name], name)
	key := bondKeys[name]
	switch name {
	case "mode":
		if len(value) == 1 && value >= "0" && value <= "6" {
			value = bondModes[value[0]-'0']
		}
	case "fail_over_mac":
		switch value {
		case "1", "active":
			value = "active"
		case "0", "none", "2", "follow":
			it.unneeded("the kernel has active alone for IPoIB links, whatever is set")
			return
		default:
			it.left(whyValue)
			return
		}
	case "miimon":
		if strings.Trim(value, "0") == "" {
			it.left("a bond of ibnetworkd reads the carriers of its ports in any case, see MIIMonitorSec= of [Bond]")
			return
		}
	case "arp_interval", "arp_ip_target", "arp_validate", "arp_all_targets":
		it.left("[Bond] has no monitoring by ARP: MIIMonitorSec= of [Bond] reads the carriers instead")
		return
	case "primary_reselect":
		if value == "always" || value == "0" {
			it.unneeded("the default")
			return
		}
	}
	switch {
	case key == "":
		it.left("[Bond] has no key for this option")
		return
	case number(value) && strings.HasSuffix(key, "Sec"):
		value = decimal(value) + "ms"
	}
	d.set("Bond", key, value, it)
}

// bondOptions carries over the options of a bond in one value: NAME=VALUE, with
// blanks or commas between them.
func (d *draft) bondOptions(value string, it *item) {
	for _, w := range strings.Fields(value) {
		name, x, _ := strings.Cut(w, "=")
		d.bondOption(name, x, it.part(w))
	}
	if value == "" {
		it.unneeded("it is empty")
	}
}

// master makes the draft that of a port of something, which bonds finds to be a bond
// or not.
func (d *draft) master(of string, from ...*item) { d.set("Bond", "Name", of, from...) }

// bonds gives the options of bonds to the units of their ports, and reports the
// bonds and ports that no unit can be made of.
func (im *importer) bonds() {
	for _, b := range slices.Clone(im.drafts) {
		for _, p := range b.slaves {
			if im.index[p.name] != nil || isIB(p.name) && validName(p.name) {
				im.find(p.name, b.files[0]).master(b.link, p.it)
			} else {
				p.it.left(whyNotIB)
			}
		}
	}
	ports := map[string][]*draft{}
	for _, d := range im.drafts {
		if m, ok := d.sec("Bond").get("Name"); ok {
			ports[m] = append(ports[m], d)
		}
	}
	refused := map[*draft]string{}
	for _, b := range im.drafts {
		if !b.bond {
			continue
		}
		own := ports[b.link]
		delete(ports, b.link)
		if b.nm != nil && b.nm.uuid != "" { // NetworkManager knows a bond by its UUID as well
			own = append(own, ports[b.nm.uuid]...)
			delete(ports, b.nm.uuid)
		}
		own = slices.DeleteFunc(own, func(p *draft) bool { return p.bond }) // refused as a port
		mode, _ := b.sec("Bond").get("Mode")
		why := ""
		of, isPort := b.sec("Bond").get("Name")
		switch {
		case len(own) == 0:
			refused[b] = whyNotIB + ": no port of the bond is one in these files"
			continue
		case mode != "active-backup":
			why = b.link + " has the mode " + cmp.Or(mode, "balance-rr, the default") + ", but the kernel bonds IPoIB links in mode " +
				"active-backup only: set that mode, and import the files again"
		case isPort:
			why = fmt.Sprintf(whyPort, b.link, of)
		}
		if why != "" {
			refused[b] = why
		}
		for _, p := range own {
			if why != "" {
				refused[p] = why
				continue
			}
			if refused[p] == "" { // not a bond that is a port itself
				b.lend(p)
			}
		}
		b.sec("Bond").dirs, b.sec("Bond").keys = nil, nil
		s := b.sec("Link")
		s.dirs = slices.DeleteFunc(s.dirs, func(x *directive) bool { return x.key == "MTUBytes" })
	}
	for _, d := range im.drafts {
		if d.child == nil {
			continue
		}
		if b := im.index[d.child.parent]; b != nil && b.bond && refused[b] == "" {
			refused[d] = "a P_Key interface of the bond " + b.link + ", which the kernel does not have: make one on each port and bond those"
		}
	}
	for m, list := range ports {
		for _, p := range list {
			refused[p] = fmt.Sprintf(whyPort, p.subject(), m)
		}
	}
	im.drafts = slices.DeleteFunc(im.drafts, func(d *draft) bool {
		why, bad := refused[d]
		if bad {
			if d.refuse != nil {
				d.refuse(why)
			}
			d.drop(why)
			if im.index[d.link] == d {
				delete(im.index, d.link)
			}
		}
		return bad
	})
}

// lend gives a port what its unit says of the bond: the options, and the MTU, which
// a bond has of its ports.
func (b *draft) lend(p *draft) {
	p.sec("Bond").keys["Name"].value = b.link
	p.sweep(func(s *section, x *directive) bool {
		return s.name == "DHCPv4" || s.name == "DHCPv6" || s.name == "Network" && x.key == "DHCP"
	}, "not used: "+p.subject()+" is a port of "+b.link+", which has the addresses")
	for _, x := range b.sec("Bond").dirs {
		p.set("Bond", x.key, x.value, x.from...)
	}
	for _, x := range b.sec("Link").dirs {
		if own, ok := p.sec("Link").get("MTUBytes"); x.key != "MTUBytes" {
			continue
		} else if ok && own != x.value {
			leftAll(x.from, "not used: "+p.subject()+" has another MTU, and a bond has the smallest of its ports")
		} else {
			p.set("Link", x.key, x.value, x.from...)
		}
	}
}
