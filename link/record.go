package link

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/netip"
	"slices"

	"ibnetworkd/ib"
)

// RecordSchema is the version of Record's JSON form.
const RecordSchema = 1

// Record is what this program made on the system, and what it set that the kernel
// does not show. It is written before the effect, so that it never misses anything;
// an entry whose effect fails is dropped. It survives the daemon (a file under
// /run) but not the boot.
type Record struct {
	Schema int           `json:"schema"`
	Links  []*LinkRecord `json:"links,omitempty"` // by index, then name
	Rules  []Rule        `json:"rules,omitempty"`
	// Routes are those whose links are gone: without a device, or over other
	// links.
	Routes []Route `json:"routes,omitempty"`
	// NextHops are those of the units of links that are gone.
	NextHops []NextHopObject `json:"nexthops,omitempty"`
	// Kept are links that are gone whose units had KeepConfiguration=: Routes and NextHops
	// are those that outlive the link, and are its again when one of that name comes.
	Kept []*LinkRecord `json:"kept,omitempty"`
	Made []Made        `json:"made,omitempty"` // by other packages
	// Moved are P_Key children, VLANs, macvlans and ipvlans that are in other network namespaces.
	Moved []Moved `json:"moved,omitempty"`
	// Ports are the units that governed InfiniBand ports last, by GUID.
	Ports []PortRecord `json:"ports,omitempty"`
}

// LinkRecord is the part of one link.
type LinkRecord struct {
	Ifindex int    `json:"ifindex"` // 0 until a child that is being made has been seen
	Name    string `json:"name"`    // for a child: as we named it
	// Child reports that we made the interface, with the given key on the
	// given parent.
	Child  bool    `json:"child,omitempty"`
	Parent int     `json:"parent,omitempty"`
	PKey   ib.PKey `json:"pkey,omitempty"`
	// Bond and VRF report that we made the interface, a bond or VRF.
	Bond bool `json:"bond,omitempty"`
	VRF  bool `json:"vrf,omitempty"`
	// Enslaved is the bond or VRF that we put the link into, empty for none.
	Enslaved string `json:"enslaved,omitempty"`
	// Activated reports that we have brought the link up once, after which
	// ActivationPolicy=up leaves its state to the administrator.
	Activated bool `json:"activated,omitempty"`
	// Deactivated is the same for ActivationPolicy=down.
	Deactivated bool `json:"deactivated,omitempty"`
	// AskedMTU is the last datagram MTU that was asked for and accepted,
	// GotMTU the one that was seen afterwards: the kernel keeps the smaller of
	// it and the broadcast group's.
	AskedMTU  int        `json:"asked_mtu,omitempty"`
	GotMTU    int        `json:"got_mtu,omitempty"`
	Addresses []Address  `json:"addresses,omitempty"`
	Routes    []Route    `json:"routes,omitempty"`
	Neighbors []Neighbor `json:"neighbors,omitempty"`
	// NextHops are nexthop objects of the link's unit as they were set. One that is being
	// replaced is in it as it was and as it will be.
	NextHops []NextHopObject `json:"nexthops,omitempty"`
	DNS      *DNSRecord      `json:"dns,omitempty"`
	// Tokens is the token that was set; one that is being replaced is in it too.
	Tokens []netip.Addr `json:"tokens,omitempty"`
	// Advertised is the link's as of the last plan.
	Advertised *Advertised `json:"advertised,omitempty"`
	// Keep is KeepConfiguration= of the unit that last applied: what is recorded
	// stays when no unit applies any more.
	Keep bool `json:"keep,omitempty"`
}

// DNSRecord is what was last handed to systemd-resolved, and to which one.
type DNSRecord struct {
	Resolved string   `json:"resolved"`
	Servers  []string `json:"servers,omitempty"`
	Domains  []string `json:"domains,omitempty"`
	Default  Tristate `json:"default,omitempty"`
	Resolve
}

// Of finds the part of a link: by index, or for a child that has not been seen
// yet by what we asked for.
func (r *Record) Of(l *Link) *LinkRecord {
	if r == nil {
		return nil
	}
	for _, e := range r.Links {
		if e.Ifindex != 0 && e.Ifindex == l.Index {
			return e
		}
	}
	if l.Bond != nil || l.VRF != nil {
		for _, e := range r.Links {
			if e.Ifindex == 0 && e.master() && e.Name == l.Name {
				return e
			}
		}
	}
	if !l.IsChild() {
		return nil
	}
	for _, e := range r.Links {
		if e.Ifindex == 0 && e.Child && e.Parent == l.Parent && e.Name == l.Name && e.PKey.Base() == l.IPoIB.PKey.Base() {
			return e
		}
	}
	return nil
}

