package daemon

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"path"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"ibnetworkd/daemon/card"
	"ibnetworkd/daemon/plan"
	"ibnetworkd/ib"
	"ibnetworkd/internal/kernel/procsys"
	"ibnetworkd/internal/kernel/rdmanl"
	"ibnetworkd/internal/kernel/rtnl"
	ipoibrtnl "ibnetworkd/internal/kernel/rtnl/ipoib"
	"ibnetworkd/internal/kernel/sysfs"
	"ibnetworkd/internal/kernel/udevdb"
	"ibnetworkd/internal/smallfile"
	"ibnetworkd/link"
	"ibnetworkd/units"
)

// Wants says what of the system a plan will ask for beyond links and addresses,
// so that an observation costs no more than it is worth. A capture wants all.
type Wants struct {
	Routes, Rules bool
	// PKeys asks for every entry of the partition tables; otherwise reading ends
	// where a table seems to.
	PKeys bool
	// Sysctls lists the settings to read of a link; nil reads none.
	Sysctls func(s *link.Snapshot, l *link.Link) []string
	// Card gives the unit of a link for what package roce looks at; nil if no
	// unit asks for any of it.
	Card func(s *link.Snapshot, l *link.Link) *units.Unit
	// CardPort is the same for a port that has no network interface; it is set
	// if Card is.
	CardPort func(s *link.Snapshot, d *link.Device, p *link.Port) *units.Unit
	// Resolved asks who systemd-resolved is.
	Resolved bool
}

// Observer reads the system through the kernel clients. It belongs to one
// goroutine. What cannot change while an interface lives is read once.
type Observer struct {
	root string
	rt   *rtnl.Conn
	rd   *rdmanl.Conn
	sys  sysfs.FS
	udev udevdb.DB
	proc procsys.FS
	dns  *resolved
	card *card.Observer

	host link.Host
	// networkd and nm say that these programs keep state files here.
	networkd, nm bool

	last   *link.Snapshot
	static map[int]staticLink
	devs   map[string]link.Device // without ports
	ports  map[portID]staticPort
}

// staticLink is what stays the same as long as an interface has its index.
type staticLink struct {
	ibdev, devpath    string
	driver, netDriver string
	port              int
	udev              link.Udev
	path              string
	hasUdev           bool
}

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

// NewObserver opens the kernel clients. root is the directory that stands for
// / in sysfs, procfs and udev's database.
func NewObserver(root string) (*Observer, error) {
	o := &Observer{
		root: root, sys: sysfs.New(root), udev: udevdb.New(root), proc: procsys.New(root),
		static: map[int]staticLink{}, devs: map[string]link.Device{}, ports: map[portID]staticPort{},
		dns: &resolved{},
	}
	var err error
	if o.rt, err = rtnl.Dial(); err != nil {
		return nil, fmt.Errorf("open rtnetlink: %w", err)
	}
	o.card = card.New(root, o.rt)
	return o, nil
}

// Notify says what is to be called, from any goroutine, when what the observer
// waits for beside the loop has come: systemd-resolved, a module. Call it before
// the first Look.
func (o *Observer) Notify(wake func(Scope)) {
	o.dns.changed = func() { wake(Scope{Reload: true, RDMA: true}) }
	o.card.Loaded = func(links map[int]bool) { wake(Scope{Links: links, Force: links, RDMA: true}) }
	o.card.Later = func(i int, after time.Duration) {
		time.AfterFunc(after, func() { wake(Scope{Links: map[int]bool{i: true}}) })
	}
}

// Close closes the kernel clients.
func (o *Observer) Close() error {
	err := errors.Join(o.rt.Close(), o.card.Close())
	if o.rd != nil {
		err = errors.Join(err, o.rd.Close())
	}
	return errors.Join(err, o.dns.close())
}

