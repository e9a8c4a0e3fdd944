package conf

import (
	"strings"
	"testing"

	"ibnetworkd/internal/testkit"
)

// Directories, drop-ins and masks count as systemd's do; a mistake is reported with its
// place and what stood before stays.
func TestRead(t *testing.T) {
	for _, tt := range []struct {
		name  string
		files map[string]string
		watch bool
		say   string // part of the only problem
	}{
		{"none", nil, true, ""},
		{"no", map[string]string{"etc/ibnetworkd/ibnetworkd.conf": "# ours\n[Daemon]\n WatchUnitFiles = no\n"}, false, ""},
		{"the first wins", map[string]string{"etc/ibnetworkd/ibnetworkd.conf": "[Daemon]\n",
			"usr/lib/ibnetworkd/ibnetworkd.conf": "[Daemon]\nWatchUnitFiles=no\n"}, true, ""},
		{"of a package", map[string]string{"usr/lib/ibnetworkd/ibnetworkd.conf": "[Daemon]\nWatchUnitFiles=off\n"}, false, ""},
		{"a drop-in", map[string]string{"etc/ibnetworkd/ibnetworkd.conf": "[Daemon]\nWatchUnitFiles=no\n",
			"usr/lib/ibnetworkd/ibnetworkd.conf.d/10-a.conf": "[Daemon]\nWatchUnitFiles=yes\n"}, true, ""},
		{"drop-ins by name", map[string]string{"etc/ibnetworkd/ibnetworkd.conf.d/20-b.conf": "[Daemon]\nWatchUnitFiles=no\n",
			"usr/lib/ibnetworkd/ibnetworkd.conf.d/30-c.conf": "[Daemon]\nWatchUnitFiles=\n"}, true, ""},
		{"a drop-in that is replaced", map[string]string{"etc/ibnetworkd/ibnetworkd.conf.d/10-a.conf": "",
			"usr/lib/ibnetworkd/ibnetworkd.conf.d/10-a.conf": "[Daemon]\nWatchUnitFiles=no\n"}, true, ""},
		{"maybe", map[string]string{"etc/ibnetworkd/ibnetworkd.conf": "[Daemon]\nWatchUnitFiles=no\nWatchUnitFiles=maybe\n"}, false,
			`ibnetworkd.conf:3: WatchUnitFiles=: "maybe" is neither yes nor no`},
		{"a typo", map[string]string{"etc/ibnetworkd/ibnetworkd.conf": "[Daemon]\nWatchUnitFile=no\n"}, true,
			"ibnetworkd.conf:2: unknown key WatchUnitFile="},
		{"another section", map[string]string{"etc/ibnetworkd/ibnetworkd.conf": "[Network]\nWatchUnitFiles=no\n"}, true,
			`:1: unknown section "Network"`},
		{"no section", map[string]string{"etc/ibnetworkd/ibnetworkd.conf": "WatchUnitFiles=no\n"}, true,
			":1: WatchUnitFiles= is outside a section"},
		{"no key", map[string]string{"etc/ibnetworkd/ibnetworkd.conf": "[Daemon]\nno\n"}, true, ":2: want Key=value"},
	} {
		root := t.TempDir()
		testkit.WriteFiles(t, root, tt.files)
		c := Read(root)
		if c.WatchUnitFiles != tt.watch || (len(c.Problems) > 0) != (tt.say != "") || tt.say != "" &&
			!strings.Contains(strings.Join(c.Problems, "\n"), tt.say) {
			t.Errorf("%s: %+v, want %v %q", tt.name, c, tt.watch, tt.say)
		}
	}
}

func FuzzConf(f *testing.F) {
	f.Add("[Daemon]\nWatchUnitFiles=no\n")
	f.Fuzz(func(t *testing.T, text string) {
		c := Settings{WatchUnitFiles: true}
		c.parse("f", text)
		if !c.WatchUnitFiles && !strings.Contains(text, "[Daemon]") {
			t.Fatalf("%q changes the daemon without its section", text)
		}
		for _, p := range c.Problems {
			if !strings.HasPrefix(p, "f:") {
				t.Fatalf("a problem without a place: %q", p)
			}
		}
	})
}
