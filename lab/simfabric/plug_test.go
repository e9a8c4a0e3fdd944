package simfabric_test

import (
	"context"
	"log/slog"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"ibnetworkd/ib"
	"ibnetworkd/internal/testkit"
	"ibnetworkd/lab/gen"
	"ibnetworkd/lab/simfabric"
	"ibnetworkd/lab/simfabric/wire"
	"ibnetworkd/sm/engine"
	"ibnetworkd/sm/fabric"
)

// half is the part of a fabric with the given nodes.
func half(t *testing.T, f *fabric.Fabric, in func(n int32) bool) *fabric.Fabric {
	t.Helper()
	byName := map[string]int32{}
	for i := range f.Nodes {
		byName[f.Nodes[i].Desc] = int32(i)
	}
	var out strings.Builder
	for block := range strings.SplitSeq(gen.Text(f), "\n\n") {
		keep, text := false, ""
		for l := range strings.Lines(block) {
			// The description is the second quoted word.
			q := strings.Split(l, `"`)
			switch {
			case strings.HasPrefix(l, "Switch"), strings.HasPrefix(l, "Ca"):
				keep = in(byName[q[3]])
			case strings.HasPrefix(l, "[") && len(q) > 3 && !in(byName[q[3]]):
				continue
			}
			text += l
		}
		if keep {
			out.WriteString(text + "\n\n")
		}
	}
	g, err := fabric.ReadText("half", strings.NewReader(out.String()))
	if err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	return g
}

// socketCable joins two ports of two subnets by a pair of datagram sockets, as a
// kernel is.
func socketCable(t *testing.T, a, b *simfabric.Sim, an ib.GUID, ap uint8, bn ib.GUID, bp uint8) {
	t.Helper()
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	testkit.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	t.Cleanup(func() { cancel(); wg.Wait() })
	for i, end := range []struct {
		s *simfabric.Sim
		g ib.GUID
		p uint8
	}{{a, an, ap}, {b, bn, bp}} {
		f := os.NewFile(uintptr(pair[i]), "cable")
		conn, err := net.FileConn(f)
		f.Close()
		testkit.NoError(t, err)
		c := wire.New(uint32(time.Now().UnixNano()) + uint32(i)*2)
		g, err := end.s.Plug(end.g, end.p, c.Send, c.SetReady)
		testkit.NoError(t, err)
		wg.Go(func() {
			if err := c.Run(ctx, conn, g); err != nil {
				t.Error(err)
			}
		})
	}
}

