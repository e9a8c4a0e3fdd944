package daemon

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"ibnetworkd/ib"
	"ibnetworkd/internal/kernel/rdmanl"
	"ibnetworkd/internal/smallfile"
	"ibnetworkd/link"
)

type portID struct {
	dev string
	num int
}

// staticPort is what RDMA netlink does not tell of a port.
type staticPort struct {
	index  uint32 // of the device, to see that it is the same one
	layer  ib.LinkLayer
	guid   ib.GUID
	rate   string
	state  ib.PortState // when rate and pkeys were read
	lid    ib.LID
	pkeys  []ib.PKey
	at     []int  // the entry of each of pkeys in the partition table
	turn   int    // which of them was compared last
	prefix uint64 // of the subnet
	read   bool
}

// joinPorts finds the links whose RDMA port came or went after they did, as that
// of an Ethernet card does, and has them read.
func (o *Observer) joinPorts(s *link.Snapshot, sc *Scope) {
	at := map[int]portID{}
	for i := range s.Devices {
		for _, p := range s.Devices[i].Ports {
			if _, ok := at[p.Netdev]; p.Netdev != 0 && (!ok || s.Devices[i].Parent != "") {
				at[p.Netdev] = portID{s.Devices[i].Name, p.Num}
			}
		}
	}
	for i := range s.Links {
		l := &s.Links[i]
		id, ok := at[l.Index]
		_, alive := s.Device(l.IBDevice)
		if ok && (l.IBDevice != id.dev || l.Port != id.num) || !ok && l.IBDevice != "" && !alive {
			delete(o.static, l.Index)
			sc.Join(Scope{Links: map[int]bool{l.Index: true}})
		}
	}
}

func (o *Observer) observeRDMA(s *link.Snapshot) error {
	if o.rd == nil {
		rd, err := rdmanl.Dial()
		if errors.Is(err, rdmanl.ErrNoRDMA) {
			s.Devices = nil
			return nil
		}
		if err != nil {
			return fmt.Errorf("open RDMA netlink: %w", err)
		}
		o.rd = rd
	}
	devs, err := o.rd.Devices()
	if errors.Is(err, rdmanl.ErrNoRDMA) {
		s.Devices = nil
		return nil
	}
	if err != nil {
		return fmt.Errorf("list RDMA devices: %w", err)
	}
	ports, err := o.rd.Ports(devs)
	if err != nil && len(ports) == 0 && !errors.Is(err, rdmanl.ErrNoRDMA) {
		return fmt.Errorf("read RDMA ports: %w", err)
	}
	if o.last == nil || len(devs) != len(s.Devices) {
		// The mode is changed only while there is no other network namespace: then devices go
		// to one (rdma_compatdev_set).
		sys, err := o.rd.System()
		o.host.RDMAExclusive = err == nil && !sys.NetNSShared
		s.Host = o.host
	}
	out := make([]link.Device, 0, len(devs))
	for _, d := range devs {
		x, ok := o.devs[d.Name]
		if !ok || x.Index != d.Index {
			x = o.device(d)
			o.devs[d.Name] = x
		}
		x.Ports = nil
		for _, p := range ports {
			if p.DevIndex == d.Index {
				x.Ports = append(x.Ports, o.port(d, p))
			}
		}
		slices.SortFunc(x.Ports, func(a, b link.Port) int { return a.Num - b.Num })
		out = append(out, x)
	}
	slices.SortFunc(out, func(a, b link.Device) int { return strings.Compare(a.Name, b.Name) })
	s.Devices = out
	for id := range o.ports {
		if _, ok := s.Device(id.dev); !ok {
			delete(o.ports, id)
			delete(o.devs, id.dev)
		}
	}
	return nil
}

