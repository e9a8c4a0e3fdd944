// Package dhcpclient runs the DHCP clients of links whose units ask for one: it owns
// their sockets, their timer and the files of their leases. What the clients do is
// decided by link/dhcp and link/dhcp6; what becomes of a lease by the planners.
package dhcpclient

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"path/filepath"
	"reflect"
	"slices"
	"sync"
	"time"

	"ibnetworkd/daemon"
	"ibnetworkd/ib"
	"ibnetworkd/internal/kernel/packet"
	"ibnetworkd/link"
	"ibnetworkd/link/dhcp"
	"ibnetworkd/link/dhcp6"
	"ibnetworkd/units"
)

// Clients are the clients of all links. Update and System.Observe belong to the loop,
// Renew may be called from any goroutine.
type Clients struct {
	log    *slog.Logger
	dir    string
	opener packet.Opener
	wake   func(links map[int]bool)
	kick   chan struct{}
	events chan packet.Event
	calls  chan func()

	mu    sync.Mutex // guards want, views, saved and stale
	want  map[key]wanted
	views map[key]*link.DHCP
	saved map[savedKey]saved // of clients that have not begun
	stale []string           // links whose file of DHCPv6 is to be removed

	// The rest belongs to Run.
	clients map[key]*client
	sender  *packet.Sender
	timer   *timer
}

// key is a link and a family.
type key struct {
	index int
	six   bool
}

// savedKey is a link by its name, which it may get again, and a family.
type savedKey struct {
	name string
	six  bool
}

// machine is a client of either family.
type machine interface {
	Deadline() time.Duration
	View() link.DHCP
	Drops() link.DHCPDrops
	Lease() *link.Lease
	Listens() (ip bool, arp netip.Addr)
	Carrier(now time.Duration, up bool, downs uint32, resumed bool) []dhcp.Send
	Renew(now time.Duration) []dhcp.Send
	End(now time.Duration) []dhcp.Send
	Tick(now time.Duration) []dhcp.Send
	Packet(now time.Duration, b []byte, checked bool) []dhcp.Send
	Oversized()
}

// wanted is a link that is to have a client.
type wanted struct {
	name string
	// make makes the client; cfg is what it is made from, and id what servers know it by.
	make      func(seed uint64, kept *link.Lease, inUse bool) machine
	cfg       any
	id        []byte
	who       identity // that id is made from
	byRouter  bool     // a router advertisement has begun it
	noAddress bool     // UseAddress=no
	hwlen     int      // of the link's hardware addresses
	broadcast []byte
	carrier   bool
	downs     uint32 // losses of it
	addrs     []link.Address
	lost      netip.Addr // another host's
}

// inUse reports whether the link has what its unit uses of a lease.
func (w *wanted) inUse(x *link.Lease) bool {
	return !x.Address.IsValid() || w.noAddress || slices.ContainsFunc(w.addrs, func(a link.Address) bool { return a.Prefix == x.Address })
}

type client struct {
	wanted
	key
	m       machine
	ip, arp *packet.Listener
	about   string // what arp listens to
	kept    *link.Lease
	trouble string
	warned  time.Duration  // when a dropped answer was logged last
	drops   link.DHCPDrops // that are in the view
}

// New makes clients whose leases are in a directory, with sockets by an opener. wake has links, by index, read
// again; it must not block.
func New(log *slog.Logger, dir string, opener packet.Opener, wake func(links map[int]bool)) *Clients {
	c := &Clients{log: log, dir: dir, opener: opener, wake: wake, kick: make(chan struct{}, 1), events: make(chan packet.Event, 16),
		calls: make(chan func()), views: map[key]*link.DHCP{}, clients: map[key]*client{}, saved: map[savedKey]saved{}}
	for _, six := range families {
		for name, x := range c.store(six).load() {
			c.saved[savedKey{name, six}] = x
		}
	}
	return c
}

var families = [...]bool{false, true}

// store is where the leases of a family are kept.
func (c *Clients) store(six bool) store {
	if six {
		return store{filepath.Join(c.dir, "ipv6"), true}
	}
	return store{c.dir, false}
}

// Update takes what the loop has observed. It never blocks.
func (c *Clients) Update(v daemon.View) {
	c.mu.Lock()
	defer c.mu.Unlock()
	want, none := c.wants(v)
	c.forget(none)
	if len(want) == 0 && len(c.want) == 0 && len(c.views) == 0 {
		return
	}
	c.want = want
	select {
	case c.kick <- struct{}{}:
	default:
	}
}

