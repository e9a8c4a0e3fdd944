package card

import (
	"bytes"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"ibnetworkd/ib"
	"ibnetworkd/internal/kernel/configfs"
	"ibnetworkd/internal/kernel/dcb"
	"ibnetworkd/internal/kernel/devlink"
	"ibnetworkd/internal/kernel/rdmanl"
	"ibnetworkd/internal/kernel/rtnl"
	"ibnetworkd/internal/kernel/sysfs"
	"ibnetworkd/internal/smallfile"
	"ibnetworkd/link"
	"ibnetworkd/roce"
	"ibnetworkd/units"
)

// Observer looks at cards and changes them.
type Observer struct {
	root string
	sys  sysfs.FS
	cm   configfs.FS
	rt   *rtnl.Conn

	dcb *dcb.Conn
	dl  *devlink.Conn
	rd  *rdmanl.Conn

	// Later, if set, has a link looked at again after a time.
	Later func(index int, after time.Duration)

	last     *roce.State
	encoded  []byte
	programs []string // running, of those that matter
	scanned  time.Time
	done     map[string][]time.Time // corrections by setting and command
	index    map[string]int         // of links looked at, by name
	tables   map[tableOf]table
	// buffers are the last requests for receive buffers and what the drivers
	// made of them, by link index.
	buffers map[int]asked
	// firmware are the links whose DCBX was refused since the last look.
	firmware map[string]bool
	// refused are port types that a card did not take, by bus and device: it
	// may take them when the other port has changed.
	refused map[string][]roce.SetPortType

	// Loaded is called, from another goroutine, when a module has come that
	// operations on these links waited for, or could not be loaded.
	Loaded func(links map[int]bool)
	mu     sync.Mutex // guards loads
	loads  map[string]*load
}

// New makes an observer on the daemon's rtnetlink connection. root is the
// directory that stands for /.
func New(root string, rt *rtnl.Conn) *Observer {
	return &Observer{root: filepath.Join("/", root), sys: sysfs.New(root), cm: configfs.New(root), rt: rt, done: map[string][]time.Time{}, index: map[string]int{}, tables: map[tableOf]table{},
		buffers: map[int]asked{}, firmware: map[string]bool{},
		refused: map[string][]roce.SetPortType{}, loads: map[string]*load{}}
}

// Close closes the connections that the observer opened.
func (o *Observer) Close() error {
	var errs []error
	if o.dcb != nil {
		errs = append(errs, o.dcb.Close())
	}
	if o.dl != nil {
		errs = append(errs, o.dl.Close())
	}
	if o.rd != nil {
		errs = append(errs, o.rd.Close())
	}
	return errors.Join(errs...)
}

