package dhcp

import (
	"encoding/binary"
	"math/rand/v2"
	"net/netip"
	"strings"
	"time"

	"ibnetworkd/ib"
	"ibnetworkd/link"
)

// Config is how a client presents itself and what it asks for.
type Config struct {
	HType    uint16    // ARPHRD of the link: 1 or 32
	HWAddr   ib.HWAddr // of the link
	ClientID []byte    // option 61 with its type
	Hostname string    // "" sends none
	Vendor   string    // vendor class, "" sends none
	Request  []byte    // options to ask for beside those that are always used
	// Broadcast asks servers to broadcast their answers; on IPoIB it is always so.
	Broadcast bool
	// Probe has an address checked for conflicts before it is used.
	Probe bool
	// Release informs the server when the address is given back.
	Release bool
	// Allow and Deny are prefixes of servers that are listened to and ignored; Deny
	// has no effect beside Allow.
	Allow, Deny []netip.Prefix
}

// Send is a frame for the link: an IPv4 or ARP packet. To is nil for the link's
// broadcast address.
type Send struct {
	EtherType uint16
	To        []byte
	Data      []byte
}

// Client is the client of one link. Times are since boot (CLOCK_BOOTTIME).
type Client struct {
	cfg      Config
	rnd      *rand.Rand
	state    link.DHCPState
	downs    uint32        // losses of the carrier
	deadline time.Duration // of Tick, 0 for none
	xid      uint32
	began    time.Duration // of the attempt, for the field secs
	sent     time.Duration // first request of the transaction: a lease counts from then
	tries    int           // messages of the attempt
	offer    link.Lease    // that is requested
	lease    *link.Lease   // that is used
	probed   *link.Lease   // that is being probed
	probes   int
	renewAt  time.Duration
	hop      netip.Addr // next hop to the server while its hardware address is asked for
	hopTries int
	penalty  int // refusals and conflicts in a row
	conflict netip.Addr
	refused  netip.Addr
	drops    link.DHCPDrops
	out      []Send
}

// New makes a client of a link without a carrier. saved is the lease that it had, nil
// for none; in use says that its address is on the link, and the link has not been away since.
func New(cfg Config, seed uint64, saved *link.Lease, inUse bool) *Client {
	c := &Client{cfg: cfg, rnd: rand.New(rand.NewPCG(seed, 0)), state: link.DHCPStopped, lease: saved}
	if !inUse && saved != nil {
		c.lease, c.probed = nil, saved
	}
	return c
}

// Deadline is when Tick is to be called, 0 for never.
func (c *Client) Deadline() time.Duration { return c.deadline }

// View is what the client has reached.
func (c *Client) View() link.DHCP {
	v := link.DHCP{State: c.state, Lease: c.lease, Conflict: c.conflict, Refused: c.refused}
	switch c.state {
	case link.DHCPSelecting, link.DHCPRebooting, link.DHCPRebinding:
		v.Tries = max(0, min(c.tries-1, 4))
	}
	return v
}

// Drops counts what was received and not used.
func (c *Client) Drops() link.DHCPDrops { return c.drops }

// Lease is the lease to keep over a restart: also one that is not confirmed yet.
func (c *Client) Lease() *link.Lease {
	if c.lease == nil && c.state != link.DHCPProbing {
		return c.probed
	}
	return c.lease
}

// Listens returns which sockets the client reads: IPv4, and ARP about an address.
func (c *Client) Listens() (ip bool, arp netip.Addr) {
	switch c.state {
	case link.DHCPSelecting, link.DHCPRequesting, link.DHCPRebooting, link.DHCPRebinding:
		return true, netip.Addr{}
	case link.DHCPProbing:
		return false, c.probed.Address.Addr()
	case link.DHCPRenewing:
		return true, c.hop
	}
	return false, netip.Addr{}
}

// Carrier notes that the link has joined its group, or lost it. downs is how often it lost
// it: one that is back by now counts, too. resumed says that it had it all the time, as
// when the daemon alone was restarted.
func (c *Client) Carrier(now time.Duration, up bool, downs uint32, resumed bool) []Send {
	if !up || downs != c.downs {
		c.stop()
	}
	c.downs = downs
	switch {
	case !up:
	case c.state != link.DHCPStopped:
	case resumed && c.lease != nil && !c.lease.Over(seconds(now)):
		c.schedule(now)
	default:
		c.start(now)
	}
	return c.flush()
}

func (c *Client) stop() {
	if c.state == link.DHCPProbing {
		c.probed = nil
	}
	c.state, c.deadline, c.tries = link.DHCPStopped, 0, 0
	if c.lease != nil {
		c.deadline = c.end()
	}
}

// Renew sends a request to the servers now, to extend the lease or to get one.
func (c *Client) Renew(now time.Duration) []Send {
	switch {
	case c.state == link.DHCPStopped || c.state == link.DHCPProbing:
	case c.lease == nil:
		c.penalty = 0
		c.start(now)
	case c.state == link.DHCPRebooting: // the address may not be used to ask from
		c.transmit(now)
	default:
		c.begin(now, link.DHCPRebinding)
		c.transmit(now)
	}
	return c.flush()
}

