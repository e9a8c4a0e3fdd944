package scenario

import (
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"ibnetworkd/daemon/bus/api"
	"ibnetworkd/lab"
	"ibnetworkd/smctl"
)

const (
	// binDir is where the lab puts programs.
	binDir = "/lab/bin"
)

// installed is a guest with everything in place that the package installs, and with
// these units of ours.
func installed(c lab.Config, units map[string]string) lab.Config {
	c.Userland = lab.Systemd
	c.Installed = true
	c.Units = append(c.Units, "ibnetworkd.service", "ibnetworkd-wait-online.service", "network-online.target")
	files := map[string]string{}
	for n, text := range units {
		files[unitDir+n] = text
	}
	maps.Copy(files, c.Files)
	c.Files = files
	return c
}

// describe is what ibnetctl says of everything.
func describe(g *lab.G) api.Description {
	g.Helper()
	var d api.Description
	out, err := g.Try("ibnetctl", "status", "--json")
	if err == nil {
		if i := strings.Index(out, "{"); i >= 0 {
			err = json.Unmarshal([]byte(out[i:]), &d)
		}
	}
	if err != nil {
		g.Logf("ibnetctl status: %v\n%s", err, out)
	}
	return d
}

// journal shows at the end of a failed test what the daemon and its workers
// said.
func journal(g *lab.G) {
	if g.Failed() {
		out, _ := g.Try("journalctl", "--no-pager", "-o", "short-precise", "-u", "ibnetworkd", "-u", "ibnetsm@*", "-n", "120")
		g.Log("\n" + out)
		g.Log(phases(describe(g).SubnetManagers))
	}
}

// smWait waits until the subnet managers are as ok wants them.
func smWait(g *lab.G, what string, limit time.Duration, ok func([]smctl.Status) bool) []smctl.Status {
	g.Helper()
	var last []smctl.Status
	g.Wait(what, limit, func() bool {
		last = describe(g).SubnetManagers
		return ok(last)
	})
	return last
}

func phases(sms []smctl.Status) string {
	var out []string
	for _, s := range sms {
		out = append(out, fmt.Sprintf("%s/%d %s %s", s.IBDevice, s.Port, s.Phase, s.WorkerState))
	}
	return strings.Join(out, ", ")
}

func running(sms []smctl.Status) (n int) {
	for _, s := range sms {
		if s.WorkerState == "active" {
			n++
		}
	}
	return n
}

const auto = "[Match]\nName=ib0\n[Network]\nAddress=192.168.151.1/24\n[SubnetManager]\nManage=auto\nStartDelaySec=1\nStopDelaySec=5\n"

// Cold boot of an installed host whose fabric has no subnet manager, and that
// has no opensm, with one unit: the port goes from Initializing over the worker to
// Active, the link gets its address, and the host is online.
func TestOnDemandColdBoot(t *testing.T) {
	t.Parallel()
	c := installed(lab.Config{Files: map[string]string{"/usr/sbin/opensm": ""}}, map[string]string{"10-ib0.ibnetwork": auto})
	lab.Run(t, c, func(g *lab.G) {
		defer func() {
			g.Log(g.Exec("journalctl", "--no-pager", "-o", "cat", "-u", "ibnetworkd", "-u", "ibnetsm@*", "-n", "60"))
		}()
		g.WaitPort("swib0", 1, "ACTIVE", 30*time.Second)
		g.Logf("Active at %v", lab.Uptime())
		g.Wait("the address", 20*time.Second, func() bool {
			out, _ := g.Try("ip", "-o", "-4", "address", "show", "dev", "ib0")
			return strings.Contains(out, "192.168.151.1/24")
		})
		g.Wait("online", 20*time.Second, func() bool {
			out, _ := g.Try("systemctl", "is-active", "ibnetworkd-wait-online.service", "network-online.target")
			return strings.Count(out, "active") == 2 && !strings.Contains(out, "inactive") && !strings.Contains(out, "activating")
		})
		g.Logf("online at %v", lab.Uptime())
		sms := describe(g).SubnetManagers
		if running(sms) != 1 {
			g.Fatalf("subnet managers: %s", phases(sms))
		}
		order := []string{"ibnetworkd.service", sms[0].Worker, "ibnetworkd-wait-online.service", "network-online.target"}
		last := 0
		for _, u := range order {
			at := 0
			_, _ = fmt.Sscan(g.Exec("systemctl", "show", "-p", "ActiveEnterTimestampMonotonic", "--value", u), &at)
			g.Logf("%s at %.2f s", u, float64(at)/1e6)
			if at == 0 || at < last {
				g.Errorf("%s is active before what comes before it in %q", u, order)
			}
			last = at
		}
		out, _ := g.Try("systemctl", "list-units", "--failed", "--plain", "--no-legend")
		if strings.TrimSpace(out) != "" {
			g.Errorf("failed units:\n%s", out)
		}
		g.Log("\n" + g.Exec("ibnetctl", "status"))
		g.Log("\n" + g.Exec("busctl", "tree", "org.ibnetwork1"))
		diag, err := g.Try("ibnetctl", "diagnose", "swib0/1")
		if err != nil {
			g.Errorf("diagnose: %v", err)
		}
		g.Log("\n" + diag)
		g.Log("\n" + g.Exec("ibnetctl", "sm", "topology"))
	})
}

