package roce

import (
	"fmt"

	"ibnetworkd/link"
)

// Effect implements link.Effecter. What drivers do beside is read from their
// sources (Linux 6.12): mlx5e_dcbnl_ieee_setpfc, ice_dcbnl_devreset, hclge_ieee_setpfc.
func (o SetPFC) Effect(s *link.Snapshot) string {
	switch driverOf(s, o.On) {
	case "mlx5_core":
		if o.Delay == 0 {
			return fmt.Sprintf("the port of %s goes down and comes up again: mlx5 does so for each change of PFC", o.On.Link)
		}
	case "hns3":
		return fmt.Sprintf("%s stops for a moment: hns3 allocates its buffers again", o.On.Link)
	}
	return iceReset(s, o.On)
}

// Effect implements link.Effecter.
func (o SetETS) Effect(s *link.Snapshot) string { return iceReset(s, o.On) }

// Effect implements link.Effecter.
func (o MapDSCP) Effect(s *link.Snapshot) string { return iceReset(s, o.On) }

// Effect implements link.Effecter.
func (o ClearDSCP) Effect(s *link.Snapshot) string { return iceReset(s, o.On) }

// Effect implements link.Effecter. The first virtual functions end the RoCE LAG of mlx5
// (mlx5_eswitch_enable, mlx5_lag_check_prereq).
func (o SetVFs) Effect(s *link.Snapshot) string {
	if o.Old == 0 {
		if l, ok := s.Link(o.On.Ifindex); ok && l.Driver == "mlx5_core" && !l.IsInfiniBand() {
			if bond, ok := s.Link(l.Master); ok && bond.Bond != nil {
				return fmt.Sprintf("RoCE LAG of %s ends, which mlx5 does not have with virtual functions: its RDMA device is removed", bond.Name)
			}
		}
		return ""
	}
	return fmt.Sprintf("all %d virtual functions of %s are removed, and what uses them is interrupted", o.Old, o.On)
}

// Effect implements link.Effecter.
func (o SetPortType) Effect(*link.Snapshot) string {
	return "the RDMA device and the interfaces of the card are removed and created again"
}

// Effect implements link.Effecter.
func (o SetVFGUIDs) Effect(*link.Snapshot) string {
	return fmt.Sprintf("virtual function %d of %s loses its driver for a moment", o.VF, o.On)
}

// Effect implements link.Effecter.
func (o RebindVF) Effect(*link.Snapshot) string {
	return fmt.Sprintf("virtual function %d of %s loses its driver for a moment", o.VF, o.On)
}

func iceReset(s *link.Snapshot, on link.Target) string {
	if driverOf(s, on) != "ice" {
		return ""
	}
	return fmt.Sprintf("%s goes down and comes up again: ice resets the interface", on.Link)
}

func driverOf(s *link.Snapshot, on link.Target) string {
	if l, ok := s.Link(on.Ifindex); ok {
		return l.Driver
	}
	return ""
}
