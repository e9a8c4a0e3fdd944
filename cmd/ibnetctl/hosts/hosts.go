// Package hosts says which addresses the unit files give each host of a list, and
// which of them two hosts would share. It is pure: texts and units in, rows out.
package hosts

import (
	"fmt"
	"net/netip"
	"path"
	"slices"
	"strings"

	"ibnetworkd/ib"
	"ibnetworkd/units"
)

// Host is one line of the list.
type Host struct {
	Name string
	// Targets are the links to plan for. Without any there is one of which nothing is
	// known.
	Targets []Target
	// Others have the addresses that others are derived from.
	Others []units.Origin
}

// Target is a link of which the name or the GUID of the port may be known.
type Target struct {
	Link string
	GUID ib.GUID
}

// Bounds of a list.
const (
	MaxFile     = 16 << 20 // bytes
	maxWords    = 256      // of a line
	maxProblems = 100
)

// Parse reads a list: for each host a line with its name, then words. LINK, LINK=GUID
// and GUID are links to plan for, LINK=ADDRESS/LENGTH is what a link has.
func Parse(path, text string) (out []Host, problems []units.Problem) {
	bad := func(line, column int, format string, args ...any) {
		if len(problems) < maxProblems {
			problems = append(problems, units.Problem{Pos: units.Position{File: path, Line: line, Column: column}, Severity: units.Warning,
				Message: fmt.Sprintf(format, args...), Kept: "it is left out"})
		}
	}
	first := map[string]int{}
	n := 0
	for line := range strings.Lines(text) {
		n++
		line, _, _ = strings.Cut(line, "#")
		off := 0
		var h Host
		for k, w := range strings.Fields(line) {
			at := off + strings.Index(line[off:], w)
			off = at + len(w)
			switch {
			case k == 0:
				if was := first[w]; was > 0 {
					bad(n, at+1, "host %q is on line %d already", ib.Clip(w), was)
				} else if strings.ContainsAny(w, "=/:") || len(w) > 253 {
					bad(n, at+1, "%q is not a host name", ib.Clip(w))
				} else {
					h.Name, first[w] = w, n
				}
			case h.Name == "":
			case k > maxWords:
				bad(n, at+1, "more than %d words", maxWords)
			default:
				if err := h.word(w); err != nil {
					bad(n, at+1, "%v", err)
				}
			}
			if h.Name == "" || k > maxWords {
				break
			}
		}
		if h.Name != "" {
			out = append(out, h)
		}
	}
	return out, problems
}

// word adds one word of the host's line.
func (h *Host) word(w string) error {
	link, value, given := strings.Cut(w, "=")
	if !given && isGUID(w) {
		link, value, given = "", w, true
	}
	switch {
	case given && link == "" && !isGUID(value), len(link) > 15, strings.ContainsAny(link, "/:{}"):
		return fmt.Errorf("%q is not LINK, LINK=GUID, GUID or LINK=ADDRESS/LENGTH", ib.Clip(w))
	case !given:
		h.Targets = append(h.Targets, Target{Link: link})
		return nil
	case isGUID(value):
		g, err := ib.ParseGUID(value)
		if err == nil {
			h.Targets = append(h.Targets, Target{link, g})
		}
		return err
	}
	p, err := netip.ParsePrefix(value)
	if err != nil {
		return fmt.Errorf("%q is not an address with its prefix length, such as eno1=192.168.5.17/24", ib.Clip(w))
	}
	i := slices.IndexFunc(h.Others, func(o units.Origin) bool { return o.Names[0] == link })
	if i < 0 {
		i = len(h.Others)
		h.Others = append(h.Others, units.Origin{Names: []string{link}})
	}
	if p.Addr().Is4() {
		h.Others[i].IPv4 = append(h.Others[i].IPv4, p)
	}
	return nil
}

func isGUID(s string) bool {
	if strings.HasPrefix(s, "0x") {
		return true
	}
	_, err := ib.ParseGUID(s)
	return err == nil && strings.Contains(s, ":")
}

// Row is what one unit gives one link of a host.
type Row struct {
	Host      string   `json:"host"`
	Link      string   `json:"link,omitempty"`
	GUID      string   `json:"port_guid,omitempty"`
	Unit      string   `json:"unit,omitempty"` // none matches where empty
	Addresses []string `json:"addresses"`
	// Missing are addresses of the unit that cannot be derived.
	Missing []Missing `json:"missing,omitempty"`
	// OnlyIf is what [Match] of the unit asks for and the list does not contain.
	OnlyIf []string `json:"only_if,omitempty"`
	// Unless is the unit of the row before, which governs the link if its own OnlyIf is so.
	Unless string `json:"unless,omitempty"`
	// SlaveOf is the bond that has the addresses in place of the link.
	SlaveOf   string `json:"slave_of,omitempty"`
	DHCP      string `json:"dhcp,omitempty"` // the value of DHCP=
	Unmanaged bool   `json:"unmanaged,omitempty"`
}

// Missing is an address that cannot be derived.
type Missing struct {
	Address string `json:"address"` // as the unit has it
	Why     string `json:"why"`
	Next    string `json:"next,omitempty"`
}

// Collision is an address that several links would have.
type Collision struct {
	Address string   `json:"address"`
	Holders []string `json:"holders"` // HOST or HOST LINK
}

