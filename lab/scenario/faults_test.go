package scenario

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"ibnetworkd/lab"
	"ibnetworkd/link"
	"ibnetworkd/smctl"
)

// fault is one thing that is wrong on a fabric, and what diagnose says of it.
type fault struct {
	name string
	make func(g *lab.G)
	// dev, if set, gives the device of on after make.
	dev func() string
	on  string // port or link that is diagnosed
	// What the check that fails is called, its code, and a part of its sentence
	// and of the next step.
	check, code, text, next string
	// mend does what the next step says; empty means that it is a command, which
	// is run as it stands. Then the fault must be gone.
	mend func(g *lab.G, next string)
}

// findFaults makes each fault, checks what diagnose says, and takes its
// advice.
func findFaults(g *lab.G, faults []fault) {
	for _, f := range faults {
		g.Run(f.name, func(g *lab.G) {
			f.make(g)
			if f.dev != nil {
				f.on = f.dev() + "/1"
			}
			next := ""
			g.WaitFor(30*time.Second, func() string {
				k := diagnosis(g, f.on)
				if k.Name != f.check || string(k.Code) != f.code || !strings.Contains(k.Text, f.text) || !strings.Contains(k.Next, f.next) {
					return fmt.Sprintf("diagnose %s finds %s (%s): %s; next: %s; want %s (%s): %s; next: %s", f.on, k.Name, k.Code, k.Text, k.Next,
						f.check, f.code, f.text, f.next)
				}
				g.Logf("%s: %s\n  next: %s", k.Code, k.Text, k.Next)
				next = k.Next
				return ""
			})
			if f.mend != nil {
				f.mend(g, next)
			} else {
				// What stands behind three blanks is a remark.
				cmd, _, _ := strings.Cut(next, "   ")
				g.Sh("%s", cmd)
			}
			g.WaitFor(60*time.Second, func() string {
				if k := diagnosis(g, f.on); string(k.Code) == f.code && k.Name == f.check {
					return fmt.Sprintf("after the next step %q it is still %s: %s", next, k.Code, k.Text)
				}
				return ""
			})
		})
	}
}

