package build

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// minimalPackages is what a small Debian server has beside the essential packages,
// and what our package depends on. There is no kill(1), no modprobe and no bus.
var minimalPackages = []string{"systemd", "systemd-sysv", "sensible-utils"}

// Minimal makes a minimal system of a Debian release ("bookworm", "trixie") and
// returns its folder, which must be copied before anything writes to it. The error is
// ErrUnavailable where there is no mirror of the release.
func (b *Builder) Minimal(ctx context.Context, suite string) (string, error) {
	names := strings.Join(minimalPackages, ",")
	dir := filepath.Join(b.Cache, "minimal", suite+"-"+key("minimal", suite, names))
	err := b.once(ctx, "minimal Debian "+suite, dir, func(tmp string) error {
		if err := b.need(ctx, map[string]string{"mmdebstrap": "mmdebstrap"}); err != nil {
			return err
		}
		mode := "root"
		if os.Geteuid() != 0 {
			mode = "unshare"
		}
		log := filepath.Join(b.Cache, "minimal-"+suite+".log")
		_ = os.Remove(log)
		if err := b.run(ctx, step{what: "minimal Debian " + suite, log: log}, "mmdebstrap", "--variant=minbase", "--mode="+mode,
			`--aptopt=APT::Install-Recommends "false"`, `--dpkgopt=path-exclude=/usr/share/doc/*`, `--dpkgopt=path-exclude=/usr/share/locale/*`,
			"--include="+names, suite, tmp); err != nil {
			return fmt.Errorf("%w: %w", ErrUnavailable, err)
		}
		return nil
	})
	if err != nil {
		return "", err
	}
	return dir, nil
}
