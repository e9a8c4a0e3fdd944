// Package modules asks kmod for kernel modules.
package modules

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// Timeout bounds a load: a driver that probes a card with old firmware takes
// some ten seconds.
const Timeout = 60 * time.Second

// Loader loads modules. The zero value runs modprobe.
type Loader struct {
	// Ask, if set, loads a module in place of modprobe: a sandboxed service has no
	// right to load any, but may ask the service manager. It reports false where
	// there is none; modprobe is tried then.
	Ask func(ctx context.Context, name string) (asked bool, err error)
}

// Present gives a function that reports whether the kernel below root has a module,
// loaded or built in with parameters.
func Present(root string) func(module string) bool {
	return func(module string) bool {
		_, err := os.Stat(filepath.Join("/", root, "sys/module", strings.ReplaceAll(module, "-", "_")))
		return err == nil
	}
}

// Load runs modprobe, which honours aliases, dependencies, softdeps, options and blacklists of
// modprobe.d as an administrator expects; finit_module would know none of them. A name that
// kmod does not know is an error with modprobe's words.
func (l Loader) Load(ctx context.Context, names ...string) error {
	for _, n := range names {
		if n == "" || strings.HasPrefix(n, "-") || strings.ContainsAny(n, "/ \t\n\x00") {
			return fmt.Errorf("%.64q is not the name of a kernel module", n)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	for _, n := range names {
		if l.Ask != nil {
			if asked, err := l.Ask(ctx, n); asked {
				if err != nil {
					return fmt.Errorf("load module %s: %w", n, err)
				}
				continue
			}
		}
		cmd := exec.CommandContext(ctx, "modprobe", "--use-blacklist", "--", n)
		var out bytes.Buffer
		cmd.Stderr = &out
		if err := cmd.Run(); err != nil {
			text := strings.TrimSpace(out.String())
			const most = 512
			if len(text) > most {
				text = text[:most]
			}
			if ctx.Err() != nil {
				return fmt.Errorf("modprobe %s: %w", n, ctx.Err())
			}
			if text != "" {
				return fmt.Errorf("modprobe %s: %s", n, text)
			}
			return fmt.Errorf("modprobe %s: %w", n, err)
		}
	}
	return nil
}
