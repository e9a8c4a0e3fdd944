// Package worker carries out what package smctl decides: it asks the fabric,
// starts and stops the unit that runs the subnet manager of a port, and follows
// that unit by systemd's signals.
//
// A Controller is one goroutine that owns the state of all ports. The daemon
// hands it ports and policies with Update, people overrule it with Start and
// Stop, and it says what it does through Publish. The unit of a port has the
// port GUID in its name, so systemd itself sees to it that none runs twice,
// whatever happens to this process, to systemd's or to the bus.
package worker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"ibnetworkd/ib"
	"ibnetworkd/sm/transport"
	"ibnetworkd/smctl"
)

// State is a systemd unit's.
type State struct {
	State smctl.WorkerState
	// Since is when it came into that state, with a reading of the monotonic
	// clock; Wall the same as the wall clock had it then, for people.
	Since, Wall time.Time
	Result      string
	// Said is the unit's own word, Refused that it ended because the port lets
	// no subnet manager in.
	Said    smctl.Said
	Refused bool
}

// Manager runs units; *Systemd is the real one.
type Manager interface {
	// Start runs the worker of a port and returns when the job is queued.
	Start(ctx context.Context, u Unit) error
	// Stop stops a unit and returns when the job is queued.
	Stop(ctx context.Context, name string) error
	// Reload has a unit's program read its settings and files again.
	Reload(ctx context.Context, name string) error
	// State reads the state of a unit; one that does not exist is inactive.
	// ErrNoSystemd is no passing error: Changes yields "" once it is over.
	State(ctx context.Context, name string) (State, error)
	// Follow says whether units run or may be run at all: without, their
	// changes need not be told.
	Follow(on bool)
	// Changes yields names of units whose state may have changed; "" means
	// any of them.
	Changes() <-chan string
}

// Prober asks the fabric.
type Prober interface {
	Walk(ctx context.Context, ibdev string, port int) ([]smctl.SMInfo, error)
	AskLID(ctx context.Context, ibdev string, port int, lid ib.LID) ([]smctl.SMInfo, error)
}

// Keeper remembers over restarts what was started and what a person asked for,
// and hands the settings to the unit.
type Keeper interface {
	Save(guid ib.GUID, k Kept) error
	// Load reads it back; nothing if nothing was saved.
	Load(guid ib.GUID) Kept
}

// Unit is a worker to start.
type Unit struct {
	Name   string
	GUID   ib.GUID
	Policy smctl.Policy
}

// UnitName is the systemd unit of a port's worker.
func UnitName(e smctl.Engine, guid ib.GUID) string {
	if e == smctl.EngineOpenSM {
		return "ibnetsm-opensm-" + guid.String() + ".service"
	}
	return "ibnetsm@" + guid.String() + ".service"
}

// openSMOptions are opensm's command line for a policy. What it has no option for
// it has in its own configuration file, which it reads as well.
func openSMOptions(p smctl.Policy) []string {
	var out []string
	add := func(s ...string) { out = append(out, s...) }
	add("--priority", fmt.Sprint(p.Priority))
	if p.SubnetPrefix != 0 {
		add("--subnet_prefix", fmt.Sprintf("%#016x", p.SubnetPrefix))
	}
	if p.LMC != 0 {
		add("--lmc", fmt.Sprint(uint8(p.LMC)))
	}
	whole := func(d string, unit time.Duration) string {
		if d == "" {
			return ""
		}
		v, _ := time.ParseDuration(d)
		return fmt.Sprint(int64((v + unit - 1) / unit))
	}
	for _, o := range []struct{ name, value string }{
		{"--routing_engine", p.RoutingEngine}, {"--Pconfig", p.PartitionsFile}, {"--part_enforce", p.Enforcement}, {"--node-name-map", p.NodeNameMap},
		{"--sweep", whole(p.Sweep, time.Second)}, {"--timeout", whole(p.Timeout, time.Millisecond)}, {"--retries", p.Retries}, {"--maxsmps", p.Window},
	} {
		if o.value != "" {
			add(o.name, o.value)
		}
	}
	if p.Verbose == "yes" {
		add("--verbose")
	}
	return out
}

// Port is one port with what its unit asks for.
type Port struct {
	smctl.Port
	Policy smctl.Policy
}