// End gives the address back, if the server is to know.
func (c *Client) End(now time.Duration) []Send {
	if c.lease != nil && c.cfg.Release && c.state != link.DHCPStopped && !c.lease.Over(seconds(now)) {
		c.xid = c.rnd.Uint32()
		c.send(c.lease.Address.Addr(), c.lease.Server, nil, c.message(now, typeRelease, c.lease.Address.Addr(),
			option{optServer, c.lease.Server.AsSlice()}))
	}
	c.lease, c.probed = nil, nil
	c.stop()
	return c.flush()
}

// Tick does what is due.
func (c *Client) Tick(now time.Duration) []Send {
	if c.deadline == 0 || now < c.deadline {
		return nil
	}
	c.deadline = 0
	if c.lease != nil && c.lease.Over(seconds(now)) {
		c.lease = nil
		if c.state != link.DHCPStopped {
			c.start(now)
		}
		return c.flush()
	}
	switch c.state {
	case link.DHCPSelecting:
		c.transmit(now)
	case link.DHCPRequesting:
		if c.tries < mostTries {
			c.transmit(now)
		} else {
			c.discover(now)
		}
	case link.DHCPRebooting:
		switch former := c.former(); {
		case former == nil || former.Over(seconds(now)):
			c.lease, c.probed = nil, nil
			c.discover(now)
		case c.tries < mostTries:
			c.transmit(now)
		default:
			// RFC 2131, section 3.2: the rest of the lease may be used.
			c.lease, c.probed = former, nil
			c.schedule(now)
		}
	case link.DHCPProbing:
		c.probe(now)
	case link.DHCPBound, link.DHCPRenewing, link.DHCPRebinding:
		c.tickBound(now)
	case link.DHCPWaiting:
		c.discover(now)
	}
	return c.flush()
}

// mostTries is how often a request is sent before another way is taken.
const mostTries = 4

func seconds(t time.Duration) uint64 { return uint64(t / time.Second) }

func at(s uint64) time.Duration { return time.Duration(s) * time.Second }

// former is the lease that is asked for again.
func (c *Client) former() *link.Lease {
	if c.lease != nil {
		return c.lease
	}
	return c.probed
}

// start requests the former lease, or any.
func (c *Client) start(now time.Duration) {
	if f := c.former(); f != nil && !f.Over(seconds(now)) {
		c.begin(now, link.DHCPRebooting)
		c.transmit(now)
		return
	}
	c.lease, c.probed = nil, nil
	c.discover(now)
}

func (c *Client) discover(now time.Duration) {
	c.begin(now, link.DHCPSelecting)
	c.transmit(now)
}

func (c *Client) begin(now time.Duration, s link.DHCPState) {
	c.state, c.xid, c.began, c.sent, c.tries = s, c.rnd.Uint32(), now, now, 0
}

// transmit sends the message of the state and sets the time of the next.
func (c *Client) transmit(now time.Duration) {
	none := netip.IPv4Unspecified()
	switch c.state {
	case link.DHCPSelecting:
		c.send(none, limitedBroadcast, nil, c.message(now, typeDiscover, none))
	case link.DHCPRequesting:
		c.send(none, limitedBroadcast, nil, c.message(now, typeRequest, none,
			option{optAddress, c.offer.Address.Addr().AsSlice()}, option{optServer, c.offer.Server.AsSlice()}))
	case link.DHCPRebooting:
		c.send(none, limitedBroadcast, nil, c.message(now, typeRequest, none, option{optAddress, c.former().Address.Addr().AsSlice()}))
	case link.DHCPRebinding:
		own := c.lease.Address.Addr()
		c.send(own, limitedBroadcast, nil, c.message(now, typeRequest, own))
		c.tries++
		c.deadline = now + c.patience(now, c.end())
		return
	}
	// RFC 2131, section 4.1, with a shorter first wait: the first message of a group
	// that was joined just now may be lost.
	wait := min(2*time.Second<<min(c.tries, 5), 64*time.Second)
	c.tries++
	c.deadline = now + c.jitter(wait)
}

// jitter is about a wait: a quarter more or less.
func (c *Client) jitter(wait time.Duration) time.Duration {
	return wait*3/4 + time.Duration(c.rnd.Int64N(int64(wait/2)))
}

// patience is the wait between two requests for more time: half of what is left, a
// minute at least, and not beyond the end.
func (c *Client) patience(now, end time.Duration) time.Duration {
	if end == 0 {
		return time.Hour
	}
	left := max(end-now, time.Millisecond)
	return min(max(left/2, time.Minute), left)
}

// end is when the lease ends, 0 for never.
func (c *Client) end() time.Duration { return at(c.lease.Until()) }