// both manages the ports of both adapters; the links are left to the hosts that
// the test makes of them.
const both = "[Match]\nType=infiniband\n[SubnetManager]\nManage=%s\nStartDelaySec=1\nStopDelaySec=5\n"

// hosts moves the two links into namespaces and gives back a ping from a to b
// that counts the longest silence.
func hosts(g *lab.G) (a, b *lab.Host) {
	a, b = g.Host("a"), g.Host("b")
	a.Take("ib0", "10.9.0.1/24")
	b.Take("ib1", "10.9.0.2/24")
	a.Ping("10.9.0.2", "-c", "1")
	return a, b
}

// silence runs f while a pings b ten times a second, and returns how long at most
// there was no answer.
func silence(g *lab.G, a *lab.Host, f func()) time.Duration {
	g.Helper()
	p := a.Pinging("10.9.0.2", 100*time.Millisecond)
	g.Wait("the first answer", 5*time.Second, func() bool { sent, lost := p.Count(); return sent > lost })
	f()
	p.Stop()
	return p.Silence()
}

func mainPID(g *lab.G, unit string) string {
	return strings.TrimSpace(g.Exec("systemctl", "show", "-p", "MainPID", "--value", unit))
}

func masterOf(g *lab.G, dev string) string { return strings.TrimSpace(g.PortFile(dev, 1, "sm_lid")) }

// Two ports on one fabric. Manage=auto runs one worker; Manage=always two, of
// which one is master: when it is killed the other takes over, and traffic does
// not notice.
func TestOnDemandTwoPorts(t *testing.T) {
	t.Parallel()
	c := installed(lab.Config{}, map[string]string{"10-ib.ibnetwork": fmt.Sprintf(both, "auto")})
	lab.Run(t, c, func(g *lab.G) {
		defer journal(g)
		g.WaitActive(30 * time.Second)
		a, _ := hosts(g)
		sms := smWait(g, "one worker", 20*time.Second, func(s []smctl.Status) bool { return len(s) == 2 && running(s) == 1 })
		g.Logf("auto: %s", phases(sms))
		stay := time.Now().Add(6 * time.Second)
		looks := 0
		g.Wait("time to pass", 10*time.Second, func() bool {
			if s := describe(g).SubnetManagers; len(s) > 0 {
				looks++
				if running(s) != 1 {
					g.Fatalf("%d workers", running(s))
				}
			}
			return looks > 10 && time.Now().After(stay)
		})

		// kill -9 of the only one: it is back, or the other port has one.
		worker := func(s []smctl.Status) string {
			for _, x := range s {
				if x.WorkerState == "active" {
					return x.Worker
				}
			}
			return ""
		}
		longest := silence(g, a, func() {
			killed := worker(sms)
			old := mainPID(g, killed)
			g.Exec("systemctl", "kill", "-s", "KILL", killed)
			smWait(g, "one worker again", 30*time.Second, func(s []smctl.Status) bool {
				now := mainPID(g, killed)
				return running(s) == 1 && (worker(s) != killed || now != old && now != "0")
			})
		})
		g.Logf("kill -9 of the only worker: longest silence %v", longest)
		if longest > 3*time.Second {
			g.Errorf("traffic stood still for %v", longest)
		}

		g.Write(unitDir+"10-ib.ibnetwork", fmt.Sprintf(both, "always"))
		g.Exec("ibnetctl", "reload")
		// Of equal priority the lower GUID is the better; the other may be master until
		// it has heard of it.
		sms = smWait(g, "two workers", 30*time.Second, func(s []smctl.Status) bool {
			return phases(s) == "swib0/1 master active, swib1/1 standby active" && masterOf(g, "swib1") == g.PortFile("swib0", 1, "lid")
		})
		master := sms[0]
		before := masterOf(g, "swib1")
		longest = silence(g, a, func() {
			// Stopped for good, so that it cannot come back before the other.
			g.Exec("systemctl", "mask", "--runtime", master.Worker)
			g.Exec("systemctl", "kill", "-s", "KILL", master.Worker)
			took := g.Wait("the other to be master", 30*time.Second, func() bool { return masterOf(g, master.IBDevice) != before })
			g.Logf("the other took over in %v", took)
		})
		g.Logf("takeover: longest silence %v", longest)
		if longest > 3*time.Second {
			g.Errorf("traffic stood still for %v", longest)
		}
	})
}

