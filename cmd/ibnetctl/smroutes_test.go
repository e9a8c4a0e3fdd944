package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"ibnetworkd/cmd/ibnetctl/answer"
	"ibnetworkd/cmd/ibnetctl/answer/answertest"
	"ibnetworkd/ib"
	"ibnetworkd/ib/partition"
	"ibnetworkd/internal/testkit"
	"ibnetworkd/lab/gen"
	"ibnetworkd/lab/simfabric"
	"ibnetworkd/sm/control"
	"ibnetworkd/sm/engine"
	"ibnetworkd/sm/explain"
	"ibnetworkd/sm/fabric"
	"ibnetworkd/sm/guidfile"
	"ibnetworkd/sm/mad"
	"ibnetworkd/sm/qos"
	"ibnetworkd/sm/route"
	"ibnetworkd/smctl/probe"
)

// fabricFile writes a fabric as text.
func fabricFile(t *testing.T, f *fabric.Fabric) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "fabric.txt")
	testkit.WriteFile(t, name, gen.Text(f))
	return name
}

// ctl runs a command, with the fabric's file in place of FILE, on a terminal of so
// many columns.
func ctl(t *testing.T, width int, args ...string) (code int, out, errText string) {
	t.Helper()
	var o, e bytes.Buffer
	a := &app{out: &o, err: &e, tty: [2]io.Writer{&o, &e}, width: width, noPager: true}
	c := a.command()
	c.SetArgs(args)
	c.SetOut(&o)
	c.SetErr(&e)
	err := c.ExecuteContext(t.Context())
	if err != nil {
		code, errText = exitCode(err), err.Error()
	}
	return code, o.String(), errText
}

func TestExplainScreens(t *testing.T) {
	tree, ring := fabricFile(t, gen.FatTree2(8, 4)), fabricFile(t, gen.Ring(6, 1))
	cut := fabricFile(t, gen.EmptyLeaf(gen.FatTree2(8, 4), 1, 1))
	parts := filepath.Join(t.TempDir(), "partitions.conf")
	testkit.WriteFile(t, parts, "Default=0x7fff: ALL=limited, SELF=full;\n")
	for _, tt := range []struct {
		name, file string
		args       []string
		code       int
	}{
		{"tree", tree, []string{"H-00001", "H-00010"}, 0},
		{"neighbours", tree, []string{"1", "H-00002[1]"}, 0},
		{"ring", ring, []string{"H-00001", "H-00004", "--routing", "updn"}, 0},
		{"qos", ring, []string{"H-00001", "H-00005", "--qos"}, 0},
		{"limited", tree, []string{"H-00003", "H-00010", "--partitions", parts}, exitFailure},
		{"off", cut, []string{"H-00001", "H-00007"}, exitFailure},
	} {
		onTerminals(t, "explain-"+tt.name, func(width int) string {
			code, out, e := ctl(t, width, append([]string{"sm", "explain", "--file", tt.file}, tt.args...)...)
			if code != tt.code {
				t.Errorf("%s: exit status %d, %s", tt.name, code, e)
			}
			return strings.ReplaceAll(out, tt.file, "FILE")
		})
		_, out, _ := ctl(t, 0, append([]string{"--json", "sm", "explain", "--file", tt.file}, tt.args...)...)
		if err := answertest.Check("sm explain", []byte(out)); err != nil {
			t.Errorf("%s: %v\n%s", tt.name, err, out)
		}
	}
}

