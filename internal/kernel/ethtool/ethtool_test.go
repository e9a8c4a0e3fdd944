package ethtool

import (
	"testing"

	"golang.org/x/sys/unix"

	"ibnetworkd/internal/kernel/kerneltest"
	"ibnetworkd/internal/kernel/nl"
	"ibnetworkd/internal/testkit"
)

// message is an answer of the kernel.
func message(t testing.TB, cmd uint8, f func(*nl.Builder)) []byte {
	t.Helper()
	w := nl.Build(cmd, version, 0, 0).Nest(attrHeader|nl.Nested, func(w *nl.Builder) {
		w.Uint32(unix.ETHTOOL_A_HEADER_DEV_INDEX, 7).String(unix.ETHTOOL_A_HEADER_DEV_NAME, "eth7")
	})
	f(w)
	return kerneltest.Bytes(t, w)
}

func coalesce(w *nl.Builder) {
	w.Uint32(unix.ETHTOOL_A_COALESCE_RX_USECS, 20).Uint8(unix.ETHTOOL_A_COALESCE_USE_ADAPTIVE_RX, 1)
}

func TestDecode(t *testing.T) {
	v, err := decode(message(t, unix.ETHTOOL_MSG_COALESCE_GET_REPLY, coalesce))
	testkit.NoError(t, err)
	testkit.Diff(t, "", Values{unix.ETHTOOL_A_COALESCE_RX_USECS: 20, unix.ETHTOOL_A_COALESCE_USE_ADAPTIVE_RX: 1}, v)
	kerneltest.Golden(t, "", decode)
}

// What is set is in the order of the attributes, each with the size that the kernel's
// policy has for it.
func TestSet(t *testing.T) {
	c := &Conn{&nl.Family{ID: 20}}
	r := c.Set(7, Coalesce, Values{unix.ETHTOOL_A_COALESCE_USE_ADAPTIVE_RX: 1, unix.ETHTOOL_A_COALESCE_RX_USECS: 20})
	w := nl.Build(unix.ETHTOOL_MSG_COALESCE_SET, version, 0, 0).Nest(attrHeader|nl.Nested, func(w *nl.Builder) {
		w.Uint32(unix.ETHTOOL_A_HEADER_DEV_INDEX, 7)
	})
	coalesce(w)
	want, err := w.Bytes()
	if err != nil || r.Err != nil || r.Type != 20 {
		t.Fatal(err, r)
	}
	testkit.Diff(t, "", want, r.Data)
}

func TestEvents(t *testing.T) {
	var got []Event
	for _, cmd := range []uint8{unix.ETHTOOL_MSG_RINGS_NTF, unix.ETHTOOL_MSG_CHANNELS_NTF, unix.ETHTOOL_MSG_COALESCE_NTF,
		unix.ETHTOOL_MSG_WOL_NTF} {
		decodeEvent(0, message(t, cmd, func(*nl.Builder) {}), func(e Event) { got = append(got, e) })
	}
	testkit.Diff(t, "", []Event{{7}, {7}, {7}}, got)
}

func FuzzDecode(f *testing.F) {
	f.Add(message(f, unix.ETHTOOL_MSG_COALESCE_GET_REPLY, coalesce))
	f.Fuzz(func(t *testing.T, b []byte) {
		if v, _ := decode(b); len(v) > maxAttr || len(v) > len(b)/4 {
			t.Errorf("%d values out of %d bytes", len(v), len(b))
		}
		n := 0
		decodeEvent(0, b, func(Event) { n++ })
		if n > 1 {
			t.Errorf("%d events out of one message", n)
		}
	})
}
