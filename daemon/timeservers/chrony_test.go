package timeservers

import (
	"context"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"ibnetworkd/daemon"
	"ibnetworkd/internal/testkit"
	"ibnetworkd/link"
)

// chronyd's file has the servers of the leases except link-local addresses, which it does not accept, and is removed with
// the last; that of an earlier process is removed when no lease has servers again in time. Where
// its directory does not exist nothing is made.
func TestChrony(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		run := t.TempDir()
		file := filepath.Join(run, "chrony-dhcp/ibnetworkd-job.sources")
		rereads := 0
		c := NewChrony(slog.New(slog.DiscardHandler), filepath.Join(run, "ibnetworkd-job"), func(links map[int]bool) {
			if rereads++; !links[4] {
				t.Errorf("read again: %v", links)
			}
		})
		stop := start(t, c)
		give := func(servers ...string) {
			daemon.Replace(c.want, want{servers: servers, links: map[int]bool{4: true}})
			synctest.Wait()
		}
		is := func(what, text string, chrony bool, given ...string) {
			t.Helper()
			b, err := os.ReadFile(file)
			if string(b) != text || os.IsNotExist(err) != (text == "") {
				t.Errorf("%s: the file has %q, %v", what, b, err)
			}
			var snap link.Snapshot
			if c.Complete(&snap); snap.Host.Chrony != chrony || !slices.Equal(snap.Host.TimeServers, given) {
				t.Errorf("%s: %v %q", what, snap.Host.Chrony, snap.Host.TimeServers)
			}
			snap.Host.Timesync = true
			if c.Complete(&snap); chrony && snap.Host.Chrony == (snap.Host.TimeServers == nil) {
				t.Errorf("%s, beside systemd-timesyncd: %+v", what, snap.Host)
			}
		}
		give("10.0.0.1")
		is("no directory", "", false)
		testkit.WriteFile(t, filepath.Join(run, "chrony-dhcp/eth0.sources"), "server 10.9.0.1\n")
		give("10.0.0.1", "fe80::7%ib0", "fd00::1")
		const two = "server 10.0.0.1 iburst\nserver fd00::1 iburst\n"
		is("before chronyd starts", two, false)
		if i, err := os.Stat(file); err != nil || i.Mode() != 0o644 { // chronyd reads it as another user
			t.Errorf("mode of the file: %v, %v", i.Mode(), err)
		}
		testkit.WriteFile(t, filepath.Join(run, "chrony/chronyd.pid"), "1\n")
		is("chronyd was killed", two, false)
		chronyd := listen(t, run)
		is("chronyd runs", two, true, "10.0.0.1", "fd00::1")
		stop()

		c = NewChrony(slog.New(slog.DiscardHandler), filepath.Join(run, "ibnetworkd-job"), c.reread)
		stop = start(t, c)
		time.Sleep(daemon.HandedSettle / 2)
		synctest.Wait()
		is("after a restart", two, false)
		time.Sleep(daemon.HandedSettle)
		synctest.Wait()
		is("no lease in time", "", false)
		give("10.0.0.3")
		is("a lease", "server 10.0.0.3 iburst\n", true, "10.0.0.3")
		testkit.NoError(t, chronyd.Close())
		is("chronyd was killed again", "server 10.0.0.3 iburst\n", false)
		give()
		is("no lease", "", false)
		if rereads != 3 {
			t.Errorf("status read again %d times", rereads)
		}
		if got := string(testkit.ReadFile(t, filepath.Join(run, "chrony-dhcp/eth0.sources"))); got != "server 10.9.0.1\n" {
			t.Errorf("the file of another client is %q", got)
		}
		stop()
	})
}

// listen is the socket of a chronyd for commands, whose file stays when it is closed.
func listen(t *testing.T, run string) *net.UnixConn {
	t.Helper()
	c, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: filepath.Join(run, "chrony/chronyd.sock"), Net: "unixgram"})
	testkit.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// A file that could not be written is written later.
func TestChronyTriesAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		run := t.TempDir()
		file := filepath.Join(run, "chrony-dhcp/ibnetworkd.sources")
		var log testkit.Buffer
		c := NewChrony(slog.New(slog.NewTextHandler(&log, nil)), filepath.Join(run, "ibnetworkd"), func(map[int]bool) {})
		defer start(t, c)()
		testkit.WriteFile(t, filepath.Join(file, "in-the-way"), "")
		daemon.Replace(c.want, want{servers: []string{"10.0.0.1"}})
		time.Sleep(3 * again)
		synctest.Wait()
		if n := strings.Count(log.String(), "level=WARN"); n != 1 {
			t.Errorf("%d warnings: %s", n, log.String())
		}
		testkit.NoError(t, os.RemoveAll(file))
		time.Sleep(again)
		synctest.Wait()
		if b, err := os.ReadFile(file); string(b) != "server 10.0.0.1 iburst\n" {
			t.Errorf("when that is possible again: %q, %v", b, err)
		}
	})
}

// start runs until the returned function is called.
func start(t *testing.T, c *Chrony) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); _ = c.Run(ctx) }()
	return func() { cancel(); <-ended }
}
