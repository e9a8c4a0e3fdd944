package discover_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"ibnetworkd/ib"
	"ibnetworkd/lab/gen"
	"ibnetworkd/sm/discover"
	"ibnetworkd/sm/fabric"
	"ibnetworkd/sm/mad"
	"ibnetworkd/sm/smp"
)

// wire answers requests out of a fabric, the naive way: it walks the path.
type wire struct {
	f     *fabric.Fabric
	dead  map[int32]bool // nodes that do not answer
	alias map[int32]ib.GUID
	count map[mad.AttrID]int
	seen  map[string]int
	sys   ib.GUID
}

func newWire(f *fabric.Fabric) *wire {
	return &wire{f: f, dead: map[int32]bool{}, alias: map[int32]ib.GUID{}, count: map[mad.AttrID]int{}, seen: map[string]int{}}
}

func (w *wire) answer(r smp.Request) *smp.Reply {
	w.count[r.Attr]++
	rep := &smp.Reply{Request: r}
	at := w.f.SMPort
	for _, out := range r.Path {
		n := w.f.Ports[at].Node
		if w.f.Nodes[n].Switch == fabric.None && at != w.f.SMPort || w.dead[n] {
			rep.Timeout = true
			return rep
		}
		p := w.f.Port(n, out)
		if p == fabric.None || w.f.Ports[p].Peer == fabric.None || w.f.Ports[p].Info.State() < ib.PortInit {
			rep.Timeout = true
			return rep
		}
		at = w.f.Ports[p].Peer
	}
	i := w.f.Ports[at].Node
	if w.dead[i] {
		rep.Timeout = true
		return rep
	}
	n := &w.f.Nodes[i]
	entry := w.f.Ports[at].Num
	w.seen[fmt.Sprintf("%d %x %x %x", r.Method, r.Attr, r.Mod, n.GUID)]++
	var out []byte
	switch r.Attr {
	case mad.AttrNodeInfo:
		g := n.GUID
		if a, ok := w.alias[i]; ok {
			g = a
		}
		ni := mad.NodeInfo{BaseVersion: 1, ClassVersion: 1, NodeType: n.Type, NumPorts: n.NumPorts, SystemImageGUID: w.sys, NodeGUID: g,
			PartitionCap: n.PKeyCap, DeviceID: n.DeviceID, LocalPortNum: entry}
		ni.PortGUID = w.f.Ports[at].GUID
		if n.Switch != fabric.None {
			ni.PortGUID = w.f.Ports[w.f.Port(i, 0)].GUID
		}
		out = ni.Append(nil)
	case mad.AttrNodeDescription:
		d := mad.NewNodeDescription(n.Desc)
		out = d[:]
	case mad.AttrSwitchInfo:
		if n.Switch == fabric.None {
			rep.Status = mad.StatusBadAttr
			return rep
		}
		out = w.f.Switches[n.Switch].Info.Append(nil)
	case mad.AttrPortInfo:
		p := w.f.Port(i, uint8(r.Mod))
		if p == fabric.None {
			rep.Status = mad.StatusInvalidField
			return rep
		}
		out = w.f.Ports[p].Info.Append(nil)
	case mad.AttrPKeyTable:
		out = []byte{0xff, 0xff}
	default:
		rep.Status = mad.StatusBadAttr
	}
	copy(rep.Data[:], out)
	return rep
}

// run pumps a source with a window, answering in random order.
func run(t *testing.T, w *wire, s smp.Source, window int, seed uint64) int {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, 2))
	var fly []smp.Request
	sent := 0
	for {
		for len(fly) < window {
			q, ok := s.Next()
			if !ok {
				break
			}
			if sent++; sent > 5_000_000 {
				t.Fatal("does not end")
			}
			q.Path = append([]uint8(nil), q.Path...)
			fly = append(fly, q)
		}
		if len(fly) == 0 {
			return sent
		}
		k := r.IntN(len(fly))
		q := fly[k]
		fly[k] = fly[len(fly)-1]
		fly = fly[:len(fly)-1]
		rep := w.answer(q)
		if rep.Timeout && r.IntN(2) == 0 {
			s.Late(q.Tag)
		}
		s.Step(rep)
	}
}

func text(f *fabric.Fabric) string {
	// What the walk cannot know: NodeInfo of the fake has no system GUID and vendor.
	var out []string
	for l := range strings.Lines(gen.Text(f)) {
		if !strings.HasPrefix(l, "sysimgguid") && !strings.HasPrefix(l, "vendid") {
			out = append(out, l)
		}
	}
	return strings.Join(out, "")
}

