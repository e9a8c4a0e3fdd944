package testkit

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// ServiceManager is a service manager that receives what the process reports.
type ServiceManager struct {
	t    testing.TB
	conn *net.UnixConn
}

// NewServiceManager sets NOTIFY_SOCKET to the socket of one.
func NewServiceManager(t *testing.T) *ServiceManager {
	t.Helper()
	dir, err := os.MkdirTemp("", "sd") // not t.TempDir: the name of a socket is at most 107 bytes long
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	path := filepath.Join(dir, "notify")
	c, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	t.Setenv("NOTIFY_SOCKET", path)
	return &ServiceManager{t, c}
}

// Wait gives the messages up to the first with a prefix.
func (m *ServiceManager) Wait(prefix string) (before []string) {
	m.t.Helper()
	_ = m.conn.SetReadDeadline(time.Now().Add(20 * time.Second))
	for b := make([]byte, 4096); ; {
		n, err := m.conn.Read(b)
		if err != nil {
			m.t.Fatalf("waiting for %q after %q: %v", prefix, before, err)
		}
		if strings.HasPrefix(string(b[:n]), prefix) {
			return before
		}
		before = append(before, string(b[:n]))
	}
}
