package explain

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"ibnetworkd/ib"
	"ibnetworkd/sm/fabric"
)

// maxNamed is how many nodes an error names.
const maxNamed = 5

// UnknownError reports a word that means nothing in the fabric.
type UnknownError struct{ text string }

func (e *UnknownError) Error() string { return e.text }

// AmbiguousError reports a word that means several things.
type AmbiguousError struct{ text string }

func (e *AmbiguousError) Error() string { return e.text }

// found is what a word means: nodes, or one end port.
type found struct {
	nodes []int32
	end   int32 // index into Fabric.Ports; None where the word names nodes
	lid   ib.LID
	port  int32 // the port in brackets, by index into Fabric.Ports, or None
}

// find reads a name of a node, the name of a host (the first word of a node's),
// a GUID of a node or port, or a LID. A port number may follow in brackets.
func find(f *fabric.Fabric, word string) (found, error) {
	r := found{end: fabric.None, port: fabric.None}
	name, num, bracket := word, uint64(0), false
	if i := strings.LastIndexByte(word, '['); i > 0 && strings.HasSuffix(word, "]") {
		var err error
		if num, err = strconv.ParseUint(word[i+1:len(word)-1], 10, 8); err != nil {
			return r, &UnknownError{fmt.Sprintf("%q: want a port number from 0 to 254 in the brackets", ib.Clip(word))}
		}
		name, bracket = word[:i], true
	}
	r.nodes, r.end, r.lid = lookUp(f, name)
	if r.nodes == nil && r.end == fabric.None {
		return r, unknown(f, name)
	}
	if !bracket {
		return r, nil
	}
	if r.end != fabric.None {
		r.nodes = []int32{f.Ports[r.end].Node}
	}
	if len(r.nodes) > 1 {
		return r, ambiguous(f, name, r.nodes)
	}
	r.end, r.lid = fabric.None, 0
	if r.port = f.Port(r.nodes[0], uint8(num)); r.port == fabric.None {
		n := &f.Nodes[r.nodes[0]]
		return r, &UnknownError{fmt.Sprintf("%s has ports 1 to %d, no port %d", n.Name(), n.NumPorts, num)}
	}
	return r, nil
}

// lookUp reads a LID or GUID first, so that no node can take its place by a description
// that looks like one.
func lookUp(f *fabric.Fabric, name string) (nodes []int32, end int32, lid ib.LID) {
	match := func(is func(n *fabric.Node) bool) (out []int32) {
		for i := range f.Nodes {
			if is(&f.Nodes[i]) {
				out = append(out, int32(i))
			}
		}
		return out
	}
	if n, err := strconv.ParseUint(name, 0, 16); err == nil {
		if l := ib.LID(n); l.IsUnicast() {
			if t := f.LIDs(); int(l) < len(t) && t[l] != fabric.None {
				return nil, t[l], l
			}
		}
	}
	if g := guidOf(name); g != 0 {
		if n := f.NodeByGUID(g); n != fabric.None {
			return []int32{n}, fabric.None, 0
		}
		if p := f.EndPortByGUID(g); p != fabric.None {
			return nil, p, 0
		}
	}
	if nodes = match(func(n *fabric.Node) bool { return n.Desc == name && name != "" }); nodes != nil {
		return nodes, fabric.None, 0
	}
	nodes = match(func(n *fabric.Node) bool {
		host, _, _ := strings.Cut(n.Desc, " ")
		return name != "" && (strings.EqualFold(host, name) || strings.EqualFold(n.Desc, name))
	})
	if nodes == nil && len(name) > 1 {
		// Managed switches are "MF0;sw01:MQM8700/U1".
		if part := match(func(n *fabric.Node) bool {
			words := strings.FieldsFunc(n.Desc, func(r rune) bool { return strings.ContainsRune(" ;:/", r) })
			return slices.ContainsFunc(words, func(w string) bool { return strings.EqualFold(w, name) })
		}); len(part) == 1 {
			nodes = part
		}
	}
	return nodes, fabric.None, 0
}

// guidOf is the GUID that a word is, 0 for none: also without 0x, and with the S-, H- or R- before
// it, as in the output of ibnetdiscover.
func guidOf(name string) ib.GUID {
	if g, err := ib.ParseGUID(name); err == nil {
		return g
	}
	if len(name) > 2 && name[1] == '-' && strings.ContainsRune("SHR", rune(name[0])) {
		name = name[2:]
	}
	if len(name) < 8 { // shorter ones may be LIDs
		return 0
	}
	g, err := ib.ParseGUID("0x" + name)
	if err != nil {
		return 0
	}
	return g
}

// unknown is the error for a name that nothing has, with names that contain it.
func unknown(f *fabric.Fabric, name string) error {
	text := fmt.Sprintf("%q is not a name, GUID or LID in the fabric", ib.Clip(name))
	var like []int32
	for i := range f.Nodes {
		if len(name) > 1 && strings.Contains(strings.ToLower(f.Nodes[i].Desc), strings.ToLower(name)) {
			like = append(like, int32(i))
		}
	}
	if len(like) > 0 {
		text += "; similar: " + list(f, like)
	}
	return &UnknownError{text}
}

