package sa

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"ibnetworkd/ib"
	"ibnetworkd/ib/partition"
	"ibnetworkd/sm/fabric"
	"ibnetworkd/sm/guidfile"
	"ibnetworkd/sm/mad"
	"ibnetworkd/sm/mcast"
	"ibnetworkd/sm/pkey"
	"ibnetworkd/sm/qos"
	"ibnetworkd/sm/qos/policy"
	"ibnetworkd/sm/route"
)

// Config are the settings of a Service. Zero values mean the defaults named.
type Config struct {
	// SAKey is what a request must carry in SM_Key to be trusted; 1.
	SAKey uint64
	// PacketLife is the packet life time code of paths and groups, 0 to 63:
	// 4.096 us * 2^n; 18.
	PacketLife uint8
	// ResponseTime is the code of ClassPortInfo:RespTimeValue; 16, which is
	// 0.27 s.
	ResponseTime uint8

	// MaxAnswer bounds the bytes of one answer, with its header; a longer
	// one is refused with NO_RESOURCES. mad.MaxMessage.
	MaxAnswer int
	// MaxGroups, MaxServices and MaxSubscriptions bound what is kept in
	// all; 16383 (the multicast LIDs), 65536 and 262144.
	MaxGroups, MaxServices, MaxSubscriptions int
	// MaxGroupsPerPort bounds the groups that one port may make, beside a
	// quarter of the multicast LIDs; 1024.
	MaxGroupsPerPort int
	// MaxPerPort bounds services and subscriptions that one port may own;
	// 1024.
	MaxPerPort int
	// MaxJoins bounds the memberships that one port may ask for, its own
	// and those it takes up for others; 16383. MaxMembers bounds those of
	// all ports; 4194304.
	MaxJoins, MaxMembers int
	// MaxWork bounds the pairs of LIDs that the SA checks for one request for
	// paths, whether they fit or not: no other request is served meanwhile;
	// 262144.
	MaxWork int
	// MaxReports bounds the reports of one event: many ports that come at
	// once, times many subscribers; 131072.
	MaxReports int
}

func (c Config) withDefaults() Config {
	c.SAKey = cmp.Or(c.SAKey, 1)
	c.PacketLife = cmp.Or(c.PacketLife, 18)
	c.ResponseTime = cmp.Or(c.ResponseTime, 16)
	c.MaxAnswer = cmp.Or(c.MaxAnswer, mad.MaxMessage)
	c.MaxGroups = cmp.Or(c.MaxGroups, 16383)
	c.MaxServices = cmp.Or(c.MaxServices, 1<<16)
	c.MaxSubscriptions = cmp.Or(c.MaxSubscriptions, 1<<18)
	c.MaxGroupsPerPort = cmp.Or(c.MaxGroupsPerPort, 1024)
	c.MaxPerPort = cmp.Or(c.MaxPerPort, 1024)
	c.MaxJoins = cmp.Or(c.MaxJoins, 16383)
	c.MaxMembers = cmp.Or(c.MaxMembers, 1<<22)
	c.MaxWork = cmp.Or(c.MaxWork, 1<<18)
	c.MaxReports = cmp.Or(c.MaxReports, 1<<17)
	return c
}

// SMInfo is a subnet manager for SMInfoRecord.
type SMInfo struct {
	Port int32 // index into Fabric.Ports
	Info mad.SMInfo
}

// State is the subnet of a sweep. The Service keeps and reads it; it must not be changed
// afterwards, except for Ports[].Info followed by a call of Answered.
type State struct {
	Fabric *fabric.Fabric // Ports[].Info as the ports answered: state, MTU, rate
	LFT    [][]uint8
	SL     route.Layers
	MFT    mcast.Tables
	// PKeys are the P_Key tables of end ports, by port index, 0 where an entry is
	// free; nil means the default partition, full.
	PKeys  [][]ib.PKey
	Groups []partition.Precreated
	SMs    []SMInfo
	QoS    *qos.Tables   // nil: all on lane 0
	Policy *policy.Bound // of the fabric, nil for none
	// PrefixRoutes are the routers for GIDs of other subnets, the first that fits counts.
	PrefixRoutes []guidfile.PrefixRoute

	index *index
}

