// Package discover finds out what a subnet consists of by directed-route
// requests, each thing asked once.
//
// It owns the walk: which port is asked next and what an answer means. It does
// no I/O and reads no clock: the engine pulls requests and steps answers in
// (see smp.Source). A link found from one side is not probed from the other,
// for NodeInfo names the port it was entered by; of such a link's far switch
// port in Initialize not even the PortInfo is asked, for the Set that arms the
// port answers with it. To find each link once, one switch at a time probes
// its ports while everything else that is to be asked fills the window.
//
// The same walk does a whole subnet (New) and a part of one (Resume): then
// only the suspect switches' ports are asked, and what lies behind a changed
// one.
package discover

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"ibnetworkd/ib"
	"ibnetworkd/sm/fabric"
	"ibnetworkd/sm/mad"
	"ibnetworkd/sm/smp"
)

// MaxHops is the longest directed route (IBA vol 1, 14.2.1.2).
const MaxHops = 63

// DefaultMaxNodes bounds what a subnet may pretend to consist of: every node
// needs a LID, and there are 49,151.
const DefaultMaxNodes = 49151

// DefaultMaxSMPs bounds what a walk asks: several times what 46,848 hosts take.
const DefaultMaxSMPs = 4 << 20

// DefaultMaxTime bounds how long a walk lasts.
const DefaultMaxTime = 5 * time.Minute

// maxPorts bounds the ports that nodes claim to have, four times those of the
// largest subnet: each takes memory in a Fabric.
const maxPorts = 1 << 20

// Options steer a discovery.
type Options struct {
	// LocalPort is the PortInfo of the manager's own port when the transport
	// knows it without an SMP; nil asks for it.
	LocalPort *fabric.PortInfo
	// MaxNodes ends the walk of a subnet that grows without end; 0 means
	// DefaultMaxNodes.
	MaxNodes int
	// MaxSMPs ends a walk that asks without end; 0 means DefaultMaxSMPs.
	MaxSMPs int
	// MaxTime ends a walk that lasts; 0 means DefaultMaxTime. Now is the clock,
	// nil for a walk without a budget of time.
	MaxTime time.Duration
	Now     func() time.Time
	// Parts is what earlier walks found of parts that hang on one link; nil
	// forgets it after the walk.
	Parts *Parts
	// Prefix is the subnet prefix for the Fabric, 0 for the default one.
	Prefix uint64
	// Ports asks every port's PortInfo, also what the Set that arms it would
	// answer: for who must know all capabilities before.
	Ports bool
	// ShortSMTimeout does not wait long for other managers: for one that has been made
	// master by the others, of which the former may be gone by now.
	ShortSMTimeout bool
}

// SM is another port that says it runs a subnet manager.
type SM struct {
	Port   int32 // index into Fabric.Ports
	Info   mad.SMInfo
	Silent bool       // no answer to SMInfo
	Status mad.Status // not 0: the port answered that nobody serves SMInfo
}

// Duplicate is a GUID that was met at two places.
type Duplicate struct {
	GUID           ib.GUID
	Path, Other    []uint8 // the node that is used, the one that is left out
	AtPort, AtPeer string  // where the two are plugged in
}

func (d Duplicate) String() string {
	return fmt.Sprintf("node GUID %v appears twice: at path %s (%s, used) and at path %s (%s, left out)",
		d.GUID, PathString(d.Path), d.AtPort, PathString(d.Other), d.AtPeer)
}

// PathString prints a directed route as the diagnostic tools take it: 0,1,17.
func PathString(p []uint8) string {
	s := "0"
	for _, h := range p {
		s += fmt.Sprintf(",%d", h)
	}
	return s
}

// Result is what a discovery found.
type Result struct {
	Fabric *fabric.Fabric
	// PKeys is the P_Key table of each port by index into Fabric.Ports, of those
	// that were known before and have not been unplugged or restarted since.
	PKeys [][]ib.PKey
	// Fresh tells by node index that the node is new or came back, so that
	// nothing is known about its tables.
	Fresh      []bool
	SMs        []SM
	Duplicates []Duplicate
	// Silent lists ports by name whose link is up while the other end does
	// not answer, with the reason; SilentAt are those ports' switches.
	Silent   []string
	SilentAt []ib.GUID
	Warnings []string
	Changed  bool // a resumed discovery found something that differs
}

type dport struct {
	info   fabric.PortInfo
	guid   ib.GUID
	peer   int32 // node, -1 none
	peerP  uint8
	known  bool
	silent bool
	lid    ib.LID
	lmc    ib.LMC
	pkeys  []ib.PKey
}

type dnode struct {
	ni          mad.NodeInfo
	desc        string
	si          fabric.SwitchInfo
	path        []uint8
	entry       uint8
	fresh       bool
	gone        bool // not reachable any more
	recheck     bool // its ports are asked although they are known
	queued      bool
	noExtSpeeds bool // see fabric.Node
	// Of a switch with many ports some are asked first: see askPorts.
	sample, down int     // asked of these and not answered yet; answered without a link
	rest         []uint8 // the others
	table        []byte  // what the switch says of the states of all
	blocks       int     // of which so many are to come
	ports        ports
	explored     bool  // all its ports have been asked
	out          bool  // left out of the walk: see bound
	cuts         int32 // parts behind its ports that were left out
	smps         int32
	took         time.Duration // sum of the times to an answer
}

func (n *dnode) sw() bool { return n.ni.NodeType == ib.NodeSwitch }

type kind uint8

