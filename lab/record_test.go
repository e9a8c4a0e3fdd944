package lab

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"ibnetworkd/internal/kernel/rtnl"
	"ibnetworkd/internal/testkit"
	"ibnetworkd/lab/timeline"
)

func TestOpRecord(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 6e6, time.UTC)
	for _, tc := range []struct {
		name, line, text string
		at               time.Time
		bad              bool
	}{
		{"OK log", `time=2026-01-02T03:04:05.006Z level=INFO msg=done op="ip link set ib0 up" link=ib0 unit=/a.ibnetwork`,
			"ip link set ib0 up", at, false},
		{"OK quotes", `time=2026-01-02T03:04:05.006Z level=INFO msg=done op="echo \"ib\" > x" link=ib0`, `echo "ib" > x`, at, false},
		{"OK journal", `1767323045.006000 host ibnetworkd[30]: done op="ip link set ib0 mtu 65520" link=ib0`, "ip link set ib0 mtu 65520",
			at, false},
		{"OK refused", `time=2026-01-02T03:04:05.006Z level=WARN msg="the kernel refuses" op="ip link set ib0 mtu 9" error=EINVAL`,
			"ip link set ib0 mtu 9: EINVAL", at, true},
		{"OK refused in words", `time=2026-01-02T03:04:05.006Z level=WARN msg="the kernel refuses" op="ip link set ib0 mtu 9" error="invalid \"mtu\"" unit=/a`, `ip link set ib0 mtu 9: invalid "mtu"`, at, true},
		{"bad other line", `time=2026-01-02T03:04:05.006Z level=INFO msg="ibnetworkd starts" version=devel`, "", time.Time{}, false},
		{"bad open quote", `1767323045.006000 host x: done op="ip link`, "", at, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r, ok := opRecord(tc.line + "\n")
			if ok != (tc.text != "") {
				t.Fatalf("told %v: %+v", ok, r)
			}
			if ok && (r.Text != tc.text || r.Bad != tc.bad || !r.Mark || r.At.Sub(tc.at).Abs() > time.Millisecond) {
				t.Errorf("got %+v", r)
			}
		})
	}
}

