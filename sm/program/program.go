// Package program is the difference between what the fabric has and what it
// should have, as requests.
//
// It owns the wanted values of PortInfo and SwitchInfo and the block layout of
// the tables. It does no I/O: small batches are functions from values to values,
// large ones are sources that make each request when it is its turn. The engine
// sends them, one batch after the other is acknowledged, and keeps what the
// fabric has. First sweep, resweep after an event and takeover are the same
// code: what the fabric has is not sent.
//
// Order matters and is the caller's: tables first (LFT, Switches, Ports with
// Configure), then Arm, then Activate, each when the one before has been
// acknowledged, so that no port carries data while a forwarding table on its
// way is not written.
package program

import (
	"hash/fnv"

	"ibnetworkd/ib"
	"ibnetworkd/sm/fabric"
	"ibnetworkd/sm/mad"
	"ibnetworkd/sm/mcast"
	"ibnetworkd/sm/smp"
)

// Policy is what the manager wants of every port and switch.
type Policy struct {
	SMLID ib.LID // of the master, written to every end port
	SMSL  ib.SL
	// SMSLs has the service level to the master of each end port, by index
	// into Fabric.Ports, where routing needs several; nil means SMSL.
	SMSLs     []ib.SL
	MKey      ib.MKey
	MKeyLease uint16 // seconds
	Protect   uint8  // M_Key protection level, 0..3
	Prefix    uint64
	// SubnetTimeout is the code (4.096 us * 2^n) of the longest way of a MAD.
	SubnetTimeout uint8
	PacketLife    uint8 // SwitchInfo:LifeTimeValue code
	HOQLife       uint8 // head-of-queue lifetime code between switches
	LeafHOQLife   uint8 // and towards adapters
	VLStall       uint8
	OperVLs       uint8  // most operational VLs, coded as PortInfo:VLCap; 0 as many as both ends have
	MaxMTU        ib.MTU // 0: as large as both ends have
	VLHighLimit   uint8  // written with VLs set
	// VLs has the code of the operational VLs of each port, by index into
	// Fabric.Ports; nil leaves them to OperVLs and the capabilities.
	VLs []uint8
	// Enforcement has what switch ports check, by index into Fabric.Ports (see
	// pkey.Plan); nil for none.
	Enforcement []fabric.Enforcement
}

// DefaultPolicy is the policy of a subnet without special wishes; the values
// are those that fabrics have run with for years.
func DefaultPolicy() Policy {
	return Policy{Prefix: ib.DefaultPrefix, SubnetTimeout: 18, PacketLife: 18, HOQLife: 18, LeafHOQLife: 16, VLStall: 7}
}

// Stage is a step of bringing up ports.
type Stage uint8

// The stages in order.
const (
	Configure Stage = iota // ports that are up and switch ports 0: everything but the state
	Arm                    // Initialize to Armed with everything else in the same Set
	Activate               // Armed to Active
)

// PathTo is the directed route to where a port's SMPs are answered: for an
// external switch port the switch, for an adapter port that port itself. It is
// false when there is none.
func PathTo(f *fabric.Fabric, port int32) ([]uint8, bool) {
	p := &f.Ports[port]
	n := &f.Nodes[p.Node]
	if n.Switch != fabric.None {
		return n.Path, true
	}
	if port == f.SMPort {
		return nil, true
	}
	if p.Peer == fabric.None {
		return nil, false
	}
	q := &f.Ports[p.Peer]
	m := &f.Nodes[q.Node]
	if m.Switch == fabric.None && p.Peer != f.SMPort {
		return nil, false
	}
	return smp.PathTo(m.Path, q.Num), true
}

// Key is the M_Key that a port of a node wants to see in a Set. It is what the
// port shows: a manager that goes leaves its key behind, and a port whose
// protection is level 0, by wish or because the lease has run out, tells it to
// everybody so that the next manager can take over (IBA vol 1, 14.2.4.1). 0 is a
// port without a key, or one that hides it: then the manager's own must do.
func Key(f *fabric.Fabric, port int32) ib.MKey {
	n := f.Ports[port].Node
	if f.Nodes[n].Switch != fabric.None {
		port = f.Port(n, 0) // a switch has one key, that of its port 0
	}
	return f.Ports[port].Info.MKey()
}

