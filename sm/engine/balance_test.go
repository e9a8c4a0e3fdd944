package engine_test

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"ibnetworkd/internal/testkit"
	"ibnetworkd/lab/gen"
	"ibnetworkd/lab/simfabric"
	"ibnetworkd/sm/engine"
	"ibnetworkd/sm/fabric"
	"ibnetworkd/sm/guidfile"
	"ibnetworkd/sm/route"
)

// A rack that goes off leaves a tree a tree, and a cable between switches that
// goes changes few forwarding tables; when most cables of a spine go the log
// says that the routes are worse.
func TestRackOff(t *testing.T) {
	inWorld(t, gen.FatTree3(12, 4, 6), simfabric.Options{}, func(t *testing.T, w *world, f *fabric.Fabric, _ []int32) {
		var log testkit.Buffer
		s, _ := w.manager(f.SMPort, engine.Config{Log: slog.New(slog.NewTextHandler(&log, nil))})
		time.Sleep(5 * time.Second)
		for _, e := range f.EndPorts {
			if sw, out := f.SwitchOf(e); sw == 9 && out != 0 {
				testkit.NoError(t, w.sim.PowerOff(f.Nodes[f.Ports[e].Node].GUID))
			}
		}
		time.Sleep(30 * time.Second)
		synctest.Wait()
		if x := s.Snapshot(); x.Routing != "ftree" || strings.Contains(log.String(), "less balanced") {
			t.Errorf("with a rack off: %s\n%s", x.Routing, log.String())
		}
		first, count := f.PortRange(f.Switches[0].Node)
		left := 0
		for p := first + 1; p < first+count; p++ {
			q := f.Ports[p].Peer
			if q == fabric.None || f.Nodes[f.Ports[q].Node].Switch == fabric.None {
				continue
			}
			if left++; left == 1 {
				continue
			}
			testkit.NoError(t, w.sim.Cut(f.Nodes[f.Ports[p].Node].GUID, f.Ports[p].Num))
			time.Sleep(10 * time.Second)
		}
		synctest.Wait()
		if out := log.String(); strings.Contains(out, "less balanced") {
			t.Errorf("a leaf with one cable left has no better routes, yet the log says that they are worse:\n%s", out)
		}
	})
}

// A cable between two leaves takes ftree away, and its end gives it back: the log has both
// engines and the reason, which the status shows for as long as it holds.
func TestEngineChange(t *testing.T) {
	f := gen.FatTree2(8, 4).Clone()
	var ends []int32 // a port for a host on each of two leaves
	for _, e := range f.EndPorts {
		s, out := f.SwitchOf(e)
		if e != f.SMPort && out != 0 && (len(ends) == 0 || len(ends) == 1 && f.Ports[ends[0]].Node != f.Switches[s].Node) {
			ends = append(ends, f.Ports[e].Peer)
		}
	}
	for _, p := range ends {
		f.Ports[f.Ports[p].Peer].Peer = fabric.None
	}
	f.Ports[ends[0]].Peer, f.Ports[ends[1]].Peer = ends[1], ends[0]
	inWorld(t, f, simfabric.Options{}, func(t *testing.T, w *world, f *fabric.Fabric, hosts []int32) {
		leaf := f.Ports[ends[0]]
		set := func(up bool) {
			change := w.sim.Cut
			if up {
				change = w.sim.Restore
			}
			testkit.NoError(t, change(f.Nodes[leaf.Node].GUID, leaf.Num))
			time.Sleep(20 * time.Second)
			synctest.Wait()
		}
		set(false)
		var log testkit.Buffer
		s, _ := w.manager(f.SMPort, engine.Config{Log: slog.New(slog.NewTextHandler(&log, nil))})
		time.Sleep(5 * time.Second)
		for _, c := range []struct {
			up     bool
			engine string
			line   string // in the log, none if empty
		}{
			{false, route.FatTree, ""},
			{true, route.UpDown, `routing=updn routing_before=ftree`},
			{false, route.FatTree, `routing=ftree routing_before=updn`},
		} {
			from := len(log.String())
			set(c.up)
			if c.up {
				host := hosts[len(hosts)-1]
				testkit.NoError(t, w.sim.PowerOff(f.Nodes[f.Ports[host].Node].GUID))
				time.Sleep(20 * time.Second) // another sweep computes again
			}
			x, said := s.Snapshot(), log.String()[from:]
			if x.Routing != c.engine || strings.Contains(said, "engine changed") != (c.line != "") ||
				!strings.Contains(said, c.line) || c.up != (x.WhyNotTree != "") || c.up != strings.Contains(said, "why_not_ftree=") {
				t.Errorf("%+v: %s, %q; log:\n%s", c, x.Routing, x.WhyNotTree, said)
			}
		}
	})
}

