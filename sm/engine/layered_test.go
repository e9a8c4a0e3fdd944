package engine_test

import (
	"testing"
	"testing/synctest"
	"time"

	"ibnetworkd/ib"
	"ibnetworkd/internal/testkit"
	"ibnetworkd/lab/gen"
	"ibnetworkd/lab/simfabric"
	"ibnetworkd/sm/engine"
	"ibnetworkd/sm/fabric"
	"ibnetworkd/sm/mad"
	"ibnetworkd/sm/qos"
)

// lane is a virtual lane of a link, by the port that sends.
type lane struct {
	port int32
	vl   ib.VL
}

// A torus with holes is routed in layers. What counts is what the switches and the SA
// say: on the lanes that packets take by the tables in the switches, with the service
// levels of the answers for all pairs of hosts, and multicast, no credit loop closes. After
// a cut that is so again, and most pairs keep their level.
func TestLayersInSwitches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := gen.CutCables(gen.Torus([]int{5, 5}, 1), 3, 6)
		w := newWorld(t, f, simfabric.Options{})
		defer w.close()
		s, _ := w.manager(f.SMPort, engine.Config{QoS: &qos.Options{}})
		time.Sleep(5 * time.Second)
		synctest.Wait()
		x := s.Snapshot()
		if x.Routing != "layered" || x.Layers < 2 || x.Layers > 4 || !w.sim.AllActive() {
			t.Fatalf("routing %q on %d layers, all active %v", x.Routing, x.Layers, w.sim.AllActive())
		}
		var members []*client
		var group ib.LID
		for _, h := range hostsOf(f) {
			c := w.client(t, h)
			members = append(members, c)
			g := mad.MCMemberRecord{MGID: ib.GID{0xff, 0x12, 15: 1}, PortGID: ib.MakeGID(ib.DefaultPrefix, f.Ports[h].GUID),
				JoinState: mad.JoinFull, PKey: ib.DefaultPKey, QKey: 0xb1b}
			st, b, err := c.ask(mad.MethodSet, mad.AttrMCMemberRecord, mad.CompMCMGID|mad.CompMCPortGID|mad.CompMCJoinState|mad.CompMCPKey|
				mad.CompMCQKey|mad.CompMCSL|mad.CompMCFlowLabel|mad.CompMCTClass, &g)
			if st != 0 || err != nil || g.Decode(b) != nil {
				t.Fatalf("join: status %#x, %v", uint16(st), err)
			}
			group = g.MLID
		}
		time.Sleep(5 * time.Second)
		before := w.levels(t, x.Fabric, members)
		w.lanesFree(t, x.Fabric, before, group)

		p := w.linkBetweenSwitches(5)
		testkit.NoError(t, w.sim.Cut(f.Nodes[f.Ports[p].Node].GUID, f.Ports[p].Num))
		time.Sleep(10 * time.Second)
		synctest.Wait()
		x = s.Snapshot()
		after := w.levels(t, x.Fabric, members)
		w.lanesFree(t, x.Fabric, after, group)
		moved := 0
		for k, l := range after {
			if before[k] != l {
				moved++
			}
		}
		t.Logf("%s: %d of %d levels change by a cut", x.Routing, moved, len(after))
		if x.Routing != "layered" || moved*5 > len(after) {
			t.Errorf("%s: %d of %d levels change by a cut", x.Routing, moved, len(after))
		}
	})
}

// linkBetweenSwitches is the nth port with a link to another switch.
func (w *world) linkBetweenSwitches(n int) int32 {
	f := w.f
	for p := range int32(len(f.Ports)) {
		q := f.Ports[p].Peer
		if q != fabric.None && f.Nodes[f.Ports[p].Node].Switch != fabric.None && f.Nodes[f.Ports[q].Node].Switch != fabric.None {
			if n--; n < 0 {
				return p
			}
		}
	}
	return fabric.None
}

// levels are the service levels that the SA gives for all pairs of hosts, the same for
// both directions.
func (w *world) levels(t *testing.T, f *fabric.Fabric, hosts []*client) map[[2]ib.LID]ib.SL {
	t.Helper()
	out := map[[2]ib.LID]ib.SL{}
	ports := hostsOf(f)
	for i, c := range hosts {
		for j, e := range ports {
			if i == j {
				continue
			}
			k := [2]ib.LID{f.Ports[ports[i]].LID, f.Ports[e].LID}
			out[k] = c.level(t, k)
		}
	}
	for k, l := range out {
		if out[[2]ib.LID{k[1], k[0]}] != l {
			t.Fatalf("the level from %v to %v is %d, back %d", k[0], k[1], l, out[[2]ib.LID{k[1], k[0]}])
		}
	}
	return out
}