// One subnet, cut into two processes' worth of simulators that are joined by
// cables: a subnet manager finds and programs all of it, packets of both kinds of
// routing pass in both directions, and a cable that is cut and put back is
// noticed at both ends.
func TestPlug(t *testing.T) {
	f := gen.FatTree2(8, 4)
	// The first half of the leaves with their hosts; spines are in the second.
	in := make([]bool, len(f.Nodes))
	leaves := 0
	for i := range f.Nodes {
		first, n := f.PortRange(int32(i))
		hosts := []int32{}
		for p := first; p < first+n; p++ {
			if q := f.Ports[p].Peer; q != fabric.None && f.Nodes[f.Ports[q].Node].Type == ib.NodeCA {
				hosts = append(hosts, f.Ports[q].Node)
			}
		}
		if f.Nodes[i].Type == ib.NodeSwitch && len(hosts) > 0 && leaves < 2 {
			leaves++
			in[i] = true
			for _, h := range hosts {
				in[h] = true
			}
		}
	}
	a := simfabric.New(half(t, f, func(n int32) bool { return in[n] }), simfabric.Options{})
	b := simfabric.New(half(t, f, func(n int32) bool { return !in[n] }), simfabric.Options{})
	t.Cleanup(a.Close)
	t.Cleanup(b.Close)
	var crossing []fabric.Port
	for i := range f.Ports {
		p := f.Ports[i]
		if p.Peer == fabric.None || !in[p.Node] || in[f.Ports[p.Peer].Node] {
			continue
		}
		q := f.Ports[p.Peer]
		crossing = append(crossing, p)
		socketCable(t, a, b, f.Nodes[p.Node].GUID, p.Num, f.Nodes[q.Node].GUID, q.Num)
	}
	if len(crossing) < 2 {
		t.Fatalf("%d cables between the halves", len(crossing))
	}

	var sms []*engine.Subnet
	run := func(s *simfabric.Sim, prio uint8) {
		hosts := s.FindHost("")
		tr, err := s.Open(hosts[0].PortGUID)
		testkit.NoError(t, err)
		sm := engine.New(tr, engine.Config{Log: slog.New(slog.DiscardHandler), Priority: prio})
		sms = append(sms, sm)
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan struct{})
		go func() { defer close(done); _ = sm.Run(ctx) }()
		t.Cleanup(func() { cancel(); <-done })
	}
	wait := func(what string, ok func() bool) {
		t.Helper()
		for end := time.Now().Add(20 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("waited in vain: %s", what)
			}
		}
	}
	state := func(i int) string {
		if x := sms[i].Snapshot(); x != nil {
			return x.State
		}
		return ""
	}
	// A link that comes up between the walk and the end of the first sweep is not
	// what is tested here.
	wait("all cables up", func() bool {
		for _, p := range crossing {
			q := f.Ports[p.Peer]
			x, errA := a.PortInfo(f.Nodes[p.Node].GUID, p.Num)
			y, errB := b.PortInfo(f.Nodes[q.Node].GUID, q.Num)
			if errA != nil || errB != nil || x.PhysState() != ib.PhysLinkUp || y.PhysState() != ib.PhysLinkUp {
				return false
			}
		}
		return true
	})
	run(a, 9)
	wait("all of both halves Active", func() bool {
		x := sms[0].Snapshot()
		return x != nil && x.Fabric != nil && len(x.Fabric.Nodes) == len(f.Nodes) && x.Fabric.Links() == f.Links() && a.AllActive() &&
			b.AllActive()
	})
	// Over the tables of both halves.
	lids := map[ib.GUID]ib.LID{}
	for _, s := range []*simfabric.Sim{a, b} {
		for _, e := range s.EndPorts() {
			lids[e.PortGUID] = e.LID
		}
	}
	if len(lids) != len(f.EndPorts) {
		t.Errorf("%d LIDs, want %d", len(lids), len(f.EndPorts))
	}
	// A second manager in the other half becomes standby; it sends and answers
	// SMInfo through the cables, by LID.
	run(b, 3)
	wait("a standby", func() bool { return state(0) == "Master" && state(1) == "Standby" })

	c := crossing[0]
	node := f.Nodes[c.Node].GUID
	testkit.NoError(t, a.Cut(node, c.Num))
	q := f.Ports[c.Peer]
	wait("the far end to go down", func() bool {
		i, err := b.PortInfo(f.Nodes[q.Node].GUID, q.Num)
		return err == nil && i.State() == ib.PortDown
	})
	wait("the master to see it", func() bool {
		x := sms[0].Snapshot()
		return x != nil && x.Fabric != nil && x.Fabric.Links() == f.Links()-1 && a.AllActive() && b.AllActive()
	})
	testkit.NoError(t, a.Restore(node, c.Num))
	wait("the link again", func() bool {
		x := sms[0].Snapshot()
		return x != nil && x.Fabric != nil && x.Fabric.Links() == f.Links() && a.AllActive() && b.AllActive()
	})
	if n := slices.Max([]uint64{a.Counters().Lost, b.Counters().Lost}); n != 0 {
		t.Errorf("%d packets lost", n)
	}
}

// A cable cannot go into a port that has one, unless the port is an adapter's,
// whose place the outside takes.
func TestPlugPlaces(t *testing.T) {
	f := gen.Star(3, 8)
	s := simfabric.New(f, simfabric.Options{})
	defer s.Close()
	sw := f.Nodes[f.Switches[0].Node].GUID
	var ready []bool
	plug := func(g ib.GUID, num uint8) error {
		_, err := s.Plug(g, num, func(*wire.Packet) {}, func(on bool) { ready = append(ready, on) })
		return err
	}
	for _, tt := range []struct {
		name string
		guid ib.GUID
		num  uint8
		ok   bool
	}{
		{"bad port with a cable", sw, 1, false},
		{"bad port 0", sw, 0, false},
		{"bad node", 1, 1, false},
		{"bad number", sw, 9, false},
		{"OK free port", sw, 8, true},
		{"bad twice", sw, 8, false},
		{"OK in place of a host", gen.HostGUID, 1, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ready = nil
			if err := plug(tt.guid, tt.num); (err == nil) != tt.ok {
				t.Errorf("error %v", err)
			} else if tt.ok != slices.Equal(ready, []bool{true}) {
				t.Errorf("told %v", ready)
			}
		})
	}
	if err := s.Cut(sw, 8); err != nil || !slices.Equal(ready, []bool{true, false}) {
		t.Errorf("after a cut: %v %v", ready, err)
	}
}
