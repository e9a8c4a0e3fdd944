package picture

import (
	"bufio"
	"fmt"
	"io"
	"slices"
	"strings"

	"ibnetworkd/sm/fabric"
)

// quote is s as a DOT string.
func quote(s string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", " ", "\r", " ").Replace(strings.ToValidUTF8(s, "?")) + `"`
}

// WriteDOT writes the subnet as a graph for Graphviz, with all nodes and with
// parallel links as one edge.
func WriteDOT(w io.Writer, f *fabric.Fabric) error {
	b := bufio.NewWriter(w)
	m := build(f)
	fmt.Fprintln(b, "graph subnet {\n  node [shape=box, style=filled, fillcolor=\"#eef4ff\", fontname=\"monospace\"];")
	for i := range f.Nodes {
		n := &f.Nodes[i]
		extra := ""
		if n.Switch != fabric.None {
			extra = `, fillcolor="#d8dde6"`
		}
		if int32(i) == m.sm {
			extra = `, fillcolor="#ffe08a"`
		}
		fmt.Fprintf(b, "  \"%v\" [label=%s, tooltip=%s%s];\n", n.GUID, quote(n.Name()), quote(m.title(int32(i))), extra)
	}
	edge := func(e *bundle) {
		fmt.Fprintf(b, "  \"%v\" -- \"%v\" [color=\"%s\", penwidth=%.1f, label=%s, tooltip=%s];\n", f.Nodes[e.a].GUID, f.Nodes[e.b].GUID,
			colours[e.state], thick(e.n), quote(bundleLabel(e.n, e.bad)), quote(e.title))
	}
	for _, e := range m.bundles {
		edge(e)
	}
	for _, s := range m.sw {
		for _, h := range m.leaves[s].hosts {
			edge(m.leaves[s].links[h])
		}
		if m.fold {
			for i := range f.Nodes {
				if e := m.leaves[s].links[int32(i)]; e != nil && !slices.Contains(m.leaves[s].hosts, int32(i)) {
					edge(e)
				}
			}
		}
	}
	fmt.Fprintln(b, "}")
	return b.Flush()
}
