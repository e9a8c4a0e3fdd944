package main

import (
	"bytes"
	"context"
	"encoding/json"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"ibnetworkd/cmd/ibnetctl/answer"
	"ibnetworkd/ib"
	"ibnetworkd/internal/testkit"
	"ibnetworkd/link"
	"ibnetworkd/units"
)

// migrating is a host as NetworkManager left it: ib0 in connected mode with an
// address, a route and a P_Key child.
func migrating(t *testing.T) *link.Snapshot {
	hw := ib.MustParseHWAddr("80:00:00:48:fe:80:00:00:00:00:00:00:00:02:c9:03:00:00:00:01")
	flags := link.FlagMulti | link.FlagUp | link.FlagLowerUp
	return &link.Snapshot{Schema: link.SnapshotSchema,
		Devices: []link.Device{{Name: "mlx5_0", NodeGUID: 1, Ports: []link.Port{{
			Num: 1, Layer: ib.LinkLayerInfiniBand, State: ib.PortActive, Phys: ib.PhysLinkUp, GUID: 0x0002c90300000001, LID: 3, SMLID: 1,
			PKeys: []ib.PKey{0xffff, 0x8001},
		}}}},
		Links: []link.Link{
			{Index: 4, Name: "ib0", Type: link.ARPHRDInfiniBand, Kind: "ipoib", Flags: flags, MTU: 65520, MaxMTU: 65520, HWAddr: hw,
				IPoIB:    &link.IPoIB{PKey: 0xffff, Mode: ib.ModeConnected},
				IBDevice: "mlx5_0", Port: 1, OtherManagers: []string{"NetworkManager"},
				Addresses: []link.Address{{Prefix: netip.MustParsePrefix("10.0.0.1/24"), Broadcast: netip.MustParseAddr("10.0.0.255"),
					Label: "ib0", Flags: 0x80, Valid: link.Forever, Preferred: link.Forever}},
				Routes: []link.Route{
					{Dst: netip.MustParsePrefix("10.0.0.0/24"), PrefSrc: netip.MustParseAddr("10.0.0.1"), Table: 254, Type: 1, Scope: 253, Protocol: 2},
					{Dst: netip.MustParsePrefix("10.9.0.0/16"), Gateway: netip.MustParseAddr("10.0.0.9"), Table: 254, Type: 1, Protocol: 3},
				}},
			{Index: 5, Name: "ib0.8001", Type: link.ARPHRDInfiniBand, Kind: "ipoib", Flags: flags, MTU: 2044, MaxMTU: 65520, HWAddr: hw,
				Parent: 4, IPoIB: &link.IPoIB{PKey: 0x8001}, IBDevice: "mlx5_0", Port: 1},
		}}
}