// Config of a Controller.
type Config struct {
	Log     *slog.Logger
	Manager Manager
	Prober  Prober
	Keeper  Keeper
	// Check, if set, reads the files that a policy names. It is called aside.
	Check func(smctl.Policy) smctl.Files
	// Inspect, if set, says whether the kernel or the firmware bars subnet
	// managers from a port; what is not final is asked again. It is called aside.
	Inspect func(ibdev string, port int) (bar smctl.Bar, final bool, err error)
	// Watch, if set, is given the files whose changes Reread, or Compare, is to be
	// called for. It must not block.
	Watch func(paths []string)
	// Waiting, if set, is given the files that differ from those in force, sorted,
	// whenever that changes: they wait for Reread. It must not block.
	Waiting func(paths []string)
	// Publish is given the state of all ports whenever one has changed. It
	// is called from the controller's goroutine and must not block.
	Publish func([]smctl.Status)
	// Look, if set, is called when a worker has started or ended: the ports
	// are worth another look. It must not block.
	Look func()
}

// Controller owns the subnet managers of all ports.
type Controller struct {
	cfg   Config
	ports chan []Port
	hands chan handRequest
	files chan bool // read files again; false: compare them only
	done  chan event
	table map[ib.GUID]*entry

	lastPublished []smctl.Status
	followed      bool
	watched       []string
	waiting       []string
}

type handRequest struct {
	dev   string
	port  int
	start bool
	reply chan error
}

// event is the end of something that ran aside.
type event struct {
	guid    ib.GUID
	answer  *smctl.Answer
	unit    string // the state of this unit is known
	state   State
	err     error  // of reading the state
	noStart string // why the unit could not be started
	noStop  string // or stopped
	reload  bool   // the program was asked to read its files again
	former  Kept   // what it had before that
	files   *smctl.Files
	of      smctl.Policy // whose files they are
	compare bool         // the files are compared with those in force, which stay
	bar     *smctl.Bar
	final   bool // bar is the last word
}

type entry struct {
	port      Port
	mem       smctl.Memory
	answer    smctl.Answer
	worker    smctl.Worker
	wall      time.Time    // of worker.Since
	engine    smctl.Engine // of the unit that Worker names
	given     Kept         // what the unit was given last, no settings if nothing
	files     *smctl.Files // those of the policy filesOf, nil if not read
	filesOf   smctl.Policy
	waiting   []string      // files that are not those in force
	checks    bool          // files are being read
	recheck   bool          // and are to be read again after that
	recompare bool          // or compared
	bar       *smctl.Bar    // what Inspect says, nil if it has not been asked
	final     bool          // that is the last word
	inspect   bool          // it is being asked
	again     time.Time     // when it is asked again
	refused   int           // questions in a row that were refused QP0
	settled   time.Time     // until then nothing is reloaded
	known     bool          // the unit's state has been read
	asking    *smctl.Answer // that is waited for
	reading   bool
	reread    bool
	busy      bool // a call to systemd is under way
	retry     time.Time
	dec       smctl.Decision
	starts    int
	started   time.Time
}

// New makes a Controller.
func New(cfg Config) *Controller {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	return &Controller{cfg: cfg, ports: make(chan []Port, 1), hands: make(chan handRequest), files: make(chan bool, 1), done: make(chan event, 16), table: map[ib.GUID]*entry{}}
}

// Update replaces the ports. It never blocks: the newest list wins.
func (c *Controller) Update(ports []Port) {
	for {
		select {
		case c.ports <- ports:
			return
		default:
		}
		select {
		case <-c.ports:
		default:
		}
	}
}

// Start runs the subnet manager on a port by hand.
func (c *Controller) Start(ctx context.Context, ibdev string, port int) error {
	return c.hand(ctx, ibdev, port, true)
}

// Stop stops it by hand.
func (c *Controller) Stop(ctx context.Context, ibdev string, port int) error {
	return c.hand(ctx, ibdev, port, false)
}

