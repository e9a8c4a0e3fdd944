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
	"ibnetworkd/sm/guidfile"
	"ibnetworkd/sm/lid"
	"ibnetworkd/sm/mad"
)

// A standby remembers them for the time when the file is gone.
func TestStandbyKeepsLIDs(t *testing.T) {
	inWorld(t, gen.FatTree2(8, 4), simfabric.Options{}, func(t *testing.T, w *world, f *fabric.Fabric, hosts []int32) {
		w.manager(f.SMPort, engine.Config{Priority: 2})
		time.Sleep(2 * time.Second)
		store := &memoryStore{}
		lids := []guidfile.LIDs{{GUID: 0x99, LID: 0x1000, LMC: 1}}
		s, stop := w.manager(hosts[5], engine.Config{Store: store, LIDs: lids})
		time.Sleep(2 * time.Second)
		if st := s.Snapshot().State; st != mad.SMStandby.String() {
			t.Fatalf("state %v", st)
		}
		stop()
		b, _ := store.Load()
		m, err := lid.Unmarshal("store", b)
		if e, ok := m.Find(0x99); err != nil || !ok || e != lid.Entry(lids[0]) {
			t.Errorf("%+v %v", m, err)
		}
	})
}

// A site that had opensm keeps its LIDs, also of hosts that come later; what the manager
// itself has given counts first.
func TestLIDsOfAnotherManager(t *testing.T) {
	inWorld(t, gen.FatTree2(8, 4), simfabric.Options{}, func(t *testing.T, w *world, f *fabric.Fabric, hosts []int32) {
		off := hosts[len(hosts)-1]
		var lids []guidfile.LIDs
		for i, h := range hosts {
			lids = append(lids, guidfile.LIDs{GUID: f.Ports[h].GUID, LID: ib.LID(0x1000 + 2*i)})
		}
		testkit.NoError(t, w.sim.PowerOff(f.Nodes[f.Ports[off].Node].GUID))
		store := &memoryStore{}
		s, stop := w.manager(f.SMPort, engine.Config{Store: store, LIDs: lids})
		time.Sleep(2 * time.Second)
		testkit.NoError(t, w.sim.PowerOn(f.Nodes[f.Ports[off].Node].GUID))
		time.Sleep(30 * time.Second)
		has := func(s *engine.Snapshot) {
			t.Helper()
			for i, h := range hosts {
				if p := s.Fabric.EndPortByGUID(f.Ports[h].GUID); p < 0 || s.Fabric.Ports[p].LID != lids[i].LID {
					t.Fatalf("host %d of %d has not the LID %v", i, len(hosts), lids[i].LID)
				}
			}
		}
		has(s.Snapshot())
		stop()
		other := []guidfile.LIDs{{GUID: lids[0].GUID, LID: 0x2000}}
		s, _ = w.manager(f.SMPort, engine.Config{Store: store, LIDs: other})
		time.Sleep(5 * time.Second)
		has(s.Snapshot())
		synctest.Wait()
	})
}
