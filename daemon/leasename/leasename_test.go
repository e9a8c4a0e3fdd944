package leasename

import (
	"cmp"
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/godbus/dbus/v5"
	"golang.org/x/sys/unix"

	"ibnetworkd/daemon"
	"ibnetworkd/internal/busconn/bustest"
	"ibnetworkd/internal/testkit"
	"ibnetworkd/link"
	"ibnetworkd/units"
)

// systemd-hostnamed gets the name of the first lease that has one and whose unit uses it, and an
// empty one when none has; that it is not there is reported.
func TestSetter(t *testing.T) {
	b := bustest.Start(t)
	rereads := make(chan map[int]bool, 10)
	file := filepath.Join(t.TempDir(), "lease-hostname")
	s := New(slog.New(slog.DiscardHandler), b.Addr, file, func(links map[int]bool) { rereads <- links })
	s.direct = direct{func() string { return "" }, func() (string, error) { return "", nil }, func(string) error { return unix.EPERM }}
	testkit.Run(t, s.Run)
	update := func(text string, names ...string) {
		v := daemon.View{Snapshot: &link.Snapshot{}, Governing: link.Governing{Links: map[int]link.Governed{}}}
		for i, name := range names {
			u, _ := units.VerifyFile("10-ib0.ibnetwork", []byte("[Match]\nName=*\n[Network]\nDHCP=ipv4\n[DHCPv4]\n"+text))
			v.Snapshot.Links = append(v.Snapshot.Links, link.Link{Index: 4 + i, Name: "ib0", Type: link.ARPHRDInfiniBand,
				DHCP: &link.DHCP{State: link.DHCPBound, Lease: &link.Lease{Hostname: name}}})
			v.Governing.Links[4+i] = link.Governed{Unit: u}
		}
		s.Update(v)
	}
	reread := func() {
		t.Helper()
		select {
		case links := <-rereads:
			if len(links) != 1 || !links[5] {
				t.Errorf("read again: %v", links)
			}
		case <-time.After(30 * time.Second):
			t.Fatal("no link is read again")
		}
	}
	update("", "node1") // UseHostname=no
	update("UseHostname=yes\n", "", "node2")
	reread()
	var snap link.Snapshot
	if s.Complete(&snap); !strings.Contains(snap.Host.HostnameTrouble, "SetHostname of systemd-hostnamed: ") ||
		!strings.HasSuffix(snap.Host.HostnameTrouble, "; sethostname: operation not permitted") {
		t.Errorf("without systemd-hostnamed: %q", snap.Host.HostnameTrouble)
	}
	var mu sync.Mutex
	var calls []string
	host, lost := "", false
	set := func(name string, noAnswer bool) {
		mu.Lock()
		defer mu.Unlock()
		host, lost = name, noAnswer
	}
	c := b.Dial()
	testkit.NoError(t, c.ExportMethodTable(map[string]any{"SetHostname": func(name string, ask bool) *dbus.Error {
		mu.Lock()
		defer mu.Unlock()
		calls, host = append(calls, name), cmp.Or(name, "static")
		if ask {
			calls = append(calls, "asks for a password")
		}
		if lost {
			return &dbus.ErrMsgNoObject
		}
		return nil
	}}, "/org/freedesktop/hostname1", "org.freedesktop.hostname1"))
	testkit.NoError(t, c.ExportMethodTable(map[string]any{"Get": func(string, string) (dbus.Variant, *dbus.Error) {
		mu.Lock()
		defer mu.Unlock()
		return dbus.MakeVariant(host), nil
	}}, "/org/freedesktop/hostname1", "org.freedesktop.DBus.Properties"))
	if _, err := c.RequestName("org.freedesktop.hostname1", dbus.NameFlagDoNotQueue); err != nil {
		t.Fatal(err)
	}
	called := func(want string) {
		t.Helper()
		got := ""
		for end := time.Now().Add(30 * time.Second); got != want; time.Sleep(5 * time.Millisecond) {
			mu.Lock()
			got = strings.Join(calls, ",")
			mu.Unlock()
			if time.Now().After(end) {
				t.Fatalf("called with %q, want %q", got, want)
			}
		}
	}
	recorded := func(want string) {
		t.Helper()
		text := []byte("not read")
		for end := time.Now().Add(30 * time.Second); string(text) != want; time.Sleep(5 * time.Millisecond) {
			text, _ = os.ReadFile(file)
			if time.Now().After(end) {
				t.Fatalf("recorded %q, want %q", text, want)
			}
		}
	}
	update("UseHostname=yes\n", "", "node3", "node4")
	reread()
	called("node3")
	if s.Complete(&snap); snap.Host.HostnameTrouble != "" || snap.Host.LeaseHostname != "node3" {
		t.Errorf("with systemd-hostnamed: %q, %q", snap.Host.HostnameTrouble, snap.Host.LeaseHostname)
	}
	update("UseHostname=yes\n", "", "node3", "node5")
	update("UseHostname=yes\n")
	called("node3,")
	update("UseHostname=yes\n", "", "node6")
	called("node3,,node6")
	recorded("node6\n")
	set("other", false)
	update("UseHostname=yes\n")
	recorded("") // the host has another name by now
	called("node3,,node6")
	set("other", true)
	update("UseHostname=yes\n", "", "node7")
	called("node3,,node6,node7")
	reread() // it failed
	set("node7", false)
	update("UseHostname=yes\n")
	called("node3,,node6,node7,")
	recorded("")
}

