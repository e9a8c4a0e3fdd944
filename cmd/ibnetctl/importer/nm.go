package importer

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
)

// Ifupdown is how NetworkManager treats the links of /etc/network/interfaces
// (NetworkManager.conf(5), plugin ifupdown).
type Ifupdown int

const (
	// IfupdownDefault leaves them to ifupdown, because no setting says otherwise.
	IfupdownDefault Ifupdown = iota
	// IfupdownUnmanaged leaves them to ifupdown.
	IfupdownUnmanaged
	// IfupdownManaged manages them.
	IfupdownManaged
	// IfupdownNotLoaded does not read the file.
	IfupdownNotLoaded
)

// NetworkManagerConf reads what NetworkManager.conf and the files beside it, in
// the order in which they override each other, say of /etc/network/interfaces.
func NetworkManagerConf(texts []string) Ifupdown {
	managed, plugins, loaded := "", []string(nil), true
	for _, text := range texts {
		section := ""
		for l := range strings.Lines(text) {
			l = strings.TrimSpace(l)
			if strings.HasPrefix(l, "[") {
				section = strings.Trim(l, "[]")
				continue
			}
			key, value, _ := strings.Cut(l, "=")
			list := strings.FieldsFunc(value, func(r rune) bool { return r == ',' || r == ';' || r == ' ' })
			switch section + "." + strings.TrimSpace(key) {
			case "ifupdown.managed":
				managed, _ = boolean(strings.TrimSpace(value))
			case "main.plugins":
				plugins, loaded = list, slices.Contains(list, "ifupdown")
			case "main.plugins+":
				plugins = append(plugins, list...)
				loaded = loaded || slices.Contains(list, "ifupdown")
			case "main.plugins-":
				loaded = loaded && !slices.Contains(list, "ifupdown")
			}
		}
	}
	switch {
	case !loaded:
		return IfupdownNotLoaded
	case managed == "yes":
		return IfupdownManaged
	case managed == "no":
		return IfupdownUnmanaged
	}
	return IfupdownDefault
}

// TimestampsFile is where NetworkManager keeps when it activated a profile last.
const TimestampsFile = "/var/lib/NetworkManager/timestamps"

// Timestamps reads /var/lib/NetworkManager/timestamps: by UUID, in seconds.
func Timestamps(text string) map[string]uint64 {
	out := map[string]uint64{}
	for l := range strings.Lines(text) {
		uuid, at, _ := strings.Cut(strings.TrimSpace(l), "=")
		if n, err := strconv.ParseUint(strings.TrimSpace(at), 10, 64); err == nil {
			out[strings.TrimSpace(uuid)] = n
		}
	}
	return out
}

// nmProfile is by what NetworkManager chooses among the profiles of one device.
type nmProfile struct {
	auto     bool
	priority int64
	uuid     string
	used     uint64 // when it was active last
	everUsed bool
	others   bool // NM_CONTROLLED=no: network-scripts alone reads the file
}

// nm makes the draft a profile of NetworkManager.
func (im *importer) nm(d *draft, auto bool, priority, uuid string) {
	p := &nmProfile{auto: auto, uuid: uuid}
	p.priority, _ = strconv.ParseInt(priority, 10, 32)
	p.used, p.everUsed = im.host.Timestamps[uuid]
	d.nm = p
}

// over compares as nm-settings-connection.c does. It returns whether p is
// activated rather than o, and by what rule, for sentences about o.
func (p *nmProfile) over(o *nmProfile, timestamps bool) (wins bool, rule string) {
	never := func(x *nmProfile) string {
		if !x.everUsed {
			return "never"
		}
		return fmt.Sprint(x.used)
	}
	switch {
	case p.others != o.others:
		return p.others, "NM_CONTROLLED=no there makes NetworkManager leave the link to network-scripts"
	case p.auto != o.auto:
		return p.auto, "NetworkManager activates by itself only a profile with autoconnect=true"
	case p.priority != o.priority:
		return p.priority > o.priority, fmt.Sprintf("its autoconnect-priority= is higher (%d, here %d)", p.priority, o.priority)
	case p.everUsed != o.everUsed || p.used != o.used:
		return p.everUsed && (!o.everUsed || p.used > o.used), fmt.Sprintf(
			"NetworkManager activated it last (%s, here %s, in %s)", never(p), never(o), TimestampsFile)
	}
	rule = "both have the same autoconnect-priority= and time in " + TimestampsFile
	if !timestamps {
		rule = "both have the same autoconnect-priority=, and " + TimestampsFile + ", which decides between them, was not read"
	}
	if p.uuid == "" || o.uuid == "" || p.uuid == o.uuid {
		return false, rule + ": the first file by name is used"
	}
	return p.uuid < o.uuid, rule + ": the first one by UUID is used"
}