func TestWholeSubnet(t *testing.T) {
	fabrics := map[string]*fabric.Fabric{
		"pair": gen.Pair(), "star": gen.Star(2, 36), "ft2": gen.FatTree2(8, 4), "ft3": gen.FatTree3(4, 2, 2),
		"ring": gen.Ring(5, 2), "torus": gen.Torus([]int{3, 3, 3}, 1), "mesh": gen.Mesh([]int{3, 2}, 2),
	}
	for s := range uint64(40) {
		fabrics[fmt.Sprintf("random%d", s)] = gen.Random(s, 1+int(s%9), int(s%13), 1+int(s%17))
	}
	for name, f := range fabrics {
		for _, window := range []int{1, 4, 1000} {
			d := discover.New(discover.Options{})
			w := newWire(f)
			run(t, w, d, window, uint64(window))
			r := d.Result()
			if len(r.Warnings)+len(r.Silent)+len(r.Duplicates) != 0 {
				t.Fatalf("%s: %v %v %v", name, r.Warnings, r.Silent, r.Duplicates)
			}
			if want, got := text(f), text(reduce(r.Fabric)); name[0] != 'r' || name == "ring" {
				if want != got {
					t.Fatalf("%s window %d:\n%s\nwant\n%s", name, window, got, want)
				}
			} else if r.Fabric.Links() != f.Links() || len(r.Fabric.Nodes) != len(f.Nodes) {
				t.Fatalf("%s window %d: %d links, %d nodes, want %d, %d", name, window, r.Fabric.Links(), len(r.Fabric.Nodes), f.Links(), len(f.Nodes))
			}
			for k, n := range w.seen {
				if n > 1 && !strings.HasPrefix(k, "1 11 ") {
					t.Fatalf("%s window %d: %s was asked %d times", name, window, k, n)
				}
			}
		}
	}
}

// reduce fills in the PortInfo that the walk leaves to the Set: of far ports and
// of the ports 0 of switches without configuration.
func reduce(f *fabric.Fabric) *fabric.Fabric {
	f = f.Clone()
	for i := range f.Ports {
		if p := &f.Ports[i]; !p.Known && p.Peer != fabric.None {
			p.Info, p.Known = f.Ports[p.Peer].Info, true
		}
	}
	return f
}

// Counts of a fat-tree without loops are exact: NodeInfo once per link and
// once for the start, PortInfo once per port less one end of each link between
// switches of the one to the manager and of the ports 0 of new switches, and one each of
// the rest.
func TestCounts(t *testing.T) {
	f := gen.FatTree2(36, 6)
	d := discover.New(discover.Options{})
	w := newWire(f)
	n := run(t, w, d, 4, 1)
	want := map[mad.AttrID]int{mad.AttrNodeInfo: 1 + 216, mad.AttrNodeDescription: 117, mad.AttrSwitchInfo: 9,
		mad.AttrPortInfo: 9*37 + 108 - 108 - 1 - 9}
	sum := 0
	for a, c := range want {
		sum += c
		if w.count[a] != c {
			t.Errorf("%v: %d requests, want %d", mad.AttrName(mad.ClassSubnDR, a), w.count[a], c)
		}
	}
	if n != sum {
		t.Errorf("%d requests, want %d", n, sum)
	}
}

func TestDuplicateGUID(t *testing.T) {
	f := gen.FatTree2(8, 4)
	w := newWire(f)
	// The last spine takes the first one's GUID.
	a, b := f.Switches[len(f.Switches)-2].Node, f.Switches[len(f.Switches)-1].Node
	w.alias[b] = f.Nodes[a].GUID
	d := discover.New(discover.Options{})
	run(t, w, d, 4, 1)
	r := d.Result()
	if len(r.Duplicates) == 0 {
		t.Fatal("no duplicate reported")
	}
	for _, x := range r.Duplicates {
		if x.GUID != f.Nodes[a].GUID || len(x.Path) == 0 || len(x.Other) == 0 || bytes.Equal(x.Path, x.Other) {
			t.Errorf("%v", x)
		}
	}
	if len(r.Fabric.Nodes) != len(f.Nodes)-1 {
		t.Errorf("%d nodes, want all but the duplicate of %d", len(r.Fabric.Nodes), len(f.Nodes))
	}
}