// Hints for routes are applied while a manager runs, and taken back.
func TestSetRoute(t *testing.T) {
	inWorld(t, gen.FatTree2(8, 4), simfabric.Options{}, func(t *testing.T, w *world, f *fabric.Fabric, _ []int32) {
		s, _ := w.manager(f.SMPort, engine.Config{})
		time.Sleep(2 * time.Second)
		spine := fabric.None
		for i := range f.Switches {
			if !slices.ContainsFunc(hostsOf(f), func(h int32) bool { sw, _ := f.SwitchOf(h); return sw == int32(i) }) {
				spine = f.Switches[i].Node
				break
			}
		}
		guid := f.Nodes[spine].GUID
		if w.passes(t, s.Snapshot(), guid) == 0 {
			t.Fatal("nothing passes the spine at first")
		}
		var heavy []guidfile.Weight
		first, count := f.PortRange(spine)
		for p := first + 1; p < first+count; p++ {
			if q := f.Ports[p].Peer; q != fabric.None {
				heavy = append(heavy, guidfile.Weight{Switch: f.Nodes[f.Ports[q].Node].GUID, Port: f.Ports[q].Num, Hops: 9})
			}
		}
		s.SetRoute(route.Options{HopWeights: heavy}, "a test")
		time.Sleep(2 * time.Second)
		if n := w.passes(t, s.Snapshot(), guid); n > 0 {
			t.Errorf("%d paths pass a spine with heavy links", n)
		}
		s.SetRoute(route.Options{}, "a test")
		time.Sleep(2 * time.Second)
		if w.passes(t, s.Snapshot(), guid) == 0 {
			t.Error("nothing passes the spine again")
		}
		synctest.Wait()
	})
}

// A first sweep reads one end of each link: that is the speed for routes and the rate of
// paths from the first tables on.
func TestColdStartKnowsLinks(t *testing.T) {
	slow := gen.Slow(gen.FatTree2(18, 9), func(s int) bool { return s < 9 }, 12, 1)
	inWorld(t, slow, simfabric.Options{}, func(t *testing.T, w *world, f *fabric.Fabric, hosts []int32) {
		s, _ := w.manager(f.SMPort, engine.Config{Sweep: -1})
		synctest.Wait()
		x := s.Snapshot()
		r, err := route.Build(x.Fabric, route.Options{})
		testkit.NoError(t, err)
		even, err := route.Build(gen.LIDs(gen.FatTree2(18, 9), 0), route.Options{})
		testkit.NoError(t, err)
		if got := route.Measure(x.Fabric, w.tables(t, x)).Worst; got > r.Worst || x.Sweeps != 1 {
			t.Errorf("%v flows on the busiest link after %d sweeps, want %v (%v with even links)", got, x.Sweeps, r.Worst, even.Worst)
		}
	})
}

