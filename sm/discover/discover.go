// Package discover finds the nodes, ports and links of a subnet by directed-route
// requests, each attribute read once.
//
// It decides which port is read next and what an answer means. It does no I/O and
// reads no clock: the engine pulls requests and feeds answers (see smp.Source). A
// link found from one side is not probed from the other, because NodeInfo has the
// port that the request entered by; of such a link's far switch port in Initializing
// not even the PortInfo is read, because the Set that arms the port returns it. To
// find each link once, one switch at a time probes its ports while all other
// requests fill the window.
//
// The same walk covers a whole subnet (New) or a part of one (Resume): then only
// the ports of suspect switches are read, and what is behind a changed one.
package discover

import (
	"cmp"
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
	// Parts is what earlier walks found of parts that only one link connects; nil
	// forgets it after the walk.
	Parts *Parts
	// Flaps is what earlier walks saw of links that went down; nil forgets it after
	// the walk. It needs Now.
	Flaps *Flaps
	// Prefix is the subnet prefix for the Fabric, 0 for the default one.
	Prefix uint64
	// Ports reads every port's PortInfo, also those that the Set that arms them
	// would return, for callers that need all capabilities before.
	Ports bool
	// ShortSMTimeout does not wait long for other managers: for one that has been made
	// master by the others, of which the former may be gone by now.
	ShortSMTimeout bool
}

type dport struct {
	info  fabric.PortInfo
	guid  ib.GUID
	peer  int32 // node, -1 none
	peerP uint8
	known bool
	lid   ib.LID
	lmc   ib.LMC
	pkeys []ib.PKey
}

type dnode struct {
	ni          mad.NodeInfo
	desc        string
	si          fabric.SwitchInfo
	path        []uint8
	entry       uint8
	unknown     bool
	gone        bool // not reachable any more
	recheck     bool // its ports are asked although they are known
	moved       bool // a port of it is not as it was known
	queued      bool
	noExtSpeeds bool // see fabric.Node
	// Of a switch with many ports some are asked first: see askPorts.
	sample, down int     // asked of these and not answered yet; answered without a link
	rest         []uint8 // the others
	table        []byte  // what the switch says of the states of all
	blocks       int     // of which so many are to come
	ports        ports
	lost         uint8 // links with switches that this walk found down, 2 for more: see lostLink
	explored     bool  // all its ports have been asked
	read         bool  // it has answered, and all its ports are asked, of an adapter those that are linked
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
	kSelf        // NodeInfo of a switch that may be one with another: see alike
	kStill       // NodeInfo of a node that was found with other properties
	kCount       // NodeInfo of a switch: how many ports it has now
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
	again                     map[uint64]bool // requests that were repeated, true until that is sent: see askAgain
	claims                    []claim
	nameless                  []nameless
	far                       []farPort
	twoGUIDs                  []changing
	reshaped                  map[ib.GUID][]uint16 // claims by nodes with other properties
	stirred                   []int32              // switches that reported a change of a port
	replaced                  map[ib.GUID]bool     // that were found with other properties in this walk
	dirty                     bool                 // paths are to be computed again
	full                      bool                 // MaxNodes was reached
	turning                   int32                // the switch whose turn it is, -1 none
	switches                  int                  // that this walk found
	checkSwitches, checkNodes int                  // at how many bound is called next
	checkAsked                int                  // or at how many SMPs
	stopped                   bool                 // a budget is used up
	resumed                   bool                 // the walk began with what was known
	lossy                     bool                 // a request got lost
	asked                     int                  // SMPs so far
	claimed                   int                  // ports of all nodes
	clock                     clock
	res                       Result
}

// queue is a first-in-first-out list that gives its memory back when empty.
type queue struct {
	q    []uint64
	head int
}

func (q *queue) push(t uint64) { q.q = append(q.q, t) }

func (q *queue) empty() bool { return q.head == len(q.q) }

func (q *queue) pop() uint64 {
	t := q.q[q.head]
	if q.head++; q.head == len(q.q) {
		q.q, q.head = q.q[:0], 0
	}
	return t
}

