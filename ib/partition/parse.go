package partition

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"ibnetworkd/ib"
)

// MaxFileSize is the largest partition file in bytes that Parse reads. A line a
// port of the largest subnet fits several times.
const MaxFileSize = 8 << 20

// maxErrors bounds what Parse reports of one file.
const maxErrors = 100

// Parse parses a partitions.conf; errors carry file as its name. All problems of
// the file are reported at once, as ib.FileErrors. The partitions that parsed are returned
// with them for display, but a file with an error must not be applied.
//
// As in opensm, the rule "Default=0x7fff : ALL=limited, SELF=full ;" precedes those
// of the file: every port is in the default partition. Beyond opensm's format, mtu
// takes bytes (mtu=4096) and rate a speed (rate=100Gb/s), where opensm takes codes.
func Parse(file string, data []byte) (Config, error) {
	p := parser{file: file}
	if len(data) > MaxFileSize {
		return Config{}, ib.FileErrors{{File: file, Line: 1, Col: 1,
			Msg: fmt.Sprintf("the file has %d bytes; at most %d are read", len(data), MaxFileSize)}}
	}
	p.text = blankComments(data)
	p.cfg.Merge(Partition{Name: "Default", PKey: DefaultPKey,
		Members: []Member{{Select: All, Membership: Limited}, {Select: Self, Membership: Full}}})
	for pos := 0; pos < len(p.text); {
		end := strings.IndexByte(p.text[pos:], ';')
		if end < 0 {
			end = len(p.text)
		} else {
			end += pos
		}
		p.definition(span{pos, end})
		pos = end + 1
	}
	p.generateKeys()
	if len(p.errs) > 0 {
		slices.SortStableFunc(p.errs, func(a, b *ib.FileError) int {
			if a.Line != b.Line {
				return a.Line - b.Line
			}
			return a.Col - b.Col
		})
		return p.cfg, p.errs
	}
	return p.cfg, nil
}

// blankComments replaces comments by spaces, so that offsets stay those of the
// file.
func blankComments(data []byte) string {
	b := slices.Clone(data)
	in := false
	for i, c := range b {
		switch {
		case c == '\n':
			in = false
		case c == '#':
			in = true
			fallthrough
		case in, c == '\r':
			b[i] = ' '
		}
	}
	return string(b)
}

type parser struct {
	file string
	text string
	cfg  Config
	errs ib.FileErrors
	auto []autoKey // definitions that wait for a generated P_Key
	line []int     // offsets of line starts, made at the first error
}

type autoKey struct {
	part Partition
	at   int
}

// span is a part of the text, [a, b).
type span struct{ a, b int }

func (p *parser) str(s span) string { return p.text[s.a:s.b] }

// trim takes white space off both ends.
func (p *parser) trim(s span) span {
	for s.a < s.b && isSpace(p.text[s.a]) {
		s.a++
	}
	for s.b > s.a && isSpace(p.text[s.b-1]) {
		s.b--
	}
	return s
}

func isSpace(c byte) bool {
	return c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == '\v' || c == '\f'
}

// cut splits at the first sep; ok is false without one.
func (p *parser) cut(s span, sep byte) (l, r span, ok bool) {
	if i := strings.IndexByte(p.str(s), sep); i >= 0 {
		return span{s.a, s.a + i}, span{s.a + i + 1, s.b}, true
	}
	return s, span{s.b, s.b}, false
}

// split gives the parts between separators.
func (p *parser) split(s span, seps string) (out []span) {
	a := s.a
	for i := s.a; i < s.b; i++ {
		if strings.IndexByte(seps, p.text[i]) >= 0 {
			out = append(out, span{a, i})
			a = i + 1
		}
	}
	return append(out, span{a, s.b})
}

func (p *parser) errorf(at int, format string, args ...any) {
	if len(p.errs) == maxErrors {
		return
	}
	if p.line == nil {
		p.line = []int{0}
		for i := range len(p.text) {
			if p.text[i] == '\n' {
				p.line = append(p.line, i+1)
			}
		}
	}
	n, found := slices.BinarySearch(p.line, at)
	if found {
		n++
	}
	msg := fmt.Sprintf(format, args...)
	if len(p.errs) == maxErrors-1 {
		msg += " (no more problems are listed)"
	}
	p.errs = append(p.errs, &ib.FileError{File: p.file, Line: n, Col: at - p.line[n-1] + 1, Msg: msg})
}