func (o *Observer) device(d rdmanl.Device) link.Device {
	x := link.Device{Name: d.Name, Index: d.Index, NodeGUID: d.NodeGUID, SysGUID: d.SysImageGUID, Firmware: d.FWVersion,
		Protocol: d.Protocol, NodeType: map[uint8]string{1: "CA", 2: "switch", 3: "router", 4: "RNIC"}[d.NodeType]}
	// A device that goes away while it is read is one without details.
	dir := "/sys/class/infiniband/" + d.Name
	x.BoardID, x.NodeDesc = o.text(dir+"/board_id"), o.text(dir+"/node_desc")
	if parent := o.parentOf("infiniband", d.Name); parent != "" {
		x.Virtual = o.exists(dir + "/device/physfn")
		x.Parent, x.Bus, x.Driver = path.Base(parent), o.base(dir+"/device/subsystem"), o.base(dir+"/device/driver")
		if o.host.Udev {
			if r, err := o.udev.Device(x.Bus, x.Parent); err == nil {
				x.Path = r.Get("ID_PATH")
			}
		}
		if x.Path == "" && x.Bus != "" {
			x.Path = x.Bus + "-" + x.Parent
		}
	}
	return x
}

func (o *Observer) port(d rdmanl.Device, p rdmanl.Port) link.Port {
	id := portID{d.Name, p.Port}
	st, ok := o.ports[id]
	if !ok || st.index != d.Index || st.guid == 0 && st.layer != ib.LinkLayerEthernet {
		st.layer, st.guid, st.rate = o.portFacts(d.Name, p.Port)
		st.index, st.state, st.read = d.Index, p.State, false
	}
	if st.state != p.State {
		// The rate is negotiated again, and the keys are granted again.
		st.state, st.read = p.State, false
		if r := o.text(fmt.Sprintf("/sys/class/infiniband/%s/ports/%d/rate", d.Name, p.Port)); r != "" {
			st.rate = r
		}
	}
	if st.lid != p.LID {
		st.lid, st.read = p.LID, false
	}
	o.ports[id] = st
	return link.Port{
		Num: p.Port, Layer: st.layer, State: p.State, Phys: p.Phys, GUID: st.guid, LID: p.LID, SMLID: p.SMLID, LMC: p.LMC,
		SubnetPrefix: cmp.Or(st.prefix, p.SubnetPrefix), CapMask: p.CapFlags, Rate: st.rate, PKeys: st.pkeys, Netdev: p.NetdevIndex,
	}
}

// observePKeys reads what of InfiniBand ports changes without an event: the partition
// table, a file for each entry, and the subnet prefix. User space learns of
// IB_EVENT_PKEY_CHANGE from uverbs alone, for which a driver's context would have to
// be opened. So tables are read at long intervals (slowTables), while a link waits for a
// key, on request, and, for one port, when a link of it loses its carrier or an entry that
// a link uses has another key: ipoib restarts a link only if the entry has another index
// (ipoib_ib.c, update_child_pkey), so another membership in the same entry has no event.
func (o *Observer) observePKeys(s *link.Snapshot, sc Scope, w Needs) {
	need, lost := map[portID]map[ib.PKey]bool{}, map[portID]bool{}
	for i := range s.Links {
		l := &s.Links[i]
		if l.IPoIB == nil || l.IBDevice == "" {
			continue
		}
		id := portID{l.IBDevice, l.Port}
		if need[id] == nil {
			need[id] = map[ib.PKey]bool{}
		}
		need[id][l.IPoIB.PKey.Base()] = true
		lost[id] = lost[id] || sc.KeysOf[l.Index]
	}
	for _, m := range w.Moved {
		if l, ok := s.Link(m.On); ok && m.PKey != 0 && need[portID{l.IBDevice, l.Port}] != nil {
			need[portID{l.IBDevice, l.Port}][m.PKey.Base()] = true
		}
	}
	copied := false
	for i := range s.Devices {
		for k := range s.Devices[i].Ports {
			d, p := &s.Devices[i], &s.Devices[i].Ports[k]
			id := portID{d.Name, p.Num}
			st := o.ports[id]
			asked, active := sc.PKeys || sc.All, st.state == ib.PortActive || st.state == ib.PortActiveDefer
			if st.layer != ib.LinkLayerInfiniBand || !asked && !active {
				continue // the table of a port that is not Active is read once it is
			}
			if !asked && st.read && !lost[id] {
				if !sc.Entries {
					continue
				}
				if changed := o.entryChanged(id, &st, need[id]); !changed {
					o.ports[id] = st
					continue
				}
			}
			keys, at := o.pkeysUntil(id, need[id], w.PKeys)
			st.read = true
			prefix := o.subnetPrefix(id)
			if !slices.Equal(p.PKeys, keys) || prefix != 0 && p.SubnetPrefix != prefix {
				if !copied && !sc.All && !sc.RDMA && !sc.PKeys {
					// The devices are still the last snapshot's.
					s.Devices = slices.Clone(s.Devices)
					for n := range s.Devices {
						s.Devices[n].Ports = slices.Clone(s.Devices[n].Ports)
					}
					copied = true
				}
				st.pkeys, st.prefix = keys, prefix
				p = &s.Devices[i].Ports[k]
				p.PKeys, p.SubnetPrefix = keys, cmp.Or(prefix, p.SubnetPrefix)
			}
			st.at = at
			o.ports[id] = st
		}
	}
}

