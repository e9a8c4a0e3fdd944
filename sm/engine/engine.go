// Package engine runs a subnet manager on one port: it orders the stages, owns
// the state and drives the transport.
//
// One goroutine (Run) owns everything; another one only receives. The stages
// decide, the engine sends what they ask for, keeps what the fabric
// acknowledged, and answers others' requests while a sweep is under way.
// Events (traps, a change of the local link, the sweep timer) lead to a partial
// sweep of what they name; a whole discovery happens when the manager becomes
// master and when the way into the fabric was lost.
//
// Called by cmd/ibnetsm, one Subnet for each port.
package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"ibnetworkd/ib"
	"ibnetworkd/ib/partition"
	"ibnetworkd/sm/discover"
	"ibnetworkd/sm/elect"
	"ibnetworkd/sm/fabric"
	"ibnetworkd/sm/guidfile"
	"ibnetworkd/sm/lid"
	"ibnetworkd/sm/mad"
	"ibnetworkd/sm/pkey"
	"ibnetworkd/sm/program"
	"ibnetworkd/sm/qos"
	"ibnetworkd/sm/qos/policy"
	"ibnetworkd/sm/route"
	"ibnetworkd/sm/sa"
	"ibnetworkd/sm/smp"
	"ibnetworkd/sm/transport"
)

// Store keeps the GUID-to-LID memory between runs.
type Store interface {
	Load() ([]byte, error)
	Save([]byte) error
}

// Config of a subnet; the zero value of each field means its default.
type Config struct {
	Priority uint8 // 0..15, higher wins
	// SMKey is what other managers must show to be handed the subnet to and to
	// give orders; 0 is none, and trusts everyone. One above elect.DefaultKey is
	// shown only to those that prove or show that they have it (elect.Trust).
	SMKey    uint64
	Policy   program.Policy
	LMC      ib.LMC
	Reassign bool // forget the LIDs that ports have
	Route    route.Options

	// Window is the number of SMPs under way at one time, default 32.
	Window int
	// Timeout of one try of an SMP (200 ms) and how often it is repeated (3), at most
	// RetriesMost times.
	Timeout time.Duration
	Retries int
	// Sweep is the time between light sweeps, default 10 s; below 0 none.
	Sweep time.Duration
	// Poll is how often a standby asks the master, default 250 ms; a poll has
	// PollTimeout (200 ms), and PollMisses (3) in a row take the master for gone.
	Poll        time.Duration
	PollTimeout time.Duration
	PollMisses  int
	// LocalPoll is how often the local port's state is read, default 250 ms;
	// a quarter as often where a switch sends traps.
	LocalPoll time.Duration
	// HandoverWait bounds the wait for a successor at the end of Run, default 1 s.
	HandoverWait time.Duration

	// QoS writes SL-to-VL mapping and VL arbitration tables, and lets the
	// routing engine spread over service levels where that frees it of
	// deadlocks; nil leaves the tables of the ports alone.
	QoS        *qos.Options
	QoSPolicy  *policy.Policy   // gives paths a service level and limits; nil for none
	Partitions partition.Config // the zero value is the default partition
	Enforce    pkey.Enforcement // where switches check P_Keys
	Reregister Reregister
	SA         sa.Config
	Names      fabric.Names // shown in place of what nodes say of themselves
	Store      Store        // nil keeps nothing
	// PrefixRoutes are the routers for GIDs of other subnets.
	PrefixRoutes []guidfile.PrefixRoute
	LIDs         []guidfile.LIDs // of ports that Store has none for, as another manager had them
	Routes       Store           // keeps the routes in force; nil computes them again at each start
	Drains       Store           // keeps the drained switches; nil forgets them with the process
	Log          *slog.Logger
	// Changed, if set, is given each state that is published, the first when the
	// port is open. It must not block.
	Changed func(*Snapshot)
	// Computing, if set, is called with true when a computation beside the goroutine that
	// answers has gone on for some milliseconds, from another goroutine, and with false
	// when it has ended.
	Computing func(began bool)
	// Processors is how many processors a computation may take beside that of the goroutine
	// that answers; 0 means 1.
	Processors int
}

// RetriesMost bounds Config.Retries: the tries of a request have a bit each, with the
// quick ones.
const RetriesMost = 50

