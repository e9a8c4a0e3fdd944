package engine_test

import (
	"testing"
	"testing/synctest"
	"time"

	"ibnetworkd/ib"
	"ibnetworkd/lab/gen"
	"ibnetworkd/lab/simfabric"
	"ibnetworkd/sm/engine"
	"ibnetworkd/sm/mad"
)

// The first request of a host that comes is answered, even if the host sends it in
// the moment in which its port becomes Active: IPoIB joins the broadcast group then,
// and the kernel repeats a request that is not answered after 300 ms, older ones
// after 3 s.
func TestRequestOfNewPort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := gen.FatTree2(8, 4)
		hosts := hostsOf(f)
		guid := f.Ports[hosts[2]].GUID
		active := make(chan struct{}, 1)
		w := newWorld(t, f, simfabric.Options{DelayMin: time.Millisecond, DelayMax: time.Millisecond, Reregister: func(g ib.GUID) {
			if g == guid {
				select {
				case active <- struct{}{}:
				default:
				}
			}
		}})
		defer w.close()
		// One SMP at a time: the sweep goes on for a while after the port is Active.
		a, _ := w.manager(hosts[0], engine.Config{Window: 1})
		w.settle(hosts[0], a, time.Minute)
		node := f.Nodes[f.Ports[hosts[2]].Node].GUID
		if err := w.sim.PowerOff(node); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		for len(active) > 0 {
			<-active
		}
		if err := w.sim.PowerOn(node); err != nil {
			t.Fatal(err)
		}
		<-active
		c := w.client(t, hosts[2])
		st, _, err := c.ask(mad.MethodSet, mad.AttrMCMemberRecord, mad.CompMCMGID|mad.CompMCPortGID|mad.CompMCJoinState|
			mad.CompMCQKey|mad.CompMCPKey|mad.CompMCSL|mad.CompMCFlowLabel|mad.CompMCTClass,
			&mad.MCMemberRecord{MGID: ib.GID{0xff, 0x12, 15: 1}, PortGID: ib.MakeGID(f.Prefix, guid), JoinState: mad.JoinFull,
				QKey: 0xb1b, PKey: ib.DefaultPKey})
		if err != nil || st != mad.StatusOK {
			t.Errorf("join: status %#x, %v", uint16(st), err)
		}
	})
}