// First tables that are far from what the cabling allows are a warning with the figures and
// the reason; the status has the figures of any.
func TestFirstTablesFarFromBest(t *testing.T) {
	tree := gen.FatTree2(12, 6)
	var one []guidfile.Weight // all ways but those over one spine are long
	for s := range tree.Switches {
		for num := uint8(8); num <= 12; num++ {
			one = append(one, guidfile.Weight{Switch: tree.Nodes[tree.Switches[s].Node].GUID, Port: num, Hops: 9})
		}
	}
	for _, c := range []struct {
		name string
		f    *fabric.Fabric
		cfg  engine.Config
		warn string
	}{
		{"tree", gen.FatTree2(12, 6), engine.Config{}, ""},
		{"torus", gen.Torus([]int{5, 5}, 2), engine.Config{}, ""},
		{"ring", gen.Ring(24, 4), engine.Config{}, ""},
		{"weights", tree, engine.Config{Route: route.Options{HopWeights: one}}, "routing=ftree"},
	} {
		inWorld(t, c.f, simfabric.Options{}, func(t *testing.T, w *world, f *fabric.Fabric, _ []int32) {
			var log testkit.Buffer
			c.cfg.Log, c.cfg.Sweep = slog.New(slog.NewTextHandler(&log, nil)), -1
			s, _ := w.manager(f.SMPort, c.cfg)
			synctest.Wait()
			x := s.Snapshot()
			_, warned, _ := strings.Cut(log.String(), "far less balanced")
			warned, _, _ = strings.Cut(warned, "\n")
			figures := fmt.Sprintf("busiest_link_flows=%v at_best=%v", x.BusiestLink, x.AtBest)
			if x.BusiestLink == 0 || x.BusiestLink < x.AtBest || (warned != "") != (c.warn != "") ||
				c.warn != "" && (!strings.Contains(warned, c.warn) || !strings.Contains(warned, figures)) {
				t.Errorf("%s: %s, %s:\n%s", c.name, x.Routing, figures, log.String())
			}
		})
	}
}

// When the engine leaves ftree or dor and the busiest link gets busier, beside what the
// cabling allows, the log warns of it with both figures, however little that is.
func TestEngineLeft(t *testing.T) {
	// A cable between two leaves in the place of a host on each.
	tree := gen.FatTree3(8, 4, 4)
	var at [2]int32
	for i, sw := range []int{4, 0} {
		first, count := tree.PortRange(tree.Switches[sw].Node)
		for p := first + count - 1; p > first; p-- {
			if q := tree.Ports[p].Peer; q != fabric.None && tree.Nodes[tree.Ports[q].Node].Switch == fabric.None && q != tree.SMPort {
				at[i], tree.Ports[q].Peer = p, fabric.None
				break
			}
		}
	}
	tree.Ports[at[0]].Peer, tree.Ports[at[1]].Peer = at[1], at[0]
	for _, c := range []struct {
		was   string
		f     *fabric.Fabric
		port  int32
		added bool
	}{
		{route.FatTree, tree, at[0], true},
		{route.DOR, gen.Torus([]int{6, 6}, 2), fabric.None, false},
	} {
		inWorld(t, c.f, simfabric.Options{}, func(t *testing.T, w *world, f *fabric.Fabric, _ []int32) {
			if !c.added {
				c.port, _ = f.PortRange(f.Switches[7].Node)
				c.port++
			}
			node, num := f.Nodes[f.Ports[c.port].Node].GUID, f.Ports[c.port].Num
			must := func(err error) {
				testkit.NoError(t, err)
			}
			if c.added {
				must(w.sim.Cut(node, num))
			}
			var log testkit.Buffer
			s, _ := w.manager(f.SMPort, engine.Config{Log: slog.New(slog.NewTextHandler(&log, nil))})
			time.Sleep(5 * time.Second)
			x := s.Snapshot()
			if c.added {
				must(w.sim.Restore(node, num))
			} else {
				must(w.sim.Cut(node, num))
			}
			time.Sleep(20 * time.Second)
			synctest.Wait()
			y := s.Snapshot()
			was, is := x.BusiestLink/x.AtBest, y.BusiestLink/y.AtBest
			if x.Routing != c.was || y.Routing == c.was || is <= was || is > 2*was {
				t.Fatalf("%s with %v of %v, then %s with %v of %v: not the case that is meant", x.Routing, x.BusiestLink, x.AtBest,
					y.Routing, y.BusiestLink, y.AtBest)
			}
			want := fmt.Sprintf("level=WARN msg=\"routes are less balanced than before\" ibdev=sim0 port=1 busiest_link_flows=%v "+
				"at_best=%v before=%v",
				y.BusiestLink, y.AtBest, x.BusiestLink)
			if !strings.Contains(log.String(), want) {
				t.Errorf("%s: the log lacks %s:\n%s", c.was, want, log.String())
			}
		})
	}
}
