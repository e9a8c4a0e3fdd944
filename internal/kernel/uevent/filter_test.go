package uevent

import (
	"encoding/binary"
	"slices"
	"testing"

	"ibnetworkd/internal/testkit"

	"golang.org/x/sys/unix"
)

// The values are those in the filter that libudev 252 attaches.
func TestHash(t *testing.T) {
	for name, want := range map[string]uint32{"net": 0xa74d3cc8, "infiniband": 0x4ef331f5, "block": 0xf0031db7} {
		if got := hash32(name); got != want {
			t.Errorf("%s: %#08x, want %#08x", name, got, want)
		}
	}
}

// Of udevd's messages only those of the subsystems reach the socket; all others do.
func TestFilter(t *testing.T) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	testkit.NoError(t, err)
	defer func() { _, _ = unix.Close(fds[0]), unix.Close(fds[1]) }()
	testkit.NoError(t, attachFilter(fds[1], []string{"net", "infiniband"}))
	other := udevMessage(nul("ACTION=add"))
	other[8] = 0 // another magic number
	messages := map[string][]byte{"other": other, "kernel": kernelAdd}
	for _, s := range []string{"net", "infiniband", "infiniband_mad", "infiniband_verbs", "block", "queues"} {
		b := udevMessage(nul("ACTION=add", "DEVPATH=/x", "SUBSYSTEM="+s))
		binary.BigEndian.PutUint32(b[24:], hash32(s))
		messages[s] = b
	}
	var got []string
	for name, b := range messages {
		_ = unix.Send(fds[0], b, 0) // refused with EPERM or dropped
		if n, err := unix.Read(fds[1], make([]byte, 4096)); err == nil && n == len(b) {
			got = append(got, name)
		}
	}
	slices.Sort(got)
	if want := []string{"infiniband", "kernel", "net", "other"}; !slices.Equal(got, want) {
		t.Errorf("%q pass, want %q", got, want)
	}
}
