package lab_test

import (
	"os"
	"strings"
	"testing"
	"time"

	"ibnetworkd/lab"
)

// mishap runs a Net that must fail, in a process of its own, and looks for what its
// test must say.
func mishap(t *testing.T, n lab.Net, want ...string) {
	t.Helper()
	t.Parallel()
	if lab.InGuest() || os.Getenv(innerVar) != "" {
		lab.RunNet(t, n)
		return
	}
	if testing.Short() {
		t.Skip("boots guests")
	}
	if lab.Sanitizing() {
		t.Skip("with the checkers, a body that fails is too slow at most")
	}
	cmd, _, _ := inner(t)
	out, err := cmd.CombinedOutput()
	if strings.Contains(string(out), "--- SKIP") {
		t.Skipf("no lab here: %s", out)
	}
	if err == nil {
		t.Errorf("passed, but must not")
	}
	if strings.Contains(string(out), "within 1m0s") {
		t.Errorf("somebody waited for his whole minute")
	}
	for _, w := range want {
		if !strings.Contains(string(out), w) {
			t.Errorf("%q is missing", w)
		}
	}
	if t.Failed() {
		t.Logf("%s", out)
	}
}

// A command that the module refuses fails the test with the kernel's sentence, even
// where nothing is done after it.
func TestNetCtlRefused(t *testing.T) {
	mishap(t, lab.Net{
		Cables: []string{"a/1 sw/1"},
		Nodes:  []lab.Node{{Name: "a", Body: func(g *lab.G) { g.Await("x", time.Minute) }}, {Name: "sw", Switch: 8}},
		Script: func(t *testing.T, r *lab.NetRun) {
			r.Ctl("sw", "link s0/1 down")
			r.Ctl("sw", "link s0/1 up")
			r.Ctl("sw", "link s0/99 down")
			r.Post("x", "")
		},
	}, `node sw: fabric control "link s0/99 down": write /sys/kernel/debug/swib/ctl: no such device`)
}

// A command is carried out when Ctl returns.
func TestNetCtlIsDone(t *testing.T) {
	t.Parallel()
	lab.RunNet(t, lab.Net{
		Nodes: []lab.Node{
			{Name: "a", Config: lab.Config{HCAs: 1, Commands: []string{"switch 0 4", "cable h0/1 s0/1"}}, Body: func(g *lab.G) {
				g.Await("down", time.Minute)
				if s := g.FabricPort("hca0", 1)["phys"]; s == "LinkUp" {
					g.Errorf("the port is %s", s)
				}
			}},
			// Its name begins with that of another node.
			{Name: "a-b", Body: func(g *lab.G) { g.Await("down", time.Minute) }},
		},
		Script: func(t *testing.T, r *lab.NetRun) {
			r.Ctl("a", "link h0/1 down")
			r.Ctl("a-b", "switch 0 4")
			r.Post("down", "")
		},
	})
}

func TestNetCtlNobody(t *testing.T) {
	mishap(t, lab.Net{
		Nodes:  []lab.Node{{Name: "a", Body: func(g *lab.G) {}}},
		Script: func(t *testing.T, r *lab.NetRun) { r.Ctl("nonode", "link s0/1 down") },
	}, `node nonode: command "link s0/1 down": there is no such node; the nodes are a`)
}

func TestNetCtlDead(t *testing.T) {
	mishap(t, lab.Net{
		Nodes: []lab.Node{{Name: "a", Body: func(g *lab.G) { select {} }}},
		Script: func(t *testing.T, r *lab.NetRun) {
			r.Kill("a")
			r.Ctl("a", "link h0/1 down")
		},
	}, `node a: command "link h0/1 down": it does not run`)
}

// A body that fails ends the waiting of the script, and of the other bodies.
func TestNetBodyFails(t *testing.T) {
	mishap(t, lab.Net{
		Nodes: []lab.Node{
			{Name: "a", Body: func(g *lab.G) { g.Await("never", time.Minute) }},
			{Name: "b", Body: func(g *lab.G) { g.Fatalf("b cannot go on") }},
		},
		Script: func(t *testing.T, r *lab.NetRun) { r.Await("never", time.Minute) },
	}, `no node posted "never", and node b has failed: mishaps_test.go:`, ": b cannot go on", "TestNetBodyFails-b-", "node b)")
}

// The same without a script, and with a body that panics.
func TestNetBodyPanics(t *testing.T) {
	mishap(t, lab.Net{
		Nodes: []lab.Node{
			{Name: "a", Body: func(g *lab.G) { g.Await("never", time.Minute) }},
			{Name: "b", Body: func(g *lab.G) { panic("b cannot go on") }},
		},
	}, `no node posted "never", and node b has failed`, "panic: b cannot go on", "node a:", "node b:")
}
