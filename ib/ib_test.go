package ib

import (
	"bytes"
	"testing"
)

func TestParseGUID(t *testing.T) {
	const want = GUID(0x0002c903000abcde)
	for _, c := range []struct {
		name, in string
		want     GUID
		bad      bool
	}{
		{"OK ibstat", "0x0002c903000abcde", want, false},
		{"OK short", "0x2c903000abcde", want, false},
		{"OK upper case", "0X0002C903000ABCDE", want, false},
		{"OK sysfs", "0002:c903:000a:bcde", want, false},
		{"OK ip link", "00:02:c9:03:00:0a:bc:de", want, false},
		{"OK hyphens", "00-02-c9-03-00-0a-bc-de", want, false},
		{"OK dots", "0002.c903.000a.bcde", want, false},
		{"OK bare digits", "0002c903000abcde", want, false},
		{"bad empty", "", 0, true},
		{"bad only prefix", "0x", 0, true},
		{"bad 17 digits", "0x10002c903000abcde", 0, true},
		{"bad digit", "0x0002c903000abcdg", 0, true},
		{"bad six bytes", "00:02:c9:03:00:0a", 0, true},
		{"bad mixed separators", "00:02-c9:03:00:0a:bc:de", 0, true},
		{"bad group", "000:2:c903:000a:bcde", 0, true},
		{"bad trailing separator", "0002:c903:000a:bcde:", 0, true},
		{"bad half byte", "00:02:c9:03:00:0a:bc:d", 0, true},
	} {
		got, err := ParseGUID(c.in)
		if (err != nil) != c.bad || got != c.want {
			t.Errorf("%s: ParseGUID(%q) = %v, %v", c.name, c.in, got, err)
		}
	}
	if s := want.String(); s != "0x0002c903000abcde" {
		t.Errorf("String: %s", s)
	}
	if s := want.Colons(); s != "0002:c903:000a:bcde" {
		t.Errorf("Colons: %s", s)
	}
	if b := want.Bytes(); !bytes.Equal(b[:], []byte{0, 2, 0xc9, 3, 0, 0xa, 0xbc, 0xde}) {
		t.Errorf("Bytes: % x", b)
	}
}

func TestHWAddr(t *testing.T) {
	a, err := ParseHWAddr("80:00:00:48:fe:80:00:00:00:00:00:00:00:02:c9:03:00:0a:bc:df")
	if err != nil {
		t.Fatal(err)
	}
	if !a.IsIPoIB() || !a.SupportsConnected() || a.QPN() != 0x48 || a.GUID() != 0x0002c903000abcdf || a.GID().Prefix() != DefaultPrefix {
		t.Errorf("%v: IPoIB %v, connected %v, QPN %#x, GUID %v, GID %v", a, a.IsIPoIB(), a.SupportsConnected(), a.QPN(), a.GUID(), a.GID())
	}
	enhanced, err := ParseHWAddr("00:00:00:48:fe:80:00:00:00:00:00:00:00:02:c9:03:00:0a:bc:df")
	if err != nil || enhanced.SupportsConnected() {
		t.Errorf("an address without the RC flag offers connected mode (%v)", err)
	}
	eth, err := ParseHWAddr("0c42.a100.0001")
	if err != nil || eth.Len() != 6 || eth.GUID() != 0 || eth.SupportsConnected() || eth.String() != "0c:42:a1:00:00:01" {
		t.Errorf("%v %v", eth, err)
	}
	for _, bad := range []string{"", "00", "00:01:02:03:04", "00:01:02:03:04:05:06", "zz:01:02:03:04:05"} {
		if a, err := ParseHWAddr(bad); err == nil {
			t.Errorf("ParseHWAddr(%q) = %v", bad, a)
		}
	}
	var none HWAddr
	if err := none.UnmarshalText(nil); err != nil || none.IsValid() || none.String() != "" {
		t.Errorf("no address: %v %q", err, none)
	}
}

func TestPKey(t *testing.T) {
	for _, c := range []struct {
		a, b PKey
		want bool
	}{
		{0x8001, 0x8001, true},
		{0x8001, 0x0001, true},
		{0x0001, 0x0001, false}, // two limited members
		{0x8001, 0x8002, false},
		{0x8000, 0x8000, false}, // no partition
		{0x0000, 0x8000, false},
	} {
		if got := c.a.Matches(c.b); got != c.want || c.b.Matches(c.a) != got {
			t.Errorf("%v and %v: %v", c.a, c.b, got)
		}
	}
	if k, err := ParsePKey("32769"); err != nil || k != 0x8001 || k.String() != "0x8001" || !k.Full() || k.Base() != 1 {
		t.Errorf("%v %v", k, err)
	}
	for _, bad := range []string{"", "0x10000", "65536", "-1", "ffff", "0xzz"} {
		if k, err := ParsePKey(bad); err == nil {
			t.Errorf("ParsePKey(%q) = %v", bad, k)
		}
	}
}

