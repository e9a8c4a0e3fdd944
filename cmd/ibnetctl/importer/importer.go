// Package importer turns the files that other tools configure InfiniBand links
// with into .ibnetwork units.
//
// It is pure: texts in, texts out. Every line of every source is accounted for
// (Result.Lines): a directive of a unit has its origin in it, or nothing has to
// be done for it, or it is in Result.Left with the reason. A line that no parser
// says anything about is reported, so none can be lost. What is converted is
// checked by the parser of units, and reported where that does not accept it.
package importer

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"ibnetworkd/ib"
)

// Source is one file to import.
type Source struct {
	Path string // absolute
	Text string
}

// Host is what is known of the host that the units are for. The zero Host is
// nothing.
type Host struct {
	// PortGUIDs are the port GUIDs of IPoIB links by the links' names.
	PortGUIDs map[string]ib.GUID
	// NoResolved reports that systemd-resolved, which DNS= and Domains= are for, is
	// not installed.
	NoResolved bool
	// Timestamps are when NetworkManager activated profiles last, by UUID; nil is
	// not known.
	Timestamps map[string]uint64
	Ifupdown   Ifupdown
}

// Unit is a file to be written.
type Unit struct {
	Name string // 10-ib0.ibnetwork
	Text string
}

// Left is what was not converted.
type Left struct {
	Path string `json:"path"`
	Line int    `json:"line,omitempty"` // from 1; 0 is the whole file
	Text string `json:"text,omitempty"`
	Why  string `json:"why"`
}

// String prints it as file:line: why: text.
func (l Left) String() string {
	s := l.Path
	if l.Line > 0 {
		s += fmt.Sprintf(":%d", l.Line)
	}
	s += ": " + l.Why
	if l.Text != "" {
		s += ": " + l.Text
	}
	return OneLine(s)
}

// OneLine replaces control characters, which may be in the names of files.
func OneLine(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' && r != '\t' || r == 0x7f {
			return '?'
		}
		return r
	}, s)
}

// Result is what became of the sources.
type Result struct {
	Units []Unit
	Left  []Left
	// Notes are what to do besides, in sentences.
	Notes []string
	// Lines is the account of every line that is not blank, in the order of the
	// sources.
	Lines []Line
}

// maxSources bounds how many files are read.
const maxSources = 4096

type importer struct {
	host   Host
	files  []*file
	drafts []*draft
	// children are P_Key interfaces that commands make; those of profiles are in
	// their drafts.
	children []*child
	extras   []extra
	// overlays are what scripts change of links; they run last.
	overlays []*draft
	global   globals
	vrfs     []*vrf
	others   map[string][]string // what is in a VRF beside IPoIB links, by tool and VRF
	ipv6Init bool                // IPV6INIT= of /etc/sysconfig/network
	manager  manager
	index    map[string]*draft // by link, of those that were chosen
	ports    map[string]*draft
	notes    []string
	noted    map[string]bool
}

// extra is a setting of a link by a tool that does not configure the link as a
// whole.
type extra struct {
	link            string // "" is every IPoIB link
	sec, key, value string
	it              *item
}

// parsers of each format, in the order in which they run. Each gets all files
// of its format.
var parsers = []struct {
	format string
	parse  func(*importer, []*file)
}{
	{"nm-conf", (*importer).nmConfs}, {"networkd-conf", (*importer).networkdConfs},
	{"keyfile", (*importer).keyfiles}, {"ifcfg", (*importer).ifcfgs}, {"netplan", (*importer).netplan}, {"wicked", (*importer).wicked},
	{"networkd", (*importer).networkd}, {"nmstate", (*importer).nmstate}, {"interfaces", (*importer).interfaces},
	{"ipoibmodemtu", (*importer).ipoibmodemtu}, {"openib", (*importer).openib}, {"mlx4", (*importer).mlx4}, {"modprobe", (*importer).modprobe},
	{"modules", (*importer).modules}, {"script", (*importer).scripts}, {"opensm", (*importer).opensm}, {"partitions", (*importer).smFiles},
	{"guid2lid", (*importer).smFiles}, {"prefix-routes", (*importer).smFiles}, {"root-guids", (*importer).smFiles},
	{"cn-guids", (*importer).smFiles}, {"io-guids", (*importer).smFiles}, {"guid-order", (*importer).smFiles},
	{"hop-weights", (*importer).smFiles}, {"node-names", (*importer).smFiles}, {"qos-policy", (*importer).smFiles},
	{"udev", (*importer).udev}, {formatRefused, func(*importer, []*file) {}},
}

