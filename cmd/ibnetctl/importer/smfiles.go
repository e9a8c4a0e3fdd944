package importer

import (
	"cmp"
	"errors"
	"path"
	"slices"
	"strconv"
	"strings"

	"ibnetworkd/ib"
	"ibnetworkd/ib/partition"
	"ibnetworkd/sm/fabric"
	"ibnetworkd/sm/guidfile"
	"ibnetworkd/sm/qos/policy"
)

// smFile is a file in opensm's form that ibnetsm reads as it is.
type smFile struct {
	format       string
	setting, key string // that name it, in opensm.conf and in a unit
	what         string
}

var smFileTable = []smFile{
	{"partitions", "partition_config_file", "PartitionsFile", "partitions"}, {"guid2lid", "-", "GUID2LIDFile", "LIDs"},
	{"prefix-routes", "prefix_routes_file", "PrefixRoutesFile", "prefix routes"},
	{"root-guids", "root_guid_file", "RootGUIDFile", "root switches"}, {"cn-guids", "cn_guid_file", "CNGUIDFile", "compute nodes"},
	{"io-guids", "io_guid_file", "IOGUIDFile", "I/O nodes"},
	{"guid-order", "guid_routing_order_file", "GUIDRoutingOrderFile", "the order of hosts"},
	{"hop-weights", "hop_weights_file", "HopWeightsFile", "hop weights"},
	{"node-names", "node_name_map_name", "NodeNameMap", "node names"},
	{"qos-policy", "qos_policy_file", "QoSPolicyFile", "the QoS policy"},
}

// smDefaults are the files that opensm reads without a line that names them.
var smDefaults = []string{"/etc/opensm/partitions.conf", "/etc/rdma/partitions.conf", "/etc/opensm/prefix-routes.conf",
	"/etc/rdma/prefix-routes.conf", "/etc/opensm/qos-policy.conf", "/etc/rdma/qos-policy.conf", "/var/cache/opensm/guid2lid"}

func smFileOf(is func(smFile) bool) *smFile {
	if i := slices.IndexFunc(smFileTable, is); i >= 0 {
		return &smFileTable[i]
	}
	return nil
}

// lineBound is the most lines of a source of a format; one with a port a line may have many.
func lineBound(format string) int {
	if smFileOf(func(x smFile) bool { return x.format == format }) != nil {
		return 10 * maxLines
	}
	return maxLines
}

// namedFiles are the formats of the files that an opensm.conf names, by path.
func namedFiles(s Source) map[string]string {
	out := map[string]string{}
	for line := range strings.Lines(s.Text) {
		key, value := opensmLine(strings.TrimSpace(line))
		if x := smFileOf(func(x smFile) bool { return x.setting == key }); x != nil && strings.HasPrefix(value, "/") {
			p := path.Clean(value)
			out[p] = cmp.Or(out[p], x.format)
		}
	}
	return out
}

// smNamed is the format of a file of opensm by its name, "" for others.
func smNamed(base string) string {
	for _, x := range []struct{ prefix, format string }{{"partitions", "partitions"}, {"prefix-routes", "prefix-routes"},
		{"root_guid", "root-guids"}, {"cn_guid", "cn-guids"}, {"io_guid", "io-guids"}, {"guid_routing_order", "guid-order"},
		{"hop_weights", "hop-weights"}, {"qos_policy", "qos-policy"}, {"opensm", "opensm"}} {
		if strings.HasPrefix(base, x.prefix) || strings.HasPrefix(base, strings.ReplaceAll(x.prefix, "_", "-")) {
			return x.format
		}
	}
	switch {
	case base == "guid2lid", base == "guid2mkey":
		return base
	case strings.Contains(strings.ReplaceAll(base, "_", "-"), "node-name-map"):
		return "node-names"
	}
	return ""
}

// smFormat is the format of a text that only a file of opensm can have, "" for others. Lists of
// GUIDs, and lines of a GUID with numbers, may mean several things.
func smFormat(text string) string {
	lines, names, settings := 0, 0, 0
	for line := range strings.Lines(strings.TrimPrefix(text, "\ufeff")) {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		lines++
		first, rest, _ := strings.Cut(strings.ReplaceAll(line, "\t", " "), " ")
		switch key, _ := opensmLine(line); {
		case slices.Contains([]string{"port-groups", "qos-levels", "qos-match-rules", "qos-ulps"}, line):
			return "qos-policy"
		case strings.HasPrefix(line, "Default=0x7fff") || strings.HasPrefix(line, "Default=0xffff"):
			return "partitions"
		case isGUID(first) && strings.HasPrefix(strings.TrimSpace(rest), `"`):
			names++
		case strings.Contains(key, "_") && opensmKnows(key):
			settings++
		}
	}
	switch {
	case lines > 0 && names == lines:
		return "node-names"
	case settings >= 2 && 2*settings > lines:
		return "opensm"
	}
	return ""
}

