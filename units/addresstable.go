package units

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"slices"
	"strings"

	"ibnetworkd/ib"
)

// AddressTable is a file that gives each node its addresses (AddressTable=): a text
// with a line for each, "HOST ADDRESS/LENGTH...", where HOST is the name of the host,
// the same with a link as HOST/LINK, or the GUID of the port. It is immutable.
type AddressTable struct {
	Path, Text string
	// Problems are those of the file, with their places.
	Problems []Problem

	unread  bool                   // the file could not be read; its former contents apply
	lines   []tableLine            // that are used
	by      map[string]int         // lines by their lower-case first word
	short   map[string]int         // the first of those with a domain by the name before it
	holders map[netip.Addr]holding // who has an address
}

type tableLine struct {
	key   string
	pos   Place
	addrs []Value[netip.Prefix]
}

type holding struct {
	key  string
	line int
}

// Bounds of an address table.
const (
	MaxTable         = 4 << 20 // bytes
	maxTableAddrs    = 16      // of one line
	maxTableProblems = 100
)

// ParseAddressTable reads the text of a table. What is wrong with a line takes no other
// line out of use.
func ParseAddressTable(path, text string) *AddressTable {
	t := &AddressTable{Path: path, Text: text, by: map[string]int{}, short: map[string]int{}, holders: map[netip.Addr]holding{}}
	if len(text) > MaxTable {
		t.problem(PlaceOf(Position{File: path}), "the file is not used", "the file has more than %d MiB", MaxTable>>20)
		return t
	}
	n := 0
	for line := range strings.Lines(text) {
		n++
		t.line(n, line)
	}
	return t
}

func (t *AddressTable) problem(pos Place, kept, format string, args ...any) {
	switch n := len(t.Problems); {
	case n < maxTableProblems:
		t.Problems = append(t.Problems, Problem{Pos: pos.Position(), Severity: Warning, Message: fmt.Sprintf(format, args...), Kept: kept})
	case n == maxTableProblems:
		t.Problems = append(t.Problems, Problem{Pos: Position{File: t.Path}, Severity: Warning,
			Message: fmt.Sprintf("more than %d problems, the rest is not shown", maxTableProblems)})
	}
}

// line reads one line.
func (t *AddressTable) line(n int, text string) {
	if i := strings.IndexAny(text, "#;"); i >= 0 {
		text = text[:i]
	}
	const notUsedLine = "the line is not used"
	l := tableLine{}
	for off := 0; ; {
		start, end, w, _ := words(text[off:])
		if start == end {
			break
		}
		pos := PlaceOf(Position{t.Path, n, off + start + 1})
		off += end
		if l.key == "" {
			key, err := tableKey(w)
			if err != nil {
				t.problem(pos, notUsedLine, "%v", err)
				return
			}
			if i, ok := t.by[key]; ok {
				t.problem(pos, notUsedLine, "%s has a line already, line %d", ib.Clip(w), t.lines[i].pos.line)
				return
			}
			l.key, l.pos = key, pos
			continue
		}
		if len(l.addrs) == maxTableAddrs {
			t.problem(pos, "the rest of the line is not used", "more than %d addresses", maxTableAddrs)
			break
		}
		p, err := addressValue(w)
		var c *caution
		if errors.As(err, &c) {
			t.problem(pos, c.kept, "%s", c.msg)
		} else if err != nil {
			t.problem(pos, "the address is not used", "%v", err)
			continue
		}
		if h, ok := t.holders[p.Addr()]; ok {
			t.problem(pos, "the address is not used here", "%s is that of %s, line %d", p.Addr(), ib.Clip(h.key), h.line)
			continue
		}
		t.holders[p.Addr()] = holding{l.key, n}
		l.addrs = append(l.addrs, Value[netip.Prefix]{V: p, Set: true, Pos: pos})
	}
	if l.key == "" {
		return
	}
	if len(l.addrs) == 0 && (len(t.Problems) == 0 || t.Problems[len(t.Problems)-1].Pos.Line != n) {
		t.problem(l.pos, notUsedLine, "%s has no address: write ADDRESS/LENGTH behind it", ib.Clip(l.key))
	}
	t.by[l.key] = len(t.lines)
	host, link, _ := strings.Cut(l.key, "/")
	if name, _, ok := strings.Cut(host, "."); ok {
		if k := tableHost(name, link); !has(t.short, k) {
			t.short[k] = len(t.lines)
		}
	}
	t.lines = append(t.lines, l)
}

func has(m map[string]int, k string) bool {
	_, ok := m[k]
	return ok
}

