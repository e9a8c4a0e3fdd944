package importer

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"ibnetworkd/units"
)

// vrf is a VRF that a file defines. The units of the links in it have it made, or only
// name it where the tool keeps it for other links.
type vrf struct {
	tool  string
	name  string
	uuid  string // NetworkManager's other name of it
	table string
	f     *file
	// named and tabled are the lines with the name and the table.
	named, tabled []*item
	ports         []port // that it names
	release       string // how the tool is made to release it, for sentences
	// refuse reports all of the VRF as one.
	refuse func(why string)
	// routes gives its routes and rules to units of links in it.
	routes func(members []*draft)
}

// whyVRFOwn is why a setting of a VRF's own interface is not converted.
const whyVRFOwn = "for the VRF's own interface: write it into the unit of a link in the VRF"

const whyRouteOfVRF = "the configuration does not show which link of the VRF reaches the gateway: write [Route] into the unit of that link"

// outside notes that a link that is no IPoIB link, or the file of one, is in what may
// be a VRF.
func (im *importer) outside(tool, of, what string) {
	if of != "" {
		im.others[tool+" "+of] = append(im.others[tool+" "+of], what)
	}
}

// inVRFs gives the units of links the VRFs that they are in.
func (im *importer) inVRFs() {
	for _, v := range im.vrfs {
		members, other := im.membersOf(v)
		switch {
		case !validName(v.name):
			v.refuse(fmt.Sprintf("%q is %s", v.name, whyName))
			continue
		case len(members) == 0:
			v.refuse(whyNotIB + ": no link in the VRF is one in these files")
			continue
		case len(other) > 0:
			leftAll(v.tabled, fmt.Sprintf("%s keeps the VRF for %s: the units join it by VRF=", v.tool, strings.Join(other, ", ")))
		case !vrfTable(v.table):
			why := "not the number of a table that a VRF can have: the units wait for the VRF by VRF=, until another program makes it"
			if leftAll(v.tabled, why); len(v.tabled) == 0 {
				v.f.whole.left(why)
			}
		}
		made := len(other) == 0 && vrfTable(v.table)
		for _, m := range members {
			from := append(slices.Clone(v.named), m.from...)
			if !made {
				m.d.set("Network", "VRF", v.name, from...)
				continue
			}
			m.d.source(v.f)
			m.d.set("VRF", "Name", v.name, from...)
			m.d.set("VRF", "Table", v.table, v.tabled...)
		}
		if made {
			members[0].d.release = append(members[0].d.release, v.release)
		}
		if v.routes != nil {
			var ds []*draft
			for _, m := range members {
				ds = append(ds, m.d)
			}
			v.routes(ds)
		}
	}
}

// vrfTable reports whether a VRF can have the table: a number that is none of the host's
// own tables (units.VRF).
func vrfTable(s string) bool {
	n, err := strconv.ParseUint(s, 10, 32)
	return err == nil && n > 0 && (uint32(n) < units.TableDefault || uint32(n) > units.TableLocal) && s[0] != '0'
}

// member is a unit of a link in a VRF, with the lines that say so.
type member struct {
	d    *draft
	from []*item
}

// membersOf finds the units of the links in a VRF, and what else is in it.
func (im *importer) membersOf(v *vrf) (members []member, other []string) {
	for _, n := range []string{v.name, v.uuid} {
		if n != "" {
			other = append(other, im.others[v.tool+" "+n]...)
		}
	}
	add := func(d *draft, from ...*item) {
		for i := range members {
			if members[i].d == d {
				members[i].from = append(members[i].from, from...)
				return
			}
		}
		members = append(members, member{d, from})
	}
	for _, d := range im.drafts {
		if d.tool != v.tool {
			continue
		}
		for _, key := range [][2]string{{"Bond", "Name"}, {"Network", "VRF"}} {
			s := d.sec(key[0])
			x := s.keys[key[1]]
			if x == nil || x.value != v.name && (v.uuid == "" || x.value != v.uuid) {
				continue
			}
			add(d, x.from...)
			delete(s.keys, x.key)
			s.dirs = slices.DeleteFunc(s.dirs, func(y *directive) bool { return y == x })
		}
	}
	for _, p := range v.ports {
		switch d := im.index[p.name]; {
		case d != nil && d.tool != v.tool:
			p.it.left("not used: " + d.files[0].path + " configures " + p.name)
		case d != nil:
			add(d, p.it)
		case isIB(p.name) && validName(p.name):
			d := im.find(p.name, v.f)
			d.tool = v.tool
			add(d, p.it)
		default:
			p.it.left(whyNotIB)
			other = append(other, p.name)
		}
	}
	slices.Sort(other)
	return members, slices.Compact(other)
}

