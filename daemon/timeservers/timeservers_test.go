package timeservers

import (
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/godbus/dbus/v5"

	"ibnetworkd/daemon"
	"ibnetworkd/internal/busconn/bustest"
	"ibnetworkd/internal/testkit"
	"ibnetworkd/link"
	"ibnetworkd/units"
)

// timesyncd is systemd-timesyncd of a test, with one server in its file.
type timesyncd struct {
	mu    sync.Mutex
	calls [][]string
	has   []string
	lost  bool // the answer does not come
}

func (d *timesyncd) SetRuntimeNTPServers(servers []string) *dbus.Error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.calls, d.has = append(d.calls, servers), servers
	if d.lost {
		return &dbus.ErrMsgNoObject
	}
	return nil
}

func (d *timesyncd) Get(_, property string) (dbus.Variant, *dbus.Error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if property == "RuntimeNTPServers" {
		return dbus.MakeVariant(d.has), nil
	}
	return dbus.MakeVariant([]string{"ntp.example"}), nil
}

func (d *timesyncd) start(t *testing.T, b *bustest.Bus) *dbus.Conn {
	t.Helper()
	c := b.Dial()
	for iface, methods := range map[string]map[string]any{
		manager: {"SetRuntimeNTPServers": d.SetRuntimeNTPServers}, "org.freedesktop.DBus.Properties": {"Get": d.Get}} {
		testkit.NoError(t, c.ExportMethodTable(methods, object, iface))
	}
	if _, err := c.RequestName(name, dbus.NameFlagDoNotQueue); err != nil {
		t.Fatal(err)
	}
	return c
}

// systemd-timesyncd gets the servers of all leases in the order of the links after those of its
// file, again when it has restarted, and none any more when the leases have ended.
func TestTimesyncd(t *testing.T) {
	b := bustest.Start(t)
	var rereads sync.Map
	file := filepath.Join(t.TempDir(), "time-servers")
	s := NewTimesyncd(slog.New(slog.DiscardHandler), b.Addr, file, func(links map[int]bool) {
		for i := range links {
			rereads.Store(i, true)
		}
	})
	testkit.Run(t, s.Run)
	update := func(text string, servers ...string) {
		v := daemon.View{Snapshot: &link.Snapshot{}, Governing: link.Governing{Links: map[int]link.Governed{}}}
		for i, a := range servers {
			u, _ := units.VerifyFile("10-ib0.ibnetwork", []byte("[Match]\nName=*\n[Network]\nDHCP=ipv4\n"+text))
			v.Snapshot.Links = append(v.Snapshot.Links, link.Link{Index: 4 + i, Name: "ib0", Type: link.ARPHRDInfiniBand,
				DHCP: &link.DHCP{State: link.DHCPBound, Lease: &link.Lease{NTP: []netip.Addr{netip.MustParseAddr(a)}}}})
			v.Governing.Links[4+i] = link.Governed{Unit: u}
		}
		s.Update(v)
	}
	wait := func(what string, d *timesyncd, want ...string) {
		t.Helper()
		var got []string
		for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
			d.mu.Lock()
			n := len(d.calls)
			if n > 0 {
				got = d.calls[n-1]
			}
			d.mu.Unlock()
			if n > 0 && slices.Equal(got, want) {
				return
			}
		}
		t.Fatalf("%s: %q, want %q", what, got, want)
	}
	host := func(what string, running bool, given ...string) {
		t.Helper()
		var snap link.Snapshot
		for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
			if s.Complete(&snap); snap.Host.Timesync == running && slices.Equal(snap.Host.TimeServers, given) {
				return
			}
		}
		t.Fatalf("%s: %v %q", what, snap.Host.Timesync, snap.Host.TimeServers)
	}
	update("", "10.0.0.1", "10.0.0.2", "10.0.0.1")
	host("before systemd-timesyncd", false)
	first := &timesyncd{}
	c := first.start(t, b)
	wait("it starts", first, "ntp.example", "10.0.0.1", "10.0.0.2")
	host("it has them", true, "10.0.0.1", "10.0.0.2")
	recorded(t, file, "10.0.0.1\n10.0.0.2\n")
	for i := range 3 {
		if _, ok := rereads.Load(4 + i); !ok {
			t.Errorf("link %d is not read again", 4+i)
		}
	}
	testkit.NoError(t, c.Close())
	host("it stops", false)
	second := &timesyncd{}
	second.start(t, b)
	wait("it starts again", second, "ntp.example", "10.0.0.1", "10.0.0.2")
	update("[DHCPv4]\nUseNTP=no\n", "10.0.0.1")
	wait("UseNTP=no", second)
	update("", "10.0.0.3")
	wait("another lease", second, "ntp.example", "10.0.0.3")
	update("")
	wait("no lease", second)
	host("no lease", true)
	recorded(t, file, "")
	update("", "10.0.0.4")
	wait("a lease", second, "ntp.example", "10.0.0.4")
	second.mu.Lock()
	second.has = []string{"10.0.0.7"}
	second.mu.Unlock()
	update("")
	recorded(t, file, "")
	wait("no lease, and it has those of others", second, "ntp.example", "10.0.0.4")
	second.mu.Lock()
	second.lost = true
	second.mu.Unlock()
	update("", "10.0.0.5")
	wait("a lease, and the answer is lost", second, "ntp.example", "10.0.0.5")
	second.mu.Lock()
	second.lost = false
	second.mu.Unlock()
	update("")
	wait("no lease after it", second)
	recorded(t, file, "")
}

