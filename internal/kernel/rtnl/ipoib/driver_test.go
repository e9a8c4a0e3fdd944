package ipoib

import (
	"encoding/binary"
	"testing"

	"github.com/jsimonetti/rtnetlink/v2"
	"github.com/mdlayher/netlink"

	"ibnetworkd/ib"
	"ibnetworkd/internal/testkit"
)

// The library decodes the data of registered drivers alone.
func TestMain(m *testing.M) {
	if err := rtnetlink.RegisterDriver(&Driver{}); err != nil {
		panic(err)
	}
	m.Run()
}

func message(d *Driver) *rtnetlink.LinkMessage {
	return &rtnetlink.LinkMessage{Index: 3, Attributes: &rtnetlink.LinkAttributes{Name: "ib0", Info: &rtnetlink.LinkInfo{Kind: Kind, Data: d}}}
}

func TestRoundTripThroughTheLibrary(t *testing.T) {
	for name, d := range map[string]*Driver{
		"OK nothing": {},
		"OK key":     {PKey: new(ib.PKey(0x8001))},
		"OK mode":    {Mode: new(ib.ModeConnected)},
		"OK all":     {PKey: new(ib.PKey(0x7fff)), Mode: new(ib.ModeDatagram), UMcast: new(uint16(1))},
	} {
		b, err := message(d).MarshalBinary()
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		var m rtnetlink.LinkMessage
		if err := m.UnmarshalBinary(b); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		testkit.Diff(t, name, rtnetlink.LinkDriver(d), m.Attributes.Info.Data)
	}
}

func TestVerify(t *testing.T) {
	child := func(k ib.PKey, parent uint32) *rtnetlink.LinkMessage {
		m := message(&Driver{PKey: &k})
		m.Index, m.Attributes.Type = 0, parent
		return m
	}
	for name, m := range map[string]*rtnetlink.LinkMessage{
		"bad key 0x0000": child(0, 2),
		"bad key 0x8000": child(0x8000, 2),
		"bad orphan":     child(0x8001, 0),
		"bad mode":       message(&Driver{Mode: new(ib.IPoIBMode(2))}),
		"bad umcast":     message(&Driver{UMcast: new(uint16(2))}),
	} {
		if _, err := m.MarshalBinary(); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if _, err := child(0x0001, 2).MarshalBinary(); err != nil {
		t.Errorf("OK limited key: %v", err)
	}
}

func FuzzDecode(f *testing.F) {
	b, err := message(&Driver{PKey: new(ib.PKey(0x8001)), Mode: new(ib.ModeConnected), UMcast: new(uint16(0))}).MarshalBinary()
	testkit.NoError(f, err)
	f.Add(b[16:])
	f.Add([]byte{8, 0, 1, 0, 1, 128, 0, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		ad, err := netlink.NewAttributeDecoder(b)
		if err != nil {
			return
		}
		ad.ByteOrder = binary.NativeEndian
		var d Driver
		if d.Decode(ad) != nil {
			return
		}
		ae := netlink.NewAttributeEncoder()
		if err := d.Encode(ae); err != nil {
			t.Errorf("what was read cannot be written: %v", err)
		}
	})
}
