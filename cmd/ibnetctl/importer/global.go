package importer

import (
	"cmp"
	"maps"
	"path"
	"slices"
	"strings"
)

// Reasons for lines of files that a tool reads for all links.
const (
	whySection    = "a section about no profile"
	whyNoLink     = "no link of these files uses it"
	whyToolItself = "for the tool itself, not for its links"
	whyAllLinks   = "it applies to all links: if the units have a key for it, write it there"
)

// globals are the lines of files for all links, which count where that of the link has none.
type globals struct {
	wicked   []*variable
	networkd []*entry
	nm       map[string]*entry // of NetworkManager, by SECTION.KEY
}

// nmConfFiles are the patterns of NetworkManager's own files, from the first one that is
// read to the last, which overrides the others.
var nmConfFiles = []string{"/usr/lib/NetworkManager/conf.d/*.conf", "/run/NetworkManager/conf.d/*.conf",
	"/etc/NetworkManager/NetworkManager.conf", "/etc/NetworkManager/conf.d/*.conf", "/var/lib/NetworkManager/NetworkManager-intern.conf"}

// isNMConf reports a file of NetworkManager that is no profile.
func isNMConf(p string) bool {
	base := path.Base(p)
	return base == "NetworkManager.conf" || base == "NetworkManager-intern.conf" ||
		strings.HasSuffix(path.Dir(p), "NetworkManager/conf.d") && strings.HasSuffix(base, ".conf")
}

// nmConfs reads NetworkManager.conf and the files beside it. Of the lines in [connection]
// those about addresses count for profiles that do not have the key.
func (im *importer) nmConfs(files []*file) {
	rank := func(f *file) int {
		return slices.IndexFunc(nmConfFiles, func(p string) bool {
			ok, _ := path.Match(p, f.path)
			return ok
		})
	}
	files = slices.Clone(files)
	slices.SortStableFunc(files, func(a, b *file) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), strings.Compare(path.Base(a.path), path.Base(b.path)))
	})
	im.global.nm = map[string]*entry{}
	for i, f := range files {
		hides := func(x *file) bool {
			return path.Base(x.path) == path.Base(f.path) && rank(x) > rank(f) && path.Base(path.Dir(f.path)) == "conf.d"
		}
		if j := slices.IndexFunc(files[i+1:], hides); j >= 0 {
			f.refuse("not used: " + files[i+1+j].path + " has the same name and overrides it")
			continue
		}
		all := sections(f.content(hashOrSem))
		some := slices.ContainsFunc(all, func(e *entry) bool { return e.section == "connection" && e.key == "match-device" })
		for _, e := range all {
			section, key, dotted := strings.Cut(e.key, ".")
			switch {
			case e.section == "main" && e.key == "dhcp" && e.value != "internal":
				e.left("the identifiers are those of another client: write ClientIdentifier= into [DHCPv4] with the one that the server has")
			case !strings.HasPrefix(e.section, "connection"):
				e.unneeded(whySection)
			case !dotted && e.key != "match-device": // unknown
			case dotted && !slices.Contains([]string{"ipv4", "ipv6", "connection", "infiniband"}, section):
				e.unneeded("for other kinds of links")
			case e.section != "connection" || some || !dotted:
				e.left("it is for some links: write it into their units")
			case section != "ipv4" && section != "ipv6":
				e.left(whyAllLinks)
			default:
				if old := im.global.nm[e.key]; old != nil {
					old.left("not used: " + e.at() + " overrides it")
				}
				e.unneeded(whyNoLink)
				im.global.nm[e.key] = &entry{variable: &variable{e.item, key, e.value}, section: section}
			}
		}
	}
}

// keyfileGlobals are the lines for all links that count for a profile, which has by.
func (im *importer) keyfileGlobals(by map[string]*entry) (out []*entry) {
	for _, k := range slices.Sorted(maps.Keys(im.global.nm)) {
		if e := im.global.nm[k]; by[k] == nil && by[e.section+".method"] != nil {
			by[k] = e
			out = append(out, e)
		}
	}
	return out
}

