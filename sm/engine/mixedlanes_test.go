package engine_test

import (
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"ibnetworkd/ib"
	"ibnetworkd/lab/gen"
	"ibnetworkd/lab/simfabric"
	"ibnetworkd/sm/engine"
	"ibnetworkd/sm/fabric"
	"ibnetworkd/sm/mad"
	"ibnetworkd/sm/qos"
)

// Where links have different numbers of lanes, no path has a level that the narrowest one
// has no lane for, and a group of any level, 15 too, closes no loop with the paths.
func TestMixedLanes(t *testing.T) {
	for name, codes := range map[string][]uint8{"8 and 15": {4, 5}, "4 and 15": {3, 5}, "2, 4, 8 and 15": {2, 3, 4, 5}} {
		for seed := range uint64(3) {
			synctest.Test(t, func(t *testing.T) {
				f := gen.CutCables(gen.Torus([]int{5, 5}, 1), 3, 6).Clone()
				rnd := rand.New(rand.NewPCG(seed, 1))
				least := 15
				for p := range f.Ports {
					if q := f.Ports[p].Peer; q > int32(p) {
						code := codes[rnd.IntN(len(codes))]
						least = min(least, qos.VLs(code))
						f.Ports[p].Info.SetVLCap(5)
						f.Ports[q].Info.SetVLCap(code)
					}
				}
				w := newWorld(t, f, simfabric.Options{})
				defer w.close()
				s, _ := w.manager(f.SMPort, engine.Config{QoS: &qos.Options{}})
				time.Sleep(5 * time.Second)
				synctest.Wait()
				x := s.Snapshot()
				var hosts []*client
				var group ib.LID
				for _, h := range hostsOf(f) {
					c := w.client(t, h)
					hosts = append(hosts, c)
					group = c.join15(t, f, h)
				}
				time.Sleep(5 * time.Second)
				levels := w.levels(t, x.Fabric, hosts)
				for k, l := range levels {
					if int(l) >= least {
						t.Fatalf("%s: level %d from %v to %v, a link has %d lanes", name, l, k[0], k[1], least)
					}
				}
				w.lanesFree(t, x.Fabric, levels, group)
			})
		}
	}
}

// join15 makes a port a member of a group of service level 15.
func (c *client) join15(t *testing.T, f *fabric.Fabric, port int32) ib.LID {
	t.Helper()
	g := mad.MCMemberRecord{MGID: ib.GID{0xff, 0x12, 15: 1}, PortGID: ib.MakeGID(ib.DefaultPrefix, f.Ports[port].GUID),
		JoinState: mad.JoinFull, PKey: ib.DefaultPKey, QKey: 0xb1b, SL: 15}
	st, b, err := c.ask(mad.MethodSet, mad.AttrMCMemberRecord, mad.CompMCMGID|mad.CompMCPortGID|mad.CompMCJoinState|mad.CompMCPKey|
		mad.CompMCQKey|mad.CompMCSL|mad.CompMCFlowLabel|mad.CompMCTClass, &g)
	if st != 0 || err != nil || g.Decode(b) != nil {
		t.Fatalf("join: status %#x, %v", uint16(st), err)
	}
	return g.MLID
}
