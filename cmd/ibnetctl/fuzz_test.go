package main

import (
	"encoding/json"
	"net/netip"
	"strings"
	"testing"

	"ibnetworkd/cmd/ibnetctl/diagnose"
	"ibnetworkd/ib"
	"ibnetworkd/internal/testkit"
	"ibnetworkd/link"
	"ibnetworkd/units"
)

// sample is a small captured system.
func sample() capture {
	return capture{Schema: captureSchema, Version: "x", Snapshot: &link.Snapshot{Schema: link.SnapshotSchema,
		Devices: []link.Device{{Name: "mlx5_0", NodeGUID: 2,
			Ports: []link.Port{{Num: 1, Layer: ib.LinkLayerInfiniBand, State: ib.PortActive, Phys: ib.PhysLinkUp, GUID: 3, LID: 1, SMLID: 1,
				PKeys: []ib.PKey{0xffff}}}}},
		Links: []link.Link{{Index: 4, Name: "ib0", Type: link.ARPHRDInfiniBand, Kind: "ipoib", Flags: link.FlagUp | link.FlagLowerUp,
			MTU: 2044, IPoIB: &link.IPoIB{PKey: 0xffff}, IBDevice: "mlx5_0", Port: 1,
			Addresses: []link.Address{{Prefix: netip.MustParsePrefix("10.1.2.3/24"), Valid: link.Forever, Preferred: link.Forever}}}}},
		Units: []capturedUnit{{Path: "/etc/systemd/network/10-ib0.ibnetwork",
			Text: "[Match]\nName=ib0\n[Link]\nMTUBytes=4092\n[Network]\nAddress=10.1.2.3/24\nGateway=10.1.2.254\n"}}}
}

// A capture file comes from another person: whatever it holds, planning and
// diagnosing end, and are the same each time.
func FuzzCapture(f *testing.F) {
	b, err := json.Marshal(sample())
	testkit.NoError(f, err)
	f.Add(b)
	f.Add([]byte("{}"))
	f.Add([]byte(`{"ibnetctl_capture":1,"snapshot":{"schema":1}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		if len(text) > 1<<16 {
			return
		}
		c, err := decodeCapture(text)
		if err != nil {
			return
		}
		rec := c.Record
		if rec == nil {
			rec = &link.Record{}
		}
		judge := func() string {
			s := newSystem(c.Snapshot, units.Load(capturedRoots(c.Units)), rec)
			found := diagnose.Run(diagnose.Input{Snapshot: s.snap, Report: s.report(), Units: s.set, Missing: missing(c.Modules)}, "")
			b, err := json.Marshal([]any{s.describe(""), found})
			testkit.NoError(t, err)
			return string(b)
		}
		if a, b := judge(), judge(); a != b {
			t.Errorf("one time %s\nthe other %s", a, b)
		}
	})
}

// Hidden addresses stay consistent: who was in a prefix still is, and nothing of
// the original is left.
func TestHide(t *testing.T) {
	c := sample()
	c.Snapshot.Host.Facts.Hostname = "db"
	b, err := json.MarshalIndent(c, "", " ")
	testkit.NoError(t, err)
	b, err = hideIn(b, []string{"addresses", "names"}, c.Snapshot)
	testkit.NoError(t, err)
	if strings.Contains(string(b), "10.1.2.") || !strings.Contains(string(b), `"Hostname": "host"`) {
		t.Errorf("not hidden:\n%s", b)
	}
	h, err := decodeCapture(b)
	testkit.NoError(t, err)
	u := units.Load(capturedRoots(h.Units)).Unit("10-ib0")
	if u == nil || len(u.Problems) > 0 || len(u.Addresses) != 1 || len(u.Routes) != 1 {
		t.Fatalf("the hidden unit: %+v", u)
	}
	p := u.Addresses[0].Address.V
	if p != h.Snapshot.Links[0].Addresses[0].Prefix || !p.Contains(u.Routes[0].Gateway.V) {
		t.Errorf("%v, %v and %v do not belong together", p, h.Snapshot.Links[0].Addresses[0].Prefix, u.Routes[0].Gateway.V)
	}
	if _, err := hideIn(b, []string{"everything"}, c.Snapshot); err == nil {
		t.Error("an unknown word was taken")
	}
	// One GUID in all its spellings stays one.
	x := newHider()
	a, bb := x.guids("0x0002c903000abcde"), x.guids("0002:c903:000a:bcde")
	if g1, _ := ib.ParseGUID(a); g1 == 0x0002c903000abcde || g1.Colons() != bb {
		t.Errorf("%s and %s", a, bb)
	}
}
