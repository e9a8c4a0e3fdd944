package dhcp

import (
	"net/netip"
	"time"

	"ibnetworkd/ib"
	"ibnetworkd/link"
	"ibnetworkd/link/arp"
)

// declineWait is the pause after a DHCPDECLINE: RFC 2131, section 3.1, asks for 10 s at least.
const declineWait = 12 * time.Second

// arp queues a request: a probe where from is 0.0.0.0.
func (c *Client) arp(from, about netip.Addr) {
	p := arp.Packet{Op: arp.Request, From: c.cfg.HWAddr, Sender: from, Target: about}
	c.out = append(c.out, Send{arp.EtherType, nil, p.Encode(c.cfg.HType)})
}

// probe sends the next probe, or uses the address when none has been answered.
func (c *Client) probe(now time.Duration) {
	switch {
	case c.probed.Over(seconds(now)):
		c.probed = nil
		c.discover(now)
	case c.probes < arp.ProbeNum:
		c.probes++
		c.arp(netip.IPv4Unspecified(), c.probed.Address.Addr())
		c.deadline = now + arp.AnnounceWait
		if c.probes < arp.ProbeNum {
			c.deadline = now + arp.Between(c.rnd, arp.ProbeMin, arp.ProbeMax)
		}
	default:
		c.use(now, c.probed)
	}
}

// ARP takes an ARP packet of the link.
func (c *Client) ARP(now time.Duration, b []byte) []Send {
	a, ok := arp.Parse(b, c.cfg.HWAddr.Len())
	if !ok || arp.SameHost(a.From, c.cfg.HWAddr) {
		return nil
	}
	switch c.state {
	case link.DHCPProbing:
		about := c.probed.Address.Addr()
		if a.Claims(about) || a.Probes(about) {
			c.decline(now, about)
		}
	case link.DHCPRenewing:
		if a.Sender == c.hop && c.hopTries > 0 {
			c.request(now, a.From)
		}
	}
	return c.flush()
}

// Conflict notes that another host uses an address: if it is the one in use, it is given back
// (RFC 5227, section 2.4).
func (c *Client) Conflict(now time.Duration, about netip.Addr) []Send {
	if c.lease == nil || c.state == link.DHCPStopped || c.lease.Address.Addr() != about {
		return nil
	}
	c.lease, c.probed = nil, c.lease
	c.decline(now, about)
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

// request sends the server a request for more time, by way of the host with a hardware address.
func (c *Client) request(now time.Duration, to ib.HWAddr) {
	c.hop, c.hopTries = netip.Addr{}, 0
	own := c.lease.Address.Addr()
	c.send(own, c.lease.Server, to.Bytes(), c.message(now, typeRequest, own))
	c.deadline = now + c.patience(now, at(c.lease.Rebind))
}
