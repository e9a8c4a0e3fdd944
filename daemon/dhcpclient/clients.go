// Package dhcpclient runs the DHCP clients of links whose units ask for one: it owns
// their sockets, their timer and the files of their leases. What the clients do is
// decided by link/dhcp; what becomes of a lease by the planners.
package dhcpclient

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"reflect"
	"slices"
	"sync"
	"time"

	"ibnetworkd/daemon"
	"ibnetworkd/daemon/plan"
	"ibnetworkd/internal/kernel/packet"
	"ibnetworkd/link"
	"ibnetworkd/link/dhcp"
)

// Clients are the clients of all links. Update and System.Observe belong to the loop,
// Renew may be called from any goroutine.
type Clients struct {
	log    *slog.Logger
	store  store
	opener packet.Opener
	wake   func(links map[int]bool)
	kick   chan struct{}
	events chan packet.Event
	calls  chan func()

	mu    sync.Mutex // guards want, views and saved
	want  map[int]wanted
	views map[int]*link.DHCP
	saved map[string]saved // of clients that have not begun, by the name of the link

	// The rest belongs to Run.
	clients map[int]*client
	sender  *packet.Sender
	timer   *timer
}

// wanted is a link that is to have a client.
type wanted struct {
	name      string
	cfg       dhcp.Config
	broadcast []byte
	carrier   bool
	downs     uint32 // losses of it
	inUse     func(*link.Lease) bool
}

// client is one that runs.
type client struct {
	wanted
	index   int
	m       *dhcp.Client
	ip, arp *packet.Listener
	about   string // what arp listens to
	kept    *link.Lease
	trouble string
	warned  time.Duration // when a dropped answer was logged last
}

// New makes clients whose leases are in a directory, with sockets by an opener. wake has links, by index, read
// again; it must not block.
func New(log *slog.Logger, dir string, opener packet.Opener, wake func(links map[int]bool)) *Clients {
	c := &Clients{log: log, store: store(dir), opener: opener, wake: wake, kick: make(chan struct{}, 1), events: make(chan packet.Event, 16),
		calls: make(chan func()), views: map[int]*link.DHCP{}, clients: map[int]*client{}}
	c.saved = c.store.load()
	return c
}

// Update takes what the loop has observed. It never blocks.
func (c *Clients) Update(v daemon.View) {
	want := wants(v)
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(want) == 0 && len(c.want) == 0 && len(c.views) == 0 {
		return
	}
	c.want = want
	select {
	case c.kick <- struct{}{}:
	default:
	}
}

// wants lists the links that are to have a client, by index.
func wants(v daemon.View) map[int]wanted {
	var out map[int]wanted
	for i := range v.Snapshot.Links {
		l := &v.Snapshot.Links[i]
		u := plan.Served(v.Snapshot, v.Governing, l)
		if u == nil || !u.UsesDHCP() || l.Type != link.ARPHRDInfiniBand && l.Type != 1 {
			continue
		}
		if out == nil {
			out = map[int]wanted{}
		}
		addrs := l.Addresses
		w := wanted{name: l.Name, cfg: config(v.Snapshot, l, u), carrier: l.Up() && l.Carrier(), downs: l.CarrierDowns,
			inUse: func(x *link.Lease) bool {
				return slices.ContainsFunc(addrs, func(a link.Address) bool { return a.Prefix == x.Address })
			}}
		w.broadcast = l.AllHosts()
		out[l.Index] = w
	}
	return out
}

// of is what the client of a link has reached. Before it has begun, its lease is the one
// that was kept, if the link is still the same.
func (c *Clients) of(l *link.Link) *link.DHCP {
	c.mu.Lock()
	defer c.mu.Unlock()
	if v := c.views[l.Index]; v != nil {
		return v
	}
	s, ok := c.saved[l.Name]
	if !ok || s.Ifindex != l.Index || s.Lease.Over(seconds(now())) {
		return nil
	}
	v := &link.DHCP{State: link.DHCPStopped, Lease: &s.Lease}
	c.views[l.Index] = v
	return v
}

