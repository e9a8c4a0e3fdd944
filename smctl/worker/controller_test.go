package worker

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/fstest"
	"testing/synctest"
	"time"

	"ibnetworkd/ib"
	"ibnetworkd/internal/testkit"
	"ibnetworkd/smctl"
	"ibnetworkd/units"
)

func TestStartedOnceOverRestarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.boot()
		b.want(b.wait(time.Second), smctl.PhaseSettling, 0, 0)
		b.wait(4 * time.Second)
		b.active(1, 1)
		s := b.wait(time.Second)
		b.want(s, smctl.PhaseMaster, 1, 0)
		if s.Worker != "ibnetsm@0x0002c903000abcde.service" || s.WorkerState != "active" || b.units.policy.Priority != 3 {
			t.Errorf("%+v, policy %+v", s, b.units.policy)
		}
		for range 3 { // kill -9 of the daemon
			b.kill()
			b.boot()
			b.want(b.wait(30*time.Second), smctl.PhaseMaster, 1, 0)
		}
		// daemon-reload and a bus that comes and goes
		for range 5 {
			b.units.changes <- ""
		}
		b.units.change(func() { b.units.down = true })
		b.units.changes <- ""
		b.want(b.wait(7*time.Second), smctl.PhaseBlocked, 1, 0)
		b.units.change(func() { b.units.down = false })
		b.units.changes <- ""
		b.want(b.wait(10*time.Second), smctl.PhaseMaster, 1, 0)
		b.kill()
	})
}

// On a host without systemd a port that no unit asks for is off, and one that is gone is
// forgotten. Whether one of a former daemon runs is not known.
func TestWithoutSystemd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.units.down = true
		asks := b.port.Policy
		b.port.Policy = smctl.Policy{}
		b.boot()
		s := b.wait(time.Second)
		b.want(s, smctl.PhaseOff, 0, 0)
		if s.Reason != "no unit with a [SubnetManager] section matches swib0/1" || s.WorkerState != "" {
			t.Errorf("%+v", s)
		}
		b.port.Policy = asks
		b.c.Update([]Port{b.port})
		s = b.wait(time.Minute)
		b.want(s, smctl.PhaseBlocked, 0, 0)
		if want := "it is not known whether " + s.Worker + " runs: " + ErrNoSystemd.Error(); s.Reason != want || s.WorkerState != "" {
			t.Errorf("%+v", s)
		}
		b.c.Update(nil)
		if all := b.published(time.Second); len(all) != 0 {
			t.Errorf("a port that is gone: %+v", all)
		}
		b.c.Update([]Port{b.port})
		b.units.change(func() { b.units.down = false })
		b.units.changes <- ""
		b.want(b.wait(5*time.Second), smctl.PhaseMaster, 1, 0)
		b.kill()

		b.units.change(func() { b.units.down = true })
		b.port.Policy = smctl.Policy{}
		b.boot()
		b.want(b.wait(time.Second), smctl.PhaseBlocked, 1, 0)
		b.units.change(func() { b.units.down = false })
		b.units.changes <- ""
		b.want(b.wait(10*time.Second), smctl.PhaseOff, 1, 1)
		b.kill()
	})
}

func TestWorkerDiesAndComesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.units.crash = true
		b.boot()
		s := b.wait(5 * time.Second)
		b.want(s, smctl.PhaseBackingOff, 1, 0)
		if !strings.Contains(s.Reason, "exit status 1") {
			t.Errorf("reason %q", s.Reason)
		}
		b.wait(60 * time.Second)
		if n, _ := b.units.counts(); n < 3 || n > 5 {
			t.Errorf("%d starts in a minute", n)
		}
		b.units.change(func() { b.units.crash = false })
		b.wait(2 * time.Minute)
		b.active(1, 1)
		if s := b.wait(time.Second); s.Phase != smctl.PhaseMaster {
			t.Errorf("%s: %s", s.Phase, s.Reason)
		}
		b.kill()
	})
}

func TestYieldsAndTakesOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.lead()
		foreign := smctl.SMInfo{GUID: 9, LID: 7, Priority: 14, State: smctl.SMMaster}
		b.air.set(foreign)
		b.active(1, 7)
		s := b.wait(5 * time.Second)
		b.want(s, smctl.PhaseStandby, 1, 0)
		if s.Master == nil || s.Master.Priority != 14 {
			t.Errorf("master %+v", s.Master)
		}
		b.want(b.wait(20*time.Second), smctl.PhaseServed, 1, 1)
		b.air.set()
		b.wait(20 * time.Second)
		b.active(1, 1)
		b.want(b.wait(time.Second), smctl.PhaseMaster, 2, 1)
		b.kill()
	})
}

