package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"ibnetworkd/cmd/ibnetctl/answer"
	"ibnetworkd/cmd/ibnetctl/answer/answertest"
	"ibnetworkd/ib"
	"ibnetworkd/ib/partition"
	"ibnetworkd/internal/testkit"
	"ibnetworkd/lab/gen"
	"ibnetworkd/sm/control"
	"ibnetworkd/sm/engine"
	"ibnetworkd/sm/route"
	"ibnetworkd/smctl"
	"ibnetworkd/smctl/probe"
)

// reports answers as the subnet managers of a host do.
func reports(managers ...*control.Routing) routingQuery {
	return func(_ context.Context, port ib.GUID) (*control.Routing, string) {
		for _, m := range managers {
			if m.PortGUID == port {
				return m, ""
			}
		}
		return nil, ""
	}
}

// Options replace what they name, the rest stays that of the manager; the output says which
// is which, and of hints that are not known the one cause.
func TestHintsOfManager(t *testing.T) {
	f := gen.FatTree2(8, 4)
	own := f.Ports[f.SMPort].GUID
	cn := filepath.Join(t.TempDir(), "cn")
	testkit.WriteFile(t, cn, own.String()+"\n0x77\n")
	hops, text := filepath.Join(t.TempDir(), "hops"), ""
	for _, w := range heavy(f, "S-0006") {
		text += fmt.Sprintf("%v %d %d\n", w.Switch, w.Port, w.Hops)
	}
	testkit.WriteFile(t, hops, text)
	m := control.Routing{Device: "mlx5_0", Port: 1, PortGUID: own, State: "Master", InForce: route.FatTree, Layers: 1,
		HopWeights: heavy(f, "S-0006"), IO: []ib.GUID{own}, QoS: true, Drained: []ib.GUID{0x66}}
	standby, old := m, func(context.Context, ib.GUID) (*control.Routing, string) {
		return nil, routingProblem("/run/x.sock", control.ErrOld)
	}
	standby.State = "Standby"
	const note = "as the ibnetsm on mlx5_0/1 reports; a new computation would change "
	managed(t, f, engine.Config{Partitions: partition.Default()}, func(t *testing.T, conn probe.Conn) {
		for _, tt := range []struct {
			o                   routesOptions
			query               routingQuery
			words, engine, note string
			known, qos          bool
		}{
			{routesOptions{}, reports(&m), "1 I/O node, 8 hop weights, 1 drained switch (of the ibnetsm on mlx5_0/1)",
				route.FatTree, note, true, true},
			{routesOptions{hints: hintFiles{compute: cn}, qosGiven: true}, reports(&m),
				"2 compute nodes, 1 I/O node, 8 hop weights, 1 drained switch (of the ibnetsm on mlx5_0/1; compute nodes as given)",
				route.FatTree, note, true, false},
			{routesOptions{hints: hintFiles{compute: cn, hops: hops}}, reports(),
				"2 compute nodes, 8 hop weights (compute nodes, hop weights as given; others are not known: " +
					"the subnet manager at H-00001[1] (GUID " + own.String() + ") answers and is not an ibnetsm of this host: give",
				"", "ibnetsm would change 24 of 132 entries, so another engine, hints or another subnet manager made them", false, false},
			{routesOptions{hints: hintFiles{drained: []string{"S-0005"}}}, reports(&m),
				"1 I/O node, 8 hop weights, 1 drained switch (of the ibnetsm on mlx5_0/1; drained switches as given)",
				route.FatTree, note, true, true},
			{routesOptions{}, reports(&standby), "not known, none are used: the ibnetsm on mlx5_0/1 is Standby, not Master: run the command again",
				route.FatTree, "ibnetsm would keep", false, false},
			{routesOptions{}, old, "not known, none are used: the ibnetsm at /run/x.sock is older than ibnetctl and does not report " +
				"how it computes routes: restart it", route.FatTree, "ibnetsm would keep", false, false},
		} {
			r, err := liveRoutes(t.Context(), conn, &tt.o, nil, tt.query)
			testkit.NoError(t, err)
			w := r.hints.words(&r.opt)
			if !strings.HasPrefix(w, tt.words) || r.Engine != tt.engine || !strings.HasPrefix(r.note, tt.note) || r.hints.known != tt.known ||
				r.opt.QoS != tt.qos || r.hints.answer(&r.opt).Known != tt.known {
				t.Errorf("hints %q, engine %s, QoS %v; want %q, %s (%s", w, r.engineWords(), r.opt.QoS, tt.words, tt.engine, tt.note)
			}
			named := strings.Contains(strings.Join(r.warnings, "\n"), "compute nodes: 1 of the 2 GUIDs, such as 0x0000000000000077")
			if named != (tt.o.hints.compute != "") {
				t.Errorf("%q: warnings %q", w, r.warnings)
			}
		}
		tables := routesOptions{tablesOnly: true}
		if r, err := liveRoutes(t.Context(), conn, &tables, nil, nil); err != nil || len(r.LFT) == 0 {
			t.Errorf("tables without how they are made: %v", err)
		}
	})
}