// MadeChild reports whether we made the interface.
func (r *Record) MadeChild(l *Link) bool {
	e := r.Of(l)
	return e != nil && e.Child
}

// MadeMaster reports whether we made the interface, a bond or VRF.
func (r *Record) MadeMaster(l *Link) bool {
	e := r.Of(l)
	return e != nil && e.master()
}

func (e *LinkRecord) master() bool { return e.Bond || e.VRF }

// until is the end with which an address was set last, 0 for none.
func (e *LinkRecord) until(a Address) uint64 {
	if e == nil {
		return 0
	}
	for _, x := range e.Addresses {
		if sameAddress(x, a) {
			return x.Until
		}
	}
	return 0
}

// Owns reports whether anything is recorded of a link that has to be removed when
// no unit applies to it any more.
func (r *Record) Owns(l *Link) bool {
	if r == nil {
		return false
	}
	if e := r.Of(l); e != nil && (e.Child || e.master() || !e.Keep && (e.Enslaved != "" || len(e.Addresses) > 0 ||
		len(e.Routes) > 0 || len(e.Neighbors) > 0 || len(e.NextHops) > 0 || e.DNS != nil || len(e.Tokens) > 0)) {
		return true
	}
	return slices.ContainsFunc(r.Links, func(e *LinkRecord) bool { return e.Child && e.Parent == l.Index }) ||
		len(r.MovedFrom(l.Index)) > 0
}

// Remember notes for links, by index, whether their units keep what is recorded of
// them (KeepConfiguration=). It reports whether anything changed.
func (r *Record) Remember(keep map[int]bool, s *Snapshot) (changed bool) {
	for i, k := range keep {
		l, ok := s.Link(i)
		if !ok {
			continue
		}
		e := r.Of(l)
		if e == nil {
			if !k {
				continue
			}
			e = r.of(TargetOf(l))
		}
		changed = changed || e.Keep != k
		e.Keep = k
	}
	return changed
}

func (r *Record) of(t Target) *LinkRecord {
	for _, e := range r.Links {
		if t.Ifindex != 0 && e.Ifindex == t.Ifindex || t.Ifindex == 0 && e.Ifindex == 0 && e.Name == t.Link {
			return e
		}
	}
	e := &LinkRecord{Ifindex: t.Ifindex, Name: t.Link}
	r.Links = append(r.Links, e)
	return e
}

// Notes reports whether the record has what an operation makes.
func (r *Record) Notes(m Made) bool { return slices.Contains(r.Made, m) }

// Intend notes what an operation is about to make. Call it, and write the
// record, before the operation.
func (r *Record) Intend(op Op) {
	if m, ok := Sent(op); ok {
		r.send(m)
		return
	}
	switch o := op.(type) {
	case Maker:
		if m, remove := o.Makes(); !remove {
			r.make(m)
		}
	case AddChild:
		e := r.of(o.On)
		*e = LinkRecord{Ifindex: o.On.Ifindex, Name: o.On.Link, Child: true, Parent: o.Parent.Ifindex, PKey: o.PKey}
	case AddBond:
		*r.of(o.On) = LinkRecord{Ifindex: o.On.Ifindex, Name: o.On.Link, Bond: true}
	case AddVRF:
		*r.of(o.On) = LinkRecord{Ifindex: o.On.Ifindex, Name: o.On.Link, VRF: true}
	case SetMaster:
		if !o.Release {
			r.of(o.On).Enslaved = o.Master.Link
		}
	case SetToken:
		if e := r.of(o.On); !o.Token.IsUnspecified() && !slices.Contains(e.Tokens, o.Token) {
			e.Tokens = append(slices.Clone(e.Tokens), o.Token)
		}
	case AddAddress:
		e := r.of(o.On)
		e.Addresses = append(removeAddress(e.Addresses, o.Address), o.Address)
	case AddRoute:
		e := r.of(o.On)
		e.Routes = append(removeRoute(e.Routes, o.Route), o.Route)
	case SetNeighbor:
		e := r.of(o.On)
		e.Neighbors = append(removeNeighbor(e.Neighbors, o.Neighbor), o.Neighbor)
	case SetNextHop:
		if e := r.of(o.On); !slices.ContainsFunc(e.NextHops, o.NextHop.equal) {
			e.NextHops = append(slices.Clone(e.NextHops), o.NextHop)
		}
	case AddRule:
		if !slices.Contains(r.Rules, o.Rule) {
			r.Rules = append(slices.Clone(r.Rules), o.Rule)
		}
	case SetUp:
		// The note that a link was activated must follow the effect: a note
		// without the effect would leave the link down for good.
		e := r.of(o.On)
		e.Activated, e.Deactivated = false, false
	}
}

