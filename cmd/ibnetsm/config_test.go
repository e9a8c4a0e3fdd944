package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"ibnetworkd/internal/testkit"

	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"
)

// configured are the options of a file and a command line.
func configured(t *testing.T, text string, mode os.FileMode, args ...string) (options, error) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "ibnetsm.conf")
	testkit.NoError(t, os.WriteFile(file, []byte(text), mode))
	var o options
	f := pflag.NewFlagSet("run", pflag.ContinueOnError)
	o.bind(f)
	testkit.NoError(t, f.Parse(append(args, "--config="+file)))
	o.remember(f)
	return o.withSettings()
}

// Every option of the command line can be in the file and does the same there, and
// the command line overrides the file.
func TestConfigHasEveryOption(t *testing.T) {
	values := map[string]string{"bool": "true", "string": "x", "stringSlice": "a,b", "stringArray": "0x8001 Name=a,b Members=ALL",
		"uint8": "3", "uint16": "9", "int": "7", "duration": "3s", "hex": "0x77"}
	var all options
	f := pflag.NewFlagSet("run", pflag.ContinueOnError)
	all.bind(f)
	var text strings.Builder
	var args []string
	f.VisitAll(func(g *pflag.Flag) {
		if g.Name == "config" || g.Name == "settings" || g.Name == "keys-file" {
			return // files that are read
		}
		v := values[g.Value.Type()]
		if v == "" {
			t.Fatalf("--%s is of type %s", g.Name, g.Value.Type())
		}
		fmt.Fprintf(&text, "%s = %s\n", g.Name, v)
		args = append(args, "--"+g.Name+"="+v)
	})
	file, err := configured(t, text.String(), 0o600)
	testkit.NoError(t, err)
	line, err := configured(t, "", 0o600, args...)
	testkit.NoError(t, err)
	other := strings.NewReplacer("= 3\n", "= 5\n", "= x\n", "= y\n", "a,b\n", "c\n").Replace(text.String())
	both, err := configured(t, other, 0o600, args...)
	testkit.NoError(t, err)
	for _, o := range []*options{&file, &line, &both} {
		o.given, o.configFile = nil, ""
	}
	if !reflect.DeepEqual(file, line) || !reflect.DeepEqual(both, line) {
		t.Errorf("by the file\n%+v\nby the command line\n%+v\nby both\n%+v", file, line, both)
	}
	if file.priority != 3 ||
		file.sweep != 3*time.Second || !slices.Equal(file.guids, []string{"a", "b"}) || len(file.rules) != 1 || !file.qos {
		t.Errorf("%+v", file)
	}
}

func TestConfigMistakes(t *testing.T) {
	for _, tt := range []struct {
		text, want string
		mode       os.FileMode
	}{
		{"# x\n\n  priorty = 3\n", `FILE:3:3: no option "priorty"; `, 0o644},
		{"priority\n", "FILE:1:1: want name = value", 0o644},
		{"priority =   many\n", `FILE:1:14: priority: "many" is not a number from 0 to 15`, 0o644},
		{"sweep = soon\n", `FILE:1:9: sweep: "soon" is not a time such as 30, 30s or 300ms`, 0o644},
		{"m-key-lease = 70000\n", `FILE:1:15: m-key-lease: "70000" is not a number from 0 to 65535`, 0o644},
		{"lmc=1\nlmc=2\n", "FILE:2:1: lmc is set in line 1 already", 0o644},
		{"qos = perhaps\n", `FILE:1:7: qos: "perhaps" is neither yes nor no`, 0o644},
		{"device = \n", "FILE:1:10: device: no value", 0o644},
		{"config = other\n", `FILE:1:1: no option "config"`, 0o644},
		{"m-key = s3cret\n", "FILE:1:9: m-key: not a 64 bit number such as 0x0123456789abcdef", 0o600},
		{"m-key = 0x12\n", "FILE: it has a key, and group or others may access it (mode 0644); run: chmod 0600 FILE", 0o644},
		{"priority = 17\n lmc=9\nsweep = -3s\nsubnet-prefix = 0\nm-key-protect = 8\ntimeout = 0s\nretries = 99\nwindow = 0\n",
			"FILE:1:12: --priority 17: out of range, 0 to 15\nFILE:2:6: --lmc 9: out of range, 0 to 7\n" +
				"FILE:3:9: sweep: \"-3s\" is not a time such as 30, 30s or 300ms\n" +
				"FILE:4:17: --subnet-prefix 0: not a prefix; the default is 0xfe80000000000000\n" +
				"FILE:5:17: --m-key-protect 8: out of range, 0 to 3\nFILE:6:11: --timeout 0s, --poll 250ms: must be greater than 0\n" +
				"FILE:7:11: --retries 99: out of range, 0 to 50\nFILE:8:10: --window 0: out of range, 1 to 4096", 0o644},
		{"x=1\ny=2\n", "FILE:1:1: no option \"x\"; `ibnetsm run --help` lists them, without --\nFILE:2:1: ", 0o644},
	} {
		_, err := configured(t, tt.text, tt.mode)
		if err == nil {
			t.Errorf("%q is taken", tt.text)
			continue
		}
		got := regexp.MustCompile(`/\S*ibnetsm\.conf`).ReplaceAllString(err.Error(), "FILE")
		if !strings.HasPrefix(got, tt.want) {
			t.Errorf("%q: %s; want %s", tt.text, got, tt.want)
		}
	}
	if o, err := configured(t, "qos = yes\nverbose = no\nm-key = 0x12\n", 0o600); err != nil || !o.qos || o.verbose || o.mKey != 0x12 {
		t.Errorf("%v %+v", err, o)
	}
}