// began is how router advertisements have begun the DHCPv6 client of a link, before the daemon
// was started again too.
func (c *Clients) began(l *link.Link) units.DHCPv6Start {
	information, byRouter := false, false
	if s, ok := c.saved[savedKey{l.Name, true}]; ok && s.Ifindex == l.Index && !s.Lease.Over(seconds(now())) {
		information, byRouter = !s.Lease.Address.IsValid(), s.ByRouter
	} else if w := c.want[key{l.Index, true}]; w.byRouter {
		information, byRouter = w.cfg.(dhcp6.Config).Information, true
	}
	switch {
	case !byRouter:
		return units.DHCPv6None
	case information:
		return units.DHCPv6Information
	}
	return units.DHCPv6Solicit
}

// identity is what identifiers of a link are made from: of a bond that is the same for its life, and for that of its lease.
func (c *Clients) identity(v daemon.View, l *link.Link) identity {
	var kept ib.HWAddr
	for _, six := range families {
		if w, ok := c.want[key{l.Index, six}]; ok && w.who.slave {
			kept = w.who.hwaddr
		} else if s, ok := c.saved[savedKey{l.Name, six}]; ok && !kept.IsValid() {
			kept = s.Slave
		}
	}
	return identify(v, l, kept)
}

// wants lists the links that are to have a client, and those whose unit waits for a router to
// begin DHCPv6.
func (c *Clients) wants(v daemon.View) (out map[key]wanted, none []*link.Link) {
	add := func(l *link.Link, six bool, w wanted) {
		w.name, w.hwlen, w.downs, w.addrs = l.Name, l.HWAddr.Len(), l.CarrierDowns, l.Addresses
		w.broadcast, w.carrier, w.lost = l.AllHosts(), l.Up() && l.Carrier(), lostAddress(l)
		if out == nil {
			out = map[key]wanted{}
		}
		out[key{l.Index, six}] = w
	}
	for i := range v.Snapshot.Links {
		l := &v.Snapshot.Links[i]
		u := v.Served(l)
		if u == nil || l.Type != link.ARPHRDInfiniBand && l.Type != 1 {
			continue
		}
		who := c.identity(v, l)
		if u.UsesDHCP() {
			add(l, false, wanted4(v.Snapshot, l, u, who))
		}
		if start, byRouter := start6(l, u, c.began(l)); start != units.DHCPv6None {
			add(l, true, wanted6(v.Snapshot, l, u, who, start, byRouter))
		} else if byRouter {
			none = append(none, l)
		}
	}
	return out, none
}

// of is what the client of a link has reached. Before it has begun, its lease is the one
// that was kept, if the link is still the same.
func (c *Clients) of(l *link.Link, six bool) *link.DHCP {
	c.mu.Lock()
	defer c.mu.Unlock()
	k := key{l.Index, six}
	if v := c.views[k]; v != nil {
		return v
	}
	s, ok := c.saved[savedKey{l.Name, six}]
	if !ok || s.Ifindex != l.Index || s.Lease.Over(seconds(now())) {
		return nil
	}
	v := &link.DHCP{State: link.DHCPKept, Lease: &s.Lease}
	c.views[k] = v
	return v
}

// Renew has the clients of a link ask their servers now.
func (c *Clients) Renew(ctx context.Context, name string) error {
	done := make(chan error, 1)
	f := func() {
		err := fmt.Errorf("%s has no DHCP client: write DHCP=ipv4, ipv6 or yes in [Network] of its unit", name)
		for _, x := range c.clients {
			if x.name == name {
				c.after(x, x.m.Renew(now()))
				err = nil
			}
		}
		done <- err
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
	want, stale := c.want, c.stale
	c.stale = nil
	c.mu.Unlock()
	for _, name := range stale {
		_ = c.store(true).remove(name)
	}
	for k, x := range c.clients {
		w, ok := want[k]
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
			_ = c.store(k.six).remove(x.name)
		}
		kept := x.m.Lease()
		if !slices.Equal(w.id, x.id) {
			kept = nil
		}
		c.begin(k, w, kept, kept != nil && w.inUse(kept), false)
	}
	for k, w := range want {
		x := c.clients[k]
		if x == nil {
			s, ok := c.takeSaved(savedKey{w.name, k.six})
			if !ok || s.Lease.Over(seconds(now())) || !slices.Equal(s.ClientID, w.id) {
				c.begin(k, w, nil, false, false)
				continue
			}
			same := s.Ifindex == k.index && w.inUse(&s.Lease)
			c.begin(k, w, &s.Lease, same, same)
			continue
		}
		x.wanted = w
		c.after(x, x.observed(false))
	}
}

func (c *Clients) takeSaved(k savedKey) (saved, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s, ok := c.saved[k]
	delete(c.saved, k)
	return s, ok
}

func (c *Clients) begin(k key, w wanted, kept *link.Lease, inUse, resumed bool) {
	x := &client{wanted: w, key: k, m: w.make(rand.Uint64(), kept, inUse), kept: kept}
	c.clients[k] = x
	c.after(x, x.observed(resumed))
}

