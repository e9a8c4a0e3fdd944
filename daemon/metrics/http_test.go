package metrics

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"ibnetworkd/internal/testkit"

	"golang.org/x/sys/unix"
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

// served serves text on a listener until the test ends.
func served(t *testing.T, l net.Listener, text func() []byte, report func(error)) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- Serve(ctx, l, text, report) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// onSocket serves one line on a unix socket that every user reaches.
func onSocket(t *testing.T) (path string) {
	t.Helper()
	dir := t.TempDir()
	for _, d := range []string{dir, filepath.Dir(dir)} {
		testkit.NoError(t, os.Chmod(d, 0o755))
	}
	path = filepath.Join(dir, "m.sock")
	l, err := Listen("unix:" + path)
	testkit.NoError(t, err)
	served(t, l, func() []byte { return []byte("x 1\n") }, func(err error) { t.Error(err) })
	return path
}

func dial(t *testing.T, network, to string) net.Conn {
	t.Helper()
	c, err := net.Dial(network, to)
	testkit.NoError(t, err)
	t.Cleanup(func() { c.Close() })
	return c
}

// ask sends a request and reads to the end of the connection.
func ask(c net.Conn, request string) (string, error) {
	defer c.Close()
	go func() { _, _ = c.Write([]byte(request)) }()
	b, err := io.ReadAll(c)
	return string(b), err
}

const scrape = "GET /metrics HTTP/1.1\r\n\r\n"

// The answer arrives whole, whatever the client sends behind or without its head.
func TestAnswerArrives(t *testing.T) {
	l, err := Listen("127.0.0.1:0")
	testkit.NoError(t, err)
	body := strings.Repeat("x 1\n", 1<<16)
	served(t, l, func() []byte { return []byte(body) }, func(err error) { t.Error(err) })
	path := onSocket(t)
	big := strings.Repeat("a", 1<<20)
	for _, tc := range []struct{ name, request, begin, end string }{
		{"a scrape", scrape, "HTTP/1.1 200 OK\r\n", "x 1\n"},
		{"a request that has a body", "POST /metrics HTTP/1.1\r\nContent-Length: 1048576\r\n\r\n" + big, "HTTP/1.1 405 ", "Allowed\n"},
		{"a scrape, and more behind it", scrape + big, "HTTP/1.1 200 OK\r\n", "x 1\n"},
		{"a head without end", big, "HTTP/1.1 400 ", "Bad Request\n"},
		{"half a head", "GET /metrics", "HTTP/1.1 408 ", "Request Timeout\n"},
	} {
		for _, at := range [][2]string{{"tcp", l.Addr().String()}, {"unix", path}} {
			t.Run(tc.name+" by "+at[0], func(t *testing.T) {
				t.Parallel()
				if b, err := ask(dial(t, at[0], at[1]), tc.request); err != nil || !strings.HasPrefix(b, tc.begin) ||
					!strings.HasSuffix(b, tc.end) {
					t.Errorf("%.60q ... of %d bytes, %v", b, len(b), err)
				}
			})
		}
	}
}

// A client with as many connections as it may have gets 503.
func TestFull(t *testing.T) {
	path := onSocket(t)
	for range maxClient {
		dial(t, "unix", path)
	}
	time.Sleep(100 * time.Millisecond)
	if b, err := ask(dial(t, "unix", path), scrape); err != nil || !strings.HasPrefix(b, "HTTP/1.1 503 Service Unavailable\r\n") ||
		!strings.Contains(b, "\r\nRetry-After: 1\r\n") {
		t.Errorf("%q, %v", b, err)
	}
	for end := time.Now().Add(2 * headTime); ; time.Sleep(50 * time.Millisecond) {
		b, _ := ask(dial(t, "unix", path), scrape)
		if strings.HasSuffix(b, "\r\n\r\nx 1\n") {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("still full after the idle clients' time: %q", b)
		}
	}
}

// A user who opens all the connections that he can keeps no other user's scrape out.
func TestOtherUsers(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can connect as another user")
	}
	path := onSocket(t)
	stop, stopped := make(chan struct{}), make(chan struct{})
	defer func() { close(stop); <-stopped }()
	full := make(chan bool, 1)
	go func() {
		defer close(stopped)
		// The thread ends with the goroutine, and its user with it.
		runtime.LockOSThread()
		const nobody = 65534
		if _, _, e := unix.RawSyscall(unix.SYS_SETRESUID, nobody, nobody, nobody); e != 0 {
			t.Error(e)
			full <- false
			return
		}
		var open []int
		defer func() {
			for _, fd := range open {
				_ = unix.Close(fd)
			}
		}()
		for {
			select {
			case <-stop:
				return
			default:
			}
			fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
			if err == nil {
				err = unix.Connect(fd, &unix.SockaddrUnix{Name: path})
			}
			if err != nil {
				select {
				case full <- false:
					t.Error(err)
				default:
				}
				return
			}
			if open = append(open, fd); len(open) == 2*maxConns {
				full <- true
			}
			if len(open) > 4*maxConns {
				_ = unix.Close(open[0])
				open = open[1:]
				time.Sleep(time.Millisecond)
			}
		}
	}()
	if <-full {
		for i := range 20 {
			if b, err := ask(dial(t, "unix", path), scrape); err != nil || !strings.HasSuffix(b, "\r\n\r\nx 1\n") {
				t.Fatalf("scrape %d: %q, %v", i, b, err)
			}
		}
	}
}

// What fails in the text is reported, ends neither the daemon nor the server, and the
// client does not take it for an empty host.
func TestTextFails(t *testing.T) {
	l, err := Listen("127.0.0.1:0")
	testkit.NoError(t, err)
	var reports, texts atomic.Int32
	served(t, l, func() []byte {
		if texts.Add(1) <= maxScrapes+1 {
			panic("no such port")
		}
		return []byte("x 1\n")
	}, func(err error) {
		if strings.Contains(err.Error(), "no such port") {
			reports.Add(1)
		}
	})
	for range maxScrapes + 1 {
		if b, err := ask(dial(t, "tcp", l.Addr().String()), scrape); err != nil || !strings.HasPrefix(b, "HTTP/1.1 500 ") {
			t.Fatalf("%q, %v", b, err)
		}
	}
	if b, err := ask(dial(t, "tcp", l.Addr().String()), scrape); err != nil || !strings.HasSuffix(b, "\r\n\r\nx 1\n") ||
		reports.Load() != maxScrapes+1 {
		t.Fatalf("%q, %v, %d reports", b, err, reports.Load())
	}
}

// Clients that send one byte at a time, and many that leave at once, keep no other
// client from a scrape.
func TestServeBadClients(t *testing.T) {
	path := onSocket(t)
	slow := dial(t, "unix", path)
	go func() {
		for _, b := range []byte(scrape) {
			_, _ = slow.Write([]byte{b})
		}
	}()
	if b, _ := io.ReadAll(slow); !strings.HasSuffix(string(b), "\r\n\r\nx 1\n") {
		t.Errorf("one byte at a time: %q", b)
	}
	for range 2 * maxConns {
		dial(t, "unix", path).Close()
	}
	for end := time.Now().Add(10 * time.Second); ; {
		b, _ := ask(dial(t, "unix", path), "HEAD /metrics HTTP/1.0\r\n\r\n")
		if strings.HasSuffix(b, "Content-Length: 4\r\nConnection: close\r\n\r\n") {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("no answer after idle clients: %q", b)
		}
	}
}
