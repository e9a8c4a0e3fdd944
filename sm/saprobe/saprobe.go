// Package saprobe queries a subnet administrator for its ClassPortInfo all the time
// and measures how long it was silent: the outage that hosts see when one subnet
// manager replaces another. Tests and benchmarks use it, on any transport.
package saprobe

import (
	"context"
	"fmt"
	"sync"
	"time"

	"ibnetworkd/sm/mad"
	"ibnetworkd/sm/transport"
)

// Every is how often a Probe sends a query.
const Every = 5 * time.Millisecond

// Probe sends queries and records when answers came.
type Probe struct {
	tr     transport.Transport
	cancel context.CancelFunc
	done   sync.WaitGroup
	mu     sync.Mutex
	at     []time.Time
	new    chan struct{}
}

// Start begins to ask the manager that the transport's port follows. The
// transport belongs to the probe.
func Start(tr transport.Transport) *Probe {
	ctx, cancel := context.WithCancel(context.Background())
	p := &Probe{tr: tr, cancel: cancel, new: make(chan struct{})}
	p.done.Go(func() { p.listen(ctx) })
	p.done.Go(func() { p.ask(ctx) })
	return p
}

func (p *Probe) listen(ctx context.Context) {
	in := make([]transport.Packet, 16)
	for {
		n, err := p.tr.Recv(ctx, in)
		if err != nil {
			return
		}
		now := time.Now()
		for i := range in[:n] {
			if in[i].Err == nil && mad.MethodOf(&in[i].MAD) == mad.MethodGetResp && mad.ClassOf(&in[i].MAD) == mad.ClassSA &&
				mad.StatusOf(&in[i].MAD) == 0 {
				p.mu.Lock()
				p.at = append(p.at, now)
				close(p.new)
				p.new = make(chan struct{})
				p.mu.Unlock()
			}
		}
	}
}

func (p *Probe) ask(ctx context.Context) {
	t := time.NewTicker(Every)
	defer t.Stop()
	for i := uint32(1); ; i++ {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		port, err := p.tr.Port()
		if err != nil || port.SMLID == 0 {
			continue
		}
		var k transport.Packet
		k.LID, k.QPN, k.Timeout = port.SMLID, 1, 200*time.Millisecond
		h := mad.NewSA(mad.MethodGet, mad.AttrClassPortInfo, i, 0)
		k.SetMessage(h.Append(nil), false)
		_ = p.tr.Send(&k) // while the port is down it cannot; that is silence too
	}
}

// Silence is the longest time without an answer from begin to now.
func (p *Probe) Silence(begin time.Time) (longest time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	last := begin
	for _, t := range p.at {
		if t.Before(begin) {
			continue
		}
		longest = max(longest, t.Sub(last))
		last = t
	}
	return max(longest, time.Since(last))
}

// WaitAnswer waits for an answer that came after t.
func (p *Probe) WaitAnswer(t time.Time, limit time.Duration) error {
	end := time.NewTimer(limit)
	defer end.Stop()
	for {
		p.mu.Lock()
		ok, more := len(p.at) > 0 && p.at[len(p.at)-1].After(t), p.new
		p.mu.Unlock()
		if ok {
			return nil
		}
		select {
		case <-more:
		case <-end.C:
			return fmt.Errorf("the SA does not answer within %v", limit)
		}
	}
}

// Stop ends the probe and its transport.
func (p *Probe) Stop() {
	p.cancel()
	p.tr.Close()
	p.done.Wait()
}