// What a running manager cannot apply is noticed.
func TestConfigRestart(t *testing.T) {
	a, err := configured(t, "device = mlx5_0\n", 0o644)
	testkit.NoError(t, err)
	for text, same := range map[string]bool{"device=mlx5_0\nverbose=yes\n": true, "device = mlx5_1\n": false,
		"device = mlx5_0\nsocket = /x\n": false, "device = mlx5_0\nlog-json = yes\n": false} {
		b, err := configured(t, text, 0o644)
		if err != nil || sameStart(&a, &b) != same {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func TestVerify(t *testing.T) {
	dir := t.TempDir()
	parts, guids := filepath.Join(dir, "partitions.conf"), filepath.Join(dir, "guids")
	testkit.WriteFile(t, parts, "Default=0x7fff: ALL=full;\n")
	testkit.WriteFile(t, guids, "0x1\nroot:x:0:0\n")
	for text, want := range map[string]string{
		"priority = 3\npartitions = " + parts + "\n": "",
		"priority = 16\n":               dir + "/c:1:12: --priority 16: out of range, 0 to 15",
		"partitions = /none\n":          "open /none: no such file or directory",
		"port-guid = zzz\n":             "--port-guid: ",
		"transport = pigeon\n":          `--transport "pigeon": not one of umad, ibsim`,
		"node-name-map = /none/names\n": "--node-name-map: open /none/names: no such file or directory",
		"routing = minhop,upsidedown\n": `--routing: `,
		"prio = 1\n":                    "",
		// Lines that run passes over with a warning.
		"root-guid-file = " + guids + "\n":     guids + ":2:1: ",
		"cn-guid-file = " + guids + "\n":       guids + ":2:1: ",
		"hop-weights-file = " + guids + "\n":   guids + ":1:1: ",
		"prefix-routes-file = " + guids + "\n": guids + ":1:1: ",
		"guid2lid = " + guids + "\n":           guids + ":1:1: ",
		"sweep = -1s\n":                        filepath.Join(dir, "c") + `:1:9: sweep: "-1s" is not a time such as 30, 30s or 300ms`,
		"log-file = /none/log\n":               "--log-file: write /none: no such file or directory",
		"log-file = " + dir + "/log\n":         "",
		"\ufeffpriority = 3\n":                 "",
	} {
		file := filepath.Join(dir, "c")
		testkit.WriteFile(t, file, text)
		root := rootCmd()
		var out bytes.Buffer
		root.SetOut(&out)
		root.SetErr(io.Discard)
		root.SetArgs([]string{"verify", "--config", file})
		err := root.Execute()
		switch {
		case text == "prio = 1\n":
			if err == nil || !strings.HasPrefix(err.Error(), file+`:1:1: no option "prio"`) {
				t.Errorf("%q: %v", text, err)
			}
		case want == "" && (err != nil || out.String() != "no mistakes\n"), want != "" && (err == nil || !strings.HasPrefix(err.Error(), want)):
			t.Errorf("%q: %v, %q", text, err, out.String())
		}
	}
}

// Whatever is in the file, a mistake has a place in it, and a given option stays.
func FuzzConfig(f *testing.F) {
	for _, s := range []string{"priority = 3\n", "=\n", "#\npartition=a b\n", "qos=yes", " m-key\t=\t0x1\r\n", "device=,\n",
		"sweep = 1h\nsweep=2h"} {
		f.Add([]byte(s))
	}
	place := regexp.MustCompile(`^f:[1-9][0-9]*:[1-9][0-9]*: .`)
	f.Fuzz(func(t *testing.T, b []byte) {
		var o options
		fs := pflag.NewFlagSet("x", pflag.ContinueOnError)
		o.bind(fs)
		_, err := o.readConfig("f", b, fs, map[string][]string{"device": {"mlx5_0"}})
		if err != nil {
			if first, _, _ := strings.Cut(err.Error(), "\n"); !place.MatchString(first) {
				t.Errorf("%q", first)
			}
			if n := strings.Count(err.Error(), "\nf:"); n >= maxConfigErrors {
				t.Errorf("%d mistakes", n+1)
			}
		}
		if o.devices != nil || o.configFile != "" {
			t.Errorf("devices %q, file %q", o.devices, o.configFile)
		}
	})
}

// A restart with settings that a start refuses would end the manager: the former ones
// stay in use.
func TestReloadKeepsSettingsThatCannotStart(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "ibnetsm.conf")
	write := func(text string) {
		testkit.WriteFile(t, file, text)
	}
	good := "transport = ibsim\npriority = 3\nstate-dir = " + dir + "\n"
	write(good)
	var o options
	f := pflag.NewFlagSet("run", pflag.ContinueOnError)
	o.bind(f)
	testkit.NoError(t, f.Parse([]string{"--config=" + file}))
	o.remember(f)
	now, err := o.withSettings()
	testkit.NoError(t, err)
	var log bytes.Buffer
	d := &daemon{opts: &o, begun: &now, log: textLog(&log), level: new(slog.LevelVar), status: newNotifier(), service: true}
	testkit.NoError(t, d.configure(&now))
	before := d.config.Load()
	for _, bad := range []string{"transport = imaginary\n", good + "port-guid = none\n", good + "log-file = " + dir + "/no/such/dir\n",
		good + "priority = 300\n", good + "verbose = yes\nlog-file = " + dir + "\n"} {
		write(bad)
		if err := d.reload(); err != nil {
			t.Errorf("%q: %v", bad, err)
		}
		if d.config.Load() != before || d.level.Level() == slog.LevelDebug {
			t.Errorf("%q is in use", bad)
		}
		if !strings.Contains(d.status.note, "the previous settings stay in force") {
			t.Errorf("%q: status %q", bad, d.status.note)
		}
	}
	write(good + "log-file = " + dir + "/log\n")
	if err := d.reload(); !errors.Is(err, errRestart) {
		t.Errorf("%v; %s", err, &log)
	}
	if d.status.note != "" || !strings.Contains(log.String(), `level=INFO msg="settings changed that need a restart" options=log-file`) {
		t.Errorf("status %q\n%s", d.status.note, &log)
	}
	// One that nothing starts again goes on, with what it can apply.
	d.service = false
	log.Reset()
	testkit.NoError(t, os.Chmod(file, 0o600))
	write(strings.Replace(good, "priority = 3", "priority = 7", 1) + "lmc = 2\nsm-key = 0x77\nwindow = 8\n")
	if err := d.reload(); err != nil {
		t.Error(err)
	}
	if c := d.config.Load(); c.Priority != 7 || c.Window != 8 || c.LMC != 0 || c.SMKey != 1 {
		t.Errorf("in use are %+v", c)
	}
	for _, want := range []string{`level=WARN msg="settings changed that need a restart, the previous ones stay in force; restart ibnetsm to apply them" ` +
		`options="lmc, sm-key"`, "priority=7"} {
		if !strings.Contains(log.String(), want) || !strings.Contains(d.status.note, "restart ibnetsm to apply: lmc, sm-key") ||
			strings.Contains(log.String(), "0x77") {
			t.Errorf("status %q; the log lacks %q:\n%s", d.status.note, want, &log)
		}
	}
}

// textLog writes lines without the time.
func textLog(w io.Writer) *slog.Logger {
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}}))
}