// Look reads what the units of links ask for and puts it into the snapshot. unit
// gives the unit of a link, nil for none, and portUnit that of a port without a
// link. again says which links to read anew, the others are as they were, and
// whether also their GID tables are read although no address changed: a table is
// hundreds of files.
func (o *Observer) Look(s *link.Snapshot, unit func(*link.Link) *units.Unit, portUnit func(*link.Device, *link.Port) *units.Unit, again func(index int) (look, all bool)) {
	st := &roce.State{Devices: map[string]roce.Device{}, Links: map[int]roce.Link{}}
	clear(o.firmware)
	any, wantsDCB, wantsDesc := false, false, false
	vlans := map[int][]*link.Link{} // by parent
	for i := range s.Links {
		if v := &s.Links[i]; v.Kind == "vlan" {
			vlans[v.Parent] = append(vlans[v.Parent], v)
		}
	}
	for i := range s.Links {
		l := &s.Links[i]
		if l.IsChild() || l.Kind == "vlan" {
			// There are many, and nothing here is theirs but the GIDs of a VLAN's
			// addresses, which are in its parent's table.
			continue
		}
		u := unit(l)
		wants := roce.Wants(s, l, u)
		for _, v := range vlans[l.Index] {
			wants = wants || roce.Wants(s, v, unit(v))
		}
		if !wants {
			continue
		}
		if u == nil {
			u = &units.Unit{} // for its VLANs alone
		}
		any = true
		// A new device begins with its driver's defaults: nobody fights there.
		if o.index[l.Name] != l.Index {
			o.Forget(l.Name)
			delete(o.buffers, o.index[l.Name])
			maps.DeleteFunc(o.tables, func(k tableOf, _ table) bool { return k.link == o.index[l.Name] })
			o.index[l.Name] = l.Index
		}
		wantsDCB = wantsDCB || roce.WantsDCB(u)
		wantsDesc = wantsDesc || u.Port.NodeDescription.Set
		if u.RoCE.WriteModprobeFile.V && st.Modprobe == "" {
			st.Modprobe = o.modprobe()
		}
		look, all := again(l.Index)
		for _, v := range vlans[l.Index] {
			lookV, allV := again(v.Index)
			look, all = look || lookV, all || allV
			st.Links[v.Index] = roce.Link{} // for roce.Changed: the table of the port is theirs too
		}
		if !look && o.reuse(s, l, st) {
			continue
		}
		o.look(s, l, vlans[l.Index], u, st, all)
	}
	for i := range s.Devices {
		d := &s.Devices[i]
		for k := range d.Ports {
			p := &d.Ports[k]
			if roce.HasLink(s, d, p) {
				continue
			}
			u := portUnit(d, p)
			if u == nil || !u.Port.Present {
				continue
			}
			any = true
			wantsDesc = wantsDesc || u.Port.NodeDescription.Set
			var q roce.Port
			if u.Port.Type.Set {
				q.Type = o.portType(d, p, u.Port.Type.V)
			}
			setPort(st, d.Name, p.Num, q)
			o.nodeDesc(st, d.Name, u)
		}
	}
	if !any {
		o.last, o.encoded, s.Card = nil, nil, nil
		// A link can lose its unit for a moment, while its RDMA device comes
		// anew: what was corrected on it counts on.
		maps.DeleteFunc(o.index, func(_ string, i int) bool { _, ok := s.Link(i); return !ok })
		clear(o.tables)
		return
	}
	st.RDMACM = o.cm.Available()
	o.runs(st, wantsDCB, wantsDesc)
	st.Fought = o.fought()
	o.last = st
	text, err := st.Encode()
	if err != nil {
		return // every field of a State has a form in JSON
	}
	// Unchanged text keeps its memory, so that equal snapshots share it.
	if !bytes.Equal(text, o.encoded) {
		o.encoded = text
	}
	s.Card = o.encoded
}

// reuse takes a link's part from the last look.
func (o *Observer) reuse(s *link.Snapshot, l *link.Link, st *roce.State) bool {
	if o.last == nil {
		return false
	}
	old, ok := o.last.Links[l.Index]
	if !ok {
		return false
	}
	st.Links[l.Index] = old
	devs, ports := roce.PortsOn(s, l)
	for i, p := range ports {
		q, ok := o.last.Devices[devs[i].Name].Ports[p.Num]
		if !ok {
			return false
		}
		// What another link of the port has read now is newer.
		now, read := st.Devices[devs[i].Name].Ports[p.Num]
		setPort(st, devs[i].Name, p.Num, q)
		if read {
			setPort(st, devs[i].Name, p.Num, now)
		}
		if x := st.Devices[devs[i].Name]; x.NodeDesc == nil {
			x.NodeDesc = o.last.Devices[devs[i].Name].NodeDesc
			st.Devices[devs[i].Name] = x
		}
	}
	return true
}