// protocol is the name in messages.
func (x *client) protocol() string {
	if x.six {
		return "DHCPv6"
	}
	return "DHCP"
}

// stop ends a client and leaves everything as it is.
func (c *Clients) stop(x *client) {
	x.ip.Close()
	x.arp.Close()
	delete(c.clients, x.key)
}

// end ends a client. The lease of a link that is gone is kept for the link that has its
// name next; any other is given back.
func (c *Clients) end(x *client) {
	c.stop(x)
	gone := !present(x.index, x.name)
	c.mu.Lock()
	delete(c.views, x.key)
	if l := x.m.Lease(); gone && l != nil {
		c.saved[savedKey{x.name, x.six}] = x.save(l)
	}
	c.mu.Unlock()
	if gone {
		return
	}
	c.send(x, x.m.End(now()))
	c.store(x.six).remove(x.name)
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
	old := c.views[x.key]
	if old != nil {
		v.Drops = x.drops // a flood of answers changes nothing
	}
	changed := old == nil || !reflect.DeepEqual(*old, v)
	if changed {
		x.drops = x.m.Drops()
		v.Drops = x.drops
		c.views[x.key] = &v
	}
	c.mu.Unlock()
	if changed {
		c.wake(map[int]bool{x.index: true})
	}
}

func (x *client) save(l *link.Lease) saved {
	s := saved{Link: x.name, Ifindex: x.index, ClientID: x.id, ByRouter: x.byRouter, Lease: *l}
	if x.who.slave {
		s.Slave = x.who.hwaddr
	}
	return s
}

// note keeps a lease for a restart, and logs it.
func (c *Clients) note(x *client, lease *link.Lease) {
	before := x.kept
	x.kept = lease
	what := func(l *link.Lease) []any {
		text := "information only"
		if l.Address.IsValid() {
			text = l.Address.String()
		}
		return as(msgLease, "link", x.name, "address", text, "server", l.Server.String(), "seconds", l.Lifetime)
	}
	var err error
	switch {
	case lease == nil:
		c.log.Info("the "+x.protocol()+" lease is lost", what(before)...)
		err = c.store(x.six).remove(x.name)
	default:
		text := x.protocol() + " lease"
		if before != nil && before.Address == lease.Address {
			text += " renewed"
		}
		c.log.Info(text, what(lease)...)
		err = c.store(x.six).save(x.save(lease))
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
			c.log.Debug(x.protocol()+": a packet was not sent", "link", x.name, "error", err)
		}
	}
}

// listen opens and closes the sockets of a client.
func (c *Clients) listen(x *client) {
	ip, about := x.m.Listens()
	if !ip {
		x.ip = x.ip.Close()
	} else if x.ip == nil {
		kind := packet.ForDHCP
		if x.six {
			kind = packet.ForDHCPv6
		}
		x.ip = c.open(x, packet.Request{Kind: kind, Index: x.index})
	}
	text := ""
	if about.IsValid() {
		text = about.String()
	}
	if text != x.about {
		x.arp, x.about = x.arp.Close(), text
		if text != "" {
			x.arp = c.open(x, packet.Request{Kind: packet.ForARP, Index: x.index, About: about, HWLen: x.hwlen})
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

func (c *Clients) receive(e packet.Event) {
	var x *client
	for _, six := range families {
		if y := c.clients[key{e.From.Index, six}]; y != nil && (e.From == y.ip || e.From == y.arp) {
			x = y
		}
	}
	if x == nil {
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
		c.after(x, x.m.(*dhcp.Client).ARP(now(), e.Data))
	default:
		before := x.m.Drops()
		frames := x.m.Packet(now(), e.Data, e.Checked)
		d := x.m.Drops()
		if d.Malformed+d.Contradictory != before.Malformed+before.Contradictory && (x.warned == 0 || now() > x.warned+time.Minute) {
			x.warned, x.drops = now(), d
			c.log.Warn("a "+x.protocol()+" answer was dropped", "link", x.name, "why", d.Last, "malformed", d.Malformed,
				"contradictory", d.Contradictory, "foreign", d.Foreign)
		}
		c.after(x, frames)
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

// Complete adds what the clients have reached to a snapshot.
func (c *Clients) Complete(snap *link.Snapshot) {
	if !c.any() {
		return
	}
	for _, six := range families {
		field := func(l *link.Link) **link.DHCP {
			if six {
				return &l.DHCP6
			}
			return &l.DHCP
		}
		of := func(l *link.Link) *link.DHCP { return c.of(l, six) }
		link.SetEach(snap, field, of, func(a, b *link.DHCP) bool { return a == b })
	}
}

func (c *Clients) any() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.want)+len(c.views)+len(c.saved) > 0
}