// Renew has the client of a link ask its servers now.
func (c *Clients) Renew(ctx context.Context, name string) error {
	done := make(chan error, 1)
	f := func() {
		for _, x := range c.clients {
			if x.name == name {
				c.after(x, x.m.Renew(now()))
				done <- nil
				return
			}
		}
		done <- fmt.Errorf("%s has no DHCP client: write DHCP=ipv4 in [Network] of its unit", name)
	}
	select {
	case c.calls <- f:
		return <-done
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Run runs the clients until ctx ends. Addresses and leases stay.
func (c *Clients) Run(ctx context.Context) error {
	defer c.close()
	for {
		var due <-chan struct{}
		if c.timer != nil {
			due = c.timer.due
		}
		select {
		case <-ctx.Done():
			return nil
		case <-c.kick:
			c.reconcile()
		case <-due:
			for _, x := range c.clients {
				if d := x.m.Deadline(); d != 0 && now() >= d {
					c.after(x, x.m.Tick(now()))
				}
			}
		case e := <-c.events:
			c.receive(e)
		case f := <-c.calls:
			f()
		}
		c.arm()
	}
}

func (c *Clients) close() {
	for _, x := range c.clients {
		x.ip.Close()
		x.arp.Close()
	}
	if c.sender != nil {
		_ = c.sender.Close()
	}
	if c.timer != nil {
		_ = c.timer.f.Close()
	}
}

// reconcile begins and ends clients, and hands them the carrier of their links.
func (c *Clients) reconcile() {
	c.mu.Lock()
	want := c.want
	c.mu.Unlock()
	for i, x := range c.clients {
		w, ok := want[i]
		if ok && w.name == x.name && reflect.DeepEqual(w.cfg, x.cfg) {
			continue
		}
		if !ok {
			// The link is gone, or its unit asks for no lease: the loop has no view of
			// the former, and takes the address of the latter away.
			c.end(x)
			continue
		}
		// Another configuration: the lease is asked for again.
		c.stop(x)
		if w.name != x.name {
			_ = c.store.remove(x.name)
		}
		kept := x.m.Lease()
		if !slices.Equal(w.cfg.ClientID, x.cfg.ClientID) {
			kept = nil
		}
		c.begin(i, w, kept, kept != nil && w.inUse(kept), false)
	}
	for i, w := range want {
		x := c.clients[i]
		if x == nil {
			s, ok := c.takeSaved(w.name)
			if !ok || s.Lease.Over(seconds(now())) || !slices.Equal(s.ClientID, w.cfg.ClientID) {
				c.begin(i, w, nil, false, false)
				continue
			}
			same := s.Ifindex == i && w.inUse(&s.Lease)
			c.begin(i, w, &s.Lease, same, same)
			continue
		}
		x.wanted = w
		c.after(x, x.m.Carrier(now(), w.carrier, w.downs, false))
	}
}

func (c *Clients) takeSaved(name string) (saved, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s, ok := c.saved[name]
	delete(c.saved, name)
	return s, ok
}

func (c *Clients) begin(index int, w wanted, kept *link.Lease, inUse, resumed bool) {
	x := &client{wanted: w, index: index, m: dhcp.New(w.cfg, rand.Uint64(), kept, inUse), kept: kept}
	c.clients[index] = x
	c.after(x, x.m.Carrier(now(), w.carrier, w.downs, resumed))
}

// stop ends a client and leaves everything as it is.
func (c *Clients) stop(x *client) {
	x.ip.Close()
	x.arp.Close()
	delete(c.clients, x.index)
}

// end ends a client. The lease of a link that is gone is kept for the link that has its
// name next; any other is given back.
func (c *Clients) end(x *client) {
	c.stop(x)
	gone := !present(x.index, x.name)
	c.mu.Lock()
	delete(c.views, x.index)
	if l := x.m.Lease(); gone && l != nil {
		c.saved[x.name] = saved{Link: x.name, Ifindex: x.index, ClientID: x.cfg.ClientID, Lease: *l}
	}
	c.mu.Unlock()
	if gone {
		return
	}
	c.send(x, x.m.End(now()))
	c.store.remove(x.name)
	c.wake(map[int]bool{x.index: true})
}

// after does what a step of a client asks for: frames, sockets, the file, the view.
func (c *Clients) after(x *client, frames []dhcp.Send) {
	x.trouble = ""
	c.listen(x) // before the question goes out
	c.send(x, frames)
	lease := x.m.Lease()
	if lease != x.kept {
		c.note(x, lease)
	}
	v := x.m.View()
	v.Trouble = x.trouble
	c.mu.Lock()
	old := c.views[x.index]
	if old != nil {
		v.Drops = old.Drops // a flood of answers changes nothing
	}
	changed := old == nil || !reflect.DeepEqual(*old, v)
	if changed {
		v.Drops = x.m.Drops()
		c.views[x.index] = &v
	}
	c.mu.Unlock()
	if changed {
		c.wake(map[int]bool{x.index: true})
	}
}

// note keeps a lease for a restart, and logs it.
func (c *Clients) note(x *client, lease *link.Lease) {
	before := x.kept
	x.kept = lease
	var err error
	switch {
	case lease == nil:
		c.log.Info("the DHCP lease is lost", as(msgLease, "link", x.name, "address", before.Address.String(),
			"server", before.Server.String())...)
		err = c.store.remove(x.name)
	default:
		text := "DHCP lease"
		if before != nil && before.Address == lease.Address {
			text = "DHCP lease renewed"
		}
		c.log.Info(text, as(msgLease, "link", x.name, "address", lease.Address.String(), "server", lease.Server.String(),
			"seconds", lease.Lifetime)...)
		err = c.store.save(saved{Link: x.name, Ifindex: x.index, ClientID: x.cfg.ClientID, Lease: *lease})
	}
	if err != nil {
		c.log.Error("the lease is not kept", "link", x.name, "error", err, "effect", "after a restart another one may be given")
	}
}

func (c *Clients) send(x *client, frames []dhcp.Send) {
	for _, f := range frames {
		if c.sender == nil {
			s, err := c.opener.Sender()
			if err != nil {
				x.trouble = err.Error()
				return
			}
			c.sender = s
		}
		to := f.To
		if to == nil {
			to = x.broadcast
		}
		// A link that goes down, and a queue that is full, are as a lost packet.
		if err := c.sender.Send(x.index, f.EtherType, to, f.Data); err != nil {
			c.log.Debug("DHCP: a packet was not sent", "link", x.name, "error", err)
		}
	}
}

// listen opens and closes the sockets of a client.
func (c *Clients) listen(x *client) {
	ip, about := x.m.Listens()
	if !ip {
		x.ip = x.ip.Close()
	} else if x.ip == nil {
		x.ip = c.open(x, packet.Request{Kind: packet.ForDHCP, Index: x.index})
	}
	text := ""
	if about.IsValid() {
		text = about.String()
	}
	if text != x.about {
		x.arp, x.about = x.arp.Close(), text
		if text != "" {
			x.arp = c.open(x, packet.Request{Kind: packet.ForARP, Index: x.index, About: about, HWLen: x.cfg.HWAddr.Len()})
		}
	}
}

func (c *Clients) open(x *client, r packet.Request) *packet.Listener {
	l, err := packet.Listen(c.opener, r, c.events)
	if err != nil {
		x.trouble = err.Error()
	}
	return l
}

// receive hands a packet to its client.
func (c *Clients) receive(e packet.Event) {
	x := c.clients[e.From.Index]
	if x == nil || e.From != x.ip && e.From != x.arp {
		return // of a socket that was closed meanwhile
	}
	switch {
	case errors.Is(e.Err, packet.ErrOversized):
		x.m.Oversized()
	case e.Err != nil:
		// The link went down: the next message opens the socket again.
		if e.From == x.ip {
			x.ip = x.ip.Close()
		} else {
			x.arp, x.about = x.arp.Close(), ""
		}
	case e.From == x.arp:
		c.after(x, x.m.ARP(now(), e.Data))
	default:
		before := x.m.Drops()
		c.after(x, x.m.Packet(now(), e.Data, e.Checked))
		d := x.m.Drops()
		if d.Malformed+d.Contradictory != before.Malformed+before.Contradictory && (x.warned == 0 || now() > x.warned+time.Minute) {
			x.warned = now()
			c.log.Warn("a DHCP answer was dropped", "link", x.name, "why", d.Last, "malformed", d.Malformed,
				"contradictory", d.Contradictory, "foreign", d.Foreign)
		}
	}
}

// arm sets the timer to the first deadline.
func (c *Clients) arm() {
	var first time.Duration
	for _, x := range c.clients {
		if d := x.m.Deadline(); d != 0 && (first == 0 || d < first) {
			first = d
		}
	}
	if c.timer == nil {
		if first == 0 {
			return
		}
		t, err := newTimer()
		if err != nil {
			c.log.Error("DHCP clients have no timer", "error", err)
			return
		}
		c.timer = t
	}
	c.timer.set(first)
}

// System adds to each snapshot of a system what the clients have reached.
type System struct {
	daemon.System
	Clients *Clients
}

// Observe implements daemon.System.
func (s System) Observe(sc daemon.Scope, n daemon.Needs) (*link.Snapshot, error) {
	snap, err := s.System.Observe(sc, n)
	if snap == nil || !s.Clients.any() {
		return snap, err
	}
	link.SetEach(snap, func(l *link.Link) **link.DHCP { return &l.DHCP }, s.Clients.of, func(a, b *link.DHCP) bool { return a == b })
	return snap, err
}

func (c *Clients) any() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.want)+len(c.views)+len(c.saved) > 0
}
