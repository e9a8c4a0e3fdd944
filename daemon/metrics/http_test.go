package metrics

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestAnswer(t *testing.T) {
	for head, want := range map[string]string{
		"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n":            "200 true",
		"GET /metrics?x=1 HTTP/1.0\r\n\r\n":                   "200 true",
		"GET http://node:9717/metrics HTTP/1.1\r\n\r\n":       "200 true",
		"HEAD /metrics HTTP/1.1\r\n\r\n":                      "200 false",
		"POST /metrics HTTP/1.1\r\nContent-Length: 1\r\n\r\n": "405 true",
		"GET / HTTP/1.1\r\n\r\n":                              "404 true",
		"HEAD / HTTP/1.1\r\n\r\n":                             "404 false",
		"GET http://node HTTP/1.1\r\n\r\n":                    "404 true",
		"GET /metrics\r\n\r\n":                                "400 true",
		"GET /metrics HTTP/2.0\r\n\r\n":                       "400 true",
		"GET /metrics HTTP/1.1\r\nHost: x\r\n":                "400 true",
		"":                                                    "400 true",
		"\x16\x03\x01\r\n\r\n":                                "400 true",
	} {
		status, body := answer([]byte(head))
		if got := fmt.Sprintln(status, body); got != want+"\n" {
			t.Errorf("%q: %s want %s", head, got, want)
		}
	}
}

// What this server takes for a scrape, net/http takes for one.
func FuzzAnswer(f *testing.F) {
	f.Add([]byte("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"))
	f.Add([]byte("GET http://a/metrics?b HTTP/1.1\r\nHost: x\r\n\r\n"))
	f.Fuzz(func(t *testing.T, head []byte) {
		status, _ := answer(head)
		if reasons[status] == "" {
			t.Fatalf("status %d", status)
		}
		r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(string(head))))
		if err != nil || status != 200 {
			return
		}
		if r.URL.Path != "/metrics" || r.Method != "GET" && r.Method != "HEAD" {
			t.Fatalf("%q: answered, net/http reads %s %s", head, r.Method, r.URL.Path)
		}
	})
}

// Clients that send nothing, too much or one byte at a time, and many at once, keep
// no other user from a scrape.
func TestServeBadClients(t *testing.T) {
	path := filepath.Join(t.TempDir(), "m.sock")
	l, err := Listen("unix:" + path)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- Serve(ctx, l, func() []byte { return []byte("x 1\n") }) }()
	dial := func() net.Conn {
		c, err := net.Dial("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	long := dial()
	go func() { _, _ = long.Write([]byte(strings.Repeat("a", 1<<20))) }()
	if b, _ := io.ReadAll(long); !strings.HasPrefix(string(b), "HTTP/1.1 400 Bad Request") {
		t.Errorf("a head without end: %q", b)
	}
	slow := dial()
	go func() {
		for _, b := range []byte("GET /metrics HTTP/1.1\r\n\r\n") {
			_, _ = slow.Write([]byte{b})
		}
	}()
	if b, _ := io.ReadAll(slow); !strings.HasSuffix(string(b), "\r\n\r\nx 1\n") {
		t.Errorf("one byte at a time: %q", b)
	}
	var idle []net.Conn
	for range 2 * maxConns {
		idle = append(idle, dial())
	}
	for _, c := range idle {
		c.Close()
	}
	for end := time.Now().Add(10 * time.Second); ; {
		c := dial()
		_, _ = c.Write([]byte("HEAD /metrics HTTP/1.0\r\n\r\n"))
		b, _ := io.ReadAll(c)
		c.Close()
		if strings.HasSuffix(string(b), "Content-Length: 4\r\nConnection: close\r\n\r\n") {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("no answer after idle clients: %q", b)
		}
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