// tableKey is the form in which the first word of a line is indexed.
func tableKey(w string) (string, error) {
	host, link, hasLink := strings.Cut(w, "/")
	if len(w) > 1 && w[0] == '0' && (w[1] == 'x' || w[1] == 'X') || strings.Contains(host, ":") {
		g, err := ib.ParseGUID(w)
		if err == nil && g.IsZero() {
			err = fmt.Errorf("GUID %q is not that of a port", ib.Clip(w))
		}
		return g.String(), err
	}
	if _, err := netip.ParseAddr(host); err == nil {
		return "", fmt.Errorf("%q is an address, but a line begins with a host name or a GUID", ib.Clip(w))
	}
	if len(host) == 0 || len(host) > 253 || strings.Trim(strings.ToLower(host), "abcdefghijklmnopqrstuvwxyz0123456789-_.") != "" {
		return "", fmt.Errorf("%q is not a host name, HOST/LINK or GUID", ib.Clip(w))
	}
	if hasLink {
		if err := validIfName(link, 15); err != nil {
			return "", err
		}
	}
	return tableHost(host, link), nil
}

// tableHost is the key of a host, and of a link of it.
func tableHost(host, link string) string {
	host = strings.ToLower(host)
	if link == "" {
		return host
	}
	return host + "/" + link
}

// Of are the addresses of a link. The line of HOST/LINK goes before that of the GUID,
// and this before that of the host. missing is the end of a sentence that begins with
// the file and says why there is none.
func (t *AddressTable) Of(o *Origins) (out []Value[netip.Prefix], missing, next string) {
	if t == nil {
		return nil, "has not been read", ""
	}
	if i, ok := t.find(o); ok {
		if len(t.lines[i].addrs) == 0 {
			return nil, fmt.Sprintf("line %d has no address that can be used", t.lines[i].pos.line), "ibnetctl verify"
		}
		return t.lines[i].addrs, "", ""
	}
	if t.unread && len(t.lines) == 0 {
		return nil, "cannot be read", "ibnetctl verify"
	}
	missing = fmt.Sprintf("has no line for the host %q", ib.Clip(o.Hostname))
	if !o.GUID.IsZero() {
		missing += " or the GUID " + o.GUID.String()
	}
	return nil, missing, "add a line such as " + tableWord(o) + " 192.0.2.1/24"
}

func tableWord(o *Origins) string {
	if short, _, _ := strings.Cut(o.Hostname, "."); short != "" && short != "localhost" {
		return short
	}
	return "HOST"
}

// find is the line of a link.
func (t *AddressTable) find(o *Origins) (int, bool) {
	if o.Link != "" {
		if i, ok := t.ofHost(o.Hostname, o.Link); ok {
			return i, true
		}
	}
	if i, ok := t.by[o.GUID.String()]; ok && !o.GUID.IsZero() {
		return i, true
	}
	return t.ofHost(o.Hostname, "")
}

// ofHost is the line of a host or of a link of it. Names agree where one of them has no
// domain.
func (t *AddressTable) ofHost(host, link string) (i int, ok bool) {
	if i, ok = t.by[tableHost(host, link)]; ok {
		return i, ok
	}
	short, _, domain := strings.Cut(host, ".")
	if domain {
		i, ok = t.by[tableHost(short, link)]
	} else {
		i, ok = t.short[tableHost(short, link)]
	}
	return i, ok
}

// complete reports whether the table was read and has no mistake: a host without a line
// is then one that has no address.
func (t *AddressTable) complete() bool { return t != nil && !t.unread && len(t.Problems) == 0 }

// WithTables reads the tables that units name and adds their problems to the set. A
// table that is as it was in prev is the same again, one that cannot be read holds what
// it had there. read is given the path as the unit has it, and reads at most MaxTable
// bytes. To be called once, before the set is used; it gives the same set.
func (s *Set) WithTables(prev *Set, read func(path string) ([]byte, error)) *Set {
	for _, u := range s.Units {
		path, ok := u.Network.AddressTable.Get()
		if !ok || s.Tables[path] != nil {
			continue
		}
		var old *AddressTable
		if prev != nil {
			old = prev.Tables[path]
		}
		text, err := read(path)
		t := old
		switch {
		case err != nil:
			t = unreadTable(path, old, err, u.Network.AddressTable.Pos)
			s.Unread = s.Unread || !errors.Is(err, fs.ErrNotExist)
		case old == nil || old.unread || old.Text != string(text):
			t = ParseAddressTable(path, string(text))
		}
		if s.Tables == nil {
			s.Tables = map[string]*AddressTable{}
		}
		s.Tables[path] = t
		s.Problems = append(s.Problems, t.Problems...)
	}
	return s
}

// unreadTable is a table that cannot be read, with what it had.
func unreadTable(path string, old *AddressTable, err error, pos Place) *AddressTable {
	t := AddressTable{Path: path}
	kept := "the links get no address of it"
	if old != nil {
		t = *old
		if len(t.lines) > 0 {
			kept = "the last good version stays in force"
		}
	}
	t.unread = true
	t.Problems = []Problem{{Pos: pos.Position(), Severity: Warning,
		Message: fmt.Sprintf("AddressTable=%s cannot be read: %v", ib.Clip(path), cause(err)), Kept: kept,
		Section: "Network", Key: "AddressTable"}}
	if old != nil && slices.Equal(old.Problems, t.Problems) && old.unread {
		return old
	}
	return &t
}
