package units

import (
	"encoding/hex"
	"fmt"
	"math"
	"strings"

	"ibnetworkd/ib"
)

// DHCPv6 is [DHCPv6]: the client of IPv6. It counts with [Network] DHCP= or where router
// advertisements are accepted.
type DHCPv6 struct {
	Section
	DUIDType       Value[DUIDType]
	DUIDRawData    Value[DUIDData]
	IAID           Value[uint32]
	SendHostname   Value[bool]
	Hostname       Value[string]
	RequestOptions []Value[uint16]
	RapidCommit    Value[bool]
	SendRelease    Value[bool]
	WithoutRA      Value[DHCPv6Start]
	UseAddress     Value[bool]
	UseDNS         Value[bool]
	UseNTP         Value[bool]
	UseDomains     Value[UseDomains]
}

// DHCPv6Start is how a DHCPv6 client begins: not at all, with Solicit for an address, or
// with Information-request.
type DHCPv6Start uint8

// The values of WithoutRA=.
const (
	DHCPv6None DHCPv6Start = iota
	DHCPv6Information
	DHCPv6Solicit
)

// DHCPv6ByRouter is the router advertisements that begin a DHCPv6 client.
type DHCPv6ByRouter uint8

// The values of DHCPv6Client=: by the flags of an advertisement, never, or by each.
const (
	DHCPv6ByFlags DHCPv6ByRouter = iota
	DHCPv6Never
	DHCPv6Always
)

// DUIDType is a type of RFC 8415, section 11.
type DUIDType uint16

// The values of DUIDType=.
const (
	DUIDLinkLayerTime DUIDType = iota + 1
	DUIDVendor
	DUIDLinkLayer
	DUIDUUID
)

// DUIDData is what follows the type of a DUID.
type DUIDData string

var (
	duidWords = []word[DUIDType]{{DUIDVendor, "vendor"}, {DUIDLinkLayer, "link-layer"}, {DUIDLinkLayerTime, "link-layer-time"},
		{DUIDUUID, "uuid"}}
	dhcpv6StartWords = []word[DHCPv6Start]{{DHCPv6Solicit, "solicit"}, {DHCPv6Information, "information-request"}, {DHCPv6None, "no"}}
	byRouterWords    = []word[DHCPv6ByRouter]{{DHCPv6ByFlags, "yes"}, {DHCPv6Never, "no"}, {DHCPv6Always, "always"}}
)

// String prints the word of the unit file.
func (d DUIDType) String() string       { return printWord(duidWords, d) }
func (d DHCPv6Start) String() string    { return printWord(dhcpv6StartWords, d) }
func (d DHCPv6ByRouter) String() string { return printWord(byRouterWords, d) }

// String prints the bytes as a unit file has them.
func (d DUIDData) String() string {
	var b []string
	for i := range len(d) {
		b = append(b, hex.EncodeToString([]byte{d[i]}))
	}
	return strings.Join(b, ":")
}

// DHCPv6Start returns how the DHCPv6 client of a unit's link begins by itself: with DHCP=ipv6 or
// yes, unless WithoutRA=no leaves it to routers.
func (u *Unit) DHCPv6Start() DHCPv6Start {
	if !u.AsksDHCPv6() {
		return DHCPv6None
	}
	return u.DHCPv6.Get().WithoutRA.Or(DHCPv6Solicit)
}

// AsksDHCPv6 reports whether a unit itself asks for DHCPv6.
func (u *Unit) AsksDHCPv6() bool {
	return u.ConfiguresIP() && (u.Network.DHCP.V == DHCPIPv6 || u.Network.DHCP.V == DHCPYes)
}

// DHCPv6ByRouter returns which router advertisements begin the DHCPv6 client of a unit's link.
func (u *Unit) DHCPv6ByRouter() DHCPv6ByRouter {
	if !u.ConfiguresIP() || !u.acceptsRA() {
		return DHCPv6Never
	}
	return u.IPv6AcceptRA.DHCPv6Client.V
}

// acceptsRA reports whether router advertisements may begin DHCPv6: with IPv6AcceptRA=, and where that
// is not set, with WithoutRA=no, which leaves it to them.
func (u *Unit) acceptsRA() bool {
	return u.Network.IPv6AcceptRA.Or(u.AsksDHCPv6() && u.DHCPv6Start() == DHCPv6None)
}

// NeverDHCPv6 is the setting that keeps the DHCPv6 client that a unit asks for from ever beginning,
// "" for none.
func (u *Unit) NeverDHCPv6() string {
	switch {
	case !u.AsksDHCPv6() || u.MayUseDHCPv6():
		return ""
	case u.acceptsRA():
		return "DHCPv6Client=no"
	}
	return "IPv6AcceptRA=no"
}

// MayUseDHCPv6 reports whether a DHCPv6 client may run on a unit's link.
func (u *Unit) MayUseDHCPv6() bool {
	return u.DHCPv6Start() != DHCPv6None || u.DHCPv6ByRouter() != DHCPv6Never
}

