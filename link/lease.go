package link

import (
	"net/netip"
)

// DHCP is what the DHCP client of a link has reached.
type DHCP struct {
	State DHCPState `json:"state"`
	// Tries is the number of messages that no server has answered, 4 for more.
	Tries int `json:"tries,omitempty"`
	// Lease is nil where there is none that may be used.
	Lease *Lease `json:"lease,omitempty"`
	// Conflict is the last address that was declined because another host uses it.
	Conflict netip.Addr `json:"conflict,omitzero"`
	// Refused is the server that refused an address last: by DHCPNAK, or by what Refusal says
	// of DHCPv6, a status code in most cases.
	Refused netip.Addr `json:"refused,omitzero"`
	Refusal string     `json:"refusal,omitempty"`
	// Trouble is why the client cannot send or receive, empty for nothing.
	Trouble string `json:"trouble,omitempty"`
	// Drops are as of the last change of anything else, and of one bad answer a minute.
	Drops DHCPDrops `json:"drops,omitzero"`
}

// DHCPDrops counts what was received and not used.
type DHCPDrops struct {
	Malformed     int `json:"malformed,omitempty"`
	Foreign       int `json:"foreign,omitempty"`       // of another transaction, client or server
	Contradictory int `json:"contradictory,omitempty"` // an answer that cannot be used
	// Last is the reason of the last one that was malformed or contradictory, "" since one could be used.
	Last string `json:"last,omitempty"`
}

// DHCPState is a state of RFC 2131, figure 5, or one of those that it does not draw. Those
// of DHCPv6 are named after what corresponds to them.
type DHCPState string

// The states of a DHCP client.
const (
	DHCPStopped    DHCPState = "stopped"    // the link has no carrier
	DHCPKept       DHCPState = "kept"       // the lease is of before the daemon was started
	DHCPSelecting  DHCPState = "selecting"  // DHCPDISCOVER or Solicit is sent
	DHCPRequesting DHCPState = "requesting" // an offer is requested
	DHCPRebooting  DHCPState = "rebooting"  // a former lease is requested again, or confirmed
	DHCPInforming  DHCPState = "informing"  // Information-request is sent: no address is asked for
	DHCPProbing    DHCPState = "probing"    // whether another host uses the address
	DHCPBound      DHCPState = "bound"
	DHCPRenewing   DHCPState = "renewing"
	DHCPRebinding  DHCPState = "rebinding"
	DHCPWaiting    DHCPState = "waiting" // after a refusal or a conflict
)

// Lease is what a DHCP server has granted. Times are in seconds since boot
// (CLOCK_BOOTTIME).
type Lease struct {
	// Address is not set where DHCPv6 has given information alone.
	Address netip.Prefix `json:"address"`
	// Server is the address from which a DHCPv6 server has answered, and ServerID its DUID
	// in hexadecimal.
	Server   netip.Addr `json:"server"`
	ServerID string     `json:"server_id,omitempty"`
	// Gateway is the first router, not set where Routes are those of option 121.
	Gateway netip.Addr   `json:"gateway,omitzero"`
	Routes  []LeaseRoute `json:"routes,omitempty"`
	DNS     []netip.Addr `json:"dns,omitempty"`
	Domain  string       `json:"domain,omitempty"`
	Search  []string     `json:"search,omitempty"`
	NTP     []netip.Addr `json:"ntp,omitempty"`
	// Hostname is the name for the host, asked for with UseHostname=yes.
	Hostname string `json:"hostname,omitempty"`
	MTU      int    `json:"mtu,omitempty"` // bytes, 0 for none
	// Lifetime is in seconds from Granted, Forever for no end; Renew and Rebind are T1 and T2.
	// Preferred is the shorter lifetime of an IPv6 address.
	Lifetime  uint32 `json:"lifetime"`
	Preferred uint32 `json:"preferred,omitempty"`
	Granted   uint64 `json:"granted"`
	Renew     uint64 `json:"renew,omitempty"`
	Rebind    uint64 `json:"rebind,omitempty"`
}

// Until is the end of the lease, 0 for none.
func (l *Lease) Until() uint64 {
	if l.Lifetime == Forever {
		return 0
	}
	return l.Granted + uint64(l.Lifetime)
}

// preferred is for how long new connections may use the address, in seconds from Granted.
func (l *Lease) preferred() uint32 {
	if l.Address.Addr().Is4() {
		return l.Lifetime
	}
	return l.Preferred
}

// Over reports whether the lease has ended.
func (l *Lease) Over(now uint64) bool { return l.Lifetime != Forever && now >= l.Until() }

// LeaseRoute is a route that a lease has; Gateway is 0.0.0.0 for a subnet on the link.
type LeaseRoute struct {
	Dst     netip.Prefix `json:"dst"`
	Gateway netip.Addr   `json:"gateway"`
}
