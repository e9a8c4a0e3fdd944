package smctl

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"ibnetworkd/ib"
)

var t0 = time.Unix(5000, 0)

func port(f func(*Port)) Port {
	p := Port{GUID: 0x0002c903000abcde, IBDev: "mlx5_0", Num: 1, Present: true,
		LinkLayer: ib.LinkLayerInfiniBand, State: ib.PortActive, Phys: ib.PhysLinkUp, LID: 7, SMLID: 7}
	if f != nil {
		f(&p)
	}
	return p
}

func TestDecide(t *testing.T) {
	running := Worker{Unit: "ibnetsm@x.service", State: WorkerActive, Since: t0.Add(-time.Hour),
		StatusText: StatusText{State: SMMaster, Known: true}}
	silent := running // as opensm
	silent.StatusText = StatusText{}
	idle := Worker{Unit: "ibnetsm@x.service"}
	initPort := port(func(p *Port) { p.State, p.LID, p.SMLID = ib.PortInit, 0, 0 })
	foreign := port(func(p *Port) { p.SMLID = 3 })
	long := Memory{LonelySince: t0.Add(-time.Hour)}
	master := SMInfo{GUID: 0x1, LID: 3, Priority: 9, State: SMMaster}
	lid := func(age time.Duration, sms ...SMInfo) Answer {
		return Answer{Question: AskLID, At: t0.Add(-age), LID: 3, SMs: sms}
	}
	walk := func(age time.Duration, sms ...SMInfo) Answer {
		return Answer{Question: AskWalk, At: t0.Add(-age), SMs: sms}
	}
	always := autoPolicy
	always.Manage, always.StopWhenForeignMaster = ManageAlways, false
	low := autoPolicy
	low.Priority = 15
	hand := func(w Worker, h Override) Worker { w.Override = h; return w }
	stale := func(w Worker) Worker { w.Change = ChangeRestart; return w }

	tests := []struct {
		name   string
		mem    Memory
		pol    Policy
		port   Port
		ans    Answer
		worker Worker
		host   time.Time
		want   Action
		phase  Phase
		words  string
	}{
		{"OK no unit", Memory{}, Policy{}, initPort, Answer{}, idle, time.Time{}, Wait, PhaseOff, "no unit"},
		{"OK unit removed while running", Memory{UnitGoneSince: t0.Add(-UnitGrace)}, Policy{}, port(nil), Answer{}, running,
			time.Time{}, Stop, PhaseStopping, "any more"},
		{"OK unit away for a moment", Memory{}, Policy{}, port(nil), Answer{}, running, time.Time{}, Wait, PhaseMaster, "if that lasts"},
		{"OK Manage=no stops it", Memory{}, Policy{Unit: "a.ibnetwork"}, port(nil), Answer{}, running, time.Time{}, Stop,
			PhaseStopping, "a.ibnetwork has Manage=no"},
		{"OK port gone", Memory{}, autoPolicy, Port{GUID: 1}, Answer{}, running, time.Time{}, Stop, PhaseStopping, "gone"},
		{"OK port type changed", Memory{}, autoPolicy, port(func(p *Port) { p.LinkLayer = ib.LinkLayerEthernet }), Answer{},
			running, time.Time{}, Stop, PhaseStopping, "Ethernet"},
		{"OK newly Initializing waits", Memory{}, autoPolicy, initPort, Answer{}, idle, time.Time{}, Wait, PhaseSettling, "searched in"},
		{"OK long Initializing asks", long, autoPolicy, initPort, Answer{}, idle, time.Time{}, Ask, PhaseAsking, "no subnet manager"},
		{"OK nobody there starts", long, autoPolicy, initPort, walk(0), idle, time.Time{}, Start, PhaseStarting, "Initializing"},
		{"OK stale answer asks again", long, autoPolicy, initPort, walk(2 * time.Second), idle, time.Time{}, Ask, PhaseAsking, ""},
		{"OK master there that does not serve", long, autoPolicy, initPort, walk(0, master), idle, time.Time{}, Wait,
			PhaseUnserved, "has not configured"},
		{"OK standby there gets time", Memory{LonelySince: t0.Add(-7 * time.Second)}, autoPolicy, initPort,
			walk(0, SMInfo{GUID: 1, State: SMStandby}), idle, time.Time{}, Wait, PhaseUnserved, "may become"},
		{"OK standby that never becomes master", long, autoPolicy, initPort, walk(0, SMInfo{GUID: 1, State: SMStandby}), idle,
			time.Time{}, Start, PhaseStarting, "did not become"},
		{"OK inactive one does not count", long, autoPolicy, initPort, walk(0, SMInfo{GUID: 1, State: SMNotActive}), idle,
			time.Time{}, Start, PhaseStarting, ""},
		{"OK no umad", long, autoPolicy, initPort, Answer{Question: AskWalk, At: t0, Err: "ib_umad is not loaded"}, idle,
			time.Time{}, Wait, PhaseBlocked, "ib_umad is not loaded"},
		{"OK another port just started", long, autoPolicy, initPort, walk(0), idle, t0.Add(-time.Second), Wait, PhaseSettling,
			"another port"},
		{"OK opensm on this port is asked", long, autoPolicy, port(func(p *Port) { p.IsSM = true }), Answer{}, idle, time.Time{},
			Ask, PhaseAsking, "another subnet manager runs"},
		{"OK opensm on this port has not configured it", long, always,
			port(func(p *Port) {
				p.IsSM, p.State, p.LID, p.SMLID = true, ib.PortInit, 0, 0
			}), Answer{}, idle, time.Time{}, Wait, PhaseUnserved, "has not configured it"},
		{"OK opensm on this port is master", long, autoPolicy, port(func(p *Port) { p.IsSM, p.SMLID = true, 3 }), lid(0, master),
			idle, time.Time{}, Wait, PhaseServed, "serves port"},
		{"OK opensm on this port does not answer", long, always, port(func(p *Port) { p.IsSM, p.SMLID = true, 3 }), lid(0), idle,
			time.Time{}, Wait, PhaseUnserved, "no master answers"},
		{"OK cable out", Memory{}, autoPolicy, port(func(p *Port) { p.State, p.Phys = ib.PortDown, ib.PhysPolling }), Answer{},
			idle, time.Time{}, Wait, PhaseNoLink, "no cable"},
		{"OK served is asked", Memory{}, autoPolicy, foreign, Answer{}, idle, time.Time{}, Ask, PhaseServed,
			"querying the subnet manager at LID 3"},
		{"OK served", Memory{}, autoPolicy, foreign, lid(0, master), idle, time.Time{}, Wait, PhaseServed, "serves"},
		{"OK one silence is no death", Memory{}, autoPolicy, foreign, lid(0), idle, time.Time{}, Wait, PhaseSettling, "1 of 3"},
		{"OK dead one: walk first", Memory{SilentLID: 3, SilentSince: t0.Add(-time.Minute), Silences: 3}, autoPolicy, foreign,
			lid(0), idle, time.Time{}, Ask, PhaseAsking, "dead"},
		{"OK dead one: start", Memory{SilentLID: 3, SilentSince: t0.Add(-time.Minute), Silences: 3}, autoPolicy, foreign,
			walk(0), idle, time.Time{}, Start, PhaseStarting, "LID 3 is dead"},
		{"OK dead one, another master", Memory{SilentLID: 3, SilentSince: t0.Add(-time.Minute), Silences: 3}, autoPolicy,
			foreign, walk(0, SMInfo{GUID: 5, LID: 9, State: SMMaster}), idle, time.Time{}, Wait, PhaseUnserved, ""},
		{"OK always starts at once", Memory{}, always, initPort, Answer{}, idle, time.Time{}, Start, PhaseStarting, "Manage=always"},
		{"OK always with a master", Memory{}, always, foreign, lid(0, master), running, time.Time{}, Wait, PhaseStandby,
			"stays as standby"},
		{"OK master", Memory{}, autoPolicy, port(nil), Answer{}, running, time.Time{}, Wait, PhaseMaster,
			"the local subnet manager is master"},
		{"OK no word yet", Memory{}, autoPolicy, port(func(p *Port) { p.State, p.LID, p.SMLID = ib.PortInit, 0, 0 }), Answer{},
			silent, time.Time{}, Wait, PhaseRunning, "is not master yet"},
		{"OK no word: it is asked", Memory{}, autoPolicy, port(nil), Answer{}, silent, time.Time{}, Ask, PhaseRunning, "querying"},
		{"OK no word: it does not answer", Memory{}, autoPolicy, port(nil), Answer{Question: AskLID, At: t0, LID: 7}, silent,
			time.Time{}, Wait, PhaseRunning, "is not master yet"},
		{"OK no word: it answers", Memory{}, autoPolicy, port(nil),
			Answer{Question: AskLID, At: t0, LID: 7,
				SMs: []SMInfo{{GUID: 0x0002c903000abcde, LID: 7,
					State: SMMaster}}}, silent, time.Time{}, Wait, PhaseMaster, "the local subnet manager is master"},
		{"OK foreign master, not yet", Memory{}, autoPolicy, foreign, lid(0, master), running, time.Time{}, Wait, PhaseStandby,
			"stopped if that lasts"},
		{"OK foreign master held", Memory{Other: 1, OtherSince: t0.Add(-31 * time.Second)}, autoPolicy, foreign,
			lid(0, master), running, time.Time{}, Stop, PhaseStopping, "has been master"},
		{"OK foreign master of lower rank that stays", Memory{Other: 1, OtherSince: t0.Add(-time.Hour)}, low, foreign,
			lid(0, master), running, time.Time{}, Stop, PhaseStopping, "does not hand over"},
		{"OK master that has let go", Memory{}, autoPolicy, foreign, lid(0, SMInfo{GUID: 1, LID: 3, State: SMStandby}), running,
			time.Time{}, Wait, PhaseStandby, "log of ibnetsm@x.service and check the M_Key"},
		{"OK lost answer of the foreign master", Memory{Other: 1, OtherSince: t0.Add(-time.Minute)}, autoPolicy, foreign,
			lid(0), running, time.Time{}, Wait, PhaseStandby, "1 of 3"},
		{"OK foreign master of lower rank", Memory{Other: 1, OtherSince: t0.Add(-time.Minute)}, low, foreign, lid(0, master),
			running, time.Time{}, Wait, PhaseStandby, "outranks it"},
		{"OK by hand stays", Memory{Other: 1, OtherSince: t0.Add(-time.Hour)}, autoPolicy, foreign, lid(0, master),
			hand(running, OverrideStart), time.Time{}, Wait, PhaseStandby, "by hand"},
		{"OK by hand needs no unit", Memory{}, Policy{}, port(nil), Answer{}, hand(idle, OverrideStart), time.Time{}, Start,
			PhaseStarting, "by hand"},
		{"OK stopped by hand", long, autoPolicy, initPort, walk(0), hand(idle, OverrideStop), time.Time{}, Wait, PhaseStopped, "by hand"},
		{"OK stop by hand", Memory{}, autoPolicy, port(nil), Answer{}, hand(running, OverrideStop), time.Time{}, Stop, PhaseStopping,
			"by hand"},
		{"OK a start is not repeated", Memory{StartedAt: t0.Add(-time.Second), LonelySince: long.LonelySince}, autoPolicy,
			initPort, walk(0), idle, time.Time{}, Wait, PhaseStarting, "being started"},
		{"OK failed backs off", long, autoPolicy, initPort, walk(0),
			Worker{Unit: "u", State: WorkerFailed, Since: t0,
				Result: "exit status 1"}, time.Time{}, Wait, PhaseBackingOff, "u failed (exit status 1); attempt 2"},
		{"OK refused QP0 is no failure of the program", long, autoPolicy, initPort, walk(0),
			Worker{Unit: "u", State: WorkerFailed, Since: t0, Refused: true,
				Result: "port mlx5_0/1 refuses QP0"}, time.Time{}, Wait, PhaseNoQP0, "mlx5_0/1 refuses QP0; will retry"},
		{"OK failed long ago", Memory{LonelySince: long.LonelySince, Failures: 1, FailedAt: t0.Add(-time.Minute)}, autoPolicy,
			initPort, walk(0), Worker{Unit: "u", State: WorkerFailed,
				Since: t0.Add(-time.Minute)}, time.Time{}, Start, PhaseStarting, ""},
		{"OK own port's master is gone", Memory{SilentLID: 7, SilentSince: t0.Add(-time.Minute)}, autoPolicy, port(nil), walk(0),
			idle, time.Time{}, Start, PhaseStarting, "dead"},
		{"OK settings changed", Memory{}, autoPolicy, port(nil), Answer{}, stale(running), time.Time{}, Stop, PhaseStopping,
			"have changed"},
		{"OK settings changed, started again", Memory{Again: true}, autoPolicy, port(func(p *Port) { p.IsSM = true }), Answer{},
			idle, time.Time{}, Start, PhaseStarting, "have changed"},
		{"OK link down for long", Memory{DownSince: t0.Add(-time.Hour)}, autoPolicy,
			port(func(p *Port) {
				p.State, p.Phys = ib.PortDown, ib.PhysPolling
			}), Answer{}, running, time.Time{}, Stop, PhaseStopping, "no link"},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			in := Input{Now: t0, Policy: tc.pol, Port: tc.port, Answer: tc.ans, Worker: tc.worker, HostStart: tc.host}
			_, dec := Decide(tc.mem, in)
			if dec.Action != tc.want || dec.Phase != tc.phase || !strings.Contains(dec.Reason, tc.words) {
				t.Errorf("got %v %s %q, want %v %s %q", dec.Action, dec.Phase, dec.Reason, tc.want, tc.phase, tc.words)
			}
		})
	}
}

