package units

import (
	"fmt"
	"math/big"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"ibnetworkd/ib"
)

// AddressTemplate is an address that each host derives from what it has: the
// address of another link, the number in its name, the number in the name of the
// link. The zero value is none.
type AddressTemplate struct {
	text string
	// fixed are the texts around the fields: one more than there are fields.
	fixed  []string
	fields []field
	// base is what the only field is added to, the zero Addr for a text with fields.
	base netip.Addr
	bits int
	is6  bool
}

type field struct {
	text string
	from originKind
	link string // name or glob of the other link
	n    int    // which number or octet from 1; 0 the last number, or the host part
	add  int64
}

// originKind is where the number of a field comes from.
type originKind uint8

const (
	fromHost  originKind = iota // the host name up to its first dot
	fromLink                    // the name of the link
	fromOther                   // the IPv4 address of another link
)

// String is the template as the unit has it.
func (t AddressTemplate) String() string { return t.text }

// Is6 reports an IPv6 address.
func (t AddressTemplate) Is6() bool { return t.is6 }

// FollowsLinks reports whether the address depends on those of other links.
func (t AddressTemplate) FollowsLinks() bool {
	return slices.ContainsFunc(t.fields, func(f field) bool { return f.from == fromOther })
}

// parseTemplate reads "10.3.{eno1.3}.{eno1.4}/16" and "10.3.0.0+{host}/16".
func parseTemplate(s string) (AddressTemplate, error) {
	bad := func(format string, args ...any) (AddressTemplate, error) {
		return AddressTemplate{}, fmt.Errorf("%q: %s", ib.Clip(s), fmt.Sprintf(format, args...))
	}
	slash := strings.LastIndexByte(s, '/')
	if slash < 0 || slash < strings.LastIndexByte(s, '}') {
		return bad("a derived address needs a prefix length, as in 10.3.0.{host}/16")
	}
	t := AddressTemplate{text: s}
	for rest := s[:slash]; ; {
		open := strings.IndexAny(rest, "{}")
		if open < 0 {
			t.fixed = append(t.fixed, rest)
			break
		}
		end := strings.IndexAny(rest[open+1:], "{}")
		if rest[open] == '}' || end < 0 || rest[open+1+end] == '{' {
			return bad("the braces do not come in pairs")
		}
		f, err := parseField(rest[open+1 : open+1+end])
		if err != nil {
			return bad("%v", err)
		}
		t.fixed, t.fields = append(t.fixed, rest[:open]), append(t.fields, f)
		rest = rest[open+end+2:]
	}
	if base, ok := strings.CutSuffix(t.fixed[0], "+"); ok {
		if len(t.fields) != 1 || t.fixed[1] != "" {
			return bad("one field is added to an address, as in 10.3.0.0+{host}/16")
		}
		a, err := parseAddr(base)
		if err != nil {
			return bad("%v", err)
		}
		t.base, t.is6 = a, a.Is6()
	} else if err := t.checkFields(); err != nil {
		return bad("%v", err)
	}
	most := 32
	if t.is6 {
		most = 128
	}
	n, err := strconv.ParseUint(s[slash+1:], 10, 8)
	if err != nil || int(n) > most || n == 0 {
		return bad("the prefix length is 1 to %d", most)
	}
	t.bits = int(n)
	return t, nil
}

// checkFields checks the place of each field: a whole octet or a whole group.
func (t *AddressTemplate) checkFields() error {
	t.is6 = strings.Contains(strings.Join(t.fixed, ""), ":")
	sep, what := ".", "an octet of the address, or it is added to one as in 10.3.0.0+{host}/16"
	if t.is6 {
		sep, what = ":", "a group of the address, or it is added to one as in fd00:3::+{host}/64"
	}
	for i, f := range t.fields {
		before, after := t.fixed[i], t.fixed[i+1]
		if before != "" && !strings.HasSuffix(before, sep) || after != "" && !strings.HasPrefix(after, sep) ||
			before == "" && i > 0 || after == "" && i+1 < len(t.fields) {
			return fmt.Errorf("{%s} must be %s", f.text, what)
		}
		if f.from == fromOther && f.n == 0 {
			return fmt.Errorf("{%s} is the host part of an address, which is added to one as in 10.3.0.0+{%s}/16; write {%s.4} for an octet",
				f.text, f.text, f.text)
		}
	}
	a, err := netip.ParseAddr(t.fill("1"))
	if err != nil || a.Is6() != t.is6 || a.Zone() != "" || a.Is4In6() {
		return fmt.Errorf("it is not an IP address with fields in braces")
	}
	return nil
}

