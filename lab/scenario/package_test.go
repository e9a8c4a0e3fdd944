package scenario

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"ibnetworkd/internal/testkit"
	"ibnetworkd/lab"
	"ibnetworkd/lab/build"
)

// packages builds two versions of a package (deb, rpm) from the tree.
func packages(t *testing.T, kind string) []string {
	t.Helper()
	if lab.InGuest() {
		return nil
	}
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
	if err := run([]string{"CGO_ENABLED=0"}, "go", "build", "-trimpath", "-ldflags=-s -w", "-o", dir+"/bin/", "./cmd/ibnetworkd",
		"./cmd/ibnetctl", "./cmd/ibnetsm"); err != nil {
		t.Fatal("the programs cannot be built")
	}
	var out []string
	for _, v := range []string{"0.1.0", "0.2.0"} {
		if err := run([]string{"BIN=" + dir + "/bin", "OUT=" + dir, "VERSION=" + v, "COMPRESSION=gzip"}, "dist/package.sh", kind); err != nil {
			t.Skip("nfpm cannot be had: no package, no test of it")
		}
		found, _ := filepath.Glob(dir + "/ibnetworkd?" + v + "*." + kind)
		if len(found) != 1 {
			t.Fatalf("no package of version %s", v)
		}
		out = append(out, found[0])
	}
	return out
}

// debs fetches packages of Debian that the guests' userland does not have, for
// unpack, nothing in a guest; their dependencies must be named too. Without a mirror
// the test is skipped.
func debs(t *testing.T, names ...string) []string {
	t.Helper()
	if lab.InGuest() {
		return nil
	}
	b, err := build.New(t.Output())
	testkit.NoError(t, err)
	files, err := b.Packages(t.Context(), names...)
	if errors.Is(err, build.ErrUnavailable) {
		t.Skip(err)
	}
	testkit.NoError(t, err)
	return files
}

// unpack puts the packages of debs into the guest.
func unpack(g *lab.G) {
	g.Helper()
	// /lib stays the link that it is.
	g.Sh("for d in %s/*_*.deb; do dpkg-deb --fsys-tarfile $d | tar -x -C / --keep-directory-symlink; done; ldconfig", binDir)
}

// packageConfig is a host that has one unit and no package yet.
func packageConfig() lab.Config {
	return lab.Config{Userland: lab.Systemd, Files: map[string]string{
		unitDir + "10-ib0.ibnetwork": auto,
		// The lab's own preset keeps Debian's packages from starting things.
		"/etc/systemd/system-preset/00-ibnetworkd.preset": "enable ibnetworkd*\n",
	}}
}

