package bus

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"weak"

	"github.com/godbus/dbus/v5"

	"ibnetworkd/daemon/bus/api"
	"ibnetworkd/internal/backoff"
	"ibnetworkd/internal/busconn"
	"ibnetworkd/link"
	"ibnetworkd/smctl"
)

// Backend is what the bus asks of the daemon. Its methods are called from any
// goroutine and return when the request has been carried out or refused.
type Backend interface {
	Reload(ctx context.Context) error
	Reconfigure(ctx context.Context, link string) error
	Renew(ctx context.Context, link string) error
	SetAdmin(ctx context.Context, link string, up bool) error
	Plan(ctx context.Context) (link.Plan, error)
	StartSubnetManager(ctx context.Context, ibdev string, port int) error
	StopSubnetManager(ctx context.Context, ibdev string, port int) error
	LogLevel() slog.Level
	SetLogLevel(level slog.Level)
}

// Config of a Server.
type Config struct {
	Backend Backend
	Log     *slog.Logger
	Version string
	// Address of the bus; empty means the system bus.
	Address string
	// LogTarget is where messages go: journal or console.
	LogTarget string
	// Refresh, if set, is called before everything is described, to read what
	// changes without an event. It bounds itself.
	Refresh func(context.Context)
	// Privileged reports whether a user needs no permission by polkit; nil means user 0.
	Privileged func(uid uint32) bool
}

// Bounds of the requests that are under way at one time; further ones are
// refused, so that no caller can pile up work. Each kind has its own: what
// everyone may request must not keep out callers that may change something.
const (
	maxVerbs = 64 // of permitted callers
	maxAsks  = 64 // that wait for polkit
	maxPlans = 8  // of users other than root: each takes a cycle of the daemon's loop
	maxReads = 64 // calls that are answered from our state; more wait on the bus

	maxEach      = 8 // changes of one user other than root, with the questions to polkit
	maxEachPlans = 2 // and plans
)

// share is what is counted of a user.
type share struct {
	uid  uint32
	kind string
}

// Server is the daemon on the bus. Run serves; the Publish methods may be
// called before, during and after, from any goroutine.
type Server struct {
	cfg   Config
	wake  chan struct{}
	verbs chan struct{} // a place for each request under way
	asks  chan struct{}
	plans chan struct{}
	reads chan struct{}

	listing sync.Mutex // held while an answer of GetManagedObjects is made

	mu       sync.Mutex
	objects  map[dbus.ObjectPath]*object
	links    map[string]link.Status // by name
	ports    map[string]link.PortStatus
	sms      map[string]smctl.Status // by port GUID
	problems []string
	notices  []link.Notice
	awaited  bool
	underWay map[share]int
	callers  *callers // of the current connection
	dirty    map[dbus.ObjectPath]bool
	listed   weak.Pointer[objects] // of this state, while it is written to a caller
	ready    chan struct{}
	isReady  bool
}

// object is what is exported at a path: one interface of ours with its
// properties.
type object struct {
	iface string
	now   state // nil when the object is gone
	sent  state // the last that was sent, nil for none
}

// New makes a Server.
func New(cfg Config) *Server {
	if cfg.Privileged == nil {
		cfg.Privileged = func(uid uint32) bool { return uid == 0 }
	}
	cfg.Log = cmp.Or(cfg.Log, slog.New(slog.DiscardHandler))
	s := &Server{
		cfg: cfg, wake: make(chan struct{}, 1), ready: make(chan struct{}),
		verbs: make(chan struct{}, maxVerbs), asks: make(chan struct{}, maxAsks), plans: make(chan struct{}, maxPlans),
		reads:   make(chan struct{}, maxReads),
		objects: map[dbus.ObjectPath]*object{}, links: map[string]link.Status{}, ports: map[string]link.PortStatus{},
		sms:   map[string]smctl.Status{},
		dirty: map[dbus.ObjectPath]bool{}, underWay: map[share]int{}, callers: newCallers(),
	}
	s.mu.Lock()
	s.manager()
	s.mu.Unlock()
	return s
}

// Ready is closed when the name was acquired for the first time, or when the
// bus turned out not to be there: the daemon works without it.
func (s *Server) Ready() <-chan struct{} { return s.ready }

func (s *Server) setReady() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.isReady {
		s.isReady = true
		close(s.ready)
	}
}

// PublishLinks brings links up to date: changed ones, and the names of those
// that are gone.
func (s *Server) PublishLinks(changed []link.Status, gone []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, n := range gone {
		if l, ok := s.links[n]; ok {
			s.drop(linkPath(l))
			delete(s.links, n)
		}
	}
	for _, l := range changed {
		if old, ok := s.links[l.Name]; ok && linkPath(old) != linkPath(l) {
			s.drop(linkPath(old))
		}
		// A rename keeps the index: the old name must go.
		for n, o := range s.links {
			if n != l.Name && l.Ifindex != 0 && o.Ifindex == l.Ifindex {
				delete(s.links, n)
			}
		}
		s.links[l.Name] = l
		s.put(linkPath(l), api.Link, &stateOf[link.Status]{linkProps, l})
	}
	s.manager()
}

