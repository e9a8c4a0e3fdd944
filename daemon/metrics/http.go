package metrics

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// What the server bounds: scrapes under way at one time, connections in all and of one
// client, refusals under way, the head of a request in bytes, what is read of a client
// after the answer, and how long each may take.
const (
	maxScrapes    = 8
	maxConns      = 64
	maxClient     = 16 // as many as ibnetworkd-metrics.service joins
	maxRefusals   = 16
	maxHead       = 8 << 10
	maxRest       = 4 << 20
	headTime      = 2 * time.Second
	restTime      = time.Second
	maxTime       = 10 * time.Second
	retryAccept   = 5 * time.Millisecond
	retryAcceptAt = time.Second
)

// server is what the connections of a listener share.
type server struct {
	text    func() []byte
	report  func(error)
	scrapes chan struct{}
	refusal chan struct{}

	mu    sync.Mutex
	all   int
	conns map[string]int // by client
}

// Serve answers GET /metrics until ctx ends; report gets what goes wrong in text. Package
// net/http, with TLS and HTTP/2, would be a quarter of the daemon's program on every
// node, for one text.
func Serve(ctx context.Context, l net.Listener, text func() []byte, report func(error)) error {
	stop := context.AfterFunc(ctx, func() { _ = l.Close() })
	defer stop()
	s := &server{text: text, report: report, scrapes: make(chan struct{}, maxScrapes), refusal: make(chan struct{}, maxRefusals),
		conns: map[string]int{}}
	for wait := time.Duration(0); ; {
		c, err := l.Accept()
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, net.ErrClosed):
			return err
		case err != nil:
			// No descriptor or no memory is left: both come back.
			wait = min(max(2*wait, retryAccept), retryAcceptAt)
			select {
			case <-time.After(wait):
			case <-ctx.Done():
			}
			continue
		}
		wait = 0
		who := client(c)
		if s.enter(who) {
			go func() {
				defer s.leave(who)
				s.serve(c)
			}()
			continue
		}
		// So little fits a new socket at once.
		_ = c.SetDeadline(time.Now().Add(restTime))
		_, _ = c.Write(response(503, "", nil, true))
		select {
		case s.refusal <- struct{}{}:
			go func() {
				defer func() { <-s.refusal }()
				end(c)
			}()
		default:
			_ = c.Close()
		}
	}
}

// client names what a connection counts for: the user at the other end of a unix socket
// (SO_PEERCRED, unix(7)), or the address of a host.
func client(c net.Conn) string {
	switch c := c.(type) {
	case *net.UnixConn:
		var cred *unix.Ucred
		var err error
		if raw, e := c.SyscallConn(); e != nil || raw.Control(func(fd uintptr) {
			cred, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
		}) != nil || err != nil {
			return "unix"
		}
		return fmt.Sprintf("uid %d", cred.Uid)
	default:
		host, _, _ := net.SplitHostPort(c.RemoteAddr().String())
		return host
	}
}

// enter counts a connection, unless there are too many.
func (s *server) enter(who string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all >= maxConns || s.conns[who] >= maxClient {
		return false
	}
	s.all++
	s.conns[who]++
	return true
}

func (s *server) leave(who string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all--
	if s.conns[who]--; s.conns[who] == 0 {
		delete(s.conns, who)
	}
}

// serve answers one request.
func (s *server) serve(c net.Conn) {
	defer end(c)
	_ = c.SetDeadline(time.Now().Add(maxTime))
	_ = c.SetReadDeadline(time.Now().Add(headTime))
	head, err := readHead(c)
	if len(head) == 0 {
		return // a client that sent nothing awaits no answer
	}
	status, get := answer(head)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		status = 408
	}
	kind, body := "", []byte(nil)
	if status == 200 {
		status, body = s.render()
		kind = "text/plain; version=0.0.4; charset=utf-8"
	}
	_, _ = c.Write(response(status, kind, body, get))
}

// render makes the text, for so many clients at a time. A fault in it ends neither the
// daemon nor the next scrape.
func (s *server) render() (status int, body []byte) {
	select {
	case s.scrapes <- struct{}{}:
	default:
		return 503, nil
	}
	defer func() {
		<-s.scrapes
		if r := recover(); r != nil {
			s.report(fmt.Errorf("metrics are not complete, so the scrape is refused: %v", r))
			status, body = 500, nil
		}
	}()
	return 200, s.text()
}

// response is an answer of HTTP/1.1 after which the connection ends.
func response(status int, kind string, body []byte, get bool) []byte {
	if status != 200 {
		kind, body = "text/plain; charset=utf-8", []byte(reasons[status]+"\n")
	}
	retry := ""
	if status == 503 {
		retry = "Retry-After: 1\r\n"
	}
	out := fmt.Appendf(nil, "HTTP/1.1 %d %s\r\nContent-Type: %s\r\nContent-Length: %d\r\n%sConnection: close\r\n\r\n", status,
		reasons[status], kind, len(body), retry)
	if get {
		out = append(out, body...)
	}
	return out
}

// end closes a connection after what was sent has been received: a socket that is closed
// with unread bytes resets the connection, and the other end may lose the answer (RFC
// 9112, section 9.6).
func end(c net.Conn) {
	if h, ok := c.(interface{ CloseWrite() error }); ok && h.CloseWrite() == nil {
		_ = c.SetReadDeadline(time.Now().Add(restTime))
		_, _ = io.CopyN(io.Discard, c, maxRest)
	}
	_ = c.Close()
}

var reasons = map[int]string{200: "OK", 400: "Bad Request", 404: "Not Found", 405: "Method Not Allowed", 408: "Request Timeout",
	500: "Internal Server Error", 503: "Service Unavailable"}

// readHead reads a request to the empty line after its head, or what comes of it.
func readHead(c net.Conn) ([]byte, error) {
	b := make([]byte, 0, 1024)
	for {
		if len(b) == cap(b) {
			if len(b) >= maxHead {
				return b, nil // answer refuses it
			}
			b = append(make([]byte, 0, min(2*cap(b), maxHead)), b...)
		}
		n, err := c.Read(b[len(b):cap(b)])
		b = b[:len(b)+n]
		if bytes.Contains(b, []byte("\r\n\r\n")) {
			return b, nil
		}
		if err != nil {
			return b, err
		}
	}
}

// answer is the status of the answer to a request (RFC 9112, section 3), and
// whether a body follows.
func answer(head []byte) (status int, body bool) {
	lines, _, whole := strings.Cut(string(head), "\r\n\r\n")
	line, _, _ := strings.Cut(lines, "\r\n")
	f := strings.Split(line, " ")
	if !whole || len(f) != 3 || f[0] == "" || !strings.HasPrefix(f[2], "HTTP/1.") {
		return 400, true
	}
	target := f[1]
	if rest, ok := strings.CutPrefix(target, "http://"); ok { // to a proxy
		i := strings.IndexByte(rest, '/')
		if i < 0 {
			return 404, true
		}
		target = rest[i:]
	}
	path, _, _ := strings.Cut(target, "?")
	switch {
	case path != "/metrics":
		return 404, f[0] != "HEAD"
	case f[0] != "GET" && f[0] != "HEAD":
		return 405, true
	}
	return 200, f[0] == "GET"
}