// Look reads what the scope names and gives a new snapshot, which shares with
// the last one what was not looked at.
func (o *Observer) Look(sc Scope, w Wants) (*link.Snapshot, error) {
	if o.last == nil {
		sc.All = true
	}
	s := &link.Snapshot{Schema: link.SnapshotSchema}
	if o.last != nil {
		*s = *o.last
	}
	switch {
	case o.last == nil:
		o.host = readHost(o.root)
	case sc.Reload:
		// What else conditions ask about does not change while we run.
		o.host.Facts.Hostname, _ = os.Hostname()
	}
	if o.last == nil || sc.All || sc.RDMA {
		o.host.NoIPoIB = !o.exists("/sys/module/ib_ipoib")
		o.host.EnhancedSwitch = o.exists("/sys/module/ib_ipoib/parameters/ipoib_enhanced")
	}
	if o.last == nil || sc.Reload {
		o.host.OFEDManager = o.ofedManager()
	}
	o.host.Udev = o.udev.Running()
	if w.Resolved {
		o.host.Resolved = o.dns.owner(sc.All || sc.Reload || sc.RDMA)
	}
	s.Host = o.host

	if sc.All || sc.RDMA || sc.PKeys {
		if err := o.lookRDMA(s); err != nil {
			return nil, err
		}
		o.joinPorts(s, &sc)
	}
	if err := o.lookLinks(s, sc); err != nil {
		return nil, err
	}
	o.lookPKeys(s, sc, w)
	if sc.All || sc.Addrs || len(sc.Links) > 0 {
		if err := o.lookAddresses(s); err != nil {
			return nil, err
		}
	}
	if w.Routes && (sc.All || sc.Routes || len(sc.Links) > 0) {
		if err := o.lookRoutes(s); err != nil {
			return nil, err
		}
	}
	if w.Rules && (sc.All || sc.Rules) {
		if err := o.lookRules(s); err != nil {
			return nil, err
		}
	}
	if w.Sysctls != nil {
		o.lookSysctls(s, sc, w)
	}
	o.lookCard(s, sc, w)
	o.last = s
	return s, nil
}

// lookCard looks at cards where a unit asks for it. GID tables follow
// addresses, everything else the link or its RDMA device.
func (o *Observer) lookCard(s *link.Snapshot, sc Scope, w Wants) {
	if w.Card == nil {
		s.Card = nil
		return
	}
	for i := range sc.Force {
		if l, ok := s.Link(i); ok {
			o.card.Forget(l.Name)
		}
	}
	o.card.Look(s, func(l *link.Link) *units.Unit { return w.Card(s, l) },
		func(d *link.Device, p *link.Port) *units.Unit { return w.CardPort(s, d, p) },
		func(i int) (look, all bool) {
			all = sc.All || sc.Reload || sc.Links[i] || sc.Force[i]
			return all || sc.RDMA || sc.Addrs, all
		})
}

// joinPorts finds the links whose RDMA port came or went after they did, as that
// of an Ethernet card does, and has them looked at.
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

