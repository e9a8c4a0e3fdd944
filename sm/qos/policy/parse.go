package policy

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"ibnetworkd/ib"
)

// Bounds of a file.
const (
	MaxFileSize = 1 << 20
	maxItems    = 4096 // groups, levels, rules
	maxErrors   = 20
)

// Service IDs of the protocols that qos-ulps names: the RDMA connection manager's space
// of each, with the port as the last 16 bits.
const (
	sdpService  = 0x10000
	rdmaService = 0x1060000
	rdsPort     = 0x48ca
	iserPort    = 3260
	ipoibKey    = 0x7fff
)

type parser struct {
	file string
	p    Policy
	errs ib.FileErrors
	line int
	raw  string // the line, for columns

	section string // open list, as port-groups
	item    string // open item of it, as port-group
	started int    // line of the item
	group   Group
	level   Level
	rule    Rule
	simple  []Rule // of qos-ulps, after the others
	named   []reference
}

// reference is a name that a rule uses before it must be known.
type reference struct {
	rule      int // index into p.Rules
	kind      string
	name      string
	line, col int
}

var lists = map[string]string{"port-groups": "port-group", "qos-levels": "qos-level", "qos-match-rules": "qos-match-rule", "qos-ulps": "",
	"qos-setup": ""}

// Parse reads a policy file. All mistakes are reported at once, as ib.FileErrors; a file with
// one must not be applied.
func Parse(file string, data []byte) (*Policy, error) {
	x := &parser{file: file, p: Policy{Default: -1}}
	if len(data) > MaxFileSize {
		return nil, ib.FileErrors{{File: file, Line: 1, Col: 1,
			Msg: fmt.Sprintf("the file has %d bytes; at most %d are read", len(data), MaxFileSize)}}
	}
	for line := range strings.Lines(string(data)) {
		x.line++
		x.raw = strings.TrimRight(line, "\r\n")
		text, _, _ := strings.Cut(x.raw, "#")
		if text = strings.TrimSpace(text); text != "" {
			x.statement(text)
		}
		if len(x.errs) >= maxErrors {
			return nil, x.errs
		}
	}
	x.raw = ""
	if open := x.item + x.section; open != "" {
		if x.item != "" {
			open = x.item
		}
		x.fail("", "the file ends without end-%s", open)
	}
	x.resolve()
	if len(x.errs) > 0 {
		return nil, x.errs
	}
	x.p.Rules = append(x.p.Rules, x.simple...)
	if x.p.Default < 0 {
		x.p.Notes = append(x.p.Notes, file+": no level DEFAULT: paths that no rule matches are as without a policy")
	}
	return &x.p, nil
}

// fail reports a mistake at a word of the line.
func (x *parser) fail(at, format string, args ...any) {
	col := x.column(at)
	if at == "" {
		col = 1 + len(x.raw) - len(strings.TrimLeft(x.raw, " \t"))
	}
	x.errs = append(x.errs, &ib.FileError{File: x.file, Line: max(x.line, 1), Col: col, Msg: fmt.Sprintf(format, args...)})
}

// column is where a word of the line is, rather behind the colon.
func (x *parser) column(word string) int {
	from := strings.IndexByte(x.raw, ':') + 1
	if i := strings.Index(x.raw[from:], word); i >= 0 {
		return from + i + 1
	}
	return max(strings.Index(x.raw, word), 0) + 1
}

func (x *parser) note(text string) {
	x.p.Notes = append(x.p.Notes, fmt.Sprintf("%s:%d: %s", x.file, x.line, text))
}