// reaches is the unit of the link in a VRF that a gateway is reached over, nil if the
// units do not say.
func reaches(members []*draft, gateway string) *draft {
	if len(members) == 1 {
		return members[0]
	}
	links := map[string]*draft{}
	for _, d := range members {
		links[d.file()] = d
	}
	return linkOf(links, gateway)
}

// inVRF reports whether a profile of NetworkManager is for a link in a VRF.
func inVRF(by map[string]*entry) bool {
	return slices.ContainsFunc([]string{"connection.port-type", "connection.slave-type"}, func(k string) bool {
		return by[k] != nil && by[k].value == "vrf"
	})
}

// keyfileVRF reads a profile of a VRF (type=vrf).
func (im *importer) keyfileVRF(f *file, all []*entry, by map[string]*entry) {
	get := func(key string) (string, []*item) {
		if e := by[key]; e != nil {
			return e.value, []*item{e.item}
		}
		return "", nil
	}
	v := &vrf{tool: "NetworkManager", f: f, refuse: f.refuse}
	v.name, v.named = get("connection.interface-name")
	v.table, v.tabled = get("vrf.table")
	v.table = decimal(v.table)
	v.uuid, _ = get("connection.uuid")
	v.release = "delete the profile of the VRF: nmcli connection delete " + v.name
	for _, e := range all {
		switch key := e.section + "." + e.key; {
		case key == "connection.interface-name", key == "vrf.table":
		case keyfileIdle[key] != "":
			e.unneeded(keyfileIdle[key])
		case key == "connection.autoconnect":
			if b, ok := keyfileBool(e.value); ok && b == "yes" {
				e.unneeded("the VRF is made with the first link in it")
			} else {
				e.left("the VRF is made with the first link in it")
			}
		case e.key == "method" && (e.value == "disabled" || e.value == "ignore" || e.value == "auto"):
			e.unneeded("the VRF's own interface gets no address")
		case key == "ipv6.addr-gen-mode" && (e.value == "default" || e.value == "default-or-eui64" || e.value == "3" || e.value == "2"):
			e.unneeded("the default")
		case e.section == "proxy", e.section == "user":
			e.unneeded("for programs that ask NetworkManager")
		default:
			e.left(whyVRFOwn)
		}
	}
	im.vrfs = append(im.vrfs, v)
}

// netdevVRF reads a .netdev file of kind vrf.
func (im *importer) netdevVRF(dev *netdev) {
	v := &vrf{tool: "systemd-networkd", name: dev.name, f: dev.f, refuse: dev.f.refuse,
		release: fmt.Sprintf("remove %s, then networkctl reload", dev.f.path)}
	for _, e := range dev.entries {
		switch e.section + "." + e.key {
		case "NetDev.Name":
			v.named = append(v.named, e.item)
		case "NetDev.Kind":
			e.unneeded("implied by the sections of the unit")
		case "NetDev.Description":
			e.unneeded("a display name")
		case "VRF.Table", "VRF.TableId":
			if v.table != "" {
				leftAll(v.tabled, "not used: "+e.at()+" sets it again, to "+e.value)
			}
			v.table, v.tabled = e.value, []*item{e.item}
		default:
			e.left(whyVRFOwn)
		}
	}
	im.vrfs = append(im.vrfs, v)
}