// item is "name" or "name = value" with the positions of both.
type item struct {
	name, val span
	hasVal    bool
}

func (p *parser) item(s span) item {
	n, v, ok := p.cut(s, '=')
	return item{p.trim(n), p.trim(v), ok}
}

// definition reads one "Name=PKey, flags : members" without the ';'.
func (p *parser) definition(s span) {
	s = p.trim(s)
	if s.a == s.b {
		return
	}
	head, body, ok := p.cut(s, ':')
	if !ok {
		p.errorf(s.a, "partition definition %s has no ':' before its members; write \"Name=0x8001 : ALL=full ;\"", quote(p.str(s)))
		return
	}
	part := Partition{}
	def := Limited
	var sl *ib.SL
	for i, f := range p.split(head, ",") {
		it := p.item(f)
		if i == 0 {
			p.nameAndKey(&part, it)
			continue
		}
		name := p.str(it.name)
		switch {
		case name == "":
			p.errorf(it.name.a, "empty flag: there is a ',' too many")
		case strings.EqualFold(name, "ipoib"):
			part.IPoIB = true
			p.noValue(it)
		case strings.EqualFold(name, "indx0"):
			part.Index0 = true
			p.noValue(it)
		case strings.EqualFold(name, "defmember"):
			if m, ok := membership(p.str(it.val)); ok {
				def = m
			} else {
				p.errorf(it.val.a, "defmember=%s is none of full, limited, both", quote(p.str(it.val)))
			}
		default:
			p.param(&part.Params, it, "partition flag", &sl)
		}
	}
	for body.a < body.b {
		// A multicast group takes the rest of its line; ports are
		// separated by commas or line ends.
		first := p.split(body, ",\n")[:1][0]
		it := p.item(first)
		if strings.EqualFold(p.str(it.name), "mgid") {
			line, rest, _ := p.cut(body, '\n')
			p.group(&part, line)
			body = rest
			continue
		}
		p.member(&part, first, def)
		body.a = min(first.b+1, body.b)
	}
	if part.PKey == 0 {
		p.auto = append(p.auto, autoKey{part, s.a})
		return
	}
	p.checkIPGroups(&part, s.a)
	p.cfg.Merge(part)
}

func (p *parser) noValue(it item) {
	if it.hasVal {
		p.errorf(it.name.a, "flag %s takes no value", p.str(it.name))
	}
}

func (p *parser) nameAndKey(part *Partition, it item) {
	part.Name = p.str(it.name)
	key := it.val
	if !it.hasVal {
		if part.Name == "" || part.Name[0] < '0' || part.Name[0] > '9' {
			return
		}
		part.Name, key = "", it.name
	}
	n, err := strconv.ParseUint(p.str(key), 0, 16)
	if err != nil {
		p.errorf(key.a, "P_Key %s is not a number from 0x0001 to 0xffff", quote(p.str(key)))
		part.PKey = invalidKey
		return
	}
	part.PKey = ib.PKey(n).Base()
	if !part.PKey.IsValid() {
		if n != 0 {
			p.errorf(key.a, "P_Key %s is not valid: its low 15 bits are zero", p.str(key))
			part.PKey = invalidKey
		}
	}
}

// invalidKey marks a definition whose P_Key could not be read; it stays out of
// the result.
const invalidKey ib.PKey = 0x8000

func (p *parser) group(part *Partition, line span) {
	g := Group{}
	var sl *ib.SL
	for i, f := range p.split(line, ",") {
		it := p.item(f)
		if i == 0 {
			gid, err := ib.ParseGID(p.str(it.val))
			switch {
			case err != nil:
				p.errorf(it.val.a, "mgid=%s is not of the form of an IPv6 address", quote(p.str(it.val)))
				return
			case !gid.IsMulticast():
				p.errorf(it.val.a, "mgid=%s is not a multicast GID: it does not start with ff", p.str(it.val))
				return
			}
			g.MGID = gid
			continue
		}
		if p.str(it.name) == "" {
			if i == 0 || f.b < line.b {
				p.errorf(it.name.a, "empty flag: there is a ',' too many")
			}
			continue
		}
		p.param(&g.Params, it, "group flag", &sl)
	}
	if part.PKey.IsValid() && g.MGID.IsIP() {
		if k := g.MGID.GroupPKey(); k != 0 && k != part.PKey.AsFull() {
			at := p.item(p.split(line, ",")[0]).val.a
			p.errorf(at, "group %v carries P_Key %v, but the partition has %v; write 0000 there to have it filled in", g.MGID, k, part.PKey.AsFull())
			return
		}
	}
	own := sl != nil
	keep := g.SL
	g.Params = inherit(g.Params, part.Params)
	if own {
		g.SL = keep
	}
	part.Groups = append(part.Groups, g)
}

