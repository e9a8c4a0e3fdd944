package worker

import (
	"context"
	"log/slog"
	"time"

	"ibnetworkd/ib"
	"ibnetworkd/smctl"
)

// State is a systemd unit's.
type State struct {
	State smctl.WorkerState
	// Since is when it came into that state, with a reading of the monotonic
	// clock; Wall the same as the wall clock had it then, for people.
	Since, Wall time.Time
	Result      string
	// StatusText is what the unit reported, Refused that it ended because the port
	// accepts no subnet manager.
	StatusText smctl.StatusText
	Refused    bool
}

// Manager runs units; *Systemd is the real one.
type Manager interface {
	// Start runs the worker of a port and returns when the job is queued.
	Start(ctx context.Context, u Unit) error
	// Stop stops a unit and returns when the job is queued.
	Stop(ctx context.Context, name string) error
	// Reload has a unit's program read its settings and files again.
	Reload(ctx context.Context, name string) error
	// State reads the state of a unit; one that does not exist is inactive.
	// ErrNoSystemd is no passing error: Changes yields "" once it is over.
	State(ctx context.Context, name string) (State, error)
	// Follow sets whether units run or may be run at all; without, their changes
	// need not be reported.
	Follow(on bool)
	// Changes yields names of units whose state may have changed; "" means
	// any of them.
	Changes() <-chan string
}

// Prober queries the fabric.
type Prober interface {
	Walk(ctx context.Context, ibdev string, port int) ([]smctl.SMInfo, error)
	AskLID(ctx context.Context, ibdev string, port int, lid ib.LID) ([]smctl.SMInfo, error)
}

// StateStore saves over restarts which units were started and what the administrator
// asked for, and passes the settings to the unit.
type StateStore interface {
	Save(guid ib.GUID, k Saved) error
	// Load reads it back; nothing if nothing was saved.
	Load(guid ib.GUID) Saved
}

// Unit is a worker to start.
type Unit struct {
	Name   string
	GUID   ib.GUID
	Policy smctl.Policy
}

// UnitName is the systemd unit of a port's worker.
func UnitName(e smctl.Engine, guid ib.GUID) string {
	if e == smctl.EngineOpenSM {
		return "ibnetsm-opensm-" + guid.String() + ".service"
	}
	return "ibnetsm@" + guid.String() + ".service"
}

// Port is one port with what its unit asks for.
type Port struct {
	smctl.Port
	Policy smctl.Policy
}

// Config of a Controller.
type Config struct {
	Log        *slog.Logger
	Manager    Manager
	Prober     Prober
	StateStore StateStore
	// Check, if set, reads the files that a policy names. It is called aside.
	Check func(smctl.Policy) smctl.Files
	// Inspect, if set, says whether the kernel or the firmware bars subnet
	// managers from a port; what is not final is asked again. It is called aside.
	Inspect func(ibdev string, port int) (bar smctl.Bar, final bool, err error)
	// Watch, if set, is given the files whose changes Reread, or Compare, is to be
	// called for. It must not block.
	Watch func(paths []string)
	// Waiting, if set, is given the files that differ from those in force, sorted,
	// whenever that changes: they wait for Reread. It must not block.
	Waiting func(paths []string)
	// Publish is given the state of all ports whenever one has changed. It
	// is called from the controller's goroutine and must not block.
	Publish func([]smctl.Status)
	// OnUnit, if set, is called when a unit has started or ended: the state of the
	// ports may have changed. It must not block.
	OnUnit func()
}

// Controller owns the subnet managers of all ports.
type Controller struct {
	cfg   Config
	ports chan []Port
	hands chan overrideRequest
	files chan bool // read files again; false: compare them only
	done  chan event
	table map[ib.GUID]*entry

	lastPublished []smctl.Status
	followed      bool
	watched       []string
	waiting       []string
}

type overrideRequest struct {
	dev   string
	port  int
	start bool
	reply chan error
}

// event is the end of something that ran aside.
type event struct {
	guid    ib.GUID
	answer  *smctl.Answer
	unit    string // the state of this unit is known
	state   State
	err     error  // of reading the state
	noStart string // why the unit could not be started
	noStop  string // or stopped
	reload  bool   // the program was asked to read its files again
	former  Saved  // what it had before that
	files   *smctl.Files
	of      smctl.Policy // whose files they are
	compare bool         // the files are compared with those in force, which stay
	bar     *smctl.Bar
	final   bool // bar is the last word
}

type entry struct {
	port      Port
	mem       smctl.Memory
	answer    smctl.Answer
	worker    smctl.Worker
	wall      time.Time    // of worker.Since
	engine    smctl.Engine // of the unit that Worker names
	given     Saved        // what the unit was given last, no settings if nothing
	files     *smctl.Files // those of the policy filesOf, nil if not read
	filesOf   smctl.Policy
	waiting   []string      // files that are not those in force
	checks    bool          // files are being read
	recheck   bool          // and are to be read again after that
	recompare bool          // or compared
	bar       *smctl.Bar    // what Inspect says, nil if it has not been asked
	final     bool          // that is the last word
	inspect   bool          // it is being asked
	again     time.Time     // when it is asked again
	refused   int           // questions in a row that were refused QP0
	settled   time.Time     // until then nothing is reloaded
	known     bool          // the unit's state has been read
	asking    *smctl.Answer // that is waited for
	reading   bool
	reread    bool
	busy      bool // a call to systemd is pending
	retry     time.Time
	dec       smctl.Decision
	starts    int
	started   time.Time
}
