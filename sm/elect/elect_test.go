package elect_test

import (
	"testing"

	"ibnetworkd/ib"
	"ibnetworkd/sm/elect"
	"ibnetworkd/sm/mad"
	"ibnetworkd/sm/smp"
)

func peer(prio uint8, guid ib.GUID, s mad.SMState) elect.Peer {
	return elect.Peer{Info: mad.SMInfo{GUID: guid, Priority: prio, State: s}, LID: ib.LID(guid)}
}

func TestDiscovered(t *testing.T) {
	for _, tt := range []struct {
		name  string
		peers []elect.Peer
		want  elect.Action
		state mad.SMState
		polls ib.GUID
	}{
		{"OK alone", nil, elect.Serve, mad.SMMaster, 0},
		{"OK worse standby", []elect.Peer{peer(1, 9, mad.SMStandby)}, elect.Serve, mad.SMMaster, 0},
		{"OK worse discovering", []elect.Peer{peer(5, 9, mad.SMDiscovering)}, elect.Serve, mad.SMMaster, 0},
		{"OK worse master", []elect.Peer{peer(1, 9, mad.SMMaster)}, elect.Poll, mad.SMStandby, 9},
		{"OK better master", []elect.Peer{peer(9, 9, mad.SMMaster)}, elect.Poll, mad.SMStandby, 9},
		{"OK better standby", []elect.Peer{peer(9, 9, mad.SMStandby)}, elect.Poll, mad.SMStandby, 9},
		{"OK lower GUID discovering", []elect.Peer{peer(5, 2, mad.SMDiscovering)}, elect.Poll, mad.SMStandby, 2},
		{"OK disabled", []elect.Peer{peer(9, 2, mad.SMNotActive)}, elect.Serve, mad.SMMaster, 0},
		{"OK master before better standby", []elect.Peer{peer(9, 2, mad.SMStandby), peer(1, 8, mad.SMMaster)}, elect.Poll, mad.SMStandby, 8},
		{"OK best master", []elect.Peer{peer(2, 7, mad.SMMaster), peer(3, 8, mad.SMMaster)}, elect.Poll, mad.SMStandby, 8},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := elect.New(elect.Config{Self: smp.Standing{Priority: 5, GUID: 5}})
			if a := m.Discovered(tt.peers); a != tt.want || m.State() != tt.state || m.Master().Info.GUID != tt.polls {
				t.Errorf("action %d, state %v, polls %v", a, m.State(), m.Master().Info.GUID)
			}
		})
	}
}

func TestHandover(t *testing.T) {
	m := elect.New(elect.Config{Self: smp.Standing{Priority: 5, GUID: 5}})
	m.Discovered(nil)
	if a := m.Discovered([]elect.Peer{peer(9, 9, mad.SMDiscovering)}); a != elect.Nothing {
		t.Fatalf("a manager that is not ready was handed the subnet: %d", a)
	}
	if a := m.Discovered([]elect.Peer{peer(4, 4, mad.SMStandby)}); a != elect.Nothing {
		t.Fatalf("handed over to a worse one: %d", a)
	}
	if a := m.Discovered([]elect.Peer{peer(9, 9, mad.SMStandby)}); a != elect.Handover || m.State() != mad.SMMaster {
		t.Fatal(a)
	}
	if a := m.Received(mad.SMInfoAcknowledge, peer(9, 7, mad.SMMaster)); a != elect.Nothing {
		t.Fatal("acknowledged by another than the target")
	}
	if a := m.Received(mad.SMInfoAcknowledge, peer(9, 9, mad.SMMaster)); a != elect.StepDown || m.State() != mad.SMStandby {
		t.Fatal(a)
	}
	if a := m.Received(mad.SMInfoHandover, peer(9, 9, mad.SMMaster)); a != elect.Acknowledge || m.State() != mad.SMMaster {
		t.Fatal(a)
	}
}

func TestKey(t *testing.T) {
	m := elect.New(elect.Config{Self: smp.Standing{Priority: 5, GUID: 5}, Trust: elect.Trust{Key: 1}})
	m.Discovered(nil)
	p := peer(9, 9, mad.SMStandby)
	p.Info.SMKey = 2
	if a := m.Discovered([]elect.Peer{p}); a != elect.Nothing {
		t.Error("handed over to a manager with another key")
	}
	if a := m.Received(mad.SMInfoHandover, p); a != elect.Nothing {
		t.Error("took over from a manager with another key")
	}
}

func TestPolling(t *testing.T) {
	standby := func() *elect.Machine {
		m := elect.New(elect.Config{Self: smp.Standing{Priority: 5, GUID: 5}, Misses: 2})
		m.Discovered([]elect.Peer{peer(9, 9, mad.SMMaster)})
		return m
	}
	m := standby()
	ok := mad.SMInfo{GUID: 9, Priority: 9, State: mad.SMMaster}
	if a := m.Polled(&ok, false); a != elect.Nothing {
		t.Fatal(a)
	}
	if a := m.Polled(nil, true); a != elect.Poll {
		t.Fatal("one dead answer is looked at twice")
	}
	if a := m.Polled(nil, true); a != elect.Discover || m.State() != mad.SMDiscovering {
		t.Fatal(a)
	}
	m = standby()
	m.Polled(nil, false)
	if a := m.Polled(&ok, false); a != elect.Nothing || m.State() != mad.SMStandby {
		t.Fatal("an answer forgives a miss")
	}
	m.Polled(nil, false)
	if a := m.Polled(nil, false); a != elect.Discover {
		t.Fatal(a)
	}
	m = standby()
	gone := mad.SMInfo{GUID: 9, Priority: 9, State: mad.SMStandby}
	if a := m.Polled(&gone, false); a != elect.Discover {
		t.Fatal("a master that became standby leaves the subnet without one", a)
	}
}

