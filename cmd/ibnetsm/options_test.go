package main

import (
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/spf13/pflag"

	"ibnetworkd/ib"
	"ibnetworkd/internal/kernel/sysfs"
	"ibnetworkd/internal/testkit"
	"ibnetworkd/sm/engine"
	"ibnetworkd/sm/pkey"
)

// An option reaches the engine, or is refused with an error that names it.
func TestConfig(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string) string {
		p := filepath.Join(dir, name)
		testkit.NoError(t, os.WriteFile(p, []byte(text), 0o600))
		return p
	}
	names := file("names", "0x0002c90300000001 \"leaf one\"\n")
	torn := file("torn", "0x0002c90300000001 leaf\n")
	parts := file("partitions.conf", "Default=0x7fff, ipoib : ALL=full;\nstorage=0x0001, ipoib : ALL=full;\n")
	bad := file("bad.conf", "Default=0x7fff, ipoib : ALL=full;\nstorage=0x1zzz : ALL;\n")
	for _, tt := range []struct {
		args []string
		want string // part of the error, or of a warning after a tilde
	}{
		{nil, ""},
		{[]string{"--priority=15", "--lmc=7", "--window=1", "--sweep=0", "--retries=0"}, ""},
		{[]string{"--priority=16"}, "--priority 16: out of range, 0 to 15"},
		{[]string{"--lmc=8"}, "--lmc 8"},
		{[]string{"--sm-key=0"}, ""},
		{[]string{"--sa-key=0"}, "--sa-key 0"},
		{[]string{"--subnet-prefix=0"}, "--subnet-prefix 0"},
		{[]string{"--window=0"}, "--window 0"},
		{[]string{"--timeout=0"}, "--timeout"},
		{[]string{"--poll=0"}, "--timeout 200ms, --poll 0s"},
		{[]string{"--retries=-1"}, "--retries"},
		{[]string{"--retries=50"}, ""},
		{[]string{"--retries=51"}, "--retries 51: out of range, 0 to 50"},
		{[]string{"--m-key=0x12", "--m-key-protect=4"}, "--m-key-protect 4"},
		{[]string{"--part-enforce=sometimes"}, `--part-enforce "sometimes": want both, in, out or off`},
		// The routing engines of a configuration for opensm are accepted.
		{[]string{"--routing=lash,torus-2QoS,nonesuch"}, ""},
		{[]string{"--node-name-map=" + names}, ""},
		{[]string{"--node-name-map=" + torn}, "~torn:1:"},
		{[]string{"--node-name-map=" + dir + "/none"}, "~node name map: not all names can be used"},
		{[]string{"--partitions=" + parts, "--partition=0x8002 Name=more Members=ALL"}, ""},
		{[]string{"--partitions=" + bad}, "bad.conf:2:"},
		{[]string{"--partitions=" + dir + "/none"}, "none: no such file"},
		{[]string{"--partition=0x8002 Colour=red"}, "--partition"},
		{[]string{"--port-guid=xyz"}, "--port-guid"},
		{[]string{"--transport=pigeon"}, "--transport"},
	} {
		var o options
		f := pflag.NewFlagSet("run", pflag.ContinueOnError)
		o.bind(f)
		if err := f.Parse(tt.args); err != nil {
			t.Errorf("%v: %v", tt.args, err)
			continue
		}
		var log bytes.Buffer
		_, err := o.config(slog.New(slog.NewTextHandler(&log, nil)))
		if err == nil {
			_, err = o.manager(slog.New(slog.DiscardHandler))
		}
		warning, isWarning := strings.CutPrefix(tt.want, "~")
		switch {
		case tt.want == "" && (err != nil || log.Len() > 0), isWarning && (err != nil || !strings.Contains(log.String(), warning)):
			t.Errorf("%v: %v, log %q", tt.args, err, log.String())
		case tt.want != "" && !isWarning && (err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "\n")):
			t.Errorf("%v: error %v, want %q", tt.args, err, tt.want)
		}
	}
}

