package diagnose

import (
	"fmt"
	"slices"

	"ibnetworkd/ib"
	"ibnetworkd/internal/cli"
	"ibnetworkd/link"
	"ibnetworkd/smctl"
	"ibnetworkd/units"
)

func (w *walker) sm() *smctl.Status {
	for i := range w.in.SMs {
		s := &w.in.SMs[i]
		if s.IBDevice == w.d.Name && s.Port == w.p.Num {
			return s
		}
	}
	return nil
}

func (w *walker) state() bool {
	p := w.p
	switch p.State {
	case ib.PortActive, ib.PortActiveDefer:
		return w.answers()
	case ib.PortArmed:
		w.fail("subnet manager", link.CodeSMBusy, fmt.Sprintf("ibnetctl diagnose %s again in a few seconds; if it is still Armed, query "+
			"that subnet manager: sminfo -C %s -P %d", w.name(), w.d.Name, p.Num),
			"Armed: a subnet manager (LID %d) is about to activate the port", uint16(p.SMLID))
		return false
	case ib.PortInit:
	default:
		w.fail("subnet manager", link.CodePortDown, "ibnetctl monitor", "the physical link is up, the logical state is still %v", p.State)
		return false
	}

	// Initializing: why does no manager bring it to Active?
	umad := !slices.Contains(w.in.Missing, "ib_umad")
	sm := w.sm()
	switch {
	case sm != nil && sm.Phase == smctl.PhaseBlocked && sm.WorkerState == "" && p.SMLID != 0:
		// Whether one of this host runs is not known; that one has configured the port is.
		w.configuredBefore("; " + sm.Reason)
	case sm != nil && sm.Phase != smctl.PhaseOff:
		next := w.smNext()
		switch sm.Phase {
		case smctl.PhaseMaster, smctl.PhaseStarting:
			next = "journalctl -u " + sm.Worker
		case smctl.PhaseBlocked:
			if !umad {
				next = "modprobe ib_umad"
			}
		case smctl.PhaseUnserved:
			next = fmt.Sprintf("smpquery -C %s -P %d -D portinfo 0: if MkeyViolations rises, an M_Key locks it out; otherwise read its log",
				w.d.Name, p.Num)
		}
		w.fail("subnet manager", link.CodeNoSM, next, "Initializing: no subnet manager has configured the port: %s", sm.Reason)
	case p.SMLID != 0:
		w.configuredBefore("")
	case !umad:
		w.fail("subnet manager", codeNoUmad, "modprobe ib_umad",
			"Initializing: no subnet manager has configured the port, and none can run on this host: ib_umad is not loaded")
	default:
		w.fail("subnet manager", link.CodeNoSM, w.smNext(),
			"Initializing: the link is up, but no subnet manager has configured the port%s", w.smWhy())
	}
	return false
}

// configuredBefore is for a port whose SM LID shows that it had a subnet manager.
func (w *walker) configuredBefore(also string) {
	w.fail("subnet manager", link.CodeSMBusy, fmt.Sprintf("query it: sminfo -C %s -P %d; if it answers, read its log, otherwise: "+
		"ibnetctl sm start %s", w.d.Name, w.p.Num, w.name()),
		"Initializing: the subnet manager at LID %d configured the port before, but not again%s", uint16(w.p.SMLID), also)
}

