package worker

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"ibnetworkd/sm/transport"
	"ibnetworkd/smctl"
)

func TestStartRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.units.broken = errors.New("systemd: Unit ibnetsm@.service not found")
		b.boot()
		s := b.wait(5 * time.Second)
		b.want(s, smctl.PhaseBackingOff, 0, 0)
		if !strings.Contains(s.Reason, "not found") {
			t.Errorf("reason %q", s.Reason)
		}
		b.kill()
	})
}

// A reload that fails is retried, also where the unit names no files.
func TestReloadFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.lead()
		b.units.change(func() { b.units.deaf = errors.New("systemd: no") })
		b.port.Policy.Partitions = "0x8001 Name=a\n"
		b.c.Update([]Port{b.port})
		b.want(b.wait(time.Second), smctl.PhaseMaster, 1, 0)
		b.units.change(func() { b.units.deaf = nil })
		b.want(b.wait(time.Minute), smctl.PhaseMaster, 1, 0)
		if b.units.reloads != 1 {
			t.Errorf("%d reloads once they are possible", b.units.reloads)
		}
		b.kill()
	})
}

// A question that is refused QP0 while the worker runs stops nothing; one before it was
// started stays until another is answered.
func TestRefusedQuestion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		refuse := func(b *bench, err error) {
			b.air.mu.Lock()
			defer b.air.mu.Unlock()
			b.air.err = err
		}
		no := fmt.Errorf("port swib0/1 refuses QP0: %w", transport.ErrNoQP0)
		b := newBench(t)
		b.lead()
		b.active(1, 7)
		refuse(b, no)
		b.want(b.wait(time.Minute), smctl.PhaseStandby, 1, 0)
		b.kill()

		b = newBench(t)
		refuse(b, no)
		b.boot()
		b.want(b.wait(10*time.Second), smctl.PhaseNoQP0, 0, 0)
		b.mu.Lock()
		pubs := b.pubs
		b.mu.Unlock()
		b.want(b.wait(30*time.Minute), smctl.PhaseNoQP0, 0, 0)
		if b.mu.Lock(); b.pubs != pubs {
			t.Errorf("%d changes of status in half an hour", b.pubs-pubs)
		}
		b.mu.Unlock()
		refuse(b, nil)
		b.wait(30 * time.Minute)
		if starts, _ := b.units.counts(); starts != 1 {
			t.Errorf("%d starts once QP0 is there", starts)
		}
		b.kill()
	})
}

// A port on which the worker is refused QP0 has one phase, whatever is asked or fails
// meanwhile, until a question gets through.
func TestRefusedStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.port.Policy.Manage = smctl.ManageAlways
		air := func(err error) {
			b.air.mu.Lock()
			defer b.air.mu.Unlock()
			b.air.err = err
		}
		air(fmt.Errorf("port swib0/1 refuses QP0: %w", transport.ErrNoQP0))
		b.boot()
		b.wait(5 * time.Second)
		const unit = "ibnetsm@0x0002c903000abcde.service"
		b.units.change(func() {
			b.units.state[unit] = State{State: smctl.WorkerFailed, Since: time.Now(), Wall: time.Now(), Result: "exit status 4",
				Refused: true}
			b.units.changes <- unit
		})
		b.want(b.wait(time.Second), smctl.PhaseNoQP0, 1, 0)
		b.mu.Lock()
		pubs := b.pubs
		b.mu.Unlock()
		b.wait(10 * time.Minute)
		air(errors.New("device or resource busy"))
		b.want(b.wait(time.Hour), smctl.PhaseNoQP0, 1, 0)
		if b.mu.Lock(); b.pubs != pubs {
			t.Errorf("%d changes of status", b.pubs-pubs)
		}
		b.mu.Unlock()
		air(nil)
		b.wait(30 * time.Minute)
		if starts, _ := b.units.counts(); starts != 2 {
			t.Errorf("%d starts once QP0 is there", starts)
		}
		b.kill()
	})
}

// A start by hand on a port that is barred, or whose bar cannot be read, is refused
// with the reason and is not remembered.
func TestRefusedByHand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for say, set := range map[string]func(b *bench){
			"cannot be read":    func(b *bench) { b.vpd = errors.New("input/output error") },
			"manages the NVSwi": func(b *bench) { b.bar = smctl.BarNVSwitch },
			"IsSMDisabled":      func(b *bench) { b.port.Barred = smctl.BarSMDisabled },
		} {
			b := newBench(t)
			set(b)
			b.boot()
			b.wait(time.Second)
			if err := b.c.Start(t.Context(), "swib0", 1); err == nil || !strings.Contains(err.Error(), say) {
				t.Errorf("%s: %v", say, err)
			}
			b.wait(time.Minute)
			if starts, _ := b.units.counts(); starts > 0 || b.keep.Load(guid1).Override != smctl.OverrideNone {
				t.Errorf("%s: %d starts, remembered %v", say, starts, b.keep.Load(guid1).Override)
			}
			b.kill()
		}
	})
}

