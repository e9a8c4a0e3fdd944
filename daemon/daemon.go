package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"ibnetworkd/daemon/card"
	"ibnetworkd/daemon/plan"
	"ibnetworkd/ib"
	"ibnetworkd/link"
	"ibnetworkd/roce"
	"ibnetworkd/units"
)

// System is what the loop observes and changes.
type System interface {
	// Look reads what the scope names.
	Look(Scope, Wants) (*link.Snapshot, error)
	// Apply carries out steps in order and reports each result. It ends early
	// when ctx does.
	Apply(ctx context.Context, steps []link.Step, done func(op link.Op, err error))
}

// Keeper keeps the record and the report; *Store is one.
type Keeper interface {
	LoadRecord() (*link.Record, error)
	SaveRecord(*link.Record) error
	SaveReport(r link.Report, changed func(name string) bool) error
}

// Config is what a daemon is made of.
type Config struct {
	Log    *slog.Logger
	System System
	Load   func() *units.Set
	// Doubt, if set, is called before a load that somebody asked for: what is
	// remembered of the files may be older than what was just written.
	Doubt func()
	Keep  Keeper
	Rooms []plan.Room
	// Events is what happens to the system; nil if nobody tells. It calls Wake
	// with Scope.Events.
	Events Events
	// Notify sends a line to the service manager; nil sends none.
	Notify func(state string)
	// FastPort is the time between two looks at the ports while one that
	// matters is not Active, longer when nothing has happened for a while;
	// SlowPort otherwise. Zero is 1 s and 60 s.
	FastPort, SlowPort time.Duration
	// AfterWork is called after a turn that has done something, with the number
	// of operations. It may give memory back.
	AfterWork func(steps int)
	// OnTurn is called from the loop after each turn that changed something,
	// with the present picture and units. It must not block.
	OnTurn []func(*link.Snapshot, *units.Set)
}

// Events are read by the loop alone; *Watch is one.
type Events interface {
	// Take says where to look because of what has happened since the last Take.
	Take() Scope
	// Ready asks to be woken by what happens from the last Take on.
	Ready()
}

// Change is what has changed since the last one.
type Change struct {
	Seq   uint64 // counts the changes
	Links []link.Status
	Gone  []string // names of links that went away
	Ports []link.PortStatus
	// PortsChanged reports that Ports is meant; it holds all ports.
	PortsChanged bool
	// Problems are all messages of the unit files, set with Reloaded.
	Problems []string
	Reloaded bool
	// Notices and Awaited are those of the link.Report, always set.
	Notices []link.Notice
	Awaited bool
}

// Daemon is the loop. Make it with New, start it with Run; the other methods
// may be called from any goroutine.
type Daemon struct {
	cfg Config
	log *slog.Logger

	mu   sync.Mutex // guards want, subs and more
	want Scope
	subs map[chan Change]*mailbox
	more map[string][]link.Notice // of others, by what they are about
	bell chan struct{}
	call chan func(context.Context)

	repMu  sync.RWMutex // guards report and snap
	report link.Report
	shown  *link.Snapshot

	// The rest belongs to the goroutine of Run.
	set    *units.Set
	snap   *link.Snapshot
	rec    *link.Record
	held   *holds
	unitOf map[int]*units.Unit
	// portNotes is what the last plan said of ports without a link.
	portNotes map[link.PortName]*link.PortNote
	status    map[int]link.Status
	left      *left
	lastCost  time.Duration
	lastEnd   time.Time
	seq       uint64            // of the last Change
	tables    time.Time         // when P_Key tables were read last
	moved     time.Time         // when something happened, or a port was another than before
	said      map[string]string // what was logged last, by link and about
	problems  map[string]bool   // of unit files, as they were logged
	ready     bool

	unsaved     map[string]bool // links that changed since the report was written
	reportDirty bool
	reportNext  time.Time // not before
	recordNext  time.Time // when to write it again, zero if it is written
	readNext    time.Time // when to read unit files again, zero if all were read
	readPause   time.Duration
}

type mailbox struct {
	mu     sync.Mutex
	c      Change
	full   bool
	signal chan struct{}
}