func (c *Controller) hand(ctx context.Context, dev string, port int, start bool) error {
	r := handRequest{dev, port, start, make(chan error, 1)}
	select {
	case c.hands <- r:
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case err := <-r.reply:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Reread has the files that policies name read again. It never blocks.
func (c *Controller) Reread() {
	for {
		select {
		case c.files <- true:
			return
		default:
		}
		select {
		case <-c.files:
		default:
		}
	}
}

// Compare has the files that policies name compared with those in force, for Waiting.
// It never blocks.
func (c *Controller) Compare() {
	select {
	case c.files <- false:
	default: // a request that compares, too, is not read yet
	}
}

// Run works until ctx ends. Workers are left running: they belong to systemd.
func (c *Controller) Run(ctx context.Context) error {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		next := c.decide(ctx)
		if next.IsZero() {
			timer.Stop()
		} else {
			timer.Reset(max(time.Until(next), time.Millisecond))
		}
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		case ps := <-c.ports:
			c.update(ctx, ps)
		case reread := <-c.files:
			for g, e := range c.table {
				c.check(ctx, g, e, !reread)
			}
		case r := <-c.hands:
			r.reply <- c.overrule(r)
		case name, ok := <-c.cfg.Manager.Changes():
			if !ok {
				return nil
			}
			for g, e := range c.table {
				if name == "" || name == e.worker.Unit {
					c.read(ctx, g, e)
				}
			}
		case ev := <-c.done:
			c.take(ctx, ev)
		}
	}
}

// update takes a new list of ports.
func (c *Controller) update(ctx context.Context, ps []Port) {
	seen := map[ib.GUID]bool{}
	for _, p := range ps {
		if p.GUID.IsZero() {
			continue
		}
		seen[p.GUID] = true
		e := c.table[p.GUID]
		if e == nil {
			// What the daemon started before it was started anew may run, also
			// where the unit names another program now.
			k := c.cfg.Keeper.Load(p.GUID)
			e = &entry{engine: p.Policy.Engine, given: k}
			if k.Settings != "" {
				e.engine = k.Engine
			}
			e.worker = smctl.Worker{Unit: UnitName(e.engine, p.GUID), Hand: k.Hand}
			c.table[p.GUID] = e
			c.read(ctx, p.GUID, e)
		}
		if e.port.State != p.State || e.port.SMLID != p.SMLID {
			c.cfg.Log.Debug("port", "port", p.String(), "state", p.State, "sm_lid", p.SMLID)
		}
		e.port = p
	}
	for g, e := range c.table {
		if !seen[g] {
			e.port.Present = false
		}
	}
	c.watch()
}

// watch names the files whose changes count.
func (c *Controller) watch() {
	if c.cfg.Watch == nil {
		return
	}
	var paths []string
	for _, e := range c.table {
		for _, f := range e.port.Policy.Files() {
			if !slices.Contains(paths, f) {
				paths = append(paths, f)
			}
		}
	}
	slices.Sort(paths)
	if !slices.Equal(paths, c.watched) {
		c.watched = paths
		c.cfg.Watch(slices.Clone(paths))
	}
}

// check reads the files of a port's policy, to put them in force or to compare them.
func (c *Controller) check(ctx context.Context, g ib.GUID, e *entry, compare bool) {
	pol := e.port.Policy
	if c.cfg.Check == nil || len(pol.Files()) == 0 {
		e.files, e.filesOf, e.waiting = &smctl.Files{}, pol, nil
		return
	}
	if e.checks {
		e.recheck, e.recompare = e.recheck || !compare, e.recompare || compare
		return
	}
	e.checks = true
	former := e.given.Files
	if e.files != nil {
		former = e.files.Digest
	}
	go func() {
		// A file on a server that does not answer is a bad one.
		got := make(chan smctl.Files, 1)
		go func() { got <- c.cfg.Check(pol) }()
		f := smctl.Files{Problem: fmt.Sprintf("%s: cannot be read within %v", pol.Files()[0], checkTimeout)}
		select {
		case f = <-got:
		case <-time.After(checkTimeout):
			f.Digest = former // what is in them is not known to be another
		}
		c.send(ctx, event{guid: g, files: &f, of: pol, compare: compare})
	}()
}

// checked takes the files of a port's policy.
func (c *Controller) checked(ctx context.Context, e *entry, ev event) {
	e.checks = false
	switch {
	case !ev.compare:
		if p := ev.files.Problem; p != "" && (e.files == nil || e.files.Problem != p) {
			c.cfg.Log.Error("a file of the subnet manager's settings cannot be used", "port", e.port.String(), "problem", p)
		}
		e.files, e.filesOf, e.waiting = ev.files, ev.of, nil
	case e.files != nil && e.filesOf == ev.of:
		e.waiting = ev.of.Changed(e.files.Digest, ev.files.Digest)
	}
	if e.recheck || e.recompare {
		compare := !e.recheck // what is read again needs no comparison
		e.recheck, e.recompare = false, false
		c.check(ctx, ev.guid, e, compare)
	}
}