func (x *parser) statement(text string) {
	switch {
	case x.section == "qos-setup":
		if text == "end-qos-setup" {
			x.section = ""
		}
	case x.section == "":
		if _, ok := lists[text]; !ok {
			x.fail("", "%q: want port-groups, qos-levels, qos-match-rules, qos-ulps or qos-setup", ib.Clip(text))
			return
		}
		if x.section = text; text == "qos-setup" {
			x.note("qos-setup has no effect, as in opensm: SL-to-VL mapping and VL arbitration are those of --qos")
		}
	case x.item != "" && text == "end-"+x.item:
		x.end()
	case x.item == "" && text == "end-"+x.section:
		x.section = ""
	case x.item != "":
		x.key(text)
	case x.section == "qos-ulps":
		x.ulp(text)
	case text == lists[x.section]:
		x.item, x.started, x.group, x.level, x.rule = text, x.line, Group{}, Level{}, Rule{Level: -1}
	default:
		x.fail("", "%q: want %s or end-%s", ib.Clip(text), lists[x.section], x.section)
	}
}

// end ends an item.
func (x *parser) end() {
	switch x.item {
	case "port-group":
		x.add(x.group.Name, len(x.p.Groups), func() bool {
			return slices.ContainsFunc(x.p.Groups, func(g Group) bool { return g.Name == x.group.Name })
		}, func() { x.p.Groups = append(x.p.Groups, x.group) })
	case "qos-level":
		x.add(x.level.Name, len(x.p.Levels), func() bool { return x.levelOf(x.level.Name) >= 0 }, func() {
			if strings.EqualFold(x.level.Name, "DEFAULT") {
				x.p.Default = len(x.p.Levels)
			}
			x.p.Levels = append(x.p.Levels, x.level)
		})
	case "qos-match-rule":
		named := slices.ContainsFunc(x.named, func(r reference) bool { return r.kind == "level" && r.rule == len(x.p.Rules) })
		switch {
		case !named:
			x.fail("", "the rule of line %d has no qos-level-name", x.started)
		case len(x.p.Rules) >= maxItems:
			x.fail("", "more than %d rules", maxItems)
		}
		x.p.Rules = append(x.p.Rules, x.rule)
	}
	x.item = ""
}

func (x *parser) add(name string, have int, twice func() bool, add func()) {
	switch {
	case name == "":
		x.fail("", "the %s of line %d has no name", x.item, x.started)
	case twice():
		x.fail("", "the %s %q of line %d is the second of that name", x.item, name, x.started)
	case have >= maxItems:
		x.fail("", "more than %d", maxItems)
	default:
		add()
	}
}

func (x *parser) levelOf(name string) int {
	return slices.IndexFunc(x.p.Levels, func(l Level) bool { return l.Name == name })
}

// key reads a line of an item.
func (x *parser) key(text string) {
	key, value, ok := strings.Cut(text, ":")
	key, value = strings.TrimSpace(key), strings.TrimSpace(value)
	if !ok || value == "" {
		x.fail("", "%q: want a key, a colon and a value", ib.Clip(text))
		return
	}
	ok = key == "use" // a description
	switch x.item {
	case "port-group":
		ok = ok || x.groupKey(key, value)
	case "qos-level":
		ok = ok || x.levelKey(key, value)
	case "qos-match-rule":
		ok = ok || x.ruleKey(key, value)
	}
	if !ok {
		x.fail("", "%q is not a key of a %s", ib.Clip(key), x.item)
	}
}

func (x *parser) groupKey(key, value string) bool {
	g := &x.group
	switch key {
	case "name":
		g.Name = value
	case "port-guid":
		g.GUIDs = append(g.GUIDs, x.ranges(value, math.MaxUint64)...)
	case "port-name":
		for _, w := range split(value) {
			node, num, ok := cutLast(w, "/P")
			n, err := strconv.ParseUint(num, 10, 8)
			if !ok || err != nil || node == "" {
				x.fail(w, "%q: want a node description and /P with the port number", ib.Clip(w))
				continue
			}
			g.Ports = append(g.Ports, PortName{node, uint8(n)})
		}
	case "pkey":
		g.PKeys = append(g.PKeys, x.keys(value)...)
	case "partition":
		g.Partitions = append(g.Partitions, split(value)...)
	case "node-type":
		for _, w := range split(value) {
			to := map[string]*bool{"CA": &g.CA, "SWITCH": &g.Switch, "ROUTER": &g.Router, "SELF": &g.Self, "ALL": &g.All}[strings.ToUpper(w)]
			if to == nil {
				x.fail(w, "%q: want CA, SWITCH, ROUTER, SELF or ALL", ib.Clip(w))
				continue
			}
			*to = true
		}
	default:
		return false
	}
	return true
}