func ambiguous(f *fabric.Fabric, name string, nodes []int32) error {
	return &AmbiguousError{fmt.Sprintf("%q means %d nodes: %s; name one by its GUID", ib.Clip(name), len(nodes), list(f, nodes))}
}

// list names some nodes, with their GUIDs.
func list(f *fabric.Fabric, nodes []int32) string {
	var out []string
	for _, n := range nodes[:min(len(nodes), maxNamed)] {
		out = append(out, fmt.Sprintf("%s (%v)", f.Nodes[n].Name(), f.Nodes[n].GUID))
	}
	if more := len(nodes) - len(out); more > 0 {
		out = append(out, fmt.Sprintf("%d more", more))
	}
	return strings.Join(out, ", ")
}

// EndPort is the end port that a word means, and its LID: one of several that the
// port has if the word is a LID, else the first.
func EndPort(f *fabric.Fabric, word string) (port int32, lid ib.LID, err error) {
	r, err := find(f, word)
	if err != nil {
		return fabric.None, 0, err
	}
	switch {
	case r.end != fabric.None:
		port = r.end
	case r.port != fabric.None:
		port = r.port
		if n := f.Ports[port].Node; f.Nodes[n].Switch != fabric.None {
			port = f.Port(n, 0) // a switch has one LID, that of port 0
		}
	case len(r.nodes) > 1:
		return fabric.None, 0, ambiguous(f, word, r.nodes)
	default:
		ends := linked(f, r.nodes[0])
		if len(ends) == 0 {
			first, _ := f.PortRange(r.nodes[0])
			ends = []int32{first}
		}
		if len(ends) > 1 {
			var names []string
			for _, e := range ends {
				names = append(names, f.PortName(e))
			}
			return fabric.None, 0, &AmbiguousError{fmt.Sprintf("%s has %d linked ports: name one of %s", f.Nodes[r.nodes[0]].Name(),
				len(ends), strings.Join(names, ", "))}
		}
		port = ends[0]
	}
	if lid = r.lid; lid == 0 {
		lid = f.Ports[port].LID
	}
	return port, lid, nil
}

// linked are the end ports of a node that have a link; of a switch port 0.
func linked(f *fabric.Fabric, node int32) (out []int32) {
	if f.Nodes[node].Switch != fabric.None {
		return []int32{f.Port(node, 0)}
	}
	first, n := f.PortRange(node)
	for i := first; i < first+n; i++ {
		if f.Ports[i].Peer != fabric.None {
			out = append(out, i)
		}
	}
	return out
}

// Nodes are those that a word means: several where a host has several adapters.
func Nodes(f *fabric.Fabric, word string) ([]int32, error) {
	r, err := find(f, word)
	switch {
	case err != nil:
		return nil, err
	case r.port != fabric.None:
		return nil, &UnknownError{fmt.Sprintf("%q names a port; to cut its cable: --cut", ib.Clip(word))}
	case r.end != fabric.None:
		return []int32{f.Ports[r.end].Node}, nil
	case len(r.nodes) > 1 && slices.ContainsFunc(r.nodes, func(n int32) bool { return f.Nodes[n].Switch != fabric.None }):
		return nil, ambiguous(f, word, r.nodes)
	}
	return r.nodes, nil
}

// Cable is the port with a link that a word means, by one of its ends.
func Cable(f *fabric.Fabric, word string) (int32, error) {
	r, err := find(f, word)
	if err != nil {
		return fabric.None, err
	}
	port := r.port
	switch {
	case port != fabric.None:
	case r.end != fabric.None:
		port = r.end
	case len(r.nodes) > 1:
		return fabric.None, ambiguous(f, word, r.nodes)
	}
	if n := int32(0); port == fabric.None || f.Ports[port].Num == 0 {
		if n = r.nodeOf(f); f.Nodes[n].Switch == fabric.None {
			switch ends := linked(f, n); len(ends) {
			case 0:
				return fabric.None, &UnknownError{f.Nodes[n].Name() + " has no link"}
			case 1:
				return ends[0], nil
			}
		}
		name := f.Nodes[n].Name()
		return fabric.None, &AmbiguousError{fmt.Sprintf("%s has several ports: name one as in \"%s[1]\"", name, name)}
	}
	if f.Ports[port].Peer == fabric.None {
		return fabric.None, &UnknownError{fmt.Sprintf("port %s has no link", f.PortName(port))}
	}
	return port, nil
}

func (r *found) nodeOf(f *fabric.Fabric) int32 {
	for _, p := range []int32{r.port, r.end} {
		if p != fabric.None {
			return f.Ports[p].Node
		}
	}
	return r.nodes[0]
}