func isGUID(s string) bool {
	_, err := ib.ParseGUID(s)
	return err == nil
}

// opensmKnows reports whether opensm has a setting.
func opensmKnows(key string) bool {
	if _, _, ok := opensmSetting(key); ok || smFileOf(func(x smFile) bool { return x.setting == key }) != nil {
		return true
	}
	return slices.Contains(opensmKeys, key) || slices.Contains([]string{"sm_priority", "subnet_prefix", "routing_engine", "sweep_interval",
		"transaction_timeout", "transaction_retries", "max_wire_smps", "part_enforce", "no_partition_enforcement",
		"m_key_protection_level", "m_key_lease_period", "honor_guid2lid_file", "ids_guid_file"}, key)
}

// smFiles has the subnet manager read files of one format as they are. Each line that it
// cannot use is reported.
func (im *importer) smFiles(files []*file) {
	x := smFileOf(func(x smFile) bool { return x.format == files[0].format })
	m := &im.manager
	for _, f := range files {
		if why := im.unread(x, f); why != "" {
			f.refuse(why)
			continue
		}
		m.files = append(m.files, f)
		wrong := x.mistakes(f)
		if more := wrong[0]; more != "" {
			f.whole.left(more)
		}
		for _, it := range f.content(hash) {
			if why := wrong[it.line]; why != "" {
				it.left(why)
			} else {
				it.with = f.whole
			}
		}
		m.set(x.key, path.Clean(f.path), f.whole)
		if m.conf == nil && !slices.Contains(smDefaults, f.path) {
			im.note("no opensm.conf is among the files: remove %s= if opensm, by an option of its command line, does not read %s", x.key, f.path)
		}
	}
}

// unread returns why ibnetsm is not to read a file, "" if it is.
func (im *importer) unread(x *smFile, f *file) string {
	m := &im.manager
	is := func(l managerLine) bool { return l.key == x.key && l.value == path.Clean(f.path) }
	by, named := m.names[path.Clean(f.path)], m.named[x.setting]
	switch i := slices.IndexFunc(m.lines, func(l managerLine) bool { return l.key == x.key }); {
	case !strings.HasPrefix(f.path, "/"):
		return "use an absolute file name"
	case slices.ContainsFunc(m.lines, is):
		return ""
	case named != nil && by == nil:
		return "not used: " + named.at() + " names another file of " + x.what
	case i >= 0:
		return "not used: " + m.lines[i].it.at() + " is or names the file of " + x.what + " that opensm reads"
	case by != nil && by.why != "":
		return "not used: " + by.at() + " names it and is not converted"
	case x.format == "qos-policy" && m.conf != nil && !m.qos:
		return "not used: qos is off, so opensm does not read it"
	case m.conf != nil && !slices.Contains(smDefaults, f.path):
		return "not used: " + m.conf.path + " does not name it; write " + x.key + "=" + f.path + " to have ibnetsm use it"
	}
	return ""
}

// mistakes are what ibnetsm does not use of a file, by line; 0 is the file as a whole.
func (x *smFile) mistakes(f *file) map[int]string {
	wrong := map[int]string{}
	note := func(before string, err error) {
		all := []error{err}
		if many, ok := err.(interface{ Unwrap() []error }); ok {
			all = many.Unwrap()
		}
		for _, err := range all {
			if e := (*ib.FileError)(nil); errors.As(err, &e) {
				wrong[e.Line] = cmp.Or(wrong[e.Line], before+e.Msg)
			} else if err != nil {
				wrong[0] = strings.TrimPrefix(err.Error(), f.path+": ")
			}
		}
	}
	const refused, unused = "ibnetsm refuses the file because of it: ", "ibnetsm does not use the line as it is: "
	text := []byte(f.text)
	switch x.format {
	case "partitions":
		_, err := partition.Parse(f.path, text)
		note(refused, err)
	case "node-names":
		_, err := fabric.ParseNames(f.path, text)
		note(unused, err)
	case "qos-policy":
		p, err := policy.Parse(f.path, text)
		note(refused, err)
		if p != nil {
			policyNotes(f, p.Notes, wrong)
		}
	default:
		note(unused, guidfile.Check(x.key, f.path, text))
	}
	return wrong
}

// policyNotes are the lines of a QoS policy without effect; that of qos-setup is about all
// lines up to its end.
func policyNotes(f *file, notes []string, wrong map[int]string) {
	for _, n := range notes {
		place, why, _ := strings.Cut(strings.TrimPrefix(n, f.path+":"), ": ")
		line, err := strconv.Atoi(place)
		if err != nil {
			continue // about what the file does not have
		}
		wrong[line] = why
		within := false
		for _, it := range f.lines {
			text, _, _ := strings.Cut(it.text, "#")
			if text = strings.TrimSpace(text); it.line == line {
				within = text == "qos-setup"
			} else if within && it.line > line && text != "" {
				wrong[it.line] = why
			}
			within = within && text != "end-qos-setup"
		}
	}
}
