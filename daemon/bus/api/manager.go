package api

import (
	"path"

	"ibnetworkd/ib"
	"ibnetworkd/link"
	"ibnetworkd/smctl"
	"ibnetworkd/units"
)

// ManagerOf is what a status says of the subnet manager of a port, for next steps.
func ManagerOf(s smctl.Status, set *units.Set) link.Manager {
	var m link.Manager
	if s.Master != nil {
		m.Host = s.Master.Node
		if g, err := ib.ParseGUID(s.Master.GUID); err == nil {
			m.GUID = g
		}
	}
	switch s.Phase {
	case smctl.PhaseMaster:
		m = link.Manager{Ours: true, Unit: s.Unit, Builtin: s.Engine == "builtin"}
		if set != nil && s.Unit != "" {
			if u := set.Unit(path.Base(s.Unit)); u != nil {
				m.File = u.SubnetManager.Get().PartitionsFile.Or("")
			}
		}
	case smctl.PhaseSettling, smctl.PhaseAsking:
		// The last one was asked and is dead, or ours was it and is gone.
		m = link.Manager{Silent: true, Starts: true}
	case smctl.PhaseStarting, smctl.PhaseRunning:
		m.Starts = true
	}
	return m
}
