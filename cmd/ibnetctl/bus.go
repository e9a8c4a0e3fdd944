package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/godbus/dbus/v5"

	"ibnetworkd/cmd/ibnetctl/report"
	"ibnetworkd/daemon"
	"ibnetworkd/daemon/bus/api"
	"ibnetworkd/ib"
	"ibnetworkd/internal/busconn"
	"ibnetworkd/internal/version"
	"ibnetworkd/link"
	"ibnetworkd/smctl"
)

// callTimeout bounds every call; a reload of thousands of links is well below.
const callTimeout = 30 * time.Second

// limitOf is how long a call may take. What gives nothing back changes
// something, and a person other than root may be typing a password.
func limitOf(ret []any, uid int) time.Duration {
	if len(ret) > 0 || uid == 0 {
		return callTimeout
	}
	return callTimeout + api.AskTimeout
}

// connectTimeout bounds the way to the bus, which may hang as everything else.
const connectTimeout = 5 * time.Second

// client talks to the daemon.
type client struct {
	conn   *busconn.Conn // nil without a bus
	socket string        // where root calls it then
	close  func()
}

// dial joins the bus.
func dial(ctx context.Context) (*client, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	late := fmt.Errorf("no answer within %v", connectTimeout)
	limit := time.AfterFunc(connectTimeout, func() { cancel(late) })
	conn, err := busconn.Join(ctx, busconn.Config{})
	if !limit.Stop() && err == nil {
		err = late
	}
	if err != nil {
		cancel(nil)
		if errors.Is(context.Cause(ctx), late) {
			err = late
		}
		return nil, err
	}
	return &client{conn: conn, close: func() { conn.Close(); cancel(nil) }}, nil
}

var errNotRunning = errors.New("ibnetworkd is not running")

// connect finds the daemon on the bus, or on its socket where it is not there. It never
// starts it: a question about a stopped daemon must not start one.
func connect(ctx context.Context) (*client, error) {
	c, err := connectBus(ctx)
	if err == nil {
		return c, nil
	}
	return connectSocket(filepath.Join(stateDir, api.ControlSocket), err)
}

