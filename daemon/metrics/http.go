package metrics

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"
)

// What the server bounds: scrapes under way at one time, connections, the head of a
// request in bytes, and how long each may take.
const (
	maxScrapes = 8
	maxConns   = 32
	maxHead    = 8 << 10
	headTime   = 2 * time.Second
	maxTime    = 10 * time.Second
)

// Serve answers GET /metrics until ctx ends. Package net/http, with TLS and HTTP/2,
// would be a quarter of the daemon's program on every node, for one text.
func Serve(ctx context.Context, l net.Listener, text func() []byte) error {
	stop := context.AfterFunc(ctx, func() { _ = l.Close() })
	defer stop()
	conns, scrapes := make(chan struct{}, maxConns), make(chan struct{}, maxScrapes)
	for wait := time.Duration(0); ; {
		c, err := l.Accept()
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, net.ErrClosed):
			return err
		case err != nil:
			// No descriptor or no memory is left: both come back.
			wait = min(max(2*wait, 5*time.Millisecond), time.Second)
			select {
			case <-time.After(wait):
			case <-ctx.Done():
			}
			continue
		}
		wait = 0
		select {
		case conns <- struct{}{}:
			go func() {
				defer func() { _ = c.Close(); <-conns }()
				serve(c, scrapes, text)
			}()
		default:
			_ = c.Close()
		}
	}
}

// serve answers one request.
func serve(c net.Conn, scrapes chan struct{}, text func() []byte) {
	_ = c.SetDeadline(time.Now().Add(maxTime))
	_ = c.SetReadDeadline(time.Now().Add(headTime))
	status, kind, body := 0, "text/plain; charset=utf-8", []byte(nil)
	head, err := readHead(c)
	if err != nil {
		return
	}
	get := false
	if status, get = answer(head); status == 200 {
		select {
		case scrapes <- struct{}{}:
			kind, body = "text/plain; version=0.0.4; charset=utf-8", text()
			<-scrapes
		default:
			status = 503
		}
	}
	if status != 200 {
		body = []byte(reasons[status] + "\n")
	}
	out := fmt.Appendf(nil, "HTTP/1.1 %d %s\r\nContent-Type: %s\r\nContent-Length: %d\r\nConnection: close\r\n\r\n", status, reasons[status],
		kind, len(body))
	if get {
		out = append(out, body...)
	}
	_, _ = c.Write(out)
}

var reasons = map[int]string{200: "OK", 400: "Bad Request", 404: "Not Found", 405: "Method Not Allowed", 503: "Service Unavailable"}

// readHead reads a request to the empty line after its head.
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
			return nil, err
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
