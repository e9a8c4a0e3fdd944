package dcb

import (
	"errors"
	"math/rand/v2"
	"os"
	"testing"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"ibnetworkd/internal/kernel/kerneltest"
	"ibnetworkd/internal/kernel/nl"
	"ibnetworkd/internal/testkit"
)

// kernel keeps what is set and answers as net/dcb/dcbnl.c does: the result of a
// set in a byte of a message, and a positive acknowledgement.
type kernel struct {
	ieee  []byte // the last IEEE attributes that were set
	errno int8
	queue [][]netlink.Message
}

func (k *kernel) SendMessages(ms []netlink.Message) ([]netlink.Message, error) {
	for _, m := range ms {
		if len(m.Data)%4 != 0 {
			return nil, errors.New("not aligned")
		}
		w := nl.Build(0, m.Data[1], 0, 0)
		if m.Header.Type == unix.RTM_SETDCB {
			a := nl.ParseAttrs(m.Data[sizeMsg:])
			for a.Next() {
				if a.Type() == attrIEEE {
					k.ieee = append(k.ieee, a.Bytes()...)
				}
			}
			w.Uint8(attrIEEE, uint8(k.errno))
		} else if m.Data[1] == cmdGetDCBX {
			w.Uint8(attrDCBX, DCBXHost|DCBXIEEE)
		} else {
			w.Raw(attrIEEE|nl.Nested, k.ieee)
		}
		b, err := w.Bytes()
		if err != nil {
			return nil, err
		}
		h := m.Header
		k.queue = append(k.queue, []netlink.Message{{Header: h, Data: b}})
		h.Type = netlink.Error
		k.queue = append(k.queue, []netlink.Message{{Header: h, Data: make([]byte, 4)}})
	}
	return ms, nil
}

func (k *kernel) ReceiveIter() func(yield func(netlink.Message, error) bool) {
	return func(yield func(netlink.Message, error) bool) {
		if len(k.queue) == 0 {
			yield(netlink.Message{}, errors.New("the kernel has nothing to say"))
			return
		}
		ms := k.queue[0]
		k.queue = k.queue[1:]
		for _, m := range ms {
			if !yield(m, nil) {
				return
			}
		}
	}
}

func (*kernel) Close() error { return nil }

func TestRoundTrip(t *testing.T) {
	k := &kernel{}
	c := New(nl.NewConn(k))
	r := rand.New(rand.NewPCG(5, 6))
	bytes := func() (b [TCs]uint8) {
		for i := range b {
			b[i] = uint8(r.Uint32())
		}
		return b
	}
	tsa := [TCs]TSA{Strict, ETS, VendorTSA, CBShaper}
	ets := ETSConfig{Willing: true, Cap: 8, TxBW: bytes(), RxBW: bytes(), TSA: tsa, PrioTC: bytes(), RecoBW: bytes(), RecoTSA: tsa,
		RecoPrioTC: bytes()}
	pfc := PFCConfig{Cap: 8, Enabled: 0x28, MBC: true, Delay: 700, Requests: [TCs]uint64{1, 2}, Indications: [TCs]uint64{7: 9}}
	buffer := BufferConfig{PrioBuffer: bytes(), Size: [TCs]uint32{1, 2, 3, 4, 5, 6, 7, 1 << 30}, Total: 99}
	dcbx := DCBXHost | DCBXIEEE
	apps := []App{{DSCP, 3, 26}, {DSCP, 6, 48}, {PCP, 3, 3}}
	for _, err := range []error{c.SetETS("eth0", ets), c.SetPFC("eth0", pfc), c.SetBuffer("eth0", buffer), c.AddApps("eth0", apps...),
		c.SetTrust("eth0", DSCP, PCP)} {
		if err != nil {
			t.Error(err)
		}
	}
	got, err := c.Get("eth0")
	testkit.NoError(t, err)
	want := State{ETS: &ets, PFC: &pfc, Buffer: &buffer, Apps: apps, Trust: []Selector{DSCP, PCP}, DCBX: &dcbx}
	testkit.Diff(t, "", want, got)
}

func TestRefusalInsideTheAnswer(t *testing.T) {
	errno := unix.EINVAL
	err := New(nl.NewConn(&kernel{errno: -int8(errno)})).SetPFC("eth0", PFCConfig{})
	if !errors.Is(err, unix.EINVAL) || err.Error() != "set PFC of eth0: invalid argument" {
		t.Errorf("got %v", err)
	}
}

func FuzzDecode(f *testing.F) {
	for _, r := range []nl.Request{etsRequest("e", ETSConfig{}), pfcRequest("e", PFCConfig{}), bufferRequest("e", BufferConfig{}),
		appsRequest("add", cmdIEEESet, "e", []App{{DSCP, 1, 2}}), trustRequest("e", []Selector{DSCP}), dcbxRequest("e", 1)} {
		f.Add(r.Data)
	}
	if b, err := os.ReadFile("testdata/ieee.bin"); err == nil {
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var s State
		_ = decodeState(b, &s)
		decodeEvent(unix.RTM_SETDCB, b, func(Event) {})
		if len(s.Apps) > len(b)/4 || len(s.Trust) > len(b)/4 {
			t.Errorf("%d and %d entries out of %d bytes", len(s.Apps), len(s.Trust), len(b))
		}
	})
}

func TestRecorded(t *testing.T) {
	kerneltest.Golden(t, "ieee", func(b []byte) (s State, err error) { err = decodeState(b, &s); return s, err })
}
