package link

import (
	"iter"
	"net/netip"
	"slices"
	"strings"

	"ibnetworkd/ib"
	"ibnetworkd/link/cardstate"
	"ibnetworkd/units"
)

// SnapshotSchema is the version of the JSON form of Snapshot. It changes when a
// reader of the old form would misread the new one.
const SnapshotSchema = 1

// Snapshot is a picture of everything that a plan depends on. It is immutable
// once made: a new observation makes a new one and shares what did not change.
// Slices are sorted (devices by name, links by index, rules by priority and
// text), so that equal systems give equal bytes.
type Snapshot struct {
	Schema  int      `json:"schema"`
	Host    Host     `json:"host"`
	Devices []Device `json:"rdma_devices,omitempty"`
	Links   []Link   `json:"links,omitempty"`
	Rules   []Rule   `json:"rules,omitempty"`
	// NextHops are the nexthop objects, by ID, that a unit or the record names.
	NextHops []NextHopObject `json:"nexthops,omitempty"`
	// Namespaces are the network namespaces that units name and that exist.
	Namespaces []Namespace `json:"namespaces,omitempty"`
	// Moved are recorded links that are in other network namespaces, as far as they were
	// read, and those that were deleted with their namespace.
	Moved []MovedLink `json:"moved,omitempty"`
	// Card is what package roce plans from beyond the rest; nil if no unit and no
	// port needs it. It is never changed once it is in a snapshot.
	Card *cardstate.State `json:"card,omitempty"`
}

// Host has the facts that the conditions of [Match] test, and others that a plan
// depends on.
type Host struct {
	Facts units.HostFacts `json:"facts"`

	// Udev is whether udevd runs: links are not configured until it has
	// initialised them. Without it (a minimal guest) they are used at once.
	Udev bool `json:"udev,omitempty"`
	// Resolved identifies the running systemd-resolved (its unique bus
	// name), empty where there is none. A new name means it has forgotten.
	Resolved string `json:"resolved,omitempty"`
	// ResolvConf reports that /etc/resolv.conf is a symbolic link to ResolvConfFile.
	ResolvConf bool `json:"resolv_conf,omitempty"`
	// Timesync and Chrony report that systemd-timesyncd or chronyd runs, and TimeServers which
	// servers of leases it has; they are set only while there is a lease with time servers.
	Timesync    bool     `json:"timesync,omitempty"`
	Chrony      bool     `json:"chrony,omitempty"`
	TimeServers []string `json:"time_servers,omitempty"`
	// HostnameTrouble is why the host cannot get the name of a lease, empty for nothing.
	HostnameTrouble string `json:"hostname_trouble,omitempty"`
	// LeaseHostname is the name that the host had when it last got that of a lease. Facts has
	// that of the start: the sandbox has its own.
	LeaseHostname string `json:"lease_hostname,omitempty"`
	// NoIPv6 reports a kernel without IPv6, or with it disabled at boot.
	NoIPv6 bool `json:"no_ipv6,omitempty"`
	// EnhancedSwitch reports that ib_ipoib can be loaded without enhanced IPoIB
	// (its parameter ipoib_enhanced, which MLNX_OFED has).
	EnhancedSwitch bool `json:"ipoib_enhanced,omitempty"`
	// NoIPoIB reports that the driver ib_ipoib is neither loaded nor built in.
	NoIPoIB bool `json:"no_ipoib,omitempty"`
	// OFEDManager is the script of MLNX_OFED that sets the mode and MTU of IPoIB
	// links when they appear (mlnx_interface_mgr@.service).
	OFEDManager string `json:"ofed_manager,omitempty"`
	// RDMAExclusive reports that RDMA devices of other network namespaces are not seen
	// here (rdma system set netns exclusive).
	RDMAExclusive bool `json:"rdma_exclusive,omitempty"`
}