// An edited [SubnetManager] section reaches the worker that runs, in its settings
// file; with another engine, also when the daemon did not run
// while it was edited.
func TestOnDemandSettings(t *testing.T) {
	t.Parallel()
	c := installed(lab.Config{}, map[string]string{"10-ib0.ibnetwork": auto})
	lab.Run(t, c, func(g *lab.G) {
		defer journal(g)
		master := func(what, worker string) {
			g.Helper()
			smWait(g, what, 60*time.Second, func(s []smctl.Status) bool {
				return strings.Contains(phases(s), "swib0/1 master active") && strings.HasPrefix(s[0].Worker, worker)
			})
		}
		g.WaitPort("swib0", 1, "ACTIVE", 30*time.Second)
		master("ours to be master", "ibnetsm@")
		const file = `/etc/my "own" partitions.conf`
		g.Write(file, "Default=0x7fff, ipoib : ALL=full;\n")
		g.Write(unitDir+"10-ib0.ibnetwork", auto+"Priority=5\nPartitionsFile="+file+"\nPartition=0x8001 Name=storage Members=ALL\n")
		g.Exec("ibnetctl", "reload")
		worker := smWait(g, "a manager", 20*time.Second, func(s []smctl.Status) bool { return len(s) > 0 })[0].Worker
		want := "Priority=5\nPartitionsFile=" + file + "\nPartition=0x8001 Name=storage Members=ALL\n"
		g.WaitFor(20*time.Second, func() string {
			line, _ := g.Try("sh", "-c", "tr '\\0' ' ' < /proc/"+mainPID(g, worker)+"/cmdline")
			_, name, _ := strings.Cut(line, "--settings=-")
			name, _, _ = strings.Cut(name, " ")
			if text, err := g.Try("cat", name); err != nil || !strings.Contains(text, "[SubnetManager]\n"+want+"[State]\n") {
				return "the worker runs as " + line + " with\n" + text
			}
			return ""
		})
		g.Wait("the partition", 20*time.Second, func() bool { return strings.Contains(g.PortFile("swib0", 1, "pkeys/1"), "8001") })
		master("ours to be master again", "ibnetsm@")
		if out := g.Exec("sminfo", "-C", "swib0", "-P", "1", "-t", "10000"); !strings.Contains(out, "priority 5") {
			g.Errorf("sminfo: %s", out)
		}

		g.Exec("systemctl", "stop", "ibnetworkd")
		g.Write(unitDir+"10-ib0.ibnetwork", auto+"Engine=opensm\n")
		g.Exec("systemctl", "start", "ibnetworkd")
		master("opensm to be master", "ibnetsm-opensm-")
		if out, _ := g.Try("systemctl", "is-active", worker); strings.HasPrefix(out, "active") {
			g.Error("both run")
		}
	})
}

// opensm of higher priority appears: ours yields and goes after StopDelaySec;
// opensm dies: ours is back.
func TestOnDemandForeignMaster(t *testing.T) {
	t.Parallel()
	for _, engine := range []string{"builtin", "opensm"} {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			foreignMaster(t, engine)
		})
	}
}

