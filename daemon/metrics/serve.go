package metrics

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/google/renameio/v2"
	"golang.org/x/sys/unix"
)

// Socket is the unix socket in the daemon's state directory on which metrics are
// served.
const Socket = "metrics.sock"

// Listen opens where metrics are served: "unix:/run/x.sock", or an address as
// 127.0.0.1:9717, which need not be there yet: it may be one that the daemon is
// about to give a link. A unix socket left by a dead process is removed.
func Listen(where string) (net.Listener, error) {
	path, ok := strings.CutPrefix(where, "unix:")
	if !ok {
		l, err := (&net.ListenConfig{Control: freebind}).Listen(context.Background(), "tcp", where)
		if errors.Is(err, unix.EAFNOSUPPORT) {
			return nil, fmt.Errorf("serve metrics at %s: the sandbox of ibnetworkd.service has no network sockets; instead of --metrics=: "+
				"systemctl enable --now ibnetworkd-metrics.socket", where)
		}
		if err != nil {
			return nil, fmt.Errorf("serve metrics: %w", err)
		}
		return l, nil
	}
	if c, err := net.Dial("unix", path); err == nil {
		_ = c.Close()
		return nil, fmt.Errorf("serve metrics: %s is in use by another process", path)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("serve metrics: %w", err)
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		return nil, fmt.Errorf("serve metrics: %w", err)
	}
	// Reading is open to everyone, as on the bus.
	if err := os.Chmod(path, 0o666); err != nil {
		_ = l.Close()
		return nil, fmt.Errorf("serve metrics: %w", err)
	}
	return l, nil
}

// freebind lets a socket have an address that no interface has (ip(7),
// IP_FREEBIND).
func freebind(network, _ string, c syscall.RawConn) error {
	level, option := unix.IPPROTO_IP, unix.IP_FREEBIND
	if network == "tcp6" {
		level, option = unix.IPPROTO_IPV6, unix.IPV6_FREEBIND
	}
	var err error
	if e := c.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), level, option, 1) }); e != nil {
		return e
	}
	return err
}

// Textfile writes for node_exporter's textfile collector, every interval, until
// ctx ends. A failure is handed to report and tried again.
func Textfile(ctx context.Context, path string, interval time.Duration, text func() []byte, report func(error)) error {
	t := time.NewTicker(interval)
	defer t.Stop()
	for {
		if err := renameio.WriteFile(path, text(), 0o644, renameio.WithStaticPermissions(0o644)); err != nil {
			report(fmt.Errorf("write metrics to %s: %w", path, err))
		}
		select {
		case <-ctx.Done():
			// Nothing stale may stay.
			if err := os.Remove(path); !errors.Is(err, fs.ErrNotExist) {
				return err
			}
			return nil
		case <-t.C:
		}
	}
}