func (c *Config) defaults() {
	or(&c.Window, 32)
	or(&c.Timeout, 200*time.Millisecond)
	c.Retries = cmp.Or(c.Retries, 3)
	c.Retries = min(c.Retries, RetriesMost)
	or(&c.Sweep, 10*time.Second)
	or(&c.Poll, 250*time.Millisecond)
	or(&c.PollTimeout, 200*time.Millisecond)
	or(&c.PollMisses, 3)
	or(&c.LocalPoll, 250*time.Millisecond)
	or(&c.HandoverWait, time.Second)
	if c.Policy.PacketLife == 0 {
		// Never wanted: a packet would not live at all.
		c.Policy = program.DefaultPolicy()
	}
	c.Policy.Prefix = cmp.Or(c.Policy.Prefix, ib.DefaultPrefix)
	if len(c.Partitions.Partitions) == 0 {
		c.Partitions = partition.Default()
	}
	c.Log = cmp.Or(c.Log, slog.New(slog.DiscardHandler))
}

func or[T comparable](v *T, def T) {
	var zero T
	if *v == zero {
		*v = def
	}
}

// SweepStats is the outcome of a sweep.
type SweepStats struct {
	Kind     string        `json:"kind"` // full, partial, light
	Reason   string        `json:"reason,omitempty"`
	At       time.Time     `json:"at"`
	Duration time.Duration `json:"duration_ns"`
	SMPs     uint64        `json:"smps"`
	Nodes    int           `json:"nodes"`
	Switches int           `json:"switches"`
	Links    int           `json:"links"`
	Routing  string        `json:"routing,omitempty"`
	Failed   int           `json:"failed_smps,omitempty"`
}

// New makes a subnet manager on an open transport. Run owns both.
func New(tr transport.Transport, cfg Config) *Subnet {
	cfg.defaults()
	s := &Subnet{cfg: cfg, tr: tr, log: cfg.Log, in: newInbox(), cmds: make(chan func(), 4), stopped: make(chan struct{}),
		warned: map[string]int{}}
	s.self.callers = map[callerID]*caller{}
	s.managers = managers{polled: map[ib.GUID]poll{}, unknownPeers: map[ib.GUID]time.Time{}}
	s.rivals.said, s.rivals.refused = map[ib.GUID]time.Time{}, map[ib.GUID]time.Time{}
	s.served = served{admin: sa.New(cfg.SA), shares: shares{}, guids: map[guidKey]mad.GUIDInfo{}, reports: newReports()}
	s.prog.noVLs = map[ib.GUID]bool{}
	s.win.most = mostOf(cfg.Window)
	s.counters.Received = map[string]uint64{}
	return s
}

// errRestart leaves a sweep because the state changed under it.
var errRestart = errors.New("state changed")

// Run manages the subnet until ctx ends or the device is gone
// (transport.ErrGone). At the end of ctx a master hands over to a standby, if
// there is one, before Run returns.
func (s *Subnet) Run(ctx context.Context) error {
	defer close(s.stopped)
	defer s.tr.Close() // a port that is left open could not be opened again
	s.start = time.Now()
	var err error
	if s.port, err = s.tr.Port(); err != nil {
		return fmt.Errorf("read the local port: %w", err)
	}
	s.log = s.log.With("ibdev", s.port.Device, "port", s.port.Num)
	if s.port.LinkLayer == ib.LinkLayerEthernet {
		return fmt.Errorf("%s/%d is an Ethernet port, it has no subnet", s.port.Device, s.port.Num)
	}
	s.load()
	s.loadDrains()
	s.elect = &election{Machine: elect.New(elect.Config{Self: smp.Standing{Priority: s.cfg.Priority, GUID: s.port.PortGUID},
		Trust: elect.Trust{Key: s.cfg.SMKey, MKey: s.cfg.Policy.MKey}, Misses: s.cfg.PollMisses}), changed: s.setStanding}
	s.setStanding()
	if err := s.tr.SetIsSM(true); err != nil {
		return fmt.Errorf("announce the subnet manager on %s/%d: %w", s.port.Device, s.port.Num, err)
	}
	rctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var wg sync.WaitGroup
	wg.Go(func() { s.receive(rctx) })
	s.tick = time.NewTimer(time.Hour)
	defer func() {
		s.tick.Stop()
		cancel()
		s.tr.Close()
		wg.Wait()
	}()
	s.publish()
	for {
		switch s.elect.State() {
		case mad.SMDiscovering:
			err = s.discovering(ctx)
		case mad.SMMaster:
			err = s.master(ctx)
		case mad.SMStandby:
			err = s.standby(ctx)
		default:
			err = s.rest(ctx)
		}
		s.publish()
		switch {
		case errors.Is(err, errRestart), err == nil && ctx.Err() == nil:
		case ctx.Err() != nil:
			s.end()
			return nil
		default:
			s.tr.SetIsSM(false)
			return err
		}
	}
}