// Declined remembers by index into Fabric.Ports a sum of what a port was last told
// and did not take: it answered something else (it does not support the value),
// and is not told again until the wish changes. 0 is a port that took all, and
// that is told again should it be found to have something else.
type Declined []uint32

// want gives the wanted PortInfo of a port, with the state and the other
// fields that mean "no change" cleared.
func want(f *fabric.Fabric, i int32, pol *Policy) fabric.PortInfo {
	p := &f.Ports[i]
	w := p.Info
	var peer *fabric.Port
	if p.Peer != fabric.None {
		peer = &f.Ports[p.Peer]
	}
	if !p.Known {
		// Nothing but zeros means no change; the capabilities are the peer's,
		// for some devices check what is set against them as sent.
		w = fabric.PortInfo{}
		w.SetErrorThresholds(8, 8)
		if peer != nil {
			w.SetVLCap(peer.Info.VLCap())
			w.SetMTUCap(peer.Info.MTUCap())
		} else if sw := f.Nodes[p.Node].Switch; sw != fabric.None && f.Switches[sw].Info.EnhancedPort0() {
			w.SetNeighborMTU(switchMTU(f, p.Node))
		}
	}
	w.SetState(0)
	w.SetPhysState(0)
	w.SetLinkDownDefault(0)
	if f.Nodes[p.Node].Switch == fabric.None || p.Num == 0 {
		wantEnd(&w, p, i, pol)
	}
	if peer != nil {
		wantLink(&w, f, i, pol)
	}
	return w
}

// wantEnd sets what only end ports have.
func wantEnd(w *fabric.PortInfo, p *fabric.Port, i int32, pol *Policy) {
	w.SetMKey(pol.MKey)
	w.SetMKeyProtect(pol.Protect)
	w.SetMKeyLease(pol.MKeyLease)
	w.SetGIDPrefix(pol.Prefix)
	w.SetLID(p.LID)
	w.SetLMC(p.LMC)
	w.SetMasterSMLID(pol.SMLID)
	if w.SetMasterSMSL(pol.SMSL); int(i) < len(pol.SMSLs) {
		w.SetMasterSMSL(pol.SMSLs[i])
	}
	w.SetClientReregister(false)
	w.SetSubnetTimeout(pol.SubnetTimeout)
}

// wantLink sets what the two ends of a link agree on.
func wantLink(w *fabric.PortInfo, f *fabric.Fabric, i int32, pol *Policy) {
	p := &f.Ports[i]
	peer := &f.Ports[p.Peer]
	mtu, vls := mtuCap(p, peer), vlCap(p, peer)
	if pol.MaxMTU != 0 {
		mtu = min(mtu, pol.MaxMTU)
	}
	if pol.OperVLs != 0 {
		vls = min(vls, pol.OperVLs)
	}
	if p.Known && peer.Known && p.Info.State() >= ib.PortArmed {
		// A link in use keeps the lanes that it was brought up with, by another
		// manager perhaps: they are for a port in Initialize, and a device may
		// refuse them later (opensm takes the link down for it). Fewer do no
		// harm; a smaller MTU than the SA tells of would.
		if have := p.Info.OperVLs(); have == peer.Info.OperVLs() && have != 0 {
			vls = min(vls, have)
		}
	}
	w.SetNeighborMTU(mtu)
	w.SetOperVLs(vls)
	if int(i) < len(pol.VLs) {
		w.SetOperVLs(pol.VLs[i])
		w.SetVLHighLimit(pol.VLHighLimit)
	}
	if f.Nodes[p.Node].Switch == fabric.None {
		return
	}
	life := pol.HOQLife
	if f.Nodes[peer.Node].Switch == fabric.None {
		life = pol.LeafHOQLife
	}
	w.SetVLStallCount(pol.VLStall)
	w.SetHOQLife(life)
	// Of a port that another manager had check, and that nobody keeps the
	// table of any more, the bits go.
	if w.SetEnforcement(0); int(i) < len(pol.Enforcement) {
		w.SetEnforcement(pol.Enforcement[i])
	}
}

