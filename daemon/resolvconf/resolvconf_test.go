package resolvconf

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"ibnetworkd/daemon"
	"ibnetworkd/internal/testkit"
	"ibnetworkd/link"
	"ibnetworkd/units"
)

// The file begins with the first name server, also if it cannot be written at first, follows each change and stays
// without one.
func TestFile(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	path := filepath.Join(dir, "resolv.conf")
	f := New(slog.New(slog.DiscardHandler), path)
	testkit.Run(t, f.Run)
	update := func(text string) {
		v := daemon.View{Snapshot: &link.Snapshot{Links: []link.Link{{Index: 4, Name: "ib0", Type: link.ARPHRDInfiniBand,
			Flags: link.FlagUp | link.FlagLowerUp}}}, Governing: link.Governing{Links: map[int]link.Governed{}}}
		if u, _ := units.VerifyFile("10-ib0.ibnetwork", []byte("[Match]\nName=ib0\n"+text)); text != "" {
			v.Governing.Links[4] = link.Governed{Unit: u}
		}
		f.Update(v)
	}
	wait := func(what string, is func(text string, exists bool) bool) {
		t.Helper()
		text := []byte(nil)
		for range 500 {
			var err error
			if text, err = os.ReadFile(path); is(string(text), err == nil) {
				return
			}
			time.Sleep(10 * time.Millisecond)
		}
		t.Fatalf("%s: %q", what, text)
	}
	f.Update(daemon.View{})
	update("")
	time.Sleep(20 * time.Millisecond)
	wait("no name server", func(_ string, exists bool) bool { return !exists })
	update("[Network]\nDNS=10.0.0.53\n")
	time.Sleep(20 * time.Millisecond)
	testkit.NoError(t, os.Mkdir(dir, 0o755))
	wait("one", func(s string, _ bool) bool { return strings.Contains(s, "nameserver 10.0.0.53\n") })
	update("[Network]\nDNS=10.0.0.54\n")
	wait("another one", func(s string, _ bool) bool {
		return strings.Contains(s, "nameserver 10.0.0.54\n") && !strings.Contains(s, ".53")
	})
	update("")
	wait("none any more", func(s string, exists bool) bool { return exists && !strings.Contains(s, "nameserver") })
}
