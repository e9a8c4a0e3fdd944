package bench

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"ibnetworkd/internal/testkit"
	"ibnetworkd/lab"
)

// idle is a program that does nothing, with imports.
const idle = "package main\n\nimport (\n\t\"syscall\"\n%s)\n\nfunc main() { _ = syscall.Pause() }\n"

// TestMemory prints what the Go runtime, the libraries and the daemon cost in memory on a
// host without links, each with the settings of the service. It needs no guest.
func TestMemory(t *testing.T) {
	skipUnlessCompare(t)
	if lab.InGuest() {
		t.Skip("for the host")
	}
	dir := t.TempDir()
	root, err := filepath.Abs("../..")
	testkit.NoError(t, err)
	build := func(name, imports string) string {
		t.Helper()
		out := filepath.Join(dir, name)
		args := []string{"build", "-o", out}
		if name == "ibnetworkd" {
			args = append(args, "./cmd/ibnetworkd")
		} else {
			source := filepath.Join(dir, name+".go")
			overlay, _ := json.Marshal(map[string]any{"Replace": map[string]string{filepath.Join(root, "lab/bench", name, "main.go"): source}})
			for path, text := range map[string][]byte{source: fmt.Appendf(nil, idle, imports), source + ".json": overlay} {
				testkit.NoError(t, os.WriteFile(path, text, 0o600))
			}
			args = append(args, "-overlay", source+".json", "./lab/bench/"+name)
		}
		c := exec.Command("go", args...)
		c.Dir, c.Env = root, append(os.Environ(), "CGO_ENABLED=0")
		if text, err := c.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", name, err, text)
		}
		return out
	}
	for _, x := range []struct {
		what, name, imports string
		args                []string
	}{
		{"an empty program", "empty", "", nil},
		{"an empty program that links the daemon's packages", "linked", "\n\t_ \"ibnetworkd/daemon/app\"\n\t_ \"ibnetworkd/daemon/card\"\n", nil},
		{"the daemon without a link", "ibnetworkd", "", []string{"--unit-root=" + dir, "--state-dir=" + filepath.Join(dir, "state")}},
	} {
		program := build(x.name, x.imports)
		c := exec.Command(program, x.args...)
		c.Env = append(os.Environ(), "GOMAXPROCS=1", "GOMEMLIMIT=768MiB", "DBUS_SYSTEM_BUS_ADDRESS=unix:path="+filepath.Join(dir, "bus"))
		c.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
		testkit.NoError(t, c.Start())
		time.Sleep(10 * time.Second) // the work of its start is done
		all, own, err := resident(c.Process.Pid, program)
		_ = c.Process.Kill()
		_ = c.Wait()
		if err != nil || own == 0 {
			t.Fatalf("%s: %d kB, %d of its file: %v", x.what, all, own, err)
		}
		info, err := os.Stat(program)
		testkit.NoError(t, err)
		t.Logf("%s: %.1f MB, of these %.1f MB pages of its file of %.1f MB", x.what, float64(all)/1000, float64(own)/1000,
			float64(info.Size())/1e6)
	}
}

// resident is the memory of a process in kB, and how much of it are pages of its program.
func resident(pid int, program string) (all, own int, err error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps", pid))
	if err != nil {
		return 0, 0, err
	}
	mine := false
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) > 4 && strings.Contains(f[0], "-") {
			mine = f[len(f)-1] == program
		}
		if n, ok := field(line, "Rss:"); ok {
			all += n
			if mine {
				own += n
			}
		}
	}
	return all, own, nil
}