func TestHeir(t *testing.T) {
	m := elect.New(elect.Config{Self: smp.Standing{Priority: 5, GUID: 5}})
	if _, ok := m.Leave(); ok {
		t.Fatal("a successor of no master")
	}
	m.Discovered([]elect.Peer{peer(1, 8, mad.SMStandby), peer(2, 9, mad.SMStandby), peer(4, 10, mad.SMNotActive)})
	if p, ok := m.Leave(); !ok || p.Info.GUID != 9 {
		t.Fatal(p, ok)
	}
	if a := m.Received(mad.SMInfoAcknowledge, peer(2, 9, mad.SMMaster)); a != elect.StepDown {
		t.Fatal(a)
	}
	if a := m.Received(mad.SMInfoHandover, peer(2, 9, mad.SMMaster)); a != elect.Nothing || m.State() != mad.SMNotActive {
		t.Fatal("one that ends takes the subnet back", a, m.State())
	}
}

// Two managers that see each other in every mix of states and standings must
// not both end as standby of the other or both as master.
func TestNoStandoff(t *testing.T) {
	for _, prio := range []uint8{1, 5, 9} {
		a := elect.New(elect.Config{Self: smp.Standing{Priority: 5, GUID: 5}})
		b := elect.New(elect.Config{Self: smp.Standing{Priority: prio, GUID: 7}})
		pa := func() elect.Peer { return elect.Peer{Info: a.Info(0)} }
		pb := func() elect.Peer { return elect.Peer{Info: b.Info(0)} }
		// Both discover at once.
		x, y := pa(), pb()
		a.Discovered([]elect.Peer{y})
		b.Discovered([]elect.Peer{x})
		for range 10 {
			for _, m := range []struct {
				m *elect.Machine
				o *elect.Machine
			}{{a, b}, {b, a}} {
				oi := m.o.Info(0)
				if m.m.State() == mad.SMStandby {
					m.m.Polled(&oi, false)
				}
				if m.m.State() != mad.SMStandby {
					if m.m.Discovered([]elect.Peer{{Info: m.o.Info(0)}}) == elect.Handover {
						if m.o.Received(mad.SMInfoHandover, elect.Peer{Info: m.m.Info(0)}) == elect.Acknowledge {
							m.m.Received(mad.SMInfoAcknowledge, elect.Peer{Info: m.o.Info(0)})
						}
					}
				}
			}
		}
		wantA := prio <= 5
		if (a.State() == mad.SMMaster) != wantA || (b.State() == mad.SMMaster) == wantA {
			t.Errorf("priority 5 against %d: %v and %v", prio, a.State(), b.State())
		}
	}
}

// A manager that is ignored at its port counts once it shows the key.
func TestIgnore(t *testing.T) {
	m := elect.New(elect.Config{Self: smp.Standing{Priority: 5, GUID: 5}, Trust: elect.Trust{Key: 77}})
	p := peer(9, 9, mad.SMMaster)
	m.Ignore(9)
	if a := m.Discovered([]elect.Peer{p}); a != elect.Serve {
		t.Errorf("beside an ignored manager: %d", a)
	}
	m.Restart()
	p.Info.SMKey = 77
	if a := m.Discovered([]elect.Peer{p}); a != elect.Poll {
		t.Errorf("beside one that is trusted: %d", a)
	}
}

// A manager that refused the subnet is handed none, but its orders count, and the
// acknowledgement of a handover that it answered too late; and once this one is standby,
// nothing of that is left.
func TestRefused(t *testing.T) {
	for _, mod := range []uint32{mad.SMInfoAcknowledge, mad.SMInfoHandover} {
		m := elect.New(elect.Config{Self: smp.Standing{Priority: 5, GUID: 5}, Trust: elect.Trust{Key: 1}})
		m.Discovered(nil)
		p := peer(9, 9, mad.SMStandby)
		if a := m.Discovered([]elect.Peer{p}); a != elect.Handover {
			t.Fatal(a)
		}
		m.Distrust(p.Info, elect.Refused)
		if a := m.Discovered([]elect.Peer{p}); a != elect.Nothing || m.Trusts(p.Info) {
			t.Fatalf("one that refused is handed the subnet: %d", a)
		}
		if a := m.Received(mod, p); a != elect.Nothing && mod == mad.SMInfoHandover {
			t.Errorf("a standby hands over: %d", a)
		}
		p.Info.State = mad.SMMaster
		m.Received(mod, p)
		if want := map[bool]mad.SMState{true: mad.SMMaster, false: mad.SMStandby}[mod == mad.SMInfoHandover]; m.State() != want {
			t.Errorf("after %d: %v, want %v", mod, m.State(), want)
		}
	}
	m := elect.New(elect.Config{Self: smp.Standing{Priority: 5, GUID: 5}, Trust: elect.Trust{Key: 1}})
	hides, refuses := peer(9, 8, mad.SMMaster), peer(9, 9, mad.SMMaster)
	m.Distrust(hides.Info, elect.HidesKey)
	m.Distrust(refuses.Info, elect.Refused)
	m.Discovered([]elect.Peer{refuses})
	if m.State() != mad.SMStandby || !m.Trusts(refuses.Info) || m.Trusts(hides.Info) {
		t.Errorf("%v, trusts %v and %v", m.State(), m.Trusts(refuses.Info), m.Trusts(hides.Info))
	}
	if a := m.Received(mad.SMInfoHandover, hides); a != elect.Nothing {
		t.Errorf("one that hides a key gives orders: %d", a)
	}
}
