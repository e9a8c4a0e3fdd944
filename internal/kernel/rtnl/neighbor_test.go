package rtnl

import (
	"net/netip"
	"testing"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"ibnetworkd/ib"
	"ibnetworkd/internal/kernel/kerneltest"
	"ibnetworkd/internal/kernel/nl"
	"ibnetworkd/internal/testkit"
)

func TestNeighborBytes(t *testing.T) {
	a := ib.MustParseHWAddr(hwaddr)
	ip := netip.MustParseAddr("10.0.0.2")
	n := Neighbor{Index: 7, IP: ip, Address: a}
	for name, tt := range map[string]struct {
		r    Request
		typ  uint16
		fl   netlink.HeaderFlags
		want []byte
	}{
		"OK ip neighbour replace": {SetNeighbor(n), unix.RTM_NEWNEIGH, netlink.Create | netlink.Replace, build(t, sizeNdMsg, func(h []byte) {
			h[0] = unix.AF_INET
			ne.PutUint32(h[4:], 7)
			ne.PutUint16(h[8:], unix.NUD_PERMANENT)
		}, func(w *nl.Builder) { w.Raw(unix.NDA_DST, ip.AsSlice()).Raw(unix.NDA_LLADDR, a.Bytes()) })},
		"OK ip neighbour delete": {DelNeighbor(n), unix.RTM_DELNEIGH, 0, build(t, sizeNdMsg, func(h []byte) {
			h[0] = unix.AF_INET
			ne.PutUint32(h[4:], 7)
		}, func(w *nl.Builder) { w.Raw(unix.NDA_DST, ip.AsSlice()) })},
	} {
		if tt.r.Err != nil || tt.r.Type != tt.typ || tt.r.Flags != tt.fl {
			t.Errorf("%s: type %d flags %#x error %v", name, tt.r.Type, tt.r.Flags, tt.r.Err)
		}
		testkit.Diff(t, name, tt.want, tt.r.Data)
	}
	if r := SetNeighbor(Neighbor{Index: 7}); r.Err == nil {
		t.Error("a neighbour without an address is sent")
	}
}

func TestRecordedNeighbors(t *testing.T) { kerneltest.Golden(t, "neigh", decodeNeighbor) }

func FuzzDecodeNeighbor(f *testing.F) {
	a := ib.MustParseHWAddr(hwaddr)
	f.Add(SetNeighbor(Neighbor{Index: 7, IP: netip.MustParseAddr("fd00::1"), Address: a}).Data)
	seeds(f, "neigh")
	f.Fuzz(func(t *testing.T, b []byte) {
		n, err := decodeNeighbor(b)
		if err != nil || !n.IP.IsValid() {
			return
		}
		// What was understood can be asked for again.
		again, err := decodeNeighbor(SetNeighbor(n).Data)
		if n.State = unix.NUD_PERMANENT; err != nil || again != n {
			t.Errorf("%+v becomes %+v, %v", n, again, err)
		}
	})
}
