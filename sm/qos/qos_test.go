package qos_test

import (
	"testing"

	"ibnetworkd/ib"
	"ibnetworkd/internal/testkit"
	"ibnetworkd/lab/gen"
	"ibnetworkd/sm/fabric"
	"ibnetworkd/sm/mad"
	"ibnetworkd/sm/program"
	"ibnetworkd/sm/qos"
)

func setVLCap(f *fabric.Fabric, port int32, code uint8) {
	p := &f.Ports[port]
	p.Info.SetVLCap(code)
	p.Info.SetVLArbCaps(8, 8)
}

func TestLanes(t *testing.T) {
	for code, want := range map[uint8]int{0: 0, 1: 1, 2: 2, 3: 4, 4: 8, 5: 15, 6: 0} {
		if n := qos.VLs(code); n != want {
			t.Errorf("code %d: %d lanes, want %d", code, n, want)
		}
		if want > 0 && qos.Code(want) != code {
			t.Errorf("%d lanes: code %d, want %d", want, qos.Code(want), code)
		}
	}
	if qos.Code(3) != 2 || qos.Code(14) != 4 || qos.Code(0) != 1 {
		t.Error("codes round down")
	}
}

func TestTables(t *testing.T) {
	f := gen.Ring(5, 1).Clone()
	for i := range f.Ports {
		setVLCap(f, int32(i), 4)
	}
	slow := f.EndPorts[0]
	setVLCap(f, slow, 2)
	tab, err := qos.Build(f, 2, qos.Options{Weights: [16]uint8{0: 10, 9: 20}, High: [16]bool{3: true}})
	testkit.NoError(t, err)
	peer := f.Ports[slow].Peer
	if tab.OperVLs(peer) != 2 || tab.OperVLs(slow) != 2 {
		t.Errorf("both ends of a link must agree: %d and %d", tab.OperVLs(slow), tab.OperVLs(peer))
	}
	if m := tab.SLtoVL(peer); m[0] != 0 || m[1] != 1 || m[2] != 0 || m[15] != 1 {
		t.Errorf("two lanes: %v", m)
	}
	if b := tab.VLArb(peer, 1); b[0].VL != 0 || b[0].Weight != 10 || b[1].VL != 1 || b[1].Weight != 20 || b[2].Weight != 0 {
		t.Errorf("low: %v", b[:3])
	}
	if b := tab.VLArb(peer, 3); b[0].VL != 1 || b[0].Weight != 1 || b[1].Weight != 0 {
		t.Errorf("high: %v", b[:2])
	}
	for _, block := range []uint8{0, 2, 4, 5} {
		if b := tab.VLArb(peer, block); b[0].Weight != 0 {
			t.Errorf("block %d: %v", block, b[0])
		}
	}
	var inner int32
	for i := range f.Ports {
		p := &f.Ports[i]
		if p.Peer != fabric.None && f.Nodes[p.Node].Switch != fabric.None && f.Nodes[f.Ports[p.Peer].Node].Switch != fabric.None {
			inner = int32(i)
		}
	}
	m := tab.SLtoVL(inner)
	for sl := range 8 {
		if m[sl] != ib.VL(sl) {
			t.Errorf("eight lanes: SL %d on lane %d", sl, m[sl])
		}
	}
	setVLCap(f, inner, 1)
	if _, err := qos.Build(f, 2, qos.Options{}); err == nil {
		t.Error("a link with one lane under a routing of two layers: no error")
	} else {
		t.Log(err)
	}
	if tab, _ = qos.Build(f, 1, qos.Options{MaxVLs: 3}); tab.OperVLs(f.EndPorts[1]) != 2 {
		t.Errorf("at most 3 lanes: code %d", tab.OperVLs(f.EndPorts[1]))
	}
}

