package worker

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/godbus/dbus/v5"
)

// matchTimeout bounds the wait for the bus to forget a match.
const matchTimeout = time.Second

// LoadModule loads a kernel module through modprobe@.service, so that the
// daemon itself needs no right to, and returns when the job has ended. That
// service calls it a success too when there is no such module.
func (s *Systemd) LoadModule(ctx context.Context, name string) error {
	conn, err := s.connection()
	if err != nil {
		return err
	}
	unit := modprobeUnit(name)
	// The end of the job may come before its path, and ends of earlier jobs do.
	done := make(chan ended, 16)
	s.mu.Lock()
	if s.jobs == nil {
		s.jobs = map[chan ended]string{}
	}
	s.jobs[done] = unit
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.jobs, done)
	}()
	if !conn.IsPeer() {
		// systemd reports the end of a job to the one that queued it without a subscription.
		if err := conn.AddMatchSignalContext(ctx, jobEnd(unit)...); err != nil {
			return err
		}
		defer func() {
			// ctx may have ended, and a bus that does not answer must not delay the end.
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), matchTimeout)
			defer cancel()
			_ = conn.RemoveMatchSignalContext(ctx, jobEnd(unit)...)
		}()
	}
	var job dbus.ObjectPath
	if err := conn.Object(systemdName, systemdPath).CallWithContext(ctx, managerIf+".StartUnit", 0, unit,
		"replace").Store(&job); err != nil {
		var de dbus.Error
		if errors.As(err, &de) {
			switch de.Name {
			case "org.freedesktop.DBus.Error.ServiceUnknown", "org.freedesktop.DBus.Error.NameHasNoOwner", systemdName + ".NoSuchUnit":
				return fmt.Errorf("%w: %w", ErrNoSystemd, plain(err))
			}
		}
		return plain(err)
	}
	for {
		select {
		case e := <-done:
			if e.job != job {
				continue
			}
			if e.result != "done" {
				return fmt.Errorf("%s: %s (journalctl -u %s)", unit, e.result, unit)
			}
			return nil
		case <-conn.Context().Done():
			return ErrNoSystemd
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

type ended struct {
	job    dbus.ObjectPath
	result string
}

// finished reports the end of a unit's job to the calls that wait for one. One
// that does not read them has not got its job's path yet: the last ends count.
func (s *Systemd) finished(unit string, e ended) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c, u := range s.jobs {
		if u != unit {
			continue
		}
		for sent := false; !sent; {
			select {
			case c <- e:
				sent = true
			default:
				select {
				case <-c: // the oldest
				default:
				}
			}
		}
	}
}

// modprobeUnit is the unit that loads a module. The unit uses its instance name
// unescaped, so the name must need no escaping: names of modules are letters,
// digits, _ and -, of which - is the same as _.
func modprobeUnit(module string) string {
	return "modprobe@" + strings.ReplaceAll(module, "-", "_") + ".service"
}
