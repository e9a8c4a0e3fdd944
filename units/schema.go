package units

// SectionSpec describes one section of the unit file.
type SectionSpec struct {
	Name string
	// Doc is one or more sentences.
	Doc string
	// Repeat says that every header makes a new object; plain sections merge.
	Repeat bool
	// Networkd says that systemd.network has the section too.
	Networkd bool
	Keys     []Key

	// open gives the struct to fill and its header.
	open func(u *Unit) (any, *Section)
}

// Key describes one key of a section: what the parser does with it, and what
// the manual says of it.
type Key struct {
	Name string
	// Doc is one sentence or more.
	Doc string
	// Syntax is the value's form with its unit and range: "BYTES|max".
	Syntax string
	// Values are the words that are possible, where there are such.
	Values []string
	// Default says what holds where the key is not set.
	Default string
	// Example is a value that parses.
	Example string
	// List says that assignments add and an empty one resets; otherwise the last
	// one wins and an empty one unsets.
	List bool
	// Networkd says that systemd.network has the key in the same section with
	// the same meaning.
	Networkd bool
	// Since is the release that brought the key.
	Since string

	apply setter
	// essential keys make the section mean something else when they are missing,
	// so a bad value drops the section.
	essential bool
}

var (
	schema        []SectionSpec
	sectionByName map[string]*SectionSpec
)

func init() {
	schema = buildSchema()
	sectionByName = make(map[string]*SectionSpec, len(schema))
	for i := range schema {
		s := &schema[i]
		sectionByName[s.Name] = s
		for k := range s.Keys {
			if s.Keys[k].Since == "" {
				s.Keys[k].Since = "0.1"
			}
		}
	}
}

// Schema is the table of all sections and keys, in the order of the manual. The
// caller must not change it.
func Schema() []SectionSpec { return schema }

func (s *SectionSpec) key(name string) *Key {
	for i := range s.Keys {
		if s.Keys[i].Name == name {
			return &s.Keys[i]
		}
	}
	return nil
}

func sectionNames() []string {
	out := make([]string, len(schema))
	for i := range schema {
		out[i] = schema[i].Name
	}
	return out
}

// sectionsWith lists the other sections that have the key.
func sectionsWith(key, except string) []string {
	var out []string
	for i := range schema {
		if schema[i].Name != except && schema[i].key(key) != nil {
			out = append(out, schema[i].Name)
		}
	}
	return out
}

// noDHCP is what a user is told who asks for a client that is not here.
const noDHCP = "there is no DHCP client here; leave out [Network] and let systemd-networkd or NetworkManager do the IP part, or write the addresses"

// foreignSections are systemd.network's sections that this daemon does not have,
// with what to do instead.
var foreignSections = map[string]string{
	"DHCP":                          noDHCP,
	"DHCPv4":                        noDHCP,
	"DHCPv6":                        noDHCP,
	"DHCPServer":                    "there is no DHCP server here",
	"DHCPServerStaticLease":         "there is no DHCP server here",
	"DHCPPrefixDelegation":          noDHCP,
	"IPv6AcceptRA":                  "router advertisements are handled by the kernel; only [Network] IPv6AcceptRA= exists",
	"IPv6SendRA":                    "there is no router advertisement server here",
	"IPv6Prefix":                    "there is no router advertisement server here",
	"IPv6RoutePrefix":               "there is no router advertisement server here",
	"Bridge":                        "an IPoIB link cannot be a bridge port; leave Ethernet bridges to systemd-networkd",
	"BridgeFDB":                     "leave Ethernet bridges to systemd-networkd",
	"BridgeMDB":                     "leave Ethernet bridges to systemd-networkd",
	"BridgeVLAN":                    "leave Ethernet bridges to systemd-networkd",
	"CAN":                           "leave CAN links to systemd-networkd",
	"SR-IOV":                        "virtual functions are set in [VF] and [VirtualFunctions]",
	"NetDev":                        "that is a .netdev file's; P_Key children are made by [Partition], VLANs by [VLAN]",
	"LLDP":                          "leave LLDP to systemd-networkd or lldpd",
	"Neighbor":                      "static neighbours are left to systemd-networkd",
	"IPv6AddressLabel":              "address labels are left to systemd-networkd",
	"NextHop":                       "next hop objects are not here; write MultiPathRoute= in [Route]",
	"QDisc":                         "traffic control is left to systemd-networkd or tc",
	"NetworkEmulator":               "traffic control is left to systemd-networkd or tc",
	"TokenBucketFilter":             "traffic control is left to systemd-networkd or tc",
	"FairQueueing":                  "traffic control is left to systemd-networkd or tc",
	"FairQueueingControlledDelay":   "traffic control is left to systemd-networkd or tc",
	"EnhancedTransmissionSelection": "write ETS= in [RoCE]",
}

