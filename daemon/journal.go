package daemon

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"

	"ibnetworkd/link"
	"ibnetworkd/units"
)

// logKey is the key of d.logKey for a matter of a link, "" for none.
func logKey(name, about string) string { return name + "\x00" + about }

// forgetLog makes logOnce log the next text about a matter, even if it is the last one.
func (d *Daemon) forgetLog(name, about string) { delete(d.logged, logKey(name, about)) }

// logOnce logs a text that is not the last one logged about the matter.
func (d *Daemon) logOnce(name, about, text string, level slog.Level, args ...any) {
	key := logKey(name, about)
	if d.logged[key] == text {
		return
	}
	d.logged[key] = text
	d.log.Log(context.Background(), level, text, args...)
}

// logProblems logs the problems that were not there in the last load, and those
// that are gone, and reports whether there were any of either.
func (d *Daemon) logProblems(set *units.Set) bool {
	now := make(map[string]bool, len(set.Problems))
	changed := false
	for _, p := range set.Problems {
		text := p.String()
		if now[text] {
			continue
		}
		now[text] = true
		if d.problems[text] {
			continue
		}
		changed = true
		level := slog.LevelWarn
		if p.Severity == units.Error {
			level = slog.LevelError
		}
		d.log.Log(context.Background(), level, text, as(msgProblem, "CONFIG_FILE", p.Pos.File, "CONFIG_LINE", p.Pos.Line)...)
	}
	for _, text := range slices.Sorted(maps.Keys(d.problems)) {
		if !now[text] {
			changed = true
			d.log.Info("gone: " + text)
		}
	}
	d.problems = now
	return changed
}

// logState logs the states of a link as old -> new with the reason, and each
// reason that remains, once.
func (d *Daemon) logState(st link.Status) {
	if st.State == link.StateUnmanaged && st.Reason().Code == link.CodeNoUnit {
		return
	}
	now := string(st.State) + "/" + string(st.Oper)
	key := logKey(st.Name, "state")
	was := d.logged[key]
	if was == now+" "+st.Reason().Text {
		return
	}
	d.logged[key] = now + " " + st.Reason().Text
	before, old, _ := strings.Cut(was, " ")
	before = cmp.Or(before, "new")
	args := []any{"link", st.Name, "old", before, "new", now}
	if st.Unit != "" {
		args = append(args, "unit", st.Unit)
	}
	if st.IBDevice != "" {
		args = append(args, "RDMA_PORT", fmt.Sprintf("%s/%d", st.IBDevice, st.Port))
	}
	if r := st.Reason(); r.Text != "" {
		args = append(args, "code", string(r.Code), "reason", r.Text)
		if r.Next != "" {
			args = append(args, "next", r.Next)
		}
	}
	level := slog.LevelInfo
	if st.State == link.StateFailed {
		level = slog.LevelWarn
	}
	text := st.Name + ": " + before + " -> " + now
	switch reason := st.Reason().Text; {
	case before == now && reason != "":
		text = st.Name + ": still " + now + ": " + reason
	case before == now:
		text = st.Name + ": still " + now + ", no longer: " + old
	}
	d.log.Log(context.Background(), level, text, as(msgLink, args...)...)
}

func (d *Daemon) logPorts(old, now []link.PortStatus) {
	was := map[string]link.PortStatus{}
	for _, p := range old {
		was[fmt.Sprintf("%s/%d", p.IBDevice, p.Port)] = p
	}
	for _, p := range now {
		name := fmt.Sprintf("%s/%d", p.IBDevice, p.Port)
		o, had := was[name]
		if had && o.State == p.State && o.PhysState == p.PhysState && o.SMLID == p.SMLID {
			continue
		}
		args := []any{"ibdev", p.IBDevice, "port", p.Port, "old", o.State, "new", p.State, "phys", p.PhysState, "lid", p.LID, "sm_lid", p.SMLID}
		if p.Reason.Text != "" {
			args = append(args, "code", string(p.Reason.Code), "reason", p.Reason.Text, "next", p.Reason.Next)
		}
		if !had {
			o.State = "new"
		}
		d.log.Info("port "+name+": "+portChange(o, p), as(msgPort, args...)...)
	}
}

// portChange is what of a port is new: its state, or else its physical state or
// subnet manager.
func portChange(old, now link.PortStatus) string {
	switch {
	case old.State != now.State:
		return old.State + " -> " + now.State
	case old.PhysState != now.PhysState:
		return "physical state " + old.PhysState + " -> " + now.PhysState
	}
	return fmt.Sprintf("SM LID %d -> %d", old.SMLID, now.SMLID)
}
