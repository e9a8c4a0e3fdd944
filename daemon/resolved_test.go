package daemon

import (
	"errors"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/godbus/dbus/v5"

	"ibnetworkd/internal/busconn"
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

// A bus that listens and does not answer, as at boot, does not hold the loop up.
func TestBusIsSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		answer := make(chan error)
		told := 0
		r := &resolved{join: func() (*busconn.Conn, error) { return nil, <-answer }, changed: func() { told++ }}
		start := time.Now()
		for range 300 {
			if n := r.owner(true); n != "" {
				t.Fatalf("resolved is %q", n)
			}
			if err := r.set(t.Context(), 10, link.SetDNS{Revert: true}); !errors.Is(err, errNoBus) {
				t.Fatal(err)
			}
		}
		if d := time.Since(start); d != moment {
			t.Errorf("300 looks wait %v, want %v", d, moment)
		}
		// One that refuses is retried by the next look.
		answer <- errors.New("no bus")
		synctest.Wait()
		go func() { answer <- errors.New("no bus again") }()
		if r.owner(true); time.Since(start) != moment || told != 0 {
			t.Errorf("waited %v, told %d times", time.Since(start), told)
		}
	})
}
