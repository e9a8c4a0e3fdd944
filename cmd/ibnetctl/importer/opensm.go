package importer

import (
	"cmp"
	"path"
	"slices"
	"strings"

	"ibnetworkd/ib"
	"ibnetworkd/sm/route"
)

// manager is what is known of opensm on the host.
type manager struct {
	files []*file
	guids []guidItem
	lines []managerLine
	off   *item // the line that says that none is to run
	// policies are the lines with a QoS policy, which opensm reads where qos is on.
	policies []managerLine
	qos      bool
	// hints are the lines with files that opensm reads with some routing engines only.
	hints  []managerLine
	engine string
	// keys are the lines with keys, enforce those about the enforcement of partitions, and guard
	// those that matter with an M_Key only.
	keys, enforce, guard []managerLine
	conf                 *file            // the opensm.conf, or the first of several
	has                  map[string]bool  // the paths of the sources
	names                map[string]*item // the lines that name files, by path
	named                map[string]*item // and by their setting
}

type guidItem struct {
	guid ib.GUID
	it   *item
}

type managerLine struct {
	key, value string
	it         *item
}

// set adds a setting of the subnet manager.
func (m *manager) set(key, value string, it *item) {
	m.lines = append(m.lines, managerLine{key, value, it})
}

// unless adds a setting that is not the default of opensm.
func (m *manager) unless(def, key, value string, it *item) {
	if value == def {
		it.unneeded(whyOpenSM)
	} else {
		m.set(key, value, it)
	}
}

// path adds a setting that is a file. without says what follows if there is none.
func (m *manager) path(key, value, without string, it *item) {
	switch p := path.Clean(value); {
	case !strings.HasPrefix(value, "/"):
		it.left("a relative path, which depends on the directory that opensm is started in; write " + key +
			"= with the whole path, or " + without)
	case m.has[p]:
		m.set(key, p, it)
	case slices.Contains(smDefaults, p):
		it.unneeded(whyOpenSM)
	default:
		it.left("no such file, or it cannot be read: " + without)
	}
}

// opensm reads /etc/default/opensm, /etc/sysconfig/opensm and opensm.conf.
func (im *importer) opensm(files []*file) {
	m := &im.manager
	// What the start scripts read becomes options of the command line, which
	// override opensm.conf.
	script := func(f *file) int {
		if d := path.Base(path.Dir(f.path)); d == "default" || d == "sysconfig" {
			return 1
		}
		return 0
	}
	files = slices.Clone(files)
	slices.SortStableFunc(files, func(a, b *file) int { return script(a) - script(b) })
	for _, f := range files {
		m.files = append(m.files, f)
		if m.conf == nil && script(f) == 0 {
			m.conf = f
		}
		last := map[string]*item{} // of lines with one setting opensm uses the last
		content := f.content(hash)
		for _, it := range content {
			if key, _ := opensmLine(it.text); !strings.HasPrefix(key, "cc_ca_cong_setting_") {
				last[key] = it
			}
		}
		for _, it := range content {
			key, value := opensmLine(it.text)
			if by := last[key]; by != nil && by != it {
				it.left("not used: " + by.at() + " sets it again")
			}
			if it.why == "" {
				if smFileOf(func(x smFile) bool { return x.setting == key }) != nil && strings.HasPrefix(value, "/") {
					m.names[path.Clean(value)], m.named[key] = it, it
				}
				im.opensmKey(it, key, value)
			}
		}
		im.note("disable opensm's own unit: systemctl disable --now opensm")
	}
	im.opensmSecrets()
	m.enforcement()
	for _, l := range m.hints {
		engines := []string{"updn", "dnup", "ftree"}
		without := "the roots are found"
		named := splitList(cmp.Or(m.engine, "none"))
		switch l.key {
		case "RootGUIDFile":
		case "GUIDRoutingOrderFile":
			engines = []string{"none", "minhop", "updn", "dnup"}
			without = "jobs number hosts in the order of the ports of each switch"
		default:
			engines, without = []string{"ftree", "dfsssp", "sssp"}, "routes are balanced for all ports"
		}
		if slices.ContainsFunc(engines, func(e string) bool { return slices.Contains(named, e) }) {
			if l.key == "GUIDRoutingOrderFile" {
				im.note("opensm routes to the ports of guid_routing_order_file one after the other, ibnetsm takes it for the order in which jobs " +
					"number the hosts: if the file has servers first, write IOGUIDFile= instead of GUIDRoutingOrderFile=")
			}
			m.path(l.key, l.value, without, l.it)
		} else {
			l.it.left("opensm reads it with the routing engines " + strings.Join(engines, ", ") + " only, and routing_engine names none of them; " +
				"write " + l.key + "= to have ibnetsm use it")
		}
	}
	for _, l := range m.policies {
		if m.qos {
			m.path(l.key, l.value, "paths have the service levels of their partitions", l.it)
		} else if slices.Contains(smDefaults, l.value) {
			l.it.unneeded(whyOpenSM)
		} else {
			l.it.left("qos is off, so opensm does not read it")
		}
	}
}