// Device is an RDMA device.
type Device struct {
	Name     string  `json:"name"`            // mlx5_0
	Index    uint32  `json:"index,omitempty"` // RDMA netlink device index
	NodeGUID ib.GUID `json:"node_guid"`
	SysGUID  ib.GUID `json:"sys_image_guid,omitempty"`
	NodeType string  `json:"node_type,omitempty"` // CA, RNIC, switch, router
	Protocol string  `json:"protocol,omitempty"`  // RDMA netlink's: ib, opa, roce, iw; empty before Linux 5.2
	BoardID  string  `json:"board_id,omitempty"`
	Firmware string  `json:"firmware,omitempty"`
	Driver   string  `json:"driver,omitempty"` // of the parent device
	// Virtual reports that the parent is a virtual function (it has a physfn).
	Virtual  bool   `json:"virtual,omitempty"`
	Path     string `json:"path,omitempty"`   // udev's ID_PATH
	Bus      string `json:"bus,omitempty"`    // parent's bus: pci, platform
	Parent   string `json:"parent,omitempty"` // parent's name on the bus: 0000:3b:00.0
	NodeDesc string `json:"node_description,omitempty"`
	Ports    []Port `json:"ports,omitempty"` // by number
}

// Port is a port of an RDMA device.
type Port struct {
	Num          int          `json:"num"` // from 1
	Layer        ib.LinkLayer `json:"link_layer"`
	State        ib.PortState `json:"state"`
	Phys         ib.PhysState `json:"phys_state"`
	GUID         ib.GUID      `json:"guid"`
	LID          ib.LID       `json:"lid"`
	SMLID        ib.LID       `json:"sm_lid"`
	LMC          ib.LMC       `json:"lmc,omitempty"`
	SubnetPrefix uint64       `json:"subnet_prefix,omitempty"`
	CapMask      uint64       `json:"cap_mask,omitempty"` // PortInfo:CapabilityMask, host order
	Rate         string       `json:"rate,omitempty"`     // sysfs words: 100 Gb/sec (4X EDR)
	// PKeys are the entries of the P_Key table that are not zero, in table
	// order.
	PKeys []ib.PKey `json:"pkeys,omitempty"`
	// Netdev is the index of the network interface that RDMA netlink names
	// for the port, 0 for none. For InfiniBand ports the kernel names none:
	// Link.IBDevice and Link.Port join the two.
	Netdev int `json:"netdev,omitempty"`
	// Manager is what is known of the port's subnet manager.
	Manager Manager `json:"manager,omitzero"`
	// Remote is what is at the other end of the cable, zero where it is not known:
	// only ports below a bond are asked.
	Remote Remote `json:"remote,omitzero"`
}

// Remote is the port at the other end of a cable.
type Remote struct {
	Node   ib.GUID `json:"node"`
	Switch bool    `json:"switch,omitempty"`
	Name   string  `json:"name,omitempty"` // node description, printable
	Port   int     `json:"port"`
}

// HasPKey reports whether a partition is in the port's table with any membership,
// as ib_ipoib checks.
func (p Port) HasPKey(k ib.PKey) bool {
	return slices.ContainsFunc(p.PKeys, func(o ib.PKey) bool { return o.Base() == k.Base() })
}

// ARPHRDInfiniBand is IFLA's device type of IPoIB interfaces
// (include/uapi/linux/if_arp.h).
const ARPHRDInfiniBand = 32

// ARPHRDLoopback is that of the loopback interface.
const ARPHRDLoopback = 772

// Interface flags of include/uapi/linux/if.h that planning uses.
const (
	FlagUp       uint32 = 1 << 0
	FlagNoARP    uint32 = 1 << 7
	FlagPromisc  uint32 = 1 << 8
	FlagAllMulti uint32 = 1 << 9
	FlagMulti    uint32 = 1 << 12
	FlagLowerUp  uint32 = 1 << 16
)

