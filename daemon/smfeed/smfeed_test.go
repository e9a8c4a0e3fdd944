package smfeed

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"testing/fstest"
	"testing/synctest"
	"time"

	"ibnetworkd/daemon"
	"ibnetworkd/ib"
	"ibnetworkd/link"
	"ibnetworkd/smctl"
	"ibnetworkd/smctl/worker"
	"ibnetworkd/units"
)

const unit = "[Match]\nName=ib0\n[SubnetManager]\nManage=auto\nPriority=7\nPartitionsFile=/etc/p.conf\n"

func load(texts ...string) *units.Set {
	fs := fstest.MapFS{}
	for i, text := range texts {
		fs[string(rune('1'+i))+".ibnetwork"] = &fstest.MapFile{Data: []byte(text), Mode: 0o644}
	}
	return units.Load([]units.Root{{Path: "/etc/systemd/network", FS: fs}})
}

// view is what a daemon finds on a host with an InfiniBand port with a link and a
// RoCE port.
func view(set *units.Set, alter func(*link.Snapshot)) daemon.View {
	s := &link.Snapshot{
		Devices: []link.Device{
			{Name: "mlx5_0", Ports: []link.Port{{Num: 1, GUID: 0x10, Layer: ib.LinkLayerInfiniBand, State: ib.PortInit,
				LID: 3, SMLID: 1, CapMask: portIsSM}}},
			{Name: "mlx5_1", Ports: []link.Port{{Num: 1, GUID: 0x11, Layer: ib.LinkLayerEthernet, State: ib.PortActive},
				{Num: 2, Layer: ib.LinkLayerInfiniBand}}},
		},
		Links: []link.Link{{Index: 2, Name: "ib0", Type: link.ARPHRDInfiniBand, Kind: "ipoib", IPoIB: &link.IPoIB{PKey: 0xffff},
			IBDevice: "mlx5_0", Port: 1}},
	}
	if alter != nil {
		alter(s)
	}
	g := link.Governing{Links: map[int]link.Governed{}}
	for i := range s.Links {
		g.Links[s.Links[i].Index] = link.Govern(s, set, &s.Links[i])
	}
	rec := &link.Record{Ports: []link.PortRecord{{GUID: 0x10, Unit: "1.ibnetwork"}}}
	g.Ports = link.GovernPorts(s, set, g.Links, rec)
	return daemon.View{Snapshot: s, Units: set, Governing: g}
}

func TestPorts(t *testing.T) {
	got := Ports(view(load(unit), nil))
	if len(got) != 2 || got[0].IBDev != "mlx5_0" || !got[0].IsSM || got[0].LID != 3 || got[0].SMLID != 1 || !got[0].Present ||
		got[0].State != ib.PortInit {
		t.Fatalf("ports %+v", got)
	}
	if p := got[0].Policy; p.Manage == smctl.ManageNo || p.Priority != 7 || p.Unit != "/etc/systemd/network/1.ibnetwork" {
		t.Errorf("policy %+v", p)
	}
	if p := got[1].Policy; got[1].GUID != 0x11 || p.Manage != smctl.ManageNo {
		t.Errorf("the Ethernet port has %+v", got[1])
	}
	// Its interface is in another network namespace: it stays with its unit.
	away := Ports(view(load(unit), func(s *link.Snapshot) { s.Links = nil }))
	if away[0].Policy != got[0].Policy {
		t.Errorf("without its interface: %+v", away[0].Policy)
	}
	// What the kernel and the firmware say of a port bars subnet managers from it,
	// whatever its unit says.
	for _, tt := range []struct {
		protocol string
		mask     uint64
		want     smctl.Bar
	}{{"ib", portIsSM, smctl.BarNone}, {"ib", portIsSM | 1<<10, smctl.BarSMDisabled}, {"opa", portIsSM, smctl.BarOmniPath}} {
		barred := Ports(view(load(unit), func(s *link.Snapshot) {
			s.Devices[0].Protocol, s.Devices[0].Ports[0].CapMask = tt.protocol, tt.mask
		}))
		if barred[0].Barred != tt.want || barred[0].Policy.Manage != smctl.ManageAuto {
			t.Errorf("protocol %s, capabilities %#x: bar %d, %v", tt.protocol, tt.mask, barred[0].Barred, barred[0].Policy.Manage)
		}
	}
	if none := Ports(view(load("[Match]\nName=ib9\n"), nil)); none[0].Policy.Manage != smctl.ManageNo {
		t.Errorf("without a unit: %+v", none[0].Policy)
	}
}