// switchMTU is the MTU that a switch's first external port that is known
// supports: what its port 0 most likely does too.
func switchMTU(f *fabric.Fabric, node int32) ib.MTU {
	first, count := f.PortRange(node)
	for i := first + 1; i < first+count; i++ {
		if p := &f.Ports[i]; p.Known && p.Info.MTUCap().IsValid() {
			return p.Info.MTUCap()
		}
	}
	return ib.MTU2048
}

// mtuCap is the largest MTU of a link; an end that nothing is known of counts
// as its peer.
func mtuCap(a, b *fabric.Port) ib.MTU {
	x, y := a.Info.MTUCap(), b.Info.MTUCap()
	if !a.Known || x == 0 {
		x = y
	}
	if !b.Known || y == 0 {
		y = x
	}
	return max(min(x, y), ib.MTU256)
}

func vlCap(a, b *fabric.Port) uint8 {
	x, y := a.Info.VLCap(), b.Info.VLCap()
	if !a.Known || x == 0 {
		x = y
	}
	if !b.Known || y == 0 {
		y = x
	}
	return max(min(x, y), 1)
}

// settable is the part of a PortInfo that a Set of the manager would change; end
// and linked say which of its fields the port has.
func settable(p *fabric.PortInfo, end, linked bool) (c fabric.PortInfo) {
	if end {
		c.SetMKey(p.MKey())
		c.SetMKeyProtect(p.MKeyProtect())
		c.SetMKeyLease(p.MKeyLease())
		c.SetGIDPrefix(p.GIDPrefix())
		c.SetLID(p.LID())
		c.SetLMC(p.LMC())
		c.SetMasterSMLID(p.MasterSMLID())
		c.SetMasterSMSL(p.MasterSMSL())
		c.SetSubnetTimeout(p.SubnetTimeout())
	}
	if linked {
		c.SetNeighborMTU(p.NeighborMTU())
		c.SetVLHighLimit(p.VLHighLimit())
		c.SetVLStallCount(p.VLStallCount())
		c.SetHOQLife(p.HOQLife())
		c.SetOperVLs(p.OperVLs())
		c.SetEnforcement(p.Enforcement())
	}
	return c
}

// sum condenses the settable part of a PortInfo; never 0.
func sum(w *fabric.PortInfo, end, linked bool) uint32 {
	c := settable(w, end, linked)
	h := fnv.New32a()
	h.Write(c.Append(nil))
	return max(h.Sum32(), 1)
}

// differs compares the settable parts.
func differs(have, w *fabric.PortInfo, end, linked bool) bool {
	return settable(have, end, linked) != settable(w, end, linked)
}

// Ports is the source of the Sets of PortInfo of a stage for every port that
// needs one, tagged with the port's index: made one at a time, for those of a
// large subnet would fill the memory, and so that what one end of a link has
// answered counts at the other.
type Ports struct {
	Fabric   *fabric.Fabric
	Policy   Policy
	Declined Declined
	Stage    Stage
	// Reregister asks the clients behind ports to register again, by port
	// index; nil for none.
	Reregister []bool
	Skip       func(port int32) bool // leaves ports out; nil for none
	Done       func(*smp.Reply)
	Count      int // requests made
	next       int32
}

// Next implements smp.Source.
func (s *Ports) Next() (smp.Request, bool) {
	for s.next < int32(len(s.Fabric.Ports)) {
		i := s.next
		s.next++
		if r, ok := s.request(i); ok && (s.Skip == nil || !s.Skip(i)) {
			s.Count++
			return r, true
		}
	}
	return smp.Request{}, false
}

// Step implements smp.Source.
func (s *Ports) Step(r *smp.Reply) { s.Done(r) }

// Late implements smp.Source.
func (s *Ports) Late(uint64) {}

