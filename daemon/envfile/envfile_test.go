package envfile

import (
	"bytes"
	"context"
	"log/slog"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"ibnetworkd/daemon"
	"ibnetworkd/ib"
	"ibnetworkd/internal/testkit"
	"ibnetworkd/link"
	"ibnetworkd/roce"
	"ibnetworkd/units"
)

// host is a RoCE port with a VLAN, an InfiniBand port with a child, and a link
// without RDMA. gids are the entries of the RoCE port's table.
func host(gids ...roce.GID) *link.Snapshot {
	st := &roce.State{Devices: map[string]roce.Device{"mlx5_0": {Ports: map[int]roce.Port{1: {GIDs: gids}}}}}
	return &link.Snapshot{Card: st,
		Devices: []link.Device{
			{Name: "mlx5_0", Ports: []link.Port{{Num: 1, Layer: ib.LinkLayerEthernet, Netdev: 2}}},
			{Name: "mlx5_1", Ports: []link.Port{{Num: 1, Layer: ib.LinkLayerInfiniBand}}},
		},
		Links: []link.Link{
			{Index: 2, Name: "eth0", Type: 1, Flags: link.FlagUp, Addresses: []link.Address{{Prefix: netip.MustParsePrefix("10.0.0.1/24")}}},
			{Index: 3, Name: "eth0.5", Type: 1, Kind: "vlan", Parent: 2, Flags: link.FlagUp,
				Addresses: []link.Address{{Prefix: netip.MustParsePrefix("fd00::5/64")}}},
			{Index: 4, Name: "ib0", Type: link.ARPHRDInfiniBand, Kind: "ipoib", IPoIB: &link.IPoIB{PKey: 0xffff}, IBDevice: "mlx5_1", Port: 1},
			{Index: 5, Name: "ib0.8001", Type: link.ARPHRDInfiniBand, Kind: "ipoib", IPoIB: &link.IPoIB{PKey: 0x8001},
				Parent: 4, IBDevice: "mlx5_1", Port: 1},
			{Index: 6, Name: "lan0", Type: 1},
		}}
}

func gid(index int, address, netdev string) roce.GID {
	return roce.GID{Index: index, GID: ib.GID(netip.MustParseAddr(address).As16()), Version: 2, Netdev: netdev}
}

// Which links have a file, with which GID index, and which tables are read again.
func TestTexts(t *testing.T) {
	old := time.Unix(0, 0)
	v4, vlan := gid(3, "10.0.0.1", "eth0"), gid(5, "fd00::5", "eth0.5")
	for _, tt := range []struct {
		name  string
		gids  []roce.GID
		alter func(*link.Snapshot)
		now   time.Time
		want  map[string]string // GID index by link
		late  []int
	}{
		{name: "just seen", gids: []roce.GID{v4}, now: old, want: map[string]string{"eth0": "3", "ib0": "none"}, late: []int{2, 3}},
		{name: "settled", gids: []roce.GID{v4}, now: old.Add(gidSettle), want: map[string]string{"eth0": "3", "ib0": "none"}},
		{name: "the VLAN has its own", gids: []roce.GID{v4, vlan}, now: old.Add(gidSettle),
			want: map[string]string{"eth0": "3", "eth0.5": "5", "ib0": "none"}},
		{name: "not entered yet", gids: []roce.GID{vlan}, now: old.Add(gidSettle),
			want: map[string]string{"eth0": "none", "eth0.5": "5", "ib0": "none"}, late: []int{2}},
		{name: "down", gids: []roce.GID{vlan}, now: old.Add(gidSettle), alter: func(s *link.Snapshot) { s.Links[0].Flags = 0 },
			want: map[string]string{"eth0": "none", "eth0.5": "5", "ib0": "none"}},
		{name: "another address", gids: []roce.GID{v4}, now: old.Add(gidSettle), alter: func(s *link.Snapshot) {
			s.Links[0].Addresses = []link.Address{{Prefix: netip.MustParsePrefix("10.0.0.1/8")}}
		}, want: map[string]string{"eth0": "3", "ib0": "none"}, late: []int{2}},
		{name: "iWARP", now: old.Add(gidSettle), want: map[string]string{"ib0": "none"}},
		{name: "no state of cards", now: old.Add(gidSettle), alter: func(s *link.Snapshot) { s.Card = nil },
			want: map[string]string{"ib0": "none"}},
		{name: "a name that is no file's", now: old.Add(gidSettle), alter: func(s *link.Snapshot) { s.Links[2].Name = "../ib0" },
			want: map[string]string{}},
	} {
		settle := settling{}
		if tt.now != old {
			texts(daemon.View{Snapshot: host(v4)}, settle, old, nil)
		}
		s := host(tt.gids...)
		if tt.alter != nil {
			tt.alter(s)
		}
		got := texts(daemon.View{Snapshot: s}, settle, tt.now, nil)
		index := map[string]string{}
		for name, text := range got.texts {
			index[name] = gidIndex(text)
		}
		if l := slices.Sorted(maps.Keys(got.late)); !maps.Equal(index, tt.want) || !slices.Equal(l, tt.late) {
			t.Errorf("%s: %v, late %v, want %v, late %v", tt.name, index, l, tt.want, tt.late)
		}
	}
}