// Without a bus the name is set by the kernel's call, unless the host has a static one, and taken back
// while the host has it. After a call that is not permitted the pauses grow.
func TestWithoutHostnamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		static, has, calls := "", "alpine", []string(nil)
		var refused error
		file := filepath.Join(t.TempDir(), "lease-hostname")
		s := New(slog.New(slog.DiscardHandler), "unix:path=/nonexistent", file, func(map[int]bool) {})
		s.direct = direct{func() string { return static }, func() (string, error) { return has, nil }, func(name string) error {
			if calls = append(calls, name); refused == nil {
				has = name
			}
			return refused
		}}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { defer close(ended); _ = s.Run(ctx) }()
		lease := func(what, name, wanted, trouble string) {
			t.Helper()
			daemon.Replace(s.want, want{name: name})
			synctest.Wait()
			var snap link.Snapshot
			if s.Complete(&snap); snap.Host.LeaseHostname != wanted || !strings.HasSuffix(snap.Host.HostnameTrouble, trouble) {
				t.Errorf("%s: %q, %q", what, snap.Host.LeaseHostname, snap.Host.HostnameTrouble)
			}
		}
		lease("a lease", "node1", "node1", "")
		lease("another", "node2", "node2", "")
		lease("no lease", "", "localhost", "")
		lease("a lease again", "node3", "node3", "")
		has = "byhand"
		lease("no lease, and another name", "", "byhand", "")
		static = "fixed"
		lease("a static name", "node4", "byhand", "")
		if got := strings.Join(calls, " "); got != "node1 node2 localhost node3" {
			t.Errorf("set: %s", got)
		}
		static, has, refused, calls = "", "alpine", unix.EPERM, nil
		lease("not permitted", "node5", "", "; sethostname: operation not permitted")
		time.Sleep(24 * time.Hour)
		synctest.Wait()
		if n := len(calls); n < 24 || n > 40 {
			t.Errorf("tried %d times in a day", n)
		}
		if b, err := os.ReadFile(file); !os.IsNotExist(err) {
			t.Errorf("recorded: %q, %v", b, err)
		}
		cancel()
		<-ended
	})
}

// The name that was set before a restart of the daemon is taken back if no unit asks for it any
// more, unless the host has another one by now; a lease that is in use again in time keeps it.
func TestAfterRestart(t *testing.T) {
	for _, tt := range []struct {
		name, has, lease string
		want             []string
	}{
		{name: "the unit has changed", has: "node3", want: []string{""}},
		{name: "the host has another name", has: "node9"},
		{name: "the lease is in use again", has: "node3", lease: "node3", want: []string{"node3"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := bustest.Start(t)
			file := filepath.Join(t.TempDir(), "lease-hostname")
			testkit.WriteFile(t, file, "node3")
			calls := make(chan string, 9)
			c := b.Dial()
			for iface, methods := range map[string]map[string]any{
				"org.freedesktop.hostname1": {"SetHostname": func(name string, _ bool) *dbus.Error { calls <- name; return nil }},
				"org.freedesktop.DBus.Properties": {"Get": func(string, string) (dbus.Variant, *dbus.Error) {
					return dbus.MakeVariant(tt.has), nil
				}}} {
				testkit.NoError(t, c.ExportMethodTable(methods, "/org/freedesktop/hostname1", iface))
			}
			if _, err := c.RequestName("org.freedesktop.hostname1", dbus.NameFlagDoNotQueue); err != nil {
				t.Fatal(err)
			}
			s := New(slog.New(slog.DiscardHandler), b.Addr, file, func(map[int]bool) {})
			if s.settle = time.Millisecond; tt.lease != "" {
				s.settle = time.Minute
				u, _ := units.VerifyFile("10-ib0.ibnetwork", []byte("[Match]\nName=*\n[Network]\nDHCP=ipv4\n[DHCPv4]\nUseHostname=yes\n"))
				s.Update(daemon.View{Snapshot: &link.Snapshot{Links: []link.Link{{Index: 4, Name: "ib0", Type: link.ARPHRDInfiniBand,
					DHCP: &link.DHCP{State: link.DHCPBound, Lease: &link.Lease{Hostname: tt.lease}}}}},
					Governing: link.Governing{Links: map[int]link.Governed{4: {Unit: u}}}})
			}
			testkit.Run(t, s.Run)
			for end := time.Now().Add(30 * time.Second); ; time.Sleep(5 * time.Millisecond) {
				text, err := os.ReadFile(file)
				if strings.TrimSuffix(string(text), "\n") == tt.lease && (err == nil) == (tt.lease != "") && len(calls) == len(tt.want) {
					break
				}
				if time.Now().After(end) {
					t.Fatalf("recorded %q, %v, %d calls, want %q", text, err, len(calls), tt.want)
				}
			}
			for _, want := range tt.want {
				if got := <-calls; got != want {
					t.Errorf("called with %q, want %q", got, want)
				}
			}
		})
	}
}