// request makes the Set of a port; false when it needs none.
func (s *Ports) request(i int32) (r smp.Request, ok bool) {
	f, st := s.Fabric, s.Stage
	p := &f.Ports[i]
	end := f.IsEndPort(i)
	if p.Peer == fabric.None && !(end && (p.Num == 0 || i == f.SMPort)) || !p.Known && p.Peer == fabric.None && p.Num != 0 {
		return r, false
	}
	state := p.Info.State()
	if !p.Known {
		state = ib.PortInit
	}
	rereg := i < int32(len(s.Reregister)) && s.Reregister[i]
	switch st {
	case Configure:
		if state == ib.PortInit && p.Peer != fabric.None {
			return r, false // Arm does it all
		}
		if p.Num != 0 && p.Peer != fabric.None && state < ib.PortInit {
			return r, false
		}
	case Arm:
		if state != ib.PortInit || p.Peer == fabric.None || p.Num == 0 {
			return r, false
		}
	case Activate:
		if state != ib.PortArmed || p.Peer == fabric.None || p.Num == 0 {
			return r, false
		}
		if q := &f.Ports[p.Peer]; q.Known && q.Info.State() < ib.PortArmed {
			return r, false // the peer did not arm; the next sweep tries again
		}
	}
	path, ok := PathTo(f, i)
	if !ok {
		return r, false
	}
	w := want(f, i, &s.Policy)
	if st == Configure && !rereg && (!differs(&p.Info, &w, end, p.Peer != fabric.None) || i < int32(len(s.Declined)) && s.Declined[i] == sum(&w, end, p.Peer != fabric.None)) {
		return r, false
	}
	r = smp.Request{Method: mad.MethodSet, Attr: mad.AttrPortInfo, Mod: uint32(p.Num), Path: path, Tag: uint64(i), MKey: Key(f, i)}
	if !f.Nodes[p.Node].NoExtendedSpeeds {
		r.Mod |= smp.ExtendedSpeeds
	}
	switch st {
	case Arm:
		w.SetState(ib.PortArmed)
	case Activate:
		w.SetState(ib.PortActive)
	}
	if end && p.Num != 0 && (rereg || st == Activate) && p.Info.CapMask()&fabric.CapClientReregister != 0 {
		w.SetClientReregister(true)
	}
	r.Data = w.Wire()
	return r, true
}

// Answered puts a port's answer to a Set of Ports into the fabric (which must
// not be in anybody's hands yet) and into declined.
func Answered(f *fabric.Fabric, declined Declined, r *smp.Reply) {
	i := int32(r.Tag)
	p := &f.Ports[i]
	told := fabric.PortInfoOf(&r.Request.Data)
	p.Info, p.Known = fabric.PortInfoOf(&r.Data), true
	if r.Mod&smp.ExtendedSpeeds == 0 {
		// A port that claims those speeds had another reason to refuse.
		caps := p.Info.CapMask()
		if first := f.Port(p.Node, 0); first != fabric.None {
			caps |= f.Ports[first].Info.CapMask()
		}
		f.Nodes[p.Node].NoExtendedSpeeds = caps&fabric.CapExtendedSpeeds == 0
	}
	p.Info.SetClientReregister(false)
	end, linked := f.IsEndPort(i), p.Peer != fabric.None
	if declined[i] = 0; differs(&p.Info, &told, end, linked) {
		declined[i] = sum(&told, end, linked)
	}
}

// Switches gives the Sets of SwitchInfo that are needed: the highest LID and the
// packet lifetime. The tag is the switch index.
//
// PortStateChange is cleared, by a Set that has it, in a switch that nobody
// configured: there it tells no more than that the switch was turned on, and the
// links that were found are still to be set up. Its ports without a link are to be
// declined again. In others it stays until somebody reads the ports after it was
// cleared: these were read before.
//
// Of the multicast table all counts: packets to a group above MulticastFDBTop go
// by the default ports, and a switch may come up with 0xbfff there, no group at
// all. A switch without that limit shows 0, and ignores what is set.
func Switches(f *fabric.Fabric, pol Policy, top ib.LID) []smp.Request {
	var out []smp.Request
	for i := range f.Switches {
		s := &f.Switches[i]
		have := s.Info
		if have.LinearFDBTop() != 0 {
			have.ClearPortStateChange()
		}
		w := have
		w.SetLinearFDBTop(min(uint16(top), max(w.LinearFDBCap(), 1)-1))
		w.SetLifeTime(pol.PacketLife)
		if have.MulticastFDBTop() != 0 {
			multicastTop(&w)
		}
		if w == have {
			continue
		}
		multicastTop(&w)
		out = append(out, smp.Request{Method: mad.MethodSet, Attr: mad.AttrSwitchInfo, Path: f.Nodes[s.Node].Path, Tag: uint64(i),
			Data: w.Wire(), MKey: Key(f, f.Port(s.Node, 0))})
	}
	return out
}

