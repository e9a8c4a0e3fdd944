// Package busconn connects to D-Bus. All connections of all programs are made here,
// so that no message of another member of the bus can end the program or the
// connection, or exhaust its descriptors and memory:
//
//   - Descriptor passing is not negotiated, so the bus refuses messages with
//     descriptors. godbus would not close them, and cannot decode an array of them.
//   - The header of a message is read here before godbus decodes the message. Calls
//     are admitted by size and signature, and refused with an answer otherwise.
//     Signals are dropped unless they are believed.
//
// docs/security.md has the reasons in full.
package busconn

import (
	"bufio"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/godbus/dbus/v5"
	"golang.org/x/sys/unix"
)

// Config of a connection. The zero value is for one that calls and follows
// signals, and is not called itself.
type Config struct {
	// Address of the bus, in the form of DBUS_SYSTEM_BUS_ADDRESS; "" is the
	// system bus.
	Address string
	// Handler answers calls other than those of org.freedesktop.DBus.Peer.
	// Without one they are refused, and so are calls with arguments that are not
	// strings or variants of strings, or above 4 KiB.
	Handler dbus.Handler
	// Explain may find a better sentence for a call whose arguments are not read.
	Explain func(*Header) *dbus.Error
	// Admit decides about a call before it is read, also about one that is
	// answered here and does not come to Handler. It runs in the reader and must
	// not wait; the connection is for what it starts.
	Admit func(c *dbus.Conn, h *Header, answered bool) *dbus.Error
	// Incoming sees each message before it is handled. It may wait, which
	// stops the reading.
	Incoming dbus.Interceptor
}

// Conn is a connection.
type Conn struct {
	*dbus.Conn
	sock *socket
}

// Join joins a bus. The connection is closed when ctx ends.
func Join(ctx context.Context, c Config) (*Conn, error) {
	raw, err := dial(ctx, c.Address)
	if err != nil {
		return nil, err
	}
	s := &socket{conn: raw, in: bufio.NewReaderSize(raw, maxHeader+maxArgs), cfg: c}
	opts := []dbus.ConnOption{dbus.WithContext(ctx)}
	if c.Handler != nil {
		opts = append(opts, dbus.WithHandler(c.Handler))
	}
	if c.Incoming != nil {
		opts = append(opts, dbus.WithIncomingInterceptor(c.Incoming))
	}
	conn, err := authenticate(s, opts)
	if err != nil {
		return nil, err
	}
	if err := conn.Hello(); err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("register with the bus: %w", err)
	}
	return &Conn{conn, s}, nil
}

// Peer connects to the program that listens at a socket, without a bus between.
// That program is trusted: all its signals are believed.
func Peer(ctx context.Context, path string) (*Conn, error) {
	raw, err := new(net.Dialer).DialContext(ctx, "unix", path)
	if err != nil {
		return nil, err
	}
	s := &socket{conn: raw, in: bufio.NewReaderSize(raw, maxHeader+maxArgs), peer: true}
	conn, err := authenticate(s, []dbus.ConnOption{dbus.WithContext(ctx)})
	if err != nil {
		return nil, err
	}
	return &Conn{conn, s}, nil
}

func authenticate(s *socket, opts []dbus.ConnOption) (*dbus.Conn, error) {
	// godbus passes descriptors on a *net.UnixConn only, which s is not.
	conn, err := dbus.NewConn(s, opts...)
	if err != nil {
		_ = s.Close()
		return nil, err
	}
	s.godbus = conn
	if err := conn.Auth([]dbus.Auth{dbus.AuthExternal(strconv.Itoa(os.Geteuid()))}); err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("authenticate with the bus: %w", err)
	}
	return conn, nil
}

// IsPeer reports whether there is no bus between.
func (c *Conn) IsPeer() bool { return c.sock.peer }

