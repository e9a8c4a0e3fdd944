package card

import (
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"ibnetworkd/internal/kernel/configfs"
	"ibnetworkd/internal/kernel/dcb"
	"ibnetworkd/internal/kernel/devlink"
	"ibnetworkd/link"
	"ibnetworkd/roce"
	"ibnetworkd/units"
)

// isAny reports whether an error is one of the kernel's.
func isAny(err error, es ...unix.Errno) bool {
	return slices.ContainsFunc(es, func(e unix.Errno) bool { return errors.Is(err, e) })
}

// Explain is what it means that an operation of package roce failed, and what to do; words are
// the kernel's own. retry reports that it may pass by itself. ok is false for operations of
// others, and where the error means the same for every operation (no permission, no memory).
func Explain(op link.Op, err error, words string) (why link.Reason, retry, ok bool) {
	on := op.Target()
	say := func(next, format string, a ...any) (link.Reason, bool, bool) {
		return link.Reason{Code: link.CodeRefused, Text: fmt.Sprintf(format, a...) + " (" + words + ")", Next: next}, false, true
	}
	later := func(next, format string, a ...any) (link.Reason, bool, bool) {
		return link.Reason{Code: link.CodeRetry, Text: fmt.Sprintf(format, a...) + " (" + words + ")", Next: next}, true, true
	}
	var not *NotTaken
	if errors.As(err, &not) {
		return link.Reason{Code: link.CodeRefused, Text: not.Error(),
			Next: "dmesg has the driver's reason; write another value, or remove the key"}, false, true
	}
	// A driver without the operation, or one that accepts other values.
	unknown := isAny(err, unix.EOPNOTSUPP, unix.ENOSYS) || errors.Is(err, errors.ErrUnsupported)
	refused := isAny(err, unix.EINVAL, unix.ERANGE, unix.EIO, unix.EBADMSG, unix.ENOSPC, unix.E2BIG)
	busy := isAny(err, unix.EBUSY)
	switch o := op.(type) {
	case roce.SetPortType:
		switch {
		case errors.Is(err, devlink.ErrNoDevlink):
			return say("boot a kernel with CONFIG_NET_DEVLINK", "the type of %s cannot be set", on)
		case unknown || refused:
			return say(fmt.Sprintf("write Type=%s for the other port of the card too, or remove Type= here", o.Type),
				"the card does not take type %s on port %d of %s/%s beside the type that its other port has", o.Type, portOf(o), o.Port.Bus, o.Port.Dev)
		case busy:
			return later("end the programs that use the card (rdma resource show), and remove its virtual functions (Count=0)",
				"the card %s/%s is in use, so that port %d cannot become %s", o.Port.Bus, o.Port.Dev, portOf(o), o.Type)
		}
	case roce.SetNodeDesc:
		if unknown || refused {
			return say("remove NodeDescription=", "the driver of %s does not take the node description %q", on.IBDevice, o.Desc)
		}
	case roce.SetVersion, roce.SetToS:
		key := "Version="
		if _, ok := o.(roce.SetToS); ok {
			key = "DSCP= or TypeOfService="
		}
		switch {
		case errors.Is(err, configfs.ErrUnavailable):
			return later("modprobe rdma_cm; mount -t configfs none /sys/kernel/config", "the defaults of RDMA-CM cannot be set for %s", on)
		case isAny(err, unix.ENODEV, unix.ENOENT):
			return later("rdma link show; modprobe rdma_cm", "RDMA-CM does not know %s/%d yet", on.IBDevice, on.Port)
		case unknown || refused:
			return say("cat /sys/class/infiniband/"+on.IBDevice+"/ports/*/gid_attrs/types/0 shows what it has; write another "+key,
				"RDMA-CM does not take %s for %s/%d", key, on.IBDevice, on.Port)
		}
	case roce.SetDCBX:
		if unknown || refused || busy {
			how := "turn LLDP and DCBX off in the card's firmware or at its agent"
			if o.Driver == "ice" {
				how = "ethtool --set-priv-flags " + on.Link + " fw-lldp-agent off"
			}
			return say(how+", then: ibnetctl reconfigure "+on.Link,
				"the firmware keeps DCBX of %s to itself, and the other settings of data centre bridging with it", on.Link)
		}
	case roce.SetPFC, roce.SetETS, roce.SetTrust, roce.SetBuffers, roce.MapDSCP, roce.ClearDSCP, roce.SetECN:
		key, show := dcbKey(op)
		switch {
		case errors.Is(err, errFirmware):
			return later("let the host keep DCBX first", "%s of %s waits", key, on.Link)
		case isAny(err, unix.ENOMEM):
			// No lack of memory: mlx5 has it for a lossless buffer that is too small
			// (update_xoff_threshold), and the last byte of ENOTSUPP, which bnxt and
			// mlx4 answer for what the firmware has not, is the same.
			switch op.(type) {
			case roce.SetPFC, roce.SetBuffers:
				return say("write a larger BufferSize= for the buffers of the priorities in PFC= (dcb buffer show dev "+on.Link+
					"), or a shorter CableLength=",
					"the driver of %s refuses %s: a buffer of a priority with flow control is too small for the length of the cable and the "+
						"largest MTU", on.Link, key)
			}
			return say("remove "+key+" from [RoCE], or update the firmware of the card", "the firmware of %s does not have %s", on.Link, key)
		case errors.Is(err, dcb.ErrNoDCB):
			return say("remove "+key+" from [RoCE]", "the driver of %s has no data centre bridging any more", on.Link)
		case unknown:
			return say("remove "+key+" from [RoCE]; "+show+" shows what the driver has", "the driver of %s cannot set %s", on.Link, key)
		case refused:
			return say("compare "+key+" with "+show, "the driver of %s refuses %s", on.Link, key)
		case busy:
			return later("stop lldpad or the program that sets DCB on the link", "another program is setting %s of %s", key, on.Link)
		}
	case roce.SetEthtool:
		show := roce.EthtoolShow(o.Group, on.Link)
		switch {
		case unknown:
			return say("remove "+o.Keys()+"; "+show+" prints what the driver has", "the driver of %s cannot set %s", on.Link, o.Keys())
		case isAny(err, unix.ENOMEM):
			return say("write less; "+show+" prints the limits", "the driver of %s has no memory for %s", on.Link, o.Keys())
		case refused:
			next := "compare with " + show
			switch o.Group {
			case units.EthtoolChannels:
				next += "; XDP programs, AF_XDP sockets, ethtool -X and -N and traffic classes need their queues: remove these, or write more"
			case units.EthtoolCoalesce:
				next += "; some drivers take a delay with UseAdaptiveRxCoalesce=no or UseAdaptiveTxCoalesce=no only"
			}
			return say(next, "the driver of %s refuses %s", on.Link, o.Keys())
		case busy:
			return later(show, "the driver of %s is at work, so that it does not take %s", on.Link, o.Keys())
		}
	case roce.SetModprobe:
		if isAny(err, unix.EROFS, unix.EACCES, unix.EPERM) {
			return say("make /etc/modprobe.d writable for the service, or remove WriteModprobeFile= and write the line by hand",
				"%s cannot be written", roce.ModprobeFile)
		}
	case roce.AddVLAN:
		return explainVLAN(o, err, say, later)
	case roce.AddSoft:
		module := softModule[o.Driver]
		switch {
		case isAny(err, unix.EEXIST, unix.ENFILE):
			return say("rdma link show; write another Name= in [SoftRoCE]",
				"an RDMA device %s, or another %s device on %s, exists", o.Name, o.Driver, on.Link)
		case unknown || refused || isAny(err, unix.ENOENT):
			return say("modprobe "+module+"; links without a hardware address (tunnels, lo) cannot have one",
				"no %s device can be made on %s", o.Driver, on.Link)
		case busy:
			return later("will retry", "the %s device on %s cannot be made yet", o.Driver, on.Link)
		}
	case roce.DelSoft:
		if busy || refused || unknown {
			return later("end the programs that use it: rdma resource show", "the RDMA device %s cannot be removed", o.Name)
		}
	case roce.SetVLAN:
		if unknown || refused {
			return say("ip -d link show "+o.Name+"; check mode, flags and maps in ["+o.VLAN.Kind.Section()+"]",
				"the kernel refuses these settings of the %s interface %s", o.VLAN.Kind.Section(), o.Name)
		}
	case roce.DelVLAN:
		if busy || refused || unknown {
			return later("ip -d link show "+o.Name, "the %s interface %s cannot be removed", o.Kind.Section(), o.Name)
		}
	case roce.SetAutoprobe:
		if unknown || refused || isAny(err, unix.ENOENT) {
			return say("remove Autoprobe=", "%s has no switch for drivers of virtual functions", on)
		}
	case roce.SetVFs:
		switch {
		case busy:
			return later("release them from their users (virtual machines, up links) first: ip link show "+on.Link,
				"the virtual functions of %s are in use", on)
		case isAny(err, unix.ENOMEM, unix.ENOSPC, unix.EIO, unix.EINVAL):
			return say("dmesg has the reason; as a rule SR-IOV is off in the machine's setup, or there is no room for them: boot with pci=realloc",
				"%d virtual functions of %s cannot be made", o.Count, on)
		case isAny(err, unix.ERANGE):
			return say(fmt.Sprintf("cat /sys/bus/%s/devices/%s/sriov_totalvfs; mstconfig -d %s set NUM_OF_VFS=%d, then reboot", o.Bus, o.Dev,
				o.Dev, o.Count),
				"%s cannot have %d virtual functions", on, o.Count)
		case unknown || isAny(err, unix.ENOENT):
			return say("mstconfig -d "+o.Dev+" set SRIOV_EN=1 NUM_OF_VFS=N, then reboot",
				"%s cannot have virtual functions: the driver has none, or the firmware has SR-IOV off", on)
		}
	case roce.SetVF, roce.SetVFGUIDs:
		n, what := 0, ""
		switch x := o.(type) {
		case roce.SetVF:
			n, what = x.VF, x.Attr.String()
		case roce.SetVFGUIDs:
			n, what = x.VF, joined(x.Attrs())
		}
		switch {
		case unknown:
			return say("remove the key from [VF] or [VirtualFunctions]; ip link show "+on.Link+" shows what the driver keeps for its functions",
				"the driver of %s has no such setting for virtual function %d: %s", on, n, what)
		case refused:
			return say("ip link show "+on.Link+" shows what the function has; dmesg may have the driver's reason",
				"the driver of %s refuses %s for virtual function %d", on, what, n)
		case busy:
			return later("stop the virtual machine that uses the function, or bring its link down",
				"virtual function %d of %s is in use, so that it does not take %s", n, on, what)
		}
	case roce.MoveGID:
		if busy {
			return later("end the programs that use it: rdma resource show qp",
				"%s has queue pairs, so that no address is moved to index %d of its GID table", on.IBDevice, o.Index)
		}
		return later("will retry; ip address show dev "+on.Link+" shows what there is",
			"the addresses of %s could not be moved to index %d of the GID table", on.Link, o.Index)
	case roce.RebindVF:
		var used *inUse
		if errors.As(err, &used) {
			return later("stop the virtual machine that uses the function, or bring its link down",
				"virtual function %d of %s is in use, so that its driver does not start again", o.VF, on)
		}
		if unknown || refused || busy || isAny(err, unix.ENOENT) {
			return later("dmesg; ls -l /sys/bus/"+o.Bus+"/devices/"+o.Dev+"/driver",
				"the driver of virtual function %d of %s does not start again", o.VF, on)
		}
	}
	return link.Reason{}, false, false
}

var softModule = map[units.SoftDriver]string{units.SoftRXE: "rdma_rxe", units.SoftSIW: "siw"}

// dcbKey is the unit's key behind an operation, and the command that shows what
// is there.
func dcbKey(op link.Op) (key, show string) {
	dev := op.Target().Link
	switch op.(type) {
	case roce.SetPFC:
		return "PFC= or CableLength=", "dcb pfc show dev " + dev
	case roce.SetETS:
		return "ETS= or PriorityToClass=", "dcb ets show dev " + dev
	case roce.SetTrust:
		return "Trust=", "dcb apptrust show dev " + dev
	case roce.SetBuffers:
		return "BufferSize= or PriorityToBuffer=", "dcb buffer show dev " + dev
	case roce.SetECN:
		return "ECN=", "ls /sys/class/net/" + dev + "/ecn"
	}
	return "DSCPToPriority= or Priority=", "dcb app show dev " + dev
}