func (x *parser) levelKey(key, value string) bool {
	l := &x.level
	switch key {
	case "name":
		l.Name = value
	case "sl":
		l.SL, l.Has.SL = ib.SL(x.number(value, 15)), true
	case "mtu-limit":
		if l.MTU, l.Has.MTU = ib.MTU(x.number(value, 63)), true; !l.MTU.IsValid() {
			x.fail(value, "%q: want the code of an MTU, 1 (256) to 5 (4096)", ib.Clip(value))
		}
	case "rate-limit":
		if l.Rate, l.Has.Rate = ib.Rate(x.number(value, 63)), true; !l.Rate.IsValid() {
			x.fail(value, "%q: not the code of a rate", ib.Clip(value))
		}
	case "packet-life":
		l.Life, l.Has.Life = uint8(x.number(value, 63)), true
	case "pkey":
		l.PKeys = append(l.PKeys, x.keys(value)...)
	case "path-bits":
		x.note("path-bits has no effect: paths to all LIDs of a port are given")
	default:
		return false
	}
	return true
}

func (x *parser) ruleKey(key, value string) bool {
	r := &x.rule
	refer := func(kind string, names ...string) {
		for _, n := range names {
			x.named = append(x.named, reference{len(x.p.Rules), kind, n, x.line, x.column(n)})
		}
	}
	switch key {
	case "qos-level-name":
		refer("level", value)
	case "source":
		refer(key, split(value)...)
	case "destination":
		refer(key, split(value)...)
	case "service-id":
		r.ServiceIDs = append(r.ServiceIDs, x.ranges(value, math.MaxUint64)...)
	case "pkey":
		r.PKeys = append(r.PKeys, x.keys(value)...)
	case "qos-class":
		r.Classes = append(r.Classes, x.ranges(value, 0xfff)...)
	default:
		return false
	}
	return true
}

// resolve finds what rules name.
func (x *parser) resolve() {
	for _, n := range x.named {
		if n.rule >= len(x.p.Rules) || len(x.errs) >= maxErrors {
			break // a rule without an end, which is a mistake already
		}
		r := &x.p.Rules[n.rule]
		at := -1
		if n.kind == "level" {
			at = x.levelOf(n.name)
			r.Level = at
		} else if at = slices.IndexFunc(x.p.Groups, func(g Group) bool { return g.Name == n.name }); n.kind == "source" {
			r.Source = append(r.Source, at)
		} else {
			r.Target = append(r.Target, at)
		}
		if at < 0 {
			what := "port-group"
			if n.kind == "level" {
				what = "qos-level"
			}
			x.errs = append(x.errs, &ib.FileError{File: x.file, Line: n.line, Col: n.col,
				Msg: fmt.Sprintf("no %s has the name %q", what, ib.Clip(n.name))})
		}
	}
}

