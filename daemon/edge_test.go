package daemon

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"ibnetworkd/ib"
	"ibnetworkd/internal/kernel/nl"
	"ibnetworkd/internal/testkit"
	"ibnetworkd/link"
)

// TestClassify goes through errors of the kernel: each has a decision, and what
// a person reads is one sentence with the kernel's words in it.
func TestClassify(t *testing.T) {
	on := link.Target{Link: "ib0", Ifindex: 4}
	addr := link.Address{Prefix: netip.MustParsePrefix("10.0.0.1/24")}
	route := link.Route{Dst: netip.MustParsePrefix("10.9.0.0/16"), Gateway: netip.MustParseAddr("10.0.0.9")}
	for _, tt := range []struct {
		op    link.Op
		errno unix.Errno
		want  verdict
	}{
		{link.SetMode{On: on, Mode: ib.ModeConnected}, unix.EINVAL, verdictGiveUp},
		{link.SetMode{On: on, Mode: ib.ModeConnected}, unix.EBUSY, verdictRetry},
		{link.SetMTU{On: on, MTU: 9000}, unix.EINVAL, verdictGiveUp},
		{link.SetUp{On: on, Up: true}, unix.ENODEV, verdictGone},
		{link.SetUp{On: on, Up: true}, unix.EPERM, verdictGiveUp},
		{link.SetUp{On: on, Up: true}, unix.ENOMEM, verdictRetry},
		{link.AddAddress{On: on, Address: addr}, unix.EEXIST, verdictForeign},
		{link.DelAddress{On: on, Address: addr}, unix.EADDRNOTAVAIL, verdictDone},
		{link.AddRoute{On: on, Route: route}, unix.ENETUNREACH, verdictRetry},
		{link.AddRoute{On: on, Route: route}, unix.EEXIST, verdictRetry},
		{link.DelRoute{On: on, Route: route}, unix.ESRCH, verdictDone},
		{link.AddChild{On: link.Target{Link: "ib0.8001"}, Parent: on, PKey: 0x8001}, unix.EEXIST, verdictGiveUp},
		{link.AddChild{On: link.Target{Link: "ib0.8001"}, Parent: on, PKey: 0x8001}, unix.ENODEV, verdictGone},
		{link.DelLink{On: on}, unix.ENODEV, verdictDone},
		{link.SetGUID{On: on}, unix.EOPNOTSUPP, verdictGiveUp},
		{link.AddRule{}, unix.EEXIST, verdictForeign},
		{link.SetUmcast{On: on}, unix.EIO, verdictRetry},
	} {
		t.Run(fmt.Sprintf("%T %v", tt.op, tt.errno), func(t *testing.T) {
			got, why := classify(tt.op, &nl.Error{What: "change link 4", Errno: tt.errno, Message: "the kernel's words.", Err: tt.errno})
			if got != tt.want {
				t.Errorf("verdict %d, want %d", got, tt.want)
			}
			if spoken := got == verdictRetry || got == verdictGiveUp || got == verdictGone; spoken != (why.Text != "") {
				t.Errorf("reason %+v", why)
			} else if spoken && (strings.Contains(why.Text, "\n") || strings.HasSuffix(why.Text, ".")) {
				t.Errorf("not one sentence: %q", why.Text)
			}
		})
	}
	if v, why := classify(link.SetUmcast{On: on}, errors.New("odd")); v != verdictRetry || !strings.Contains(why.Text, "odd") {
		t.Errorf("unknown error: %d %+v", v, why)
	}
}

func TestStore(t *testing.T) {
	dir := t.TempDir()
	s, err := NewStore(dir)
	testkit.NoError(t, err)
	if _, err := NewStore(dir); !errors.Is(err, ErrRunning) {
		t.Errorf("a second daemon: %v", err)
	}
	rec := &link.Record{Links: []*link.LinkRecord{{Ifindex: 4, Name: "ib0"}}}
	testkit.NoError(t, s.SaveRecord(rec))
	rep := link.Report{Links: []link.Status{{Name: "ib0", State: link.StateConfigured}, {Name: "ib1"}}, Problems: []string{"a:1:1: odd"}}
	all := func(string) bool { return true }
	testkit.NoError(t, s.SaveReport(rep, all))
	got, err := ReadReport(dir)
	if err != nil || len(got.Links) != 2 || got.Links[0].State != link.StateConfigured || len(got.Problems) != 1 {
		t.Errorf("report %+v, %v", got, err)
	}
	// One link changed, one gone.
	rep.Links = []link.Status{{Name: "ib0", State: link.StateFailed}}
	testkit.NoError(t, s.SaveReport(rep, func(n string) bool { return n == "ib0" }))
	if got, _ := ReadReport(dir); len(got.Links) != 1 || got.Links[0].State != link.StateFailed {
		t.Errorf("report %+v", got)
	}
	testkit.NoError(t, s.Close())
	s, err = NewStore(dir)
	testkit.NoError(t, err)
	if r, err := s.LoadRecord(); err != nil || len(r.Links) != 1 {
		t.Errorf("record %+v, %v", r, err)
	}
	if _, err := ReadReport(dir); err == nil {
		t.Error("the report of the earlier run is still there")
	}
	// A torn or foreign record: nothing is ours, and it is reported.
	testkit.NoError(t, os.WriteFile(filepath.Join(dir, RecordFile), []byte(`{"schema":1,"lin`), 0o644))
	if r, err := s.LoadRecord(); err == nil || r == nil || len(r.Links) != 0 {
		t.Errorf("torn record: %+v, %v", r, err)
	}
	s, err = NewStore("/proc/no/such")
	if err == nil || s == nil || s.SaveRecord(rec) == nil {
		t.Errorf("a directory that cannot be: %v, %v", s, err)
	}
}

func FuzzParseServer(f *testing.F) {
	for _, s := range []string{"192.0.2.53", "192.0.2.53:53%ib0#dns.example", "[fd00::53]:853#x", "fd00::1", "a:b:c", "[", "1.2.3.4:99999"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		d, err := parseServer(s)
		if err == nil && len(d.Addr) != 4 && len(d.Addr) != 16 {
			t.Errorf("%q: address of %d bytes", s, len(d.Addr))
		}
	})
}