func (o *Observer) lookRDMA(s *link.Snapshot) error {
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
	if _, parent := o.sysPath("infiniband", d.Name); parent != "" {
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
		// The rate is negotiated, the keys are granted anew.
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

// lookPKeys reads what of InfiniBand ports changes without an event: the partition
// table, a file for each entry, and the subnet prefix. User space learns of
// IB_EVENT_PKEY_CHANGE from uverbs alone, for which a driver's context would have to
// be opened; so tables are read at the slow look, when a link loses its carrier (ipoib
// restarts a link whose entry changed), while a link waits for a key, and when asked.
func (o *Observer) lookPKeys(s *link.Snapshot, sc Scope, w Wants) {
	need := map[portID]map[ib.PKey]bool{}
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
	}
	copied := false
	for i := range s.Devices {
		for k := range s.Devices[i].Ports {
			d, p := &s.Devices[i], &s.Devices[i].Ports[k]
			id := portID{d.Name, p.Num}
			st := o.ports[id]
			if st.layer != ib.LinkLayerInfiniBand || st.read && !sc.PKeys && !sc.All {
				continue
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

// fewLinks is the number of links up to which single questions cost less than a
// dump of all.
const fewLinks = 16

func (o *Observer) lookLinks(s *link.Snapshot, sc Scope) error {
	if !sc.All && len(sc.Links) == 0 {
		return nil
	}
	o.networkd, o.nm = o.exists(networkdLinks), o.exists(nmDevices)
	old := s.Links
	if sc.All || len(sc.Links) > fewLinks {
		raw, err := o.rt.Links(false)
		if err != nil {
			return fmt.Errorf("list links: %w", err)
		}
		s.Links = make([]link.Link, 0, len(raw))
		alive := make(map[int]bool, len(raw))
		// Parents first: a child takes the RDMA port of its parent.
		slices.SortFunc(raw, func(a, b rtnl.Link) int { return a.Index - b.Index })
		near := family(raw, sc.First, func(r *rtnl.Link) (index, parent int) {
			if r.ParentElsewhere {
				return r.Index, 0
			}
			return r.Index, r.Parent
		})
		for i := range raw {
			alive[raw[i].Index] = true
			if near != nil && !near[raw[i].Index] {
				s.Links = append(s.Links, dumped(&raw[i]))
				continue
			}
			s.Links = append(s.Links, o.link(s, &raw[i], sc))
		}
		for i := range o.static {
			if !alive[i] {
				delete(o.static, i)
			}
		}
	} else {
		s.Links = slices.Clone(old)
		todo := slices.Sorted(maps.Keys(sc.Links))
		for k := 0; k < len(todo); k++ {
			index := todo[k]
			at, found := slices.BinarySearchFunc(s.Links, index, func(l link.Link, n int) int { return l.Index - n })
			raw, err := o.rt.LinkByIndex(index, false)
			switch {
			case errors.Is(err, unix.ENODEV) || errors.Is(err, unix.EINVAL):
				if found {
					s.Links = slices.Delete(s.Links, at, at+1)
				}
				delete(o.static, index)
				continue
			case err != nil:
				return fmt.Errorf("look at link %d: %w", index, err)
			}
			l := o.link(s, &raw, sc)
			if found {
				s.Links[at] = l
			} else {
				s.Links = slices.Insert(s.Links, at, l)
			}
			// Another link of that name was renamed or is gone: its event is on
			// the way.
			for i := range s.Links {
				if x := &s.Links[i]; x.Name == l.Name && x.Index != index && !slices.Contains(todo, x.Index) {
					todo = append(todo, x.Index)
				}
			}
		}
	}
	// Addresses, routes and settings are looked at by themselves.
	for i := range s.Links {
		l := &s.Links[i]
		if k, ok := slices.BinarySearchFunc(old, l.Index, func(x link.Link, n int) int { return x.Index - n }); ok {
			l.Addresses, l.Routes, l.Sysctl = old[k].Addresses, old[k].Routes, old[k].Sysctl
		}
	}
	return nil
}

// family picks the first links of a list in order of their index, each with its
// children, until there are n; nil for all of them.
func family[L any](all []L, n int, of func(*L) (index, parent int)) map[int]bool {
	if n <= 0 || len(all) <= n {
		return nil
	}
	children := map[int][]int{}
	for i := range all {
		if index, parent := of(&all[i]); parent != 0 {
			children[parent] = append(children[parent], index)
		}
	}
	out := map[int]bool{}
	for i := range all {
		index, parent := of(&all[i])
		if parent != 0 {
			continue
		}
		if len(out) >= n {
			break
		}
		out[index] = true
		for _, c := range children[index] {
			out[c] = true
		}
	}
	return out
}

// dumped is a link as the kernel's list has it.
func dumped(r *rtnl.Link) link.Link {
	l := link.Link{
		Index: r.Index, Name: r.Name, AltNames: r.AltNames, Type: r.Type, Kind: r.Kind, Flags: r.Flags, MTU: r.MTU, MaxMTU: r.MaxMTU,
		HWAddr: r.Address, PermAddr: r.PermAddress, Oper: uint8(r.OperState), Master: r.Master, Group: r.Group, Parent: r.Parent,
	}
	if r.ParentElsewhere {
		l.Parent = 0
	}
	if v := r.VLAN; v != nil {
		l.VLAN = &link.VLAN{ID: v.ID, Protocol: v.Protocol, Flags: v.Flags, Ingress: v.Ingress, Egress: v.Egress}
	}
	if r.IPoIB != nil {
		l.IPoIB = &link.IPoIB{PKey: r.IPoIB.PKey, IgnoreUserspaceMulticast: r.IPoIB.UMcast}
		if r.IPoIB.Mode == ipoibrtnl.Connected {
			l.IPoIB.Mode = link.ModeConnected
		}
	}
	return l
}

func (o *Observer) link(s *link.Snapshot, r *rtnl.Link, sc Scope) link.Link {
	l := dumped(r)
	st, ok := o.static[r.Index]
	if !ok {
		st = o.staticLink(s, r)
	}
	if o.host.Udev && (!st.hasUdev || !st.udev.Initialized || st.udev.Renaming || sc.All || sc.Links[r.Index]) {
		if rec, err := o.udev.Net(r.Index); err == nil {
			st.hasUdev = true
			st.udev = link.Udev{Initialized: rec.Initialized, Renaming: rec.Renaming(), ManagedBy: rec.Get("ID_NET_MANAGED_BY"), Properties: rec.Properties()}
			st.path, st.netDriver = rec.Get("ID_PATH"), rec.Get("ID_NET_DRIVER")
		}
	}
	if st.ibdev != "" || r.Type != link.ARPHRDInfiniBand {
		o.static[r.Index] = st
	}
	l.IBDevice, l.Port, l.Driver, l.NetDriver = st.ibdev, st.port, st.driver, st.netDriver
	l.DevPath, l.Udev, l.Path = st.devpath, st.udev, st.path
	l.OtherManagers = o.managers(r.Index)
	return l
}

func (o *Observer) staticLink(s *link.Snapshot, r *rtnl.Link) (st staticLink) {
	if r.Type == unix.ARPHRD_LOOPBACK {
		return st
	}
	if r.Parent != 0 && !r.ParentElsewhere && r.IPoIB != nil {
		if p, ok := o.static[r.Parent]; ok && p.ibdev != "" {
			return staticLink{ibdev: p.ibdev, port: p.port, driver: p.driver, devpath: p.devpath}
		}
	}
	if r.Kind == "" || r.Kind == "ipoib" {
		dir := "/sys/class/net/" + r.Name
		if _, st.devpath = o.sysPath("net", r.Name); st.devpath != "" {
			st.driver = o.base(dir + "/device/driver")
			if r.Type == link.ARPHRDInfiniBand {
				// dev_port counts from 0; there is one RDMA device below an
				// IPoIB interface.
				if es, err := os.ReadDir(filepath.Join("/", o.root, dir, "device/infiniband")); err == nil && len(es) > 0 {
					st.ibdev = es[0].Name()
					st.port = int(min(atoi(o.text(dir+"/dev_port")), 254)) + 1
				}
			}
		}
	}
	if r.Type != link.ARPHRDInfiniBand {
		for i := range s.Devices {
			for _, p := range s.Devices[i].Ports {
				// The card's own goes before soft RoCE on the same link.
				if p.Netdev == r.Index && (st.ibdev == "" || s.Devices[i].Parent != "") {
					st.ibdev, st.port = s.Devices[i].Name, p.Num
				}
			}
		}
	}
	return st
}

func atoi(s string) uint64 {
	n, _ := strconv.ParseUint(s, 10, 32)
	return n
}

// managers lists who else says that it manages a link.
func (o *Observer) managers(index int) []string {
	if !o.networkd && !o.nm {
		return nil
	}
	var out []string
	n := strconv.Itoa(index)
	if b := o.text(networkdLinks + "/" + n); o.networkd && networkdManages(b) {
		out = append(out, plan.Networkd)
	}
	if b := o.text(nmDevices + "/" + n); o.nm && nmManages(b) {
		out = append(out, plan.NetworkManager)
	}
	return out
}

func (o *Observer) exists(path string) bool {
	_, err := os.Stat(filepath.Join("/", o.root, path))
	return err == nil
}

func (o *Observer) lookAddresses(s *link.Snapshot) error {
	raw, err := o.rt.Addresses()
	if err != nil {
		return fmt.Errorf("list addresses: %w", err)
	}
	by := make(map[int][]link.Address, len(s.Links))
	for i := range raw {
		a := &raw[i]
		x := link.Address{
			Prefix: a.Prefix, Broadcast: a.Broadcast, Label: a.Label, Scope: a.Scope, Flags: a.Flags,
			Metric: a.Metric, Valid: a.Valid, Preferred: a.Preferred, Protocol: a.Protocol,
		}
		if a.Peer.IsValid() && a.Peer != a.Prefix.Addr() {
			// The kernel keeps one length for both ends: the peer's network.
			x.Peer = netip.PrefixFrom(a.Peer, a.Prefix.Bits())
			x.Prefix = netip.PrefixFrom(a.Prefix.Addr(), a.Prefix.Addr().BitLen())
		}
		by[a.Index] = append(by[a.Index], x)
	}
	s.Links = replaceEach(s.Links, func(l *link.Link) bool {
		if slices.Equal(l.Addresses, by[l.Index]) {
			return false
		}
		l.Addresses = by[l.Index]
		return true
	})
	return nil
}

// replaceEach copies the slice when the first element changes, because the last
// snapshot shares it.
func replaceEach(links []link.Link, change func(*link.Link) bool) []link.Link {
	out := links
	copied := false
	for i := range links {
		l := links[i]
		if !change(&l) {
			continue
		}
		if !copied {
			out, copied = slices.Clone(links), true
		}
		out[i] = l
	}
	return out
}

func (o *Observer) lookRoutes(s *link.Snapshot) error {
	raw, err := o.rt.Routes()
	if err != nil {
		return fmt.Errorf("list routes: %w", err)
	}
	by := make(map[int][]link.Route, len(s.Links))
	for i := range raw {
		r := &raw[i]
		if r.Cloned || r.Table == link.TableLocal && r.Proto == link.ProtoKernel {
			continue
		}
		x := link.Route{
			Dst: r.Dst, Src: r.Src, Gateway: r.Gateway, PrefSrc: r.PrefSrc, Table: r.Table, Metric: r.Metric, Type: r.Type, Scope: r.Scope,
			Protocol: r.Proto, TOS: r.TOS, Pref: r.Pref, OnLink: r.Flags&unix.RTNH_F_ONLINK != 0,
			MTU: r.Metrics.MTU, AdvMSS: r.Metrics.AdvMSS, HopLimit: r.Metrics.HopLimit, InitCwnd: r.Metrics.InitCwnd, InitRwnd: r.Metrics.InitRwnd,
			RTOMin: r.Metrics.RTOMin, Congestion: r.Metrics.CongestionControl, QuickAck: r.Metrics.QuickAck, FastOpenNoCookie: r.Metrics.FastOpenNoCookie,
		}
		if !x.Dst.IsValid() {
			x.Dst = netip.PrefixFrom(netip.IPv4Unspecified(), 0)
			if r.Family == unix.AF_INET6 {
				x.Dst = netip.PrefixFrom(netip.IPv6Unspecified(), 0)
			}
		}
		// A route over several links is on each of them.
		over := []int{r.OutIf}
		for _, h := range r.NextHops {
			dev := ""
			if l, ok := s.Link(h.OutIf); ok {
				dev = l.Name
			}
			x.NextHops = append(x.NextHops, link.NextHop{Gateway: h.Gateway, Ifindex: h.OutIf, Dev: dev, Weight: h.Weight})
			if over[0] == 0 {
				over[0] = h.OutIf
			} else if !slices.Contains(over, h.OutIf) {
				over = append(over, h.OutIf)
			}
		}
		for _, i := range over {
			by[i] = append(by[i], x)
		}
	}
	// Routes that lead nowhere have no link; they are kept with the loopback,
	// as ip route shows the IPv6 ones.
	by[loopback] = append(by[loopback], by[0]...)
	s.Links = replaceEach(s.Links, func(l *link.Link) bool {
		if slices.EqualFunc(l.Routes, by[l.Index], func(a, b link.Route) bool { return reflect.DeepEqual(a, b) }) {
			return false
		}
		l.Routes = by[l.Index]
		return true
	})
	return nil
}

// loopback is the index of lo in every network namespace (LOOPBACK_IFINDEX).
const loopback = 1

func (o *Observer) lookRules(s *link.Snapshot) error {
	raw, err := o.rt.Rules()
	if err != nil {
		return fmt.Errorf("list rules: %w", err)
	}
	s.Rules = nil
	for i := range raw {
		r := &raw[i]
		x := link.Rule{
			Family: 4, Priority: r.Priority, Invert: r.Invert, From: r.From, To: r.To, TOS: r.TOS, FWMark: r.FwMark, FWMask: r.FwMask,
			IIF: r.IIF, OIF: r.OIF, Table: r.Table, Type: r.Action, L3MDev: r.L3MDev, IPProto: r.IPProto,
			SrcPort: [2]uint16{r.SPort.First, r.SPort.Last}, DstPort: [2]uint16{r.DPort.First, r.DPort.Last},
			UIDRange: [2]uint32{r.UID.First, r.UID.Last}, HasUIDRange: r.UID.Set,
			SuppressPrefix: -1, SuppressIfGroup: -1, Goto: r.Goto, Protocol: r.Proto,
		}
		if r.Family == unix.AF_INET6 {
			x.Family = 6
		}
		if r.SuppressPrefixLen.Set {
			x.SuppressPrefix = int32(r.SuppressPrefixLen.Value)
		}
		if r.SuppressIfGroup.Set {
			x.SuppressIfGroup = int32(r.SuppressIfGroup.Value)
		}
		s.Rules = append(s.Rules, x)
	}
	slices.SortFunc(s.Rules, func(a, b link.Rule) int {
		if a.Family != b.Family {
			return int(a.Family) - int(b.Family)
		}
		if a.Priority != b.Priority {
			return int(int64(a.Priority) - int64(b.Priority))
		}
		return strings.Compare(a.String(), b.String())
	})
	return nil
}

func (o *Observer) lookSysctls(s *link.Snapshot, sc Scope, w Wants) {
	s.Links = replaceEach(s.Links, func(l *link.Link) bool {
		keys := w.Sysctls(s, l)
		if len(keys) == 0 {
			return false
		}
		have := true
		for _, k := range keys {
			_, ok := l.Sysctl[k]
			have = have && ok
		}
		if have && !sc.All && !sc.Force[l.Index] && !sc.Links[l.Index] {
			return false
		}
		m := make(map[string]string, len(keys))
		for _, k := range keys {
			fam, leaf, _ := strings.Cut(k, "/")
			if v, err := o.proc.Get(procsys.Family(fam), l.Name, leaf); err == nil {
				m[k] = v
			}
		}
		if reflect.DeepEqual(m, l.Sysctl) {
			return false
		}
		l.Sysctl = m
		return true
	})
}

// changedLinks lists the links that differ between two snapshots, also those
// that came, the parents of those that went and of VLANs that are others now, and
// 0 if any went; it reports whether RDMA devices differ.
func changedLinks(a, b *link.Snapshot) (links map[int]bool, rdma bool) {
	links = map[int]bool{}
	if a == nil {
		for i := range b.Links {
			links[b.Links[i].Index] = true
		}
		return links, true
	}
	if len(a.Links) != len(b.Links) || len(a.Links) > 0 && &a.Links[0] != &b.Links[0] {
		for i := range b.Links {
			l := &b.Links[i]
			o, ok := a.Link(l.Index)
			if !ok || !reflect.DeepEqual(o, l) {
				links[l.Index] = true
				if l.VLAN != nil && (!ok || !reflect.DeepEqual(o.VLAN, l.VLAN)) {
					links[l.Parent] = true // whose unit says what it is to be
				}
			}
		}
		for i := range a.Links {
			if _, ok := b.Link(a.Links[i].Index); !ok {
				links[0], links[a.Links[i].Parent] = true, true
			}
		}
	}
	rdma = len(a.Devices) != len(b.Devices) || len(a.Devices) > 0 && &a.Devices[0] != &b.Devices[0] && !reflect.DeepEqual(a.Devices, b.Devices)
	return links, rdma
}
