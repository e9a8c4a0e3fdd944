package lab

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"ibnetworkd/internal/testkit"
	"ibnetworkd/lab/build"
)

// The fabric module builds without a warning for every kernel of the lab, from
// the same source, with more warnings switched on than usual.
func TestModuleBuilds(t *testing.T) {
	if testing.Short() {
		t.Skip("builds kernels where there are none")
	}
	b, err := build.New(t.Output())
	testkit.NoError(t, err)
	for name, kernel := range map[string]func() (*build.Kernel, error){
		"UML":         func() (*build.Kernel, error) { return b.Kernel(t.Context(), build.UML) },
		"Debian 6.1":  func() (*build.Kernel, error) { return b.DebianKernel(t.Context(), "6.1") },
		"Debian 6.12": func() (*build.Kernel, error) { return b.DebianKernel(t.Context(), "6.12") },
	} {
		t.Run(name, func(t *testing.T) {
			k, err := kernel()
			if err != nil {
				unavailable(t, err)
			}
			ko, err := b.Module(t.Context(), k, "swib", SwibSource())
			testkit.NoError(t, err)
			if w, err := os.ReadFile(filepath.Join(filepath.Dir(ko), build.Warnings)); err == nil {
				t.Errorf("%s:\n%s", k.Release, w)
			}
		})
	}
}

// The kernel's own judge of style, at its strictest, has nothing to say.
func TestModuleStyle(t *testing.T) {
	if testing.Short() {
		t.Skip("builds a kernel where there is none")
	}
	b, err := build.New(t.Output())
	testkit.NoError(t, err)
	k, err := b.Kernel(t.Context(), build.UML)
	if err != nil {
		unavailable(t, err)
	}
	if _, err := exec.LookPath("perl"); err != nil {
		unavailable(t, err)
	}
	files, err := filepath.Glob("swib/*.[ch]")
	if err != nil || len(files) < 10 {
		t.Fatalf("%d source files, %v", len(files), err)
	}
	args := append([]string{filepath.Join(k.Source, "scripts/checkpatch.pl"), "--no-tree", "--strict", "--terse", "--no-summary",
		"--file"}, files...)
	out, err := exec.CommandContext(t.Context(), "perl", args...).CombinedOutput()
	if text := strings.TrimSpace(string(out)); text != "" || err != nil {
		t.Errorf("checkpatch --strict: %v\n%s", err, text)
	}
}
