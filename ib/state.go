package ib

import (
	"fmt"
	"strconv"
	"strings"
)

// PortState is the logical state of a port (IBTA 14.2.5.6 PortInfo:PortState;
// the kernel's enum ib_port_state has the same numbers).
type PortState uint8

// The logical port states. 0 is "no state change" in a Set and "unknown" here.
const (
	PortDown        PortState = 1
	PortInit        PortState = 2
	PortArmed       PortState = 3
	PortActive      PortState = 4
	PortActiveDefer PortState = 5
)

// String prints the state as ibstat does.
func (s PortState) String() string {
	return Word(s, "state %d", "unknown", "Down", "Initializing", "Armed", "Active", "ActiveDefer")
}

// ParsePortState reads the text of sysfs ("2: INIT") or String's words in any
// case.
func ParsePortState(s string) (PortState, error) {
	if n, ok := leadingNumber(s); ok {
		if n < 0 || n > 255 {
			return 0, fmt.Errorf("port state %q is out of range", Clip(s))
		}
		return PortState(n), nil
	}
	switch strings.ToLower(s) {
	case "down":
		return PortDown, nil
	case "init", "initialize", "initializing":
		return PortInit, nil
	case "armed":
		return PortArmed, nil
	case "active":
		return PortActive, nil
	case "activedefer", "active_defer":
		return PortActiveDefer, nil
	case "unknown", "":
		return 0, nil
	}
	return 0, fmt.Errorf("%q is not a port state (Down, Initializing, Armed, Active)", Clip(s))
}

// MarshalText implements encoding.TextMarshaler with String's words.
func (s PortState) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler with ParsePortState.
func (s *PortState) UnmarshalText(b []byte) (err error) {
	*s, err = ParsePortState(string(b))
	return err
}

// PhysState is the physical state of a port (PortInfo:PortPhysicalState).
type PhysState uint8

// The physical port states (IBTA 14.2.5.6; the kernel's enum
// ib_port_phys_state).
const (
	PhysSleep        PhysState = 1
	PhysPolling      PhysState = 2
	PhysDisabled     PhysState = 3
	PhysTraining     PhysState = 4
	PhysLinkUp       PhysState = 5
	PhysLinkRecovery PhysState = 6
	PhysTest         PhysState = 7
)

var physNames = [...]string{"unknown", "Sleep", "Polling", "Disabled", "PortConfigurationTraining", "LinkUp", "LinkErrorRecovery",
	"PhyTest"}

// String prints the state as sysfs and ibstat do.
func (s PhysState) String() string {
	if int(s) < len(physNames) {
		return physNames[s]
	}
	return fmt.Sprintf("physical state %d", uint8(s))
}

// ParsePhysState reads the text of sysfs ("5: LinkUp") or String's words in any
// case.
func ParsePhysState(s string) (PhysState, error) {
	if n, ok := leadingNumber(s); ok {
		if n < 0 || n > 255 {
			return 0, fmt.Errorf("physical state %q is out of range", Clip(s))
		}
		return PhysState(n), nil
	}
	for i, n := range physNames {
		if strings.EqualFold(n, s) {
			return PhysState(i), nil
		}
	}
	return 0, fmt.Errorf("%q is not a physical port state", Clip(s))
}

// MarshalText implements encoding.TextMarshaler with String's words.
func (s PhysState) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler with ParsePhysState.
func (s *PhysState) UnmarshalText(b []byte) (err error) {
	*s, err = ParsePhysState(string(b))
	return err
}

// LinkLayer is what a port's wire is.
type LinkLayer uint8

// The link layers of the kernel's enum rdma_link_layer.
const (
	LinkLayerUnspecified LinkLayer = 0
	LinkLayerInfiniBand  LinkLayer = 1
	LinkLayerEthernet    LinkLayer = 2
)

// String prints the layer as sysfs link_layer does.
func (l LinkLayer) String() string {
	return Word(l, "unknown", "unknown", "InfiniBand", "Ethernet")
}

// ParseLinkLayer reads sysfs's words in any case.
func ParseLinkLayer(s string) (LinkLayer, error) {
	switch strings.ToLower(s) {
	case "infiniband":
		return LinkLayerInfiniBand, nil
	case "ethernet":
		return LinkLayerEthernet, nil
	case "unknown", "unspecified", "":
		return LinkLayerUnspecified, nil
	}
	return 0, fmt.Errorf("%q is not a link layer (InfiniBand, Ethernet)", Clip(s))
}

// MarshalText implements encoding.TextMarshaler with String's words.
func (l LinkLayer) MarshalText() ([]byte, error) { return []byte(l.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler with ParseLinkLayer.
func (l *LinkLayer) UnmarshalText(b []byte) (err error) {
	*l, err = ParseLinkLayer(string(b))
	return err
}

// NodeType is the kind of a node on the fabric (NodeInfo:NodeType).
type NodeType uint8

// The node types of IBTA 14.2.5.3.
const (
	NodeCA     NodeType = 1
	NodeSwitch NodeType = 2
	NodeRouter NodeType = 3
)

// String prints the type as ibnetdiscover's words.
func (t NodeType) String() string {
	return Word(t, "node type %d", "", "CA", "Switch", "Router")
}

// leadingNumber reads the number of "2: INIT".
func leadingNumber(s string) (int, bool) {
	num, _, ok := strings.Cut(s, ":")
	if !ok {
		num = s
	}
	n, err := strconv.Atoi(strings.TrimSpace(num))
	return n, err == nil
}
