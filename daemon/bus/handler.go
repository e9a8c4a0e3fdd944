package bus

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/godbus/dbus/v5"

	"ibnetworkd/daemon/bus/api"
	"ibnetworkd/internal/busconn"
	"ibnetworkd/link"
)

// handler answers calls from the server's state, without exporting each object: objects come
// and go with links. It finds every object, interface and method, also those that do not
// exist: each call but Peer's comes to verb.Call, which releases its place.
type handler struct {
	s       *Server
	callers *callers // of the connection
}

func (h handler) LookupObject(path dbus.ObjectPath) (dbus.ServerObject, bool) {
	return verb{handler: h, path: path}, true
}

// arrived stops reading from the socket while maxReads calls are being answered, so
// that a caller that does not wait for answers fills the bus' memory and not ours.
// Calls that wait for other answers from the same socket are bounded elsewhere.
func (h handler) arrived(msg *dbus.Message) {
	if quick(msg) && !h.callers.isWaiting(callOf(msg)) {
		h.s.reads <- struct{}{}
	}
}

// admit decides about a call before its arguments are read. It runs in the reader
// of the socket and does not wait.
func (h handler) admit(conn *dbus.Conn, m *busconn.Header, answered bool) *dbus.Error {
	return h.callers.arrived(callID{m.Sender, m.Serial}, cost(m.Member), answered, func() (user, error) {
		uid, err := userID(conn, m.Sender)
		return user{uid: uid, privileged: err == nil && h.s.cfg.Privileged(uid)}, err
	})
}

// userID queries the bus for the user of a caller.
func userID(conn *dbus.Conn, sender string) (uid uint32, err error) {
	ctx, cancel := context.WithTimeout(conn.Context(), polkitTimeout)
	defer cancel()
	err = conn.BusObject().CallWithContext(ctx, "org.freedesktop.DBus.GetConnectionUnixUser", 0, sender).Store(&uid)
	return uid, err
}

// quick reports whether a message is a call that is answered from our state.
func quick(msg *dbus.Message) bool {
	member, _ := msg.Headers[dbus.FieldMember].Value().(string)
	return msg.Type == dbus.TypeMethodCall && !waiting[member]
}

func callOf(msg *dbus.Message) callID {
	sender, _ := msg.Headers[dbus.FieldSender].Value().(string)
	return callID{sender, msg.Serial()}
}

// waiting are the members of ours that ask the daemon or polkit.
var waiting = map[string]bool{"Reload": true, "Reconfigure": true, "Renew": true, "Up": true, "Down": true,
	"StartSubnetManager": true, "StopSubnetManager": true, "Start": true, "Stop": true, "SetLogLevel": true, "Plan": true, "Set": true}

// children are the names below a path, of the tree that ends in objects.
func (s *Server) children(path dbus.ObjectPath) []string {
	prefix := strings.TrimSuffix(string(path), "/") + "/"
	set := map[string]bool{}
	for p, o := range s.objects {
		if rest, ok := strings.CutPrefix(string(p), prefix); ok && o.now != nil {
			name, _, _ := strings.Cut(rest, "/")
			set[name] = true
		}
	}
	return slices.Sorted(maps.Keys(set))
}

// verb is a method as it is called, which need not exist. It decodes and checks the
// arguments itself.
type verb struct {
	handler
	path        dbus.ObjectPath
	iface, name string // iface is "" for any
}

func (v verb) LookupInterface(name string) (dbus.Interface, bool) {
	v.iface = name
	return v, true
}

func (v verb) LookupMethod(name string) (dbus.Method, bool) {
	v.name = name
	return v, true
}

type call func(c *caller) ([]any, error)

type caller struct {
	s      *Server
	path   dbus.ObjectPath
	iface  string // of ours that the object has, "" for an inner node
	ctx    context.Context
	conn   *dbus.Conn // nil for a call by Control
	sender string
	user   user
	msg    *dbus.Message
	// releases are called when the answer is written.
	releases []func()
}

