package dist

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"ibnetworkd/internal/kernel/umad"
	"ibnetworkd/internal/testkit"
)

// Each unit has limits of its memory, tasks and descriptors, with the reason above.
func TestLimits(t *testing.T) {
	names, err := fs.Glob(Files, "systemd/*.service")
	if err != nil || len(names) == 0 {
		t.Fatal(names, err)
	}
	for _, name := range names {
		text, err := fs.ReadFile(Files, name)
		testkit.NoError(t, err)
		for _, key := range []string{"MemoryMax", "TasksMax", "LimitNOFILE"} {
			if !regexp.MustCompile(`(?m)^` + key + `=\d`).Match(text) {
				t.Errorf("%s: %s= is missing", name, key)
			}
		}
		if !regexp.MustCompile(`(?m)^# .*\nMemoryMax=`).Match(text) {
			t.Errorf("%s: the reason for MemoryMax= is missing", name)
		}
	}
}

// The units that open MAD devices have a /dev of their own, with the host's where
// package umad looks for it.
func TestDev(t *testing.T) {
	for _, name := range []string{"ibnetworkd.service", "ibnetsm@.service"} {
		text, err := fs.ReadFile(Files, "systemd/"+name)
		testkit.NoError(t, err)
		for _, line := range []string{"PrivateDevices=yes", "BindReadOnlyPaths=" + umad.Dev + ":" + umad.HostDev + ":norbind",
			"DevicePolicy=closed", "DeviceAllow=char-infiniband_mad rw"} {
			if !strings.Contains("\n"+string(text), "\n"+line+"\n") {
				t.Errorf("%s: %s is missing", name, line)
			}
		}
	}
}

// The memory of the daemon does not grow with the number of CPUs.
func TestProcessors(t *testing.T) {
	text, err := fs.ReadFile(Files, "systemd/ibnetworkd.service")
	if err != nil || !strings.Contains(string(text), "\nEnvironment=GOMAXPROCS=1\n") {
		t.Errorf("Environment=GOMAXPROCS=1 is missing: %v", err)
	}
}

// A stop of the daemon does not wait for a helper process in a driver.
func TestStop(t *testing.T) {
	text, err := fs.ReadFile(Files, "systemd/ibnetworkd.service")
	if err != nil || !strings.Contains(string(text), "\nKillMode=process\n") {
		t.Errorf("KillMode=process is missing: %v", err)
	}
}

// The scores of systemd-analyze, which docs/security.md has with what is left.
func TestExposure(t *testing.T) {
	if _, err := exec.LookPath("systemd-analyze"); err != nil {
		t.Skip("systemd-analyze is not installed")
	}
	if out, err := exec.Command("systemd-analyze", "security", "--help").CombinedOutput(); err != nil ||
		!strings.Contains(string(out), "--offline") {
		t.Skip("systemd-analyze is older than 250")
	}
	dir := t.TempDir()
	page := testkit.ReadFile(t, "../docs/security.md")
	for name, limit := range map[string]string{
		"ibnetworkd.service": "1.4", "ibnetworkd-packet.service": "1.4", "ibnetsm@.service": "0.8", "ibnetworkd-wait-online.service": "1.2",
		"ibnetworkd-wait-online@.service": "1.2", "ibnetworkd-metrics.service": "0.5", "ibnetworkd-chrony.service": "1.3",
	} {
		text, err := fs.ReadFile(Files, "systemd/"+name)
		testkit.NoError(t, err)
		file := filepath.Join(dir, name)
		testkit.NoError(t, os.WriteFile(file, text, 0o644))
		out, err := exec.Command("systemd-analyze", "security", "--no-pager", "--offline=true", file).Output()
		m := regexp.MustCompile(`Overall exposure level for \S+: (\d+\.\d)`).FindSubmatch(out)
		if m == nil {
			t.Fatalf("%s: %v\n%s", name, err, out)
		}
		// One digit before the point each: they compare as text.
		if score := string(m[1]); len(score) != 3 || score > limit {
			t.Errorf("%s: the score is %s, at most %s", name, score, limit)
		}
		row := strings.Replace(strings.Replace(name, "-online@", "-online", 1), "-online.", "-online*.", 1)
		if !strings.Contains(string(page), "| `"+row+"` | "+limit+" |") {
			t.Errorf("docs/security.md does not have the score %s of %s", limit, row)
		}
	}
}

// The units run nothing but what is installed with them, and what systemd brings, or on the
// condition that it is there: a minimal system has no /bin/kill.
func TestOwnProgramsOnly(t *testing.T) {
	names, err := fs.Glob(Files, "systemd/*.service")
	if err != nil || len(names) == 0 {
		t.Fatal(names, err)
	}
	exec := regexp.MustCompile(`(?m)^Exec\w+=[-@:+!|]*(\S+)`)
	for _, name := range names {
		text, err := fs.ReadFile(Files, name)
		testkit.NoError(t, err)
		for _, m := range exec.FindAllStringSubmatch(string(text), -1) {
			if !strings.HasPrefix(m[1], "/usr/sbin/ibnet") && !strings.HasPrefix(m[1], "/usr/bin/ibnet") &&
				!strings.HasPrefix(m[1], "/usr/lib/systemd/") && !strings.Contains(string(text), "\nConditionPathExists="+m[1]+"\n") {
				t.Errorf("%s runs %s", name, m[1])
			}
		}
	}
}