// wait publishes the files that wait for Reread.
func (c *Controller) wait() {
	if c.cfg.Waiting == nil {
		return
	}
	var all []string
	for _, e := range c.table {
		all = append(all, e.waiting...)
	}
	slices.Sort(all)
	if all = slices.Compact(all); !slices.Equal(all, c.waiting) {
		c.waiting = all
		c.cfg.Waiting(slices.Clone(all))
	}
}

// look asks what bars subnet managers from a port.
func (c *Controller) look(ctx context.Context, g ib.GUID, e *entry, now time.Time) {
	if c.cfg.Inspect == nil {
		e.bar, e.final = new(smctl.Bar), true
	}
	if e.bar != nil && e.final || e.inspect || now.Before(e.again) {
		return
	}
	if e.refused > 0 {
		// The port has an issm device all the same: only a question can say it.
		c.ask(ctx, g, e, smctl.AskWalk)
		return
	}
	e.inspect = true
	dev, num := e.port.IBDev, e.port.Num
	go func() {
		got := make(chan event, 1)
		go func() {
			bar, final, err := c.cfg.Inspect(dev, num)
			if err != nil {
				c.cfg.Log.Warn("port type cannot be read", "port", fmt.Sprintf("%s/%d", dev, num), "error", err)
			}
			got <- event{guid: g, bar: &bar, final: final}
		}()
		unknown := smctl.BarUnknown
		ev := event{guid: g, bar: &unknown}
		select {
		case ev = <-got:
		case <-time.After(checkTimeout):
		}
		c.send(ctx, ev)
	}()
}

// refusal counts questions and starts that were refused QP0. Such a port stays barred
// until a question got through and the port was inspected again: it has one phase.
func (e *entry) refusal(refused, got bool, now time.Time) {
	no := smctl.BarNoQP0
	switch {
	case refused:
		e.bar, e.final, e.again = &no, false, now.Add(min(inspectRetry<<min(e.refused, 8), refusedRetryMax))
		e.refused++
	case e.refused > 0 && got:
		e.refused, e.again = 0, time.Time{}
	case e.refused > 0:
		e.again = now.Add(inspectRetry)
	}
}

// inspected is the port with what bars it, by the kernel and by Inspect.
func (e *entry) inspected() smctl.Port {
	p := e.port.Port
	switch {
	case e.bar != nil && *e.bar != smctl.BarNone:
		p.Barred = *e.bar // a function without QP0 says IsSMDisabled too
	case e.bar == nil && p.Barred == smctl.BarNone:
		p.Barred = smctl.BarUnread
	}
	return p
}

// checkTimeout bounds the reading of files and of what a port is, inspectRetry is
// the pause before that is read again.
const (
	checkTimeout = 10 * time.Second
	inspectRetry = time.Minute
	// refusedRetryMax bounds the pause before a port that refused QP0 is asked again,
	// which each refusal doubles.
	refusedRetryMax = 15 * time.Minute
)

// overrule notes what a person asked for.
func (c *Controller) overrule(r handRequest) error {
	for g, e := range c.table {
		if e.port.IBDev != r.dev || e.port.Num != r.port || !e.port.Present {
			continue
		}
		if e.port.LinkLayer != ib.LinkLayerInfiniBand {
			return fmt.Errorf("port %v needs no subnet manager: its link layer is %v", e.port.Port, e.port.LinkLayer)
		}
		managed := e.port.Policy.Manage != smctl.ManageNo
		back := managed && e.worker.Hand == smctl.HandStop
		if err := smctl.Refuses(e.inspected()); r.start && !back && err != nil {
			e.again = time.Time{}
			return err
		}
		if r.start {
			e.mem.Failures, e.mem.StartedAt = 0, time.Time{}
			e.again = time.Time{}
		}
		switch {
		case r.start && back:
			// Given back to the unit, without the delay: but what the fabric said before
			// that, ours may have run since and another may be master.
			e.worker.Hand, e.answer = smctl.HandNone, smctl.Answer{}
			e.asking = nil
			e.mem.LonelySince = time.Unix(1, 0)
			e.mem.SilentLID, e.mem.SilentSince = e.port.SMLID, time.Unix(1, 0)
		case r.start:
			e.worker.Hand = smctl.HandStart
		case managed:
			e.worker.Hand = smctl.HandStop
		default:
			e.worker.Hand = smctl.HandNone
			e.mem.UnitGoneSince = time.Unix(1, 0) // at once
		}
		c.cfg.Log.Info("asked by hand", "port", e.port.String(), "start", r.start)
		if e.given.Settings == "" {
			e.given.Settings = smctl.Settings(e.port.Policy)
		}
		e.given.Engine, e.given.Hand = e.engine, e.worker.Hand
		if err := c.cfg.Keeper.Save(g, e.given); err != nil {
			return fmt.Errorf("it is done, but forgotten when ibnetworkd is restarted: %w", err)
		}
		return nil
	}
	return fmt.Errorf("no InfiniBand port %s/%d is looked after", r.dev, r.port)
}

