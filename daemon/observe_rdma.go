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
// key, on request, and, for one port, when a link of it loses its carrier: ipoib restarts a
// link whose entry changed.
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
	copied := false
	for i := range s.Devices {
		for k := range s.Devices[i].Ports {
			d, p := &s.Devices[i], &s.Devices[i].Ports[k]
			id := portID{d.Name, p.Num}
			st := o.ports[id]
			asked, active := sc.PKeys || sc.All, st.state == ib.PortActive || st.state == ib.PortActiveDefer
			if st.layer != ib.LinkLayerInfiniBand || !asked && (!active || st.read && !lost[id]) {
				continue // the table of a port that is not Active is read once it is
			}
			var keys []ib.PKey
			if w.PKeys {
				all, err := o.sys.PKeys(d.Name, p.Num)
				if err != nil {
					continue
				}
				keys = slices.DeleteFunc(all, func(k ib.PKey) bool { return k == 0 })
			} else {
				keys = o.pkeysUntil(id, need[id])
			}
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
			o.ports[id] = st
		}
	}
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
// matter are found and several empty entries follow. It always gives a new slice.
func (o *Observer) pkeysUntil(id portID, need map[ib.PKey]bool) []ib.PKey {
	dir := filepath.Join("/", o.root, "/sys/class/infiniband", id.dev, "ports", strconv.Itoa(id.num), "pkeys") + "/"
	missing := maps.Clone(need)
	var keys []ib.PKey
	var buf [32]byte
	empty := 0
	for i := range 1 << 16 {
		b, err := smallfile.ReadTo(dir+strconv.Itoa(i), buf[:])
		if err != nil {
			break
		}
		k, err := ib.ParsePKey(strings.TrimSpace(string(b)))
		if err != nil {
			continue
		}
		if k == 0 {
			if empty++; empty >= holes && len(missing) == 0 {
				break
			}
			continue
		}
		empty = 0
		keys = append(keys, k)
		delete(missing, k.Base())
	}
	return keys
}