// recorded waits until a file has a text, "" for no file.
func recorded(t *testing.T, file, want string) {
	t.Helper()
	text := []byte{}
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		var err error
		if text, err = os.ReadFile(file); string(text) == want && (err == nil) == (want != "") {
			return
		}
	}
	t.Fatalf("recorded %q, want %q", text, want)
}

// What systemd-timesyncd got before a restart of the daemon is taken back if no lease has it any more, but for
// servers of others; a lease that is in use again in time keeps it.
func TestAfterRestart(t *testing.T) {
	for _, tt := range []struct {
		name  string
		has   []string
		lease string
		want  [][]string
	}{
		{name: "the unit has changed", has: []string{"ntp.example", "10.0.0.1"}, want: [][]string{{}}},
		{name: "it has restarted", has: nil},
		{name: "it has those of others", has: []string{"10.0.0.7"}},
		{name: "the lease is in use again", has: []string{"ntp.example", "10.0.0.1"}, lease: "10.0.0.1",
			want: [][]string{{"ntp.example", "10.0.0.1"}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := bustest.Start(t)
			file := filepath.Join(t.TempDir(), "time-servers")
			testkit.WriteFile(t, file, "10.0.0.1\n")
			d := &timesyncd{has: tt.has}
			d.start(t, b)
			s := NewTimesyncd(slog.New(slog.DiscardHandler), b.Addr, file, func(map[int]bool) {})
			want := ""
			if s.settle = time.Millisecond; tt.lease != "" {
				s.settle, want = time.Minute, "10.0.0.1\n"
				u, _ := units.VerifyFile("10-ib0.ibnetwork", []byte("[Match]\nName=*\n[Network]\nDHCP=ipv4\n"))
				s.Update(daemon.View{Snapshot: &link.Snapshot{Links: []link.Link{{Index: 4, Name: "ib0", Type: link.ARPHRDInfiniBand,
					DHCP: &link.DHCP{State: link.DHCPBound, Lease: &link.Lease{NTP: []netip.Addr{netip.MustParseAddr(tt.lease)}}}}}},
					Governing: link.Governing{Links: map[int]link.Governed{4: {Unit: u}}}})
			}
			testkit.Run(t, s.Run)
			if want == "" {
				recorded(t, file, want)
			}
			for end := time.Now().Add(30 * time.Second); ; time.Sleep(5 * time.Millisecond) {
				d.mu.Lock()
				calls := slices.Clone(d.calls)
				d.mu.Unlock()
				if len(calls) < len(tt.want) && time.Now().Before(end) {
					continue
				}
				if !slices.EqualFunc(calls, tt.want, slices.Equal) {
					t.Fatalf("calls %q, want %q", calls, tt.want)
				}
				break
			}
			recorded(t, file, want)
		})
	}
}
