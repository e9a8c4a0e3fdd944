package units

import (
	"fmt"
	"net/netip"
	"strings"

	"ibnetworkd/ib"
)

// Token is Token=: the last 64 bits of the addresses that the kernel makes from prefixes of
// router advertisements; its first 64 bits are zero. :: leaves them to EUI-64.
type Token struct{ netip.Addr }

// String prints the value as a unit file has it.
func (t Token) String() string {
	if !t.IsValid() || t.IsUnspecified() {
		return "eui64"
	}
	return t.Addr.String()
}

// parseToken parses the values of systemd-networkd of which the kernel has an equivalent.
func parseToken(s string) (Token, error) {
	if s == "eui64" {
		return Token{netip.IPv6Unspecified()}, nil
	}
	if strings.HasPrefix(s, "prefixstable") {
		return Token{}, &guess{fmt.Sprintf("%q is not a token: the kernel makes such addresses for the whole link only", ib.Clip(s)),
			"write IPv6LinkLocalAddressGenerationMode=stable-privacy, which applies to router advertisements too"}
	}
	a, err := parseAddr(strings.TrimPrefix(s, "static:"))
	if err != nil || !a.Is6() {
		return Token{}, fmt.Errorf("%q is neither eui64 nor an IPv6 address such as ::1", ib.Clip(s))
	}
	b := a.As16()
	prefix := [8]byte(b[:8])
	clear(b[:8])
	t := Token{netip.AddrFrom16(b)}
	switch {
	case t.IsUnspecified():
		return t, fmt.Errorf("the last 64 bits of %q are zero", ib.Clip(s))
	case prefix != [8]byte{}:
		return t, &caution{fmt.Sprintf("the first 64 bits of %q are not zero, but routers advertise these", ib.Clip(s)),
			fmt.Sprintf("it is read as %s", t)}
	}
	return t, nil
}

// tokenSetter sets [IPv6AcceptRA] Token=, of which the kernel has one for a link.
func tokenSetter() setter {
	s := scalar(func(r *IPv6AcceptRA) *Value[Token] { return &r.Token }, parseToken)
	set := s.set
	s.set = func(p *parser, obj any, a *assign) {
		r := obj.(*IPv6AcceptRA)
		was := r.Token
		set(p, obj, a)
		if was.Set && r.Token.Set && r.Token.V != was.V {
			r.Token = was
			p.bad(a.pos(), &guess{fmt.Sprintf("the kernel has one token for a link, here %s of %s", was.V, was.Pos),
				"write Token= without a value before it to replace the first, or a second address as Address="}, "the first one is kept")
		}
	}
	return s
}

// networkToken makes a [IPv6AcceptRA] Token= of a [Network] IPv6Token=.
func networkToken(p *parser, _ any, a *assign) {
	if a.val == "" {
		p.u.IPv6AcceptRA.Token = Value[Token]{}
		return
	}
	p.instance(p.sections["IPv6AcceptRA"], a.keyPos)
	tokenSetter().set(p, &p.u.IPv6AcceptRA, a)
}

// checkToken warns of a token that the kernel refuses, or does not use.
func (p *parser) checkToken() {
	u, t := p.u, &p.u.IPv6AcceptRA.Token
	mode := u.Network.IPv6LinkLocalAddressGeneration.V
	p.at("IPv6AcceptRA", "Token")
	switch {
	case !t.Set:
	case !u.Link.ARP.Or(true):
		p.problem(t.Pos, Warning, "no token is set", "Token=%s and ARP=no: the kernel refuses a token on a link without neighbour discovery", t.V)
		p.problems[len(p.problems)-1].Next = "remove one of the two"
	case t.V.IsUnspecified() && (mode == AddrGenStablePrivacy || mode == AddrGenRandom):
		p.problem(t.Pos, Warning, fmt.Sprintf("the addresses are made as IPv6LinkLocalAddressGenerationMode=%s has it", mode),
			"Token=eui64 and IPv6LinkLocalAddressGenerationMode=%s: the kernel makes both kinds of address the same way", mode)
	}
}
