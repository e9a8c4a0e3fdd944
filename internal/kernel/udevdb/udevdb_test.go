package udevdb

import (
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"ibnetworkd/internal/testkit"
)

const ib0 = `I:4711815
E:ID_NET_NAMING_SCHEME=v252
E:ID_NET_NAME_PATH=ibp59s0
E:ID_PATH=pci-0000:3b:00.0
E:ID_NET_DRIVER=mlx5_core
E:ID_NET_MANAGED_BY=org.freedesktop.NetworkManager
E:ID_RENAMING=1
E:EQUALS=a=b
G:systemd
Q:systemd
V:1
`

func write(t *testing.T, root, name, text string) {
	t.Helper()
	p := filepath.Join(root, "run/udev", name)
	testkit.WriteFile(t, p, text)
}

func TestRecords(t *testing.T) {
	root := t.TempDir()
	db := New(root)
	if db.Running() {
		t.Error("udevd runs in an empty tree")
	}
	write(t, root, "control", "")
	write(t, root, "data/n7", ib0)
	write(t, root, "data/+infiniband:mlx5_0", "E:ID_PATH=pci-0000:3b:00.0\n")
	write(t, root, "data/n8", strings.Repeat("x", maxRecord+1))
	if !db.Running() {
		t.Error("udevd does not run")
	}
	r, err := db.Net(7)
	testkit.NoError(t, err)
	if !r.Found || !r.Initialized || !r.Renaming() || r.Get("ID_PATH") != "pci-0000:3b:00.0" || r.Get("EQUALS") != "a=b" ||
		r.Get("ID_NET_MANAGED_BY") != "org.freedesktop.NetworkManager" || r.Get("nope") != "" {
		t.Errorf("got %+v", r)
	}
	if r, err := db.Device("infiniband", "mlx5_0"); err != nil || !r.Found || r.Initialized || r.Renaming() {
		t.Errorf("RDMA device before its rules have run: %+v, %v", r, err)
	}
	if r, err := db.Net(9); err != nil || r.Found {
		t.Errorf("no record: %+v, %v", r, err)
	}
	if _, err := db.Net(8); err == nil {
		t.Error("bad: a record without end was read")
	}
	if _, err := db.Device("infiniband", "../../../etc/passwd"); err == nil {
		t.Error("bad: a name led out of the directory")
	}
}

// The record of each link is kept.
func TestMemoryOfRecords(t *testing.T) {
	text := []byte("I:1\nE:ID_BUS=pci\nE:ID_PATH=pci-0000:3b:00.0\nE:ID_NET_DRIVER=ib_ipoib\nE:ID_NET_NAME=ib0\nG:systemd\n")
	records := make([]Record, 1000)
	used := func() uint64 {
		runtime.GC()
		var s runtime.MemStats
		runtime.ReadMemStats(&s)
		return s.HeapAlloc
	}
	before := used()
	for i := range records {
		records[i] = Parse(text)
	}
	each := int(used()-before) / len(records)
	if runtime.KeepAlive(records); each > 700 {
		t.Errorf("%d bytes for each record, want at most 700", each)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(ib0))
	f.Add([]byte("E:\nI\n:\nE:=\nE:x=\x00"))
	f.Fuzz(func(t *testing.T, b []byte) {
		r := Parse(b)
		if len(r.Properties()) > len(b) {
			t.Errorf("%d properties out of %d bytes", len(r.Properties()), len(b))
		}
	})
}
