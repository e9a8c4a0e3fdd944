package main

import (
	"os"
	"strings"
	"testing"
	"time"
)

// Two hosts with a cable on one terminal: each prompt is that of a kernel of its
// own, and the link between them trains.
func TestHosts(t *testing.T) {
	x := newSession(t, "-c", "--hosts", "2", "--bin=")
	x.waitFor(10*time.Minute, "the first prompt", func() bool { return x.shows("node1:~# ")() || x.shows("\nended ")() })
	if !x.shows("node1:~# ")() {
		if os.Getenv("IBNET_LAB") == "require" {
			t.Fatal("no prompt")
		}
		t.Skipf("no lab here: %s", x)
	}
	x.enter(t, "opensm -B -f /tmp/log; echo I am $(hostname)")
	x.wait("the answer of node1", x.shows("I am node1"))
	x.enter(t, "\x1d2") // Ctrl-] 2, and Return for the prompt
	x.wait("the second prompt", x.shows("node2:~# "))
	x.enter(t, "until grep -q ACTIVE /sys/class/infiniband/swib0/ports/1/state; do sleep 0.1; done; echo $(hostname) is Active")
	x.wait("the link", x.shows("node2 is Active"))
	x.enter(t, "\x1d\x1d")
	x.enter(t, "echo again $(hostname)")
	x.wait("the first again", x.shows("again node1"))
	if s := x.String(); strings.Count(s, "Ctrl-] q: quit") < 3 {
		t.Error("no line says how to switch")
	}
	x.enter(t, "nano --version | head -1")
	x.wait("an editor", x.shows("GNU nano, version"))
	x.enter(t, "\x1dq")
	x.wait("the end", x.shows("\nended 0"))
	x.wait("no guest", func() bool { return len(left(x.tmp)) == 0 })
}