// An address that is on its way back to the index that its unit asks for leaves the
// file as it is, for a second: a job that starts then is not to use another GID.
func TestIndexOnItsWay(t *testing.T) {
	u := &units.Unit{}
	u.RoCE.GIDIndex = units.Some(3)
	old := time.Unix(0, 0)
	other := gid(5, "fe80::1", "eth0")
	for _, tt := range []struct {
		name string
		unit *units.Unit
		wait time.Duration
		want string
	}{
		{"OK on its way", u, 0, "3"},
		{"OK without GIDIndex=", nil, 0, "none"},
		{"bad it does not come back", u, gidSettle, "none"},
	} {
		settle := settling{}
		view := func(gids ...roce.GID) daemon.View {
			return daemon.View{Snapshot: host(gids...), Governing: link.Governing{Links: map[int]link.Governed{2: {Unit: tt.unit}}}}
		}
		former := texts(view(gid(3, "10.0.0.1", "eth0"), other), settle, old, nil)
		away := view(other)
		away.Snapshot.Links[0].Addresses = nil
		now := old.Add(time.Minute)
		want := texts(away, settle, now, former.texts)
		if tt.wait > 0 {
			want = texts(away, settle, now.Add(tt.wait), want.texts)
		}
		if got := gidIndex(want.texts["eth0"]); got != tt.want {
			t.Errorf("%s: index %s, want %s", tt.name, got, tt.want)
		}
	}
}

// Files come, change and go with their links; what an earlier run left goes too, and
// a table that settles is read again, with pauses that grow.
func TestFiles(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "links")
	for _, name := range []string{"gone.env", "ib0.env", "other.txt"} {
		testkit.WriteFile(t, filepath.Join(dir, name), "old\n")
	}
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		looks := 0
		f := New(slog.New(slog.NewTextHandler(&log, nil)), dir, func(links map[int]bool) {
			if looks++; !links[2] {
				t.Errorf("reads %v again", links)
			}
		})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- f.Run(ctx) }()
		see := func(what string, want ...string) {
			t.Helper()
			synctest.Wait()
			var got []string
			entries, _ := os.ReadDir(dir)
			for _, e := range entries {
				b, _ := os.ReadFile(filepath.Join(dir, e.Name()))
				got = append(got, e.Name()+" "+gidIndex(string(b)))
			}
			if !slices.Equal(got, want) {
				t.Errorf("%s: %q, want %q", what, got, want)
			}
		}
		f.Update(daemon.View{})
		see("before the first snapshot", "gone.env none", "ib0.env none", "other.txt none")
		f.Update(daemon.View{Snapshot: host(gid(3, "10.0.0.1", "eth0"))})
		see("the first", "eth0.env 3", "ib0.env none", "other.txt none")
		if b, _ := os.ReadFile(filepath.Join(dir, "ib0.env")); !strings.Contains(string(b), "IBNET_RDMA_DEVICE=mlx5_1\n") {
			t.Errorf("of an earlier run: %q", b)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if looks < 5 || looks > 10 {
			t.Errorf("the table is read %d times again", looks)
		}
		looks = 0
		f.Update(daemon.View{Snapshot: host(gid(4, "10.0.0.1", "eth0"))})
		see("another index", "eth0.env 4", "ib0.env none", "other.txt none")
		f.Update(daemon.View{Snapshot: host(gid(4, "10.0.0.1", "eth0"))})
		time.Sleep(time.Minute)
		if synctest.Wait(); looks != 0 {
			t.Errorf("a settled table is read %d times again", looks)
		}
		if !strings.Contains(log.String(), `gid_index="3 -> 4"`) {
			t.Errorf("log: %s", log.String())
		}
		f.Update(daemon.View{Snapshot: &link.Snapshot{}})
		see("no link", "other.txt none")
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// A directory that cannot be made is a warning, and is retried with the next change.
func TestFilesCannotBeWritten(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	testkit.NoError(t, os.WriteFile(file, nil, 0o644))
	var log bytes.Buffer
	f := New(slog.New(slog.NewTextHandler(&log, nil)), filepath.Join(file, "links"), nil)
	written := map[string]string{}
	f.write(written, map[string]string{"ib0": "x"})
	if len(written) != 0 || !strings.Contains(log.String(), "environment files are not written") {
		t.Errorf("wrote %v, log %s", written, log.String())
	}
}
