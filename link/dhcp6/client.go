package dhcp6

import (
	"encoding/binary"
	"encoding/hex"
	"math/rand/v2"
	"net/netip"
	"slices"
	"time"

	"ibnetworkd/link"
	"ibnetworkd/link/dhcp"
)

// Config is how a client presents itself and what it asks for.
type Config struct {
	ClientID []byte // the DUID
	IAID     uint32
	Hostname string // "" sends none
	// HWServers is the hardware address of ff02::1:2 on the link.
	HWServers []byte
	Request   []uint16 // options to ask for beside those that are always used
	// Information asks for no address.
	Information bool
	// RapidCommit lets a server give an address with its first answer.
	RapidCommit bool
	// Release informs the server when the address is given back.
	Release bool
}

// Client is the client of one link. Times are since boot (CLOCK_BOOTTIME).
type Client struct {
	cfg      Config
	rnd      *rand.Rand
	source   netip.Addr // the link-local address, not tentative
	state    link.DHCPState
	downs    uint32        // losses of the carrier
	deadline time.Duration // of Tick, 0 for none
	xid      uint32
	began    time.Duration // first message of the exchange
	sent     time.Duration // last message: a lease counts from then
	tries    int           // messages of the exchange
	rt       time.Duration // retransmission timeout
	until    time.Duration // end of the exchange, 0 for none
	offer    *link.Lease   // the best advertisement, or what is requested
	rank     int           // preference of offer
	lease    *link.Lease   // that is used
	former   *link.Lease   // that is asked about, and not used
	declined *link.Lease   // that another host uses
	penalty  int           // refusals and conflicts in a row
	solMax   time.Duration
	infMax   time.Duration
	conflict netip.Addr
	refused  netip.Addr
	refusal  string
	noted    bool // a refusal of the last message
	drops    link.DHCPDrops
	out      []dhcp.Send
}

// RFC 8415, section 7.6.
const (
	firstTry   = time.Second      // SOL_TIMEOUT, REQ_TIMEOUT, CNF_TIMEOUT, INF_TIMEOUT, DEC_TIMEOUT
	maxDelay   = time.Second      // SOL_MAX_DELAY, INF_MAX_DELAY, CNF_MAX_DELAY
	maxRT      = time.Hour        // SOL_MAX_RT, INF_MAX_RT
	reqMaxRT   = 30 * time.Second // with reqTries, REQ_MAX_RC
	reqTries   = 10
	cnfMaxRT   = 4 * time.Second // with cnfMaxTime, CNF_MAX_RD
	cnfMaxTime = 10 * time.Second
	renFirst   = 10 * time.Second // REN_TIMEOUT, REB_TIMEOUT
	renMaxRT   = 10 * time.Minute // REN_MAX_RT, REB_MAX_RT
	decTries   = 4                // DEC_MAX_RC
	// declineWait is the pause after a conflict that the server has noted.
	declineWait = 12 * time.Second
)

// New makes a client of a link without a carrier. saved is the lease that it had, nil
// for none; in use says that its address is on the link, and the link has not been away since.
func New(cfg Config, seed uint64, saved *link.Lease, inUse bool) *Client {
	c := &Client{cfg: cfg, rnd: rand.New(rand.NewPCG(seed, 0)), state: link.DHCPStopped, solMax: maxRT, infMax: maxRT}
	switch {
	case saved == nil || saved.Address.IsValid() == cfg.Information:
	case inUse || cfg.Information:
		c.lease = saved
	default:
		c.former = saved
	}
	return c
}

// Deadline is when Tick is to be called, 0 for never.
func (c *Client) Deadline() time.Duration { return c.deadline }

// View is what the client has reached.
func (c *Client) View() link.DHCP {
	v := link.DHCP{State: c.state, Lease: c.lease, Conflict: c.conflict, Refused: c.refused, Refusal: c.refusal}
	switch c.state {
	case link.DHCPStopped, link.DHCPBound, link.DHCPWaiting:
	default:
		v.Tries = max(0, min(c.tries-1, 4))
	}
	return v
}

// Drops counts what was received and not used.
func (c *Client) Drops() link.DHCPDrops { return c.drops }