// Request is a message that arrived for the SA.
type Request struct {
	LID ib.LID // the sender's
	QP  uint32
	// MAD is the message after reassembly: the 56-byte header and the data.
	MAD []byte
	// Manager is set for a standby of this subnet that keeps a copy: a trusted
	// request of it is shown the tables of Copies whole, whatever partitions its
	// port is in.
	Manager bool
}

// Reply is the answer to a request.
type Reply struct {
	// MAD is nil when there is no answer; else header and records. Without
	// RMPP it is valid until the next request.
	MAD []byte
	// RMPP answers go out in segments, even when one is enough; others are
	// padded to 256 bytes.
	RMPP bool
}

// Report is an event for a subscriber. The SA of the subscriber answers with
// ReportResp to the transaction, whose number the sender sets.
type Report struct {
	LID ib.LID
	QP  uint32
	MAD mad.Buf
}

// GUIDBlock is a block of a port's GUIDInfo table to write.
type GUIDBlock struct {
	Port  ib.GUID
	Block uint8
	GUIDs mad.GUIDInfo
}

// Changes is what a call leaves for the caller to do.
type Changes struct {
	// Groups is set if members changed: the multicast tables are to be computed again.
	Groups  bool
	Reports []Report
	// Reregister are ports to send a ClientReregister: a group of theirs has other
	// parameters now.
	Reregister []ib.GUID
	GUIDs      []GUIDBlock
}

func (c *Changes) add(d Changes) {
	c.Groups = c.Groups || d.Groups
	c.Reports = append(c.Reports, d.Reports...)
	c.Reregister = append(c.Reregister, d.Reregister...)
	c.GUIDs = append(c.GUIDs, d.GUIDs...)
}

// Counters count requests.
type Counters struct {
	Requests  map[string]uint64 `json:"requests"`       // by attribute
	Errors    map[string]uint64 `json:"refused"`        // answers by status other than OK, as 0x0300
	Malformed uint64            `json:"malformed"`      // dropped: too short, wrong class or version
	Untrusted uint64            `json:"untrusted"`      // dropped: SM_Key neither zero nor this manager's
	Unknown   uint64            `json:"unknown_sender"` // dropped: from a LID that is not of the subnet
	Reports   uint64            `json:"reports"`        // reports made
	Unsent    uint64            `json:"reports_unsent"` // reports beyond MaxReports
}

// Service is a subnet administrator.
type Service struct {
	cfg   Config
	state State
	f     *fabric.Fabric
	*index
	alias map[ib.GUID]int32 // alias GUIDs, to port index

	groups  map[ib.GID]*group
	mlids   map[ib.LID]int // groups by multicast LID
	mlidCap int            // multicast LIDs that fit all switches
	order   []*group       // by MGID; nil when it must be sorted again
	mgidSeq uint32

	members int // of all groups

	services     map[serviceID]*service
	serviceOrder []serviceID   // sorted; nil when it must be sorted again
	leaseNext    time.Duration // when the first lease ends, 0 for never
	leaseKnown   bool          // leaseNext is up to date
	subs         []*subscription
	subsOf       map[ib.GUID][]*subscription // by subscriber
	guids        map[ib.GUID]map[int]ib.GUID // alias GUIDs by port GUID and index
	aliasSeq     uint32

	perPort   map[ib.GUID]int // services and subscriptions of a port
	joins     map[ib.GUID]int // memberships by the port that asked
	made      map[ib.GUID]int // groups by the port that made them
	levels    Levels
	version   uint64 // see Version
	canCopy   bool   // see CanCopy; copyKnown says that it is up to date
	copyKnown bool
	counters  Counters              // without the maps
	requests  [256]uint64           // by the index of dispatch
	refused   map[mad.Status]uint64 // by status
	now       time.Duration

	// The request under way and its answer: most are short, and tens of
	// thousands a second would keep the collector busy.
	q   query
	out []byte
}