// ulp reads a line of qos-ulps: a protocol, what narrows it, and the service level.
func (x *parser) ulp(text string) {
	what, value, ok := cutLast(text, ":")
	if !ok {
		x.fail("", "%q: want a protocol, a colon and a service level", ib.Clip(text))
		return
	}
	level := Level{SL: ib.SL(x.number(strings.TrimSpace(value), 15))}
	level.Has.SL = true
	name, more, narrowed := strings.Cut(strings.TrimSpace(what), ",")
	name = strings.ToLower(strings.TrimSpace(name))
	kind, list, _ := strings.Cut(strings.TrimSpace(more), " ")
	level.Name = "qos-ulps " + name
	if name == "default" && !narrowed {
		if x.p.Default < 0 { // a level DEFAULT goes first
			x.p.Default = len(x.p.Levels)
			x.p.Levels = append(x.p.Levels, level)
		}
		return
	}
	r := Rule{}
	service := func(base uint64, ports Ranges) {
		for _, p := range ports {
			r.ServiceIDs = append(r.ServiceIDs, Range{base + p.First, base + p.Last})
		}
	}
	switch {
	case name == "sdp" && !narrowed:
		service(sdpService, Ranges{{0, 0xffff}})
	case name == "sdp" && kind == "port-num":
		service(sdpService, x.ranges(list, 0xffff))
	case name == "rds" && !narrowed:
		service(rdmaService, Ranges{{rdsPort, rdsPort}})
	case name == "iser" && !narrowed:
		service(rdmaService, Ranges{{iserPort, iserPort}})
	case (name == "rds" || name == "iser") && kind == "port-num":
		service(rdmaService, x.ranges(list, 0xffff))
	case name == "ipoib" && !narrowed:
		r.PKeys = Ranges{{ipoibKey, ipoibKey}}
	case (name == "ipoib" || name == "any") && kind == "pkey":
		r.PKeys = x.keys(list)
	case name == "any" && kind == "service-id":
		r.ServiceIDs = x.ranges(list, math.MaxUint64)
	case (name == "any" || name == "srp") && kind == "target-port-guid":
		r.Target = []int{len(x.p.Groups)}
		x.p.Groups = append(x.p.Groups, Group{GUIDs: x.ranges(list, math.MaxUint64)})
	default:
		x.fail("", "%q: want default, or sdp, rds, iser, ipoib, srp or any with port-num, pkey, service-id or target-port-guid",
			ib.Clip(strings.TrimSpace(what)))
		return
	}
	if len(x.simple) >= maxItems || len(x.p.Groups) > maxItems {
		x.fail("", "more than %d", maxItems)
		return
	}
	r.Level = len(x.p.Levels)
	x.p.Levels = append(x.p.Levels, level)
	x.simple = append(x.simple, r)
}

func split(value string) (out []string) {
	for w := range strings.SplitSeq(value, ",") {
		if w = strings.TrimSpace(w); w != "" {
			out = append(out, w)
		}
	}
	return out
}

func cutLast(s, sep string) (before, after string, ok bool) {
	i := strings.LastIndex(s, sep)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+len(sep):], true
}

// number reads one number.
func (x *parser) number(s string, most uint64) uint64 {
	n, err := strconv.ParseUint(s, 0, 64)
	if err != nil || n > most {
		x.fail(s, "%q: want a number from 0 to %d", ib.Clip(s), most)
		return 0
	}
	return n
}

// ranges reads numbers and ranges of them with commas between.
func (x *parser) ranges(value string, most uint64) (out Ranges) {
	for _, w := range split(value) {
		a, b, ok := strings.Cut(w, "-")
		r := Range{First: x.number(strings.TrimSpace(a), most)}
		if r.Last = r.First; ok {
			r.Last = x.number(strings.TrimSpace(b), most)
		}
		if r.Last < r.First {
			x.fail(w, "%q: the range ends before it begins", ib.Clip(w))
			continue
		}
		out = append(out, r)
	}
	if len(out) == 0 {
		x.fail(value, "%q: want numbers or ranges of them", ib.Clip(value))
	}
	return out
}

// keys reads P_Keys as their bases: the membership bit does not count.
func (x *parser) keys(value string) (out Ranges) {
	for _, r := range x.ranges(value, 0xffff) {
		if r.Last-r.First >= 0x7fff {
			out = append(out, Range{0, 0x7fff})
			continue
		}
		a, b := r.First&0x7fff, r.Last&0x7fff
		if a > b { // over the end of the bases
			out = append(out, Range{a, 0x7fff}, Range{0, b})
			continue
		}
		out = append(out, Range{a, b})
	}
	return out
}
