package scenario

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"ibnetworkd/internal/kernel/sysfs"
	"ibnetworkd/internal/testkit"
	"ibnetworkd/lab"
	"ibnetworkd/sm/engine"
	"ibnetworkd/sm/mad"
	"ibnetworkd/sm/transport"
	"ibnetworkd/sm/transport/umad"
)

// A manager that got no processor time for two seconds finds many copies of each
// request in its queue and answers each request once.
func TestSMStarved(t *testing.T) {
	lab.Run(t, lab.Config{Userland: lab.Bare, Bins: smBins}, func(g *lab.G) {
		sm := startSM(g, "swib0")
		g.WaitActive(20 * time.Second)
		tr, err := umad.Open(sysfs.New(""), "swib1", 1)
		testkit.NoError(g, err)
		defer tr.Close()
		port, err := tr.Port()
		testkit.NoError(g, err)
		var before engine.Counters
		g.Wait("the manager to tell", 10*time.Second, func() bool {
			x := smStatus(g, "swib0")
			before = x.Counters
			return x.State == "Master"
		})
		sent := func() (x int) {
			if _, err := fmt.Sscan(g.PortFile("swib1", 1, "counters/port_xmit_packets"), &x); err != nil {
				g.Fatal(err)
			}
			return x
		}
		first := sent()
		// What one host may have waiting at the manager is 128; more is refused.
		const n, wait = 100, 200 * time.Millisecond
		sm.Signal(syscall.SIGSTOP)
		for tid := range uint32(n) {
			h := mad.NewSA(mad.MethodGet, mad.AttrClassPortInfo, tid, 0)
			p := transport.Packet{LID: port.SMLID, QPN: 1, Timeout: wait, Retries: 50}
			p.SetMessage(h.Append(nil), false)
			testkit.NoError(g, tr.Send(&p))
		}
		// On a busy machine ib_mad sends fewer repeats in a time.
		g.Wait("ten copies of each request", time.Minute, func() bool { return sent()-first >= 10*n })
		sm.Signal(syscall.SIGCONT)
		in := make([]transport.Packet, 64)
		for got := 0; got < n; {
			k, err := tr.Recv(t.Context(), in)
			testkit.NoError(g, err)
			for i := range in[:k] {
				if in[i].Err != nil {
					g.Fatal(in[i].Err)
				}
				if mad.MethodOf(&in[i].MAD).IsResponse() {
					got++
				}
			}
		}
		var x engine.Counters
		g.Wait("the counters of now", 10*time.Second, func() bool {
			x = smStatus(g, "swib0").Counters
			return x.SA >= before.SA+n
		})
		answered, repeats := x.SA-before.SA, x.Again-before.Again
		g.Logf("%d requests: %d answered, %d repeats passed over", n, answered, repeats)
		// Retries that are sent while the answers are on their way are answered again.
		if answered > 3*n || repeats < 4*n {
			g.Errorf("%d requests were answered %d times, %d repeats were passed over", n, answered, repeats)
		}
	})
}