// ifcfgNames are keys of RHEL's ifcfg by those of NetworkManager.
var ifcfgNames = map[string]string{"ipv4.dhcp-client-id": "DHCP_CLIENT_ID", "ipv4.dhcp-iaid": "DHCP_IAID",
	"ipv4.dhcp-vendor-class-identifier": "DHCP_VENDOR_CLASS_IDENTIFIER", "ipv4.route-metric": "IPV4_ROUTE_METRIC",
	"ipv4.dad-timeout": "ACD_TIMEOUT", "ipv4.dhcp-timeout": "IPV4_DHCP_TIMEOUT", "ipv6.dhcp-timeout": "IPV6_DHCP_TIMEOUT",
	"ipv6.dhcp-duid": "DHCPV6_DUID", "ipv6.dhcp-iaid": "DHCPV6_IAID", "ipv6.route-metric": "IPV6_ROUTE_METRIC"}

// ifcfgGlobals adds the lines for all links to the variables of a file of NetworkManager.
func (im *importer) ifcfgGlobals(v *variables) {
	for _, k := range slices.Sorted(maps.Keys(im.global.nm)) {
		e := im.global.nm[k]
		if name := ifcfgNames[k]; name == "" {
			e.left(whyAllLinks)
		} else if v.by[name] == nil {
			v.extend(&variable{e.item, name, e.value})
		}
	}
}

// extend adds a variable that the file does not have.
func (v *variables) extend(a *variable) {
	v.by[a.key] = a
	v.list = append(v.list, a)
}

// wickedGlobal reads /etc/sysconfig/network/dhcp, whose variables count for links that do
// not have them.
func (im *importer) wickedGlobal(f *file) {
	for _, a := range assignments(f, hash).list {
		switch {
		case a.key == "WRITE_HOSTNAME_TO_HOSTS":
			a.unneeded(whyUnused)
		case !strings.HasPrefix(a.key, "DHCLIENT"): // unknown
		case a.value == "":
			a.unneeded("it is empty")
		default:
			a.unneeded(whyNoLink)
			im.global.wicked = append(im.global.wicked, a)
		}
	}
}

// networkdConfs reads networkd.conf and its drop-ins, of which the identifier of DHCPv6
// counts for files that have none.
func (im *importer) networkdConfs(files []*file) {
	files = slices.Clone(files)
	isMain := func(f *file) int {
		if path.Base(f.path) == "networkd.conf" {
			return 0
		}
		return 1
	}
	slices.SortStableFunc(files, func(a, b *file) int {
		return cmp.Or(cmp.Compare(isMain(a), isMain(b)), strings.Compare(path.Base(a.path), path.Base(b.path)))
	})
	for _, f := range files {
		for _, e := range sections(f.logical(hashOrSem)) {
			switch isDUID := e.key == "DUIDType" || e.key == "DUIDRawData"; {
			case isDUID && e.section == "DHCPv6" && e.value != "":
				i := slices.IndexFunc(im.global.networkd, func(x *entry) bool { return x.key == e.key })
				if i >= 0 {
					im.global.networkd[i].left("not used: " + e.at() + " overrides it")
					im.global.networkd = slices.Delete(im.global.networkd, i, i+1)
				}
				e.unneeded(whyNoLink)
				im.global.networkd = append(im.global.networkd, e)
			case isDUID && e.value != "":
				e.left("a unit has no key for it: write ClientIdentifier= into [DHCPv4] with the identifier that the server has")
			case e.value == "":
				e.unneeded("it is empty")
			case e.section == "Network" && (strings.HasPrefix(e.key, "Manage") || strings.HasPrefix(e.key, "SpeedMeter")):
				e.unneeded(whyToolItself)
			default:
				e.left(whyAllLinks)
			}
		}
	}
}

// networkdGlobals gives a link the identifier of DHCPv6 that is for all links.
func (im *importer) networkdGlobals(d *draft) {
	for _, key := range []string{"DUIDType", "DUIDRawData"} {
		if _, own := d.sec("DHCPv6").get(key); own {
			return
		}
	}
	for _, e := range im.global.networkd {
		d.set("DHCPv6", e.key, e.value, e.item)
	}
}
