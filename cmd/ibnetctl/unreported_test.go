package main

import (
	"testing"

	"ibnetworkd/link"
	"ibnetworkd/smctl"
)

// Without a bus the daemon's report has no subnet managers: their state is unknown, not
// that no port is managed.
func TestManagersThatAreNotReported(t *testing.T) {
	got := unreported([]link.PortStatus{{IBDevice: "mlx5_0", Port: 1, LinkLayer: "InfiniBand", PortGUID: "0x1"},
		{IBDevice: "mlx5_1", Port: 1, LinkLayer: "Ethernet"}}, "no bus")
	want := smctl.Status{IBDevice: "mlx5_0", Port: 1, PortGUID: "0x1", Phase: phaseUnknown, Reason: "no bus"}
	if len(got) != 1 || got[0] != want {
		t.Errorf("%+v", got)
	}
}