// TrustOwner enables delivery of the signals of a well-known name's owner, and of the
// bus' NameOwnerChanged for it. It returns the current owner, "" for none.
func (c *Conn) TrustOwner(ctx context.Context, name string) (owner string, err error) {
	c.sock.trustOwner(name)
	if err := c.AddMatchSignalContext(ctx, dbus.WithMatchSender(busName), dbus.WithMatchInterface(busName),
		dbus.WithMatchMember("NameOwnerChanged"), dbus.WithMatchArg(0, name)); err != nil {
		return "", fmt.Errorf("follow the owner of %s: %w", name, err)
	}
	// No owner is an error of the call and an answer all the same.
	err = c.BusObject().CallWithContext(ctx, busName+".GetNameOwner", 0, name).Store(&owner)
	var de dbus.Error
	if err != nil && !errors.As(err, &de) {
		return "", fmt.Errorf("get the owner of %s: %w", name, err)
	}
	return c.sock.owned(name, owner), nil
}

const defaultAddresses = "unix:path=/run/dbus/system_bus_socket;unix:path=/var/run/dbus/system_bus_socket"

// dial connects to the first address of a list that answers.
func dial(ctx context.Context, address string) (net.Conn, error) {
	address = cmp.Or(address, os.Getenv("DBUS_SYSTEM_BUS_ADDRESS"), defaultAddresses)
	var first error
	for a := range strings.SplitSeq(address, ";") {
		path, err := socketPath(a)
		if err == nil {
			var conn net.Conn
			if conn, err = new(net.Dialer).DialContext(ctx, "unix", path); err == nil {
				return conn, nil
			}
		}
		first = cmp.Or(first, err)
	}
	return nil, first
}

// socketPath is the socket of one address of a bus, with @ before an abstract one.
func socketPath(address string) (string, error) {
	keys, ok := strings.CutPrefix(address, "unix:")
	if !ok {
		return "", fmt.Errorf("bus address %q: only unix: is supported", address)
	}
	for kv := range strings.SplitSeq(keys, ",") {
		k, v, _ := strings.Cut(kv, "=")
		if k != "path" && k != "abstract" {
			continue
		}
		v, err := dbus.UnescapeBusAddressValue(v)
		if err != nil || v == "" {
			return "", fmt.Errorf("bus address %q: %s= is not a name", address, k)
		}
		if k == "abstract" {
			v = "@" + v
		}
		return v, nil
	}
	return "", fmt.Errorf("bus address %q: path= and abstract= are missing", address)
}

// socket is between the connection to the bus and godbus. Its Read returns
// nothing but messages that may be decoded.
type socket struct {
	conn net.Conn
	in   *bufio.Reader
	cfg  Config
	peer bool

	framed atomic.Bool // the authentication is over
	godbus *dbus.Conn

	wmu   sync.Mutex
	stall stall

	mu       sync.Mutex
	owners   owners
	reported map[string]bool // names whose change of owner the bus has reported

	// Of the reader:
	whole []byte // of a message, what is still to be read
	body  uint64 // and how much of it follows on the connection
}

func (s *socket) Close() error { return s.conn.Close() }

// Write sends what godbus sends: a message with each call, and before that lines.
// When the bus does not read for maxStall the connection is closed: its user
// joins again, and the bus reads from the new connection.
func (s *socket) Write(p []byte) (int, error) {
	// No message can come before this line is sent.
	if !s.framed.Load() && string(p) == "BEGIN\r\n" {
		s.framed.Store(true)
	}
	s.wmu.Lock()
	defer s.wmu.Unlock()
	sent := 0
	if s.stall.waited == 0 {
		if sent = s.sendNow(p); sent == len(p) {
			return sent, nil
		}
	}
	start := time.Now()
	if err := s.conn.SetWriteDeadline(s.stall.deadline(len(p)-sent, start)); err != nil {
		return sent, err
	}
	n, err := s.conn.Write(p[sent:])
	if err != nil {
		// What follows a part of a message is no message.
		_ = s.conn.Close()
		return sent + n, err
	}
	s.stall.wrote(n, start, time.Now())
	return sent + n, nil
}