// fill is the address with one text in place of each field.
func (t *AddressTemplate) fill(number string) string { return strings.Join(t.fixed, number) }

// parseField reads what is between braces: host[:N][±K], link[:N][±K], LINK.OCTET[±K]
// or LINK.
func parseField(s string) (field, error) {
	f := field{text: s}
	said := "{" + ib.Clip(s) + "}"
	unknown := fmt.Errorf("%q is not host, link, LINK.1 to LINK.4 or LINK", said)
	rest := s
	if i := strings.LastIndexAny(s, "+-"); i > 0 && i+1 < len(s) && len(s)-i <= 6 && leadingDigits(s[i+1:]) == len(s)-i-1 {
		k, _ := strconv.ParseInt(s[i:], 10, 64)
		f.add, rest = k, s[:i]
	}
	name, number, numbered := strings.Cut(rest, ":")
	if name == "host" || name == "link" {
		f.from = fromHost
		if name == "link" {
			f.from = fromLink
		}
		if numbered {
			n, err := strconv.ParseUint(number, 10, 8)
			if err != nil || n < 1 || n > 9 {
				return f, fmt.Errorf("%q: write {%s:1} for the first number in the name, up to {%s:9}", said, name, name)
			}
			f.n = int(n)
		}
		return f, nil
	}
	if name == "hostname" {
		return f, fmt.Errorf("%q: write {host} for the number in the host name", said)
	}
	f.from = fromOther
	if n := len(rest); n > 2 && rest[n-2] == '.' && rest[n-1] >= '1' && rest[n-1] <= '4' {
		f.link, f.n = rest[:n-2], int(rest[n-1]-'0')
	} else {
		f.link, f.add = s, 0 // a name may have signs and digits
	}
	// Patterns have no other characters than names and a few more.
	if f.link == "" || len(f.link) > 64 || strings.ContainsAny(f.link, "/:%\\") ||
		strings.ContainsFunc(f.link, func(r rune) bool { return r <= ' ' || r >= 0x7f }) {
		return f, unknown
	}
	return f, nil
}

// Fits reports whether the template can give an address.
func (t AddressTemplate) Fits(p netip.Prefix) bool {
	if p.Bits() != t.bits || p.Addr().Is6() != t.is6 {
		return false
	}
	if t.base.IsValid() {
		return netip.PrefixFrom(t.base, t.bits).Masked().Contains(p.Addr())
	}
	low, high := t.fill("0"), t.fill("255")
	if t.is6 {
		high = t.fill("ffff")
	}
	a, err1 := netip.ParseAddr(low)
	b, err2 := netip.ParseAddr(high)
	if err1 != nil || err2 != nil {
		return false
	}
	x, lo, hi := p.Addr().As16(), a.As16(), b.As16()
	for i := range x {
		if free := lo[i] ^ hi[i]; (x[i]^lo[i])&^free != 0 {
			return false
		}
	}
	return true
}

