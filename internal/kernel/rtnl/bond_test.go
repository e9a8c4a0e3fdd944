package rtnl

import (
	"slices"
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
	if err := decodeLink(b, &l, &interner{}); err != nil || l.Bond == nil || *l.Bond != (Bond{BondOptions: BondOptions{Mode: 1, MIIMon: 20},
		Active: 4, Primary: 5}) {
		t.Errorf("%+v, %v", l.Bond, err)
	}
}

// What differs is written, what the mode does not have is not, and delays follow the
// interval that they are multiples of.
func TestPutBond(t *testing.T) {
	lacp := BondOptions{Mode: 4, MIIMon: 20, UpDelay: 100, LACPRate: 1}
	for _, tt := range []struct {
		name      string
		has, want BondOptions
		attrs     []uint16
	}{
		{"OK the same", lacp, lacp, nil},
		{"OK LACP", BondOptions{Mode: 4, MIIMon: 20, UpDelay: 100}, lacp, []uint16{iflaBondLACPRate}},
		{"OK LACP of another mode", BondOptions{LACPRate: 1}, BondOptions{MinLinks: 1}, []uint16{iflaBondMinLinks}},
		{"OK the interval", BondOptions{Mode: 4, MIIMon: 50, UpDelay: 100, LACPRate: 1}, lacp,
			[]uint16{iflaBondMIIMon, iflaBondUpDelay, iflaBondDownDelay}},
	} {
		w := nl.Build()
		tt.want.put(w, tt.has)
		b, err := w.Bytes()
		var got []uint16
		for a := nl.ParseAttrs(b); a.Next(); {
			got = append(got, a.Type())
		}
		if err != nil || !slices.Equal(got, tt.attrs) {
			t.Errorf("%s: %v, want %v (%v)", tt.name, got, tt.attrs, err)
		}
	}
}