// Done notes that an operation has taken effect.
func (r *Record) Done(op Op) {
	if m, ok := Sent(op); ok {
		r.send(m) // one that the same plan deleted had its place
		return
	}
	switch o := op.(type) {
	case Maker:
		m, remove := o.Makes()
		if remove {
			r.unmake(m)
		} else {
			r.make(m) // it may have been removed first by the same plan
		}
	case DelMoved:
		r.removeMoved(o.Moved.Made)
	case SetUp:
		e := r.of(o.On)
		e.Activated, e.Deactivated = o.Up, !o.Up
	case SetMaster:
		e := r.of(o.On)
		if e.Enslaved = o.Master.Link; o.Release {
			e.Enslaved = ""
		}
	case SetToken:
		if e := r.of(o.On); o.Token.IsUnspecified() {
			e.Tokens = nil
		} else {
			e.Tokens = []netip.Addr{o.Token}
		}
	case SetMTU:
		e := r.of(o.On)
		e.AskedMTU, e.GotMTU = o.MTU, 0
	case SetMode:
		e := r.of(o.On)
		e.AskedMTU, e.GotMTU = 0, 0
	case DelAddress:
		e := r.of(o.On)
		e.Addresses = removeAddress(e.Addresses, o.Address)
	case AddRoute:
		r.dropRoute(o.Route)
		r.Intend(op) // it may have been removed first by the same plan, here and below
	case SetNextHop:
		r.dropNextHop(o.NextHop.ID) // of another link
		r.Intend(op)
	case DelNextHop:
		r.dropNextHop(o.NextHop.ID)
	case AddAddress, AddRule, SetNeighbor:
		r.Intend(op)
	case DelRoute:
		e := r.of(o.On)
		e.Routes = removeRoute(e.Routes, o.Route)
		r.dropRoute(o.Route)
	case DelNeighbor:
		e := r.of(o.On)
		e.Neighbors = removeNeighbor(e.Neighbors, o.Neighbor)
	case DelRule:
		gone := func(x Rule) bool { return sameRule(x, o.Rule) }
		if !slices.ContainsFunc(r.Rules, gone) {
			// Asked for without a priority.
			gone = func(x Rule) bool { return x.Fits(o.Rule) }
		}
		r.Rules = slices.DeleteFunc(slices.Clone(r.Rules), gone)
	case DelLink:
		r.Links = slices.DeleteFunc(r.Links, func(e *LinkRecord) bool {
			if e.Ifindex == o.On.Ifindex {
				r.orphan(e)
			}
			return e.Ifindex == o.On.Ifindex
		})
	case SetDNS:
		e := r.of(o.On)
		e.DNS = nil
		if !o.Revert {
			e.DNS = &DNSRecord{Resolved: o.Resolved, Servers: o.Servers, Domains: o.Domains, Default: o.Default, Resolve: o.Resolve}
		}
	}
}

// Failed takes back the intention of an operation that had no effect.
func (r *Record) Failed(op Op) {
	if m, ok := Sent(op); ok {
		// One that was there before was not deleted.
		r.Moved = slices.DeleteFunc(slices.Clone(r.Moved), func(x Moved) bool { return x.Made == m.Made && x.Index == 0 })
		return
	}
	switch o := op.(type) {
	case Maker:
		if m, remove := o.Makes(); !remove {
			r.unmake(m)
		}
	case AddChild:
		r.Links = slices.DeleteFunc(r.Links, func(e *LinkRecord) bool { return e.Ifindex == 0 && e.Name == o.On.Link })
	case AddBond, AddVRF:
		r.Links = slices.DeleteFunc(r.Links, func(e *LinkRecord) bool { return e.Ifindex == 0 && e.master() && e.Name == op.Target().Link })
	case SetMaster:
		if !o.Release {
			r.of(o.On).Enslaved = ""
		}
	case SetToken:
		e := r.of(o.On)
		e.Tokens = slices.DeleteFunc(slices.Clone(e.Tokens), func(t netip.Addr) bool { return t == o.Token })
	case AddAddress:
		e := r.of(o.On)
		e.Addresses = removeAddress(e.Addresses, o.Address)
		if o.Replace { // it has another end than was asked for
			o.Address.Until = 0
			e.Addresses = append(e.Addresses, o.Address)
		}
	case AddRoute:
		if !o.Replace {
			e := r.of(o.On)
			e.Routes = removeRoute(e.Routes, o.Route)
		}
	case SetNeighbor:
		if !o.Replace {
			e := r.of(o.On)
			e.Neighbors = removeNeighbor(e.Neighbors, o.Neighbor)
		}
	case SetNextHop:
		r.failedNextHop(o)
	case AddRule:
		r.Rules = slices.DeleteFunc(slices.Clone(r.Rules), func(x Rule) bool { return x == o.Rule })
	}
}

