// Package importer turns the files that other tools configure InfiniBand links
// with into .ibnetwork units: RHEL's ifcfg, NetworkManager's keyfiles, netplan,
// Debian's interfaces, ipoibmodemtu.conf, openib.conf, mlx4 port types, and
// opensm's settings.
//
// It is pure: texts in, texts out. What it cannot carry over it says, line by
// line; it never guesses. It understands as much of each format as says
// something about an InfiniBand or RoCE link, not the format as a whole.
package importer

import (
	"cmp"
	"fmt"
	"net/netip"
	"path"
	"slices"
	"strings"

	"ibnetworkd/ib"
)

// Source is one file to import.
type Source struct {
	Path string
	Text string
}

// Unit is a file to be written.
type Unit struct {
	Name string // 10-ib0.ibnetwork
	Text string
}

// Left is a line that was not carried over.
type Left struct {
	Path string `json:"path"`
	Line int    `json:"line"`
	Text string `json:"text"`
	Why  string `json:"why"`
}

// String prints it as file:line: why: text.
func (l Left) String() string {
	return fmt.Sprintf("%s:%d: %s: %s", l.Path, l.Line, l.Why, l.Text)
}

// Result is what became of the sources.
type Result struct {
	Units []Unit
	Left  []Left
	// Notes are what to do besides, in sentences.
	Notes []string
}

// MaxSize bounds one source in bytes; configuration files are smaller.
const MaxSize = 1 << 20

// Import reads all sources; units of the same link become one.
func Import(sources []Source) Result {
	im := &importer{links: map[string]*linkUnit{}}
	for _, s := range sources {
		im.path = s.Path
		if len(s.Text) > MaxSize {
			im.left(0, "", "the file is too large")
			continue
		}
		switch f := Format(s); f {
		case "":
			im.left(0, "", "no format that is known here")
		default:
			formats[f](im, s)
		}
	}
	return im.result()
}

var formats = map[string]func(*importer, Source){
	"ifcfg": (*importer).ifcfg, "keyfile": (*importer).keyfile, "netplan": (*importer).netplan, "interfaces": (*importer).interfaces,
	"ipoibmodemtu": (*importer).ipoibmodemtu, "openib": (*importer).openib, "mlx4": (*importer).mlx4, "modprobe": (*importer).modprobe,
	"opensm": (*importer).opensm, "partitions": (*importer).partitions,
}

// Format says what a source is, by its name and, where that says nothing, by
// its text; "" is unknown.
func Format(s Source) string {
	base := path.Base(s.Path)
	switch {
	case strings.HasPrefix(base, "ifcfg-"):
		return "ifcfg"
	case strings.HasSuffix(base, ".nmconnection"), strings.Contains(s.Path, "system-connections/"):
		return "keyfile"
	case strings.HasSuffix(base, ".yaml"), strings.HasSuffix(base, ".yml"):
		return "netplan"
	case base == "interfaces", strings.Contains(s.Path, "interfaces.d/"):
		return "interfaces"
	case strings.HasPrefix(base, "ipoibmodemtu"):
		return "ipoibmodemtu"
	case strings.HasPrefix(base, "openib"):
		return "openib"
	case base == "mlx4.conf" && !strings.Contains(s.Path, "modprobe.d"):
		return "mlx4"
	case strings.Contains(s.Path, "modprobe.d/"):
		return "modprobe"
	case strings.HasPrefix(base, "partitions"):
		return "partitions"
	case strings.HasPrefix(base, "opensm"):
		return "opensm"
	}
	switch t := "\n" + s.Text; {
	case strings.Contains(t, "\n[infiniband]"):
		return "keyfile"
	case strings.Contains(t, "\niface "):
		return "interfaces"
	case strings.Contains(t, "\nmode[") || strings.Contains(t, "\nmtu["):
		return "ipoibmodemtu"
	case strings.Contains(t, "\nDEVICE="):
		return "ifcfg"
	case strings.Contains(t, "\nnetwork:"):
		return "netplan"
	case strings.Contains(t, "options mlx4_core"):
		return "modprobe"
	}
	return ""
}

