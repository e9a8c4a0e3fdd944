package card

import (
	"errors"
	"io/fs"
	"maps"
	"os/exec"
	"path/filepath"
	"reflect"
	"time"

	"golang.org/x/sys/unix"

	"ibnetworkd/ib"
	"ibnetworkd/internal/kernel/configfs"
	"ibnetworkd/internal/kernel/dcb"
	"ibnetworkd/internal/kernel/devlink"
	"ibnetworkd/internal/kernel/ethtool"
	"ibnetworkd/internal/kernel/modules"
	"ibnetworkd/internal/kernel/rdmanl"
	"ibnetworkd/internal/kernel/rtnl"
	"ibnetworkd/internal/kernel/sysfs"
	"ibnetworkd/link"
	"ibnetworkd/roce"
	"ibnetworkd/units"
)

// Config is what an Observer uses of the process; what is nil is done without.
type Config struct {
	// Modules loads the drivers of soft devices.
	Modules modules.Loader
	// Helper gives the process that calls Serve: slow operations are then carried out
	// by one for each card.
	Helper func() *exec.Cmd
	// Later has a link read again after a time.
	Later func(index int, after time.Duration)
	// Ended is called, from any goroutine, when Finished has something new.
	Ended func()
}

// Observer reads cards and changes them.
type Observer struct {
	root string
	sys  sysfs.FS
	cm   configfs.FS
	rt   *rtnl.Conn

	dcb *dcb.Conn
	dl  *devlink.Conn
	rd  *rdmanl.Conn
	et  *ethtool.Conn

	cfg Config

	last     *roce.State
	programs []string // running, of those that matter
	scanned  time.Time
	done     map[string][]time.Time // corrections by setting and command
	index    map[string]int         // of links read, by name
	tables   map[tableOf]table
	atStart  uint32 // highest index of the RDMA devices of the first observation; the kernel numbers them upwards
	moves    map[movedTo]moved
	// buffers are the last requests for receive buffers and what the drivers
	// made of them, by link index.
	buffers map[int]asked
	// queues are the last requests for settings of queues, by link index.
	queues map[int]roce.Answers
	// again is when queues that could not be read are read again, by link index.
	again map[int]time.Time
	// firmware are the links whose DCBX was refused since the last observation.
	firmware map[string]bool

	snap    *link.Snapshot // of the last observation, for the cards of links
	workers *workers
	refused refusals
}

// New makes an observer on the daemon's rtnetlink connection. root is the
// directory that stands for /.
func New(root string, rt *rtnl.Conn, cfg Config) *Observer {
	sys := sysfs.New(root)
	o := &Observer{cfg: cfg, root: filepath.Join("/", root), sys: sys, cm: configfs.New(root), rt: rt,
		done: map[string][]time.Time{}, index: map[string]int{}, tables: map[tableOf]table{}, moves: map[movedTo]moved{},
		buffers: map[int]asked{}, queues: map[int]roce.Answers{}, again: map[int]time.Time{}, firmware: map[string]bool{}}
	o.workers = newWorkers(func() runner {
		var r runner = newExecutor(sys, cfg.Modules)
		if cfg.Helper != nil {
			r = &helper{command: cfg.Helper, load: cfg.Modules.Load}
		}
		return portTypes{r, &o.refused}
	})
	if cfg.Ended != nil {
		o.workers.ended = cfg.Ended
	}
	return o
}

// Close closes the connections that the observer opened. It does not wait for the
// workers: a driver may take minutes.
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
	if o.et != nil {
		errs = append(errs, o.et.Close())
	}
	return errors.Join(errs...)
}