func (r *Record) make(m Made) {
	if !r.Notes(m) {
		r.Made = append(slices.Clone(r.Made), m)
	}
}

func (r *Record) unmake(m Made) {
	r.Made = slices.DeleteFunc(slices.Clone(r.Made), func(x Made) bool { return x == m })
}

// Reconcile updates the record from a new snapshot: what is gone is forgotten,
// because what replaces it belongs to another program; children get their index
// and the MTU that resulted from a request. It reports whether anything changed.
// The snapshot must not be older than the last operation, and must have the routes,
// rules, neighbours and nexthops if the record has some.
func (r *Record) Reconcile(s *Snapshot) (changed bool) {
	for i := range s.Links {
		l := &s.Links[i]
		e := r.Of(l)
		if e == nil {
			continue
		}
		if e.Ifindex == 0 {
			e.Ifindex, changed = l.Index, true
		}
		if m, _ := s.Link(l.Master); e.Enslaved != "" && (m == nil || m.Name != e.Enslaved) {
			e.Enslaved, changed = "", true
		}
		if gone := func(t netip.Addr) bool { return t != l.Token }; slices.ContainsFunc(e.Tokens, gone) {
			e.Tokens, changed = slices.DeleteFunc(slices.Clone(e.Tokens), gone), true
		}
		if gone := func(a Address) bool {
			return !slices.ContainsFunc(l.Addresses, func(x Address) bool { return sameAddress(x, a) })
		}; slices.ContainsFunc(e.Addresses, gone) {
			e.Addresses, changed = slices.DeleteFunc(slices.Clone(e.Addresses), gone), true
		}
		if gone := func(o Route) bool { return !s.hasRoute(l, o) }; slices.ContainsFunc(e.Routes, gone) {
			e.Routes, changed = slices.DeleteFunc(slices.Clone(e.Routes), gone), true
		}
		if gone := func(n Neighbor) bool { return !slices.ContainsFunc(l.Neighbors, n.sameIP) }; slices.ContainsFunc(e.Neighbors, gone) {
			e.Neighbors, changed = slices.DeleteFunc(slices.Clone(e.Neighbors), gone), true
		}
		if e.AskedMTU != 0 && e.GotMTU != l.MTU && l.IPoIB != nil && l.IPoIB.Mode == ib.ModeDatagram {
			if e.GotMTU == 0 {
				e.GotMTU, changed = l.MTU, true
			} else {
				// The group's MTU has changed: ask again, because a group MTU
				// equal to what was asked makes the kernel forget the request.
				e.AskedMTU, e.GotMTU, changed = 0, 0, true
			}
		}
	}
	if gone := func(o Rule) bool { return !slices.ContainsFunc(s.Rules, o.Fits) }; slices.ContainsFunc(r.Rules, gone) {
		r.Rules, changed = slices.DeleteFunc(slices.Clone(r.Rules), gone), true
	}
	changed = r.reconcileMoved(s) || changed
	if gone := func(m Made) bool {
		_, parent := s.Link(m.On)
		_, isLink := s.LinkByName(m.Name)
		_, isDevice := s.Device(m.Name)
		return !parent || !isLink && !isDevice
	}; slices.ContainsFunc(r.Made, gone) {
		r.Made, changed = slices.DeleteFunc(slices.Clone(r.Made), gone), true
	}
	n := len(r.Links)
	r.Links = slices.DeleteFunc(r.Links, func(e *LinkRecord) bool {
		_, ok := s.Link(e.Ifindex)
		if !ok {
			r.orphan(e)
		}
		return !ok
	})
	if gone := func(o Route) bool { return !s.hasAnywhere(o) }; slices.ContainsFunc(r.Routes, gone) {
		r.Routes, changed = slices.DeleteFunc(slices.Clone(r.Routes), gone), true
	}
	changed = r.reconcileKept(s) || changed
	changed = r.reconcileNextHops(s) || changed
	slices.SortFunc(r.Links, func(a, b *LinkRecord) int { return a.Ifindex - b.Ifindex })
	return changed || n != len(r.Links)
}

