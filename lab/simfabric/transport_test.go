package simfabric

import (
	"testing"

	"ibnetworkd/internal/testkit"
	"ibnetworkd/lab/gen"
	"ibnetworkd/sm/transport"
	"ibnetworkd/sm/transport/transporttest"
)

func TestTransport(t *testing.T) {
	for name, opt := range map[string]Options{
		"perfect": {},
		"lossy":   {Seed: 3, Loss: 0.01, Duplicate: 0.01, DelayMax: 100_000},
	} {
		t.Run(name, func(t *testing.T) {
			if opt.Loss > 0 && testing.Short() {
				t.Skip("waits for what was lost")
			}
			t.Parallel()
			s := New(gen.Star(2, 36), opt)
			defer s.Close()
			hosts := s.EndPorts()
			at := func(i int) func(*testing.T) transport.Transport {
				return func(t *testing.T) transport.Transport {
					tr, err := s.Open(hosts[i].PortGUID)
					testkit.NoError(t, err)
					return tr
				}
			}
			transporttest.Run(t, transporttest.Config{
				Open: at(0), Peer: at(1), Path: []uint8{1}, NoPath: []uint8{1, 30}, PeerPath: []uint8{1, 2},
				Lossy: opt.Loss > 0,
				Gone: func(t *testing.T) {
					testkit.NoError(t, s.Reboot(hosts[0].NodeGUID))
				},
			})
		})
	}
}
