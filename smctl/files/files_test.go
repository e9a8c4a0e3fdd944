package files

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"ibnetworkd/internal/testkit"
	"ibnetworkd/smctl"
	"ibnetworkd/units"
)

// The worker's user of the tests: one that owns nothing.
func stranger(t *testing.T) Checker {
	t.Helper()
	return Checker{UID: 64999, GIDs: []int{64999}}
}

// A problem of a file is reported with its position; good files have no problem and
// a digest that changes with them.
func TestCheck(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string, mode os.FileMode) string {
		p := filepath.Join(dir, name)
		testkit.NoError(t, os.WriteFile(p, []byte(text), 0o600))
		testkit.NoError(t, os.Chmod(p, mode))
		return p
	}
	good := write("good.conf", "Default=0x7fff, ipoib : ALL=full;\n", 0o644)
	bad := write("bad.conf", "Default=0x7fff, ipoib : ALL=full;\nstorage=0x0001 ipoib : ALL;\n", 0o644)
	names := write("names", "0x1 \"a\"\n0x2 b\n", 0o644)
	open := write("open.keys", "MKey=1\n", 0o644)
	closed := write("closed.keys", "MKey=1\n", 0o600)
	fifo := filepath.Join(dir, "folder")
	testkit.NoError(t, os.Mkdir(fifo, 0o755))
	all := Checker{UID: -1}
	for _, tt := range []struct {
		pol   smctl.Policy
		want  string // part of the only problem
		fatal bool
	}{
		{smctl.Policy{}, "", false},
		{smctl.Policy{PartitionsFile: good}, "", false},
		{smctl.Policy{PartitionsFile: bad}, "bad.conf:2:9: ", true},
		{smctl.Policy{PartitionsFile: dir + "/none"}, "none: no such file", true},
		{smctl.Policy{PartitionsFile: fifo}, "folder: not a regular file", true},
		{smctl.Policy{PartitionsFile: good, NodeNameMap: names}, "names:2:", false},
		{smctl.Policy{RootGUIDFile: bad}, "bad.conf:1:", false},
		{smctl.Policy{GUIDRoutingOrderFile: dir + "/none"}, "none: no such file", false},
		{smctl.Policy{HopWeightsFile: dir + "/none"}, "none: no such file", false},
		{smctl.Policy{KeyFile: closed}, "", false},
		{smctl.Policy{KeyFile: open}, "chmod 0600 ", true},
		{smctl.Policy{KeyFile: dir + "/none"}, "none: no such file", true},
	} {
		ps, f := all.Check(tt.pol)
		switch {
		case tt.want == "" && (len(ps) > 0 || f.Problem != ""):
			t.Errorf("%+v: %v", tt.pol, ps)
		case tt.want != "" && (len(ps) != 1 || !strings.Contains(ps[0].String(), tt.want) || ps[0].Kept == "" ||
			(f.Problem != "") != tt.fatal || tt.fatal && f.Kept != ps[0].Kept):
			t.Errorf("%+v: %v %q, want %q", tt.pol, ps, f.Problem, tt.want)
		}
	}
	_, a := all.Check(smctl.Policy{PartitionsFile: good})
	write("good.conf", "Default=0x7fff, ipoib : ALL=limited;\n", 0o644)
	if _, b := all.Check(smctl.Policy{PartitionsFile: good}); a.Digest == b.Digest {
		t.Error("the digest of another file is the same")
	}
}

// opensm that is installed is no problem, and its digest is another one; its keys are
// not read.
func TestCheckOpenSM(t *testing.T) {
	c := Checker{Root: t.TempDir(), UID: -1}
	pol := smctl.Policy{Engine: smctl.EngineOpenSM, KeyFile: "/none"}
	ps, without := c.Check(pol)
	if len(ps) != 1 || !ps[0].Fatal || !strings.Contains(without.Problem, "/usr/sbin/opensm: not installed: install opensm") {
		t.Errorf("not installed: %v", ps)
	}
	testkit.NoError(t, os.MkdirAll(filepath.Join(c.Root, "usr/sbin"), 0o755))
	testkit.NoError(t, os.WriteFile(filepath.Join(c.Root, smctl.OpenSM), nil, 0o755))
	if ps, f := c.Check(pol); len(ps) > 0 || f.Problem != "" || f.Digest == without.Digest {
		t.Errorf("%v %+v, without opensm %+v", ps, f, without)
	}
}