func TestMTUAndRate(t *testing.T) {
	for m, want := range map[MTU][2]int{MTU256: {256, 252}, MTU2048: {2048, 2044}, MTU4096: {4096, 4092}, 0: {0, 0}, 6: {0, 0}} {
		if m.Bytes() != want[0] || m.IPoIBDatagram() != want[1] {
			t.Errorf("MTU %d: %d bytes, datagram %d, want %v", uint8(m), m.Bytes(), m.IPoIBDatagram(), want)
		}
	}
	for m := MTU256; m <= MTU4096; m++ {
		if MTUFromBytes(m.Bytes()) != m {
			t.Errorf("MTU %d does not come back", m)
		}
	}
	for r := Rate(0); r < 64; r++ {
		if !r.IsValid() {
			continue
		}
		if RateFromTenths(r.Tenths()) != r || RateAtMost(r.Tenths()) != r || !RateAtMost(r.Tenths()-1).Less(r) {
			t.Errorf("rate %d (%v) does not come back", uint8(r), r)
		}
	}
	if RateAtMost(24) != 0 || Rate(16).String() != "100 Gb/s" || Rate(2).String() != "2.5 Gb/s" {
		t.Errorf("%v %v %v", RateAtMost(24), Rate(16), Rate(2))
	}
}

func TestStates(t *testing.T) {
	for in, want := range map[string]PortState{"2: INIT": PortInit, "4: ACTIVE": PortActive, "Initializing": PortInit,
		"active": PortActive, "1: DOWN": PortDown} {
		if got, err := ParsePortState(in); err != nil || got != want {
			t.Errorf("%q: %v, %v", in, got, err)
		}
	}
	for in, want := range map[string]PhysState{"5: LinkUp": PhysLinkUp, "2: Polling": PhysPolling, "linkup": PhysLinkUp,
		"PortConfigurationTraining": PhysTraining} {
		if got, err := ParsePhysState(in); err != nil || got != want {
			t.Errorf("%q: %v, %v", in, got, err)
		}
	}
	for _, bad := range []string{"on", "-1: X", "256: X"} {
		if _, err := ParsePortState(bad); err == nil {
			t.Errorf("port state %q was taken", bad)
		}
		if _, err := ParsePhysState(bad); err == nil {
			t.Errorf("physical state %q was taken", bad)
		}
	}
	for s := PortState(0); s <= PortActiveDefer; s++ {
		if got, err := ParsePortState(s.String()); err != nil || got != s {
			t.Errorf("%v does not come back: %v %v", s, got, err)
		}
	}
	for l := LinkLayerUnspecified; l <= LinkLayerEthernet; l++ {
		if got, err := ParseLinkLayer(l.String()); err != nil || got != l {
			t.Errorf("%v does not come back: %v %v", l, got, err)
		}
	}
}

// What parses prints, and what is printed parses to the same.
func FuzzParse(f *testing.F) {
	for _, s := range []string{"0x0002c903000abcde", "0002:c903:000a:bcde", "fe80::2:c903:a:bcdf",
		"80:00:00:48:fe:80:00:00:00:00:00:00:00:02:c9:03:00:0a:bc:df", "32769", "0x8001", "2: INIT", "5: LinkUp", "::", "..", "00:"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if g, err := ParseGUID(s); err == nil {
			for _, form := range []string{g.String(), g.Colons()} {
				if again, err := ParseGUID(form); err != nil || again != g {
					t.Errorf("GUID %q: %v, %v", form, again, err)
				}
			}
		}
		if g, err := ParseGID(s); err == nil {
			if again, err := ParseGID(g.String()); err != nil || again != g || MakeGID(g.Prefix(), g.GUID()) != g {
				t.Errorf("GID %v: %v, %v", g, again, err)
			}
		}
		if a, err := ParseHWAddr(s); err == nil {
			if again, err := ParseHWAddr(a.String()); err != nil || again != a {
				t.Errorf("address %v: %v, %v", a, again, err)
			}
		}
		if k, err := ParsePKey(s); err == nil {
			if again, err := ParsePKey(k.String()); err != nil || again != k {
				t.Errorf("P_Key %v: %v, %v", k, again, err)
			}
		}
		_, _ = ParsePortState(s)
		_, _ = ParsePhysState(s)
		_, _ = ParseLinkLayer(s)
	})
}
