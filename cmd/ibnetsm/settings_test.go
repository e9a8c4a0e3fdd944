package main

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"ibnetworkd/ib/partition"
	"ibnetworkd/internal/testkit"
	"ibnetworkd/smctl"
)

func optionsOf(t *testing.T, args ...string) options {
	t.Helper()
	var o options
	f := pflag.NewFlagSet("run", pflag.ContinueOnError)
	o.bind(f)
	testkit.NoError(t, f.Parse(args))
	return o
}

// Every setting that the daemon hands over is understood here.
func TestSettings(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string, mode os.FileMode) string {
		p := filepath.Join(dir, name)
		testkit.NoError(t, os.WriteFile(p, []byte(text), mode))
		return p
	}
	keys := file("keys", "# ours\nMKey=0x1234\nSMKey = 7\nSAKey=0x9\n", 0o600)
	all := smctl.Policy{Priority: 5, SubnetPrefix: 0xfec0000000000007, RoutingEngine: "updn, ftree", LMC: 2, KeyFile: keys,
		MKeyProtect: "2", MKeyLease: "30s",
		Poll: "2s", Reregister: "never",
		QoS: "yes", Enforcement: "in", Sweep: "3s", Timeout: "300ms", Retries: "7", Window: "9", NodeNameMap: "/n", Verbose: "yes",
		PartitionsFile: "/p", QoSPolicyFile: "/q",
		RootGUIDFile: "/r", CNGUIDFile: "/c", IOGUIDFile: "/i", HopWeightsFile: "/h", GUID2LIDFile: "/l", PrefixRoutesFile: "/x",
		GUIDRoutingOrderFile: "/o",
		Partitions:           "0x8001 Name=a Members=ALL\n0x8002 Name=b\n"}
	text := smctl.Settings(all)
	for line := range strings.Lines(text) {
		if key, _, _ := strings.Cut(line, "="); settings[key] == nil {
			t.Errorf("%s= is not known here", key)
		}
	}
	path := file("s", "# x\n[SubnetManager]\n"+text+"Newer=1\n[State]\nPriority=15\n", 0o644)
	o, err := optionsOf(t, "--priority=1", "--settings="+path).withSettings()
	testkit.NoError(t, err)
	if o.priority != 5 || o.prefix != 0xfec0000000000007 || o.routing != "updn,ftree" || o.lmc != 2 || o.mKey != 0x1234 ||
		o.smKey != 7 || o.saKey != 9 ||
		o.protect != 2 || o.lease != 30 || !o.qos || o.enforce != "in" || o.sweep != 3*time.Second || o.poll != 2*time.Second ||
		o.reregister != "never" || o.timeout != 300*time.Millisecond ||
		o.retries != 7 ||
		o.window != 9 || o.names != "/n" || o.policy != "/q" || o.roots+o.compute+o.io+o.hops+o.lids+o.prefixes != "/r/c/i/h/l/x" ||
		!o.verbose || o.partitions != "/p" || len(o.rules) != 2 {
		t.Errorf("%+v", o)
	}
	for name, tt := range map[string]struct {
		args []string
		env  string
		want string
	}{
		"no file":     {[]string{"--settings=" + dir + "/none"}, "", "no such file"},
		"none needed": {[]string{"--settings=-" + dir + "/none"}, "", ""},
		"torn":        {[]string{"--settings=" + file("t", "Priority\n", 0o644)}, "", "t:1:1: want Key=value"},
		"too large":   {[]string{"--settings=" + file("l", "Priority=256\n", 0o644)}, "", "l:1:10: Priority=:"},
		"several": {[]string{"--settings=" + file("m", "\ufeffPriority=16\n LMC=9\nRetries=x\nPriority\n", 0o644)}, "",
			"m:1:10: Priority=: --priority 16: out of range, 0 to 15\n" + dir + "/m:2:6: LMC=: --lmc 9: out of range, 0 to 7\n" + dir +
				"/m:3:9: Retries=: \"x\" is not a number\n" + dir + "/m:4:1: want Key=value"},
		"a byte order mark": {[]string{"--settings=" + file("b", "\ufeffPriority=3\n", 0o644)}, "", ""},
		"open keys":         {[]string{"--keys-file=" + file("open", "MKey=1\n", 0o644)}, "", "chmod 0600"},
		"another key":       {[]string{"--keys-file=" + file("other", "PKey=1\n", 0o600)}, "", "other:1: want MKey="},
		"a secret is kept":  {[]string{"--keys-file=" + file("secret", "MKey=hunter2\n", 0o600)}, "", "secret:1: MKey= is not a 64 bit number"},
		"no keys":           {[]string{"--keys-file=" + dir + "/none"}, "", "no such file"},
		"a credential":      {nil, file("keys", "SMKey=5\n", 0o600), ""},
	} {
		t.Run(name, func(t *testing.T) {
			if tt.env != "" {
				t.Setenv("CREDENTIALS_DIRECTORY", filepath.Dir(tt.env))
			}
			o, err := optionsOf(t, tt.args...).withSettings()
			switch {
			case tt.want == "" && err != nil, tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)):
				t.Errorf("%v, want %q", err, tt.want)
			case err != nil && strings.Contains(err.Error(), "hunter2"):
				t.Error("the secret is said")
			case tt.env != "" && o.smKey != 5:
				t.Errorf("SM_Key %d of the credential", o.smKey)
			}
		})
	}
}

