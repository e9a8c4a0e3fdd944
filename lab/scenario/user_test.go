package scenario

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/godbus/dbus/v5"

	"ibnetworkd/cmd/ibnetctl/answer/answertest"
	"ibnetworkd/daemon/bus/api"
	"ibnetworkd/internal/testkit"
	"ibnetworkd/lab"
	"ibnetworkd/smctl"
)

// What a person at the prompt and a program on the bus meet on an installed
// host: JSON in its documented forms, completion, busctl, polkit, hardening,
// wait-online.
func TestInstalledHost(t *testing.T) {
	t.Parallel()
	c := installed(lab.Config{}, map[string]string{"10-ib0.ibnetwork": auto})
	lab.Run(t, c, func(g *lab.G) {
		defer journal(g)
		g.WaitPort("swib0", 1, "ACTIVE", 60*time.Second)
		g.Exec("ibnetctl", "wait-online", "-i", "ib0:routable", "--timeout", "120s")
		g.Run("json", everyAnswer)
		g.Run("switch off", switchOff)
		g.Run("completion", completion)
		g.Run("busctl", busAsUser)
		g.Run("reads", busReads)
		g.Run("no polkit", func(g *lab.G) {
			g.Exec("systemctl", "mask", "--runtime", "--now", "polkit")
			out, err := g.Try("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", binDir+"/ibnetctl", "reload")
			if err == nil || !strings.Contains(out, "only root may do this") {
				g.Errorf("without polkit: %v\n%s", err, out)
			}
			g.Logf("without polkit: %s", strings.TrimSpace(out))
			if out, err := g.Try("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "busctl", "call", api.BusName, api.Root,
				api.Manager, "Describe"); err != nil {
				g.Errorf("reading without polkit: %v\n%s", err, out)
			}
			g.Exec("systemctl", "unmask", "--runtime", "polkit")
		})
		g.Run("log level of systemctl", func(g *lab.G) {
			const unit = "ibnetworkd.service"
			for _, level := range [][2]string{{"debug", "debug"}, {"warning", "warn"}, {"info", "info"}} {
				g.Exec("systemctl", "service-log-level", unit, level[0])
				if out := strings.TrimSpace(g.Exec("systemctl", "service-log-level", unit)); out != level[0] {
					g.Errorf("systemctl reads %q, want %q", out, level[0])
				}
				if out := strings.TrimSpace(g.Exec("ibnetctl", "log-level")); out != level[1] {
					g.Errorf("ibnetctl log-level prints %q, want %q", out, level[1])
				}
			}
			if out := strings.TrimSpace(g.Exec("systemctl", "service-log-target", unit)); out != "journal" {
				g.Errorf("the target is %q", out)
			}
			out, err := g.Try("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "busctl", "set-property", api.BusName,
				api.LogControlPath, api.LogControl, "LogLevel", "s", "debug")
			if level := strings.TrimSpace(g.Exec("ibnetctl", "log-level")); err == nil || level != "info" {
				g.Errorf("another user sets the log level: %v %s, it is %s", err, out, level)
			}
			g.Logf("another user: %s", strings.TrimSpace(out))
		})
		g.Run("exposure", func(g *lab.G) {
			worker := describe(g).SubnetManagers[0].Worker
			// What is left is what each needs: root, the host's network.
			for unit, limit := range map[string]string{"ibnetworkd.service": "14", worker: "8", "ibnetworkd-wait-online.service": "12",
				"ibnetworkd-wait-online@ib0.service": "12"} {
				out, err := g.Try("systemd-analyze", "security", "--no-pager", "--threshold="+limit, unit)
				line := out[strings.LastIndex(out, "Overall"):]
				g.Log(strings.TrimSpace(line))
				if err != nil {
					g.Errorf("%s: %v\n%s", unit, err, out)
				}
			}
		})
		g.Run("what the sandbox lets through", func(g *lab.G) {
			// access(2) of root knows of no mode, but of read-only mounts.
			inside := func(file string) bool {
				_, err := g.Try("nsenter", "-t", mainPID(g, "ibnetworkd.service"), "-m", "test", "-w", file)
				return err == nil
			}
			for file, want := range map[string]bool{
				"/proc/sys/net/ipv4/conf/ib0/proxy_arp": true, "/proc/sys/net/ipv6/conf/ib0/accept_ra": true, "/sys/class/net/ib0/mode": true,
				"/sys/class/net/ib0/create_child": true,
				"/sys/bus":                        true, "/run/ibnetworkd": true, "/proc/sys/kernel/core_pattern": false, "/proc/sysrq-trigger": false,
				"/sys/kernel/uevent_helper": false, "/etc/passwd": false,
			} {
				if _, err := g.Try("test", "-w", file); err != nil {
					g.Logf("%s does not exist in this guest", file)
				} else if got := inside(file); got != want {
					g.Errorf("%s can be written: %v", file, got)
				}
			}
			ownDev(g, "ibnetworkd.service")
			ownDev(g, describe(g).SubnetManagers[0].Worker)
			g.Write(unitDir+"10-ib0.ibnetwork", strings.Replace(auto, "[SubnetManager]", "IPv4ProxyARP=yes\n[SubnetManager]", 1))
			g.Exec("ibnetctl", "reload")
			g.Wait("a sysctl of the unit", 20*time.Second, func() bool {
				return strings.TrimSpace(g.Read("/proc/sys/net/ipv4/conf/ib0/proxy_arp")) == "1"
			})
			g.Write(unitDir+"10-ib0.ibnetwork", auto)
			g.Exec("ibnetctl", "reload")
		})
		g.Run("wait-online", func(g *lab.G) {
			// The port's GID is not in its table.
			const gid = "/sys/class/infiniband/swib0/ports/1/gids/0"
			g.Write("/tmp/zero", "0000:0000:0000:0000:0000:0000:0000:0000\n")
			g.Exec("mount", "--bind", "/tmp/zero", gid)
			out, err := g.Try("ibnetctl", "wait-online", "-i", "ib0", "--timeout", "2s")
			if err == nil || !strings.Contains(out, "has no GID") {
				g.Errorf("without a GID: %v\n%s", err, out)
			}
			p := g.Start("ibnetctl", "wait-online", "-i", "ib0", "--timeout", "120s")
			g.Exec("umount", "-l", gid) // it may be reading it
			if err := p.Wait(10 * time.Second); err != nil {
				g.Errorf("once the GID is there: %v\n%s", err, p.Output())
			}
			// The group is not joined: Active, and no carrier.
			if out, err := g.Try("ibnetctl", "wait-online", "-i", "ib1", "--timeout", "1s"); err == nil {
				g.Errorf("ib1, which is down, is online: %s", out)
			}
			if out, err := g.Try("ibnetctl", "wait-online", "--any", "-i", "ib1", "-i", "ib0", "--timeout", "120s"); err != nil {
				g.Errorf("one of two: %v\n%s", err, out)
			}
			if code := exitCode(g, "ibnetctl", "wait-online", "-i", "nosuch", "--timeout", "1s"); code != 6 {
				g.Errorf("exit code %d after the time", code)
			}
			g.Exec("systemctl", "start", "ibnetworkd-wait-online@ib0.service")
		})
		g.Run("driver restart", driverRestart)
	})
}