// Faults of ports and fabrics without a bus: each is made, named, and mended by
// the step that diagnose gives.
func TestDiagnoseFaults(t *testing.T) {
	t.Parallel()
	lab.Run(t, lab.Config{Userland: lab.Debian, HCAs: 4, Bins: []string{ibnetworkd, ibnetctl}, Files: map[string]string{
		unitDir + "10-ib1.ibnetwork": "[Match]\nIBDevice=swib1\n[IPoIB]\nMode=datagram\n[Network]\nAddress=10.1.0.2/24\n",
	}}, func(g *lab.G) {
		sm := g.Opensm(lab.SM{})
		d := startDaemon(g)
		d.configured("ib1", 20*time.Second)
		for _, m := range describe(g).SubnetManagers {
			if m.Phase != smctl.PhaseOff {
				g.Errorf("no unit asks for a subnet manager, and that of %s/%d is %s: %s", m.IBDevice, m.Port, m.Phase, m.Reason)
			}
		}
		bounce := func() { g.Exec("ibportstate", "-C", "swib1", "-P", "1", "-D", "0", "1", "down") }
		vf := ""
		findFaults(g, []fault{
			{name: "disabled", on: "swib1/1",
				make:  func(g *lab.G) { g.Exec("ibportstate", "-C", "swib1", "-P", "1", "-D", "0", "1", "disable") },
				check: "cable", code: "port-disabled", text: "disabled by an administrator", next: "ibportstate -C swib1 -P 1 -D 0 1 enable"},
			{name: "training", on: "swib1/1",
				make:  func(g *lab.G) { g.Ctl("link h1/1 training") },
				check: "cable", code: "port-training", text: "link training does not finish", next: "/sys/class/infiniband/swib1/ports/1/phys_state",
				mend: func(g *lab.G, _ string) {
					if s := g.PortFile("swib1", 1, "phys_state"); !strings.Contains(s, "PortConfigurationTraining") {
						g.Errorf("the file that it says to watch has %q", s)
					}
					g.Ctl("link h1/1 up")
				}},
			{name: "no cable", on: "swib1/1",
				make:  func(g *lab.G) { g.Ctl("link h1/1 down") },
				check: "cable", code: "no-cable", text: "no cable, or nothing answers", next: "check both ends of the cable",
				mend: func(g *lab.G, _ string) {
					// The kernel takes the carrier away a moment after the port is Down.
					g.Wait("ib1 to be offline", 20*time.Second, func() bool {
						_, err := g.Try("ibnetctl", "wait-online", "--timeout=1s", "ib1")
						return err != nil
					})
					g.Ctl("link h1/1 up")
					g.Exec("ibnetctl", "wait-online", "--timeout=30s", "ib1")
				}},
			{name: "subnet manager hangs", on: "swib1/1",
				make: func(g *lab.G) {
					// What it still does to the port would be repeated to the new one.
					g.WaitPort("swib1", 1, "ACTIVE", 30*time.Second)
					sm.Signal(syscall.SIGSTOP)
					bounce()
				},
				check: "subnet manager", code: "subnet-manager-pending", text: "configured the port before, but not again",
				next: "sminfo -C swib1 -P 1",
				mend: func(g *lab.G, _ string) {
					if out, err := g.Try("sminfo", "-C", "swib1", "-P", "1"); err == nil {
						g.Errorf("the stopped subnet manager answers: %s", out)
					}
					sm.Signal(syscall.SIGCONT)
				}},
			{name: "armed", on: "swib1/1",
				make: func(g *lab.G) {
					g.WaitPort("swib1", 1, "ACTIVE", 30*time.Second)
					sm.Signal(syscall.SIGSTOP)
					bounce()
					g.Exec("ibportstate", "-C", "swib1", "-P", "1", "-D", "0", "1", "arm")
				},
				check: "subnet manager", code: "subnet-manager-pending", text: "Armed: a subnet manager (LID 1) is about to activate",
				next: "ibnetctl diagnose swib1/1 again in a few seconds",
				mend: func(g *lab.G, _ string) { sm.Signal(syscall.SIGCONT) }},
			{name: "other port type", on: "swib1/1",
				make: func(g *lab.G) {
					g.WaitPort("swib1", 1, "ACTIVE", 30*time.Second)
					g.Ctl("type h1/1 eth")
				},
				check: "link layer", code: "wrong-link-layer", text: "link layer is Ethernet, but /etc/systemd/network/10-ib1.ibnetwork",
				next: "devlink port set platform/swib.1/1 type ib"},
			{name: "ethernet down", on: "swib3/1",
				make: func(g *lab.G) {
					g.Ctl("type h3/1 eth")
					g.Wait("the interface", 10*time.Second, func() bool { return ethOf(g, "swib3") != "" })
				},
				check: "cable", code: "no-cable", text: "the Ethernet port is Down", next: "ip link set eth"},
			{name: "zero GUID", dev: func() string { return vf },
				make: func(g *lab.G) {
					g.Write("/sys/devices/platform/swib.2/sriov_numvfs", "1")
					vf = strings.TrimSpace(g.Exec("ls", "/sys/devices/platform/swib.2/virtfn0/infiniband"))
				},
				check: "guid", code: "zero-guid", text: "as of a virtual function without one", next: "ip link set <pf> vf <n> port_guid <guid>",
				mend: func(g *lab.G, next string) {
					_, cmd, _ := strings.Cut(next, ": ")
					cmd, _, _ = strings.Cut(cmd, "   ")
					pf := ibNet(g, "swib2")
					cmd = strings.NewReplacer("<pf>", pf, "<n>", "0", "node_guid <guid>", "node_guid 02:00:00:00:00:00:00:11", "port_guid <guid>",
						"port_guid 02:00:00:00:00:00:00:12", "then on this host: ", "").Replace(cmd)
					g.Log(cmd)
					g.Sh("set -e; %s", cmd)
					g.WaitPort(vf, 1, "ACTIVE", 30*time.Second)
				}},
			{name: "interface elsewhere", on: "swib2/1",
				make:  func(g *lab.G) { g.Host("b").Take(ibNet(g, "swib2"), "10.3.0.1/24") },
				check: "interface", code: "module-missing", text: "no network interface in this network namespace",
				next: "ip -all netns exec ip -br link",
				mend: func(g *lab.G, next string) {
					cmd, _, _ := strings.Cut(next, ";")
					g.Logf("%s\n%s", cmd, g.Exec("sh", "-c", cmd))
					g.Ctl("del 2")
					g.Ctl("add 2")
					g.WaitPort("swib2", 1, "ACTIVE", 30*time.Second)
				}},
		})
	})
}

