package lab

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"ibnetworkd/internal/testkit"
	"ibnetworkd/lab/build"
)

// tree is what can be seen of all files below a folder without reading them.
func tree(t *testing.T, root string) map[string]string {
	t.Helper()
	files := map[string]string{}
	testkit.NoError(t, filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if p == root {
			return nil // a user of the cache updates its time
		}
		i, err := d.Info()
		if err != nil {
			return err
		}
		files[p[len(root):]] = fmt.Sprintf("%v, %d bytes, changed %v", i.Mode(), i.Size(), i.ModTime())
		return nil
	}))
	return files
}

// Nothing that root does in a guest reaches the userland in the cache, which all
// guests share.
func TestUserlandStays(t *testing.T) {
	t.Parallel()
	for _, u := range []Userland{Debian, Systemd} {
		t.Run(u.String(), func(t *testing.T) { userlandStays(t, Config{Userland: u, HCAs: -1}) })
	}
}

func userlandStays(t *testing.T, c Config) {
	// Small texts: what a guest does damage after all is put right again.
	const changed, cut, deleted, mode, folder = "/usr/lib/os-release", "/etc/hosts", "/etc/hostname", "/etc/fstab", "/usr/share/misc"
	body := func(g *G) {
		for _, f := range []string{changed, cut} {
			h, err := os.OpenFile(f, os.O_WRONLY|os.O_APPEND, 0)
			testkit.NoError(g, err)
			if _, err := h.WriteString("# a guest was here\n"); err != nil {
				g.Error(err)
			}
			h.Close()
		}
		for what, err := range map[string]error{
			"truncate": os.Truncate(cut, 3),
			"delete":   os.Remove(deleted),
			"mode":     os.Chmod(mode, 0o600),
			"rename":   os.Rename(mode, mode+".guest"),
			"new file": errors.Join(os.WriteFile("/usr/bin/guest", nil, 0o755), os.WriteFile("/etc/guest", nil, 0o644)),
			"mkdir":    os.Mkdir(folder+"/guest", 0o755),
		} {
			if err != nil {
				g.Errorf("%s: %v", what, err)
			}
		}
		if s := g.Read(cut); s != "127" {
			g.Errorf("%s is %q in the guest", cut, s)
		}
		if _, err := os.Stat(deleted); err == nil {
			g.Errorf("%s is still there in the guest", deleted)
		}
	}
	if InGuest() {
		Run(t, c, body)
		return
	}
	if testing.Short() || os.Getenv(requireVar) == "off" {
		t.Skip("boots a guest")
	}
	b, err := build.New(t.Output())
	testkit.NoError(t, err)
	root, err := b.Rootfs(t.Context())
	if errors.Is(err, build.ErrUnavailable) {
		unavailable(t, err)
	}
	testkit.NoError(t, err)
	texts := map[string]string{}
	for _, f := range []string{changed, cut, deleted, mode} {
		text := testkit.ReadFile(t, root+f)
		texts[f] = string(text)
	}
	before := tree(t, root)
	Run(t, c, body)
	for f, want := range texts {
		if text, err := os.ReadFile(root + f); err != nil || string(text) != want {
			t.Errorf("%s of the cache: %q %v, want %q", f, text, err, want)
			if err := os.WriteFile(root+f, []byte(want), 0o644); err != nil {
				t.Error(err)
			}
		}
	}
	after := tree(t, root)
	for _, f := range slices.Sorted(maps.Keys(before)) {
		if after[f] != before[f] {
			t.Errorf("%s of the cache: %s, was %s", f, after[f], before[f])
		}
	}
	for _, f := range slices.Sorted(maps.Keys(after)) {
		if _, ok := before[f]; !ok {
			t.Errorf("%s is new in the cache", f)
			_ = os.Remove(root + f)
		}
	}
}