// Observe reads what the units of links ask for and puts it into the snapshot. portUnit gives
// the unit of a port without a link. again says which links to read again, and whether also
// their GID tables, hundreds of files, although no address changed; the others stay.
func (o *Observer) Observe(s *link.Snapshot, unit func(*link.Link) *units.Unit, portUnit func(*link.Device, *link.Port) *units.Unit,
	again func(index int) (read, all bool)) {
	st := &roce.State{Devices: map[string]roce.Device{}, Links: map[int]roce.Link{}}
	clear(o.firmware)
	if o.snap == nil {
		o.atStart = 0
		for i := range s.Devices {
			o.atStart = max(o.atStart, s.Devices[i].Index)
		}
	}
	o.snap = s
	o.refused.keep(func(at cardPort) (units.PortType, bool) { return askedType(s, at, unit, portUnit) })
	any, wantsDCB, wantsDesc := false, false, false
	vlans := map[int][]*link.Link{} // by parent
	for i := range s.Links {
		if v := &s.Links[i]; link.IsVLAN(v.Kind) {
			vlans[v.Parent] = append(vlans[v.Parent], v)
		}
	}
	for i := range s.Links {
		l := &s.Links[i]
		if l.IsChild() || link.IsVLAN(l.Kind) {
			// There are many, and nothing here is theirs but the GIDs of a VLAN's
			// addresses, which are in its parent's table.
			continue
		}
		u := unit(l)
		wants := roce.NeedsLink(s, l, u)
		for _, v := range vlans[l.Index] {
			wants = wants || roce.NeedsLink(s, v, unit(v))
		}
		if !wants {
			continue
		}
		if u == nil {
			u = &units.Unit{} // for its VLANs alone
		}
		any = true
		if o.index[l.Name] != l.Index {
			o.replaced(l)
		}
		needs := roce.NeedsOf(u)
		wantsDCB = wantsDCB || needs.DCB
		wantsDesc = wantsDesc || needs.NodeDesc
		if needs.Modprobe && st.Modprobe == "" {
			st.Modprobe = o.modprobe()
		}
		read, all := again(l.Index)
		for _, v := range vlans[l.Index] {
			readV, allV := again(v.Index)
			read, all = read || readV, all || allV
			st.Links[v.Index] = roce.Link{} // for roce.Changed: the table of the port is theirs too
		}
		want := indexesOf(append([]*link.Link{l}, vlans[l.Index]...), unit)
		if !read && o.reuse(s, l, st) {
			continue
		}
		o.read(s, l, vlans[l.Index], u, st, want, all)
	}
	for d, p := range s.Ports() {
		if roce.HasLink(s, d, p) {
			continue
		}
		u := portUnit(d, p)
		if !roce.NeedsPort(u) {
			continue
		}
		any = true
		needs := roce.NeedsOf(u)
		wantsDesc = wantsDesc || needs.NodeDesc
		var q roce.Port
		if needs.PortType {
			busy := o.workers.working(cardOf(s, link.Target{IBDevice: d.Name, Port: p.Num}))
			q.Type = o.typeOf(busy, d, p, u.Port.Type.V)
		}
		setPort(st, d.Name, p.Num, q)
		if needs.NodeDesc {
			o.nodeDesc(st, d.Name)
		}
	}
	if !any {
		o.last, s.Card = nil, nil
		// A link can lose its unit for a moment, while its RDMA device comes
		// again: what was corrected on it counts on.
		maps.DeleteFunc(o.index, func(_ string, i int) bool { _, ok := s.Link(i); return !ok })
		clear(o.tables)
		return
	}
	st.RDMACM = o.cm.Available()
	o.runs(st, wantsDCB, wantsDesc)
	st.Contested = o.contested()
	// An unchanged state keeps its memory, so that equal snapshots share it.
	if !reflect.DeepEqual(st, o.last) {
		o.last = st
	}
	s.Card = o.last
}

// replaced forgets what was known of the device that had the name of a link before: a new
// one begins with its driver's defaults, and nothing is contested there.
func (o *Observer) replaced(l *link.Link) {
	old := o.index[l.Name]
	o.Forget(l.Name)
	delete(o.buffers, old)
	delete(o.queues, old)
	delete(o.again, old)
	maps.DeleteFunc(o.tables, func(k tableOf, _ table) bool { return k.link == old })
	o.index[l.Name] = l.Index
}

// reuse takes a link's part from the last observation.
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
		p.GIDs, p.GIDSlots, p.GIDUsers, p.GIDStuck, p.GIDPending = old.GIDs, old.GIDSlots, old.GIDUsers, old.GIDStuck, old.GIDPending
	}
	d.Ports[num] = p
	st.Devices[dev] = d
}

// read reads what a unit asks for of a link and its ports.
func (o *Observer) read(s *link.Snapshot, l *link.Link, vlans []*link.Link, u *units.Unit, st *roce.State,
	want []int, all bool) {
	var x roce.Link
	needs := roce.NeedsOf(u)
	devs, ports := roce.PortsOn(s, l)
	// What a worker changes is read again when it is done: a plan of a state that
	// is on its way to another would only be in its way.
	busy := o.last != nil && o.workers.working(cardOf(s, link.TargetOf(l)))
	for i, p := range ports {
		d := devs[i]
		var q roce.Port
		if needs.PortType && i == 0 {
			q.Type = o.typeOf(busy, d, p, u.Port.Type.V)
		}
		if p.Layer == ib.LinkLayerEthernet {
			t := o.gids(d, p, append([]*link.Link{l}, vlans...), want, all)
			t.Type = q.Type
			q = t
		}
		if needs.Defaults && (len(ports) == 1 || len(q.GIDs) > 0) {
			q.Defaults = o.defaults(d.Name, p.Num)
		}
		setPort(st, d.Name, p.Num, q)
		if needs.NodeDesc && i == 0 {
			o.nodeDesc(st, d.Name)
		}
	}
	if needs.DCB {
		x.DCB = o.observeDCB(l)
	}
	if needs.ECN {
		x.ECN, _ = o.sys.ECN(l.Name)
	}
	switch {
	case !needs.Functions:
	case busy:
		x.SRIOV = o.last.Links[l.Index].SRIOV
	default:
		x.SRIOV = o.sriov(s, l)
	}
	if needs.Ethtool {
		o.ethtool(l.Index, u, busy, &x)
	}
	if needs.Soft {
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

func (o *Observer) nodeDesc(st *roce.State, dev string) {
	if now, err := o.sys.NodeDesc(dev); err == nil {
		x := st.Devices[dev]
		x.NodeDesc = &now
		st.Devices[dev] = x
	}
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

// gone reports that a thing disappeared while it was worked on.
func gone(err error) bool {
	return errors.Is(err, unix.ENODEV) || errors.Is(err, fs.ErrNotExist)
}