func TestExplainMistakes(t *testing.T) {
	file := fabricFile(t, gen.FatTree2(8, 4))
	bad := filepath.Join(t.TempDir(), "bad")
	testkit.WriteFile(t, bad, "Switch 4 S1\n")
	for _, tt := range []struct {
		args string
		code int
		want string
	}{
		{"H-00001 nobody --file " + file, exitNoSuch, `"nobody" is not a name, GUID or LID in the fabric`},
		{"H-00001 H-0000 --file " + file, exitNoSuch, `"H-0000" is not a name, GUID or LID in the fabric; similar: H-00001 (`},
		{"H-00001 1 --file " + file, exitUsage, `"H-00001" and "1" are the same port, H-00001[1]`},
		{"H-00001 2 --routing nonesuch --file " + file, exitUsage,
			`--routing: routing engine "nonesuch" is unknown; known are minhop, updn, ftree, dor, layered`},
		{"H-00001 2 --file /none", exitNoSuch, "open /none: no such file or directory"},
		{"H-00001 2 --file " + bad, exitFailure, bad + `:1:10: want the node's id in double quotes`},
		{"H-00001 2 --node-name-map " + bad + " --file " + file, exitFailure, bad + ":1:1: "},
		{"H-00001 2 --partitions " + bad, exitUsage, "--partitions goes with --file"},
		{"H-00001 2 --partitions " + bad + " --file " + file, exitFailure, bad + ":1:"},
		{"H-00001 --file " + file, exitUsage, "1 argument is given; usage: "},
	} {
		code, _, e := ctl(t, 0, append([]string{"sm", "explain"}, strings.Fields(tt.args)...)...)
		if code != tt.code || !strings.HasPrefix(e, tt.want) {
			t.Errorf("%s: exit status %d, %s", tt.args, code, e)
		}
	}
	// Engines of opensm have the names that ibnetsm takes for its own.
	if code, _, e := ctl(t, 0, "sm", "explain", "--file", file, "H-00001", "H-00010", "--routing", "dnup"); code != 0 {
		t.Errorf("exit status %d, %s", code, e)
	}
}

// Names are completed from the file.
func TestExplainCompletion(t *testing.T) {
	_, out, _ := ctl(t, 0, "__complete", "sm", "explain", "--file", fabricFile(t, gen.FatTree2(8, 4)), "H-00001", "")
	if !strings.Contains(out, "H-00012\t0x") || !strings.Contains(out, "S-0001\t0x") || !strings.HasSuffix(out, ":4\n") {
		t.Errorf("%s", out)
	}
	_, out, _ = ctl(t, 0, "__complete", "sm", "explain", "--routing", "")
	if !strings.Contains(out, "ftree\n") || !strings.Contains(out, "auto\n") {
		t.Errorf("%s", out)
	}
}

// managed runs a subnet manager on a simulated fabric, and gives a second port to
// read it from.
func managed(t *testing.T, f *fabric.Fabric, cfg engine.Config, do func(t *testing.T, conn probe.Conn)) {
	t.Helper()
	managedUntil(t, f, cfg, func(t *testing.T, conn probe.Conn, _ func()) { do(t, conn) })
}

// managedUntil is managed, with what ends the subnet manager.
func managedUntil(t *testing.T, f *fabric.Fabric, cfg engine.Config, do func(t *testing.T, conn probe.Conn, end func())) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := simfabric.New(f, simfabric.Options{})
		defer s.Close()
		tr, err := s.Open(f.Ports[f.SMPort].GUID)
		testkit.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); _ = engine.New(tr, cfg).Run(ctx) }()
		end := sync.OnceFunc(func() { cancel(); <-done; tr.Close() })
		defer end()
		time.Sleep(2 * time.Second)
		other, err := s.OpenClient(f.Ports[f.EndPorts[len(f.EndPorts)-1]].GUID, false)
		testkit.NoError(t, err)
		defer other.Close()
		do(t, other, end)
	})
}

// Of a live fabric the tables are read, the engine is found by them, and the
// subnet administrator is asked.
func TestExplainLive(t *testing.T) {
	managed(t, gen.FatTree2(8, 4), engine.Config{Partitions: partition.Default()}, func(t *testing.T, conn probe.Conn) {
		r, err := liveRoutes(t.Context(), conn, &routesOptions{}, nil, reports())
		testkit.NoError(t, err)
		x, err := explained(t.Context(), conn, r, "H-00001", "H-00010")
		testkit.NoError(t, err)
		if !x.works() || !x.asked || r.Engine == "" || len(x.paths[0].Hops) != 4 {
			t.Errorf("engine %q (%s), %+v", r.Engine, r.note, x)
		}
		var b bytes.Buffer
		a := &app{out: &b, err: &b, tty: [2]io.Writer{&b, &b}, width: 160}
		if err := a.showExplained(r, x); err != nil {
			t.Error(err)
		}
		golden(t, "testdata/screens/explain-live-160.txt", b.String())
	})
}

