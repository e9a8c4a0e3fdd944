package api

import (
	"path"

	"ibnetworkd/ib"
	"ibnetworkd/link"
	"ibnetworkd/units"
)

// ManagerOf is what a status says of the subnet manager of a port, for next steps.
func ManagerOf(s SMStatus, set *units.Set) link.Manager {
	var m link.Manager
	if s.Master != nil {
		m.Host = s.Master.Node
		if g, err := ib.ParseGUID(s.Master.GUID); err == nil {
			m.GUID = g
		}
	}
	switch s.Phase {
	case "master":
		m = link.Manager{Ours: true, Unit: s.Unit, Builtin: s.Engine == "builtin"}
		if set != nil && s.Unit != "" {
			if u := set.Unit(path.Base(s.Unit)); u != nil {
				m.File = u.SubnetManager.PartitionsFile.Or("")
			}
		}
	case "settling", "asking":
		// The last one was asked and is dead, or ours was it and is gone.
		m = link.Manager{Silent: true}
	}
	return m
}
