package scenario

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"ibnetworkd/lab"
)

// packages builds two versions of the Debian package from the tree.
func packages(t *testing.T) []string {
	t.Helper()
	if testing.Short() {
		t.Skip("builds packages")
	}
	dir := t.TempDir()
	run := func(env []string, name string, args ...string) error {
		c := exec.Command(name, args...)
		c.Dir = "../.."
		c.Env = append(os.Environ(), env...)
		out, err := c.CombinedOutput()
		if err != nil {
			t.Logf("%s: %v\n%s", name, err, out)
		}
		return err
	}
	if err := run([]string{"CGO_ENABLED=0"}, "go", "build", "-trimpath", "-ldflags=-s -w", "-o", dir+"/bin/", "./cmd/ibnetworkd", "./cmd/ibnetctl", "./cmd/ibnetsm"); err != nil {
		t.Fatal("the programs cannot be built")
	}
	var out []string
	for _, v := range []string{"0.1.0", "0.2.0"} {
		if err := run([]string{"BIN=" + dir + "/bin", "OUT=" + dir, "VERSION=" + v, "COMPRESSION=gzip"}, "dist/package.sh", "deb"); err != nil {
			t.Skip("nfpm cannot be had: no package, no test of it")
		}
		found, _ := filepath.Glob(dir + "/ibnetworkd_" + v + "*.deb")
		if len(found) != 1 {
			t.Fatalf("no package of version %s", v)
		}
		out = append(out, found[0])
	}
	return out
}

// The package installs, starts what it should, is upgraded under traffic
// without a packet lost, and purges clean.
func TestPackage(t *testing.T) {
	c := lab.Config{Userland: lab.Systemd, Timeout: 4 * time.Minute, Files: map[string]string{
		unitDir + "10-ib0.ibnetwork": auto,
		// The lab's own preset keeps Debian's packages from starting things.
		"/etc/systemd/system-preset/00-ibnetworkd.preset": "enable ibnetworkd*\n",
	}}
	if !lab.InGuest() {
		c.Bins = packages(t)
	}
	lab.Run(t, c, func(g *lab.G) {
		debs, _ := filepath.Glob(binDir + "/*0.?.0*")
		if len(debs) != 2 {
			g.Fatalf("packages: %q", debs)
		}

		// The lab's names carry no suffix of their own.
		install := func(deb string) string { return g.Exec("dpkg", "--force-depends", "-i", deb) }
		g.Log(install(debs[0]))
		defer journal(g)
		g.WaitPort("swib0", 1, "ACTIVE", 60*time.Second)
		g.Wait("the address", 20*time.Second, func() bool {
			out, _ := g.Try("ip", "-o", "-4", "address", "show", "dev", "ib0")
			return strings.Contains(out, "192.168.151.1/24")
		})
		for _, u := range []string{"ibnetworkd", "ibnetworkd-wait-online"} {
			if out, err := g.Try("systemctl", "is-enabled", u); err != nil {
				g.Errorf("%s is %s", u, out)
			}
		}
		b := g.Host("b")
		b.Take("ib1", "192.168.151.2/24")
		p := b.Start("ping", "-i", "0.05", "192.168.151.1")
		g.Wait("the first answer", 20*time.Second, func() bool { return strings.Contains(p.Output(), "time=") })
		pid := g.Exec("systemctl", "show", "-p", "MainPID", "--value", "ibnetworkd")
		changes := g.Exec("cat", "/sys/class/net/ib0/carrier_changes")
		g.Log(install(debs[1]))
		g.Wait("another process", 20*time.Second, func() bool {
			return g.Exec("systemctl", "show", "-p", "MainPID", "--value", "ibnetworkd") != pid
		})
		g.Exec("ibnetctl", "wait-online", "-i", "ib0", "--timeout", "20s")
		stay := time.Now().Add(2 * time.Second)
		g.Wait("more answers", 5*time.Second, func() bool { return time.Now().After(stay) })
		p.Signal(syscall.SIGINT)
		_ = p.Wait(5 * time.Second)
		g.Log(tail(p.Output(), 3))
		if !strings.Contains(p.Output(), " 0% packet loss") {
			g.Error("packets were lost during the upgrade")
		}
		if now := g.Exec("cat", "/sys/class/net/ib0/carrier_changes"); now != changes {
			g.Errorf("carrier changed: %s, then %s times", changes, now)
		}
		g.Log(g.Exec("dpkg", "--force-depends", "-P", "ibnetworkd"))
		if out, _ := g.Try("sh", "-c", "ls -d /usr/sbin/ibnetworkd /usr/sbin/ibnetsm /usr/bin/ibnetctl /var/lib/ibnetsm /run/ibnetworkd /usr/lib/systemd/system/ibnet* /etc/systemd/system/*/ibnet* /etc/systemd/system/*ibnet* 2>/dev/null"); strings.TrimSpace(out) != "" {
			g.Errorf("left behind:\n%s", out)
		}
		if !strings.Contains(g.Exec("ip", "-o", "-4", "address", "show", "dev", "ib0"), "192.168.151.1/24") {
			g.Error("removing the package took the address away")
		}

	})
}
