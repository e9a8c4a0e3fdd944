package units

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// required is what a section needs besides the key under test.
var required = map[string]string{
	"Partition": "PartitionKey=0x8001",
	"Address":   "Address=192.168.151.1/24",
	"Route":     "Destination=10.20.0.0/16",
	"VLAN":      "Id=100",
	"VF":        "VirtualFunction=0",
}

// also is what makes a key meaningful, where its section's need is the wrong one.
var also = map[string]string{
	"Address.HomeAddress":            "Address=fd00::1/64",
	"Address.ManageTemporaryAddress": "Address=fd00::1/64",
	"Route.Source":                   "Destination=fd01::/64",
	"Route.IPv6Preference":           "Destination=fd01::/64",
	"Route.Gateway":                  "GatewayOnLink=yes",
	"RoutingPolicyRule.GoTo":         "Type=goto",
	"RoCE.ETS":                       "",
}

func exampleUnit(s *SectionSpec, k *Key) string {
	var b strings.Builder
	if s.Name != "Match" {
		b.WriteString("[Match]\nName=ib0\n")
	}
	if s.Name == "Link" && k.Name == "MTUBytes" {
		b.WriteString("[IPoIB]\nMode=connected\n")
	}
	b.WriteString("[" + s.Name + "]\n")
	need, ok := also[s.Name+"."+k.Name]
	if !ok {
		need = required[s.Name]
	}
	if !strings.HasPrefix(need, k.Name+"=") {
		b.WriteString(need + "\n")
	}
	b.WriteString(k.Name + "=" + k.Example + "\n")
	return b.String()
}

// TestExamples holds every key of the schema to its own example: it parses
// without a word, it says something, and it survives printing.
func TestExamples(t *testing.T) {
	for i := range schema {
		s := &schema[i]
		for j := range s.Keys {
			k := &s.Keys[j]
			t.Run(s.Name+"."+k.Name, func(t *testing.T) {
				if k.Doc == "" || k.Syntax == "" || k.Example == "" || k.Since == "" || k.apply.set == nil {
					t.Fatalf("incomplete: %+v", k)
				}
				if !strings.HasSuffix(k.Doc, ".") {
					t.Errorf("documentation is not a sentence: %s", k.Doc)
				}
				text := exampleUnit(s, k)
				u, problems := VerifyFile("/etc/systemd/network/a.ibnetwork", []byte(text))
				if len(problems) > 0 || u == nil {
					t.Fatalf("%s\n%v", text, problems)
				}
				without, _ := VerifyFile("/etc/systemd/network/a.ibnetwork", []byte(strings.ReplaceAll(text, k.Name+"="+k.Example+"\n", "X-Nothing=\n")))
				if without != nil && without.Format() == u.Format() && text != exampleUnit(s, &Key{}) {
					t.Errorf("the example changes nothing:\n%s", u.Format())
				}
				again, problems := VerifyFile("/etc/systemd/network/a.ibnetwork", []byte(u.Format()))
				if len(problems) > 0 {
					t.Fatalf("printed form has problems:\n%s\n%v", u.Format(), problems)
				}
				if diff := cmp.Diff(u.Format(), again.Format()); diff != "" {
					t.Errorf("printing is not stable (-first +second):\n%s", diff)
				}
				for _, v := range k.Values {
					word := *k
					word.Example = v
					text := exampleUnit(s, &word)
					_, problems := VerifyFile("a.ibnetwork", []byte(text))
					// GoTo= goes with one Type= only, bound with BindCarrier= only, and
					// two words ask for what is not made here.
					alone := k.Name == "Type" && v == "goto" || k.Name == "ActivationPolicy" && v == "bound" || k.Name == "LinkLocalAddressing" && (v == "yes" || v == "ipv4")
					if len(problems) > 0 && !alone {
						t.Errorf("the word %s does not parse: %v", v, problems)
					}
				}
			})
		}
	}
}

func TestSchemaNamesAreUnique(t *testing.T) {
	for i := range schema {
		seen := map[string]bool{}
		for _, k := range schema[i].Keys {
			if seen[k.Name] {
				t.Errorf("[%s] %s= is there twice", schema[i].Name, k.Name)
			}
			seen[k.Name] = true
		}
		if schema[i].Doc == "" {
			t.Errorf("[%s] has no documentation", schema[i].Name)
		}
	}
	for name := range foreignSections {
		if sectionByName[name] != nil {
			t.Errorf("[%s] is both ours and foreign", name)
		}
	}
	for name := range foreignKeys {
		s, k, _ := strings.Cut(name, ".")
		if sectionByName[s] == nil || sectionByName[s].key(k) != nil {
			t.Errorf("%s is both ours and foreign, or its section is unknown", name)
		}
	}
}

