package engine_test

import (
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"ibnetworkd/ib"
	"ibnetworkd/internal/testkit"
	"ibnetworkd/lab/gen"
	"ibnetworkd/lab/simfabric"
	"ibnetworkd/sm/engine"
	"ibnetworkd/sm/fabric"
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

// The successor of a better manager that ends may meet it while it is still master. It does not
// report that the two are at odds.
func TestBetterManagerEnds(t *testing.T) {
	for range 10 {
		inWorld(t, gen.FatTree2(8, 4), simfabric.Options{}, func(t *testing.T, w *world, f *fabric.Fabric, hosts []int32) {
			var log testkit.Buffer
			a, stop := w.manager(hosts[0], engine.Config{Priority: 9})
			w.settle(hosts[0], a, time.Second)
			b, _ := w.manager(hosts[5], engine.Config{Priority: 1, Log: slog.New(slog.NewTextHandler(&log, nil))})
			time.Sleep(3 * time.Second)
			stop()
			w.settle(hosts[5], b, 5*time.Second)
			if s := log.String(); strings.Contains(s, "refused") {
				t.Errorf("the successor of a manager that ended logged:\n%s", s)
			}
		})
	}
}