// logging is a daemon that is configured to write to the file log of the folder.
func logging(t *testing.T) (*daemon, *options, string) {
	dir := t.TempDir()
	o := optionsOf(t, "--transport=ibsim", "--log-file="+dir+"/log", "--state-dir="+dir)
	d := &daemon{opts: &o, begun: &o, level: new(slog.LevelVar), status: newNotifier()}
	testkit.NoError(t, d.logTo.open(&o))
	d.log = slog.New(slog.NewTextHandler(&d.logTo, nil))
	testkit.NoError(t, d.configure(&o))
	return d, &o, dir
}

// Neither verify nor SIGHUP waits until something reads a pipe, and SIGHUP keeps the log that it has.
func TestLogIsAPipe(t *testing.T) {
	d, o, dir := logging(t)
	testkit.NoError(t, errors.Join(os.Rename(dir+"/log", dir+"/was"), unix.Mkfifo(dir+"/log", 0o600)))
	done := make(chan [2]error, 1)
	go func() { done <- [2]error{o.logMistake(), d.reload()} }()
	select {
	case err := <-done:
		if err[0] == nil || err[1] != nil || !strings.Contains(string(testkit.ReadFile(t, dir+"/was")), "the previous one stays in use") {
			t.Error(err)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("it waits")
	}
}

// SIGHUP opens the log again: after a rotation new lines are in the file of that name.
func TestReloadOpensLog(t *testing.T) {
	d, _, dir := logging(t)
	d.log.Info("before")
	testkit.NoError(t, os.Rename(dir+"/log", dir+"/log.1"))
	testkit.NoError(t, d.reload())
	d.log.Info("after")
	was, now := string(testkit.ReadFile(t, dir+"/log.1")), string(testkit.ReadFile(t, dir+"/log"))
	if !strings.Contains(was, "before") || strings.Contains(was, "after") || !strings.Contains(now, "after") {
		t.Errorf("the moved file has %q, the new one %q", was, now)
	}
}