// load reads the remembered LIDs; a lost or damaged memory is not fatal.
func (s *Subnet) load() {
	if s.cfg.Store != nil {
		b, err := s.cfg.Store.Load()
		if err == nil && len(b) > 0 {
			s.prog.memory, err = lid.Unmarshal("guid2lid", b)
		}
		if err != nil {
			s.log.Warn("remembered LIDs are not used", "err", err)
		}
	}
	if len(s.cfg.LIDs) == 0 {
		return
	}
	had, left := len(s.prog.memory), 0
	if s.prog.memory, left = s.prog.memory.Adopt(s.cfg.LIDs); left > 0 {
		s.log.Warn("LIDs of another manager's ports are not kept: this one has given them to others", "ports", left)
	}
	if n := len(s.prog.memory) - had; n > 0 {
		s.log.Info("LIDs of another manager's ports are kept", "ports", n)
		s.save() // a standby may never sweep
	}
}

func (s *Subnet) save() {
	if s.cfg.Store == nil || s.prog.saved {
		return
	}
	if err := s.cfg.Store.Save(s.prog.memory.Marshal()); err != nil {
		s.warnOnce("save", "LIDs are not remembered", "err", err)
		return
	}
	s.prog.saved = true
}

// warnOnce logs a warning and then every tenth time it comes again.
func (s *Subnet) warnOnce(key, msg string, args ...any) {
	if len(s.warned) > 4096 {
		clear(s.warned)
	}
	if s.warned[key]++; s.warned[key]%10 == 1 {
		s.log.Warn(msg, args...)
	}
}

// localInfo is a transport that knows the local PortInfo without an SMP.
type localInfo interface {
	PortInfo() (fabric.PortInfo, bool)
}

func (s *Subnet) options() discover.Options {
	o := discover.Options{Prefix: s.cfg.Policy.Prefix, Ports: s.cfg.QoS != nil, ShortSMTimeout: s.elect.State() == mad.SMMaster,
		Now: time.Now, Parts: &s.sweeps.parts, Flaps: &s.sweeps.flaps}
	if l, ok := s.tr.(localInfo); ok {
		if pi, ok := l.PortInfo(); ok {
			o.LocalPort = &pi
		}
	}
	return o
}

// discovering walks the subnet and decides what this manager is.
func (s *Subnet) discovering(ctx context.Context) error {
	s.prog.forget()
	s.followers.end()
	s.sweeps.scope, s.sweeps.light = nil, 0
	if err := s.awaitLink(ctx); err != nil {
		return err
	}
	s.ev, s.sweeps.active = events{}, true
	w := s.newSweep("full", "became master")
	d := discover.New(s.options())
	res, err := s.walk(ctx, d)
	if err != nil {
		return err
	}
	s.learnGUID(res.Fabric)
	if s.elect.State() != mad.SMDiscovering {
		// Handed the subnet meanwhile: what was found serves.
		w.reason = "handover"
		return w.configure(ctx, res)
	}
	if res.Fabric == nil {
		s.warnOnce("local", "the local port does not answer", "why", fmt.Sprint(res.Warnings))
		return s.pause(ctx, time.Second)
	}
	was := s.elect.State()
	if a := s.elect.Discovered(s.peers(res)); a == elect.Poll {
		m := s.elect.Master()
		s.log.Info("standby", "was", was.String(), "master", m.Info.GUID.String(), "priority", m.Info.Priority, "master_lid", m.LID.String())
		return nil
	}
	s.sweeps.reregister = true
	return w.configure(ctx, res)
}

// awaitLink waits until the local port is connected to something.
func (s *Subnet) awaitLink(ctx context.Context) error {
	for first := true; ; first = false {
		p, err := s.tr.Port()
		if err != nil {
			return err
		}
		s.setPort(p)
		if p.State >= ib.PortInit || p.Num == 0 {
			return nil
		}
		if first {
			s.log.Info("no link", "state", p.State.String(), "phys_state", p.PhysState.String())
			s.publish()
		}
		if err := s.wait(ctx, s.cfg.LocalPoll, nil); err != nil {
			return err
		}
	}
}

// setPort stores the local port's state. The GUID of NodeInfo stays: a device may
// report the node's instead.
func (s *Subnet) setPort(p transport.Port) {
	if s.guid != 0 {
		p.PortGUID = s.guid
	}
	s.port = p
}