func TestWhatIfScreens(t *testing.T) {
	tree, torus := fabricFile(t, gen.FatTree2(8, 4)), fabricFile(t, gen.Torus([]int{5, 5}, 1))
	pair, three := fabricFile(t, gen.Pair()), fabricFile(t, gen.FatTree3(4, 4, 2))
	for _, tt := range []struct {
		name, file string
		args       []string
		code       int
	}{
		{"cut", tree, []string{"--cut", "S-0001[5]"}, 0},
		{"spine", three, []string{"--off", "S-0017", "--off", "H-00003"}, 0},
		{"leaf", tree, []string{"--off", "S-0002"}, exitFailure},
		{"host", tree, []string{"--cut", "H-00002"}, exitFailure},
		{"torus", torus, []string{"--cut", "S-0001[1]", "--cut", "S-0007[2]"}, 0},
		{"pair", pair, []string{"--off", "2"}, 0},
		{"loop", torus, []string{"--off", "S-0001", "--routing", "minhop"}, exitFailure},
		{"manager", three, []string{"--cut", "H-00001[1]"}, exitFailure},
		{"drain", tree, []string{"--drain", "S-0006"}, 0},
		{"drainleaf", tree, []string{"--drain", "S-0002"}, 0},
		{"drainkept", fabricFile(t, gen.Ring(5, 1)), []string{"--drain", "S-0001", "--drain", "S-0003"}, exitFailure},
	} {
		onTerminals(t, "whatif-"+tt.name, func(width int) string {
			code, out, e := ctl(t, width, append([]string{"sm", "whatif", "--file", tt.file}, tt.args...)...)
			if code != tt.code || e != "" && e != "exit 1" {
				t.Errorf("%s: exit status %d, %s", tt.name, code, e)
			}
			return strings.ReplaceAll(out, tt.file, "FILE")
		})
		_, out, _ := ctl(t, 0, append([]string{"--json", "sm", "whatif", "--file", tt.file}, tt.args...)...)
		if err := answertest.Check("sm whatif", []byte(out)); err != nil {
			t.Errorf("%s: %v\n%s", tt.name, err, out)
		}
	}
	for _, tt := range []struct {
		args []string
		code int
		want string
	}{
		{nil, exitUsage, "name a cable with --cut NODE[PORT], a node with --off NODE or a switch with --drain SWITCH"},
		{[]string{"--drain", "H-00001"}, exitUsage, `--drain: "H-00001" is not a switch`},
		{[]string{"--off", "S-0001[2]"}, exitNoSuch, `--off: "S-0001[2]" names a port; to cut its cable: --cut`},
		{[]string{"--cut", "S-0001"}, exitUsage, `--cut: S-0001 has several ports: name one as in "S-0001[1]"`},
		{[]string{"--cut", "nobody[1]"}, exitNoSuch, `--cut: "nobody" is not a name, GUID or LID in the fabric`},
	} {
		code, _, e := ctl(t, 0, append([]string{"sm", "whatif", "--file", tree}, tt.args...)...)
		if code != tt.code || e != tt.want {
			t.Errorf("%q: exit status %d, %s", tt.args, code, e)
		}
	}
}

// heavy are hop weights for all links to a switch.
func heavy(f *fabric.Fabric, name string) (out []guidfile.Weight) {
	n, err := explain.Nodes(f, name)
	if err != nil {
		panic(err)
	}
	first, count := f.PortRange(n[0])
	for p := first + 1; p < first+count; p++ {
		if q := f.Ports[p].Peer; q != fabric.None && f.Nodes[f.Ports[q].Node].Switch != fabric.None {
			out = append(out, guidfile.Weight{Switch: f.Nodes[f.Ports[q].Node].GUID, Port: f.Ports[q].Num, Hops: 9})
		}
	}
	return out
}

// What is foretold of a live fabric is what the subnet manager then does, with hints and
// drained switches too. Without the manager's own account they are missed, and that is reported.
func TestWhatIfLive(t *testing.T) {
	f := gen.FatTree2(8, 4)
	guid := func(name string) ib.GUID {
		n, err := explain.Nodes(f, name)
		testkit.NoError(t, err)
		return f.Nodes[n[0]].GUID
	}
	for _, tt := range []struct {
		name  string
		opt   route.Options
		lmc   ib.LMC
		drain []ib.GUID
		words string
	}{
		{"plain", route.Options{}, 0, nil, ""},
		{"several LIDs", route.Options{}, 1, nil, ""},
		{"weights", route.Options{HopWeights: heavy(f, "S-0006")}, 0, nil, "8 hop weights (of the ibnetsm on "},
		{"weights and several LIDs", route.Options{HopWeights: heavy(f, "S-0006")}, 2, nil, "8 hop weights (of the ibnetsm on "},
		{"roots", route.Options{Roots: []ib.GUID{guid("S-0002")}}, 0, nil, "1 root (of the ibnetsm on "},
		{"engine", route.Options{Engine: route.UpDown}, 0, nil, ""},
		{"drained", route.Options{}, 0, []ib.GUID{guid("S-0005")}, "1 drained switch (of the ibnetsm on "},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cfg := engine.Config{Partitions: partition.Default(), Route: tt.opt, LMC: tt.lmc}
			synctest.Test(t, func(t *testing.T) { foretell(t, f, cfg, tt.drain, tt.words) })
		})
	}
}

