package scenario

import (
	"slices"
	"strings"
	"testing"
	"time"

	"ibnetworkd/lab"
	"ibnetworkd/lab/gen"
	"ibnetworkd/sm/mad"
)

// walkPart is what of the walk's time, in percent, the same from the administrator may
// take: less than a second where the walk takes the 3.7 s of an idle machine of two cores.
const walkPart = 27

// A host among 971 others, simulated around it, sees all of them, and draws them: by a
// walk before there is a subnet manager, and from the administrator when there is one.
// It finds the port that counts errors.
func TestTopologyOfMany(t *testing.T) {
	t.Parallel()
	const totals = "972 adapters, 270 switches, 2916 links"
	c := lab.Config{Userland: lab.Debian, Bins: []string{ibnetctl, ibnetsm}, Commands: []string{"speed h0/1 4xEDR"}}
	lab.RunNet(t, lab.Net{Fabric: gen.Text(gen.FatTree3(18, 12, 9)), Cables: []string{"a/1 H-00001/1"}, Nodes: []lab.Node{
		{Name: "a", Config: c, Body: func(g *lab.G) {
			g.WaitPort("swib0", 1, "INIT", 20*time.Second)
			topology := func(args ...string) (string, time.Duration) {
				begin := time.Now()
				out, err := g.Try("ibnetctl", append([]string{"--no-bus", "sm", "topology", "--timeout", "150s"}, args...)...)
				took := time.Since(begin)
				if err != nil && !slices.Contains(args, "--bad") {
					g.Errorf("%q: %v", args, err)
				}
				return out, took
			}
			out, took := topology("--totals")
			g.Logf("the walk and the totals took %v:\n%s", took.Round(time.Millisecond), out)
			if !strings.Contains(out, totals) || !strings.Contains(out, "by a walk over directed routes: no subnet manager") {
				g.Errorf("totals:\n%s", out)
			}
			limit := max(time.Second, took*walkPart/100)
			startSM(g, "swib0")
			g.WaitPort("swib0", 1, "ACTIVE", 60*time.Second)
			g.Wait("the manager to serve", 60*time.Second, smIs(g, "swib0", "Master"))
			g.Wait("all links to be Active", 60*time.Second, func() bool {
				out, _ := topology("--totals")
				return strings.Contains(out, "all Active")
			})
			for _, args := range [][]string{{}, {"--totals"}, {"-o", "/tmp/fabric.svg"}} {
				best := time.Hour
				for range 3 {
					if out, took = topology(args...); took < best {
						best = took
					}
				}
				g.Logf("topology %q of 972 hosts takes %v, the best of three", args, best.Round(time.Millisecond))
				if best > limit {
					g.Errorf("%q takes %v, more than %v", args, best, limit)
				}
				if len(args) < 2 && (!strings.Contains(out, totals) || !strings.Contains(out, "Read from the subnet administrator at LID ")) {
					g.Errorf("%q:\n%.2000s", args, out)
				}
			}
			if s := g.Read("/tmp/fabric.svg"); !strings.Contains(s, "viewBox=") || !strings.Contains(s, "972 hosts, 270 switches, 2916 links") {
				g.Errorf("picture: %.300s", s)
			}
			g.Post("served", "yes")
			g.Await("errors", time.Minute)
			out, took = topology("--bad")
			g.Logf("with the counters it took %v:\n%s", took.Round(time.Millisecond), out)
			if !strings.Contains(out, "1 link is not Active, narrow, slow or erroring; error counters of all ") ||
				!strings.Contains(out, "counts at least 65535 symbol errors") {
				g.Errorf("--bad:\n%s", out)
			}
		}},
	}, Script: func(t *testing.T, r *lab.NetRun) {
		r.Await("served", 3*time.Minute)
		sim := r.Fabric()
		if err := sim.SetErrors(sim.FindHost("S-0001")[0].NodeGUID, 3, func(c *mad.PortCounters) { c.SymbolErrors = 0xffff }); err != nil {
			t.Fatal(err)
		}
		r.Post("errors", "set")
	}})
}
