// Package api holds what both ends of the bus share: names, object paths, and
// the Description that Describe returns as JSON. It does no I/O; daemon/bus
// serves it, ibnetctl asks for it.
package api

import (
	"fmt"
	"iter"
	"strings"
	"time"

	"ibnetworkd/link"
	"ibnetworkd/smctl"
)

// Names on the bus.
const (
	BusName = "org.ibnetwork1"
	Root    = "/org/ibnetwork1"

	Manager       = "org.ibnetwork1.Manager"
	Link          = "org.ibnetwork1.Link"
	Port          = "org.ibnetwork1.Port"
	SubnetManager = "org.ibnetwork1.SubnetManager"

	// The interface by which systemctl service-log-level sets the log level of a program.
	LogControl     = "org.freedesktop.LogControl1"
	LogControlPath = "/org/freedesktop/LogControl1"
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
	// Source is the program that observed the host: "ibnetworkd", or "observed" when
	// ibnetctl read the state of the host itself because the daemon does not run.
	Source string `json:"source"`
	// Online is the state of the links that are required for online:
	// online, partial or offline.
	Online         string            `json:"online_state"`
	Links          []link.Status     `json:"links"`
	Ports          []link.PortStatus `json:"ports"`
	SubnetManagers []smctl.Status    `json:"subnet_managers"`
	Problems       []string          `json:"problems,omitempty"`
	// Notices are about units and the host as a whole.
	Notices []link.Notice `json:"notices,omitempty"`
}

// OnlineState sums up the links that are required for online, as wait-online answers:
// where a unit requires a link (awaited) and no such link exists yet it is offline.
func OnlineState(links iter.Seq[link.Status], awaited bool) string {
	required, online := 0, 0
	for l := range links {
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