// ownDev fails unless a unit has a /dev of its own, and the host's read-only beside it.
func ownDev(g *lab.G, unit string) {
	g.Helper()
	out := g.Sh(`nsenter -t $(systemctl show -p MainPID --value %s) -m sh -c '
		ls -d /dev/infiniband /dev/kmsg /dev/vda /dev/ubda /dev/tty0 2>/dev/null
		test -c /run/ibnetworkd/dev/infiniband/umad0 || echo no umad0
		touch /run/ibnetworkd/dev/x 2>/dev/null && echo /run/ibnetworkd/dev can be written
		touch /dev/x 2>/dev/null && echo /dev can be written; true'`, unit)
	if out = strings.TrimSpace(out); out != "" {
		g.Errorf("%s sees in /dev: %s", unit, out)
	}
}

// With the last device the kernel removes /dev/infiniband, and creates another with
// the next. The daemon, which goes on, and the next worker open the new devices.
func driverRestart(g *lab.G) {
	pid := mainPID(g, "ibnetworkd.service")
	const driver = "/sys/bus/platform/drivers/swib/"
	cards := strings.Fields(g.Sh("cd " + driver + "; ls -d swib.*"))
	for _, c := range cards {
		g.Write(driver+"unbind", c)
	}
	g.Wait("the end of the devices", 20*time.Second, func() bool { _, err := os.Stat("/dev/infiniband/umad0"); return err != nil })
	g.Sh("rm -rf /dev/infiniband") // rdma_ucm, which this kernel has built in, would keep it
	g.Wait("the worker's end", 20*time.Second, func() bool { return len(describe(g).SubnetManagers) == 0 })
	for _, c := range cards {
		g.Write(driver+"bind", c)
	}
	sms := smWait(g, "a master after the driver's restart", 60*time.Second,
		func(s []smctl.Status) bool { return strings.Contains(phases(s), "swib0/1 master active") })
	g.WaitPort("swib0", 1, "ACTIVE", 60*time.Second)
	if now := mainPID(g, "ibnetworkd.service"); now != pid {
		g.Errorf("the daemon was restarted: pid %s, then %s", pid, now)
	}
	ownDev(g, "ibnetworkd.service")
	ownDev(g, sms[0].Worker)
	// An open by the rules of the unit's control group too.
	if out, err := g.Try("sh", "-c", "echo $$ > /sys/fs/cgroup$(cut -d: -f3 /proc/"+pid+"/cgroup)/cgroup.procs && "+
		"nsenter -t "+pid+" -m sh -c ': < /run/ibnetworkd/dev/infiniband/umad0'"); err != nil {
		g.Errorf("the daemon cannot open the new device: %v %s", err, out)
	}
}

