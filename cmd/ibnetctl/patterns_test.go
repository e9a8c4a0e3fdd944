package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"ibnetworkd/cmd/ibnetctl/answer"
	"ibnetworkd/daemon/bus/api"
	"ibnetworkd/internal/kernel/sysfs"
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

// A link in another network namespace has a line in list, and is found by its name, with what is known of it.
func TestLinksElsewhere(t *testing.T) {
	child := link.Attribute{Name: "Partition", Wanted: "0x8001 job in network namespace ns", Actual: "0x8001 job in network namespace ns",
		Away: link.Away{Name: "job", Kind: "ipoib", PKey: "0x8001", Namespace: "ns", State: "up", MTU: 2044}}
	moved := link.Attribute{Name: "Partition", Wanted: "0x8002 ib1", Away: link.Away{Name: "ib1", Kind: "ipoib", State: "not checked"},
		Why: link.Reason{Code: link.CodeMoved, Text: "ib1 was moved to another network namespace", Next: "move it back"}}
	far := moved
	far.Away.Name = "far"
	d := &api.Description{Links: []link.Status{{Name: "ib0", Kind: "ipoib", IBDevice: "mlx5_0", Port: 1, Unit: "/x",
		Attributes: []link.Attribute{child, far, moved}}, {Name: "ib1", Kind: "ipoib"}}}
	show := func(of func(a *app) error) string {
		var b bytes.Buffer
		a := &app{out: &b, err: &b, width: 200}
		if err := of(a); err != nil {
			t.Error(err)
		}
		return b.String()
	}
	list := show(func(a *app) error { a.linkTable(d.Links); return nil })
	for name, want := range map[string]string{
		"job": "ipoib  mlx5_0/1  0x8001  up .* in network namespace ns\n",
		"far": "ipoib  mlx5_0/1 .* not checked .* far|ib1 was moved to another network namespace\n",
	} {
		if !regexp.MustCompile("(?m)^ *" + name + " +" + want).MatchString(list) {
			t.Errorf("list has no %s as %s:\n%s", name, want, list)
		}
	}
	if out := show(func(a *app) error { return a.status(d, []string{"job"}) }); !strings.Contains(out, "job: up (in network namespace ns)") ||
		!strings.Contains(out, "/x, which matches ib0") || strings.Contains(out, "far") {
		t.Errorf("status job:\n%s", out)
	}
	if out := show(func(a *app) error { return a.status(d, []string{"ib1", "far"}) }); !strings.Contains(out, "ib1:  (") ||
		!strings.Contains(out, "far: not checked (in another network namespace)") || !strings.Contains(out, "Next step: move it back") {
		t.Errorf("status ib1 far:\n%s", out)
	}
	// Each namespace may have a link of that name, and a pattern fits what list shows.
	other := child
	other.Away.Namespace = "two"
	d.Links = append(d.Links, link.Status{Name: "ib2", Kind: "ipoib", IBDevice: "mlx5_1", Port: 1, Attributes: []link.Attribute{other}})
	for _, args := range [][]string{{"job"}, {"j*"}, {"job", "jo?"}, {"*b"}} {
		out := show(func(a *app) error { return a.status(d, args) })
		for text, want := range map[string]int{"job: up (in network namespace ns)": 1, "job: up (in network namespace two)": 1, "far: not": 0} {
			if got := strings.Count(out, text); got != want {
				t.Errorf("status %v has %q %d times:\n%s", args, text, got, out)
			}
		}
	}
	if got := parents(d, []string{"j*", "ib1", "i*"}); !slices.Equal(got, []string{"ib0", "ib2", "ib1", "i*"}) {
		t.Errorf("list: %v", got)
	}
	d.Links = d.Links[:2]
	// logs, wait-online, --stats and completion know them too, by both names.
	d.Links[0].Attributes[0].Away.Asked = "asked"
	if b, err := aboutOf(d, "asked"); err != nil || !slices.Equal(b.words, []string{"job", "asked"}) {
		t.Errorf("logs asked: %v, %v", b.words, err)
	}
	if b, err := aboutOf(d, "*"); err != nil || !slices.Contains(b.words, "far") || !slices.Contains(b.words, "asked") {
		t.Errorf("logs '*': %v, %v", b.words, err)
	}
	for name, why := range map[string]string{
		"asked": "job is in network namespace ns: whether it is online there is not checked; next: ip -n ns address show dev job",
		"far":   "ib1 was moved to another network namespace; next: move it back", "nosuch": "no such link (yet)",
	} {
		missing, online := judge(link.Report{Links: d.Links}, goal{links: []want{{link: name}}}, func(link.Status) bool { return true })
		if online || len(missing) != 1 || missing[0].Why != why {
			t.Errorf("wait-online -i %s: %+v", name, missing)
		}
	}
	for _, args := range [][]string{nil, {"job"}, {"j*"}, {"asked"}} {
		out := show(func(a *app) error { return a.stats(sysfs.New(t.TempDir()), d, args) })
		if !regexp.MustCompile(`job +- +- +- +- +not checked, in network namespace ns: ip -n ns -s link show dev job\n`).MatchString(out) ||
			strings.Contains(out, "far ") != (args == nil) {
			t.Errorf("status --stats %v:\n%s", args, out)
		}
	}
	var counted answer.Counted
	stats := show(func(a *app) error { a.json = true; return a.stats(sysfs.New(t.TempDir()), d, []string{"far"}) })
	if err := json.Unmarshal([]byte(stats), &counted); err != nil || len(counted.Statistics) != 1 || counted.Statistics[0].Link != "far" ||
		counted.Statistics[0].NotChecked == "" {
		t.Errorf("%v: %s", err, stats)
	}
	if got := awayNames(d); !slices.Equal(got, []string{"job\tup in network namespace ns", "far\tnot checked in another network namespace"}) {
		t.Errorf("completion: %q", got)
	}
	d.Links[0].Attributes[0].Away.Asked = ""
	var some answer.Some
	text := show(func(a *app) error { a.json = true; return a.status(d, []string{"job"}) })
	if err := json.Unmarshal([]byte(text), &some); err != nil || len(some.Links) != 1 || some.Links[0].Attributes[0].Away != child.Away {
		t.Errorf("%v: %s", err, text)
	}
}
