package main

import (
	"testing"

	"ibnetworkd/sm/engine"
	"ibnetworkd/sm/mad"
	"ibnetworkd/sm/serve"
	"ibnetworkd/smctl"
)

// What was said of a port that is lost does not stay.
func TestLostPortIsNotMaster(t *testing.T) {
	t.Setenv("NOTIFY_SOCKET", "")
	s := newNotifier()
	a, b := serve.Port{Device: "mlx5_0", Num: 1, GUID: 1}, serve.Port{Device: "mlx5_1", Num: 1, GUID: 2}
	s.state(a, &engine.Snapshot{State: mad.SMMaster.String(), Nodes: 2})
	if !smctl.ParseStatusText(s.last).Known {
		t.Fatalf("said %q", s.last)
	}
	s.state(b, &engine.Snapshot{State: mad.SMStandby.String()})
	s.gone(a)
	if got := smctl.ParseStatusText(s.last); !got.Known || got.State != smctl.SMStandby {
		t.Errorf("with one port left: %q", s.last)
	}
	s.gone(b)
	if smctl.ParseStatusText(s.last).Known {
		t.Errorf("without a port: %q", s.last)
	}
}
