package scenario

import (
	"fmt"
	"os"
	"syscall"
	"testing"
	"time"

	"ibnetworkd/lab"
)

// opensm and ibnetsm with one priority that start in the same instant, or one a
// moment after the other: the lower GUID, ibnetsm's and opensm's by turns, ends as
// master. Four starts, 48 with IBNET_LONG.
func TestSMSameInstant(t *testing.T) {
	lab.Run(t, lab.Config{Userland: lab.Debian, Bins: smBins, HCAs: 3}, func(g *lab.G) {
		starts := 4
		if os.Getenv("IBNET_LONG") != "" {
			starts = 48
		}
		g.Write("/tmp/opensm.conf", "sminfo_polling_timeout 500\npolling_retry_number 2\n")
		for n := range starts {
			// opensm is slower from its start to its first request.
			their, our := "swib1", "swib0"
			if n%2 == 1 {
				their, our = our, their
			}
			theirs := g.Opensm(lab.SM{Dev: their, NoWait: true, Args: []string{"-p", "5", "-F", "/tmp/opensm.conf"}})
			time.Sleep(time.Duration(n/2%6) * 40 * time.Millisecond)
			ours := startSM(g, our, "--priority=5")
			up := false
			g.Cleanup(func() {
				if !up {
					ours.Signal(syscall.SIGQUIT) // its goroutines tell what it waits for
					_ = ours.Wait(5 * time.Second)
					g.Log(ours.Output())
				}
			})
			t0 := time.Now()
			g.Wait(fmt.Sprintf("start %d: the lower GUID is master, ibnetsm on %s", n, our), 30*time.Second, func() bool {
				return sminfo(g, "swib2", "swib0")+" "+sminfo(g, "swib2", "swib1") == "MASTER STANDBY"
			})
			up = true
			g.Logf("start %d: %v", n, time.Since(t0).Round(time.Millisecond))
			theirs.Kill()
			ours.Signal(syscall.SIGTERM)
			_ = ours.Wait(5 * time.Second)
			// As new: the next start finds ports without LIDs.
			for i := range 3 {
				_, _ = g.Try("sh", "-c", fmt.Sprintf("ibportstate -D -C swib%d 0 1 reset >/dev/null 2>&1 || true", i))
			}
		}
	})
}
