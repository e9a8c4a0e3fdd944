package link

import (
	"fmt"
	"slices"
	"strings"

	"ibnetworkd/units"
)

// State is the administrative state of a link, in systemd-networkd's words
// (networkctl(1)), of which "initialized" and "linger" do not occur: a link is
// decided on at once, and one that is gone is gone. There is no end in "failed":
// a failed link is retried on the next event and with back-off.
type State string

// The states of a link.
const (
	StatePending     State = "pending"     // udev has not finished with it
	StateConfiguring State = "configuring" // operations are under way or waited for
	StateConfigured  State = "configured"  // as the unit asks, or a setting is blocked for a permanent reason
	StateUnmanaged   State = "unmanaged"   // no unit, Unmanaged=yes, or another program's
	StateFailed      State = "failed"      // an operation was refused; retried
)

// Obstructed reports that something on another link is in the way of what the
// link's unit asks for, or missing there: a name, a bond or VRF, a route, a partition's
// interface, a next hop.
func (s Status) Obstructed() bool {
	return slices.ContainsFunc(s.Reasons, func(r Reason) bool {
		return r.Code == CodeNameTaken || r.Code == CodeNoDevice || r.Code == CodeAddressConflict ||
			r.Code == CodePKeyForeign || r.Code == CodeGatewayUnreached
	})
}

// Code is the reason why something is not configured, as one fixed word. The words are
// part of the JSON and D-Bus interface.
type Code string

// The codes. Waits end when the named event happens; refusals last until the unit,
// the adapter or the fabric changes.
const (
	CodeNone             Code = ""
	CodeNoSM             Code = "no-subnet-manager"      // Initializing, SM LID 0
	CodeSMBusy           Code = "subnet-manager-pending" // Initializing or Armed, SM LID known
	CodeCable            Code = "no-cable"               // physical state Polling
	CodePortDisabled     Code = "port-disabled"
	CodeTraining         Code = "port-training"
	CodePortDown         Code = "port-down"
	CodePKeyMissing      Code = "pkey-not-granted"
	CodeJoin             Code = "join-refused" // Active, P_Key there, no carrier
	CodeMTUGroup         Code = "mtu-limited-by-group"
	CodeMTUMode          Code = "mtu-needs-connected-mode"
	CodeMTUAdapter       Code = "mtu-limited-by-adapter"
	CodeNoConnected      Code = "connected-not-offered" // no RC flag in the address
	CodePKeyInvalid      Code = "pkey-invalid"
	CodePKeyDuplicate    Code = "pkey-duplicate"
	CodeMoved            Code = "moved-to-namespace" // what was made is in another network namespace
	CodeNoNamespace      Code = "no-namespace"       // the network namespace of a child does not exist
	CodeOtherNamespace   Code = "in-other-namespace" // what a unit says of a link that is in another network namespace
	CodePKeyForeign      Code = "pkey-in-use"        // another program's interface has it
	CodeChildOfChild     Code = "child-of-child"
	CodeNotIPoIB         Code = "not-ipoib"
	CodeNoModule         Code = "module-missing" // port there, no netdev: ib_ipoib
	CodeUdev             Code = "waiting-for-udev"
	CodeOtherManager     Code = "managed-by-other"
	CodeUnmanaged        Code = "unmanaged"
	CodeNoUnit           Code = "no-unit"
	CodeNameTaken        Code = "name-taken"
	CodeAddressConflict  Code = "address-conflict"    // another host uses the address
	CodeProbing          Code = "address-probing"     // whether another host uses the address is not known yet
	CodeNotDerived       Code = "address-not-derived" // what an address is derived from is not there
	CodeNoLease          Code = "no-lease"            // no DHCP server has given an address, or confirms it
	CodeLinkDown         Code = "link-down"           // ActivationPolicy=, or another program set it down
	CodeNoCarrier        Code = "no-carrier"
	CodeRefused          Code = "refused"     // the kernel refused; Text has its words
	CodeRetry            Code = "retrying"    // a passing error; tried again with back-off
	CodeInProgress       Code = "in-progress" // a worker carries it out, or the card is busy
	CodeIPv6MTU          Code = "ipv6-needs-mtu-1280"
	CodeNoIPv6           Code = "no-ipv6"
	CodeGatewayUnreached Code = "gateway-unreachable"
	CodeNoResolved       Code = "no-resolved"
	CodeResolved         Code = "resolved-refused" // systemd-resolved did not take the name servers; the link is configured all the same
	CodeNoTimesync       Code = "no-timesyncd"
	CodeHostname         Code = "hostname"
	CodeUnsupported      Code = "unsupported"
)

