package units

import (
	_ "embed"
	"slices"
	"strings"
)

//go:embed systemd.txt
var systemdKeys string

// systemdFile is which file of systemd has a section, "network", "netdev" or
// "link", with its keys.
type systemdFile struct {
	file, section string
	keys          []string
}

// systemdFiles reads the table: only what is wrong in a unit asks for it.
func systemdFiles() (out []systemdFile) {
	for line := range strings.Lines(systemdKeys) {
		if f := strings.Fields(line); len(f) > 1 && f[0] != "#" {
			out = append(out, systemdFile{f[0], f[1], f[2:]})
		}
	}
	return out
}

// foreignSection returns what does the work of a section that systemd has, empty for
// one that it does not have. kind is the section's Kind=, if it has one.
func foreignSection(name, kind string) string {
	for _, f := range systemdFiles() {
		if f.section != name {
			continue
		}
		why := foreignSections[name]
		switch {
		case name == "NetDev" && kind == "ipoib":
			why = "write [Partition] with PartitionKey="
		case name == "NetDev" && kind == "vlan":
			why = "write [VLAN] with Id="
		case name == "NetDev" && (kind == "macvlan" || kind == "ipvlan"):
			why = "write [" + strings.ToUpper(kind) + "] with Name= into the unit of the Ethernet link that it is on"
		case name == "NetDev" && kind == "bond":
			why = "write [Bond] with Name= into the unit of each slave"
		case name == "NetDev" && kind == "vrf":
			why = "write [VRF] with Name= and Table= into the unit of each link in it"
		case name == "NetDev" && slices.Contains(netdevKinds, kind):
			why = "leave a " + kind + " to systemd-networkd"
		case why == "" && f.file == "netdev":
			why = "leave it to systemd-networkd, in a .netdev file"
		case why == "":
			why = "leave it to systemd-networkd, in a .network file"
		}
		return "a section of ." + f.file + " files: " + why
	}
	if why, ok := foreignSections[name]; ok {
		return "a former section of .network files: " + why
	}
	return ""
}

// netdevKinds are the words that Kind= in [NetDev] has in systemd 257.
var netdevKinds = strings.Fields("bareudp batadv bond bridge dummy erspan fou geneve gre gretap ifb ip6gre ip6gretap ip6tnl ipip " +
	"ipoib ipvlan ipvtap l2tp macsec macvlan macvtap " +
	"nlmon sit tap tun vcan veth vlan vrf vti vti6 vxcan vxlan wireguard wlan xfrm")

// foreignKey is foreignSection for a key in one of our sections.
func foreignKey(section, key string) string {
	if why, ok := foreignKeys[section+"."+key]; ok {
		return "a key of systemd-networkd: " + why
	}
	for _, f := range systemdFiles() {
		if f.section == section && slices.Contains(f.keys, key) {
			switch f.file {
			case "link":
				return "a key of .link files: write it in one, which systemd-udevd applies when the link appears"
			case "netdev":
				return "a key of .netdev files: leave it to systemd-networkd"
			}
			return "a key of .network files: leave it to systemd-networkd"
		}
	}
	return ""
}

// foreignElsewhere returns the section of systemd that has a key, empty for none.
func foreignElsewhere(key string) string {
	for _, f := range systemdFiles() {
		if slices.Contains(f.keys, key) {
			return "belongs to [" + f.section + "] of ." + f.file + " files"
		}
	}
	return ""
}

// noPD is about the prefixes that no client here asks for.
const noPD = "prefix delegation is not supported; leave out [Network] and leave the IP part to systemd-networkd"