const (
	kRoot  kind = iota
	kProbe      // NodeInfo through (node, port)
	kPort       // PortInfo of (node, port)
	kDesc
	kSwitch
	kClear // Set SwitchInfo to clear PortStateChange before a recheck
	kTable // SwitchPortStateTable of a switch
	kSM
	kVerifyPort  // PortInfo of the port where a claimed port was linked before
	kVerifyProbe // NodeInfo through that port
)

// Tag layout: kind 8 | extra 16 | node 32 | port 8.
func tag(k kind, extra uint16, node int32, port uint8) uint64 {
	return uint64(k)<<56 | uint64(extra)<<40 | uint64(uint32(node))<<8 | uint64(port)
}

func untag(t uint64) (k kind, extra uint16, node int32, port uint8) {
	return kind(t >> 56), uint16(t >> 40), int32(uint32(t >> 8)), uint8(t)
}

// claim is a port found linked while it is known to be linked elsewhere.
type claim struct {
	from  int32
	fromP uint8
	ni    mad.NodeInfo
}

// Discovery is a walk under way. It implements smp.Source.
type Discovery struct {
	opt                       Options
	nodes                     []dnode
	byGUID                    map[ib.GUID]int32
	root                      int32
	rootP                     uint8
	urgent                    queue // requests of the switch whose turn it is
	back                      queue // everything else
	turns                     queue // switches that wait for their turn
	waiting                   int   // urgent requests under way that are not late
	late                      map[uint64]bool
	claims                    []claim
	dirty                     bool  // paths are to be computed anew
	full                      bool  // MaxNodes was reached
	turning                   int32 // the switch whose turn it is, -1 none
	switches                  int   // that this walk found
	checkSwitches, checkNodes int   // at how many bound looks next
	checkAsked                int   // or at how many SMPs
	stopped                   bool  // a budget is used up
	asked                     int   // SMPs so far
	claimed                   int   // ports of all nodes
	clock                     clock
	res                       Result
}

// queue is a first-in-first-out list that gives its memory back when empty.
type queue struct {
	q    []uint64
	head int
}

func (q *queue) push(t uint64) { q.q = append(q.q, t) }
func (q *queue) empty() bool   { return q.head == len(q.q) }
func (q *queue) pop() uint64 {
	t := q.q[q.head]
	if q.head++; q.head == len(q.q) {
		q.q, q.head = q.q[:0], 0
	}
	return t
}

// begin makes a walk with room for some nodes.
func begin(opt Options, nodes int) *Discovery {
	d := &Discovery{opt: opt, byGUID: make(map[ib.GUID]int32, nodes), root: -1, turning: -1, checkSwitches: switchesMost / 4, checkNodes: nodesMost / 4, late: map[uint64]bool{}}
	d.opt.MaxNodes = cmp.Or(d.opt.MaxNodes, DefaultMaxNodes)
	d.opt.MaxSMPs = cmp.Or(d.opt.MaxSMPs, DefaultMaxSMPs)
	d.opt.MaxTime = cmp.Or(d.opt.MaxTime, DefaultMaxTime)
	if d.opt.Parts == nil {
		d.opt.Parts = new(Parts)
	}
	return d
}

// New starts the discovery of a whole subnet.
func New(opt Options) *Discovery {
	d := begin(opt, 0)
	d.back.push(tag(kRoot, 0, 0, 0))
	return d
}

// Resume starts a discovery of what changed since an earlier one: the suspect
// nodes' ports are asked again, of adapters those that are linked. pkeys are the P_Key tables read so far.
func Resume(opt Options, f *fabric.Fabric, pkeys [][]ib.PKey, suspects []int32) *Discovery {
	d := begin(opt, len(f.Nodes))
	d.nodes = make([]dnode, len(f.Nodes))
	for i := range f.Nodes {
		n := &f.Nodes[i]
		x := &d.nodes[i]
		x.ni = mad.NodeInfo{BaseVersion: n.Base, ClassVersion: n.Class, NodeType: n.Type, NumPorts: n.NumPorts, SystemImageGUID: n.SystemGUID,
			NodeGUID: n.GUID, PartitionCap: n.PKeyCap, DeviceID: n.DeviceID, Revision: n.Revision, VendorID: n.VendorID}
		x.desc, x.path, x.entry, x.noExtSpeeds = n.Desc, n.Path, n.Entry, n.NoExtendedSpeeds
		if n.Switch != fabric.None {
			x.si = f.Switches[n.Switch].Info
		}
		d.byGUID[n.GUID] = int32(i)
		x.ports = makePorts(int(n.NumPorts) + 1)
		d.claimed += x.ports.n
		for p := range x.ports.n {
			at := f.Port(int32(i), uint8(p))
			if at == fabric.None {
				continue
			}
			fp := &f.Ports[at]
			if fp.Info == (fabric.PortInfo{}) && fp.Peer == fabric.None && fp.GUID == 0 && at != f.SMPort {
				continue
			}
			q := x.ports.at(p)
			q.info, q.known, q.guid, q.lid, q.lmc = fp.Info, fp.Known, fp.GUID, fp.LID, fp.LMC
			if int(at) < len(pkeys) {
				q.pkeys = pkeys[at]
			}
			if fp.Peer != fabric.None {
				q.peer, q.peerP = f.Ports[fp.Peer].Node, f.Ports[fp.Peer].Num
			}
			if at == f.SMPort {
				d.root, d.rootP = int32(i), uint8(p)
			}
		}
	}
	d.checkNodes = len(d.nodes) + nodesMost/4
	s := slices.Clone(suspects)
	slices.SortFunc(s, func(a, b int32) int {
		return cmp.Or(cmp.Compare(len(d.nodes[a].path), len(d.nodes[b].path)), cmp.Compare(a, b))
	})
	for _, i := range slices.Compact(s) {
		x := &d.nodes[i]
		if x.sw() {
			x.recheck = true
			d.turn(i)
			continue
		}
		for p := range x.ports.n {
			if x.ports.look(p).peer >= 0 || i == d.root && uint8(p) == d.rootP {
				d.back.push(tag(kPort, 0, i, uint8(p)))
			}
		}
	}
	return d
}

