package scenario

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"ibnetworkd/daemon/bus/api"
	"ibnetworkd/lab"
	"ibnetworkd/link"
)

const (
	ibnetctl = "ibnetworkd/cmd/ibnetctl"
	ibnetsm  = "ibnetworkd/cmd/ibnetsm"
	// binDir is where the lab puts programs.
	binDir = "/lab/bin"
)

// installed is a guest with everything in place that the package installs: the
// units, policies and rules of dist as they are, but for the folder that the
// programs are in.
func installed(t *testing.T, c lab.Config, units map[string]string) lab.Config {
	t.Helper()
	c.Userland = lab.Systemd
	c.Bins = append(c.Bins, ibnetworkd, ibnetctl, ibnetsm)
	c.Units = append(c.Units, "lab-sysusers.service", "ibnetworkd.service", "ibnetworkd-wait-online.service")
	files := map[string]string{
		// What the package's script does once, a fresh guest does at boot.
		"/etc/systemd/system/lab-sysusers.service": "[Unit]\nDefaultDependencies=no\nAfter=local-fs.target\nBefore=systemd-udevd.service systemd-udev-trigger.service ibnetworkd.service\n" +
			"[Service]\nType=oneshot\nRemainAfterExit=yes\nExecStart=systemd-sysusers /usr/lib/sysusers.d/ibnetworkd.conf\n",
	}
	if lab.InGuest() {
		return c
	}
	for from, to := range map[string]string{
		"systemd/*.service":            "/etc/systemd/system/",
		"udev/*.rules":                 "/usr/lib/udev/rules.d/",
		"sysusers/*.conf":              "/usr/lib/sysusers.d/",
		"tmpfiles/*.conf":              "/usr/lib/tmpfiles.d/",
		"dbus/org.ibnetwork1.conf":     "/usr/share/dbus-1/system.d/",
		"dbus/org.ibnetwork1.service":  "/usr/share/dbus-1/system-services/",
		"polkit/org.ibnetwork1.policy": "/usr/share/polkit-1/actions/",
	} {
		found, err := filepath.Glob(filepath.Join("../../dist", from))
		if err != nil || len(found) == 0 {
			t.Fatalf("dist/%s: %v", from, err)
		}
		for _, f := range found {
			text, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			s := strings.NewReplacer("=/usr/sbin/ibnet", "="+binDir+"/ibnet", "=/usr/bin/ibnet", "="+binDir+"/ibnet").Replace(string(text))
			files[to+filepath.Base(f)] = s
		}
	}
	for n, text := range units {
		files[unitDir+n] = text
	}
	for n, text := range c.Files {
		files[n] = text
	}
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

// smWait waits until the subnet managers are as ok wants them.
func smWait(g *lab.G, what string, limit time.Duration, ok func([]api.SMStatus) bool) []api.SMStatus {
	g.Helper()
	var last []api.SMStatus
	g.Wait(what, limit, func() bool {
		last = describe(g).SubnetManagers
		return ok(last)
	})
	return last
}

func phases(sms []api.SMStatus) string {
	var out []string
	for _, s := range sms {
		out = append(out, fmt.Sprintf("%s/%d %s %s", s.IBDevice, s.Port, s.Phase, s.WorkerState))
	}
	return strings.Join(out, ", ")
}

func running(sms []api.SMStatus) (n int) {
	for _, s := range sms {
		if s.WorkerState == "active" {
			n++
		}
	}
	return n
}

const auto = "[Match]\nName=ib0\n[Network]\nAddress=192.168.151.1/24\n[SubnetManager]\nManage=auto\nStartDelaySec=1\nStopDelaySec=5\n" + os.Getenv("IBNET_TEST_ENGINE")

// Cold boot of an installed host whose fabric has no subnet manager, with one
// unit: the port goes from Initialize over the worker to Active, the link gets
// its address, and the host is online.
func TestOnDemandColdBoot(t *testing.T) {
	c := installed(t, lab.Config{Timeout: 90 * time.Second}, map[string]string{"10-ib0.ibnetwork": auto})
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
			g.Errorf("subnet managers: %s", phases(sms))
		}
		// In order: the worker, the address, online.
		order := g.Exec("systemctl", "show", "-p", "ActiveEnterTimestampMonotonic", "--value", "ibnetworkd.service", sms[0].Worker, "ibnetworkd-wait-online.service", "network-online.target")
		g.Logf("ActiveEnter: %s", strings.Fields(order))
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

var _ = slices.Contains[[]string]
var _ link.Status