func TestSpread(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 3))
	const n, window = 10000, 3 * time.Second
	early := 0
	for range n {
		d := spread(ib.GUID(r.Uint64()), window)
		if d < 0 || d >= window {
			t.Fatalf("Spread gave %v of %v", d, window)
		}
		if d < window/10 {
			early++
		}
	}
	if early > n/300 {
		t.Errorf("%d of %d ports in the first tenth", early, n)
	}
	if spread(1, 0) != 0 {
		t.Error("a window of 0 has a spread")
	}
}

// Decide must be total: any inputs give an action, words, and no wait for the
// past.
func FuzzDecide(f *testing.F) {
	f.Add(uint64(1), uint64(2))
	f.Fuzz(func(t *testing.T, a, b uint64) {
		r := rand.New(rand.NewPCG(a, b))
		when := func() time.Time {
			if r.IntN(3) == 0 {
				return time.Time{}
			}
			return t0.Add(time.Duration(r.Int64N(int64(4*time.Minute))) - 3*time.Minute)
		}
		var m Memory
		for range 40 {
			in := Input{Now: t0, HostStart: when(),
				Policy: Policy{Manage: Manage(r.IntN(3)), StartDelay: time.Duration(r.IntN(5)) * time.Second,
					StopDelay: time.Duration(r.IntN(60)) * time.Second, Priority: uint8(r.IntN(16)), StopWhenForeignMaster: r.IntN(2) == 0},
				Port: Port{GUID: ib.GUID(r.IntN(3)), Present: r.IntN(5) > 0, LinkLayer: ib.LinkLayer(r.IntN(3)),
					State: ib.PortState(r.IntN(6)), Phys: ib.PhysState(r.IntN(8)),
					LID: ib.LID(r.IntN(3)), SMLID: ib.LID(r.IntN(3)), IsSM: r.IntN(4) == 0, Barred: Bar(max(r.IntN(14)-7, 0))},
				Files:  Files{Problem: []string{"", "a.conf:1:2: no"}[r.IntN(2)], Digest: []string{"", "x"}[r.IntN(2)]},
				Answer: Answer{Question: Question(r.IntN(3)), At: when(), LID: ib.LID(r.IntN(3))},
				Worker: Worker{State: WorkerState(r.IntN(5)), Since: when(), Override: Override(r.IntN(3)), Change: Change(r.IntN(3)),
					StatusText: StatusText{State: SMState(r.IntN(4)), Known: r.IntN(2) == 0}}}
			if r.IntN(2) == 0 {
				in.Answer.SMs = []SMInfo{{GUID: ib.GUID(r.IntN(3)), Priority: uint8(r.IntN(16)), State: SMState(r.IntN(4))}}
			}
			var dec Decision
			m, dec = Decide(m, in)
			if dec.Reason == "" || dec.Phase == "" || dec.Action == Ask && dec.Question == AskNothing {
				t.Fatalf("%+v -> %+v", in, dec)
			}
			if dec.Action == Wait && !dec.Until.IsZero() && !dec.Until.After(in.Now) {
				t.Fatalf("waits for the past: %+v -> %+v", in, dec)
			}
			if (in.Port.Barred.forbids() || in.Port.Barred != BarNone && in.Worker.State != WorkerActive) &&
				(dec.Action == Start || dec.Action == Ask || dec.Action == Reload) {
				t.Fatalf("on a port that is barred: %+v -> %+v", in, dec)
			}
			if !in.Port.Barred.forbids() && in.Port.Barred != BarNone && dec.Action == Stop && m.Again {
				t.Fatalf("stopped to be started again on a port where it cannot be: %+v -> %+v", in, dec)
			}
			if in.Files.Problem != "" && dec.Action == Stop && strings.Contains(dec.Reason, "settings") {
				t.Fatalf("a bad file stops what works: %+v -> %+v", in, dec)
			}
			if dec.Action == Start && (in.Worker.State == WorkerActive || in.Worker.State == WorkerActivating) ||
				dec.Action == Stop && in.Worker.State != WorkerActive {
				t.Fatalf("%+v -> %+v", in, dec)
			}
		}
	})
}
