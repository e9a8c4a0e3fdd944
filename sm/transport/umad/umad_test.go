package umad_test

import (
	"testing"
	"time"

	"ibnetworkd/internal/kernel/sysfs"
	"ibnetworkd/lab"
	"ibnetworkd/sm/transport"
	"ibnetworkd/sm/transport/transporttest"
	"ibnetworkd/sm/transport/umad"
)

// TestTransport runs the suite on the kernel's own ib_umad, between two
// software adapters at a software switch.
func TestTransport(t *testing.T) {
	lab.Run(t, lab.Config{Userland: lab.Bare, HCAs: 2, Timeout: 3 * time.Minute}, func(g *lab.G) {
		fs := sysfs.New("")
		ports, err := umad.List(fs)
		if err != nil || len(ports) != 2 {
			g.Fatalf("%v, ports %+v", err, ports)
		}
		at := func(i int) func(*testing.T) transport.Transport {
			return func(t *testing.T) transport.Transport {
				tr, err := umad.Open(fs, ports[i].Device, ports[i].Num)
				if err != nil {
					t.Fatal(err)
				}
				return tr
			}
		}
		transporttest.Run(g.T, transporttest.Config{
			Open: at(0), Peer: at(1), Path: []uint8{1}, NoPath: []uint8{1, 30}, PeerPath: []uint8{1, 2}, Flood: 500,
			Gone: func(*testing.T) { g.Ctl("del 0") },
		})
	})
}
