package control

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"ibnetworkd/daemon/bus/api"
	"ibnetworkd/internal/testkit"
)

func start(t *testing.T, call Call) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), api.ControlSocket)
	if err := os.WriteFile(path, nil, 0o666); err != nil { // of an earlier process
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	s := New(slog.New(slog.DiscardHandler), path, call)
	l, err := listen(path)
	testkit.NoError(t, err)
	ended := make(chan struct{})
	go func() { defer close(ended); _ = s.serve(ctx, l) }()
	t.Cleanup(func() { cancel(); <-ended })
	return path
}

func ask(t *testing.T, path, line string) (a api.ControlAnswer) {
	t.Helper()
	c, err := net.Dial("unix", path)
	testkit.NoError(t, err)
	defer c.Close()
	if _, err := io.WriteString(c, line); err != nil {
		t.Fatal(err)
	}
	testkit.NoError(t, c.(*net.UnixConn).CloseWrite())
	b, err := io.ReadAll(c)
	testkit.NoError(t, err)
	if err := json.Unmarshal(b, &a); err != nil {
		t.Fatalf("%q: %v", b, err)
	}
	return a
}

// A call is answered with the user that the kernel reports; what is not a call is refused,
// and a caller that says nothing keeps no other out.
func TestServe(t *testing.T) {
	path := start(t, func(_ context.Context, uid uint32, c api.ControlCall) api.ControlAnswer {
		return api.ControlAnswer{Values: []string{fmt.Sprint(uid, c.Interface, c.Method, c.Arguments)}}
	})
	if i, err := os.Stat(path); err != nil || i.Mode() != fs.ModeSocket|0o600 {
		t.Errorf("the socket is %v, %v", i.Mode(), err)
	}
	silent, err := net.Dial("unix", path)
	testkit.NoError(t, err)
	defer silent.Close()
	a := ask(t, path, `{"interface":"I","method":"Renew","arguments":["ib0"]}`+"\n")
	if want := fmt.Sprint(os.Geteuid(), "I", "Renew", []string{"ib0"}); len(a.Values) != 1 || a.Values[0] != want || a.Error != "" {
		t.Errorf("got %+v, want %q", a, want)
	}
	for _, line := range []string{"", "\n", "{", "[]\n", `{"method":1}` + "\n", `{"method":"Reload"}`} {
		if a := ask(t, path, line); a.Error != api.ErrInvalidArgs || !strings.HasPrefix(a.Text, "a call is one line of JSON") {
			t.Errorf("%.30q: %+v", line, a)
		}
	}
}

func FuzzRead(f *testing.F) {
	f.Add([]byte(`{"interface":"I","method":"Renew","arguments":["ib0"]}` + "\n"))
	f.Add([]byte("{\"method\":\"\xff\"}\n{}"))
	f.Add([]byte(`{"method":"` + strings.Repeat("x", api.MaxControlCall) + `"}` + "\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		call, err := read(bytes.NewReader(b))
		if err != nil {
			if call.Method != "" || call.Arguments != nil {
				t.Errorf("an error with %+v", call)
			}
			return
		}
		if i := bytes.IndexByte(b, '\n'); i < 0 || i >= api.MaxControlCall {
			t.Errorf("%q is a call", b)
		}
	})
}