// entriesAtOnce bounds the entries that are compared in one observation: with some drivers
// each is a firmware command.
const entriesAtOnce = 16

// entryChanged reports whether one of the entries whose keys are needed has another key
// than when the table was read. Of many it compares others each time.
func (o *Observer) entryChanged(id portID, st *staticPort, need map[ib.PKey]bool) bool {
	var used []int
	for i, k := range st.pkeys {
		if need[k.Base()] {
			used = append(used, i)
		}
	}
	for range min(len(used), entriesAtOnce) {
		st.turn = (st.turn + 1) % len(used)
		i := used[st.turn]
		if k, ok, err := o.tableEntry(o.tableDir(id), st.at[i]); err == nil && ok && k != st.pkeys[i] {
			return true
		}
	}
	return false
}

// subnetPrefix is that of the port's first GID, 0 where it cannot be read. RDMA
// netlink has none for many drivers.
func (o *Observer) subnetPrefix(id portID) uint64 {
	g, err := ib.ParseGID(o.text(fmt.Sprintf("/sys/class/infiniband/%s/ports/%d/gids/0", id.dev, id.num)))
	if err != nil {
		return 0
	}
	return g.Prefix()
}

// holes is how many empty entries of a partition table in a row count as its end:
// a key that was taken back leaves its entry empty.
const holes = 8

// pkeysUntil reads a partition table from its beginning until all keys that
// matter are found and several empty entries follow, or whole. It always gives new
// slices: the keys, and the entry of each.
func (o *Observer) pkeysUntil(id portID, need map[ib.PKey]bool, whole bool) (keys []ib.PKey, at []int) {
	dir := o.tableDir(id)
	missing := maps.Clone(need)
	empty := 0
	for i := range 1 << 16 {
		k, ok, err := o.tableEntry(dir, i)
		switch {
		case err != nil:
			return keys, at
		case !ok:
			continue
		case k == 0:
			if empty++; empty >= holes && len(missing) == 0 && !whole {
				return keys, at
			}
			continue
		}
		empty = 0
		keys, at = append(keys, k), append(at, i)
		delete(missing, k.Base())
	}
	return keys, at
}

func (o *Observer) tableDir(id portID) string {
	return filepath.Join("/", o.root, "/sys/class/infiniband", id.dev, "ports", strconv.Itoa(id.num), "pkeys") + "/"
}

// tableEntry reads an entry of a partition table; ok is false if it has no key.
func (o *Observer) tableEntry(dir string, entry int) (k ib.PKey, ok bool, err error) {
	var buf [32]byte
	b, err := smallfile.ReadTo(dir+strconv.Itoa(entry), buf[:])
	if err != nil {
		return 0, false, err
	}
	k, err = ib.ParsePKey(strings.TrimSpace(string(b)))
	return k, err == nil, nil
}
