// Package answer has the forms of what ibnetctl prints with --json, one type a
// command. docs/ibnetctl.schema.json and the table in docs/json.md are made of
// these types; keys may be added to them, and Schema changes when one goes or
// changes its meaning.
package answer

import (
	"time"

	"ibnetworkd/cmd/ibnetctl/diagnose"
	"ibnetworkd/cmd/ibnetctl/hosts"
	"ibnetworkd/cmd/ibnetctl/importer"
	"ibnetworkd/daemon/bus/api"
	"ibnetworkd/link"
	"ibnetworkd/smctl"
	"ibnetworkd/units"
)

// Schema is the version of all forms.
const Schema = api.DescriptionSchema

// Status of everything is the daemon's own description.
type Status = api.Description

// Some is status of named links and ports.
type Some struct {
	Schema int               `json:"schema"`
	Links  []link.Status     `json:"links"`
	Ports  []link.PortStatus `json:"ports"`
}

// Counted is the counters of links and ports (status --stats).
type Counted struct {
	Schema     int          `json:"schema"`
	Statistics []Statistics `json:"statistics"`
}

// Statistics is the counters of a link or a port, as the kernel names and counts them: of a
// port, data are in words of 4 bytes.
type Statistics struct {
	Link     string    `json:"link,omitempty"`
	IBDevice string    `json:"ib_device,omitempty"`
	Port     int       `json:"port,omitempty"`
	Counters []Counter `json:"counters"`
	// NotChecked is why there are none, with the command that shows them: of a link in another
	// network namespace.
	NotChecked string `json:"not_checked,omitempty"`
}

// Counter is a counter by the kernel's name.
type Counter struct {
	Name  string `json:"name"`
	Value uint64 `json:"value"`
}

// List is the links.
type List struct {
	Schema int           `json:"schema"`
	Links  []link.Status `json:"links"`
}

// Ports is the RDMA ports.
type Ports struct {
	Schema int               `json:"schema"`
	Ports  []link.PortStatus `json:"ports"`
}

// Managers is sm status.
type Managers struct {
	Schema         int       `json:"schema"`
	SubnetManagers []Manager `json:"subnet_managers"`
}

// Manager is the subnet manager of one port: what the daemon reports, and what an ibnetsm of this host does.
type Manager struct {
	smctl.Status
	Routes *Routes `json:"routes,omitempty"`
}

// Diagnose is the checks of each port; OK is false when one failed.
type Diagnose struct {
	Schema int              `json:"schema"`
	OK     bool             `json:"ok"`
	Chains []diagnose.Chain `json:"chains"`
}

// Plan is what would be done, and what cannot be done.
type Plan struct {
	Schema  int            `json:"schema"`
	Steps   []Step         `json:"steps"`
	Blocked []link.Blocked `json:"blocked"`
	Notices []link.Notice  `json:"notices"` // about units and the host as a whole
	// Managers is what is done about subnet managers.
	Managers []ManagerStep `json:"subnet_managers"`
	// ManagersNotAsked is why the daemon was not asked about them, empty if it was.
	ManagersNotAsked string `json:"subnet_managers_not_asked,omitempty"`
}

// PlanHosts is what the units give each host of a list. OK is false where an address
// is missing or not unique, or the list has a problem.
type PlanHosts struct {
	Schema     int               `json:"schema"`
	OK         bool              `json:"ok"`
	Hosts      []hosts.Row       `json:"hosts"`
	Collisions []hosts.Collision `json:"collisions,omitempty"`
	Problems   []units.Problem   `json:"problems,omitempty"` // of the list
}

// ManagerStep is one thing done about a subnet manager.
type ManagerStep struct {
	Port    string `json:"port"`
	Command string `json:"command,omitempty"` // empty where nothing is done now
	Note    string `json:"note,omitempty"`
}

// Step is one change.
type Step struct {
	Command string `json:"command"` // as an administrator would type it
	Link    string `json:"link"`
	Unit    string `json:"unit,omitempty"`
	// Effect is what the command does besides, a sentence.
	Effect string `json:"effect,omitempty"`
}

// Verify is the number of files read and the mistakes in them.
type Verify struct {
	Schema   int             `json:"schema"`
	Files    int             `json:"files"`
	Problems []units.Problem `json:"problems"`
	// Notices are what does not work on this host; they are no mistakes.
	Notices []link.Notice `json:"notices,omitempty"`
}

// Import is the units that another tool's files become.
type Import struct {
	Schema int             `json:"schema"`
	Units  []ImportedUnit  `json:"units"`
	Left   []importer.Left `json:"left"`            // what could not be converted
	Notes  []string        `json:"notes"`           // what is still to be done by hand
	Lines  []importer.Line `json:"lines"`           // what became of every line of the files
	Check  *ImportCheck    `json:"check,omitempty"` // with --check
}

// ImportCheck is what runs now beside what imported units would do.
type ImportCheck struct {
	Same  bool          `json:"same"`
	Links []CheckedLink `json:"links"`
	// Others are changes to links that do not exist yet.
	Others []Step `json:"others,omitempty"`
	// Unmatched are units for no link or port of this host, Unclaimed the IPoIB
	// links that no unit is for.
	Unmatched []string `json:"unmatched"`
	Unclaimed []string `json:"unclaimed"`
}

