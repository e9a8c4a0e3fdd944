package dhcp

import (
	"net/netip"
	"time"

	"ibnetworkd/ib"
	"ibnetworkd/link"
)

// RFC 5227, section 1.1.
const (
	probeWait        = time.Second
	probeNum         = 3
	probeMin         = time.Second
	probeMax         = 2 * time.Second
	announceWait     = 2 * time.Second
	announceNum      = 2
	announceInterval = 2 * time.Second
	declineWait      = 12 * time.Second // RFC 2131, section 3.1: 10 s at least
)

// arp queues a request: a probe where from is 0.0.0.0.
func (c *Client) arp(op uint16, from, about netip.Addr) {
	p := arpPacket{op: op, from: c.cfg.HWAddr, sip: from, tip: about}
	c.out = append(c.out, Send{EtherARP, nil, p.encode(c.cfg.HType)})
}

// probe sends the next probe, or uses the address when none has been answered.
func (c *Client) probe(now time.Duration) {
	switch {
	case c.probed.Over(seconds(now)):
		c.probed = nil
		c.discover(now)
	case c.probes < probeNum:
		c.probes++
		c.arp(arpRequest, netip.IPv4Unspecified(), c.probed.Address.Addr())
		c.deadline = now + announceWait
		if c.probes < probeNum {
			c.deadline = now + probeMin + time.Duration(c.rnd.Int64N(int64(probeMax-probeMin)))
		}
	default:
		c.announce = announceNum
		c.use(now, c.probed)
		c.announce--
		c.arp(arpRequest, c.lease.Address.Addr(), c.lease.Address.Addr())
	}
}

// ARP takes an ARP packet of the link.
func (c *Client) ARP(now time.Duration, b []byte) []Send {
	a, ok := parseARP(b, c.cfg.HWAddr.Len())
	if !ok || sameHost(a.from, c.cfg.HWAddr) {
		return nil
	}
	switch c.state {
	case link.DHCPProbing:
		about := c.probed.Address.Addr()
		if a.sip == about || a.op == arpRequest && a.sip.IsUnspecified() && a.tip == about {
			c.decline(now, about)
		}
	case link.DHCPRenewing:
		if a.sip == c.hop && c.hopTries > 0 {
			c.request(now, a.from)
		}
	}
	return c.flush()
}

// decline gives an address back that another host uses.
func (c *Client) decline(now time.Duration, about netip.Addr) {
	c.xid = c.rnd.Uint32()
	none := netip.IPv4Unspecified()
	c.send(none, limitedBroadcast, nil, c.message(now, typeDecline, none,
		option{optAddress, about.AsSlice()}, option{optServer, c.probed.Server.AsSlice()}))
	c.probed, c.conflict = nil, about
	c.wait(now, declineWait)
}

// request asks the server for more time, over the host with a hardware address.
func (c *Client) request(now time.Duration, to ib.HWAddr) {
	c.hop, c.hopTries = netip.Addr{}, 0
	own := c.lease.Address.Addr()
	c.send(own, c.lease.Server, to.Bytes(), c.message(now, typeRequest, own))
	c.deadline = now + c.patience(now, at(c.lease.Rebind))
}