func (im *importer) opensmKey(it *item, key, value string) {
	m := &im.manager
	if value == "" || value == "(null)" {
		it.unneeded(whyOpenSM)
		return
	}
	switch key {
	case "ports", "guids", "guid":
		im.opensmPorts(it, key, value)
	case "priority", "sm_priority":
		m.unless("0", "Priority", value, it)
	case "lmc":
		m.unless("0", "LMC", value, it)
	case "root_guid_file":
		m.hints = append(m.hints, managerLine{"RootGUIDFile", value, it})
	case "cn_guid_file":
		m.hints = append(m.hints, managerLine{"CNGUIDFile", value, it})
	case "io_guid_file":
		m.hints = append(m.hints, managerLine{"IOGUIDFile", value, it})
	case "hop_weights_file":
		m.path("HopWeightsFile", value, "every hop counts the same", it)
	case "prefix_routes_file":
		m.path("PrefixRoutesFile", value, "no paths to other subnets are given", it)
	case "honor_guid2lid_file":
		if value != "TRUE" && value != "FALSE" {
			it.left(whyValue)
			break
		}
		it.unneeded("ibnetsm keeps the LIDs that it has given, as standby too; those of opensm by GUID2LIDFile=/var/cache/opensm/guid2lid")
	case "ids_guid_file":
		it.left("ibnetsm searches for the best order of switches at the same distance from the roots")
	case "guid_routing_order_file":
		m.hints = append(m.hints, managerLine{"GUIDRoutingOrderFile", value, it})
	case "routing_engine":
		m.engine = value
		m.routing(value, it)
	case "subnet_prefix":
		switch {
		case !strings.HasPrefix(value, "0x") || len(value) > 18:
			it.left(whyValue + " (opensm reads a number: 0xfe80000000000000)")
		case value == "0xfe80000000000000":
			it.unneeded(whyOpenSM)
		default:
			m.set("SubnetPrefix", "0x"+strings.Repeat("0", 18-len(value))+value[2:], it)
		}
	case "partition_config_file":
		m.path("PartitionsFile", value, "every port gets the default partition only", it)
	case "qos":
		switch value {
		case "TRUE":
			m.qos = true
			m.set("QoS", "yes", it)
		case "FALSE":
			it.unneeded(whyOpenSM)
		default:
			it.left(whyValue)
		}
	case "qos_policy_file":
		m.policies = append(m.policies, managerLine{"QoSPolicyFile", value, it})
	case "node_name_map_name":
		m.path("NodeNameMap", value, "nodes are shown with the names that they have", it)
	default:
		m.more(it, key, value)
	}
}

// routing writes the engines of a list that ibnetsm knows, or has one for.
func (m *manager) routing(value string, it *item) {
	var known, not []string
	for name := range strings.SplitSeq(value, ",") {
		if route.CheckEngines(name) == nil {
			known = append(known, name)
		} else {
			not = append(not, name)
		}
	}
	if len(not) == 0 {
		m.unless("null", "RoutingEngine", value, it)
		return
	}
	rest := it
	if len(known) > 0 {
		m.set("RoutingEngine", strings.Join(known, ","), it.part("routing_engine "+strings.Join(known, ",")))
		rest = it.part(strings.Join(not, ","))
	}
	rest.left(strings.ReplaceAll(route.CheckEngines(strings.Join(not, ",")).Error(), "\n", "; "))
}