// Lease is the lease to keep over a restart: also one that is not confirmed yet.
func (c *Client) Lease() *link.Lease { return c.ask() }

// Listens returns which sockets the client reads: IPv6 while it waits for an answer.
func (c *Client) Listens() (ip bool, _ netip.Addr) {
	switch c.state {
	case link.DHCPStopped, link.DHCPBound:
		return false, netip.Addr{}
	case link.DHCPWaiting:
		return c.declined != nil, netip.Addr{}
	}
	return c.tries > 0, netip.Addr{}
}

// Addresses notes the link-local address of the link, invalid for none that can be used
// yet, and the addresses that another host uses.
func (c *Client) Addresses(now time.Duration, source netip.Addr, failed []netip.Addr) []dhcp.Send {
	c.source = source
	if l := c.lease; l != nil && source.IsValid() && slices.Contains(failed, l.Address.Addr()) {
		c.lease, c.conflict, c.declined = nil, l.Address.Addr(), l
		c.penalty++
		c.begin(now, link.DHCPWaiting)
		c.transmit(now)
	}
	return c.flush()
}

// Carrier notes that the link can be used, or not any more. downs is how often it lost
// its carrier: one that is back by now counts, too. resumed says that it had it all the
// time, as when the daemon alone was restarted.
func (c *Client) Carrier(now time.Duration, up bool, downs uint32, resumed bool) []dhcp.Send {
	up = up && c.source.IsValid()
	if !up || downs != c.downs {
		c.stop()
	}
	c.downs = downs
	switch {
	case !up || c.state != link.DHCPStopped:
	case resumed && c.lease != nil && !c.lease.Over(seconds(now)):
		c.schedule(now)
	default:
		c.start(now)
	}
	return c.flush()
}

func (c *Client) stop() {
	c.state, c.deadline, c.tries, c.offer, c.declined = link.DHCPStopped, 0, 0, nil, nil
	c.refused, c.refusal, c.noted = netip.Addr{}, "", false
	if c.lease != nil {
		c.deadline = c.end()
	}
}

// Renew sends a request to the servers now, to extend the lease or to get one.
func (c *Client) Renew(now time.Duration) []dhcp.Send {
	switch {
	case c.state == link.DHCPStopped:
	case c.cfg.Information:
		c.enter(now, link.DHCPInforming)
	case c.lease == nil:
		c.penalty = 0
		c.solicit(now, 0)
	default:
		c.enter(now, link.DHCPRebinding)
	}
	return c.flush()
}

// End gives the address back, if the server is to know.
func (c *Client) End(now time.Duration) []dhcp.Send {
	if l := c.lease; l != nil && l.Address.IsValid() && c.cfg.Release && c.state != link.DHCPStopped && !l.Over(seconds(now)) {
		c.begin(now, link.DHCPStopped)
		c.send(typeRelease, 0, serverOf(l), c.identity(l))
	}
	c.lease, c.former = nil, nil
	c.stop()
	return c.flush()
}

// Tick does what is due.
func (c *Client) Tick(now time.Duration) []dhcp.Send {
	if c.deadline == 0 || now < c.deadline {
		return nil
	}
	c.deadline = 0
	if c.lease != nil && c.lease.Over(seconds(now)) {
		c.lease = nil
		if c.state != link.DHCPStopped {
			c.solicit(now, 0)
		}
		return c.flush()
	}
	switch c.state {
	case link.DHCPSelecting:
		if c.offer != nil {
			c.enter(now, link.DHCPRequesting)
		} else {
			c.transmit(now)
		}
	case link.DHCPRequesting:
		if c.tries < reqTries {
			c.transmit(now)
		} else {
			c.solicit(now, 0)
		}
	case link.DHCPRebooting:
		c.tickRebooting(now)
	case link.DHCPBound:
		c.penalty = 0
		c.enter(now, link.DHCPRenewing)
	case link.DHCPRenewing:
		if !c.cfg.Information && now >= at(c.lease.Rebind) {
			c.enter(now, link.DHCPRebinding)
		} else {
			c.transmit(now)
		}
	case link.DHCPRebinding, link.DHCPInforming:
		c.transmit(now)
	case link.DHCPWaiting:
		if c.declined != nil && c.tries < decTries {
			c.transmit(now)
		} else {
			c.solicit(now, 0)
		}
	}
	return c.flush()
}

