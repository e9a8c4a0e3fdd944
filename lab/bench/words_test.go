package bench

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"ibnetworkd/lab"
)

// TestWords makes four faults with the same symptom and shows each daemon's own tool's
// report of the link.
func TestWords(t *testing.T) {
	skipUnlessCompare(t)
	list := contestants(t)
	c := config(t)
	c.Bins = append(c.Bins, "ibnetworkd/cmd/ibnetctl")
	lab.Run(t, c, func(g *lab.G) {
		r := newRig(g)
		link := spec{name: "ib1", addr: netip.MustParsePrefix("10.0.1.1/24")}
		child := spec{name: "ib1.8003", parent: "ib1", pkey: 0x8003, addr: netip.MustParsePrefix("10.0.3.1/24")}
		faults := []struct {
			name  string
			make  func()
			specs []spec
			shown string
		}{
			{"no subnet manager", func() { g.LoadSwib("nhca=2") }, []spec{link}, "ib1"},
			{"cable out", func() { g.Ctl("link 1 1 down") }, []spec{link}, "ib1"},
			{"P_Key not granted", func() {
				g.Ctl("link 1 1 up")
				g.SM(lab.SM{Partitions: "Default=0x7fff, ipoib, mtu=5 : ALL=full;\np4=0x0004 : ALL=full;\n"})
			}, []spec{link, child}, "ib1.8003"},
			{"join refused: partition without a broadcast group", func() {},
				[]spec{link, {name: "ib1.8004", parent: "ib1", pkey: 0x8004, addr: child.addr}}, "ib1.8004"},
		}
		words := map[string][]string{}
		for _, f := range faults {
			f.make()
			must(g, settle())
			g.Logf("== %s", f.name)
			for _, c := range list {
				must(g, c.configure(f.specs, true))
				must(g, r.start(c))
				// All have a while to find out what there is to say.
				r.quiesce(c)
				said := c.says(f.shown)
				if c.name == ours.name {
					g.Wait("words of ibnetctl", 10*time.Second, func() bool { said = c.says(f.shown); return said != "" })
				}
				g.Logf("%s says:\n%s", c, said)
				if !slices.Contains(words[c.name], said) {
					words[c.name] = append(words[c.name], said)
				}
				must(g, r.stop(c))
				for _, s := range f.specs {
					if s.parent != "" {
						_, _ = g.Try("ip", "link", "del", s.name)
					}
				}
			}
		}
		// More different answers are better: the ratio is of faults with equal answers.
		n := len(faults)
		for _, c := range list {
			r.table.add(fmt.Sprintf("%d faults: not told apart", n), "", c, cell{value: float64(n - len(words[c.name]))})
		}
		report(g, r)
	})
}