// A file that the worker's user cannot reach is named with the folder that is in
// the way.
func TestAccess(t *testing.T) {
	base := "/var/lib"
	dir, err := os.MkdirTemp(base, "ibnet-files")
	if err != nil {
		t.Skip("only root has a folder outside /tmp to test with: ", err)
	}
	defer os.RemoveAll(dir)
	p := filepath.Join(dir, "p.conf")
	testkit.NoError(t, os.WriteFile(p, []byte("Default=0x7fff : ALL=full;\n"), 0o600))
	c := stranger(t)
	say := func() string { _, f := c.Check(smctl.Policy{PartitionsFile: p}); return f.Problem }
	if got := say(); !strings.Contains(got, "may not read "+p) || !strings.Contains(got, "chmod a+r "+p) {
		t.Errorf("a file of mode 0600: %q", got)
	}
	_ = os.Chmod(p, 0o644)
	if got := say(); !strings.Contains(got, "may not enter "+dir) {
		t.Errorf("a folder of mode 0700: %q", got)
	}
	_ = os.Chmod(dir, 0o755)
	if got := say(); got != "" {
		t.Errorf("all can read it: %q", got)
	}
	// opensm runs as root, without the capability to read what others own.
	testkit.NoError(t, os.Chown(p, 64999, 64999))
	_ = os.Chmod(p, 0o600)
	of := func(f string) string {
		ps, _ := c.Check(smctl.Policy{PartitionsFile: f, Engine: smctl.EngineOpenSM})
		for _, x := range ps {
			if x.Key == "PartitionsFile" {
				return x.Message + "; " + x.Kept
			}
		}
		return ""
	}
	if got := of(p); !strings.Contains(got, "opensm, which runs as user 0, may not read "+p) ||
		!strings.Contains(got, "one that starts uses the default partition") {
		t.Errorf("opensm, a file of another user: %q", got)
	}
	_ = os.Chmod(p, 0o644)
	if got := of(p); got != "" {
		t.Errorf("opensm, all can read it: %q", got)
	}
	if got := of("/home/p.conf"); !strings.Contains(got, "opensm does not see files below /home") {
		t.Errorf("opensm, a file in /home: %q", got)
	}
	hid := filepath.Join(t.TempDir(), "p.conf")
	_ = os.WriteFile(hid, nil, 0o644)
	if _, f := c.Check(smctl.Policy{PartitionsFile: hid}); strings.HasPrefix(hid, "/tmp/") &&
		!strings.Contains(f.Problem, "does not see files below /tmp") {
		t.Errorf("a file in /tmp: %q", f.Problem)
	}
}

// Problems of a unit's files have a place: in the file, or at the key.
func TestProblems(t *testing.T) {
	dir := t.TempDir()
	bad := filepath.Join(dir, "bad.conf")
	testkit.WriteFile(t, bad, "x=0x8000 : ALL;\ny=0x2 ALL;\n")
	set := units.Load([]units.Root{{Path: "/u", FS: fstest.MapFS{
		"a.ibnetwork": {Data: []byte("[Match]\nName=a\n[SubnetManager]\nPartitionsFile=" + bad + "\n")},
		"b.ibnetwork": {Data: []byte("[Match]\nName=b\n[SubnetManager]\nManage=auto\nPartitionsFile=" + dir + "/none\n")},
		"c.ibnetwork": {Data: []byte("[Match]\nName=c\n[SubnetManager]\nPartitionsFile=" + bad + "\n")}}}})
	var got []string
	for _, p := range (Checker{UID: -1}).Set(set) {
		got = append(got, p.String())
	}
	text := strings.Join(got, "\n")
	for _, want := range []string{bad + ":1:3: warning: ", bad + ":2:",
		"/u/b.ibnetwork:5:16: warning: [SubnetManager] PartitionsFile=: " + dir + "/none: no such file"} {
		if strings.Count(text, want) != 1 {
			t.Errorf("%q is not there once:\n%s", want, text)
		}
	}
}

// Names of routing engines that ibnetsm passes over are problems of its units, and no others.
func TestRoutingEngines(t *testing.T) {
	for value, want := range map[string]int{"foo": 1, "updn,ftree": 0, "minhop,foo,file": 2, "dnup,torus-2QoS,lash": 0} {
		text := "[Match]\nName=*\n[SubnetManager]\nRoutingEngine=" + value + "\n"
		u, _ := units.VerifyFile("f.ibnetwork", []byte(text))
		ps := Checker{UID: -1}.Problems(u)
		if len(ps) != want || want > 0 && (ps[0].Pos.Line != 4 || !strings.Contains(ps[0].Message, "routing engine") || ps[0].Kept == "") {
			t.Errorf("%s: %+v", value, ps)
		}
		u, _ = units.VerifyFile("f.ibnetwork", []byte(text+"Engine=opensm\n"))
		for _, p := range (Checker{UID: -1}).Problems(u) {
			if p.Key == "RoutingEngine" {
				t.Errorf("%s with opensm: %+v", value, p)
			}
		}
	}
}