func (im *importer) opensmPorts(it *item, key, value string) {
	list := strings.FieldsFunc(value, func(r rune) bool { return r == ' ' || r == ',' || r == '\t' })
	for _, g := range list {
		p := it
		if len(list) > 1 {
			p = it.part(key + " " + g)
		}
		switch {
		case g == "ALL":
			p.unneeded("every port without a subnet manager gets one")
		case g == "0x0000000000000000" || g == "0" || g == "0x0":
			p.unneeded("the default port")
		case g == "NONE":
			im.manager.off = p
		default:
			v, err := ib.ParseGUID(g)
			if err != nil {
				p.left(whyValue)
			} else {
				im.manager.guids = append(im.manager.guids, guidItem{v, p})
			}
		}
	}
}

// splitList are the words of a list with commas.
func splitList(s string) []string {
	return strings.FieldsFunc(strings.ToLower(s), func(r rune) bool { return r == ',' || r == ' ' })
}

// manage writes the [SubnetManager] sections: into every unit that is for a port
// that opensm is to manage, because only the first unit that matches applies.
func (im *importer) manage() {
	m := &im.manager
	if len(m.files) == 0 {
		return
	}
	fill := func(d *draft, from ...*item) {
		for _, f := range m.files {
			d.source(f)
		}
		if m.off != nil {
			d.set("SubnetManager", "Manage", "no", m.off)
		} else {
			d.set("SubnetManager", "Manage", "auto", from...)
		}
		for _, l := range m.lines {
			d.set("SubnetManager", l.key, l.value, l.it)
		}
	}
	if len(m.guids) == 0 {
		rest := im.everyLink(m.files[0])
		for _, d := range im.drafts {
			if d == rest || d.isParent() {
				fill(d)
			}
		}
		return
	}
	var open []guidItem
	for _, g := range m.guids {
		name := ""
		for n, x := range im.host.PortGUIDs {
			if x == g.guid && (name == "" || n < name) && !strings.Contains(n, ".") {
				name = n
			}
		}
		i := slices.IndexFunc(im.drafts, func(d *draft) bool {
			x := d.sec("Match").keys["PortGUID="+g.guid.String()]
			return d.isParent() && (x != nil || name != "" && d.link == name)
		})
		if i < 0 {
			open = append(open, g)
			continue
		}
		fill(im.drafts[i], g.it)
	}
	if len(open) == 0 {
		return
	}
	var names []string
	for _, d := range im.drafts {
		if d.link != "" && d.isParent() && im.host.PortGUIDs[d.link] == 0 {
			names = append(names, d.link)
		}
	}
	rest := &draft{prefix: "10", name: "subnet-manager"}
	var guids []string
	var from []*item
	slices.SortStableFunc(open, func(a, b guidItem) int { return cmp.Compare(uint64(a.guid), uint64(b.guid)) })
	for _, g := range open {
		guids = append(guids, g.guid.String())
		from = append(from, g.it)
	}
	rest.set("Match", "PortGUID", strings.Join(slices.Compact(guids), " "), from...)
	fill(rest)
	if len(names) > 0 {
		im.note("the files do not show which of %s is on port %s: if one is, move the [SubnetManager] section of %s into its unit, "+
			"because only the first unit that matches a link applies (an import on the host itself does that)",
			strings.Join(names, ", "), strings.Join(slices.Compact(guids), ", "), rest.file())
	}
	im.drafts = append(im.drafts, rest)
}

// isParent reports whether a draft is for the main interfaces of InfiniBand
// ports, and not for a P_Key child.
func (d *draft) isParent() bool {
	if !d.isIB() || d.child != nil {
		return false
	}
	_, _, isChild := keyOfName(d.link)
	return !isChild
}