// Reason is a sentence for a person, its code for a program, and what to do.
type Reason struct {
	Code Code   `json:"code"`
	Text string `json:"text"`
	// Next is the next step: a command, or a short sentence. It may be empty.
	Next string `json:"next,omitempty"`
}

// Of is the text behind the name of the object that the reason is of, with the name once.
func (r Reason) Of(name string) string {
	if rest, ok := strings.CutPrefix(r.Text, name); ok && strings.HasPrefix(rest, " ") {
		return r.Text
	}
	return name + ": " + r.Text
}

// Attribute compares one setting. Why is empty when Wanted and Actual agree or
// nothing is wanted.
type Attribute struct {
	Name   string `json:"name"` // the unit file's key: Mode, MTUBytes, Address ...
	Wanted string `json:"wanted,omitempty"`
	Actual string `json:"actual,omitempty"`
	Why    Reason `json:"why,omitzero"`
	// Away is set where the setting is a link in another network namespace.
	Away Away `json:"away,omitzero"`
}

// OK reports that nothing is wanted or that what is wanted is there.
func (a Attribute) OK() bool { return a.Wanted == "" || a.Why == (Reason{}) }

// Status is the status of one link as the bus, ibnetctl and the state files show
// it. It is a value; a changed link gets a new one.
type Status struct {
	Name     string `json:"name"`
	Ifindex  int    `json:"ifindex,omitempty"`
	Kind     string `json:"kind,omitempty"` // ipoib, ether ...
	IBDevice string `json:"ib_device,omitempty"`
	Port     int    `json:"port,omitempty"`
	PKey     string `json:"pkey,omitempty"`
	Parent   string `json:"parent,omitempty"`
	HWAddr   string `json:"hw_addr,omitempty"`

	Unit    string   `json:"unit,omitempty"`     // path of the unit file that applies
	DropIns []string `json:"drop_ins,omitempty"` // in the order they apply
	// MadeByUs reports an interface that this program created.
	MadeByUs bool `json:"made_by_us,omitempty"`

	State   State           `json:"state"`
	Oper    units.OperState `json:"operational_state"`
	Carrier bool            `json:"carrier"`
	// IPv4State and IPv6State are how far the addresses of each family reach:
	// off, degraded (link-local only) or routable.
	IPv4State units.OperState `json:"ipv4_address_state,omitempty"`
	IPv6State units.OperState `json:"ipv6_address_state,omitempty"`
	Required  bool            `json:"required_for_online"`
	// RequiredMin and RequiredMax are RequiredForOnline='s range.
	RequiredMin units.OperState `json:"required_min,omitempty"`
	RequiredMax units.OperState `json:"required_max,omitempty"`
	// Online reports that Oper is in the range and nothing is pending.
	Online bool `json:"online"`

	// Reasons are why State is not "configured", or what prevents carrier, the
	// most important first.
	Reasons    []Reason    `json:"reasons,omitempty"`
	Attributes []Attribute `json:"attributes,omitempty"`
	Addresses  []string    `json:"addresses,omitempty"`
	// DHCP and DHCP6 are what the DHCP clients of the daemon have reached, nil for none.
	DHCP  *DHCP `json:"dhcp,omitempty"`
	DHCP6 *DHCP `json:"dhcp6,omitempty"`
	// Probes are what the daemon has found out about IPv4 addresses by ARP.
	Probes  []Probe  `json:"probes,omitempty"`
	Pending []string `json:"pending,omitempty"` // operations not done yet, as commands
	// Problems are the messages that verification of the unit gave.
	Problems []string `json:"problems,omitempty"`
}

// Reason is the first reason, zero for none.
func (s Status) Reason() Reason {
	if len(s.Reasons) == 0 {
		return Reason{}
	}
	return s.Reasons[0]
}

// PortStatus is the status of one RDMA port, in ibstat's words.
type PortStatus struct {
	IBDevice     string   `json:"ib_device"`
	Port         int      `json:"port"`
	LinkLayer    string   `json:"link_layer"`
	State        string   `json:"state"`
	PhysState    string   `json:"phys_state"`
	LID          uint16   `json:"lid"`
	SMLID        uint16   `json:"sm_lid"`
	PortGUID     string   `json:"port_guid"`
	NodeGUID     string   `json:"node_guid"`
	SubnetPrefix string   `json:"subnet_prefix,omitempty"`
	Rate         string   `json:"rate,omitempty"`
	PKeys        []string `json:"pkeys,omitempty"`
	Links        []string `json:"links,omitempty"` // interfaces over the port
	Unit         string   `json:"unit,omitempty"`  // unit that matches the port's main interface
	Reason       Reason   `json:"reason,omitzero"` // why the port is not Active, has no interface, or is not as its unit asks
	// Attributes and Pending are those of a port that has no interface; of any
	// other they are in the interface's status.
	Attributes []Attribute `json:"attributes,omitempty"`
	Pending    []string    `json:"pending,omitempty"`
}

