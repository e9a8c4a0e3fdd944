package rtnl

import (
	"errors"
	"net/netip"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jsimonetti/rtnetlink/v2"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"ibnetworkd/ib"
	"ibnetworkd/internal/kernel/kerneltest"
	"ibnetworkd/internal/kernel/nl"
	ipoib "ibnetworkd/internal/kernel/rtnl/ipoib"
	"ibnetworkd/internal/testkit"
)

// build is a message with a header of n bytes that f fills.
func build(t testing.TB, n int, head func(h []byte), f func(*nl.Builder)) []byte {
	t.Helper()
	h := make([]byte, n)
	head(h)
	w := nl.Build(h...)
	f(w)
	return kerneltest.Bytes(t, w)
}

const hwaddr = "80:00:02:08:fe:80:00:00:00:00:00:00:00:02:c9:03:00:0a:bc:df"

// ipoibLink is what a kernel sends of a P_Key child.
func ipoibLink(t testing.TB) []byte {
	addr := ib.MustParseHWAddr(hwaddr)
	return build(t, sizeIfInfo, func(h []byte) {
		ne.PutUint16(h[2:], unix.ARPHRD_INFINIBAND)
		ne.PutUint32(h[4:], 7)
		ne.PutUint32(h[8:], unix.IFF_UP|unix.IFF_MULTICAST)
	}, func(w *nl.Builder) {
		w.String(unix.IFLA_IFNAME, "ib0.8001").Raw(unix.IFLA_ADDRESS, addr.Bytes()).Raw(unix.IFLA_PERM_ADDRESS, addr.Bytes())
		w.Uint32(unix.IFLA_MTU, 2044).Uint32(unix.IFLA_LINK, 5).Uint32(unix.IFLA_MAX_MTU, 65520).Uint32(unix.IFLA_MIN_MTU, 0)
		w.String(unix.IFLA_PARENT_DEV_NAME, "0000:3b:00.0").String(unix.IFLA_PARENT_DEV_BUS_NAME, "pci")
		w.Uint8(unix.IFLA_OPERSTATE, 2).Uint8(unix.IFLA_CARRIER, 0).Uint32(unix.IFLA_CARRIER_DOWN_COUNT, 3)
		w.Nest(unix.IFLA_LINKINFO, func(w *nl.Builder) {
			w.String(iflaInfoKind, "ipoib")
			w.Nest(iflaInfoData, func(w *nl.Builder) {
				w.Uint16(unix.IFLA_IPOIB_PKEY, 0x8001).Uint16(unix.IFLA_IPOIB_MODE, 1).Uint16(unix.IFLA_IPOIB_UMCAST, 1)
			})
		})
		w.Nest(unix.IFLA_AF_SPEC, func(w *nl.Builder) {
			w.Nest(unix.AF_INET6, func(w *nl.Builder) {
				w.Uint32(iflaInet6Flags, 0x80000070).Raw(iflaInet6Token, netip.MustParseAddr("::1a:2b").AsSlice())
			})
		})
		w.Nest(unix.IFLA_PROP_LIST|nl.Nested, func(w *nl.Builder) { w.String(unix.IFLA_ALT_IFNAME, "ibs3") })
		w.Uint32(unix.IFLA_NUM_VF, 2)
		w.Nest(unix.IFLA_VFINFO_LIST, func(w *nl.Builder) {
			for vf := range uint32(2) {
				w.Nest(unix.IFLA_VF_INFO, func(w *nl.Builder) {
					g := make([]byte, 16)
					ne.PutUint32(g, vf)
					ne.PutUint64(g[8:], 0x0002c903000abc00+uint64(vf))
					w.Raw(unix.IFLA_VF_IB_NODE_GUID, g)
					ne.PutUint64(g[8:], 0x0002c903000abc10+uint64(vf))
					w.Raw(unix.IFLA_VF_IB_PORT_GUID, g)
					w.Raw(unix.IFLA_VF_LINK_STATE, append(ne.AppendUint32(nil, vf), ne.AppendUint32(nil, uint32(VFDisable))...))
					w.Raw(unix.IFLA_VF_TRUST, append(ne.AppendUint32(nil, vf), 0xff, 0xff, 0xff, 0xff))
					w.Raw(unix.IFLA_VF_RATE, append(ne.AppendUint32(nil, vf), 10, 0, 0, 0, 20, 0, 0, 0))
				})
			}
		})
	})
}

