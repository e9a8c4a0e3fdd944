package scenario

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"ibnetworkd/lab"
	"ibnetworkd/lab/gen"
	"ibnetworkd/sm/fabric"
)

// A host among 971 others, simulated around it, sees all of them, and draws them.
func TestTopologyOfMany(t *testing.T) {
	t.Parallel()
	var text bytes.Buffer
	if err := fabric.WriteText(&text, gen.FatTree3(18, 12, 9)); err != nil {
		t.Fatal(err)
	}
	lab.RunNet(t, lab.Net{Fabric: text.String(), Cables: []string{"a/1 H-00001/1"}, Nodes: []lab.Node{
		{Name: "a", Config: lab.Config{Userland: lab.Debian, Bins: []string{ibnetctl}}, Body: func(g *lab.G) {
			g.WaitPort("swib0", 1, "INIT", 20*time.Second)
			begin := time.Now()
			out := g.Exec("bash", "-c", "time ibnetctl --no-bus sm topology --timeout 150s --totals")
			g.Logf("the walk and the totals took %v:\n%s", time.Since(begin).Round(time.Millisecond), out)
			if !strings.Contains(out, "972 adapters, 270 switches, 2916 links") {
				g.Errorf("totals:\n%s", out)
			}
			g.Exec("ibnetctl", "--no-bus", "sm", "topology", "--timeout", "150s", "-o", "/tmp/fabric.svg")
			if s := g.Read("/tmp/fabric.svg"); !strings.Contains(s, "viewBox=") || !strings.Contains(s, "972 hosts, 270 switches, 2916 links") {
				g.Errorf("picture: %.300s", s)
			}
		}},
	}})
}
