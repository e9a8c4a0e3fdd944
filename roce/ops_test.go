package roce

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"ibnetworkd/internal/testkit"
	"ibnetworkd/link"
	"ibnetworkd/units"
)

// Every operation is a command of a shell about its target, which the planner's model
// takes, and the record has what it makes.
func TestOps(t *testing.T) {
	s, _ := system()
	s.Links = []link.Link{{Index: 7, Name: "net7"}}
	for _, op := range Ops() {
		word, _, _ := strings.Cut(op.String(), " ")
		if !slices.Contains([]string{"ip", "rdma", "dcb", "devlink", "echo", "mkdir", "ethtool"}, word) {
			t.Errorf("%T: %q is not a command", op, op)
		}
		if op.Target().Link != "net7" || op.Target().Port != 1 {
			t.Errorf("%T is about %s", op, op.Target())
		}
		if err := link.NewModel(s).Apply(op); err != nil {
			t.Errorf("%T: %v", op, err)
		}
		if x, ok := op.(link.Maker); ok {
			m, remove := x.Makes()
			if m.Kind == "" || m.Name == "" || m.On != op.Target().Ifindex ||
				!strings.Contains(op.String(), m.Name) || remove != strings.Contains(op.String(), "delete") {
				t.Errorf("%T makes %+v, remove %v", op, m, remove)
			}
		}
	}
}

func TestContestedKeys(t *testing.T) {
	on := link.Target{Link: "eth0", Ifindex: 2}
	keys := map[string]bool{}
	for _, op := range []link.Op{SetPFC{On: on}, SetETS{On: on}, SetTrust{On: on}, SetBuffers{On: on}, SetDCBX{On: on},
		SetVersion{On: on}, SetToS{On: on}, MapDSCP{On: on, DSCP: 1}, MapDSCP{On: on, DSCP: 2}} {
		keys[ContestedKey(op)] = true
	}
	if len(keys) != 9 || keys[""] {
		t.Errorf("keys %v", slices.Sorted(maps.Keys(keys)))
	}
	if ContestedKey(AddVLAN{On: on}) != "" {
		t.Error("nothing else changes a VLAN back")
	}
}

// Both ports of a card change in the order that a card accepts which does not take
// Ethernet on port 1 beside InfiniBand on port 2; other cards and operations keep
// their places.
func TestOrderOfTypes(t *testing.T) {
	op := func(dev string, port int, typ units.PortType) link.Op {
		return SetPortType{On: link.Target{IBDevice: dev, Port: port}, Port: PortType{Bus: "pci", Dev: dev, Index: uint32(port)}, Type: typ}
	}
	const eth, ib = units.PortTypeEth, units.PortTypeIB
	up := link.SetUp{On: link.Target{Link: "eth0"}, Up: true}
	for _, tt := range []struct{ in, want []link.Op }{
		{[]link.Op{op("a", 1, eth), up, op("a", 2, eth)}, []link.Op{op("a", 2, eth), up, op("a", 1, eth)}},
		{[]link.Op{op("a", 2, ib), op("a", 1, ib)}, []link.Op{op("a", 1, ib), op("a", 2, ib)}},
		{[]link.Op{op("a", 1, eth), op("b", 1, ib), op("b", 2, ib), op("a", 2, eth)}, []link.Op{op("a", 2, eth), op("b", 1, ib),
			op("b", 2, ib), op("a", 1, eth)}},
		{[]link.Op{op("a", 1, eth), op("a", 2, ib)}, []link.Op{op("a", 1, eth), op("a", 2, ib)}},
	} {
		var steps, want []link.Step
		for i := range tt.in {
			steps, want = append(steps, link.Step{Op: tt.in[i]}), append(want, link.Step{Op: tt.want[i]})
		}
		orderTypes(steps)
		testkit.Diff(t, "", want, steps)
	}
}
