package scenario

import (
	"strings"
	"testing"
	"time"

	"ibnetworkd/lab"
	"ibnetworkd/smctl"
)

const controlUnit = `[Match]
LinkLayer=InfiniBand
[SubnetManager]
Manage=auto
StartDelaySec=1s
PartitionsFile=/etc/ibnetworkd/partitions.conf
`

const (
	goodPartitions = "Default=0x7fff, ipoib : ALL=full;\nstorage=0x0001, ipoib : ALL=full;\n"
	badPartitions  = "Default=0x7fff, ipoib : ALL=full;\nstorage=0x0001 ipoib : ALL=full;\n"
	badPlace       = "/etc/ibnetworkd/partitions.conf:2:9: "
)

// One port runs a subnet manager with a partitions file. A mistake in the file or
// in its name takes nothing away and is reported with its place; what is right is taken
// over without a start; a start with a bad file uses the last good one. Ports that
// must not or cannot run one never send anything that changes the fabric.
func TestSubnetManagerControl(t *testing.T) {
	t.Parallel()
	c := installed(lab.Config{HCAs: 4}, map[string]string{"10-ib.ibnetwork": controlUnit})
	c.Files["/etc/ibnetworkd/partitions.conf"] = goodPartitions
	lab.Run(t, c, func(g *lab.G) {
		defer journal(g)
		g.WaitActive(60 * time.Second)
		master := func(s []smctl.Status) *smctl.Status {
			for i := range s {
				if s[i].Phase == smctl.PhaseMaster && s[i].WorkerState == "active" && s[i].WorkerText != "" {
					return &s[i]
				}
			}
			return nil
		}
		// Several ports may have started theirs before one of them was master.
		sms := smWait(g, "a master that says that it is alone", 20*time.Second, func(s []smctl.Status) bool {
			x := master(s)
			return x != nil && running(s) == 1 && strings.HasPrefix(x.WorkerText, "Master, ") &&
				strings.HasSuffix(x.WorkerText, "no other subnet manager")
		})
		m := *master(sms)
		pid := mainPID(g, m.Worker)
		keys := func() string {
			return g.Exec("sh", "-c", "cat /sys/class/infiniband/"+m.IBDevice+"/ports/1/pkeys/[0-3]")
		}
		same := func(when string) {
			g.Helper()
			if now := mainPID(g, m.Worker); now != pid {
				g.Errorf("%s: the worker is process %s, it was %s", when, now, pid)
			}
		}
		verify := func(want string) {
			g.Helper()
			if out, err := g.Try("ibnetctl", "verify"); err == nil || !strings.Contains(out, want) {
				g.Errorf("verify: %v %s, want %q", err, out, want)
			}
		}
		says := func(what, want string) {
			g.Helper()
			smWait(g, what, 10*time.Second, func(s []smctl.Status) bool {
				x := master(s)
				return x != nil && strings.Contains(x.FileProblem, want) && strings.Contains(x.Reason, want)
			})
		}
		g.Wait("the partition", 10*time.Second, func() bool { return strings.Contains(keys(), "0x8001") })

		g.Run("a mistake in the file", func(g *lab.G) {
			g.Write("/etc/ibnetworkd/partitions.conf", badPartitions)
			says("the mistake", badPlace)
			verify(badPlace)
			same("a bad file")
		})
		g.Run("a mistake in its name", func(g *lab.G) {
			g.Write("/etc/ibnetworkd/partitions.conf", goodPartitions)
			g.Write(unitDir+"10-ib.ibnetwork", strings.Replace(controlUnit, ".conf", ".cnf", 1))
			says("the missing file", "partitions.cnf: no such file")
			verify("10-ib.ibnetwork:6:16: warning: [SubnetManager] PartitionsFile=: /etc/ibnetworkd/partitions.cnf: no such file")
			same("a missing file")
		})
		g.Run("a file that the worker cannot read", func(g *lab.G) {
			g.Write("/root/p.conf", goodPartitions)
			g.Write(unitDir+"10-ib.ibnetwork", strings.Replace(controlUnit, "/etc/ibnetworkd/partitions.conf", "/root/p.conf", 1))
			says("the hidden file", "does not see files below /root")
			same("a hidden file")
		})
		g.Run("the mend is taken over", func(g *lab.G) {
			g.Write("/etc/ibnetworkd/partitions.conf", goodPartitions+"more=0x0002, ipoib : ALL=full;\n")
			g.Write(unitDir+"10-ib.ibnetwork", controlUnit+"Partition=0x8003 Name=rule Members=ALL=full\n")
			took := g.Wait("the new partitions", 10*time.Second,
				func() bool { k := keys(); return strings.Contains(k, "0x8002") && strings.Contains(k, "0x8003") })
			g.Logf("new partitions after %v", took)
			same("a mend")
			if out := g.Exec("ibnetctl", "verify"); !strings.Contains(out, "no problem found") {
				g.Errorf("verify: %s", out)
			}
		})
		g.Run("a start with a bad file", func(g *lab.G) {
			g.Write("/etc/ibnetworkd/partitions.conf", badPartitions)
			says("the mistake", badPlace)
			g.Exec("systemctl", "kill", "-s", "KILL", m.Worker)
			smWait(g, "a worker with the last good file", 30*time.Second, func(s []smctl.Status) bool {
				x := master(s)
				return x != nil && mainPID(g, m.Worker) != pid && strings.Contains(x.WorkerText, badPlace) &&
					strings.Contains(x.WorkerText, "the last good partitions file is used")
			})
			if k := keys(); !strings.Contains(k, "0x8001") || !strings.Contains(k, "0x8002") {
				g.Errorf("after a start with a bad file the keys are %q", k)
			}
			// Where none was ever good.
			g.Sh("rm /var/lib/ibnetsm/partitions-*")
			pid = mainPID(g, m.Worker)
			g.Exec("systemctl", "kill", "-s", "KILL", m.Worker)
			smWait(g, "a worker with the default partition", 30*time.Second, func(s []smctl.Status) bool {
				x := master(s)
				return x != nil && mainPID(g, m.Worker) != pid && strings.Contains(x.WorkerText, badPlace) &&
					strings.Contains(x.WorkerText, "the default partition and --partition or Partition= are used")
			})
			g.Wait("the keys of the default partition and the unit", 20*time.Second, func() bool {
				k := keys()
				return strings.Contains(k, "0xffff") && strings.Contains(k, "0x8003") && !strings.Contains(k, "0x8001") &&
					!strings.Contains(k, "0x8002")
			})
			g.Write("/etc/ibnetworkd/partitions.conf", goodPartitions)
			smWait(g, "the mend", 10*time.Second, func(s []smctl.Status) bool {
				x := master(s)
				return x != nil && x.FileProblem == "" && !strings.Contains(x.WorkerText, badPlace)
			})
		})

		g.Run("edits that wait", func(g *lab.G) {
			g.Write("/etc/ibnetworkd/ibnetworkd.conf", "[Daemon]\nWatchUnitFiles=no\n")
			g.Exec("systemctl", "restart", "ibnetworkd.service")
			// On a slow machine another port's was started while the master was killed.
			smWait(g, "one subnet manager after a restart of the daemon", 60*time.Second,
				func(s []smctl.Status) bool { return master(s) != nil && running(s) == 1 })
			pid = mainPID(g, m.Worker)
			g.Write(unitDir+"10-ib.ibnetwork", "[Match]\nLinkLayer=InfiniBand\n")
			g.Wait("the edit to be named", 10*time.Second, func() bool {
				return strings.Contains(g.Exec("ibnetctl", "status"), "edits wait for a reload: /etc/systemd/network/10-ib.ibnetwork")
			})
			if out := g.Exec("ibnetctl", "plan"); !strings.Contains(out, "systemctl stop "+m.Worker+
				"   # the fabric's only subnet manager; no unit asks for a subnet manager on ") || strings.Contains(out, "Nothing to do") {
				g.Errorf("plan: %s", out)
			}
			stay := time.Now().Add(4 * time.Second)
			g.Wait("time to pass", 10*time.Second, func() bool { return time.Now().After(stay) })
			same("an edit that waits")
			g.Write(unitDir+"10-ib.ibnetwork", strings.Replace(controlUnit, "Manage=auto", "Manage=auto\nPriority=4", 1))
			if out := g.Exec("ibnetctl", "plan"); !strings.Contains(out, "systemctl reload "+m.Worker) {
				g.Errorf("plan of another priority: %s", out)
			}
			// Files are read 150 ms after they were written.
			written := time.Now().Add(500 * time.Millisecond)
			g.Wait("the edit to be seen", 5*time.Second, func() bool { return time.Now().After(written) })
			g.Exec("ibnetctl", "reload")
			g.Wait("the priority to be applied", 30*time.Second, func() bool {
				return strings.Contains(g.Exec("journalctl", "--no-pager", "-o", "cat", "-u", m.Worker), "priority or intervals changed")
			})
			same("another priority")
			if out := g.Exec("ibnetctl", "status"); strings.Contains(out, "edits wait") {
				g.Errorf("after the reload: %s", out)
			}
			g.Write("/etc/ibnetworkd/ibnetworkd.conf", "")
			g.Exec("systemctl", "restart", "ibnetworkd.service")
			smWait(g, "the master after a restart of the daemon", 30*time.Second,
				func(s []smctl.Status) bool { return master(s) != nil && running(s) == 1 })
			// edit shows the plan, and only then the file counts.
			out := g.Exec("sh", "-c", "EDITOR='sed -i s/=4/=6/' ibnetctl edit 10-ib 2>&1")
			if shown, _, wrote := strings.Cut(out, "wrote "+unitDir+"10-ib.ibnetwork"); !wrote ||
				!strings.Contains(shown, "systemctl reload "+m.Worker+"   # the fabric's only subnet manager") {
				g.Errorf("edit: %s", out)
			}
			smWait(g, "the master after the edit", 30*time.Second, func(s []smctl.Status) bool {
				return master(s) != nil && running(s) == 1 && strings.Contains(g.Exec("cat", "/run/ibnetworkd/sm/"+m.PortGUID+".conf"), "Priority=6\n")
			})
		})

		g.Run("ports that must not", func(g *lab.G) {
			first := m.IBDevice[len("swib"):]
			others := []string{}
			for _, n := range []string{"0", "1", "2", "3"} {
				if n != first {
					others = append(others, n)
				}
			}
			for _, n := range others {
				g.Ctl("fault h%s/1 delay kind=smp method=set", n)
			}
			g.Ctl("smi h%s/1 off", others[0])
			g.Ctl("smdisabled h%s/1 on", others[1])
			// What a device is does not change while it is there.
			g.Write("/sys/bus/platform/drivers/swib/unbind", "swib."+others[2])
			g.Wait("the device to be gone", 20*time.Second, func() bool { return len(describe(g).SubnetManagers) == 3 })
			g.Ctl("vpd h%s T SMDL=SW_MNG x", others[2])
			g.Write("/sys/bus/platform/drivers/swib/bind", "swib."+others[2])
			g.Write(unitDir+"10-ib.ibnetwork", strings.Replace(controlUnit, "auto", "always", 1))
			g.Exec("ibnetctl", "reload")
			want := map[string]smctl.Phase{"swib" + others[0]: "no-qp0", "swib" + others[1]: "sm-disabled", "swib" + others[2]: "nvswitch"}
			sms := smWait(g, "the reasons", 60*time.Second, func(s []smctl.Status) bool {
				n := 0
				for _, x := range s {
					if want[x.IBDevice] == x.Phase {
						n++
					}
				}
				return n == 3 && running(s) == 1
			})
			for _, x := range sms {
				if want[x.IBDevice] != "" && x.Next == "" {
					g.Errorf("%s/%d: no next step: %s", x.IBDevice, x.Port, x.Reason)
				}
				g.Logf("%s/%d %s: %s; next: %s", x.IBDevice, x.Port, x.Phase, x.Reason, x.Next)
			}
			// Not by hand either.
			for dev := range want {
				if out, err := g.Try("ibnetctl", "sm", "start", "--timeout=30s", dev+"/1"); err == nil ||
					!strings.Contains(out, string(want[dev])+": ") || !strings.Contains(out, "; next: ") {
					g.Errorf("sm start %s/1: %v %s", dev, err, out)
				}
			}
			stay := time.Now().Add(8 * time.Second)
			g.Wait("time to pass", 12*time.Second, func() bool {
				if s := describe(g).SubnetManagers; len(s) == 4 && running(s) != 1 {
					g.Fatalf("%s", phases(s))
				}
				return time.Now().After(stay)
			})
			for i := range others {
				if n := g.FaultHits(i); n != 0 {
					g.Errorf("h%s/1 has sent %d Sets", others[i], n)
				}
			}
			// An Active port is no answer: the master is asked, and then there is none.
			first = m.IBDevice + "/1"
			if out := g.Exec("ibnetctl", "diagnose", first); !strings.Contains(out, `the master answers: "`) {
				g.Errorf("diagnose: %s", out)
			}
			if out := g.Exec("ibnetctl", "sm", "status", first); !strings.Contains(out, "Master: \"") || !strings.Contains(out, "Status: Master, ") {
				g.Errorf("sm status: %s", out)
			}
			g.Exec("ibnetctl", "sm", "stop", first)
			smWait(g, "nobody", 20*time.Second, func(s []smctl.Status) bool { return running(s) == 0 })
			if out, err := g.Try("ibnetctl", "diagnose", first); err == nil ||
				!strings.Contains(out, "does not answer: existing connections continue, but no port can join a group") {
				g.Errorf("diagnose without a subnet manager: %v %s", err, out)
			}
			if out := g.Exec("ibnetctl", "sm", "status", first); !strings.Contains(out, "does not answer") {
				g.Errorf("sm status without a subnet manager: %s", out)
			}
			// A worker that is started all the same ends with a sentence, and is not active.
			unit := "ibnetsm@" + g.PortGUID("swib"+others[0], 1) + ".service"
			if out, err := g.Try("systemctl", "start", unit); err == nil {
				g.Errorf("%s is started: %s", unit, out)
			}
			if out := g.Exec("systemctl", "show", "-p", "ExecMainStatus,StatusText,ActiveState", unit); !strings.Contains(out,
				"ExecMainStatus=4") || !strings.Contains(out, "carries no subnet management packets") || !strings.Contains(out, "ActiveState=failed") {
				g.Errorf("%s: %s", unit, out)
			}
		})
	})
}
