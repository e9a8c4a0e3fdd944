package scenario

import (
	"os"
	"strings"
	"testing"
	"time"

	"ibnetworkd/lab"
	"ibnetworkd/smctl"
)

// Two installed hosts at a switch, each with the one unit that has Manage=auto,
// and a third host that pings both. Exactly one is master. Its worker is killed
// and comes back; it is killed for good, and the other host takes over; that
// host loses its power, and the first takes over again; the dead host comes
// back and is served. The pings never stop for more than 3 s.
// Times are judged: nothing runs beside it.
func TestTwoHosts(t *testing.T) {
	const limit = 3 * time.Second
	names := []string{"a", "b"}
	addr := map[string]string{"a": "192.168.151.1", "b": "192.168.151.2", "c": "192.168.151.3"}
	key := func(phase, node string) string { return phase + "-" + node }

	// The hosts wait at their end for the pinger's word: if it fails they show what they did.
	judged := func(g *lab.G) { g.Await("judged", 120*time.Second) }
	host := func(g *lab.G) {
		defer journal(g)
		me := g.Node()
		g.WaitPort("swib0", 1, "ACTIVE", 90*time.Second)
		part := func() string {
			s := describe(g).SubnetManagers
			if len(s) != 1 {
				return ""
			}
			switch p := s[0]; {
			case p.Phase == smctl.PhaseMaster && p.WorkerState == "active" && g.PortFile("swib0", 1, "sm_lid") == g.PortFile("swib0", 1, "lid"):
				// One that was started again finds the port as the one before left it.
				x := smStatus(g, strings.TrimSuffix(strings.TrimPrefix(p.Worker, "ibnetsm@"), ".service"))
				if x.State != "Master" || x.LastSweep.At.IsZero() {
					return ""
				}
				return "master"
			case p.Phase == smctl.PhaseServed && p.WorkerState != "active":
				return "served"
			}
			return ""
		}
		// rest waits until this host's part is settled and gives the script its number.
		rest := func(phase string) {
			g.Helper()
			role := ""
			g.Wait(phase+": one role", 90*time.Second, func() bool {
				role = part()
				return role != ""
			})
			g.Post(key(phase, me), role)
		}
		// both is rest where the other host settles too, and returns this host's part: each
		// may be master for a moment before they have heard of each other.
		both := func(phase string) string {
			g.Helper()
			role := ""
			g.Wait(phase+": one role for each", 90*time.Second, func() bool {
				role = part()
				g.Post(key(phase+"-now", me), role)
				theirs := g.Posted(key(phase+"-now", other(me)))
				return role == "master" && theirs == "served" || role == "served" && theirs == "master"
			})
			g.Post(key(phase, me), role)
			return role
		}
		if _, err := os.Stat("/labnet/key-reborn"); err == nil {
			g.Await("reborn-up", 60*time.Second)
			rest("back")
			judged(g)
			return
		}
		g.Exec("ibnetctl", "wait-online", "-i", "ib0:routable", "--timeout", "60s")
		g.Post(key("up", me), "")

		g.Await("pinging", 120*time.Second)
		role := both("start")
		worker := smWait(g, "a manager", 20*time.Second, func(s []smctl.Status) bool { return len(s) > 0 })[0].Worker
		g.Await("killed", 60*time.Second)
		if role == "master" {
			pid := mainPID(g, worker)
			g.Exec("systemctl", "kill", "-s", "KILL", worker)
			g.Wait("another process", 20*time.Second, func() bool {
				now := mainPID(g, worker)
				return now != pid && now != "0"
			})
		}
		g.Post(key("killing", me), "")
		g.Await("killing-"+other(me), 60*time.Second)
		role = both("killed")

		g.Await("masked", 60*time.Second)
		if role == "master" {
			g.Exec("systemctl", "mask", "--runtime", worker)
			g.Exec("systemctl", "kill", "-s", "KILL", worker)
			lid := g.PortFile("swib0", 1, "lid")
			took := g.Wait("the other host to take over", 60*time.Second, func() bool { return g.PortFile("swib0", 1, "sm_lid") != lid })
			g.Logf("the other host took over %v after kill -9", took)
			g.Exec("systemctl", "unmask", "--runtime", worker)
		}
		g.Post(key("masking", me), "")
		g.Await("masking-"+other(me), 90*time.Second)
		role = both("masked")

		gone := g.Await("dead", 90*time.Second)
		if gone == me {
			select {} // until the plug is pulled
		}
		took := g.Wait("this host to be master", 90*time.Second, func() bool {
			return g.PortFile("swib0", 1, "lid") == g.PortFile("swib0", 1, "sm_lid")
		})
		g.Logf("%s (%s) is master %v after the master's host died", me, role, took)
		rest("dead")
		g.Await(key("back", gone), 120*time.Second)
		rest("end")
		judged(g)
	}

	pinger := func(g *lab.G) {
		g.WaitPort("swib0", 1, "ACTIVE", 90*time.Second)
		g.Sh("ip addr add %s/24 dev ib0; ip link set ib0 up", addr["c"])
		p := map[string]*lab.Pinging{}
		for _, n := range names {
			g.Await(key("up", n), 120*time.Second)
			g.Ping(addr[n], "-c", "1")
			p[n] = g.Pinging(addr[n], 100*time.Millisecond)
		}
		g.Post("pinging", "")
		check := func(n string) {
			g.Helper()
			sent, lost := p[n].Stop()
			worst := p[n].Silence()
			g.Logf("%s: %d of %d pings were lost, longest silence %v %v", n, lost, sent, worst, p[n].Gaps())
			if worst > limit || sent < 100 {
				g.Errorf("%d pings to %s, which stood still for %v", sent, n, worst)
			}
		}
		dying := g.Await("dying", 240*time.Second)
		check(dying)
		g.Post("dying-seen", "")
		g.Await("over", 240*time.Second)
		check(other(dying))
		// And the one that came back answers again.
		g.Ping(addr[dying], "-c", "1")
		if !g.Failed() {
			g.Post("judged", "")
		}
	}

	conf := func(name string) lab.Config {
		unit := strings.Replace(auto, "192.168.151.1", addr[name], 1)
		c := installed(lab.Config{}, map[string]string{"10-ib0.ibnetwork": unit})
		return c
	}
	lab.RunNet(t, lab.Net{
		Cables: []string{"a/1 sw/1", "b/1 sw/2", "c/1 sw/3"},
		Nodes: []lab.Node{
			{Name: "a", Config: conf("a"), Body: host},
			{Name: "b", Config: conf("b"), Body: host},
			{Name: "c", Config: lab.Config{Userland: lab.Debian}, Body: pinger},
			{Name: "sw", Switch: 8},
		},
		Script: func(t *testing.T, r *lab.NetRun) {
			// one reads the roles that both hosts have settled in and gives the master.
			one := func(phase string) string {
				master := ""
				for _, n := range names {
					if r.Await(key(phase, n), 120*time.Second) == "master" {
						if master != "" {
							t.Errorf("%s: two masters", phase)
						}
						master = n
					}
				}
				if master == "" {
					t.Errorf("%s: no master", phase)
				}
				return master
			}
			r.Await("pinging", 150*time.Second)
			first := one("start")
			r.Post("killed", "")
			second := one("killed")
			r.Post("masked", "")
			third := one("masked")
			t.Logf("master: %s at first, %s after kill -9, %s when its worker may not come back", first, second, third)
			if third == second {
				t.Errorf("%s is still master although its worker may not run", third)
			}
			r.Post("dying", third)
			r.Await("dying-seen", 30*time.Second)
			r.Post("dead", third)
			r.Kill(third)
			left := other(third)
			if role := r.Await(key("dead", left), 120*time.Second); role != "master" {
				t.Errorf("%s is %s after the other's death", left, role)
			}
			r.Post("reborn", third)
			r.Boot(third)
			r.Post("reborn-up", "")
			if role := r.Await(key("back", third), 120*time.Second); role != "served" {
				t.Errorf("%s came back and is %s", third, role)
			}
			if role := r.Await(key("end", left), 60*time.Second); role != "master" {
				t.Errorf("%s is %s after the other's return", left, role)
			}
			r.Post("over", "")
		},
	})
}

func other(n string) string {
	if n == "a" {
		return "b"
	}
	return "a"
}
