package bus

import (
	"cmp"
	"context"
	"runtime"
	"weak"

	"github.com/godbus/dbus/v5"

	"ibnetworkd/daemon/bus/api"
	"ibnetworkd/internal/busconn"
)

func introspect(c *caller) ([]any, error) {
	c.s.mu.Lock()
	kids := c.s.children(c.path)
	c.s.mu.Unlock()
	var ifaces []string
	if c.iface != "" {
		ifaces = append(ifaces, c.iface)
	}
	if c.path == api.Root {
		ifaces = append(ifaces, "org.freedesktop.DBus.ObjectManager")
	}
	return []any{node(ifaces, kids)}, nil
}

// state is what the object is now.
func (c *caller) state(iface string) (state, error) {
	if iface != c.iface && iface != "" {
		switch iface {
		case "org.freedesktop.DBus.Introspectable", "org.freedesktop.DBus.Properties", "org.freedesktop.DBus.Peer",
			"org.freedesktop.DBus.ObjectManager":
			return &stateOf[struct{}]{}, nil
		}
		return nil, busconn.Refusal("org.freedesktop.DBus.Error.UnknownInterface", "%s has no interface %s", c.path, iface)
	}
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	o := c.s.objects[c.path]
	if o == nil || o.now == nil {
		return nil, busconn.Refusal("org.freedesktop.DBus.Error.UnknownObject", "%s has gone", c.path)
	}
	return o.now, nil
}

func getProperty(c *caller) ([]any, error) {
	var iface, name string
	if err := c.args(&iface, &name); err != nil {
		return nil, err
	}
	now, err := c.state(iface)
	if err != nil {
		return nil, err
	}
	v, ok := now.value(name)
	if !ok {
		return nil, busconn.Refusal("org.freedesktop.DBus.Error.UnknownProperty", "%s has no property %s", cmp.Or(iface, c.iface), name)
	}
	return []any{v}, nil
}

func getAll(c *caller) ([]any, error) {
	var iface string
	if err := c.args(&iface); err != nil {
		return nil, err
	}
	now, err := c.state(iface)
	if err != nil {
		return nil, err
	}
	return []any{now.values()}, nil
}

// objects is the answer of GetManagedObjects.
type objects map[dbus.ObjectPath]map[string]map[string]dbus.Variant

// managedObjects makes one answer at a time, and none where one of the same state is still being
// written: for hundreds of links it takes milliseconds and megabytes, and many may ask.
func managedObjects(c *caller) ([]any, error) {
	s := c.s
	s.listing.Lock()
	defer s.listing.Unlock()
	now := map[dbus.ObjectPath]object{}
	s.mu.Lock()
	out := s.listed.Value()
	if out == nil {
		out = &objects{}
		s.listed = weak.Make(out)
		for p, o := range s.objects {
			if o.now != nil && managed(p) {
				now[p] = *o
			}
		}
	}
	s.mu.Unlock()
	for p, o := range now {
		(*out)[p] = map[string]map[string]dbus.Variant{o.iface: o.now.values()}
	}
	c.releases = append(c.releases, func() { runtime.KeepAlive(out) })
	return []any{*out}, nil
}

func plan(c *caller) ([]any, error) {
	if err := c.reserve(c.enter("plans", maxEachPlans)); err != nil {
		return nil, err
	}
	places := c.s.plans
	if c.s.cfg.Privileged(c.user.uid) {
		places = c.s.verbs
	}
	if err := c.reserve(acquire(places)); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(c.ctx, verbTimeout)
	defer cancel()
	p, err := c.s.cfg.Backend.Plan(ctx)
	if err != nil {
		return nil, busconn.Refusal(api.ErrFailed, "%v", err)
	}
	type blocked struct{ On, Op, Code, Text, Next string }
	out := make([]blocked, len(p.Blocked))
	for i, b := range p.Blocked {
		out[i] = blocked{busconn.Clean(b.On.String()), busconn.Clean(b.Op), string(b.Reason.Code), busconn.Clean(b.Reason.Text),
			busconn.Clean(b.Reason.Next)}
	}
	cmds := p.Commands()
	for i := range cmds {
		cmds[i] = busconn.Clean(cmds[i])
	}
	return []any{list(cmds), out}, nil
}

func describe(c *caller) ([]any, error) {
	if f := c.s.cfg.Refresh; f != nil {
		f(c.ctx)
	}
	text, err := c.s.describeJSON()
	if err != nil {
		return nil, busconn.Refusal(api.ErrFailed, "%v", err)
	}
	return []any{text}, nil
}

func listLinks(c *caller) ([]any, error) {
	type row struct {
		Index       int32
		Name, State string
		Object      dbus.ObjectPath
	}
	out := []row{}
	for _, l := range c.s.describe().Links {
		out = append(out, row{int32(l.Ifindex), busconn.Clean(l.Name), string(l.State), linkPath(l)})
	}
	return []any{out}, nil
}

type portRow struct {
	Device string
	Port   uint32
	State  string
	Object dbus.ObjectPath
}

func listPorts(c *caller) ([]any, error) {
	out := []portRow{}
	for _, p := range c.s.describe().Ports {
		out = append(out, portRow{busconn.Clean(p.IBDevice), uint32(p.Port), p.State, dbus.ObjectPath(api.PortPath(p.IBDevice, p.Port))})
	}
	return []any{out}, nil
}

func listSMs(c *caller) ([]any, error) {
	out := []portRow{}
	for _, m := range c.s.describe().SubnetManagers {
		out = append(out, portRow{busconn.Clean(m.IBDevice), uint32(m.Port), string(m.Phase), dbus.ObjectPath(api.SMPath(m.PortGUID))})
	}
	return []any{out}, nil
}

func getLink(c *caller) ([]any, error) {
	var n string
	if err := c.args(&n); err != nil {
		return nil, err
	}
	c.s.mu.Lock()
	l, ok := c.s.links[n]
	c.s.mu.Unlock()
	if !ok {
		return nil, busconn.Refusal(api.ErrNoSuchLink, "there is no link %q", n)
	}
	return []any{linkPath(l)}, nil
}

func getPort(c *caller) ([]any, error) {
	var n string
	if err := c.args(&n); err != nil {
		return nil, err
	}
	p, err := c.s.port(n)
	if err != nil {
		return nil, err
	}
	return []any{dbus.ObjectPath(api.PortPath(p.IBDevice, p.Port))}, nil
}
