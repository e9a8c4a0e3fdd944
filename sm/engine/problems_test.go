package engine_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"ibnetworkd/lab/gen"
	"ibnetworkd/lab/simfabric"
	"ibnetworkd/sm/engine"
	"ibnetworkd/sm/fabric"
	"ibnetworkd/sm/mad"
)

// The status has a problem as long as it lasts, whether a walk of everything or of a part
// finds it, or its end; what a walk settles is none.
func TestProblemsEnd(t *testing.T) {
	inWorld(t, gen.FatTree2(8, 4), simfabric.Options{}, func(t *testing.T, w *world, f *fabric.Fabric, hosts []int32) {
		s, _ := w.manager(f.SMPort, engine.Config{Sweep: time.Second})
		expect := func(about, has string) {
			t.Helper()
			time.Sleep(10 * time.Second)
			synctest.Wait()
			shown := strings.Join(s.Refresh().Problems, "\n")
			if has == "" && shown != "" || !strings.Contains(shown, has) {
				t.Errorf("%s: the status has %q, want %q", about, shown, has)
			}
		}
		must := func(err error) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
		}
		expect("at the start", "")

		own, other := &f.Nodes[f.Ports[hosts[9]].Node], &f.Nodes[f.Ports[hosts[12]].Node]
		seen := own.GUID
		replug := func() {
			must(w.sim.Flap(f.Nodes[f.Ports[f.Ports[hosts[9]].Peer].Node].GUID, f.Ports[f.Ports[hosts[9]].Peer].Num))
		}
		must(w.sim.SetNodeInfo(seen, func(ni *mad.NodeInfo) { ni.NodeGUID = other.GUID }))
		replug()
		expect("a GUID twice", "appears twice")
		must(w.sim.SetNodeInfo(own.GUID, func(ni *mad.NodeInfo) { ni.NodeGUID = own.GUID }))
		replug()
		expect("a GUID of its own", "")

		must(w.sim.Mute(own.GUID, true))
		replug()
		expect("a host that does not answer", "its peer does not answer NodeInfo")
		leaf := f.Nodes[f.Ports[f.Ports[hosts[9]].Peer].Node].GUID
		must(w.sim.Mute(leaf, true))
		expect("a switch that does not answer either", "does not answer SwitchInfo")
		expect("a host behind it", "its peer does not answer NodeInfo")
		must(w.sim.Mute(leaf, false))
		must(w.sim.Mute(own.GUID, false))
		time.Sleep(2 * time.Minute) // as long as a retry may take
		expect("a host that answers", "")

		sw := f.Nodes[f.Switches[len(f.Switches)-1].Node].GUID
		must(w.sim.Reboot(sw))
		expect("a switch that was restarted", "")
		must(w.sim.PowerOff(sw))
		expect("a switch that is off", "")
	})
}