// Link is a network interface.
type Link struct {
	Index    int       `json:"index"`
	Name     string    `json:"name"`
	AltNames []string  `json:"alt_names,omitempty"`
	Type     uint16    `json:"type"`              // ARPHRD
	Kind     string    `json:"kind,omitempty"`    // IFLA_INFO_KIND: ipoib, vlan ...
	Flags    uint32    `json:"flags"`             // IFF_*
	MTU      int       `json:"mtu"`               // bytes
	MaxMTU   int       `json:"max_mtu,omitempty"` // IFLA_MAX_MTU; of no use for IPoIB
	HWAddr   ib.HWAddr `json:"hw_addr"`
	PermAddr ib.HWAddr `json:"permanent_hw_addr,omitzero"`
	// Broadcast is the hardware address of all hosts, of InfiniBand links only.
	Broadcast ib.HWAddr `json:"broadcast,omitzero"`
	Oper      uint8     `json:"operstate,omitempty"` // RFC 2863, IF_OPER_*
	// CarrierDowns is how often the carrier was lost (IFLA_CARRIER_DOWN_COUNT). The kernel may
	// report a loss that ends within a second by this alone (net/core/link_watch.c).
	CarrierDowns uint32 `json:"carrier_downs,omitempty"`
	Master       int    `json:"master,omitempty"`     // index of bond, bridge or VRF
	SlaveKind    string `json:"slave_kind,omitempty"` // IFLA_INFO_SLAVE_KIND: bond, vrf ...
	Group        uint32 `json:"group,omitempty"`      // IFLA_GROUP
	// Parent is IFLA_LINK: for a P_Key child the interface it was made on, 0
	// for none. That of a P_Key child may be in another network namespace, which the
	// kernel does not report (ipoib_netlink.c has no get_link_net).
	Parent int `json:"parent,omitempty"`
	// VLAN is set for interfaces of kind vlan, macvlan and ipvlan.
	VLAN *VLAN `json:"vlan,omitempty"`
	// Bond is set for interfaces of kind bond.
	Bond *Bond `json:"bond,omitempty"`
	// VRF is set for interfaces of kind vrf.
	VRF *VRF `json:"vrf,omitempty"`
	// IPoIB is set for interfaces of kind ipoib.
	IPoIB *IPoIB `json:"ipoib,omitempty"`
	// IBDevice and Port name the RDMA port below, "" and 0 where there is
	// none. A child has its parent's.
	IBDevice string `json:"ib_device,omitempty"`
	Port     int    `json:"port,omitempty"`

	// Driver is the driver of the bus device below: mlx5_core. NetDriver is
	// udev's ID_NET_DRIVER, the word of ethtool -i: ib_ipoib, mlx4_en,
	// mlx5_core[ib_ipoib]; "" where udev does not run.
	Driver    string `json:"driver,omitempty"`
	NetDriver string `json:"net_driver,omitempty"`

	Path    string `json:"path,omitempty"` // udev's ID_PATH
	DevPath string `json:"devpath,omitempty"`
	Udev    Udev   `json:"udev,omitzero"`
	// OtherManagers names the programs that say they manage this link.
	OtherManagers []string `json:"managed_by,omitempty"`

	Addresses []Address `json:"addresses,omitempty"`
	Routes    []Route   `json:"routes,omitempty"`
	// Neighbors are the permanent entries of the neighbour table.
	Neighbors []Neighbor `json:"neighbors,omitempty"`
	// Advertised is nil where no router has advertised anything.
	Advertised *Advertised `json:"advertised,omitempty"`
	// DHCP and DHCP6 are nil where no such client of the daemon runs.
	DHCP  *DHCP `json:"dhcp,omitempty"`
	DHCP6 *DHCP `json:"dhcp6,omitempty"`
	// Router is what the last router advertisement says of DHCPv6.
	Router RouterFlags `json:"router,omitzero"`
	// Token is IFLA_INET6_TOKEN, the zero value where the link has none.
	Token netip.Addr `json:"token,omitzero"`
	// Probes are of the IPv4 addresses that the unit wants probed, by address.
	Probes []Probe `json:"probes,omitempty"`
	// Sysctl has the settings of this link that a plan uses, keyed as
	// ipv6/accept_ra (below /proc/sys/net/FAMILY/conf/LINK/). Absent means
	// not read or nonexistent.
	Sysctl map[string]string `json:"sysctl,omitempty"`
}

// RouterFlags are of a router advertisement (RFC 4861, section 4.2): DHCPv6 has addresses
// (Managed), or only other configuration. Seen says that there was one at all.
type RouterFlags struct {
	Seen    bool `json:"seen,omitempty"`
	Managed bool `json:"managed,omitempty"`
	Other   bool `json:"other,omitempty"`
}

// Up reports the administrative state.
func (l Link) Up() bool { return l.Flags&FlagUp != 0 }

// Carrier reports IFF_LOWER_UP; ib_ipoib sets it when the port is Active and
// the broadcast group of the partition is joined.
func (l Link) Carrier() bool { return l.Flags&FlagLowerUp != 0 }