// gotRecheck begins the recheck of a switch: its change bit is cleared before
// its ports are read. LinearFDBTop 0 and port 0 without LID, which is asked
// after the Set, each give a restarted switch away.
func (d *Discovery) gotRecheck(i int32, r *smp.Reply) {
	x := &d.nodes[i]
	if !r.OK() {
		// Its ports would be silent too; the neighbours say what happened.
		x.recheck = false
		d.silent(i, 0, "switch "+x.name()+" does not answer SwitchInfo"+why(r))
		return
	}
	was := x.si.LinearFDBTop()
	x.si = fabric.SwitchInfoOf(&r.Data)
	if x.si.LinearFDBTop() == 0 && was != 0 {
		d.restarted(i)
	}
	if x.si.PortStateChange() {
		d.urgent.push(tag(kClear, 0, i, 0))
		return
	}
	d.urgent.push(tag(kPort, 2, i, 0))
}

// AskDescription asks a node's description again before the walk ends; used
// for trap 144 (NodeDescription changed).
func (d *Discovery) AskDescription(node int32) { d.back.push(tag(kDesc, 0, node, 0)) }

// AskPort asks an end port's PortInfo again, for a change of its capability
// mask or link.
func (d *Discovery) AskPort(node int32, port uint8) { d.back.push(tag(kPort, 0, node, port)) }

// Late implements smp.Source.
func (d *Discovery) Late(t uint64) {
	if !isUrgent(t) || d.late[t] {
		return
	}
	d.late[t] = true
	d.waiting--
	// One port that is slow does not hold up the others of its switch.
	switch k, extra, i, p := untag(t); {
	case k == kPort && extra == 1:
		d.gotSample(i, p)
	case k == kPort && extra == 3, k == kTable:
		d.askRest(i)
	}
}

// isUrgent tells the requests that hold the turn.
func isUrgent(t uint64) bool {
	k, extra, _, _ := untag(t)
	return k == kProbe || k == kClear || k == kTable || (k == kPort || k == kSwitch) && extra != 0
}

// Next implements smp.Source.
func (d *Discovery) Next() (smp.Request, bool) {
	if d.tick() {
		d.stop("%v", d.opt.MaxTime)
	}
	for {
		var t uint64
		switch {
		case !d.urgent.empty():
			t = d.urgent.pop()
		case d.waiting == 0 && !d.turns.empty():
			d.start(int32(d.turns.pop()))
			continue
		case !d.back.empty():
			t = d.back.pop()
		default:
			return smp.Request{}, false
		}
		if k, _, i, _ := untag(t); k != kRoot && d.nodes[i].out {
			continue
		}
		if d.asked++; d.asked > d.opt.MaxSMPs {
			d.stop("%d SMPs", d.opt.MaxSMPs)
			continue
		}
		r, ok := d.request(t)
		if !ok {
			// The way there is gone: as if it had not answered.
			if isUrgent(t) {
				d.waiting++
			}
			d.Step(&smp.Reply{Request: smp.Request{Tag: t}, Timeout: true})
			continue
		}
		if isUrgent(t) {
			d.waiting++
		}
		d.sent(t)
		return r, true
	}
}

// turn queues a switch for probing its ports.
func (d *Discovery) turn(i int32) {
	if x := &d.nodes[i]; !x.queued {
		x.queued = true
		d.turns.push(uint64(uint32(i)))
	}
}

// start begins a switch's turn.
func (d *Discovery) start(i int32) {
	if d.turning >= 0 {
		d.nodes[d.turning].explored = true
	}
	if d.grown() {
		d.bound()
	}
	x := &d.nodes[i]
	if d.turning = i; x.out {
		return
	}
	x.queued = false
	if x.recheck {
		d.urgent.push(tag(kSwitch, 1, i, 0))
		return
	}
	d.askPorts(i, 1)
}

// sampled is how many ports of a switch are asked first, and worth how many
// others there must be at least for its table to be worth looking for: that
// takes up to two requests.
const (
	sampled = 8
	worth   = 8
)

// askPorts asks a switch's ports from the given one on: those that nothing is
// known of, or all when the switch is rechecked.
//
// Of a new switch's ports a few are asked first. Where most of them have no link
// the others may have none either, and many switches can tell the states of all
// ports at once (SwitchPortStateTable, an optional attribute since release 1.3
// of the architecture): then only ports with a link are asked one by one.
func (d *Discovery) askPorts(i int32, from int) {
	x := &d.nodes[i]
	var ask []uint8
	for p := from; p < x.ports.n; p++ {
		q := x.ports.at(int(p))
		if !x.recheck && q.known {
			if q.peer < 0 && q.info.State() >= ib.PortInit {
				d.probe(i, uint8(p))
			}
			continue
		}
		if x.recheck || d.wanted(q) {
			ask = append(ask, uint8(p))
		}
	}
	if !x.recheck && x.fresh && !d.opt.Ports && len(ask) >= sampled+worth {
		x.sample, x.down = sampled, 0
		ask, x.rest = ask[:sampled], ask[sampled:]
	}
	x.recheck = false
	for _, p := range ask {
		d.urgent.push(tag(kPort, 1, i, p))
	}
}

