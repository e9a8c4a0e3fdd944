package probe

import (
	"testing"
	"testing/synctest"
	"time"

	"ibnetworkd/internal/testkit"
	"ibnetworkd/lab/gen"
	"ibnetworkd/sm/mad"
)

// The counters of every port with a link are read; a node that does not answer is
// reported with all its ports, and does not delay the others.
func TestReadCounters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := gen.FatTree2(8, 4)
		s, me, end := managed(t, f)
		defer end()
		sw := &f.Nodes[f.Switches[0].Node]
		testkit.NoError(t, s.SetErrors(sw.GUID, 3, func(c *mad.PortCounters) { c.SymbolErrors, c.LinkDowned = 500, 255 }))
		mute := &f.Nodes[f.Switches[1].Node]
		got, err := Topology(t.Context(), me, false)
		testkit.NoError(t, err)
		worth := func(c *mad.PortCounters) bool { return c.SymbolErrors > 0 }
		c, err := ReadCounters(t.Context(), me, got.Fabric, worth)
		if err != nil || len(c.Ports) != 2*f.Links() || len(c.Silent) != 0 {
			t.Fatalf("%d ports answered, %d not, %v", len(c.Ports), len(c.Silent), err)
		}
		bad := got.Fabric.Port(got.Fabric.NodeByGUID(sw.GUID), 3)
		for i, p := range c.Ports {
			if (p.SymbolErrors == 500 && p.LinkDowned == 255) != (i == bad) {
				t.Errorf("port %s: %+v", got.Fabric.PortName(i), p)
			}
		}
		testkit.NoError(t, s.Mute(mute.GUID, true))
		begin := time.Now()
		c, err = ReadCounters(t.Context(), me, got.Fabric, worth)
		if took := time.Since(begin); err != nil || took > CountersTime {
			t.Errorf("%v after %v", err, took)
		}
		if len(c.Ports)+len(c.Silent) != 2*f.Links() || len(c.Silent) != int(mute.NumPorts) {
			t.Errorf("%d ports answered, %d not", len(c.Ports), len(c.Silent))
		}
		for _, i := range c.Silent {
			if got.Fabric.Nodes[got.Fabric.Ports[i].Node].GUID != mute.GUID {
				t.Errorf("port %s was not read", got.Fabric.PortName(i))
			}
		}
	})
}

// Before a subnet manager has given LIDs no counter can be read, and nothing is sent.
func TestReadCountersWithoutLIDs(t *testing.T) {
	f := gen.Star(3, 8)
	c, err := ReadCounters(t.Context(), nil, f, func(*mad.PortCounters) bool { return true })
	if err != nil || len(c.Ports) != 0 || len(c.Silent) != 6 {
		t.Errorf("%+v, %v", c, err)
	}
}