func connectBus(ctx context.Context) (*client, error) {
	c, err := dial(ctx)
	if err != nil {
		return nil, fmt.Errorf("cannot connect to the system bus: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	var owned bool
	if err := c.conn.BusObject().CallWithContext(ctx, "org.freedesktop.DBus.NameHasOwner", 0, api.BusName).Store(&owned); err != nil {
		c.close()
		return nil, fmt.Errorf("the system bus does not answer: %w", err)
	}
	if !owned {
		c.close()
		return nil, errNotRunning
	}
	return c, nil
}

// call calls a method of the manager.
func (c *client) call(ctx context.Context, method string, ret []any, args ...any) error {
	return c.callOn(ctx, api.Root, api.Manager+"."+method, ret, args...)
}

func (c *client) callOn(ctx context.Context, path, method string, ret []any, args ...any) error {
	limit := limitOf(ret, os.Geteuid())
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	if c.conn == nil {
		return busError(retry(ctx, func() error { return callSocket(ctx, c.socket, method, ret, args) }), limit)
	}
	// Not Object.Call: it drops the flag that lets polkit ask for a password.
	dot := strings.LastIndexByte(method, '.')
	msg := &dbus.Message{Type: dbus.TypeMethodCall, Flags: dbus.FlagNoAutoStart | dbus.FlagAllowInteractiveAuthorization, Body: args,
		Headers: map[dbus.HeaderField]dbus.Variant{
			dbus.FieldDestination: dbus.MakeVariant(api.BusName),
			dbus.FieldPath:        dbus.MakeVariant(dbus.ObjectPath(path)),
			dbus.FieldInterface:   dbus.MakeVariant(method[:dot]),
			dbus.FieldMember:      dbus.MakeVariant(method[dot+1:]),
		}}
	if len(args) > 0 {
		msg.Headers[dbus.FieldSignature] = dbus.MakeVariant(dbus.SignatureOf(args...))
	}
	err := retry(ctx, func() error {
		call := <-c.conn.SendWithContext(ctx, msg, make(chan *dbus.Call, 1)).Done
		if call.Err != nil {
			return call.Err
		}
		return call.Store(ret...)
	})
	return busError(err, limit)
}

// retry calls f again, after pauses, while the daemon or the bus has too many
// requests: one that is refused for that has done nothing.
func retry(ctx context.Context, f func() error) (err error) {
	for pause := 100 * time.Millisecond; ; pause *= 2 {
		err = f()
		var de dbus.Error
		if !errors.As(err, &de) || de.Name != "org.freedesktop.DBus.Error.LimitsExceeded" || pause > time.Second {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(pause):
		}
	}
}

// busError gives an error of the bus its exit code and a sentence.
func busError(err error, limit time.Duration) error {
	if err == nil {
		return nil
	}
	var de dbus.Error
	if !errors.As(err, &de) {
		if errors.Is(err, context.DeadlineExceeded) {
			return fail(exitTimeout, "ibnetworkd did not answer within %v", limit)
		}
		return err
	}
	text := de.Name
	if len(de.Body) > 0 {
		if s, ok := de.Body[0].(string); ok && s != "" {
			text = s
		}
	}
	switch de.Name {
	case api.ErrAccessDenied, "org.freedesktop.DBus.Error.InteractiveAuthorizationRequired":
		return fail(exitDenied, "%s", text)
	case api.ErrInvalidArgs:
		return fail(exitUsage, "%s", text)
	case api.ErrNoSuchLink, api.ErrNoSuchPort:
		return fail(exitNoSuch, "%s", text)
	case "org.freedesktop.DBus.Error.ServiceUnknown", "org.freedesktop.DBus.Error.NameHasNoOwner":
		return needed(errNotRunning)
	}
	return errors.New(strings.TrimSpace(text))
}

// describe fetches everything.
func (c *client) describe(ctx context.Context) (*api.Description, error) {
	var text string
	if err := c.call(ctx, "Describe", []any{&text}); err != nil {
		return nil, err
	}
	var d api.Description
	if err := json.Unmarshal([]byte(text), &d); err != nil {
		return nil, fmt.Errorf("cannot read the daemon's description: %w", err)
	}
	if d.Schema != api.DescriptionSchema {
		return nil, fmt.Errorf("the daemon uses schema %d, this ibnetctl %d: install the ibnetctl of the daemon's version", d.Schema,
			api.DescriptionSchema)
	}
	return &d, nil
}

// withDaemon runs f with a connection, for commands that need the daemon.
func (a *app) withDaemon(ctx context.Context, f func(*client) error) error {
	c, err := connect(ctx)
	if err != nil {
		return needed(err)
	}
	defer c.close()
	return f(c)
}

// fromReport is what a running daemon has left in its state directory, nil if
// none runs.
func (a *app) fromReport(why string) *api.Description {
	r := a.report()
	if r == nil {
		return nil
	}
	d := &api.Description{Schema: api.DescriptionSchema, Version: version.String(), Source: "ibnetworkd",
		Online: api.OnlineState(slices.Values(r.Links), r.Awaited),
		Links:  r.Links, Ports: r.Ports, SubnetManagers: unreported(r.Ports, why), Problems: r.Problems, Notices: r.Notices}
	return d
}

// unreported are the subnet managers of InfiniBand ports, which no report has.
func unreported(ports []link.PortStatus, why string) []smctl.Status {
	out := []smctl.Status{}
	for _, p := range ports {
		if p.LinkLayer == ib.LinkLayerInfiniBand.String() {
			out = append(out, smctl.Status{PortGUID: p.PortGUID, IBDevice: p.IBDevice, Port: p.Port, Phase: phaseUnknown, Reason: why})
		}
	}
	return out
}

// report is that of a running daemon, nil for none.
func (a *app) report() *link.Report {
	if !running("ibnetworkd") {
		return nil
	}
	r, err := daemon.ReadReport(a.path(stateDir))
	if err != nil {
		return nil
	}
	return &r
}

// running reports whether a process of that name runs.
func running(name string) bool {
	comms, _ := filepath.Glob("/proc/[0-9]*/comm")
	return slices.ContainsFunc(comms, func(comm string) bool {
		b, err := os.ReadFile(comm)
		return err == nil && strings.TrimSpace(string(b)) == name
	})
}

// describe queries the daemon, or reads the system.
func (a *app) describe(ctx context.Context) (*api.Description, error) {
	why := "the daemon was not queried (--no-bus)"
	switch {
	case a.recorded != "":
		r, err := readReport(a.recorded)
		if err != nil {
			return nil, err
		}
		d, err := recorded(r)
		if d != nil || err != nil {
			return d, err
		}
		why = "the report has no " + report.Daemon
	case a.noBus:
	case a.root != "":
		why = "the daemon was not queried (--root)"
	default:
		c, err := connect(ctx)
		if err == nil {
			defer c.close()
			return c.describe(ctx)
		}
		why = err.Error()
		// Without a bus (a rescue system, a small guest) a running daemon
		// still leaves its report in a file.
		if d := a.fromReport(why); d != nil {
			return d, nil
		}
	}
	sys, err := a.observe(ctx)
	if err != nil {
		return nil, err
	}
	switch {
	case a.json:
	case a.recorded != "":
		fmt.Fprintln(a.err, why+"\nthe following is from its capture, with what the daemon would do")
	default:
		fmt.Fprintln(a.err, why+"\nthe following is what ibnetctl itself reads, with what the daemon would do")
	}
	return sys.describe(why), nil
}
