package main

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"ibnetworkd/daemon/bus/api"
	"ibnetworkd/link"
)

// A link that is named and that no unit is applied to is an error of reconfigure, with the
// next step.
func TestReconfigureWithoutAUnit(t *testing.T) {
	unmanaged := func(name string, why link.Reason) link.Status {
		return link.Status{Name: name, State: link.StateUnmanaged, Reasons: []link.Reason{why}}
	}
	d := &api.Description{Links: []link.Status{
		unmanaged("ib0", link.Reason{Code: link.CodeNoUnit, Text: "no unit matches ib0"}),
		unmanaged("ib1", link.Reason{Code: link.CodeOtherManager, Text: "NetworkManager manages ib1: it is left alone", Next: "remove the unit"}),
		unmanaged("ib4", link.Reason{Code: link.CodeNoUnit, Text: "no unit matches ib4, and /x cannot be used", Next: "ibnetctl verify /x"}),
		unmanaged("ib2", link.Reason{Code: link.CodeUnmanaged, Text: "Unmanaged=yes in x"}), {Name: "ib3", State: link.StateConfigured}}}
	for name, want := range map[string]string{
		"ib0": "ib0: no unit matches the link; to write one: ibnetctl edit 10-ib0",
		"ib1": "ib1: NetworkManager manages ib1: it is left alone; next: remove the unit",
		"ib4": "ib4: no unit matches ib4, and /x cannot be used; next: ibnetctl verify /x",
		"ib2": "ib2: Unmanaged=yes in x", "ib3": "", "ib*": "",
	} {
		text, err := "", joined(notApplied(d, []string{name}))
		if err != nil {
			text = err.Error()
		}
		if text != want || want != "" && exitCode(err) != exitFailure {
			t.Errorf("%s: %q, want %q", name, text, want)
		}
	}
}

// Patterns stand for links that concern us, and for ports; a name stands for any
// link, and nothing is shown twice.
func TestPatterns(t *testing.T) {
	d := &api.Description{
		Links: []link.Status{{Name: "eth0", Kind: "ether"}, {Name: "ib0", Kind: "ipoib"}, {Name: "ib1", Kind: "ipoib"},
			{Name: "roce0", Kind: "ether", IBDevice: "mlx5_2", Port: 1}},
		Ports: []link.PortStatus{{IBDevice: "mlx5_0", Port: 1}, {IBDevice: "mlx5_0", Port: 2}, {IBDevice: "mlx5_2", Port: 1}},
	}
	names := func(ls []link.Status) string {
		var out []string
		for _, l := range ls {
			out = append(out, l.Name)
		}
		return strings.Join(out, " ")
	}
	for _, tc := range []struct {
		args, want string
		bad        bool
	}{
		{"ib*", "ib0 ib1", false}, {"*", "ib0 ib1 roce0", false}, {"eth0", "eth0", false}, {"eth*", "", true}, {"ib0 ib?", "ib0 ib1", false},
		{"ib[!0]", "ib1", false}, {"ib9 ib*", "ib0 ib1", true}, {"ib", "", true},
	} {
		got, err := pick(d.Links, strings.Fields(tc.args))
		if names(got) != tc.want || (err != nil) != tc.bad {
			t.Errorf("%s: %s, %v", tc.args, names(got), err)
		}
		if err != nil && exitCode(err) != exitNoSuch {
			t.Errorf("%s: exit %d", tc.args, exitCode(err))
		}
	}
	for args, want := range map[string]int{"mlx5_0/*": 2, "mlx5_*": 3, "mlx5_0/1 *": 3, "mlx4*": 0} {
		got, err := pickPorts(d, strings.Fields(args))
		if len(got) != want || (err != nil) != (want == 0) {
			t.Errorf("%s: %d ports, %v", args, len(got), err)
		}
	}
	for name, want := range map[string]string{"mlx5_2": "mlx5_2/1", "mlx5_2/1": "mlx5_2/1", "roce0": "mlx5_2/1"} {
		if p := findPort(d, name); p == nil || fmt.Sprintf("%s/%d", p.IBDevice, p.Port) != want {
			t.Errorf("%s: port %+v, want %s", name, p, want)
		}
	}
	for _, name := range []string{"mlx5_0", "eth0", "mlx5_3/1"} {
		if p := findPort(d, name); p != nil {
			t.Errorf("%s: port %+v, want none", name, p)
		}
	}
	var out bytes.Buffer
	a := &app{out: &out, err: &out}
	if err := a.status(d, []string{"*2*", "ib0", "ib*"}); err != nil {
		t.Error(err)
	}
	for n, want := range map[string]int{"● ib0:": 1, "● ib1:": 1, "● mlx5_0/2:": 1, "● mlx5_2/1:": 1, "● mlx5_0/1:": 0} {
		if got := strings.Count(out.String(), n); got != want {
			t.Errorf("status shows %q %d times:\n%s", n, got, out.String())
		}
	}
}
