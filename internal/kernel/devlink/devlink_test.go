package devlink

import (
	"testing"

	"ibnetworkd/internal/kernel/kerneltest"
	"ibnetworkd/internal/kernel/nl"
)

const bdf = "0000:03:00.0"

func portMessage(t testing.TB, cmd uint8) []byte {
	return kerneltest.Bytes(t, nl.Build(cmd, version, 0, 0).String(attrBusName, "pci").String(attrDevName, bdf).
		Uint32(attrPortIndex, 2).Uint16(attrPortType, uint16(TypeIB)))
}

func TestDecode(t *testing.T) {
	p, err := decodePort(portMessage(t, cmdPortGet))
	if err != nil {
		t.Fatal(err)
	}
	if want := (Port{Bus: "pci", Dev: bdf, Index: 2, Type: TypeIB}); p != want {
		t.Errorf("%+v, want %+v", p, want)
	}
}

func TestEvents(t *testing.T) {
	n := 0
	for _, cmd := range []uint8{cmdPortNew, cmdPortDel, cmdNew, cmdDel, cmdParamNew, cmdPortGet} {
		decodeEvent(0, portMessage(t, cmd), func(Event) { n++ })
	}
	if n != 5 {
		t.Errorf("%d events, want one of each but the answer", n)
	}
}

func FuzzDecode(f *testing.F) {
	f.Add(portMessage(f, cmdPortNew))
	f.Fuzz(func(t *testing.T, b []byte) {
		if p, _ := decodePort(b); len(p.Bus)+len(p.Dev) > len(b) {
			t.Errorf("%+v out of %d bytes", p, len(b))
		}
	})
}
