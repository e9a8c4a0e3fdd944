package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/godbus/dbus/v5"
	"github.com/spf13/cobra"

	"ibnetworkd/cmd/ibnetctl/answer"
	"ibnetworkd/daemon/bus/api"
	"ibnetworkd/internal/busconn"
	"ibnetworkd/link"
	"ibnetworkd/smctl"
)

func (a *app) monitorCmd() *cobra.Command {
	return &cobra.Command{
		Use: "monitor", Short: "print state changes as they happen", Args: cobra.NoArgs,
		Long: `Prints a line for each change of a link, port or subnet manager, with the old and
the new state and the reason, until it is interrupted. With --json each line is
an object. It continues when the daemon restarts.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx := cmd.Context()
			c, err := connect(ctx)
			if err != nil {
				return needed(err)
			}
			defer c.close()
			m := &monitor{app: a, describe: c.describe}
			if c.conn == nil {
				return m.bySocket(ctx, a.path(stateDir))
			}
			return m.byBus(ctx, c.conn)
		},
	}
}

// monitor prints what differs between two descriptions.
type monitor struct {
	*app
	describe func(context.Context) (*api.Description, error)
	last     *api.Description
	gone     bool
}

func (m *monitor) start(ctx context.Context) (err error) {
	if m.last, err = m.describe(ctx); err == nil && !m.json {
		fmt.Fprintf(m.err, "watching %d links and %d ports; Ctrl-C to quit\n", len(m.last.Links), len(m.last.Ports))
	}
	return err
}

// setRunning prints that the daemon has started or ended, if it has.
func (m *monitor) setRunning(is bool) {
	if m.gone != is {
		return
	}
	m.gone = !is
	e := event{Kind: "daemon", Name: "ibnetworkd", What: "state", Old: "running", New: "gone"}
	if is {
		e.Old, e.New = e.New, e.Old
	}
	m.event(time.Now(), e)
}

func (m *monitor) show(now *api.Description) {
	for _, e := range compare(m.last, now) {
		m.event(time.Now(), e)
	}
	m.last = now
}

func (m *monitor) byBus(ctx context.Context, conn *busconn.Conn) error {
	sigs := make(chan *dbus.Signal, 256)
	conn.Signal(sigs)
	if err := conn.AddMatchSignal(dbus.WithMatchSender(api.BusName), dbus.WithMatchPathNamespace(api.Root)); err != nil {
		return err
	}
	if _, err := conn.TrustOwner(ctx, api.BusName); err != nil {
		return err
	}
	if err := m.start(ctx); err != nil {
		return err
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case s, ok := <-sigs:
			if !ok && ctx.Err() != nil {
				return nil // Ctrl-C closes the connection as well
			}
			if !ok {
				return &exitError{exitNotRunning, errors.New("the bus closed the connection")}
			}
			if s.Name == "org.freedesktop.DBus.NameOwnerChanged" {
				is := len(s.Body) != 3 || s.Body[2] != ""
				if m.setRunning(is); !is {
					continue
				}
			}
			// One read answers all signals that wait.
			for len(sigs) > 0 {
				<-sigs
			}
			if now, err := m.describe(ctx); err == nil {
				m.show(now)
			}
		}
	}
}

// monitorInterval is the time between two calls of the daemon without a bus while its report does
// not change: it may have ended.
const monitorInterval = 5 * time.Second

// bySocket calls the daemon when its report in dir changes.
func (m *monitor) bySocket(ctx context.Context, dir string) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	changed, err := watchReport(ctx, dir)
	if err != nil {
		return err
	}
	if err := m.start(ctx); err != nil {
		return err
	}
	tick := time.NewTicker(monitorInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		case <-tick.C:
		}
		now, err := m.describe(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if m.setRunning(err == nil); err == nil {
			m.show(now)
		}
	}
}

type event struct {
	Kind, Name, What, Old, New, Why string
}

func (a *app) event(now time.Time, e event) {
	if a.json {
		b, _ := json.Marshal(answer.Event{At: now, Kind: e.Kind, Name: e.Name, What: e.What, Old: e.Old, New: e.New, Why: e.Why})
		fmt.Fprintln(a.out, string(b))
		return
	}
	line := fmt.Sprintf("%s %s: %s %s -> %s", now.Format("15:04:05.000"), a.paint(bold, e.Name), e.What, cmp.Or(e.Old, "-"),
		cmp.Or(e.New, "-"))
	if e.Why != "" {
		line += ": " + e.Why
	}
	fmt.Fprintln(a.out, line)
}

// compare lists what differs between two descriptions.
func compare(old, new *api.Description) []event {
	var out []event
	add := func(kind, name, what, o, n, why string) {
		if o != n {
			out = append(out, event{kind, name, what, o, n, why})
		}
	}
	ol := map[string]link.Status{}
	for _, l := range old.Links {
		ol[l.Name] = l
	}
	for _, l := range new.Links {
		o, had := ol[l.Name]
		delete(ol, l.Name)
		if !had {
			add("link", l.Name, "state", "", string(l.State), l.Reason().Text)
			continue
		}
		add("link", l.Name, "state", string(o.State), string(l.State), l.Reason().Text)
		add("link", l.Name, "operational", string(o.Oper), string(l.Oper), "")
		add("link", l.Name, "unit", o.Unit, l.Unit, "")
		if o.State == l.State && o.Reason() != l.Reason() {
			add("link", l.Name, "reason", string(o.Reason().Code), string(l.Reason().Code), l.Reason().Text)
		}
		for _, at := range l.Attributes {
			i := slices.IndexFunc(o.Attributes, func(x link.Attribute) bool { return x.Name == at.Name })
			// Addresses are shown as a whole below.
			if i >= 0 && at.Name != "Address" {
				add("link", l.Name, at.Name, o.Attributes[i].Actual, at.Actual, at.Why.Text)
			}
		}
		add("link", l.Name, "addresses", strings.Join(o.Addresses, " "), strings.Join(l.Addresses, " "), "")
	}
	for n, o := range ol {
		add("link", n, "state", string(o.State), "gone", "")
	}
	op := map[string]link.PortStatus{}
	for _, p := range old.Ports {
		op[fmt.Sprintf("%s/%d", p.IBDevice, p.Port)] = p
	}
	for _, p := range new.Ports {
		n := fmt.Sprintf("%s/%d", p.IBDevice, p.Port)
		o := op[n]
		delete(op, n)
		add("port", n, "state", o.State, p.State, p.Reason.Text)
		add("port", n, "physical", o.PhysState, p.PhysState, "")
		add("port", n, "SM LID", fmt.Sprint(o.SMLID), fmt.Sprint(p.SMLID), "")
		add("port", n, "P_Keys", strings.Join(o.PKeys, " "), strings.Join(p.PKeys, " "), "")
	}
	for n, o := range op {
		add("port", n, "state", o.State, "gone", "")
	}
	os := map[string]smctl.Status{}
	for _, s := range old.SubnetManagers {
		os[s.PortGUID] = s
	}
	for _, s := range new.SubnetManagers {
		o := os[s.PortGUID]
		add("subnet-manager", fmt.Sprintf("sm %s/%d", s.IBDevice, s.Port), "phase", string(o.Phase), string(s.Phase), s.Reason)
	}
	slices.SortStableFunc(out, func(a, b event) int { return strings.Compare(a.Kind+a.Name, b.Kind+b.Name) })
	return out
}
