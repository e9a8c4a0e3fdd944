package rdmanl

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp/cmpopts"

	"ibnetworkd/internal/kernel/kerneltest"
	"ibnetworkd/internal/kernel/nl"
	"ibnetworkd/internal/testkit"
)

// resourceMessages are answers as fill_res_qp_entry and fill_res_cm_id_entry of
// nldev.c make them.
func resourceMessages(t testing.TB) (qps, ids []byte) {
	sockaddr := make([]byte, 128)
	sockaddr[0], sockaddr[4], sockaddr[5], sockaddr[6], sockaddr[7] = 2, 10, 8, 0, 1
	qps = kerneltest.Bytes(t, nl.Build().Uint32(attrDevIndex, 2).String(attrDevName, "rxe0").Nest(attrResQP, func(w *nl.Builder) {
		w.Nest(attrResQPEntry, func(w *nl.Builder) {
			w.Uint32(attrPortIndex, 1).Uint32(attrResLQPN, 1).String(attrResKernName, "ib_core").Uint8(attrResType, qpGSI)
		})
		w.Nest(attrResQPEntry, func(w *nl.Builder) {
			w.Uint32(attrPortIndex, 1).Uint32(attrResLQPN, 17).Uint32(attrResPID, 4711).Uint8(attrResType, 2).Uint8(attrResState, 3)
		})
	}))
	ids = kerneltest.Bytes(t, nl.Build().Uint32(attrDevIndex, 2).Nest(attrResCMID, func(w *nl.Builder) {
		w.Nest(attrResCMIDEntry, func(w *nl.Builder) {
			w.Uint32(attrResPID, 4712).Uint8(attrResState, 10).Raw(attrResSrcAddr, sockaddr)
		})
	}))
	return qps, ids
}

func TestHolders(t *testing.T) {
	qps, ids := resourceMessages(t)
	got, err := decodeHolders(qps, attrResQP, attrResQPEntry)
	testkit.NoError(t, err)
	want := []Holder{{QueuePair: 1, Type: qpGSI, Kernel: "ib_core"}, {QueuePair: 17, Type: 2, State: 3, PID: 4711}}
	testkit.Diff(t, "", want, got, cmpopts.EquateComparable(netip.Addr{}))
	if got, err = decodeHolders(ids, attrResCMID, attrResCMIDEntry); err != nil {
		t.Fatal(err)
	}
	want = []Holder{{State: 10, PID: 4712, Address: netip.MustParseAddr("10.8.0.1")}}
	testkit.Diff(t, "", want, got, cmpopts.EquateComparable(netip.Addr{}))
}

func FuzzHolders(f *testing.F) {
	qps, ids := resourceMessages(f)
	f.Add(qps)
	f.Add(ids)
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, x := range [][2]uint16{{attrResQP, attrResQPEntry}, {attrResCMID, attrResCMIDEntry}} {
			hs, _ := decodeHolders(b, x[0], x[1])
			if len(hs) > len(b)/4 {
				t.Errorf("%d holders in %d bytes", len(hs), len(b))
			}
			for _, h := range hs {
				if h.PID < 0 {
					t.Errorf("%+v", h)
				}
			}
		}
	})
}
