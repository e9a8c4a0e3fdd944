package main

import (
	"errors"
	"log/slog"
	"reflect"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"ibnetworkd/sm/engine"
)

// reload reads the settings again, applies what a running manager can, and sweeps. An
// error means that a service of systemd must end to apply the rest: its unit starts it
// again. Any other goes on with the former ones. Settings that cannot be used change nothing.
func (d *daemon) reload() error {
	if d.begun.logFile != "" {
		if err := d.logTo.open(d.begun); err != nil {
			d.log.Error("the log file cannot be opened again, the previous one stays in use", "err", err)
		}
	}
	opts, err := d.opts.withSettings()
	opts.lids = "" // read at the start only
	var next engine.Config
	if err == nil {
		next, err = opts.config(d.log)
	}
	restart := err == nil && (!sameFixed(*d.config.Load(), next) || !sameStart(d.begun, &opts))
	if restart {
		err = opts.canStart(d.log)
	}
	if err != nil {
		d.log.Error("the settings cannot be used, the previous ones stay in force", "err", err)
		d.status.problem(firstLine(err) + ": the previous settings stay in force")
		d.manager.Resweep(false, "SIGHUP")
		return nil
	}
	opts.setLevel(d.level)
	d.status.problem("")
	if err := opts.keepGood(); err != nil {
		d.log.Warn("cannot save the partitions for a start with a bad file", "err", err)
	}
	was := d.config.Load()
	if restart {
		changed := strings.Join(opts.needRestart(d.begun, !reflect.DeepEqual(next.QoSPolicy, was.QoSPolicy)), ", ")
		if d.service {
			d.log.Info("settings changed that need a restart", "options", changed)
			return errRestart
		}
		d.log.Warn("settings changed that need a restart, the previous ones stay in force; restart ibnetsm to apply them", "options", changed)
		d.status.problem("restart ibnetsm to apply: " + changed)
	}
	next = applied(*was, next) // also for a port that appears later
	d.config.Store(&next)
	if none := (engine.Config{}); !reflect.DeepEqual(none.Adjusted(*was), none.Adjusted(next)) {
		d.log.Info("priority or intervals changed", "priority", next.Priority, "sweep", next.Sweep.String(), "poll", next.Poll.String(),
			"window", next.Window, "timeout", next.Timeout.String(), "retries", max(0, next.Retries))
		for _, s := range d.manager.Subnets() {
			s.Adjust(next)
		}
	}
	if !reflect.DeepEqual(next.Names, was.Names) {
		for _, s := range d.manager.Subnets() {
			s.SetNames(next.Names)
		}
	}
	if !reflect.DeepEqual(next.Route, was.Route) {
		d.log.Info("the routing engine or hints for routes changed")
		for _, s := range d.manager.Subnets() {
			s.SetRoute(next.Route, "SIGHUP")
		}
	}
	if !reflect.DeepEqual(next.PrefixRoutes, was.PrefixRoutes) {
		for _, s := range d.manager.Subnets() {
			s.SetPrefixRoutes(next.PrefixRoutes, "SIGHUP")
		}
	}
	if !reflect.DeepEqual(next.Partitions, was.Partitions) {
		d.log.Info("partitions changed", "file", opts.partitions)
		for _, s := range d.manager.Subnets() {
			s.SetPartitions(next.Partitions, "SIGHUP")
		}
		return nil
	}
	d.manager.Resweep(false, "SIGHUP")
	return nil
}

// canStart checks what run checks only at its start: a mistake there would end the
// manager with the restart.
func (o *options) canStart(log *slog.Logger) error {
	if _, err := o.manager(log); err != nil {
		return err
	}
	if o.logFile == "" {
		return nil
	}
	f, err := o.openLog()
	if err != nil {
		return err
	}
	return f.Close()
}

// errRestart ends a subnet manager that systemd has to start again, with settings
// that a running one cannot apply.
var errRestart = errors.New("settings changed that need a restart")

// sameFixed reports whether two configurations differ only in what a running
// subnet manager can apply.
func sameFixed(a, b engine.Config) bool {
	for _, c := range []*engine.Config{&a, &b} {
		*c = applied(*c, engine.Config{})
		c.Log, c.Store, c.Drains, c.Routes, c.Changed, c.LIDs = nil, nil, nil, nil, nil, nil // LIDs are for a start
	}
	return reflect.DeepEqual(a, b)
}

// applied is a configuration with what a running subnet manager can apply of another.
func applied(c, next engine.Config) engine.Config {
	c.Partitions, c.Names, c.Route, c.PrefixRoutes = next.Partitions, next.Names, next.Route, next.PrefixRoutes
	return c.Adjusted(next)
}

// applicable are the options that a running manager applies, or that name files whose
// content counts.
var applicable = []string{"partitions", "partition", "node-name-map", "routing", "root-guid-file", "cn-guid-file", "io-guid-file",
	"hop-weights-file", "guid-routing-order-file", "guid2lid", "prefix-routes-file", "priority", "sweep", "poll", "window", "timeout",
	"retries", "reregister", "verbose", "config", "settings", "keys-file", "qos-policy"}

// needRestart names the options that differ from those at the start and are not applied.
func (o *options) needRestart(begun *options, policy bool) (names []string) {
	now, was := o.values(), begun.values()
	for name := range now {
		if now[name] != was[name] && !slices.Contains(applicable, name) {
			names = append(names, name)
		}
	}
	if policy {
		names = append(names, "qos-policy")
	}
	slices.Sort(names)
	return names
}

// values are the options by the names of their flags.
func (o *options) values() map[string]string {
	var bound options
	f := pflag.NewFlagSet("", pflag.ContinueOnError)
	bound.bind(f)
	bound = *o
	out := map[string]string{}
	f.VisitAll(func(g *pflag.Flag) { out[g.Name] = g.Value.String() })
	return out
}