// find finds what to do for a method of an interface, "" for any, and completes
// the caller.
func (c *caller) find(iface, name string) (call, error) {
	c.s.mu.Lock()
	o := c.s.objects[c.path]
	if o != nil && o.now != nil {
		c.iface = o.iface
	}
	// Inner nodes of the tree exist for introspection.
	exists := c.iface != "" || len(c.s.children(c.path)) > 0
	c.s.mu.Unlock()
	if !exists {
		return nil, busconn.Refusal("org.freedesktop.DBus.Error.UnknownObject", "no object %s", c.path)
	}
	has := []string{"org.freedesktop.DBus.Introspectable"}
	if c.iface != "" {
		has = append(has, "org.freedesktop.DBus.Properties", c.iface)
	}
	if c.path == api.Root {
		has = append(has, "org.freedesktop.DBus.ObjectManager")
	}
	if iface != "" && !slices.Contains(has, iface) {
		return nil, busconn.Refusal("org.freedesktop.DBus.Error.UnknownInterface", "%s has no interface %s", c.path, iface)
	}
	for _, i := range has {
		if f := methods[i+"."+name]; f != nil && (iface == "" || iface == i) {
			return f, nil
		}
	}
	return nil, busconn.Refusal("org.freedesktop.DBus.Error.UnknownMethod", "%s has no method %s", c.path, name)
}

// Call implements dbus.Method. It sends the answer itself.
func (v verb) Call(args ...any) ([]any, error) {
	c := args[0].(*caller)
	var out []any
	var f call
	id := callOf(c.msg)
	late := v.callers.isWaiting(id)
	var err error
	c.user, err = v.callers.userOf(id, cost(v.name))
	if quick(c.msg) {
		if late {
			// Not in arrived: the bus answers by the socket that is not read then.
			v.s.reads <- struct{}{}
		}
		c.releases = append(c.releases, func() { <-v.s.reads })
	}
	if err == nil {
		f, err = c.find(v.iface, v.name)
	}
	if err == nil {
		out, err = f(c)
	}
	c.answer(out, err)
	c.release()
	return nil, nil
}

// release gives back what the call has reserved.
func (c *caller) release() {
	for _, f := range c.releases {
		f()
	}
}

// answer returns when the answer is written. godbus would send it after Call,
// where nothing bounds how many answers wait: they are longer than calls, and
// would fill our memory if the bus reads more slowly than it sends.
func (c *caller) answer(out []any, err error) {
	if c.msg.Flags&dbus.FlagNoReplyExpected != 0 {
		return
	}
	c.msg.Flags |= dbus.FlagNoReplyExpected // for godbus
	c.conn.Send(busconn.Reply(c.sender, c.msg.Serial(), out, err), nil)
}

// reserve releases a place that was acquired when the answer is written.
func (c *caller) reserve(release func(), err error) error {
	if err == nil {
		c.releases = append(c.releases, release)
	}
	return err
}

func (v verb) DecodeArguments(conn *dbus.Conn, sender string, msg *dbus.Message, _ []any) ([]any, error) {
	return []any{&caller{s: v.s, path: v.path, ctx: conn.Context(), conn: conn, sender: sender, msg: msg}}, nil
}

// NumArguments, NumReturns, ArgumentValue and ReturnValue implement
// dbus.Method; DecodeArguments makes them unused.
func (v verb) NumArguments() int     { return 1 }
func (v verb) NumReturns() int       { return 0 }
func (v verb) ArgumentValue(int) any { return &caller{} }
func (v verb) ReturnValue(int) any   { return nil }

// args decodes the arguments of a call.
func (c *caller) args(dest ...any) error {
	// Store would convert a number to a string of that code point.
	var got dbus.Signature
	if v, ok := c.msg.Headers[dbus.FieldSignature]; ok {
		got, _ = v.Value().(dbus.Signature)
	}
	if want := dbus.SignatureOf(dest...); got.String() != want.String() {
		return busconn.Refusal(api.ErrInvalidArgs, "the arguments have the signature %q, it should be %q", got.String(), want.String())
	}
	return dbus.Store(c.msg.Body, dest...)
}

