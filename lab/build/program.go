package build

import (
	"context"
	"os"
	"path/filepath"
	"strings"
)

// Program builds a main package as a static executable.  dir is a folder of the
// module, pkg its import path.  The result is kept, so that the linker only runs
// when something changed.
func (b *Builder) Program(ctx context.Context, dir, pkg string) (string, error) {
	out := filepath.Join(b.Cache, "bin", key(dir, pkg), filepath.Base(pkg))
	return out, b.goBuild(ctx, dir, out, "build", "-o", out, pkg)
}

// TestProgram builds the tests of the package in dir as a static executable.
func (b *Builder) TestProgram(ctx context.Context, dir string) (string, error) {
	out := filepath.Join(b.Cache, "bin", key(dir, "test"), filepath.Base(dir)+".test")
	return out, b.goBuild(ctx, dir, out, "test", "-c", "-o", out, ".")
}

func (b *Builder) goBuild(ctx context.Context, dir, out string, args ...string) error {
	unlock, err := b.lock(ctx, "program "+filepath.Base(out), "bin-"+filepath.Base(filepath.Dir(out)))
	if err != nil {
		return err
	}
	defer unlock()
	if !used(filepath.Dir(out)) {
		prune(filepath.Dir(filepath.Dir(out)))
	}
	if err := os.MkdirAll(filepath.Dir(out), 0o755); err != nil {
		return err
	}
	s := step{what: "go " + strings.Join(args[:1], " ") + " " + filepath.Base(out), dir: dir, env: []string{"CGO_ENABLED=0"}}
	return b.run(ctx, s, "go", args...)
}
