package rtnl

import (
	"testing"

	"golang.org/x/sys/unix"

	"ibnetworkd/internal/kernel/nl"
)

func TestDecodeBond(t *testing.T) {
	b := build(t, sizeIfInfo, func(h []byte) { ne.PutUint32(h[4:], 9) }, func(w *nl.Builder) {
		w.Nest(unix.IFLA_LINKINFO, func(w *nl.Builder) {
			w.String(iflaInfoKind, "bond")
			w.Nest(iflaInfoData, func(w *nl.Builder) {
				w.Uint8(iflaBondMode, 1).Uint32(iflaBondActiveSlave, 4).Uint32(iflaBondMIIMon, 20).Uint32(iflaBondPrimary, 5)
			})
		})
	})
	var l Link
	if err := decodeLink(b, &l, &interner{}); err != nil || l.Bond == nil || *l.Bond != (Bond{Mode: 1, Active: 4, MIIMon: 20, Primary: 5}) {
		t.Errorf("%+v, %v", l.Bond, err)
	}
}