// Derive is the address on a host. missing is a sentence that says why there is none,
// and next what to do about it.
func (t AddressTemplate) Derive(o *Origins) (p netip.Prefix, missing, next string) {
	texts := make([]string, len(t.fields))
	var last int64
	for i := range t.fields {
		n, missing, next := t.fields[i].number(o)
		if missing != "" {
			return p, missing, next
		}
		most := int64(255)
		if t.is6 {
			most = 9999
		}
		if !t.base.IsValid() && (n < 0 || n > most) {
			return p, fmt.Sprintf("{%s} is %d, which does not fit (0 to %d)", t.fields[i].text, n, most),
				"add it to an address, as in 10.3.0.0+{host}/16, or use AddressTable="
		}
		texts[i], last = strconv.FormatInt(n, 10), n
	}
	var a netip.Addr
	if t.base.IsValid() {
		a = sum(t.base, last)
		if !netip.PrefixFrom(t.base, t.bits).Masked().Contains(a) {
			return p, fmt.Sprintf("%s and %d are outside of the network %s", t.base, last, netip.PrefixFrom(t.base, t.bits).Masked()),
				"choose a larger network"
		}
	} else {
		var b strings.Builder
		for i, x := range t.fixed {
			b.WriteString(x)
			if i < len(texts) {
				b.WriteString(texts[i])
			}
		}
		a, _ = netip.ParseAddr(b.String())
	}
	p = netip.PrefixFrom(a, t.bits)
	if why := unusable(p); why != "" {
		return netip.Prefix{}, fmt.Sprintf("the address would be %s, %s", p, why), "give this host another number, or use AddressTable="
	}
	return p, "", ""
}

// sum adds to an address; the zero Addr where the result is none.
func sum(a netip.Addr, n int64) netip.Addr {
	v := new(big.Int).SetBytes(a.AsSlice())
	v.Add(v, big.NewInt(n))
	if v.Sign() < 0 || v.BitLen() > a.BitLen() {
		return netip.Addr{}
	}
	out, _ := netip.AddrFromSlice(v.FillBytes(make([]byte, a.BitLen()/8)))
	return out
}

// unusable returns why an address cannot be that of a link, "" where it can.
func unusable(p netip.Prefix) string {
	a := p.Addr()
	switch {
	case !a.IsValid() || a.IsUnspecified():
		return "which is none"
	case a.IsMulticast():
		return "a multicast address"
	case a == netip.AddrFrom4([4]byte{255, 255, 255, 255}):
		return "the broadcast address"
	case !a.Is4() || p.Bits() >= 31:
	case p.Masked().Addr() == a:
		return "the address of the network itself"
	case !p.Contains(a.Next()):
		return "the network's broadcast address"
	}
	return ""
}

// number is the value of a field on a host.
func (f *field) number(o *Origins) (n int64, missing, next string) {
	switch f.from {
	case fromHost:
		short, _, _ := strings.Cut(o.Hostname, ".")
		n, missing = f.digits("the host name", short)
		next = "hostnamectl hostname NAME, or use AddressTable="
	case fromLink:
		if o.Link == "" {
			return 0, "the name of the link is not known", ""
		}
		n, missing = f.digits("the link's name", o.Link)
		next = "match links that have a number in their names"
	case fromOther:
		return f.ofAddress(o)
	}
	if missing != "" {
		return 0, missing, next
	}
	return n + f.add, "", ""
}

func (f *field) digits(what, name string) (int64, string) {
	var all []string
	for i := 0; i < len(name); {
		if n := leadingDigits(name[i:]); n > 0 {
			all = append(all, name[i:i+n])
			i += n
		} else {
			i++
		}
	}
	at := f.n - 1
	if f.n == 0 {
		at = len(all) - 1
	}
	if at < 0 || at >= len(all) {
		if f.n > 1 {
			return 0, fmt.Sprintf("%s %q has %d numbers, not %d", what, ib.Clip(name), len(all), f.n)
		}
		return 0, fmt.Sprintf("%s %q has no number", what, ib.Clip(name))
	}
	n, err := strconv.ParseUint(all[at], 10, 32)
	if err != nil {
		return 0, fmt.Sprintf("the number in %s %q is too large", what, ib.Clip(name))
	}
	return int64(n), ""
}

