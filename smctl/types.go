package smctl

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"ibnetworkd/ib"
	"ibnetworkd/units"
)

// Manage and Engine are the settings of [SubnetManager] by these names; the zero
// Manage never runs a subnet manager.
type (
	Manage = units.Manage
	Engine = units.Engine
)

// The values of Manage= and Engine=.
const (
	ManageNo      = units.ManageNo
	ManageAuto    = units.ManageAuto
	ManageAlways  = units.ManageAlways
	EngineBuiltin = units.EngineBuiltin
	EngineOpenSM  = units.EngineOpenSM
)

// ParseEngine reads the word of the unit file.
func ParseEngine(s string) (Engine, error) {
	switch strings.ToLower(s) {
	case "builtin", "ibnetsm", "":
		return EngineBuiltin, nil
	case "opensm":
		return EngineOpenSM, nil
	}
	return EngineBuiltin, fmt.Errorf("%q is not one of builtin, opensm", s)
}

// Defaults of [SubnetManager].
const (
	DefaultStartDelay = 5 * time.Second
	DefaultStopDelay  = 30 * time.Second
)

// MaxPriority is the highest priority of a subnet manager (IBTA 14.2.5.13:
// four bits).
const MaxPriority = 15

// Policy is what the unit of a port asks for. The zero value runs nothing.
type Policy struct {
	Manage Manage
	Engine Engine
	// StartDelay is how long a port must be without a subnet manager before
	// the fabric is queried; StopDelay how long a better master must exist
	// before the local one is stopped.
	StartDelay, StopDelay time.Duration
	// Priority is 0 to MaxPriority; the higher one becomes master.
	Priority uint8
	// SubnetPrefix is the first half of every GID of the subnet, in host
	// order; 0 leaves the default fe80::/64.
	SubnetPrefix uint64
	// RoutingEngine and PartitionsFile are handed to the program; empty
	// leaves its default.
	RoutingEngine  string
	PartitionsFile string
	// Partitions are rules of [SubnetManager] Partition=, one a line; for
	// the built-in manager only.
	Partitions string
	// LMC gives each port 1<<LMC addresses.
	LMC ib.LMC
	// The rest of what the program is given, in the words of its settings
	// (see Settings); empty leaves its default.
	KeyFile, MKeyProtect, MKeyLease string
	QoS, Enforcement, NodeNameMap   string
	QoSPolicyFile                   string
	RootGUIDFile, CNGUIDFile        string
	IOGUIDFile, HopWeightsFile      string
	GUID2LIDFile, PrefixRoutesFile  string
	GUIDRoutingOrderFile            string
	Sweep, Timeout, Retries, Window string
	Poll, Reregister                string
	Verbose                         string
	// StopWhenForeignMaster stops the local one after StopDelay of a better master;
	// otherwise it stays as standby.
	StopWhenForeignMaster bool
	// Unit is the file that says so, for messages.
	Unit string
}

// OpenSM is where Debian and Fedora install opensm.
const OpenSM = "/usr/sbin/opensm"

// NamedFile is a file with the setting, and the option of opensm if there is one, that
// names it.
type NamedFile struct{ Key, Option, Path string }

// GUIDFiles are the files in opensm's form that have GUIDs, with Path empty where there is
// none.
func (p *Policy) GUIDFiles() []NamedFile {
	return []NamedFile{
		{"RootGUIDFile", "--root_guid_file", p.RootGUIDFile},
		{"CNGUIDFile", "--cn_guid_file", p.CNGUIDFile},
		{"IOGUIDFile", "--io_guid_file", p.IOGUIDFile},
		{"HopWeightsFile", "--hop_weights_file", p.HopWeightsFile},
		{"GUIDRoutingOrderFile", "--guid_routing_order_file", p.GUIDRoutingOrderFile},
		{"PrefixRoutesFile", "--prefix_routes_file", p.PrefixRoutesFile},
		{"GUID2LIDFile", "", p.GUID2LIDFile},
	}
}

// Files are the files that the policy's program needs, beside its own.
func (p *Policy) Files() []string {
	out := []string{p.PartitionsFile, p.NodeNameMap, p.QoSPolicyFile, p.KeyFile}
	for _, f := range p.GUIDFiles() {
		out = append(out, f.Path)
	}
	if p.Engine == EngineOpenSM {
		out = append(out, OpenSM)
	}
	return slices.DeleteFunc(out, func(f string) bool { return f == "" })
}

// Port is what the kernel says about a port.
type Port struct {
	GUID  ib.GUID // PortGUID
	IBDev string  // RDMA device, such as mlx5_0
	Num   int     // port number, from 1

	// Present is false when the device or port is gone.
	Present   bool
	LinkLayer ib.LinkLayer
	State     ib.PortState
	Phys      ib.PhysState
	LID       ib.LID // own LID, 0 for none
	SMLID     ib.LID // LID of the master that configured the port, 0 for none
	// IsSM is the capability bit that a process sets by holding the issm
	// device open: a subnet manager runs on this very port.
	IsSM bool
	// Barred is why no subnet manager may or can run on the port.
	Barred Bar
}