func TestSilentNode(t *testing.T) {
	f := gen.FatTree2(8, 4)
	w := newWire(f)
	w.dead[f.Ports[f.EndPorts[5]].Node] = true
	d := discover.New(discover.Options{})
	run(t, w, d, 4, 1)
	r := d.Result()
	if len(r.Silent) != 1 || !strings.Contains(r.Silent[0], "is up but its peer does not answer NodeInfo") || len(r.SilentAt) != 1 {
		t.Errorf("%v", r.Silent)
	}
	if len(r.Fabric.Nodes) != len(f.Nodes)-1 {
		t.Error("not everything else was found")
	}
}

func setLink(f *fabric.Fabric, p int32, s ib.PortState) {
	for _, q := range []int32{p, f.Ports[p].Peer} {
		f.Ports[q].Info.SetState(s)
	}
}

func active(f *fabric.Fabric) *fabric.Fabric {
	f = f.Clone()
	for i := range f.Ports {
		if p := &f.Ports[i]; p.Peer != fabric.None {
			p.Info.SetState(ib.PortActive)
		}
	}
	for k, p := range f.EndPorts {
		f.Ports[p].Info.SetLID(ib.LID(k + 1))
	}
	return f
}

func TestResume(t *testing.T) {
	for seed := range uint64(60) {
		f := active(gen.Random(seed, 2+int(seed%8), 3+int(seed%9), 8))
		w := newWire(f)
		d := discover.New(discover.Options{})
		run(t, w, d, 8, seed)
		first := d.Result()
		r := rand.New(rand.NewPCG(seed, 9))
		cur, pk := first.Fabric, first.PKeys
		var down []int32
		for range 12 {
			// Cut a random link or bring one back; both ends' switches are suspect.
			var suspects []int32
			suspect := func(p int32) {
				for _, q := range []int32{p, f.Ports[p].Peer} {
					n := f.Ports[q].Node
					if i := cur.NodeByGUID(f.Nodes[n].GUID); i != fabric.None && f.Nodes[n].Switch != fabric.None {
						suspects = append(suspects, i)
					}
				}
			}
			if len(down) > 0 && r.IntN(2) == 0 {
				k := r.IntN(len(down))
				setLink(f, down[k], ib.PortInit)
				suspect(down[k])
				down = append(down[:k], down[k+1:]...)
			} else {
				p := int32(r.IntN(len(f.Ports)))
				if f.Ports[p].Peer == fabric.None || f.Ports[p].Info.State() < ib.PortInit || p == f.SMPort || f.Ports[p].Peer == f.SMPort {
					continue
				}
				setLink(f, p, ib.PortDown)
				suspect(p)
				down = append(down, p)
			}
			d := discover.Resume(discover.Options{}, cur, pk, suspects)
			run(t, w, d, 8, seed)
			res := d.Result()
			full := discover.New(discover.Options{})
			run(t, newWire(f), full, 8, seed)
			want, got := shape(full.Result().Fabric), shape(res.Fabric)
			if want != got {
				t.Fatalf("seed %d: %v\n%s\nwant\n%s", seed, res.Warnings, got, want)
			}
			cur, pk = res.Fabric, res.PKeys
			// The manager arms what came up.
			for i := range f.Ports {
				if p := &f.Ports[i]; p.Info.State() == ib.PortInit {
					p.Info.SetState(ib.PortActive)
				}
			}
			cur = cur.Clone()
			for i := range cur.Ports {
				if p := &cur.Ports[i]; p.Peer != fabric.None {
					p.Info.SetState(ib.PortActive)
				}
			}
		}
	}
}

// shape prints links only.
func shape(f *fabric.Fabric) string {
	var b strings.Builder
	for i := range f.Ports {
		if q := f.Ports[i].Peer; q != fabric.None {
			fmt.Fprintf(&b, "%v[%d]-%v[%d]\n", f.Nodes[f.Ports[i].Node].GUID, f.Ports[i].Num, f.Nodes[f.Ports[q].Node].GUID, f.Ports[q].Num)
		}
	}
	return b.String()
}

