package units

import (
	"encoding/hex"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strings"

	"ibnetworkd/ib"
)

// DHCPv4 is [DHCPv4]: the client of IPv4. It counts with [Network] DHCP= only.
type DHCPv4 struct {
	Section
	ClientIdentifier Value[ClientIdentifier]
	IAID             Value[uint32]
	SendHostname     Value[bool]
	Hostname         Value[string]
	VendorClass      Value[string]
	RequestOptions   []Value[uint8]
	RequestBroadcast Value[bool]
	SendDecline      Value[bool]
	SendRelease      Value[bool]
	UseDNS           Value[bool]
	UseNTP           Value[bool]
	UseDomains       Value[UseDomains]
	UseHostname      Value[bool]
	UseMTU           Value[bool]
	UseRoutes        Value[bool]
	UseGateway       Value[bool]
	RouteMetric      Value[uint32]
	RouteTable       Value[uint32]
	AllowList        []Value[netip.Prefix]
	DenyList         []Value[netip.Prefix]
}

// DHCPMode is the families for which a DHCP client runs.
type DHCPMode uint8

// The values of DHCP=.
const (
	DHCPNo DHCPMode = iota
	DHCPIPv4
	DHCPIPv6
	DHCPYes
)

// UsesDHCP reports whether a DHCP client of IPv4 runs on the link.
func (u *Unit) UsesDHCP() bool {
	return u.ConfiguresIP() && (u.Network.DHCP.V == DHCPIPv4 || u.Network.DHCP.V == DHCPYes)
}

// DHCPMetric is the metric of the routes that DHCP brings, systemd-networkd's without
// RouteMetric=.
func (u *Unit) DHCPMetric() uint32 { return u.DHCPv4.Get().RouteMetric.Or(1024) }

// ClientIdentifier is a kind of option 61.
type ClientIdentifier struct {
	Kind ClientIDKind
	Raw  []byte // of ClientIDRaw, with the type
}

// ClientIDKind is a word of ClientIdentifier=.
type ClientIDKind uint8

// The values of ClientIdentifier=.
const (
	ClientIDDUID ClientIDKind = iota
	ClientIDDUIDOnly
	ClientIDMAC
	ClientIDFlexBoot
	ClientIDRaw
)

var (
	dhcpWords     = []word[DHCPMode]{{DHCPYes, "yes"}, {DHCPIPv4, "ipv4"}, {DHCPIPv6, "ipv6"}, {DHCPNo, "no"}}
	clientIDWords = []word[ClientIDKind]{{ClientIDDUID, "duid"}, {ClientIDDUIDOnly, "duid-only"}, {ClientIDMAC, "mac"},
		{ClientIDFlexBoot, "flexboot"}}
)

// String prints the word of the unit file.
func (d DHCPMode) String() string { return printWord(dhcpWords, d) }

// String prints the value as a unit file has it.
func (c ClientIdentifier) String() string {
	if c.Kind == ClientIDRaw {
		return "0x" + hex.EncodeToString(c.Raw)
	}
	return printWord(clientIDWords, c.Kind)
}

// parseClientID reads a word, or bytes in hexadecimal with the type first.
func parseClientID(s string) (ClientIdentifier, error) {
	if digits, ok := strings.CutPrefix(s, "0x"); ok {
		raw, err := hex.DecodeString(strings.NewReplacer(":", "", "-", "").Replace(digits))
		if err != nil || len(raw) < 2 || len(raw) > 255 {
			return ClientIdentifier{}, fmt.Errorf("%q is not a client identifier of 2 to 255 bytes in hexadecimal, the type first", ib.Clip(s))
		}
		return ClientIdentifier{Kind: ClientIDRaw, Raw: raw}, nil
	}
	k, err := parseWord(clientIDWords, s)
	if err != nil {
		err = fmt.Errorf("%w, or 0x and the bytes", err)
	}
	return ClientIdentifier{Kind: k}, err
}

func parseDHCPHostname(s string) (string, error) {
	if err := validDomain(s); err != nil {
		return "", err
	}
	return strings.TrimSuffix(s, "."), nil
}

func parseVendorClass(s string) (string, error) {
	if len(s) > 255 {
		return "", fmt.Errorf("%q has %d bytes, at most 255 fit into the option", ib.Clip(s), len(s))
	}
	return s, nil
}

func parseServerPrefix(s string) (netip.Prefix, error) {
	p, err := prefixValue(s)
	if err == nil && !p.Addr().Is4() {
		err = fmt.Errorf("%q is not an IPv4 address or network", ib.Clip(s))
	}
	return p, err
}

