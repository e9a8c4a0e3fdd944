package control

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"ibnetworkd/ib"
	"ibnetworkd/internal/testkit"
	"ibnetworkd/sm/guidfile"
)

// What is not the answer, or too long, is an error that names the socket.
func TestQueryRouting(t *testing.T) {
	for _, tt := range []struct {
		answer string
		found  bool
		want   string
	}{
		{`[{"port_guid":"0x0000000000000007","roots":["0x1","0x2"],"lmc":2}]`, true, ""},
		{`[{"port_guid":"0x0000000000000008"}]`, false, ""},
		{"[]", false, ""},
		{"unknown request \"routing 0x0000000000000007\"\n", false, ErrOld.Error()},
		{"<html>", false, "its answer cannot be read: invalid character"},
		{"[" + strings.Repeat("{},", MaxRouting/3) + "{}]", false, "more than 25165824 bytes"},
	} {
		path := filepath.Join(t.TempDir(), "s.sock")
		l, err := net.Listen("unix", path)
		testkit.NoError(t, err)
		go func() {
			c, err := l.Accept()
			if err != nil {
				return
			}
			defer c.Close()
			_, _ = c.Read(make([]byte, MaxAsk))
			_, _ = c.Write([]byte(tt.answer))
		}()
		got, err := QueryRouting(context.Background(), path, 7)
		l.Close()
		if (got != nil) != tt.found || (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%.40s: %+v, %v", tt.answer, got, err)
		}
		if got != nil && (got.PortGUID != 7 || len(got.Roots) != 2 || got.LMC != 2) {
			t.Errorf("%+v", got)
		}
	}
}

// A socket that the user may not open does not show that nothing answers at it.
func TestAskWithoutRights(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to drop its rights")
	}
	path := filepath.Join(t.TempDir(), "s.sock")
	l, err := net.Listen("unix", path)
	if err == nil {
		err = os.Chmod(path, 0o600)
	}
	testkit.NoError(t, err)
	defer l.Close()
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // it ends with the goroutine
		_ = unix.Setfsuid(65534)
		done <- Ask(context.Background(), path, AskStatus, io.Discard)
	}()
	if err := <-done; !errors.Is(err, fs.ErrPermission) || !strings.Contains(err.Error(), "only root and the group ibnetsm") {
		t.Error(err)
	}
}

// Whatever is read is written and read again as the same.
func FuzzRouting(f *testing.F) {
	b, err := json.Marshal([]Routing{{Device: "a", Port: 1, PortGUID: 7, State: "Master", Engine: "updn,ftree", QoS: true, Roots: []ib.GUID{1},
		HopWeights: []guidfile.Weight{{Switch: 3, Port: 4, Hops: 5}}, Order: []ib.GUID{9, 8}}})
	testkit.NoError(f, err)
	f.Add(b)
	f.Add([]byte("unknown request"))
	f.Fuzz(func(t *testing.T, b []byte) {
		x, err := parseRouting(b)
		if err != nil {
			return
		}
		c, err := json.Marshal(x)
		testkit.NoError(t, err)
		y, err := parseRouting(c)
		testkit.NoError(t, err)
		if d, err := json.Marshal(y); err != nil || !bytes.Equal(c, d) || len(x) > len(b) {
			t.Errorf("%s, then %s, %v", c, d, err)
		}
	})
}
