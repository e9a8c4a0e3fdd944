package devlink

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"ibnetworkd/internal/kernel/nl"
)

func ptr[T any](v T) *T { return &v }

func must(t testing.TB, w *nl.Builder) []byte {
	t.Helper()
	b, err := w.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

const bdf = "0000:03:00.0"

func portMessage(t testing.TB, cmd uint8) []byte {
	return must(t, handle(cmd, "pci", bdf).Uint32(attrPortIndex, 2).Uint16(attrPortType, uint16(TypeIB)).Uint16(attrPortDesiredType, uint16(TypeAuto)).
		String(attrIBDevName, "mlx4_0").Uint16(attrPortFlavour, 0).Uint32(attrPortNumber, 2))
}

func infoMessage(t testing.TB) []byte {
	return must(t, handle(cmdInfoGet, "pci", bdf).String(attrDriverName, "mlx5_core").String(attrSerial, "MT1").
		Nest(attrVersionFixed|nl.Nested, func(w *nl.Builder) { w.String(attrVersionName, "fw.psid").String(attrVersionValue, "MT_0000000012") }).
		Nest(attrVersionRunning|nl.Nested, func(w *nl.Builder) { w.String(attrVersionName, "fw.version").String(attrVersionValue, "16.35") }).
		Nest(attrVersionStored|nl.Nested, func(w *nl.Builder) { w.String(attrVersionName, "fw.version").String(attrVersionValue, "16.36") }))
}

func paramMessage(t testing.TB, on bool) []byte {
	return must(t, handle(cmdParamGet, "pci", bdf).Nest(attrParam|nl.Nested, func(w *nl.Builder) {
		w.String(attrParamName, EnableRoCE).Uint8(attrParamType, typeFlag)
		w.Nest(attrParamValues|nl.Nested, func(w *nl.Builder) {
			w.Nest(attrParamValue|nl.Nested, func(w *nl.Builder) {
				w.Uint8(attrParamCMode, uint8(DriverInit))
				if on {
					w.Flag(attrParamData)
				}
			})
		})
	}))
}

func TestDecode(t *testing.T) {
	p, err := decodePort(portMessage(t, cmdPortGet))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(Port{Bus: "pci", Dev: bdf, Index: 2, Type: TypeIB, Desired: TypeAuto, IBDev: "mlx4_0", Number: ptr(uint32(2))}, p); diff != "" {
		t.Errorf("port (-want +got):\n%s", diff)
	}
	in, err := decodeInfo(infoMessage(t))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(Info{Driver: "mlx5_core", Serial: "MT1", Fixed: map[string]string{"fw.psid": "MT_0000000012"},
		Running: map[string]string{"fw.version": "16.35"}, Stored: map[string]string{"fw.version": "16.36"}}, in); diff != "" {
		t.Errorf("info (-want +got):\n%s", diff)
	}
	for _, on := range []bool{true, false} {
		vs, err := decodeBoolParam(paramMessage(t, on))
		if diff := cmp.Diff(map[CMode]bool{DriverInit: on}, vs); diff != "" || err != nil {
			t.Errorf("parameter: %v (-want +got):\n%s", err, diff)
		}
	}
}

func TestEvents(t *testing.T) {
	var got []Event
	for _, cmd := range []uint8{cmdPortNew, cmdPortDel, cmdNew, cmdDel, cmdParamNew, cmdPortGet} {
		decodeEvent(0, portMessage(t, cmd), func(e Event) { got = append(got, e) })
	}
	e := Event{Bus: "pci", Dev: bdf, Port: 2}
	with := func(f func(*Event)) Event { e := e; f(&e); return e }
	want := []Event{
		with(func(e *Event) { e.IsPort = true }), with(func(e *Event) { e.IsPort, e.Gone = true, true }),
		e, with(func(e *Event) { e.Gone = true }), with(func(e *Event) { e.Param = true }),
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func FuzzDecode(f *testing.F) {
	f.Add(portMessage(f, cmdPortNew))
	f.Add(infoMessage(f))
	f.Add(paramMessage(f, true))
	f.Fuzz(func(t *testing.T, b []byte) {
		_, _ = decodeDevice(b)
		_, _ = decodePort(b)
		if in, err := decodeInfo(b); err == nil && len(in.Fixed)+len(in.Running)+len(in.Stored) > len(b)/4 {
			t.Errorf("%+v out of %d bytes", in, len(b))
		}
		_, _ = decodeBoolParam(b)
		decodeEvent(0, b, func(Event) {})
	})
}
