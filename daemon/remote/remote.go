// Package remote finds out what is at the other end of the cables of ports below a bond,
// for the warning that two of them are on one switch. It asks once each time that a port
// has come up; what becomes of the answer is decided by package link.
package remote

import (
	"context"
	"log/slog"
	"maps"
	"sync"
	"time"

	"ibnetworkd/daemon"
	"ibnetworkd/ib"
	"ibnetworkd/link"
)

// Ask queries what is at the other end of a port's cable.
type Ask func(ctx context.Context, ibdev string, port int) (link.Remote, error)

// timeout bounds one question, again is the pause before one that failed is repeated.
const (
	timeout = 5 * time.Second
	again   = time.Minute
)

// Ports are the ports whose cables count. Update and System.Observe belong to the loop.
type Ports struct {
	log  *slog.Logger
	ask  Ask
	wake func()
	kick chan struct{}

	mu    sync.Mutex // guards want and known
	want  map[place]bool
	known map[place]link.Remote
}

// place is a port since it came up last.
type place struct {
	ibdev string
	port  int
	guid  ib.GUID
	downs uint32 // losses of its link's carrier
}

// New makes the part. wake has the ports read again; it must not block.
func New(log *slog.Logger, ask Ask, wake func()) *Ports {
	return &Ports{log: log, ask: ask, wake: wake, kick: make(chan struct{}, 1), known: map[place]link.Remote{}}
}

// Update takes what the loop has observed. It never blocks.
func (p *Ports) Update(v daemon.View) {
	want := wants(v.Snapshot)
	p.mu.Lock()
	defer p.mu.Unlock()
	if maps.Equal(want, p.want) {
		return
	}
	p.want = want
	maps.DeleteFunc(p.known, func(at place, _ link.Remote) bool { return !want[at] })
	select {
	case p.kick <- struct{}{}:
	default:
	}
}

// wants lists the ports that are Active below bonds of several IPoIB links.
func wants(s *link.Snapshot) map[place]bool {
	out := map[place]bool{}
	for i := range s.Links {
		if s.Links[i].Bond == nil {
			continue
		}
		slaves := s.Slaves(s.Links[i].Index)
		if len(slaves) < 2 {
			continue
		}
		for _, l := range slaves {
			if d, q := s.PortOf(l); l.IsInfiniBand() && q != nil && q.State == ib.PortActive {
				out[place{d.Name, q.Num, q.GUID, l.CarrierDowns}] = true
			}
		}
	}
	return out
}

// Run queries the ports until ctx ends.
func (p *Ports) Run(ctx context.Context) error {
	retry := time.NewTimer(again)
	retry.Stop()
	defer retry.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-p.kick:
		case <-retry.C:
		}
		if p.round(ctx) {
			retry.Reset(again)
		} else {
			retry.Stop()
		}
	}
}

// round queries the ports that have not answered. It reports whether one is left.
func (p *Ports) round(ctx context.Context) (left bool) {
	for _, at := range p.open() {
		one, cancel := context.WithTimeout(ctx, timeout)
		r, err := p.ask(one, at.ibdev, at.port)
		cancel()
		if err != nil {
			p.log.Debug("the other end of a cable is not known", "port", at.ibdev, "number", at.port, "error", err)
			left = true
			continue
		}
		p.mu.Lock()
		wanted := p.want[at]
		if wanted {
			p.known[at] = r
		}
		p.mu.Unlock()
		if wanted {
			p.wake()
		}
	}
	return left
}

// open are the ports that are wanted and not known.
func (p *Ports) open() (out []place) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for at := range p.want {
		if _, ok := p.known[at]; !ok {
			out = append(out, at)
		}
	}
	return out
}

func (p *Ports) byPort() map[ib.GUID]link.Remote {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := make(map[ib.GUID]link.Remote, len(p.known))
	for at, r := range p.known {
		out[at.guid] = r
	}
	return out
}

// Complete adds what is known of the cables to a snapshot.
func (p *Ports) Complete(snap *link.Snapshot) {
	known := p.byPort()
	link.SetEachPort(snap, func(p *link.Port) *link.Remote { return &p.Remote }, func(p *link.Port) link.Remote { return known[p.GUID] })
}