// linkUnit is what is known of one unit.
type linkUnit struct {
	name        string // of the file, without number and suffix
	match       []string
	mode, mtu   string
	manual      bool
	optional    bool
	addresses   []string
	gateways    []string
	dns         []string
	domains     []string
	routes      []route
	partitions  []partition
	portType    string
	sm          []string // lines of [SubnetManager]
	from        []string
	acceptRA    string
	linkLocal   string
	networkSeen bool
}

type route struct {
	dst, via, metric string
	more             []string // further lines of the [Route] section
}

type partition struct {
	key  ib.PKey
	name string
}

type importer struct {
	path  string
	links map[string]*linkUnit
	lefts []Left
	notes []string
}

// link finds or makes the unit of a link.
func (im *importer) link(name string) *linkUnit {
	u := im.links[name]
	if u == nil {
		u = &linkUnit{name: name, match: []string{"Name=" + name}}
		im.links[name] = u
	}
	if !slices.Contains(u.from, im.path) {
		u.from = append(u.from, im.path)
	}
	return u
}

// unit finds or makes a unit that is not about one link.
func (im *importer) unit(name string, match ...string) *linkUnit {
	u := im.links[name]
	if u == nil {
		u = im.link(name)
		u.match = match
	}
	return u
}

func (im *importer) left(line int, text, why string) {
	im.lefts = append(im.lefts, Left{im.path, line, strings.TrimSpace(text), why})
}

func (im *importer) note(format string, a ...any) {
	s := fmt.Sprintf(format, a...)
	if !slices.Contains(im.notes, s) {
		im.notes = append(im.notes, s)
	}
}

// validName reports whether s can be an interface name (dev_valid_name in
// net/core/dev.c) and a file name here.
func validName(s string) bool {
	return s != "" && len(s) < 16 && s[0] != '.' && !strings.ContainsFunc(s, func(r rune) bool {
		return r <= ' ' || r >= 0x7f || strings.ContainsRune("/:*?[]!=\"'\\#;%", r)
	})
}

// isIB reports whether a name looks like an IPoIB interface.
func isIB(name string) bool { return strings.HasPrefix(name, "ib") || strings.HasPrefix(name, "mlx") }

// pkeyOf reads a P_Key in the forms of the tools: 0x8001, 8001 (hexadecimal in
// ifcfg and sysfs) or decimal.
func pkeyOf(s string, hex bool) (ib.PKey, bool) {
	if hex && !strings.HasPrefix(s, "0x") {
		s = "0x" + s
	}
	k, err := ib.ParsePKey(s)
	if err != nil || !k.AsFull().IsValid() {
		return 0, false
	}
	// Every tool but the kernel's own netlink sets the membership bit.
	return k.AsFull(), true
}

func (u *linkUnit) setMode(s string) bool {
	switch strings.ToLower(strings.Trim(s, `"'`)) {
	case "yes", "connected", "y", "true", "1":
		u.mode = "connected"
	case "no", "datagram", "n", "false", "0":
		u.mode = "datagram"
	case "auto":
		u.mode = "auto"
	default:
		return false
	}
	return true
}

// matchHW adds a match by hardware address. Of an IPoIB address only the GUID
// stays: flags and queue pair change whenever the interface is made anew.
func (u *linkUnit) matchHW(s string) bool {
	a, err := ib.ParseHWAddr(s)
	if err != nil {
		return false
	}
	m := "MACAddress=" + a.String()
	if a.Len() > 6 {
		m = "PortGUID=" + a.GUID().String()
	}
	if !slices.Contains(u.match, m) {
		u.match = append(u.match, m)
	}
	return true
}

func (u *linkUnit) addAddress(s string) bool {
	p, err := netip.ParsePrefix(s)
	if err != nil {
		a, aerr := netip.ParseAddr(s)
		if aerr != nil {
			return false
		}
		p = netip.PrefixFrom(a, a.BitLen())
	}
	u.networkSeen = true
	if !slices.Contains(u.addresses, p.String()) {
		u.addresses = append(u.addresses, p.String())
	}
	return true
}

func (u *linkUnit) addGateway(s string) bool {
	a, err := netip.ParseAddr(s)
	if err != nil {
		return false
	}
	u.networkSeen = true
	if !slices.Contains(u.gateways, a.String()) {
		u.gateways = append(u.gateways, a.String())
	}
	return true
}

func (u *linkUnit) addDNS(s string) bool {
	a, err := netip.ParseAddr(s)
	if err != nil {
		return false
	}
	u.networkSeen = true
	if !slices.Contains(u.dns, a.String()) {
		u.dns = append(u.dns, a.String())
	}
	return true
}