// Every linked port gets its tables once: of a switch one for each port that
// packets come in by.
func TestRequests(t *testing.T) {
	f := gen.Ring(5, 1).Clone()
	for i := range f.Ports {
		setVLCap(f, int32(i), 4)
		f.Ports[i].Info.SetCapMask(f.Ports[i].Info.CapMask() | mad.CapSLMapping)
	}
	setVLCap(f, f.EndPorts[1], 1)
	tab, err := qos.Build(f, 2, qos.Options{})
	testkit.NoError(t, err)
	type key struct {
		port uint64
		attr mad.AttrID
		mod  uint32
	}
	seen := map[key]bool{}
	slvl := map[uint64]int{}
	for _, r := range program.QoS(f, tab, unwritten(f)) {
		k := key{r.Tag, r.Attr, r.Mod}
		if seen[k] {
			t.Errorf("%+v comes twice", k)
		}
		seen[k] = true
		if r.Method != mad.MethodSet {
			t.Errorf("method %v", r.Method)
		}
		if r.Attr == mad.AttrSLtoVL {
			slvl[r.Tag]++
			if lanes := tab.OperVLs(int32(r.Tag)) > 1; lanes && (r.Data[0] != 0x01 || r.Data[1] != 0x23) || !lanes && r.Data != [64]byte{} {
				t.Errorf("SL to VL of %s: % x", f.PortName(int32(r.Tag)), r.Data[:8])
			}
		}
	}
	for i := range f.Ports {
		p := &f.Ports[i]
		want := 0
		if p.Peer != fabric.None && p.Num != 0 {
			want = 1
			if n := &f.Nodes[p.Node]; n.Switch != fabric.None {
				want = 3 // from the two other links and port 0
			}
		}
		if slvl[uint64(i)] != want {
			t.Errorf("%s: %d SL-to-VL tables, want %d", f.PortName(int32(i)), slvl[uint64(i)], want)
		}
	}
	had := unwritten(f)
	had.Wrote(f, tab, program.QoS(f, tab, had))
	if rs := program.QoS(f, tab, had); len(rs) != 0 {
		t.Errorf("%d requests for ports whose tables are written", len(rs))
	}
}

func unwritten(f *fabric.Fabric) *program.Lanes {
	return &program.Lanes{VLs: make([]uint8, len(f.Ports)), In: make([]bool, len(f.Ports))}
}

// Links with different numbers of lanes agree on the layer that a level is in, as far as
// both give it the lane of one: otherwise a group of that level joins two layers to one,
// which may have a cycle.
func TestLayerOfLevel(t *testing.T) {
	f := gen.Ring(5, 1).Clone()
	var links []int32
	for i := range f.Ports {
		if p := &f.Ports[i]; p.Peer > int32(i) && f.Nodes[p.Node].Switch != fabric.None && f.Nodes[f.Ports[p.Peer].Node].Switch != fabric.None {
			links = append(links, int32(i))
		}
	}
	lanes := map[int]mad.SLtoVL{}
	for i, code := range []uint8{2, 3, 4, 5} {
		setVLCap(f, links[i], code)
		setVLCap(f, f.Ports[links[i]].Peer, 5)
	}
	tab, err := qos.Build(f, 1, qos.Options{})
	testkit.NoError(t, err)
	for _, l := range links[:4] {
		n := qos.VLs(tab.OperVLs(l))
		lanes[n] = tab.SLtoVL(l)
		for sl, vl := range lanes[n] {
			if int(vl) >= n || sl < n && int(vl) != sl {
				t.Errorf("%d lanes: level %d on lane %d", n, sl, vl)
			}
		}
	}
	for a, ma := range lanes {
		for b, mb := range lanes {
			for layers := 2; layers <= min(8, a, b); layers++ {
				for sl := range 16 {
					if x, y := int(ma[sl]), int(mb[sl]); x < layers && y < layers && x != y {
						t.Errorf("%d layers: level %d is in layer %d on a link of %d lanes, in %d on one of %d", layers, sl, x, a, y, b)
					}
				}
			}
		}
	}
}