func TestConfigValues(t *testing.T) {
	var o options
	f := pflag.NewFlagSet("run", pflag.ContinueOnError)
	o.bind(f)
	testkit.NoError(t, f.Parse([]string{"--m-key=0x1234", "--m-key-protect=2", "--m-key-lease=30", "--subnet-prefix=0xfec0000000000007",
		"--routing=updn,ftree", "--part-enforce=in", "--sweep=0", "--qos", "--partition=0x8002;Name=more;Members=ALL"}))
	c, err := o.config(slog.New(slog.DiscardHandler))
	testkit.NoError(t, err)
	p := c.Policy
	if p.MKey != 0x1234 || p.Protect != 2 || p.MKeyLease != 30 || p.Prefix != 0xfec0000000000007 || c.Route.Engine != "updn,ftree" ||
		c.Enforce != pkey.EnforceIn || c.Sweep >= 0 || c.QoS == nil || c.LMC != ib.LMC(0) {
		t.Errorf("%+v", c)
	}
	if n := len(c.Partitions.Partitions); n != 2 {
		t.Errorf("%d partitions, want the default one and another", n)
	}
}

// The number of selected ports is known only if each is named.
func TestManagerNumber(t *testing.T) {
	for _, tt := range []struct {
		args []string
		want int
	}{
		{nil, 0},
		{[]string{"--device=mlx5_0"}, 0},
		{[]string{"--device=mlx5_0", "--port-guid=0x1"}, 0},
		{[]string{"--device=mlx5_0/1", "--port-guid=0x1"}, 2},
		{[]string{"--transport=ibsim"}, 1},
	} {
		var o options
		f := pflag.NewFlagSet("run", pflag.ContinueOnError)
		o.bind(f)
		testkit.NoError(t, f.Parse(tt.args))
		if m, err := o.manager(slog.New(slog.DiscardHandler)); err != nil || m.Number != tt.want {
			t.Errorf("%v: %+v, %v, want the number %d", tt.args, m, err, tt.want)
		}
	}
}

// The manual page has every command and every option.
func TestManPage(t *testing.T) {
	b := testkit.ReadFile(t, "../../docs/man/ibnetsm.8")
	page := string(b)
	for _, c := range rootCmd().Commands() {
		if !slices.ContainsFunc([]string{".B ibnetsm " + c.Name() + "\n", "\n.B " + c.Name() + "\n", "\n.BR " + c.Name() + " "},
			func(s string) bool { return strings.Contains(page, s) }) {
			t.Errorf("%s is not in the page", c.Name())
		}
		c.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if name := strings.ReplaceAll("--"+f.Name, "-", `\-`); !strings.Contains(page, name+"=") && !strings.Contains(page, name+"\n") &&
				!strings.Contains(page, name+" ") && !strings.Contains(page, name+`\f`) {
				t.Errorf("%s --%s is not in the page", c.Name(), f.Name)
			}
		})
	}
}

// The help of each command is sentences, and fits a terminal of 80 columns.
func TestHelp(t *testing.T) {
	root := rootCmd()
	for _, c := range append(root.Commands(), root) {
		var b strings.Builder
		c.SetOut(&b)
		testkit.NoError(t, c.Help())
		if sentence := unicode.IsUpper(rune(c.Long[0])) && strings.HasSuffix(c.Long, "."); !sentence {
			t.Errorf("%s: %q is no sentence", c.Name(), c.Long)
		}
		for line := range strings.Lines(b.String()) {
			if len(line) > 81 {
				t.Errorf("%s: %d columns: %s", c.Name(), len(line)-1, line)
			}
		}
	}
}

// A drawing shows one subnet, and only a master has one.
func TestPictured(t *testing.T) {
	x := func(dev, state string) *engine.Snapshot { return &engine.Snapshot{Device: dev, Port: 1, State: state} }
	a, b, c := x("mlx5_0", "Master"), x("mlx5_1", "Master"), x("mlx5_2", "Standby")
	for _, tt := range []struct {
		xs   []*engine.Snapshot
		args []string
		one  bool
		want string
		err  string
	}{
		{[]*engine.Snapshot{a}, nil, true, "mlx5_0/1", ""},
		{[]*engine.Snapshot{a, c}, nil, true, "mlx5_0/1", ""},
		{[]*engine.Snapshot{a, b}, nil, false, "", ""},
		{[]*engine.Snapshot{a, b}, nil, true, "", "there are several subnets: name one of mlx5_0/1, mlx5_1/1"},
		{[]*engine.Snapshot{a, b}, []string{"mlx5_1/1"}, true, "mlx5_1/1", ""},
		{[]*engine.Snapshot{c}, nil, false, "", "this host is not the master of any subnet (mlx5_2/1 is Standby)"},
		{[]*engine.Snapshot{a, c}, []string{"mlx5_2/1"}, false, "", "mlx5_2/1: this host is not the master of its subnet"},
	} {
		got, err := pictured(tt.xs, tt.args, tt.one)
		if got != tt.want || (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) {
			t.Errorf("%v %v: %q, %v", tt.args, tt.one, got, err)
		}
	}
}