// sendNow sends as much as the socket has room for. That never waits, so no time of it
// is taken: nearly all messages are sent so.
func (s *socket) sendNow(p []byte) (n int) {
	c, ok := s.conn.(syscall.Conn)
	if !ok {
		return 0
	}
	rc, err := c.SyscallConn()
	if err != nil {
		return 0
	}
	_ = rc.Control(func(fd uintptr) { n, _ = unix.SendmsgN(int(fd), p, nil, nil, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL) })
	return max(n, 0)
}

// Read implements io.Reader for godbus' reader.
func (s *socket) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	for len(s.whole) == 0 && s.body == 0 {
		// The first byte may belong to a line of the authentication.
		if _, err := s.in.Peek(1); err != nil {
			return 0, err
		}
		if !s.framed.Load() {
			return s.in.Read(p)
		}
		if err := s.next(); err != nil {
			return 0, err
		}
	}
	if len(s.whole) > 0 {
		n := copy(p, s.whole)
		s.whole = s.whole[n:]
		return n, nil
	}
	n, err := s.in.Read(p[:min(uint64(len(p)), s.body)])
	s.body -= uint64(n)
	return n, err
}

// next reads the header of the next message and decides about it.
func (s *socket) next() error {
	fixed, err := s.in.Peek(fixedLen)
	if err != nil {
		return err
	}
	h, length, err := parseFixed(fixed)
	if err != nil {
		return err
	}
	if length > maxHeader {
		return s.skip(length + uint64(h.BodyLen))
	}
	header, err := s.in.Peek(int(length))
	if err != nil {
		return err
	}
	if parseFields(&h, header) != nil || h.UnixFDs != 0 {
		return s.skip(length + uint64(h.BodyLen))
	}
	switch h.Type {
	case dbus.TypeMethodCall:
		answer, err := s.admit(&h, length)
		if err != nil {
			return err
		}
		if answer != nil {
			if err := s.skip(length + uint64(h.BodyLen)); err != nil {
				return err
			}
			s.answer(&h, answer)
			return nil
		}
	case dbus.TypeSignal:
		if h.BodyLen > maxTrusted || !s.trusted(&h, length) {
			return s.skip(length + uint64(h.BodyLen))
		}
	case dbus.TypeMethodReply, dbus.TypeError:
		// The bus forwards the answers of those that were asked only.
		if h.BodyLen > maxTrusted {
			return s.skip(length + uint64(h.BodyLen))
		}
	default:
		return s.skip(length + uint64(h.BodyLen))
	}
	// Reading the body may have moved it.
	if header, err = s.in.Peek(int(length)); err != nil {
		return err
	}
	s.whole, s.body = slices.Clone(header), uint64(h.BodyLen)
	return s.skip(length)
}

// skip reads bytes that are not needed.
func (s *socket) skip(n uint64) error {
	_, err := io.CopyN(io.Discard, s.in, int64(n))
	return err
}

const peerInterface = "org.freedesktop.DBus.Peer"

// answer is what answers a call: values, or an error.
type answer struct {
	body []any
	err  error
}

// admit decides about a call, whose header of a length is the next to be read. An
// answer is given in place of godbus, which does not see the call then.
func (s *socket) admit(h *Header, length uint64) (*answer, error) {
	a, err := s.check(h, length)
	if err != nil || s.cfg.Admit == nil {
		return a, err
	}
	if e := s.cfg.Admit(s.godbus, h, a != nil); e != nil {
		return &answer{err: e}, nil
	}
	return a, nil
}

