package importer

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// entry is one key=value line in a section.
type entry struct {
	*variable
	section  string
	instance int // which header of the file it is below
}

// sections reads key=value lines in sections, as desktop entries and systemd
// have them.
func sections(items []*item) []*entry {
	var out []*entry
	section := ""
	instance := 0
	for _, it := range items {
		l := it.text
		if l[0] == '[' {
			if !strings.HasSuffix(l, "]") {
				it.left(whyOpenHeader)
				continue
			}
			section = l[1 : len(l)-1]
			it.unneeded("its lines are listed separately")
			instance++
			continue
		}
		k, v, ok := strings.Cut(l, "=")
		if !ok {
			it.left(whyNotKeyValue)
			continue
		}
		out = append(out, &entry{&variable{it, strings.TrimSpace(k), strings.TrimSpace(v)}, section, instance})
	}
	return out
}

// keyfileIdle are keys of NetworkManager that a unit needs nothing for, and why.
var keyfileIdle = map[string]string{
	"connection.id": "a display name", "connection.uuid": "the identity of the profile",
	"connection.type": "implied by the sections of the unit", "connection.timestamp": "NetworkManager uses " + TimestampsFile,
	"connection.permissions": "who may use the profile", "connection.autoconnect-priority": "the choice among profiles",
	"connection.autoconnect-retries": "the link is configured again whenever it changes",
	"connection.multi-connect":       "the choice among profiles", "connection.wait-device-timeout": "the unit waits for the link",
	"connection.wait-activation-delay": "the unit waits for the link",
	"connection.read-only":             "the profile is not changed", "connection.lldp": "IPoIB has no LLDP",
	"connection.gateway-ping-timeout": "for network-online.target of NetworkManager",
	"connection.stable-id":            "for identifiers and addresses that NetworkManager makes",
	"ipv4.may-fail":                   "each address is set by itself", "ipv6.may-fail": "each address is set by itself",

	"connection.metered": "for programs that ask NetworkManager",
}

// keyfiles reads NetworkManager's connection profiles.
func (im *importer) keyfiles(files []*file) {
	for _, f := range shadowed(files) {
		im.keyfile(f)
	}
}

func (im *importer) keyfile(f *file) {
	all := sections(f.content(hashOrSem))
	by := map[string]*entry{}
	for _, e := range all {
		k := e.section + "." + e.key
		if old := by[k]; old != nil {
			old.left(fmt.Sprintf("not used: line %d overrides it", e.line))
		}
		by[k] = e
	}
	all = slices.DeleteFunc(all, func(e *entry) bool { return by[e.section+"."+e.key] != e })
	get := func(key string) string { return keyfileValue(by, key) }
	from := func(keys ...string) []*item {
		var out []*item
		for _, k := range keys {
			if e := by[k]; e != nil {
				out = append(out, e.item)
			}
		}
		return out
	}
	t := get("connection.type")
	of := cmp.Or(get("connection.controller"), get("connection.master"))
	switch t {
	case "infiniband", "bond":
	case "vrf":
		im.keyfileVRF(f, all, by)
		return
	case "":
		f.refuse("no key type= in [connection]")
		return
	default:
		im.outside("NetworkManager", of, f.path)
		f.refuse(whyNotIB + " (type=" + t + ")" + onEthernet(t))
		return
	}
	if keyfileInvalid(f, all, by) {
		return
	}
	inOrder(all)
	// Without one of the conditions the profile would be for other links and hosts.
	if i := slices.IndexFunc(all, func(e *entry) bool { return e.section == "match" && e.key != "path" && e.value != "" }); i >= 0 {
		f.refuse(fmt.Sprintf("line %d: [match] %s= is not converted: write a unit with the same conditions in [Match]", all[i].line, all[i].key))
		return
	}
	link, mac := get("connection.interface-name"), decimalMAC(get("infiniband.mac-address"))
	c, ok := keyfileChild(f, by, from)
	if !ok {
		return
	}
	if c != nil {
		link = c.name
	}
	var d *draft
	switch {
	case validName(link):
		d = im.profile("NetworkManager", link, f, from("connection.interface-name")...)
		if mac != "" {
			d.hw(mac, from("infiniband.mac-address")...)
		}
	case link != "":
		f.refuse(fmt.Sprintf("interface-name=%s is %s", link, whyName))
		return
	case mac != "":
		if d = im.byAddress("NetworkManager", mac, f, from("infiniband.mac-address")...); d == nil {
			f.refuse("mac-address= is not a hardware address, and interface-name= is missing")
			return
		}
	default:
		f.refuse("neither interface-name= nor mac-address= selects a link")
		return
	}
	d.child, d.bond, d.refuse = c, t == "bond", f.refuse
	if of != "" {
		d.master(of, from("connection.controller", "connection.master")...)
	}
	if (of == "" || inVRF(by)) && !slices.ContainsFunc(all, func(e *entry) bool { return e.section == "ipv4" }) {
		m := &entry{variable: &variable{&item{file: f}, "method", "auto"}, section: "ipv4"} // NetworkManager's default
		by["ipv4.method"], all = m, append(all, m)
	}
	all = append(all, im.keyfileGlobals(by)...)
	auto, _ := keyfileBool(get("connection.autoconnect"))
	im.nm(d, auto != "no", get("connection.autoconnect-priority"), get("connection.uuid"))
	for _, e := range all {
		im.keyfileEntry(d, e, by)
	}
	d.release = []string{"NetworkManager must release " + d.subject() + ": nmcli connection delete, or unmanaged-devices= in its " +
		"configuration"}
}

