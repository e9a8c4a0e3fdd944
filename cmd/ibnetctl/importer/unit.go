package importer

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"unicode/utf8"

	"ibnetworkd/units"
)

// Reasons that more than one format gives.
const (
	whyValue   = "invalid value"
	whyBool    = "not a boolean of NetworkManager, which uses the default then"
	whyShared  = "for sharing a connection: ibnetworkd has no DHCP server and no address translation"
	whyCommand = "a command; check whether a setting of a unit replaces it"
	whyNotIB   = "not an InfiniBand link"
	whyName    = "not the name of an interface"
	whyHWAddr  = "a hardware address; [Link] GUID= sets the last 8 bytes of an IPoIB address"
	whySysctl  = "a sysctl that no setting of a unit changes; write it into /etc/sysctl.d"
	whyEthtool = "a setting of ethtool for which a unit has no key; write a systemd.link(5) file or a service for it"
	whyPort    = "%s is a port of %s: leave it to the tool that creates that"
	// What the parser of units says follows.
	whyRefused   = "a unit does not accept it: "
	whyNoUnit    = "no unit is written for it: "
	whyRATable   = "the kernel has no table for the routes of router advertisements but that of a VRF"
	whyAutomatic = "for DHCP and router advertisements"
	whyNoGateway = "the unspecified address is not a gateway: no default route"
)

// onEthernet returns the section of a unit that makes a link of a kind of ip(8) on an Ethernet link, ""
// for none.
func onEthernet(kind string) string {
	if kind != "vlan" && kind != "macvlan" && kind != "ipvlan" {
		return ""
	}
	return "; the unit of a RoCE link has [" + strings.ToUpper(kind) + "] for it"
}

// zone is the reason of a firewall zone.
func (d *draft) zone(name string) string {
	return "a firewall zone; firewall-cmd --permanent --zone=" + name + " --add-interface=" + cmp.Or(d.link, "LINK") + " sets it"
}

// directive is one KEY=VALUE of a unit and the items that it has its origin in.
type directive struct {
	key, value string
	from       []*item
}

type section struct {
	name string
	dirs []*directive
	keys map[string]*directive // by key, or by key and value where a key repeats
}

func (s *section) directive(key, value, index string, from []*item) {
	d := &directive{key, value, from}
	if s.keys == nil {
		s.keys = map[string]*directive{}
	}
	s.keys[index] = d
	s.dirs = append(s.dirs, d)
}

// add appends a directive of a key that may be given several times.
func (s *section) add(key, value string, from ...*item) {
	value, ok := clean(value, from)
	if !ok {
		return
	}
	index := key + "=" + value
	if d := s.keys[index]; d != nil {
		d.from = append(d.from, from...)
		return
	}
	s.directive(key, value, index, from)
}

// set gives a key its value. A value that it had is reported.
func (s *section) set(key, value string, from ...*item) {
	value, ok := clean(value, from)
	if !ok {
		return
	}
	d := s.keys[key]
	switch {
	case d == nil:
		s.directive(key, value, key, from)
	case d.value == value:
		d.from = append(d.from, from...)
	default:
		leftAll(d.from, "not used: "+from[0].at()+" sets it again, to "+from[0].text)
		d.value, d.from = value, from
	}
}

func (s *section) get(key string) (string, bool) {
	if d := s.keys[key]; d != nil {
		return d.value, true
	}
	return "", false
}

// clean refuses values that cannot be in one line of a unit.
func clean(value string, from []*item) (string, bool) {
	value = strings.TrimSpace(value)
	if value != "" && len(value) < 4096 && utf8.ValidString(value) && !strings.HasSuffix(value, "\\") &&
		!strings.ContainsFunc(value, func(r rune) bool { return r < ' ' || r == 0x7f || r == '\ufeff' }) {
		return value, true
	}
	leftAll(from, whyValue)
	return "", false
}

// Sections in the order in which a unit has them; the last ones repeat.
var sectionOrder = []string{"Match", "Link", "Port", "IPoIB", "Partition", "Bond", "VRF", "Network", "Address", "Route",
	"RoutingPolicyRule", "Neighbor", "NextHop", "DHCPv4", "DHCPv6", "IPv6AcceptRA", "SubnetManager"}

// keyOrder puts keys of a section first that others follow.
var keyOrder = map[string]int{"PartitionKey": -3, "Name": -2, "Manage": -1, "MTUBytes": -1, "LinkLocalAddressing": 1,
	"IPv6AcceptRA": 2, "Gateway": 7, "Address": 6, "DNS": 8, "Domains": 9}