// methods are all methods by interface and name.
var methods = map[string]call{
	"org.freedesktop.DBus.Introspectable.Introspect":       introspect,
	"org.freedesktop.DBus.Properties.Get":                  getProperty,
	"org.freedesktop.DBus.Properties.GetAll":               getAll,
	"org.freedesktop.DBus.Properties.Set":                  setProperty,
	"org.freedesktop.DBus.ObjectManager.GetManagedObjects": managedObjects,

	api.Manager + ".Reload":             change(api.ActionReload, reload),
	api.Manager + ".Reconfigure":        changeArg(api.ActionReconfigure, byName(reconfigure)),
	api.Manager + ".Renew":              changeArg(api.ActionReconfigure, byName(renew)),
	api.Manager + ".Up":                 changeArg(api.ActionLink, byName(setAdmin(true))),
	api.Manager + ".Down":               changeArg(api.ActionLink, byName(setAdmin(false))),
	api.Manager + ".StartSubnetManager": changeArg(api.ActionSubnetManager, byPort(startSM)),
	api.Manager + ".StopSubnetManager":  changeArg(api.ActionSubnetManager, byPort(stopSM)),
	api.Manager + ".SetLogLevel":        changeArg(api.ActionLogLevel, setLogLevel),
	api.Manager + ".Plan":               plan,
	api.Manager + ".Describe":           describe,
	api.Manager + ".ListLinks":          listLinks,
	api.Manager + ".ListPorts":          listPorts,
	api.Manager + ".ListSubnetManagers": listSMs,
	api.Manager + ".GetLink":            getLink,
	api.Manager + ".GetPort":            getPort,

	api.Link + ".Reconfigure": change(api.ActionReconfigure, onLink(reconfigure)),
	api.Link + ".Renew":       change(api.ActionReconfigure, onLink(renew)),
	api.Link + ".Up":          change(api.ActionLink, onLink(setAdmin(true))),
	api.Link + ".Down":        change(api.ActionLink, onLink(setAdmin(false))),

	api.SubnetManager + ".Start": change(api.ActionSubnetManager, onSM(startSM)),
	api.SubnetManager + ".Stop":  change(api.ActionSubnetManager, onSM(stopSM)),
}

func reload(ctx context.Context, c *caller) error { return c.s.cfg.Backend.Reload(ctx) }

func reconfigure(ctx context.Context, c *caller, name string) error {
	return c.s.cfg.Backend.Reconfigure(ctx, name)
}

func renew(ctx context.Context, c *caller, name string) error {
	return c.s.cfg.Backend.Renew(ctx, name)
}

func setAdmin(up bool) func(context.Context, *caller, string) error {
	return func(ctx context.Context, c *caller, name string) error {
		return c.s.cfg.Backend.SetAdmin(ctx, name, up)
	}
}

func startSM(ctx context.Context, c *caller, dev string, port int) error {
	return c.s.cfg.Backend.StartSubnetManager(ctx, dev, port)
}

func stopSM(ctx context.Context, c *caller, dev string, port int) error {
	return c.s.cfg.Backend.StopSubnetManager(ctx, dev, port)
}

// verbTimeout bounds one request.
const verbTimeout = 25 * time.Second

// acquire acquires one of a bounded number of places.
func acquire(places chan struct{}) (release func(), err error) {
	select {
	case places <- struct{}{}:
		return func() { <-places }, nil
	default:
		return nil, tooMany("%d at one time", cap(places))
	}
}

// enter counts a request of one kind of the caller's user until leave is called.
func (c *caller) enter(kind string, most int) (leave func(), err error) {
	if c.s.cfg.Privileged(c.user.uid) {
		return func() {}, nil
	}
	k := share{c.user.uid, kind}
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	if c.s.underWay[k] >= most {
		return nil, tooMany("%d %s of user %d", most, kind, k.uid)
	}
	c.s.underWay[k]++
	return func() {
		c.s.mu.Lock()
		defer c.s.mu.Unlock()
		if c.s.underWay[k]--; c.s.underWay[k] == 0 {
			delete(c.s.underWay, k)
		}
	}, nil
}