// read asks for the state of the unit.
func (c *Controller) read(ctx context.Context, g ib.GUID, e *entry) {
	if e.reading {
		e.reread = true
		return
	}
	e.reading = true
	name := e.worker.Unit
	go func() {
		s, err := c.cfg.Manager.State(ctx, name)
		c.send(ctx, event{guid: g, unit: name, state: s, err: err})
	}()
}

func (c *Controller) send(ctx context.Context, ev event) {
	select {
	case c.done <- ev:
	case <-ctx.Done():
	}
}

// take takes the end of something.
func (c *Controller) take(ctx context.Context, ev event) {
	e := c.table[ev.guid]
	if e == nil {
		return
	}
	switch {
	case ev.answer != nil:
		if ev.answer != e.asking {
			return // to what does not count any more
		}
		e.asking = nil
		e.answer = *ev.answer
		e.refusal(ev.answer.NoQP0, ev.answer.Err == "", time.Now())
		c.cfg.Log.Debug("the fabric answered", "port", e.port.String(), "question", ev.answer.Question, "managers", len(ev.answer.SMs), "error", ev.answer.Err)
	case ev.files != nil:
		c.checked(ctx, e, ev)
	case ev.bar != nil:
		e.bar, e.final, e.inspect, e.again = ev.bar, ev.final, false, time.Now().Add(inspectRetry)
	case ev.reload:
		e.busy = false
		if ev.err != nil {
			// It is tried again: what it was given is not what it has.
			ev.former.Hand = e.given.Hand
			e.given, e.settled = ev.former, time.Now().Add(readRetry)
			c.cfg.Log.Error("the subnet manager could not be reloaded", "port", e.port.String(), "unit", e.worker.Unit, "error", ev.err)
		}
	case ev.noStart != "":
		e.busy = false
		e.worker.State, e.worker.Since, e.worker.Result = smctl.WorkerFailed, time.Now(), ev.noStart
		e.wall = time.Now()
		c.cfg.Log.Error("the subnet manager could not be started", "port", e.port.String(), "unit", e.worker.Unit, "error", ev.noStart)
	case ev.noStop != "":
		// It runs on, or not: that has to be read.
		e.busy, e.known, e.worker.Result = false, false, ev.noStop
		e.retry = time.Now().Add(readRetry)
		c.cfg.Log.Error("the subnet manager could not be stopped", "port", e.port.String(), "unit", e.worker.Unit, "error", ev.noStop)
	case ev.unit == "":
		// The job is queued; the state follows by signal, and is read in
		// case the signal came before.
		e.busy = false
		if c.cfg.Look != nil {
			c.cfg.Look()
		}
		c.read(ctx, ev.guid, e)
	default:
		e.reading = false
		if ev.unit != e.worker.Unit || e.reread {
			e.reread = false
			c.read(ctx, ev.guid, e)
			return
		}
		if ev.err != nil {
			// Without systemd nothing is known and nothing is done; it is
			// looked at again when the bus is back.
			if e.known {
				c.cfg.Log.Warn("the state of the subnet manager's unit cannot be read", "unit", ev.unit, "error", ev.err)
			}
			e.known = false
			e.worker.Result = ev.err.Error()
			e.retry = time.Now().Add(readRetry)
			if errors.Is(ev.err, ErrNoSystemd) {
				// A connection is a change of everything.
				e.retry = time.Now().Add(time.Hour)
			}
			return
		}
		if e.busy {
			// Older than the job that is being queued.
			return
		}
		if e.known && e.worker.State != ev.state.State {
			c.cfg.Log.Info("the subnet manager's unit changed", "port", e.port.String(), "unit", ev.unit, "from", e.worker.State, "to", ev.state.State, "result", ev.state.Result)
			if c.cfg.Look != nil {
				c.cfg.Look()
			}
		}
		e.known = true
		if e.worker.State == smctl.WorkerFailed && ev.state.State == smctl.WorkerInactive && e.worker.Since.After(ev.state.Since) {
			return // our call failed; systemd knows of no failure
		}
		if ev.state.Since.IsZero() && e.worker.State != ev.state.State {
			// systemd forgets the unit of a worker that has ended well, and
			// when that was.
			ev.state.Since, ev.state.Wall = time.Now(), time.Now()
		}
		if ev.state.Since.IsZero() {
			ev.state.Since, ev.state.Wall = e.worker.Since, e.wall
		}
		if ev.state.Refused && !e.worker.Refused {
			e.refusal(true, false, time.Now())
		}
		e.worker.State, e.worker.Since, e.worker.Result = ev.state.State, ev.state.Since, ev.state.Result
		e.worker.Said, e.worker.Refused = ev.state.Said, ev.state.Refused
		e.wall = ev.state.Wall
	}
}