// PublishPorts replaces the RDMA ports by these.
func (s *Server) PublishPorts(ports []link.PortStatus) {
	s.mu.Lock()
	defer s.mu.Unlock()
	replace(s, s.ports, ports, api.Port, portProps, func(p link.PortStatus) (string, string) {
		return fmt.Sprintf("%s/%d", p.IBDevice, p.Port), api.PortPath(p.IBDevice, p.Port)
	})
	s.manager()
}

// PublishProblems replaces the mistakes in unit files.
func (s *Server) PublishProblems(problems []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.problems = slices.Clone(problems)
	s.manager()
}

// PublishHost replaces the notices, and whether a unit requires a link for online.
func (s *Server) PublishHost(notices []link.Notice, awaited bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.notices, s.awaited = slices.Clone(notices), awaited
	s.manager()
}

// PublishSM replaces the subnet managers by these.
func (s *Server) PublishSM(sms []smctl.Status) {
	s.mu.Lock()
	defer s.mu.Unlock()
	replace(s, s.sms, sms, api.SubnetManager, smProps, func(m smctl.Status) (string, string) { return m.PortGUID, api.SMPath(m.PortGUID) })
}

// replace brings the objects of one kind up to date; id is the key and the path of one.
func replace[T any](s *Server, have map[string]T, now []T, iface string, props []property[T], id func(T) (key, path string)) {
	seen := map[string]bool{}
	for _, x := range now {
		key, path := id(x)
		seen[key] = true
		have[key] = x
		s.put(dbus.ObjectPath(path), iface, &stateOf[T]{props, x})
	}
	for key, x := range have {
		if !seen[key] {
			delete(have, key)
			_, path := id(x)
			s.drop(dbus.ObjectPath(path))
		}
	}
}

// Refresh reads the backend's own state again, such as its log level.
func (s *Server) Refresh() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.manager()
}

// managed reports whether an object is one of the ObjectManager's, which are those below it.
func managed(p dbus.ObjectPath) bool { return strings.HasPrefix(string(p), api.Root+"/") }

// linkPath is the object of a link; one that is wanted and does not exist yet
// has no index and goes by its name.
func linkPath(l link.Status) dbus.ObjectPath {
	if l.Ifindex == 0 {
		return dbus.ObjectPath(api.WantedLinkPath(l.Name))
	}
	return dbus.ObjectPath(api.LinkPath(l.Ifindex))
}

func (s *Server) manager() {
	level := s.cfg.Backend.LogLevel()
	s.put(api.LogControlPath, api.LogControl, &stateOf[logState]{logProps, logState{level, s.cfg.LogTarget}})
	s.put(api.Root, api.Manager, &stateOf[managerState]{managerProps, managerState{
		version: s.cfg.Version, online: api.OnlineState(maps.Values(s.links), s.awaited), logLevel: levelName(level),
		problems: s.problems, notices: s.notices, links: len(s.links), ports: len(s.ports),
	}})
}

func (s *Server) put(p dbus.ObjectPath, iface string, now state) {
	o := s.objects[p]
	if o == nil {
		o = &object{iface: iface}
		s.objects[p] = o
	} else if o.now != nil && now.same(o.now) {
		return
	}
	o.now = now
	s.mark(p)
}

func (s *Server) drop(p dbus.ObjectPath) {
	if o := s.objects[p]; o != nil {
		o.now = nil
		s.mark(p)
	}
}

