package smctl

import "fmt"

// Step is what the daemon does about the subnet manager of a port, for people.
type Step struct {
	// Command is what an administrator would type; empty where nothing is done.
	Command string
	// Note is why, or what it means for the fabric; one sentence.
	Note string
}

// String prints it as a line of a plan: a command with a comment, or a comment.
func (s Step) String() string {
	switch {
	case s.Command == "":
		return "# " + s.Note
	case s.Note == "":
		return s.Command
	}
	return s.Command + "   # " + s.Note
}

// Running is what is known of a port's worker from outside the daemon.
type Running struct {
	State      WorkerState
	Phase      Phase
	Unit       string
	Override   Override
	StatusText StatusText
	// Engine is the program that Unit runs, and Settings and Files what it was
	// given last; no settings if that is not known.
	Engine          Engine
	Settings, Files string
	// Named is the unit that runs the engine of the policy.
	Named string
	// Gone is why the port is, or is about to be, no InfiniBand port; empty if it is
	// one.
	Gone string
}

// Outlook is what the daemon does about the subnet manager of a port when a policy
// and its files are in force.
func Outlook(port string, r Running, p Policy, f Files) []Step {
	only := ""
	if r.StatusText.Known && r.StatusText.State == SMMaster && r.StatusText.Others == 0 {
		only = "the fabric's only subnet manager"
	}
	and := func(s string) string {
		if only != "" {
			return only + "; " + s
		}
		return s
	}
	byUnit := "no unit asks for a subnet manager on " + port
	if p.Unit != "" {
		byUnit = p.Unit + " has Manage=no"
	}
	running := r.State == WorkerActive || r.State == WorkerActivating
	wanted := p.Manage != ManageNo && r.Override != OverrideStop || r.Override == OverrideStart
	switch {
	case r.State == WorkerDeactivating:
		return []Step{{Note: fmt.Sprintf("systemctl stop %s is in progress: %s", r.Unit, and("port "+port))}}
	case running && r.Gone != "":
		return []Step{{"systemctl stop " + r.Unit, and(r.Gone)}}
	case r.Gone != "":
		return nil
	case running && !wanted && r.Override == OverrideStop:
		return []Step{{"systemctl stop " + r.Unit, and("it was stopped by hand")}}
	case running && !wanted:
		return []Step{{"systemctl stop " + r.Unit, and(byUnit)}}
	case running && p.Manage == ManageNo:
		return nil // by hand: its settings stay
	case running && f.Problem != "":
		return []Step{{Note: fmt.Sprintf("%s: not changed: %s", r.Unit, f.Problem)}}
	case running && r.Engine != p.Engine:
		return []Step{{"systemctl stop " + r.Unit, and("Engine=" + p.Engine.String())}, {"systemctl start " + r.Named, ""}}
	case running:
		return append(changes(r, p, f, and), stops(port, r, p)...)
	case !wanted:
		return nil
	}
	bad := ""
	if f.Problem != "" {
		bad = "; " + f.Problem
		if f.Kept != "" {
			bad += ": " + f.Kept
		}
	}
	start := "systemctl start " + r.Named
	switch r.Phase {
	case PhaseServed, PhaseUnserved:
		if p.Manage == ManageAuto {
			return nil
		}
	case PhaseNoQP0, PhaseSMDisabled, PhaseNVSwitch, PhaseOmniPath, PhaseNoLink, PhaseBlocked:
		return nil
	case PhaseStarting:
		return []Step{{start, "under way" + bad}}
	case PhaseBackingOff:
		return []Step{{start, "when the wait after its failure is over" + bad}}
	}
	if p.Manage == ManageAlways || r.Override == OverrideStart {
		return []Step{{start, "port " + port + bad}}
	}
	return []Step{{Note: fmt.Sprintf("%s, if port %s has a link and no subnet manager answers within %v to %v%s", start, port, p.StartDelay,
		2*p.StartDelay, bad)}}
}

// changes are the reload or restart that brings a running worker to its policy.
func changes(r Running, p Policy, f Files, and func(string) string) []Step {
	if r.Settings == "" {
		return nil
	}
	c := Difference(r.Engine, r.Settings, Settings(p))
	if c == ChangeNone && !sameFiles(r.Files, f.Digest) {
		c = ChangeReload
	}
	switch {
	case c == ChangeRestart:
		return []Step{{"systemctl restart " + r.Unit, and("no port can join a group for some seconds")}}
	case c == ChangeReload && r.Engine == EngineOpenSM:
		return []Step{{"systemctl kill --kill-whom=main -s HUP " + r.Unit, "partitions or names have changed"}}
	case c == ChangeReload:
		return []Step{{"systemctl reload " + r.Unit,
			and("settings or files have changed; where one needs it, ibnetsm restarts and no port can join a group for some seconds")}}
	}
	return nil
}

// stops are the stops of a running worker that a delay is running for.
func stops(port string, r Running, p Policy) []Step {
	switch {
	case r.Override == OverrideStart:
	case r.Phase == PhaseNoLink:
		return []Step{{Note: fmt.Sprintf("systemctl stop %s, if port %s has no link for %v", r.Unit, port, p.StopDelay)}}
	case r.Phase == PhaseStandby && p.StopWhenForeignMaster && r.StatusText.Others > 0:
		return []Step{{Note: fmt.Sprintf("systemctl stop %s, if another subnet manager is master for %v", r.Unit, p.StopDelay)}}
	}
	return nil
}