// packageStory installs the first package, upgrades to the second under traffic
// without a packet lost, and takes it away without a trace.
func packageStory(g *lab.G, install func(file string) string, check func(), remove func() string) {
	files, _ := filepath.Glob(binDir + "/ibnetworkd*0.?.0*")
	if len(files) != 2 {
		g.Fatalf("packages: %q", files)
	}
	if out := install(files[0]); strings.TrimSpace(out) != "" {
		g.Log(out)
	}
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
	check()
	b := g.Host("b")
	b.Take("ib1", "192.168.151.2/24")
	b.Ping("192.168.151.1") // the path is there before the first packet that counts
	pings := b.Pings("192.168.151.1", 50*time.Millisecond)
	pid := mainPID(g, "ibnetworkd")
	changes := g.Exec("cat", "/sys/class/net/ib0/carrier_changes")
	g.Log(install(files[1]))
	g.Wait("another process", 20*time.Second, func() bool {
		return mainPID(g, "ibnetworkd") != pid
	})
	g.Exec("ibnetctl", "wait-online", "-i", "ib0", "--timeout", "120s")
	stay := time.Now().Add(2 * time.Second)
	g.Wait("more answers", 5*time.Second, func() bool { return time.Now().After(stay) })
	if sent, lost := pings(); lost > 0 || sent < 40 {
		g.Errorf("%d of %d pings were lost during the upgrade", lost, sent)
	}
	if now := g.Exec("cat", "/sys/class/net/ib0/carrier_changes"); now != changes {
		g.Errorf("carrier changed: %s, then %s times", changes, now)
	}
	check()
	for _, u := range []string{"ibnetworkd", "ibnetworkd-wait-online"} {
		if out, err := g.Try("systemctl", "is-enabled", u); err != nil {
			g.Errorf("after the upgrade %s is %s", u, out)
		}
	}
	// [RoCE] WriteModprobeFile= writes the one, an administrator enables the other.
	g.Write("/etc/modprobe.d/ibnetworkd-mlx4.conf", "options mlx4_en pfctx=8\n")
	g.Exec("systemctl", "enable", "ibnetworkd-wait-online@ib0.service")
	g.Log(remove())
	if out, _ := g.Try("sh", "-c", "ls -d /etc/modprobe.d/ibnetworkd* /usr/sbin/ibnetworkd /usr/sbin/ibnetsm /usr/bin/ibnetctl "+
		"/var/lib/ibnetsm /run/ibnetworkd /run/ibnetsm /usr/lib/systemd/system/ibnet* /etc/systemd/system/*/ibnet* "+
		"/etc/systemd/system/*ibnet* /usr/share/doc/ibnetworkd 2>/dev/null"); strings.TrimSpace(out) != "" {
		g.Errorf("left behind:\n%s", out)
	}
	if out, _ := g.Try("systemctl", "list-units", "--all", "--plain", "--no-legend", "ibnet*"); strings.TrimSpace(out) != "" {
		g.Errorf("systemd still has\n%s", out)
	}
	if !strings.Contains(g.Exec("ip", "-o", "-4", "address", "show", "dev", "ib0"), "192.168.151.1/24") {
		g.Error("removing the package took the address away")
	}
	if _, err := os.Stat(unitDir + "10-ib0.ibnetwork"); err != nil {
		g.Error("removing the package took the administrator's unit away")
	}
}

// The Debian package.
func TestPackage(t *testing.T) {
	t.Parallel()
	c := packageConfig()
	c.Bins = packages(t, "deb")
	lab.Run(t, c, func(g *lab.G) {
		packageStory(g,
			func(f string) string { return g.Exec("dpkg", "--force-depends", "-i", f) },
			func() { g.Read("/usr/share/zsh/vendor-completions/_ibnetctl") },
			func() string { return g.Exec("dpkg", "--force-depends", "-P", "ibnetworkd") })
	})
}

// The RPM package, by Debian's own rpm.
func TestPackageRPM(t *testing.T) {
	t.Parallel()
	c := packageConfig()
	c.Bins = append(packages(t, "rpm"), debs(t, "rpm", "rpm-common", "librpm9", "librpmio9", "liblua5.3-0", "libpopt0", "libsqlite3-0")...)
	lab.Run(t, c, func(g *lab.G) {
		unpack(g)
		g.Exec("rpm", "--initdb")
		packageStory(g,
			func(f string) string { return g.Exec("rpm", "--upgrade", "--nodeps", "-v", f) },
			func() {
				g.Read("/usr/share/zsh/site-functions/_ibnetctl")
				// Every file is there as packed.
				if out, err := g.Try("rpm", "--verify", "--nodeps", "ibnetworkd"); err != nil {
					g.Errorf("rpm --verify: %v\n%s", err, out)
				}
				g.Log(g.Exec("rpm", "--query", "ibnetworkd"))
			},
			func() string { return g.Exec("rpm", "--erase", "-v", "ibnetworkd") })
	})
}

// What lintian says of the package: nothing.
func TestPackageLintian(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("lintian"); err != nil {
		t.Skip("lintian is not installed")
	}
	deb := packages(t, "deb")[1]
	out, err := exec.Command("lintian", "--fail-on=error,warning", "--allow-root", deb).CombinedOutput()
	if err != nil || strings.Contains(string(out), "W: ") || strings.Contains(string(out), "E: ") {
		t.Errorf("lintian: %v\n%s", err, out)
	}
}