func exitCode(g *lab.G, name string, args ...string) int {
	out, _ := g.Try("sh", "-c", strings.Join(append([]string{name}, args...), " ")+` >/dev/null 2>&1; echo "code $?"`)
	code := -1
	_, _ = fmt.Sscanf(out[strings.LastIndex(out, "code"):], "code %d", &code)
	return code
}

// switchOff disables the unit of a link by the link's name and enables it.
func switchOff(g *lab.G) {
	unit := func() string {
		for _, l := range describe(g).Links {
			if l.Name == "ib0" {
				return l.Unit
			}
		}
		return "no ib0"
	}
	if out := g.Exec("ibnetctl", "disable", "ib0"); !strings.Contains(out, "disabled 10-ib0.ibnetwork") {
		g.Errorf("disable: %s", out)
	}
	if u := unit(); u != "" {
		g.Errorf("ib0 has the unit %q", u)
	}
	g.Exec("systemctl", "restart", "ibnetworkd")
	if u := unit(); u != "" {
		g.Errorf("after a restart ib0 has the unit %q", u)
	}
	g.Exec("ibnetctl", "enable", "10-ib0")
	if u := unit(); u != unitDir+"10-ib0.ibnetwork" {
		g.Errorf("enabled, ib0 has the unit %q", u)
	}
	g.Exec("ibnetctl", "wait-online", "-i", "ib0:routable", "--timeout", "120s")
	// What is there is printed, and what is not is reported.
	out, err := g.Try("ibnetctl", "status", "ib0", "ib9")
	if err == nil || !strings.Contains(out, "10-ib0.ibnetwork") || !strings.Contains(out, "ib9: no such link") {
		g.Errorf("status ib0 ib9: %v\n%s", err, out)
	}
	if out, _ := g.Try("ibnetctl", "--no-bus", "status"); strings.Contains(out, "is not running") {
		g.Errorf("--no-bus:\n%s", out)
	}
}

