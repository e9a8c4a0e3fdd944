package main

import (
	"bytes"
	"strings"
	"testing"

	"ibnetworkd/lab"
	"ibnetworkd/sm/fabric"
)

// Each kind prints, with what it has by itself and with other sizes, a fabric that
// both readers take, of that many nodes.
func TestTopology(t *testing.T) {
	for _, tc := range []struct {
		args            string
		hosts, switches int
	}{
		{"star", 4, 1}, {"star --hosts 100", 100, 1},
		{"fat-tree", 16, 6}, {"fat-tree --radix 36 --leaves 36", 648, 54}, {"fat-tree --radix 2 --leaves 2", 2, 3},
		{"fat-tree3", 64, 40}, {"fat-tree3 --radix 4 --pods 4 --hosts 2", 16, 20},
		{"ring", 8, 4}, {"ring --switches 7 --hosts 1", 7, 7},
		{"torus", 9, 9}, {"torus --x 4 --y 2 --hosts 3", 24, 8}, {"mesh", 9, 9},
	} {
		var out bytes.Buffer
		c := topologyCommand()
		c.SetArgs(strings.Fields(tc.args))
		c.SetOut(&out)
		if err := c.Execute(); err != nil {
			t.Errorf("%s: %v", tc.args, err)
			continue
		}
		text := out.String()
		f, err := fabric.ReadText("topology", strings.NewReader(text))
		if err != nil {
			t.Errorf("%s: %v", tc.args, err)
			continue
		}
		if hosts := len(f.Nodes) - len(f.Switches); hosts != tc.hosts || len(f.Switches) != tc.switches {
			t.Errorf("%s: %d hosts, %d switches, want %d and %d", tc.args, hosts, len(f.Switches), tc.hosts, tc.switches)
		}
		if _, err := lab.Topology("topology", text); err != nil {
			t.Errorf("%s: the lab: %v", tc.args, err)
		}
	}
}

// Sizes that cannot be are refused with a sentence, and none panics.
func TestTopologySizes(t *testing.T) {
	for args, want := range map[string]string{
		"":                              "no kind of fabric given",
		"cube":                          `unknown kind "cube"`,
		"star --hosts 0":                "--hosts=0: want 1 to 254",
		"fat-tree --radix 7":            "an even number",
		"fat-tree --radix 8 --leaves 9": "too few switch ports",
		"fat-tree3 --hosts 1000":        "want 1 to 127",
		"ring --switches 40000":         "LIDs for 49151",
		"torus --x 1":                   "--x=1: want 2 to 1000",
		"mesh --x 1000 --y 1000":        "LIDs for 49151",
		"fat-tree3 --radix 4 --hosts 3": "has at most 2",
	} {
		var out bytes.Buffer
		c := topologyCommand()
		c.SetArgs(strings.Fields(args))
		c.SetOut(&out)
		c.SetErr(&out)
		if err := c.Execute(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", args, err, want)
		}
	}
	for _, s := range shapes {
		v := make([]int, len(s.sizes))
		for n := range 216 {
			for i, k := 0, n; i < len(v); i, k = i+1, k/6 {
				v[i] = k % 6
			}
			f, err := s.build(v)
			if (f == nil) != (err != nil) {
				t.Fatalf("%s %v: %v", s.name, v, err)
			}
		}
	}
}