// A start with a bad partitions file uses the last good one, or the default
// partition and the rules.
func TestLastGoodPartitions(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "p.conf")
	write := func(text string) {
		testkit.WriteFile(t, file, text)
	}
	o := optionsOf(t, "--port-guid=0x1", "--state-dir="+dir+"/state", "--partitions="+file, "--partition=0x8002 Name=more")
	has := func(c partition.Config, names ...string) {
		t.Helper()
		var got []string
		for _, p := range c.Partitions {
			got = append(got, p.Name)
		}
		if strings.Join(got, " ") != strings.Join(names, " ") {
			t.Errorf("partitions %v, want %v", got, names)
		}
	}
	bad := func() {
		t.Helper()
		_, err := o.config(slog.New(slog.DiscardHandler))
		if e := (errPartitions{}); !errors.As(err, &e) {
			t.Fatalf("%v", err)
		}
	}
	write("storage=0x8001 x : ALL;\n")
	bad()
	c, what := o.fallBack()
	has(c, "Default", "more")
	if what != "the default partition and --partition or Partition= are used" {
		t.Error(what)
	}
	alone := o
	alone.rules = nil
	if c, what := alone.fallBack(); what != "only the default partition is used" {
		t.Error(what)
	} else {
		has(c, "Default")
	}
	write("storage=0x8001 : ALL=full;\n")
	if _, err := o.config(slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	testkit.NoError(t, o.keepGood())
	testkit.NoError(t, os.Remove(file))
	bad()
	c, what = o.fallBack()
	has(c, "Default", "storage", "more")
	if !strings.Contains(what, "last good") {
		t.Error(what)
	}
	// Without a partitions file the last one is forgotten.
	o.partitions = ""
	testkit.NoError(t, o.keepGood())
	o.partitions = file
	c, _ = o.fallBack()
	has(c, "Default", "more")
}

// What is read from a settings file is bounded and never ends the program.
func FuzzReadSettings(f *testing.F) {
	f.Add("[SubnetManager]\nPriority=3\nPartition=0x8001\n")
	f.Fuzz(func(t *testing.T, text string) {
		var o options
		if err := o.readSettings("s", []byte(text)); err == nil {
			if _, err := o.config(slog.New(slog.DiscardHandler)); err == nil && (o.priority > 15 || o.lmc > 7 || o.window > 4096) {
				t.Fatalf("%+v", o)
			}
		}
	})
}
