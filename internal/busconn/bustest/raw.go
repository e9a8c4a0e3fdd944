package bustest

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"time"

	"github.com/godbus/dbus/v5"
)

// Raw is a member of a bus that writes bytes.
type Raw struct {
	net.Conn
	serial uint32
}

// Raw joins the bus.
func (b *Bus) Raw() *Raw {
	b.t.Helper()
	r, err := Join(b.Addr)
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { _ = r.Close() })
	return r
}

// Join joins the bus at an address of the form unix:path=PATH.
func Join(addr string) (*Raw, error) {
	conn, err := net.Dial("unix", strings.TrimPrefix(addr, "unix:path="))
	if err != nil {
		return nil, err
	}
	uid := hex.EncodeToString(fmt.Append(nil, os.Getuid()))
	if _, err := fmt.Fprintf(conn, "\x00AUTH EXTERNAL %s\r\n", uid); err != nil {
		_ = conn.Close()
		return nil, err
	}
	_ = conn.SetReadDeadline(time.Now().Add(20 * time.Second))
	line := make([]byte, 256)
	if n, err := conn.Read(line); err != nil || !strings.HasPrefix(string(line[:n]), "OK") {
		_ = conn.Close()
		return nil, fmt.Errorf("the bus does not let us in: %q %w", line[:n], err)
	}
	_ = conn.SetReadDeadline(time.Time{})
	r := &Raw{Conn: conn}
	_, err = conn.Write(append([]byte("BEGIN\r\n"),
		r.Frame(dbus.TypeMethodCall, 0, "org.freedesktop.DBus", "/org/freedesktop/DBus", "org.freedesktop.DBus", "Hello", "", nil)...))
	return r, err
}

// Frame is a message as bytes, in little endian. It is as wrong as its arguments.
func (r *Raw) Frame(kind dbus.Type, flags dbus.Flags, dest, path, iface, member, sig string, body []byte) []byte {
	var h []byte
	align := func(n int) {
		for len(h)%n != 0 {
			h = append(h, 0)
		}
	}
	for _, f := range []struct {
		field byte
		kind  byte
		text  string
	}{{1, 'o', path}, {2, 's', iface}, {3, 's', member}, {6, 's', dest}, {8, 'g', sig}} {
		if f.text == "" {
			continue
		}
		align(8)
		h = append(h, f.field, 1, f.kind, 0)
		if f.kind == 'g' {
			h = append(h, byte(len(f.text)))
		} else {
			h = binary.LittleEndian.AppendUint32(h, uint32(len(f.text)))
		}
		h = append(append(h, f.text...), 0)
	}
	r.serial++
	fields := len(h)
	align(8)
	out := []byte{'l', byte(kind), byte(flags), 1}
	out = binary.LittleEndian.AppendUint32(out, uint32(len(body)))
	out = binary.LittleEndian.AppendUint32(out, r.serial)
	out = binary.LittleEndian.AppendUint32(out, uint32(fields))
	return append(append(out, h...), body...)
}

// sendRaw sends a dictionary of one entry.
func (b *Bus) sendRaw(kind dbus.Type, dest string, path dbus.ObjectPath, iface, member, sig string) {
	b.t.Helper()
	entry := []byte{0, 0, 0, 0} // false, or an empty signature with its padding
	entry = append(entry, 1, 0, 0, 0, 'x', 0)
	body := binary.LittleEndian.AppendUint32(nil, uint32(len(entry)))
	body = append(append(body, 0, 0, 0, 0), entry...) // entries are aligned to 8
	r, err := Join(b.Addr)
	if err != nil {
		b.t.Fatal(err)
	}
	defer r.Close()
	go func() { _, _ = io.Copy(io.Discard, r) }()
	if _, err := r.Write(r.Frame(kind, 0, dest, string(path), iface, member, sig, body)); err != nil {
		b.t.Fatal(err)
	}
	time.Sleep(50 * time.Millisecond) // what follows comes by another connection
}