func TestByHand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.lead()
		ctx := context.Background()
		testkit.NoError(t, b.c.Stop(ctx, "swib0", 1))
		b.want(b.wait(time.Minute), smctl.PhaseStopped, 1, 1)
		b.kill()
		b.boot() // remembered
		b.want(b.wait(time.Minute), smctl.PhaseStopped, 1, 1)
		testkit.NoError(t, b.c.Start(ctx, "swib0", 1))
		b.wait(20 * time.Second)
		if n, _ := b.units.counts(); n != 2 {
			t.Errorf("%d starts after it was given back", n)
		}
		if err := b.c.Start(ctx, "swib9", 1); err == nil {
			t.Error("a port that is not there was started")
		}
		// Without a unit: by hand only.
		b.port.Policy = smctl.Policy{}
		b.c.Update([]Port{b.port})
		b.want(b.wait(smctl.UnitGrace+time.Second), smctl.PhaseOff, 2, 2)
		testkit.NoError(t, b.c.Start(ctx, "swib0", 1))
		b.want(b.wait(time.Minute), smctl.PhaseMaster, 3, 2)
		testkit.NoError(t, b.c.Stop(ctx, "swib0", 1))
		b.want(b.wait(time.Minute), smctl.PhaseOff, 3, 3)
		b.kill()
	})
}

// The override ends a second after the fabric was queried: it had no manager then, and
// has another host's now.
func TestGivenBackToAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.boot()
		for i := 0; b.wait(10*time.Millisecond).WorkerState != smctl.WorkerActive.String(); i++ {
			if i == 1000 {
				t.Fatal("ours was not started")
			}
		}
		b.active(1, 1)
		testkit.NoError(t, b.c.Stop(t.Context(), "swib0", 1))
		b.want(b.wait(100*time.Millisecond), smctl.PhaseStopped, 1, 1)
		b.air.set(smctl.SMInfo{GUID: guid1 + 1, LID: 2, Priority: 0, State: smctl.SMMaster})
		b.port.State, b.port.SMLID = ib.PortInit, 2
		b.c.Update([]Port{b.port})
		b.wait(100 * time.Millisecond)
		testkit.NoError(t, b.c.Start(t.Context(), "swib0", 1))
		b.want(b.wait(100*time.Millisecond), smctl.PhaseUnserved, 1, 1)
		b.kill()
	})
}

// The override ends while a query is under way: its answer does not count.
func TestGivenBackWhileAsking(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.air.slow = 3 * time.Second
		b.boot()
		for i := 0; b.wait(10*time.Millisecond).Phase != smctl.PhaseAsking; i++ {
			if i == 1000 {
				t.Fatal("the fabric was not asked")
			}
		}
		testkit.NoError(t, b.c.Stop(t.Context(), "swib0", 1))
		b.want(b.wait(100*time.Millisecond), smctl.PhaseStopped, 0, 0)
		b.air.set(smctl.SMInfo{GUID: guid1 + 1, LID: 2, Priority: 0, State: smctl.SMMaster})
		testkit.NoError(t, b.c.Start(t.Context(), "swib0", 1))
		b.want(b.wait(5*time.Second), smctl.PhaseUnserved, 0, 0)
		b.kill()
	})
}

// slowDisk takes its time for what is saved first.
type slowDisk struct {
	StateStore
	quick *atomic.Bool
}

func (d slowDisk) Save(g ib.GUID, k Saved) error {
	if !d.quick.Swap(true) {
		time.Sleep(time.Second)
	}
	return d.StateStore.Save(g, k)
}

// What a person asks for while a start is under way is not forgotten over it.
func TestByHandWhileStarting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.keep = slowDisk{b.keep, new(atomic.Bool)}
		b.port.Policy.Manage = smctl.ManageAlways
		b.boot()
		b.wait(100 * time.Millisecond)
		testkit.NoError(t, b.c.Stop(context.Background(), "swib0", 1))
		b.want(b.wait(time.Minute), smctl.PhaseStopped, 1, 1)
		if k := b.keep.Load(guid1); k.Override != smctl.OverrideStop {
			t.Errorf("kept is %+v", k)
		}
		b.kill()
	})
}

func TestPortGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.lead()
		b.c.Update(nil)
		if left := b.published(time.Second); len(left) > 0 {
			t.Errorf("a port that has gone is still there: %+v", left)
		}
		if _, stops := b.units.counts(); stops != 1 {
			t.Errorf("%d stops after the device went", stops)
		}
		b.c.Update([]Port{b.port})
		b.wait(30 * time.Second)
		if n, _ := b.units.counts(); n != 2 {
			t.Errorf("%d starts after the device came back", n)
		}
		b.kill()
	})
}

func TestReadOnlyRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.keep = Dir("/proc/nowhere")
		b.boot()
		b.wait(5 * time.Second)
		if n, _ := b.units.counts(); n != 1 {
			t.Errorf("%d starts: default options need no file", n)
		}
		b.kill()
		b = newBench(t)
		b.keep = Dir("/proc/nowhere")
		b.port.Policy.PartitionsFile = "/etc/p.conf"
		b.boot()
		s := b.wait(5 * time.Second)
		b.want(s, smctl.PhaseBackingOff, 0, 0)
		if !strings.Contains(s.Reason, "cannot be written") {
			t.Errorf("reason %q", s.Reason)
		}
		b.kill()
	})
}

// An edited [SubnetManager] section reaches a worker that runs, also when the
// daemon did not run while it was edited.
func TestSettingsChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.lead()
		// ibnetsm reads all its settings again, and a bad key file with them: it runs on.
		b.port.Policy.Priority, b.port.Policy.KeyFile = 7, "/etc/keys"
		b.c.Update([]Port{b.port})
		b.want(b.wait(time.Second), smctl.PhaseMaster, 1, 0)
		if got := b.keep.Load(guid1).Settings; got != smctl.Settings(b.port.Policy) {
			t.Errorf("given %q", got)
		}
		b.want(b.wait(time.Minute), smctl.PhaseMaster, 1, 0)
		b.kill()
		b.port.Policy.Partitions = "0x8001 Name=a\n"
		b.boot()
		b.want(b.wait(time.Second), smctl.PhaseMaster, 1, 0)
		b.kill()
		b.boot()
		b.want(b.wait(time.Minute), smctl.PhaseMaster, 1, 0)
		b.kill()
		if b.units.reloads != 2 {
			t.Errorf("%d reloads for two edits", b.units.reloads)
		}
	})
}

// A master that is gone is named no longer.
func TestMasterIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.air.set(smctl.SMInfo{GUID: 9, LID: 7, Priority: 14, State: smctl.SMMaster})
		b.port.State, b.port.LID, b.port.SMLID = ib.PortActive, 1, 7
		b.boot()
		if s := b.wait(5 * time.Second); s.Master == nil || s.Master.GUID != ib.GUID(9).String() {
			t.Fatalf("%+v", s)
		}
		b.port.Policy.Manage = smctl.ManageNo // no questions from now on
		b.c.Update([]Port{b.port})
		if s := b.wait(time.Minute); s.Master != nil {
			t.Errorf("after a minute without a question: %+v", s.Master)
		}
		b.kill()
	})
}

// Another Engine= ends the former program, whatever started it.
func TestEngineChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.port.Policy.Engine = smctl.EngineOpenSM
		if s := b.lead(); s.Worker != "ibnetsm-opensm-0x0002c903000abcde.service" {
			t.Errorf("worker %s", s.Worker)
		}
		b.port.Policy.Engine = smctl.EngineBuiltin
		b.c.Update([]Port{b.port})
		check := func(starts, stops int, runs, gone string) {
			t.Helper()
			s := b.wait(time.Second)
			b.want(s, smctl.PhaseMaster, starts, stops)
			b.units.mu.Lock()
			defer b.units.mu.Unlock()
			if s.Worker != runs || b.units.state[runs].State != smctl.WorkerActive || b.units.state[gone].State != smctl.WorkerInactive {
				t.Errorf("%s: %+v", s.Worker, b.units.state)
			}
		}
		const builtin, opensm = "ibnetsm@0x0002c903000abcde.service", "ibnetsm-opensm-0x0002c903000abcde.service"
		check(2, 1, builtin, opensm)
		b.kill()
		b.port.Policy.Engine = smctl.EngineOpenSM
		b.boot()
		check(3, 2, opensm, builtin)
		b.kill()

		// The unit was taken away while the daemon did not run.
		b.port.Policy = smctl.Policy{}
		b.boot()
		b.want(b.wait(smctl.UnitGrace+time.Second), smctl.PhaseOff, 3, 3)
		b.kill()
	})
}