// String is the name that rdma(8) prints, mlx5_0/1.
func (p Port) String() string {
	if p.IBDev == "" {
		return p.GUID.String()
	}
	return fmt.Sprintf("%s/%d", p.IBDev, p.Num)
}

// SMState is the state of a subnet manager as SMInfo carries it (IBTA
// 14.2.5.13).
type SMState uint8

// The states of IBTA 14.4.1, with the numbers of the attribute.
const (
	SMNotActive SMState = iota
	SMDiscovering
	SMStandby
	SMMaster
)

// String is sminfo's word.
func (s SMState) String() string {
	return ib.Word(s, "SMState(%d)", "NotActive", "Discovering", "Standby", "Master")
}

// SMInfo is one subnet manager that answered.
type SMInfo struct {
	GUID     ib.GUID
	LID      ib.LID // 0 when reached by direct route and not yet given
	Priority uint8
	State    SMState
	// Node is its host's node description, one printable line; empty if it was
	// not asked for.
	Node string
}

// String names it as messages do.
func (s SMInfo) String() string {
	lid, node := "", ""
	if s.LID != 0 {
		lid = fmt.Sprintf(" at LID %d", uint16(s.LID))
	}
	if s.Node != "" {
		node = fmt.Sprintf(" on %q", s.Node)
	}
	return fmt.Sprintf("subnet manager %v (priority %d, %v)%s%s", s.GUID, s.Priority, s.State, lid, node)
}

// Outranks reports whether s becomes master over a subnet manager with the
// given priority and GUID: higher priority first, then lower GUID (IBTA
// 14.4.1.2).
func (s SMInfo) Outranks(priority uint8, guid ib.GUID) bool {
	if s.Priority != priority {
		return s.Priority > priority
	}
	return s.GUID < guid
}

// Question is how the fabric is asked.
type Question uint8

// The questions.
const (
	// AskNothing is the zero value.
	AskNothing Question = iota
	// AskWalk walks the fabric with direct-routed SMPs from the port and
	// asks each port that says it has a subnet manager. It needs no LIDs.
	AskWalk
	// AskLID asks the subnet manager at the port's SM LID.
	AskLID
)

// String names the question in logs.
func (q Question) String() string {
	return ib.Word(q, "nothing", "nothing", "walk", "lid")
}

// Answer is what became of a question.
type Answer struct {
	Question Question
	// At is when the answer was complete; zero means none yet.
	At time.Time
	// LID is the address that AskLID went to.
	LID ib.LID
	// SMs are those that answered, best first. None is an answer too.
	SMs []SMInfo
	// Err is why the question could not be put (no umad device, no
	// permission); silence is not an error. NoQP0 is that the port carries no
	// subnet management packets.
	Err   string
	NoQP0 bool
}

// Master is the best subnet manager that says it is master.
func (a Answer) Master() (SMInfo, bool) {
	var best SMInfo
	ok := false
	for _, s := range a.SMs {
		if s.State == SMMaster && (!ok || s.Outranks(best.Priority, best.GUID)) {
			best, ok = s, true
		}
	}
	return best, ok
}

// MasterOf is the master that serves a port by the last answer: one that the port's
// SM LID gave within MasterLife. Of a port whose own worker is master it is that one.
func MasterOf(p Port, ph Phase, a Answer, now time.Time) (SMInfo, bool) {
	m, ok := a.Master()
	if !ok || a.Question != AskLID || a.LID == 0 || a.LID != p.SMLID || !now.Before(a.At.Add(MasterLife)) || ph == PhaseMaster &&
		m.GUID != p.GUID {
		return SMInfo{}, false
	}
	return m, true
}

// WorkerState is the state of the unit that runs the worker.
type WorkerState uint8

// The states, as systemd's ActiveState.
const (
	WorkerInactive WorkerState = iota
	WorkerActivating
	WorkerActive
	WorkerDeactivating
	WorkerFailed
)

// String is systemd's word.
func (w WorkerState) String() string {
	return ib.Word(w, "WorkerState(%d)", "inactive", "activating", "active", "deactivating", "failed")
}

// Override is the administrator's last request, over D-Bus or by ibnetctl.
type Override uint8

// Requests by hand.
const (
	OverrideNone  Override = iota
	OverrideStart          // run it until the next request
	OverrideStop           // do not run it until the next request
)

// String is the word of status output.
func (h Override) String() string {
	return ib.Word(h, "", "", "start", "stop")
}

// Worker is what is known of the program that serves the port.
type Worker struct {
	// Unit is its systemd unit.
	Unit  string
	State WorkerState
	// Since is when State began.
	Since time.Time
	// Result is why it failed, a sentence without a full stop.
	Result string
	// Override is the administrator's last request.
	Override Override
	// Change is what it takes to bring it to the policy's settings.
	Change Change
	// StatusText is what the worker reported, Refused that it ended because the port
	// accepts no subnet manager.
	StatusText StatusText
	Refused    bool
}

// Files is what is known of the files that a policy names.
type Files struct {
	// Problem is the first thing wrong with them, with its place, as a sentence
	// without a full stop; empty if nothing is.
	Problem string
	// Kept is what is used in spite of the problem, as a sentence without a full stop.
	Kept string
	// Digest changes with what is in them: a word NAME:KIND:HASH each, with the kind of
	// what was hashed, which depends on what the reader may open.
	Digest string
}