// probe asks what is behind a port. A switch at the end of the longest directed
// route would answer for itself.
func (d *Discovery) probe(i int32, p uint8) {
	if x := &d.nodes[i]; len(x.path) >= MaxHops {
		d.warn("what is behind port %s[%d] is more than %d hops away, out of reach of directed routes; run the subnet manager on a host nearer the middle", x.name(), p, MaxHops)
		return
	}
	d.urgent.push(tag(kProbe, 0, i, p))
}

// wanted tells that a port's PortInfo is to be asked.
func (d *Discovery) wanted(q *dport) bool {
	if q.known {
		return false
	}
	if q.peer >= 0 && !d.opt.Ports {
		// The far end of a link that was found from its other end: what it
		// answers is needed only if it is configured already.
		if o := d.nodes[q.peer].ports.at(int(q.peerP)); o.known && o.info.State() == ib.PortInit {
			return false
		}
	}
	return true
}

// askRest asks the ports of a switch that the sample left.
func (d *Discovery) askRest(i int32) {
	x := &d.nodes[i]
	for _, p := range x.rest {
		if d.wanted(x.ports.at(int(p))) {
			d.urgent.push(tag(kPort, 1, i, p))
		}
	}
	x.rest, x.table = nil, nil
}

// gotSample goes on when the sample has answered.
func (d *Discovery) gotSample(i int32, p uint8) {
	x := &d.nodes[i]
	if x.sample == 0 {
		return
	}
	if q := x.ports.at(int(p)); q.known && q.info.State() < ib.PortInit {
		x.down++
	}
	if x.sample--; x.sample > 0 {
		return
	}
	switch {
	case x.down < sampled*3/4:
		d.askRest(i)
	case !x.ports.at(0).known:
		d.urgent.push(tag(kPort, 3, i, 0)) // its capabilities are the switch's
	default:
		d.askTable(i)
	}
}

// askTable asks for the states of all ports if the switch can tell.
func (d *Discovery) askTable(i int32) {
	x := &d.nodes[i]
	if p := x.ports.at(0); !p.known || !p.info.TellsPortStates() {
		d.askRest(i)
		return
	}
	x.blocks = (x.ports.n + fabric.TablePorts - 1) / fabric.TablePorts
	x.table = make([]byte, 64*x.blocks)
	for b := range x.blocks {
		d.urgent.push(tag(kTable, uint16(b), i, 0))
	}
}

// gotTable asks the ports that have a link by the table of states: four bits for
// each port, coded as PortInfo:PortState, the first in the upper half of a byte.
// A table that does not fit what the ports themselves said is not used, and
// what has no state in it is asked.
func (d *Discovery) gotTable(i int32, block int, r *smp.Reply) {
	x := &d.nodes[i]
	if x.table == nil {
		return // it was late, and the ports were asked
	}
	if r.OK() {
		copy(x.table[64*block:], r.Data[:])
	}
	if x.blocks--; x.blocks > 0 {
		return
	}
	state := func(p int) ib.PortState { return fabric.StateInTable(x.table, p) }
	fits := func(p int) bool {
		q := x.ports.at(int(p))
		switch up := state(p) >= ib.PortInit; {
		case q.known:
			return up == (q.info.State() >= ib.PortInit)
		case q.peer >= 0:
			return up
		}
		return true
	}
	for p := 1; p < x.ports.n; p++ {
		if state(p) != 0 && !fits(p) {
			d.warn("switch %s: the state of port %d in its SwitchPortStateTable is not that of the port", x.name(), p)
			d.askRest(i)
			return
		}
	}
	left := x.rest[:0]
	for _, p := range x.rest {
		if q := x.ports.at(int(p)); state(int(p)) == ib.PortDown && !q.known && q.peer < 0 {
			q.info.SetState(ib.PortDown)
		} else {
			left = append(left, p)
		}
	}
	x.rest, x.table = left, nil
	d.askRest(i)
}

// request makes the SMP of a tag; false when its target cannot be reached.
func (d *Discovery) request(t uint64) (smp.Request, bool) {
	k, extra, i, p := untag(t)
	r := smp.Request{Method: mad.MethodGet, Tag: t}
	if k == kRoot {
		r.Attr = mad.AttrNodeInfo
		return r, true
	}
	if d.dirty {
		d.paths()
	}
	if d.nodes[i].gone {
		return r, false
	}
	x := &d.nodes[i]
	r.Path = x.path
	switch k {
	case kProbe, kVerifyProbe:
		if len(x.path) >= MaxHops {
			return r, false
		}
		r.Attr = mad.AttrNodeInfo
		r.Path = smp.PathTo(x.path, p)
	case kPort, kVerifyPort:
		if r.Attr, r.Mod = mad.AttrPortInfo, uint32(p); !x.noExtSpeeds {
			r.Mod |= smp.ExtendedSpeeds
		}
		if !x.sw() {
			return r, d.caPath(i, p, &r.Path)
		}
	case kDesc:
		r.Attr = mad.AttrNodeDescription
	case kSwitch:
		r.Attr = mad.AttrSwitchInfo
	case kTable:
		r.Attr, r.Mod = mad.AttrSwitchPortState, uint32(extra)
	case kClear:
		r.Attr, r.Method, r.MKey = mad.AttrSwitchInfo, mad.MethodSet, x.ports.at(0).info.MKey()
		si := x.si
		si.SetPortStateChange()
		r.Data = si.Wire()
	case kSM:
		r.Attr, r.ShortTimeout = mad.AttrSMInfo, d.opt.ShortSMTimeout
		if !x.sw() {
			return r, d.caPath(i, p, &r.Path)
		}
	}
	return r, true
}