// A node that answers a new GUID and an open port at each hop must not keep
// the walk busy for ever.
func TestLyingSwitch(t *testing.T) {
	d := discover.New(discover.Options{MaxNodes: 500})
	next := ib.GUID(1)
	n := 0
	for {
		q, ok := d.Next()
		if !ok {
			break
		}
		if n++; n > 100_000 {
			t.Fatal("does not end")
		}
		rep := &smp.Reply{Request: q}
		switch q.Attr {
		case mad.AttrNodeInfo:
			next++
			ni := mad.NodeInfo{NodeType: ib.NodeSwitch, NumPorts: 36, NodeGUID: next, PortGUID: next, LocalPortNum: uint8(1 + n%36)}
			copy(rep.Data[:], ni.Append(nil))
		case mad.AttrPortInfo:
			rep.Data[32] = byte(ib.PortActive)
			rep.Data[33] = byte(ib.PhysLinkUp) << 4
		}
		d.Step(rep)
	}
	r := d.Result()
	if len(r.Fabric.Nodes) != 500 || len(r.Warnings) == 0 {
		t.Errorf("%d nodes, %v", len(r.Fabric.Nodes), r.Warnings)
	}
}

// Random answers must neither panic nor go on for ever.
func FuzzAnswers(f *testing.F) {
	f.Add([]byte{1, 2, 3}, uint64(1))
	f.Fuzz(func(t *testing.T, in []byte, seed uint64) {
		r := rand.New(rand.NewPCG(seed, uint64(len(in))))
		d := discover.New(discover.Options{MaxNodes: 50})
		w := newWire(gen.Random(seed%64, 3, 4, 5))
		for n := 0; ; n++ {
			q, ok := d.Next()
			if !ok {
				break
			}
			if n > 200_000 {
				t.Fatal("does not end")
			}
			rep := w.answer(q)
			if len(in) > 0 {
				for range r.IntN(4) {
					rep.Data[r.IntN(64)] = in[r.IntN(len(in))]
				}
				rep.Timeout = r.IntN(20) == 0
			}
			d.Step(rep)
		}
		d.Result()
	})
}

// A walk of two switches in a large subnet does not search all of it for parts that hang
// on one link, as long as every node answers in time.
func TestResumeIsCheap(t *testing.T) {
	f := active(gen.FatTree2(64, 32))
	w := newWire(f)
	now := time.Unix(0, 0)
	opt := discover.Options{Now: func() time.Time { now = now.Add(time.Millisecond); return now }}
	d := discover.New(opt)
	run(t, w, d, 8, 1)
	first := d.Result()
	suspects := []int32{first.Fabric.Switches[0].Node, first.Fabric.Switches[1].Node}
	d = discover.Resume(opt, first.Fabric, first.PKeys, suspects)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, ok := d.Next()
	runtime.ReadMemStats(&after)
	// The search takes more than 40 bytes a node.
	if used := after.TotalAlloc - before.TotalAlloc; !ok || used > uint64(20*len(f.Nodes)) {
		t.Errorf("%d nodes: %d bytes, %v", len(f.Nodes), used, ok)
	}
}

// A port that is asked a second time while its answer is late counts as any other that is under way:
// the next switch's turn waits for that of the one before.
func TestAskedTwice(t *testing.T) {
	f := active(gen.FatTree2(8, 4))
	host := f.EndPorts[slices.IndexFunc(f.EndPorts, func(p int32) bool { return f.Ports[p].Peer != fabric.None && p != f.SMPort })]
	w, full := newWire(f), discover.New(discover.Options{Ports: true})
	run(t, w, full, 8, 1)
	known := full.Result().Fabric
	at := f.Ports[f.Ports[host].Peer]
	sw := known.NodeByGUID(f.Nodes[at.Node].GUID)
	var turns []int32
	for i := range known.Switches {
		if n := known.Switches[i].Node; n != sw && len(turns) < 2 {
			turns = append(turns, n)
		}
	}
	d := discover.Resume(discover.Options{}, known, nil, turns)
	setLink(f, f.Ports[host].Peer, ib.PortInit)
	f.Ports[f.Ports[host].Peer].Info.SetPhysState(ib.PhysLinkUp)
	w.dead[f.Ports[host].Node] = true
	next := func(want mad.AttrID) smp.Request {
		t.Helper()
		r, ok := d.Next()
		if !ok || r.Attr != want {
			t.Fatalf("%v %v, want %v", ok, r, want)
		}
		return r
	}
	first := next(mad.AttrSwitchInfo)
	var probes []smp.Request
	for range 2 {
		d.AskPort(sw, at.Num)
		d.Step(w.answer(next(mad.AttrPortInfo)))
		probes = append(probes, next(mad.AttrNodeInfo))
		d.Late(probes[0].Tag)
	}
	for _, r := range probes {
		d.Step(&smp.Reply{Request: r, Timeout: true})
	}
	if r, ok := d.Next(); ok {
		t.Errorf("%v before the answer of the switch whose turn it is", r)
	}
	d.Step(w.answer(first))
	run(t, w, d, 4, 1)
}
