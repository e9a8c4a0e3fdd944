package smctl

import "ibnetworkd/units"

// PolicyOf is what a unit asks for; nil, or a unit without [SubnetManager],
// asks for nothing. Defaults are those of the unit file's documentation; a
// subnet manager that was started only because there was none goes again when a
// better one has taken over.
func PolicyOf(u *units.Unit) Policy {
	if u == nil || !u.SubnetManager.Present || u.Unmanaged() {
		return Policy{}
	}
	s := &u.SubnetManager
	p := Policy{
		Unit:           u.Path,
		StartDelay:     s.StartDelaySec.Or(DefaultStartDelay),
		StopDelay:      s.StopDelaySec.Or(DefaultStopDelay),
		Priority:       uint8(min(max(s.Priority.Or(0), 0), MaxPriority)),
		SubnetPrefix:   s.SubnetPrefix.Or(0),
		RoutingEngine:  s.RoutingEngine.Or(""),
		PartitionsFile: s.PartitionsFile.Or(""),
		LMC:            s.LMC.Or(0),
	}
	for i := range s.Partition {
		p.Partitions += s.Partition[i].V + "\n"
	}
	switch s.Manage.Or(units.ManageNo) {
	case units.ManageAuto:
		p.Manage = ManageAuto
	case units.ManageAlways:
		p.Manage = ManageAlways
	}
	if s.Engine.Or(units.EngineBuiltin) == units.EngineOpenSM {
		p.Engine = EngineOpenSM
	}
	p.StopWhenForeignMaster = s.StopWhenForeignMaster.Or(p.Manage == ManageAuto)
	return p
}