// foreignKeys are systemd.network's keys in sections that exist here, and that
// this daemon does not have, with what to do instead. With the schema they are
// all keys of systemd.network(5) in these sections, which a test holds.
var foreignKeys = map[string]string{
	"Match.SSID":              noWireless,
	"Match.BSSID":             noWireless,
	"Match.WLANInterfaceType": noWireless,

	"Link.MACAddress":     "only the last 8 bytes of an IPoIB address can be set, by GUID=; set an Ethernet one in a .link file",
	"Link.TransmitQueues": "write it in a .link file, which systemd-udevd applies",
	"Link.ReceiveQueues":  "write it in a .link file, which systemd-udevd applies",

	"Network.DHCP":                           noDHCP,
	"Network.DHCPServer":                     "there is no DHCP server here",
	"Network.DHCPPrefixDelegation":           noDHCP,
	"Network.DHCPv6PrefixDelegation":         noDHCP,
	"Network.UseDomains":                     noDHCP,
	"Network.IPv6SendRA":                     "there is no router advertisement server here",
	"Network.IPv6AcceptRouterAdvertisements": "its new name is IPv6AcceptRA=",
	"Network.Bond":                           "leave bonds to systemd-networkd (for IPoIB only mode active-backup works)",
	"Network.ActiveSlave":                    "leave bonds to systemd-networkd (for IPoIB only mode active-backup works)",
	"Network.PrimarySlave":                   "leave bonds to systemd-networkd (for IPoIB only mode active-backup works)",
	"Network.KeepMaster":                     "the master of a link is never changed here",
	"Network.Bridge":                         "an IPoIB link cannot be a bridge port; leave Ethernet bridges to systemd-networkd",
	"Network.BatmanAdvanced":                 leave,
	"Network.VLAN":                           "write a [VLAN] section with Id=; on IPoIB use [Partition]",
	"Network.IPoIB":                          "write a [Partition] section with PartitionKey=",
	"Network.MACVLAN":                        leave,
	"Network.MACVTAP":                        leave,
	"Network.IPVLAN":                         leave,
	"Network.IPVTAP":                         leave,
	"Network.VXLAN":                          leave,
	"Network.MACsec":                         leave,
	"Network.L2TP":                           leave,
	"Network.Tunnel":                         leave,
	"Network.Xfrm":                           leave,
	"Network.VRF":                            leave,
	"Network.NTP":                            "systemd-timesyncd reads the servers of a link from systemd-networkd only; write NTP= in timesyncd.conf",
	"Network.LLDP":                           "leave LLDP to systemd-networkd or lldpd",
	"Network.EmitLLDP":                       "leave LLDP to systemd-networkd or lldpd",
	"Network.IPMasquerade":                   "write a firewall rule",
	"Network.IPv6Token":                      "write the address in full, or IPv6LinkLocalAddressGenerationMode=",
	"Network.IPv6StableSecretAddress":        "write net.ipv6.conf.NAME.stable_secret into a file in /etc/sysctl.d",
	"Network.IPv6RetransmissionTimeSec":      "write net.ipv6.neigh.NAME.retrans_time_ms into a file in /etc/sysctl.d",
	"Network.IPv6ProxyNDPAddress":            "write IPv6ProxyNDP=yes, and the addresses with ip neighbour add proxy",
	"Network.IPv4LLStartAddress":             "there is no IPv4 link-local addressing here; write a fixed Address=",
	"Network.IPv4LLRoute":                    "there is no IPv4 link-local addressing here; write a [Route]",
	"Network.IgnoreCarrierLoss":              "addresses and routes always stay when the carrier is lost",
	"Network.MPLSRouting":                    "write net.mpls.conf.NAME.input into a file in /etc/sysctl.d",
	"Network.ProxyARP":                       "its new name is IPv4ProxyARP=",

	"Address.NetLabel":    leaveIP,
	"Address.NFTSet":      leaveIP,
	"Address.IPv4ACD":     "IPv4 addresses are not probed for here",
	"Address.PrefixRoute": "its new name is AddPrefixRoute=, with the opposite sense",

	"Route.NextHop":       "next hop objects are not here; write MultiPathRoute=, or Gateway=",
	"Route.IPServiceType": "the type of service of a route is not set here; write a [RoutingPolicyRule] with TypeOfService=",
	"Route.TTLPropagate":  "it is for MPLS: " + leaveIP,
	"Route.GatewayOnlink": "it is spelled GatewayOnLink=",
	"Route.Onlink":        "its new name is GatewayOnLink=",
}

const (
	noWireless = "there are no wireless links here"
	leave      = "write a .netdev file for what it names and a .network file with this key for the link, without [Network] in the .ibnetwork file"
	leaveIP    = "leave the IP part of the link to systemd-networkd: a .network file with this key, and no [Network], [Address], [Route] and [RoutingPolicyRule] in the .ibnetwork file"
)
