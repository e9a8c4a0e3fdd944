package smctl

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"ibnetworkd/ib"
)

// A port that is barred is left alone whatever its unit and people say, and a
// worker that runs there is stopped; each says why and what to do.
func TestBarred(t *testing.T) {
	phases := map[Bar]Phase{BarUnread: PhaseSettling, BarUnknown: PhaseBlocked, BarOmniPath: PhaseOmniPath,
		BarNVSwitch: PhaseNVSwitch, BarSMDisabled: PhaseSMDisabled, BarNoQP0: PhaseNoQP0}
	for bar, phase := range phases {
		for _, manage := range []Manage{ManageNo, ManageAuto, ManageAlways} {
			for _, hand := range []Override{OverrideNone, OverrideStart, OverrideStop} {
				for _, state := range []WorkerState{WorkerInactive, WorkerActive, WorkerFailed} {
					pol := autoPolicy
					pol.Manage = manage
					in := Input{Now: t0, Policy: pol, Worker: Worker{Unit: "w", State: state, Override: hand, Since: t0.Add(-time.Hour)},
						Port: port(func(p *Port) { p.State, p.LID, p.SMLID, p.Barred = ib.PortInit, 0, 0, bar })}
					_, dec := Decide(Memory{LonelySince: t0.Add(-time.Hour)}, in)
					switch {
					case hand == OverrideStop:
						if want := map[WorkerState]Phase{WorkerInactive: PhaseStopped, WorkerActive: PhaseStopping,
							WorkerFailed: PhaseStopped}[state]; dec.Phase != want {
							t.Errorf("%v %v %v %v: %+v", bar, manage, hand, state, dec)
						}
					case !bar.forbids() && state == WorkerActive:
						// It was started when there was nothing against it.
						if dec.Action == Stop && manage != ManageNo {
							t.Errorf("%v %v %v %v: %+v", bar, manage, hand, state, dec)
						}
					case dec.Action == Start || dec.Action == Ask || dec.Action == Reload:
						t.Errorf("%v %v %v %v: %+v", bar, manage, hand, state, dec)
					case state == WorkerActive && dec.Action != Stop:
						t.Errorf("%v %v %v: the worker runs on: %+v", bar, manage, hand, dec)
					case state == WorkerInactive && (manage != ManageNo || hand == OverrideStart) && dec.Phase != phase:
						t.Errorf("%v %v %v: %+v", bar, manage, hand, dec)
					case dec.Phase == phase && bar > BarUnread && (dec.Next == "" || !strings.Contains(dec.Reason, "mlx5_0")):
						t.Errorf("%v: no next step: %+v", bar, dec)
					}
				}
			}
		}
	}
}

// 100 hosts with one file for all, ports that must not run a subnet manager
// mixed in: none of those ever starts a worker or asks the fabric, and the
// others bring the fabric up as without them.
func TestBarredAmongHosts(t *testing.T) {
	seeds := uint64(20)
	if testing.Short() {
		seeds = 5
	}
	for seed := range seeds {
		r := rand.New(rand.NewPCG(seed, 4))
		pol := autoPolicy
		if seed%4 == 3 {
			pol.Manage, pol.StopWhenForeignMaster = ManageAlways, false
		}
		s := newSim(t, 100, r, 5*time.Second, pol)
		free := 0
		for _, n := range s.nodes {
			if n.port.Barred = Bar(r.IntN(int(BarNoQP0)+4) % (int(BarNoQP0) + 1)); r.IntN(3) == 0 {
				n.port.Barred = BarNone
			}
			if n.port.Barred == BarNone {
				free++
			}
			if r.IntN(5) == 0 {
				n.hand = OverrideStart
			}
		}
		s.run(90 * time.Second)
		for i, n := range s.nodes {
			if n.port.Barred != BarNone && (n.starts > 0 || n.answer.Question != AskNothing || n.worker.State != WorkerInactive) {
				s.dump()
				t.Fatalf("seed %d: node %d is barred (%d): %d starts, answer %+v, worker %v", seed, i, n.port.Barred, n.starts,
					n.answer, n.worker.State)
			}
		}
		if masters, _, _, active := s.count(); free > 0 && (masters != 1 || active != 100) {
			s.dump()
			t.Fatalf("seed %d, %d free ports: %d masters, %d ports active", seed, free, masters, active)
		}
	}
}

// While it is not known what a port is, or a question was refused, a worker that runs is
// neither stopped nor restarted: it could not be started again.
func TestBarKeepsRunning(t *testing.T) {
	for _, bar := range []Bar{BarUnread, BarUnknown, BarNoQP0} {
		for _, change := range []Change{ChangeNone, ChangeRestart} {
			in := Input{Now: t0, Policy: autoPolicy, Port: port(func(p *Port) { p.Barred = bar }),
				Worker: Worker{Unit: "w", State: WorkerActive, Since: t0.Add(-time.Hour),
					StatusText: StatusText{State: SMMaster, Known: true}, Change: change}}
			if _, dec := Decide(Memory{}, in); dec.Action == Stop || dec.Phase != PhaseMaster {
				t.Errorf("bar %d, change %d: %+v", bar, change, dec)
			}
		}
	}
}