func (s *Server) mark(p dbus.ObjectPath) {
	s.dirty[p] = true
	s.listed = weak.Pointer[objects]{}
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// clean makes strings from the kernel and from files fit for the bus, which
// drops a connection that sends anything but UTF-8.
func clean(v any) any {
	switch x := v.(type) {
	case string:
		return busconn.Clean(x)
	case []string:
		out := make([]string, len(x))
		for i := range x {
			out[i] = busconn.Clean(x[i])
		}
		return out
	case reason:
		return reason{busconn.Clean(x.Code), busconn.Clean(x.Text), busconn.Clean(x.Next)}
	case []reason:
		for i := range x {
			x[i] = reason{busconn.Clean(x[i].Code), busconn.Clean(x[i].Text), busconn.Clean(x[i].Next)}
		}
	case []setting:
		for i, a := range x {
			x[i] = setting{busconn.Clean(a.Name), busconn.Clean(a.Wanted), busconn.Clean(a.Actual), busconn.Clean(a.Code),
				busconn.Clean(a.Text), busconn.Clean(a.Next)}
		}
	}
	return v
}

func (s *Server) describe() api.Description {
	s.mu.Lock()
	defer s.mu.Unlock()
	d := api.Description{Schema: api.DescriptionSchema, Version: s.cfg.Version, Source: "ibnetworkd",
		Links: []link.Status{}, Ports: []link.PortStatus{}, SubnetManagers: []smctl.Status{}, Problems: slices.Clone(s.problems),
		Notices: slices.Clone(s.notices)}
	d.Links = slices.AppendSeq(d.Links, maps.Values(s.links))
	d.Ports = slices.AppendSeq(d.Ports, maps.Values(s.ports))
	d.SubnetManagers = slices.AppendSeq(d.SubnetManagers, maps.Values(s.sms))
	slices.SortFunc(d.Links, func(a, b link.Status) int {
		return cmp.Or(cmp.Compare(index(a), index(b)), strings.Compare(a.Name, b.Name))
	})
	slices.SortFunc(d.Ports, func(a, b link.PortStatus) int {
		return cmp.Or(strings.Compare(a.IBDevice, b.IBDevice), cmp.Compare(a.Port, b.Port))
	})
	slices.SortFunc(d.SubnetManagers, func(a, b smctl.Status) int {
		return cmp.Or(strings.Compare(a.IBDevice, b.IBDevice), cmp.Compare(a.Port, b.Port))
	})
	d.Online = api.OnlineState(slices.Values(d.Links), s.awaited)
	return d
}

// index orders links that do not exist yet after those that do.
func index(l link.Status) int {
	if l.Ifindex == 0 {
		return 1 << 30
	}
	return l.Ifindex
}

// Run serves on the bus until ctx ends, joining it again whenever it was lost.
func (s *Server) Run(ctx context.Context) error {
	pause := backoff.Pause{Socket: backoff.SystemBus}
	lost := false
	for {
		joined, err := s.serve(ctx)
		s.setReady()
		if ctx.Err() != nil {
			return nil
		}
		if joined {
			pause.Reset()
			s.cfg.Log.Warn("lost the bus, joining it again", "error", err)
		} else if !lost {
			s.cfg.Log.Warn("cannot join the bus, trying again", "error", err)
		}
		lost = true
		if !pause.Wait(ctx) {
			return nil
		}
	}
}

// serve is one life of a connection.
func (s *Server) serve(ctx context.Context) (joined bool, err error) {
	// The names of callers are of this bus, which may be another one than before.
	h := handler{s, newCallers()}
	s.mu.Lock()
	s.callers = h.callers
	s.mu.Unlock()
	conn, err := busconn.Join(ctx, busconn.Config{Address: s.cfg.Address, Handler: h, Explain: explain, Admit: h.admit, Incoming: h.arrived})
	if err != nil {
		return false, err
	}
	defer conn.Close()
	reply, err := conn.RequestName(api.BusName, dbus.NameFlagDoNotQueue)
	if err != nil {
		return false, fmt.Errorf("request the name %s: %w", api.BusName, err)
	}
	if reply != dbus.RequestNameReplyPrimaryOwner && reply != dbus.RequestNameReplyAlreadyOwner {
		return false, fmt.Errorf("the name %s is taken: does another ibnetworkd run?", api.BusName)
	}
	lost := make(chan *dbus.Signal, 4)
	conn.Signal(lost)

	// Clients of an earlier connection need all objects again.
	s.mu.Lock()
	for p, o := range s.objects {
		o.sent = nil
		s.mark(p)
	}
	s.mu.Unlock()
	if err := s.flush(conn); err != nil {
		return true, err
	}
	s.setReady()
	for {
		select {
		case <-ctx.Done():
			_, _ = conn.ReleaseName(api.BusName)
			return true, nil
		case <-conn.Context().Done():
			return true, errors.New("the connection was closed")
		case sig, ok := <-lost:
			if ok && sig.Name == "org.freedesktop.DBus.NameLost" && len(sig.Body) == 1 && sig.Body[0] == api.BusName {
				return true, errors.New("another program owns the bus name now")
			}
			if !ok {
				lost = nil
			}
		case <-s.wake:
			if err := s.flush(conn); err != nil {
				return true, err
			}
		}
	}
}

type signal struct {
	path dbus.ObjectPath
	name string
	body []any
}

// flush sends what changed since the last flush.
func (s *Server) flush(conn *busconn.Conn) error {
	s.mu.Lock()
	var out []signal
	for _, p := range slices.Sorted(maps.Keys(s.dirty)) {
		o := s.objects[p]
		switch {
		case o == nil:
		case o.now == nil:
			delete(s.objects, p)
			if o.sent != nil && managed(p) {
				out = append(out, signal{api.Root, "org.freedesktop.DBus.ObjectManager.InterfacesRemoved", []any{p, []string{o.iface}}})
			}
		case o.sent == nil:
			if managed(p) {
				out = append(out, signal{api.Root, "org.freedesktop.DBus.ObjectManager.InterfacesAdded",
					[]any{p, map[string]map[string]dbus.Variant{o.iface: o.now.values()}}})
			}
			o.sent = o.now
		default:
			if d := o.now.since(o.sent); len(d) > 0 {
				out = append(out, signal{p, "org.freedesktop.DBus.Properties.PropertiesChanged", []any{o.iface, d, []string{}}})
			}
			o.sent = o.now
		}
	}
	clear(s.dirty)
	s.mu.Unlock()
	for _, g := range out {
		if err := conn.Emit(g.path, g.name, g.body...); err != nil {
			return fmt.Errorf("send %s: %w", g.name, err)
		}
	}
	return nil
}

func (s *Server) describeJSON() (string, error) {
	b, err := json.Marshal(s.describe())
	return busconn.Clean(string(b)), err
}
