package lab

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/net/icmp"
	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"
	"golang.org/x/sys/unix"

	"ibnetworkd/lab/timeline"
)

// answerLimit is how long an echo request may stay without an answer.
const answerLimit = 500 * time.Millisecond

// pinger sends echo requests to one address, in the network namespace that it was made
// in.  A process for each request, as ping(8) would be, is too much load for a
// guest that watches many others.
type pinger struct {
	conn  *net.IPConn
	raw   syscall.RawConn
	to    unix.Sockaddr
	six   bool
	id    int
	reply [1500]byte
}

func newPinger(addr string) (*pinger, error) {
	ip, err := netip.ParseAddr(addr)
	if err != nil {
		return nil, err
	}
	p := &pinger{six: ip.Is6(), id: int(rand.Uint32() & 0xffff)}
	network := "ip4:icmp"
	if p.six {
		network = "ip6:ipv6-icmp"
		to := &unix.SockaddrInet6{Addr: ip.As16()}
		if zone := ip.Zone(); zone != "" {
			link, err := net.InterfaceByName(zone)
			if err != nil {
				return nil, err
			}
			to.ZoneId = uint32(link.Index)
		}
		p.to = to
	} else {
		p.to = &unix.SockaddrInet4{Addr: ip.As4()}
	}
	if p.conn, err = net.ListenIP(network, nil); err != nil {
		return nil, err
	}
	if p.raw, err = p.conn.SyscallConn(); err == nil {
		err = p.filter()
	}
	if err != nil {
		p.conn.Close()
		return nil, err
	}
	return p, nil
}

// filter lets only echo replies come: the kernel gives every such socket a copy of
// all that the host gets.
func (p *pinger) filter() (err error) {
	cerr := p.raw.Control(func(fd uintptr) {
		if !p.six {
			const icmpFilter = 1 // ICMP_FILTER of linux/icmp.h: a mask of what is dropped
			err = unix.SetsockoptInt(int(fd), unix.SOL_RAW, icmpFilter, ^(1 << int(ipv4.ICMPTypeEchoReply)))
			return
		}
		var f unix.ICMPv6Filter
		for i := range f.Data {
			f.Data[i] = ^uint32(0)
		}
		f.Data[ipv6.ICMPTypeEchoReply/32] &^= 1 << (ipv6.ICMPTypeEchoReply % 32)
		err = unix.SetsockoptICMPv6Filter(int(fd), unix.SOL_ICMPV6, unix.ICMPV6_FILTER, &f)
	})
	return errors.Join(cerr, err)
}

// send sends one request and waits for nothing.
func (p *pinger) send(seq uint16) error {
	m := icmp.Message{Type: ipv4.ICMPTypeEcho, Body: &icmp.Echo{ID: p.id, Seq: int(seq), Data: make([]byte, 56)}}
	if p.six {
		m.Type = ipv6.ICMPTypeEchoRequest
	}
	b, err := m.Marshal(nil)
	if err != nil {
		return err
	}
	// A full queue is a lost request, not one to wait for.
	cerr := p.raw.Write(func(fd uintptr) bool {
		err = unix.Sendto(int(fd), b, unix.MSG_DONTWAIT, p.to)
		return true
	})
	return errors.Join(cerr, err)
}

// receive returns the sequence number of an answer.  It waits until then, or, if then
// is zero, only reads what has come already.
func (p *pinger) receive(then time.Time) (uint16, error) {
	if err := p.conn.SetReadDeadline(then); err != nil {
		return 0, err
	}
	for {
		n, rerr := 0, error(nil)
		if err := p.raw.Read(func(fd uintptr) bool {
			n, _, rerr = unix.Recvfrom(int(fd), p.reply[:], unix.MSG_DONTWAIT)
			return then.IsZero() || rerr != unix.EAGAIN
		}); err != nil {
			return 0, err
		}
		if rerr != nil {
			return 0, rerr
		}
		if seq, ok := p.answer(p.reply[:n]); ok {
			return seq, nil
		}
	}
}

// answer reads an answer to this pinger.
func (p *pinger) answer(b []byte) (uint16, bool) {
	proto := 58
	if !p.six {
		proto = 1
		if len(b) < 20 || len(b) < int(b[0]&15)*4 {
			return 0, false
		}
		b = b[int(b[0]&15)*4:] // the IP header
	}
	m, err := icmp.ParseMessage(proto, b)
	if err != nil || m.Type != ipv4.ICMPTypeEchoReply && m.Type != ipv6.ICMPTypeEchoReply {
		return 0, false
	}
	e, ok := m.Body.(*icmp.Echo)
	if !ok || e.ID != p.id {
		return 0, false
	}
	return uint16(e.Seq), true
}

// request is one whose fate is not reported yet.
type request struct {
	seq         uint16
	at, until   time.Time // sent; not answered by then, it is lost
	known, lost bool
}

// Pinging is a running series of echo requests.
type Pinging struct {
	interval    time.Duration
	sent, lost  atomic.Int64
	most        atomic.Int64 // lost in a row
	done, ended chan struct{}
	gap         Gap       // since the last that was answered
	open        []request // in the order of sending
	noted       time.Time

	mu   sync.Mutex
	gaps []Gap
}

// Gap is a number of requests in a row without an answer.
type Gap struct {
	From, To time.Time // when the first and the last of them were sent
	Lost     int
}

