// Package simfabric is a subnet in this process: switches and adapters that
// answer subnet and performance management as hardware does, links that can be
// cut, lose, delay and repeat packets, linear and multicast forwarding by what
// was programmed, P_Key and M_Key checks, traps that are repeated until they
// are repressed, and on every adapter port a host whose kernel hands MADs to
// agents as ib_mad does.
//
// Programs reach it as a transport.Transport (Open), through agents (Register),
// or from other processes through package server. One lock protects a Sim; a
// MAD is carried and answered at once under it, unless a delay is set. The
// package uses the standard clock only, so a Sim created inside a
// testing/synctest bubble runs in virtual time. It starts no goroutine.
package simfabric

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"ibnetworkd/ib"
	"ibnetworkd/sm/fabric"
	"ibnetworkd/sm/mad"
	"ibnetworkd/sm/transport"
)

// Options of a Sim; the zero value is a perfect subnet.
type Options struct {
	// Seed of everything random: the same calls give the same losses.
	Seed uint64
	// Loss is the probability from 0 to 1 that a packet is lost on the way
	// between two ports, Duplicate that it arrives twice. They count for each
	// packet, not for each hop.
	Loss, Duplicate float64
	// DelayMin and DelayMax bound the time that a packet takes in each
	// direction; both 0 answers within Send.
	DelayMin, DelayMax time.Duration
	// TrapRepeats is how often a trap is sent again until it is repressed (-1: never,
	// 0: the default of 3), TrapInterval how long apart (default 1 s).
	TrapRepeats  int
	TrapInterval time.Duration
	// KeepLanes has ports in use decline other OperationalVLs.
	KeepLanes bool
	// Trace is called for every SMP that reaches an agent of a node, under the
	// lock: it must not call the Sim.
	Trace func(node ib.GUID, req *mad.Buf)
	// Reregister is called when an end port becomes Active, or gets a
	// ClientReregister from the subnet manager. It is called without a lock.
	Reregister func(portGUID ib.GUID)
}

// Sim is a simulated subnet.
type Sim struct {
	opt Options

	mu     sync.Mutex
	rnd    *rand.Rand
	nodes  []*node // in the order of the fabric
	byGUID map[ib.GUID]*node
	ports  map[ib.GUID]*port // end ports by port GUID
	agents map[uint32]*Agent
	nextID uint32
	raws   [16]*Raw
	count  Counters
	trapNo uint32
	// looking: a question of a test follows the tables, no packet does.
	looking bool

	// What left the lock's protection: deliveries in order, made by the goroutine that is
	// not inside one already.
	out        []delivery
	delivering bool

	spare   []*transport.Packet
	events  []event // heap by time
	seq     uint64
	timer   *time.Timer
	timerAt time.Time
	closed  bool
}

type delivery struct {
	to func(*transport.Packet)
	p  transport.Packet
}

type event struct {
	at  time.Time
	seq uint64
	f   func() // under the lock
}

type node struct {
	guid  ib.GUID
	info  mad.NodeInfo
	desc  mad.NodeDescription
	ports []port // [0] is switch port 0, unused on adapters
	sw    *switchState
	down  bool          // without power
	mute  bool          // takes packets and answers nothing
	slow  time.Duration // what an answer takes more than its way
	plug  *Plug         // a node outside of the process, which is never in Sim.nodes
}

type switchState struct {
	info mad.SwitchInfo
	lft  []uint8
	mft  [][16]uint16 // by MLID-0xc000
}

type port struct {
	node     *node
	num      uint8
	guid     ib.GUID
	peer     *port
	cut      bool // the cable is out
	disabled bool
	info     mad.PortInfo
	pkeys    []ib.PKey
	guids    []ib.GUID
	sl2vl    map[uint8]mad.SLtoVL
	vlarb    [4]mad.VLArbBlock
	cnt      mad.PortCountersExt
	errs     mad.PortCounters // the counters of errors; those of data are in cnt

	mkeyLease time.Time // when the lease that a violation started runs out
	agents    []*Agent
	raw       []*Raw
	issm      any // the client with the IsSM bit
	traps     []*trap
}

// AttrCount counts the SMPs of one attribute that programs sent.
type AttrCount struct{ Get, Set uint64 }

// Counters of a Sim.
type Counters struct {
	// SMPs by attribute, requests of programs only, each attempt.
	SMPs map[mad.AttrID]AttrCount
	// Total is the sum of SMPs, Traps what nodes sent, Lost and Undeliverable
	// the packets that were lost at random and that had no way.
	Total, Traps, Lost, Undeliverable uint64
}

