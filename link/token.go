package link

import (
	"net/netip"
	"slices"

	"ibnetworkd/units"
)

// wantedToken is Token= where router advertisements are accepted.
func wantedToken(u *units.Unit) units.Value[units.Token] {
	if u == nil || !u.ConfiguresIP() || !u.Network.IPv6AcceptRA.V {
		return units.Value[units.Token]{}
	}
	return u.IPv6AcceptRA.Token
}

// Sysctls lists the settings that the removal of what is recorded depends on, as keys of
// Link.Sysctl.
func (e *LinkRecord) Sysctls() []string {
	if len(e.Tokens) > 0 {
		return []string{acceptRA, forwarding6}
	}
	return nil
}

// planTokenRemoval removes the recorded token of a link that no unit wants to have one.
func planTokenRemoval(b *Builder, index int, rec *LinkRecord, wanted bool) {
	l := b.Link(index)
	if !wanted && slices.Contains(rec.Tokens, l.Token) && l.refusesToken() == (Reason{}) {
		b.Do(SetToken{On: b.Model.Target(l), Token: netip.IPv6Unspecified()})
	}
}

// planToken plans the token of a link. It comes after the settings and flags that the kernel
// checks, and before the link is brought up, when it asks for routers.
func planToken(b *Builder, index int, u *units.Unit) {
	want, ok := wantedToken(u).Get()
	if !ok {
		return
	}
	l := b.Link(index)
	a := Attribute{Name: "Token", Wanted: want.String(), Actual: "-"}
	if now := b.Now(index); now != nil {
		a.Actual = units.Token{Addr: now.Token}.String()
	}
	op := SetToken{On: b.Model.Target(l), Token: want.Addr}
	has := l.Token
	if !has.IsValid() {
		has = netip.IPv6Unspecified()
	}
	if has != want.Addr {
		why := noInet6(b.Base.Host.NoIPv6, l)
		if why == (Reason{}) {
			why = l.refusesToken()
		}
		if why != (Reason{}) {
			a.Why = why
			b.Block(op.On, op, false, why)
		} else {
			b.DoFor(op, &a.Why)
		}
	}
	b.Attr(index, a)
}

// refusesToken returns why the kernel would refuse a change of the token of a link
// (inet6_set_iftoken), nothing where it is not known to.
func (l *Link) refusesToken() Reason {
	switch v := l.Sysctl[acceptRA]; {
	case l.Flags&FlagNoARP != 0:
		return Reason{Code: CodeUnsupported, Text: "a token needs neighbour discovery, which is off on " + l.Name,
			Next: "ip link set " + l.Name + " arp on, or write ARP=yes in [Link]"}
	case v == "0" || v == "1" && l.Sysctl[forwarding6] == "1":
		return Reason{Code: CodeUnsupported, Text: l.Name + " accepts no router advertisements, which a token needs",
			Next: "sysctl -w " + sysctlName(l.Name, acceptRA) + "=2"}
	}
	return Reason{}
}

// ApplyTo follows inet6_set_iftoken.
func (o SetToken) ApplyTo(m *Model) error {
	l, err := m.find(o.On)
	switch {
	case err != nil:
		return err
	case m.snap.Host.NoIPv6 || l.MTU != 0 && l.MTU < 1280:
		return errNoFamily
	case l.Type == ARPHRDLoopback || l.refusesToken() != (Reason{}):
		return errInvalid
	}
	if l.Token = o.Token; o.Token.IsUnspecified() {
		l.Token = netip.Addr{}
	}
	return nil
}
