package fabric_test

import (
	"testing"

	"ibnetworkd/ib"
	"ibnetworkd/lab/gen"
	"ibnetworkd/sm/fabric"
)

func TestHealth(t *testing.T) {
	type end struct{ width, widths, speed, speeds byte }
	ok := end{2, 3, 2, 3}
	for _, tc := range []struct {
		name string
		a, b end
		st   ib.PortState
		want fabric.Fault
	}{
		{"right", ok, ok, ib.PortActive, 0},
		{"one end says no support", end{1, 0, 1, 0}, ok, ib.PortActive, fabric.Behind},
		{"narrow", end{1, 3, 2, 3}, end{1, 3, 2, 3}, ib.PortActive, fabric.Narrow},
		{"slow", end{2, 3, 1, 3}, end{2, 3, 1, 3}, ib.PortActive, fabric.Slow},
		{"both", end{1, 3, 1, 3}, end{1, 3, 1, 3}, ib.PortActive, fabric.Narrow | fabric.Slow},
		{"an older adapter", end{2, 3, 1, 1}, end{2, 3, 1, 3}, ib.PortActive, fabric.Behind},
		{"the other end says less", ok, end{2, 0, 1, 0}, ib.PortActive, fabric.Behind},
		{"not active", ok, ok, ib.PortInit, fabric.NotActive},
	} {
		f := gen.Star(8, 8).Clone()
		set := func(p *fabric.Port, e end, st ib.PortState) {
			p.Known = true
			p.Info.SetWidths(3, e.widths, e.width)
			p.Info.SetSpeeds(0, 0, 1)
			p.Info.SetSpeedsExt(0, e.speeds, e.speed)
			p.Info.SetState(st)
		}
		first := fabric.None
		for i := range f.Ports {
			if q := f.Ports[i].Peer; q != fabric.None {
				set(&f.Ports[i], ok, ib.PortActive)
				if first == fabric.None {
					first = int32(i)
				}
			}
		}
		set(&f.Ports[first], tc.a, tc.st)
		set(&f.Ports[f.Ports[first].Peer], tc.b, ib.PortActive)
		h := f.Health()
		got, why := h.Link(first)
		if got != tc.want || (why == "") != (got == 0) {
			t.Errorf("%s: %b (%s), want %b", tc.name, got, why, tc.want)
		}
		for i := range f.Ports {
			if got, why := h.Link(int32(i)); got != 0 && int32(i) != first && int32(i) != f.Ports[first].Peer {
				t.Errorf("%s: port %d: %s", tc.name, i, why)
			}
		}
	}
	// An empty port has no fault, one that does not train has.
	f := gen.Star(1, 4).Clone()
	for i := range f.Ports {
		f.Ports[i].Known = true
		f.Ports[i].Info.SetPhysState(ib.PhysPolling)
	}
	p := f.Port(f.Switches[0].Node, 4)
	if got, _ := f.Health().Link(p); got != 0 {
		t.Errorf("an empty port: %b", got)
	}
	f.Ports[p].Info.SetPhysState(ib.PhysTraining)
	if got, why := f.Health().Link(p); got != fabric.Down {
		t.Errorf("training: %b %s", got, why)
	}
}