func (g Gap) String() string {
	return fmt.Sprintf("%d from %s to %s", g.Lost, g.From.Format("15:04:05.000"), g.To.Format("15:04:05.000"))
}

// Gaps returns the gaps that are over, the first hundred of them; after Stop all are.
func (s *Pinging) Gaps() []Gap {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.gaps)
}

// Count returns how many were sent of which it is known by now whether they were
// answered, and how many of them were not.
func (s *Pinging) Count() (sent, lost int) { return int(s.sent.Load()), int(s.lost.Load()) }

// Silence returns how long at most requests had no answer, which is how many in a row
// were lost: time in which the guest stood still and asked nothing is not in it.
func (s *Pinging) Silence() time.Duration {
	n := s.most.Load()
	if n == 0 {
		return 0
	}
	return time.Duration(n)*s.interval + answerLimit
}

// Stop ends the series, waits for the last answers, and returns its counters.
func (s *Pinging) Stop() (sent, lost int) {
	close(s.done)
	<-s.ended
	return s.Count()
}

// run sends a request each interval, whatever becomes of the others, and reports what
// became of them in the order of sending.
func (s *Pinging) run(p *pinger, row string) {
	defer close(s.ended)
	defer p.conn.Close()
	var seq uint16
	next := time.Now()
	looked, stopping := next, false
	for !stopping || len(s.open) > 0 {
		for now := time.Now(); !stopping && !now.Before(next); now = time.Now() {
			seq++
			err := p.send(seq)
			s.open = append(s.open, request{seq: seq, at: now, until: time.Now().Add(answerLimit)})
			if err != nil {
				s.settle(seq, true)
			}
			// A guest that was not let run makes up for a little of it.
			if next = next.Add(s.interval); now.Sub(next) > answerLimit {
				next = now.Add(s.interval)
			}
		}
		const longest = 100 * time.Millisecond // Stop is not heard before
		then := time.Now().Add(longest)
		if !stopping && next.Before(then) {
			then = next
		}
		if len(s.open) > 0 {
			if end := s.open[0].until; end.Before(then) {
				then = end
			}
		}
		got, err := p.receive(then)
		for ; err == nil; got, err = p.receive(time.Time{}) {
			s.settle(got, false)
		}
		if !errors.Is(err, os.ErrDeadlineExceeded) && err != unix.EAGAIN {
			time.Sleep(20 * time.Millisecond) // of no answer in particular
		}
		// What came while this process did not run is read before it is lost, and
		// what could not come, because the guest stood still, may come yet.
		now := time.Now()
		if late := now.Sub(looked) - longest; late > answerLimit/5 {
			for i := range s.open {
				s.open[i].until = s.open[i].until.Add(late)
			}
		}
		looked = now
		for got, err := p.receive(time.Time{}); err == nil; got, err = p.receive(time.Time{}) {
			s.settle(got, false)
		}
		s.tell(now, row)
		select {
		case <-s.done:
			stopping = true
		default:
		}
	}
	s.endGap()
	s.note(row)
	record(timeline.Record{Row: row})
}

// settle notes what became of a request.
func (s *Pinging) settle(seq uint16, lost bool) {
	for i := range s.open {
		if r := &s.open[i]; r.seq == seq && !r.known {
			r.known, r.lost = true, lost
		}
	}
}

// tell counts and records the requests whose fate is known, up to the first that
// may still be answered.
func (s *Pinging) tell(now time.Time, row string) {
	for len(s.open) > 0 {
		r := s.open[0]
		if !r.known && now.Before(r.until) {
			return
		}
		s.open = s.open[1:]
		state := "answers"
		if r.lost || !r.known {
			s.lost.Add(1)
			if s.gap.Lost++; s.gap.Lost == 1 {
				s.gap.From = r.at
			}
			s.gap.To = r.at
			s.most.Store(max(s.most.Load(), int64(s.gap.Lost)))
			state = "lost"
		} else {
			s.endGap()
		}
		s.sent.Add(1)
		if record(timeline.Record{At: r.at, Row: row, Text: state}) || now.Sub(s.noted) > time.Second {
			s.noted = now
			s.note(row)
		}
	}
}

func (s *Pinging) endGap() {
	if s.gap.Lost == 0 {
		return
	}
	s.mu.Lock()
	if len(s.gaps) < 100 {
		s.gaps = append(s.gaps, s.gap)
	}
	s.mu.Unlock()
	s.gap = Gap{}
}

// note puts the counters beside the row.
func (s *Pinging) note(row string) {
	sent, lost := s.Count()
	record(timeline.Record{Row: row, Text: fmt.Sprintf("lost %d of %d", lost, sent), Note: true})
}

func (g *G) pings(h *Host, addr string, interval time.Duration) *Pinging {
	g.Helper()
	var p *pinger
	open := func() (err error) {
		p, err = newPinger(addr)
		return err
	}
	var err error
	if h == nil {
		err = open()
	} else {
		err = h.Do(open)
	}
	if err != nil {
		g.Fatalf("%sping of %s: %v", h.prefix(), addr, err)
	}
	s := &Pinging{interval: interval, done: make(chan struct{}), ended: make(chan struct{})}
	go s.run(p, "ping "+h.prefix()+addr)
	return s
}