// level is the service level that the SA gives for a path from a LID to another.
func (c *client) level(t *testing.T, k [2]ib.LID) ib.SL {
	t.Helper()
	rec := mad.PathRecord{SLID: k[0], DLID: k[1], Reversible: true, NumbPath: 1}
	st, b, err := c.ask(mad.MethodGet, mad.AttrPathRecord, mad.CompPRSLID|mad.CompPRDLID|mad.CompPRReversible, &rec)
	for n := 0; err != nil && n < 5; n++ {
		st, b, err = c.ask(mad.MethodGet, mad.AttrPathRecord, mad.CompPRSLID|mad.CompPRDLID|mad.CompPRReversible, &rec)
	}
	var a mad.PathRecord
	if st != 0 || err != nil || a.Decode(b) != nil {
		t.Fatalf("path from %v to %v: status %#x, %v", k[0], k[1], uint16(st), err)
	}
	return a.SL
}

// lanesFree follows the tables in the switches and searches the lanes for a loop, whatever
// the level of the group is.
func (w *world) lanesFree(t *testing.T, f *fabric.Fabric, levels map[[2]ib.LID]ib.SL, group ib.LID) {
	t.Helper()
	lids := f.LIDs()
	dep := map[lane]map[lane]bool{}
	depend := func(a, b lane) {
		if dep[a] == nil {
			dep[a] = map[lane]bool{}
		}
		dep[a][b] = true
	}
	table := map[int32][]uint8{}
	groups := map[int32][]uint8{} // by node: the ports of the group
	for i := range f.Switches {
		n := f.Switches[i].Node
		_, lft, mft, err := w.sim.SwitchTables(f.Nodes[n].GUID)
		testkit.NoError(t, err)
		table[n] = lft
		for p := range f.Nodes[n].NumPorts + 1 {
			if i := int(group - ib.LIDMulticastMin); i < len(mft) && mft[i][p/16]&(1<<(p%16)) != 0 {
				groups[n] = append(groups[n], p)
			}
		}
	}
	vl := func(in, out int32, sl ib.SL) ib.VL {
		m, err := w.sim.SLtoVL(f.Nodes[f.Ports[out].Node].GUID, f.Ports[in].Num, f.Ports[out].Num)
		testkit.NoError(t, err)
		return m[sl]
	}
	between := func(p int32) bool {
		return f.Nodes[f.Ports[p].Node].Switch != fabric.None && f.Nodes[f.Ports[f.Ports[p].Peer].Node].Switch != fabric.None
	}
	used := map[ib.VL]bool{}
	for k, sl := range levels {
		at, to := f.Ports[lids[k[0]]].Peer, lids[k[1]]
		last, ok := lane{}, false
		for n := 0; at != to; n++ {
			out := f.Port(f.Ports[at].Node, table[f.Ports[at].Node][k[1]])
			if out == fabric.None || f.Ports[out].Peer == fabric.None || n > len(f.Switches) {
				t.Fatalf("no path from %v to %v", k[0], k[1])
			}
			if between(out) {
				l := lane{out, vl(at, out, sl)}
				used[l.vl] = true
				if ok {
					depend(last, l)
				}
				last, ok = l, true
			}
			at = f.Ports[out].Peer
		}
	}
	trees := 0
	for n, ports := range groups {
		for _, i := range ports {
			in := f.Port(n, i)
			if f.Ports[in].Peer == fabric.None || !between(in) {
				continue
			}
			trees++
			from := f.Ports[in].Peer
			for _, o := range ports {
				for sl := range ib.SL(16) {
					if out := f.Port(n, o); o != i && f.Ports[out].Peer != fabric.None && between(out) {
						depend(lane{from, vl(f.Port(f.Ports[from].Node, 0), from, sl)}, lane{out, vl(in, out, sl)})
					}
				}
			}
		}
	}
	if len(used) < 2 || trees < len(f.Switches) {
		t.Errorf("packets use the lanes %v, %d links have multicast", used, trees)
	}
	if gen.Cyclic(dep) {
		t.Fatal("a lane has a credit loop")
	}
}