// keyfileChild is the P_Key interface that a profile is for, nil for none. It is not ok
// where the file is refused.
func keyfileChild(f *file, by map[string]*entry, from func(...string) []*item) (c *child, ok bool) {
	get := func(key string) string { return keyfileValue(by, key) }
	pk, parent, link := get("infiniband.p-key"), get("infiniband.parent"), get("connection.interface-name")
	if pk == "" || pk == "-1" {
		return nil, true
	}
	k, ok := pkeyC(pk)
	if !ok || !validName(parent) {
		f.refuse("p-key= or parent= is missing or invalid")
		return nil, false
	}
	name := childName(parent, k)
	if link != "" && link != name {
		leftAll(from("connection.interface-name"), "the name of a P_Key interface is "+name+" in NetworkManager, regardless of interface-name=")
		delete(by, "connection.interface-name")
	}
	if _, plain, isChild := keyOfName(parent); isChild {
		f.refuse(fmt.Sprintf("parent=%s is a P_Key interface itself (0x%04x): a child is made on a port's own interface", parent, plain))
		return nil, false
	}
	return &child{parent, name, k, from("infiniband.p-key", "infiniband.parent", "connection.interface-name")}, true
}

// nmMethods are the methods that NetworkManager knows, by section.
var nmMethods = map[string][]string{
	"ipv4": {"auto", "manual", "shared", "link-local", "disabled"},
	"ipv6": {"auto", "manual", "shared", "link-local", "disabled", "dhcp", "ignore"},
}

// keyfileInvalid refuses a profile that NetworkManager does not load.
func keyfileInvalid(f *file, all []*entry, by map[string]*entry) bool {
	why := keyfileRejected(f, all, by)
	if why != "" {
		f.refuse("not used: NetworkManager does not load the profile: " + why)
	}
	return why != ""
}