// checkIPGroups refuses IP groups that differ from the broadcast group in MTU
// or rate: IPoIB uses one of each per interface (RFC 4391 section 6).
func (p *parser) checkIPGroups(part *Partition, at int) {
	if !part.IPoIB {
		return
	}
	for _, g := range part.Groups {
		if g.MGID.IsIP() && (g.MTU != part.Params.MTU || g.Rate != part.Params.Rate) {
			p.errorf(at, "group %v has an MTU or rate of its own, but IP groups of partition %v must have those of its broadcast group",
				g.MGID, part.PKey.AsFull())
		}
	}
}

func (p *parser) member(part *Partition, s span, def Membership) {
	it := p.item(s)
	name := p.str(it.name)
	m := Member{Membership: def}
	if name == "" {
		if it.hasVal {
			p.errorf(it.name.a, "a port GUID or ALL, ALL_CAS, ALL_SWITCHES, ALL_ROUTERS, SELF is missing before '='")
		}
		return
	}
	if it.hasVal {
		var ok bool
		if m.Membership, ok = membership(p.str(it.val)); !ok {
			p.errorf(it.val.a, "membership %s of %s is none of full, limited, both", quote(p.str(it.val)), quote(name))
			return
		}
	}
	if name == "NONE" {
		return
	}
	if sel, ok := selectNames[strings.ToUpper(name)]; ok {
		m.Select = sel
		part.Members = append(part.Members, m)
		return
	}
	g, err := parsePortGUID(name)
	if err != nil {
		p.errorf(it.name.a, "%s: write a port GUID such as 0x0002c903000abcde, or ALL, ALL_CAS, ALL_SWITCHES, ALL_ROUTERS, SELF", err)
		return
	}
	m.GUID = g
	part.Members = append(part.Members, m)
}

// parsePortGUID reads a GUID in hexadecimal with 0x, in decimal, or as colons.
func parsePortGUID(s string) (ib.GUID, error) {
	if n, err := strconv.ParseUint(s, 0, 64); err == nil {
		if n == 0 {
			return 0, errors.New("port GUID 0 means no port")
		}
		return ib.GUID(n), nil
	} else if errors.Is(err, strconv.ErrRange) {
		return 0, fmt.Errorf("port GUID %s has more than 64 bits", quote(s))
	}
	if strings.Contains(s, ":") {
		if g, err := ib.ParseGUID(s); err == nil && g != 0 {
			return g, nil
		}
	}
	return 0, fmt.Errorf("%s is not a port", quote(s))
}

// membership reads full, limited or both; opensm takes any prefix of them, and
// its manual uses that, so this does too.
func membership(s string) (Membership, bool) {
	if s == "" {
		return 0, false
	}
	for m := Limited; m <= Both; m++ {
		if strings.HasPrefix(m.String(), strings.ToLower(s)) {
			return m, true
		}
	}
	return 0, false
}

// param reads one group parameter. sl is set when the text names an SL, since
// SL 0 is a value like others.
func (p *parser) param(out *Params, it item, what string, sl **ib.SL) {
	name, val := p.str(it.name), p.str(it.val)
	bad := func(err error) { p.errorf(it.val.a, "%s=%s: %v", name, ib.Clip(val), err) }
	if !it.hasVal && knownParam(name) {
		p.errorf(it.name.a, "%s %s needs a value", what, name)
		return
	}
	switch strings.ToLower(name) {
	case "mtu":
		m, err := ParseMTU(val)
		if err != nil {
			bad(err)
		}
		out.MTU = m
	case "rate":
		r, err := ParseRate(val)
		if err != nil {
			bad(err)
		}
		out.Rate = r
	case "sl":
		n, err := number(val, 15)
		if err != nil {
			bad(err)
		}
		out.SL = ib.SL(n)
		*sl = &out.SL
	case "scope":
		n, err := number(val, 15)
		if err == nil && n == 0 {
			err = errors.New("scope 0 is reserved; 2 is the subnet")
		}
		if err != nil {
			bad(err)
			return
		}
		out.Scopes |= 1 << n
	case "q_key", "qkey":
		n, err := number(val, math.MaxUint32)
		if err != nil {
			bad(err)
		}
		out.QKey = ib.QKey(n)
	case "tclass":
		n, err := number(val, 255)
		if err != nil {
			bad(err)
		}
		out.TClass = uint8(n)
	case "flowlabel":
		n, err := number(val, 1<<20-1)
		if err != nil {
			bad(err)
		}
		out.FlowLabel = uint32(n)
	default:
		p.errorf(it.name.a, "unknown %s %s; known are ipoib, indx0, defmember, mtu, rate, sl, scope, Q_Key, TClass, FlowLabel", what, quote(name))
	}
}

