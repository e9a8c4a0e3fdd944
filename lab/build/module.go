package build

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Warnings is the file beside a module with the compiler's warnings at W=1; without
// warnings there is none.
const Warnings = "warnings"

// Module builds the kernel module name.ko from the sources in src (with their
// Kbuild file) for kernel k and returns the path of the .ko file.
func (b *Builder) Module(ctx context.Context, k *Kernel, name string, src fs.FS) (string, error) {
	parts := []string{"module, warnings kept", name, k.id}
	files := map[string][]byte{}
	err := fs.WalkDir(src, ".", func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		base := filepath.Base(p)
		if ext := filepath.Ext(base); ext != ".c" && ext != ".h" && base != "Kbuild" {
			return nil
		}
		text, err := fs.ReadFile(src, p)
		files[p] = text
		parts = append(parts, p, string(text))
		return err
	})
	if err != nil {
		return "", fmt.Errorf("module %s: %w", name, err)
	}
	dir := filepath.Join(b.Cache, "module", name+"-"+key(parts...))
	err = b.once(ctx, "module "+name, dir, func(tmp string) error {
		if err := b.need(ctx, buildTools); err != nil {
			return err
		}
		b.say("module %s for %s", name, k.Release)
		for p, text := range files {
			to := filepath.Join(tmp, p)
			if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
				return err
			}
			if err := os.WriteFile(to, text, 0o644); err != nil {
				return err
			}
		}
		// Two modules must not be built in one kernel tree at the same time.
		unlock, err := b.lock(ctx, "kernel tree", "tree-"+k.id)
		if err != nil {
			return err
		}
		defer unlock()
		// A log of its own for each kernel: other builds run at the same time.
		log := filepath.Join(b.Cache, name+"-"+k.id+".log")
		os.Remove(log)
		args := append(append([]string{}, k.make...), "M="+tmp, "W=1", fmt.Sprintf("-j%d", b.Jobs), "modules")
		s := step{what: "module " + name, log: log}
		if err := b.run(ctx, s, "make", args...); err != nil {
			return err
		}
		text, err := os.ReadFile(log)
		if err != nil {
			return err
		}
		if w := warnings(string(text)); w != "" {
			b.say("module %s: compiler warnings:\n%s", name, w)
			if err := os.WriteFile(filepath.Join(tmp, Warnings), []byte(w), 0o644); err != nil {
				return err
			}
		}
		if err := b.run(ctx, step{what: "strip"}, "strip", "-g", filepath.Join(tmp, name+".ko")); err != nil {
			return err
		}
		entries, err := os.ReadDir(tmp)
		for _, e := range entries {
			if n := e.Name(); n != name+".ko" && n != Warnings {
				os.RemoveAll(filepath.Join(tmp, n)) // twenty times the module's size
			}
		}
		return err
	})
	if err != nil {
		return "", err
	}
	return filepath.Join(dir, name+".ko"), nil
}

func warnings(log string) string {
	var w []string
	for l := range strings.Lines(log) {
		if strings.Contains(l, "warning:") {
			w = append(w, "\t"+strings.TrimSpace(l))
		}
	}
	return strings.Join(w, "\n")
}
