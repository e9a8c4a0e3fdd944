package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"ibnetworkd/link"
)

// Ctrl-C while an editor runs is for the editor.
func TestEditSurvivesCtrlC(t *testing.T) {
	root := t.TempDir()
	t.Setenv("VISUAL", "touch -d now+1min")
	ctx, interrupt := context.WithCancel(t.Context())
	interrupt()
	var errs bytes.Buffer
	if code := run(ctx, []string{"--root", root, "edit", "10-ib0"}, strings.NewReader(""), &errs, &errs); code != exitOK {
		t.Errorf("exit %d: %s", code, &errs)
	}
	if _, err := os.Stat(filepath.Join(root, "etc/systemd/network/10-ib0.ibnetwork")); err != nil {
		t.Error(err)
	}
}

func TestJudge(t *testing.T) {
	online := link.Status{Name: "ib0", Required: true, Online: true, State: link.StateConfigured, Oper: link.OperRoutable}
	off := link.Status{Name: "ib1", Required: true, State: link.StateConfiguring, Oper: link.OperNoCarrier}
	optional := link.Status{Name: "ib2", State: link.StateConfigured, Oper: link.OperCarrier}
	none := link.Status{Name: "eth0", Required: true, State: link.StateUnmanaged}
	for _, tc := range []struct {
		name    string
		links   []link.Status
		wants   []want
		any     bool
		nothing bool
		online  bool
		missing string
	}{
		{"OK all", []link.Status{online, optional, none}, nil, false, false, true, ""},
		{"OK one is missing", []link.Status{online, off}, nil, false, false, false, "ib1"},
		{"OK any", []link.Status{online, off}, nil, true, false, true, "ib1"},
		{"OK the device comes later", []link.Status{none}, nil, false, false, false, "any link"},
		{"OK nothing is required", []link.Status{none, optional}, nil, false, true, true, ""},
		{"OK named", []link.Status{online, optional}, []want{{"ib2", link.OperCarrier, ""}}, false, true, true, ""},
		{"OK named and not good enough", []link.Status{optional}, []want{{"ib2", link.OperRoutable, ""}}, false, true, false, "ib2"},
		{"OK named and in range", []link.Status{optional}, []want{{"ib2", link.OperOff, link.OperCarrier}}, false, true, true, ""},
		{"OK named and above the range", []link.Status{optional}, []want{{"ib2", link.OperOff, link.OperNoCarrier}}, false, true, false, "ib2"},
		{"OK named and not there", nil, []want{{"ib9", "", ""}}, false, true, false, "ib9"},
	} {
		missing, got := judge(link.Report{Links: tc.links}, tc.wants, tc.any, func(link.Status) bool { return true }, func() bool { return tc.nothing })
		names := ""
		for _, m := range missing {
			names += m.Link
		}
		if got != tc.online || names != tc.missing {
			t.Errorf("%s: online %v, missing %q; want %v, %q", tc.name, got, names, tc.online, tc.missing)
		}
	}
}
