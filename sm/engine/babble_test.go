package engine_test

import (
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"ibnetworkd/ib"
	"ibnetworkd/internal/testkit"
	"ibnetworkd/lab/gen"
	"ibnetworkd/lab/simfabric"
	"ibnetworkd/sm/engine"
	"ibnetworkd/sm/mad"
	"ibnetworkd/sm/transport"
)

// A port that sends the same trap a hundred times a second for a minute gets each
// answered, and costs a sweep a second; the log has one line about it, and one when it
// is over.
func TestBabblingPort(t *testing.T) {
	for _, tt := range []struct {
		trap  uint16
		smps  int
		shown string
	}{{mad.TrapLinkStateChange, 760, "trap 128"}, {mad.TrapCapMaskChange, 152, "trap 144"},
		{mad.TrapLocalIntegrity, 0, "trap 129"}, {4711, 0, "trap of another kind"}} {
		synctest.Test(t, func(t *testing.T) {
			f := gen.FatTree2(8, 4)
			var repressed atomic.Int64
			w := newWorld(t, f, simfabric.Options{TrapRepeats: -1, Trace: func(_ ib.GUID, m *mad.Buf) {
				if mad.MethodOf(m) == mad.MethodTrapRepress {
					repressed.Add(1)
				}
			}})
			defer w.close()
			hosts := hostsOf(f)
			var text testkit.Buffer
			s, _ := w.manager(hosts[0], engine.Config{Sweep: -1, Log: slog.New(slog.NewTextHandler(&text, nil))})
			w.settle(hosts[0], s, time.Second)
			time.Sleep(time.Second)
			text.Reset()
			at := w.f.Ports[hosts[5]]
			pi, err := w.sim.PortInfo(w.f.Nodes[at.Node].GUID, at.Num)
			testkit.NoError(t, err)
			raw, err := w.sim.OpenRaw(at.GUID, func(*transport.Packet) {})
			testkit.NoError(t, err)
			n := mad.Notice{Generic: true, Type: mad.NoticeUrgent, Producer: 1, TrapNumber: tt.trap, IssuerLID: pi.LID()}
			if tt.trap == mad.TrapLinkStateChange {
				sw, err := w.sim.PortInfo(w.f.Nodes[w.f.Ports[at.Peer].Node].GUID, 0)
				testkit.NoError(t, err)
				n.SetDetailSwitchLID(sw.LID())
			}
			// The bucket loses ten a second while it fills.
			const traps, acted = 6000, 223
			begun, was := s.Refresh().Counters.SMPs, repressed.Load()
			for i := range traps {
				p := transport.Packet{LID: pi.MasterSMLID()}
				mad.PutLR(&p.MAD, mad.MethodTrap, mad.AttrNotice, 0, uint64(i), 0, n.AppendSMP(nil))
				raw.Send(&p)
				time.Sleep(10 * time.Millisecond)
			}
			time.Sleep(2 * time.Second)
			if n := repressed.Load() - was; n != traps {
				t.Errorf("trap %d: %d of %d were answered", tt.trap, n, traps)
			}
			if n := int(s.Refresh().Counters.SMPs - begun); n != tt.smps {
				t.Errorf("trap %d: %d SMPs, want %d", tt.trap, n, tt.smps)
			}
			if n := strings.Count(text.String(), "a port sends a trap too often"); n != 1 {
				t.Errorf("trap %d: %d lines say so:\n%s", tt.trap, n, text.String())
			}
			if n := strings.Count(text.String(), "subnet up"); n > 7 {
				t.Errorf("trap %d: %d sweeps that changed nothing are logged", tt.trap, n)
			}
			if x := s.Refresh(); x.Counters.Quiet != traps-acted {
				t.Errorf("trap %d: %d were left, want %d", tt.trap, x.Counters.Quiet, traps-acted)
			}
			shown := func() string { return strings.Join(s.Refresh().Problems, "\n") }
			if !strings.Contains(shown(), tt.shown+" comes too often from port ") {
				t.Errorf("trap %d: the status has %q", tt.trap, shown())
			}
			text.Reset()
			if time.Sleep(time.Minute); !strings.Contains(text.String(), "each trap is acted on again") || strings.Contains(text.String(), "WARN") {
				t.Errorf("trap %d: a minute later:\n%s", tt.trap, text.String())
			}
			if shown() != "" {
				t.Errorf("trap %d: a minute later the status has %q", tt.trap, shown())
			}
		})
	}
}