func multicastTop(w *fabric.SwitchInfo) {
	if n := w.MulticastFDBCap(); n > 0 {
		w.SetMulticastFDBTop(uint16(ib.LIDMulticastMin) + min(n, uint16(ib.LIDMulticastMax-ib.LIDMulticastMin)+1) - 1)
	}
}

// LFTBlock is the number of entries of a block of a linear forwarding table.
const LFTBlock = 64

// LFT is the source of the blocks of the linear forwarding tables that differ:
// made one at a time, for those of a large subnet would fill the memory. Have
// and Want have a row for each switch: LID to port, 255 for none; a nil row of
// Have is a table that nothing is known of. The tag is the switch index.
type LFT struct {
	Fabric     *fabric.Fabric
	Have, Want [][]uint8
	Done       func(*smp.Reply)
	Count      int // requests made
	sw, at     int
}

// Next implements smp.Source.
func (l *LFT) Next() (smp.Request, bool) {
	for ; l.sw < len(l.Fabric.Switches); l.sw, l.at = l.sw+1, 0 {
		var h []uint8
		if l.sw < len(l.Have) {
			h = l.Have[l.sw]
		}
		w := l.Want[l.sw]
		for l.at < len(w) {
			at := l.at
			l.at += LFTBlock
			if h != nil && same(h, w, at) {
				continue
			}
			r := smp.Request{Method: mad.MethodSet, Attr: mad.AttrLFT, Mod: uint32(at / LFTBlock),
				Path: l.Fabric.Nodes[l.Fabric.Switches[l.sw].Node].Path, Tag: uint64(l.sw), MKey: Key(l.Fabric, l.Fabric.Port(l.Fabric.Switches[l.sw].Node, 0))}
			n := copy(r.Data[:], w[at:])
			for ; n < LFTBlock; n++ {
				r.Data[n] = 255
			}
			l.Count++
			return r, true
		}
	}
	return smp.Request{}, false
}

// Step implements smp.Source.
func (l *LFT) Step(r *smp.Reply) { l.Done(r) }

// Late implements smp.Source.
func (l *LFT) Late(uint64) {}

// ReadLFT is the source of Gets of the forwarding tables of the switches that
// Skip does not leave out, as far as their LinearFDBTop reaches. Rows has, by
// switch index, the tables that were read whole.
type ReadLFT struct {
	Fabric   *fabric.Fabric
	Skip     func(sw int) bool
	Rows     [][]uint8
	lost     []bool
	sw, next int
}

// Next implements smp.Source.
func (l *ReadLFT) Next() (smp.Request, bool) {
	if l.Rows == nil {
		l.Rows, l.lost = make([][]uint8, len(l.Fabric.Switches)), make([]bool, len(l.Fabric.Switches))
	}
	for ; l.sw < len(l.Fabric.Switches); l.sw, l.next = l.sw+1, 0 {
		s := &l.Fabric.Switches[l.sw]
		top := min(s.Info.LinearFDBTop(), uint16(ib.LIDUnicastMax))
		if top == 0 || l.Skip(l.sw) || l.lost[l.sw] || l.next > int(top)/LFTBlock {
			continue
		}
		l.next++
		return smp.Request{Method: mad.MethodGet, Attr: mad.AttrLFT, Mod: uint32(l.next - 1), Path: l.Fabric.Nodes[s.Node].Path, Tag: uint64(l.sw)}, true
	}
	return smp.Request{}, false
}

// Step implements smp.Source.
func (l *ReadLFT) Step(r *smp.Reply) {
	sw := r.Tag
	if !r.OK() || l.lost[sw] {
		l.lost[sw], l.Rows[sw] = true, nil
		return
	}
	q := r.Request
	q.Data = r.Data
	l.Rows[sw] = PutLFT(l.Rows[sw], &q)
}

// Late implements smp.Source.
func (l *ReadLFT) Late(uint64) {}

// maxKeyBlocks bounds what is read of one port's P_Key table, whatever capacity
// it claims: adapters have up to 128 keys, and 2048 are worth keeping.
const maxKeyBlocks = 64

