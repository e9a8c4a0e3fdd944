package daemon

import (
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"ibnetworkd/link"
)

func (o *Observer) observeRules(s *link.Snapshot) error {
	raw, err := o.rt.Rules()
	if err != nil {
		return fmt.Errorf("list rules: %w", err)
	}
	s.Rules = nil
	for i := range raw {
		r := &raw[i]
		x := link.Rule{
			Family: 4, Priority: r.Priority, Invert: r.Invert, From: r.From, To: r.To, TOS: r.TOS, FWMark: r.FwMark, FWMask: r.FwMask,
			IIF: r.IIF, OIF: r.OIF, Table: r.Table, Type: r.Action, L3MDev: r.L3MDev, IPProto: r.IPProto,
			SrcPort: [2]uint16{r.SPort.First, r.SPort.Last}, DstPort: [2]uint16{r.DPort.First, r.DPort.Last},
			UIDRange: [2]uint32{r.UID.First, r.UID.Last}, HasUIDRange: r.UID.Set,
			SuppressPrefix: -1, SuppressIfGroup: -1, Goto: r.Goto, Protocol: r.Proto,
		}
		if r.Family == unix.AF_INET6 {
			x.Family = 6
		}
		if r.SuppressPrefixLen.Set {
			x.SuppressPrefix = int32(r.SuppressPrefixLen.Value)
		}
		if r.SuppressIfGroup.Set {
			x.SuppressIfGroup = int32(r.SuppressIfGroup.Value)
		}
		s.Rules = append(s.Rules, x)
	}
	slices.SortFunc(s.Rules, func(a, b link.Rule) int {
		if a.Family != b.Family {
			return int(a.Family) - int(b.Family)
		}
		if a.Priority != b.Priority {
			return int(int64(a.Priority) - int64(b.Priority))
		}
		return strings.Compare(a.String(), b.String())
	})
	return nil
}
