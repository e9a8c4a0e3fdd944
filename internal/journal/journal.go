// Package journal writes log records for systemd's journal: with fields where
// standard error is connected to it, as text otherwise.
package journal

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// socket is where journald takes native messages (systemd.io, "Native Journal
// Protocol").
const socket = "/run/systemd/journal/socket"

// MessageID is the key of an attribute that becomes the field MESSAGE_ID. Keys in
// upper case are fields alone; the text has the others.
const MessageID = "MESSAGE_ID"

// Handler gives the handler for a program that logs to f.
func Handler(f *os.File, level slog.Leveler) slog.Handler {
	if os.Getenv("JOURNAL_STREAM") == "" {
		drop := func(groups []string, a slog.Attr) slog.Attr {
			if isField(a.Key) {
				return slog.Attr{}
			}
			return a
		}
		return slog.NewTextHandler(f, &slog.HandlerOptions{Level: level, ReplaceAttr: drop})
	}
	h := &handler{w: f, level: level, fd: -1}
	if Target(f) == "journal" {
		h.dial(socket)
	}
	return h
}

// Target is where a program that logs to f does so, in the words of systemd's LogTarget:
// journal or console.
func Target(f *os.File) string {
	var st unix.Stat_t
	if unix.Fstat(int(f.Fd()), &st) == nil && os.Getenv("JOURNAL_STREAM") == fmt.Sprintf("%d:%d", st.Dev, st.Ino) {
		return "journal"
	}
	return "console"
}

// handler sends native messages, and writes lines with sd-daemon(3)'s level prefix
// where that fails: a journald that hangs must not block the program.
type handler struct {
	w     io.Writer
	level slog.Leveler
	attrs []slog.Attr
	fd    int // of a socket that is connected to journald, -1 for none
	name  string
}

func (h *handler) dial(path string) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return
	}
	// For the bursts of hundreds of links at a start.
	_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUF, 8<<20)
	h.fd, h.name = fd, path
}

func (h *handler) Enabled(_ context.Context, l slog.Level) bool { return l >= h.level.Level() }

func (h *handler) WithAttrs(a []slog.Attr) slog.Handler {
	c := *h
	c.attrs = slices.Concat(h.attrs, a)
	return &c
}

// WithGroup implements slog.Handler. Groups are not used here.
func (h *handler) WithGroup(string) slog.Handler { return h }

func (h *handler) Handle(_ context.Context, r slog.Record) error {
	attrs := slices.Clone(h.attrs)
	r.Attrs(func(a slog.Attr) bool {
		attrs = append(attrs, a)
		return true
	})
	text := line(r.Message, attrs)
	p := priority(r.Level)
	if h.fd >= 0 && unix.Sendto(h.fd, native(text, p, attrs), unix.MSG_NOSIGNAL, &unix.SockaddrUnix{Name: h.name}) == nil {
		return nil
	}
	_, err := fmt.Fprintf(h.w, "<%d>%s\n", p, text)
	return err
}

// priority is syslog's.
func priority(l slog.Level) int {
	switch {
	case l >= slog.LevelError:
		return 3
	case l >= slog.LevelWarn:
		return 4
	case l < slog.LevelInfo:
		return 7
	}
	return 6
}

// line is the record as one line of text.
func line(message string, attrs []slog.Attr) string {
	var b strings.Builder
	b.WriteString(strings.ReplaceAll(message, "\n", " "))
	for _, a := range attrs {
		if isField(a.Key) {
			continue
		}
		v := a.Value.String()
		if strings.ContainsAny(v, " \"=\n") || v == "" {
			v = fmt.Sprintf("%q", v)
		}
		b.WriteString(" " + a.Key + "=" + v)
	}
	return b.String()
}

// isField reports whether a key is the name of a field.
func isField(key string) bool { return key == strings.ToUpper(key) }

// names are the fields of attributes that other programs have too, or that people
// filter by.
var names = map[string]string{"link": "INTERFACE", "unit": "IBNETWORK_UNIT", "ibdev": "RDMA_DEVICE", "error": "ERROR"}

func fieldName(key string) string {
	if isField(key) {
		return key
	}
	if n := names[key]; n != "" {
		return n
	}
	return "IBNETWORK_" + strings.Map(func(r rune) rune {
		if r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' {
			return r
		}
		return '_'
	}, strings.ToUpper(key))
}

// native is a message in the native protocol. RDMA_PORT is DEVICE/PORT.
func native(text string, priority int, attrs []slog.Attr) []byte {
	b := field(nil, "MESSAGE", text)
	b = field(b, "PRIORITY", fmt.Sprint(priority))
	b = field(b, "SYSLOG_IDENTIFIER", "ibnetworkd")
	dev := ""
	for _, a := range attrs {
		v := a.Value.String()
		switch {
		case a.Key == "ibdev":
			dev = v
		case a.Key == "port" && strings.Contains(v, "/"):
			b = field(b, "RDMA_PORT", v)
			continue
		case a.Key == "port" && dev != "":
			b = field(b, "RDMA_PORT", dev+"/"+v)
			continue
		}
		b = field(b, fieldName(a.Key), v)
	}
	return b
}

// field appends one: NAME=VALUE, or with the length in front of a value of several
// lines.
func field(b []byte, name, value string) []byte {
	if !strings.Contains(value, "\n") {
		return append(append(append(append(b, name...), '='), value...), '\n')
	}
	b = append(append(b, name...), '\n')
	b = binary.LittleEndian.AppendUint64(b, uint64(len(value)))
	return append(append(b, value...), '\n')
}
