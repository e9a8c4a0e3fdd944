package lab

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"ibnetworkd/internal/testkit"
	"ibnetworkd/lab/build"
)

// The kernel with the checkers finds the bugs of a module that has one for each,
// and the lab sees its reports.
func TestPlantedBugs(t *testing.T) {
	if !Sanitizing() {
		t.Skip("IBNET_LAB_SANITIZE=1 runs the guests on the kernel with the checkers")
	}
	for _, tc := range []struct{ kind, want string }{
		{"use-after-free", "KASAN: slab-use-after-free"},
		{"overflow", "KASAN: slab-out-of-bounds"},
		{"leak", "unreferenced object"},
		{"lock-order", "possible circular locking"},
		{"refcount", "refcount_t: addition on 0"},
		{"atomic-sleep", "sleeping function called from invalid context"},
	} {
		t.Run(tc.kind, func(t *testing.T) {
			c := Config{HCAs: -1, AllowKernelErrors: true}
			if InGuest() {
				Run(t, c, func(g *G) {
					testkit.NoError(g, loadModule(shareDir+"/bin/bug.ko", "kind="+tc.kind))
				})
				return
			}
			b, err := build.New(t.Output())
			testkit.NoError(t, err)
			k, err := b.Kernel(t.Context(), build.Sanitize)
			testkit.NoError(t, err)
			ko, err := b.Module(t.Context(), k, "bug", os.DirFS("testdata/bug"))
			testkit.NoError(t, err)
			c.Bins = []string{ko}
			g := Boot(t, c)
			g.follow(t, "")
			log := testkit.ReadFile(t, filepath.Join(g.Dir, "out/dmesg"))
			if found := kernelErrors(log); !strings.Contains(found, tc.want) {
				t.Errorf("no %q in what the lab saw:\n%s\nof the log\n%s", tc.want, found, lastLines(log, 60))
			}
		})
	}
}
