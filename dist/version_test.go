package dist

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"ibnetworkd/internal/testkit"
)

// Each commit's package replaces that of the one before, whatever its hash
// begins with, and a release replaces all before it.
func TestVersionsGrow(t *testing.T) {
	for _, tool := range []string{"git", "dpkg"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skip(err)
		}
	}
	script, err := filepath.Abs("version.sh")
	testkit.NoError(t, err)
	dir := t.TempDir()
	day := 0
	git := func(args ...string) {
		t.Helper()
		c := exec.Command("git", append([]string{"-C", dir, "-c", "user.name=n", "-c", "user.email=e@localhost"}, args...)...)
		date := "2026-11-23T00:00:0" + string(rune('0'+day)) + " +0200"
		c.Env = append(os.Environ(), "GIT_AUTHOR_DATE="+date, "GIT_COMMITTER_DATE="+date)
		if out, err := c.CombinedOutput(); err != nil {
			t.Fatalf("git %q: %v\n%s", args, err, out)
		}
	}
	commit := func() {
		day++
		git("commit", "-q", "--allow-empty", "-m", "x")
	}
	version := func() string {
		t.Helper()
		out, err := exec.Command(script, dir).Output()
		testkit.NoError(t, err)
		return strings.TrimSpace(string(out))
	}
	if v := version(); v != "0.0~devel" {
		t.Errorf("outside of git: %s", v)
	}
	git("init", "-q")
	testkit.WriteFile(t, filepath.Join(dir, "f"), "a")
	git("add", "f")
	var all []string
	step := func(want string) {
		t.Helper()
		v := version()
		if !regexp.MustCompile("^" + want + "$").MatchString(v) {
			t.Errorf("version %s, want %s", v, want)
		}
		all = append(all, v)
	}
	for range 4 {
		commit()
		// The date is UTC.
		step(`0\.0~git2026112222000\d\.[0-9a-f]{7}`)
	}
	testkit.WriteFile(t, filepath.Join(dir, "f"), "b")
	step(`0\.0~git2026112222000\d\.[0-9a-f]{7}\+dirty`)
	git("checkout", "-q", "f")
	commit()
	git("tag", "v0.1.0-rc1")
	step(`0\.1\.0~rc1`)
	commit()
	step(`0\.1\.0~rc1\+1\.g[0-9a-f]{7}`)
	git("tag", "v0.1.0")
	step(`0\.1\.0`)
	commit()
	step(`0\.1\.0\+1\.g[0-9a-f]{7}`)
	commit()
	step(`0\.1\.0\+2\.g[0-9a-f]{7}`)
	git("tag", "v0.1.1")
	step(`0\.1\.1`)
	for i := 1; i < len(all); i++ {
		if err := exec.Command("dpkg", "--compare-versions", all[i-1]+"-1", "lt", all[i]+"-1").Run(); err != nil {
			t.Errorf("%s does not come before %s: %v", all[i-1], all[i], err)
		}
	}
}

// A hash is no version: one that begins with a digit would never be replaced.
func TestPackageRefusesHash(t *testing.T) {
	c := exec.Command("./package.sh", "deb")
	c.Env = append(os.Environ(), "VERSION=308ad34", "OUT="+t.TempDir(), "NFPM=false")
	if out, err := c.CombinedOutput(); err == nil || !strings.Contains(string(out), "VERSION=308ad34: a version begins") {
		t.Errorf("%v\n%s", err, out)
	}
}