// answers reports whether the subnet manager of an Active port is alive. Without one
// all that is configured goes on, and nothing new joins.
func (w *walker) answers() bool {
	p := w.p
	const name = "subnet manager"
	at := fmt.Sprintf("%v, LID %d", p.State, uint16(p.LID))
	asked, ok := w.in.Asked[w.name()]
	switch sm := w.sm(); {
	case ok && asked.Not == "" && asked.SM != nil && asked.SM.State == "Master" && asked.SA:
		w.ok(name, "%s; the master answers: %s", at, Master(asked.SM))
	case ok && asked.Not == "" && asked.SM != nil && asked.SM.State != "Master":
		w.fail(name, link.CodeNoSM, "ibnetctl sm topology "+w.name()+" shows all subnet managers of the fabric",
			"%s; the subnet manager at LID %d answers that it is %s, not master: %s", at, uint16(p.SMLID), asked.SM.State, Master(asked.SM))
	case ok && asked.Not == "" && asked.SM != nil:
		w.fail(name, link.CodeSMBusy, fmt.Sprintf("ibnetctl diagnose %s again in a few seconds; if nothing changes, restart that subnet "+
			"manager", w.name()),
			"%s; the master answers, but its subnet administrator does not, so no port can join a group: %s", at, Master(asked.SM))
	case ok && asked.Not == "":
		w.fail(name, link.CodeNoSM, w.smNext(), "%s; the subnet manager at LID %d does not answer: existing connections continue, but "+
			"no port can join a group%s", at, uint16(p.SMLID), w.smAlso(sm))
	case sm != nil && (sm.Phase == smctl.PhaseMaster || sm.Phase == smctl.PhaseServed) && sm.Master != nil:
		w.ok(name, "%s; the master answered the daemon: %s", at, Master(sm.Master))
	case sm != nil && sm.Phase == smctl.PhaseMaster:
		w.ok(name, "%s; this host runs the master (%s)", at, sm.Worker)
	case sm != nil && (sm.Phase == smctl.PhaseSettling || sm.Phase == smctl.PhaseAsking || sm.Phase == smctl.PhaseBackingOff):
		w.fail(name, link.CodeNoSM, "ibnetctl sm status "+w.name(), "%s; %s", at, sm.Reason)
	default:
		w.warn(name, "", fmt.Sprintf("query it: sudo ibnetctl diagnose %s", w.name()),
			"%s; the subnet manager at LID %d was not queried%s", at, uint16(p.SMLID), cli.Parens(asked.Not))
	}
	failed := w.checks[len(w.checks)-1].Result == Fail
	if sm := w.sm(); sm != nil && sm.FileProblem != "" {
		w.warn("subnet manager file", "", "ibnetctl verify", "%s", sm.FileProblem)
	}
	return !failed
}

// smAlso is what the daemon says beside.
func (w *walker) smAlso(sm *smctl.Status) string {
	if sm == nil || sm.Phase == smctl.PhaseOff || sm.Phase == smctl.PhaseServed || sm.Phase == smctl.PhaseMaster {
		return ""
	}
	return "; " + sm.Reason
}

// Master names a subnet manager: host, port GUID, LID and priority.
func Master(m *smctl.Master) string {
	on := ""
	if m.Node != "" {
		on = fmt.Sprintf("%q, ", m.Node)
	}
	return fmt.Sprintf("%sport GUID %s, LID %d, priority %d", on, m.GUID, m.LID, m.Priority)
}

// smWhy is the reason why no subnet manager of this host serves the port.
func (w *walker) smWhy() string {
	switch sm := w.sm(); {
	case sm != nil && sm.Reason != "":
		return ", and this host runs none: " + sm.Reason
	case w.manages() && w.in.StartDaemon != "":
		return "; ibnetworkd, which starts one for the port, is not running"
	}
	return ", and none is managed on this host"
}

// manages reports whether the unit of the port allows this host to run a subnet manager.
func (w *walker) manages() bool {
	u := w.unit()
	return u != nil && u.SubnetManager.Get().Present && u.SubnetManager.Get().Manage.Or(units.ManageAuto) != units.ManageNo
}

// smNext is the next step to a subnet manager of this host for the port.
func (w *walker) smNext() string {
	switch sm := w.sm(); {
	case sm != nil && sm.Phase == smctl.PhaseStopped:
		return "ibnetctl sm start " + w.name()
	case sm != nil && sm.Phase == smctl.PhaseBackingOff:
		return "journalctl -u " + sm.Worker
	case sm != nil && sm.Phase != smctl.PhaseOff:
		return "ibnetctl sm status " + w.name()
	case w.in.StartDaemon != "":
		if w.manages() {
			return w.in.StartDaemon
		}
		return fmt.Sprintf("%s; ibnetctl sm start %s", w.in.StartDaemon, w.name())
	case w.manages():
		return "ibnetctl sm status " + w.name()
	}
	if u := w.unit(); u != nil {
		return fmt.Sprintf("add [SubnetManager] Manage=auto to %s (or, once: ibnetctl sm start %s)", u.Path, w.name())
	}
	return fmt.Sprintf("ibnetctl sm start %s; or write a unit with [SubnetManager] Manage=auto", w.name())
}