// setPort notes what was read of a port for one of its links. A bond and its
// slaves have the same port, and each asks for other things of it.
func setPort(st *roce.State, dev string, num int, p roce.Port) {
	d := st.Devices[dev]
	if d.Ports == nil {
		d.Ports = map[int]roce.Port{}
	}
	old := d.Ports[num]
	if p.Type == nil {
		p.Type = old.Type
	}
	if p.Defaults == nil {
		p.Defaults = old.Defaults
	}
	if p.GIDs == nil {
		p.GIDs = old.GIDs
	}
	d.Ports[num] = p
	st.Devices[dev] = d
}

func (o *Observer) look(s *link.Snapshot, l *link.Link, vlans []*link.Link, u *units.Unit, st *roce.State, all bool) {
	var x roce.Link
	devs, ports := roce.PortsOn(s, l)
	for i, p := range ports {
		d := devs[i]
		var q roce.Port
		if u.Port.Type.Set && i == 0 {
			q.Type = o.portType(d, p, u.Port.Type.V)
		}
		if p.Layer == ib.LinkLayerEthernet {
			q.GIDs = o.gids(d, p, append([]*link.Link{l}, vlans...), all)
		}
		if (u.RoCE.Version.Set || u.RoCE.ToS().Set) && (len(ports) == 1 || len(q.GIDs) > 0) {
			q.Defaults = o.defaults(d.Name, p.Num)
		}
		setPort(st, d.Name, p.Num, q)
		if i == 0 {
			o.nodeDesc(st, d.Name, u)
		}
	}
	if roce.WantsDCB(u) {
		x.DCB = o.lookDCB(l)
	}
	if u.RoCE.ECN.Set {
		x.ECN, _ = o.sys.ECN(l.Name)
	}
	if u.VirtualFunctions.Present || len(u.VFs) > 0 {
		x.SRIOV = o.sriov(s, l)
	}
	if u.SoftRoCE.Present {
		for i := range s.Devices {
			sd := &s.Devices[i]
			for _, sp := range sd.Ports {
				if sp.Netdev == l.Index && sd.Parent == "" {
					soft := roce.SoftDevice{Name: sd.Name, Index: sd.Index, Driver: units.SoftRXE}
					if sd.NodeType == "RNIC" { // iWARP
						soft.Driver = units.SoftSIW
					}
					x.Soft = append(x.Soft, soft)
				}
			}
		}
	}
	st.Links[l.Index] = x
}

func (o *Observer) nodeDesc(st *roce.State, dev string, u *units.Unit) {
	if !u.Port.NodeDescription.Set {
		return
	}
	if now, err := o.sys.NodeDesc(dev); err == nil {
		x := st.Devices[dev]
		x.NodeDesc = &now
		st.Devices[dev] = x
	}
}

// portType is nil for drivers that cannot change a port's type.
func (o *Observer) portType(d *link.Device, p *link.Port, want units.PortType) *roce.PortType {
	if d.Bus == "" || d.Parent == "" {
		return nil
	}
	file := o.sys.PortTypeFile(d.Bus, d.Parent, p.Num)
	if file == "" {
		return nil
	}
	pt := &roce.PortType{Bus: d.Bus, Dev: d.Parent, File: file}
	now, err := o.sys.PortType(d.Bus, d.Parent, p.Num)
	if err != nil {
		return nil
	}
	words := map[string]units.PortType{"ib": units.PortTypeIB, "eth": units.PortTypeEth, "auto": units.PortTypeAuto}
	pt.Configured, pt.Current = words[now.Configured], words[now.Current]
	if pt.Current == 0 {
		pt.Current = units.PortTypeIB
		if p.Layer == ib.LinkLayerEthernet {
			pt.Current = units.PortTypeEth
		}
	}
	// devlink is the better way where it knows the port: it answers with the
	// driver's own words.
	if open(&o.dl, devlink.Dial) == nil {
		ports, err := o.dl.Ports()
		if err == nil {
			for _, q := range ports {
				if q.Bus == d.Bus && q.Dev == d.Parent && int(q.Index) == p.Num && q.Type != devlink.TypeNotSet {
					pt.Index, pt.File = q.Index, ""
				}
			}
		}
	}
	if want != pt.Configured && want != pt.Current && open(&o.rd, rdmanl.Dial) == nil {
		if n, err := o.rd.Users(d.Index); err == nil {
			pt.Programs, pt.Connections = n.Programs, n.Connections
		}
	}
	return pt
}