// tickRebooting goes on where no server has said that the former address is wrong.
func (c *Client) tickRebooting(now time.Duration) {
	switch f := c.ask(); {
	case f == nil || f.Over(seconds(now)):
		c.lease = nil
		c.solicit(now, 0)
	case c.until == 0 || now < c.until:
		c.transmit(now)
	default:
		c.use(now, f) // RFC 8415, section 18.2.3
	}
}

func seconds(t time.Duration) uint64 { return uint64(t / time.Second) }

func at(s uint64) time.Duration { return time.Duration(s) * time.Second }

func (c *Client) ask() *link.Lease {
	if c.lease != nil {
		return c.lease
	}
	return c.former
}

// start requests the former lease, or any, after a delay: hosts start together.
func (c *Client) start(now time.Duration) {
	delay := time.Duration(c.rnd.Int64N(int64(maxDelay)))
	f := c.ask()
	switch {
	case c.cfg.Information:
		c.begin(now, link.DHCPInforming)
	case f != nil && !f.Over(seconds(now)):
		c.begin(now, link.DHCPRebooting)
	default:
		c.lease = nil
		c.solicit(now, delay)
		return
	}
	c.deadline = now + max(delay, 1)
}

// solicit searches for servers after a delay.
func (c *Client) solicit(now, delay time.Duration) {
	c.former, c.declined = nil, nil
	c.begin(now, link.DHCPSelecting)
	if c.cfg.Information {
		c.state = link.DHCPInforming
	}
	if delay > 0 {
		c.deadline = now + delay
		return
	}
	c.transmit(now)
}

// wait begins again after a while, which grows while nothing else happens.
func (c *Client) wait(now time.Duration) {
	c.begin(now, link.DHCPWaiting)
	c.deadline = now + c.random(min(time.Second<<min(c.penalty, 7), 2*time.Minute))
	if end := c.end(); end != 0 {
		c.deadline = min(c.deadline, max(end, now+1))
	}
	c.penalty++
}

func (c *Client) begin(now time.Duration, s link.DHCPState) {
	if s != link.DHCPRequesting {
		c.offer = nil
	}
	c.state, c.xid, c.began, c.tries, c.until = s, c.rnd.Uint32()&0xffffff, now, 0, 0
}

func (c *Client) enter(now time.Duration, s link.DHCPState) {
	c.begin(now, s)
	c.transmit(now)
}

// random is RT of RFC 8415, section 15, for a base: a tenth more or less.
func (c *Client) random(base time.Duration) time.Duration {
	return base*9/10 + time.Duration(c.rnd.Int64N(int64(base/5)))
}

// transmit sends the message of the state and sets the time of the next.
func (c *Client) transmit(now time.Duration) {
	if c.sent = now; c.tries == 0 {
		c.began = now
	} else if !c.noted {
		c.refused, c.refusal = netip.Addr{}, "" // no server says so any more
	}
	c.noted = false
	first, most := firstTry, time.Duration(0)
	elapsed := now - c.began
	switch c.state {
	case link.DHCPSelecting:
		most = c.solMax
		opts := options{c.identity(c.lease)}
		if c.cfg.RapidCommit {
			opts = append(opts, option{optRapidCommit, nil})
		}
		c.send(typeSolicit, elapsed, opts...)
	case link.DHCPRequesting:
		most = reqMaxRT
		c.send(typeRequest, elapsed, serverOf(c.offer), c.identity(c.offer))
	case link.DHCPRebooting:
		most = cnfMaxRT
		if c.tries == 0 {
			c.until = now + cnfMaxTime
		}
		c.send(typeConfirm, elapsed, c.identity(c.ask()))
	case link.DHCPRenewing, link.DHCPInforming:
		if c.cfg.Information {
			most = c.infMax
			c.send(typeInformation, elapsed)
			break
		}
		first, most, c.until = renFirst, renMaxRT, at(c.lease.Rebind)
		c.send(typeRenew, elapsed, serverOf(c.lease), c.identity(c.lease))
	case link.DHCPRebinding:
		first, most = renFirst, renMaxRT
		c.send(typeRebind, elapsed, c.identity(c.lease))
	case link.DHCPWaiting:
		c.send(typeDecline, elapsed, serverOf(c.declined), c.identity(c.declined))
	}
	c.retransmit(now, first, most)
}

