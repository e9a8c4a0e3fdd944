package engine_test

import (
	"strings"
	"testing"
	"testing/synctest"

	"ibnetworkd/lab/gen"
	"ibnetworkd/lab/simfabric"
	"ibnetworkd/sm/engine"
	"ibnetworkd/sm/fabric"
	"ibnetworkd/sm/mad"
)

// twoPaths is two switches of eight ports with two cables between them and a
// host on each.
const twoPaths = `Hca 2 "Hca1"
[1] "Switch1"[1]

Switch 8 "Switch1"
[1] "Hca1"[1]
[3] "Switch2"[3]
[5] "Switch2"[5]

Switch 8 "Switch2"
[1] "Hca2"[1]
[3] "Switch1"[3]
[5] "Switch1"[5]

Hca 2 "Hca2"
[1] "Switch2"[1]
`

// What the SMPs of a first sweep are for, as docs/smps.md has it: by attribute,
// none more and none less.
func TestFirstSweepByAttribute(t *testing.T) {
	paths, err := fabric.ReadText("two paths", strings.NewReader(twoPaths))
	if err != nil {
		t.Fatal(err)
	}
	for name, f := range map[string]*fabric.Fabric{
		"b2b": gen.Pair(), "sw2": gen.Star(2, 36), "one switch of eight": gen.Star(2, 8), "two paths": paths,
		"ft2": gen.FatTree2(8, 4), "ft3": gen.FatTree3(8, 4, 4), "ring": gen.Ring(8, 4), "torus": gen.Torus([]int{5, 5}, 2),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, f, simfabric.Options{})
				defer w.close()
				w.manager(f.SMPort, engine.Config{Sweep: -1})
				synctest.Wait()
				links, adapters, empty, top := 0, 0, unlinked(f), 0
				for i := range f.Ports {
					if p := &f.Ports[i]; p.Peer != fabric.None {
						if links++; f.Nodes[p.Node].Switch == fabric.None {
							adapters++
						}
					}
				}
				links /= 2
				if name == "sw2" {
					empty++ // port 0 was asked whether the switch has a table of its ports' states
				}
				top = len(f.EndPorts)
				s := len(f.Switches)
				want := map[mad.AttrID][2]uint64{
					mad.AttrNodeInfo:        {uint64(1 + links), 0},
					mad.AttrNodeDescription: {uint64(len(f.Nodes)), 0},
					mad.AttrSwitchInfo:      {uint64(s), uint64(s)},
					// A link's near end and an adapter's own port, but of the
					// manager's link its own port alone.
					mad.AttrPortInfo: {uint64(empty + links - 1 + adapters), uint64(4*links + s)},
					mad.AttrLFT:      {0, uint64(s * (top/64 + 1))},
				}
				for a, c := range w.sim.Counters().SMPs {
					if got := [2]uint64{uint64(c.Get), uint64(c.Set)}; got != want[a] {
						t.Errorf("%s: %d Gets and %d Sets, want %v", mad.AttrName(mad.ClassSubnDR, a), c.Get, c.Set, want[a])
					}
					delete(want, a)
				}
				for a, n := range want {
					if n != [2]uint64{} {
						t.Errorf("%s: none, want %v", mad.AttrName(mad.ClassSubnDR, a), n)
					}
				}
			})
		})
	}
}

// unlinked counts the ports of switches that have no link, beside port 0.
func unlinked(f *fabric.Fabric) (n int) {
	for i := range f.Ports {
		if p := &f.Ports[i]; p.Num != 0 && p.Peer == fabric.None && f.Nodes[p.Node].Switch != fabric.None {
			n++
		}
	}
	return n
}