// On a graph that is no tree the service levels that routes may use decide on the engine.
func TestForetellLevels(t *testing.T) {
	f := gen.RandomRegular(3, 16, 5, 2)
	own := partition.Default()
	own.Partitions[0].Params.SL = 2
	for _, tt := range []struct {
		name string
		qos  *qos.Options
		keys partition.Config
	}{
		{"none", nil, partition.Default()},
		{"eight", &qos.Options{}, partition.Default()},
		{"two", &qos.Options{MaxVLs: 2}, partition.Default()},
		{"a partition has one", &qos.Options{}, own},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cfg := engine.Config{Partitions: tt.keys, QoS: tt.qos}
			synctest.Test(t, func(t *testing.T) { foretell(t, f, cfg, nil, "") })
		})
	}
}

// On a mesh that loses a cable paths get other service levels, and hosts are asked to
// register again.
func TestForetellRegistrations(t *testing.T) {
	for name, f := range map[string]*fabric.Fabric{"4x4": gen.Mesh([]int{4, 4}, 4), "3x4": gen.Mesh([]int{3, 4}, 2),
		"4x4x4": gen.Mesh([]int{4, 4, 4}, 1)} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				if c := foretell(t, f, engine.Config{Partitions: partition.Default(), QoS: &qos.Options{}}, nil, ""); c.Register == 0 || c.Levels == 0 {
					t.Errorf("%d ports register again, %d pairs have another level", c.Register, c.Levels)
				}
			})
		})
	}
}

func foretell(t *testing.T, f *fabric.Fabric, cfg engine.Config, drain []ib.GUID, words string) *explain.Change {
	t.Helper()
	asked := map[ib.GUID]bool{}
	var mu sync.Mutex
	s := simfabric.New(f, simfabric.Options{Reregister: func(g ib.GUID) {
		mu.Lock()
		defer mu.Unlock()
		asked[g] = true
	}})
	defer s.Close()
	tr, err := s.Open(f.Ports[f.SMPort].GUID)
	testkit.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	sub := engine.New(tr, cfg)
	go func() { defer close(done); _ = sub.Run(ctx) }()
	defer func() { cancel(); <-done; tr.Close() }()
	time.Sleep(2 * time.Second)
	if len(drain) > 0 {
		if _, ok := sub.Drain(drain, nil); !ok {
			t.Fatal("not drained")
		}
		time.Sleep(5 * time.Second)
	}
	conn, err := s.OpenClient(f.Ports[f.EndPorts[len(f.EndPorts)-1]].GUID, false)
	testkit.NoError(t, err)
	defer conn.Close()
	o := routesOptions{}
	host := reports(&control.Routing{PortGUID: 7, State: "Master", Engine: route.DOR}, &sub.Snapshot().Routes)
	r, err := liveRoutes(ctx, conn, &o, nil, host)
	testkit.NoError(t, err)
	if w := r.hints.words(&r.opt); r.Engine == "" || !r.hints.known || !strings.HasPrefix(w, words) || words == "" && w != "" {
		t.Errorf("engine %s, hints %q", r.engineWords(), w)
	}
	blind, err := liveRoutes(ctx, conn, &o, nil, reports())
	testkit.NoError(t, err)
	if w := blind.hints.words(&blind.opt); !strings.Contains(w, "answers and is not an ibnetsm of this host: give its files") {
		t.Errorf("without the manager: %q", w)
	}
	if words == "" && cfg.Route.Engine == "" && r.SL == nil && blind.Engine == "" {
		t.Errorf("without the manager: engine %s", blind.engineWords())
	}
	if words != "" && (blind.Engine != "" || !strings.Contains(blind.note, "another engine, hints or another subnet manager")) {
		t.Errorf("without the manager: engine %s", blind.engineWords())
	}
	cable := "S-0001[5]"
	sw, err := explain.Cable(f, cable)
	if err == nil && (f.Nodes[f.Ports[sw].Node].Switch == fabric.None || f.Nodes[f.Ports[f.Ports[sw].Peer].Node].Switch == fabric.None) {
		cable = "S-0001[1]" // of a grid that is the one with a switch
		sw, err = explain.Cable(f, cable)
	}
	testkit.NoError(t, err)
	c, _, err := whatIf(r, &changes{cut: []string{cable}})
	testkit.NoError(t, err)
	s.ResetCounters()
	mu.Lock()
	clear(asked)
	mu.Unlock()
	testkit.NoError(t, s.Cut(f.Nodes[f.Ports[sw].Node].GUID, f.Ports[sw].Num))
	time.Sleep(5 * time.Second)
	sets := s.Counters().SMPs
	for a, row := range sub.Snapshot().Routes.SL {
		if !slices.Equal(row, c.After.SL[a]) {
			t.Errorf("levels from switch %d are %v, foretold were %v", a, row, c.After.SL[a])
		}
	}
	mu.Lock()
	if lanes := sets[mad.AttrSLtoVL].Set + sets[mad.AttrVLArb].Set; len(asked) != c.Register || lanes != 0 {
		t.Errorf("%d hosts registered again, %d foretold; %d tables of lanes written", len(asked), c.Register, lanes)
	}
	mu.Unlock()
	if n := s.Counters().SMPs[mad.AttrLFT].Set; int(n) != c.Blocks || c.Tops != 0 {
		t.Errorf("%d blocks were written, %d foretold", n, c.Blocks)
	}
	after, err := liveRoutes(ctx, conn, &o, nil, host)
	testkit.NoError(t, err)
	if n := len(f.Switches) + (len(f.EndPorts)-len(f.Switches))<<cfg.LMC; len(c.After.LFT[0]) < n {
		t.Errorf("%d LIDs are foretold, there are %d", len(c.After.LFT[0])-1, n)
	}
	for i, row := range c.After.LFT {
		for l, p := range row {
			if got := after.LFT[i]; l > 0 && (l >= len(got) || got[l] != p) {
				t.Errorf("switch %d: LID %d goes to port %d, foretold was %d", i, l, got[l], p)
			}
		}
	}
	if c.Entries == 0 {
		t.Error("nothing was foretold")
	}
	return c
}