// decide runs the state machine of every port, carries out what it says, and
// returns when to come back.
func (c *Controller) decide(ctx context.Context) (next time.Time) {
	now := time.Now()
	c.follow()
	c.wait()
	for _, g := range slices.Sorted(maps.Keys(c.table)) {
		e := c.table[g]
		if !e.known {
			e.dec = smctl.Decision{Phase: smctl.PhaseBlocked, Reason: "it is not known whether " + e.worker.Unit + " runs: " + cmp.Or(e.worker.Result, "systemd has not answered yet")}
			if !e.reading {
				if !now.Before(e.retry) {
					c.read(ctx, g, e)
				} else if next.IsZero() || e.retry.Before(next) {
					next = e.retry
				}
			}
			continue
		}
		if !e.port.Present && !e.busy && !e.reading && (e.worker.State == smctl.WorkerInactive || e.worker.State == smctl.WorkerFailed) {
			delete(c.table, g)
			continue
		}
		if c.engineChange(ctx, g, e) {
			continue
		}
		if e.files == nil || e.filesOf != e.port.Policy {
			if c.check(ctx, g, e, false); e.files == nil || e.filesOf != e.port.Policy {
				e.dec = smctl.Decision{Phase: cmp.Or(e.dec.Phase, smctl.PhaseSettling), Reason: "the files of its settings are being read"}
				continue
			}
		}
		if e.port.Policy.Manage != smctl.ManageNo || e.worker.Hand == smctl.HandStart {
			c.look(ctx, g, e, now)
			if e.again.After(now) && e.bar != nil && *e.bar != smctl.BarNone && !e.final && (next.IsZero() || e.again.Before(next)) {
				next = e.again
			}
		}
		e.worker.Change = change(e, now)
		if e.settled.After(now) && (next.IsZero() || e.settled.Before(next)) {
			next = e.settled
		}
		for range 4 { // an action leads to at most one further decision
			in := smctl.Input{Now: now, Policy: e.port.Policy, Port: e.inspected(), Answer: e.answer, Worker: e.worker, Files: *e.files, HostStart: c.hostStart(g)}
			var dec smctl.Decision
			e.mem, dec = smctl.Decide(e.mem, in)
			c.say(e, dec)
			e.dec = dec
			if dec.Action == smctl.Wait || !c.act(ctx, g, e, dec, now) {
				break
			}
		}
		if u := e.dec.Until; !u.IsZero() && (next.IsZero() || u.Before(next)) {
			next = u
		}
	}
	if end := c.publish(now); !end.IsZero() && (next.IsZero() || end.Before(next)) {
		next = end
	}
	return next
}

// follow asks for the changes of units while a worker runs or may be run.
func (c *Controller) follow() {
	on := false
	for _, e := range c.table {
		on = on || e.port.Policy.Manage != smctl.ManageNo || e.worker.Hand == smctl.HandStart || e.worker.State != smctl.WorkerInactive
	}
	if on != c.followed {
		c.followed = on
		c.cfg.Manager.Follow(on)
	}
}

