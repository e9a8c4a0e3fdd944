// Package serve runs the subnet managers of a host: one for each port it is
// given or finds, started when the port appears and stopped when it goes, and
// answers what they do over a local socket.
//
// It owns the set of running subnets and the socket; what a subnet does is the
// engine's. Called by cmd/ibnetsm.
package serve

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"ibnetworkd/ib"
	"ibnetworkd/sm/engine"
	"ibnetworkd/sm/transport"
)

// Port names a port that can have a subnet manager.
type Port struct {
	Device string
	Num    uint8
	GUID   ib.GUID
}

// Host is where ports come from.
type Host interface {
	// Ports lists the InfiniBand ports that are there now.
	Ports() ([]Port, error)
	// Open attaches to a port.
	Open(Port) (transport.Transport, error)
}

// Manager runs the subnets.
type Manager struct {
	// Ended, if set, is called when the subnet manager of a port has ended with an error,
	// as that of a port that is gone.
	Ended func(Port)
	Host  Host
	Log   *slog.Logger
	// Wanted reports which ports get a subnet manager; nil takes all.
	Wanted func(Port) bool
	// Number is how many ports Wanted takes at most, 0 if that is not known. While so
	// many have a subnet manager no port is searched for.
	Number int
	// Config gives the configuration for a port.
	Config func(Port) engine.Config
	// Wait is how long Run lasts without a single subnet before it gives up with
	// the reason; 0 is for ever. Where Number is known it ends at once when no
	// port lets a subnet manager in (transport.ErrNoQP0).
	Wait time.Duration
	// Every is how often ports are listed (2 s), Again how long after a failure a
	// port is retried (2 s).
	Every, Again time.Duration

	mu   sync.Mutex
	subs []*running
}

type running struct {
	port Port
	sub  *engine.Subnet
	over bool
	next time.Time // when a failed one is retried
	told string    // the last failure, said once
	err  error     // the same
}

// Run manages ports until ctx ends and every subnet has handed over.
func (m *Manager) Run(ctx context.Context) error {
	m.Every = cmp.Or(m.Every, 2*time.Second)
	m.Again = cmp.Or(m.Again, 2*time.Second)
	var wg sync.WaitGroup
	defer wg.Wait()
	t := time.NewTicker(m.Every)
	defer t.Stop()
	told, first := "", true
	alone := time.Now() // since when there is no subnet
	ended := make(chan struct{}, 1)
	for {
		ports, err := m.Host.Ports()
		if err != nil && err.Error() != told {
			told = err.Error()
			m.Log.Warn("cannot list ports", "err", err)
		}
		any := false
		for _, p := range ports {
			if m.Wanted == nil || m.Wanted(p) {
				any = true
				m.begin(ctx, &wg, p, ended)
			}
		}
		if !any && first {
			m.Log.Info("no port to manage yet, waiting for one")
		}
		first = false
		if len(m.Subnets()) > 0 {
			alone = time.Now()
		} else if err := m.failed(); m.Number > 0 && errors.Is(err, transport.ErrNoQP0) {
			return err
		} else if m.Wait > 0 && time.Since(alone) >= m.Wait {
			if err == nil {
				err = errors.New("the port does not exist")
			}
			return fmt.Errorf("no port could be opened for %v: %w", m.Wait, err)
		}
		next := t.C
		if m.Number > 0 && len(m.Subnets()) >= m.Number {
			next = nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ended:
		case <-next:
		}
	}
}

// failed is why no port has a subnet, nil if one has or none was tried.
func (m *Manager) failed() (err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, r := range m.subs {
		if !r.over {
			return nil
		}
		if err == nil || !errors.Is(r.err, transport.ErrNoQP0) {
			err = r.err
		}
	}
	return err
}

// begin starts a subnet on a port unless one is running, and reports its end on ended.
func (m *Manager) begin(ctx context.Context, wg *sync.WaitGroup, p Port, ended chan<- struct{}) {
	m.mu.Lock()
	i := slices.IndexFunc(m.subs, func(r *running) bool { return r.port == p })
	var r *running
	if i >= 0 {
		if r = m.subs[i]; !r.over || time.Now().Before(r.next) {
			m.mu.Unlock()
			return
		}
	} else {
		r = &running{port: p}
		m.subs = append(m.subs, r)
	}
	r.over, r.sub = false, nil
	m.mu.Unlock()
	log := m.Log.With("ibdev", p.Device, "port", p.Num)
	fail := func(what string, err error) {
		m.mu.Lock()
		again := err.Error() == r.told
		r.over, r.sub, r.told, r.err, r.next = true, nil, err.Error(), err, time.Now().Add(m.Again)
		m.mu.Unlock()
		if !again {
			log.Warn(what, "err", err)
		}
	}
	tr, err := m.Host.Open(p)
	if err != nil {
		fail("cannot open the port", err)
		return
	}
	sub := engine.New(tr, m.Config(p))
	m.mu.Lock()
	r.sub, r.told = sub, ""
	m.mu.Unlock()
	wg.Go(func() {
		err := sub.Run(ctx)
		switch {
		case err == nil:
			m.mu.Lock()
			r.over, r.next = true, time.Now().Add(m.Again)
			m.mu.Unlock()
		case errors.Is(err, transport.ErrGone):
			fail("the port is gone", err)
		default:
			fail("the subnet manager of the port ended", err)
		}
		if err != nil && m.Ended != nil {
			m.Ended(p)
		}
		select {
		case ended <- struct{}{}:
		default: // a wake-up is pending already
		}
	})
}

// Subnets lists the running ones by device and port.
func (m *Manager) Subnets() []*engine.Subnet {
	m.mu.Lock()
	defer m.mu.Unlock()
	rs := slices.Clone(m.subs)
	slices.SortFunc(rs, func(a, b *running) int {
		if a.port.Device != b.port.Device {
			if a.port.Device < b.port.Device {
				return -1
			}
			return 1
		}
		return int(a.port.Num) - int(b.port.Num)
	})
	var out []*engine.Subnet
	for _, r := range rs {
		if r.sub != nil && !r.over {
			out = append(out, r.sub)
		}
	}
	return out
}

// Resweep requests a sweep of every subnet.
func (m *Manager) Resweep(full bool, reason string) {
	for _, s := range m.Subnets() {
		s.Resweep(full, reason)
	}
}
