// Package bustest gives tests a private bus, and a hostile member of it.
package bustest

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/godbus/dbus/v5"
)

// Bus is a dbus-daemon on a socket of its own.
type Bus struct {
	Addr string
	t    testing.TB
	dir  string
	cmd  *exec.Cmd
}

// Limit is a limit of dbus-daemon(1), as max_incoming_bytes.
type Limit struct {
	Name  string
	Value int
}

// Start starts a bus on which everything is allowed, with limits of dbus-daemon(1)
// other than its defaults. The test is skipped where dbus-daemon is not installed.
func Start(t testing.TB, limits ...Limit) *Bus {
	t.Helper()
	if _, err := exec.LookPath("dbus-daemon"); err != nil {
		t.Skip("dbus-daemon is not installed")
	}
	// Not t.TempDir: the name of a socket is at most 107 bytes long.
	dir, err := os.MkdirTemp("", "bus")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil { // for members of other users
		t.Fatal(err)
	}
	b := &Bus{t: t, dir: dir, Addr: "unix:path=" + filepath.Join(dir, "s")}
	conf := fmt.Sprintf(`<busconfig><type>session</type><listen>%s</listen><auth>EXTERNAL</auth>
<policy context="default"><allow user="*"/><allow send_destination="*" eavesdrop="true"/><allow eavesdrop="true"/><allow own="*"/></policy>`, b.Addr)
	for _, l := range limits {
		conf += fmt.Sprintf("<limit name=%q>%d</limit>", l.Name, l.Value)
	}
	conf += "</busconfig>"
	if err := os.WriteFile(filepath.Join(dir, "conf"), []byte(conf), 0o644); err != nil {
		t.Fatal(err)
	}
	b.Start()
	t.Cleanup(b.Stop)
	return b
}

// Start starts the bus again after Stop.
func (b *Bus) Start() {
	b.t.Helper()
	_ = os.Remove(filepath.Join(b.dir, "s"))
	b.cmd = exec.Command("dbus-daemon", "--config-file="+filepath.Join(b.dir, "conf"), "--nofork", "--print-address=1", "--nosyslog")
	out, err := b.cmd.StdoutPipe()
	if err != nil {
		b.t.Fatal(err)
	}
	if err := b.cmd.Start(); err != nil {
		b.t.Fatal(err)
	}
	// The address is printed once the socket listens.
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		b.t.Fatal(err)
	}
}

// Stop ends the bus.
func (b *Bus) Stop() {
	if b.cmd != nil {
		_ = b.cmd.Process.Kill()
		_ = b.cmd.Wait()
		b.cmd = nil
	}
}

// Signal sends a signal to the process of the bus.
func (b *Bus) Signal(s os.Signal) error { return b.cmd.Process.Signal(s) }

// Dial joins the bus as its members do that agree to descriptor passing.
func (b *Bus) Dial() *dbus.Conn {
	b.t.Helper()
	c, err := dbus.Connect(b.Addr)
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { _ = c.Close() })
	return c
}

// Members are the unique names of the bus, those of known excepted.
func (b *Bus) Members(c *dbus.Conn, known ...string) (names []string) {
	b.t.Helper()
	var all []string
	if err := c.BusObject().Call("org.freedesktop.DBus.ListNames", 0).Store(&all); err != nil {
		b.t.Fatal(err)
	}
next:
	for _, n := range all {
		for _, k := range known {
			if n == k {
				continue next
			}
		}
		if strings.HasPrefix(n, ":") && n != c.Names()[0] {
			names = append(names, n)
		}
	}
	return names
}

// Descriptors is the number of this process' open descriptors.
func Descriptors(t testing.TB) int {
	t.Helper()
	d, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(d)
}

// Message makes a message to a member.
func Message(kind dbus.Type, dest string, path dbus.ObjectPath, iface, member string, body ...any) *dbus.Message {
	m := &dbus.Message{Type: kind, Flags: dbus.FlagNoAutoStart, Body: body, Headers: map[dbus.HeaderField]dbus.Variant{
		dbus.FieldDestination: dbus.MakeVariant(dest), dbus.FieldPath: dbus.MakeVariant(path),
		dbus.FieldInterface: dbus.MakeVariant(iface), dbus.FieldMember: dbus.MakeVariant(member)}}
	if len(body) > 0 {
		m.Headers[dbus.FieldSignature] = dbus.MakeVariant(dbus.SignatureOf(body...))
	}
	return m
}

// Bodies are arguments that have ended or cut off a receiver that decodes all it
// is sent, by what they are.
func Bodies(fd dbus.UnixFD) map[string][]any {
	nest := func(depth int) any {
		v := dbus.MakeVariant(byte(1))
		for range depth {
			v = dbus.MakeVariant(v)
		}
		return v
	}
	many := make([]dbus.Variant, 200_000)
	for i := range many {
		many[i] = dbus.MakeVariant(byte(1))
	}
	return map[string][]any{
		"a descriptor":                    {fd},
		"an array of descriptors":         {[]dbus.UnixFD{fd}},
		"a descriptor in a variant":       {dbus.MakeVariant(fd)},
		"sixteen descriptors":             {fd, fd, fd, fd, fd, fd, fd, fd, fd, fd, fd, fd, fd, fd, fd, fd},
		"a dictionary with boolean keys":  {raw{"a{bs}"}},
		"a dictionary of signatures":      {raw{"a{gs}"}},
		"variants in variants":            {nest(60)},
		"an array of 200,000 variants":    {many},
		"no arguments":                    nil,
		"a string":                        {"x"},
		"a string of 100,000 bytes":       {strings.Repeat("x", 100_000)},
		"an array of 100,000 byte arrays": {make([][]byte, 100_000)},
	}
}

// raw is a value of a type that godbus cannot encode.
type raw struct{ sig string }

// Send sends one message with each of Bodies to a member, as a call and as a
// signal, and returns when the bus has taken them all. It fails the test when the
// member does not answer org.freedesktop.DBus.Peer.Ping after one of them.
func (b *Bus) Send(c *dbus.Conn, dest string, path dbus.ObjectPath, iface, member string) {
	b.t.Helper()
	null, err := os.Open(os.DevNull)
	if err != nil {
		b.t.Fatal(err)
	}
	defer null.Close()
	for what, body := range Bodies(dbus.UnixFD(null.Fd())) {
		for _, kind := range []dbus.Type{dbus.TypeMethodCall, dbus.TypeSignal} {
			if len(body) == 1 {
				if r, ok := body[0].(raw); ok {
					b.sendRaw(kind, dest, path, iface, member, r.sig)
					b.alive(c, dest, what)
					continue
				}
			}
			c.Send(Message(kind, dest, path, iface, member, body...), make(chan *dbus.Call, 1))
			b.alive(c, dest, what)
		}
	}
}

// alive pings a member.
func (b *Bus) alive(c *dbus.Conn, dest, what string) {
	b.t.Helper()
	call := c.Object(dest, "/").Go("org.freedesktop.DBus.Peer.Ping", dbus.FlagNoAutoStart, make(chan *dbus.Call, 1))
	select {
	case <-call.Done:
		if call.Err != nil {
			b.t.Fatalf("%s, sent %s, does not answer: %v", dest, what, call.Err)
		}
	case <-time.After(20 * time.Second):
		b.t.Fatalf("%s, sent %s, does not answer within 20 s", dest, what)
	}
}
