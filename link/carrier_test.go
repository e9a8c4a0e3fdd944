package link

import (
	"strings"
	"testing"

	"ibnetworkd/ib"
)

// The faults that other tools call "no carrier" are kept apart, each with its
// next step.
func TestCarrierReasons(t *testing.T) {
	port := func(state ib.PortState, phys ib.PhysState, sm ib.LID) func(*Snapshot) {
		return func(s *Snapshot) {
			p := &s.Devices[0].Ports[0]
			p.State, p.Phys, p.SMLID = state, phys, sm
		}
	}
	starts := func(s *Snapshot) { s.Devices[0].Ports[0].Manager.Starts = true }
	for _, tt := range []struct {
		name string
		sys  func(*Snapshot)
		want Code
	}{
		{"no subnet manager, ours starts", func(s *Snapshot) { port(ib.PortInit, ib.PhysLinkUp, 0)(s); starts(s) }, CodeNoSM},
		{"a silent one, ours starts", func(s *Snapshot) { s.Devices[0].Ports[0].Manager.Silent = true; starts(s) }, CodeNoSM},
		{"no subnet manager", port(ib.PortInit, ib.PhysLinkUp, 0), CodeNoSM},
		{"one that has not come to it", port(ib.PortInit, ib.PhysLinkUp, 1), CodeSMBusy},
		{"Omni-Path", func(s *Snapshot) {
			port(ib.PortInit, ib.PhysLinkUp, 0)(s)
			s.Devices[0].Protocol = "opa"
		}, CodeNoSM},
		{"no cable", port(ib.PortDown, ib.PhysPolling, 0), CodeCable},
		{"disabled", port(ib.PortDown, ib.PhysDisabled, 0), CodePortDisabled},
		{"asleep", port(ib.PortDown, ib.PhysSleep, 0), CodePortDisabled},
		{"training", port(ib.PortDown, ib.PhysTraining, 0), CodeTraining},
		{"training while Initializing", port(ib.PortInit, ib.PhysLinkRecovery, 0), CodeTraining},
		{"down", port(ib.PortDown, ib.PhysLinkUp, 0), CodePortDown},
		{"not in the partition", func(s *Snapshot) { s.Links[1].IPoIB.PKey = 0x8003 }, CodePKeyMissing},
		{"the link is down", func(s *Snapshot) { s.Links[1].Flags = 0 }, CodeLinkDown},
		{"no broadcast group", func(*Snapshot) {}, CodeJoin},
		{"a subnet manager that does not answer", func(s *Snapshot) { s.Devices[0].Ports[0].Manager.Silent = true }, CodeNoSM},
		{"no port", func(s *Snapshot) { s.Devices = nil }, CodeNoCarrier},
		{"a port of another namespace", func(s *Snapshot) { s.Devices, s.Host.RDMAExclusive = nil, true }, CodeNoCarrier},
	} {
		s := host(t)
		s.Links[1].Flags = FlagUp
		tt.sys(s)
		r := carrierReason(s, &s.Links[1])
		if r.Code != tt.want || r.Next == "" {
			t.Errorf("%s: %+v", tt.name, r)
		}
		if tt.name == "Omni-Path" && (!strings.Contains(r.Next, "opafm") || strings.Contains(r.Next, "ibnetctl sm start")) {
			t.Errorf("%s: next %q", tt.name, r.Next)
		}
		if strings.HasPrefix(tt.name, "a port of another") != strings.Contains(r.Text, "its RDMA device is in another network namespace") {
			t.Errorf("%s: %+v", tt.name, r)
		}
		// No command is advised for what this host does by itself.
		if got, want := strings.Contains(r.Next, "wait: this host starts"), strings.HasSuffix(tt.name, "ours starts"); got != want ||
			got && strings.Contains(r.Next, "sm start") {
			t.Errorf("%s: next %q", tt.name, r.Next)
		}
		// The status says so, and a new address waits for it.
		u := unit(t, "[Network]\nAddress=10.0.0.1/24\n")
		b := planIB0(s, u, nil, nil)
		st := BuildStatus(StatusInput{Snapshot: s, Link: &s.Links[1], Unit: u, Attributes: b.Attributes(4), Steps: b.Plan.Steps,
			Blocked: b.Plan.Blocked})
		if tt.want != CodeLinkDown && st.Reason().Code != tt.want {
			t.Errorf("%s: status has %+v", tt.name, st.Reasons)
		}
	}
	s := host(t)
	if r := carrierReason(s, &s.Links[1]); r != (Reason{}) {
		t.Errorf("with carrier: %+v", r)
	}
}