// draft is a unit in the making.
type draft struct {
	tool   string  // that it is taken over from, for sentences
	files  []*file // that it is made of
	prefix string  // 10
	name   string  // of the file, without number and suffix
	// inOrder is the name of the file without suffix if it is that of a source, so
	// that the units apply in the order of the sources; it replaces prefix and name.
	inOrder string
	link    string // the interface's name, if the unit is for one by its name
	child   *child // what makes the interface, if it is a P_Key child
	renamed string // what the tool calls the link that [Match] selects by its address
	// By what a tool chooses among the drafts of one link.
	nm     *nmProfile
	stanza bool   // an iface stanza of /etc/network/interfaces is for the link
	order  int    // among the drafts of a tool without a rule of its own here, the least wins
	noIPv6 string // the line of its ifcfg file that switches IPv6 off
	rule   string // the tool's rule for that, for sentences
	rest   bool   // it is for every link that has no unit of its own
	port   bool   // it is for a port, whatever its interface
	bond   bool   // it is for a bond
	// accepts reports that systemd-networkd accepts router advertisements by itself.
	accepts bool
	// noRoutes is the key by which the tool leaves out all routes of router advertisements.
	noRoutes string
	leaseMTU bool // the tool uses the MTU of a lease of IPv4
	// The lines by which the link has an IPv4 link-local address, and by which its IPv4
	// addresses are probed.
	local4, probes4 []*item
	slaves          []port // that the bond names, by their names
	// refuse reports all that the draft is made of, as one.
	refuse   func(why string)
	release  []string // how the tool is made to release the link, for sentences
	sections map[string]*section
	repeated []*section
}

// severalPrefix is the prefix of units that do not match by one name: they come
// after those that do, because a child has the port of its parent.
const severalPrefix = "20"

// child is a P_Key interface of a link.
type child struct {
	parent, name string
	key          uint16
	from         []*item
}

func (d *draft) sec(name string) *section {
	s := d.sections[name]
	if s == nil {
		s = &section{name: name}
		if d.sections == nil {
			d.sections = map[string]*section{}
		}
		d.sections[name] = s
	}
	return s
}

// more adds a section of a kind that repeats.
func (d *draft) more(name string) *section {
	s := &section{name: name}
	d.repeated = append(d.repeated, s)
	return s
}

func (d *draft) set(sec, key, value string, from ...*item) { d.sec(sec).set(key, value, from...) }
func (d *draft) add(sec, key, value string, from ...*item) { d.sec(sec).add(key, value, from...) }

// preset gives a key that is not set what the tool does without it.
func (d *draft) preset(sec, key, value string) {
	if _, said := d.sec(sec).get(key); !said {
		d.set(sec, key, value)
	}
}

// dhcp sets DHCP= to a family, or to yes if it is set to the other one.
func (d *draft) dhcp(family string, from ...*item) {
	s := d.sec("Network")
	if was := s.keys["DHCP"]; was != nil && was.value != family {
		was.value, was.from = "yes", append(was.from, from...)
		return
	}
	s.set("DHCP", family, from...)
}

// source notes a file that the unit is made of.
func (d *draft) source(f *file) {
	if !slices.Contains(d.files, f) {
		d.files = append(d.files, f)
	}
}

// each calls f for every directive.
func (d *draft) each(f func(*section, *directive)) {
	for _, s := range d.ordered() {
		for _, x := range s.dirs {
			f(s, x)
		}
	}
}

func (d *draft) ordered() []*section {
	var out []*section
	for _, name := range sectionOrder {
		if s := d.sections[name]; s != nil && len(s.dirs) > 0 {
			slices.SortStableFunc(s.dirs, func(a, b *directive) int { return cmp.Compare(keyOrder[a.key], keyOrder[b.key]) })
			out = append(out, s)
		}
		for _, s := range d.repeated {
			if s.name == name && len(s.dirs) > 0 {
				out = append(out, s)
			}
		}
	}
	return out
}

// drop reports everything that the draft has its origin in.
func (d *draft) drop(why string) {
	d.each(func(_ *section, x *directive) {
		leftAll(slices.DeleteFunc(slices.Clone(x.from), func(it *item) bool { return it.idle == whyNoLink }), why)
	})
	if d.child != nil {
		leftAll(d.child.from, why)
	}
}

// file is the unit's file name.
func (d *draft) file() string {
	return cmp.Or(d.inOrder, d.prefix+"-"+d.name) + units.Suffix
}

// target names what one profile is chosen for: a link, or the file of the unit.
func (d *draft) target() string { return cmp.Or(d.link, d.file()) }

// unitName makes a part of a unit's file name of the name of a source.
func unitName(s string) string {
	return strings.Map(func(r rune) rune {
		if r <= ' ' || r >= 0x7f || strings.ContainsRune("/:*?[]!=\"'\\#;%", r) {
			return '_'
		}
		return r
	}, s)
}