// Changed are the files of a policy whose words differ between two digests.
func (p *Policy) Changed(old, now string) []string {
	paths := map[string]string{"partitions": p.PartitionsFile, "names": p.NodeNameMap, "policy": p.QoSPolicyFile, "keys": p.KeyFile}
	for _, f := range p.GUIDFiles() {
		paths[f.Key] = f.Path
	}
	was := strings.Fields(old)
	var out []string
	for word := range strings.FieldsSeq(now) {
		name, _, _ := strings.Cut(word, ":")
		if path := paths[name]; path != "" && !slices.Contains(was, word) {
			out = append(out, path)
		}
	}
	return out
}

// sameFiles reports whether two digests, of readers with other rights perhaps, do not
// show that a file has changed: hashes of different kinds are not compared.
func sameFiles(a, b string) bool {
	x, y := strings.Fields(a), strings.Fields(b)
	return slices.EqualFunc(x, y, func(a, b string) bool {
		nameA, restA, _ := strings.Cut(a, ":")
		nameB, restB, _ := strings.Cut(b, ":")
		kindA, _, okA := strings.Cut(restA, ":")
		kindB, _, okB := strings.Cut(restB, ":")
		return a == b || okA && okB && nameA == nameB && kindA != kindB
	})
}

// Input is all that a decision depends on, beside memory.
type Input struct {
	Now    time.Time
	Policy Policy
	Port   Port
	Answer Answer
	Worker Worker
	Files  Files
	// HostStart is when this host last started a worker on another port:
	// both ports may be on one subnet.
	HostStart time.Time
}

// Memory is what the machine remembers about a port between decisions. The
// zero value knows nothing; it is comparable and has no pointers.
type Memory struct {
	// LonelySince is when the port was first seen without a subnet manager.
	LonelySince time.Time
	// SilentSince and Silences count questions to SilentLID, the SM LID of
	// that time, without an answer.
	SilentLID   ib.LID
	SilentSince time.Time
	Silences    int
	// CountedAt is the answer that was counted last.
	CountedAt time.Time
	// DownSince is when the link of a port with a worker went away.
	DownSince time.Time
	// UnitGoneSince is when no unit asked for the worker any more.
	UnitGoneSince time.Time
	// Other is another master, seen since OtherSince.
	Other      ib.GUID
	OtherSince time.Time
	// Failures counts failed starts in a row, FailedAt is the last one.
	Failures int
	FailedAt time.Time
	// FailedWith are the settings and files of the last failed start: others
	// end the back-off.
	FailedWith string
	// StartedAt is when the decision was to start; a stop clears it.
	StartedAt time.Time
	// Again is that the worker was stopped only to run with new settings.
	Again bool
}

// Action is what to do.
type Action uint8

// The actions.
const (
	Wait Action = iota
	Ask
	Start
	Stop
	Reload // read the settings and files again
)

// String names the action.
func (a Action) String() string {
	return ib.Word(a, "Action(%d)", "wait", "ask", "start", "stop", "reload")
}

// Phase is the stable word for the state of a port.
type Phase string

// The phases, as D-Bus, JSON and metrics print them.
const (
	PhaseOff        Phase = "off"         // not asked to manage
	PhaseNoLink     Phase = "no-link"     // no physical link: nothing to serve
	PhaseServed     Phase = "served"      // a subnet manager elsewhere serves the port
	PhaseSettling   Phase = "settling"    // no subnet manager, the delay runs
	PhaseAsking     Phase = "asking"      // the fabric is being asked
	PhaseUnserved   Phase = "unserved"    // another subnet manager exists but does not serve the port
	PhaseBlocked    Phase = "blocked"     // the fabric cannot be asked
	PhaseStarting   Phase = "starting"    // the worker is being started
	PhaseRunning    Phase = "running"     // the local one runs and has not reported yet that it is master
	PhaseMaster     Phase = "master"      // the local one reports that it is master
	PhaseStandby    Phase = "standby"     // the local one runs, another is master
	PhaseStopping   Phase = "stopping"    // the worker is being stopped
	PhaseBackingOff Phase = "backing-off" // the worker failed and is retried later
	PhaseStopped    Phase = "stopped"     // stopped by hand
	PhaseNoQP0      Phase = "no-qp0"      // the port carries no subnet management packets
	PhaseSMDisabled Phase = "sm-disabled" // the firmware forbids a subnet manager (IsSMDisabled)
	PhaseNVSwitch   Phase = "nvswitch"    // the device manages NVSwitches
	PhaseOmniPath   Phase = "omni-path"   // the fabric is Omni-Path
)

// Decision is what to do now and why.
type Decision struct {
	Action Action
	// Question is how to ask, for Ask.
	Question Question
	// Until is when to decide again although nothing happened; zero means
	// only when something does.
	Until  time.Time
	Phase  Phase
	Reason string
	// Next is what a person can do about it, a command or an imperative;
	// empty where nothing has to be done.
	Next string
}
