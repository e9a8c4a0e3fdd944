package main

import (
	"bytes"
	"flag"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"ibnetworkd/internal/testkit"
	"ibnetworkd/sm/control"
	"ibnetworkd/sm/fabric"
)

// rigTools builds the rig, or skips where a foreign program is missing.
func rigTools(t *testing.T, programs ...string) *tools {
	t.Helper()
	for _, p := range append(programs, "gcc") {
		if _, err := exec.LookPath(p); err != nil {
			t.Skipf("%s is not installed (packages opensm, infiniband-diags, ibutils, ibsim-utils, gcc)", p)
		}
	}
	r, err := prepare()
	testkit.NoError(t, err)
	return r
}

var long = flag.Bool("long", false, "run the checks that wait for leases and timeouts too (make test-sm-long)")

// slow are the checks that wait for leases and timeouts or ask 100,000 times.
var slow = regexp.MustCompile(`^osmtest-(v|a|s|m3|m4|f\d|all)$`)

// TestConformance runs osmtest, infiniband-diags and ibutils, unmodified,
// against opensm and against ibnetsm on our simulator. What opensm passes there
// shows that the simulator is faithful; ibnetsm must pass all of it.
func TestConformance(t *testing.T) {
	r := rigTools(t, "opensm", "osmtest", "saquery", "ibdiagnet")
	// The first of infiniband-diags' scripts makes it, and of two at once one fails.
	testkit.NoError(t, os.MkdirAll("/var/cache/infiniband-diags", 0o700))
	for _, sm := range []string{"opensm", "ibnetsm"} {
		t.Run(sm, func(t *testing.T) {
			t.Parallel()
			only := regexp.MustCompile("")
			if !*long {
				var l []string
				for _, c := range checks {
					if !slow.MatchString(c.name) {
						l = append(l, "^"+regexp.QuoteMeta(c.name)+"$")
					}
				}
				only = regexp.MustCompile(join(l))
			}
			got, err := conform(r, "ibnetsim", sm, only)
			testkit.NoError(t, err)
			if len(got) == 0 {
				t.Fatal("no check ran")
			}
			for _, v := range got {
				if !v.Pass {
					t.Errorf("%s:\n%s", v.Name, tail([]byte(v.Output), 3000))
				}
			}
		})
	}
}

func join(l []string) string {
	var b bytes.Buffer
	for i, s := range l {
		if i > 0 {
			b.WriteByte('|')
		}
		b.WriteString(s)
	}
	return b.String()
}

// opensmSMPs is what opensm 3.3.23 sends on the reference simulator, by "up -sim
// ibsim" of this command: the first sweep and a resweep with nothing changed.
// They are exact.
var opensmSMPs = map[string][2]int{
	"b2b":     {18, 8},
	"sw2":     {75, 53},
	"ft2-108": {3314, 1433},
	"ft2-648": {20360, 8588},
}

// TestSMPCounts compares the number of SMPs with opensm's: SMPs are the cost on
// real wires, and their number does not depend on the machine.
func TestSMPCounts(t *testing.T) {
	r := rigTools(t)
	for name, ref := range opensmSMPs {
		s, err := upOnce(r, options{sim: "ibnetsim"}, "ibnetsm", name)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		f, _ := fabricByName(name)
		t.Logf("%s: first sweep %d (opensm %d), resweep %d (opensm %d): %s", name, s.Total, ref[0], s.Resweep, ref[1], byAttribute(s.SMPs))
		if limit := 55; s.Total*100 > ref[0]*limit && name != "sw2" {
			t.Errorf("%s: %d SMPs of opensm's %d", name, s.Total, ref[0])
		}
		// One switch with 34 empty ports: each must be asked once where the
		// switch has no table of port states, and port 0 whether it has one.
		if name == "sw2" && s.Total > 55 {
			t.Errorf("%s: %d SMPs", name, s.Total)
		}
		// The first one reads ports without a link again.
		dark := 0
		for i := range f.Ports {
			if p := &f.Ports[i]; p.Num != 0 && p.Peer == fabric.None && f.Nodes[p.Node].Switch != fabric.None {
				dark++
			}
		}
		if s.Resweep != len(f.Switches)+dark {
			t.Errorf("%s: a resweep of %d SMPs on %d switches with %d ports without a link", name, s.Resweep, len(f.Switches), dark)
		}
	}
}

// TestEvents bounds ibnetsm's reactions with a margin for a loaded machine.
func TestEvents(t *testing.T) {
	r := rigTools(t)
	o := options{sim: "ibnetsim", runs: 1, sms: []string{"ibnetsm"}, names: []string{"ft2-16"}, only: regexp.MustCompile("")}
	got, err := benchEvents(r, o)
	testkit.NoError(t, err)
	limits := map[string]time.Duration{
		"cut": time.Second, "back": time.Second, "flaps": time.Second, "kill": 1500 * time.Millisecond, "stop": time.Second,
		"link": 3 * time.Second, "join": 3 * time.Second, "join-gap": time.Second,
	}
	for _, s := range got {
		t.Logf("%s: %v", s.Event, s.Took)
		if s.Took > limits[s.Event] {
			t.Errorf("%s took %v, limit %v", s.Event, s.Took, limits[s.Event])
		}
	}
	for e := range limits {
		if !slices.ContainsFunc(got, func(s eventSample) bool { return s.Event == e }) {
			t.Errorf("%s was not measured", e)
		}
	}
}

// ibnetsm prints the subnet as ibnetdiscover finds it, line for line.
func TestTopology(t *testing.T) {
	tl := rigTools(t, "ibnetdiscover")
	for _, name := range []string{"ft2-16", "b2b", "ring-8"} {
		r, err := tl.start("ibnetsim", name)
		testkit.NoError(t, err)
		defer r.stop()
		sock := r.dir + "/socket"
		m, err := r.run("ibnetsm", "H-00001", 5, true, "--socket="+sock)
		testkit.NoError(t, err)
		if _, err := m.waitUp(1, time.Minute); err != nil {
			t.Fatal(err)
		}
		var ours bytes.Buffer
		testkit.NoError(t, control.Ask(t.Context(), sock, control.AskTopology, &ours))
		cmd := exec.CommandContext(t.Context(), "ibnetdiscover")
		if cmd.Env, err = r.env("H-00002", true); err != nil {
			t.Fatal(err)
		}
		theirs, err := cmd.Output()
		testkit.NoError(t, err)
		lines := func(b []byte) (l []string) {
			for s := range strings.Lines(string(b)) {
				if !strings.HasPrefix(s, "#") {
					l = append(l, s)
				}
			}
			slices.Sort(l)
			return l
		}
		if d := cmp.Diff(lines(theirs), lines(ours.Bytes())); d != "" {
			t.Errorf("%s (-ibnetdiscover +ibnetsm):\n%s", name, d)
		}
	}
}
