package units

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// required is what a section needs besides the key under test.
var required = map[string]string{"Bond": "Name=bond0",
	"DHCPv4":       "[Network]\nDHCP=ipv4\n[DHCPv4]",
	"DHCPv6":       "[Network]\nDHCP=ipv6\n[DHCPv6]",
	"IPv6AcceptRA": "[Network]\nIPv6AcceptRA=yes\n[IPv6AcceptRA]",
	"Partition":    "PartitionKey=0x8001",
	"Address":      "Address=192.168.151.1/24",
	"Route":        "Destination=10.20.0.0/16",
	"Neighbor":     "Address=192.168.151.2\nLinkLayerAddress=02:00:00:00:00:02",
	"NextHop":      "Id=7",
	"VLAN":         "Id=100",
	"MACVLAN":      "Name=job0",
	"IPVLAN":       "Name=job0",
	"VF":           "VirtualFunction=0",
}

// also is what makes a key meaningful, where its section's need is the wrong one.
var also = map[string]string{"Network.PrimarySlave": "Bond=bond0",
	"Network.IPv6Token":              "IPv6AcceptRA=yes",
	"Bond.TransmitHashPolicy":        "Name=bond0\nMode=802.3ad",
	"Bond.LACPTransmitRate":          "Name=bond0\nMode=802.3ad",
	"Bond.AdSelect":                  "Name=bond0\nMode=802.3ad",
	"VRF.Name":                       "Table=100",
	"VRF.Table":                      "Name=red",
	"Address.HomeAddress":            "Address=fd00::1/64",
	"Address.ManageTemporaryAddress": "Address=fd00::1/64",
	"Route.Source":                   "Destination=fd01::/64",
	"Route.IPv6Preference":           "Destination=fd01::/64",
	"Route.Gateway":                  "GatewayOnLink=yes",
	"RoutingPolicyRule.GoTo":         "Type=goto",
	"DHCPv6.DUIDType":                "[Network]\nDHCP=ipv6\n[DHCPv6]\nDUIDRawData=00:01",
	"Neighbor.Address":               "LinkLayerAddress=02:00:00:00:00:02",
	"Neighbor.LinkLayerAddress":      "Address=192.168.151.2",
	"Neighbor.MACAddress":            "Address=192.168.151.2\nLinkLayerAddress=02:00:00:00:00:02",
	"NextHop.Group":                  "Id=20",
	"NextHop.OnLink":                 "Id=7\nGateway=192.168.151.254",
	"RoCE.GIDIndex":                  "[Network]\nAddress=192.168.151.1/24\n[RoCE]",
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

// TestExamples checks the example of every key of the schema: it parses without a
// problem, sets something, and survives printing.
func TestExamples(t *testing.T) {
	schema := Schema()
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
				without, _ := VerifyFile("/etc/systemd/network/a.ibnetwork",
					[]byte(strings.ReplaceAll(text, k.Name+"="+k.Example+"\n", "X-Nothing=\n")))
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
					// GoTo= goes with one Type= only, bound with BindCarrier= only.
					alone := k.Name == "Type" && v == "goto" || k.Name == "ActivationPolicy" && v == "bound"
					if len(problems) > 0 && !alone {
						t.Errorf("the word %s does not parse: %v", v, problems)
					}
				}
			})
		}
	}
}