func TestImportCheck(t *testing.T) {
	const (
		ib0   = "DEVICE=ib0\nTYPE=InfiniBand\nCONNECTED_MODE=yes\nMTU=65520\nIPADDR=10.0.0.1\nPREFIX=24\n"
		child = "DEVICE=ib0.8001\nTYPE=InfiniBand\nPKEY=yes\nPKEY_ID=0x8001\nPHYSDEV=ib0\n"
		route = "10.9.0.0/16 via 10.0.0.9\n"
	)
	for _, tt := range []struct {
		name  string
		files map[string]string
		code  int
		want  []string
		not   []string
	}{
		{"same", map[string]string{"ifcfg-ib0": ib0, "ifcfg-ib0.8001": child, "route-ib0": route}, exitOK,
			[]string{"ib0 (10-ib0.ibnetwork): same", "runs: mode connected, mtu 65520, 10.0.0.1/24, route 10.9.0.0/16 via 10.0.0.9",
				"ib0.8001 (10-ib0.8001.ibnetwork): same", "The running system matches"}, []string{"differs", "would do"}},
		{"a route is forgotten", map[string]string{"ifcfg-ib0": ib0, "ifcfg-ib0.8001": child}, exitFailure,
			[]string{"ib0 (10-ib0.ibnetwork): differs", "not in the unit: route 10.9.0.0/16 via 10.0.0.9"}, []string{"would do"}},
		{"another address", map[string]string{"ifcfg-ib0": strings.Replace(ib0, "10.0.0.1", "10.0.0.2", 1), "ifcfg-ib0.8001": child,
			"route-ib0": route}, exitFailure,
			[]string{"would do: ip address add 10.0.0.2/24", "not in the unit: address 10.0.0.1/24"}, nil},
		{"no mode", map[string]string{"ifcfg-ib0": strings.NewReplacer("CONNECTED_MODE=yes\n", "", "MTU=65520\n", "").Replace(ib0),
			"ifcfg-ib0.8001": child, "route-ib0": route}, exitFailure,
			[]string{"not in the unit: mode connected", "not in the unit: mtu 65520"}, nil},
		{"no child", map[string]string{"ifcfg-ib0": ib0, "route-ib0": route}, exitFailure,
			[]string{"not in the unit: P_Key child ib0.8001 (0x8001)", "ib0.8001: no unit applies to it"}, nil},
		{"another link", map[string]string{"ifcfg-ib7": strings.ReplaceAll(ib0, "ib0", "ib7")}, exitFailure,
			[]string{"10-ib7.ibnetwork: matches no link or port of this host", "ib0: no unit applies to it"}, nil},
		{"a child that is not there", map[string]string{"ifcfg-ib0": ib0, "ifcfg-ib0.8001": child, "route-ib0": route,
			"ifcfg-x": strings.NewReplacer("DEVICE=ib0.8001\n", "", "0x8001", "2").Replace(child)}, exitFailure,
			[]string{"would do: ip link add link ib0 name ib0.8002 type ipoib pkey 0x8002", "10-ib0.8002.ibnetwork: matches no link"}, nil},
		{"datagram", map[string]string{"ifcfg-ib0": strings.NewReplacer("CONNECTED_MODE=yes", "CONNECTED_MODE=no", "65520",
			"2044").Replace(ib0), "ifcfg-ib0.8001": child, "route-ib0": route}, exitFailure,
			[]string{"would do:", "datagram"}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			text, err := json.Marshal(capture{Schema: captureSchema, Version: "x", Snapshot: migrating(t), Units: []capturedUnit{}})
			testkit.NoError(t, err)
			from := filepath.Join(dir, "host.json")
			args := []string{"import", "--check", "--from", from}
			testkit.NoError(t, os.WriteFile(from, text, 0o600))
			for n, text := range tt.files {
				p := filepath.Join(dir, n)
				testkit.NoError(t, os.WriteFile(p, []byte(text), 0o600))
				args = append(args, p)
			}
			var out bytes.Buffer
			if code := run(context.Background(), args, strings.NewReader(""), &out, &out); code != tt.code {
				t.Errorf("exit %d, want %d", code, tt.code)
			}
			for _, w := range tt.want {
				if !strings.Contains(out.String(), w) {
					t.Errorf("no %q", w)
				}
			}
			for _, w := range tt.not {
				if strings.Contains(out.String(), w) {
					t.Errorf("%q", w)
				}
			}
			if t.Failed() {
				t.Log(out.String())
			}
			var js, errw bytes.Buffer
			run(context.Background(), append(args, "--json"), strings.NewReader(""), &js, &errw)
			var form answer.Import
			if err := json.Unmarshal(js.Bytes(), &form); err != nil || form.Check == nil || form.Check.Same != (tt.code == exitOK) {
				t.Errorf("%v: %s", err, js.String())
			}
			if files, _ := os.ReadDir(dir); len(files) != len(tt.files)+1 {
				t.Errorf("%d files", len(files))
			}
		})
	}
	t.Run("links without an imported unit", func(t *testing.T) {
		snap := migrating(t)
		names := map[string]bool{"10-ib0.ibnetwork": true}
		m := fstest.MapFS{}
		addText(m, "10-ib0.ibnetwork", "[Match]\nName=ib0\n[IPoIB]\nMode=connected\n[Link]\nMTUBytes=65520\n[Partition]\nPartitionKey=0x8001\n")
		addText(m, "20-other.ibnetwork", "[Match]\nName=ib2\n")
		bare := link.Link{Index: 6, Name: "ib1", Type: link.ARPHRDInfiniBand, Kind: "ipoib", MTU: 2044, MaxMTU: 65520,
			IPoIB: &link.IPoIB{PKey: 0xffff}}
		other := bare
		other.Index, other.Name = 7, "ib2"
		snap.Links = append(snap.Links, bare, other)
		check := func() (*answer.ImportCheck, *system) {
			sys := newSystem(released(snap), units.Load([]units.Root{{Path: units.Dirs[0], FS: m}}), nil)
			return checkImport(sys, names), sys
		}
		before, sys := check()
		if got := governedByOthers(sys, names); len(got) != 1 || !strings.HasPrefix(got[0], "ib2: not compared: 20-other.ibnetwork") {
			t.Error(got)
		}
		snap.Links[2].Addresses = []link.Address{{Prefix: netip.MustParsePrefix("10.5.0.1/24"), Valid: link.Forever}}
		after, _ := check()
		if !before.Same || after.Same || len(after.Unclaimed) != 1 {
			t.Errorf("%+v\n%+v", before, after)
		}
	})
	t.Run("a lease and a VRF", func(t *testing.T) {
		for _, tt := range []struct {
			unit string
			want string // that is not in the unit
		}{
			{"[VRF]\nName=red\nTable=100\n[Network]\nDHCP=ipv4\n[Route]\nDestination=10.9.0.0/16\nGateway=10.0.0.9\n", ""},
			{"[Network]\nVRF=red\nDHCP=ipv4\n[Route]\nDestination=10.9.0.0/16\nGateway=10.0.0.9\n", ""},
			{"[Network]\nVRF=red\nDHCP=ipv4\n", "route 10.9.0.0/16 via 10.0.0.9 table 100"},
		} {
			snap := migrating(t)
			l := &snap.Links[0]
			l.Master, l.Addresses[0].Valid = 9, 3600
			for i := range l.Routes {
				if lasting(l.Routes[i]) {
					l.Routes[i].Table = 100
				}
			}
			snap.Links = append(snap.Links, link.Link{Index: 9, Name: "red", Kind: "vrf", VRF: &link.VRF{Table: 100}, Flags: link.FlagUp})
			m := fstest.MapFS{}
			addText(m, "10-ib0.ibnetwork", "[Match]\nName=ib0\n[IPoIB]\nMode=connected\n[Link]\nMTUBytes=65520\n[Partition]\nPartitionKey=0x8001\n"+
				tt.unit)
			sys := newSystem(released(snap), units.Load([]units.Root{{Path: units.Dirs[0], FS: m}}), nil)
			c := checkImport(sys, map[string]bool{"10-ib0.ibnetwork": true}).Links[0]
			if got := strings.Join(c.NotInUnit, ", "); got != tt.want || len(c.Steps)+len(c.Blocked) > 0 {
				t.Errorf("%s: not in the unit: %q, want %q; %+v", tt.unit, got, tt.want, c)
			}
		}
	})
	t.Run("leases by family", func(t *testing.T) {
		const four, six, link6 = "10.0.0.1/24", "fd00::1/128", "fe80::2c9:300:0:1/64"
		for _, tt := range []struct {
			unit, address string
			want          string // that the unit cannot have, or is not in it
		}{
			{"DHCP=ipv4\n", four, ""},
			{"DHCP=ipv4\n", six, "the DHCP client begins when the link is ready"},
			{"DHCP=ipv6\n", six, ""},
			{"DHCP=ipv6\n", four, "the DHCPv6 client begins"},
			{"DHCP=ipv6\n[DHCPv6]\nWithoutRA=no\n[IPv6AcceptRA]\nDHCPv6Client=no\n", six, "no DHCPv6 client ever runs"},
			{"DHCP=ipv4\n[DHCPv4]\nRouteMetric=100\n", four, "metric 150 of the default route of DHCP"},
		} {
			snap := migrating(t)
			l := &snap.Links[0]
			l.Addresses = []link.Address{{Prefix: netip.MustParsePrefix(tt.address), Label: "ib0", Flags: 0x80, Valid: 3600, Preferred: 3600},
				{Prefix: netip.MustParsePrefix(link6), Flags: 0x80, Valid: link.Forever, Preferred: link.Forever, Scope: 253}}
			l.Routes = []link.Route{{Dst: netip.MustParsePrefix("0.0.0.0/0"), Gateway: netip.MustParseAddr("10.0.0.254"), Table: 254, Type: 1,
				Protocol: 16, Metric: 150}}
			unit := tt.unit
			if !strings.Contains(unit, "RouteMetric") {
				unit += "[DHCPv4]\nRouteMetric=150\n"
			}
			m := fstest.MapFS{}
			addText(m, "10-ib0.ibnetwork", "[Match]\nName=ib0\n[IPoIB]\nMode=connected\n[Link]\nMTUBytes=65520\n[Partition]\nPartitionKey=0x8001\n"+
				"[Network]\n"+unit)
			sys := newSystem(released(snap), units.Load([]units.Root{{Path: units.Dirs[0], FS: m}}), nil)
			c := checkImport(sys, map[string]bool{"10-ib0.ibnetwork": true}).Links[0]
			got := strings.Join(c.NotInUnit, ", ")
			for _, b := range c.Blocked {
				got += b.Reason.Text
			}
			if len(c.Steps) > 0 || (tt.want == "") != (got == "") || !strings.Contains(got, tt.want) {
				t.Errorf("%s with %s: %q, want %q; %+v", tt.unit, tt.address, got, tt.want, c)
			}
		}
	})
	for _, args := range [][]string{{"--check", "--write", "x"}, {"--from", "x", "x"}, {"--check", "--root", t.TempDir(), "x"}} {
		var out bytes.Buffer
		if code := run(context.Background(), append([]string{"import"}, args...), strings.NewReader(""), &out, &out); code != exitUsage {
			t.Errorf("%q: exit %d: %s", args, code, out.String())
		}
	}
}