// New builds a simulated subnet in the shape of f: nodes, links, GUIDs,
// descriptions, link speeds. Everything a subnet manager sets is as after power
// on, whatever f says.
func New(f *fabric.Fabric, opt Options) *Sim {
	opt.TrapRepeats = cmp.Or(opt.TrapRepeats, 3)
	opt.TrapInterval = cmp.Or(opt.TrapInterval, time.Second)
	s := &Sim{
		opt: opt, rnd: rand.New(rand.NewPCG(opt.Seed, 0x9e3779b97f4a7c15)),
		byGUID: map[ib.GUID]*node{}, ports: map[ib.GUID]*port{}, agents: map[uint32]*Agent{}, nextID: 1,
		count: Counters{SMPs: map[mad.AttrID]AttrCount{}},
	}
	all := make([]*port, len(f.Ports))
	for i := range f.Nodes {
		fn := &f.Nodes[i]
		n := &node{guid: fn.GUID, desc: mad.NewNodeDescription(fn.Desc)}
		n.info = mad.NodeInfo{
			BaseVersion: 1, ClassVersion: 1, NodeType: fn.Type, NumPorts: fn.NumPorts, SystemImageGUID: fn.SystemGUID,
			NodeGUID: fn.GUID, PartitionCap: fn.PKeyCap, DeviceID: fn.DeviceID, VendorID: fn.VendorID, Revision: fn.Revision,
		}
		n.info.PartitionCap = cmp.Or(n.info.PartitionCap, 64)
		n.ports = make([]port, int(fn.NumPorts)+1)
		if fn.Type == ib.NodeSwitch {
			n.sw = &switchState{}
			_ = n.sw.info.Decode(f.Switches[fn.Switch].Info.Append(nil))
		}
		first, cnt := f.PortRange(int32(i))
		for j := range cnt {
			fp := &f.Ports[first+j]
			p := &n.ports[fp.Num]
			all[first+j] = p
			p.guid = fp.GUID
			_ = p.info.Decode(fp.Info.Append(nil))
		}
		for num := range n.ports {
			p := &n.ports[num]
			p.node, p.num = n, uint8(num)
			if n.sw != nil && num == 0 && p.guid == 0 {
				p.guid = n.guid
			}
			p.info.SetLocalPort(uint8(num))
			s.powerOn(p)
			if p.guid != 0 && s.ports[p.guid] == nil {
				s.ports[p.guid] = p
			}
		}
		if n.sw != nil {
			n.powerOnSwitch()
		}
		s.nodes = append(s.nodes, n)
		if s.byGUID[n.guid] == nil {
			s.byGUID[n.guid] = n
		}
	}
	for i, p := range all {
		if p != nil && f.Ports[i].Peer != fabric.None {
			p.peer = all[f.Ports[i].Peer]
		}
	}
	for _, p := range all {
		if p != nil {
			p.train()
		}
	}
	for _, n := range s.nodes {
		if n.sw != nil {
			n.sw.info.SetPortStateChange(true)
		}
	}
	return s
}

