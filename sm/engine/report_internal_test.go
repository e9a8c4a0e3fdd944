package engine

import (
	"math/rand/v2"
	"testing"

	"ibnetworkd/ib"
	"ibnetworkd/sm/sa"
)

// Whatever the outcomes are, no report is lost or counted twice, and the bounds hold.
func TestReports(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	for range 200 {
		q, tid, added, ended := newReports(), uint32(0), 0, 0
		dead := r.IntN(30)
		step := func(add bool) {
			if add {
				if q.add(&sa.Report{LID: ib.LID(1 + r.IntN(40))}) {
					added++
				}
			}
			for len(q.open) < reportsOpen {
				x := q.next()
				if x == nil {
					break
				}
				w := x.wait[0]
				x.wait = x.wait[1:]
				q.n--
				tid++
				q.sent(tid, x, w, 0)
			}
			silent, waiting := 0, 0
			for _, o := range q.open {
				if o.silent {
					silent++
				}
			}
			for _, x := range q.to {
				waiting += len(x.wait)
				if x.open > reportsEach || x.open > 1 && !x.answered && !x.silent {
					t.Fatalf("%d reports are under way to one subscriber", x.open)
				}
			}
			if silent != q.silent || silent > reportsSilent || waiting != q.n || added != ended+waiting+len(q.open) {
				t.Fatalf("%d of %d open are to silent ones, counted as %d; %d wait, counted as %d; %d added, %d ended", silent, len(q.open),
					q.silent, waiting, q.n, added, ended)
			}
		}
		one := func() {
			for id, o := range q.open {
				if answered := int(o.to.at.lid) > dead; answered {
					q.ended(id, true, 4)
					ended++
				} else {
					ended += q.ended(id, false, 4)
				}
				return
			}
		}
		for range 3000 {
			step(r.IntN(2) == 0)
			if r.IntN(2) == 0 {
				one()
			}
		}
		for len(q.open) > 0 {
			one()
			step(false)
		}
		if q.n > 0 || ended != added {
			t.Fatalf("%d reports wait at the end; %d of %d ended", q.n, ended, added)
		}
	}
}