// everyAnswer runs every command with --json and compares what it prints with
// its form.
func everyAnswer(g *lab.G) {
	g.Write("/tmp/interfaces", "auto ib1\niface ib1 inet static\n  address 10.0.0.1/24\n")
	g.Write("/tmp/bad.ibnetwork", "[Match]\nNaem=ib0\n")
	g.Exec("mkdir", "-p", "/run/systemd/network")
	g.Write("/run/systemd/network/99-other.ibnetwork", "[Match]\nName=ib99\n")
	file := unitDir + "10-ib0.ibnetwork"
	for _, c := range []struct {
		form string
		cmd  string
		code int
	}{
		{"status", "status", 0}, {"status", "--no-bus status", 0}, {"status NAME...", "status ib0 swib0/1", 0}, {"list", "list --all", 0},
		{"ports", "ports", 0}, {"ports", "ports swib0/1", 0},
		{"diagnose", "diagnose swib0/1", 0}, {"diagnose", "diagnose", 0}, {"diagnose", "diagnose --all", 1},
		{"diagnose", "diagnose --unit 10-ib0", 0},
		{"plan", "plan", 0}, {"plan", "--no-bus plan", 0}, {"wait-online", "wait-online -i ib0", 0},
		{"wait-online", "wait-online -i nosuch --timeout 100ms", 6}, {"metrics", "metrics", 0}, {"verify", "verify", 0},
		{"verify", "verify /tmp/bad.ibnetwork", 1},
		{"cat", "cat 10-ib0", 0}, {"import", "import /tmp/interfaces", 0}, {"sm status", "sm status", 0},
		{"sm topology", "sm topology", 0}, {"sm explain", "sm explain 1 2", 0}, {"sm whatif", "sm whatif --off 2", 0},
		{"sm dump", "sm dump lfts", 0}, {"sm dump", "sm dump guid2lid", 0}, {"logs", "logs -n 1 ib0", 0},
		{"reload", "reload", 0}, {"reconfigure", "reconfigure ib0", 0}, {"down", "down ib0", 0}, {"up", "up ib0", 0},
		{"log-level", "log-level info", 0}, {"capture", "capture /tmp/capture.json", 0},
		{"mask", "mask 99-other", 0}, {"unmask", "unmask 99-other", 0}, {"disable", "disable 99-other", 0},
		{"enable", "enable 99-other", 0}, {"sm stop", "sm stop swib0/1", 0}, {"sm start", "sm start swib0/1", 0},
		{"try", "try --timeout 20s " + file, 0},
		{"a command that fails", "status nosuch", 5}, {"a command that fails", "up nosuch", 5}, {"a command that fails", "sm start nosuch/1", 5},
		{"a command that fails", "log-level loud", 2}, {"a command that fails", "cat nosuch", 5},
	} {
		out, _ := g.Try("sh", "-c", fmt.Sprintf("echo yes | ibnetctl --json %s 2>/tmp/err; echo $? >/tmp/code", c.cmd))
		code := strings.TrimSpace(g.Read("/tmp/code"))
		if err := answertest.Check(c.form, []byte(out)); err != nil || code != fmt.Sprint(c.code) {
			g.Errorf("ibnetctl --json %s (exit %s, want %d): %v\n%s%s", c.cmd, code, c.code, err, out, g.Read("/tmp/err"))
		}
		// The manager of this host reports its hints.
		if c.form == "sm explain" && !strings.Contains(out, `"note": "of the ibnetsm on swib`) {
			g.Errorf("ibnetctl --json %s: %s", c.cmd, out)
		}
	}
	g.Exec("ibnetctl", "wait-online", "-i", "ib0:routable", "--timeout", "120s")
	mon := g.Start("ibnetctl", "--json", "monitor")
	g.Wait("monitor to tell", 30*time.Second, func() bool {
		g.Exec("ibnetctl", "down", "ib0")
		g.Exec("ibnetctl", "up", "ib0")
		return strings.Count(mon.Output(), "\n") > 1
	})
	mon.Signal(syscall.SIGINT)
	_ = mon.Wait(5 * time.Second)
	for line := range strings.Lines(mon.Output()) {
		if err := answertest.Check("monitor", []byte(line)); err != nil {
			g.Errorf("monitor: %v: %s", err, line)
		}
	}
	g.Exec("ibnetctl", "wait-online", "-i", "ib0:routable", "--timeout", "120s")
}

