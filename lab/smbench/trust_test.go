package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"ibnetworkd/internal/testkit"
	"ibnetworkd/lab/gen"
	"ibnetworkd/lab/simfabric"
)

// slowStar has SMPs take as long as on a machine with something else to do, so
// that two first sweeps meet.
func slowStar() *simfabric.Sim {
	return simfabric.New(gen.Star(6, 36), simfabric.Options{DelayMin: time.Millisecond, DelayMax: 6 * time.Millisecond})
}

// TestSameInstant starts ibnetsm and opensm with one priority in the same
// instant, and one a little later than the other: the lower GUID, ibnetsm's or
// opensm's, is master in the end. Two starts each, 24 with -long.
func TestSameInstant(t *testing.T) {
	tl := rigTools(t, "opensm")
	starts := 4
	if *long {
		starts = 48
	}
	for n := range starts {
		lower, opensm, ibnetsm := "ibnetsm", "H-00002", "H-00001"
		if n%2 == 1 {
			lower, opensm, ibnetsm = "opensm", ibnetsm, opensm
		}
		t.Run(fmt.Sprint(n, " lower ", lower), func(t *testing.T) {
			r, sim := inProcess(t, tl, slowStar)
			// opensm takes some time from its start to its first sweep.
			mustRun(t, r, "opensm", opensm, 5)
			time.Sleep(150*time.Millisecond + time.Duration(n/2*240/starts)*time.Millisecond)
			mustRun(t, r, "ibnetsm", ibnetsm, 5)
			// The other may write its LID once more before it has read that of the lower
			// GUID. From when that one is master for a second, it stays.
			ours := func() bool { l := followed(sim); return l != 0 && l == lidOf(sim, "H-00001") }
			lost := 0
			since := time.Time{}
			took := until(t, "the lower GUID is master for a second", 30*time.Second, func() bool {
				switch {
				case ours() && since.IsZero():
					since = time.Now()
				case !ours() && !since.IsZero():
					since = time.Time{}
					lost++
				}
				return !since.IsZero() && time.Since(since) > time.Second
			})
			time.Sleep(time.Second)
			if !ours() {
				t.Errorf("ports follow LID %s, the lower GUID is %s", followed(sim), lidOf(sim, "H-00001"))
			}
			t.Logf("after %v, lost %d times", took, lost)
		})
	}
}

// TestKeysBesideOpensm: with one SM_Key the better of ibnetsm and opensm is
// master and hands over; with two keys none hands over, and ibnetsm says what it
// sees.
func TestKeysBesideOpensm(t *testing.T) {
	tl := rigTools(t, "opensm")
	for _, c := range []struct {
		name          string
		ours, theirs  string // SM_Keys
		first, second string
		prio1, prio2  int
		same          bool
	}{
		{"better opensm joins", "0x77", "0x77", "ibnetsm", "opensm", 1, 15, true},
		{"better ibnetsm joins", "0x77", "0x77", "opensm", "ibnetsm", 1, 15, true},
		{"better opensm with the default key joins", "0x77", "0x1", "ibnetsm", "opensm", 1, 15, false},
		{"better opensm with another key joins", "1", "0x77", "ibnetsm", "opensm", 1, 15, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r, sim := inProcess(t, tl, star6)
			conf := filepath.Join(r.dir, "opensm.conf")
			testkit.NoError(t, os.WriteFile(conf, []byte("sm_key "+c.theirs+"\n"), 0o600))
			run := func(kind, host string, prio int) *manager {
				extra := []string{"--sm-key=" + c.ours}
				if kind == "opensm" {
					extra = []string{"-F", conf}
				}
				m, err := r.run(kind, host, prio, true, extra...)
				testkit.NoError(t, err)
				return m
			}
			follows := func(host string) func() bool {
				return func() bool { l := followed(sim); return l != 0 && l == lidOf(sim, host) }
			}
			a := run(c.first, "H-00001", c.prio1)
			until(t, "the first manager is up", 15*time.Second, follows("H-00001"))
			b := run(c.second, "H-00002", c.prio2)
			until(t, "the second manager announces itself", 10*time.Second, func() bool { return sim.FindHost("H-00002")[0].IsSM })
			ours := a
			if c.second == "ibnetsm" {
				ours = b
			}
			log := func() string { l, _ := os.ReadFile(ours.log); return string(l) }
			if c.same {
				until(t, "the better manager is master", 30*time.Second, follows("H-00002"))
				time.Sleep(time.Second)
				if !follows("H-00002")() {
					t.Error("it does not stay so")
				}
				return
			}
			until(t, "ibnetsm reports the other manager", 30*time.Second, func() bool { return strings.Contains(log(), "SM_Key") })
			if strings.Contains(log(), "handing over") {
				t.Errorf("the subnet was handed over:\n%s", log())
			}
		})
	}
}