// caPath is the directed route that ends at one port of an adapter.
func (d *Discovery) caPath(i int32, p uint8, path *[]uint8) bool {
	if i == d.root && p == d.rootP {
		*path = nil
		return true
	}
	q := d.nodes[i].ports.at(int(p))
	if q.peer < 0 {
		return false
	}
	o := &d.nodes[q.peer]
	if o.gone || !o.sw() && (q.peer != d.root || q.peerP != d.rootP) {
		return false
	}
	*path = smp.PathTo(o.path, q.peerP)
	return true
}

// paths computes every node's directed route over the links known, breadth
// first, low ports first. Nodes without a way are gone.
func (d *Discovery) paths() {
	d.dirty = false
	seen := make([]bool, len(d.nodes))
	order := make([]int32, 0, len(d.nodes))
	visit := func(i int32, path []uint8, entry uint8) {
		seen[i] = true
		d.nodes[i].path, d.nodes[i].entry = path, entry
		order = append(order, i)
	}
	if d.root >= 0 {
		visit(d.root, nil, d.rootP)
	}
	for k := 0; k < len(order); k++ {
		i := order[k]
		x := &d.nodes[i]
		if !x.sw() && i != d.root || len(x.path) >= MaxHops {
			continue
		}
		for p := range x.ports.n {
			q := x.ports.look(p)
			if q.peer < 0 || seen[q.peer] || !x.sw() && uint8(p) != d.rootP {
				continue
			}
			visit(q.peer, smp.PathTo(x.path, uint8(p)), q.peerP)
		}
	}
	for i := range d.nodes {
		d.nodes[i].gone = !seen[i]
	}
}

// Step implements smp.Source.
func (d *Discovery) Step(r *smp.Reply) {
	k, extra, i, p := untag(r.Tag)
	d.answered(r.Tag)
	late := d.late[r.Tag]
	if isUrgent(r.Tag) {
		if late {
			delete(d.late, r.Tag)
		} else {
			d.waiting--
		}
	}
	if k != kRoot && d.nodes[i].out {
		return
	}
	switch k {
	case kRoot:
		var ni mad.NodeInfo
		if !r.OK() || ni.Decode(r.Data[:]) != nil {
			d.warn("the local port does not answer NodeInfo%s", why(r))
			return
		}
		d.gotRoot(ni)
	case kProbe:
		d.gotProbe(i, p, r)
	case kPort:
		d.gotPort(i, p, r)
		if extra == 2 && r.OK() {
			d.askPorts(i, 1)
		} else if extra == 2 {
			d.nodes[i].recheck = false // its other ports would be silent too
		}
		switch {
		case late:
		case extra == 1:
			d.gotSample(i, p)
		case extra == 3:
			d.askTable(i)
		}
	case kTable:
		d.gotTable(i, int(extra), r)
	case kDesc:
		if r.OK() {
			x := &d.nodes[i]
			s := mad.NodeDescription(r.Data).String()
			if x.desc != s {
				x.desc = s
				d.res.Changed = true
			}
		}
	case kSwitch:
		x := &d.nodes[i]
		if extra == 1 {
			d.gotRecheck(i, r)
			return
		}
		if r.OK() {
			x.si = fabric.SwitchInfoOf(&r.Data)
		} else {
			d.warn("switch %s does not answer SwitchInfo%s", x.name(), why(r))
		}
		// A switch without forwarding table was never configured: its port 0
		// has no LID, and the Set that gives it one answers with the rest.
		if q := x.ports.at(0); !q.known && (x.si.LinearFDBTop() != 0 || d.opt.Ports) {
			d.back.push(tag(kPort, 0, i, 0))
		}
	case kClear:
		x := &d.nodes[i]
		if r.OK() {
			x.si = fabric.SwitchInfoOf(&r.Data)
			x.si.ClearPortStateChange()
		} else if r.Timeout {
			x.recheck = false
			d.silent(i, 0, "switch "+x.name()+" does not answer")
			return
		}
		d.urgent.push(tag(kPort, 2, i, 0))
	case kSM:
		sm := SM{Port: i<<8 | int32(p), Silent: r.Timeout, Status: r.Status}
		if r.OK() && sm.Info.Decode(r.Data[:]) != nil {
			sm.Silent = true
		}
		d.res.SMs = append(d.res.SMs, sm)
	case kVerifyPort, kVerifyProbe:
		d.gotVerify(k, i, p, extra, r)
	}
}

func why(r *smp.Reply) string {
	if r.Timeout {
		return " (no answer)"
	}
	return fmt.Sprintf(" (status 0x%04x)", uint16(r.Status))
}

func (d *Discovery) warn(f string, a ...any) {
	const most = 1000
	if len(d.res.Warnings) < most {
		d.res.Warnings = append(d.res.Warnings, fmt.Sprintf(f, a...))
	}
}

func (x *dnode) name() string {
	if x.desc != "" {
		return x.desc
	}
	return x.ni.NodeGUID.String()
}

func (d *Discovery) silent(i int32, p uint8, msg string) {
	d.nodes[i].ports.at(int(p)).silent = true
	d.res.Silent = append(d.res.Silent, msg)
	d.res.SilentAt = append(d.res.SilentAt, d.nodes[i].ni.NodeGUID)
}

