package lab_test

import (
	"testing"

	"ibnetworkd/lab"
)

// A scenario boots a kernel with two adapters at a switch, starts a subnet manager,
// and pings from one host to the other. It is the body of a Test function.
func ExampleRun() {
	testPing := func(t *testing.T) {
		lab.Run(t, lab.Config{Userland: lab.Debian, HCAs: 2}, func(g *lab.G) {
			g.SM(lab.SM{})
			a, b := g.Host("a"), g.Host("b")
			a.Take("ib0", "10.9.0.1/24")
			b.Take("ib1", "10.9.0.2/24")
			a.Ping("10.9.0.2")
		})
	}
	_ = testPing
}
