package daemon

import (
	"cmp"
	"context"
	"log/slog"
	"sync"
	"time"

	"ibnetworkd/daemon/card"
	"ibnetworkd/link"
	"ibnetworkd/units"
)

// System is what the loop observes and changes.
type System interface {
	// Observe reads what the scope names.
	Observe(Scope, Needs) (*link.Snapshot, error)
	// Apply carries out steps in order and reports each result. It ends early
	// when ctx does. A *card.InProgress says that an operation goes on beside the
	// loop, or has to wait for one that does.
	Apply(ctx context.Context, steps []link.Step, done func(op link.Op, err error))
	// Finished gives the results of operations that went on beside the loop.
	Finished() []card.Result
	// Cancel removes those that drop names and that have not begun, and gives them.
	Cancel(drop func(link.Op) bool) []link.Op
}

// Completed is a system whose snapshots have more than it observes itself.
type Completed struct {
	System
	Complete []func(*link.Snapshot) // each adds its part to a snapshot
}

// Observe implements System.
func (c Completed) Observe(sc Scope, n Needs) (*link.Snapshot, error) {
	snap, err := c.System.Observe(sc, n)
	if snap != nil {
		for _, f := range c.Complete {
			f(snap)
		}
	}
	return snap, err
}

// StateStore keeps the record and the report; *Store is one.
type StateStore interface {
	LoadRecord() (*link.Record, error)
	SaveRecord(*link.Record) error
	SaveReport(r link.Report, changed func(name string) bool) error
}

// Config is what a daemon is made of.
type Config struct {
	Log    *slog.Logger
	System System
	Load   func() *units.Set
	// Inbox is how other goroutines reach the loop; nil for a new one.
	Inbox *Inbox
	// Invalidate, if set, is called before a load that was requested: what is
	// remembered of the files may be older than what was just written.
	Invalidate func()
	Store      StateStore
	// Events is what happens to the system; nil for none. It calls Wake
	// with Scope.Events.
	Events Events
	// Notify sends a line to the service manager; nil sends none.
	Notify func(state string)
	// Watchdog is the timeout of the service manager's watchdog, zero for none.
	Watchdog time.Duration
	// FastPort is the time between two reads of the ports while one that
	// matters is not Active, longer when nothing has happened for a while;
	// SlowPort otherwise. Zero is 1 s and 60 s.
	FastPort, SlowPort time.Duration
	// OnWork is called after a cycle that did something, or that read other units or
	// found other states, as the first one does.
	OnWork func()
	// OnChange is called from the loop after each cycle that changed something. It
	// must not block.
	OnChange []func(View)
}

// Events are read by the loop alone; *Watch is one.
type Events interface {
	// Take returns what to observe because of what has happened since the last Take.
	Take() Scope
	// Ready asks to be woken by what happens from the last Take on.
	Ready()
}

// Daemon is the loop. Make it with New, start it with Run; the other methods
// may be called from any goroutine.
type Daemon struct {
	cfg Config
	log *slog.Logger
	*Inbox
	call chan func(context.Context) // requests of other goroutines
	subscribers
	published
	ready chan struct{} // closed by the loop when the first cycle is done

	// The rest belongs to the goroutine of Run.
	set     *units.Set
	snap    *link.Snapshot
	rec     *link.Record
	delayed *delays
	ongoing ongoing // what the workers of the cards have
	// noted says of what is being made whether the record had it before, until its
	// removal succeeds.
	noted map[link.Made]bool
	planned
	unfinished *unfinished // of the cycle before, nil for none
	timing
	logMemory
	fileState
}

// Inbox is what other goroutines hand to the loop. It is made before the parts of
// the process that the loop uses.
type Inbox struct {
	mu   sync.Mutex // guards want and more
	want Scope
	more map[string][]link.Notice // of others, by what they are about
	bell chan struct{}
}

// NewInbox makes an empty inbox.
func NewInbox() *Inbox { return &Inbox{bell: make(chan struct{}, 1), more: map[string][]link.Notice{}} }

// subscribers get what has changed.
type subscribers struct {
	subMu sync.Mutex // guards subs
	subs  map[chan Change]*mailbox
}

// published is what other goroutines may read.
type published struct {
	repMu  sync.RWMutex // guards report and shown
	report link.Report
	shown  *link.Snapshot
	seq    uint64 // of the last Change; the loop's
}

// planned is what the last plan said.
type planned struct {
	// governing has the units of links as of the last plan, those of ports as of the
	// last report.
	governing link.Governing
	// portNotes are of ports without a link.
	portNotes map[link.PortName]*link.PortNote
	status    map[int]link.Status
}

// timing is when what was done, for the pauses of the loop.
type timing struct {
	lastEnd  time.Time                 // when the last cycle ended
	debt     time.Duration             // how much longer cycles had taken by then than the pauses between them
	ports    time.Time                 // when the ports were read last
	tables   time.Time                 // when P_Key tables were read last
	entries  time.Time                 // when the entries that links use were compared last
	moved    time.Time                 // when something happened, or a port was another than before
	settling map[link.Notice]time.Time // since when notices hold that have to last
	settled  time.Time                 // when the next of them counts, zero for none
	reported time.Time                 // to the watchdog
}

// logMemory is what has been logged, so that it is not logged again.
type logMemory struct {
	logged   map[string]string // by link and about
	summary  string            // for the service manager
	problems map[string]bool   // of unit files
	isReady  bool              // ready is closed
}

// fileState is what waits to be written and read.
type fileState struct {
	unsaved     map[string]bool // links that changed since the report was written
	reportDirty bool
	reportNext  time.Time // not before
	recordNext  time.Time // when to write it again, zero if it is written
	readNext    time.Time // when to read unit files again, zero if all were read
	readPause   time.Duration
}

// New makes a daemon.
func New(cfg Config) *Daemon {
	cfg.FastPort = cmp.Or(cfg.FastPort, time.Second)
	cfg.SlowPort = cmp.Or(cfg.SlowPort, time.Minute)
	cfg.Log = cmp.Or(cfg.Log, slog.New(slog.DiscardHandler))
	if cfg.Inbox == nil {
		cfg.Inbox = NewInbox()
	}
	return &Daemon{
		cfg: cfg, log: cfg.Log, ready: make(chan struct{}), delayed: newDelays(), ongoing: ongoing{}, noted: map[link.Made]bool{},
		Inbox: cfg.Inbox, call: make(chan func(context.Context)),
		subscribers: subscribers{subs: map[chan Change]*mailbox{}},
		planned:     planned{status: map[int]link.Status{}},
		logMemory:   logMemory{logged: map[string]string{}},
		fileState:   fileState{unsaved: map[string]bool{}},
	}
}

// Report is all that is reported at present.
func (d *Daemon) Report() link.Report {
	d.repMu.RLock()
	defer d.repMu.RUnlock()
	return d.report
}

// Snapshot is the last picture of the system, nil before the first.
func (d *Daemon) Snapshot() *link.Snapshot {
	d.repMu.RLock()
	defer d.repMu.RUnlock()
	return d.shown
}

func (d *Daemon) notify(s string) {
	if d.cfg.Notify != nil {
		d.cfg.Notify(s)
	}
}