func TestSchemaNamesAreUnique(t *testing.T) {
	schema := Schema()
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

// formerKeys are keys of systemd.network(5) that had other names before systemd 257.
const formerKeys = `
network Network IPForward ProxyARP IPv6Token DHCPv6PrefixDelegation IPv6AcceptRouterAdvertisements MPLSRouting L2TP
network Link TransmitQueues ReceiveQueues
network Address IPv4ACD PrefixRoute
network Route IPServiceType TTLPropagate GatewayOnlink Onlink
`

// A key of a .network, .netdev or .link file is never just "unknown": either it works
// here, or the message names the replacement.
func TestKeysOfSystemd(t *testing.T) {
	list := systemdFiles()
	for line := range strings.Lines(formerKeys) {
		if f := strings.Fields(line); len(f) > 0 {
			list = append(list, systemdFile{f[0], f[1], f[2:]})
		}
	}
	if len(list) < 90 {
		t.Fatalf("%d sections", len(list))
	}
	n := 0
	for _, f := range list {
		spec := sectionByName[f.section]
		for _, key := range f.keys {
			n++
			_, problems := VerifyFile("a.ibnetwork", []byte("[Match]\nName=ib0\n["+f.section+"]\n"+key+"=1\n"))
			line, want := "a.ibnetwork:3:1: warning: ["+f.section+"]: a section of ."+f.file+" files: ", 1
			if spec != nil {
				line = "a.ibnetwork:4:1: warning: [" + f.section + "] " + key + "=: a key of "
			}
			if spec != nil && spec.key(key) != nil {
				want = 0
			}
			got := 0
			for _, p := range problems {
				s := p.String()
				if strings.HasPrefix(s, line) {
					got++
				}
				if strings.Contains(s, "unknown section") || strings.Contains(s, "unknown key") || strings.Contains(s, ": ;") {
					t.Errorf("%s [%s] %s=: %s", f.file, f.section, key, s)
				}
			}
			if f.section == "Bridge" || f.section == "IPoIB" || f.section == "SR-IOV" {
				continue // of two kinds of file
			}
			if got != want {
				t.Errorf("%s [%s] %s=: %d messages, not %d: %v", f.file, f.section, key, got, want, problems)
			}
			// In a section of this format that neither program has it in.
			if want == 1 && spec == nil && len(sectionsWith(key, "")) == 0 {
				_, problems := VerifyFile("a.ibnetwork", []byte("[Match]\nName=ib0\n[SubnetManager]\n"+key+"=1\n"))
				if len(problems) != 1 || !strings.Contains(problems[0].Message, ", which belongs to [") {
					t.Errorf("[SubnetManager] %s=: %v", key, problems)
				}
			}
		}
	}
	t.Logf("%d keys", n)
	for _, kind := range netdevKinds {
		_, problems := VerifyFile("a.ibnetwork", []byte("[Match]\nName=ib0\n[NetDev]\nName=x\nKind="+kind+"\n"))
		say := "leave a " + kind + " to systemd-networkd"
		switch kind {
		case "ipoib":
			say = "write [Partition] with PartitionKey="
		case "vlan":
			say = "write [VLAN] with Id="
		case "macvlan", "ipvlan":
			say = "write [" + strings.ToUpper(kind) + "] with Name= into the unit of the Ethernet link that it is on"
		case "bond":
			say = "write [Bond] with Name= into the unit of each slave"
		case "vrf":
			say = "write [VRF] with Name= and Table= into the unit of each link in it"
		}
		if len(problems) != 1 || !strings.HasSuffix(problems[0].Message, say) {
			t.Errorf("Kind=%s: %v", kind, problems)
		}
	}
	for name := range foreignSections {
		if !slices.ContainsFunc(list, func(f systemdFile) bool { return f.section == name }) && name != "DHCP" {
			t.Errorf("[%s] is no section of systemd 257", name)
		}
	}
}

// The manual's text has each section and key of the table once, in its order.
func TestKeyTexts(t *testing.T) {
	var want, got []string
	for _, s := range buildSchema() {
		want = append(want, "["+s.Name+"]")
		for _, k := range s.Keys {
			want = append(want, k.Name+"=")
		}
	}
	for line := range strings.Lines(keyTexts) {
		if name := strings.Fields(line); len(name) > 0 && line[0] != ' ' && line[0] != '#' {
			got = append(got, name[0])
		}
		if len(line) > 141 {
			t.Errorf("longer than 140 columns: %s", line)
		}
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}