// ethOf is the Ethernet interface of an adapter.
func ethOf(g *lab.G, dev string) string {
	nets, _ := os.ReadDir("/sys/class/infiniband/" + dev + "/device/net")
	for _, n := range nets {
		if strings.HasPrefix(n.Name(), "eth") {
			return n.Name()
		}
	}
	return ""
}

// Faults around the subnet manager that this host runs on demand, and of the
// link above: with systemd and the bus, where diagnose says more.
func TestDiagnoseManager(t *testing.T) {
	t.Parallel()
	c := installed(lab.Config{}, map[string]string{"10-ib0.ibnetwork": auto})
	lab.Run(t, c, func(g *lab.G) {
		defer journal(g)
		g.WaitPort("swib0", 1, "ACTIVE", 60*time.Second)
		worker := smWait(g, "a manager", 20*time.Second, func(s []smctl.Status) bool { return len(s) > 0 })[0].Worker
		bounce := func(g *lab.G) {
			g.Ctl("link h0/1 down")
			g.WaitPort("swib0", 1, "DOWN", 5*time.Second)
			g.Ctl("link h0/1 up")
		}
		up := func(g *lab.G) { g.WaitPort("swib0", 1, "ACTIVE", 60*time.Second) }
		findFaults(g, []fault{
			{name: "stopped by hand", on: "swib0/1",
				make: func(g *lab.G) {
					g.Exec("ibnetctl", "sm", "stop", "swib0/1")
					smWait(g, "it to stop", 20*time.Second, func(s []smctl.Status) bool { return strings.Contains(phases(s), "swib0/1 stopped inactive") })
					bounce(g)
				},
				check: "subnet manager", code: "no-subnet-manager", text: "stopped by hand", next: "ibnetctl sm start swib0/1"},
			{name: "worker cannot run", on: "swib0/1",
				make: func(g *lab.G) {
					up(g)
					g.Exec("systemctl", "mask", "--runtime", worker)
					g.Exec("systemctl", "kill", "-s", "KILL", worker)
					bounce(g)
				},
				check: "subnet manager", code: "no-subnet-manager", text: "failed (", next: "journalctl -u " + worker,
				mend: func(g *lab.G, next string) {
					if out := g.Exec("sh", "-c", next+" --no-pager -n 5"); !strings.Contains(out, "ibnetsm") {
						g.Errorf("%s says nothing of it:\n%s", next, out)
					}
					g.Exec("systemctl", "unmask", "--runtime", worker)
				}},
			{name: "fabric cannot be searched", on: "swib0/1",
				make: func(g *lab.G) {
					up(g)
					g.Exec("mv", "/dev/infiniband/umad0", "/dev/infiniband/away")
					g.Exec("systemctl", "stop", worker)
					bounce(g)
				},
				check: "subnet manager", code: "no-subnet-manager", text: "the fabric cannot be searched", next: "ibnetctl sm status swib0/1",
				mend: func(g *lab.G, next string) {
					if out := g.Exec("sh", "-c", next); !strings.Contains(out, "umad0") {
						g.Errorf("%s does not name the device:\n%s", next, out)
					}
					g.Exec("mv", "/dev/infiniband/away", "/dev/infiniband/umad0")
				}},
			{name: "foreign manager that does not serve the port", on: "swib0/1",
				make: func(g *lab.G) {
					up(g)
					g.Exec("ibnetctl", "sm", "stop", "swib0/1")
					g.Start("opensm", "-g", g.PortGUID("swib1", 1), "-f", "/tmp/opensm.log")
					// Nor does the daemon take the port for that of the manager that was stopped.
					g.Wait("opensm to be master, and the daemon to know it", 60*time.Second, func() bool {
						return slices.ContainsFunc(describe(g).Ports, func(p link.PortStatus) bool {
							return p.IBDevice == "swib0" && p.State == "Active" &&
								fmt.Sprintf("%#x", p.SMLID) == strings.TrimSpace(g.PortFile("swib1", 1, "lid"))
						})
					})
					g.Ctl("mkey h0/1 77 1")
					bounce(g)
					g.Exec("ibnetctl", "sm", "start", "swib0/1")
				},
				check: "subnet manager", code: "no-subnet-manager", text: "exists but has not configured port swib0/1",
				next: "smpquery -C swib0 -P 1 -D portinfo 0: ",
				mend: func(g *lab.G, next string) {
					cmd, _, _ := strings.Cut(next, ": ")
					// opensm may have been seen before it tried.
					g.WaitFor(10*time.Second, func() string {
						if out := g.Exec("sh", "-c", cmd); strings.Contains(out, "MkeyViolations:..................0") {
							return "no violation is counted:\n" + out
						}
						return ""
					})
					g.Ctl("mkey h0/1 0 0")
					bounce(g)
				}},
			{name: "taken down", on: "ib0",
				make: func(g *lab.G) {
					up(g)
					g.Exec("ibnetctl", "down", "ib0")
				},
				check: "interface", code: "link-down", text: "ib0 is administratively down", next: "ibnetctl up ib0"},
		})
	})
}