// Of a file the tables are computed, of a live fabric they are read, with groups.
func TestDump(t *testing.T) {
	file := fabricFile(t, gen.FatTree2(8, 4))
	for _, form := range []string{"lfts", "fdbs", "guid2lid"} {
		code, out, e := ctl(t, 80, "sm", "dump", form, "--file", file)
		if code != 0 {
			t.Errorf("%s: exit status %d, %s", form, code, e)
		}
		golden(t, "testdata/screens/dump-"+form+".txt", strings.ReplaceAll(out, file, "FILE"))
		_, js, _ := ctl(t, 0, "--json", "sm", "dump", form, "--file", file)
		var d answer.Dump
		if err := answertest.Check("sm dump", []byte(js)); err != nil || json.Unmarshal([]byte(js), &d) != nil || d.Text != out ||
			d.Form != form {
			t.Errorf("%s: %v\n%s", form, err, js)
		}
	}
	for args, want := range map[string]string{
		"mcfdbs --file " + file: "mcfdbs: the members of groups are not in a file; leave --file out to read the live fabric",
		"lfts --io-guid-file x": "hints for routes go with --file: of the live fabric the tables are read as they are",
		"lft --file " + file:    `"lft" is not one of lfts, fdbs, mcfdbs, guid2lid`,
	} {
		if code, _, e := ctl(t, 0, append([]string{"sm", "dump"}, strings.Fields(args)...)...); code != exitUsage || e != want {
			t.Errorf("%s: exit status %d, %s", args, code, e)
		}
	}
	managed(t, gen.FatTree2(8, 4), engine.Config{Partitions: partition.Default()}, func(t *testing.T, conn probe.Conn) {
		r, err := liveRoutes(t.Context(), conn, &routesOptions{}, nil, reports())
		testkit.NoError(t, err)
		var b bytes.Buffer
		a := &app{out: &b, err: &b}
		if err := a.dump(t.Context(), conn, &b, "mcfdbs", r); err != nil || b.Len() != 0 {
			t.Errorf("without a group: %v\n%s", err, b.String())
		}
		r.LFT[2] = nil
		if err := a.dump(t.Context(), conn, io.Discard, "lfts", r); exitCode(err) != exitFailure ||
			err.Error() != "the tables of 1 switch could not be read: S-0003; run the command again" {
			t.Errorf("a silent switch: %v", err)
		}
	})
}