// learnGUID takes the local port's GUID from a discovery.
func (s *Subnet) learnGUID(f *fabric.Fabric) {
	if f == nil || f.SMPort == fabric.None || f.Ports[f.SMPort].GUID == 0 || s.guid != 0 {
		return
	}
	s.guid = f.Ports[f.SMPort].GUID
	s.port.PortGUID = s.guid
	s.elect.SetGUID(s.guid)
}

// pause serves others' requests for a while.
func (s *Subnet) pause(ctx context.Context, d time.Duration) error { return s.wait(ctx, d, nil) }

// rest waits to be woken by another manager's Set of SMInfo.
func (s *Subnet) rest(ctx context.Context) error {
	return s.wait(ctx, time.Hour, func() bool { return s.elect.State() != mad.SMNotActive })
}

// peers lists the managers that a discovery met. One that answers with the GUID of
// another port is none: its adapter's answer has the right one.
func (s *Subnet) peers(res *discover.Result) []elect.Peer {
	var out []elect.Peer
	f := res.Fabric
	for _, x := range res.SMs {
		if x.Silent || x.Status != 0 {
			continue
		}
		if g := f.Ports[x.Port].GUID; g != x.Info.GUID {
			s.warnOnce("smguid"+g.String(), "subnet manager answers with the GUID of another port, ignoring it", "guid", g.String(),
				"shown", x.Info.GUID.String(), "lid", f.Ports[x.Port].Info.LID().String())
			continue
		}
		path, ok := program.PathTo(f, x.Port)
		if !ok {
			continue
		}
		out = append(out, elect.Peer{Info: x.Info, LID: f.Ports[x.Port].Info.LID(), Path: path})
	}
	return out
}

// Resweep requests a sweep now; with full the whole subnet is discovered again.
func (s *Subnet) Resweep(full bool, reason string) {
	s.do(func() {
		s.ev.resweep, s.ev.full, s.ev.light, s.ev.reason = true, s.ev.full || full, true, reason
		s.ev.guids = append(s.ev.guids, s.sweeps.flaps.Clear()...)
		s.unbabble(time.Now(), true)
	})
}

// SetPartitions replaces the partitions and brings the subnet to them.
func (s *Subnet) SetPartitions(c partition.Config, reason string) {
	s.do(func() {
		was := len(s.cfg.ownLevels()) > 0
		s.cfg.Partitions = c
		s.cfg.defaults()
		s.prog.reroute = s.prog.reroute || was != (len(s.cfg.ownLevels()) > 0)
		// A walk reads the ports' keys; those of ports without a key in the old
		// partitions were not read before.
		s.ev.full, s.ev.resweep, s.ev.reason = true, true, reason
	})
}

// SetRoute replaces how routes are computed and computes them again.
func (s *Subnet) SetRoute(o route.Options, reason string) {
	s.do(func() {
		s.cfg.Route = o
		s.prog.compared.worst = 0 // not to be compared: other flows may count
		s.prog.reroute, s.served.mcastDirty = true, true
		s.ev.apply, s.ev.resweep, s.ev.reason = true, true, reason
	})
}

// SetPrefixRoutes replaces the routers for GIDs of other subnets.
func (s *Subnet) SetPrefixRoutes(r []guidfile.PrefixRoute, reason string) {
	s.do(func() {
		s.cfg.PrefixRoutes = r
		s.ev.apply, s.ev.resweep, s.ev.reason = true, true, reason
	})
}

// mostOf bounds the requests under way, those beside the window included.
func mostOf(window int) int { return max(2*window, 64) + 16 }

// Adjusted is c with what Adjust replaces by that of another: the priority, intervals, the window
// and times of SMPs, and which hosts register again after a takeover.
func (c Config) Adjusted(to Config) Config {
	c.adjust(&to)
	return c
}

func (c *Config) adjust(to *Config) {
	c.Priority, c.Sweep, c.Poll, c.Window, c.Timeout, c.Retries = to.Priority, to.Sweep, to.Poll, to.Window, to.Timeout, to.Retries
	c.Reregister = to.Reregister
}

// Adjust applies what Adjusted names. What is under way keeps its times.
func (s *Subnet) Adjust(c Config) {
	c.defaults()
	s.do(func() {
		s.cfg.adjust(&c) // not the others: a computation may read them
		s.win.most = mostOf(c.Window)
		s.elect.SetPriority(c.Priority)
		s.publish()
	})
}

// SetNames replaces the names that are shown.
func (s *Subnet) SetNames(n fabric.Names) {
	s.do(func() {
		s.cfg.Names = n
		s.publish()
	})
}

// do runs f in the owner's goroutine, unless that has ended.
func (s *Subnet) do(f func()) {
	select {
	case s.cmds <- f:
	case <-s.stopped:
	}
}