func (u *linkUnit) addDomain(s string) bool {
	if s == "" || strings.ContainsAny(s, " \t\n/\\\"'") {
		return false
	}
	u.networkSeen = true
	u.domains = append(u.domains, s)
	return true
}

func (u *linkUnit) addRoute(dst, via, metric string, more ...string) bool {
	if dst == "default" || dst == "0.0.0.0/0" || dst == "::/0" {
		if metric == "" && len(more) == 0 {
			return u.addGateway(via)
		}
		dst = "0.0.0.0/0"
		if strings.Contains(via, ":") {
			dst = "::/0"
		}
	}
	p, err := netip.ParsePrefix(dst)
	if err != nil {
		a, aerr := netip.ParseAddr(dst)
		if aerr != nil {
			return false
		}
		p = netip.PrefixFrom(a, a.BitLen())
	}
	if via != "" {
		if _, err := netip.ParseAddr(via); err != nil {
			return false
		}
	}
	if metric != "" && strings.Trim(metric, "0123456789") != "" {
		return false
	}
	u.networkSeen = true
	u.routes = append(u.routes, route{p.Masked().String(), via, metric, more})
	return true
}

// mtuOf accepts what an IPoIB link can have.
func mtuOf(s string) (string, bool) {
	var n int
	if _, err := fmt.Sscanf(s, "%d", &n); err != nil || n < 68 || n > 65520 || fmt.Sprint(n) != s {
		return "", false
	}
	return s, true
}

func (im *importer) result() Result {
	r := Result{Left: im.lefts, Notes: im.notes}
	names := make([]string, 0, len(im.links))
	for n := range im.links {
		names = append(names, n)
	}
	slices.Sort(names)
	for _, n := range names {
		u := im.links[n]
		order := "10"
		if strings.HasPrefix(n, "port-") {
			order = "05"
		} else if n == "infiniband" {
			order = "90"
		}
		r.Units = append(r.Units, Unit{Name: order + "-" + n + ".ibnetwork", Text: u.text()})
	}
	slices.SortFunc(r.Units, func(a, b Unit) int { return strings.Compare(a.Name, b.Name) })
	return r
}

func (u *linkUnit) text() string {
	var b strings.Builder
	for _, f := range u.from {
		fmt.Fprintf(&b, "# Imported from %s\n", strings.Map(func(r rune) rune {
			if r < ' ' || r >= 0x7f {
				return '?'
			}
			return r
		}, f))
	}
	section := func(name string, lines ...string) {
		lines = slices.DeleteFunc(lines, func(s string) bool { return s == "" || strings.HasSuffix(s, "=") })
		if len(lines) == 0 {
			return
		}
		b.WriteString("\n[" + name + "]\n")
		for _, l := range lines {
			b.WriteString(l + "\n")
		}
	}
	section("Match", u.match...)
	link := []string{"MTUBytes=" + u.mtu}
	if u.manual {
		link = append(link, "ActivationPolicy=manual")
	}
	if u.optional {
		link = append(link, "RequiredForOnline=no")
	}
	section("Link", link...)
	section("Port", "Type="+u.portType)
	section("IPoIB", "Mode="+u.mode)
	slices.SortStableFunc(u.partitions, func(a, b partition) int { return cmp.Compare(a.key, b.key) })
	for _, p := range u.partitions {
		section("Partition", "PartitionKey="+p.key.String(), "Name="+p.name)
	}
	if u.networkSeen {
		net := []string{"LinkLocalAddressing=" + u.linkLocal, "IPv6AcceptRA=" + u.acceptRA}
		for _, s := range u.addresses {
			net = append(net, "Address="+s)
		}
		for _, s := range u.gateways {
			net = append(net, "Gateway="+s)
		}
		for _, s := range u.dns {
			net = append(net, "DNS="+s)
		}
		for _, s := range u.domains {
			net = append(net, "Domains="+s)
		}
		section("Network", net...)
		for _, r := range u.routes {
			section("Route", append([]string{"Destination=" + r.dst, "Gateway=" + r.via, "Metric=" + r.metric}, r.more...)...)
		}
	}
	section("SubnetManager", u.sm...)
	return strings.TrimPrefix(b.String(), "\n")
}
