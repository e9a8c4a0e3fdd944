package journal

import (
	"bytes"
	"encoding/binary"
	"log/slog"
	"net"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"ibnetworkd/internal/testkit"
)

// parse undoes the native protocol.
func parse(t testing.TB, b []byte) map[string]string {
	out := map[string]string{}
	for len(b) > 0 {
		head, rest, ok := bytes.Cut(b, []byte("\n"))
		if !ok {
			t.Fatalf("no end of line in %q", b)
		}
		if name, v, ok := strings.Cut(string(head), "="); ok {
			out[name] = v
			b = rest
			continue
		}
		if len(rest) < 8 || uint64(len(rest)-9) < binary.LittleEndian.Uint64(rest) {
			t.Fatalf("short field in %q", b)
		}
		n := binary.LittleEndian.Uint64(rest)
		out[string(head)] = string(rest[8 : 8+n])
		b = rest[8+n+1:]
	}
	return out
}

func TestNative(t *testing.T) {
	path := filepath.Join(t.TempDir(), "socket")
	c, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	testkit.NoError(t, err)
	var text bytes.Buffer
	h := &handler{w: &text, level: slog.LevelInfo, fd: -1}
	h.dial(path)
	log := slog.New(h)
	log.Warn("ib0: new -> configuring/no-carrier", "link", "ib0", "unit", "/etc/10.ibnetwork", "ibdev", "mlx5_0", "port", 1, "code",
		"no-cable", "next", "two\nlines", MessageID, "abc")
	b := make([]byte, 4096)
	_ = c.SetReadDeadline(time.Now().Add(5 * time.Second))
	n, err := c.Read(b)
	testkit.NoError(t, err)
	got := parse(t, b[:n])
	for k, v := range map[string]string{"PRIORITY": "4", "SYSLOG_IDENTIFIER": "ibnetworkd", "INTERFACE": "ib0",
		"IBNETWORK_UNIT": "/etc/10.ibnetwork", "RDMA_DEVICE": "mlx5_0",
		"RDMA_PORT": "mlx5_0/1", "IBNETWORK_CODE": "no-cable", "IBNETWORK_NEXT": "two\nlines", "MESSAGE_ID": "abc"} {
		if got[k] != v {
			t.Errorf("%s is %q, want %q", k, got[k], v)
		}
	}
	if want := `ib0: new -> configuring/no-carrier link=ib0 unit=/etc/10.ibnetwork ibdev=mlx5_0 port=1 code=no-cable next="two\nlines"`; got["MESSAGE"] != want {
		t.Errorf("MESSAGE is %q", got["MESSAGE"])
	}
	log.Info("subnet manager", "port", "mlx5_0/2")
	if n, err = c.Read(b); err != nil || parse(t, b[:n])["RDMA_PORT"] != "mlx5_0/2" {
		t.Errorf("%q, %v", b[:n], err)
	}
	if text.Len() > 0 {
		t.Errorf("text too: %s", text.String())
	}

	// A journald that does not read, and one that is gone: text, without a wait.
	start := time.Now()
	for range 2000 {
		log.Info("burst")
	}
	if !strings.Contains(text.String(), "<6>burst\n") {
		t.Error("a full socket lost records")
	}
	text.Reset()
	_ = c.Close()
	log.Error("gone", "link", "ib0")
	if text.String() != "<3>gone link=ib0\n" {
		t.Errorf("%q", text.String())
	}
	if d := time.Since(start); d > 5*time.Second {
		t.Errorf("held up for %v", d)
	}
}

// FuzzNative has each record come back as one message with valid names.
func FuzzNative(f *testing.F) {
	f.Add("a message", "link", "ib0", "v")
	f.Add("two\nlines", "ünix key", "x\ny", "")
	valid := regexp.MustCompile(`^[A-Z][A-Z0-9_]*$`)
	f.Fuzz(func(t *testing.T, message, key, a, b string) {
		// Keys are constants of the program.
		if isField(key) || strings.Contains(key, "\n") {
			key = "k"
		}
		got := parse(t, native(line(message, []slog.Attr{slog.String(key, a)}), 6, []slog.Attr{slog.String(key, a), slog.String("second", b)}))
		if strings.Contains(got["MESSAGE"], "\n") || got["IBNETWORK_SECOND"] != b {
			t.Errorf("%q", got)
		}
		for n := range got {
			if !valid.MatchString(n) {
				t.Errorf("the name %q", n)
			}
		}
	})
}
