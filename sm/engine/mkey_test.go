package engine_test

import (
	"testing"
	"testing/synctest"
	"time"

	"ibnetworkd/ib"
	"ibnetworkd/sm/engine"
	"ibnetworkd/sm/fabric/gen"
	"ibnetworkd/sm/program"
	"ibnetworkd/sm/simfabric"
)

// A manager with another M_Key than the one before, or with none, takes the
// subnet over: at once where the ports show their key, and else when the lease
// has run out.
func TestForeignMKey(t *testing.T) {
	for _, tt := range []struct {
		name    string
		old     uint64
		protect uint8
		new     uint64
		most    time.Duration
	}{
		{"shown, then none", 0x1234, 0, 0, 2 * time.Second},
		{"shown, then another", 0x1234, 0, 0x5678, 2 * time.Second},
		{"the same", 0x1234, 3, 0x1234, 2 * time.Second},
		{"hidden, then none", 0x1234, 1, 0, 5 * time.Minute},
		{"hidden, then another", 0x1234, 1, 0x5678, 5 * time.Minute},
		{"nothing to be read, then another", 0x1234, 2, 0x5678, 10 * time.Minute},
		{"none, then one", 0, 0, 0x5678, 2 * time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := gen.FatTree2(8, 4)
				w := newWorld(t, f, simfabric.Options{})
				defer w.close()
				pol := program.DefaultPolicy()
				pol.MKey, pol.Protect = ib.MKey(tt.old), tt.protect
				if tt.old != 0 {
					pol.MKeyLease = 60
				}
				hosts := hostsOf(f)
				a, stop := w.manager(hosts[1], engine.Config{Policy: pol, SMKey: 7})
				w.settle(hosts[1], a, time.Second)
				stop()
				pol.MKey, pol.Protect, pol.MKeyLease = ib.MKey(tt.new), 1, 60
				if tt.new == 0 {
					pol.Protect, pol.MKeyLease = 0, 0
				}
				// A host that came since would not be served before.
				w.sim.Reboot(f.Nodes[f.Ports[hosts[4]].Node].GUID)
				s, _ := w.manager(hosts[2], engine.Config{Policy: pol})
				t0 := time.Now()
				for {
					synctest.Wait()
					wrong := ""
					for _, e := range f.EndPorts {
						pi, err := w.sim.PortInfo(f.Nodes[f.Ports[e].Node].GUID, f.Ports[e].Num)
						if err != nil || pi.MKey != ib.MKey(tt.new) {
							wrong = w.f.PortName(e)
						}
					}
					if err := w.check(hosts[2], s); wrong == "" && err == nil {
						break
					} else if time.Since(t0) > tt.most {
						t.Fatalf("after %v: key of %s, %v", time.Since(t0), wrong, err)
					}
					time.Sleep(100 * time.Millisecond)
				}
				t.Logf("taken over after %v", time.Since(t0))
			})
		})
	}
}
