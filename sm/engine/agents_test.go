package engine_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"ibnetworkd/lab/gen"
	"ibnetworkd/lab/simfabric"
	"ibnetworkd/sm/engine"
	"ibnetworkd/sm/mad"
	"ibnetworkd/sm/transport"
)

// agents is a transport that keeps back requests as linux does since 2025
// (drivers/infiniband/core/mad.c, mad_is_for_backlog): those of an agent that has most
// without an outcome wait for their turn, and their time-outs begin when they are sent.
type agents struct {
	transport.Transport
	mu     sync.Mutex
	class  mad.Class
	open   map[uint64]int // by transaction identifier: the agent
	count  []int
	queue  [][]transport.Packet
	most   int
	queued int
}

// newAgents makes n agents; 0 keep nothing back.
func newAgents(n, most int) *agents {
	return &agents{class: mad.ClassSubnDR, open: map[uint64]int{}, count: make([]int, n), queue: make([][]transport.Packet, n), most: most}
}

func (a *agents) between(tr transport.Transport) transport.Transport {
	a.Transport = tr
	if len(a.count) == 0 {
		return tr
	}
	return a
}

func (a *agents) Send(p *transport.Packet) error {
	if mad.ClassOf(&p.MAD) != a.class || p.Timeout == 0 {
		return a.Transport.Send(p)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	n := 0
	for i := range a.count {
		if a.count[i]+len(a.queue[i]) < a.count[n]+len(a.queue[n]) {
			n = i
		}
	}
	a.open[mad.TIDOf(&p.MAD)&0xffffffff] = n
	if a.count[n] >= a.most {
		a.queued++
		a.queue[n] = append(a.queue[n], *p)
		return nil
	}
	a.count[n]++
	return a.Transport.Send(p)
}

func (a *agents) Recv(ctx context.Context, into []transport.Packet) (int, error) {
	n, err := a.Transport.Recv(ctx, into)
	a.done(into[:n])
	return n, err
}

func (a *agents) done(l []transport.Packet) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for i := range l {
		n, ok := a.open[mad.TIDOf(&l[i].MAD)&0xffffffff]
		if !ok || mad.ClassOf(&l[i].MAD) != a.class {
			continue
		}
		delete(a.open, mad.TIDOf(&l[i].MAD)&0xffffffff)
		if len(a.queue[n]) == 0 {
			a.count[n]--
			continue
		}
		_ = a.Transport.Send(&a.queue[n][0])
		a.queue[n] = a.queue[n][1:]
	}
}

// Where SMPs are lost, one agent keeps back what is sent for as long as lost requests wait
// for their time-outs; with as many as sm/transport/umad has the fabric comes up about as if
// nothing was kept back.
func TestAgents(t *testing.T) {
	f := gen.FatTree3(36, 3, 18)
	for _, loss := range []float64{0.02, 0.05} {
		var free time.Duration
		for _, n := range []int{0, 1, 24} {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, f, simfabric.Options{Seed: 1, Loss: loss, DelayMin: 20 * time.Microsecond, DelayMax: 20 * time.Microsecond})
				defer w.close()
				a := newAgents(n, 128)
				s, _ := w.managerOn(f.SMPort, engine.Config{Sweep: -1}, a.between)
				took := w.up(time.Minute)
				if n == 0 {
					free = took
				}
				about := fmt.Sprintf("%.0f %% lost, %d agents: %v, %d SMPs, %d of them repeats, %d kept back", 100*loss, n, took, w.total(),
					s.Refresh().Counters.Repeats, a.queued)
				t.Log(about)
				if n == 24 && took > 2*free || n == 1 && a.queued == 0 || n == 0 && a.queued > 0 {
					t.Error(about)
				}
			})
		}
	}
}
