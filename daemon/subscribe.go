package daemon

import (
	"slices"
	"sync"

	"ibnetworkd/link"
)

// Replace leaves v in a channel of one place, instead of what was not received yet. It never
// blocks if one goroutine alone sends.
func Replace[T any](c chan T, v T) {
	select {
	case <-c:
	default:
	}
	c <- v
}

// Change is what has changed since the last one.
type Change struct {
	Seq   uint64 // counts the changes
	Links []link.Status
	Gone  []string // names of links that went away
	Ports []link.PortStatus
	// PortsChanged reports that Ports is meant; it holds all ports.
	PortsChanged bool
	// Problems are all messages of the unit files, set with Reloaded.
	Problems []string
	Reloaded bool
	// Notices and Awaited are those of the link.Report, always set.
	Notices []link.Notice
	Awaited bool
}

type mailbox struct {
	mu     sync.Mutex
	c      Change
	full   bool
	signal chan struct{}
}

// Subscribe gives the changes from now on. A subscriber that is slow gets the
// changes that it missed joined into one: nothing queues up. cancel ends it.
func (d *Daemon) Subscribe() (changes <-chan Change, cancel func()) {
	out := make(chan Change)
	m := &mailbox{signal: make(chan struct{}, 1)}
	stop := make(chan struct{})
	d.subMu.Lock()
	d.subs[out] = m
	d.subMu.Unlock()
	go func() {
		defer close(out)
		for {
			select {
			case <-stop:
				return
			case <-m.signal:
			}
			m.mu.Lock()
			c, full := m.c, m.full
			m.c, m.full = Change{}, false
			m.mu.Unlock()
			if !full {
				continue
			}
			select {
			case out <- c:
			case <-stop:
				return
			}
		}
	}()
	var once sync.Once
	return out, func() {
		once.Do(func() {
			d.subMu.Lock()
			delete(d.subs, out)
			d.subMu.Unlock()
			close(stop)
		})
	}
}

func (m *mailbox) put(c Change) {
	m.mu.Lock()
	for _, s := range c.Links {
		m.c.Links = slices.DeleteFunc(m.c.Links, func(o link.Status) bool { return o.Name == s.Name })
		m.c.Gone = slices.DeleteFunc(m.c.Gone, func(n string) bool { return n == s.Name })
	}
	for _, n := range c.Gone {
		m.c.Links = slices.DeleteFunc(m.c.Links, func(o link.Status) bool { return o.Name == n })
	}
	m.c.Links = append(m.c.Links, c.Links...)
	m.c.Gone = append(m.c.Gone, c.Gone...)
	if c.PortsChanged {
		m.c.Ports, m.c.PortsChanged = c.Ports, true
	}
	if c.Reloaded {
		m.c.Problems, m.c.Reloaded = c.Problems, true
	}
	m.c.Notices, m.c.Awaited = c.Notices, c.Awaited
	m.c.Seq = c.Seq
	m.full = true
	m.mu.Unlock()
	select {
	case m.signal <- struct{}{}:
	default:
	}
}