// powerOn gives p the values of a port that no subnet manager has touched.
func (s *Sim) powerOn(p *port) {
	i := &p.info
	sw := p.node.sw != nil
	i.SetMKey(0)
	i.SetMKeyProtect(0)
	i.SetMKeyLease(0)
	i.SetMKeyViolations(0)
	i.SetPKeyViolations(0)
	i.SetQKeyViolations(0)
	i.SetGIDPrefix(ib.DefaultPrefix)
	i.SetLID(0)
	i.SetLMC(0)
	i.SetMasterSMLID(0)
	i.SetMasterSMSL(0)
	if sw && p.num != 0 {
		i.SetGIDPrefix(0)
	}
	i.SetClientReregister(false)
	i.SetSubnetTimeout(0)
	i.SetEnforcement(0)
	i.SetRawFilters(0)
	i.SetVLStallCount(0)
	i.SetHOQLife(0)
	i.SetVLHighLimit(0)
	i.SetErrorThresholds(8, 8)
	i.SetLinkDownDefault(2)
	i.SetWidthEnabled(i.WidthSupported())
	i.SetSpeedEnabled(i.SpeedSupported())
	i.SetSpeedExtEnabled(i.SpeedExtSupported())
	i.SetRespTime(16)
	i.SetVLCap(max(i.VLCap(), 1))
	i.SetMTUCap(max(i.MTUCap(), ib.MTU256))
	// A port negotiates what it can before anybody manages it. opensm takes a
	// link down again when it finds less.
	i.SetNeighborMTU(i.MTUCap())
	i.SetOperVLs(i.VLCap())
	i.SetCapMask(i.CapMask() &^ mad.CapIsSM)
	if !sw || p.num == 0 {
		i.SetCapMask(i.CapMask() | mad.CapTrap | mad.CapSystemImageGUID)
		if !sw {
			i.SetCapMask(i.CapMask() | mad.CapClientReregister | mad.CapCapMaskNotice |
				mad.CapOtherLocalChanges | mad.CapAutoMigration | mad.CapSLMapping)
		}
	}
	if !sw || p.num != 0 {
		i.SetState(ib.PortDown)
		i.SetPhysState(ib.PhysPolling)
	}
	i.SetGUIDCap(0)
	switch {
	case !sw:
		i.SetGUIDCap(8)
	case p.num == 0:
		i.SetGUIDCap(1)
		i.SetState(ib.PortActive)
		i.SetPhysState(ib.PhysLinkUp)
	}
	p.guids = nil
	if i.GUIDCap() > 0 {
		p.guids = make([]ib.GUID, i.GUIDCap())
		p.guids[0] = p.guid
	}
	n := 0
	switch {
	case !sw || p.num == 0:
		n = int(p.node.info.PartitionCap)
	default:
		n = int(p.node.sw.info.PartitionEnforcementCap())
	}
	p.pkeys = nil
	if n > 0 {
		p.pkeys = make([]ib.PKey, n)
		p.pkeys[0] = ib.DefaultPKey
	}
	p.sl2vl, p.vlarb = nil, [4]mad.VLArbBlock{}
	p.mkeyLease = time.Time{}
	p.disabled = false
	p.traps = nil
}

func (n *node) powerOnSwitch() {
	i := &n.sw.info
	i.SetLinearFDBTop(0)
	i.SetDefaultPorts([3]uint8{})
	i.SetLifeTime(0)
	i.SetOptimizedSLtoVL(0)
	i.SetMulticastFDBTop(0)
	if i.LinearFDBCap() == 0 {
		i.SetLinearFDBCap(0xc000)
	}
	if i.MulticastFDBCap() == 0 {
		i.SetMulticastFDBCap(1024)
	}
	i.SetPortStateChange(true)
	n.sw.lft, n.sw.mft = nil, nil
}

// linked reports whether the cable carries light.
func (p *port) linked() bool {
	q := p.peer
	return q != nil && !p.cut && !q.cut && !p.disabled && !q.disabled && !p.node.down && !q.node.down
}

// up reports whether SMPs pass the link.
func (p *port) up() bool { return p.linked() && p.info.PhysState() == ib.PhysLinkUp }

// train sets the states of p by its cable and reports a change.
func (p *port) train() bool {
	if p.node.sw != nil && p.num == 0 {
		return false
	}
	if p.peer != nil && p.peer.node.plug != nil {
		p.peer.node.plug.note()
	}
	was := p.info.PhysState() == ib.PhysLinkUp
	switch {
	case p.linked() && !was:
		p.info.SetPhysState(ib.PhysLinkUp)
		p.info.SetState(ib.PortInit)
	case !p.linked() && (was || p.info.State() != ib.PortDown):
		p.info.SetState(ib.PortDown)
		p.info.SetPhysState(ib.PhysPolling)
		p.errs.LinkDowned = max(p.errs.LinkDowned, p.errs.LinkDowned+1) // it stops at its maximum
	}
	if p.disabled {
		p.info.SetPhysState(ib.PhysDisabled)
	}
	changed := was != (p.info.PhysState() == ib.PhysLinkUp)
	if changed && p.node.sw != nil {
		p.node.sw.info.SetPortStateChange(true)
	}
	return changed
}

// retrain lets both ends of a link find out what it is, with the traps of
// switches.
func (s *Sim) retrain(p *port) {
	a := p.train()
	b := p.peer != nil && p.peer.train()
	if a {
		s.linkChanged(p)
	}
	if b {
		s.linkChanged(p.peer)
	}
}

func (s *Sim) linkChanged(p *port) {
	n := p.node
	if n.sw == nil || n.down {
		return
	}
	var t mad.Notice
	t.Generic, t.Type, t.Producer, t.TrapNumber = true, mad.NoticeUrgent, uint32(ib.NodeSwitch), mad.TrapLinkStateChange
	t.SetDetailSwitchLID(n.ports[0].info.LID())
	s.sendTrap(&n.ports[0], t)
}