// Of a manager that has ended it is reported that it does not answer, not of which host it is.
func TestHintsOfAnEndedManager(t *testing.T) {
	managedUntil(t, gen.FatTree2(8, 4), engine.Config{Partitions: partition.Default()}, func(t *testing.T, conn probe.Conn, end func()) {
		end()
		r, err := liveRoutes(t.Context(), conn, &routesOptions{}, nil, reports())
		testkit.NoError(t, err)
		if w := r.hints.words(&r.opt); !strings.Contains(w, ") does not answer at LID ") || strings.Contains(w, "of this host") {
			t.Errorf("hints %q", w)
		}
	})
}

// A manager that reports counts, whatever the others do; one that has ended is no problem.
func TestQuerySockets(t *testing.T) {
	dir := t.TempDir()
	serve := func(name, answer string) string {
		path := filepath.Join(dir, name)
		l, err := net.Listen("unix", path)
		testkit.NoError(t, err)
		l.(*net.UnixListener).SetUnlinkOnClose(false)
		t.Cleanup(func() { l.Close() })
		if answer == "" {
			l.Close()
			return path
		}
		go func() {
			for c, err := l.Accept(); err == nil; c, err = l.Accept() {
				_, _ = c.Read(make([]byte, control.MaxAsk))
				_, _ = c.Write([]byte(answer))
				c.Close()
			}
		}()
		return path
	}
	ended, gone := serve("ended", ""), filepath.Join(dir, "gone")
	old, bad := serve("old", "unknown request \"routing 0x7\"\n"), serve("bad", "<")
	other, good := serve("other", "[]"), serve("good", `[{"port_guid":"0x7","state":"Master"}]`)
	for _, tt := range []struct {
		sockets []string
		found   bool
		problem string
	}{
		{[]string{ended, gone, other}, false, ""},
		{[]string{ended, old, bad, good}, true, ""},
		{[]string{ended, other, old}, false, "the ibnetsm at " + old + " is older than ibnetctl and does not report how it computes " +
			"routes: restart it"},
		{[]string{bad}, false, "the ibnetsm at " + bad + " does not report how it computes routes (its answer cannot be read: "},
	} {
		m, problem := querySockets(t.Context(), tt.sockets, 7)
		if (m != nil) != tt.found || !strings.HasPrefix(problem, tt.problem) || tt.problem == "" && problem != "" {
			t.Errorf("%v: %+v, %q", tt.sockets, m, problem)
		}
	}
}

