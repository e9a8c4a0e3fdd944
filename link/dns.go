package link

import (
	"slices"
	"strings"

	"ibnetworkd/units"
)

// wantedDNS is what a unit wants of systemd-resolved for its link, and whether it
// wants anything.
func wantedDNS(u *units.Unit) (op SetDNS, wanted bool) {
	if u == nil {
		return op, false
	}
	for _, d := range u.Network.DNS {
		op.Servers = append(op.Servers, d.V.String())
	}
	for _, d := range u.Network.Domains {
		op.Domains = append(op.Domains, d.V.String())
	}
	if v, ok := u.Network.DNSDefaultRoute.Get(); ok {
		op.Default = tristateOf(&v)
	}
	op.Resolve = wantedResolve(&u.Network)
	return op, len(op.Servers)+len(op.Domains) > 0 || op.Default != Unset || len(op.Words()) > 0
}

// NeedsResolved reports whether a unit has settings for systemd-resolved.
func NeedsResolved(u *units.Unit) bool {
	_, wanted := wantedDNS(u)
	return wanted
}

func planDNS(b *Builder, index int, u *units.Unit) {
	l := b.Link(index)
	rec := b.Record.Of(l)
	var had *DNSRecord
	if rec != nil {
		had = rec.DNS
	}
	op, wanted := wantedDNS(u)
	op.On, op.Resolved = b.Model.Target(l), b.Base.Host.Resolved
	leased := addLeased(&op, u, l)
	others := append(leased, addAdvertised(&op, u, l)...)
	linked := b.Base.Host.ResolvConf
	_, _, whole := op.inFile()
	why := noResolved(linked)
	if !wanted && len(others) > 0 {
		wanted, why = true, noResolvedForOthers(others, len(leased) > 0, linked)
	}
	if !wanted {
		if had != nil && !(u == nil && rec.Keep) && had.Resolved == op.Resolved && op.Resolved != "" {
			op.Revert = true
			b.Do(op)
		}
		return
	}
	a := Attribute{Name: "DNS", Wanted: dnsText(op.Servers, op.Domains, op.Resolve)}
	if had != nil && had.Resolved == op.Resolved {
		a.Actual = dnsText(had.Servers, had.Domains, had.Resolve)
		op.RevertFirst = had.Default != Unset && op.Default == Unset || lacks(op.Resolve, had.Resolve)
	}
	switch {
	case op.Resolved == "" && linked && whole:
		a.Actual = a.Wanted
	case op.Resolved == "":
		a.Why = why
		b.Block(op.On, op, false, a.Why)
	case had == nil || had.Resolved != op.Resolved || had.Default != op.Default ||
		!slices.Equal(had.Servers, op.Servers) || !slices.Equal(had.Domains, op.Domains) ||
		!slices.Equal(had.Words(), op.Words()):
		b.DoFor(op, &a.Why)
	}
	b.Attr(index, a)
}

func wantedResolve(n *units.Network) (r Resolve) {
	word := func(v units.Value[units.Support]) string {
		if x, ok := v.Get(); ok {
			return x.String()
		}
		return ""
	}
	r = Resolve{LLMNR: word(n.LLMNR), MulticastDNS: word(n.MulticastDNS), DNSOverTLS: word(n.DNSOverTLS), DNSSEC: word(n.DNSSEC)}
	for _, d := range n.DNSSECNegativeTrustAnchors {
		r.NTA = append(r.NTA, d.V.String())
	}
	return r
}

// lacks reports that something was set that is not to be set any more.
func lacks(now, had Resolve) bool {
	return slices.ContainsFunc(had.Words(), func(w [2]string) bool {
		return !slices.ContainsFunc(now.Words(), func(x [2]string) bool { return x[0] == w[0] })
	})
}

func dnsText(servers, domains []string, r Resolve) string {
	parts := slices.Concat(servers, domains)
	for _, w := range r.Words() {
		parts = append(parts, w[0]+":"+w[1])
	}
	return strings.Join(parts, " ")
}

// Resolve are the protocols of systemd-resolved on a link, in resolvectl's words;
// "" leaves its own choice.
type Resolve struct {
	LLMNR        string   `json:"llmnr,omitempty"`
	MulticastDNS string   `json:"mdns,omitempty"`
	DNSOverTLS   string   `json:"dns_over_tls,omitempty"`
	DNSSEC       string   `json:"dnssec,omitempty"`
	NTA          []string `json:"nta,omitempty"`
}

// Words are resolvectl's verbs with their values.
func (r Resolve) Words() (out [][2]string) {
	for _, x := range [][2]string{
		{"llmnr", r.LLMNR}, {"mdns", r.MulticastDNS}, {"dnsovertls", r.DNSOverTLS}, {"dnssec", r.DNSSEC}, {"nta", strings.Join(r.NTA, " ")},
	} {
		if x[1] != "" {
			out = append(out, x)
		}
	}
	return out
}

// Tristate is a boolean that may be unset.
type Tristate uint8

// The values of Tristate.
const (
	Unset Tristate = iota
	No
	Yes
)

// tristateOf converts a pointer to a boolean.
func tristateOf(b *bool) Tristate {
	switch {
	case b == nil:
		return Unset
	case *b:
		return Yes
	}
	return No
}

// String prints unset, no or yes.
func (t Tristate) String() string {
	switch t {
	case No:
		return "no"
	case Yes:
		return "yes"
	}
	return "unset"
}
