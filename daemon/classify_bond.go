package daemon

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"ibnetworkd/link"
)

// classifyMaster has the sentences about bonds and VRFs; it gives no reason for errors that
// mean the same everywhere.
func classifyMaster(op link.Op, err error, words string) (verdict, link.Reason) {
	name := op.Target().String()
	switch o := op.(type) {
	case link.AddBond, link.AddVRF:
		what, section, module := "bond", "[Bond]", "bonding"
		if _, vrf := op.(link.AddVRF); vrf {
			what, section, module = "VRF", "[VRF]", "vrf"
		}
		switch {
		case errors.Is(err, unix.EEXIST):
			return verdictGiveUp, link.Reason{Code: link.CodeNameTaken, Text: fmt.Sprintf("the name %s is taken", name),
				Next: "write another Name= in " + section}
		case errors.Is(err, unix.EOPNOTSUPP):
			return verdictGiveUp, link.Reason{Code: link.CodeUnsupported, Next: "modprobe " + module,
				Text: fmt.Sprintf("the %s %s cannot be made: the kernel module %s is not loaded (%s)", what, name, module, words)}
		}
	case link.SetMaster:
		why := link.Reason{Code: link.CodeRefused, Text: fmt.Sprintf("the kernel refused %s as a slave of %s (%s)", name, o.Master.Link, words),
			Next: "write the same Mode= and MTUBytes= in the units of all slaves of the bond"}
		if o.VRF {
			why.Text = fmt.Sprintf("the kernel refused to put %s into the VRF %s (%s)", name, o.Master.Link, words)
			why.Next = "ip link set " + name + " master " + o.Master.Link
		}
		switch {
		case o.Release:
		case errors.Is(err, unix.EPERM): // another program has brought it up meanwhile
			why.Code = link.CodeRetry
			return verdictRetry, why
		case errors.Is(err, unix.EBUSY): // another link is on it, or it is on another one
			why.Next = "ip -details link show: remove the bridge port, macvlan or the like that is on " + name
			return verdictGiveUp, why
		case errors.Is(err, unix.EINVAL), errors.Is(err, unix.EOPNOTSUPP):
			return verdictGiveUp, why
		}
	}
	return verdictDone, link.Reason{}
}
