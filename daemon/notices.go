package daemon

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"time"

	"ibnetworkd/internal/backoff"
	"ibnetworkd/link"
)

// Notice replaces the notices of another part of the process about something; none
// remove them. It may be called from any goroutine.
func (b *Inbox) Notice(about string, n ...link.Notice) {
	b.mu.Lock()
	same := slices.Equal(b.more[about], n)
	b.more[about] = n
	b.mu.Unlock()
	if !same {
		b.Wake(Scope{Due: true})
	}
}

// settleNotice is for how long a notice is true before it counts, if it is only true
// when it lasts: a new subnet manager has configured all ports of a fabric by then.
const settleNotice = 30 * time.Second

// notices are those of the present picture and those of others.
func (d *Daemon) notices() []link.Notice {
	out := link.Notices(d.snap, d.set, d.governing)
	if len(d.ongoing) > 0 {
		d.repMu.Lock()
		known := d.report.Notices
		d.repMu.Unlock()
		for i, n := range out {
			// A change of a port's type removes links and makes others: what matched one may match again.
			if n.Code == link.CodeUnmatched && !slices.Contains(known, n) {
				out[i].Settle = true
			}
		}
	}
	if len(d.settling) > 0 || slices.ContainsFunc(out, func(n link.Notice) bool { return n.Settle }) {
		d.settle(&out, time.Now())
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, about := range slices.Sorted(maps.Keys(d.more)) {
		out = append(out, d.more[about]...)
	}
	return out
}

// settle removes the notices that have yet to last, and sets when the next one has. One
// that has lasted is the same as one that need not.
func (d *Daemon) settle(ns *[]link.Notice, now time.Time) {
	was := d.settling
	d.settling, d.settled = map[link.Notice]time.Time{}, time.Time{}
	*ns = slices.DeleteFunc(*ns, func(n link.Notice) bool {
		if !n.Settle {
			return false
		}
		since, ok := was[n]
		if !ok {
			since = now
		}
		d.settling[n] = since
		if end := since.Add(settleNotice); now.Before(end) {
			d.settled = backoff.Sooner(d.settled, end)
			return true
		}
		return false
	})
	for i := range *ns {
		(*ns)[i].Settle = false
	}
}

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
