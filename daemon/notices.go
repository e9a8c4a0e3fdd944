package daemon

import (
	"context"
	"log/slog"
	"maps"
	"slices"

	"ibnetworkd/link"
)

// Notice replaces the notices of another part of the process about something; none
// remove them. It may be called from any goroutine.
func (d *Daemon) Notice(about string, n ...link.Notice) {
	d.mu.Lock()
	same := slices.Equal(d.more[about], n)
	d.more[about] = n
	d.mu.Unlock()
	if !same {
		d.Wake(Scope{Due: true})
	}
}

// notices are those of the present picture and those of others.
func (d *Daemon) notices() []link.Notice {
	out := link.Notices(d.snap, d.set, d.governing)
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, about := range slices.Sorted(maps.Keys(d.more)) {
		out = append(out, d.more[about]...)
	}
	return out
}

// logNotices logs the notices that are new.
func (d *Daemon) logNotices(old, now []link.Notice) {
	for _, n := range now {
		if slices.Contains(old, n) {
			continue
		}
		level := slog.LevelWarn
		if n.Code == link.CodeNoUnits {
			level = slog.LevelInfo
		}
		args := []any{"code", string(n.Code)}
		if n.Unit != "" {
			args = append(args, "unit", n.Unit)
		}
		if n.Next != "" {
			args = append(args, "next", n.Next)
		}
		d.log.Log(context.Background(), level, n.Text, as(msgNotice, args...)...)
	}
}