func knownParam(s string) bool {
	return slices.Contains([]string{"mtu", "rate", "sl", "scope", "q_key", "qkey", "tclass", "flowlabel"}, strings.ToLower(s))
}

func number(s string, limit uint64) (uint64, error) {
	n, err := strconv.ParseUint(s, 0, 64)
	if err != nil || n > limit {
		return 0, fmt.Errorf("not a number from 0 to %d", limit)
	}
	return n, nil
}

// ParseMTU reads an InfiniBand MTU: 256, 512, 1024, 2048 or 4096 bytes, or
// opensm's code from 1 to 5.
func ParseMTU(s string) (ib.MTU, error) {
	n, err := strconv.ParseUint(s, 0, 16)
	if err == nil && ib.MTU(n).IsValid() && n <= 5 {
		return ib.MTU(n), nil
	}
	if m := ib.MTUFromBytes(int(n)); err == nil && m != 0 {
		return m, nil
	}
	return 0, errors.New("an InfiniBand MTU is 256, 512, 1024, 2048 or 4096 bytes (or code 1 to 5)")
}

// ParseRate parses a speed with its unit (100Gb/s, 2.5G, 40Gbps), or opensm's
// code from 2 to 23. A number without a unit is a code: 10 is 120 Gb/s.
func ParseRate(s string) (ib.Rate, error) {
	low := strings.ToLower(s)
	for _, unit := range []string{"gb/s", "gbit/s", "gbps", "gbit", "g"} {
		num, ok := strings.CutSuffix(low, unit)
		if !ok {
			continue
		}
		f, err := strconv.ParseFloat(strings.TrimSpace(num), 64)
		if err == nil && f > 0 && f <= 10000 {
			if r := ib.RateFromTenths(int(math.Round(f * 10))); r != 0 {
				return r, nil
			}
		}
		return 0, errors.New("no InfiniBand link runs at this rate; 2.5, 10, 20, 40, 56, 100, 200, 400, 800 Gb/s are some that do")
	}
	n, err := strconv.ParseUint(s, 0, 8)
	if err == nil && ib.Rate(n).IsValid() {
		return ib.Rate(n), nil
	}
	return 0, errors.New("not a rate; write it with its unit, such as 100Gb/s, or as a code from 2 to 23")
}

// generateKeys gives definitions without a P_Key the lowest free ones, in the
// order of the text; one with the name of an earlier partition belongs to it.
func (p *parser) generateKeys() {
	next := ib.PKey(1)
	for _, a := range p.auto {
		if a.part.Name != "" {
			if i := slices.IndexFunc(p.cfg.Partitions, func(q Partition) bool { return q.Name == a.part.Name }); i >= 0 {
				a.part.PKey = p.cfg.Partitions[i].PKey
			}
		}
		for a.part.PKey == 0 && next < DefaultPKey {
			if p.cfg.find(next) < 0 {
				a.part.PKey = next
			}
			next++
		}
		if a.part.PKey == 0 {
			p.errorf(a.at, "partition %s needs a P_Key, but all are taken", quote(a.part.Name))
			continue
		}
		for i := range a.part.Groups {
			if g := &a.part.Groups[i]; g.MGID.IsIP() && g.MGID.GroupPKey() != 0 && g.MGID.GroupPKey() != a.part.PKey.AsFull() {
				p.errorf(a.at, "group %v carries a P_Key, but that of partition %s is generated (%v); write 0000 there or give the partition "+
					"a P_Key", g.MGID, quote(a.part.Name), a.part.PKey.AsFull())
			}
		}
		p.checkIPGroups(&a.part, a.at)
		p.cfg.Merge(a.part)
	}
	p.cfg.Partitions = slices.DeleteFunc(p.cfg.Partitions, func(q Partition) bool { return q.PKey == invalidKey || !q.PKey.IsValid() })
}

func quote(s string) string { return strconv.Quote(ib.Clip(s)) }
