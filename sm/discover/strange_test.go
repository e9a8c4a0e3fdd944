package discover

import (
	"testing"

	"ibnetworkd/ib"
)

// Two switches that are alike are one only if no cable says otherwise: a device that shows
// itself as an honest switch, with its NodeInfo and a host behind the same port, has its own
// cable somewhere.
func TestSameCables(t *testing.T) {
	for _, tt := range []struct {
		name        string
		here, there map[int]int32 // peers by port
		down        []int         // ports of there
		want        bool
	}{
		{"one switch over two uplinks", map[int]int32{7: 1, 1: 5}, map[int]int32{8: 2}, nil, true},
		{"one port leads to two places", map[int]int32{7: 1, 1: 5}, map[int]int32{7: 2}, nil, false},
		{"its cable is at a port that is down there", map[int]int32{7: 1}, map[int]int32{8: 2}, []int{7}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var d Discovery
			for _, peers := range []map[int]int32{tt.here, tt.there} {
				n := dnode{ports: makePorts(9)}
				for p, peer := range peers {
					n.ports.at(p).peer = peer
				}
				d.nodes = append(d.nodes, n)
			}
			for _, p := range tt.down {
				q := d.nodes[1].ports.at(p)
				q.known = true
				q.info.SetState(ib.PortDown)
			}
			if got, back := d.sameCables(0, 1), d.sameCables(1, 0); got != tt.want || back != tt.want {
				t.Errorf("%v, %v", got, back)
			}
		})
	}
}