// The controller gets what has changed; the ports are read again while a unit asks
// for a subnet manager.
func TestFeed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got [][]worker.Port
		var looks atomic.Int32
		f := New(func(p []worker.Port) { got = append(got, p) }, func() { looks.Add(1) })
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- f.Run(ctx) }()
		ethernet := func(s *link.Snapshot) {
			s.Links, s.Devices = nil, s.Devices[1:]
			s.Devices[0].Ports = s.Devices[0].Ports[:1]
		}
		for _, step := range []struct {
			name    string
			view    daemon.View
			updates int // since the last step
			ports   int
			looks   int // within a minute
		}{
			{"nothing observed", daemon.View{}, 0, 0, 0},
			{"Ethernet alone", view(load(unit), ethernet), 1, 0, 0},
			{"no unit", view(load(), nil), 1, 2, 0},
			{"the same", view(load(), nil), 0, 2, 0},
			{"a unit", view(load(unit), nil), 1, 2, 6},
			{"the same again", view(load(unit), nil), 0, 2, 6},
			{"another state", view(load(unit), func(s *link.Snapshot) { s.Devices[0].Ports[0].State = ib.PortActive }), 1, 2, 6},
			{"the port turns Ethernet", view(load(unit), func(s *link.Snapshot) {
				s.Links, s.Devices[0].Ports[0].Layer = nil, ib.LinkLayerEthernet
			}), 1, 2, 0},
		} {
			before := len(got)
			f.Update(step.view)
			looks.Store(0)
			time.Sleep(time.Minute)
			synctest.Wait()
			if len(got)-before != step.updates || len(got) > 0 && len(got[len(got)-1]) != step.ports || int(looks.Load()) != step.looks {
				t.Errorf("%s: %d updates of %v, %d looks", step.name, len(got)-before, got[max(0, len(got)-1):], looks.Load())
			}
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// What is known of the managers is in the next snapshot; the last one is not changed.
func TestManagers(t *testing.T) {
	m := &Managers{}
	set := load(unit)
	const path = "/etc/systemd/network/1.ibnetwork"
	master := []smctl.Status{{PortGUID: ib.GUID(0x10).String(), Phase: smctl.PhaseMaster, Unit: path,
		Engine: "builtin"}, {PortGUID: "bad"}}
	for _, step := range []struct {
		name    string
		changed bool
		want    bool
	}{
		{"units alone", m.SetUnits(set), false}, {"the same units", m.SetUnits(set), false},
		{"a master", m.SetStates(master), true}, {"the same states", m.SetStates(master), false},
		{"no file", m.SetUnits(load("[Match]\nName=ib0\n[SubnetManager]\nManage=auto\n")), true}, {"the file again", m.SetUnits(set), true},
	} {
		if step.changed != step.want {
			t.Errorf("%s: changed %v", step.name, step.changed)
		}
	}
	before := view(set, nil).Snapshot
	devices := slices.Clone(before.Devices)
	after := *before
	m.Complete(&after)
	if got := after.Devices[0].Ports[0].Manager; got != (link.Manager{Ours: true, Unit: path, Builtin: true, File: "/etc/p.conf"}) {
		t.Errorf("%+v", got)
	}
	if devices[0].Ports[0].Manager != (link.Manager{}) {
		t.Error("the devices of the last snapshot have changed")
	}
}