// CheckedLink is a link and the imported unit that applies to it.
type CheckedLink struct {
	Link      string         `json:"link"`
	Unit      string         `json:"unit"`
	Runs      string         `json:"runs"`        // its state in one line
	Steps     []Step         `json:"steps"`       // what the unit would change
	Blocked   []link.Blocked `json:"blocked"`     // what it cannot have
	NotInUnit []string       `json:"not_in_unit"` // what the link has and its unit does not set
}

// ImportedUnit is one unit file.
type ImportedUnit struct {
	Name string `json:"name"`
	Text string `json:"text"`
}

// Cat is the files of units, in the order in which they apply.
type Cat struct {
	Schema int        `json:"schema"`
	Units  []UnitText `json:"units"`
}

// UnitText is one unit with its drop-ins.
type UnitText struct {
	Name string `json:"name"`
	Text string `json:"text"`
}

// WaitOnline is whether all is online, and what is missing.
type WaitOnline struct {
	Schema  int       `json:"schema"`
	Online  bool      `json:"online"`
	Missing []Lacking `json:"missing"`
}

// Lacking is a link that is not online, and why.
type Lacking struct {
	Link string `json:"link"`
	Why  string `json:"why"`
}

// LogEntry is one entry of the log; logs prints one in each line.
type LogEntry struct {
	At       time.Time `json:"at"`
	Unit     string    `json:"unit"`     // of systemd, or kernel
	Priority int       `json:"priority"` // as syslog's: 3 error, 4 warning, 6 information
	Message  string    `json:"message"`
}

// Topology is the fabric as the subnet administrator has it or a walk finds it.
type Topology struct {
	Schema         int            `json:"schema"`
	Nodes          []Node         `json:"nodes"`
	Bad            []BadLink      `json:"bad"`
	SubnetManagers []smctl.Master `json:"subnet_managers"`
	Warnings       []string       `json:"warnings"`
	// Administrator is the LID that the fabric was read from; without it Walked is
	// why it was discovered by a walk.
	Administrator uint16 `json:"subnet_administrator,omitempty"`
	Walked        string `json:"walked,omitempty"`
	// Counters is there with --bad.
	Counters *Counters `json:"counters,omitempty"`
}

// Counters is of how many ports with a link error counters were read and were not.
type Counters struct {
	Read       int `json:"read"`
	NotChecked int `json:"not_checked"`
}

// BadLink is a link that is not Active, narrow, slow or has errors, by its first end.
type BadLink struct {
	GUID  string `json:"guid"`
	Port  int    `json:"port"`
	Peer  string `json:"peer,omitempty"`
	PeerN int    `json:"peer_port,omitempty"`
	Why   string `json:"why"`
}

// Node is a switch or adapter.
type Node struct {
	GUID        string     `json:"guid"`
	Type        string     `json:"type"`
	Description string     `json:"description"`
	Ports       []NodePort `json:"ports"`
}

// NodePort is a port of a Node.
type NodePort struct {
	Num   int    `json:"num"`
	GUID  string `json:"guid,omitempty"`
	LID   uint16 `json:"lid,omitempty"`
	State string `json:"state,omitempty"`
	Rate  string `json:"rate,omitempty"`
	Peer  string `json:"peer_guid,omitempty"`
	PeerN int    `json:"peer_port,omitempty"`
}

// Metrics is the metrics in Prometheus' text format.
type Metrics struct {
	Schema int    `json:"schema"`
	Text   string `json:"text"`
}

// Event is one line of monitor.
type Event struct {
	At   time.Time `json:"at"`
	Kind string    `json:"kind"` // link, port, subnet-manager, daemon
	Name string    `json:"name"`
	What string    `json:"what"`
	Old  string    `json:"old"`
	New  string    `json:"new"`
	Why  string    `json:"why,omitempty"`
}

// Done is the answer of a command that does something and has nothing else to
// say.
type Done struct {
	Schema int  `json:"schema"`
	OK     bool `json:"ok"`
}

// Failure is what any command prints when it fails, with its exit code.
type Failure struct {
	Schema int    `json:"schema"`
	OK     bool   `json:"ok"`
	Code   int    `json:"code"`
	Error  string `json:"error"`
}

// Forms are all forms by the command that prints them.
var Forms = []struct {
	Command string
	Value   any
}{
	{"status", Status{}},
	{"status NAME...", Some{}},
	{"status --stats", Counted{}},
	{"list", List{}},
	{"ports", Ports{}},
	{"diagnose", Diagnose{}},
	{"monitor", Event{}},
	{"plan", Plan{}},
	{"plan --hosts", PlanHosts{}},
	{"wait-online", WaitOnline{}},
	{"logs", LogEntry{}},
	{"metrics", Metrics{}},
	{"verify", Verify{}},
	{"cat", Cat{}},
	{"import", Import{}},
	{"sm status", Managers{}},
	{"sm topology", Topology{}},
	{"sm explain", Explain{}},
	{"sm whatif", WhatIf{}},
	{"sm dump", Dump{}},
	{"sm drain", Drains{}},
	{"sm undrain", Drains{}},
	{"reload, reconfigure, up, down, edit, enable, disable, mask, unmask, try, log-level, capture, report, sm start, sm stop, import " +
		"--write", Done{}},
	{"a command that fails", Failure{}},
}