// New makes a Service without a subnet; it answers nothing before SetState.
func New(cfg Config) *Service {
	return &Service{
		cfg: cfg.withDefaults(), groups: map[ib.GID]*group{}, mlids: map[ib.LID]int{},
		services: map[serviceID]*service{}, subsOf: map[ib.GUID][]*subscription{}, guids: map[ib.GUID]map[int]ib.GUID{},
		alias:   map[ib.GUID]int32{},
		index:   &index{},
		perPort: map[ib.GUID]int{}, joins: map[ib.GUID]int{}, made: map[ib.GUID]int{}, refused: map[mad.Status]uint64{},
	}
}

// Forget drops the subnet and all registrations of its hosts: members, services,
// subscriptions and alias GUIDs. It is for a manager that serves again after
// another one has: hosts register with it again.
func (s *Service) Forget() {
	n := New(s.cfg)
	n.counters, n.requests, n.refused, n.mgidSeq, n.aliasSeq = s.counters, s.requests, s.refused, s.mgidSeq, s.aliasSeq
	n.version = s.version + 1
	*s = *n
}

// Counters gives a copy of the counters.
func (s *Service) Counters() Counters {
	c := s.counters
	c.Requests, c.Errors = map[string]uint64{}, map[string]uint64{}
	for a, v := range s.requests {
		if v > 0 {
			c.Requests[mad.AttrName(mad.ClassSA, dispatch[a].id)] = v
		}
	}
	for k, v := range s.refused {
		c.Errors[fmt.Sprintf("0x%04x", uint16(k))] = v
	}
	return c
}

// SetState takes over the subnet of a sweep. Members and subscribers that
// are gone are dropped; the changes report what came and went (traps 64 to 67).
func (s *Service) SetState(now time.Duration, st State) (c Changes) {
	s.now = now
	old := s.f
	if st.index == nil {
		st = st.Indexed()
	}
	s.state, s.f, s.index = st, st.Fabric, st.index
	s.state.index = nil
	s.mlidCap = multicastLIDs(st.Fabric)
	clear(s.alias)
	for g, m := range s.guids {
		p := s.f.EndPortByGUID(g)
		if p == fabric.None {
			delete(s.guids, g)
			s.touch()
			continue
		}
		for _, a := range m {
			s.alias[a] = p
		}
	}
	s.dropSubscribers()
	if old != nil {
		c.add(s.reportPorts(old))
	}
	c.add(s.updateGroups())
	s.dropServices()
	return c
}

// multicastLIDs is the number of multicast LIDs that every switch has an entry
// for.
func multicastLIDs(f *fabric.Fabric) int {
	n := int(ib.LIDMulticastMax) - int(ib.LIDMulticastMin) + 1
	for i := range f.Switches {
		if c := int(f.Switches[i].Info.MulticastFDBCap()); c > 0 {
			n = min(n, c)
		}
	}
	return n
}

// reportPorts makes the reports for ports that came or went.
func (s *Service) reportPorts(old *fabric.Fabric) (c Changes) {
	if len(s.subs) == 0 {
		return c
	}
	seen := map[ib.GUID]bool{}
	for _, e := range old.EndPorts {
		seen[old.Ports[e].GUID] = true
	}
	for _, e := range s.f.EndPorts {
		if g := s.f.Ports[e].GUID; !seen[g] {
			c.Reports = s.event(c.Reports, mad.TrapGIDInService, ib.MakeGID(s.f.Prefix, g), e)
		} else {
			delete(seen, g)
		}
	}
	for _, e := range old.EndPorts {
		if g := old.Ports[e].GUID; seen[g] {
			c.Reports = s.event(c.Reports, mad.TrapGIDOutOfService, ib.MakeGID(old.Prefix, g), fabric.None)
		}
	}
	return c
}