// Plan is what each link of each host gets, in the order of the list.
func Plan(set *units.Set, list []Host) (rows []Row, collisions []Collision) {
	holders := map[netip.Addr][]string{}
	var order []netip.Addr
	hold := func(a netip.Addr, who string) {
		if holders[a] == nil {
			order = append(order, a)
		}
		if !slices.Contains(holders[a], who) {
			holders[a] = append(holders[a], who)
		}
	}
	for i := range list {
		h := &list[i]
		for _, o := range h.Others {
			for _, p := range o.IPv4 {
				hold(p.Addr(), h.Name+" "+o.Names[0])
			}
		}
		targets := slices.Clone(h.Targets)
		if len(targets) == 0 {
			targets = []Target{{}}
		}
		bonds := map[string]bool{} // masters of links before
		for k := 0; k < len(targets); k++ {
			t := targets[k]
			made, addrs := h.rows(set, t, bonds[t.Link])
			rows = append(rows, made...)
			for _, a := range addrs {
				hold(a, strings.TrimSpace(h.Name+" "+t.Link))
			}
			for _, r := range made {
				if b := r.SlaveOf; b != "" && !bonds[b] {
					bonds[b] = true
					if !slices.ContainsFunc(targets, func(t Target) bool { return t.Link == b }) {
						targets = append(targets, Target{Link: b})
					}
				}
			}
		}
	}
	for _, a := range order {
		if who := holders[a]; len(who) > 1 {
			collisions = append(collisions, Collision{a.String(), who})
		}
	}
	return rows, collisions
}

// rows are what the units that may govern a link give it, in the order in which the
// daemon asks them. Of a link without a name they are those that give addresses.
func (h *Host) rows(set *units.Set, t Target, bond bool) (rows []Row, addrs []netip.Addr) {
	f := units.Facts{Host: &units.HostFacts{Hostname: h.Name, NameOnly: true}}
	if t.Link != "" {
		f.Name = units.Know(t.Link)
	}
	if !t.GUID.IsZero() {
		// An Ethernet port has none.
		f.PortGUID, f.Type, f.LinkLayer = units.Know(t.GUID), units.Know("infiniband"), units.Know(ib.LinkLayerInfiniBand)
	}
	if bond {
		f.Kind = units.Know("bond")
	}
	for _, c := range set.Candidates(&f) {
		if u := c.Unit; t.Link == "" && len(u.Addresses) == 0 && !u.Derives() && u.Network.DHCP.V == units.DHCPNo {
			continue
		}
		r, a := h.row(set, t, c)
		if n := len(rows); n > 0 && t.Link != "" {
			r.Unless = rows[n-1].Unit
		}
		rows, addrs = append(rows, r), append(addrs, a...)
	}
	if len(rows) == 0 {
		rows = []Row{t.in(h)}
	}
	return rows, addrs
}

func (t Target) in(h *Host) Row {
	r := Row{Host: h.Name, Link: t.Link, Addresses: []string{}}
	if !t.GUID.IsZero() {
		r.GUID = t.GUID.String()
	}
	return r
}

func (h *Host) row(set *units.Set, t Target, c units.Candidate) (Row, []netip.Addr) {
	r, u := t.in(h), c.Unit
	r.Unit, r.OnlyIf, r.Unmanaged = u.Path, c.Unknown, u.Unmanaged()
	if r.SlaveOf, _ = u.MasterBond(); r.Unmanaged || r.SlaveOf != "" {
		return r, nil
	}
	if u.Network.DHCP.V != units.DHCPNo {
		r.DHCP = u.Network.DHCP.V.String()
	}
	o := units.Origins{Hostname: h.Name, Link: t.Link, GUID: t.GUID, Tables: set.Tables}
	for _, x := range h.Others {
		if x.Names[0] != t.Link {
			o.Others = append(o.Others, x)
		}
	}
	list, not := u.AddressesOn(&o)
	var addrs []netip.Addr
	for _, a := range list {
		r.Addresses = append(r.Addresses, a.Address.V.String())
		addrs = append(addrs, a.Address.V.Addr())
	}
	for _, x := range not {
		r.Missing = append(r.Missing, Missing{x.Text, x.Why, x.Next})
	}
	return r, addrs
}

// Why is what there is to say of a row: what is not known, and why addresses lack.
func (r *Row) Why() string {
	var why []string
	for _, m := range r.Missing {
		if strings.HasPrefix(m.Address, "AddressTable=") {
			why = append(why, m.Why) // which names the file
		} else {
			why = append(why, m.Address+": "+m.Why)
		}
	}
	switch {
	case r.Unit == "" && r.Link == "":
		return "no unit gives a link of this host an address"
	case r.Unit == "":
		return "no unit matches"
	case r.Unmanaged:
		why = append(why, "Unmanaged=yes")
	case r.SlaveOf != "":
		why = append(why, "slave of "+r.SlaveOf)
	case r.DHCP != "":
		why = append(why, "DHCP="+r.DHCP)
	case len(r.Addresses) == 0 && len(why) == 0:
		why = append(why, "the unit gives no address")
	}
	if len(r.OnlyIf) > 0 {
		why = append(why, "not known from the list: "+strings.Join(r.OnlyIf, " "))
	}
	if r.Unless != "" {
		why = append(why, "only if "+path.Base(r.Unless)+" does not match")
	}
	return strings.Join(why, "; ")
}