// change is what it takes to bring a worker that runs to what its unit has now.
func change(e *entry, now time.Time) smctl.Change {
	p := &e.port.Policy
	switch {
	case e.worker.State != smctl.WorkerActive || p.Manage == smctl.ManageNo || now.Before(e.settled):
		return smctl.ChangeNone
	case e.engine != p.Engine:
		return smctl.ChangeRestart
	case e.given.Settings == "":
		return smctl.ChangeNone
	}
	c := smctl.Difference(e.engine, e.given.Settings, smctl.Settings(*p))
	if c == smctl.ChangeNone && e.given.Files != e.files.Digest {
		c = smctl.ChangeReload
	}
	return c
}

// engineChange follows Engine=, once the unit of the other engine does not run,
// and reports whether it did: then the state of this engine's unit is being read.
func (c *Controller) engineChange(ctx context.Context, g ib.GUID, e *entry) bool {
	if e.engine == e.port.Policy.Engine || e.busy || e.worker.State != smctl.WorkerInactive && e.worker.State != smctl.WorkerFailed {
		return false
	}
	e.engine, e.given = e.port.Policy.Engine, Kept{}
	e.worker = smctl.Worker{Unit: UnitName(e.engine, g), Hand: e.worker.Hand}
	e.mem = smctl.Memory{Again: e.mem.Again}
	e.known = false
	c.read(ctx, g, e)
	return true
}

// hostStart is when another port's worker was started last.
func (c *Controller) hostStart(g ib.GUID) (last time.Time) {
	for o, e := range c.table {
		if o != g && e.started.After(last) {
			last = e.started
		}
	}
	return last
}

// say logs a change of phase, once.
func (c *Controller) say(e *entry, dec smctl.Decision) {
	if dec.Phase != e.dec.Phase {
		c.cfg.Log.Info("subnet manager", "port", e.port.String(), "from", e.dec.Phase, "to", dec.Phase, "reason", dec.Reason)
	}
}

// act carries out an action and reports whether the worker's state is another
// one now.
func (c *Controller) act(ctx context.Context, g ib.GUID, e *entry, dec smctl.Decision, now time.Time) bool {
	switch dec.Action {
	case smctl.Ask:
		c.ask(ctx, g, e, dec.Question)
	case smctl.Start:
		if e.busy {
			return false
		}
		e.busy, e.starts, e.started = true, e.starts+1, now
		e.worker.State, e.worker.Since, e.worker.Result = smctl.WorkerActivating, now, ""
		e.wall = now
		u := Unit{Name: e.worker.Unit, GUID: g, Policy: e.port.Policy}
		e.worker.Said, e.worker.Refused, e.worker.Change = smctl.Said{}, false, smctl.ChangeNone
		e.given = Kept{e.engine, smctl.Settings(u.Policy), e.files.Digest, e.worker.Hand}
		bare := e.given.Settings == smctl.Settings(smctl.Policy{Priority: u.Policy.Priority})
		c.cfg.Log.Info("starting a subnet manager", "port", e.port.String(), "unit", u.Name, "reason", dec.Reason)
		// Not aside: what a person asks for meanwhile is to be saved after it.
		saved := c.cfg.Keeper.Save(g, e.given)
		go func() {
			ev := event{guid: g}
			limit, cancel := context.WithTimeout(ctx, jobTimeout)
			defer cancel()
			if saved != nil && !bare {
				// Without settings the program's defaults would rule another
				// subnet than the one asked for.
				ev.noStart = fmt.Sprintf("its settings cannot be handed over: %v", saved)
			} else if err := c.cfg.Manager.Start(limit, u); err != nil {
				ev.noStart = err.Error()
			}
			c.send(ctx, ev)
		}()
		return true
	case smctl.Reload:
		if e.busy {
			return false
		}
		e.busy, e.worker.Change = true, smctl.ChangeNone
		former := e.given
		e.given = Kept{e.engine, smctl.Settings(e.port.Policy), e.files.Digest, e.worker.Hand}
		name := e.worker.Unit
		c.cfg.Log.Info("reloading the subnet manager", "port", e.port.String(), "unit", name, "reason", dec.Reason)
		saved := c.cfg.Keeper.Save(g, e.given)
		go func() {
			ev := event{guid: g, reload: true, former: former, err: saved}
			limit, cancel := context.WithTimeout(ctx, jobTimeout)
			defer cancel()
			if saved == nil {
				ev.err = c.cfg.Manager.Reload(limit, name)
			}
			c.send(ctx, ev)
		}()
		return true
	case smctl.Stop:
		if e.busy {
			return false
		}
		e.busy = true
		e.worker.State, e.worker.Since, e.wall = smctl.WorkerDeactivating, now, now
		name := e.worker.Unit
		c.cfg.Log.Info("stopping the subnet manager", "port", e.port.String(), "unit", name, "reason", dec.Reason)
		go func() {
			ev := event{guid: g}
			limit, cancel := context.WithTimeout(ctx, jobTimeout)
			defer cancel()
			if err := c.cfg.Manager.Stop(limit, name); err != nil {
				ev.noStop = err.Error()
			}
			c.send(ctx, ev)
		}()
		return true
	}
	return false
}