// add adds what was planned for a port to its status. The reasons why the port is
// not as its unit asks precede that it has no interface, which may be their effect.
func (st *PortStatus) add(n *PortNote) {
	if n == nil {
		return
	}
	st.Attributes, st.Pending = n.Attributes, n.Pending
	if len(n.Reasons) > 0 && (st.Reason == (Reason{}) || st.Reason.Code == CodeNoModule) {
		st.Reason = n.Reasons[0]
	}
}

// Report is the status of the host at one time.
type Report struct {
	Links []Status     `json:"links"`
	Ports []PortStatus `json:"ports"`
	// Problems are the messages of unit files, with file:line:column.
	Problems []string `json:"problems,omitempty"`
	// Notices are about units and the host as a whole.
	Notices []Notice `json:"notices,omitempty"`
	// Awaited reports that a unit requires a link for online (RequiredForOnline=).
	Awaited bool `json:"awaited,omitempty"`
}

// Inform adds to a snapshot of the same host what only the daemon knows of links: leases,
// and addresses of other hosts. Without it a plan would remove what they gave.
func (r *Report) Inform(s *Snapshot) {
	known := map[int]*Status{}
	for i := range r.Links {
		known[r.Links[i].Ifindex] = &r.Links[i]
	}
	of := func(l *Link) *Status {
		if st := known[l.Index]; st != nil && st.Name == l.Name {
			return st
		}
		return &Status{}
	}
	same := func(a, b *DHCP) bool { return a == b }
	SetEach(s, func(l *Link) **DHCP { return &l.DHCP }, func(l *Link) *DHCP { return of(l).DHCP }, same)
	SetEach(s, func(l *Link) **DHCP { return &l.DHCP6 }, func(l *Link) *DHCP { return of(l).DHCP6 }, same)
	SetEach(s, func(l *Link) *[]Probe { return &l.Probes }, func(l *Link) []Probe { return of(l).Probes }, slices.Equal)
}

// Awaited reports whether a unit requires the link that it matches for online.
func Awaited(set *units.Set) bool {
	return slices.ContainsFunc(set.Units, func(u *units.Unit) bool { return u.Required() && !u.Unmanaged() })
}

// Step is one operation of a plan, with the unit that asks for it.
type Step struct {
	Op   Op
	Unit string // path, "" for removals without a unit
	// Effect is what the operation does besides, a sentence; "" for nothing.
	Effect string
}

// Effecter is an operation that some drivers do more for than it says. Effect is
// the sentence for the system that it is planned on, "" for nothing.
type Effecter interface {
	Effect(s *Snapshot) string
}

// Blocked is an operation, or a setting that has no single operation, that cannot
// be done now. Waits end by an event; the others last until something changes.
type Blocked struct {
	On     Target `json:"target"`
	Op     string `json:"op,omitempty"`   // the command that would be used
	Unit   string `json:"unit,omitempty"` // path
	Wait   bool   `json:"wait,omitempty"` // ends by itself when the named thing happens
	Reason Reason `json:"reason"`
}

// Plan is what would be done now, in order, and what cannot be done.
type Plan struct {
	Steps   []Step
	Blocked []Blocked
}

// Empty reports that nothing would be done.
func (p Plan) Empty() bool { return len(p.Steps) == 0 }

// Commands lists the steps as commands.
func (p Plan) Commands() []string {
	out := make([]string, len(p.Steps))
	for i, s := range p.Steps {
		out[i] = s.Op.String()
	}
	return out
}

// String prints a plan as ibnetctl plan does: commands, then what is waited for
// or blocked, with the next step.
func (p Plan) String() string {
	var b strings.Builder
	for _, s := range p.Steps {
		b.WriteString(s.Op.String() + "\n")
		if s.Effect != "" {
			b.WriteString("#   besides: " + s.Effect + "\n")
		}
	}
	for _, w := range p.Blocked {
		word := "blocked"
		if w.Wait {
			word = "waiting"
		}
		fmt.Fprintf(&b, "# %s: %s\n", word, w.Reason.Of(w.On.String()))
		if w.Op != "" {
			fmt.Fprintf(&b, "#   then: %s\n", w.Op)
		}
		if w.Reason.Next != "" {
			fmt.Fprintf(&b, "#   next: %s\n", w.Reason.Next)
		}
	}
	return b.String()
}
