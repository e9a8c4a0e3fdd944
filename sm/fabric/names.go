package fabric

import (
	"errors"
	"fmt"
	"strings"

	"ibnetworkd/ib"
)

// Names are names for nodes, by node GUID, that replace the nodes' own
// descriptions.
type Names map[ib.GUID]string

// maxNames bounds a node name map.
const maxNames = 1 << 20

// ParseNames reads a node name map in the form of the diagnostic tools: on each
// line a GUID and a name in double quotes, # begins a comment. All problems are
// returned together, as *ib.FileError.
func ParseNames(file string, b []byte) (Names, error) {
	m, errs := Names{}, []error(nil)
	n := 0
	for l := range strings.Lines(string(b)) {
		n++
		c := cursor{s: strings.TrimRight(l, "\r\n")}
		fail := func(f string, a ...any) {
			if len(errs) < maxTextErrs {
				errs = append(errs, &ib.FileError{File: file, Line: n, Col: c.col(), Msg: fmt.Sprintf(f, a...)})
			}
		}
		c.space()
		if c.end() || c.peek() == '#' {
			continue
		}
		at := c
		g, err := ib.ParseGUID(c.word())
		if err != nil {
			c = at
			fail("%v", err)
			continue
		}
		c.space()
		name, ok := c.quoted()
		switch {
		case !ok || name == "":
			fail("want a name in double quotes after the GUID")
		case len(name) > 64:
			fail("the name is longer than 64 bytes")
		case len(m) >= maxNames:
			return nil, errors.Join(append(errs, &ib.FileError{File: file, Line: n, Col: 1, Msg: "too many names"})...)
		default:
			m[g] = name
		}
	}
	return m, errors.Join(errs...)
}

// Apply gives the fabric with the names in place of descriptions; the fabric
// itself when none applies.
func (m Names) Apply(f *Fabric) *Fabric {
	if len(m) == 0 || f == nil {
		return f
	}
	g := *f
	g.Nodes = append([]Node(nil), f.Nodes...)
	for i := range g.Nodes {
		if n, ok := m[g.Nodes[i].GUID]; ok {
			g.Nodes[i].Desc = n
		}
	}
	return &g
}