// add makes a node of what a probe answered.
func (d *Discovery) add(ni mad.NodeInfo, path []uint8) int32 {
	i := int32(len(d.nodes))
	x := dnode{ni: ni, path: path, entry: ni.LocalPortNum, fresh: true, ports: makePorts(int(ni.NumPorts) + 1)}
	x.ni.PortGUID, x.ni.LocalPortNum = 0, 0
	d.nodes = append(d.nodes, x)
	d.byGUID[ni.NodeGUID] = i
	d.claimed += x.ports.n
	d.res.Changed = true
	d.back.push(tag(kDesc, 0, i, 0))
	if x.sw() {
		d.nodes[i].ports.at(0).guid = ni.PortGUID
		d.back.push(tag(kSwitch, 0, i, 0))
		d.turn(i)
		d.switches++
	}
	return i
}

func (d *Discovery) gotRoot(ni mad.NodeInfo) {
	if ni.NodeGUID == 0 || ni.NumPorts == 0 || ni.NumPorts == 255 || ni.LocalPortNum > ni.NumPorts {
		d.warn("the local port's NodeInfo makes no sense: GUID %v, port %d of %d", ni.NodeGUID, ni.LocalPortNum, ni.NumPorts)
		return
	}
	d.rootP = ni.LocalPortNum
	d.root = d.add(ni, nil)
	x := &d.nodes[d.root]
	if x.sw() {
		d.rootP = 0
		return
	}
	x.ports.at(int(d.rootP)).guid = ni.PortGUID
	t := tag(kPort, 0, d.root, d.rootP)
	if d.opt.LocalPort != nil {
		d.Step(&smp.Reply{Request: smp.Request{Tag: t}, Data: d.opt.LocalPort.Wire()})
		return
	}
	d.back.push(t)
}

// valid checks what a NodeInfo claims before anything is built on it.
func valid(ni *mad.NodeInfo) bool {
	return ni.NodeGUID != 0 && ni.NumPorts > 0 && ni.NumPorts < 255 && ni.LocalPortNum > 0 && ni.LocalPortNum <= ni.NumPorts &&
		(ni.NodeType == ib.NodeCA || ni.NodeType == ib.NodeSwitch || ni.NodeType == ib.NodeRouter)
}

func (d *Discovery) gotProbe(i int32, p uint8, r *smp.Reply) {
	x := &d.nodes[i]
	if !r.OK() {
		d.silent(i, p, fmt.Sprintf("port %s[%d] is up but its peer does not answer NodeInfo%s, path %s",
			x.name(), p, why(r), PathString(smp.PathTo(x.path, p))))
		return
	}
	var ni mad.NodeInfo
	if ni.Decode(r.Data[:]) != nil || !valid(&ni) {
		d.silent(i, p, fmt.Sprintf("the peer of %s[%d] answers a NodeInfo that makes no sense (GUID %v, type %d, port %d of %d), path %s",
			x.name(), p, ni.NodeGUID, ni.NodeType, ni.LocalPortNum, ni.NumPorts, PathString(smp.PathTo(x.path, p))))
		return
	}
	if q := x.ports.at(int(p)); q.peer >= 0 {
		// Meanwhile found from the other end, if that end is this one.
		if y := &d.nodes[q.peer]; y.ni.NodeGUID == ni.NodeGUID && q.peerP == ni.LocalPortNum {
			return
		}
		d.unlink(i, p)
	}
	j, ok := d.byGUID[ni.NodeGUID]
	if !ok {
		if d.claimed+int(ni.NumPorts) >= maxPorts {
			d.bound()
			if x = &d.nodes[i]; x.out {
				return
			}
		}
		if len(d.nodes) >= d.opt.MaxNodes || d.claimed+int(ni.NumPorts) >= maxPorts {
			if !d.full {
				d.full = true
				d.warn("more than %d nodes or %d ports: the rest of the subnet is left out, from path %s on", d.opt.MaxNodes, maxPorts, PathString(smp.PathTo(x.path, p)))
			}
			return
		}
		j = d.add(ni, smp.PathTo(x.path, p))
		d.link(i, p, j, ni)
		return
	}
	y := &d.nodes[j]
	q := ni.LocalPortNum
	if y.ni.NumPorts != ni.NumPorts || y.ni.NodeType != ni.NodeType || y.ni.SystemImageGUID != ni.SystemImageGUID || y.ni.DeviceID != ni.DeviceID {
		d.duplicate(j, i, p)
		return
	}
	if j == i && q == p {
		d.warn("port %s[%d] has a loopback plug", x.name(), p)
		return
	}
	if o := y.ports.at(int(q)); o.peer >= 0 {
		if o.peer == i && o.peerP == p {
			return
		}
		// Claimed twice: the node moved, or there are two of it.
		if len(d.claims) >= 1<<16 {
			return
		}
		d.claims = append(d.claims, claim{i, p, ni})
		d.back.push(tag(kVerifyPort, uint16(len(d.claims)-1), o.peer, o.peerP))
		return
	}
	if !y.sw() && y.ports.at(int(q)).guid != 0 && y.ports.at(int(q)).guid != ni.PortGUID {
		d.duplicate(j, i, p)
		return
	}
	d.link(i, p, j, ni)
}

