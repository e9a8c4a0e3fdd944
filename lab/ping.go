package lab

import (
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"time"

	"golang.org/x/net/icmp"
	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"
)

// pinger asks one address for echoes, in the network namespace that it was made
// in.  A process for each request, as ping(8) would be, is too much load for a
// guest that watches many others.
type pinger struct {
	conn  *icmp.PacketConn
	to    net.Addr
	six   bool
	id    int
	seq   int
	reply [1500]byte
}

func newPinger(addr string) (*pinger, error) {
	ip, err := netip.ParseAddr(addr)
	if err != nil {
		return nil, err
	}
	p := &pinger{six: ip.Is6(), id: int(rand.Uint32() & 0xffff), to: &net.IPAddr{IP: ip.AsSlice(), Zone: ip.Zone()}}
	if p.six {
		p.conn, err = icmp.ListenPacket("ip6:ipv6-icmp", "::")
	} else {
		p.conn, err = icmp.ListenPacket("ip4:icmp", "0.0.0.0")
	}
	if err != nil {
		return nil, err
	}
	return p, nil
}

// ping sends one request and waits for its answer.
func (p *pinger) ping(limit time.Duration) error {
	p.seq = (p.seq + 1) & 0xffff
	m := icmp.Message{Type: ipv4.ICMPTypeEcho, Body: &icmp.Echo{ID: p.id, Seq: p.seq, Data: make([]byte, 56)}}
	proto := 1
	if p.six {
		m.Type, proto = ipv6.ICMPTypeEchoRequest, 58
	}
	b, err := m.Marshal(nil)
	if err != nil {
		return err
	}
	end := time.Now().Add(limit)
	if err := p.conn.SetReadDeadline(end); err != nil {
		return err
	}
	if _, err := p.conn.WriteTo(b, p.to); err != nil {
		time.Sleep(time.Until(end)) // as a lost one: no route may be there in a moment
		return err
	}
	for {
		n, _, err := p.conn.ReadFrom(p.reply[:])
		if err != nil {
			return fmt.Errorf("no answer: %w", err)
		}
		r, err := icmp.ParseMessage(proto, p.reply[:n])
		if err != nil || r.Type != ipv4.ICMPTypeEchoReply && r.Type != ipv6.ICMPTypeEchoReply {
			continue
		}
		if e, ok := r.Body.(*icmp.Echo); ok && e.ID == p.id && e.Seq == p.seq {
			return nil
		}
	}
}