// query is a request on its way through the handlers.
type query struct {
	*Service
	req     Request
	h       mad.SAHeader
	data    []byte       // a whole record at least, padded with zeros
	mask    mad.CompMask // components still to be matched, without a LID that was resolved
	port    int32        // the requester's, index into Fabric.Ports
	trusted bool
	all     bool   // everything is shown: see Request.Manager
	out     []byte // header space and records
	n       int    // records
	full    bool   // MaxAnswer or MaxWork was reached
	work    int    // pairs of LIDs checked
	changes Changes
}

// handlers has what each attribute does, by method.
var handlers = map[mad.AttrID]map[mad.Method]func(*query) mad.Status{
	mad.AttrClassPortInfo:    {mad.MethodGet: (*query).classPortInfo},
	mad.AttrInformInfo:       {mad.MethodSet: (*query).setInformInfo},
	mad.AttrInformInfoRecord: lookup((*query).informRecords),
	mad.AttrNodeRecord:       lookup((*query).nodes),
	mad.AttrPortInfoRecord:   lookup((*query).portInfos),
	mad.AttrSwitchInfoRecord: lookup((*query).switchInfos),
	mad.AttrLFTRecord:        lookup((*query).lfts),
	mad.AttrMFTRecord:        lookup((*query).mfts),
	mad.AttrSLtoVLRecord:     lookup((*query).slvls),
	mad.AttrVLArbRecord:      lookup((*query).vlArbs),
	mad.AttrSMInfoRecord:     lookup((*query).smInfos),
	mad.AttrLinkRecord:       lookup((*query).links),
	mad.AttrPKeyTableRecord:  lookup((*query).pkeys),
	mad.AttrPathRecord:       lookup((*query).paths),
	mad.AttrPathLevelsRecord: {mad.MethodGetTable: (*query).pathLevels},
	mad.AttrMultiPathRecord:  {mad.MethodGetMulti: (*query).multiPaths},
	mad.AttrGUIDInfoRecord: {mad.MethodGet: (*query).guidInfos, mad.MethodGetTable: (*query).guidInfos,
		mad.MethodSet: (*query).setGUIDs, mad.MethodDelete: (*query).deleteGUIDs},
	mad.AttrServiceRecord: {mad.MethodGet: (*query).findServices, mad.MethodGetTable: (*query).findServices,
		mad.MethodSet: (*query).setService, mad.MethodDelete: (*query).deleteService},
	mad.AttrMCMemberRecord: {mad.MethodGet: (*query).findMembers, mad.MethodGetTable: (*query).findMembers,
		mad.MethodSet: (*query).join, mad.MethodDelete: (*query).leave},
}

func lookup(f func(*query) mad.Status) map[mad.Method]func(*query) mad.Status {
	return map[mad.Method]func(*query) mad.Status{mad.MethodGet: f, mad.MethodGetTable: f}
}

// recordLen is the distance of two records in an answer of each attribute.
var recordLen = map[mad.AttrID]int{
	mad.AttrClassPortInfo: mad.ClassPortInfoLen, mad.AttrInformInfo: 40, mad.AttrInformInfoRecord: mad.InformInfoRecordLen,
	mad.AttrNodeRecord: mad.NodeRecordLen, mad.AttrPortInfoRecord: mad.PortInfoRecordLen, mad.AttrSwitchInfoRecord: mad.SwitchInfoRecordLen,
	mad.AttrLFTRecord: mad.LFTRecordLen, mad.AttrMFTRecord: mad.MFTRecordLen, mad.AttrSLtoVLRecord: mad.SLtoVLRecordLen,
	mad.AttrVLArbRecord: mad.VLArbRecordLen, mad.AttrSMInfoRecord: mad.SMInfoRecordLen, mad.AttrLinkRecord: mad.LinkRecordLen,
	mad.AttrPKeyTableRecord: mad.PKeyTableRecordLen, mad.AttrPathRecord: mad.PathRecordLen, mad.AttrMultiPathRecord: mad.PathRecordLen,
	mad.AttrGUIDInfoRecord: mad.GUIDInfoRecordLen, mad.AttrServiceRecord: mad.ServiceRecordLen, mad.AttrMCMemberRecord: mad.MCMemberRecordLen,
	mad.AttrPathLevelsRecord: mad.PathLevelsRecordLen,
}

