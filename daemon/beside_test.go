package daemon

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"ibnetworkd/internal/testkit"
)

// What others say of their links wakes the loop when it changes, not each time
// that they write it, also in a directory that comes later.
func TestBeside(t *testing.T) {
	root := t.TempDir()
	testkit.NoError(t, os.MkdirAll(filepath.Join(root, "run/systemd/netif/links"), 0o755))
	testkit.NoError(t, os.MkdirAll(filepath.Join(root, "run/NetworkManager"), 0o755))
	got := make(chan int, 100)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() {
		ended <- Beside(ctx, root, func(s Scope) {
			for i := range s.Links {
				got <- i
			}
		})
	}()
	next := func() int {
		select {
		case i := <-got:
			return i
		case <-time.After(5 * time.Second):
			t.Fatal("no wake-up")
			return 0
		}
	}
	write := func(name, text string) {
		t.Helper()
		tmp := filepath.Join(root, "tmp")
		testkit.WriteFile(t, tmp, text)
		testkit.NoError(t, os.Rename(tmp, filepath.Join(root, name)))
	}
	const mine = "ADMIN_STATE=configured\nNETWORK_FILE=/etc/systemd/network/a.network\n"
	// The watch begins some time after the call.
	for deadline := time.Now().Add(5 * time.Second); len(got) == 0 && time.Now().Before(deadline); {
		write("run/systemd/netif/links/99", mine)
		time.Sleep(time.Millisecond)
	}
	next()
	write("run/systemd/netif/links/4", mine)
	if i := next(); i != 4 {
		t.Fatalf("link %d, want 4", i)
	}
	write("run/systemd/netif/links/4", mine+"OPER_STATE=routable\n")
	write("run/systemd/netif/links/x", mine)
	write("run/systemd/netif/links/5", "ADMIN_STATE=unmanaged\n")
	if i := next(); i != 5 {
		t.Fatalf("link %d, want 5", i)
	}
	write("run/systemd/netif/links/4", "ADMIN_STATE=unmanaged\n")
	if i := next(); i != 4 {
		t.Fatalf("link %d, want 4", i)
	}
	// NetworkManager starts later.
	testkit.NoError(t, os.Mkdir(filepath.Join(root, "run/NetworkManager/devices"), 0o755))
	for deadline := time.Now().Add(5 * time.Second); len(got) == 0 && time.Now().Before(deadline); {
		write("run/NetworkManager/devices/6", "[device]\nmanaged=true\n")
		time.Sleep(time.Millisecond)
	}
	if i := next(); i != 6 {
		t.Fatalf("link %d, want 6", i)
	}
	testkit.NoError(t, os.Remove(filepath.Join(root, "run/NetworkManager/devices/6")))
	if i := next(); i != 6 {
		t.Fatalf("link %d, want 6", i)
	}
	// The directory of systemd-networkd is removed and made again.
	links := filepath.Join(root, "run/systemd/netif/links")
	testkit.NoError(t, os.RemoveAll(links))
	if i := next(); i != 99 {
		t.Fatalf("link %d, want 99", i)
	}
	testkit.NoError(t, os.Mkdir(links, 0o755))
	for deadline := time.Now().Add(5 * time.Second); len(got) == 0 && time.Now().Before(deadline); {
		write("run/systemd/netif/links/8", mine)
		time.Sleep(time.Millisecond)
	}
	if i := next(); i != 8 {
		t.Fatalf("link %d, want 8", i)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