func foreignMaster(t *testing.T, engine string) {
	unit := auto + "Engine=" + engine + "\n"
	c := installed(lab.Config{}, map[string]string{"10-ib0.ibnetwork": unit})
	lab.Run(t, c, func(g *lab.G) {
		defer journal(g)
		g.WaitPort("swib0", 1, "ACTIVE", 30*time.Second)
		sms := smWait(g, "ours to be master", 20*time.Second,
			func(s []smctl.Status) bool { return strings.Contains(phases(s), "swib0/1 master active") })
		out, err := g.Try("systemd-analyze", "security", "--no-pager", "--threshold=19", sms[0].Worker)
		if g.Log(strings.TrimSpace(out[max(0, strings.LastIndex(out, "Overall")):])); err != nil {
			g.Errorf("the sandbox of %s: %v\n%s", sms[0].Worker, err, out)
		}
		foreign := g.Start("opensm", "-g", g.PortGUID("swib1", 1), "-p", "15", "-f", "/tmp/opensm.log")
		g.Wait("opensm to be master", 90*time.Second, func() bool {
			return masterOf(g, "swib0") == strings.TrimSpace(g.PortFile("swib1", 1, "lid"))
		})
		yielded := time.Now()
		sms = smWait(g, "ours to be stopped", 90*time.Second,
			func(s []smctl.Status) bool { return strings.Contains(phases(s), "swib0/1 served inactive") })
		g.Logf("stopped %v after opensm was master: %s", time.Since(yielded), sms[0].Reason)
		foreign.Kill()
		_ = foreign.Wait(5 * time.Second)
		died := time.Now()
		smWait(g, "ours to be back", 90*time.Second, func(s []smctl.Status) bool {
			return strings.Contains(phases(s), "swib0/1 master active") && masterOf(g, "swib0") == strings.TrimSpace(g.PortFile("swib0", 1, "lid"))
		})
		g.Logf("back %v after opensm died", time.Since(died))
	})
}

