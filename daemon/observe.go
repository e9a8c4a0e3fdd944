package daemon

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	"ibnetworkd/daemon/card"
	"ibnetworkd/internal/kernel/modules"
	"ibnetworkd/internal/kernel/procsys"
	"ibnetworkd/internal/kernel/rdmanl"
	"ibnetworkd/internal/kernel/rtnl"
	"ibnetworkd/internal/kernel/sysfs"
	"ibnetworkd/internal/kernel/udevdb"
	"ibnetworkd/link"
	"ibnetworkd/units"
)

// Observer reads the system through the kernel clients. It belongs to one
// goroutine. What cannot change while an interface lives is read once.
type Observer struct {
	root string
	buf  []byte // of small files
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
	// settings of the links that this observation has read.
	settings map[int]rtnl.Settings
	ports    map[portID]staticPort

	adverts      adverts
	advertTimers map[int]*time.Timer // by link
	mount        *time.Timer         // reads again what is no network namespace yet
	wake         func(Scope)
}

// ObserverConfig is what an Observer uses of the process; what is nil is done without.
type ObserverConfig struct {
	// Root is the directory that stands for / in sysfs, procfs and udev's database.
	Root string
	// Wake is called, from any goroutine, when what the observer waits for beside the
	// loop has come: systemd-resolved, a card's worker.
	Wake func(Scope)
	// Modules loads the drivers of soft devices.
	Modules modules.Loader
	// Helper gives the process that carries out the slow operations of a card, by
	// card.Serve.
	Helper func() *exec.Cmd
}

// NewObserver opens the kernel clients.
func NewObserver(cfg ObserverConfig) (*Observer, error) {
	root, wake := cfg.Root, cfg.Wake
	o := &Observer{
		root: root, buf: make([]byte, 4096), sys: sysfs.New(root), udev: udevdb.New(root), proc: procsys.New(root),
		static: map[int]staticLink{}, settings: map[int]rtnl.Settings{}, devs: map[string]link.Device{}, ports: map[portID]staticPort{},
		dns: &resolved{}, adverts: adverts{}, advertTimers: map[int]*time.Timer{}, wake: wake,
	}
	cards := card.Config{Modules: cfg.Modules, Helper: cfg.Helper}
	if wake != nil {
		o.dns.changed = func() { wake(Scope{Reload: true, RDMA: true}) }
		cards.Ended = func() { wake(Scope{Work: true}) }
		cards.Later = func(i int, after time.Duration) {
			time.AfterFunc(after, func() { wake(Scope{Links: map[int]bool{i: true}, Reread: true}) })
		}
	}
	var err error
	if o.rt, err = rtnl.Dial(); err != nil {
		return nil, fmt.Errorf("open rtnetlink: %w", err)
	}
	o.card = card.New(root, o.rt, cards)
	return o, nil
}

// Close closes the kernel clients.
func (o *Observer) Close() error {
	err := errors.Join(o.rt.Close(), o.card.Close())
	if o.rd != nil {
		err = errors.Join(err, o.rd.Close())
	}
	return errors.Join(err, o.dns.close())
}

// Observe reads what the scope names and gives a new snapshot, which shares with
// the last one what was not read.
func (o *Observer) Observe(sc Scope, w Needs) (*link.Snapshot, error) {
	o.card.Begin()
	clear(o.settings)
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
		to, _ := os.Readlink(filepath.Join(o.root, "/etc/resolv.conf"))
		o.host.ResolvConf = to == link.ResolvConfFile || filepath.Join("/etc", to) == link.ResolvConfFile
	}
	s.Host = o.host

	if sc.All || sc.RDMA || sc.PKeys {
		if err := o.observeRDMA(s); err != nil {
			return nil, err
		}
		o.joinPorts(s, &sc)
	}
	if err := o.observeLinks(s, sc); err != nil {
		return nil, err
	}
	o.observePKeys(s, sc, w)
	if sc.All || sc.Addrs || len(sc.Links) > 0 {
		if err := o.observeAddresses(s); err != nil {
			return nil, err
		}
	}
	if w.Routes && (sc.All || sc.Routes || len(sc.Links) > 0) {
		if err := errors.Join(o.observeRoutes(s), o.observeNextHops(s, w.NextHops)); err != nil {
			return nil, err
		}
	}
	if w.Rules && (sc.All || sc.Rules) {
		if err := o.observeRules(s); err != nil {
			return nil, err
		}
	}
	if err := o.observeNeighbors(s, sc, w.Neighbors); err != nil {
		return nil, err
	}
	if w.Sysctls != nil {
		o.observeSysctls(s, sc, w)
	}
	o.observeNamespaces(s, sc, w)
	o.observeAdverts(s, w)
	o.observeCard(s, sc, w)
	o.last = s
	return s, nil
}

// observeCard reads cards where a unit asks for it. GID tables follow
// addresses, everything else the link or its RDMA device.
func (o *Observer) observeCard(s *link.Snapshot, sc Scope, w Needs) {
	if w.LinkUnit == nil {
		s.Card = nil
		return
	}
	for i := range sc.Force {
		if l, ok := s.Link(i); ok {
			o.card.Forget(l.Name)
		}
	}
	o.card.Observe(s, func(l *link.Link) *units.Unit { return w.LinkUnit(s, l) },
		func(d *link.Device, p *link.Port) *units.Unit { return w.PortUnit(s, d, p) },
		func(i int) (read, all bool) {
			all = sc.All || sc.Reload || sc.Links[i] || sc.Force[i]
			return all || sc.RDMA || sc.Addrs, all
		})
}

func (o *Observer) exists(path string) bool {
	_, err := os.Stat(filepath.Join("/", o.root, path))
	return err == nil
}

// replaceEach copies the slice when the first element changes, because the last
// snapshot shares it.
func replaceEach(links []link.Link, change func(*link.Link) bool) []link.Link {
	out := links
	copied := false
	var l link.Link // outside of the loop: it is on the heap
	for i := range links {
		l = links[i]
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