// foreignSections are words about systemd's sections that this daemon does not
// have: what to do instead.
var foreignSections = map[string]string{
	"DHCP":                  "its name is [DHCPv4]",
	"DHCPServer":            "a DHCP server is not supported",
	"DHCPServerStaticLease": "a DHCP server is not supported",
	"DHCPPrefixDelegation":  noPD,
	"IPv6SendRA":            "sending router advertisements is not supported",
	"IPv6Prefix":            "sending router advertisements is not supported",
	"IPv6RoutePrefix":       "sending router advertisements is not supported",
	"Bridge":                "an IPoIB link cannot be a bridge port; leave Ethernet bridges to systemd-networkd",
	"BridgeFDB":             "leave Ethernet bridges to systemd-networkd",
	"BridgeMDB":             "leave Ethernet bridges to systemd-networkd",
	"BridgeVLAN":            "leave Ethernet bridges to systemd-networkd",
	"CAN":                   "leave CAN links to systemd-networkd",
	"IPv6PREF64Prefix":      "sending router advertisements is not supported",
	"QuickFairQueueing":     noTC, "QuickFairQueueingClass": noTC, "PIE": noTC,
	"FlowQueuePIE": noTC, "StochasticFairBlue": noTC, "StochasticFairnessQueueing": noTC,
	"BFIFO": noTC, "PFIFO": noTC, "PFIFOHeadDrop": noTC, "PFIFOFast": noTC, "CAKE": noTC,
	"ControlledDelay": noTC, "DeficitRoundRobinScheduler": noTC,
	"DeficitRoundRobinSchedulerClass": noTC, "GenericRandomEarlyDetection": noTC, "TrivialLinkEqualizer": noTC, "HierarchyTokenBucket": noTC,
	"HierarchyTokenBucketClass": noTC, "ClassfulMultiQueueing": noTC, "BandMultiQueueing": noTC, "HeavyHitterFilter": noTC,
	"SR-IOV": "virtual functions are set in [VF] and [VirtualFunctions]",
	"NetDev": "P_Key children are made by [Partition], VLANs and the like by [VLAN], [MACVLAN] and [IPVLAN], " +
		"bonds by [Bond], VRFs by [VRF]",
	"LLDP":                          "leave LLDP to systemd-networkd or lldpd",
	"IPv6AddressLabel":              "leave address labels to systemd-networkd",
	"QDisc":                         noTC,
	"NetworkEmulator":               noTC,
	"TokenBucketFilter":             noTC,
	"FairQueueing":                  noTC,
	"FairQueueingControlledDelay":   noTC,
	"EnhancedTransmissionSelection": "write ETS= in [RoCE]",
}