// Import makes units of all sources.
func Import(host Host, sources []Source) Result {
	im := &importer{host: host, ports: map[string]*draft{}, others: map[string][]string{}, noted: map[string]bool{}}
	by := map[string][]*file{}
	named := map[string]string{}
	im.manager.has, im.manager.names, im.manager.named = map[string]bool{}, map[string]*item{}, map[string]*item{}
	for _, s := range sources {
		im.manager.has[s.Path] = true
		if Format(s) == "opensm" && Leftover(s.Path) == "" {
			for p, format := range namedFiles(s) {
				named[p] = cmp.Or(named[p], format)
			}
		}
	}
	for i, s := range sources {
		f := newFile(s, named[s.Path])
		im.files = append(im.files, f)
		if i >= maxSources {
			f.refuse(fmt.Sprintf("more than %d files: import the rest in a second run", maxSources))
			continue
		}
		if f.format == formatRefused {
			continue
		}
		if why := cmp.Or(Leftover(s.Path), generated(s)); why != "" && f.format != named[s.Path] {
			f.refuse(why)
			continue
		}
		if why, ok := notRead[f.format]; ok {
			f.refuse(why)
			continue
		}
		by[f.format] = append(by[f.format], f)
	}
	for _, p := range parsers {
		if fs := by[p.format]; len(fs) > 0 {
			p.parse(im, fs)
		}
	}
	im.choose()
	im.inVRFs()
	im.bonds()
	im.ipv4()
	im.adverts()
	im.leaseMTUs()
	im.partition()
	im.extra()
	im.manage()
	im.exceptPorts()
	var r Result
	im.drafts = slices.AppendSeq(im.drafts, maps.Values(im.ports))
	im.distinct()
	slices.SortFunc(im.drafts, func(a, b *draft) int { return strings.Compare(a.file(), b.file()) })
	for _, d := range im.drafts {
		if u, ok := d.finish(im.note); ok {
			r.Units = append(r.Units, u)
			im.released(d)
			if s := d.sections["Network"]; im.host.NoResolved && s != nil &&
				slices.ContainsFunc(s.dirs, func(x *directive) bool { return x.key == "DNS" || x.key == "Domains" }) {
				im.note("DNS= and Domains= take effect through systemd-resolved, which this host does not have: make /etc/resolv.conf a " +
					"symbolic link to /run/ibnetworkd/resolv.conf, or install systemd-resolved")
			}
		}
	}
	r.Lines, r.Left = account(im.files)
	r.Notes = im.notes
	return r
}

// note adds a sentence to Result.Notes, once.
func (im *importer) note(format string, a ...any) {
	s := OneLine(strings.ReplaceAll(fmt.Sprintf(format, a...), "\n", " "))
	if !im.noted[s] {
		im.noted[s] = true
		im.notes = append(im.notes, s)
	}
}

// released notes what has to be done with the tool of a draft whose unit is
// written.
func (im *importer) released(d *draft) {
	for _, s := range d.release {
		im.note("%s", s)
	}
}

// profile adds a draft for a link by its name.
func (im *importer) profile(tool, link string, f *file, from ...*item) *draft {
	d := &draft{tool: tool, prefix: "10", name: link, link: link, files: []*file{f}}
	d.set("Match", "Name", link, from...)
	im.drafts = append(im.drafts, d)
	return d
}

// choose leaves one profile for each link: a tool uses one, by its own rule, and
// among tools the order of parsers decides where they have no rule.
func (im *importer) choose() {
	best := map[string]*draft{}
	links := im.linksByAddress()
	target := func(d *draft) string { return cmp.Or(links[d], d.target()) }
	for _, d := range im.drafts {
		b := best[target(d)]
		if b != nil {
			if wins, _ := b.over(d, im.host); wins {
				continue
			}
			if wins, _ := d.over(b, im.host); !wins {
				continue // equal: the first one
			}
		}
		best[target(d)] = d
	}
	var out []*draft
	im.index = map[string]*draft{}
	for _, d := range im.drafts {
		if b := best[target(d)]; d != b {
			_, why := b.over(d, im.host)
			d.drop(why)
			for _, s := range d.release {
				im.note("%s", s)
			}
			continue
		}
		out = append(out, d)
		if n := cmp.Or(d.link, links[d]); n != "" {
			im.index[n] = d
		}
	}
	im.drafts = out
}

// linksByAddress are the names of the links of the drafts that have a hardware
// address only: that of another draft with the same port GUID, or of the host's link.
// Where neither is known, a draft by name may be for the same link, which is noted.
func (im *importer) linksByAddress() map[*draft]string {
	names := map[ib.GUID]string{}
	for n, g := range im.host.PortGUIDs {
		if _, _, child := keyOfName(n); !child && (names[g] == "" || n < names[g]) {
			names[g] = n
		}
	}
	var open []*draft // by name alone, of a link whose GUID is not known
	for _, d := range im.drafts {
		if d.link == "" || !d.isParent() {
			continue
		}
		g := d.portGUID()
		if g != 0 {
			names[g] = d.link
		}
		if g == 0 && im.host.PortGUIDs[d.link] == 0 {
			open = append(open, d)
		}
	}
	out := map[*draft]string{}
	for _, d := range im.drafts {
		g := d.portGUID()
		if d.link != "" || g == 0 {
			continue
		}
		if out[d] = cmp.Or(d.renamed, names[g]); out[d] != "" {
			continue
		}
		for _, o := range open {
			im.note("%s selects its link by the port GUID %v, and %s by the name %s: if it is the same link, import only the file that is "+
				"in force, as ip link shows", d.files[0].path, g, o.files[0].path, o.link)
		}
	}
	return out
}

