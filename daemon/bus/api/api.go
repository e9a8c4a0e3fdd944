// Package api holds what both ends of the bus share: names, object paths, and
// the Description that Describe returns as JSON. It does no I/O; daemon/bus
// serves it, ibnetctl asks for it.
package api

import (
	"fmt"
	"strings"
	"time"

	"ibnetworkd/link"
)

// Names on the bus.
const (
	BusName = "org.ibnetwork1"
	Root    = "/org/ibnetwork1"

	Manager       = "org.ibnetwork1.Manager"
	Link          = "org.ibnetwork1.Link"
	Port          = "org.ibnetwork1.Port"
	SubnetManager = "org.ibnetwork1.SubnetManager"
)

// Errors by name.
const (
	ErrNoSuchLink   = "org.ibnetwork1.NoSuchLink"
	ErrNoSuchPort   = "org.ibnetwork1.NoSuchPort"
	ErrAccessDenied = "org.freedesktop.DBus.Error.AccessDenied"
	ErrInvalidArgs  = "org.freedesktop.DBus.Error.InvalidArgs"
	ErrFailed       = "org.ibnetwork1.Failed"
)

// The actions that polkit is asked for.
const (
	ActionReload        = "org.ibnetwork1.reload"
	ActionReconfigure   = "org.ibnetwork1.reconfigure"
	ActionLink          = "org.ibnetwork1.set-link"
	ActionSubnetManager = "org.ibnetwork1.manage-subnet-manager"
	ActionLogLevel      = "org.ibnetwork1.set-log-level"
)

// AskTimeout is how long polkit may take when it asks a person for a password;
// a caller that allows that has to wait as long.
const AskTimeout = 2 * time.Minute

// DescriptionSchema is the version of Description's JSON form. Keys are added
// without a new version; it changes when one goes or changes its meaning.
const DescriptionSchema = 1

// Description is everything that is known at one time.
type Description struct {
	Schema  int    `json:"schema"`
	Version string `json:"version"`
	// Source says who looked: "ibnetworkd", or "observed" when ibnetctl
	// looked by itself because the daemon does not run.
	Source string `json:"source"`
	// Online is the state of the links that are required for online:
	// online, partial or offline.
	Online         string            `json:"online_state"`
	Links          []link.Status     `json:"links"`
	Ports          []link.PortStatus `json:"ports"`
	SubnetManagers []SMStatus        `json:"subnet_managers"`
	Problems       []string          `json:"problems,omitempty"`
	// Notices are about units and the host as a whole.
	Notices []link.Notice `json:"notices,omitempty"`
}

// SMStatus is what is said of the subnet manager of one port.
type SMStatus struct {
	PortGUID string `json:"port_guid"`
	IBDevice string `json:"ib_device"`
	Port     int    `json:"port"`
	// Manage and Engine are the unit's words; Unit is its path.
	Manage string `json:"manage"`
	Engine string `json:"engine"`
	Unit   string `json:"unit,omitempty"`
	// Phase is a stable word (smctl.Phase), Reason a sentence.
	Phase  string `json:"phase"`
	Reason string `json:"reason"`
	// Next is what a person can do about it, a command or an imperative.
	Next string `json:"next,omitempty"`
	// NextCheck is when it is decided again although nothing happens.
	NextCheck time.Time `json:"next_check,omitzero"`
	// Worker is the systemd unit, WorkerState its state and since when.
	Worker      string    `json:"worker,omitempty"`
	WorkerState string    `json:"worker_state,omitempty"`
	WorkerSince time.Time `json:"worker_since,omitzero"`
	// WorkerText is what the program says of itself (STATUS= of sd_notify).
	WorkerText string `json:"worker_text,omitempty"`
	// FileProblem is what is wrong with a file that the unit's settings name.
	FileProblem string `json:"file_problem,omitempty"`
	// Hand is "start" or "stop" when a person has overruled the unit.
	Hand string `json:"by_hand,omitempty"`
	// Master is the subnet manager that answered last, MasterUnknown why it is not
	// known; ibnetctl asks where the daemon does not.
	Master        *SMInfo `json:"master,omitempty"`
	MasterUnknown string  `json:"master_unknown,omitempty"`
	Starts        int     `json:"starts"`
}

// SMInfo is one subnet manager of the fabric, in sminfo's words.
type SMInfo struct {
	GUID     string `json:"guid"`
	LID      uint16 `json:"lid"`
	Priority uint8  `json:"priority"`
	State    string `json:"state"`
	// Node is the node description of its host.
	Node string `json:"node,omitempty"`
}

// OnlineState sums up the links that are required for online, as wait-online answers:
// where a unit requires a link (awaited) and no such link exists yet it is offline.
func OnlineState(links []link.Status, awaited bool) string {
	required, online := 0, 0
	for _, l := range links {
		if l.Required && l.State != link.StateUnmanaged {
			required++
			if l.Online {
				online++
			}
		}
	}
	switch {
	case required == 0 && awaited:
		return "offline"
	case online == required:
		return "online"
	case online > 0:
		return "partial"
	}
	return "offline"
}

// LinkPath is the object path of a link; the index stays through renames.
func LinkPath(ifindex int) string { return Root + "/link/" + escape(fmt.Sprint(ifindex)) }

// WantedLinkPath is the object path of a link that is wanted and does not exist
// yet.
func WantedLinkPath(name string) string { return Root + "/link/wanted_" + escape(name) }

// PortPath is the object path of an RDMA port.
func PortPath(ibdev string, port int) string {
	return Root + "/port/" + escape(fmt.Sprintf("%s/%d", ibdev, port))
}

// SMPath is the object path of the subnet manager of a port, by port GUID as
// it is printed (0x0002c903000abcde).
func SMPath(guid string) string { return Root + "/subnet_manager/" + escape(guid) }

// escape is sd_bus_path_encode's rule: letters and digits stay, a leading
// digit and all else becomes _ and two hexadecimal digits.
func escape(s string) string {
	if s == "" {
		return "_"
	}
	var b strings.Builder
	for i := range len(s) {
		c := s[i]
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' && i > 0 {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "_%02x", c)
		}
	}
	return b.String()
}
