package rtnl

import (
	"bytes"
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
	conf, i := s.Inet6, inet6Conf(key)
	if i < 0 {
		conf, i = s.Inet, inetConf(key)
	}
	if i < 0 || len(conf) < 4*(i+1) {
		return "", false
	}
	v := ne.Uint32(conf[4*i:])
	if key == "ipv6/ra_defrtr_metric" { // the one that is unsigned
		return strconv.FormatUint(uint64(v), 10), true
	}
	return strconv.Itoa(int(int32(v))), true
}

// inetConf is the place of a setting in IFLA_INET_CONF, IPV4_DEVCONF_* of linux/ip.h less 1,
// -1 for none.
func inetConf(key string) int {
	switch key {
	case "ipv4/forwarding":
		return 0
	case "ipv4/proxy_arp":
		return 2
	case "ipv4/rp_filter":
		return 7
	case "ipv4/arp_announce":
		return 17
	case "ipv4/arp_ignore":
		return 18
	case "ipv4/promote_secondaries":
		return 19
	case "ipv4/accept_local":
		return 22
	case "ipv4/proxy_arp_pvlan":
		return 24
	case "ipv4/route_localnet":
		return 25
	}
	return -1
}

// inet6Conf is the place of a setting in IFLA_INET6_CONF, DEVCONF_* of linux/ipv6.h, -1 for
// none. It has no times, which are in other units than in their files.
func inet6Conf(key string) int {
	switch key {
	case "ipv6/forwarding":
		return 0
	case "ipv6/hop_limit":
		return 1
	case "ipv6/mtu":
		return 2
	case "ipv6/accept_ra":
		return 3
	case "ipv6/autoconf":
		return 5
	case "ipv6/dad_transmits":
		return 6
	case "ipv6/use_tempaddr":
		return 10
	case "ipv6/accept_ra_defrtr":
		return 17
	case "ipv6/proxy_ndp":
		return 22
	case "ipv6/disable_ipv6":
		return 26
	case "ipv6/ndisc_notify":
		return 29
	case "ipv6/accept_ra_mtu":
		return 35
	case "ipv6/addr_gen_mode":
		return 47
	case "ipv6/ra_defrtr_metric":
		return 52
	}
	return -1
}