// Files with hints change what is computed of a recorded fabric; lines that ibnetsm would
// leave out are named, and a file that does not exist is an error.
func TestHintFiles(t *testing.T) {
	f := gen.FatTree2(8, 4)
	file := fabricFile(t, f)
	hops, cn := filepath.Join(t.TempDir(), "hops"), filepath.Join(t.TempDir(), "cn")
	text := "nonsense\n"
	for _, w := range heavy(f, "S-0006") {
		text += fmt.Sprintf("%v %d %d\n", w.Switch, w.Port, w.Hops)
	}
	host := f.Ports[f.EndPorts[0]].GUID.String()
	for name, text := range map[string]string{hops: text, cn: host + "\n"} {
		testkit.WriteFile(t, name, text)
	}
	var x answer.WhatIf
	args := []string{"--json", "sm", "whatif", "--file", file, "--off", "S-0006"}
	_, out, e := ctl(t, 0, args...)
	if err := json.Unmarshal([]byte(out), &x); err != nil || x.Moved == 0 || !x.Hints.Known || x.Hints.HopWeights != 0 {
		t.Errorf("without hints: %v, %s, %s", err, out, e)
	}
	_, out, e = ctl(t, 0, append(args, "--hop-weights-file", hops, "--cn-guid-file", cn)...)
	if err := answertest.Check("sm whatif", []byte(out)); err != nil {
		t.Error(err)
	}
	if err := json.Unmarshal([]byte(out), &x); err != nil || x.Moved != 0 || x.Hints.HopWeights != 8 || x.Hints.Compute != 1 ||
		len(x.Warnings) != 1 || !strings.Contains(x.Warnings[0], hops+":1:1: want") {
		t.Errorf("nothing passes the switch that weights keep free: %v, %s, %s", err, out, e)
	}
	code, out, e := ctl(t, 100, "sm", "explain", "H-00001", "H-00010", "--file", file, "--hop-weights-file", hops)
	if code != 0 || !strings.Contains(out, "8 hop weights (as given)") || strings.Contains(out, "S-0006") {
		t.Errorf("exit status %d, %s\n%s", code, e, out)
	}
	code, out, e = ctl(t, 100, "sm", "explain", "H-00001", "H-00010", "--file", file, "--drained", "S-0006")
	if code != 0 || !strings.Contains(out, "1 drained switch (as given)") || strings.Contains(out, "S-0006") {
		t.Errorf("exit status %d, %s\n%s", code, e, out)
	}
	for word, want := range map[string]string{"H-00001": `--drained: "H-00001" is not a switch`,
		"none": `--drained: "none" is not a name, GUID or LID in the fabric`} {
		if _, _, e := ctl(t, 0, append(args, "--drained", word)...); e != want {
			t.Errorf("%s: %s", word, e)
		}
	}
	code, _, e = ctl(t, 0, append(args, "--root-guid-file", "/none")...)
	if code != exitNoSuch || e != "open /none: no such file or directory" {
		t.Errorf("exit status %d, %s", code, e)
	}
}

// sm status shows the tables of a master on this host, in words and as JSON.
func TestRoutesInStatus(t *testing.T) {
	var out bytes.Buffer
	for guid, want := range map[string]*answer.Routes{"0x0002c903000abcdf": nil, "0x0002c903000abcde": {Engine: "updn", BusiestLink: 20,
		AtBest: 8, WhyNotTree: "rings", Words: "updn, busiest link 20 pairs of hosts, 8 at best; not ftree: rings"}} {
		m := answer.Manager{Status: smctl.Status{PortGUID: guid}}
		askRoutes(t.Context(), &m, func(_ context.Context, g ib.GUID) (*control.Routing, string) {
			m := &control.Routing{State: "Master", InForce: "updn", BusiestLink: 20, AtBest: 8, WhyNotTree: "rings"}
			if g != 0x0002c903000abcde {
				m.State = "Standby"
			}
			return m, ""
		})
		if !reflect.DeepEqual(m.Routes, want) {
			t.Errorf("%s: %+v", guid, m.Routes)
		}
		(&app{out: &out}).smDetail(m)
	}
	const want = "updn, busiest link 20 pairs of hosts, 8 at best; not ftree: rings"
	if !strings.Contains(strings.Join(strings.Fields(out.String()), " "), want) {
		t.Errorf("%s", out.String())
	}
}