// What depends on modules, on Debian's own kernel, where they are modules.
func TestDiagnoseModules(t *testing.T) {
	t.Parallel()
	lab.Run(t, lab.Config{Userland: lab.Debian, Machine: lab.QEMU, Bins: []string{ibnetworkd, ibnetctl}}, func(g *lab.G) {
		var sm *lab.Proc
		findFaults(g, []fault{
			{name: "no umad", on: "swib0/1",
				make:  func(g *lab.G) { g.Exec("modprobe", "-r", "ib_umad") },
				check: "subnet manager", code: "umad-missing", text: "ib_umad is not loaded", next: "modprobe ib_umad"},
			{name: "no ipoib", on: "swib0/1",
				make: func(g *lab.G) {
					sm = g.Opensm(lab.SM{})
					g.Exec("modprobe", "-r", "ib_ipoib")
				},
				check: "interface", code: "module-missing", text: "ib_ipoib is not loaded", next: "modprobe ib_ipoib"},
			{name: "no driver", on: "",
				make: func(g *lab.G) {
					sm.Kill()
					_ = sm.Wait(5 * time.Second)
					g.Exec("rmmod", "swib")
				},
				check: "device", code: "no-rdma-device", text: "no RDMA device", next: "lspci -nnk",
				mend: func(g *lab.G, _ string) {
					// A query by RDMA netlink makes the kernel load ib_core.
					g.Write("/etc/modprobe.d/none.conf", "install ib_core /bin/false\n")
					g.Exec("modprobe", "-r", "ib_ipoib", "rdma_ucm", "ib_umad", "ib_uverbs", "iw_cm", "ib_cm")
					if out := g.Exec("lsmod"); strings.Contains(out, "ib_core") {
						g.Errorf("ib_core is still loaded:\n%s", out)
					}
				}},
			{name: "no core", on: "",
				make:  func(*lab.G) {},
				check: "module", code: "module-missing", text: "ib_core) is not loaded", next: "modprobe mlx5_ib",
				mend: func(g *lab.G, _ string) {
					g.Exec("rm", "/etc/modprobe.d/none.conf")
					g.Exec("modprobe", "ib_core")
				}},
		})
	})
}