// completion asks bash, with Debian's bash-completion, what it would offer.
func completion(g *lab.G) {
	g.Sh("ibnetctl completion bash > /tmp/ibnetctl.bash")
	g.Write("/tmp/complete.sh", `. /usr/share/bash-completion/bash_completion
. /tmp/ibnetctl.bash
f=$(complete -p ibnetctl | sed 's/.*-F \([^ ]*\).*/\1/')
offer() {
	COMP_LINE="$*"; COMP_POINT=${#COMP_LINE}
	COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMP_TYPE=9; COMPREPLY=()
	$f ibnetctl "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD-1]}" 2>/dev/null
	printf '%s\n' "${COMPREPLY[@]}"
	echo ---
}
`)
	var calls strings.Builder
	cases := []struct {
		words []string
		want  []string
	}{
		{[]string{"status", ""}, []string{"ib0", "ib1", "swib0/1", "swib1/1"}},
		{[]string{"up", "ib"}, []string{"ib0", "ib1"}},
		{[]string{"ports", "swib1"}, []string{"swib1/1"}},
		{[]string{"diagnose", "swib0"}, []string{"swib0/1"}},
		{[]string{"cat", "10"}, []string{"10-ib0"}},
		{[]string{"edit", "10"}, []string{"10-ib0"}},
		{[]string{"sm", "st"}, []string{"start", "status", "stop"}},
		{[]string{"sm", "start", ""}, []string{"swib0/1", "swib1/1"}},
		{[]string{"log-level", "d"}, []string{"debug"}},
		{[]string{"recon"}, []string{"reconfigure"}},
		{[]string{"wait-online", "ib0"}, []string{"ib0"}},
	}
	for _, c := range cases {
		fmt.Fprintf(&calls, "offer ibnetctl '%s'\n", strings.Join(c.words, "' '"))
	}
	g.Write("/tmp/calls.sh", calls.String())
	offers := strings.Split(g.Exec("bash", "-c", ". /tmp/complete.sh; . /tmp/calls.sh"), "---\n")
	for i, c := range cases {
		var got []string
		for _, w := range strings.Split(offers[i], "\n") {
			// Several are offered with their descriptions.
			if f := strings.Fields(w); len(f) > 0 {
				got = append(got, f[0])
			}
		}
		for _, w := range c.want {
			if !slices.Contains(got, w) {
				g.Errorf("ibnetctl %s<TAB> offers %q, without %s", strings.Join(c.words, " "), got, w)
			}
		}
	}
	for _, shell := range []string{"zsh", "fish"} {
		if out := g.Exec("ibnetctl", "completion", shell); len(out) < 1000 {
			g.Errorf("completion %s: %s", shell, out)
		}
	}
}

