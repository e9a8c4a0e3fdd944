package probe

import (
	"testing"
	"testing/synctest"
	"time"

	"ibnetworkd/ib"
	"ibnetworkd/internal/testkit"
	"ibnetworkd/lab/gen"
	"ibnetworkd/lab/simfabric"
)

// Every host is shown the switch and its port at the other end of its cable; a switch
// that does not answer is an error.
func TestRemote(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := gen.FatTree2(4, 4)
		s := simfabric.New(f, simfabric.Options{Seed: 1, DelayMin: time.Microsecond, DelayMax: 20 * time.Microsecond})
		asked := 0
		for _, e := range f.EndPorts {
			p := &f.Ports[e]
			if f.Nodes[p.Node].Type != ib.NodeCA {
				continue
			}
			me, err := s.Open(p.GUID)
			testkit.NoError(t, err)
			far := &f.Ports[p.Peer]
			node := &f.Nodes[far.Node]
			r, err := Remote(t.Context(), me, p.Num)
			if err != nil || r.Node != node.GUID || r.Type != ib.NodeSwitch || r.Port != far.Num || r.Name != node.Desc {
				t.Errorf("%v port %d: %+v, %v; want %s port %d", p.GUID, p.Num, r, err, node.Desc, far.Num)
			}
			if asked++; asked == 1 {
				testkit.NoError(t, s.Mute(node.GUID, true))
				if r, err := Remote(t.Context(), me, p.Num); err == nil {
					t.Errorf("a mute switch: %+v", r)
				}
				testkit.NoError(t, s.Mute(node.GUID, false))
			}
			me.Close()
		}
		if asked < 4 {
			t.Errorf("%d hosts", asked)
		}
	})
}