// ReadPKeys is the source of Gets of the P_Key tables of adapter ports that some
// manager configured before, for their LID is set, and of which nothing is
// known: a port out of reset holds the default P_Key alone (IBA vol 1, 10.9.2).
// Each is read whole, for keys that were taken away leave holes, and what
// stands behind a hole is granted as well. Tables has the tables by index into
// Fabric.Ports; one that cannot be read stays nil.
type ReadPKeys struct {
	Fabric   *fabric.Fabric
	Tables   [][]ib.PKey
	Failed   []int32 // ports that did not answer
	at, next int     // the end port whose turn it is, its next block
	lost     map[uint64]bool
}

// Next implements smp.Source.
func (s *ReadPKeys) Next() (smp.Request, bool) {
	for ; s.at < len(s.Fabric.EndPorts); s.at, s.next = s.at+1, 0 {
		e := s.Fabric.EndPorts[s.at]
		p := &s.Fabric.Ports[e]
		blocks := min((int(s.Fabric.Nodes[p.Node].PKeyCap)+31)/32, maxKeyBlocks)
		if p.Num == 0 || !p.Info.LID().IsUnicast() || s.next == 0 && s.Tables[e] != nil || s.next >= max(blocks, 1) || s.lost[uint64(e)] {
			continue
		}
		path, ok := PathTo(s.Fabric, e)
		if !ok {
			continue
		}
		s.next++
		return smp.Request{Method: mad.MethodGet, Attr: mad.AttrPKeyTable, Mod: uint32(s.next - 1), Path: path, Tag: uint64(e)}, true
	}
	return smp.Request{}, false
}

// Step implements smp.Source.
func (s *ReadPKeys) Step(r *smp.Reply) {
	var b mad.PKeyBlock
	switch {
	case s.lost[r.Tag]:
	case !r.OK() || b.Decode(r.Data[:]) != nil:
		if s.lost == nil {
			s.lost = map[uint64]bool{}
		}
		s.lost[r.Tag], s.Tables[r.Tag] = true, nil
		s.Failed = append(s.Failed, int32(r.Tag))
	default:
		t, at := s.Tables[r.Tag], int(r.Mod)*32
		for len(t) < at+32 {
			t = append(t, 0)
		}
		copy(t[at:], b[:])
		s.Tables[r.Tag] = t
	}
}

// Late implements smp.Source.
func (s *ReadPKeys) Late(uint64) {}

// same compares one block, a row's end counting as 255.
func same(h, w []uint8, at int) bool {
	if at >= len(h) {
		return false // never written
	}
	for k := at; k < at+LFTBlock; k++ {
		x, y := uint8(255), uint8(255)
		if k < len(h) {
			x = h[k]
		}
		if k < len(w) {
			y = w[k]
		}
		if x != y {
			return false
		}
	}
	return true
}

// PutLFT puts an acknowledged block into a row of what the fabric has.
func PutLFT(row []uint8, r *smp.Request) []uint8 {
	end := (int(r.Mod) + 1) * LFTBlock
	for len(row) < end {
		row = append(row, 255)
	}
	copy(row[end-LFTBlock:], r.Data[:])
	return row
}

// MFT gives the blocks of the multicast forwarding tables that differ, tagged
// with the switch index. fresh (by switch index) says that nothing is known of
// the switch's table: what the switch may hold for groups that are not wanted
// does no harm, for nobody sends to them.
func MFT(f *fabric.Fabric, have, want mcast.Tables, fresh []bool) []smp.Request {
	var out []smp.Request
	for i := range f.Switches {
		blocks := map[uint16]bool{}
		var order []uint16
		note := func(t mcast.Tables) {
			if i >= len(t) {
				return
			}
			for _, e := range t[i] {
				if b := uint16(e.MLID-ib.LIDMulticastMin) / 32; !blocks[b] {
					blocks[b] = true
					order = append(order, b)
				}
			}
		}
		old := have
		if i < len(fresh) && fresh[i] {
			old = nil
		}
		note(old)
		note(want)
		ports := int(f.Nodes[f.Switches[i].Node].NumPorts)
		for _, b := range order {
			for pos := 0; pos*16 <= ports; pos++ {
				w := want.Block(int32(i), int(b), pos)
				if old != nil && old.Block(int32(i), int(b), pos) == w || old == nil && w == [32]uint16{} {
					continue
				}
				r := smp.Request{Method: mad.MethodSet, Attr: mad.AttrMFT, Mod: mad.MFTMod(uint8(pos), b), Path: f.Nodes[f.Switches[i].Node].Path, Tag: uint64(i),
					MKey: Key(f, f.Port(f.Switches[i].Node, 0))}
				blk := mad.MFTBlock(w)
				blk.Append(r.Data[:0])
				out = append(out, r)
			}
		}
	}
	return out
}

