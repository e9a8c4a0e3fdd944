package units

import (
	"strings"
	"testing"
)

// DHCPv6Client= has an effect without IPv6AcceptRA= too, where WithoutRA=no leaves DHCPv6 to routers.
func TestDHCPv6ByRouter(t *testing.T) {
	const text = "[Match]\nName=ib0\n[Network]\nDHCP=ipv6\n[DHCPv6]\nWithoutRA=no\n[IPv6AcceptRA]\nDHCPv6Client=always\n"
	u, problems := VerifyFile("a.ibnetwork", []byte(text))
	if len(problems) > 0 || u.DHCPv6ByRouter() != DHCPv6Always {
		t.Errorf("%v, begun %s", problems, u.DHCPv6ByRouter())
	}
}

// TestMessages checks the form of messages: what is wrong, what is kept, what to do;
// lower case, names in double quotes or with their "=" or brackets.
func TestMessages(t *testing.T) {
	for text, want := range map[string]string{
		"[Link]\nMTU=2044":   `[Link] unknown key "MTU"; the assignment is ignored; did you mean MTUBytes=?`,
		"[IPOIB]\nMode=auto": `unknown section [IPOIB]; the section is ignored; did you mean [IPoIB]?`,
		"[SubnetManager]\nManage=yes": `[SubnetManager] Manage=: "yes" is not one of auto, always, ` +
			`no; Manage= stays unset; did you mean auto?`,
		"[SubnetManager]\nManage=On":      `did you mean auto?`,
		"[SubnetManager]\nManage=false":   `[SubnetManager] Manage=: "false" is not one of auto, always, no; Manage= stays unset`,
		"[SubnetManager]\nEngine=ibnetsm": `did you mean builtin?`,
		"[Port]\nType=ethernet":           `did you mean eth?`,
		"[Port]\nType=InfiniBand":         `did you mean ib?`,
		"PortGUID=0x1\n[Port]\nType=eth":  `an Ethernet port has no port GUID: with Type=eth`,
		"[IPoIB]\nMode=cm":                `did you mean connected?`,
		"[Network]\nAddress=\"10.0.0.1/24\"": `[Network] Address=: "10.0.0.1/24" is in quotes, which are ` +
			`part of the value here; the assignment is ignored; ` +
			`write it without quotes`,
		"[Address]\nAddress='10.0.0.1/24'": `Address=: '10.0.0.1/24' is in quotes`,
		"[Network]\nGateway=\"10.0.0.1\"":  `write it without quotes`,
		"[Network]\nDNS=\"10.0.0.1\"":      `write it without quotes`,
		"[Link]\nMTUBytes=\"max\"":         `write it without quotes`,
		"[Link]\nMTUBytes=\"big\"":         `[Link] MTUBytes=: "\"big\"" is not a size: no number at "\"big\""; MTUBytes= stays unset`,
		"[Network]\nAddress=10.0.0.1":      `"10.0.0.1" has no prefix length; it is read as 10.0.0.1/32`,
		"[Link]\nMTUBytes=2044 # note":     `write a comment on a line of its own`,
		"[IPoIB]\nMode=datagram\n[Link]\nMTUBytes=65520": `MTUBytes=65520 is impossible in datagram mode, which ` +
			`allows at most 4092; write Mode=connected, or ` +
			`MTUBytes=max; the link gets at most 4092`,
		"[Bond]\nMode=active-backup": `a.ibnetwork:3:1: warning: [Bond] has no Name=, the interface name of the bond; the section is not used`,
		"[Bond]\nName=bond0\nMode=802.3ad\n[IPoIB]\nMode=datagram": `a.ibnetwork:5:6: warning: "802.3ad" is impossible: ` +
			`the kernel bonds IPoIB links in mode active-backup only; Mode= stays unset`,
		"[Bond]\nName=bond0\nMode=balance-rr": `a.ibnetwork:5:6: warning: [Bond] Mode=: "balance-rr" is not supported: the kernel bonds IPoIB ` +
			`links in mode active-backup only, and no card has RoCE LAG in this mode; write active-backup, or 802.3ad for RoCE links`,
		"[Bond]\nName=bond0\nMode=backup":             `"backup" is not one of active-backup, 802.3ad, balance-xor`,
		"[Bond]\nName=bond0\nLACPTransmitRate=fast":   `LACPTransmitRate= is not for Mode=active-backup; it has no effect`,
		"[Bond]\nName=b0\nMode=802.3ad\nPrimary=eth0": `Primary= is not for Mode=802.3ad; it has no effect`,
		"[Bond]\nName=bond0\nFailOverMAC=active":      `did you mean FailOverMACPolicy=?`,
		"[Bond]\nName=bond0\nMIIMonitorSec=0":         `MIIMonitorSec=`,
		"[Bond]\nName=bond0\n[Network]\nAddress=10.0.0.1/24": `a.ibnetwork:6:9: warning: the address 10.0.0.1/24 is on a slave of bond0, ` +
			`but connections use the addresses of the bond: move it to a unit with [Match] Name=bond0; it is not used`,
		"[Network]\nBond=bond0\n[Route]\nGateway=10.0.0.1": `a.ibnetwork:6:9: warning: the route is on a slave of bond0`,
		"[Address]\nAddress=10.0.0.1/24\nIPv4ACD=yes": `[Address] IPv4ACD=: a key of systemd-networkd: its new name is ` +
			`DuplicateAddressDetection=, with ipv4 or both for yes; the assignment is ignored`,
		"[Network]\nMultiRail=yes\nIPv4ReversePathFilter=strict": `a.ibnetwork:5:23: warning: strict drops packets whose way back is by ` +
			`another rail, which MultiRail=yes (a.ibnetwork:4:11) is to accept; write loose, or give the link a [Route] in a table of its own ` +
			`and a [RoutingPolicyRule] with From=; the value is set as written`,
		"[Network]\nAddress=10.3.%4.%3/16": `"10.3.%4.%3/16" has no address; the assignment is ignored; write ` +
			`10.3.{LINK.4}.{LINK.3}/16, where LINK is the link with those octets, or {host} for the number in the host name`,
		"[Network]\nPrimarySlave=yes":               `PrimarySlave= needs Bond=, or [Bond] with Name=; it has no effect`,
		"[Bond]\nName=bond0\n[Network]\nBond=bond1": `Bond=bond1 is not the bond of Name=bond0 (a.ibnetwork:4:6); Name= of [Bond] is used`,
		"[Network]\nMACVLAN=mv0": `[Network] MACVLAN=: a key of systemd-networkd: the kernel refuses it on IPoIB, where [Partition] makes ` +
			`a further interface; for a RoCE link write a [MACVLAN] section with Name=`,
		"[MACVLAN]\nMode=bridge": `[MACVLAN] has no Name=; the section is not used`,
		"[MACVLAN]\nName=m0\n[IPVLAN]\nName=i0": `a link's packets go to its macvlans or to its ipvlans, and the [MACVLAN] at ` +
			`a.ibnetwork:3:1 has one; the section is not used`,
		"[MACVLAN]\nName=m0\n[MACVLAN]\nName=m1\nMode=passthru": `a macvlan with Mode=passthru is the only one of its link, which also has ` +
			`the [MACVLAN] at a.ibnetwork:3:1; the section is not used`,
		"[IPVLAN]\nName=i0\nMode=L3\n[IPVLAN]\nName=i1": `the ipvlans of a link have one mode, which is L3 by the [IPVLAN] at ` +
			`a.ibnetwork:3:1; the section is not used`,
		"[IPVLAN]\nName=i0\n[IPVLAN]\nName=i1\nFlags=vepa": `the ipvlans of a link have the same Flags=, which is bridge by the [IPVLAN] ` +
			`at a.ibnetwork:3:1; the section is not used`,
		"[MACVLAN]\nName=m0\n[Bond]\nName=bond0": `a slave of a bond gives all packets to it and has no macvlans: write [MACVLAN] into a ` +
			`unit with [Match] Name=bond0; the section is not used`,
		"[IPoIB]\nMode=connected\n[IPVLAN]\nName=i0": `the kernel makes no ipvlan on IPoIB, only on links of type Ethernet (ARPHRD_ETHER); ` +
			`write a [Partition] instead; it has no effect on IPoIB`,
		"[MACVLAN]\nName=m0\nMode=source": `"source" is not one of private, vepa, bridge, passthru`,
		"[Link]\nNamePolicy=keep": `[Link] NamePolicy=: a key of .link files: write it in one, which systemd-udevd applies when the link ` +
			`appears; the assignment is ignored`,
		"[Link]\nPacketsPerSlave=2": `[Link] unknown key "PacketsPerSlave", which belongs to ` +
			`[Bond] of .netdev files; the assignment is ignored`,
		"[Network]\nDHCP=ipv6\nIPv6AcceptRA=no\n[DHCPv6]\nWithoutRA=no": `a.ibnetwork:7:11: warning: WithoutRA=no leaves DHCPv6 to router ` +
			`advertisements, which IPv6AcceptRA=no ignores: remove one of the two; no DHCPv6 client ever runs`,
		"[Network]\nDHCP=yes\nIPv6AcceptRA=yes\n[DHCPv6]\nWithoutRA=no\n[IPv6AcceptRA]\nDHCPv6Client=no": `which DHCPv6Client=no ignores`,
		"[Network]\nDHCP=ipv6\n[DHCPv6]\nWithoutRA=no\n[IPv6AcceptRA]\nDHCPv6Client=no":                  `which DHCPv6Client=no ignores`,
		"[Network]\nDHCP=ipv6\n[DHCPv6]\nWithoutRA=no\n[IPv6AcceptRA]\nUseDNS=no": `[IPv6AcceptRA] needs ` +
			`IPv6AcceptRA=yes in [Network], and DHCPv6Client= that or DHCP=ipv6 or yes with WithoutRA=no; the section has no effect`,
		"[Network]\nDHCP=ipv6\n[IPv6AcceptRA]\nDHCPv6Client=always": `the section has no effect`,
		"[Network]\nAddress=10.1.1.255/24":                          `[Network] Address=: 10.1.1.255/24 is the broadcast address of its network; it is used as written`,
		"[SubnetManager]\nPartition=8001 Members=ALL=full": `[SubnetManager] Partition=: 8001 is a decimal number; ` +
			`it is read as 0x1f41; write 0x8001 if it is hexadecimal`,
		"[SubnetManager]\nPartition=8001\tMembers=ALL=full": `8001 is a decimal number; it is read as 0x1f41; write 0x8001 if it is hexadecimal`,
		"[SubnetManager]\nPartition=8001;Members=ALL=full":  `8001 is a decimal number; it is read as 0x1f41; write 0x8001 if it is hexadecimal`,
		"[Bond]\nName=bond0\nMIIMonitorSec=100":             `"100" is not from 1ms to 10s; a bare number is seconds: write 100ms for milliseconds`,
		"[Link]\nPFC=3":                                     `[Link] unknown key "PFC", which belongs to [RoCE]; the assignment is ignored`,
	} {
		_, problems := VerifyFile("a.ibnetwork", []byte("[Match]\nName=ib0\n"+text+"\n"))
		if len(problems) != 1 || !strings.Contains(problems[0].String(), want) {
			t.Errorf("%q:\n%v\nnot\n%s", text, problems, want)
		}
	}
	for _, text := range corpusTexts(t) {
		_, problems := VerifyFile("a.ibnetwork", []byte(text))
		for _, p := range problems {
			s := p.String()
			if strings.Contains(s, "?;") || strings.Contains(s, ";;") || strings.Contains(s, " is taken") ||
				strings.HasSuffix(s, ".") || strings.HasSuffix(s, " ") || strings.Contains(s, "put right") ||
				strings.Contains(s, "%!") {
				t.Errorf("%s", s)
			}
		}
	}
}