// netplanVRF reads an entry of vrfs:, whose links netplanDevices has given their master.
func (im *importer) netplanVRF(dev *netplanDevice) {
	v := &vrf{tool: "netplan", name: dev.id, f: dev.parts[0].f, refuse: dev.left}
	var routes, rules []*ynode
	for _, p := range dev.parts {
		v.named = append(v.named, p.n.it)
		v.release = fmt.Sprintf("remove %s from %s, then netplan apply", dev.id, p.f.path)
		for _, n := range p.n.kids {
			switch n.key {
			case "table":
				if last := dev.get("table"); last != n {
					n.left("not used: " + last.it.at() + " sets it again, to " + last.it.text)
				} else if !number(n.value) {
					n.left("not a decimal number")
				} else {
					v.table, v.tabled = decimal(n.value), []*item{n.it}
				}
			case "interfaces": // they have it
			case "routes":
				routes = append(routes, n.kids...)
			case "routing-policy":
				rules = append(rules, n.kids...)
			default:
				n.left(whyVRFOwn)
			}
		}
	}
	v.routes = func(members []*draft) {
		for _, r := range routes {
			if d := reaches(members, r.str("via")); d != nil {
				im.yamlSection(d, "Route", r, netplanRoute)
			} else {
				r.left(whyRouteOfVRF)
			}
		}
		for _, r := range rules {
			// netplan adds the table of the VRF.
			d := members[0]
			n := len(d.repeated)
			im.yamlSection(d, "RoutingPolicyRule", r, netplanRule)
			if r.get("table") == nil && len(d.repeated) > n {
				d.repeated[n].add("Table", v.table, v.tabled...)
			}
		}
	}
	im.vrfs = append(im.vrfs, v)
}

// nmstateVRF reads an interface of type vrf.
func (im *importer) nmstateVRF(f *file, n *ynode) {
	name := n.get("name")
	v := &vrf{tool: "nmstate", name: name.value, f: f, refuse: n.left, named: []*item{name.it}}
	v.release = fmt.Sprintf("remove %[1]s from %[2]s, and the profile that nmstate created: nmcli connection delete %[1]s", v.name, f.path)
	for _, k := range n.kids {
		switch k.key {
		case "name":
		case "type":
			k.unneeded("implied by the sections of the unit")
		case "state":
			if k.value == "up" {
				k.unneeded("the VRF is made with the first link in it")
			} else {
				k.left(whyValue)
			}
		case "description", "profile-name":
			k.unneeded("a display name")
		case "vrf":
			for _, x := range k.kids {
				switch x.key {
				case "port", "ports":
					for _, p := range x.list() {
						v.ports = append(v.ports, port{p.value, p.it})
					}
				case "route-table-id", "table":
					v.table, v.tabled = x.value, append(v.tabled, x.it)
				default:
					x.left(whyUnknown)
				}
			}
		default:
			k.left(whyVRFOwn)
		}
	}
	im.vrfs = append(im.vrfs, v)
}

// ifaceVRF reads the stanza of a VRF (ifupdown-ng's interfaces-vrf(5), and ifupdown2).
func (im *importer) ifaceVRF(s *stanza, autos []*item) {
	v := &vrf{tool: "ifupdown", name: s.iface, f: s.head.file, named: []*item{s.head}, refuse: s.refuse,
		release: fmt.Sprintf("remove %s from %s", s.iface, s.head.file.path)}
	for _, it := range autos {
		it.unneeded("a link with a unit is brought up")
	}
	for _, o := range s.options {
		switch {
		case o.key != "vrf-table":
			o.left(whyVRFOwn)
		case o.value == "auto":
			s.refuse("vrf-table auto is a number that ifupdown2 chooses: write it, as ip -d link show " + s.iface + " prints it")
			return
		default:
			v.table, v.tabled = decimal(o.value), append(v.tabled, o.item)
		}
	}
	im.vrfs = append(im.vrfs, v)
}
