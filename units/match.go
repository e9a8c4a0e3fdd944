package units

import (
	"ibnetworkd/ib"
)

// Match is [Match] with its conditions. All keys that are set must hold; within
// a key one item is enough (Property= wants all).
type Match struct {
	Section
	Name                []Value[Pattern]
	OriginalName        []Value[Pattern]
	MACAddress          []Value[HWPattern]
	PermanentMACAddress []Value[HWPattern]
	Path                []Value[Pattern]
	Driver              []Value[Pattern]
	Type                []Value[Pattern]
	Kind                []Value[Pattern]
	Property            []Value[PropertyPattern]
	IBDevice            []Value[Pattern]
	Port                []Value[NumPattern]
	PortGUID            []Value[GUIDPattern]
	NodeGUID            []Value[GUIDPattern]
	BoardID             []Value[Pattern]
	LinkLayer           []Value[LayerPattern]
	PartitionKey        []Value[PKeyPattern]

	Host              Value[Condition]
	Virtualization    Value[Condition]
	KernelCommandLine Value[Condition]
	KernelVersion     Value[Condition]
	Version           Value[Condition]
	Architecture      Value[Condition]
	Credential        Value[Condition]
	Firmware          Value[Condition]

	// Invalid names keys that were given and have no valid value; a unit with one
	// matches nothing, because without the key it would match more than meant.
	Invalid []Value[string]
}

// Pattern is one glob of a list (fnmatch without flags: * also crosses /); Not
// is set for items of an assignment that begins with "!".
type Pattern struct {
	Not  bool
	Glob string
}

// HWPattern is one hardware address of a list; an 8-byte one (a GUID) fits every
// 20-byte address that ends with it.
type HWPattern struct {
	Not  bool
	Addr ib.HWAddr
}

// PropertyPattern is one udev property "NAME=glob".
type PropertyPattern struct {
	Not  bool
	Name string
	Glob string
}

// NumPattern is one port number of a list.
type NumPattern struct {
	Not bool
	N   int
}

// GUIDPattern is one GUID of a list.
type GUIDPattern struct {
	Not  bool
	GUID ib.GUID
}

// LayerPattern is one link layer of a list.
type LayerPattern struct {
	Not   bool
	Layer ib.LinkLayer
}

// PKeyPattern is one partition key of a list; the membership bit does not count.
type PKeyPattern struct {
	Not  bool
	PKey ib.PKey
}

// Condition is one condition on the host; Not is the leading "!".
type Condition struct {
	Not  bool
	Text string
}

// Fact is a thing about a link or a host that may not be known yet. The zero
// Fact is "not known".
type Fact[T any] struct {
	V     T
	Known bool
}

// Know is a known fact.
func Know[T any](v T) Fact[T] { return Fact[T]{V: v, Known: true} }

// Facts is everything known about one link, or about one RDMA port whose netdev
// does not exist yet. What is known to be absent (a netdev without an RDMA
// port) is a known zero value.
type Facts struct {
	// Name and AltNames of the netdev. AltNames counts as known when Name is.
	Name     Fact[string]
	AltNames []string
	// OriginalName is the kernel's first name (udev's ID_NET_NAME_ORIGINAL or
	// the uevent's INTERFACE at add).
	OriginalName        Fact[string]
	MACAddress          Fact[ib.HWAddr]
	PermanentMACAddress Fact[ib.HWAddr]
	// Path is udev's ID_PATH ("pci-0000:08:00.0"); it is known from the PCI
	// address before a netdev exists.
	Path   Fact[string]
	Driver Fact[string]
	// Type is networkd's word: "infiniband", "ether", "loopback" ...
	Type Fact[string]
	// Kind is the rtnetlink kind: "ipoib", "vlan", "" for none.
	Kind Fact[string]
	// Properties are udev's; not known before udev has initialised the device.
	Properties Fact[map[string]string]

	// IBDevice is the RDMA device, "" for none.
	IBDevice Fact[string]
	// Port is the RDMA port from 1, 0 for none.
	Port      Fact[int]
	PortGUID  Fact[ib.GUID]
	NodeGUID  Fact[ib.GUID]
	BoardID   Fact[string]
	LinkLayer Fact[ib.LinkLayer]
	// PartitionKey is the key of an IPoIB interface, 0 for none.
	PartitionKey Fact[ib.PKey]

	Host *HostFacts
}

// HostFacts is what the conditions ask about; it is the same for all links of
// a host.
type HostFacts struct {
	// Hostname and MachineID (32 hexadecimal digits) for Host=.
	Hostname  string
	MachineID string
	// Virtualization is systemd-detect-virt's word, "none" outside;
	// VirtContainer tells a container from a machine.
	Virtualization string
	VirtContainer  bool
	// PrivateUsers is whether the daemon runs in a user namespace of its own.
	PrivateUsers bool
	// KernelCommandLine is the text of /proc/cmdline.
	KernelCommandLine string
	// KernelRelease is uname -r; Architecture is systemd's word ("x86-64").
	KernelRelease string
	Architecture  string
	// Credentials are the names of credentials that were passed to the service.
	Credentials []string
	// Firmware: UEFI, device-tree compatible strings, and SMBIOS fields for
	// smbios-field(), by their names in /sys/class/dmi/id.
	UEFI         bool
	DeviceTree   bool
	Compatible   []string
	SMBIOSFields map[string]string
	// Versions are the versions that Version= can ask for besides the kernel's
	// ("systemd", "glibc").
	Versions map[string]string
}

// Verdict is the answer of a match.
type Verdict uint8

// The verdicts. NotYet means that something the match asks for is not known
// yet; it may become Yes or No.
const (
	No Verdict = iota
	NotYet
	Yes
)

// String is the word for a verdict.
func (v Verdict) String() string {
	switch v {
	case Yes:
		return "yes"
	case NotYet:
		return "not known yet"
	}
	return "no"
}
