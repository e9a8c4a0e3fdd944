package lab_test

import (
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

// The example of README.md is a test that passes unchanged.
func TestReadmeExample(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("boots a guest")
	}
	text := testkit.ReadFile(t, "README.md")
	_, rest, _ := strings.Cut(string(text), "This is `mine/mine_test.go`")
	_, rest, _ = strings.Cut(rest, "\n```go\n")
	code, _, ok := strings.Cut(rest, "\n```\n")
	if !ok || !strings.Contains(code, "func TestPing(") {
		t.Fatalf("README.md has no example with TestPing, but %q", code)
	}
	// Below the module, and out of the way of patterns such as ./... elsewhere.
	dir, err := os.MkdirTemp("testdata", "mine-")
	testkit.NoError(t, err)
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	testkit.WriteFile(t, filepath.Join(dir, "mine_test.go"), code+"\n")
	limit := lab.Patience(10 * time.Minute)
	cmd := exec.CommandContext(t.Context(), "go", "test", "-v", "-count=1", "-timeout="+limit.String(), "./"+dir)
	// All that go has started, or a guest would hold the pipe when the test is over.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	out, err := cmd.CombinedOutput()
	switch {
	case err != nil:
		t.Errorf("%v\n%s", err, out)
	case strings.Contains(string(out), "--- SKIP"):
		t.Skipf("no lab here: %s", out)
	case !strings.Contains(string(out), "--- PASS: TestPing"):
		t.Errorf("TestPing did not run:\n%s", out)
	}
}