// retransmit sets the time of the next message by RFC 8415, section 15.
func (c *Client) retransmit(now, first, most time.Duration) {
	switch {
	case c.tries == 0 && c.state == link.DHCPSelecting:
		c.rt = first + 1 + time.Duration(c.rnd.Int64N(int64(first/10))) // longer, to collect advertisements
	case c.tries == 0:
		c.rt = c.random(first)
	default:
		c.rt += c.random(c.rt)
	}
	if most > 0 && c.rt > most {
		c.rt = c.random(most)
	}
	c.tries++
	c.deadline = now + c.rt
	for _, end := range []time.Duration{c.until, c.end()} {
		if end != 0 {
			c.deadline = min(c.deadline, max(end, now+1))
		}
	}
}

// end is when the lease ends, 0 for never.
func (c *Client) end() time.Duration {
	if c.lease == nil {
		return 0
	}
	return at(c.lease.Until())
}

// schedule goes to the state that the lease's age asks for.
func (c *Client) schedule(now time.Duration) {
	t1, t2 := at(c.lease.Renew), at(c.lease.Rebind)
	switch {
	case c.cfg.Information || t1 == 0 || now < t1:
		c.begin(now, link.DHCPBound)
		if c.deadline = c.end(); t1 != 0 {
			// Hosts that started together do not renew together.
			c.deadline = max(t1-time.Duration(c.rnd.Int64N(max(int64(t1-now)/16, 0)+1)), now+1)
		}
	case now < t2:
		c.enter(now, link.DHCPRenewing)
	default:
		c.enter(now, link.DHCPRebinding)
	}
}

func (c *Client) flush() []dhcp.Send {
	out := c.out
	c.out = nil
	return out
}

func serverOf(l *link.Lease) option {
	id, _ := hex.DecodeString(l.ServerID) // of an answer, or of a file that was checked
	return option{optServerID, id}
}

// identity is the IA_NA with the address of a lease, nil for none.
func (c *Client) identity(l *link.Lease) option {
	b := append(binary.BigEndian.AppendUint32(nil, c.cfg.IAID), make([]byte, 8)...)
	if l != nil {
		b = options{{optIAAddr, append(l.Address.Addr().AsSlice(), make([]byte, 8)...)}}.append(b)
	}
	return option{optIANA, b}
}

// asked are the options that are always asked for.
var asked = []uint16{optDNS, optDomains, optSNTP, optNTP}

// send queues a message. Options without a value are left out where they would say nothing.
func (c *Client) send(kind byte, elapsed time.Duration, extra ...option) {
	m := &message{kind: kind, xid: c.xid, opts: options{{optClientID, c.cfg.ClientID}}}
	m.opts = append(m.opts, extra...)
	m.opts = append(m.opts, option{optElapsed, binary.BigEndian.AppendUint16(nil, uint16(min(elapsed/(10*time.Millisecond), 0xffff)))})
	asks := asked
	switch kind {
	case typeConfirm, typeRelease, typeDecline:
		asks = nil
	case typeInformation:
		asks = append(slices.Clip(asks), optRefresh, optInfMaxRT)
	default:
		asks = append(slices.Clip(asks), optSolMaxRT)
	}
	if asks != nil {
		var b []byte
		for _, code := range append(asks, c.cfg.Request...) {
			b = binary.BigEndian.AppendUint16(b, code)
		}
		m.opts = append(m.opts, option{optRequest, b})
		if c.cfg.Hostname != "" && kind != typeInformation {
			m.opts = append(m.opts, option{optFQDN, fqdn(c.cfg.Hostname)})
		}
	}
	c.out = append(c.out, dhcp.Send{EtherType: EtherIPv6, To: c.cfg.HWServers, Data: datagram(c.source, m.encode())})
}