// portGUID is the port that [Match] names, 0 for none or several.
func (d *draft) portGUID() (g ib.GUID) {
	s := d.sections["Match"]
	if s == nil {
		return 0
	}
	for _, x := range s.dirs {
		if x.key != "PortGUID" {
			continue
		}
		if g != 0 {
			return 0
		}
		var err error
		if g, err = ib.ParseGUID(x.value); err != nil {
			return 0
		}
	}
	return g
}

// distinct changes the name of a unit that has the name of its source where
// another unit has that name.
func (im *importer) distinct() {
	taken := map[string]bool{}
	for _, d := range im.drafts {
		if d.inOrder == "" {
			taken[d.file()] = true
		}
	}
	for _, d := range im.drafts {
		for d.inOrder != "" && taken[d.file()] {
			d.inOrder += "-network"
		}
		taken[d.file()] = true
	}
}

// subject names what the unit is for.
func (d *draft) subject() string {
	if d.link != "" {
		return d.link
	}
	return "the link of " + cmp.Or(d.inOrder, d.name)
}

// find is the draft of a link by its name, made if there is none.
func (im *importer) find(link string, f *file) *draft {
	d := im.index[link]
	if d == nil {
		d = im.profile("", link, f)
		im.index[link] = d
	}
	d.source(f)
	return d
}

// partition gives the units of parents their children.
func (im *importer) partition() {
	var all []*child
	for _, d := range im.drafts {
		if d.child != nil {
			all = append(all, d.child)
		}
	}
	all = append(all, im.children...)
	slices.SortStableFunc(all, func(a, b *child) int {
		// Of two names of one key the last is used: the one that contains the key.
		return cmp.Or(cmp.Compare(a.key, b.key), strings.Compare(disagrees(b.name, b.key, ""), disagrees(a.name, a.key, "")))
	})
	type id struct {
		parent string
		key    uint16
	}
	made := map[id]*section{}
	for _, c := range all {
		s := made[id{c.parent, c.key | 0x8000}]
		if s == nil {
			s = im.find(c.parent, c.from[0].file).more("Partition")
			made[id{c.parent, c.key | 0x8000}] = s
		}
		s.set("PartitionKey", ib.PKey(c.key).AsFull().String(), c.from...)
		s.set("Name", c.name, c.from...)
	}
}

// extra gives units the settings of tools that configure no link as a whole.
func (im *importer) extra() {
	var host, links []extra
	other := map[string]*directive{} // what another tool sets of a link
	for _, e := range im.extras {
		if e.link == "" {
			host = append(host, e)
			continue
		}
		links = append(links, e)
		if d := im.index[e.link]; d != nil {
			if old := d.sec(e.sec).keys[e.key]; old != nil && old.value != e.value && other[e.link] == nil {
				other[e.link] = old
			}
		}
	}
	for _, e := range links {
		// Mode and MTU go together: half of them would be neither tool's.
		if old := other[e.link]; old != nil {
			e.it.left("not used: " + old.place() + " sets another value of " + e.link)
		} else {
			im.find(e.link, e.it.file).set(e.sec, e.key, e.value, e.it)
		}
	}
	for _, o := range im.overlays {
		d := im.find(o.link, o.files[0])
		for _, s := range o.ordered() {
			if slices.Contains(o.repeated, s) {
				d.repeated = append(d.repeated, s)
				continue
			}
			for _, x := range s.dirs {
				if repeats[x.key] {
					d.sec(s.name).add(x.key, x.value, x.from...)
				} else {
					d.set(s.name, x.key, x.value, x.from...)
				}
			}
		}
	}
	if len(host) == 0 {
		return
	}
	rest := im.everyLink(host[0].it.file)
	slices.SortStableFunc(host, func(a, b extra) int { return strings.Compare(a.sec, b.sec) }) // the mode first
	for _, e := range host {
		for _, d := range im.drafts {
			if !d.isIB() && d != rest {
				continue
			}
			// openibd sets the MTU in connected mode only.
			if mode, _ := d.sec("IPoIB").get("Mode"); e.key == "MTUBytes" && mode == "datagram" {
				e.it.unneeded("openibd sets it in connected mode only")
				continue
			}
			d.source(e.it.file)
			if old := d.sec(e.sec).keys[e.key]; old == nil ||
				slices.ContainsFunc(old.from, func(it *item) bool { return it.file.format == e.it.file.format }) {
				d.set(e.sec, e.key, e.value, e.it)
			}
		}
	}
}

// everyLink is the unit of the IPoIB links that have no unit of their own.
func (im *importer) everyLink(f *file) *draft {
	for _, d := range im.drafts {
		if d.rest {
			d.source(f)
			return d
		}
	}
	d := &draft{prefix: "90", name: "infiniband", rest: true, files: []*file{f}}
	d.set("Match", "Type", "infiniband")
	im.drafts = append(im.drafts, d)
	return d
}

// isIB reports whether a draft is for certain IPoIB links that are no bonds.
func (d *draft) isIB() bool { return !d.rest && !d.port && !d.bond }