func TestDecodeIPoIBLink(t *testing.T) {
	var got Link
	testkit.NoError(t, decodeLink(ipoibLink(t), &got, &interner{}))
	addr, _ := ib.ParseHWAddr(hwaddr)
	vf := func(i int) VF {
		return VF{
			Index: i, LinkState: new(VFDisable), MinTxRate: 10, MaxTxRate: 20,
			NodeGUID: new(ib.GUID(0x0002c903000abc00 + uint64(i))), PortGUID: new(ib.GUID(0x0002c903000abc10 + uint64(i))),
		}
	}
	want := Link{
		Index: 7, Name: "ib0.8001", AltNames: []string{"ibs3"}, Type: unix.ARPHRD_INFINIBAND, Flags: unix.IFF_UP | unix.IFF_MULTICAST,
		MTU: 2044, MaxMTU: 65520, Kind: "ipoib", Parent: 5, Address: addr, PermAddress: addr, OperState: 2, CarrierDowns: 3,
		RouterFlags: RouterSeen | RouterManaged, Token: netip.MustParseAddr("::1a:2b"),
		ParentDev: "0000:3b:00.0",
		IPoIB:     &IPoIB{PKey: 0x8001, Mode: ib.ModeConnected, UMcast: true},
		VFs:       []VF{vf(0), vf(1)},
	}
	testkit.Diff(t, "", want, got, cmp.Comparer(func(a, b ib.HWAddr) bool { return a == b }),
		cmp.Comparer(func(a, b netip.Addr) bool { return a == b }))
}

// The library decodes the data of registered drivers alone.
func TestMain(m *testing.M) {
	if err := rtnetlink.RegisterDriver(&ipoib.Driver{}); err != nil {
		panic(err)
	}
	m.Run()
}

// The library decodes the fields that both know.
func TestDecodersAgreeWithTheLibrary(t *testing.T) {
	var m rtnetlink.LinkMessage
	testkit.NoError(t, m.UnmarshalBinary(ipoibLink(t)))
	var l Link
	testkit.NoError(t, decodeLink(ipoibLink(t), &l, &interner{}))
	d, ok := m.Attributes.Info.Data.(*ipoib.Driver)
	if !ok {
		t.Fatalf("the library knows the kind as %T", m.Attributes.Info.Data)
	}
	if m.Attributes.Name != l.Name || int(m.Index) != l.Index || m.Attributes.Address.String() != l.Address.String() ||
		int(m.Attributes.MTU) != l.MTU || *d.PKey != l.IPoIB.PKey || *d.Mode != l.IPoIB.Mode || (*d.UMcast != 0) != l.IPoIB.UMcast {
		t.Errorf("library %+v %+v, ours %+v", m, d, l)
	}
}

