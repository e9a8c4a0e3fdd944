package main

import (
	"bytes"
	"context"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"ibnetworkd/cmd/ibnetctl/answer"
	"ibnetworkd/daemon"
	"ibnetworkd/internal/testkit"
	"ibnetworkd/link"
	"ibnetworkd/smctl"
	"ibnetworkd/units"
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

// Who may not write the unit gets to know it before the editor opens.
func TestEditChecksThatItMayWrite(t *testing.T) {
	root := t.TempDir()
	dir, opened := filepath.Join(root, "etc/systemd/network"), filepath.Join(root, "opened")
	testkit.NoError(t, os.MkdirAll(dir, 0o755))
	for path, mode := range map[string]os.FileMode{filepath.Dir(root): 0o755, root: 0o777, dir: 0o555} {
		testkit.NoError(t, os.Chmod(path, mode))
	}
	t.Setenv("VISUAL", "touch "+opened+"; true")
	done := make(chan struct{})
	go func() {
		defer close(done)
		if os.Geteuid() == 0 {
			// The thread ends with the goroutine: only this one is another user's.
			runtime.LockOSThread()
			if _, _, e := syscall.RawSyscall(syscall.SYS_SETRESUID, ^uintptr(0), 65534, ^uintptr(0)); e != 0 {
				t.Error(e)
				return
			}
		}
		var errs bytes.Buffer
		if code := run(t.Context(), []string{"--root", root, "edit", "10-ib0"}, strings.NewReader(""), &errs, &errs); code != exitDenied ||
			!strings.Contains(errs.String(), "10-ib0.ibnetwork cannot be written: permission denied; run this as root") {
			t.Errorf("exit %d: %s", code, &errs)
		}
	}()
	<-done
	if _, err := os.Stat(opened); err == nil {
		t.Error("the editor was opened")
	}
}

// A unit that names a bad file is not put in place without an answer.
func TestEditAsksAboutBadFiles(t *testing.T) {
	root := t.TempDir()
	t.Setenv("VISUAL", `printf '[Match]\nName=ib0\n[SubnetManager]\nManage=auto\nPartitionsFile=/etc/none.conf\n' >`)
	var errs bytes.Buffer
	if code := run(t.Context(), []string{"--root", root, "edit", "10-ib0"}, strings.NewReader(""), &errs, &errs); code == exitOK ||
		!strings.Contains(errs.String(), "/etc/none.conf: no such file") {
		t.Errorf("exit %d: %s", code, &errs)
	}
	if _, err := os.Stat(filepath.Join(root, "etc/systemd/network/10-ib0.ibnetwork")); err == nil {
		t.Error("it is in place")
	}
}

func TestJudge(t *testing.T) {
	online := link.Status{Name: "ib0", Required: true, Online: true, State: link.StateConfigured, Oper: units.OperRoutable}
	off := link.Status{Name: "ib1", Required: true, State: link.StateConfiguring, Oper: units.OperNoCarrier}
	optional := link.Status{Name: "ib2", State: link.StateConfigured, Oper: units.OperCarrier}
	none := link.Status{Name: "eth0", Required: true, State: link.StateUnmanaged}
	four := link.Status{Name: "ib3", Required: true, State: link.StateConfigured, Oper: units.OperRoutable,
		RequiredMin: units.OperDegraded, RequiredMax: units.OperRoutable, IPv4State: units.OperRoutable, IPv6State: units.OperDegraded}
	named := func(names ...string) (g goal) {
		for _, n := range names {
			w, err := parseWant(n)
			testkit.NoError(t, err)
			g.links = append(g.links, w)
		}
		return g
	}
	with := func(g goal, change func(*goal)) goal { change(&g); return g }
	for _, tc := range []struct {
		name    string
		links   []link.Status
		goal    goal
		nothing bool
		online  bool
		missing string
	}{
		{"OK all", []link.Status{online, optional, none}, goal{}, false, true, ""},
		{"OK one is missing", []link.Status{online, off}, goal{}, false, false, "ib1"},
		{"OK any", []link.Status{online, off}, goal{any: true}, false, true, "ib1"},
		{"OK the device comes later", []link.Status{none}, goal{}, false, false, "any link"},
		{"OK nothing is required", []link.Status{none, optional}, goal{}, true, true, ""},
		{"OK named", []link.Status{online, optional}, named("ib2:carrier"), true, true, ""},
		{"OK named and not good enough", []link.Status{optional}, named("ib2:routable"), true, false, "ib2"},
		{"OK named and in range", []link.Status{optional}, named("ib2:off:carrier"), true, true, ""},
		{"OK named and above the range", []link.Status{optional}, named("ib2::no-carrier"), true, false, "ib2"},
		{"OK named and not there", nil, named("ib9"), true, false, "ib9"},
		{"OK named, may be missing, and is", nil, named("ib9:missing"), true, true, ""},
		{"OK ignored", []link.Status{online, off}, goal{ignore: []string{"eth*", "ib[1-9]"}}, false, true, ""},
		{"OK all are ignored", []link.Status{off}, goal{ignore: []string{"ib*"}}, false, true, ""},
		{"OK named ones are not ignored", []link.Status{off}, with(named("ib1"), func(g *goal) { g.ignore = []string{"ib*"} }), false,
			false, "ib1"},
		{"OK a range for all", []link.Status{online, off}, goal{all: want{"", units.OperOff, units.OperRoutable}}, false, true, ""},
		{"OK a range for all, and not good enough", []link.Status{online, off},
			goal{all: want{"", units.OperCarrier, units.OperRoutable}}, false, false, "ib1"},
		{"OK a range for all, and one of its own", []link.Status{online, off},
			with(named("ib0", "ib1:off"), func(g *goal) { g.all.min, g.all.max = units.OperRoutable, units.OperRoutable }), false, true, ""},
		{"OK IPv4 is there", []link.Status{four}, goal{ipv4: true}, false, true, ""},
		{"OK IPv6 link-local is enough for degraded", []link.Status{four}, goal{ipv6: true}, false, true, ""},
		{"OK IPv6 is not routable", []link.Status{four},
			goal{ipv4: true, ipv6: true, all: want{"", units.OperRoutable, units.OperRoutable}}, false, false, "ib3"},
		{"OK no IPv4", []link.Status{off}, goal{ipv4: true}, false, false, "ib1"},
	} {
		missing, got := judge(link.Report{Links: tc.links, Awaited: !tc.nothing}, tc.goal, func(link.Status) bool { return true })
		names := ""
		for _, m := range missing {
			names += m.Link
		}
		if got != tc.online || names != tc.missing {
			t.Errorf("%s: online %v, missing %q; want %v, %q", tc.name, got, names, tc.online, tc.missing)
		}
	}
}

// What is waited for is named once.
func TestWaitingFor(t *testing.T) {
	down := answer.Lacking{Link: "ib0", Why: "ib0 is down"}
	for _, tc := range []struct {
		missing    []answer.Lacking
		line, last string
	}{
		{[]answer.Lacking{down}, "waiting: ib0 is down", "ib0 is down"},
		{[]answer.Lacking{{Link: "ib0", Why: noGID}}, "waiting for ib0: " + noGID, "ib0: " + noGID},
		{[]answer.Lacking{{Link: "ib0", Why: "ib0.8001 is down"}}, "waiting for ib0: ib0.8001 is down", "ib0: ib0.8001 is down"},
		{[]answer.Lacking{{Link: "ib1", Why: "no unit matches ib1"}}, "waiting: no unit matches ib1", "no unit matches ib1"},
		{[]answer.Lacking{down, down}, "waiting for ib0 and 1 more: ib0 is down", "ib0 is down"},
		{[]answer.Lacking{{Link: "ibnetworkd", Why: errNotRunning.Error()}}, "waiting: ibnetworkd is not running", "ibnetworkd is not running"},
	} {
		if line, last := waitingFor(tc.missing), lacking(tc.missing[0]); line != tc.line || last != tc.last {
			t.Errorf("%q and %q, want %q and %q", line, last, tc.line, tc.last)
		}
	}
}

// A report is seen whose directory comes after the wait began, goes and comes again.
func TestWaitOnlineWatches(t *testing.T) {
	a := &app{root: t.TempDir()}
	go func() {
		for _, online := range []bool{false, true} {
			time.Sleep(50 * time.Millisecond)
			_ = os.MkdirAll(a.path("/run"), 0o755)
			store, err := daemon.NewStore(a.path(stateDir))
			if err == nil {
				err = store.SaveReport(link.Report{Links: []link.Status{{Name: "ib0", Online: online, Required: true}}}, nil)
			}
			if err != nil {
				t.Error(err)
			}
			if !online {
				time.Sleep(50 * time.Millisecond)
				_ = os.RemoveAll(a.path(stateDir))
			}
		}
	}()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if missing, err := a.waitOnline(ctx, goal{}, nil); err != nil {
		t.Errorf("%v: %v", err, missing)
	}
}

// The hint about rights is given where journalctl lacked them, and not for another failure.
func TestJournalRights(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("PATH", dir)
	for said, hint := range map[string]bool{"No journal files were opened due to insufficient permissions.": true,
		"Failed to open files: Permission denied": true, "Failed to parse timestamp: yesterdy": false} {
		script := "#!/bin/sh\necho '" + said + "' >&2\nexit 1\n"
		testkit.NoError(t, os.WriteFile(filepath.Join(dir, "journalctl"), []byte(script), 0o755))
		var out, errs bytes.Buffer
		code := run(t.Context(), []string{"--root", t.TempDir(), "--no-bus", "logs"}, strings.NewReader(""), &out, &errs)
		if text := errs.String(); code == exitOK || !strings.Contains(text, said) || strings.Contains(text, journalRights) != hint {
			t.Errorf("%q: exit code %d\n%s", said, code, text)
		}
	}
}

func TestManagerDetail(t *testing.T) {
	var out bytes.Buffer
	a := &app{out: &out}
	at := time.Date(2026, 11, 21, 9, 0, 0, 0, time.Local)
	for _, s := range []smctl.Status{
		{Phase: "served", Reason: "it is", WorkerState: "inactive", NextCheck: at},
		{Phase: "master", Reason: "ours", WorkerState: "active", WorkerSince: at, Starts: 1, NextCheck: time.Now().Add(time.Hour)},
	} {
		s.IBDevice, s.Port, s.Manage, s.Engine, s.Worker = "mlx5_0", 1, "auto", "builtin", "w.service"
		a.smDetail(answer.Manager{Status: s})
	}
	for _, want := range []string{"w.service, inactive, started 0 times by this daemon",
		"w.service, active since 2026-11-21 09:00:00, started 1 time by this daemon"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is not in\n%s", want, &out)
		}
	}
	if strings.Count(out.String(), "Next check") != 1 {
		t.Errorf("a check that has passed is one to come:\n%s", &out)
	}
}

// A bus that takes the connection and says nothing more is no bus.
func TestBusThatHangs(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	testkit.NoError(t, err)
	defer l.Close()
	t.Setenv("DBUS_SYSTEM_BUS_ADDRESS", "unix:path="+path)
	var out, errs bytes.Buffer
	began := time.Now()
	if code := run(t.Context(), []string{"reload"}, strings.NewReader(""), &out, &errs); code != exitNotRunning ||
		!strings.Contains(errs.String(), "no answer within") {
		t.Errorf("exit %d: %s", code, &errs)
	}
	if d := time.Since(began); d > 4*connectTimeout {
		t.Errorf("after %v", d)
	}
}
