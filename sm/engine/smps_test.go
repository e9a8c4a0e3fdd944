package engine_test

import (
	"fmt"
	"maps"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"ibnetworkd/ib/partition"
	"ibnetworkd/internal/testkit"
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
	testkit.NoError(t, err)
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

// What the events after a first sweep send, the first as the second: a cut between
// switches reads the switches and the ports at its ends, and no P_Key table of a host,
// with the default partition alone as with another that has some hosts. Where the report
// of one end comes later, one more port shows that its switch is not off.
func TestEventBySMPs(t *testing.T) {
	for _, partitions := range []string{"", "Default=0x7fff : ALL=full, SELF=full ;\nblue=0x0001 : %v, %v, SELF=full ;\n"} {
		inWorld(t, gen.FatTree2(12, 6), simfabric.Options{}, func(t *testing.T, w *world, f *fabric.Fabric, hosts []int32) {
			cfg := engine.Config{Sweep: -1}
			if partitions != "" {
				var err error
				cfg.Partitions, err = partition.Parse("p", fmt.Appendf(nil, partitions, f.Ports[hosts[3]].GUID, f.Ports[hosts[20]].GUID))
				testkit.NoError(t, err)
			}
			_, _ = w.manager(f.SMPort, cfg)
			synctest.Wait()
			for event := range 2 {
				was := w.sim.Counters().SMPs
				leaf := f.Switches[event].Node
				for p := f.Port(leaf, 1); ; p++ {
					if q := f.Ports[p].Peer; q != fabric.None && f.Nodes[f.Ports[q].Node].Switch != fabric.None {
						testkit.NoError(t, w.sim.Cut(f.Nodes[leaf].GUID, f.Ports[p].Num))
						break
					}
				}
				time.Sleep(5 * time.Second)
				synctest.Wait()
				got := map[mad.AttrID][2]int{}
				for a, c := range w.sim.Counters().SMPs {
					if n := [2]int{int(c.Get - was[a].Get), int(c.Set - was[a].Set)}; n != [2]int{} {
						got[a] = n
					}
				}
				want := []map[mad.AttrID][2]int{
					{mad.AttrSwitchInfo: {2, 2}, mad.AttrPortInfo: {2*13 + 1, 0}, mad.AttrLFT: {0, 9}},
					{mad.AttrSwitchInfo: {3, 2}, mad.AttrPortInfo: {3 * 13, 0}, mad.AttrLFT: {0, 7}}}[event]
				if !maps.Equal(got, want) {
					t.Errorf("event %d: Gets and Sets by attribute %v, want %v", event, got, want)
				}
			}
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