// keyfileRejected returns why NetworkManager rejects a profile of an InfiniBand link
// as a whole (GLib's reader of key files, and the verify functions of libnm-core),
// "" if it does not.
func keyfileRejected(f *file, all []*entry, by map[string]*entry) string {
	for _, it := range f.lines {
		if it.why == whyNotKeyValue || it.why == whyOpenHeader {
			return fmt.Sprintf("line %d is %s", it.line, it.why)
		}
	}
	m := by["infiniband.transport-mode"]
	if by["connection.type"].value == "infiniband" && (m == nil || m.value != "connected" && m.value != "datagram") {
		return "transport-mode= in [infiniband] is neither connected nor datagram"
	}
	for _, section := range []string{"ipv4", "ipv6"} {
		given, addresses, servers := false, false, false
		for _, e := range all {
			if e.section != section {
				continue
			}
			given = true
			if _, ok := addressNumber(e); ok {
				a, _ := keyfileAddress(e.value)
				_, err := netip.ParsePrefix(a)
				_, err2 := netip.ParseAddr(a)
				addresses = addresses || err == nil || err2 == nil
			}
			servers = servers || (e.key == "dns" || e.key == "dns-search") && e.value != ""
		}
		in := " in [" + section + "]"
		method, linkLocal := keyfileValue(by, section+".method"), keyfileValue(by, "ipv4.link-local")
		switch {
		case !given:
		case method == "":
			return "there is no method=" + in
		case !slices.Contains(nmMethods[section], method):
			return "there is no method " + method + in
		case section == "ipv4" && linkLocal == "3" && method == "disabled", section == "ipv4" && linkLocal == "2" && method == "link-local":
			return "link-local=" + linkLocal + in + " is not possible with method=" + method
		case method == "manual" && !addresses:
			return "method=manual" + in + " has no address"
		case (method == "disabled" || method == "ignore" || method == "link-local") && (addresses || servers),
			method == "shared" && section == "ipv4" && servers:
			return "method=" + method + in + " has addresses or name servers"
		case by[section+".gateway"] != nil && !addresses:
			return "there is a gateway" + in + ", and no address"
		}
	}
	return ""
}

// inOrder puts the addresses of each section in the order of their numbers, in
// which NetworkManager sets them.
func inOrder(all []*entry) {
	for _, section := range []string{"ipv4", "ipv6"} {
		byNumber(all, func(e *entry) (int, bool) {
			n, ok := addressNumber(e)
			return n, ok && e.section == section
		})
	}
}

// byNumber sorts the elements that have a number by it, among their places.
func byNumber[T any](all []T, number func(T) (int, bool)) {
	var at []int
	var list []T
	for i, e := range all {
		if _, ok := number(e); ok {
			at, list = append(at, i), append(list, e)
		}
	}
	slices.SortStableFunc(list, func(a, b T) int {
		i, _ := number(a)
		j, _ := number(b)
		return cmp.Compare(i, j)
	})
	for k, i := range at {
		all[i] = list[k]
	}
}

// numbered is the number at the end of a key with one of the names, -1 without one.
func numbered(key string, names ...string) (int, bool) {
	name := strings.TrimRight(key, "0123456789")
	n, err := strconv.Atoi(key[len(name):])
	if err != nil {
		n = -1
	}
	return n, slices.Contains(names, name)
}

// addressNumber is the number of address3= and the like.
func addressNumber(e *entry) (int, bool) { return numbered(e.key, "address", "addresses") }

// keyfileValue is the value of a key in a profile, "" if it has none.
func keyfileValue(by map[string]*entry, key string) string {
	if e := by[key]; e != nil {
		return e.value
	}
	return ""
}

// keyfileYes reports whether a profile has a key with the value true.
func keyfileYes(by map[string]*entry, key string) bool {
	b, _ := keyfileBool(keyfileValue(by, key))
	return b == "yes"
}

// keyfileBool reads a boolean as NetworkManager does (g_key_file_get_boolean);
// where a value is none, the default of the key counts.
func keyfileBool(s string) (string, bool) {
	switch s {
	case "true", "1":
		return "yes", true
	case "false", "0":
		return "no", true
	}
	return "", false
}