// open makes a connection when it is first asked for: a family may come later, with
// its module.
func open[C any](c **C, dial func() (*C, error)) error {
	if *c != nil {
		return nil
	}
	fresh, err := dial()
	if err == nil {
		*c = fresh
	}
	return err
}

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

func (o *Observer) lookDCB(l *link.Link) *roce.DCB {
	if err := open(&o.dcb, dcb.Dial); err != nil {
		return nil
	}
	s, err := o.dcb.Get(l.Name)
	if err != nil {
		return nil
	}
	d := &roce.DCB{Driver: l.Driver, DCBX: s.DCBX}
	if s.PFC != nil {
		d.PFC, d.PFCCap, d.Delay = &s.PFC.Enabled, s.PFC.Cap, s.PFC.Delay
	}
	if s.ETS != nil {
		d.ETS = &roce.Classes{Percent: s.ETS.TxBW, Class: s.ETS.PrioTC}
		for i, t := range s.ETS.TSA {
			d.ETS.TSA[i] = roce.TSA(t)
		}
	}
	if s.Buffer != nil {
		d.Buffer = buffersOf(s.Buffer)
		if x, ok := o.buffers[l.Index]; ok && x.have == *d.Buffer {
			d.Asked = &x.want
		}
	}
	for _, a := range s.Apps {
		if a.Selector == dcb.DSCP && a.Protocol < 64 {
			if d.DSCP == nil {
				d.DSCP = map[uint8]uint8{}
			}
			// Of several entries the highest priority counts
			// (dcb_ieee_getapp_dscp_prio_mask_map's users).
			d.DSCP[uint8(a.Protocol)] = max(d.DSCP[uint8(a.Protocol)], a.Priority)
		}
	}
	if s.Trust != nil {
		d.Trust = []units.Trust{}
		for _, t := range s.Trust {
			switch t {
			case dcb.DSCP:
				d.Trust = append(d.Trust, units.TrustDSCP)
			case dcb.PCP:
				d.Trust = append(d.Trust, units.TrustPCP)
			}
		}
	}
	return d
}

func (o *Observer) sriov(s *link.Snapshot, l *link.Link) *roce.SRIOV {
	n, err := o.sys.Net(l.Name)
	if err != nil || n.SRIOV == nil {
		return nil
	}
	out := &roce.SRIOV{Bus: n.Bus.Bus, Dev: n.Bus.Name, Total: n.SRIOV.TotalVFs, Autoprobe: n.SRIOV.Autoprobe, VFs: make([]roce.VF, n.SRIOV.NumVFs)}
	for i, name := range n.SRIOV.VFs {
		v := &out.VFs[i]
		if v.Dev = name; name == "" {
			continue
		}
		b, _, err := o.sys.BusDevice(out.Bus, name)
		if err != nil {
			continue
		}
		v.Driver = b.Driver
		if strings.HasPrefix(b.Driver, "vfio") {
			v.Busy = "the driver " + b.Driver + " has it"
		}
		for k := range s.Links {
			if x := &s.Links[k]; x.Up() && strings.Contains(x.DevPath+"/", "/"+name+"/") {
				v.Busy = x.Name + " is up"
			}
		}
		for k := range s.Devices {
			if s.Devices[k].Parent == name && s.Devices[k].Bus == out.Bus {
				v.OwnGUID = s.Devices[k].NodeGUID
			}
		}
	}
	raw, err := o.rt.LinkByIndex(l.Index, true)
	if err != nil {
		return out
	}
	for i := range raw.VFs {
		if r := &raw.VFs[i]; r.Index >= 0 && r.Index < len(out.VFs) {
			told(&out.VFs[r.Index], r)
		}
	}
	return out
}