// check answers calls that every connection answers alike, and those that cannot
// be read.
func (s *socket) check(h *Header, length uint64) (*answer, error) {
	refuse := func(name, format string, a ...any) (*answer, error) {
		return &answer{err: Refusal("org.freedesktop.DBus.Error."+name, format, a...)}, nil
	}
	if h.Interface == peerInterface {
		switch h.Member {
		case "Ping":
			return &answer{}, nil
		case "GetMachineId":
			if id, err := os.ReadFile("/etc/machine-id"); err == nil {
				return &answer{body: []any{strings.TrimSpace(string(id))}}, nil
			}
		}
		return refuse("UnknownMethod", "%s has no method %s", peerInterface, h.Member)
	}
	if s.cfg.Handler == nil {
		return refuse("UnknownObject", "no object %s", h.Path)
	}
	if strings.Trim(h.Signature, "sv") != "" {
		if s.cfg.Explain != nil {
			if e := s.cfg.Explain(h); e != nil {
				return &answer{err: e}, nil
			}
		}
		return refuse("InvalidArgs", "the arguments have the signature %q: methods take strings only", h.Signature)
	}
	if h.BodyLen > maxArgs {
		return refuse("LimitsExceeded", "the arguments have %d bytes, at most %d are read", h.BodyLen, maxArgs)
	}
	b, err := s.in.Peek(int(length) + int(h.BodyLen))
	if err != nil {
		return nil, err
	}
	if _, ok := readStrings(h.order, b[length:], h.Signature); !ok {
		return refuse("InvalidArgs", "the arguments do not match their signature %q, with strings as variants", h.Signature)
	}
	return nil, nil
}

// answer answers a call in place of godbus.
func (s *socket) answer(h *Header, a *answer) {
	if h.Flags&dbus.FlagNoReplyExpected == 0 {
		s.godbus.Send(Reply(h.Sender, h.Serial, a.body, a.err), nil)
	}
}

// believed decides about a signal, whose header of the given length is read next,
// and follows the bus' NameOwnerChanged.
func (s *socket) trusted(h *Header, length uint64) bool {
	if s.peer {
		return true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.owners.trusted(h.Sender, h.Path, h.Interface) {
		return false
	}
	if h.Sender != busName || h.Member != "NameOwnerChanged" {
		return true
	}
	if h.Signature != "sss" || h.BodyLen > maxArgs {
		return false
	}
	b, err := s.in.Peek(int(length) + int(h.BodyLen))
	if err != nil {
		return false // the next read has the error again
	}
	words, ok := readStrings(h.order, b[length:], h.Signature)
	if !ok {
		return false
	}
	name, owner := words[0], words[2]
	if _, want := s.owners[name]; !want {
		return false // the name is not one of TrustOwner
	}
	s.owners[name], s.reported[name] = owner, true
	return true
}

// readStrings reads a body of strings and variants of a string. They have to fill it.
func readStrings(order binary.ByteOrder, b []byte, signature string) (words []string, ok bool) {
	at := uint64(0)
	for _, kind := range signature {
		if kind == 'v' {
			if uint64(len(b)) < at+3 || string(b[at:at+3]) != "\x01s\x00" {
				return nil, false
			}
			at += 3
		}
		at = (at + 3) &^ 3
		if at+4 > uint64(len(b)) {
			return nil, false
		}
		end := at + 4 + uint64(order.Uint32(b[at:]))
		if end >= uint64(len(b)) || b[end] != 0 {
			return nil, false
		}
		words = append(words, string(b[at+4:end]))
		at = end + 1
	}
	return words, at == uint64(len(b))
}

func (s *socket) trustOwner(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.owners == nil {
		s.owners = owners{}
	}
	if s.reported == nil {
		s.reported = map[string]bool{}
	}
	if _, ok := s.owners[name]; !ok {
		s.owners[name] = ""
	}
}

// owned notes the owner of a name as it was asked for, unless the bus has
// reported a later one, and returns the one that counts.
func (s *socket) owned(name, owner string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.reported[name] {
		s.owners[name] = owner
	}
	return s.owners[name]
}