// SetEach gives a field of each link its value. The list of links may be an earlier
// snapshot's, which is not changed any more: the snapshot gets its own if a value differs.
func SetEach[T any](s *Snapshot, field func(*Link) *T, value func(*Link) T, same func(a, b T) bool) {
	own := false
	for i := range s.Links {
		v := value(&s.Links[i])
		if same(v, *field(&s.Links[i])) {
			continue
		}
		if !own {
			s.Links, own = slices.Clone(s.Links), true
		}
		*field(&s.Links[i]) = v
	}
}

// SetEachPort does the same for the RDMA ports.
func SetEachPort[T comparable](s *Snapshot, field func(*Port) *T, value func(*Port) T) {
	own := false
	for i := range s.Devices {
		for j := range s.Devices[i].Ports {
			v := value(&s.Devices[i].Ports[j])
			if v == *field(&s.Devices[i].Ports[j]) {
				continue
			}
			if !own {
				s.Devices, own = slices.Clone(s.Devices), true
				for n := range s.Devices {
					s.Devices[n].Ports = slices.Clone(s.Devices[n].Ports)
				}
			}
			*field(&s.Devices[i].Ports[j]) = v
		}
	}
}

// AllHosts is the hardware address of all hosts on an InfiniBand or Ethernet link.
func (l Link) AllHosts() []byte {
	if l.Type == ARPHRDInfiniBand {
		return l.Broadcast.Bytes()
	}
	return []byte{255, 255, 255, 255, 255, 255}
}

// IsInfiniBand reports whether the link speaks IPoIB.
func (l Link) IsInfiniBand() bool { return l.Type == ARPHRDInfiniBand }

// IsChild reports whether l is a P_Key child of another IPoIB link.
func (l Link) IsChild() bool { return l.IPoIB != nil && l.Parent != 0 && l.Parent != l.Index }

// EnhancedIPoIB reports whether the driver has the queues of an IPoIB link, as mlx5 does:
// by what udev read from it ("mlx5_core[ib_ipoib]"), without udev by an mlx5 that offers no
// connected mode.
func (l Link) EnhancedIPoIB() bool {
	if l.NetDriver != "" {
		return strings.HasSuffix(l.NetDriver, "[ib_ipoib]")
	}
	return l.IPoIB != nil && l.Driver == "mlx5_core" && !l.HWAddr.SupportsConnected()
}

// IPoIB holds the attributes of IFLA_INFO_KIND ipoib.
type IPoIB struct {
	PKey ib.PKey      `json:"pkey"` // with the membership bit, as the kernel keeps it
	Mode ib.IPoIBMode `json:"mode"`
	// IgnoreUserspaceMulticast is umcast, IFLA_IPOIB_UMCAST.
	IgnoreUserspaceMulticast bool `json:"umcast,omitempty"`
}

// VLAN has the attributes of IFLA_INFO_KIND vlan; of macvlan and ipvlan only Mode and Flags.
type VLAN struct {
	ID       uint16 `json:"id"`
	Protocol uint16 `json:"protocol,omitempty"` // EtherType of the tag: 0x8100, 0x88a8
	Flags    uint32 `json:"flags,omitempty"`    // VLAN_FLAG_* of if_vlan.h, IPVLAN_F_*
	Mode     uint16 `json:"mode,omitempty"`     // MACVLAN_MODE_*, IPVLAN_MODE_* of if_link.h
	// Ingress and Egress are the maps of priorities, without those that are
	// mapped to 0.
	Ingress map[uint32]uint32 `json:"ingress,omitempty"`
	Egress  map[uint32]uint32 `json:"egress,omitempty"`
}

// Flags of a VLAN (include/uapi/linux/if_vlan.h).
const (
	VLANReorderHeader uint32 = 1 << iota
	VLANGVRP
	VLANLooseBinding
	VLANMVRP
)

// Udev is what udevd's database says of a link.
type Udev struct {
	Initialized bool   `json:"initialized,omitempty"`
	Renaming    bool   `json:"renaming,omitempty"`
	ManagedBy   string `json:"managed_by,omitempty"` // ID_NET_MANAGED_BY
	// Properties has the other udev properties, for Property= of [Match].
	Properties map[string]string `json:"properties,omitempty"`
}