// parseDUIDData reads bytes in hexadecimal, as systemd-networkd does.
func parseDUIDData(s string) (DUIDData, error) {
	raw, err := hex.DecodeString(strings.ReplaceAll(s, ":", ""))
	if err != nil || len(raw) < 1 || len(raw) > 128 {
		return "", fmt.Errorf("%q is not 1 to 128 bytes in hexadecimal such as 00:02:c9", ib.Clip(s))
	}
	return DUIDData(raw), nil
}

func parseDUIDType(s string) (DUIDType, error) {
	if t, after, ok := strings.Cut(s, ":"); ok && t == "link-layer-time" {
		return 0, fmt.Errorf("%q: the time %q belongs in DUIDRawData=, with the hardware type before it and the address after it",
			ib.Clip(s), ib.Clip(after))
	}
	return parseWord(duidWords, s)
}

func dhcpv6Section() SectionSpec {
	type D = DHCPv6
	return SectionSpec{
		Name: "DHCPv6", open: func(u *Unit) (any, *Section) { s := u.DHCPv6.open(); return s, &s.Section },
		Keys: []Key{
			{Name: "DUIDType", Values: wordList(duidWords), Networkd: true,
				apply: scalar(func(d *D) *Value[DUIDType] { return &d.DUIDType }, parseDUIDType)},
			{Name: "DUIDRawData", Networkd: true, apply: scalar(func(d *D) *Value[DUIDData] { return &d.DUIDRawData }, parseDUIDData)},
			numKey("IAID", 0, math.MaxUint32, true, func(d *D) *Value[uint32] { return &d.IAID }),
			boolKey("SendHostname", true, func(d *D) *Value[bool] { return &d.SendHostname }),
			{Name: "Hostname", Networkd: true, apply: scalar(func(d *D) *Value[string] { return &d.Hostname }, parseDHCPHostname)},
			{Name: "RequestOptions", List: true, Networkd: true,
				apply: list(func(d *D) *[]Value[uint16] { return &d.RequestOptions }, words, number[uint16](1, 65535))},
			boolKey("RapidCommit", true, func(d *D) *Value[bool] { return &d.RapidCommit }),
			boolKey("SendRelease", true, func(d *D) *Value[bool] { return &d.SendRelease }),
			enumKey("WithoutRA", true, dhcpv6StartWords, func(d *D) *Value[DHCPv6Start] { return &d.WithoutRA }),
			boolKey("UseAddress", true, func(d *D) *Value[bool] { return &d.UseAddress }),
			boolKey("UseDNS", true, func(d *D) *Value[bool] { return &d.UseDNS }),
			boolKey("UseNTP", true, func(d *D) *Value[bool] { return &d.UseNTP }),
			{Name: "UseDomains", Syntax: "BOOLEAN|route", Values: wordList(useDomainsWords), Networkd: true,
				apply: scalar(func(d *D) *Value[UseDomains] { return &d.UseDomains }, boolOr(UseDomainsYes, UseDomainsNo, useDomainsWords))},
		},
	}
}

func (p *parser) checkDHCPv6() {
	u, d := p.u, p.u.DHCPv6.Get()
	if by := u.NeverDHCPv6(); by != "" {
		p.at("DHCPv6", "WithoutRA").problem(d.WithoutRA.Pos, Warning, "no DHCPv6 client ever runs",
			"WithoutRA=no leaves DHCPv6 to router advertisements, which %s ignores: remove one of the two", by)
	} else if d.Present && !u.MayUseDHCPv6() {
		p.at("DHCPv6", "").problem(d.Pos, Warning, "the section has no effect",
			"[DHCPv6] has no effect without DHCP=ipv6 or yes, or IPv6AcceptRA=yes, in [Network]")
	}
	if d.WithoutRA.Set && u.ConfiguresIP() && !u.AsksDHCPv6() {
		p.at("DHCPv6", "WithoutRA").problem(d.WithoutRA.Pos, Warning, "it has no effect", "WithoutRA= has no effect without DHCP=ipv6 or yes")
	}
	if t := d.DUIDType.V; (t == DUIDLinkLayerTime || t == DUIDUUID) && !d.DUIDRawData.Set {
		p.at("DHCPv6", "DUIDType").problem(d.DUIDType.Pos, Warning, "the identifier is that of DUIDType=vendor",
			"DUIDType=%s needs DUIDRawData=", t)
	}
	if ll, ok := u.Network.LinkLocalAddressing.Get(); ok && !ll.IPv6() && u.AsksDHCPv6() {
		p.at("Network", "DHCP").problem(u.Network.DHCP.Pos, Warning, "the DHCPv6 client never begins",
			"DHCPv6 needs the IPv6 link-local address that LinkLocalAddressing=%s takes away", ll)
	}
}