// change wraps what changes something and has no argument, changeArg what has one.
func change(action string, f func(context.Context, *caller) error) call {
	return func(c *caller) ([]any, error) {
		if err := c.args(); err != nil {
			return nil, err
		}
		return c.change(action, f)
	}
}

func changeArg(action string, f func(context.Context, *caller, string) error) call {
	return func(c *caller) ([]any, error) {
		var arg string
		if err := c.args(&arg); err != nil {
			return nil, err
		}
		return c.change(action, func(ctx context.Context, c *caller) error { return f(ctx, c, arg) })
	}
}

// change requests permission, then a place among the bounded number of requests.
// In the other order callers that type a password would keep permitted ones out.
// Of the message nothing but its arguments is kept meanwhile.
func (c *caller) change(action string, f func(context.Context, *caller) error) ([]any, error) {
	c.msg.Body = nil
	if err := c.reserve(c.enter("changes", maxEach)); err != nil {
		return nil, err
	}
	if err := c.authorize(action); err != nil {
		return nil, err
	}
	if err := c.reserve(acquire(c.s.verbs)); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(c.ctx, verbTimeout)
	defer cancel()
	if err := f(ctx, c); err != nil {
		var de *dbus.Error
		if errors.As(err, &de) {
			return nil, de
		}
		return nil, busconn.Refusal(api.ErrFailed, "%v", err)
	}
	return nil, nil
}

func byName(f func(context.Context, *caller, string) error) func(context.Context, *caller, string) error {
	return func(ctx context.Context, c *caller, n string) error {
		c.s.mu.Lock()
		_, ok := c.s.links[n]
		c.s.mu.Unlock()
		if !ok {
			return busconn.Refusal(api.ErrNoSuchLink, "there is no link %q", n)
		}
		return f(ctx, c, n)
	}
}

func byPort(f func(context.Context, *caller, string, int) error) func(context.Context, *caller, string) error {
	return func(ctx context.Context, c *caller, n string) error {
		p, err := c.s.port(n)
		if err != nil {
			return err
		}
		return f(ctx, c, p.IBDevice, p.Port)
	}
}

// port finds a port by mlx5_0/1, by its GUID, or by a device with one port.
func (s *Server) port(n string) (link.PortStatus, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var hits []link.PortStatus
	for k, p := range s.ports {
		if k == n || strings.EqualFold(p.PortGUID, n) {
			return p, nil
		}
		if p.IBDevice == n {
			hits = append(hits, p)
		}
	}
	switch len(hits) {
	case 1:
		return hits[0], nil
	case 0:
		return link.PortStatus{}, busconn.Refusal(api.ErrNoSuchPort, "there is no port %q on this host (a port has a name such as mlx5_0/1)", n)
	}
	return link.PortStatus{}, busconn.Refusal(api.ErrNoSuchPort, "%s has %d ports: give one as %s/1", n, len(hits), n)
}

func onLink(f func(context.Context, *caller, string) error) func(context.Context, *caller) error {
	return func(ctx context.Context, c *caller) error {
		c.s.mu.Lock()
		name := ""
		for n, l := range c.s.links {
			if linkPath(l) == c.path {
				name = n
			}
		}
		c.s.mu.Unlock()
		if name == "" {
			return busconn.Refusal(api.ErrNoSuchLink, "the link is gone")
		}
		return f(ctx, c, name)
	}
}

func onSM(f func(context.Context, *caller, string, int) error) func(context.Context, *caller) error {
	return func(ctx context.Context, c *caller) error {
		c.s.mu.Lock()
		dev, port := "", 0
		for g, m := range c.s.sms {
			if dbus.ObjectPath(api.SMPath(g)) == c.path {
				dev, port = m.IBDevice, m.Port
			}
		}
		c.s.mu.Unlock()
		if dev == "" {
			return busconn.Refusal(api.ErrNoSuchPort, "the port is gone")
		}
		return f(ctx, c, dev, port)
	}
}