// render is the unit's text, and the directive and section of every line that
// has one. skip is left out.
func (d *draft) render(skip *directive) (string, map[int]*directive, map[int]*section) {
	var b strings.Builder
	n := 0
	line := func(s string) { b.WriteString(s + "\n"); n++ }
	for _, f := range d.files {
		line("# Imported from " + strings.Map(func(r rune) rune {
			if r < ' ' || r >= 0x7f {
				return '?'
			}
			return r
		}, f.path))
	}
	dirs, secs := map[int]*directive{}, map[int]*section{}
	for _, s := range d.ordered() {
		if len(s.dirs) == 1 && s.dirs[0] == skip {
			continue
		}
		if n > 0 {
			line("")
		}
		line("[" + s.name + "]")
		secs[n] = s
		for _, x := range s.dirs {
			if x != skip {
				line(x.key + "=" + x.value)
				dirs[n] = x
				secs[n] = s
			}
		}
	}
	return b.String(), dirs, secs
}

// maxRounds bounds how often a unit is checked again without what was refused,
// maxTries how often without one directive to see whether that has an effect.
const (
	maxRounds = 12
	maxTries  = 32
)

// finish checks the unit by the parser that will read it, reports what that
// does not accept, and marks the items of the rest as carried. It returns false
// if no unit comes of it.
func (d *draft) finish(note func(string, ...any)) (Unit, bool) {
	tries := maxTries
	for range maxRounds {
		text, dirs, secs := d.render(nil)
		u, problems := units.VerifyFile(d.file(), []byte(text))
		var refused *directive
		gone := map[*directive]string{}
		goneSec := map[*section]string{}
		var kept []units.Problem
		for _, p := range problems {
			x, s := dirs[p.Pos.Line], secs[p.Pos.Line]
			switch {
			case p.Severity == units.Error || s == nil || s.name == "Match":
				d.drop(whyNoUnit + p.Message)
				return Unit{}, false
			case x == nil:
				goneSec[s] = whyRefused + p.Message
			case d.whole(s):
				gone[x] = whyRefused + p.Message
				refused = x
			case tries > 0 && len(text) < 64<<10 && d.counts(u, x):
				tries--
				kept = append(kept, p)
			default:
				tries--
				gone[x] = whyRefused + p.Message
				refused = x
			}
		}
		if refused == nil && len(goneSec) == 0 {
			for _, p := range kept {
				note("%s: %s", p.Pos, p.Message)
			}
			d.each(func(_ *section, x *directive) {
				for _, it := range x.from {
					it.carried = true
				}
			})
			return Unit{Name: d.file(), Text: text}, u != nil
		}
		for s, why := range goneSec {
			for _, x := range s.dirs {
				gone[x] = why
			}
		}
		for _, s := range d.ordered() {
			for _, x := range s.dirs {
				if _, bad := gone[x]; bad && d.whole(s) {
					for _, y := range s.dirs {
						if _, ok := gone[y]; !ok {
							gone[y] = gone[x]
						}
					}
					break
				}
			}
		}
		d.sweep(func(_ *section, x *directive) bool { _, bad := gone[x]; return bad }, "")
		for x, why := range gone {
			leftAll(x.from, why)
		}
	}
	d.drop(whyNoUnit + "its settings contradict each other")
	return Unit{}, false
}

// whole reports a section that is converted with all of its keys or not at all:
// a route or an address without one of its keys is another one.
func (d *draft) whole(s *section) bool {
	return s.name != "Partition" && slices.Contains(d.repeated, s)
}

// counts reports whether the parser of units uses the directive although it
// warns about it.
func (d *draft) counts(u *units.Unit, x *directive) bool {
	text, _, _ := d.render(x)
	without, _ := units.VerifyFile(d.file(), []byte(text))
	return u != nil && (without == nil || !reflect.DeepEqual(settings(u), settings(without)))
}

// settings is what a unit says, without the headers of sections that say nothing
// by themselves.
func settings(u *units.Unit) []units.Setting {
	return slices.DeleteFunc(u.Settings(), func(s units.Setting) bool {
		switch s.Section {
		case "Partition", "Address", "Route", "RoutingPolicyRule":
			return false
		}
		return s.Key == ""
	})
}

// sweep removes directives, and reports them if there is a reason.
func (d *draft) sweep(which func(*section, *directive) bool, why string) {
	for _, s := range d.ordered() {
		s.dirs = slices.DeleteFunc(s.dirs, func(x *directive) bool {
			if !which(s, x) {
				return false
			}
			if why != "" {
				leftAll(x.from, why)
			}
			return true
		})
	}
}

// place is where a directive comes from, for sentences.
func (x *directive) place() string {
	if len(x.from) == 0 {
		return "another file"
	}
	return fmt.Sprintf("%s (%s)", x.from[0].at(), x.key+"="+x.value)
}