// A worker that could not be stopped is not taken for one that has failed.
func TestStopRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.lead()
		b.units.change(func() { b.units.stuck = errors.New("systemd: no") })
		if err := b.c.Stop(context.Background(), "swib0", 1); err != nil {
			t.Fatal(err)
		}
		if s := b.wait(time.Second); s.Phase != smctl.PhaseBlocked || !strings.Contains(s.Reason, "systemd: no") {
			t.Errorf("%s: %s", s.Phase, s.Reason)
		}
		b.wait(20 * time.Second)
		if starts, stops := b.units.counts(); starts != 1 || stops < 3 {
			t.Errorf("%d starts, %d stops", starts, stops)
		}
		b.units.change(func() { b.units.stuck = nil })
		if s := b.wait(20 * time.Second); s.Phase != smctl.PhaseStopped {
			t.Errorf("%s: %s", s.Phase, s.Reason)
		}
		b.kill()
	})
}

// A file that becomes bad, and settings that name a bad one, do not affect the
// worker; once they are good it is reloaded. A changed setting is a reload too, but
// not together with a bad file.
func TestBadFileStopsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.port.Policy.PartitionsFile = "/etc/p.conf"
		b.files = smctl.Files{Digest: "good"}
		b.lead()
		reloads := func(want int) {
			t.Helper()
			b.units.mu.Lock()
			defer b.units.mu.Unlock()
			if b.units.reloads != want {
				t.Errorf("%d reloads, want %d", b.units.reloads, want)
			}
		}
		b.file(smctl.Files{Digest: "bad", Problem: "/etc/p.conf:2:9: no number"})
		s := b.wait(time.Minute)
		b.want(s, smctl.PhaseMaster, 1, 0)
		if reloads(0); !strings.Contains(s.Reason, "/etc/p.conf:2:9: no number") || s.FileProblem == "" {
			t.Errorf("%+v", s)
		}
		// Another priority waits for the file.
		b.port.Policy.Priority = 9
		b.c.Update([]Port{b.port})
		b.want(b.wait(time.Minute), smctl.PhaseMaster, 1, 0)
		b.port.Policy.Priority = 3
		b.c.Update([]Port{b.port})
		b.file(smctl.Files{Digest: "other"})
		b.want(b.wait(time.Second), smctl.PhaseMaster, 1, 0)
		reloads(1)
		// Another file of that kind, and another rule.
		b.port.Policy.PartitionsFile, b.port.Policy.Partitions = "/etc/q.conf", "0x8001\n"
		b.c.Update([]Port{b.port})
		b.want(b.wait(time.Second), smctl.PhaseMaster, 1, 0)
		reloads(2)
		// A daemon that starts again does not reload for nothing.
		b.kill()
		b.boot()
		b.want(b.wait(time.Minute), smctl.PhaseMaster, 1, 0)
		reloads(2)
		b.port.Policy.Priority = 9
		b.c.Update([]Port{b.port})
		b.want(b.wait(5*time.Second), smctl.PhaseMaster, 1, 0)
		reloads(3)
		b.kill()
	})
}

// Files that cannot be read within the time do not end the back-off: they are not known
// to have changed.
func TestSlowFilesAreNoEdit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.port.Policy.PartitionsFile = "/srv/p.conf"
		b.files = smctl.Files{Digest: "good"}
		b.units.crash = true
		b.boot()
		b.wait(time.Minute)
		before, _ := b.units.counts()
		for range 12 {
			b.fmu.Lock()
			b.slow = 15 * time.Second
			b.fmu.Unlock()
			b.c.Reread()
			b.wait(12 * time.Second)
			b.fmu.Lock()
			b.slow = 0
			b.fmu.Unlock()
			b.c.Reread()
			b.wait(12 * time.Second)
		}
		if n, _ := b.units.counts(); n-before > 4 {
			t.Errorf("%d starts in 5 minutes", n-before)
		}
		b.wait(time.Minute) // what still reads ends
		b.kill()
	})
}

// An edit ends the back-off, and a start with a bad file is a start.
func TestEditIsTriedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.port.Policy.PartitionsFile = "/etc/p.conf"
		b.files = smctl.Files{Digest: "bad", Problem: "/etc/p.conf: no such file"}
		b.units.crash = true
		b.boot()
		b.wait(3 * time.Minute)
		n, _ := b.units.counts()
		if n < 2 {
			t.Fatalf("%d starts", n)
		}
		b.units.change(func() { b.units.crash = false })
		b.file(smctl.Files{Digest: "good"})
		b.wait(2 * time.Second)
		if m, _ := b.units.counts(); m != n+1 {
			t.Errorf("%d starts within 2 s of the edit", m-n)
		}
		b.kill()
	})
}
