package dhcp

import (
	"bytes"
	"net/netip"
	"slices"
	"time"

	"ibnetworkd/link"
	"ibnetworkd/link/arp"
)

// Packet takes an IPv4 packet of the link. checked says that the kernel vouches for the
// checksum of UDP.
func (c *Client) Packet(now time.Duration, b []byte, checked bool) []Send {
	if ip, _ := c.Listens(); !ip {
		return nil
	}
	payload, err := parseDatagram(b, checked)
	var m *message
	if err == nil {
		m, err = decode(payload)
	}
	if err != nil {
		c.malformed(err)
		return nil
	}
	if !c.ours(m) {
		c.drops.Foreign++
		return nil
	}
	switch m.kind() {
	case typeOffer:
		if c.state == link.DHCPSelecting {
			c.offered(now, m)
		}
	case typeAck:
		c.acknowledged(now, m)
	case typeNak:
		c.refuse(now, m)
	default:
		c.drops.Malformed++
		c.drops.Last = "no message type of a server"
	}
	return c.flush()
}

// Oversized notes a packet that was longer than any message that is read.
func (c *Client) Oversized() {
	c.drops.Malformed++
	c.drops.Last = "longer than a message can be"
}

func (c *Client) malformed(err error) {
	c.drops.Malformed++
	c.drops.Last = err.Error()
}

func (c *Client) contradictory(why string) {
	c.drops.Contradictory++
	c.drops.Last = why
}

// ours reports whether a message answers this client.
func (c *Client) ours(m *message) bool {
	if m.op != 2 || m.xid != c.xid {
		return false
	}
	if c.cfg.HType != link.ARPHRDInfiniBand && !bytes.Equal(m.chaddr, c.cfg.HWAddr.Bytes()) {
		return false
	}
	// RFC 6842: a server that sends it sends what it was sent.
	if id, ok := m.options[optClientID]; ok && !bytes.Equal(id, c.cfg.ClientID) {
		return false
	}
	return c.allowed(m.addr(optServer))
}

// allowed reports whether the unit lets the client listen to a server.
func (c *Client) allowed(server netip.Addr) bool {
	in := func(p netip.Prefix) bool { return p.Contains(server) }
	if len(c.cfg.Allow) > 0 {
		return slices.ContainsFunc(c.cfg.Allow, in)
	}
	return !slices.ContainsFunc(c.cfg.Deny, in)
}

func (c *Client) offered(now time.Duration, m *message) {
	l, err := m.grant(seconds(now))
	if err != nil {
		c.contradictory(err.Error())
		return
	}
	xid := c.xid
	c.begin(now, link.DHCPRequesting)
	c.xid, c.offer = xid, *l // RFC 2131, section 4.4.1: that of the offer
	c.transmit(now)
}

func (c *Client) acknowledged(now time.Duration, m *message) {
	var address, server netip.Addr // the zero Addr is any
	switch c.state {
	case link.DHCPRequesting:
		address, server = c.offer.Address.Addr(), c.offer.Server
	case link.DHCPRebooting:
		address = c.former().Address.Addr()
	case link.DHCPRenewing:
		address, server = c.lease.Address.Addr(), c.lease.Server
	case link.DHCPRebinding:
		address = c.lease.Address.Addr()
	default:
		c.contradictory("an acknowledgement that was not requested")
		return
	}
	l, err := m.grant(seconds(c.sent))
	switch {
	case err != nil:
		c.contradictory(err.Error())
	case l.Address.Addr() != address:
		c.contradictory("the acknowledgement of " + l.Address.Addr().String() + ", " + address.String() + " was requested")
	case server.IsValid() && l.Server != server:
		c.drops.Foreign++
	case l.Over(seconds(now)):
		c.contradictory("the lease ended before it arrived")
	case c.cfg.Probe && c.lease == nil:
		c.lease, c.probed, c.probes, c.state = nil, l, 0, link.DHCPProbing
		c.deadline = now + arp.Between(c.rnd, 0, arp.ProbeWait)
	default:
		c.use(now, l)
	}
}

// use begins to use a lease, or goes on with it.
func (c *Client) use(now time.Duration, l *link.Lease) {
	c.lease, c.probed, c.refused, c.conflict, c.drops.Last = l, nil, netip.Addr{}, netip.Addr{}, ""
	c.schedule(now)
}

// refuse takes a DHCPNAK: the former address is not used any more.
func (c *Client) refuse(now time.Duration, m *message) {
	server := m.addr(optServer)
	switch {
	case !usable(server):
		c.contradictory("a refusal without one server identifier")
		return
	case c.state == link.DHCPSelecting:
		c.contradictory("a refusal that was not requested")
		return
	case c.state == link.DHCPRequesting && server != c.offer.Server, c.state == link.DHCPRenewing && server != c.lease.Server:
		c.drops.Foreign++
		return
	}
	c.lease, c.probed, c.refused = nil, nil, server
	c.wait(now, 0)
}

// wait begins again after a while, which grows while nothing else happens.
func (c *Client) wait(now, least time.Duration) {
	c.state = link.DHCPWaiting
	c.deadline = now + c.jitter(max(least, min(100*time.Millisecond<<min(c.penalty, 10), 64*time.Second)))
	c.penalty++
}
