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
	"ibnetworkd/sm/mad"
	"ibnetworkd/sm/transport"
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
		testkit.NoError(t, w.sim.PowerOff(node))
		time.Sleep(time.Minute)
		for len(active) > 0 {
			<-active
		}
		testkit.NoError(t, w.sim.PowerOn(node))
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

// Who subscribed to reports of ports gets that of a port even if the manager's own cable is
// out for a moment before the sweep that made the port Active ends.
func TestReportOfNewPortAfterFlap(t *testing.T) {
	inWorld(t, gen.FatTree2(8, 4), simfabric.Options{DelayMin: time.Millisecond, DelayMax: time.Millisecond}, func(t *testing.T, w *world,
		f *fabric.Fabric, hosts []int32) {
		a, _ := w.manager(hosts[0], engine.Config{Window: 1})
		w.settle(hosts[0], a, time.Minute)
		tr, err := w.sim.OpenClient(f.Ports[hosts[1]].GUID, true)
		testkit.NoError(t, err)
		w.stop = append(w.stop, func() { tr.Close() })
		info := &mad.InformInfo{LIDRangeBegin: ib.LIDPermissive, Subscribe: true, Generic: true, Type: 0xffff,
			TrapNumber: mad.TrapGIDInService, Producer: 0xffffff}
		if st, _, err := (&client{t: t, tr: tr}).ask(mad.MethodSet, mad.AttrInformInfo, 0, info); err != nil || st != 0 {
			t.Fatalf("subscription: status %#x, %v", st, err)
		}
		got := make(chan struct{}, 100)
		go func() {
			for in := make([]transport.Packet, 1); ; {
				if _, err := tr.Recv(t.Context(), in); err != nil {
					return
				}
				if mad.MethodOf(&in[0].MAD) == mad.MethodReport {
					mad.SetMethod(&in[0].MAD, mad.MethodReportResp)
					_ = tr.Send(&in[0])
					got <- struct{}{}
				}
			}
		}()
		node := f.Nodes[f.Ports[hosts[2]].Node].GUID
		w.sim.PowerOff(node)
		time.Sleep(time.Minute)
		w.sim.PowerOn(node)
		for {
			if p, err := w.sim.PortInfo(node, 1); err == nil && p.State() == ib.PortArmed {
				break
			}
			time.Sleep(100 * time.Microsecond)
		}
		own := f.Nodes[f.Ports[hosts[0]].Node].GUID
		w.sim.Cut(own, 1)
		time.Sleep(5 * time.Second)
		w.sim.Restore(own, 1)
		time.Sleep(time.Minute)
		if len(got) == 0 {
			t.Error("no report of the port that came")
		}
	})
}
