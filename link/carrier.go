package link

import (
	"fmt"
	"strings"

	"ibnetworkd/ib"
)

// carrierReason returns why an IPoIB link that is up has no carrier, with the next
// step. It is zero for a link that has, and for one of another kind whose port
// says nothing.
func carrierReason(s *Snapshot, l *Link) Reason {
	if l.Carrier() {
		return Reason{}
	}
	if l.Bond != nil && len(s.Slaves(l.Index)) == 0 {
		return Reason{Code: CodeNoCarrier, Text: l.Name + " has no carrier, because it has no slaves",
			Next: "read why the links that are to be its slaves are not: ibnetctl status"}
	}
	d, p := s.PortOf(l)
	if p == nil && l.IPoIB != nil && s.Host.RDMAExclusive {
		return Reason{Code: CodeNoCarrier,
			Text: l.Name + " has no carrier; its RDMA device is in another network namespace (rdma system: netns exclusive), " +
				"so that the state of its port is not seen here",
			Next: "ip netns exec NAMESPACE rdma link"}
	}
	if p == nil || l.IPoIB == nil {
		return Reason{Code: CodeNoCarrier, Text: l.Name + " has no carrier", Next: "check the cable and its other end"}
	}
	if r := portReason(d, p); r != (Reason{}) {
		return r
	}
	port := fmt.Sprintf("%s/%d", d.Name, p.Num)
	key := l.IPoIB.PKey
	if !p.HasPKey(key) {
		var have []string
		for _, k := range p.PKeys {
			have = append(have, k.String())
		}
		return Reason{Code: CodePKeyMissing,
			Text: fmt.Sprintf("P_Key %s is not in the table of port %s (it has %s): "+
				"the subnet manager has not made the port a member of partition 0x%04x",
				key, port, strings.Join(have, ", "), uint16(key.Base())),
			Next: p.MemberStep(key)}
	}
	if !l.Up() {
		return Reason{Code: CodeLinkDown, Text: l.Name + " is down", Next: "ip link set " + l.Name + " up"}
	}
	what := fmt.Sprintf(
		"port %s is Active and has P_Key %s, but the broadcast group of partition 0x%04x is not joined: ",
		port,
		key,
		uint16(key.Base()),
	)
	if p.Manager.Silent {
		return Reason{Code: CodeNoSM, Text: what + fmt.Sprintf("the subnet manager at LID %d does not answer", uint16(p.SMLID)),
			Next: p.Manager.startStep(port,
				fmt.Sprintf("start a subnet manager: ibnetctl sm start %s; ibnetctl diagnose %s queries it again", port, port))}
	}
	return Reason{Code: CodeJoin, Text: what + "the subnet manager has not answered yet, has no such group, or refused the join",
		Next: fmt.Sprintf(
			"ibnetctl diagnose %s queries it; if it answers: %s; dmesg | grep 'multicast join' has the status",
			port,
			p.GroupStep(key),
		)}
}

// portReason returns why an InfiniBand port is not Active, zero if it is (or if it
// is none).
func portReason(d *Device, p *Port) Reason {
	if p.Layer != ib.LinkLayerInfiniBand {
		return Reason{}
	}
	port := fmt.Sprintf("%s/%d", d.Name, p.Num)
	switch p.State {
	case ib.PortActive, ib.PortActiveDefer:
		return Reason{}
	case ib.PortInit, ib.PortArmed:
		if p.Phys != ib.PhysLinkUp && p.Phys != 0 {
			break
		}
		if d.OmniPath() {
			return Reason{Code: CodeNoSM, Text: fmt.Sprintf("port %s is %s: the fabric manager of Omni-Path has not activated it", port, p.State),
				Next: "systemctl start opafm on one node of this fabric: InfiniBand's subnet managers cannot run it"}
		}
		if p.SMLID == 0 {
			return Reason{Code: CodeNoSM, Text: fmt.Sprintf("port %s is %s: no subnet manager has answered (SM LID 0)", port, p.State),
				Next: p.Manager.startStep(port, "start a subnet manager on one node of this fabric: ibnetctl sm start, or systemctl start opensm")}
		}
		return Reason{
			Code: CodeSMBusy,
			Text: fmt.Sprintf("port %s is %s: the subnet manager at LID %d has not activated it yet", port, p.State, uint16(p.SMLID)),
			Next: "if this lasts, check the subnet manager's log; sminfo shows whether it still answers",
		}
	}
	switch p.Phys {
	case ib.PhysPolling:
		return Reason{
			Code: CodeCable,
			Text: fmt.Sprintf("port %s is %s and Polling: no cable, or nothing answers at its other end", port, p.State),
			Next: "plug the cable in, or check the switch port: iblinkinfo from another node",
		}
	case ib.PhysDisabled:
		return Reason{Code: CodePortDisabled, Text: fmt.Sprintf("port %s is disabled", port),
			Next: fmt.Sprintf("ibportstate -C %s -P %d -D 0 %d enable", d.Name, p.Num, p.Num)}
	case ib.PhysTraining, ib.PhysLinkRecovery:
		return Reason{Code: CodeTraining, Text: fmt.Sprintf("port %s is %s (%s): the two ends are negotiating", port, p.State, p.Phys),
			Next: "if this lasts, the cable or the transceiver is bad"}
	case ib.PhysSleep:
		return Reason{
			Code: CodePortDisabled,
			Text: fmt.Sprintf("port %s is asleep", port),
			Next: fmt.Sprintf("ibportstate -C %s -P %d -D 0 %d enable", d.Name, p.Num, p.Num),
		}
	}
	return Reason{Code: CodePortDown, Text: fmt.Sprintf("port %s is %s (%s)", port, p.State, p.Phys), Next: "ibstat " + d.Name}
}