// The master of a port is the one that answered at its SM LID not long ago.
func TestMasterOf(t *testing.T) {
	p := port(func(p *Port) { p.SMLID = 3 })
	other, own := SMInfo{GUID: 1, LID: 3, State: SMMaster}, SMInfo{GUID: p.GUID, LID: 3, State: SMMaster}
	for _, tt := range []struct {
		name string
		ph   Phase
		a    Answer
		want bool
	}{
		{"OK", PhaseServed, Answer{Question: AskLID, At: t0.Add(-ServedInterval), LID: 3, SMs: []SMInfo{other}}, true},
		{"old", PhaseServed, Answer{Question: AskLID, At: t0.Add(-MasterLife), LID: 3, SMs: []SMInfo{other}}, false},
		{"another LID", PhaseServed, Answer{Question: AskLID, At: t0, LID: 4, SMs: []SMInfo{other}}, false},
		{"a walk", PhaseUnserved, Answer{Question: AskWalk, At: t0, SMs: []SMInfo{other}}, false},
		{"standby", PhaseServed, Answer{Question: AskLID, At: t0, LID: 3, SMs: []SMInfo{{GUID: 1, LID: 3, State: SMStandby}}}, false},
		{"ours is master, another answered", PhaseMaster, Answer{Question: AskLID, At: t0, LID: 3, SMs: []SMInfo{other}}, false},
		{"OK ours", PhaseMaster, Answer{Question: AskLID, At: t0, LID: 3, SMs: []SMInfo{own}}, true},
	} {
		if _, ok := MasterOf(p, tt.ph, tt.a, t0); ok != tt.want {
			t.Errorf("%s: %v", tt.name, ok)
		}
	}
}

// Every setting of ibnetsm is a reload, of opensm a restart.
func TestDifference(t *testing.T) {
	base := Policy{Priority: 3, PartitionsFile: "/etc/p.conf", Partitions: "0x8001 Name=a\n"}
	with := func(f func(*Policy)) string { p := base; f(&p); return Settings(p) }
	for _, tt := range []struct {
		name string
		now  string
		want Change
	}{
		{"same", Settings(base), ChangeNone},
		{"another rule", with(func(p *Policy) { p.Partitions += "0x8002\n" }), ChangeReload},
		{"no rules", with(func(p *Policy) { p.Partitions = "" }), ChangeReload},
		{"another file", with(func(p *Policy) { p.PartitionsFile = "/etc/q.conf" }), ChangeReload},
		{"names", with(func(p *Policy) { p.NodeNameMap = "/etc/names" }), ChangeReload},
		{"verbose", with(func(p *Policy) { p.Verbose = "yes" }), ChangeReload},
		{"priority", with(func(p *Policy) { p.Priority = 4 }), ChangeReload},
		{"keys", with(func(p *Policy) { p.KeyFile = "/etc/keys" }), ChangeReload},
		{"rule and sweep", with(func(p *Policy) { p.Partitions, p.Sweep = "", "5s" }), ChangeReload},
	} {
		if got := Difference(EngineBuiltin, Settings(base), tt.now); got != tt.want {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
		if got := Difference(EngineOpenSM, Settings(base), tt.now); (got == ChangeRestart) != (tt.want != ChangeNone) {
			t.Errorf("%s for opensm: %v", tt.name, got)
		}
	}
}

// An edit ends the back-off; without one it runs on.
func TestEditEndsBackOff(t *testing.T) {
	in := Input{Now: t0, Policy: autoPolicy, Files: Files{Digest: "a"},
		Port:   port(func(p *Port) { p.State, p.LID, p.SMLID = ib.PortInit, 0, 0 }),
		Answer: Answer{Question: AskWalk, At: t0}, Worker: Worker{Unit: "u", State: WorkerFailed, Since: t0, Result: "exit status 1"}}
	m := Memory{LonelySince: t0.Add(-time.Hour), Failures: 6, FailedAt: t0, FailedWith: Settings(autoPolicy) + "\na"}
	if _, dec := Decide(m, in); dec.Phase != PhaseBackingOff {
		t.Fatalf("%+v", dec)
	}
	in.Files.Digest = "b"
	if _, dec := Decide(m, in); dec.Action != Start {
		t.Errorf("another file: %+v", dec)
	}
	in.Files.Digest, in.Policy.Priority = "a", 7
	if _, dec := Decide(m, in); dec.Action != Start {
		t.Errorf("other settings: %+v", dec)
	}
}