// foreignKeys are words about systemd's keys in sections that exist here, and that
// this daemon does not have: what to do instead.
var foreignKeys = map[string]string{
	"Match.SSID":              noWireless,
	"Match.BSSID":             noWireless,
	"Match.WLANInterfaceType": noWireless,

	"Link.SR-IOVVirtualFunctions": "write Count= in [VirtualFunctions]",
	"Link.Name": "write it in a .link file, which systemd-udevd applies; names of P_Key children are " +
		"Name= in [Partition]",
	"MACVLAN.SourceMACAddress":            "Mode=source is not supported; " + leaveNetdev,
	"IPoIB.PartitionKey":                  "write a [Partition] section with PartitionKey=",
	"IPoIB.IgnoreUserspaceMulticastGroup": "it is spelled IgnoreUserspaceMulticastGroups=",

	"Link.MACAddress":     "only the last 8 bytes of an IPoIB address can be set, by GUID=; set an Ethernet one in a .link file",
	"Link.TransmitQueues": "write it in a .link file, which systemd-udevd applies",
	"Link.ReceiveQueues":  "write it in a .link file, which systemd-udevd applies",

	"Network.DHCPServer":                     "a DHCP server is not supported",
	"Network.DHCPPrefixDelegation":           noPD,
	"Network.DHCPv6PrefixDelegation":         noPD,
	"Network.UseDomains":                     "write UseDomains= in [DHCPv4], [DHCPv6] or [IPv6AcceptRA]",
	"DHCPv4.RoutesToNTP":                     "no routes are made to time servers; write a [Route]",
	"DHCPv4.DUIDType":                        "write the identifier with ClientIdentifier=0x",
	"DHCPv4.DUIDRawData":                     "write the identifier with ClientIdentifier=0x",
	"DHCPv4.RapidCommit":                     "leases are always requested by four messages",
	"DHCPv4.MaxAttempts":                     "the client continues until there is a lease",
	"DHCPv6.UseHostname":                     noHostname,
	"DHCPv6.UseDelegatedPrefix":              noPD,
	"DHCPv6.PrefixDelegationHint":            noPD,
	"DHCPv6.UnassignedSubnetPolicy":          noPD,
	"Network.IPv6SendRA":                     "sending router advertisements is not supported",
	"Network.IPv6AcceptRouterAdvertisements": "its new name is IPv6AcceptRA=",
	"Network.ActiveSlave":                    "write PrimarySlave=, which holds after a failover too",
	"Network.KeepMaster":                     "the master of a link is changed for [Bond], Bond=, [VRF] and VRF= only",
	"Network.Bridge":                         "an IPoIB link cannot be a bridge port; leave Ethernet bridges to systemd-networkd",
	"Network.BatmanAdvanced":                 leave,
	"Network.VLAN":                           "write a [VLAN] section with Id=; on IPoIB use [Partition]",
	"Network.IPoIB":                          "write a [Partition] section with PartitionKey=",
	"Network.MACVLAN":                        noEthernet + "write a [MACVLAN] section with Name=",
	"Network.MACVTAP":                        noEthernet + leave,
	"Network.IPVLAN":                         noEthernet + "write an [IPVLAN] section with Name=",
	"Network.IPVTAP":                         noEthernet + leave,
	"Network.VXLAN":                          leave,
	"Network.MACsec":                         leave,
	"Network.L2TP":                           leave,
	"Network.Tunnel":                         leave,
	"Network.Xfrm":                           leave,
	"Network.NTP":                            noNTP,
	"Network.LLDP":                           "leave LLDP to systemd-networkd or lldpd",
	"Network.EmitLLDP":                       "leave LLDP to systemd-networkd or lldpd",
	"Network.MulticastIGMPVersion":           "write net.ipv4.conf.NAME.force_igmp_version into a file in /etc/sysctl.d",
	"Network.IPMasquerade":                   "write a firewall rule",
	"IPv6AcceptRA.RouteTable":                "the kernel sets these routes in the table of the link's VRF, or main: write [VRF]",
	"Network.IPv6StableSecretAddress":        "write net.ipv6.conf.NAME.stable_secret into a file in /etc/sysctl.d",
	"Network.IPv6RetransmissionTimeSec":      "write net.ipv6.neigh.NAME.retrans_time_ms into a file in /etc/sysctl.d",
	"Network.IPv6ProxyNDPAddress":            "write IPv6ProxyNDP=yes, and the addresses with ip neighbour add proxy",
	"Network.IPv4LLStartAddress":             "the link-local address is chosen from the port GUID or MAC address; write a fixed Address=",
	"Network.IPv4LLRoute":                    "write a [Route]",
	"Network.IgnoreCarrierLoss":              "addresses and routes always stay when the carrier is lost",
	"Network.MPLSRouting":                    "write net.mpls.conf.NAME.input into a file in /etc/sysctl.d",
	"Network.ProxyARP":                       "its new name is IPv4ProxyARP=",

	"Address.NetLabel":    leaveIP,
	"Address.NFTSet":      leaveIP,
	"Address.IPv4ACD":     "its new name is DuplicateAddressDetection=, with ipv4 or both for yes",
	"Address.PrefixRoute": "its new name is AddPrefixRoute=, with the opposite sense",

	"Route.IPServiceType": "the type of service of a route is not supported; write a [RoutingPolicyRule] with TypeOfService=",
	"Route.TTLPropagate":  "it is for MPLS: " + leaveIP,
	"Route.GatewayOnlink": "it is spelled GatewayOnLink=",
	"Route.Onlink":        "its new name is GatewayOnLink=",
}

const (
	noNTP       = "write NTP= in timesyncd.conf; servers of leases: UseNTP= in [DHCPv4] and [DHCPv6]"
	noHostname  = "the host's name is set from leases of DHCPv4 only: write UseHostname=yes in [DHCPv4]"
	noTC        = "leave traffic control to systemd-networkd or tc"
	noWireless  = "wireless links are not supported"
	leaveNetdev = "leave it to systemd-networkd, in a .netdev file"
	noEthernet  = "the kernel refuses it on IPoIB, where [Partition] makes a further interface; for a RoCE link "
	leave       = "write a .netdev file for what it names and a .network file with this key for the link, without [Network] in the " +
		".ibnetwork file"
	leaveIP = "leave the IP part of the link to systemd-networkd: a .network file with this key, and no [Network], [Address], " +
		"[Route], [RoutingPolicyRule], [Neighbor] and [NextHop] in the .ibnetwork file"
)