// busAsUser looks around with busctl, and follows one change.
func busAsUser(g *lab.G) {
	as := func(args ...string) string {
		return g.Exec("setpriv", append([]string{"--reuid=65534", "--regid=65534", "--clear-groups", "busctl", "--no-pager"}, args...)...)
	}
	tree := as("tree", api.BusName)
	for _, p := range []string{api.PortPath("swib0", 1), api.SMPath(g.PortGUID("swib0", 1))} {
		if !strings.Contains(tree, p) {
			g.Errorf("the tree lacks %s:\n%s", p, tree)
		}
	}
	ib0 := strings.Fields(as("call", api.BusName, api.Root, api.Manager, "GetLink", "s", "ib0"))[1]
	ib0 = strings.Trim(ib0, `"`)
	look := as("introspect", api.BusName, ib0)
	for _, w := range []string{"MTUBytes", "MTUBytesWanted", "MTUBytesReason", "Mode ", "ModeReason", "Settings", "Reconfigure"} {
		if !strings.Contains(look, w) {
			g.Errorf("introspect lacks %s:\n%s", w, look)
		}
	}
	if out := as("get-property", api.BusName, ib0, api.Link, "MTUBytes"); !strings.HasPrefix(out, "u ") {
		g.Errorf("MTUBytes: %s", out)
	}
	if out := as("call", api.BusName, api.Root, "org.freedesktop.DBus.ObjectManager", "GetManagedObjects"); !strings.Contains(out, ib0) {
		g.Error("GetManagedObjects lacks the link")
	}
	// The link came up a moment ago; its link-local address shall not come in between.
	g.Wait("the end of duplicate address detection", 20*time.Second, func() bool {
		return strings.Contains(as("get-property", api.BusName, ib0, api.Link, "IPv6AddressState"), "degraded")
	})
	mon := g.Start("busctl", "--json=short", "monitor", api.BusName)
	// Not every version says when it begins: it shows a call that is made after.
	g.Wait("busctl to watch", 10*time.Second, func() bool {
		as("get-property", api.BusName, ib0, api.Link, "MTUBytes")
		return strings.Contains(mon.Output(), api.BusName)
	})
	g.Write(unitDir+"10-ib0.ibnetwork", auto+"[Link]\nMTUBytes=1500\n")
	g.Exec("ibnetctl", "reload")
	type message struct {
		Path, Member string
		Payload      struct{ Data []any }
	}
	var changed map[string]bool
	others := map[string]bool{}
	g.Wait("the change on the bus", 20*time.Second, func() bool {
		changed = map[string]bool{}
		for line := range strings.Lines(mon.Output()) {
			var m message
			if json.Unmarshal([]byte(line), &m) != nil || m.Member != "PropertiesChanged" || len(m.Payload.Data) < 2 {
				continue
			}
			keys, _ := m.Payload.Data[1].(map[string]any)
			for k := range keys {
				if m.Path == ib0 {
					changed[k] = true
				} else {
					others[m.Path+" "+k] = true
				}
			}
		}
		return changed["MTUBytes"]
	})
	mon.Signal(syscall.SIGINT)
	_ = mon.Wait(5 * time.Second)
	g.Logf("changed: %v; elsewhere %v", changed, others)
	for k := range changed {
		if !slices.Contains([]string{"MTUBytes", "MTUBytesWanted", "MTUBytesReason", "Settings", "State", "OperationalState", "Online",
			"Reasons", "PendingOperations"}, k) {
			g.Errorf("a change of the MTU says that %s has changed", k)
		}
	}
	for o := range others {
		if strings.Contains(o, "/link/") || strings.Contains(o, "/port/") {
			g.Errorf("it says that %s has changed", o)
		}
	}
	if out := as("get-property", api.BusName, ib0, api.Link, "MTUBytes"); strings.TrimSpace(out) != "u 1500" {
		g.Errorf("MTUBytes: %s", out)
	}
	g.Write(unitDir+"10-ib0.ibnetwork", auto)
	g.Exec("ibnetctl", "reload")
}

// busReads counts the property reads of a second through the system bus.
func busReads(g *lab.G) {
	c, err := dbus.ConnectSystemBus()
	testkit.NoError(g, err)
	defer c.Close()
	o := c.Object(api.BusName, dbus.ObjectPath(api.PortPath("swib0", 1)))
	n, start := 0, time.Now()
	done := make(chan *dbus.Call, 32)
	for range 32 {
		o.Go("org.freedesktop.DBus.Properties.Get", 0, done, api.Port, "State")
	}
	for time.Since(start) < 2*time.Second {
		testkit.NoError(g, (<-done).Err)
		n++
		o.Go("org.freedesktop.DBus.Properties.Get", 0, done, api.Port, "State")
	}
	// The guest has one CPU for the reader, the bus and the daemon, and
	// switches between them slowly; daemon/bus measures it on the host.
	g.Logf("%.0f property reads a second through the guest's bus", float64(n)/time.Since(start).Seconds())
}