// begin makes a walk with space for some nodes.
func begin(opt Options, nodes int) *Discovery {
	d := &Discovery{opt: opt, byGUID: make(map[ib.GUID]int32, nodes), root: -1, turning: -1, checkSwitches: switchesMost / 4,
		checkNodes: nodesMost / 4, late: map[uint64]bool{}, again: map[uint64]bool{}}
	d.opt.MaxNodes = cmp.Or(d.opt.MaxNodes, DefaultMaxNodes)
	d.opt.MaxSMPs = cmp.Or(d.opt.MaxSMPs, DefaultMaxSMPs)
	d.opt.MaxTime = cmp.Or(d.opt.MaxTime, DefaultMaxTime)
	if d.opt.Parts == nil {
		d.opt.Parts = new(Parts)
	}
	if d.opt.Flaps == nil {
		d.opt.Flaps = new(Flaps)
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
	d.resumed = true
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
	d.checkNodes, d.checkAsked = len(d.nodes)+nodesMost/4, 1<<12
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
		x.read = true
		for p := range x.ports.n {
			if x.ports.get(p).peer >= 0 || i == d.root && uint8(p) == d.rootP {
				d.back.push(tag(kPort, 0, i, uint8(p)))
			}
		}
	}
	return d
}

// AskDescription queries a node's description again before the walk ends; used
// for trap 144 (NodeDescription changed).
func (d *Discovery) AskDescription(node int32) { d.back.push(tag(kDesc, 0, node, 0)) }

// AskPort queries an end port's PortInfo again, for a change of its capability
// mask or link.
func (d *Discovery) AskPort(node int32, port uint8) { d.back.push(tag(kPort, 0, node, port)) }

// Late implements smp.Source.
func (d *Discovery) Late(t uint64) {
	if !isUrgent(t) || d.late[t] {
		return
	}
	d.late[t] = true
	d.waiting--
	// A slow port does not delay the others of its switch.
	switch k, extra, i, p := untag(t); {
	case k == kPort && extra == 1:
		d.gotSample(i, p)
	case k == kPort && extra == 3, k == kTable:
		d.askRest(i)
	}
}

// isUrgent reports whether the turn waits for the answer of a request.
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
		case d.lossy && !d.turns.empty():
			// Where requests get lost every turn would wait for one.
			d.start(int32(d.turns.pop()))
			continue
		case d.waiting == 0 && len(d.stirred) > 0:
			d.askCounts()
			continue
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
		if d.again[t] { // is late from the start
			d.again[t] = false
		} else if isUrgent(t) {
			d.waiting++
		}
		r, ok := d.request(t)
		if !ok {
			// The way there is gone: as if it had not answered.
			d.step(&smp.Reply{Request: smp.Request{Tag: t}, Timeout: true})
			continue
		}
		d.sent(t)
		return r, true
	}
}

// Step implements smp.Source.
func (d *Discovery) Step(r *smp.Reply) {
	d.answered(r.Tag)
	d.lossy = d.lossy || r.Lost
	if r.Timeout && d.askAgain(r) {
		return
	}
	d.step(r)
}

// askAgain repeats a request without an answer once, before what it was sent to is taken
// for gone: where requests get lost, where the way that it took is another by now, and on
// the manager's own link, which leads to everything.
func (d *Discovery) askAgain(r *smp.Reply) bool {
	t := r.Tag
	if _, done := d.again[t]; done || d.stopped {
		return false
	}
	k, _, i, _ := untag(t)
	own := k == kProbe && i == d.root
	if q, ok := d.request(t); !ok || !d.lossy && !own && slices.Equal(q.Path, r.Path) {
		return false
	}
	d.again[t] = true
	d.Late(t) // the turn does not wait for it
	d.back.push(t)
	return true
}

func (d *Discovery) step(r *smp.Reply) {
	k, extra, i, p := untag(r.Tag)
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
			x.si = mad.SwitchInfoOf(&r.Data)
		} else {
			d.problem(i, "switch %s does not answer SwitchInfo%s", x.name(), why(r))
		}
		// A switch without forwarding table was never configured: its port 0
		// has no LID, and the Set that gives it one answers with the rest.
		if q := x.ports.at(0); !q.known && (x.si.LinearFDBTop() != 0 || d.opt.Ports) {
			d.back.push(tag(kPort, 0, i, 0))
		}
	case kClear:
		x := &d.nodes[i]
		if r.OK() {
			x.si = mad.SwitchInfoOf(&r.Data)
			x.si.SetPortStateChange(false)
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
	case kSelf:
		d.gotSelf(i, extra, r)
	case kStill:
		d.gotStill(i, extra, r)
	case kCount:
		d.gotCount(i, r)
	}
}
