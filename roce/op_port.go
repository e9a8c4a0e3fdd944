package roce

import (
	"fmt"
	"strings"

	"ibnetworkd/link"
)

// String prints devlink port set, or the write to the driver's file.
func (o SetPortType) String() string {
	if o.Port.File != "" {
		return fmt.Sprintf("echo %s > /sys/bus/%s/devices/%s/%s", o.Type, o.Port.Bus, o.Port.Dev, o.Port.File)
	}
	return fmt.Sprintf("devlink port set %s/%s/%d type %s", o.Port.Bus, o.Port.Dev, o.Port.Index, o.Type)
}

// String prints the write to node_desc.
func (o SetNodeDesc) String() string {
	return fmt.Sprintf("echo %s > /sys/class/infiniband/%s/node_desc", quote(o.Desc), o.On.IBDevice)
}

// quote writes a word as a shell needs it.
func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

func (o SetVersion) word() string {
	if o.Version == 1 {
		return "IB/RoCE v1"
	}
	return "RoCE v2"
}

func cmPort(t link.Target) string {
	return fmt.Sprintf("/sys/kernel/config/rdma_cm/%s/ports/%d", t.IBDevice, t.Port)
}

// String prints the write below configfs; the directory of the device has to be
// made first, which the shell line does too.
func (o SetVersion) String() string {
	return fmt.Sprintf(
		"mkdir -p /sys/kernel/config/rdma_cm/%s && echo %s > %s/default_roce_mode",
		o.On.IBDevice,
		quote(o.word()),
		cmPort(o.On),
	)
}

// String prints the write below configfs.
func (o SetToS) String() string {
	return fmt.Sprintf("mkdir -p /sys/kernel/config/rdma_cm/%s && echo %d > %s/default_roce_tos", o.On.IBDevice, o.ToS, cmPort(o.On))
}