func TestPingResult(t *testing.T) {
	failed := errors.New("ping: exit status 2")
	for _, tc := range []struct {
		name string
		args []string
		out  string
		err  error
		want string
	}{
		{"OK", nil, "1 packets transmitted, 1 received, 0% packet loss, time 0ms", nil, "ok"},
		{"OK arguments", []string{"-s", "1400"}, "1 packets transmitted, 1 received, 0% packet loss", nil, "ok (-s 1400)"},
		{"bad one", nil, "\n--- 10.9.0.2 ping statistics ---\n" +
			"1 packets transmitted, 0 received, 100% packet loss, time 0ms\n", failed, "lost 1 of 1"},
		{"bad some", []string{"-c", "5"}, "5 packets transmitted, 3 received, +2 errors, 40% packet loss", nil, "lost 2 of 5 (-c 5)"},
		{"bad no route", nil, "ping: connect: Network is unreachable\n", failed, "ping: connect: Network is unreachable"},
		{"bad nothing said", nil, "", failed, "ping: exit status 2"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := pingResult(tc.args, tc.out, tc.err); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

func TestRDMALinks(t *testing.T) {
	links := []rtnl.Link{
		{Index: 9, Name: "vlan on vlan", Kind: "vlan", Parent: 8, Type: 1},
		{Index: 8, Name: "vlan", Kind: "vlan", Parent: 4, Type: 1},
		{Index: 1, Name: "lo", Type: 772},
		{Index: 2, Name: "storage", Type: 32},
		{Index: 3, Name: "vec0", Type: 1, ParentDev: "uml-vector.0"},
		{Index: 4, Name: "enp1s0", Type: 1, ParentDev: "swib.0"},
		{Index: 5, Name: "soft", Type: 1},
		{Index: 6, Name: "other vlan", Kind: "vlan", Parent: 3, Type: 1},
		{Index: 7, Name: "moved vlan", Kind: "vlan", Parent: 4, ParentElsewhere: true, Type: 1},
		{Index: 10, Name: "macvlan", Kind: "macvlan", Parent: 4, Type: 1},
		{Index: 11, Name: "ipvlan", Kind: "ipvlan", Parent: 4, Type: 1},
		{Index: 12, Name: "other macvlan", Kind: "macvlan", Parent: 3, Type: 1},
	}
	var got []string
	for _, l := range rdmaLinks(links, map[string]bool{"swib.0": true, "soft": true}) {
		got = append(got, l.Name)
	}
	if want := []string{"vlan on vlan", "vlan", "storage", "enp1s0", "soft", "moved vlan", "macvlan", "ipvlan"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// recorded is what this guest has recorded so far.
func recorded(g *G) []timeline.Record {
	f, err := os.Open(shareDir + recordFile)
	testkit.NoError(g, err)
	defer f.Close()
	return timeline.Read(f, "")
}

// What a guest with a wrong clock records is drawn at the host's time.
func TestClock(t *testing.T) {
	t.Parallel()
	c := Config{HCAs: -1, Env: []string{timelineVar + "=1"}}
	body := func(g *G) {
		tv := unix.NsecToTimeval(time.Now().Add(100 * time.Second).UnixNano())
		testkit.NoError(g, unix.Settimeofday(&tv))
		set := time.Now()
		g.WaitFor(20*time.Second, func() string {
			if recs := recorded(g); slices.ContainsFunc(recs, func(r timeline.Record) bool { return r.Trip > 0 && r.At.After(set) }) {
				return ""
			}
			return "a look at the host's clock"
		})
		g.Artifact("now", nil)
		g.Mark("now", "now")
	}
	if InGuest() {
		Run(t, c, body)
		return
	}
	g := Boot(t, c)
	<-g.done
	now, err := os.Stat(filepath.Join(g.Dir, "out/now"))
	recs := g.records("")
	g.Wait(t)
	testkit.NoError(t, err)
	i := slices.IndexFunc(recs, func(r timeline.Record) bool { return r.Row == "now" })
	if i < 0 {
		t.Fatalf("no mark in %v", recs)
	}
	d := recs[i].At.Sub(now.ModTime())
	t.Logf("%v off", d)
	if d.Abs() > 5*time.Second { // of the hundred; a busy machine may take a while between the two
		t.Errorf("the mark is %v off", d)
	}
}

// Requests go out at their time whatever becomes of the others, and loss is reported for
// the time at which they did.
func TestPingingLoss(t *testing.T) {
	t.Parallel()
	Run(t, Config{HCAs: -1, Env: []string{timelineVar + "=1"}}, func(g *G) {
		h := g.Host("a")
		ignore := func(v string) (before time.Time) {
			before = time.Now()
			testkit.NoError(g, h.Do(func() error { return os.WriteFile("/proc/sys/net/ipv4/icmp_echo_ignore_all", []byte(v), 0o644) }))
			return before
		}
		const interval = 50 * time.Millisecond
		start := time.Now()
		stop := h.Pings("127.0.0.1", interval)
		time.Sleep(time.Second)
		from := ignore("1")
		time.Sleep(2 * time.Second)
		to := ignore("0")
		heard := time.Now()
		time.Sleep(time.Second)
		sent, lost := stop()
		want, wantLost := int(time.Since(start)/interval), int(heard.Sub(from)/interval)
		g.Logf("%d of %d lost, %d of %d at best", lost, sent, wantLost, want)
		ran := sent > want*3/4 // a busy machine lets a guest wait, which then makes up for some
		made := int(answerLimit / interval)
		if sent > want+1 || lost > wantLost+made+1 || ran && lost < wantLost*2/3 {
			g.Errorf("lost %d of %d, want about %d of %d", lost, sent, wantLost, want)
		}
		var states []string
		for _, r := range recorded(g) {
			if r.Row != "ping host a: 127.0.0.1" || r.Note {
				continue
			}
			states = append(states, r.Text)
			var at time.Time
			switch len(states) {
			case 2:
				at = from
			case 3:
				at = to
			default:
				continue
			}
			if d := r.At.Sub(at); d < 0 || ran && d > 400*time.Millisecond {
				g.Errorf("%q is reported for %v after it began", r.Text, d)
			}
		}
		if got := strings.Join(states, ", "); got != "answers, lost, answers, " {
			g.Errorf("recorded %q", got)
		}
	})
}

// Links appear under any name, of both kinds of ports, and in the hosts that took them.
func TestRecordedLinks(t *testing.T) {
	t.Parallel()
	Run(t, Config{Userland: Debian, HCAs: 2, Env: []string{timelineVar + "=1"}}, func(g *G) {
		g.SM(SM{})
		a, b := g.Host("a"), g.Host("b")
		g.Exec("ip", "link", "add", "link", "ib0", "name", "storage", "type", "ipoib", "pkey", "0x8001")
		a.Take("ib0", "10.9.0.1/24")
		b.Take("ib1", "10.9.0.2/24")
		a.Ping("10.9.0.2")
		a.NoPing("10.9.0.77")
		g.Ctl("type h1/1 eth")
		want := []string{"link ib0", "link storage", "link a/ib0: carrier", "link b/ib1: carrier", "ping host a: 10.9.0.2: ok",
			"ping host a: 10.9.0.77: no answer, as it must be"}
		g.WaitFor(20*time.Second, func() string {
			links, _ := os.ReadDir("/sys/class/net")
			eth := ""
			for _, l := range links {
				if target, _ := os.Readlink("/sys/class/net/" + l.Name() + "/device"); strings.Contains(target, "swib.1") {
					eth = "link " + l.Name()
				}
			}
			var got []string
			for _, r := range recorded(g) {
				got = append(got, r.Row+": "+r.Text)
			}
			for _, w := range append(want, eth) {
				if eth == "" || !slices.ContainsFunc(got, func(s string) bool { return strings.HasPrefix(s, w) }) {
					return "a record of " + w + " in\n" + strings.Join(got, "\n")
				}
			}
			return ""
		})
	})
}
