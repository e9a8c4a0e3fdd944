package umad

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"ibnetworkd/ib"
	"ibnetworkd/internal/testkit"
)

// The offsets of struct ib_user_mad_hdr, written out.
func TestHeaderLayout(t *testing.T) {
	k := Packet{
		Agent: 3, Timeout: 1500 * time.Microsecond, Retries: 4, MAD: make([]byte, 256),
		Addr: Address{QPN: 1, QKey: 0x80010000, LID: 0x1234, SL: 5, PathBits: 6, PKeyIndex: 7,
			GRH: &GRH{GID: ib.MakeGID(ib.DefaultPrefix, 0x0002c903000abcde), GIDIndex: 8, HopLimit: 9, TrafficClass: 10, FlowLabel: 0xabcde}},
	}
	var got [HeaderSize]byte
	encodeHeader(&got, &k)
	var want [HeaderSize]byte
	h := binary.NativeEndian
	h.PutUint32(want[0:], 3)
	h.PutUint32(want[8:], 2) // milliseconds, rounded up: 0 would be no timeout
	h.PutUint32(want[12:], 4)
	h.PutUint32(want[16:], 256)
	copy(want[20:], []byte{0, 0, 0, 1, 0x80, 1, 0, 0, 0x12, 0x34, 5, 6, 1, 8, 9, 10, 0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 2, 0xc9, 3, 0,
		0xa, 0xbc, 0xde, 0, 0xa, 0xbc, 0xde})
	h.PutUint16(want[56:], 7)
	if got != want {
		t.Errorf("got\n% x\nwant\n% x", got, want)
	}
	var back Packet
	decodeHeader(&got, &back)
	k.Timeout, k.MAD = 2*time.Millisecond, nil
	testkit.Diff(t, "", k, back)
}

func TestRegisterLayout(t *testing.T) {
	got := encodeRegister(Agent{QPN: 1, Class: 3, Version: 2, Methods: []uint8{1, 0x12, 127, 200}, OUI: 0x001405, RMPP: 1, UserRMPP: true})
	var want [40]byte
	h := binary.NativeEndian
	h.PutUint32(want[4:], 1)
	want[8], want[9] = 3, 2
	h.PutUint32(want[12:], 1)
	h.PutUint64(want[16:], 1<<1|1<<0x12)
	h.PutUint64(want[24:], 1<<63)
	h.PutUint32(want[32:], 0x001405)
	want[36] = 1
	if got != want {
		t.Errorf("got\n% x\nwant\n% x", got, want)
	}
}

// A device is opened where it is, and named as on the host.
func TestOpen(t *testing.T) {
	first, second := t.TempDir(), t.TempDir()
	file := func(dir, name string, mode os.FileMode) {
		t.Helper()
		testkit.NoError(t, os.MkdirAll(filepath.Join(dir, "infiniband"), 0o755))
		testkit.NoError(t, os.WriteFile(filepath.Join(dir, "infiniband", name), nil, mode))
	}
	named := filepath.Join(first, "infiniband/umad0")
	check := func(what, dev string, want error) {
		t.Helper()
		fd, path, err := open(dev, first, second)
		if err == nil {
			_ = unix.Close(fd)
		}
		var pe *os.PathError
		if !errors.Is(err, want) || path != named || err != nil && (!errors.As(err, &pe) || pe.Path != named) {
			t.Errorf("%s: %q, %v", what, path, err)
		}
	}
	check("none", "umad0", unix.ENOENT)
	file(second, "umad0", 0o600)
	check("in the second", "umad0", nil)
	testkit.NoError(t, os.Mkdir(filepath.Join(second, "infiniband/umad1"), 0o700))
	named = filepath.Join(first, "infiniband/umad1")
	check("refused in the second", "umad1", unix.EISDIR)
	file(first, "umad1", 0o600)
	check("in the first", "umad1", nil)
	named = filepath.Join(second, "infiniband/umad0")
	check("by its path", named, nil)
}

func FuzzHeader(f *testing.F) {
	f.Add(bytes.Repeat([]byte{0}, HeaderSize))
	f.Add(bytes.Repeat([]byte{1}, HeaderSize))
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) < HeaderSize {
			return
		}
		var k Packet
		decodeHeader((*[HeaderSize]byte)(b), &k)
		var out [HeaderSize]byte
		encodeHeader(&out, &k)
		var again Packet
		decodeHeader(&out, &again)
		// The status is the kernel's to set and the timeout is clipped to what
		// the kernel keeps as a signed number.
		again.Status = k.Status
		if k.Timeout > (1<<31-1)*time.Millisecond {
			again.Timeout = k.Timeout
		}
		if diff := cmp.Diff(k, again); diff != "" {
			t.Errorf("(-first +again):\n%s", diff)
		}
	})
}
