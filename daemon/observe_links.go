package daemon

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"

	"ibnetworkd/daemon/plan"
	"ibnetworkd/internal/kernel/rtnl"
	"ibnetworkd/link"
)

// staticLink is what stays the same as long as an interface has its index.
type staticLink struct {
	ibdev, devpath    string
	driver, netDriver string
	port              int
	udev              link.Udev
	path              string
	hasUdev           bool
}

// fewLinks is the number of links up to which single questions cost less than a
// dump of all.
const fewLinks = 16

func (o *Observer) observeLinks(s *link.Snapshot, sc Scope) error {
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
				return fmt.Errorf("read link %d: %w", index, err)
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
	// Addresses, routes, neighbours and settings are read by themselves.
	for i := range s.Links {
		l := &s.Links[i]
		if k, ok := slices.BinarySearchFunc(old, l.Index, func(x link.Link, n int) int { return x.Index - n }); ok {
			l.Addresses, l.Routes, l.Neighbors, l.Sysctl = old[k].Addresses, old[k].Routes, old[k].Neighbors, old[k].Sysctl
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
		HWAddr: r.Address, PermAddr: r.PermAddress, Broadcast: r.Broadcast,
		Oper: r.OperState, CarrierDowns: r.CarrierDowns, Master: r.Master, SlaveKind: r.SlaveKind, Group: r.Group, Parent: r.Parent,
		Router: link.RouterFlags{Seen: r.RouterFlags&rtnl.RouterSeen != 0, Managed: r.RouterFlags&rtnl.RouterManaged != 0,
			Other: r.RouterFlags&rtnl.RouterOther != 0},
		Token: r.Token,
	}
	if r.ParentElsewhere {
		l.Parent = 0
	}
	if v := r.VLAN; v != nil {
		l.VLAN = &link.VLAN{ID: v.ID, Protocol: v.Protocol, Flags: v.Flags, Mode: v.Mode, Ingress: v.Ingress, Egress: v.Egress}
	}
	if b := r.Bond; b != nil {
		l.Bond = &link.Bond{BondOptions: link.BondOptions(b.BondOptions), Primary: b.Primary, Active: b.Active, Partner: b.Partner}
	}
	if r.Kind == link.KindVRF {
		l.VRF = &link.VRF{Table: r.VRFTable}
	}
	if r.IPoIB != nil {
		l.IPoIB = &link.IPoIB{PKey: r.IPoIB.PKey, Mode: r.IPoIB.Mode, IgnoreUserspaceMulticast: r.IPoIB.UMcast}
	}
	return l
}

func (o *Observer) link(s *link.Snapshot, r *rtnl.Link, sc Scope) link.Link {
	l := dumped(r)
	o.settings[r.Index] = r.Settings
	st, ok := o.static[r.Index]
	if !ok {
		st = o.staticLink(s, r)
	}
	if o.host.Udev && (!st.hasUdev || !st.udev.Initialized || st.udev.Renaming || sc.All || sc.Links[r.Index]) {
		if rec, err := o.udev.Net(r.Index); err == nil {
			st.hasUdev = true
			st.udev = link.Udev{Initialized: rec.Initialized, Renaming: rec.Renaming(), ManagedBy: rec.Get("ID_NET_MANAGED_BY"),
				Properties: rec.Properties()}
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
		if st.devpath = o.parentOf("net", r.Name); st.devpath != "" {
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
	if r.IPoIB != nil && st.devpath == "" {
		// A P_Key child whose parent is in another network namespace.
		for i := range s.Devices {
			for _, p := range s.Devices[i].Ports {
				if p.GUID != 0 && p.GUID == r.Address.GUID() {
					st.ibdev, st.port, st.driver = s.Devices[i].Name, p.Num, s.Devices[i].Driver
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
	if o.networkd && networkdManages(o.text(networkdLinks+"/"+n)) {
		out = append(out, plan.Networkd)
	}
	if o.nm && nmManages(o.text(nmDevices+"/"+n)) {
		out = append(out, plan.NetworkManager)
	}
	return out
}
