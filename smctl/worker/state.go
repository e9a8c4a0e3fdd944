package worker

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	sdbus "github.com/coreos/go-systemd/v22/dbus"
	"github.com/godbus/dbus/v5"
	"golang.org/x/sys/unix"

	"ibnetworkd/internal/busconn"
	"ibnetworkd/smctl"
)

// State implements Manager.
func (s *Systemd) State(ctx context.Context, name string) (State, error) {
	conn, err := s.connection()
	if err != nil {
		return State{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	// First the changes from now on, then what is.
	path := dbus.ObjectPath(systemdPath + "/unit/" + sdbus.PathBusEscape(name))
	if err := s.watch(conn, name, path); err != nil {
		return State{}, plain(err)
	}
	// GetUnit knows those that run, ran and failed, or wait for a job; asking for
	// another's properties would make systemd load it.
	if err := conn.Object(systemdName, systemdPath).CallWithContext(ctx, managerIf+".GetUnit", 0, name).Err; err != nil {
		var de dbus.Error
		if errors.As(err, &de) && de.Name == systemdName+".NoSuchUnit" {
			return State{}, nil
		}
		return State{}, plain(err)
	}
	get := func(iface string) (map[string]dbus.Variant, error) {
		var m map[string]dbus.Variant
		err := conn.Object(systemdName, path).CallWithContext(ctx, "org.freedesktop.DBus.Properties.GetAll", 0, iface).Store(&m)
		return m, err
	}
	u, err := get(unitIf)
	if err != nil {
		return State{}, plain(err)
	}
	// A hundred properties and more, of which a failure is explained by four, and
	// what a program says while it runs is one.
	var v map[string]dbus.Variant
	switch st := stateOf(u, nil); {
	case st.Result != "":
		if v, err = get(serviceIf); err != nil {
			v = nil
		}
	case st.State == smctl.WorkerActive:
		if text, err := conn.Object(systemdName, path).GetProperty(serviceIf + ".StatusText"); err == nil {
			v = map[string]dbus.Variant{"StatusText": text}
		}
	}
	return stateOf(u, v), nil
}

func jobEnd(unit string) []dbus.MatchOption {
	return []dbus.MatchOption{dbus.WithMatchSender(systemdName), dbus.WithMatchInterface(managerIf),
		dbus.WithMatchMember("JobRemoved"), dbus.WithMatchArg(2, unit)}
}

// watch has the bus send the changes of a unit's properties and the ends of its
// jobs. Without a bus systemd sends all.
func (s *Systemd) watch(conn *busconn.Conn, name string, path dbus.ObjectPath) error {
	s.mu.Lock()
	known := s.watched[path] || conn.IsPeer()
	s.mu.Unlock()
	if known {
		return nil
	}
	if err := conn.AddMatchSignal(dbus.WithMatchSender(systemdName), dbus.WithMatchInterface("org.freedesktop.DBus.Properties"),
		dbus.WithMatchMember("PropertiesChanged"), dbus.WithMatchObjectPath(path)); err != nil {
		return err
	}
	if err := conn.AddMatchSignal(jobEnd(name)...); err != nil {
		return err
	}
	s.mu.Lock()
	if s.conn == conn {
		s.watched[path] = true
	}
	s.mu.Unlock()
	return nil
}

// epoch is one moment by Go's clock and by systemd's monotonic one.
var epoch = sync.OnceValues(func() (time.Time, time.Duration) {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		return time.Time{}, 0
	}
	return time.Now(), time.Duration(ts.Nano())
})

// monotonic is the moment of a systemd timestamp in microseconds of
// CLOCK_MONOTONIC. By the wall clock, which is set while hosts boot, a failure
// could lie in the future for hours, and its back-off with it.
func monotonic(usec uint64) time.Time {
	at, base := epoch()
	return at.Add(time.Duration(usec)*time.Microsecond - base)
}

// stateOf reads the properties of a unit.
func stateOf(u, v map[string]dbus.Variant) State {
	var st State
	text := func(m map[string]dbus.Variant, k string) string { s, _ := m[k].Value().(string); return s }
	if t, ok := u["StateChangeTimestampMonotonic"].Value().(uint64); ok && t != 0 {
		st.Since = monotonic(t)
	}
	if t, ok := u["StateChangeTimestamp"].Value().(uint64); ok && t != 0 {
		st.Wall = time.UnixMicro(int64(t))
	}
	switch text(u, "ActiveState") {
	case "active", "reloading", "refreshing":
		st.State = smctl.WorkerActive
	case "activating", "maintenance":
		st.State = smctl.WorkerActivating
	case "deactivating":
		st.State = smctl.WorkerDeactivating
	case "failed":
		st.State = smctl.WorkerFailed
	}
	// What does not run and has a job is about to be started: its state follows
	// when the job's turn has come, on a busy host after seconds.
	if job, ok := u["Job"].Value().([]any); ok && len(job) == 2 && (st.State == smctl.WorkerInactive || st.State == smctl.WorkerFailed) {
		if id, _ := job[0].(uint32); id != 0 {
			return State{State: smctl.WorkerActivating}
		}
	}
	if st.State == smctl.WorkerActive {
		st.StatusText = smctl.ParseStatusText(text(v, "StatusText"))
	}
	result := text(v, "Result")
	code, _ := v["ExecMainCode"].Value().(int32)
	status, _ := v["ExecMainStatus"].Value().(int32)
	if st.State == smctl.WorkerFailed || st.State == smctl.WorkerActivating && text(u, "SubState") == "auto-restart" {
		switch {
		case result == "exit-code":
			st.Result = fmt.Sprintf("exit status %d", status)
		case result == "signal" || result == "core-dump":
			st.Result = fmt.Sprintf("killed by signal %d", status)
		case result == "" || result == "success":
			st.Result = fmt.Sprintf("code %d, status %d", code, status)
		default:
			st.Result = result
		}
		if s := smctl.ParseStatusText(text(v, "StatusText")).String(); s != "" {
			st.Result += ": " + s
		}
		st.Refused = result == "exit-code" && status == ExitRefused
	}
	return st
}
