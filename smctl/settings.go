package smctl

import (
	"fmt"
	"strings"
)

// Change is what it takes to bring a running worker to other settings.
type Change uint8

// The changes, the larger the later.
const (
	ChangeNone    Change = iota
	ChangeReload         // SIGHUP: the program reads them again
	ChangeRestart        // stop and start
)

// Settings are the lines, Key=value, that a policy gives to the program; the
// keys are those of [SubnetManager]. What is at its default has no line.
func Settings(p Policy) string {
	var b strings.Builder
	add := func(key, value string) {
		if value != "" {
			fmt.Fprintf(&b, "%s=%s\n", key, value)
		}
	}
	add("Priority", fmt.Sprint(p.Priority))
	if p.SubnetPrefix != 0 {
		add("SubnetPrefix", fmt.Sprintf("%#016x", p.SubnetPrefix))
	}
	add("RoutingEngine", strings.ReplaceAll(p.RoutingEngine, " ", ""))
	if p.LMC != 0 {
		add("LMC", fmt.Sprint(uint8(p.LMC)))
	}
	add("KeyFile", p.KeyFile)
	add("MKeyProtect", p.MKeyProtect)
	add("MKeyLeaseSec", p.MKeyLease)
	add("QoS", p.QoS)
	add("QoSPolicyFile", p.QoSPolicyFile)
	for _, f := range p.GUIDFiles() {
		add(f.Key, f.Path)
	}
	add("PartitionEnforcement", p.Enforcement)
	add("SweepSec", p.Sweep)
	add("PollSec", p.Poll)
	add("Reregister", p.Reregister)
	add("TimeoutSec", p.Timeout)
	add("Retries", p.Retries)
	add("Window", p.Window)
	add("NodeNameMap", p.NodeNameMap)
	add("Verbose", p.Verbose)
	add("PartitionsFile", p.PartitionsFile)
	for rule := range strings.Lines(p.Partitions) {
		add("Partition", strings.TrimSpace(rule))
	}
	return b.String()
}

// Difference is what it takes to bring a worker from the settings old to those
// of another policy; both are as Settings gives them. ibnetsm reads all its
// settings on SIGHUP, refuses bad ones, and starts again where one needs it.
func Difference(e Engine, old, now string) Change {
	switch {
	case old == now:
		return ChangeNone
	case e == EngineBuiltin:
		return ChangeReload
	}
	return ChangeRestart
}
