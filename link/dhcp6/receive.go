package dhcp6

import (
	"bytes"
	"net/netip"
	"time"

	"ibnetworkd/link"
	"ibnetworkd/link/dhcp"
)

// Packet takes an IPv6 packet of the link. checked says that the kernel vouches for the
// checksum of UDP.
func (c *Client) Packet(now time.Duration, b []byte, checked bool) []dhcp.Send {
	if ip, _ := c.Listens(); !ip {
		return nil
	}
	payload, from, err := parseDatagram(b, c.source, checked)
	var m *message
	if err == nil {
		m, err = decode(payload)
	}
	if err != nil {
		c.malformed(err.Error())
		return nil
	}
	if m.xid != c.xid || !bytes.Equal(m.opts.get(optClientID), c.cfg.ClientID) {
		c.drops.Foreign++
		return nil
	}
	id, err := m.server()
	if err != nil {
		c.malformed(err.Error())
		return nil
	}
	c.limits(m)
	switch m.kind {
	case typeAdvertise:
		if c.state == link.DHCPSelecting {
			c.offered(now, m, id, from)
		} else {
			c.contradictory("an advertisement that was not requested")
		}
	case typeReply:
		c.replied(now, m, id, from)
	default:
		c.malformed("no message type of a server")
	}
	return c.flush()
}

// Oversized notes a packet that was longer than any message that is read.
func (c *Client) Oversized() { c.malformed("longer than a message can be") }

func (c *Client) malformed(why string) {
	c.drops.Malformed++
	c.drops.Last = why
}

func (c *Client) contradictory(why string) {
	c.drops.Contradictory++
	c.drops.Last = why
}

// limits notes how seldom servers want to be asked where none answers.
func (c *Client) limits(m *message) {
	set := func(code uint16, to *time.Duration) {
		if n, ok := m.opts.seconds(code); ok && at(uint64(n)) >= leastMaxRT && at(uint64(n)) <= mostMaxRT {
			*to = at(uint64(n))
		}
	}
	set(optSolMaxRT, &c.solMax)
	set(optInfMaxRT, &c.infMax)
}

// refuse notes a server that gives nothing: the first for each message, since any number of
// answers may come.
func (c *Client) refuse(from netip.Addr, why string) {
	if !c.noted {
		c.refused, c.refusal, c.noted = from, why, true
	}
}

// failed counts an answer without success in a status, or with one that cannot be read.
func (c *Client) failed(code status, err error) {
	if err != nil {
		c.contradictory(err.Error())
	} else {
		c.contradictory("an answer with " + code.String())
	}
}

func (c *Client) offered(now time.Duration, m *message, id string, from netip.Addr) {
	l, code, err := m.binding(c.cfg.IAID, netip.Addr{}, seconds(c.sent))
	rank := m.opts.get(optPreference)
	switch {
	case err != nil:
		c.contradictory(err.Error())
		return
	case l == nil:
		c.refuse(from, code.String())
		return
	case l.Lifetime == 0:
		c.contradictory("an offer of " + l.Address.Addr().String() + " for 0 s")
		return
	case len(rank) > 1:
		c.contradictory("a preference of more than a byte")
		return
	}
	n := 0
	if len(rank) == 1 {
		n = int(rank[0])
	}
	if c.offer == nil || n > c.rank {
		l.Server, l.ServerID = from, id
		c.offer, c.rank = l, n
	}
	// RFC 8415, section 18.2.9: the first second is for all servers to answer.
	if n == 255 || c.tries > 1 {
		c.enter(now, link.DHCPRequesting)
	}
}

func (c *Client) replied(now time.Duration, m *message, id string, from netip.Addr) {
	switch {
	case c.cfg.Information:
		c.informed(now, m, id, from)
	case c.state == link.DHCPWaiting:
		if c.declined != nil {
			c.declined, c.deadline = nil, now+c.random(declineWait)
		}
	case c.state == link.DHCPRebooting:
		c.confirmed(now, m, from)
	case c.state == link.DHCPSelecting && (!c.cfg.RapidCommit || !m.opts.has(optRapidCommit)):
		c.contradictory("a reply that was not requested")
	case c.state == link.DHCPRequesting && id != c.offer.ServerID, c.state == link.DHCPRenewing && id != c.lease.ServerID:
		c.drops.Foreign++
	default:
		c.granted(now, m, id, from)
	}
}

// informed takes the answer to a request for information. It is used until there is
// another, and asked for again after the time that it says.
func (c *Client) informed(now time.Duration, m *message, id string, from netip.Addr) {
	if code, err := m.opts.status(); err != nil || code != statusSuccess {
		c.failed(code, err)
		return
	}
	l := &link.Lease{Server: from, ServerID: id, Lifetime: link.Forever, Granted: seconds(now)}
	l.Renew = l.Granted + m.refresh()
	m.information(l)
	c.use(now, l)
}

// confirmed takes the answer about a former address.
func (c *Client) confirmed(now time.Duration, m *message, from netip.Addr) {
	f := c.ask()
	switch code, err := m.opts.status(); {
	case err == nil && code == statusNotOnLink:
		c.refuse(from, code.String())
		c.lease = nil
		c.solicit(now, 0)
	case err != nil || code != statusSuccess:
		c.failed(code, err)
	case f.Over(seconds(now)):
		c.lease = nil
		c.solicit(now, 0)
	default:
		c.use(now, f)
	}
}

// granted takes the answer to a message that asks for an address.
func (c *Client) granted(now time.Duration, m *message, id string, from netip.Addr) {
	want := netip.Addr{}
	if w := c.offer; w != nil {
		want = w.Address.Addr()
	} else if c.lease != nil {
		want = c.lease.Address.Addr()
	}
	l, code, err := m.binding(c.cfg.IAID, want, seconds(c.sent))
	switch {
	case err != nil:
		c.contradictory(err.Error())
	case l == nil && code == statusNoBinding && c.lease != nil && c.state != link.DHCPRequesting:
		// RFC 8415, section 18.2.10.1: a server that has lost its memory is asked for the address.
		l := *c.lease
		l.Server, l.ServerID = from, id
		c.offer = &l
		c.enter(now, link.DHCPRequesting)
	case l == nil && (code == statusUnspecFail || code == statusUseMulticast):
		c.failed(code, nil) // is sent again
	case l == nil && c.lease != nil && code != statusNotOnLink:
		// What no server takes back is used to its end: the message is sent again, or after a
		// request all servers are asked.
		c.refuse(from, code.String())
		if c.state == link.DHCPRequesting {
			c.wait(now)
		}
	case l != nil && l.Lifetime == 0 && c.lease != nil && l.Address != c.lease.Address:
		c.contradictory("the end of " + l.Address.Addr().String() + ", which is not used")
	case l == nil, l.Lifetime == 0:
		why := code.String()
		if l != nil {
			why = "it takes the address back"
		}
		c.refuse(from, why)
		c.lease = nil
		c.wait(now)
	case l.Over(seconds(now)):
		c.contradictory("the lease ended before it arrived")
	default:
		l.Server, l.ServerID = from, id
		m.information(l)
		c.use(now, l)
	}
}

// use begins to use a lease, or goes on with it.
func (c *Client) use(now time.Duration, l *link.Lease) {
	c.lease, c.former, c.refused, c.refusal, c.noted, c.conflict = l, nil, netip.Addr{}, "", false, netip.Addr{}
	c.drops.Last = ""
	c.schedule(now)
}