// Without names, ports that must not have a subnet manager are left out.
func TestBarredPortsAreLeftOut(t *testing.T) {
	root := t.TempDir()
	write := func(name, text string) {
		p := filepath.Join(root, "sys/class", name)
		testkit.WriteFile(t, p, text)
	}
	for i, mask := range []string{"0x2651e848", "0x2651ec48", "0x2651e848", "0x2651e848"} {
		dev := fmt.Sprintf("mlx5_%d", i)
		write("infiniband/"+dev+"/node_guid", fmt.Sprintf("0002:c903:000a:bc0%d\n", i))
		write("infiniband/"+dev+"/node_type", "1: CA\n")
		for name, text := range map[string]string{
			"link_layer": "InfiniBand\n", "state": "2: INIT\n", "phys_state": "5: LinkUp\n", "lid": "0x0\n", "sm_lid": "0x0\n",
			"lid_mask_count": "0\n", "sm_sl": "0\n", "rate": "100 Gb/sec (4X EDR)\n", "cap_mask": mask + "\n",
			"gids/0": fmt.Sprintf("fe80:0000:0000:0000:0002:c903:000a:bc1%d\n", i),
		} {
			write("infiniband/"+dev+"/ports/1/"+name, text)
		}
		write(fmt.Sprintf("infiniband_mad/umad%d/ibdev", i), dev+"\n")
		write(fmt.Sprintf("infiniband_mad/umad%d/port", i), "1\n")
	}
	write("infiniband/mlx5_2/device/vpd", "SMDL=SW_MNG")
	// A VPD that cannot be read: it is not known, and read again.
	vpd := filepath.Join(root, "sys/class/infiniband/mlx5_3/device/vpd")
	testkit.NoError(t, os.MkdirAll(vpd, 0o755))
	for _, named := range []bool{true, false} {
		var log bytes.Buffer
		h := &umadHost{fs: sysfs.New(root), named: named, log: slog.New(slog.NewTextHandler(&log, nil))}
		for range 2 {
			ports, err := h.Ports()
			if err != nil || named && len(ports) != 4 || !named && (len(ports) != 1 || ports[0].Device != "mlx5_0") {
				t.Errorf("named %v: %v, %v", named, ports, err)
			}
		}
		if n := strings.Count(log.String(), "ibdev=mlx5_3"); !named && n != 1 || named && n > 0 {
			t.Errorf("named %v: logged %d times:\n%s", named, n, log.String())
		}
		if named {
			continue
		}
		testkit.NoError(t, os.Remove(vpd))
		if ports, err := h.Ports(); err != nil || len(ports) != 2 {
			t.Errorf("after the error is gone: %v, %v", ports, err)
		}
	}
}

// Numbers that people write in hexadecimal are printed so.
func TestKeysInHelp(t *testing.T) {
	var o options
	f := pflag.NewFlagSet("run", pflag.ContinueOnError)
	o.bind(f)
	help := f.FlagUsages()
	for _, want := range []string{"--subnet-prefix PREFIX", "(default 0xfe80000000000000)", "--sm-key KEY", "(default 0x1)"} {
		if !strings.Contains(help, want) {
			t.Errorf("no %q in\n%s", want, help)
		}
	}
	if strings.Contains(help, "uint") || strings.Contains(help, "18338657682652659712") {
		t.Errorf("decimal keys in\n%s", help)
	}
	if err := f.Parse([]string{"--m-key=256", "--sa-key=0xFF"}); err != nil || o.mKey != 256 || o.saKey != 255 {
		t.Errorf("%#x %#x %v", o.mKey, o.saKey, err)
	}
	if err := f.Parse([]string{"--m-key=1x"}); err == nil || strings.Contains(err.Error(), "strconv") {
		t.Errorf("%v", err)
	}
}

// The command that other names lead to is named.
func TestDumpIsNamed(t *testing.T) {
	root := rootCmd()
	root.SetArgs([]string{"dump", "--lfts"})
	if err := root.Execute(); err == nil || !strings.Contains(err.Error(), "ibnetctl sm dump") {
		t.Error(err)
	}
}

// The status says what discovery could not make sense of.
func TestStatusOfDiscovery(t *testing.T) {
	var out bytes.Buffer
	printStatus(&out, []*engine.Snapshot{{State: "Master", Problems: []string{"what is behind port x is out of reach"}}})
	if !strings.Contains(out.String(), "what is behind port x is out of reach") {
		t.Error(out.String())
	}
}