// dispatch is handlers and recordLen indexed for each request, by the low byte of the
// attribute, which no two have in common.
var dispatch = newDispatch()

type attribute struct {
	id      mad.AttrID // 0: none
	record  int        // distance of two records
	methods []func(*query) mad.Status
	names   []mad.Method
}

func (a *attribute) method(m mad.Method) func(*query) mad.Status {
	for i, n := range a.names {
		if n == m {
			return a.methods[i]
		}
	}
	return nil
}

func newDispatch() (out [256]attribute) {
	for id, methods := range handlers {
		a := &out[uint8(id)]
		a.id, a.record = id, recordLen[id]
		for m, f := range methods {
			a.names, a.methods = append(a.names, m), append(a.methods, f)
		}
	}
	return out
}

// Handle answers a request. Only requests that must not be answered (malformed,
// from outside the subnet, with a wrong key) give an empty Reply.
func (s *Service) Handle(now time.Duration, req Request) (Reply, Changes) {
	s.now = now
	q := &s.q
	*q = query{Service: s, req: req}
	if q.h.Decode(req.MAD) != nil || q.h.BaseVersion != mad.BaseVer || q.h.Class != mad.ClassSA || q.h.ClassVersion != mad.SAClassV ||
		q.h.Status != 0 || q.h.Method.IsResponse() || s.f == nil {
		s.counters.Malformed++
		return Reply{}, Changes{}
	}
	if q.h.SMKey != 0 && q.h.SMKey != s.cfg.SAKey {
		s.counters.Untrusted++
		return Reply{}, Changes{}
	}
	q.trusted = q.h.SMKey != 0
	q.all = q.trusted && req.Manager
	if q.port = s.byLID(req.LID); q.port == fabric.None {
		s.counters.Unknown++
		return Reply{}, Changes{}
	}
	a := &dispatch[uint8(q.h.Attr)]
	if q.h.Attr == 0 || a.id != q.h.Attr {
		return q.fail(mad.StatusBadAttr), Changes{}
	}
	s.requests[uint8(q.h.Attr)]++
	f := a.method(q.h.Method)
	if f == nil {
		return q.fail(mad.StatusBadAttr), Changes{}
	}
	q.data, q.mask = req.MAD[mad.SADataOffset:], q.h.CompMask
	if len(q.data) < mad.SADataLen {
		// Some senders leave trailing zeros out.
		q.data = append(make([]byte, 0, mad.SADataLen), q.data...)[:mad.SADataLen]
	}
	if s.out == nil {
		s.out = make([]byte, 0, 2*mad.Size)
	}
	q.out = s.out[:mad.SADataOffset]
	clear(q.out)
	st := f(q)
	if st != mad.StatusOK {
		return q.fail(st), q.changes
	}
	r := q.finish()
	if r.RMPP {
		s.out = nil // the sender keeps it until it is delivered
	}
	return r, q.changes
}

// fail is an answer that consists of a status.
func (q *query) fail(st mad.Status) Reply {
	q.refused[st]++
	h := q.h.Response(st)
	h.SMKey, h.AttrOffset = 0, 0
	return Reply{MAD: h.Append(q.Service.out[:0])}
}

// finish turns the records collected into an answer.
func (q *query) finish() Reply {
	if q.full {
		return q.fail(mad.StatusSANoResources)
	}
	table := q.h.Method == mad.MethodGetTable || q.h.Method == mad.MethodGetMulti
	switch {
	case table:
	case q.n == 0:
		return q.fail(mad.StatusSANoRecords)
	case q.n > 1 && q.h.Method == mad.MethodGet && q.h.Attr != mad.AttrPathRecord:
		return q.fail(mad.StatusSATooMany)
	}
	h := q.h.Response(mad.StatusOK)
	h.SMKey, h.AttrOffset = 0, uint16(dispatch[uint8(q.h.Attr)].record/8)
	h.Append(q.out[:0])
	return Reply{MAD: q.out, RMPP: table}
}