// isStatic reports the keys of [ipv4] and [ipv6] that set addresses, routes and
// what goes with them. Rules are for the host, and apply with any method.
func isStatic(key string) bool {
	for _, p := range []string{"address", "gateway", "route", "dns"} {
		if strings.HasPrefix(key, p) {
			return true
		}
	}
	return false
}

// decimalMAC turns the old form of a hardware address, decimal bytes with
// semicolons, into the usual one.
func decimalMAC(s string) string {
	f := strings.Split(strings.TrimSuffix(s, ";"), ";")
	if len(f) < 6 {
		return s
	}
	for i, b := range f {
		n, err := strconv.ParseUint(b, 10, 8)
		if err != nil {
			return s
		}
		f[i] = fmt.Sprintf("%02x", n)
	}
	return strings.Join(f, ":")
}

// keyfileEntry carries one line over.
func (im *importer) keyfileEntry(d *draft, e *entry, by map[string]*entry) {
	if why := keyfileIdle[e.section+"."+e.key]; why != "" {
		e.unneeded(why)
		return
	}
	switch e.section {
	case "connection":
		im.keyfileConnection(d, e)
	case "infiniband":
		keyfileInfiniband(d, e)
	case "bond":
		d.bondOption(e.key, e.value, e.item)
	case "ethtool":
		keyfileEthtool(d, e)
	case "ipv4", "ipv6":
		if keyfileAutomatic(d, e, by) {
			return
		}
		if e.section == "ipv4" && e.key == "link-local" {
			keyfileLinkLocal(d, e, by)
			return
		}
		if m := by[e.section+".method"]; (m.value == "disabled" || m.value == "ignore") && isStatic(e.key) {
			e.left("not used: method=" + m.value + " has no addresses and routes")
			return
		}
		im.keyfileIP(d, e, by)
	case "proxy", "user":
		e.unneeded("for programs that ask NetworkManager")
	case "match": // of whose keys path= alone is left here
		for _, x := range strings.FieldsFunc(e.value, func(r rune) bool { return r == ';' || r == ' ' }) {
			d.add("Match", "Path", x, e.item)
		}
	default:
		e.left("[" + e.section + "]: " + whyUnknown)
	}
}

func (im *importer) keyfileConnection(d *draft, e *entry) {
	switch e.key {
	case "interface-name", "master", "controller":
	case "slave-type", "port-type":
		if e.value == "bond" || e.value == "vrf" {
			e.unneeded(map[string]string{"bond": "implied by the bond's profile", "vrf": "implied by the VRF's profile"}[e.value])
		} else {
			e.left(whyValue)
		}
	case "autoconnect-slaves", "autoconnect-ports":
		e.unneeded(whyOwnPorts)
	case "autoconnect":
		b, _ := keyfileBool(e.value)
		im.onboot(d, b, e.item)
	case "zone":
		e.left(d.zone(e.value))
	case "mdns", "llmnr":
		if e.value == "-1" || e.value == "default" {
			e.unneeded("the default")
			return
		}
		d.set("Network", map[string]string{"mdns": "MulticastDNS", "llmnr": "LLMNR"}[e.key],
			map[string]string{"0": "no", "1": "resolve", "2": "yes", "no": "no", "resolve": "resolve", "yes": "yes"}[e.value], e.item)
	default:
		e.left("[connection]: " + whyUnknown)
	}
}

func keyfileInfiniband(d *draft, e *entry) {
	switch e.key {
	case "mac-address":
	case "p-key":
		if e.value == "-1" {
			e.unneeded("no P_Key interface")
		}
	case "parent":
		if d.child == nil {
			e.left("it has no p-key=")
		}
	case "transport-mode":
		d.mode(e.value, e.item)
	case "mtu":
		if e.value == "0" || e.value == "auto" {
			e.unneeded("the default")
		} else {
			d.mtu(e.value, e.item)
		}
	default:
		e.left("[infiniband]: " + whyUnknown)
	}
}