// [Modules] Load= on Debian's own kernel, by way of systemd, since the daemon may
// load none: names with a dash, one that is an alias, and one that does not exist. Who
// loads ib-iser and svcrdma first may be rdma-core; the others only the daemon loads.
// /sys/module does not know an alias, so the daemon cannot see that it is loaded.
func TestModulesOfUnits(t *testing.T) {
	t.Parallel()
	c := installed(lab.Config{Machine: lab.QEMU},
		map[string]string{"50-modules.ibnetwork": "[Modules]\nLoad=ib-iser svcrdma nvme-rdma rdma-link-rxe no_such_module\n"})
	lab.Run(t, c, func(g *lab.G) {
		defer journal(g)
		g.WaitFor(2*time.Minute, func() string {
			out := g.Exec("lsmod")
			for _, m := range []string{"ib_iser", "rpcrdma", "nvme_rdma", "rdma_rxe"} {
				if !strings.Contains(out, m+" ") {
					return m + " is not loaded"
				}
			}
			return ""
		})
		g.WaitFor(time.Minute, func() string {
			out, _ := g.Try("journalctl", "--no-pager", "-o", "cat", "-u", "ibnetworkd")
			for _, w := range []string{"loaded a module module=nvme-rdma", "the module rdma-link-rxe (Load=, " +
				"/etc/systemd/network/50-modules.ibnetwork:2:32) does not exist after modprobe has run", "the module no_such_module (Load="} {
				if !strings.Contains(out, w) {
					return fmt.Sprintf("the journal lacks %q:\n%s", w, out)
				}
			}
			if strings.Contains(out, "loaded a module module=no_such_module") {
				g.Fatal("a module that does not exist is loaded")
			}
			return ""
		})
		// What could not be loaded is in each screen.
		for _, c := range []string{"status", "diagnose", "verify"} {
			if out, _ := g.Try("ibnetctl", c); !strings.Contains(out, "the module no_such_module") ||
				!strings.Contains(out, "modprobe -v no_such_module") {
				g.Errorf("ibnetctl %s does not name the module:\n%s", c, out)
			}
		}
		// A start does not race with the bus: each loads at once.
		for i := range 4 {
			g.Sh("systemctl stop ibnetworkd; modprobe -r ib_iser; systemctl start ibnetworkd")
			g.WaitFor(20*time.Second, func() string {
				if present, _ := g.Try("sh", "-c", "test -d /sys/module/ib_iser && echo yes"); !strings.Contains(present, "yes") {
					return fmt.Sprintf("start %d: ib_iser is not loaded", i)
				}
				return ""
			})
		}
		if out, _ := g.Try("journalctl", "--no-pager", "-o", "cat", "-u", "ibnetworkd"); strings.Contains(out, "cannot be loaded") {
			g.Errorf("modprobe was run in the sandbox:\n%s", out)
		}
		// The rule asks for the modules of InfiniBand ports, and only of those.
		wants := func(dev string) bool {
			out := g.Exec("udevadm", "info", "/sys/class/infiniband/"+dev)
			return strings.Contains(out, "modprobe@ib_ipoib.service") && strings.Contains(out, "modprobe@ib_umad.service")
		}
		g.Sh("modprobe veth; ip link add va type veth peer name vb; ip link set va up; rdma link add soft0 type rxe netdev va; udevadm settle")
		if !wants("swib0") || wants("soft0") {
			g.Errorf("the udev rule: swib0 %v, want true; soft0, an Ethernet device, %v, want false", wants("swib0"), wants("soft0"))
		}
	})
}