// ofAddress is an octet or the host part of another link's address.
func (f *field) ofAddress(o *Origins) (n int64, missing, next string) {
	var names, circle []string
	var found []netip.Prefix
	for i := range o.Others {
		x := &o.Others[i]
		if !slices.ContainsFunc(x.Names, func(s string) bool { return s == f.link || globMatch(f.link, s, false) }) {
			continue
		}
		if x.Derives {
			circle = append(circle, x.Names[0])
			continue
		}
		names, found = append(names, x.Names[0]), append(found, x.IPv4...)
	}
	// An address of its own network, as a floating one is, is not the host's.
	if wide := slices.DeleteFunc(slices.Clone(found), func(p netip.Prefix) bool { return p.Bits() == 32 }); len(wide) > 0 {
		found = wide
	}
	switch {
	case len(names) == 0 && len(circle) > 0:
		return 0, fmt.Sprintf("%s derives its own address from another link", strings.Join(circle, ", ")), "derive both from the same link"
	case len(names) == 0:
		return 0, fmt.Sprintf("there is no link %s to derive the address from", f.link), "ip link"
	case len(found) == 0:
		return 0, fmt.Sprintf("%s has no IPv4 address yet to derive the address from", strings.Join(names, ", ")), "ip address show " + names[0]
	case len(found) > 1:
		return 0, fmt.Sprintf("%s has %d IPv4 addresses (%s and %s): which one to derive from is not known", strings.Join(names, ", "),
			len(found), found[0], found[1]), "remove one, or use {host} or AddressTable="
	}
	b := found[0].Addr().As4()
	if f.n > 0 {
		return int64(b[f.n-1]) + f.add, "", ""
	}
	v := int64(b[0])<<24 | int64(b[1])<<16 | int64(b[2])<<8 | int64(b[3])
	return v & (1<<(32-found[0].Bits()) - 1), "", ""
}

// Origins are what the addresses of one link of a host are derived from.
type Origins struct {
	Hostname string
	// Link is the name of the link, GUID that of its port; zero where not known.
	Link string
	GUID ib.GUID
	// Others are the other links that exist. An address of theirs is one that the
	// host has for itself, not for a while and not beside another.
	Others []Origin
	// Tables are those that units name, by path.
	Tables map[string]*AddressTable
}

// Origin is another link.
type Origin struct {
	Names []string
	// Derives is set for a link whose own addresses depend on those of others: none
	// is derived from them, so that no circle comes about.
	Derives bool
	IPv4    []netip.Prefix
}

// Underived is an address that cannot be derived now. It ends when what it is derived
// from comes or changes.
type Underived struct {
	// Text is what the unit has.
	Text string
	// Why is a sentence, Next what to do.
	Why, Next string

	template *AddressTemplate // nil for those of a table
	lost     bool             // the table does not say that the host has none
}

// Keeps reports whether an address that was set before may be the one that cannot be
// derived now, and stays for that reason.
func (x *Underived) Keeps(p netip.Prefix) bool {
	return x.template != nil && x.template.Fits(p) || x.lost
}

// Derives reports whether the unit has addresses that are not the same on each host.
func (u *Unit) Derives() bool {
	return u.Network.AddressTable.Set || slices.ContainsFunc(u.Addresses, func(a Address) bool { return a.Template.Set })
}

// FollowsLinks reports whether an address of the unit depends on those of other links.
func (u *Unit) FollowsLinks() bool {
	return slices.ContainsFunc(u.Addresses, func(a Address) bool { return a.Template.V.FollowsLinks() })
}

// AddressesOn are the addresses of the unit on one link of a host, each with Address
// set: those of the text, then those of the table. An address that comes twice is there
// once.
func (u *Unit) AddressesOn(o *Origins) (out []Address, not []Underived) {
	add := func(a Address) {
		if !slices.ContainsFunc(out, func(x Address) bool { return x.Address.V.Addr() == a.Address.V.Addr() && x.Peer.V == a.Peer.V }) {
			out = append(out, a)
		}
	}
	for _, a := range u.Addresses {
		if !a.Template.Set {
			out = append(out, a)
			continue
		}
		t := &a.Template
		p, missing, next := t.V.Derive(o)
		if missing != "" {
			not = append(not, Underived{Text: t.V.text, Why: missing, Next: next, template: &t.V})
			continue
		}
		a.Address, a.Template = Value[netip.Prefix]{V: p, Set: true, Pos: t.Pos}, Value[AddressTemplate]{}
		add(a)
	}
	if path, ok := u.Network.AddressTable.Get(); ok {
		t := o.Tables[path]
		list, missing, next := t.Of(o)
		for _, p := range list {
			add(Address{Address: p})
		}
		if missing != "" {
			not = append(not, Underived{Text: "AddressTable=" + path,
				Why: path + " " + missing, Next: next, lost: !t.complete()})
		}
	}
	return out, not
}
