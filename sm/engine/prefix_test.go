package engine_test

import (
	"testing"
	"testing/synctest"
	"time"

	"ibnetworkd/ib"
	"ibnetworkd/lab/gen"
	"ibnetworkd/lab/simfabric"
	"ibnetworkd/sm/engine"
	"ibnetworkd/sm/guidfile"
	"ibnetworkd/sm/mad"
)

// Prefix routes that come while a manager runs are in its answers, and go again.
func TestPrefixRoutesWhileRunning(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := gen.FatTree2(8, 2)
		hosts := hostsOf(f)
		router := hosts[3]
		f.Nodes[f.Ports[router].Node].Type = ib.NodeRouter
		w := newWorld(t, f, simfabric.Options{})
		defer w.close()
		s, _ := w.manager(f.SMPort, engine.Config{})
		time.Sleep(2 * time.Second)
		c := w.client(t, hosts[1])
		rec := mad.PathRecord{SGID: ib.MakeGID(ib.DefaultPrefix, f.Ports[hosts[1]].GUID), DGID: ib.MakeGID(0xfec0000000000009, 1)}
		ask := func() (mad.Status, ib.LID) {
			t.Helper()
			st, b, err := c.ask(mad.MethodGet, mad.AttrPathRecord, mad.CompPRSGID|mad.CompPRDGID, &rec)
			if err != nil {
				t.Fatal(err)
			}
			var a mad.PathRecord
			if st == mad.StatusOK && a.Decode(b) != nil {
				t.Fatal("no record")
			}
			return st, a.DLID
		}
		if st, _ := ask(); st != mad.StatusSAInvalidGID {
			t.Errorf("without routes: %#x", uint16(st))
		}
		s.SetPrefixRoutes([]guidfile.PrefixRoute{{Router: f.Ports[router].GUID}}, "a test")
		time.Sleep(time.Second)
		x := s.Snapshot().Fabric
		if st, lid := ask(); st != mad.StatusOK || lid != x.Ports[x.EndPortByGUID(f.Ports[router].GUID)].LID {
			t.Errorf("with a route: %#x, LID %v", uint16(st), lid)
		}
		s.SetPrefixRoutes(nil, "a test")
		time.Sleep(time.Second)
		if st, _ := ask(); st != mad.StatusSAInvalidGID {
			t.Errorf("without routes again: %#x", uint16(st))
		}
		synctest.Wait()
	})
}