func (d *Discovery) duplicate(j, i int32, p uint8) {
	x, y := &d.nodes[i], &d.nodes[j]
	dup := Duplicate{GUID: y.ni.NodeGUID, Path: y.path, Other: smp.PathTo(x.path, p), AtPort: "the manager's node", AtPeer: fmt.Sprintf("%s[%d]", x.name(), p)}
	if o := y.ports.at(int(min(int(y.entry), y.ports.n-1))); o.peer >= 0 {
		dup.AtPort = fmt.Sprintf("%s[%d]", d.nodes[o.peer].name(), o.peerP)
	}
	x.ports.at(int(p)).silent = true
	d.res.SilentAt = append(d.res.SilentAt, x.ni.NodeGUID)
	d.res.Duplicates = append(d.res.Duplicates, dup)
}

// link joins port p of node i with the port that ni was entered by.
func (d *Discovery) link(i int32, p uint8, j int32, ni mad.NodeInfo) {
	q := ni.LocalPortNum
	a, b := d.nodes[i].ports.at(int(p)), d.nodes[j].ports.at(int(q))
	a.peer, a.peerP, a.silent = j, q, false
	b.peer, b.peerP, b.silent = i, p, false
	d.res.Changed = true
	y := &d.nodes[j]
	if y.gone {
		d.dirty = true
	}
	if !y.sw() {
		b.guid = ni.PortGUID
		// A port that came up again may be another one inside: new firmware,
		// a restarted host.
		b.pkeys, b.known = nil, false
		if !y.fresh {
			y.fresh = true
			d.back.push(tag(kDesc, 0, j, 0))
		}
		d.back.push(tag(kPort, 0, j, q))
		return
	}
	if y.fresh {
		if b.known && b.info.State() < ib.PortInit {
			// It came up since it was asked. The answer to the Set that arms
			// it tells the rest.
			b.known = false
			if d.opt.Ports {
				d.back.push(tag(kPort, 0, j, q))
			}
		}
		return
	}
	// A known switch is met again over a link that is new. If it was restarted
	// its port 0 has lost the LID; whatever it is, its other ports are asked.
	if a.info.State() == ib.PortInit {
		y.recheck = true
		d.turn(j)
	}
}

// unlink takes the link at a port away from both ends.
func (d *Discovery) unlink(i int32, p uint8) {
	a := d.nodes[i].ports.at(int(p))
	if a.peer < 0 {
		return
	}
	if b := d.nodes[a.peer].ports.at(int(a.peerP)); b.peer == i && b.peerP == p {
		b.peer = -1
		if d.nodes[a.peer].sw() {
			// Its state is down as this end's is; asked when it comes up.
			b.info.SetState(ib.PortDown)
		}
	}
	d.unplugged(a.peer, a.peerP)
	a.peer = -1
	d.unplugged(i, p)
	d.dirty, d.res.Changed = true, true
}

// unplugged forgets an adapter port that lost its link: nobody can reach it.
func (d *Discovery) unplugged(i int32, p uint8) {
	if !d.nodes[i].sw() && (i != d.root || p != d.rootP) {
		*d.nodes[i].ports.at(int(p)) = dport{peer: -1}
	}
}

func (d *Discovery) gotPort(i int32, p uint8, r *smp.Reply) {
	x := &d.nodes[i]
	q := x.ports.at(int(p))
	if !r.OK() {
		d.silent(i, p, fmt.Sprintf("port %s[%d] does not answer PortInfo%s", x.name(), p, why(r)))
		return
	}
	was := q.info
	had := q.known
	q.info, q.known, q.silent = fabric.PortInfoOf(&r.Data), true, false
	if r.Attr == mad.AttrPortInfo && r.Mod&smp.ExtendedSpeeds == 0 {
		// A port that claims those speeds had another reason to refuse.
		x.noExtSpeeds = (q.info.CapMask()|x.ports.at(0).info.CapMask())&fabric.CapExtendedSpeeds == 0
	}
	if had && was != q.info {
		d.res.Changed = true
	}
	if !x.sw() || p == 0 {
		if !had || x.fresh {
			q.lid, q.lmc = 0, 0
		}
		if x.sw() && had && q.info.LID() != was.LID() && q.info.LID() == 0 {
			d.restarted(i)
		}
		d.endPort(i, p)
	}
	if p == 0 || !x.sw() && (i != d.root || p != d.rootP) {
		return
	}
	switch st := q.info.State(); {
	case st < ib.PortInit:
		d.unlink(i, p)
	case q.peer < 0:
		if q.info.PhysState() == ib.PhysLinkUp {
			d.probe(i, p)
		}
	case st == ib.PortInit && had && was.State() > ib.PortInit && (i == d.root || p != x.entry):
		// The link was down in between: who is there now? (Of the link that
		// this answer came over there is no doubt.)
		d.unlink(i, p)
		d.probe(i, p)
	}
}

// restarted forgets what was known of a switch that lost its configuration.
func (d *Discovery) restarted(i int32) {
	x := &d.nodes[i]
	if x.fresh {
		return
	}
	x.fresh = true
	x.ports.at(0).lid = 0
	for p := range x.ports.n {
		if x.ports.look(p).pkeys != nil {
			x.ports.at(p).pkeys = nil
		}
	}
	d.res.Changed = true
	d.back.push(tag(kDesc, 0, i, 0))
	d.warn("switch %s was restarted", x.name())
}

// endPort asks what follows from an end port's PortInfo.
func (d *Discovery) endPort(i int32, p uint8) {
	q := d.nodes[i].ports.at(int(p))
	if q.info.CapMask()&fabric.CapIsSM != 0 && (i != d.root || p != d.rootP) {
		d.back.push(tag(kSM, 0, i, p))
	}
}