// hasRoute tries the link first; a route without a device, or over several links,
// is listed with another.
func (s *Snapshot) hasRoute(l *Link, r Route) bool {
	return slices.ContainsFunc(l.Routes, func(x Route) bool { return sameRoute(x, r) }) || s.hasAnywhere(r)
}

func (s *Snapshot) hasAnywhere(r Route) bool {
	l, _ := s.linkWith(r)
	return l != nil
}

// linkWith is the first link that has a route with the key of one, and that route; nil
// for none.
func (s *Snapshot) linkWith(r Route) (*Link, Route) {
	for i := range s.Links {
		for _, x := range s.Links[i].Routes {
			if sameRoute(x, r) {
				return &s.Links[i], x
			}
		}
	}
	return nil, Route{}
}

// Clone is a deep copy.
func (r *Record) Clone() *Record {
	out := &Record{Schema: RecordSchema}
	if r == nil {
		return out
	}
	out.Rules, out.Made, out.Routes, out.Ports = slices.Clone(r.Rules), slices.Clone(r.Made), slices.Clone(r.Routes), slices.Clone(r.Ports)
	out.NextHops, out.Moved = slices.Clone(r.NextHops), slices.Clone(r.Moved)
	for _, e := range r.Links {
		out.Links = append(out.Links, e.clone())
	}
	for _, e := range r.Kept {
		out.Kept = append(out.Kept, e.clone())
	}
	return out
}

func (e *LinkRecord) clone() *LinkRecord {
	c := *e
	c.Addresses, c.Routes, c.Neighbors = slices.Clone(e.Addresses), slices.Clone(e.Routes), slices.Clone(e.Neighbors)
	c.NextHops, c.Tokens = slices.Clone(e.NextHops), slices.Clone(e.Tokens)
	return &c
}

// Encode is the record's file.
func (r *Record) Encode() ([]byte, error) {
	var b bytes.Buffer
	err := r.EncodeTo(&b)
	return b.Bytes(), err
}

// EncodeTo writes the record's file.
func (r *Record) EncodeTo(w io.Writer) error {
	r.Schema = RecordSchema
	return json.NewEncoder(w).Encode(r)
}

// maxRecord bounds what DecodeRecord accepts, in bytes. 10,000 links with ten
// addresses and routes each stay below it.
const maxRecord = 64 << 20

// DecodeRecord decodes a record's file. A file of another schema is an error: the
// caller starts with an empty record, and no longer owns what an older version made.
func DecodeRecord(b []byte) (*Record, error) {
	if len(b) > maxRecord {
		return nil, fmt.Errorf("record has %d bytes, more than %d", len(b), maxRecord)
	}
	var file struct {
		Record
		Away []struct { // before 0.1: what was moved for units
			Moved
			ID int `json:"id"`
		} `json:"away"`
	}
	if err := json.Unmarshal(b, &file); err != nil {
		return nil, fmt.Errorf("record: %w", err)
	}
	r := &file.Record
	for _, m := range file.Away {
		m.NSID = m.ID
		r.Moved = append(r.Moved, m.Moved)
	}
	if r.Schema != RecordSchema {
		return nil, fmt.Errorf("record has schema %d, this version writes %d", r.Schema, RecordSchema)
	}
	none := func(e *LinkRecord) bool { return e == nil }
	r.Links, r.Kept = slices.DeleteFunc(r.Links, none), slices.DeleteFunc(r.Kept, none)
	return r, nil
}

// sameAddress compares what identifies an address in the kernel: for IPv4 the
// address, its length and its peer, for IPv6 the address alone.
func sameAddress(a, b Address) bool {
	if a.Prefix.Addr() != b.Prefix.Addr() {
		return false
	}
	if a.Prefix.Addr().Is6() {
		return true
	}
	return a.Prefix.Bits() == b.Prefix.Bits() && a.Peer == b.Peer
}

func removeAddress(list []Address, a Address) []Address {
	return slices.DeleteFunc(slices.Clone(list), func(x Address) bool { return sameAddress(x, a) })
}

// sameRoute compares what identifies a route in the kernel.
func sameRoute(a, b Route) bool {
	if a.Dst != b.Dst || a.Table != b.Table || a.Metric != b.Metric || a.TOS != b.TOS {
		return false
	}
	// Two IPv6 routes that differ in their source or gateway live beside each
	// other.
	return a.Src == b.Src
}

func removeRoute(list []Route, r Route) []Route {
	return slices.DeleteFunc(slices.Clone(list), func(x Route) bool { return sameRoute(x, r) })
}