// bounce takes a link down and up again, as a Set of PortState Down does.
func (s *Sim) bounce(p *port) {
	was := p.disabled
	p.disabled = true
	p.train()
	if p.peer != nil {
		p.peer.train()
	}
	p.disabled = was
	s.retrain(p)
}

// lock and unlock bracket everything; unlock makes the deliveries.
func (s *Sim) lock() { s.mu.Lock() }

func (s *Sim) unlock() {
	if s.delivering {
		s.mu.Unlock()
		return
	}
	s.delivering = true
	for len(s.out) > 0 {
		batch := s.out
		s.out = nil
		s.mu.Unlock()
		for i := range batch {
			batch[i].to(&batch[i].p)
		}
		s.mu.Lock()
		if s.out == nil {
			clear(batch)
			s.out = batch[:0]
		}
	}
	s.delivering = false
	s.mu.Unlock()
}

// after runs f under the lock after d.
func (s *Sim) after(d time.Duration, f func()) {
	s.seq++
	e := event{time.Now().Add(d), s.seq, f}
	h := append(s.events, e)
	less := func(i, j int) bool {
		if h[i].at.Equal(h[j].at) {
			return h[i].seq < h[j].seq
		}
		return h[i].at.Before(h[j].at)
	}
	for i := len(h) - 1; i > 0 && less(i, (i-1)/2); i = (i - 1) / 2 {
		h[i], h[(i-1)/2] = h[(i-1)/2], h[i]
	}
	s.events = h
	s.setTimer()
}

func (s *Sim) setTimer() {
	if len(s.events) == 0 || s.closed {
		return
	}
	at := s.events[0].at
	switch {
	case s.timer == nil:
		s.timer = time.AfterFunc(time.Until(at), s.tick)
	case s.timerAt.IsZero() || at.Before(s.timerAt):
		s.timer.Reset(time.Until(at))
	default:
		return
	}
	s.timerAt = at
}

func (s *Sim) tick() {
	s.lock()
	s.timerAt = time.Time{}
	now := time.Now()
	for len(s.events) > 0 && !s.events[0].at.After(now) {
		h := s.events
		f := h[0].f
		n := len(h) - 1
		h[0] = h[n]
		h[n] = event{}
		h = h[:n]
		for i := 0; ; {
			c := 2*i + 1
			if c >= n {
				break
			}
			less := func(a, b int) bool {
				return h[a].at.Before(h[b].at) || h[a].at.Equal(h[b].at) && h[a].seq < h[b].seq
			}
			if c+1 < n && less(c+1, c) {
				c++
			}
			if !less(c, i) {
				break
			}
			h[i], h[c] = h[c], h[i]
			i = c
		}
		s.events = h
		f()
	}
	s.setTimer()
	s.unlock()
}

// travel carries one packet: f runs when it arrives, perhaps never, perhaps
// twice.
func (s *Sim) travel(f func()) {
	o := &s.opt
	times := 1
	if o.Loss > 0 && s.rnd.Float64() < o.Loss {
		s.count.Lost++
		return
	}
	if o.Duplicate > 0 && s.rnd.Float64() < o.Duplicate {
		times = 2
	}
	for range times {
		if o.DelayMax <= 0 {
			f()
			continue
		}
		d := o.DelayMin
		if o.DelayMax > o.DelayMin {
			d += time.Duration(s.rnd.Int64N(int64(o.DelayMax - o.DelayMin)))
		}
		s.after(d, f)
	}
}

// perfect reports that travel would only call f once.
func (s *Sim) perfect() bool {
	o := &s.opt
	return o.Loss == 0 && o.Duplicate == 0 && o.DelayMax == 0
}

// Close ends every program's connection.
func (s *Sim) Close() {
	s.lock()
	s.closed = true
	if s.timer != nil {
		s.timer.Stop()
	}
	s.events = nil
	as := slices.Collect(maps.Values(s.agents))
	s.unlock()
	for _, a := range as {
		a.ep.Fail(transport.ErrGone)
	}
}

// portOf finds a port of a node by the node's GUID.
func (s *Sim) portOf(guid ib.GUID, num uint8) (*port, error) {
	n := s.byGUID[guid]
	if n == nil {
		return nil, fmt.Errorf("no node %s in the simulated subnet", guid)
	}
	if int(num) >= len(n.ports) || num == 0 && n.sw == nil {
		return nil, fmt.Errorf("node %s has no port %d", guid, num)
	}
	return &n.ports[num], nil
}
