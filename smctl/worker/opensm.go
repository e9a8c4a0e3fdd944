package worker

import (
	"fmt"
	"ibnetworkd/smctl"
	"time"

	"github.com/godbus/dbus/v5"
	"golang.org/x/sys/unix"
)

type property struct {
	Name  string
	Value dbus.Variant
}

type aux struct {
	Name  string
	Props []property
}

// sandbox are the properties that bound what opensm can do. It runs as root and
// without any capability: the umad devices belong to root. Its logs, dumps and
// caches are below /var, which the rest of the system is not.
func sandbox() []property {
	type words struct {
		Allow bool
		Words []string
	}
	type device struct{ Path, Access string }
	props := []property{
		{"CapabilityBoundingSet", dbus.MakeVariant(uint64(0))},
		{"ProtectSystem", dbus.MakeVariant("full")},
		{"ProtectHome", dbus.MakeVariant("yes")},
		{"ProtectProc", dbus.MakeVariant("invisible")},
		{"ProcSubset", dbus.MakeVariant("pid")},
		{"DevicePolicy", dbus.MakeVariant("closed")},
		{"DeviceAllow", dbus.MakeVariant([]device{{"char-infiniband_mad", "rw"}})},
		{"RestrictAddressFamilies", dbus.MakeVariant(words{true, []string{"AF_UNIX"}})},
		{"RestrictNamespaces", dbus.MakeVariant(uint64(0))},
		{"SystemCallArchitectures", dbus.MakeVariant([]string{"native"})},
		{"SystemCallFilter", dbus.MakeVariant(words{true, []string{"@system-service"}})},
		{"SystemCallErrorNumber", dbus.MakeVariant(int32(unix.EPERM))},
		{"KeyringMode", dbus.MakeVariant("private")},
		// As of ibnetsm@.service, for the same subnets.
		{"MemoryMax", dbus.MakeVariant(uint64(4 << 30))},
		{"TasksMax", dbus.MakeVariant(uint64(2048))},
		{"LimitNOFILE", dbus.MakeVariant(uint64(4096))},
	}
	for _, name := range []string{"NoNewPrivileges", "PrivateTmp", "PrivateMounts", "ProtectHostname", "ProtectClock",
		"ProtectKernelTunables", "ProtectKernelModules",
		"ProtectKernelLogs", "ProtectControlGroups", "RestrictRealtime", "RestrictSUIDSGID", "LockPersonality", "MemoryDenyWriteExecute"} {
		props = append(props, property{name, dbus.MakeVariant(true)})
	}
	return props
}

// openSMOptions are opensm's command line for a policy. What it has no option for
// it has in its own configuration file, which it reads as well.
func openSMOptions(p smctl.Policy) []string {
	var out []string
	add := func(s ...string) { out = append(out, s...) }
	add("--priority", fmt.Sprint(p.Priority))
	if p.SubnetPrefix != 0 {
		add("--subnet_prefix", fmt.Sprintf("%#016x", p.SubnetPrefix))
	}
	if p.LMC != 0 {
		add("--lmc", fmt.Sprint(uint8(p.LMC)))
	}
	whole := func(d string, unit time.Duration) string {
		if d == "" {
			return ""
		}
		v, _ := time.ParseDuration(d)
		return fmt.Sprint(int64((v + unit - 1) / unit))
	}
	for _, o := range []struct{ name, value string }{
		{"--routing_engine", p.RoutingEngine}, {"--Pconfig", p.PartitionsFile}, {"--part_enforce",
			p.Enforcement}, {"--node-name-map", p.NodeNameMap}, {"--qos_policy_file", p.QoSPolicyFile},
		{"--sweep", whole(p.Sweep, time.Second)}, {"--timeout", whole(p.Timeout, time.Millisecond)}, {"--retries",
			p.Retries}, {"--maxsmps", p.Window},
	} {
		if o.value != "" {
			add(o.name, o.value)
		}
	}
	for _, f := range p.GUIDFiles() {
		if f.Path != "" && f.Option != "" {
			add(f.Option, f.Path)
		}
	}
	if p.Verbose == "yes" {
		add("--verbose")
	}
	return out
}
