package scenario

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"ibnetworkd/internal/testkit"
	"ibnetworkd/lab/build"
)

// The package on a minimal Debian 12 and 13: installed, upgraded and purged without a
// message, and with units of which that systemd finds nothing to say.
func TestPackageMinimal(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("chroot needs root")
	}
	files := packages(t, "deb")
	b, err := build.New(t.Output())
	testkit.NoError(t, err)
	for _, suite := range []string{"bookworm", "trixie"} {
		t.Run(suite, func(t *testing.T) {
			base, err := b.Minimal(t.Context(), suite)
			if errors.Is(err, build.ErrUnavailable) {
				t.Skip(err)
			}
			testkit.NoError(t, err)
			root := filepath.Join(t.TempDir(), "root")
			if out, err := exec.Command("cp", "-a", "--reflink=auto", base, root).CombinedOutput(); err != nil {
				t.Fatalf("copy: %v\n%s", err, out)
			}
			// in runs a command in the system.
			in := func(name string, args ...string) (string, error) {
				c := exec.Command(name, args...)
				c.Path = name
				c.Err = nil // found in the system, not here
				c.Dir = "/"
				c.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "DEBIAN_FRONTEND=noninteractive", "LC_ALL=C"}
				c.SysProcAttr = &syscall.SysProcAttr{Chroot: root}
				out, err := c.CombinedOutput()
				return string(out), err
			}
			if _, err := os.Stat(filepath.Join(root, "usr/bin/kill")); err == nil {
				t.Error("the system has kill(1): it is not minimal")
			}
			install := func(file string) {
				t.Helper()
				text := testkit.ReadFile(t, file)
				testkit.NoError(t, os.WriteFile(filepath.Join(root, "tmp/package.deb"), text, 0o644))
				out, err := in("/usr/bin/dpkg", "-i", "/tmp/package.deb")
				if err != nil || strings.Contains(out, "arning") || strings.Contains(out, "rror") || strings.Contains(out, "ot found") {
					t.Fatalf("dpkg -i: %v\n%s", err, out)
				}
				units, _ := filepath.Glob(filepath.Join(root, "usr/lib/systemd/system/ibnet*"))
				if len(units) < 4 {
					t.Errorf("%d units are installed", len(units))
				}
				args := []string{"verify", "--man=no"}
				for _, u := range units {
					args = append(args, strings.Replace(filepath.Base(u), "@.", "@x.", 1))
				}
				if out, err := in("/usr/bin/systemd-analyze", args...); err != nil || strings.Contains(out, "ibnet") {
					t.Errorf("systemd-analyze verify: %v\n%s", err, out)
				}
				for _, w := range []string{"ibnetworkd.service", "ibnetworkd-wait-online.service"} {
					if out, err := in("/usr/bin/systemctl", "is-enabled", w); err != nil {
						t.Errorf("%s is %s", w, out)
					}
				}
			}
			install(files[0])
			install(files[1])
			if out, err := in("/usr/bin/ibnetctl", "--version"); err != nil || !strings.Contains(out, "ibnetctl ") {
				t.Errorf("ibnetctl: %v\n%s", err, out)
			}
			if out, err := in("/usr/bin/dpkg", "-P", "ibnetworkd"); err != nil || strings.Contains(out, "arning") {
				t.Errorf("dpkg -P: %v\n%s", err, out)
			}
			left := func(dirs ...string) {
				for _, d := range dirs {
					_ = filepath.WalkDir(filepath.Join(root, d), func(p string, _ os.DirEntry, err error) error {
						if n := filepath.Base(p); err == nil &&
							(strings.Contains(n, "ibnetwork") || strings.Contains(n, "ibnetctl") || strings.Contains(n, "ibnetsm")) {
							t.Errorf("left behind: %s", strings.TrimPrefix(p, root))
						}
						return nil
					})
				}
			}
			left("etc", "usr", "run", "var/lib/systemd", "var/cache")
			if _, err := os.Stat(filepath.Join(root, "var/lib/ibnetsm")); err == nil {
				t.Error("left behind: /var/lib/ibnetsm")
			}
		})
	}
}
