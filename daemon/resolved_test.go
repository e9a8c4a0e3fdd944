package daemon

import (
	"errors"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/godbus/dbus/v5"

	"ibnetworkd/link"
)

// A systemd-resolved that does not answer holds the loop up once, not for each
// link, and not for ever.
func TestResolvedIsSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ours, theirs := net.Pipe()
		go func() { _, _ = io.Copy(io.Discard, theirs) }()
		c, err := dbus.NewConn(ours, dbus.WithContext(t.Context()))
		if err != nil {
			t.Fatal(err)
		}
		r := &resolved{conn: c}
		start := time.Now()
		for i := range 300 {
			if err := r.set(t.Context(), 10+i, link.SetDNS{Servers: []string{"192.0.2.53"}}); !errors.Is(err, errSilent) {
				t.Fatalf("link %d: %v", i, err)
			}
		}
		if d := time.Since(start); d != patience {
			t.Errorf("300 links wait %v, want %v", d, patience)
		}
		time.Sleep(sparing)
		if err := r.set(t.Context(), 10, link.SetDNS{Revert: true}); !errors.Is(err, errSilent) || time.Since(start) != 2*patience+sparing {
			t.Errorf("asked again after a while: %v, %v", err, time.Since(start))
		}
		_ = ours.Close()
		_ = theirs.Close()
	})
}
