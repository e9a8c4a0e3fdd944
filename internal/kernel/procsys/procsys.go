// Package procsys reads and writes the per-link sysctls of IPv4 and IPv6 under
// /proc/sys/net, in the network namespace of the calling thread.
package procsys

import (
	"fmt"
	"ibnetworkd/internal/smallfile"
	"path/filepath"
	"strings"
)

// Family is the directory below /proc/sys/net.
type Family string

// The families with per-link settings.
const (
	IPv4 Family = "ipv4"
	IPv6 Family = "ipv6"
)

// Keys that the daemon uses; any other key of conf/LINK works too.
const (
	AcceptRA         = "accept_ra"           // IPv6: 0 off, 1 unless forwarding, 2 always
	AddrGenMode      = "addr_gen_mode"       // IPv6: 0 EUI-64, 1 none, 2 stable secret, 3 random
	Autoconf         = "autoconf"            // IPv6
	DisableIPv6      = "disable_ipv6"        // IPv6
	Forwarding       = "forwarding"          // both
	KeepAddrOnDown   = "keep_addr_on_down"   // IPv6: 1 keeps static addresses over a down
	MTU              = "mtu"                 // IPv6, bytes
	ProxyARP         = "proxy_arp"           // IPv4
	ProxyNDP         = "proxy_ndp"           // IPv6
	RPFilter         = "rp_filter"           // IPv4: 0 off, 1 strict, 2 loose
	StableSecret     = "stable_secret"       // IPv6
	UseTempAddr      = "use_tempaddr"        // IPv6: privacy extensions, 0 off, 1 on, 2 preferred
	DADTransmits     = "dad_transmits"       // IPv6
	HopLimit         = "hop_limit"           // IPv6
	AcceptLocal      = "accept_local"        // IPv4
	RouteLocalnet    = "route_localnet"      // IPv4
	PromoteSecond    = "promote_secondaries" // IPv4
	IgnoreLinkdown   = "ignore_routes_with_linkdown"
	AcceptRAMTU      = "accept_ra_mtu"    // IPv6
	AcceptRADefRoute = "accept_ra_defrtr" // IPv6
)

// All and Default are the names that stand for all links and for future links.
const (
	All     = "all"
	Default = "default"
)

// FS is a /proc tree.
type FS struct{ root string }

// New takes the directory that stands for /, "" or "/" on a live system.
func New(root string) FS { return FS{root} }

// Path is the file of a setting.
func (f FS) Path(fam Family, link, key string) (string, error) {
	if fam != IPv4 && fam != IPv6 {
		return "", fmt.Errorf("%q has no per-link settings", fam)
	}
	// A dot in a link's name is a dot in its directory; only sysctl(8) writes
	// it as a slash.
	for _, s := range [2]string{link, key} {
		if s == "" || s == "." || s == ".." || strings.ContainsAny(s, "/\x00") {
			return "", fmt.Errorf("%q is not a name under /proc/sys", s)
		}
	}
	return filepath.Join(f.root, "/proc/sys/net", string(fam), "conf", link, key), nil
}

const maxValue = 4096

// Get reads a setting without its newline. fs.ErrNotExist says that the link is
// gone, has no IPv6, or that the kernel lacks the key.
func (f FS) Get(fam Family, link, key string) (string, error) {
	p, err := f.Path(fam, link, key)
	if err != nil {
		return "", err
	}
	b, err := smallfile.Read(p, maxValue)
	if err != nil {
		return "", err
	}
	return strings.TrimRight(string(b), "\n"), nil
}

// Set writes a setting.
func (f FS) Set(fam Family, link, key, value string) error {
	p, err := f.Path(fam, link, key)
	if err != nil {
		return err
	}
	if len(value) > maxValue || strings.ContainsAny(value, "\n\x00") {
		return fmt.Errorf("%.40q is not a value for %s", value, p)
	}
	return smallfile.Write(p, []byte(value+"\n"))
}
