package engine

import (
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"ibnetworkd/ib"
	"ibnetworkd/sm/discover"
	"ibnetworkd/sm/elect"
	"ibnetworkd/sm/fabric"
	"ibnetworkd/sm/lid"
	"ibnetworkd/sm/mad"
	"ibnetworkd/sm/sa"
	"ibnetworkd/sm/transport"
)

// Subnet is a manager on one port. Run's goroutine owns all of it but what is
// atomic, the inbox and the transport's Send.
type Subnet struct {
	cfg   Config
	tr    transport.Transport
	log   *slog.Logger
	port  transport.Port // the local port as last read
	guid  ib.GUID        // of the local port, as its NodeInfo has it; 0 before a discovery
	start time.Time      // of Run

	in      *inbox
	sending sync.Mutex // of the transport's Send
	win     window
	tick    *time.Timer // of wait

	elect    *election
	self     self
	managers managers
	rivals   rivals
	former   former
	copied   copied
	drained  []ib.GUID // switches that routes avoid, sorted

	followers followers
	babbles   babbles

	ev     events
	sweeps sweeps
	prog   programmed
	served served

	counters Counters
	servedAt time.Time                // when others' requests were last served
	state    atomic.Pointer[Snapshot] // as published
	cmds     chan func()              // for the owner
	stopped  chan struct{}            // closed when Run returns
	warned   map[string]int           // how often each warning was due
}

// self is how other managers see this one.
type self struct {
	act      atomic.Uint32            // SMInfo's ActCount
	standing atomic.Pointer[standing] // what the receiver answers SMInfo with
	senders  atomic.Pointer[senders]  // where requests come from
	callers  map[callerID]*caller     // that asked for SMInfo and showed no M_Key
}

// managers is what is known of the others beside the election's peers.
type managers struct {
	silent        []elect.Peer          // ports with the IsSM bit that did not answer SMInfo
	polled        map[ib.GUID]poll      // known managers that asked for SMInfo
	unknownPeers  map[ib.GUID]time.Time // other ports that did, and when they were last probed
	announced     time.Time             // when this master last announced itself to another
	handoverUntil time.Time             // before that no handover is retried
}

// poll is when another manager last asked for SMInfo, and how long after the time
// before.
type poll struct {
	at    time.Time
	every time.Duration
}

// former is the time after a handover, in which the SA still answers questions.
type former struct {
	until time.Time // set by handover, cleared by awaitSuccessor
	asked time.Time // when the last question came, or the new master was not seen yet
}

// events is what happened and no sweep has begun for. A sweep takes all of them
// and clears them; standby drops them. Each is set by what the comment names.
type events struct {
	full     bool // discover everything: a handover, new partitions, a part lost, a switch that restarts in a sweep, Resweep
	light    bool // query every switch: the timer of light sweeps, traps, other managers, Resweep
	apply    bool // there is something to write: the SA (GUIDs, registrations), Drain, SetRoute and other settings, compareAt
	resweep  bool // log even when nothing changed: Resweep, Drain and the setters of settings
	switches []ib.LID
	ports    []ib.LID
	descs    []ib.LID  // nodes whose description changed
	guids    []ib.GUID // nodes to read again
	reason   string
}

func (e *events) any() bool {
	return e.full || e.light || e.apply || e.resweep || len(e.switches)+len(e.ports)+len(e.descs)+len(e.guids) > 0
}

// sweeps is what one sweep leaves to the next.
type sweeps struct {
	count int
	last  SweepStats
	light int // light sweeps, which ask different things in turn
	// active says that a sweep is under way or due: set by discovering and by
	// each turn of master, which also clears it.
	active bool
	// reregister asks all clients to register again: set where this manager
	// becomes master, cleared when a sweep has asked them.
	reregister bool
	parts      discover.Parts     // links behind which is more than is walked at once
	flaps      discover.Flaps     // links that go down too often
	scope      map[ib.GUID]bool   // nodes that the sweep reads, nil for all
	failedAt   []ib.GUID          // nodes that did not answer, or refused something
	problems   []discover.Problem // what walks could not make sense of
	failures   int                // sweeps in a row with such
	retryAt    time.Time          // when they are read again, 0 for never
	said       time.Time          // when a sweep was last logged
	fruitless  int                // sweeps in a row that changed nothing
	quietUntil time.Time          // before that no event leads to a sweep
	disturbed  time.Time          // when another manager's traces were last found
}

// programmed is the known state of the subnet and the wanted one.
type programmed struct {
	fabric *fabric.Fabric // as found by the last sweep and changed by its Sets; nil before the first
	owner  []int32        // its Fabric.LIDs
	shown  *fabric.Fabric // the same once the sweep has ended and it changes no more
	have   tables         // by the indices of fabric
	want   routes
	// compared is of the last routes that were not just repaired, for compareRoutes.
	compared figures
	levels   pathLevels // as last given to the SA
	top      ib.LID
	memory   lid.Memory
	saved    bool // memory is in the store: set by save, cleared when a sweep changes LIDs
	reroute  bool // routes are to be computed whatever the shape: set by Drain, settings and fewer lanes, cleared by route
	// noVLs are switches whose SL-to-VL tables are not written, so that routes do without
	// service levels: true has refused them, until it leaves, false has not answered.
	noVLs map[ib.GUID]bool
	// violations has the M_Key violations that ports had counted when last asked.
	violations map[ib.GUID]uint16
}

// forget drops what is valid only while this manager is master.
func (p *programmed) forget() {
	p.fabric, p.owner, p.shown, p.have, p.levels = nil, nil, nil, tables{}, pathLevels{}
	// Another manager's tables, on other levels, may be in the switches by now.
	p.want.sl, p.want.layers, p.want.order, p.want.trunk = nil, 0, nil, nil
}

// served is what the subnet administrator has and what it left to do.
type served struct {
	admin      *sa.Service
	reply      transport.Packet // the answer being sent
	shares     shares
	charge     func(*transport.Packet)  // for tests in virtual time: takes the time that a request costs
	yieldUntil time.Time                // until then the SA waits for the SMPs of a sweep
	reregister []ib.GUID                // ports whose clients the next sweep asks to register again
	guids      map[guidKey]mad.GUIDInfo // blocks of alias GUIDs for the next sweep to write
	reports    *reports
	// arrivals are the reports of ports that came or went: added by serve, sent by
	// reportPorts, of a later sweep if this one is left early.
	arrivals []sa.Report
	// mcastDirty says that multicast tables may have to change: set when members
	// or the fabric change, cleared by programMulticast.
	mcastDirty    bool
	lastJoin      time.Time // when members last changed
	newLevels     uint64    // version that has the levels of paths, 0 once standbys have it
	deferred      []deferredAnswer
	deferredTimer bool      // retryDeferred waits: set when it starts its timer, cleared when that fires
	mcastLatest   time.Time // until when the tables are delayed at most
}

// guidKey names a block of a port's GUIDInfo table.
type guidKey struct {
	port  ib.GUID
	block uint8
}
