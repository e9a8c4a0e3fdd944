package main

import (
	"bytes"
	"strings"
	"testing"

	"ibnetworkd/ib"
	"ibnetworkd/sm/fabric"
	"ibnetworkd/smctl/probe"
)

// A far node's description does not command the terminal, whatever it prints to.
func TestTopologyIsClean(t *testing.T) {
	b := fabric.NewBuilder()
	for g := range ib.GUID(2) {
		if _, err := b.AddNode(fabric.Node{GUID: 1 + g, Type: ib.NodeCA, NumPorts: 1, Desc: "evil\x1b[2J\x1b[8m\x9b31m\nnode"}); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.Link(0, 1, 1, 1); err != nil {
		t.Fatal(err)
	}
	b.SetSM(0, 1)
	var out bytes.Buffer
	a := &app{out: &out}
	a.printTopology(topologyOptions{}, &view{Found: &probe.Found{Fabric: b.Build()}})
	if s := out.String(); strings.ContainsAny(s, "\x1b\x07") || strings.Contains(s, "\x9b") || strings.Contains(s, "\nnode") ||
		!strings.Contains(s, "evil?[2J") {
		t.Errorf("%q", s)
	}
}