// Everything below the worker goes away once: what is there afterwards is
// right, and explained.
func TestOnDemandAccidents(t *testing.T) {
	t.Parallel()
	rule := `polkit.addRule(function(action, subject) {
	if (action.id == "org.ibnetwork1.reload" && subject.user == "nobody") return polkit.Result.YES;
});`
	c := installed(lab.Config{Files: map[string]string{"/etc/polkit-1/rules.d/10-ibnetwork.rules": rule}},
		map[string]string{"10-ib0.ibnetwork": auto})
	lab.Run(t, c, func(g *lab.G) {
		defer journal(g)
		g.WaitPort("swib0", 1, "ACTIVE", 30*time.Second)
		isMaster := func(s []smctl.Status) bool { return strings.Contains(phases(s), "swib0/1 master active") }
		ours := smWait(g, "ours to be master", 20*time.Second, isMaster)[0].Worker
		kill := func() {
			g.Helper()
			since := func(s []smctl.Status) time.Time {
				if len(s) == 0 || s[0].WorkerState != "active" {
					return time.Time{}
				}
				return s[0].WorkerSince
			}
			old := since(smWait(g, "a worker", 10*time.Second, func(s []smctl.Status) bool { return !since(s).IsZero() }))
			g.Exec("systemctl", "kill", "-s", "KILL", ours)
			smWait(g, "the worker to be there again", 30*time.Second, func(s []smctl.Status) bool { return since(s).After(old) })
		}
		settle := func(what string, limit time.Duration) {
			g.Helper()
			took := g.Wait("ours to be master after "+what, limit, func() bool { return isMaster(describe(g).SubnetManagers) })
			if units := g.Exec("systemctl", "list-units", "--state=active", "--plain", "--no-legend",
				"ibnetsm*.service"); strings.Count(units, ".service ") != 1 {
				g.Errorf("after %s the workers are\n%s", what, units)
			}
			g.Logf("%s: right after %v", what, took)
		}
		first := mainPID(g, ours)

		g.Run("daemon-reload", func(g *lab.G) {
			g.Exec("systemctl", "daemon-reload")
			settle("daemon-reload", 10*time.Second)
		})
		g.Run("daemon killed", func(g *lab.G) {
			g.Exec("systemctl", "kill", "-s", "KILL", "ibnetworkd")
			settle("kill -9 of the daemon", 30*time.Second)
		})
		g.Run("bus restarted", func(g *lab.G) {
			g.Exec("systemctl", "restart", "dbus")
			settle("a restart of the bus", 60*time.Second)
		})
		if now := mainPID(g, ours); now != first {
			g.Errorf("the worker was restarted: pid %s, then %s", first, now)
		}
		g.Run("worker killed", func(g *lab.G) {
			kill()
			settle("kill -9 of the worker", 30*time.Second)
		})
		g.Run("device removed", func(g *lab.G) {
			g.Ctl("del 0")
			took := g.Wait("the worker to stop", 30*time.Second, func() bool {
				out, _ := g.Try("systemctl", "is-active", ours)
				return !strings.HasPrefix(out, "active") && !strings.HasPrefix(out, "activating")
			})
			g.Logf("the worker was gone after %v", took)
			g.Ctl("add 0")
			g.WaitPort("swib0", 1, "ACTIVE", 60*time.Second)
			settle("device removal and return", 60*time.Second)
			g.Wait("the address", 20*time.Second, func() bool {
				out, _ := g.Try("ip", "-o", "-4", "address", "show", "dev", "ib0")
				return strings.Contains(out, "192.168.151.1/24")
			})
		})
		g.Run("read-only run", func(g *lab.G) {
			// In the service's own view, as it would be after an error of
			// the file system below it. Covered, not remounted: that is
			// refused while the daemon has a file open.
			inside := func(cmd string) {
				g.Sh("nsenter -t $(systemctl show -p MainPID --value ibnetworkd) -m %s", cmd)
			}
			inside("mount -t tmpfs -o ro tmpfs /run/ibnetworkd")
			kill()
			settle("kill -9 of the worker over a read-only state directory", 40*time.Second)
			g.Write(unitDir+"10-ib0.ibnetwork", strings.Replace(auto, "151.1/24", "151.7/24", 1))
			_, _ = g.Try("ibnetctl", "reload")
			g.Wait("the new address", 20*time.Second, func() bool {
				out, _ := g.Try("ip", "-o", "-4", "address", "show", "dev", "ib0")
				return strings.Contains(out, "192.168.151.7/24") && !strings.Contains(out, "151.1/24")
			})
			g.WaitFor(10*time.Second, func() string {
				// No entry is a failure of journalctl.
				out, err := g.Try("journalctl", "--no-pager", "-o", "cat", "-u", "ibnetworkd", "-g", "read-only")
				if !strings.Contains(out, "read-only file system") {
					return fmt.Sprintf("not explained: %v\n%s", err, out)
				}
				return ""
			})
			inside("umount /run/ibnetworkd")
			// The report of before is the file again, until the daemon can write its own.
			g.Wait("the report to be right again", 10*time.Second, func() bool {
				return strings.Contains(g.Read("/run/ibnetworkd/state.json"), "192.168.151.7/24")
			})
		})
		g.Run("full disk", func(g *lab.G) {
			g.Exec("mount", "-t", "tmpfs", "-o", "size=4k", "tmpfs", "/var/lib/ibnetsm")
			_, _ = g.Try("sh", "-c", "head -c 100000 /dev/zero > /var/lib/ibnetsm/fill")
			kill()
			settle("a full disk below the worker's state", 40*time.Second)
			g.Exec("umount", "-l", "/var/lib/ibnetsm") // it is ready before its first sweep, which writes there
		})
		g.Run("non-root", func(g *lab.G) {
			as := func(args ...string) (string, error) {
				return g.Try("setpriv", append([]string{"--reuid=1", "--regid=1", "--clear-groups"}, args...)...)
			}
			// A join that the kernel tried while there was no manager it repeats after seconds.
			g.Exec(binDir+"/ibnetctl", "wait-online", "-i", "ib0", "--timeout", "40s")
			for _, see := range [][]string{{"status"}, {"list"}, {"ports"}, {"sm", "status"}, {"plan"}, {"diagnose", "swib0/1"}, {"metrics"}} {
				if out, err := as(append([]string{binDir + "/ibnetctl"}, see...)...); err != nil {
					g.Errorf("%v as another user: %v\n%s", see, err, out)
				}
			}
			for _, do := range [][]string{{"reload"}, {"reconfigure", "ib0"}, {"up", "ib0"}, {"down", "ib0"}, {"sm", "start", "swib1/1"},
				{"sm", "stop", "swib0/1"}, {"log-level", "debug"}} {
				out, err := as(append([]string{binDir + "/ibnetctl"}, do...)...)
				if err == nil || !strings.Contains(out, "only root may do this") {
					g.Errorf("%v as another user: %v\n%s", do, err, out)
				} else if do[0] == "reload" {
					g.Logf("refused: %s", strings.TrimSpace(out))
				}
			}
			// A rule grants another user one verb, and no other.
			for _, do := range [][]string{{"reload"}, {"down", "ib0"}, {"sm", "stop", "swib0/1"}} {
				out, err := g.Try("setpriv", append([]string{"--reuid=65534", "--regid=65534", "--clear-groups", binDir + "/ibnetctl"}, do...)...)
				if granted := err == nil; granted != (do[0] == "reload") {
					g.Errorf("%v with a rule for reload: %v\n%s", do, err, out)
				}
			}
			settle("what others may do", 10*time.Second)
		})
	})
}