// Address is an address of a link.
type Address struct {
	Prefix    netip.Prefix `json:"prefix"` // local address with the prefix length (not masked)
	Peer      netip.Prefix `json:"peer,omitzero"`
	Broadcast netip.Addr   `json:"broadcast,omitzero"`
	Label     string       `json:"label,omitempty"`
	Scope     uint8        `json:"scope,omitempty"` // RT_SCOPE_*
	Flags     uint32       `json:"flags,omitempty"` // IFA_F_*
	Metric    uint32       `json:"metric,omitempty"`
	// Valid and Preferred are lifetimes in seconds, Forever for no end.
	Valid     uint32 `json:"valid,omitempty"`
	Preferred uint32 `json:"preferred,omitempty"`
	Protocol  uint8  `json:"protocol,omitempty"` // IFA_PROTO, 0 before Linux 5.18
	// Until is the end of Valid in seconds since boot, of an address that is wanted for that
	// long, or of Preferred where Valid has no end; 0 for any other.
	Until uint64 `json:"until,omitempty"`
}

// Forever is the lifetime without an end (INFINITY_LIFE_TIME).
const Forever = ^uint32(0)

// Address flags (include/uapi/linux/if_addr.h).
const (
	AddrSecondary     uint32 = 0x01 // for IPv6: temporary
	AddrNoDAD         uint32 = 0x02
	AddrHome          uint32 = 0x10
	AddrDADFailed     uint32 = 0x08
	AddrDeprecated    uint32 = 0x20
	AddrTentative     uint32 = 0x40
	AddrPermanent     uint32 = 0x80
	AddrManageTemp    uint32 = 0x100
	AddrNoPrefixRoute uint32 = 0x200
	AddrMulticastJoin uint32 = 0x400
	AddrStablePrivacy uint32 = 0x800
	addrFlagsSettable        = AddrNoDAD | AddrHome | AddrManageTemp | AddrNoPrefixRoute | AddrMulticastJoin
)

// Route is a route over a link, or (with index 0) one that leads nowhere.
type Route struct {
	Dst      netip.Prefix `json:"dst"` // masked; 0.0.0.0/0 and ::/0 for default
	Src      netip.Prefix `json:"src,omitzero"`
	Gateway  netip.Addr   `json:"gateway,omitzero"`
	PrefSrc  netip.Addr   `json:"prefsrc,omitzero"`
	Table    uint32       `json:"table,omitempty"`
	Metric   uint32       `json:"metric,omitempty"`
	Type     uint8        `json:"type,omitempty"`     // RTN_*
	Scope    uint8        `json:"scope,omitempty"`    // RT_SCOPE_*
	Protocol uint8        `json:"protocol,omitempty"` // RTPROT_*
	TOS      uint8        `json:"tos,omitempty"`
	Pref     uint8        `json:"pref,omitempty"` // ICMPV6_ROUTER_PREF_*
	OnLink   bool         `json:"onlink,omitempty"`
	// Metrics of RTA_METRICS; 0 is unset.
	MTU              uint32 `json:"mtu,omitempty"`
	AdvMSS           uint32 `json:"advmss,omitempty"`
	HopLimit         uint32 `json:"hoplimit,omitempty"`
	InitCwnd         uint32 `json:"initcwnd,omitempty"`
	InitRwnd         uint32 `json:"initrwnd,omitempty"`
	RTOMin           uint32 `json:"rto_min_ms,omitempty"` // milliseconds
	Congestion       string `json:"congctl,omitempty"`
	QuickAck         bool   `json:"quickack,omitempty"`
	FastOpenNoCookie bool   `json:"fastopen_no_cookie,omitempty"`
	// NextHops of a multipath route; Gateway is then unset. The route is among
	// those of each link that it leads over.
	NextHops []NextHop `json:"nexthops,omitempty"`
	// NextHopID is the nexthop object over which the route leads, 0 for none. Gateway and
	// NextHops are then the kernel's copy of it, if any.
	NextHopID uint32 `json:"nexthop_id,omitempty"`
}

// NextHop is one way of a multipath route.
type NextHop struct {
	Gateway netip.Addr `json:"gateway,omitzero"`
	Ifindex int        `json:"ifindex"`
	Dev     string     `json:"dev,omitempty"`
	Weight  int        `json:"weight"` // 1 to 256
}

