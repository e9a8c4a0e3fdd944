package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"ibnetworkd/sm/fabric"
	"ibnetworkd/sm/mad"
	"ibnetworkd/smctl/probe"
)

// badLink is a link with a fault, seen from its first end.
type badLink struct {
	node int32
	num  int
	peer int32 // port, or None
	why  string
}

// badLinks are those of the fabric, each once; c is nil where no counters were read.
func badLinks(f *fabric.Fabric, c *probe.Counters) []badLink {
	h := f.Health()
	var out []badLink
	for i := range f.Ports {
		p := &f.Ports[i]
		what, why := h.Link(int32(i))
		if p.Peer != fabric.None {
			if p.Peer < int32(i) {
				continue
			}
			if what == 0 {
				_, why = h.Link(p.Peer)
			}
		}
		words := []string{}
		if why != "" {
			words = append(words, why)
		}
		if c != nil && p.Peer != fabric.None {
			for _, end := range [2]int32{int32(i), p.Peer} {
				if n, ok := c.Ports[end]; ok {
					if e := countedErrors(&n); e != "" {
						words = append(words, f.PortName(end)+" counts "+e)
					}
				}
			}
		}
		if len(words) > 0 {
			out = append(out, badLink{p.Node, int(p.Num), p.Peer, strings.Join(words, "; ")})
		}
	}
	return out
}

// Values of counters above which they count as a fault, those of the file
// error_thresholds of infiniband-diags. PortRcvSwitchRelayErrors counts multicast packets that a switch does
// not send back to where they came from; it is no fault.
const (
	someErrors = 10
	manyErrors = 100
)

// portErrors are the counters of a port that are above their threshold, in words.
func portErrors(c *mad.PortCounters) (out []string) {
	for _, e := range []struct {
		value, most, limit uint16
		name               string
	}{
		{c.SymbolErrors, 0xffff, someErrors, "symbol errors"},
		{uint16(c.LinkErrorRecovery), 0xff, someErrors, "link recoveries"},
		{uint16(c.LinkDowned), 0xff, someErrors, "losses of the link"},
		{c.RcvErrors, 0xffff, someErrors, "receive errors"},
		{c.RcvRemotePhysErr, 0xffff, manyErrors, "remote physical errors"},
		{c.XmitDiscards, 0xffff, manyErrors, "discarded packets"},
		{uint16(c.XmitConstraintErr), 0xff, manyErrors, "send constraint errors"},
		{uint16(c.RcvConstraintErr), 0xff, manyErrors, "receive constraint errors"},
		{uint16(c.LocalLinkIntegrity), 0xf, someErrors, "link integrity errors"},
		{uint16(c.BufferOverruns), 0xf, someErrors, "buffer overruns"},
		{c.VL15Dropped, 0xffff, manyErrors, "dropped management packets"},
	} {
		if e.value <= e.limit {
			continue
		}
		least := ""
		if e.value == e.most {
			least = "at least " // the counter stops there
		}
		out = append(out, fmt.Sprintf("%s%d %s", least, e.value, e.name))
	}
	return out
}

// countedErrors are a port's errors beside its traffic, "" where there are none.
func countedErrors(c *probe.PortCounters) string {
	words := portErrors(&c.PortCounters)
	if len(words) == 0 {
		return ""
	}
	return fmt.Sprintf("%s (%d packets received, %d sent)", strings.Join(words, ", "), c.Received, c.Sent)
}

// silentNodes is how many nodes are named as not checked.
const silentNodes = 4

// countersText is of which ports the counters were read.
func countersText(f *fabric.Fabric, c *probe.Counters) string {
	if len(c.Silent) == 0 {
		return fmt.Sprintf("error counters of all %d ports with a link were read.", len(c.Ports))
	}
	ports := map[int32]int{}
	var nodes []int32
	for _, p := range c.Silent {
		n := f.Ports[p].Node
		if ports[n]++; ports[n] == 1 {
			nodes = append(nodes, n)
		}
	}
	slices.SortStableFunc(nodes, func(a, b int32) int { return cmp.Compare(ports[b], ports[a]) })
	var names []string
	for _, n := range nodes[:min(len(nodes), silentNodes)] {
		names = append(names, fmt.Sprintf("%s (%d)", nodeName(&f.Nodes[n]), ports[n]))
	}
	if rest := len(nodes) - len(names); rest > 0 {
		names = append(names, fmt.Sprintf("and %d more nodes", rest))
	}
	return fmt.Sprintf("error counters: %d ports read, %d not checked (no answer, or no LID): %s.", len(c.Ports), len(c.Silent),
		strings.Join(names, ", "))
}
