package bus

import (
	"context"
	"log/slog"
	"strings"

	"github.com/godbus/dbus/v5"

	"ibnetworkd/daemon/bus/api"
	"ibnetworkd/internal/busconn"
)

// levels are the log levels by Manager's names, "" for those that it has not, and by
// syslog(3)'s, which org.freedesktop.LogControl1 has: at each, messages of it and of
// those below are logged.
var levels = []struct {
	name, syslog string
	level        slog.Level
}{
	{"debug", "debug", slog.LevelDebug},
	{"info", "info", slog.LevelInfo},
	{"", "notice", slog.LevelInfo + 2},
	{"warn", "warning", slog.LevelWarn},
	{"error", "err", slog.LevelError},
	{"", "crit", slog.LevelError + 4},
	{"", "alert", slog.LevelError + 8},
	{"", "emerg", slog.LevelError + 12},
}

// levelName is Manager's name of a level, or of the next one above it.
func levelName(l slog.Level) string {
	for _, x := range levels {
		if x.name != "" && l <= x.level {
			return x.name
		}
	}
	return "error"
}

// syslogName is the same in syslog's names.
func syslogName(l slog.Level) string {
	for _, x := range levels {
		if l <= x.level {
			return x.syslog
		}
	}
	return "emerg"
}

// setLevel sets a log level that is written in one of the two ways.
func setLevel(c *caller, level string, syslog bool) error {
	var names []string
	for _, x := range levels {
		name := x.name
		if syslog {
			name = x.syslog
		}
		if name == "" {
			continue
		}
		if name == level {
			c.s.cfg.Backend.SetLogLevel(x.level)
			c.s.cfg.Log.Info("log level", "level", level)
			c.s.Refresh()
			return nil
		}
		names = append(names, name)
	}
	return busconn.Refusal(api.ErrInvalidArgs, "%q is not one of %s", level, strings.Join(names, ", "))
}

func setLogLevel(_ context.Context, c *caller, level string) error { return setLevel(c, level, false) }

// logState is what the properties of org.freedesktop.LogControl1 are made from.
type logState struct {
	level  slog.Level
	target string
}

// logProps is org.freedesktop.LogControl1, as its manual page has it.
var logProps = []property[logState]{
	{"LogLevel", "s", "The log level in the words of syslog(3): emerg, alert, crit, err, warning, notice, info or debug. Setting it " +
		"needs org.ibnetwork1.set-log-level.", func(l logState) any { return syslogName(l.level) }},
	{"LogTarget", "s", "Where messages go: journal, or console for standard error.", func(l logState) any { return l.target }},
	{"SyslogIdentifier", "s", "The journal's name for the program, as for journalctl -t.", func(logState) any { return "ibnetworkd" }},
}

// setters are the properties that can be set, with the action of polkit. Everything else
// is read-only.
var setters = map[string]struct {
	action string
	set    func(c *caller, value string) error
}{
	api.LogControl + ".LogLevel": {api.ActionLogLevel, func(c *caller, value string) error { return setLevel(c, value, true) }},
}

func setProperty(c *caller) ([]any, error) {
	var iface, name string
	var value dbus.Variant
	if err := c.args(&iface, &name, &value); err != nil {
		return nil, err
	}
	if iface == "" {
		iface = c.iface
	}
	setter, ok := setters[iface+"."+name]
	if !ok || iface != c.iface {
		return nil, errReadOnly
	}
	text, _ := value.Value().(string) // no other variant is let in
	return c.change(setter.action, func(context.Context, *caller) error { return setter.set(c, text) })
}

var errReadOnly = busconn.Refusal("org.freedesktop.DBus.Error.PropertyReadOnly",
	"every property but LogLevel of %s is read-only: change the unit file and call Reload, or use the methods", api.LogControl)