// schedule goes to the state that the lease's age asks for.
func (c *Client) schedule(now time.Duration) {
	c.tries, c.hopTries, c.hop, c.renewAt = 0, 0, netip.Addr{}, 0
	t1, t2 := at(c.lease.Renew), at(c.lease.Rebind)
	switch {
	case c.lease.Lifetime == link.Forever:
		c.state, c.deadline = link.DHCPBound, 0
	case now < t1:
		// Hosts that started together do not renew together.
		c.state, c.renewAt = link.DHCPBound, t1-time.Duration(c.rnd.Int64N(int64((t1-now)/16)+1))
		c.deadline = c.renewAt
	case now < t2:
		c.begin(now, link.DHCPRenewing)
		c.resolve(now)
	default:
		c.begin(now, link.DHCPRebinding)
		c.transmit(now)
	}
}

func (c *Client) tickBound(now time.Duration) {
	switch {
	case c.state == link.DHCPBound && (c.renewAt == 0 || now < c.renewAt):
		c.deadline = c.renewAt
	case c.state == link.DHCPBound:
		c.penalty = 0
		c.begin(now, link.DHCPRenewing)
		c.resolve(now)
	case c.state == link.DHCPRenewing && now < at(c.lease.Rebind):
		c.resolve(now)
	case c.state == link.DHCPRenewing:
		c.begin(now, link.DHCPRebinding)
		c.transmit(now)
	default:
		c.transmit(now)
	}
}

// resolve requests the hardware address of the next hop to the server; the request
// follows when it is known. The kernel's own neighbour table is not read, because the
// server may have another queue pair by now.
func (c *Client) resolve(now time.Duration) {
	c.hop = c.nextHop()
	wait := c.patience(now, at(c.lease.Rebind))
	if c.hop.IsValid() && c.hopTries < hopTries {
		c.hopTries++
		c.arp(c.lease.Address.Addr(), c.hop)
		wait = min(wait, time.Second)
	} else {
		c.hop, c.hopTries = netip.Addr{}, 0
	}
	c.deadline = now + wait
}

const hopTries = 3

// nextHop is the server, or the router to it; the zero Addr if the lease has none.
func (c *Client) nextHop() netip.Addr {
	l := c.lease
	if l.Address.Contains(l.Server) {
		return l.Server
	}
	best := netip.Addr{}
	bits := -1
	for _, r := range l.Routes {
		if r.Dst.Contains(l.Server) && r.Dst.Bits() > bits {
			best, bits = r.Gateway, r.Dst.Bits()
			if best.IsUnspecified() {
				best = l.Server
			}
		}
	}
	if bits < 0 {
		return l.Gateway
	}
	return best
}

// send queues a DHCP message in its packets.
func (c *Client) send(src, dst netip.Addr, to, payload []byte) {
	c.out = append(c.out, Send{EtherIP, to, datagram(src, dst, payload)})
}

func (c *Client) flush() []Send {
	out := c.out
	c.out = nil
	return out
}

// asked are the options that are always asked for; 121 comes before 3 and 33 (RFC 3442).
const asked = "\x01\x79\x03\x21\x06\x0f\x77\x1a\x2a\x33\x36\x3a\x3b"

func (c *Client) message(now time.Duration, kind byte, ciaddr netip.Addr, extra ...option) []byte {
	m := &message{op: 1, htype: byte(c.cfg.HType), xid: c.xid, ciaddr: ciaddr,
		secs: uint16(min(max(now-c.began, 0)/time.Second, 0xffff))}
	asks := kind == typeDiscover || kind == typeRequest
	if c.cfg.HType == link.ARPHRDInfiniBand {
		// RFC 4390: no hardware address, and the answer by broadcast. Where the
		// client has its address already, servers send to that.
		m.broadcast = asks && ciaddr.IsUnspecified()
	} else {
		m.chaddr, m.broadcast = c.cfg.HWAddr.Bytes(), asks && ciaddr.IsUnspecified() && c.cfg.Broadcast
	}
	opts := []option{{optType, []byte{kind}}, {optClientID, c.cfg.ClientID}}
	opts = append(opts, extra...)
	if asks {
		opts = append(opts, option{optMaxSize, binary.BigEndian.AppendUint16(nil, 1472)}, c.name(), option{optVendorClass, []byte(c.cfg.Vendor)},
			option{optRequest, append([]byte(asked), c.cfg.Request...)})
	}
	return m.encode(opts)
}

// name is the host's name: option 12, or 81 (RFC 4702) for one with a domain, with the
// server in charge of the name service.
func (c *Client) name() option {
	if !strings.Contains(c.cfg.Hostname, ".") {
		return option{OptionHostname, []byte(c.cfg.Hostname)}
	}
	return option{optFQDN, append(Labels([]byte{0x05, 0, 0}, strings.TrimSuffix(c.cfg.Hostname, ".")), 0)}
}

// Labels appends the labels of a name as RFC 1035 has them, without the empty one of the root.
func Labels(b []byte, name string) []byte {
	for label := range strings.SplitSeq(name, ".") {
		b = append(append(b, byte(len(label))), label...)
	}
	return b
}