// told puts what a physical function tells of a virtual one into v.
func told(v *roce.VF, r *rtnl.VF) {
	v.NodeGUID, v.PortGUID, v.Trust, v.Spoof = r.NodeGUID, r.PortGUID, r.Trust, r.SpoofCheck
	v.MinRate, v.MaxRate, v.MAC, v.VLAN, v.QoS = uint32(max(r.MinTxRate, 0)), uint32(max(r.MaxTxRate, 0)), r.MAC, uint16(r.VLAN), uint8(r.QoS)
	v.Proto = units.VLANProtocol(r.VLANProto)
	if r.LinkState != nil {
		ls := units.VFLinkState(*r.LinkState)
		v.LinkState = &ls
	}
}

const maxModprobe = 64 << 10

func (o *Observer) modprobe() string {
	b, err := smallfile.Read(filepath.Join(o.root, roce.ModprobeFile), maxModprobe)
	if err != nil {
		return ""
	}
	return string(b)
}

// The programs that set what units here ask for too.
var (
	dcbAgents  = []string{"lldpad", "lldpd", "fcoemon"}
	descKeeper = "rdma-ndd"
)

// scanEach is how long the list of running programs is believed.
const scanEach = time.Minute

// runs notes which of the programs run that would fight with us.
func (o *Observer) runs(st *roce.State, dcb, desc bool) {
	if !dcb && !desc {
		return
	}
	if o.programs == nil || time.Since(o.scanned) > scanEach {
		o.programs, o.scanned = o.scan(), time.Now()
	}
	for _, p := range o.programs {
		switch {
		case p == descKeeper && desc:
			st.NodeDescBy = p
		case p != descKeeper && dcb:
			st.Agents = append(st.Agents, p)
		}
	}
}

func (o *Observer) scan() []string {
	out := []string{}
	es, err := os.ReadDir(filepath.Join(o.root, "proc"))
	if err != nil {
		return out
	}
	for _, e := range es {
		if _, err := strconv.Atoi(e.Name()); err != nil {
			continue
		}
		b, err := os.ReadFile(filepath.Join(o.root, "proc", e.Name(), "comm"))
		if err != nil {
			continue
		}
		c := strings.TrimSpace(string(b))
		if (slices.Contains(dcbAgents, c) || c == descKeeper) && !slices.Contains(out, c) {
			out = append(out, c)
		}
	}
	slices.Sort(out)
	return out
}

// fightMemory is how long a correction counts.
const fightMemory = 10 * time.Minute

// corrected notes that an operation was carried out.
func (o *Observer) corrected(op link.Op) {
	key := roce.FoughtKey(op)
	if key == "" {
		return
	}
	key += "\x00" + op.String()
	o.done[key] = append(o.done[key], time.Now())
}

// fought counts, for each setting, how often the same command was needed again.
func (o *Observer) fought() map[string]int {
	var out map[string]int
	for key, times := range o.done {
		times = slices.DeleteFunc(times, func(t time.Time) bool { return time.Since(t) > fightMemory })
		if len(times) == 0 {
			delete(o.done, key)
			continue
		}
		o.done[key] = times
		if len(times) < 2 {
			continue
		}
		i := strings.LastIndexByte(key, 0)
		if out == nil {
			out = map[string]int{}
		}
		out[key[:i]] = max(out[key[:i]], len(times)-1)
	}
	return out
}

// Forget begins to count anew for a link, after its administrator asked for it.
func (o *Observer) Forget(name string) { o.forget(name + "\x00") }

func (o *Observer) forget(prefix string) {
	maps.DeleteFunc(o.done, func(key string, _ []time.Time) bool { return strings.HasPrefix(key, prefix) })
}

// gone reports that a thing disappeared while it was worked on.
func gone(err error) bool {
	return errors.Is(err, unix.ENODEV) || errors.Is(err, fs.ErrNotExist)
}
