package smctl

import (
	"strconv"
	"time"

	"ibnetworkd/units"
)

// PolicyOf is what a unit asks for; nil, or a unit without [SubnetManager], asks for nothing.
// Defaults are those of the unit file's documentation; a subnet manager that was started only
// because there was none stops again when a better one has taken over.
func PolicyOf(u *units.Unit) Policy {
	if u == nil || !u.SubnetManager.Get().Present || u.Unmanaged() {
		return Policy{}
	}
	s := u.SubnetManager.Get()
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
	p.KeyFile, p.NodeNameMap, p.QoSPolicyFile = s.KeyFile.Or(""), s.NodeNameMap.Or(""), s.QoSPolicyFile.Or("")
	p.RootGUIDFile, p.CNGUIDFile, p.IOGUIDFile = s.RootGUIDFile.Or(""), s.CNGUIDFile.Or(""), s.IOGUIDFile.Or("")
	p.HopWeightsFile, p.GUID2LIDFile, p.PrefixRoutesFile = s.HopWeightsFile.Or(""), s.GUID2LIDFile.Or(""), s.PrefixRoutesFile.Or("")
	p.GUIDRoutingOrderFile = s.GUIDRoutingOrderFile.Or("")
	p.MKeyProtect, p.Retries, p.Window = number(s.MKeyProtect), number(s.Retries), number(s.Window)
	p.MKeyLease, p.Sweep, p.Timeout, p.Poll = span(s.MKeyLeaseSec), span(s.SweepSec), span(s.TimeoutSec), span(s.PollSec)
	p.QoS, p.Verbose = yes(s.QoS), yes(s.Verbose)
	if s.PartitionEnforcement.Set {
		p.Enforcement = s.PartitionEnforcement.V.String()
	}
	if s.Reregister.Set {
		p.Reregister = s.Reregister.V.String()
	}
	for i := range s.Partition {
		p.Partitions += s.Partition[i].V + "\n"
	}
	p.Manage, p.Engine = s.Manage.Or(ManageNo), s.Engine.Or(EngineBuiltin)
	p.StopWhenForeignMaster = s.StopWhenForeignMaster.Or(p.Manage == ManageAuto)
	return p
}

// The words of settings that a unit has; empty for those that it has not.

func number(v units.Value[int]) string {
	if !v.Set {
		return ""
	}
	return strconv.Itoa(v.V)
}

func span(v units.Value[time.Duration]) string {
	if !v.Set {
		return ""
	}
	return v.V.String()
}

func yes(v units.Value[bool]) string {
	switch {
	case !v.Set:
		return ""
	case v.V:
		return "yes"
	}
	return "no"
}
