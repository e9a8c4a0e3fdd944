package timeservers

import (
	"bufio"
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"ibnetworkd/daemon"
	"ibnetworkd/internal/smallfile"
	"ibnetworkd/link"
)

// fileMost bounds the file that is read: the servers of a host's leases take much less.
const fileMost = 64 << 10

// Chrony writes a file of sources for chronyd, which reads it when it starts and at "chronyc reload
// sources"; ibnetworkd-chrony.path runs that. The configurations of Debian and Fedora name its
// directory (sourcedir), in which other DHCP clients have files of their own.
type Chrony struct {
	log    *slog.Logger
	run    string // the directory /run
	file   string
	settle time.Duration
	reread func(links map[int]bool)
	inbox

	mu    sync.Mutex
	given []string // what the file has
}

// NewChrony makes a Chrony. The directories of chronyd are beside the state directory, in /run. reread is
// called with the links whose status changes.
func NewChrony(log *slog.Logger, state string, reread func(links map[int]bool)) *Chrony {
	run, name := filepath.Split(filepath.Clean(state))
	return &Chrony{log: log, run: run, file: filepath.Join(run, "chrony-dhcp", name+".sources"), settle: daemon.HandedSettle,
		reread: reread, inbox: inbox{want: make(chan want, 1)}}
}

// Complete adds to a snapshot that chronyd runs and which servers the file has, unless systemd-timesyncd runs.
func (c *Chrony) Complete(snap *link.Snapshot) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.given) == 0 || snap.Host.Timesync {
		return
	}
	if c.running() {
		snap.Host.Chrony, snap.Host.TimeServers = true, c.given
	}
}

// running reports whether chronyd has its socket for commands open. Its directory is closed to others, and stays
// with a socket that is not in use when chronyd is killed: the kernel's list of sockets is right in both cases.
func (c *Chrony) running() bool {
	f, err := os.Open("/proc/net/unix")
	if err != nil {
		return false
	}
	defer f.Close()
	socket := filepath.Join(c.run, "chrony", "chronyd.sock")
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		if path, ok := strings.CutSuffix(lines.Text(), socket); ok && (strings.HasSuffix(path, " ") || strings.HasSuffix(path, " /var")) {
			return true
		}
	}
	return false
}

// Run writes the file until ctx ends. What an earlier process wrote stays until leases are in use again.
func (c *Chrony) Run(ctx context.Context) error {
	var w want
	settle := time.After(c.settle)
	for failed := false; ; {
		var retry <-chan time.Time
		if failed {
			retry = time.After(again)
		}
		select {
		case <-ctx.Done():
			return nil
		case w = <-c.want:
		case <-settle:
		case <-retry:
		}
		given, err := c.write(w.servers)
		if err != nil && !failed {
			c.log.Warn("chronyd does not get the time servers of leases, will retry", "servers", w.servers, "error", err)
		}
		failed = err != nil
		c.mu.Lock()
		same := slices.Equal(given, c.given)
		c.given = given
		c.mu.Unlock()
		if !same {
			c.reread(w.links)
		}
	}
}

// write brings the file up to date and returns the servers in it: none if its directory does not exist.
func (c *Chrony) write(servers []string) (given []string, err error) {
	text := ""
	for _, a := range servers {
		if !strings.Contains(a, "%") { // chronyd takes no address with a zone
			text += "server " + a + " iburst\n"
			given = append(given, a)
		}
	}
	if text == "" {
		if err := os.Remove(c.file); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		return nil, nil
	}
	if was, err := smallfile.ReadRegular(c.file, fileMost); err == nil && string(was) == text {
		return given, nil
	}
	if _, err := os.Stat(filepath.Dir(c.file)); errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err := smallfile.Replace(c.file, []byte(text), 0o644); err != nil {
		return nil, err
	}
	return given, nil
}
