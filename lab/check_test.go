package lab

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"ibnetworkd/internal/testkit"
)

// What cannot be is refused with a sentence that names the limit.
func TestConfigCheck(t *testing.T) {
	for _, tc := range []struct {
		name string
		c    Config
		want string // part of the error, "" for none
	}{
		{"OK nothing said", Config{}, ""},
		{"OK no fabric", Config{HCAs: -1}, ""},
		{"OK all of one switch", Config{HCAs: 127, Ports: 2, PKeys: 512, Queue: 16}, ""},
		{"OK more by cables", Config{HCAs: 1024, Cabled: true}, ""},
		{"OK parameters", Config{Swib: "cm=0  roce=N debug=1"}, ""},
		{"OK virtual functions", Config{Machine: QEMU, VFs: 4}, ""},
		{"bad virtual functions", Config{VFs: 4}, "only QEMU"},
		{"bad virtual functions", Config{Machine: QEMU, VFs: 17}, "up to 16"},
		{"OK QEMU", Config{Machine: QEMU, Series: "6.12", CPUs: 4, Swib: "pci=1"}, ""},
		{"OK unit", Config{Userland: Systemd, Units: []string{"a.service"}}, ""},
		{"bad HCAs", Config{HCAs: -5}, "-5 adapters: want 1 to 1024"},
		{"bad HCAs, too many", Config{HCAs: 100000, Cabled: true}, "100000 adapters: want 1 to 1024"},
		{"bad HCAs for one switch", Config{HCAs: 255}, "one switch has 254 ports"},
		{"bad HCAs for one switch, two ports", Config{HCAs: 128, Ports: 2}, "one switch has 254 ports"},
		{"bad ports", Config{Ports: 9}, "9 ports: an adapter has 1 to 2"},
		{"bad P_Keys", Config{PKeys: 33}, "a multiple of 32 up to 512"},
		{"bad queue", Config{Queue: 100}, "a power of two from 16 to 8192"},
		{"bad memory", Config{Memory: -1}, "-1 MiB"},
		{"bad time travel", Config{Machine: QEMU, TimeTravel: true}, "only the clock of UML"},
		{"bad small", Config{Machine: QEMU, Small: true}, "Debian's"},
		{"bad series", Config{Machine: QEMU, Series: "7.0"}, `kernel series "7.0": want 6.1 or 6.12`},
		{"bad series of UML", Config{Series: "6.12"}, "only QEMU"},
		{"bad CPUs of UML", Config{CPUs: 2}, "only QEMU"},
		{"bad units", Config{Userland: Debian, Units: []string{"a.service"}}, "only the userland Systemd"},
		{"bad file", Config{Files: map[string]string{"etc/x": ""}}, "want an absolute name"},
		{"bad file, a folder", Config{Files: map[string]string{"/etc/x/": ""}}, "not of a folder"},
		{"bad file, by detours", Config{Files: map[string]string{"/etc/../../x": ""}}, `file "/etc/../../x": want /x`},
		{"bad file, below another", Config{Files: map[string]string{"/etc/x/y/z": "", "/etc/x": ""}}, "/etc/x is a file too"},
		{"bad file, hidden", Config{Files: map[string]string{"/run/systemd/network/x": ""}}, "mounts on /run"},
		{"OK installed", Config{Userland: Systemd, Installed: true}, ""},
		{"bad installed", Config{Userland: Debian, Installed: true}, "only the userland Systemd"},
		{"bad parameter", Config{Swib: "cm=0 frob=1"}, `no parameter "frob"; it has nhca, nports, topo`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			err := tc.c.check()
			if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want %q", err, tc.want)
			}
		})
	}
}

func TestNetCheck(t *testing.T) {
	body := func(*G) {}
	host, sw := Node{Name: "a", Body: body}, Node{Name: "sw", Switch: 8}
	for _, tc := range []struct {
		name string
		n    Net
		want string
	}{
		{"OK", Net{Nodes: []Node{host, sw}, Cables: []string{"a/1 sw/8", "sw/1 S-0001/9"}}, ""},
		{"bad name", Net{Nodes: []Node{{Name: "a b", Body: body}}}, `node "a b"`},
		{"bad name again", Net{Nodes: []Node{host, host}}, `two nodes are called "a"`},
		{"bad without Body", Net{Nodes: []Node{{Name: "a"}}}, "node a has no Body"},
		{"bad switch with Body", Net{Nodes: []Node{{Name: "a", Switch: 2, Body: body}}}, "a switch has no Body"},
		{"bad switch", Net{Nodes: []Node{{Name: "a", Switch: 255}}}, "255 ports: want 1 to 254"},
		{"bad cable", Net{Nodes: []Node{host}, Cables: []string{"a/1"}}, "want two ports"},
		{"bad port of a switch", Net{Nodes: []Node{host, sw}, Cables: []string{"a/1 sw/99"}},
			`cable "a/1 sw/99": node sw has no port "99"; its last is 8`},
		{"bad port of a host", Net{Nodes: []Node{host, sw}, Cables: []string{"a/2 sw/1"}}, `node a has no port "2"; its last is 1`},
		{"bad port", Net{Nodes: []Node{host, sw}, Cables: []string{"a sw/1"}}, `no port ""`},
		{"bad config", Net{Nodes: []Node{{Name: "a", Body: body, Config: Config{Ports: 3}}}}, "node a: 3 ports"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			err := tc.n.check()
			if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want %q", err, tc.want)
			}
		})
	}
}

// A unit is one of the userland or of Config.Files.
func TestCheckUnits(t *testing.T) {
	root := t.TempDir()
	for _, u := range []string{"net.service", "tty@.service"} {
		testkit.NoError(t, linkFile("check_test.go", filepath.Join(root, "lib/systemd/system", u)))
	}
	for unit, ok := range map[string]bool{
		"net.service": true, "tty@1.service": true, "own.service": true, "nosuch.service": false, "other@1.service": false,
	} {
		m := &machine{rootfs: root, cfg: Config{Units: []string{unit},
			Files: map[string]string{"/etc/systemd/system/own.service": "[Service]\n"}}}
		if err := m.checkUnits(); (err == nil) != ok {
			t.Errorf("%s: %v", unit, err)
		}
	}
}

// Of nodes that failed, the first is named, whatever its name.
func TestFirstFailed(t *testing.T) {
	dir := t.TempDir()
	if got := firstFailed(dir); got != "" {
		t.Errorf("got %q of none", got)
	}
	for i, name := range []string{"c", "a", "b"} {
		testkit.NoError(t, post(dir, failedPrefix+name, ""))
		at := time.Unix(1000+int64(i), 0)
		testkit.NoError(t, os.Chtimes(filepath.Join(dir, failedPrefix+name), at, at))
	}
	if got := firstFailed(dir); got != "c" {
		t.Errorf("got %q", got)
	}
}
