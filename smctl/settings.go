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
	ChangeReload         // SIGHUP: the program takes them over while it serves
	ChangeRestart        // stop and start
)

// reloaded are the settings that ibnetsm takes over on SIGHUP.
var reloaded = map[string]bool{"PartitionsFile": true, "Partition": true, "NodeNameMap": true, "Verbose": true}

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
	add("PartitionEnforcement", p.Enforcement)
	add("SweepSec", p.Sweep)
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
// of another policy; both are as Settings gives them.
func Difference(e Engine, old, now string) Change {
	if old == now {
		return ChangeNone
	}
	if e != EngineBuiltin || fixed(old) != fixed(now) {
		return ChangeRestart
	}
	return ChangeReload
}

// fixed are the lines that only a start can change.
func fixed(settings string) string {
	var b strings.Builder
	for line := range strings.Lines(settings) {
		if key, _, _ := strings.Cut(line, "="); !reloaded[key] {
			b.WriteString(line)
		}
	}
	return b.String()
}