// What is kept is read back, whatever is in the settings.
func TestKept(t *testing.T) {
	d := Dir(t.TempDir())
	if k := d.Load(guid1); k != (Saved{}) {
		t.Errorf("nothing was saved, and there is %+v", k)
	}
	for _, k := range []Saved{
		{Settings: smctl.Settings(smctl.Policy{})},
		{Engine: smctl.EngineOpenSM, Settings: smctl.Settings(smctl.Policy{PartitionsFile: `/etc/a "b" \c.conf`,
			Partitions: "0x8001 Name=a\n"}), Files: "abc", Override: smctl.OverrideStop},
	} {
		testkit.NoError(t, d.Save(guid1, k))
		if got := d.Load(guid1); got != k {
			t.Errorf("%+v became %+v", k, got)
		}
	}
}

// Files that are compared only wait until they are read again, whichever request
// comes first, and one that is what it was waits no longer.
func TestCompare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.port.Policy.PartitionsFile, b.port.Policy.NodeNameMap = "/etc/p.conf", "/etc/n.conf"
		was := smctl.Files{Digest: "partitions:text:1 names:text:1"}
		now := smctl.Files{Digest: "partitions:text:2 names:text:1", Problem: "/etc/p.conf:1:1: bad"}
		b.files = was
		b.lead()
		check := func(what string, reloads int, waiting ...string) {
			t.Helper()
			b.wait(2 * time.Second)
			b.mu.Lock()
			defer b.mu.Unlock()
			if !slices.Equal(b.waiting, waiting) || b.units.reloads != reloads || len(waiting) > 0 && b.last[0].FileProblem != "" {
				t.Errorf("%s: waiting %q, want %q; %d reloads, problem %q", what, b.waiting, waiting, b.units.reloads,
					b.last[0].FileProblem)
			}
		}
		put := func(f smctl.Files) {
			b.fmu.Lock()
			defer b.fmu.Unlock()
			b.files = f
		}
		check("the start", 0)
		put(now)
		b.c.Compare()
		check("an edit", 0, "/etc/p.conf")
		put(was)
		b.c.Compare()
		check("an edit taken back", 0)
		now.Problem = ""
		put(now)
		b.c.Compare()
		b.c.Reread()
		check("compared and read again", 1)
		put(was)
		b.c.Reread()
		b.c.Compare()
		check("read again and compared", 2)
		b.kill()
	})
}

// A device that manages NVSwitches, and one whose VPD cannot be read, is never
// queried through, not even by hand.
func TestDeviceOfNVSwitch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.bar = smctl.BarNVSwitch
		b.air.err = errors.New("asked")
		b.boot()
		b.want(b.wait(time.Minute), smctl.PhaseNVSwitch, 0, 0)
		if err := b.c.Start(context.Background(), "swib0", 1); err == nil {
			t.Error("a start by hand is accepted")
		}
		b.want(b.wait(time.Minute), smctl.PhaseNVSwitch, 0, 0)
		b.kill()
		b = newBench(t)
		b.vpd = errors.New("input/output error")
		b.boot()
		b.want(b.wait(time.Minute), smctl.PhaseBlocked, 0, 0)
		b.fmu.Lock()
		b.vpd = nil
		b.fmu.Unlock()
		b.wait(2 * time.Minute)
		if n, _ := b.units.counts(); n != 1 {
			t.Errorf("%d starts once the VPD could be read", n)
		}
		b.kill()
	})
}

// A Partition= line of a unit is one line of the worker's settings.
func TestPartitionLine(t *testing.T) {
	const line = "0x8001 Name=storage  Members=ALL,0x0002c903000abcde=limited MTU=4096 Rate=100Gb/s"
	load := func(text string) *units.Set {
		return units.Load([]units.Root{{Path: "/etc/systemd/network", FS: fstest.MapFS{
			"a.ibnetwork": {Data: []byte("[Match]\nName=ib*\n[SubnetManager]\nManage=auto\n" + text)}}}})
	}
	set := load("Partition=" + line + "\nPartition=2 IPoIB=no\n")
	if len(set.Problems) > 0 {
		t.Fatal(set.Problems)
	}
	got := smctl.Settings(smctl.PolicyOf(set.Units[0]))
	if !strings.Contains(got, "\nPartition="+line+"\n") || !strings.Contains(got, "\nPartition=2 IPoIB=no\n") {
		t.Fatalf("settings %q", got)
	}
	if set = load("Partition=0x8000\n"); len(set.Problems) != 1 {
		t.Errorf("a P_Key that is none: %v", set.Problems)
	}
}
