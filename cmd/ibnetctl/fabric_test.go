package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"ibnetworkd/ib"
	"ibnetworkd/lab/gen"
	"ibnetworkd/sm/fabric"
	"ibnetworkd/smctl"
)

// activeFabric has all links Active: four lanes of 25 Gb/s, of which both ends
// support so many.
func activeFabric(f *fabric.Fabric) *fabric.Fabric {
	f = f.Clone()
	for i := range f.Ports {
		if f.Ports[i].Peer != fabric.None {
			train(&f.Ports[i], ib.PortActive, 2, 2)
		}
	}
	return f
}

// train sets state, width and extended speed of a port, as bits of PortInfo.
func train(p *fabric.Port, st ib.PortState, width, speed byte) {
	p.Known = true
	p.Info.SetWidths(3, 3, width)
	p.Info.SetSpeeds(7, 7, 4)
	p.Info.SetSpeedsExt(3, 3, speed)
	p.Info.SetState(st)
	p.Info.SetPhysState(ib.PhysLinkUp)
}

func TestTopologyScreens(t *testing.T) {
	f := activeFabric(gen.FatTree2(8, 2))
	link := func(node string, num uint8) *fabric.Port {
		for i := range f.Nodes {
			if f.Nodes[i].Desc == node {
				return &f.Ports[f.Port(int32(i), num)]
			}
		}
		t.Fatalf("no node %s", node)
		return nil
	}
	train(link("H-00002", 1), ib.PortActive, 1, 2) // narrow
	train(link("H-00003", 1), ib.PortActive, 2, 1) // slow
	train(link("H-00004", 1), ib.PortInit, 2, 2)
	p := link("S-0003", 3)
	f.Ports[p.Peer].Peer, f.Ports[p.Peer].Known = fabric.None, false
	p.Peer = fabric.None // cut, with a cable that does not train
	p.Info.SetPhysState(ib.PhysTraining)
	slow := link("H-00005", 1) // an adapter that can do no more
	train(slow, ib.PortActive, 2, 1)
	slow.Info.SetSpeedsExt(1, 1, 1)
	f.Ports[slow.Peer].Info.SetSpeedsExt(3, 3, 1)
	sms := []smctl.SMInfo{{GUID: f.Ports[f.EndPorts[0]].GUID, LID: 1, Priority: 3, State: 3}}
	for name, o := range map[string]topologyOptions{"all": {}, "bad": {bad: true}, "match": {match: "h-0000[2]*"}, "totals": {totals: true}} {
		for _, width := range []int{80, 160} {
			var b bytes.Buffer
			a := &app{out: &b, err: &b, tty: [2]io.Writer{&b, &b}, width: width}
			err := a.showTopology(o, f, sms, []string{"no answer from behind S-0001[7]"})
			if (err != nil) != o.bad || o.bad && exitCode(err) != exitFailure {
				t.Errorf("%s: %v", name, err)
			}
			golden := filepath.Join("testdata/screens", fmt.Sprintf("topology-%s-%d.txt", name, width))
			if *update {
				if err := os.WriteFile(golden, b.Bytes(), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil || !bytes.Equal(want, b.Bytes()) {
				t.Errorf("%s at %d columns is not %s (go test ./cmd/ibnetctl -run Screens -update): %v\n%s", name, width, golden, err, b.String())
			}
			for l := range strings.Lines(b.String()) {
				if n := visible(strings.TrimRight(l, "\n")); n > width {
					t.Errorf("%s at %d columns: a line of %d:\n%s", name, width, n, l)
				}
			}
		}
	}
}

func TestTopologyFiles(t *testing.T) {
	dir := t.TempDir()
	for name, begin := range map[string]string{"x.svg": "<svg ", "x.dot": "graph subnet {", "x.txt": "2 adapters"} {
		o := topologyOptions{file: filepath.Join(dir, name)}
		if err := o.check(false); err != nil {
			t.Fatal(err)
		}
		var b bytes.Buffer
		if err := (&app{out: &b, err: io.Discard}).showTopology(o, activeFabric(gen.Pair()), nil, nil); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(o.file)
		if err != nil || !strings.HasPrefix(string(text), begin) || b.Len() > 0 {
			t.Errorf("%s: %v, %.60q, and printed %q", name, err, text, b.String())
		}
	}
	for _, o := range []topologyOptions{{svg: true, dot: true}, {bad: true, file: "a.svg"}, {match: "x", svg: true}, {match: "["}} {
		if err := o.check(false); exitCode(err) != exitUsage {
			t.Errorf("%+v: %v", o, err)
		}
	}
}

// What is printed of 972 hosts takes well below the time of the walk.
func TestTopologySpeed(t *testing.T) {
	f := activeFabric(gen.FatTree3(18, 12, 9))
	for _, o := range []topologyOptions{{}, {svg: true}, {dot: true}, {bad: true}} {
		begin := time.Now()
		if err := (&app{out: io.Discard, err: io.Discard, width: 160}).showTopology(o, f, nil, nil); err != nil {
			t.Fatal(err)
		}
		t.Logf("%+v: %v", o, time.Since(begin))
	}
}
