package lab

import (
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"ibnetworkd/internal/testkit"
)

// A guest with Installed has what install.sh installs, programs and documentation
// aside: no file of dist is forgotten here or there.
func TestInstalled(t *testing.T) {
	bin, to := t.TempDir(), t.TempDir()
	for _, p := range Programs {
		testkit.NoError(t, os.WriteFile(filepath.Join(bin, filepath.Base(p)), []byte("#!/bin/sh\n"), 0o755))
	}
	cmd := exec.Command("../dist/install.sh")
	cmd.Env = append(os.Environ(), "DESTDIR="+to, "BIN="+bin, "PREFIX=/usr", "LIB=/usr/lib")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("install.sh: %v\n%s", err, out)
	}
	want := map[string]string{}
	err := fs.WalkDir(os.DirFS(to), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		for _, other := range []string{"usr/bin/", "usr/sbin/", "usr/share/doc/", "usr/share/man/",
			"usr/share/bash-completion/", "usr/share/zsh/", "usr/share/fish/", "usr/share/initramfs-tools/", "usr/lib/dracut/"} {
			if strings.HasPrefix(name, other) {
				return nil
			}
		}
		text, err := os.ReadFile(filepath.Join(to, name))
		s := strings.NewReplacer("=/usr/sbin/ibnet", "=/lab/bin/ibnet", "=/usr/bin/ibnet", "=/lab/bin/ibnet").Replace(string(text))
		want[strings.Replace("/"+name, "/usr/lib/systemd/system/", unitPlace+"/", 1)] = s
		return err
	})
	testkit.NoError(t, err)
	got := installedFiles()
	if w, g := slices.Sorted(maps.Keys(want)), slices.Sorted(maps.Keys(got)); !slices.Equal(w, g) {
		t.Errorf("got  %q\nwant %q", g, w)
	}
	for name, text := range want {
		if got[name] != text {
			t.Errorf("%s is not as install.sh installs it", name)
		}
	}

	c := Config{Userland: Systemd, Installed: true, Bins: []string{"/own/ibnetctl"},
		Files: map[string]string{unitPlace + "/ibnetworkd.service": "own"}}
	once := c.withDefaults()
	twice := once.withDefaults()
	if len(c.Files) != 1 || len(c.Bins) != 1 {
		t.Errorf("the config that was given has changed: %+v", c)
	}
	if bins := []string{"/own/ibnetctl", Programs[0], Programs[2]}; !slices.Equal(once.Bins, bins) ||
		once.Files[unitPlace+"/ibnetworkd.service"] != "own" {
		t.Errorf("what the config has itself was replaced: %q, %+v", once.Bins, once.Files)
	}
	if !slices.Equal(once.Bins, twice.Bins) || !slices.Equal(once.Units, twice.Units) || !maps.Equal(once.Files, twice.Files) {
		t.Errorf("twice is not as once:\n%+v\n%+v", once, twice)
	}
}