// PKeys gives the blocks of the P_Key tables that differ, tagged with the port
// index. A nil row of want leaves the port alone; a nil row of have is an end
// port out of reset, which holds the default P_Key (IBA vol 1, 10.9.1.2), or a
// switch port that nothing is known of.
func PKeys(f *fabric.Fabric, have, want [][]ib.PKey) []smp.Request {
	var out []smp.Request
	for i := range want {
		if want[i] == nil {
			continue
		}
		h := []ib.PKey{ib.DefaultPKey}
		blind := false
		if i < len(have) && have[i] != nil {
			h = have[i]
		} else if !f.IsEndPort(int32(i)) {
			h, blind = nil, true
		}
		path, ok := PathTo(f, int32(i))
		if !ok {
			continue
		}
		n := max(len(h), len(want[i]))
		for at := 0; at < n; at += 32 {
			var a, b mad.PKeyBlock
			if at < len(h) {
				copy(a[:], h[at:])
			}
			if at < len(want[i]) {
				copy(b[:], want[i][at:])
			}
			if a == b && !blind {
				continue
			}
			num := uint8(0)
			if f.Nodes[f.Ports[i].Node].Switch != fabric.None {
				num = f.Ports[i].Num
			}
			r := smp.Request{Method: mad.MethodSet, Attr: mad.AttrPKeyTable, Mod: mad.PKeyMod(num, uint16(at/32)), Path: path, Tag: uint64(i), MKey: Key(f, int32(i))}
			b.Append(r.Data[:0])
			out = append(out, r)
		}
	}
	return out
}

// VLTables is what qos.Tables says of a port.
type VLTables interface {
	OperVLs(port int32) uint8
	SLtoVL(out int32) mad.SLtoVL
	VLArb(port int32, block uint8) mad.VLArbBlock
}

// QoS gives the Sets of the SL-to-VL mapping and VL arbitration tables of every
// linked port whose lanes differ from those it was last told, by port index in
// have (0: never told). The tag is the port index.
func QoS(f *fabric.Fabric, t VLTables, have []uint8) []smp.Request {
	var out []smp.Request
	for i := range f.Ports {
		i := int32(i)
		p := &f.Ports[i]
		if p.Peer == fabric.None || p.Num == 0 || int(i) < len(have) && have[i] == t.OperVLs(i) {
			continue
		}
		path, ok := PathTo(f, i)
		if !ok {
			continue
		}
		set := func(a mad.AttrID, mod uint32, data []byte) {
			r := smp.Request{Method: mad.MethodSet, Attr: a, Mod: mod, Path: path, Tag: uint64(i), MKey: Key(f, i)}
			copy(r.Data[:], data)
			out = append(out, r)
		}
		m := t.SLtoVL(i)
		num := uint8(0) // what adapters go by is the port that the SMP comes in at
		if f.Nodes[p.Node].Switch != fabric.None {
			num = p.Num
			first, count := f.PortRange(p.Node)
			for in := first; in < first+count; in++ {
				// Nothing comes in without a link, nor goes out where it came in.
				if q := &f.Ports[in]; q.Num != num && (q.Num == 0 || q.Peer != fabric.None) {
					set(mad.AttrSLtoVL, mad.SLtoVLMod(q.Num, num), m.Append(nil))
				}
			}
		} else if p.Info.CapMask()&fabric.CapSLMapping == 0 {
			continue
		} else {
			set(mad.AttrSLtoVL, 0, m.Append(nil))
		}
		if p.Info.VLArbLowCap() > 0 {
			b := t.VLArb(i, 1)
			set(mad.AttrVLArb, mad.VLArbMod(num, 1), b.Append(nil))
		}
		if p.Info.VLArbHighCap() > 0 {
			b := t.VLArb(i, 3)
			set(mad.AttrVLArb, mad.VLArbMod(num, 3), b.Append(nil))
		}
	}
	return out
}
