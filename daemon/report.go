package daemon

import (
	"fmt"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"ibnetworkd/link"
)

// setStatus takes a link's status and notes whether it is another one.
func (d *Daemon) setStatus(st link.Status, changed map[string]bool) {
	old, had := d.status[st.Ifindex]
	if had && reflect.DeepEqual(old, st) {
		return
	}
	d.status[st.Ifindex] = st
	changed[st.Name] = true
}

// publish reports what has changed to the journal, the readers and the file.
func (d *Daemon) publish(changed map[string]bool, reloaded bool) {
	for i, st := range d.status {
		if _, ok := d.snap.Link(i); !ok {
			delete(d.status, i)
			maps.DeleteFunc(d.logged, func(k, _ string) bool { return strings.HasPrefix(k, logKey(st.Name, "")) })
			if st.State != link.StateUnmanaged {
				d.log.Info("link is gone", "link", st.Name, "state", string(st.State))
			}
		}
	}
	d.governPorts()
	rep := link.Report{Ports: link.BuildPortStatus(d.snap, d.governing.Ports, d.portNotes), Links: make([]link.Status, 0, len(d.snap.Links))}
	names := make(map[string]bool, len(d.snap.Links))
	for i := range d.snap.Links {
		if st, ok := d.status[d.snap.Links[i].Index]; ok {
			rep.Links = append(rep.Links, st)
			names[st.Name] = true
			if changed[st.Name] {
				d.logState(st)
			}
		}
	}
	for _, p := range d.set.Problems {
		rep.Problems = append(rep.Problems, p.String())
	}
	rep.Awaited = link.Awaited(d.set)
	rep.Notices = d.notices()
	d.repMu.Lock()
	last := d.report
	d.report, d.shown = rep, d.snap
	d.repMu.Unlock()
	// A name that no link has any more is gone, also where its link is renamed.
	var gone []string
	for _, st := range last.Links {
		if !names[st.Name] {
			gone = append(gone, st.Name)
		}
	}
	slices.Sort(gone)
	c := Change{Gone: gone, Ports: rep.Ports, PortsChanged: !reflect.DeepEqual(last.Ports, rep.Ports), Reloaded: reloaded,
		Problems: rep.Problems,
		Notices:  rep.Notices, Awaited: rep.Awaited}
	noticed := !slices.Equal(last.Notices, rep.Notices) || last.Awaited != rep.Awaited
	if noticed {
		d.logNotices(last.Notices, rep.Notices)
	}
	for _, st := range rep.Links {
		if changed[st.Name] {
			c.Links = append(c.Links, st)
		}
	}
	if len(c.Links) == 0 && len(gone) == 0 && !c.PortsChanged && !reloaded && !noticed {
		return
	}
	if c.PortsChanged {
		d.logPorts(last.Ports, rep.Ports)
	}
	maps.Copy(d.unsaved, changed)
	d.reportDirty = true
	d.saveReport()
	if text := summary(rep); text != d.summary || reloaded {
		d.summary = text
		d.notify("STATUS=" + text)
	}
	d.seq++
	c.Seq = d.seq
	d.subMu.Lock()
	subs := slices.Collect(maps.Values(d.subs))
	d.subMu.Unlock()
	for _, m := range subs {
		m.put(c)
	}
}

// reportShare bounds the part of the time that goes into the report's file: it is
// written at most once in this many times of what writing it takes.
const reportShare = 8

// saveReport writes the report's file, unless it was written a moment ago; then
// the timer does it.
func (d *Daemon) saveReport() {
	start := time.Now()
	if !d.reportDirty || start.Before(d.reportNext) {
		return
	}
	if err := d.cfg.Store.SaveReport(d.Report(), func(n string) bool { return d.unsaved[n] }); err != nil {
		d.logOnce("", "report", err.Error(), slog.LevelError)
		d.reportNext = time.Now().Add(keepAgain)
		return
	}
	d.forgetLog("", "report")
	clear(d.unsaved)
	d.reportDirty = false
	d.reportNext = time.Now().Add(reportShare * time.Since(start))
}

// summary is the one line for systemctl status.
func summary(r link.Report) string {
	n := map[link.State]int{}
	for _, s := range r.Links {
		n[s.State]++
	}
	var parts []string
	for _, s := range []link.State{link.StateConfigured, link.StateConfiguring, link.StatePending, link.StateFailed} {
		if n[s] > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n[s], s))
		}
	}
	if len(parts) == 0 {
		return "no link is managed"
	}
	return "links: " + strings.Join(parts, ", ")
}