func dhcpv4Section() SectionSpec {
	type D = DHCPv4
	prefixes := func(name string, field func(*D) *[]Value[netip.Prefix]) Key {
		return Key{Name: name, List: true, Networkd: true, apply: list(field, words, parseServerPrefix)}
	}
	return SectionSpec{
		Name: "DHCPv4", open: func(u *Unit) (any, *Section) { s := u.DHCPv4.open(); return s, &s.Section },
		Keys: []Key{
			{Name: "ClientIdentifier", Values: wordList(clientIDWords), Networkd: true,
				apply: scalar(func(d *D) *Value[ClientIdentifier] { return &d.ClientIdentifier }, parseClientID)},
			numKey("IAID", 0, math.MaxUint32, true, func(d *D) *Value[uint32] { return &d.IAID }),
			boolKey("SendHostname", true, func(d *D) *Value[bool] { return &d.SendHostname }),
			{Name: "Hostname", Networkd: true, apply: scalar(func(d *D) *Value[string] { return &d.Hostname }, parseDHCPHostname)},
			{Name: "VendorClassIdentifier", Networkd: true,
				apply: scalar(func(d *D) *Value[string] { return &d.VendorClass }, parseVendorClass)},
			{Name: "RequestOptions", List: true, Networkd: true,
				apply: list(func(d *D) *[]Value[uint8] { return &d.RequestOptions }, words, number[uint8](1, 254))},
			boolKey("RequestBroadcast", true, func(d *D) *Value[bool] { return &d.RequestBroadcast }),
			boolKey("SendDecline", true, func(d *D) *Value[bool] { return &d.SendDecline }),
			boolKey("SendRelease", true, func(d *D) *Value[bool] { return &d.SendRelease }),
			boolKey("UseDNS", true, func(d *D) *Value[bool] { return &d.UseDNS }),
			boolKey("UseNTP", true, func(d *D) *Value[bool] { return &d.UseNTP }),
			{Name: "UseDomains", Syntax: "BOOLEAN|route", Values: wordList(useDomainsWords), Networkd: true,
				apply: scalar(func(d *D) *Value[UseDomains] { return &d.UseDomains }, boolOr(UseDomainsYes, UseDomainsNo, useDomainsWords))},
			boolKey("UseHostname", true, func(d *D) *Value[bool] { return &d.UseHostname }),
			boolKey("UseMTU", true, func(d *D) *Value[bool] { return &d.UseMTU }),
			boolKey("UseRoutes", true, func(d *D) *Value[bool] { return &d.UseRoutes }),
			boolKey("UseGateway", true, func(d *D) *Value[bool] { return &d.UseGateway }),
			numKey("RouteMetric", 0, math.MaxUint32, true, func(d *D) *Value[uint32] { return &d.RouteMetric }),
			{Name: "RouteTable", Values: wordList(tableWords), Networkd: true,
				apply: scalar(func(d *D) *Value[uint32] { return &d.RouteTable }, parseTable)},
			prefixes("AllowList", func(d *D) *[]Value[netip.Prefix] { return &d.AllowList }),
			prefixes("DenyList", func(d *D) *[]Value[netip.Prefix] { return &d.DenyList }),
		},
	}
}

func (p *parser) checkDHCP() {
	d := p.u.DHCPv4.Get()
	if !d.Present {
		return
	}
	if m := p.u.Network.DHCP.V; m != DHCPIPv4 && m != DHCPYes {
		p.at("DHCPv4", "").problem(d.Pos, Warning, "the section has no effect", "[DHCPv4] has no effect without DHCP=ipv4 or yes in [Network]")
	}
	if d.UseMTU.V && p.u.Link.MTUBytes.Set {
		p.at("DHCPv4", "UseMTU").problem(d.UseMTU.Pos, Warning, "MTUBytes= counts", "UseMTU=yes has no effect beside MTUBytes= in [Link]")
	}
	if len(d.AllowList) > 0 && len(d.DenyList) > 0 {
		p.at("DHCPv4", "DenyList").problem(d.DenyList[0].Pos, Warning, "AllowList= counts", "DenyList= has no effect beside AllowList=")
	}
}

// hasIPv4Address reports whether a unit gives its link an IPv4 address.
func (u *Unit) hasIPv4Address() bool {
	return u.UsesDHCP() || u.Network.AddressTable.Set || u.Network.LinkLocalAddressing.V.IPv4() ||
		slices.ContainsFunc(u.Addresses, func(a Address) bool { return a.Template.Set || a.Address.V.Addr().Is4() })
}
