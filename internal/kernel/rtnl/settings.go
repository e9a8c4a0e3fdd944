package rtnl

import (
	"bytes"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"

	"ibnetworkd/internal/kernel/nl"
)

// Settings are the sysctls of a link that the kernel reports with it (struct in_device and
// inet6_dev, net.ipv4.conf and net.ipv6.conf): one message instead of a file for each.
type Settings struct {
	Inet, Inet6 []byte // arrays of s32, nil for a link without IPv4 or IPv6
}

func decodeInet(a nl.Attrs, s *Settings) {
	for a.Next() {
		if a.Type() == unix.IFLA_INET_CONF {
			s.Inet = bytes.Clone(a.Bytes())
		}
	}
}

// Get is a setting as its file has it, by a key such as ipv6/accept_ra. ok is false for those
// that are not reported: this kernel does not have them, or the link has no IPv6.
func (s Settings) Get(key string) (value string, ok bool) {
	conf, i := s.Inet6, slices.Index(inet6Conf[:], key)
	if i < 0 {
		conf, i = s.Inet, slices.Index(inetConf[:], key)
	}
	if key == "" || i < 0 || len(conf) < 4*(i+1) {
		return "", false
	}
	v := ne.Uint32(conf[4*i:])
	if key == "ipv6/ra_defrtr_metric" { // the one that is unsigned
		return strconv.FormatUint(uint64(v), 10), true
	}
	return strconv.Itoa(int(int32(v))), true
}

// inetConf are the settings by their places in IFLA_INET_CONF, IPV4_DEVCONF_* of linux/ip.h
// less 1.
var inetConf = [...]string{
	0: "ipv4/forwarding", 2: "ipv4/proxy_arp", 7: "ipv4/rp_filter", 17: "ipv4/arp_announce", 18: "ipv4/arp_ignore",
	19: "ipv4/promote_secondaries", 22: "ipv4/accept_local", 24: "ipv4/proxy_arp_pvlan", 25: "ipv4/route_localnet",
}

// inet6Conf are those by their places in IFLA_INET6_CONF, DEVCONF_* of linux/ipv6.h. It has no
// times, which are in other units than in their files.
var inet6Conf = [...]string{
	0: "ipv6/forwarding", 1: "ipv6/hop_limit", 2: "ipv6/mtu", 3: "ipv6/accept_ra", 5: "ipv6/autoconf",
	6: "ipv6/dad_transmits", 10: "ipv6/use_tempaddr", 17: "ipv6/accept_ra_defrtr", 22: "ipv6/proxy_ndp",
	26: "ipv6/disable_ipv6", 29: "ipv6/ndisc_notify", 35: "ipv6/accept_ra_mtu", 47: "ipv6/addr_gen_mode",
	52: "ipv6/ra_defrtr_metric",
}