// gotVerify settles a claim: is the port still where it was linked before?
func (d *Discovery) gotVerify(k kind, i int32, p uint8, extra uint16, r *smp.Reply) {
	c := d.claims[extra]
	j, ok := d.byGUID[c.ni.NodeGUID]
	if !ok || d.nodes[c.from].out {
		return
	}
	o := d.nodes[j].ports.at(int(c.ni.LocalPortNum))
	still := o.peer == i && o.peerP == p
	if still && k == kVerifyPort && r.OK() {
		if pi := fabric.PortInfoOf(&r.Data); pi.State() >= ib.PortInit {
			d.back.push(tag(kVerifyProbe, extra, i, p))
			return
		}
	}
	if still && k == kVerifyProbe && r.OK() {
		var ni mad.NodeInfo
		if ni.Decode(r.Data[:]) == nil && ni.NodeGUID == c.ni.NodeGUID && ni.LocalPortNum == c.ni.LocalPortNum {
			d.duplicate(j, c.from, c.fromP)
			return
		}
	}
	if o.peer >= 0 {
		d.unlink(j, c.ni.LocalPortNum)
	}
	if d.nodes[c.from].ports.at(int(c.fromP)).peer >= 0 {
		return
	}
	d.warn("node %s moved to %s[%d]", d.nodes[j].name(), d.nodes[c.from].name(), c.fromP)
	d.nodes[j].fresh = false
	d.link(c.from, c.fromP, j, c.ni)
	if d.nodes[j].sw() {
		d.nodes[j].recheck = true
		d.turn(j)
	}
}

// Result builds what was found; call it when the walk has finished. It comes
// without a Fabric when the local port did not answer.
func (d *Discovery) Result() *Result {
	if d.root < 0 {
		return &d.res
	}
	d.paths()
	b := fabric.NewBuilder()
	if d.opt.Prefix != 0 {
		b.SetPrefix(d.opt.Prefix)
	}
	num := make([]int, len(d.nodes))
	for i := range d.nodes {
		x := &d.nodes[i]
		num[i] = -1
		if x.gone {
			d.res.Changed = true
			continue
		}
		n, err := b.AddNode(fabric.Node{GUID: x.ni.NodeGUID, SystemGUID: x.ni.SystemImageGUID, Type: x.ni.NodeType, NumPorts: x.ni.NumPorts,
			Base: x.ni.BaseVersion, Class: x.ni.ClassVersion, DeviceID: x.ni.DeviceID, PKeyCap: x.ni.PartitionCap, VendorID: x.ni.VendorID,
			Revision: x.ni.Revision, Desc: x.desc, Path: x.path, Entry: x.entry, NoExtendedSpeeds: x.noExtSpeeds})
		if err != nil {
			d.warn("%v", err)
			continue
		}
		num[i] = n
		b.SetSwitchInfo(n, x.si)
		for p := range x.ports.n {
			q := x.ports.look(p)
			if q.peer >= 0 && d.nodes[q.peer].gone {
				d.unplugged(int32(i), uint8(p))
				q = x.ports.look(p)
			}
			o := b.Port(n, uint8(p))
			o.Info, o.Known, o.LID, o.LMC = q.info, q.known, q.lid, q.lmc
			if p == 0 || !x.sw() {
				o.GUID = q.guid
			}
		}
	}
	for i := range d.nodes {
		x := &d.nodes[i]
		for p := range x.ports.n {
			q := x.ports.look(p)
			if q.peer < 0 || num[i] < 0 || num[q.peer] < 0 || q.peer < int32(i) || q.peer == int32(i) && q.peerP < uint8(p) {
				continue
			}
			if err := b.Link(num[i], uint8(p), num[q.peer], q.peerP); err != nil {
				d.warn("%v", err)
			}
		}
	}
	b.SetSM(num[d.root], d.rootP)
	f := b.Build()
	res := &d.res
	res.Fabric = f
	res.Fresh = make([]bool, len(f.Nodes))
	res.PKeys = make([][]ib.PKey, len(f.Ports))
	at := make([]int32, len(d.nodes))
	for i := range d.nodes {
		x := &d.nodes[i]
		if at[i] = fabric.None; num[i] < 0 {
			continue
		}
		at[i] = f.NodeByGUID(x.ni.NodeGUID)
		res.Fresh[at[i]] = x.fresh
		for p := range x.ports.n {
			if q := f.Port(at[i], uint8(p)); q != fabric.None {
				res.PKeys[q] = x.ports.look(p).pkeys
			}
		}
	}
	for k := range res.SMs {
		i, p := res.SMs[k].Port>>8, uint8(res.SMs[k].Port)
		if res.SMs[k].Port = fabric.None; at[i] != fabric.None {
			res.SMs[k].Port = f.Port(at[i], p)
		}
	}
	res.SMs = slices.DeleteFunc(res.SMs, func(s SM) bool { return s.Port == fabric.None })
	// A port that was asked twice counts once, with an answer if it gave one.
	slices.SortStableFunc(res.SMs, func(a, b SM) int {
		if a.Port == b.Port && a.Silent != b.Silent {
			return map[bool]int{false: -1, true: 1}[a.Silent]
		}
		return cmp.Compare(a.Port, b.Port)
	})
	res.SMs = slices.CompactFunc(res.SMs, func(a, b SM) bool { return a.Port == b.Port })
	slices.Sort(res.Silent)
	slices.Sort(res.SilentAt)
	res.SilentAt = slices.Compact(res.SilentAt)
	return res
}
