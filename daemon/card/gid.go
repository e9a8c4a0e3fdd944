package card

import (
	"slices"
	"time"

	"ibnetworkd/ib"
	"ibnetworkd/internal/kernel/configfs"
	"ibnetworkd/link"
	"ibnetworkd/roce"
)

func (o *Observer) defaults(dev string, port int) *roce.Defaults {
	d, err := o.cm.Get(dev, port)
	if err != nil {
		return nil
	}
	out := &roce.Defaults{Version: 1, ToS: d.ToS}
	if d.RoCEMode == configfs.RoCEv2 {
		out.Version = 2
	}
	return out
}

// tableOf is a GID table's place.
type tableOf struct {
	link int
	dev  string
	port int
}

// table is a GID table as it was read for a link.
type table struct {
	dev   uint32 // index of the RDMA device
	state ib.PortState
	addrs []link.Address
	gids  []roce.GID
	// unsettled counts the times in a row that the table did not agree with the
	// addresses.
	unsettled int
}

// A table that does not agree with the addresses is read again after
// settleFirst, then after twice the time, settleTries times in all. One that
// never agrees is a driver's own affair.
const (
	settleFirst = 50 * time.Millisecond
	settleTries = 7
)

// gids is the table of a port for the link on it, which comes first, and its
// VLANs.
func (o *Observer) gids(d *link.Device, p *link.Port, on []*link.Link, all bool) []roce.GID {
	l := on[0]
	at := tableOf{l.Index, d.Name, p.Num}
	addrs := l.Addresses
	for _, v := range on[1:] {
		addrs = slices.Concat(addrs, v.Addresses)
	}
	if t, ok := o.tables[at]; ok && !all && t.dev == d.Index && t.state == p.State && slices.Equal(t.addrs, addrs) {
		return t.gids
	}
	t := table{d.Index, p.State, addrs, o.readGIDs(d.Name, p.Num), 0}
	if old := o.tables[at]; slices.ContainsFunc(on, func(l *link.Link) bool { return !roce.Settled(t.gids, l) }) {
		if slices.Equal(old.addrs, t.addrs) && old.dev == t.dev && old.state == t.state {
			t.unsettled = old.unsettled + 1
		}
		if o.Later != nil && t.unsettled < settleTries {
			o.Later(l.Index, settleFirst<<t.unsettled)
		}
	}
	o.tables[at] = t
	return t.gids
}

func (o *Observer) readGIDs(dev string, port int) []roce.GID {
	es, err := o.sys.GIDs(dev, port)
	if err != nil && len(es) == 0 {
		return nil
	}
	var out []roce.GID
	for _, e := range es {
		v := 0
		switch e.Type {
		case configfs.RoCEv1:
			v = 1
		case configfs.RoCEv2:
			v = 2
		default:
			continue // iWARP has a GID without a version
		}
		out = append(out, roce.GID{Index: e.Index, GID: e.GID, Version: v, Netdev: e.Netdev})
	}
	return out
}
