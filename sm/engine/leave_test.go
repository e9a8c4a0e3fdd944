package engine_test

import (
	"errors"
	"testing"

	"ibnetworkd/ib"
	"ibnetworkd/sm/engine"
	"ibnetworkd/sm/transport"
)

// refusing is a port that no manager can run on.
type refusing struct {
	script
	port transport.Port
	err  error // of Port
	issm error
}

func (r *refusing) Port() (transport.Port, error) { return r.port, r.err }
func (r *refusing) SetIsSM(bool) error            { return r.issm }

// A manager that cannot begin gives the port back: it is retried, and a
// device that is open already refuses.
func TestRunClosesTransport(t *testing.T) {
	up := transport.Port{Device: "x", Num: 1, PortGUID: 1, NodeGUID: 1, State: ib.PortInit, PhysState: ib.PhysLinkUp}
	ethernet := up
	ethernet.LinkLayer = ib.LinkLayerEthernet
	for name, tr := range map[string]*refusing{
		"bad port":             {port: up, err: errors.New("no such port")},
		"bad Ethernet":         {port: ethernet},
		"bad another has IsSM": {port: up, issm: transport.ErrIsSM},
	} {
		t.Run(name, func(t *testing.T) {
			tr.done = make(chan struct{})
			if err := engine.New(tr, engine.Config{}).Run(t.Context()); err == nil {
				t.Error("it ran")
			}
			select {
			case <-tr.done:
			default:
				t.Error("the port is still open")
			}
		})
	}
}