// ask puts a question, one at a time.
func (c *Controller) ask(ctx context.Context, g ib.GUID, e *entry, q smctl.Question) {
	if e.asking != nil {
		return
	}
	p := e.port
	a := &smctl.Answer{Question: q, LID: p.SMLID}
	e.asking = a
	go func() {
		limit, cancel := context.WithTimeout(ctx, askTimeout)
		defer cancel()
		var err error
		if q == smctl.AskWalk {
			a.SMs, err = c.cfg.Prober.Walk(limit, p.IBDev, p.Num)
		} else {
			a.SMs, err = c.cfg.Prober.AskLID(limit, p.IBDev, p.Num, p.SMLID)
		}
		if err != nil {
			a.Err, a.SMs, a.NoQP0 = err.Error(), nil, errors.Is(err, transport.ErrNoQP0)
		}
		a.At = time.Now()
		c.send(ctx, event{guid: g, answer: a})
	}()
}

// readRetry is the pause after systemd did not say what a unit does.
const readRetry = 5 * time.Second

// jobTimeout bounds the time that systemd takes to queue a job, not the job.
const jobTimeout = 30 * time.Second

// askTimeout bounds one question; a walk of the largest subnet takes seconds.
const askTimeout = 30 * time.Second

// publish says what is, if it differs from what was said, and returns when a master
// that it names does not count any more without another answer.
func (c *Controller) publish(now time.Time) (end time.Time) {
	out := make([]smctl.Status, 0, len(c.table))
	for _, g := range slices.Sorted(maps.Keys(c.table)) {
		e := c.table[g]
		if e.port.LinkLayer != ib.LinkLayerInfiniBand {
			continue
		}
		s := smctl.Status{PortGUID: g.String(), IBDevice: e.port.IBDev, Port: e.port.Num, Manage: e.port.Policy.Manage.String(), Engine: e.port.Policy.Engine.String(),
			Unit: e.port.Policy.Unit, Phase: string(e.dec.Phase), Reason: e.dec.Reason, NextCheck: e.dec.Until.Truncate(time.Second),
			Worker: e.worker.Unit, WorkerState: e.worker.State.String(), WorkerSince: e.wall, Hand: e.worker.Hand.String(), Starts: e.starts,
			Next: e.dec.Next, WorkerText: e.worker.Said.String()}
		if e.files != nil {
			s.FileProblem = e.files.Problem
		}
		if e.dec.Until.IsZero() {
			s.NextCheck = time.Time{}
		}
		if m, ok := smctl.MasterOf(e.port.Port, e.dec.Phase, e.answer, now); ok {
			if until := e.answer.At.Add(smctl.MasterLife); end.IsZero() || until.Before(end) {
				end = until
			}
			s.Master = &smctl.Master{GUID: m.GUID.String(), LID: uint16(m.LID), Priority: m.Priority, State: m.State.String(), Node: m.Node}
		}
		out = append(out, s)
	}
	if slices.EqualFunc(out, c.lastPublished, sameStatus) {
		return end
	}
	c.lastPublished = out
	c.cfg.Publish(slices.Clone(out))
	return end
}

// sameStatus compares all but the time of the next check, which moves with
// every look and would make a signal each.
func sameStatus(a, b smctl.Status) bool {
	am, bm := a.Master, b.Master
	a.Master, b.Master = nil, nil
	a.NextCheck, b.NextCheck = time.Time{}, time.Time{}
	return a == b && (am == nil) == (bm == nil) && (am == nil || *am == *bm)
}