// Rule is a routing policy rule. Rules belong to the host, not to a link.
type Rule struct {
	Family          uint8        `json:"family"` // 4 or 6
	Priority        uint32       `json:"priority"`
	Invert          bool         `json:"invert,omitempty"`
	From            netip.Prefix `json:"from,omitzero"`
	To              netip.Prefix `json:"to,omitzero"`
	TOS             uint8        `json:"tos,omitempty"`
	FWMark          uint32       `json:"fwmark,omitempty"`
	FWMask          uint32       `json:"fwmask,omitempty"`
	IIF             string       `json:"iif,omitempty"`
	OIF             string       `json:"oif,omitempty"`
	Table           uint32       `json:"table,omitempty"`
	Type            uint8        `json:"type,omitempty"` // FR_ACT_*
	L3MDev          bool         `json:"l3mdev,omitempty"`
	IPProto         uint8        `json:"ipproto,omitempty"`
	SrcPort         [2]uint16    `json:"sport,omitzero"`
	DstPort         [2]uint16    `json:"dport,omitzero"`
	UIDRange        [2]uint32    `json:"uidrange,omitzero"`
	HasUIDRange     bool         `json:"has_uidrange,omitempty"`
	SuppressPrefix  int32        `json:"suppress_prefixlength"` // -1 for none
	SuppressIfGroup int32        `json:"suppress_ifgroup"`      // -1 for none
	Goto            uint32       `json:"goto,omitempty"`
	Protocol        uint8        `json:"protocol,omitempty"` // RTPROT_*
}

// Link finds a link by index.
func (s *Snapshot) Link(index int) (*Link, bool) {
	i, ok := slices.BinarySearchFunc(s.Links, index, func(l Link, n int) int { return l.Index - n })
	if !ok {
		return nil, false
	}
	return &s.Links[i], true
}

// LinkByName finds a link by its name or an alternative name.
func (s *Snapshot) LinkByName(name string) (*Link, bool) {
	for i := range s.Links {
		if s.Links[i].Name == name {
			return &s.Links[i], true
		}
	}
	for i := range s.Links {
		if slices.Contains(s.Links[i].AltNames, name) {
			return &s.Links[i], true
		}
	}
	return nil, false
}

// Device finds an RDMA device by name.
func (s *Snapshot) Device(name string) (*Device, bool) {
	i, ok := slices.BinarySearchFunc(s.Devices, name, func(d Device, n string) int { return strings.Compare(d.Name, n) })
	if !ok {
		return nil, false
	}
	return &s.Devices[i], true
}

// OmniPath reports whether a device is an Omni-Path one: its ports are InfiniBand
// by their link layer, and have larger MTUs and a subnet manager of their own.
func (d *Device) OmniPath() bool { return d.Protocol == "opa" }

// MaxDatagram is the largest MTU in bytes that datagram mode can have on a link.
func (s *Snapshot) MaxDatagram(l *Link) int {
	if d, ok := s.Device(l.IBDevice); ok && d.OmniPath() {
		return MaxOmniPathMTU
	}
	return MaxDatagramMTU
}

// Ports are the ports of all devices.
func (s *Snapshot) Ports() iter.Seq2[*Device, *Port] {
	return func(yield func(*Device, *Port) bool) {
		for i := range s.Devices {
			d := &s.Devices[i]
			for j := range d.Ports {
				if !yield(d, &d.Ports[j]) {
					return
				}
			}
		}
	}
}

// PortOf finds the RDMA port below a link, nil where there is none.
func (s *Snapshot) PortOf(l *Link) (*Device, *Port) {
	d, ok := s.Device(l.IBDevice)
	if !ok || l.IBDevice == "" {
		return nil, nil
	}
	for i := range d.Ports {
		if d.Ports[i].Num == l.Port {
			return d, &d.Ports[i]
		}
	}
	return d, nil
}

// Children lists the P_Key children of a link, by index.
func (s *Snapshot) Children(index int) []*Link {
	var out []*Link
	for i := range s.Links {
		if l := &s.Links[i]; l.IsChild() && l.Parent == index {
			out = append(out, l)
		}
	}
	return out
}
