package main

import (
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"ibnetworkd/ib"
	"ibnetworkd/internal/testkit"
	"ibnetworkd/lab/gen"
	"ibnetworkd/sm/fabric"
	"ibnetworkd/sm/mad"
	"ibnetworkd/smctl"
	"ibnetworkd/smctl/probe"
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

// viewOf is a view of a fabric of which no counters were read.
func viewOf(f *fabric.Fabric) *view {
	return &view{Found: &probe.Found{Fabric: f, SA: 1}, bad: badLinks(f, nil)}
}

// countersOf are counters of all ports with a link but those of S-0003, which did not
// answer.
func countersOf(f *fabric.Fabric, c map[*fabric.Port]mad.PortCounters) *probe.Counters {
	out := &probe.Counters{Ports: map[int32]probe.PortCounters{}}
	for i := range f.Ports {
		switch p := &f.Ports[i]; {
		case p.Peer == fabric.None:
		case f.Nodes[p.Node].Desc == "S-0003":
			out.Silent = append(out.Silent, int32(i))
		default:
			out.Ports[int32(i)] = probe.PortCounters{PortCounters: c[p], Received: 1 << 33, Sent: 12345}
		}
	}
	return out
}

// A counter is a fault above its threshold only, and one that has stopped says so; no
// two links share their errors.
func TestCountedErrors(t *testing.T) {
	for want, c := range map[string]mad.PortCounters{
		"": {SymbolErrors: 10, LinkErrorRecovery: 10, LinkDowned: 10, RcvErrors: 10, RcvRemotePhysErr: 100, RcvSwitchRelayErr: 60000,
			XmitDiscards: 100, XmitConstraintErr: 100, RcvConstraintErr: 100, LocalLinkIntegrity: 10, BufferOverruns: 10, VL15Dropped: 100,
			XmitWait: 1 << 31},
		"11 symbol errors":                                          {SymbolErrors: 11},
		"at least 65535 discarded packets":                          {XmitDiscards: 0xffff},
		"at least 255 losses of the link, 12 link integrity errors": {LinkDowned: 255, LocalLinkIntegrity: 12},
		"at least 15 buffer overruns":                               {BufferOverruns: 15},
	} {
		if got := strings.Join(portErrors(&c), ", "); got != want {
			t.Errorf("%+v: %q, want %q", c, got, want)
		}
	}
	f := activeFabric(gen.Pair())
	bad := badLinks(f, countersOf(f, map[*fabric.Port]mad.PortCounters{&f.Ports[0]: {RcvErrors: 11}, &f.Ports[1]: {RcvErrors: 12}}))
	if len(bad) != 1 || !strings.Contains(bad[0].why, "11 receive errors") || !strings.Contains(bad[0].why, "12 receive errors") {
		t.Errorf("%+v", bad)
	}
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
	found := &probe.Found{Fabric: f, Managers: sms, Warnings: []string{"no answer from behind S-0001[7]"}, SA: 1}
	walked := *found
	walked.SA, walked.Why = 0, "the subnet administrator at LID 1 does not answer"
	counters := countersOf(f, map[*fabric.Port]mad.PortCounters{
		link("H-00002", 1): {SymbolErrors: 0xffff, LinkDowned: 12}, link("S-0002", 2): {RcvErrors: 400, XmitDiscards: 100}})
	for name, o := range map[string]topologyOptions{"all": {}, "bad": {bad: true}, "walk": {walk: true, totals: true},
		"match": {match: "h-0000[2]*"}, "totals": {totals: true}} {
		onTerminals(t, "topology-"+name, func(width int) string {
			var b bytes.Buffer
			a := &app{out: &b, err: &b, tty: [2]io.Writer{&b, &b}, width: width}
			v := &view{Found: found}
			if o.bad {
				v.counters = counters
			}
			if o.walk {
				v.Found = &walked
			}
			v.bad = badLinks(f, v.counters)
			err := a.showTopology(o, v)
			if (err != nil) != o.bad || o.bad && exitCode(err) != exitFailure {
				t.Errorf("%s: %v", name, err)
			}
			return b.String()
		})
	}
}

func TestTopologyFiles(t *testing.T) {
	dir := t.TempDir()
	for name, begin := range map[string]string{"x.svg": "<svg ", "x.dot": "graph subnet {", "x.txt": "2 adapters"} {
		o := topologyOptions{file: filepath.Join(dir, name)}
		testkit.NoError(t, o.check(false))
		var b bytes.Buffer
		testkit.NoError(t, (&app{out: &b, err: io.Discard}).showTopology(o, viewOf(activeFabric(gen.Pair()))))
		text, err := os.ReadFile(o.file)
		if err != nil || !strings.HasPrefix(string(text), begin) || b.Len() > 0 {
			t.Errorf("%s: %v, %.60q, and printed %q", name, err, text, b.String())
		}
	}
	for _, o := range []topologyOptions{{svg: true, dot: true}, {bad: true, file: "a.svg"}, {match: "x", svg: true}, {match: "["},
		{svg: true, file: "a.dot"}, {dot: true, file: "a.svg"}, {file: "a.PNG"}} {
		if err := o.check(false); exitCode(err) != exitUsage {
			t.Errorf("%+v: %v", o, err)
		}
	}
}

// A link with only one known end counts with the state of that end.
func TestTotalsOfLinksWithAnUnknownEnd(t *testing.T) {
	f := activeFabric(gen.Pair())
	for i := range f.Ports {
		if p := &f.Ports[i]; p.Peer > int32(i) {
			p.Known, p.Info = false, mad.PortInfo{}
		}
	}
	var b bytes.Buffer
	a := &app{out: &b, err: io.Discard}
	a.totals(viewOf(f))
	if !strings.HasPrefix(b.String(), "2 adapters, 0 switches, 1 link, all Active") {
		t.Error(b.String())
	}
}

// A lack of permissions has its own exit status, also without the daemon.
func TestDenied(t *testing.T) {
	denied := &fs.PathError{Op: "open", Path: "/dev/infiniband/umad0", Err: syscall.EACCES}
	for _, err := range []error{denied, fmt.Errorf("swib0/1: %w", denied), &exitError{exitFailure, denied}} {
		if exitCode(err) != exitDenied {
			t.Errorf("%v: %d", err, exitCode(err))
		}
	}
	if c := exitCode(&exitError{exitNoSuch, denied}); c != exitNoSuch {
		t.Error(c)
	}
}

// What is printed of 972 hosts takes well below the time of the walk.
func TestTopologySpeed(t *testing.T) {
	f := activeFabric(gen.FatTree3(18, 12, 9))
	for _, o := range []topologyOptions{{}, {svg: true}, {dot: true}, {bad: true}} {
		begin := time.Now()
		testkit.NoError(t, (&app{out: io.Discard, err: io.Discard, width: 160}).showTopology(o, viewOf(f)))
		took := time.Since(begin)
		t.Logf("%+v: %v", o, took)
		if took > 5*time.Second {
			t.Errorf("%+v took %v", o, took)
		}
	}
}

// A far node's description does not command the terminal, whatever it prints to.
func TestTopologyIsClean(t *testing.T) {
	b := fabric.NewBuilder()
	for g := range ib.GUID(2) {
		if _, err := b.AddNode(fabric.Node{GUID: 1 + g, Type: ib.NodeCA, NumPorts: 1, Desc: "evil\x1b[2J\x1b[8m\x9b31m\nnode"}); err != nil {
			t.Fatal(err)
		}
	}
	testkit.NoError(t, b.Link(0, 1, 1, 1))
	b.SetSM(0, 1)
	var out bytes.Buffer
	a := &app{out: &out}
	a.printTopology(topologyOptions{}, &view{Found: &probe.Found{Fabric: b.Build()}})
	if s := out.String(); strings.ContainsAny(s, "\x1b\x07") || strings.Contains(s, "\x9b") || strings.Contains(s, "\nnode") ||
		!strings.Contains(s, "evil?[2J") {
		t.Errorf("%q", s)
	}
}