// nmDirs are the directories of profiles in the order in which they hide those of
// the same UUID.
var nmDirs = []string{"/run/NetworkManager/system-connections", "/etc/NetworkManager/system-connections",
	"/usr/lib/NetworkManager/system-connections"}

// nmDir is the place of a file among nmDirs; files elsewhere are as those of /etc.
func nmDir(f *file) int {
	if i := slices.Index(nmDirs, path.Dir(f.path)); i >= 0 {
		return i
	}
	return 1
}

// shadowed refuses the profiles that NetworkManager does not load, because another
// file has their UUID, and the files that only say so. It returns the others.
func shadowed(files []*file) []*file {
	files = slices.Clone(files)
	slices.SortStableFunc(files, func(a, b *file) int { return nmDir(a) - nmDir(b) })
	first, hidden := map[string]*file{}, map[string]*file{}
	return slices.DeleteFunc(files, func(f *file) bool {
		if uuid, meta := strings.CutSuffix(path.Base(f.path), ".nmmeta"); meta {
			switch to := keyOf(f, "nmmeta", "loaded-path"); {
			case to == "/dev/null" || len(f.lines) == 0:
				hidden[uuid] = f
				f.whole.unneeded("it hides the profiles of its UUID")
				f.cover(f.lines)
			default:
				f.refuse("not read: NetworkManager's record of which file it loads for a UUID; import that file alone if it is not the first one")
			}
			return true
		}
		uuid := keyOf(f, "connection", "uuid")
		if len(uuid) != 36 {
			return false
		}
		other := first[uuid]
		switch {
		case hidden[uuid] != nil && nmDir(hidden[uuid]) < nmDir(f):
			f.refuse("not used: " + hidden[uuid].path + " hides the profile with this UUID")
		case other == nil:
			first[uuid] = f
			return false
		case nmDir(other) < nmDir(f):
			f.refuse("not used: " + other.path + " has the same UUID and overrides it")
		default:
			f.refuse("not used: " + other.path + " has the same UUID, and NetworkManager loads the file that was changed last: " +
				"import this one alone if it is the one")
		}
		return true
	})
}

// keyOf is the value of a key in a section, without an account of its line.
func keyOf(f *file, section, key string) string {
	in, out := "", ""
	for _, it := range f.lines {
		k, v, ok := strings.Cut(it.text, "=")
		switch {
		case it.text[0] == '[':
			in = it.text
		case ok && in == "["+section+"]" && strings.TrimSpace(k) == key:
			out = strings.TrimSpace(v)
		}
	}
	return out
}

// over reports whether the draft is used rather than o, which is for the same
// link, and why, for sentences about o.
func (d *draft) over(o *draft, host Host) (wins bool, why string) {
	also := "not used: " + d.files[0].path + " also configures " + d.subject() + ", and "
	interfaces := host.Ifupdown == IfupdownDefault || host.Ifupdown == IfupdownUnmanaged
	switch {
	case d.nm != nil && o.nm != nil:
		wins, why = d.nm.over(o.nm, host.Timestamps != nil)
		return wins, also + why
	case d.tool == o.tool:
		return d.order < o.order, also + d.rule
	case o.nm != nil && d.stanza && interfaces:
		why = "NetworkManager leaves the links of that file to ifupdown (managed=false in [ifupdown] of NetworkManager.conf)"
		if host.Ifupdown == IfupdownDefault {
			why = "NetworkManager leaves the links of that file to ifupdown ([ifupdown] managed= in NetworkManager.conf is not set)"
		}
		return true, also + why
	case d.nm != nil && o.stanza && interfaces:
		return false, ""
	case d.nm != nil && o.stanza && host.Ifupdown == IfupdownManaged:
		return true, also + "NetworkManager manages the links of this file too (managed=true in [ifupdown] of NetworkManager.conf)"
	case d.nm != nil && o.stanza:
		return true, also + "NetworkManager does not read this file (plugins= in NetworkManager.conf is without ifupdown): both tools " +
			"configure the link"
	}
	return true, fmt.Sprintf("not used: %s of %s also configures %s, and a link is imported from one tool only", d.files[0].path, d.tool,
		d.subject())
}