// emit takes q.out with a record appended, if the query's mask lets it through.
func (q *query) emit(out []byte, l *mad.Layout) { q.emitMask(out, l, q.mask) }

func (q *query) emitMask(out []byte, l *mad.Layout, mask mad.CompMask) {
	start := len(q.out)
	if q.out = out; !l.Matches(out[start:], q.data, mask) || q.full {
		q.out = out[:start]
		return
	}
	q.took()
}

func (q *query) took() {
	q.n++
	if len(q.out) > q.cfg.MaxAnswer {
		q.full = true
	}
}

// enough reports whether further records cannot change the answer.
func (q *query) enough() bool { return q.full || q.n > 1 && q.h.Method == mad.MethodGet }

func (q *query) has(m mad.CompMask) bool { return q.h.CompMask&m == m }

// byLID finds the port that owns a LID, or None.
func (s *Service) byLID(l ib.LID) int32 {
	if int(l) >= len(s.owner) {
		return fabric.None
	}
	return s.owner[l]
}

// byGUID finds the port with a port GUID or alias GUID, or None.
func (s *Service) byGUID(g ib.GUID) int32 {
	if i, ok := slices.BinarySearch(s.ends, g); ok {
		return s.f.EndPorts[i]
	}
	if p, ok := s.alias[g]; ok {
		return p
	}
	return fabric.None
}

// validPrefix reports whether a GID belongs to the subnet: the prefix is that of
// the subnet, or the default one, which always means the local subnet.
func (s *Service) validPrefix(g ib.GID) bool {
	return g.Prefix() == s.f.Prefix || g.Prefix() == ib.DefaultPrefix
}

// keys is the table of partition keys of a port, 0 where an entry is free.
func (s *Service) keys(port int32) []ib.PKey {
	if int(port) < len(s.state.PKeys) && s.state.PKeys[port] != nil {
		return s.state.PKeys[port]
	}
	return pkey.PowerOn
}

// inPartition reports whether a port is a member, full or limited.
func (s *Service) inPartition(port int32, k ib.PKey) bool {
	return slices.ContainsFunc(s.keys(port), func(own ib.PKey) bool { return own.IsValid() && own.Base() == k.Base() })
}

// sharedKey is a key with which two ports may talk, 0 if there is none: that of
// the default partition where they share it, with the full bit unless a is only
// a limited member.
func (s *Service) sharedKey(a, b int32) ib.PKey {
	ka, kb := s.keys(a), s.keys(b)
	if len(ka) == 0 || len(kb) == 0 {
		return 0
	}
	if ka[0] == ib.DefaultPKey && kb[0] == ib.DefaultPKey {
		return ib.DefaultPKey
	}
	if a == b {
		return ka[0]
	}
	best := ib.PKey(0)
	for _, x := range ka {
		for _, y := range kb {
			if x.Matches(y) && (best == 0 || x.Base() == partition.DefaultPKey || x.Full() && !best.Full() && best.Base() != partition.DefaultPKey) {
				best = x
			}
		}
	}
	return best
}

// visible reports whether the requester may know about a port.
func (q *query) visible(port int32) bool {
	return port == q.port || q.all || q.sharedKey(q.port, port) != 0
}

// sortedGroups gives the groups by MGID.
func (s *Service) sortedGroups() []*group {
	if s.order == nil {
		s.order = make([]*group, 0, len(s.groups))
		for _, g := range s.groups {
			s.order = append(s.order, g)
		}
		slices.SortFunc(s.order, func(a, b *group) int { return slices.Compare(a.rec.MGID[:], b.rec.MGID[:]) })
	}
	return s.order
}
