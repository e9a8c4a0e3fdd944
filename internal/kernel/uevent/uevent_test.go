package uevent

import (
	"encoding/binary"
	"os"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"ibnetworkd/internal/kernel/kerneltest"
	"ibnetworkd/internal/testkit"
)

func nul(lines ...string) []byte { return []byte(strings.Join(lines, "\x00") + "\x00") }

var kernelAdd = nul(
	"add@/devices/pci0000:00/0000:3b:00.0/net/ib0", "ACTION=add", "DEVPATH=/devices/pci0000:00/0000:3b:00.0/net/ib0",
	"SUBSYSTEM=net", "INTERFACE=ib0", "IFINDEX=7", "SEQNUM=2345",
)

// udevMessage frames properties as udevd does.
func udevMessage(props []byte) []byte {
	b := make([]byte, udevHeadSize)
	copy(b, udevPrefix)
	binary.BigEndian.PutUint32(b[8:], udevMagic)
	binary.NativeEndian.PutUint32(b[12:], udevHeadSize)
	binary.NativeEndian.PutUint32(b[16:], udevHeadSize)
	binary.NativeEndian.PutUint32(b[20:], uint32(len(props)))
	return append(b, props...)
}

var udevAdd = udevMessage(nul("UDEV_DATABASE_VERSION=1", "ACTION=move", "DEVPATH=/devices/virtual/infiniband/ibp59s0",
	"DEVPATH_OLD=/devices/virtual/infiniband/mlx5_0", "SUBSYSTEM=infiniband", "SEQNUM=9", "TAGS=:systemd:"))

func TestParse(t *testing.T) {
	want := Event{Action: "add", DevPath: "/devices/pci0000:00/0000:3b:00.0/net/ib0", Subsystem: "net", Name: "ib0", IfIndex: 7}
	got, err := parseKernel(kernelAdd)
	testkit.NoError(t, err)
	testkit.Diff(t, "kernel", want, got)
	want = Event{Action: "move", DevPath: "/devices/virtual/infiniband/ibp59s0", OldPath: "/devices/virtual/infiniband/mlx5_0",
		Subsystem: "infiniband", Name: "ibp59s0"}
	got, err = parseUdev(udevAdd)
	testkit.NoError(t, err)
	testkit.Diff(t, "udev", want, got)
	outside := append([]byte(nil), udevAdd...)
	binary.NativeEndian.PutUint32(outside[20:], 1<<31)
	for name, b := range map[string][]byte{
		"bad empty": nil, "bad no header": nul("ACTION=add"), "bad no path": nul("add@/x", "ACTION=add"),
		"bad too long": append([]byte("add@/x\x00"), make([]byte, MaxMessage)...),
	} {
		if _, err := parseKernel(b); err == nil {
			t.Errorf("kernel %s: no error", name)
		}
	}
	for name, b := range map[string][]byte{"bad empty": nil, "bad kernel's": kernelAdd, "bad length": outside, "bad short": udevAdd[:39]} {
		if _, err := parseUdev(b); err == nil {
			t.Errorf("udev %s: no error", name)
		}
	}
}

func credentials(uid uint32) []byte { return unix.UnixCredentials(&unix.Ucred{Pid: 1, Uid: uid}) }

func TestSenders(t *testing.T) {
	kernel := &unix.RawSockaddrNetlink{Groups: 1}
	udevd := &unix.RawSockaddrNetlink{Pid: 300, Groups: 2}
	for _, tt := range []struct {
		name string
		g    Group
		b    []byte
		oob  []byte
		from *unix.RawSockaddrNetlink
		ok   bool
	}{
		{"OK kernel", Kernel, kernelAdd, credentials(0), kernel, true},
		{"OK udevd", Udev, udevAdd, credentials(0), udevd, true},
		{"bad kernel event of a process", Kernel, kernelAdd, credentials(0), &unix.RawSockaddrNetlink{Pid: 44, Groups: 1}, false},
		{"bad udev event of a user", Udev, udevAdd, credentials(1000), udevd, false},
		{"bad udev event without credentials", Udev, udevAdd, nil, udevd, false},
		{"bad udev event by unicast", Udev, udevAdd, credentials(0), &unix.RawSockaddrNetlink{Pid: 300}, false},
		{"bad udev event of port 0", Udev, udevAdd, credentials(0), &unix.RawSockaddrNetlink{Groups: 2}, false},
		{"bad nobody", Kernel, kernelAdd, credentials(0), nil, false},
	} {
		if _, err := accept(tt.g, tt.b, tt.oob, tt.from); (err == nil) != tt.ok {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add(kernelAdd)
	f.Add(udevAdd)
	f.Add(udevMessage(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, parse := range []func([]byte) (Event, error){parseKernel, parseUdev} {
			e, err := parse(b)
			if err == nil && (e.Action == "" || e.DevPath == "" || e.IfIndex < 0) {
				t.Errorf("accepted %+v", e)
			}
		}
		_, _ = accept(Udev, b, b, &unix.RawSockaddrNetlink{Pid: 2, Groups: 2})
	})
}

// trigger makes the kernel send n uevents by asking for them.
func trigger(t *testing.T, n int) {
	t.Helper()
	f, err := os.OpenFile("/sys/class/net/lo/uevent", os.O_WRONLY, 0)
	if err != nil {
		t.Skipf("cannot ask for uevents: %v", err)
	}
	defer func() { _ = f.Close() }()
	for range n {
		if _, err := f.WriteString("change"); err != nil {
			t.Skipf("cannot ask for uevents: %v", err)
		}
	}
}

func take(t *testing.T, ev *Events, ok func(e []Event, lost bool) bool) {
	t.Helper()
	testkit.NoError(t, kerneltest.Until(ev, ok))
}

func TestLive(t *testing.T) {
	kerneltest.NeedRoot(t)
	ev, err := Listen(Kernel, 0, "net")
	if err != nil {
		t.Skipf("no uevents: %v", err)
	}
	trigger(t, 1)
	take(t, ev, func(es []Event, _ bool) bool {
		return slices.ContainsFunc(es, func(e Event) bool { return e.Name == "lo" && e.Action == "change" && e.IfIndex == 1 })
	})
	if err := ev.Close(); err != nil {
		t.Error(err)
	}
	if _, err := ev.Read(func(Event) {}); err == nil {
		t.Error("a closed source was read")
	}
}

func TestOverrun(t *testing.T) {
	kerneltest.NeedRoot(t)
	ev, err := Listen(Kernel, 1, "net") // the least that the kernel grants
	if err != nil {
		t.Skipf("no uevents: %v", err)
	}
	defer func() { _ = ev.Close() }()
	trigger(t, 200) // the socket is not read meanwhile
	take(t, ev, func(_ []Event, lost bool) bool { return lost })
	trigger(t, 1)
	take(t, ev, func(es []Event, lost bool) bool { return len(es) > 0 && !lost })
}