// golden compares a request with what ip of iproute2 5.0 and later sends.
func TestRequestBytes(t *testing.T) {
	for _, tt := range []struct {
		name string
		r    Request
		typ  uint16
		fl   netlink.HeaderFlags
		want []byte
	}{
		{
			"OK ip token set", SetLink(7, LinkChange{Token: new(netip.MustParseAddr("::1"))}), unix.RTM_NEWLINK, 0,
			build(t, sizeIfInfo, func(h []byte) { ne.PutUint32(h[4:], 7) }, func(w *nl.Builder) {
				w.Nest(unix.IFLA_AF_SPEC, func(w *nl.Builder) {
					w.Nest(unix.AF_INET6, func(w *nl.Builder) { w.Raw(iflaInet6Token, netip.MustParseAddr("::1").AsSlice()) })
				})
			}),
		},
		{
			"OK mode: RTM_NEWLINK without NLM_F_CREATE", SetLink(7, LinkChange{Mode: new(ib.ModeConnected)}), unix.RTM_NEWLINK, 0,
			build(t, sizeIfInfo, func(h []byte) { ne.PutUint32(h[4:], 7) }, func(w *nl.Builder) {
				w.Nest(unix.IFLA_LINKINFO, func(w *nl.Builder) {
					w.String(iflaInfoKind, "ipoib").Nest(iflaInfoData|nl.Nested, func(w *nl.Builder) { w.Uint16(unix.IFLA_IPOIB_MODE, 1) })
				})
			}),
		},
		{
			"OK child", NewIPoIBChild(IPoIBChild{Parent: 5, Name: "ib0.8001", PKey: 0x8001}), unix.RTM_NEWLINK, netlink.Create | netlink.Excl,
			build(t, sizeIfInfo, func([]byte) {}, func(w *nl.Builder) {
				w.String(unix.IFLA_IFNAME, "ib0.8001").Uint32(unix.IFLA_LINK, 5)
				w.Nest(unix.IFLA_LINKINFO, func(w *nl.Builder) {
					w.String(iflaInfoKind, "ipoib").Nest(iflaInfoData|nl.Nested, func(w *nl.Builder) { w.Uint16(unix.IFLA_IPOIB_PKEY, 0x8001) })
				})
			}),
		},
		{
			"OK up", SetLink(7, LinkChange{Up: new(true)}), unix.RTM_NEWLINK, 0,
			build(t, sizeIfInfo, func(h []byte) { ne.PutUint32(h[4:], 7); h[8], h[12] = 1, 1 }, func(*nl.Builder) {}),
		},
		{
			"OK GUID of a virtual function, host order in 16 bytes", SetVF(4, 1, VFChange{NodeGUID: new(ib.GUID(0x0002c903000abcde))}),
			unix.RTM_NEWLINK, 0,
			build(t, sizeIfInfo, func(h []byte) { ne.PutUint32(h[4:], 4) }, func(w *nl.Builder) {
				w.Nest(unix.IFLA_VFINFO_LIST, func(w *nl.Builder) {
					w.Nest(unix.IFLA_VF_INFO, func(w *nl.Builder) {
						b := make([]byte, 16)
						ne.PutUint32(b, 1)
						ne.PutUint64(b[8:], 0x0002c903000abcde)
						w.Raw(unix.IFLA_VF_IB_NODE_GUID, b)
					})
				})
			}),
		},
	} {
		if tt.r.Err != nil || tt.r.Type != tt.typ || tt.r.Flags != tt.fl {
			t.Errorf("%s: type %d flags %#x error %v", tt.name, tt.r.Type, tt.r.Flags, tt.r.Err)
		}
		testkit.Diff(t, tt.name, tt.want, tt.r.Data)
	}
}

