package importer

import (
	"bytes"
	"errors"
	"io"
	"strings"

	"gopkg.in/yaml.v3"
)

// ynode is a YAML node: a pair of a mapping, or an element of a sequence. Its
// item is that of its line; what it contains has items of its own.
type ynode struct {
	key   string // "" in a sequence
	value string
	leaf  bool
	kids  []*ynode
	it    *item
}

// maxDepth bounds the nesting of YAML.
const maxDepth = 32

// parseYAML reads a source as YAML: one node for each document, each with the
// lines that it is on.
func parseYAML(f *file) ([]*ynode, bool) {
	dec := yaml.NewDecoder(bytes.NewReader([]byte(f.text)))
	b := &ybuilder{lines: map[int]*item{}, text: map[int]bool{}}
	for _, it := range f.lines {
		b.lines[it.line] = it
	}
	var out []*ynode
	for {
		var root yaml.Node
		err := dec.Decode(&root)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			f.refuse("not YAML: " + strings.ReplaceAll(err.Error(), "\n", " "))
			return nil, false
		}
		if len(root.Content) > 0 {
			n := &ynode{}
			b.fill(n, root.Content[0], 0)
			out = append(out, n)
		}
	}
	if b.deep {
		f.refuse("the YAML is nested too deeply")
		return nil, false
	}
	var last *item
	literal := false
	for _, it := range f.lines {
		switch {
		case len(it.parts) > 0:
			last, literal = it, b.text[it.line]
		case literal:
			it.with = last
		case it.text[0] == '#':
			it.unneeded(whyComment)
		case strings.Trim(it.text, "-[]{},.: ") == "":
			it.unneeded("punctuation")
		case last != nil:
			it.with = last
		}
	}
	return out, true
}

type ybuilder struct {
	lines map[int]*item
	text  map[int]bool // a text of several lines begins there
	deep  bool
}

// item makes the item of a node, as a part of its line.
func (b *ybuilder) item(line int, text string) *item {
	l := b.lines[line]
	if l == nil {
		// A position that is on no line of the text.
		for n := line; n > 0 && l == nil; n-- {
			l = b.lines[n]
		}
		if l == nil {
			return &item{file: &file{}}
		}
	}
	return l.part(text)
}

const whyAlias = "YAML aliases are not followed; write the text itself"

func (b *ybuilder) fill(n *ynode, y *yaml.Node, depth int) {
	if depth > maxDepth {
		b.deep = true
		return
	}
	switch y.Kind {
	case yaml.MappingNode:
		for i := 0; i+1 < len(y.Content); i += 2 {
			k, v := y.Content[i], y.Content[i+1]
			kid := &ynode{key: k.Value}
			b.child(n, kid, k.Line, v, depth)
		}
	case yaml.SequenceNode:
		for _, v := range y.Content {
			b.child(n, &ynode{}, v.Line, v, depth)
		}
	}
}

// child adds a node below n.
func (b *ybuilder) child(n, kid *ynode, line int, v *yaml.Node, depth int) {
	text := kid.key
	switch {
	case v.Kind == yaml.AliasNode:
		kid.leaf = true
		kid.it = b.item(line, strings.TrimPrefix(text+": *"+v.Value, ": "))
		kid.it.left(whyAlias)
		return
	case len(v.Content) == 0:
		kid.leaf, kid.value = true, v.Value
		if v.Tag == "!!null" {
			kid.value = ""
		}
		if kid.key == "" {
			text = v.Value
		} else if v.Value != "" {
			text += ": " + v.Value
		}
	}
	kid.it = b.item(line, strings.ReplaceAll(text, "\n", " "))
	if v.Line != line && kid.leaf && b.lines[v.Line] != nil && v.Value != "" {
		b.lines[v.Line].parts = append(b.lines[v.Line].parts, &item{file: kid.it.file, line: v.Line, with: kid.it})
	}
	if v.Style&(yaml.LiteralStyle|yaml.FoldedStyle) != 0 || strings.Contains(v.Value, "\n") {
		b.text[line], b.text[v.Line] = true, true
	}
	n.kids = append(n.kids, kid)
	if !kid.leaf {
		kid.it.unneeded("its lines are listed separately")
		b.fill(kid, v, depth+1)
	}
}

// get is the last node of that key.
func (n *ynode) get(key string) *ynode {
	if n == nil {
		return nil
	}
	for i := len(n.kids) - 1; i >= 0; i-- {
		if n.kids[i].key == key {
			return n.kids[i]
		}
	}
	return nil
}

// str is the value of the last node of that key.
func (n *ynode) str(key string) string {
	if x := n.get(key); x != nil {
		return x.value
	}
	return ""
}

// left reports the node, with everything below it.
func (n *ynode) left(why string) {
	n.it.idle = ""
	n.it.left(why)
	for _, k := range n.kids {
		k.follow(n.it)
	}
}

func (n *ynode) follow(it *item) {
	if n.it.why == "" {
		n.it.with = it
	}
	for _, k := range n.kids {
		k.follow(it)
	}
}

// unneeded records that nothing has to be done for the node and what is below it.
func (n *ynode) unneeded(why string) {
	n.it.unneeded(why)
	for _, k := range n.kids {
		k.unneeded(why)
	}
}

// list is the values of a sequence, or of a scalar alone.
func (n *ynode) list() []*ynode {
	if n.leaf {
		if n.value == "" {
			n.it.unneeded("it is empty")
			return nil
		}
		return []*ynode{n}
	}
	return n.kids
}