// New makes a daemon.
func New(cfg Config) *Daemon {
	if cfg.FastPort == 0 {
		cfg.FastPort = time.Second
	}
	if cfg.SlowPort == 0 {
		cfg.SlowPort = time.Minute
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	return &Daemon{
		cfg: cfg, log: cfg.Log, bell: make(chan struct{}, 1), call: make(chan func(context.Context)), subs: map[chan Change]*mailbox{},
		held: newHolds(), unitOf: map[int]*units.Unit{}, status: map[int]link.Status{}, said: map[string]string{},
		unsaved: map[string]bool{}, more: map[string][]link.Notice{},
	}
}

// Wake asks the loop to look somewhere. It never waits.
func (d *Daemon) Wake(s Scope) {
	d.mu.Lock()
	d.want.Join(s)
	d.mu.Unlock()
	select {
	case d.bell <- struct{}{}:
	default:
	}
}

// Report is everything that is said now.
func (d *Daemon) Report() link.Report {
	d.repMu.RLock()
	defer d.repMu.RUnlock()
	return d.report
}

// Snapshot is the last picture of the system, nil before the first.
func (d *Daemon) Snapshot() *link.Snapshot {
	d.repMu.RLock()
	defer d.repMu.RUnlock()
	return d.shown
}

// Subscribe gives the changes from now on. A subscriber that is slow gets the
// changes that it missed joined into one: nothing queues up. cancel ends it.
func (d *Daemon) Subscribe() (changes <-chan Change, cancel func()) {
	out := make(chan Change)
	m := &mailbox{signal: make(chan struct{}, 1)}
	stop := make(chan struct{})
	d.mu.Lock()
	d.subs[out] = m
	d.mu.Unlock()
	go func() {
		defer close(out)
		for {
			select {
			case <-stop:
				return
			case <-m.signal:
			}
			m.mu.Lock()
			c, full := m.c, m.full
			m.c, m.full = Change{}, false
			m.mu.Unlock()
			if !full {
				continue
			}
			select {
			case out <- c:
			case <-stop:
				return
			}
		}
	}()
	var once sync.Once
	return out, func() {
		once.Do(func() {
			d.mu.Lock()
			delete(d.subs, out)
			d.mu.Unlock()
			close(stop)
		})
	}
}

func (m *mailbox) put(c Change) {
	m.mu.Lock()
	for _, s := range c.Links {
		m.c.Links = slices.DeleteFunc(m.c.Links, func(o link.Status) bool { return o.Name == s.Name })
		m.c.Gone = slices.DeleteFunc(m.c.Gone, func(n string) bool { return n == s.Name })
	}
	for _, n := range c.Gone {
		m.c.Links = slices.DeleteFunc(m.c.Links, func(o link.Status) bool { return o.Name == n })
	}
	m.c.Links = append(m.c.Links, c.Links...)
	m.c.Gone = append(m.c.Gone, c.Gone...)
	if c.PortsChanged {
		m.c.Ports, m.c.PortsChanged = c.Ports, true
	}
	if c.Reloaded {
		m.c.Problems, m.c.Reloaded = c.Problems, true
	}
	m.c.Notices, m.c.Awaited = c.Notices, c.Awaited
	m.c.Seq = c.Seq
	m.full = true
	m.mu.Unlock()
	select {
	case m.signal <- struct{}{}:
	default:
	}
}

// ask runs f in the loop's goroutine and waits for it.
func (d *Daemon) ask(ctx context.Context, f func(context.Context) error) error {
	done := make(chan error, 1)
	select {
	case d.call <- func(c context.Context) { done <- f(c) }:
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Reload reads the unit files and applies what changed before it returns.
func (d *Daemon) Reload(ctx context.Context) error {
	return d.ask(ctx, func(c context.Context) error {
		if d.cfg.Doubt != nil {
			d.cfg.Doubt()
		}
		return d.cycle(c, Scope{Reload: true})
	})
}

// Reconfigure plans one link anew and tries again what was refused there.
func (d *Daemon) Reconfigure(ctx context.Context, name string) error {
	return d.ask(ctx, func(c context.Context) error {
		l, err := d.named(name)
		if err != nil {
			return err
		}
		if e := d.rec.Of(l); e != nil {
			e.Activated, e.Deactivated = false, false
		}
		return d.cycle(c, Scope{Links: map[int]bool{l.Index: true}, Force: map[int]bool{l.Index: true}, RDMA: true, PKeys: true, Addrs: true})
	})
}

// SetAdmin brings a link up or down by hand.
func (d *Daemon) SetAdmin(ctx context.Context, name string, up bool) error {
	return d.ask(ctx, func(c context.Context) error {
		l, err := d.named(name)
		if err != nil {
			return err
		}
		var failed error
		op := link.SetUp{On: link.TargetOf(l), Up: up}
		d.cfg.System.Apply(c, []link.Step{{Op: op}}, func(_ link.Op, err error) { failed = err })
		if failed != nil {
			return fmt.Errorf("%s: %w", op, failed)
		}
		return d.cycle(c, Scope{Links: map[int]bool{l.Index: true}, Force: map[int]bool{l.Index: true}})
	})
}

// Refresh reads what changes without an event: the state of RDMA ports and their
// P_Key tables. It gives the number of the Change that has the result, 0 for none.
func (d *Daemon) Refresh(ctx context.Context) (uint64, error) {
	var before, after uint64
	err := d.ask(ctx, func(c context.Context) error {
		before = d.seq
		err := d.cycle(c, Scope{RDMA: true, PKeys: true})
		after = d.seq
		return err
	})
	if err != nil || before == after {
		return 0, err
	}
	return after, nil
}

// Alive returns when the loop has answered.
func (d *Daemon) Alive(ctx context.Context) error {
	return d.ask(ctx, func(context.Context) error { return nil })
}

// Plan says what would be done now. It is not empty only between an event and
// the end of the cycle that it starts, or while operations are held.
func (d *Daemon) Plan(ctx context.Context) (r plan.Result, err error) {
	err = d.ask(ctx, func(context.Context) error {
		if d.snap == nil {
			return errors.New("the system could not be looked at yet")
		}
		r = plan.Make(plan.Input{Snapshot: d.snap, Units: d.set, Record: d.rec, Rooms: d.cfg.Rooms})
		return nil
	})
	return r, err
}

func (d *Daemon) named(name string) (*link.Link, error) {
	if d.snap != nil {
		if l, ok := d.snap.LinkByName(name); ok {
			return l, nil
		}
	}
	return nil, fmt.Errorf("there is no link %s", name)
}

// Run is the loop. It returns when ctx ends; the configuration stays in place.
func (d *Daemon) Run(ctx context.Context) error {
	var err error
	if d.rec, err = d.cfg.Keep.LoadRecord(); err != nil {
		d.log.Warn("the record of what was made cannot be read: what an earlier run made counts as foreign", "error", err)
	}
	port := time.NewTimer(time.Hour)
	retry := time.NewTimer(time.Hour)
	defer port.Stop()
	defer retry.Stop()
	sc := Scope{All: true, Reload: true, RDMA: true, Addrs: true, Routes: true, Rules: true, First: firstLinks}
	for {
		if !sc.Empty() || d.snap == nil {
			err := d.cycle(ctx, sc)
			if err == nil && d.left != nil && ctx.Err() == nil {
				sc = Scope{All: true}
				continue
			}
		}
		if !d.ready && d.snap != nil {
			d.ready = true
			d.notify("READY=1")
		}
		resetTimer(port, d.portWait())
		next := d.held.next()
		if d.reportDirty {
			next = sooner(next, d.reportNext)
		}
		next = sooner(sooner(next, d.recordNext), d.readNext)
		if !next.IsZero() {
			resetTimer(retry, time.Until(next))
		} else {
			retry.Stop()
		}
		sc = Scope{}
		if d.cfg.Events != nil {
			d.cfg.Events.Ready()
		}
		select {
		case <-ctx.Done():
			d.notify("STOPPING=1")
			return nil
		case <-d.bell:
			sc = d.collect(ctx)
		case f := <-d.call:
			f(ctx)
		case <-port.C:
			sc = Scope{RDMA: true, PKeys: d.waitsForPKey() || time.Since(d.tables) >= d.cfg.SlowPort}
		case <-retry.C:
			if !d.recordNext.IsZero() {
				d.save()
			}
			d.saveReport()
			if t := d.held.next(); !t.IsZero() && !time.Now().Before(t) {
				sc = Scope{Due: true}
			}
			if !d.readNext.IsZero() && !time.Now().Before(d.readNext) {
				sc.Reload = true
			}
		}
	}
}

// sooner is the earlier of two times, of which a zero one is none.
func sooner(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

func resetTimer(t *time.Timer, d time.Duration) {
	if d <= 0 {
		d = time.Millisecond
	}
	t.Reset(d)
}

// coalesceLeast joins the events that one change brings: a device that comes makes
// a dozen within milliseconds.
const coalesceLeast = 4 * time.Millisecond

// coalesceNext does so for events that follow a cycle closely: most are what
// udevd, the subnet manager or the kernel make of the same change.
const coalesceNext = 20 * time.Millisecond

// coalesceMost bounds the wait for more hints of the same storm.
const coalesceMost = 250 * time.Millisecond

// collect takes the hints. In a storm it waits for as long as the last cycle
// took, so that at least half of the time is left to others and one look
// answers many hints.
func (d *Daemon) collect(ctx context.Context) Scope {
	least := coalesceLeast
	if time.Since(d.lastEnd) < coalesceMost {
		least = coalesceNext
	}
	d.pause(ctx, min(max(d.lastCost, least), coalesceMost))
	s := d.hints()
	if s.lazy() {
		d.pause(ctx, lazyWait)
		s.Join(d.hints())
		s.Join(d.happened())
	}
	if d.set != nil && d.rec != nil {
		w := d.wants()
		s.Routes, s.Rules = s.Routes && w.Routes, s.Rules && w.Rules
	}
	return s
}

// hints takes what Wake has been called with, and the events that it told of.
func (d *Daemon) hints() Scope {
	select {
	case <-d.bell:
	default:
	}
	d.mu.Lock()
	s := d.want
	d.want = Scope{}
	d.mu.Unlock()
	if s.Events {
		s.Events = false
		o := d.happened()
		if o.RDMA {
			d.moved = time.Now()
		}
		s.Join(o)
	}
	if s.All || s.Reload || len(s.Force) > 0 {
		d.moved = time.Now()
	}
	return s
}

func (d *Daemon) happened() (s Scope) {
	if d.cfg.Events != nil {
		s = d.cfg.Events.Take()
	}
	return s
}

func (d *Daemon) pause(ctx context.Context, wait time.Duration) {
	t := time.NewTimer(wait)
	select {
	case <-t.C:
	case <-ctx.Done():
		t.Stop()
	}
}

// lazyWait is how long hints wait that nobody waits for. They come one by one for
// each link.
const lazyWait = 100 * time.Millisecond

func (d *Daemon) notify(s string) {
	if d.cfg.Notify != nil {
		d.cfg.Notify(s)
	}
}

// portWait is the time until the next look at the ports.
func (d *Daemon) portWait() time.Duration {
	if d.snap == nil || len(d.snap.Devices) == 0 {
		return 24 * time.Hour // there is an event for the first device
	}
	if !d.waitsForPort() {
		return d.cfg.SlowPort
	}
	if time.Since(d.moved) < portPatience {
		return d.cfg.FastPort
	}
	return min(portBackOff*d.cfg.FastPort, d.cfg.SlowPort)
}

// A port that waits, for a cable for example, is looked at each FastPort until
// nothing has happened for portPatience, then less often by portBackOff: a look costs
// some firmware commands at each port of the host.
const (
	portPatience = time.Minute
	portBackOff  = 10
)

// waitsForPort reports whether a port that matters is not as a link needs it.
func (d *Daemon) waitsForPort() bool {
	if d.waitsForPKey() {
		return true
	}
	for i := range d.snap.Links {
		l := &d.snap.Links[i]
		if !d.cares(l) {
			continue
		}
		if _, p := d.snap.PortOf(l); p != nil && p.Layer == ib.LinkLayerInfiniBand && p.State != ib.PortActive {
			return true
		}
	}
	return false
}

// cares reports whether a unit of ours applies to the link or its parent.
func (d *Daemon) cares(l *link.Link) bool {
	st, ok := d.status[l.Index]
	return ok && st.State != link.StateUnmanaged && l.IPoIB != nil
}

// waitsForPKey reports whether a link waits for the subnet manager to grant its
// partition, which comes without an event if the table alone changes.
func (d *Daemon) waitsForPKey() bool {
	for i := range d.snap.Links {
		l := &d.snap.Links[i]
		if !d.cares(l) || l.Carrier() || !l.Up() {
			continue
		}
		if _, p := d.snap.PortOf(l); p != nil && p.State == ib.PortActive && !p.HasPKey(l.IPoIB.PKey) {
			return true
		}
	}
	return false
}

// firstLinks is how many links the first cycle is content with.
const firstLinks = 16

// left is what a cycle leaves to the next: the first of the two at the start
// the links that it did not look at closely, one that could not look at the
// system all that it was about.
type left struct {
	changed  map[string]bool // links whose status nobody has been told
	dirty    map[int]bool    // links to plan
	reloaded bool
}

// rounds bounds how often one cycle plans: once for what is there, once more
// for each thing that becomes known by applying (an MTU's real value, a refusal).
const rounds = 10

// cycle observes what the scope names, plans, applies and reports.
func (d *Daemon) cycle(ctx context.Context, sc Scope) (err error) {
	start := time.Now()
	var cost struct{ load, look, plan, apply, report time.Duration }
	// The parts are for the log alone, and reading a clock is a system call on
	// some machines.
	debug := d.log.Enabled(ctx, slog.LevelDebug)
	clock := func() (t time.Time) {
		if debug {
			t = time.Now()
		}
		return t
	}
	lap := func(into *time.Duration, since time.Time) {
		if debug {
			*into += time.Since(since)
		}
	}
	defer func() {
		d.lastEnd = time.Now()
		d.lastCost = d.lastEnd.Sub(start)
		if !debug {
			return
		}
		d.log.Debug("turn", "scope", sc.String(), "took", d.lastCost, "load", cost.load, "look", cost.look, "plan", cost.plan, "apply", cost.apply, "report", cost.report)
	}()
	from := left{map[string]bool{}, map[int]bool{}, false}
	if d.left != nil {
		from, d.left = *d.left, nil
	}
	changed, dirty, reloaded := from.changed, from.dirty, from.reloaded
	var far map[int]bool // links to be looked at closely in the next cycle
	defer func() {
		if err == nil || ctx.Err() != nil {
			d.unsay("", "look")
			return
		}
		maps.Copy(dirty, far)
		d.left = &left{changed, dirty, reloaded}
		d.sayOnce("", "look", "looking at the system failed; it is tried again: "+err.Error(), slog.LevelError)
		time.AfterFunc(retryFirst, func() { d.Wake(Scope{All: true}) })
	}()
	maps.Copy(dirty, sc.Force)
	if sc.Reload || d.set == nil {
		t := clock()
		reloaded = d.reload(dirty) || reloaded
		lap(&cost.load, t)
		// A file that was not there when the set was loaded may ask for
		// settings, routes or rules that nobody has looked at yet.
		sc.Routes, sc.Rules = true, true
	}
	if sc.Due {
		for _, t := range d.held.due(start) {
			if l := d.at(t); l != nil {
				dirty[l.Index] = true
			} else {
				dirty[0] = true // a port without a link
			}
		}
	}
	old := d.snap
	if sc.PKeys || sc.All {
		d.tables = start
	}
	t := clock()
	snap, err := d.cfg.System.Look(sc, d.wants())
	lap(&cost.look, t)
	if err != nil {
		return err
	}
	d.take(snap, dirty)
	if near := family(snap.Links, sc.First, func(l *link.Link) (index, parent int) { return l.Index, l.Parent }); near != nil {
		far = map[int]bool{}
		for i := range snap.Links {
			if n := snap.Links[i].Index; !near[n] {
				far[n] = true
				delete(dirty, n)
			}
		}
	}
	for i := range sc.Force {
		if l, ok := d.snap.Link(i); ok {
			d.held.event(map[string]bool{l.Name: true}, true, start)
		}
	}
	steps := 0
	for round := 0; round < rounds && len(dirty) > 0 && ctx.Err() == nil; round++ {
		folded := d.rec.Fold(d.snap)
		in := plan.Input{Snapshot: d.snap, Units: d.set, Record: d.rec, Held: d.held.reasons(), Rooms: d.cfg.Rooms, Scope: dirty, Prev: d.unitOf, Partial: far != nil, NoPorts: true}
		if len(dirty) >= len(d.snap.Links) {
			in.Scope = nil
		}
		t = clock()
		r := plan.Make(in)
		lap(&cost.plan, t)
		d.unitOf, d.portNotes = r.Units, r.PortNotes
		for _, st := range r.Links {
			d.setStatus(st, changed)
		}
		if d.rec.Remember(r.Keep, d.snap) {
			folded = true
		}
		if r.Plan.Empty() {
			if folded {
				d.save()
			}
			break
		}
		steps += len(r.Plan.Steps)
		t = clock()
		var gone []absence
		dirty, gone = d.apply(ctx, r.Plan.Steps)
		lap(&cost.apply, t)
		look := Scope{Addrs: true, Routes: true, Rules: true, Links: maps.Clone(dirty)}
		// Our own changes echo as events: this look answers those too.
		look.Join(d.happened())
		for _, s := range r.Plan.Steps {
			switch s.Op.(type) {
			case link.AddChild:
				look.All = true
			case link.Maker: // a link or an RDMA device
				look.All, look.RDMA = true, true
			}
		}
		t = clock()
		snap, err := d.cfg.System.Look(look, d.wants())
		lap(&cost.look, t)
		if err != nil {
			return err
		}
		d.take(snap, dirty)
		for _, g := range gone {
			if d.exists(g.op) {
				d.hold(g.op, g.why, false, g.err)
			}
		}
	}
	if far != nil {
		d.left = &left{changed, far, reloaded}
		return nil
	}
	t = clock()
	d.fold(changed, reloaded)
	lap(&cost.report, t)
	if old != d.snap || reloaded {
		for _, f := range d.cfg.OnTurn {
			f(d.snap, d.set)
		}
	}
	if steps > 0 && d.cfg.AfterWork != nil {
		d.cfg.AfterWork(steps)
	}
	return nil
}

func (d *Daemon) at(t link.Target) *link.Link {
	if d.snap == nil {
		return nil
	}
	if l, ok := d.snap.Link(t.Ifindex); ok {
		return l
	}
	// A child that could not be made is its parent's business: any link of the
	// port will do, the scope is closed over parents and children.
	for i := range d.snap.Links {
		if l := &d.snap.Links[i]; l.IBDevice != "" && l.IBDevice == t.IBDevice && l.Port == t.Port {
			return l
		}
	}
	return nil
}

// wants says what the units and the record make worth looking at.
func (d *Daemon) wants() Wants {
	w := Wants{Rules: len(d.rec.Rules) > 0, Routes: len(d.rec.Routes) > 0}
	for _, e := range d.rec.Links {
		w.Routes = w.Routes || len(e.Routes) > 0
		w.Resolved = w.Resolved || e.DNS != nil
	}
	sys := map[*units.Unit][]string{}
	cards := d.hasEthernetPort()
	for _, u := range d.set.Units {
		cards = cards || u.Port.Present || u.RoCE.Present || u.SoftRoCE.Present || len(u.VLANs) > 0 || u.VirtualFunctions.Present || len(u.VFs) > 0
		w.Routes = w.Routes || len(u.Routes) > 0
		w.Rules = w.Rules || len(u.Rules) > 0
		w.Resolved = w.Resolved || link.NeedsResolved(u)
		if s := link.Sysctls(u); len(s) > 0 {
			sys[u] = s
		}
	}
	unitOf := func(s *link.Snapshot, l *link.Link) *units.Unit {
		u := d.unitOf[l.Index]
		if _, known := d.status[l.Index]; !known || u == nil {
			f := link.FactsOf(s, l)
			if x, v, _ := d.set.Find(&f); v == units.Yes {
				u = x
			}
		}
		return u
	}
	if len(sys) > 0 {
		w.Sysctls = func(s *link.Snapshot, l *link.Link) []string { return sys[unitOf(s, l)] }
	}
	if cards {
		w.Card, w.CardPort = unitOf, portUnit(d.set)
	}
	return w
}

// portUnit gives the unit that matches a port by itself.
func portUnit(set *units.Set) func(s *link.Snapshot, d *link.Device, p *link.Port) *units.Unit {
	return func(s *link.Snapshot, d *link.Device, p *link.Port) *units.Unit {
		return link.UnitOfPort(s, set, d, p)
	}
}

// hasEthernetPort reports whether there is a RoCE port, whose GID indexes are
// told whatever units say.
func (d *Daemon) hasEthernetPort() bool {
	if d.snap == nil {
		return false
	}
	for i := range d.snap.Devices {
		for _, p := range d.snap.Devices[i].Ports {
			if p.Layer == ib.LinkLayerEthernet {
				return true
			}
		}
	}
	return false
}

// take makes a snapshot the present one and adds the links that changed, and
// those on ports that changed, to dirty.
func (d *Daemon) take(s *link.Snapshot, dirty map[int]bool) {
	old := d.snap
	links, rdma := changedLinks(old, s)
	d.snap = s
	maps.Copy(dirty, links)
	if len(links) > 0 {
		for i, st := range d.status {
			if st.Obstructed() {
				dirty[i] = true
			}
		}
	}
	if old != nil {
		maps.Copy(dirty, roce.Changed(old.Card, s.Card))
	}
	now := time.Now()
	if rdma {
		d.moved = now
		moved := map[string]bool{}
		for i := range s.Links {
			l := &s.Links[i]
			if l.IBDevice == "" {
				continue
			}
			if old == nil || !samePort(old, s, l) {
				dirty[l.Index] = true
				moved[l.Name] = true
			}
		}
		// What was refused may be granted by a port in another state.
		moved[""], dirty[0] = true, true
		d.held.event(moved, true, now)
	}
	if old != nil && !reflect.DeepEqual(old.Host, s.Host) {
		if old.Host.Resolved != s.Host.Resolved {
			d.held.forget(func(op link.Op) bool { _, dns := op.(link.SetDNS); return dns })
		}
		for i := range s.Links {
			dirty[s.Links[i].Index] = true
		}
	}
	if len(links) > 0 && len(d.held.m) > 0 {
		names, again := map[string]bool{}, map[string]bool{}
		for i := range links {
			l, ok := s.Link(i)
			if !ok {
				continue
			}
			names[l.Name] = true
			// A new interface, a new mode or new carrier is a new start.
			if o := oldLink(old, i); o == nil || o.Carrier() != l.Carrier() || o.IPoIB != nil && l.IPoIB != nil && o.IPoIB.Mode != l.IPoIB.Mode {
				again[l.Name] = true
			}
		}
		d.held.event(names, false, now)
		d.held.event(again, true, now)
	}
	for i := range dirty {
		// 0 stands for ports without a link, and for what leans on other links.
		if _, ok := s.Link(i); !ok && i != 0 {
			delete(dirty, i)
		}
	}
}

func oldLink(s *link.Snapshot, index int) *link.Link {
	if s == nil {
		return nil
	}
	l, _ := s.Link(index)
	return l
}

func samePort(a, b *link.Snapshot, l *link.Link) bool {
	_, p := a.PortOf(l)
	_, q := b.PortOf(l)
	return p == nil && q == nil || p != nil && q != nil && reflect.DeepEqual(p, q)
}

// absence is an operation of which the kernel said that its link is not there.
type absence struct {
	op  link.Op
	why link.Reason // if it is there all the same
	err error
}

// exists reports whether what an operation is about is in the snapshot.
func (d *Daemon) exists(op link.Op) (ok bool) {
	t := op.Target()
	if c, add := op.(link.AddChild); add {
		t = c.Parent
	}
	switch {
	case t.Ifindex != 0:
		_, ok = d.snap.Link(t.Ifindex)
	case t.Link != "":
		_, ok = d.snap.LinkByName(t.Link)
	case t.IBDevice != "":
		_, ok = d.snap.Device(t.IBDevice)
	default:
		ok = true // the host
	}
	return ok
}

// hold has an operation that failed wait, and says why.
func (d *Daemon) hold(op link.Op, why link.Reason, refused bool, err error, args ...any) {
	d.held.add(op, why, refused, time.Now())
	level := slog.LevelWarn
	if errors.Is(err, card.ErrLoading) {
		level = slog.LevelInfo
	}
	d.sayOnce(op.Target().String(), failedOp(op), why.Text, level, as(msgRefused, append(args, "code", string(why.Code), "error", err, "next", why.Next)...)...)
}

func failedOp(op link.Op) string { return "failed " + op.String() }

// apply carries steps out and gives the links to look at again, and the
// operations whose links the kernel could not find.
func (d *Daemon) apply(ctx context.Context, steps []link.Step) (touched map[int]bool, gone []absence) {
	touched = map[int]bool{}
	unit := make(map[string]string, len(steps))
	for _, s := range steps {
		d.rec.Intend(s.Op)
		unit[link.HoldKey(s.Op)] = s.Unit
		t := s.Op.Target()
		if t.Ifindex != 0 {
			touched[t.Ifindex] = true
		} else if t.Link == "" && t.IBDevice != "" {
			touched[0] = true // a port without a link
		}
		if c, ok := s.Op.(link.AddChild); ok {
			touched[c.Parent.Ifindex] = true
		}
	}
	// The record goes first: a kill between here and the effect leaves a note
	// of something that is not there, never something of ours without a note.
	d.save()
	d.cfg.System.Apply(ctx, steps, func(op link.Op, err error) {
		args := []any{"op", op.String()}
		if t := op.Target(); t.Link != "" {
			args = append(args, "link", t.Link)
		}
		if u := unit[link.HoldKey(op)]; u != "" {
			args = append(args, "unit", u)
		}
		if err == nil {
			d.rec.Done(op)
			d.held.done(op)
			d.unsay(op.Target().String(), failedOp(op))
			d.log.Info("done", as(msgOperation, args...)...)
			return
		}
		v, why := classify(op, err)
		switch v {
		case verdictDone:
			d.rec.Done(op)
			d.held.done(op)
		case verdictForeign:
			d.rec.Failed(op)
			d.held.done(op)
		case verdictGone:
			d.rec.Failed(op)
			gone = append(gone, absence{op, why, err})
			d.log.Debug("the link went away", append(args, "error", err)...)
		case verdictRetry, verdictGiveUp:
			d.rec.Failed(op)
			d.hold(op, why, v == verdictGiveUp, err, args...)
		}
	})
	d.save()
	return touched, gone
}

// keepAgain is how long after a file could not be written it is tried again: nothing
// tells that a disk has room again.
const keepAgain = time.Second

func (d *Daemon) save() {
	if err := d.cfg.Keep.SaveRecord(d.rec); err != nil {
		d.sayOnce("", "record", err.Error(), slog.LevelError, "effect", "what is made from now on is not removed after a restart")
		d.recordNext = time.Now().Add(keepAgain)
		return
	}
	d.unsay("", "record")
	d.recordNext = time.Time{}
}

// said is the key of d.said for a matter of a link, "" for none.
func said(name, about string) string { return name + "\x00" + about }

// unsay has the next word about a matter logged, whatever was the last.
func (d *Daemon) unsay(name, about string) { delete(d.said, said(name, about)) }

// sayOnce logs what was not the last thing said about the matter.
func (d *Daemon) sayOnce(name, about, text string, level slog.Level, args ...any) {
	key := said(name, about)
	if d.said[key] == text {
		return
	}
	d.said[key] = text
	d.log.Log(context.Background(), level, text, args...)
}

// reload reads the units and adds the links that a changed unit has or had to
// dirty.
func (d *Daemon) reload(dirty map[int]bool) bool {
	set := d.cfg.Load()
	old := d.set
	d.set = set
	d.readAgain(set.Unread)
	if old == nil {
		d.logProblems(set)
		return true
	}
	diff := units.Diff(old, set)
	other := d.logProblems(set)
	if diff.Empty() {
		if other {
			d.newProblems(set, dirty)
		}
		return other
	}
	d.log.Info("units changed", as(msgUnits, "added", diff.Added, "removed", diff.Removed, "changed", diff.Changed)...)
	touched := map[string]bool{}
	for _, n := range slices.Concat(diff.Added, diff.Removed, diff.Changed) {
		touched[n] = true
	}
	if d.snap == nil {
		return true
	}
	by := make(map[string]*units.Unit, len(set.Units))
	for _, u := range set.Units {
		by[u.Name] = u
	}
	// Ports without a link are planned at each turn that plans anything.
	dirty[0] = true
	names := map[string]bool{"": true}
	for i := range d.snap.Links {
		l := &d.snap.Links[i]
		had := d.unitOf[l.Index]
		again := had != nil && touched[had.Name]
		if had != nil && !again && by[had.Name] != had {
			d.unitOf[l.Index], dirty[l.Index] = by[had.Name], true // other problems
		}
		// A unit that came or changed takes a link from one that stands after it.
		for _, n := range slices.Concat(diff.Added, diff.Changed) {
			if again || had != nil && had.Name < n || by[n] == nil {
				continue
			}
			f := link.FactsOf(d.snap, l)
			v, _ := by[n].Match.Matches(&f)
			again = v != units.No
		}
		if again {
			dirty[l.Index] = true
			names[l.Name] = true
			// The next look is for the unit that the link will have.
			delete(d.unitOf, l.Index)
		}
	}
	d.held.event(names, true, time.Now())
	return true
}

// newProblems marks the links whose unit is the same and has other problems now.
func (d *Daemon) newProblems(set *units.Set, dirty map[int]bool) {
	by := make(map[string]*units.Unit, len(set.Units))
	for _, u := range set.Units {
		by[u.Name] = u
	}
	for i, u := range d.unitOf {
		if u != nil && by[u.Name] != nil && by[u.Name] != u {
			d.unitOf[i], dirty[i] = by[u.Name], true
		}
	}
}

// logProblems logs the problems that were not there in the last load, and those
// that are gone, and reports whether there were any of either.
func (d *Daemon) logProblems(set *units.Set) bool {
	now := make(map[string]bool, len(set.Problems))
	changed := false
	for _, p := range set.Problems {
		text := p.String()
		if now[text] {
			continue
		}
		now[text] = true
		if d.problems[text] {
			continue
		}
		changed = true
		level := slog.LevelWarn
		if p.Severity == units.Error {
			level = slog.LevelError
		}
		d.log.Log(context.Background(), level, text, as(msgProblem, "CONFIG_FILE", p.Pos.File, "CONFIG_LINE", p.Pos.Line)...)
	}
	for _, text := range slices.Sorted(maps.Keys(d.problems)) {
		if !now[text] {
			changed = true
			d.log.Info("gone: " + text)
		}
	}
	d.problems = now
	return changed
}

// readFirst and readMost are the pauses between attempts to read unit files that
// could not be read: nothing tells that a descriptor or memory is free again.
const (
	readFirst = time.Second
	readMost  = time.Minute
)

// readAgain sets when the unit files are read again by themselves.
func (d *Daemon) readAgain(unread bool) {
	if !unread {
		d.readNext, d.readPause = time.Time{}, 0
		return
	}
	d.readPause = min(max(2*d.readPause, readFirst), readMost)
	d.readNext = time.Now().Add(d.readPause)
}

// setStatus takes a link's status and notes whether it is another one.
func (d *Daemon) setStatus(st link.Status, changed map[string]bool) {
	old, had := d.status[st.Ifindex]
	if had && reflect.DeepEqual(old, st) {
		return
	}
	d.status[st.Ifindex] = st
	changed[st.Name] = true
}

// fold says what has changed: to the journal, the readers and the file.
func (d *Daemon) fold(changed map[string]bool, reloaded bool) {
	for i, st := range d.status {
		if _, ok := d.snap.Link(i); !ok {
			delete(d.status, i)
			maps.DeleteFunc(d.said, func(k, _ string) bool { return strings.HasPrefix(k, said(st.Name, "")) })
			if st.State != link.StateUnmanaged {
				d.log.Info("link is gone", "link", st.Name, "state", string(st.State))
			}
		}
	}
	rep := link.Report{Ports: link.FoldPorts(d.snap, d.set, d.unitOf, d.portNotes)}
	names := make(map[string]bool, len(d.snap.Links))
	for i := range d.snap.Links {
		if st, ok := d.status[d.snap.Links[i].Index]; ok {
			rep.Links = append(rep.Links, st)
			names[st.Name] = true
			if changed[st.Name] {
				d.logState(st)
			}
		}
	}
	for _, p := range d.set.Problems {
		rep.Problems = append(rep.Problems, p.String())
	}
	rep.Awaited = link.Awaited(d.set)
	rep.Notices = d.notices()
	d.repMu.Lock()
	last := d.report
	d.report, d.shown = rep, d.snap
	d.repMu.Unlock()
	// A name that nobody has any more is gone, also where its link is renamed.
	var gone []string
	for _, st := range last.Links {
		if !names[st.Name] {
			gone = append(gone, st.Name)
		}
	}
	slices.Sort(gone)
	c := Change{Gone: gone, Ports: rep.Ports, PortsChanged: !reflect.DeepEqual(last.Ports, rep.Ports), Reloaded: reloaded, Problems: rep.Problems,
		Notices: rep.Notices, Awaited: rep.Awaited}
	noticed := !slices.Equal(last.Notices, rep.Notices) || last.Awaited != rep.Awaited
	if noticed {
		d.logNotices(last.Notices, rep.Notices)
	}
	for _, st := range rep.Links {
		if changed[st.Name] {
			c.Links = append(c.Links, st)
		}
	}
	if len(c.Links) == 0 && len(gone) == 0 && !c.PortsChanged && !reloaded && !noticed {
		return
	}
	if c.PortsChanged {
		d.logPorts(last.Ports, rep.Ports)
	}
	maps.Copy(d.unsaved, changed)
	d.reportDirty = true
	d.saveReport()
	d.notify("STATUS=" + summary(rep))
	d.seq++
	c.Seq = d.seq
	d.mu.Lock()
	subs := slices.Collect(maps.Values(d.subs))
	d.mu.Unlock()
	for _, m := range subs {
		m.put(c)
	}
}

// reportShare bounds the part of the time that goes into the report's file: it is
// written at most once in this many times of what writing it takes.
const reportShare = 8

// saveReport writes the report's file, unless it was written a moment ago; then
// the timer does it.
func (d *Daemon) saveReport() {
	start := time.Now()
	if !d.reportDirty || start.Before(d.reportNext) {
		return
	}
	if err := d.cfg.Keep.SaveReport(d.Report(), func(n string) bool { return d.unsaved[n] }); err != nil {
		d.sayOnce("", "report", err.Error(), slog.LevelError)
		d.reportNext = time.Now().Add(keepAgain)
		return
	}
	d.unsay("", "report")
	clear(d.unsaved)
	d.reportDirty = false
	d.reportNext = time.Now().Add(reportShare * time.Since(start))
}

// logState logs the states of a link as old -> new with the reason, and each
// reason that remains, once.
func (d *Daemon) logState(st link.Status) {
	if st.State == link.StateUnmanaged && st.Reason().Code == link.CodeNoUnit {
		return
	}
	now := string(st.State) + "/" + string(st.Oper)
	key := said(st.Name, "state")
	was := d.said[key]
	if was == now+" "+st.Reason().Text {
		return
	}
	d.said[key] = now + " " + st.Reason().Text
	before, _, _ := strings.Cut(was, " ")
	if before == "" {
		before = "new"
	}
	args := []any{"link", st.Name, "old", before, "new", now}
	if st.Unit != "" {
		args = append(args, "unit", st.Unit)
	}
	if st.IBDevice != "" {
		args = append(args, "RDMA_PORT", fmt.Sprintf("%s/%d", st.IBDevice, st.Port))
	}
	if r := st.Reason(); r.Text != "" {
		args = append(args, "code", string(r.Code), "reason", r.Text)
		if r.Next != "" {
			args = append(args, "next", r.Next)
		}
	}
	level := slog.LevelInfo
	if st.State == link.StateFailed {
		level = slog.LevelWarn
	}
	d.log.Log(context.Background(), level, st.Name+": "+before+" -> "+now, as(msgLink, args...)...)
}

func (d *Daemon) logPorts(old, now []link.PortStatus) {
	was := map[string]link.PortStatus{}
	for _, p := range old {
		was[fmt.Sprintf("%s/%d", p.IBDevice, p.Port)] = p
	}
	for _, p := range now {
		name := fmt.Sprintf("%s/%d", p.IBDevice, p.Port)
		o, had := was[name]
		if had && o.State == p.State && o.PhysState == p.PhysState && o.SMLID == p.SMLID {
			continue
		}
		args := []any{"ibdev", p.IBDevice, "port", p.Port, "old", o.State, "new", p.State, "phys", p.PhysState, "lid", p.LID, "sm_lid", p.SMLID}
		if p.Reason.Text != "" {
			args = append(args, "code", string(p.Reason.Code), "reason", p.Reason.Text, "next", p.Reason.Next)
		}
		if !had {
			o.State = "new"
		}
		d.log.Info("port "+name+": "+o.State+" -> "+p.State, as(msgPort, args...)...)
	}
}

// summary is the one line for systemctl status.
func summary(r link.Report) string {
	n := map[link.State]int{}
	for _, s := range r.Links {
		n[s.State]++
	}
	var parts []string
	for _, s := range []link.State{link.StateConfigured, link.StateConfiguring, link.StatePending, link.StateFailed} {
		if n[s] > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n[s], s))
		}
	}
	if len(parts) == 0 {
		return "no link is managed"
	}
	return "links: " + strings.Join(parts, ", ")
}
