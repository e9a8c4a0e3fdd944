package scenario

import (
	"strings"
	"testing"
	"time"

	"ibnetworkd/lab"
	"ibnetworkd/smctl"
)

// The delays of a subnet manager on demand are minutes where people set them: ours
// starts when the fabric has had none for a minute, and when a better one has been
// master for 5 minutes it goes. The guest's clock jumps, so that the waiting takes
// no time.
func TestTimeTravelDelays(t *testing.T) {
	t.Parallel()
	const start, stop = time.Minute, 5 * time.Minute
	unit := strings.NewReplacer("StartDelaySec=1", "StartDelaySec=1min", "StopDelaySec=5", "StopDelaySec=5min").Replace(auto)
	c := installed(lab.Config{TimeTravel: true}, map[string]string{"10-ib0.ibnetwork": unit})
	lab.Run(t, c, func(g *lab.G) {
		defer journal(g)
		between := func(what string, at, least, most time.Duration) {
			g.Helper()
			g.Logf("%s after %v", what, at)
			if at < least || at > most {
				g.Errorf("%s after %v, want %v to %v", what, at, least, most)
			}
		}
		active := func() bool {
			out, _ := g.Try("systemctl", "is-active", "ibnetsm@*")
			return strings.HasPrefix(out, "active")
		}
		// Which of several hosts is first depends on its GUID: up to as long again.
		g.WaitPort("swib0", 1, "ACTIVE", 3*start)
		between("the ports are Active", lab.Uptime(), start, 2*start+10*time.Second)
		smWait(g, "ours to be master", time.Minute, func(s []smctl.Status) bool { return strings.Contains(phases(s), "swib0/1 master active") })

		g.SM(lab.SM{Dev: "swib1", Args: []string{"--priority=15"}})
		g.Wait("the other to be master", 5*time.Minute, func() bool {
			return masterOf(g, "swib0") == strings.TrimSpace(g.PortFile("swib1", 1, "lid"))
		})
		began := time.Now()
		time.Sleep(stop - 30*time.Second)
		if !active() {
			g.Errorf("ours is stopped after less than %v", stop-30*time.Second)
		}
		g.Wait("ours to be stopped", 2*time.Minute, func() bool {
			time.Sleep(time.Second) // asking costs a process, sleeping nothing
			return !active()
		})
		between("ours is stopped", time.Since(began), stop, stop+15*time.Second)
		if s := describe(g).SubnetManagers; !strings.HasPrefix(phases(s), "swib0/1 served inactive") {
			g.Errorf("the daemon says %s", phases(s))
		}
	})
}