func TestBadRequestsAreNotSent(t *testing.T) {
	for name, r := range map[string]Request{
		"bad P_Key 0x0000":      NewIPoIBChild(IPoIBChild{Parent: 5, Name: "x", PKey: 0}),
		"bad P_Key 0x8000":      NewIPoIBChild(IPoIBChild{Parent: 5, Name: "x", PKey: 0x8000}),
		"bad child no parent":   NewIPoIBChild(IPoIBChild{Name: "x", PKey: 0x8001}),
		"bad mode":              SetLink(3, LinkChange{Mode: new(ib.IPoIBMode(7))}),
		"bad address":           AddAddress(Address{Index: 1}),
		"bad rule without kind": AddRule(Rule{}),
	} {
		if r.Err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// seeds adds messages that were recorded from kernels.
func seeds(f *testing.F, prefix string) {
	files, err := filepath.Glob("testdata/" + prefix + "*.bin")
	testkit.NoError(f, err)
	for _, n := range files {
		b := testkit.ReadFile(f, n)
		f.Add(b)
	}
}

func FuzzDecodeLink(f *testing.F) {
	f.Add(ipoibLink(f))
	seeds(f, "link")
	f.Fuzz(func(t *testing.T, b []byte) {
		var l Link
		if err := decodeLink(b, &l, &interner{}); err != nil && !errors.Is(err, errShort) && !errors.Is(err, nl.ErrMalformed) {
			t.Errorf("error %v", err)
		}
		if len(l.AltNames) > len(b)/4 || len(l.VFs) > len(b)/4 {
			t.Errorf("%d names and %d functions out of %d bytes", len(l.AltNames), len(l.VFs), len(b))
		}
	})
}

func FuzzDecodeAddress(f *testing.F) {
	r := AddAddress(Address{Index: 1, Prefix: netip.MustParsePrefix("10.0.0.1/24"), Label: "x", Valid: 5})
	f.Add(r.Data)
	seeds(f, "addr")
	f.Fuzz(func(t *testing.T, b []byte) {
		var a Address
		if err := decodeAddress(b, &a, &interner{}); err == nil && a.Prefix.IsValid() {
			// What was understood can be asked for again.
			if r := AddAddress(a); r.Err != nil {
				t.Errorf("%+v: %v", a, r.Err)
			}
		}
	})
}

func FuzzDecodeRoute(f *testing.F) {
	f.Add(AddRoute(Route{Dst: netip.MustParsePrefix("10.0.0.0/8"), Table: 1000,
		NextHops: []NextHop{{OutIf: 1, Weight: 3, Gateway: netip.MustParseAddr("fe80::1")}}, Metrics: Metrics{MTU: 1400}}).Data)
	seeds(f, "route")
	f.Fuzz(func(t *testing.T, b []byte) {
		var r Route
		if err := decodeRoute(b, &r, &interner{}); err != nil {
			return
		}
		if len(r.NextHops) > len(b)/8 {
			t.Errorf("%d next hops out of %d bytes", len(r.NextHops), len(b))
		}
	})
}

func FuzzDecodeRule(f *testing.F) {
	f.Add(AddRule(Rule{Family: unix.AF_INET, From: netip.MustParsePrefix("10.0.0.0/8"), UID: UIDRange{1, 2, true}}).Data)
	seeds(f, "rule")
	f.Fuzz(func(t *testing.T, b []byte) {
		var r Rule
		if err := decodeRule(b, &r, &interner{}); err != nil && !errors.Is(err, errShort) && !errors.Is(err, nl.ErrMalformed) {
			t.Errorf("error %v", err)
		}
		if len(r.IIF)+len(r.OIF) > len(b) {
			t.Errorf("%+v out of %d bytes", r, len(b))
		}
	})
}

func FuzzDecodeEvent(f *testing.F) {
	f.Add(uint16(unix.RTM_NEWLINK), ipoibLink(f))
	f.Fuzz(func(t *testing.T, typ uint16, b []byte) {
		n := 0
		decodeEvent(typ, b, func(Event) { n++ })
		if n > 1 {
			t.Errorf("%d events out of one message", n)
		}
	})
}

func TestInternerIsBounded(t *testing.T) {
	in := interner{}
	for i := range 3 * maxInterned {
		in.str(ne.AppendUint32(nil, uint32(i)|1<<31))
	}
	if len(in) > maxInterned {
		t.Errorf("%d strings are kept", len(in))
	}
}

func TestRecorded(t *testing.T) {
	in := &interner{}
	kerneltest.Golden(t, "link", func(b []byte) (v Link, err error) { err = decodeLink(b, &v, in); return v, err })
	kerneltest.Golden(t, "addr", func(b []byte) (v Address, err error) { err = decodeAddress(b, &v, in); return v, err })
	kerneltest.Golden(t, "route", func(b []byte) (v Route, err error) { err = decodeRoute(b, &v, in); return v, err })
	kerneltest.Golden(t, "rule", func(b []byte) (v Rule, err error) { err = decodeRule(b, &v, in); return v, err })
}

// question keeps what is asked and answers nothing.
type question struct {
	nl.Socket
	data []byte
}

func (q *question) SendMessages(ms []netlink.Message) ([]netlink.Message, error) {
	q.data = ms[0].Data
	return nil, errors.New("no answer")
}

// A physical function with hundreds of virtual ones answers only a request that does
// not ask for them.
func TestAskForVFs(t *testing.T) {
	for _, vfs := range []bool{false, true} {
		q := &question{}
		c := New(nl.NewConn(q))
		for name, ask := range map[string]func() error{
			"index": func() error { _, err := c.LinkByIndex(4, vfs); return err },
			"name":  func() error { _, err := c.LinkByName("ib0", vfs); return err },
			"all":   func() error { _, err := c.Links(vfs); return err },
		} {
			if ask() == nil {
				t.Error("an answer from nowhere")
			}
			asked := false
			for a := nl.ParseAttrs(q.data[sizeIfInfo:]); a.Next(); {
				asked = asked || a.Type() == unix.IFLA_EXT_MASK && a.Uint32()&rtextFilterVF != 0
			}
			if asked != vfs {
				t.Errorf("by %s: functions asked for %v, want %v", name, asked, vfs)
			}
		}
	}
}