// networkdKeys are the keys of systemd.network(5), as of systemd 257 and those
// that had other names before, in the sections that exist here.
var networkdKeys = map[string]string{
	"Match": "MACAddress PermanentMACAddress Path Driver Type Kind Property Name WLANInterfaceType SSID BSSID Host Virtualization KernelCommandLine KernelVersion Version Credential Architecture Firmware",
	"Link":  "MACAddress MTUBytes ARP Multicast AllMulticast Promiscuous Unmanaged Group RequiredForOnline RequiredFamilyForOnline ActivationPolicy TransmitQueues ReceiveQueues",
	"Network": "Description DHCP DHCPServer LinkLocalAddressing IPv6LinkLocalAddressGenerationMode IPv6StableSecretAddress IPv4LLStartAddress IPv4LLRoute DefaultRouteOnDevice LLMNR MulticastDNS DNSOverTLS " +
		"DNSSEC DNSSECNegativeTrustAnchors LLDP EmitLLDP BindCarrier Address Gateway DNS UseDomains Domains DNSDefaultRoute NTP IPv4Forwarding IPv6Forwarding IPForward IPMasquerade IPv6PrivacyExtensions " +
		"IPv6AcceptRA IPv6DuplicateAddressDetection IPv6HopLimit IPv6RetransmissionTimeSec IPv4ReversePathFilter IPv4AcceptLocal IPv4RouteLocalnet IPv4ProxyARP IPv4ProxyARPPrivateVLAN IPv6ProxyNDP " +
		"IPv6ProxyNDPAddress IPv6SendRA DHCPPrefixDelegation IPv6MTUBytes KeepMaster BatmanAdvanced Bond Bridge VRF IPoIB IPVLAN IPVTAP MACsec MACVLAN MACVTAP Tunnel VLAN VXLAN Xfrm ActiveSlave PrimarySlave " +
		"ConfigureWithoutCarrier IgnoreCarrierLoss KeepConfiguration MPLSRouting L2TP ProxyARP IPv6Token DHCPv6PrefixDelegation IPv6AcceptRouterAdvertisements",
	"Address": "Address Peer Broadcast Label PreferredLifetime Scope RouteMetric HomeAddress DuplicateAddressDetection ManageTemporaryAddress AddPrefixRoute AutoJoin NetLabel NFTSet IPv4ACD PrefixRoute",
	"Route": "Gateway GatewayOnLink Destination Source Metric IPv6Preference Scope PreferredSource Table HopLimit Protocol Type InitialCongestionWindow InitialAdvertisedReceiveWindow QuickAck FastOpenNoCookie " +
		"TTLPropagate MTUBytes TCPAdvertisedMaximumSegmentSize TCPCongestionControlAlgorithm TCPRetransmissionTimeoutSec MultiPathRoute NextHop IPServiceType GatewayOnlink Onlink",
	"RoutingPolicyRule": "TypeOfService From To FirewallMark Table Priority GoTo IncomingInterface OutgoingInterface L3MasterDevice SourcePort DestinationPort IPProtocol InvertRule Family User " +
		"SuppressPrefixLength SuppressInterfaceGroup Type",
}

// Nobody who copies a .network file reads "unknown key" of a key that exists:
// either it works here, or it is said who does it instead.
func TestKeysOfNetworkd(t *testing.T) {
	for section, keys := range networkdKeys {
		for key := range strings.FieldsSeq(keys) {
			_, foreign := foreignKeys[section+"."+key]
			ours := sectionByName[section].key(key) != nil
			if ours == foreign {
				t.Errorf("[%s] %s=: ours %v, foreign %v", section, key, ours, foreign)
			}
			if !foreign {
				continue
			}
			_, problems := VerifyFile("/etc/systemd/network/a.ibnetwork", []byte("[Match]\nName=ib0\n["+section+"]\n"+key+"=1\n"))
			if !slices.ContainsFunc(problems, func(p Problem) bool {
				return strings.HasPrefix(p.String(), "/etc/systemd/network/a.ibnetwork:4:1: warning: ["+section+"] "+key+"=: a key of systemd-networkd: ")
			}) {
				t.Errorf("[%s] %s=: %v", section, key, problems)
			}
		}
	}
}
