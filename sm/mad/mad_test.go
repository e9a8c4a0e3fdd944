package mad

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ibnetworkd/ib"
	"ibnetworkd/internal/testkit"
)

// codec is what every attribute and record is.
type codec interface {
	Append([]byte) []byte
	Decode([]byte) error
}

// layouts is every fixed layout with its wire length.
var layouts = []struct {
	name string
	len  int
	make func() codec
}{
	{"NodeDescription", 64, func() codec { return new(NodeDescription) }},
	{"NodeInfo", NodeInfoLen, func() codec { return new(NodeInfo) }},
	{"SwitchInfo", SwitchInfoLen, func() codec { return new(SwitchInfo) }},
	{"GUIDInfo", 64, func() codec { return new(GUIDInfo) }},
	{"PortInfo", PortInfoLen, func() codec { return new(PortInfo) }},
	{"PKeyBlock", 64, func() codec { return new(PKeyBlock) }},
	{"SLtoVL", SLtoVLLen, func() codec { return new(SLtoVL) }},
	{"VLArbBlock", 64, func() codec { return new(VLArbBlock) }},
	{"LFTBlock", 64, func() codec { return new(LFTBlock) }},
	{"MFTBlock", 64, func() codec { return new(MFTBlock) }},
	{"SMInfo", SMInfoLen, func() codec { return new(SMInfo) }},
	{"Notice", NoticeLen, func() codec { return new(Notice) }},
	{"InformInfo", InformInfoLen, func() codec { return new(InformInfo) }},
	{"ClassPortInfo", ClassPortInfoLen, func() codec { return new(ClassPortInfo) }},
	{"SAHeader", SADataOffset, func() codec { return new(SAHeader) }},
	{"NodeRecord", NodeRecordLen, func() codec { return new(NodeRecord) }},
	{"PortInfoRecord", PortInfoRecordLen, func() codec { return new(PortInfoRecord) }},
	{"SLtoVLRecord", SLtoVLRecordLen, func() codec { return new(SLtoVLRecord) }},
	{"SwitchInfoRecord", SwitchInfoRecordLen, func() codec { return new(SwitchInfoRecord) }},
	{"LFTRecord", LFTRecordLen, func() codec { return new(LFTRecord) }},
	{"MFTRecord", MFTRecordLen, func() codec { return new(MFTRecord) }},
	{"SMInfoRecord", SMInfoRecordLen, func() codec { return new(SMInfoRecord) }},
	{"LinkRecord", LinkRecordLen, func() codec { return new(LinkRecord) }},
	{"GUIDInfoRecord", GUIDInfoRecordLen, func() codec { return new(GUIDInfoRecord) }},
	{"PKeyTableRecord", PKeyTableRecordLen, func() codec { return new(PKeyTableRecord) }},
	{"VLArbRecord", VLArbRecordLen, func() codec { return new(VLArbRecord) }},
	{"PathRecord", PathRecordLen, func() codec { return new(PathRecord) }},
	{"MCMemberRecord", MCMemberRecordLen, func() codec { return new(MCMemberRecord) }},
	{"ServiceRecord", ServiceRecordLen, func() codec { return new(ServiceRecord) }},
	{"InformInfoRecord", InformInfoRecordLen, func() codec { return new(InformInfoRecord) }},
	{"PathLevelsRecord", PathLevelsRecordLen, func() codec { return new(PathLevelsRecord) }},
	{"PortCounters", PortCountersLen, func() codec { return new(PortCounters) }},
	{"PortCountersExt", PortCountersExtLen, func() codec { return new(PortCountersExt) }},
}

// TestRoundTrip: what was decoded from random bytes is a value that survives
// encoding and decoding, and the bytes survive but for reserved fields.
func TestRoundTrip(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for _, l := range layouts {
		t.Run(l.name, func(t *testing.T) {
			for range 200 {
				in := make([]byte, l.len)
				for i := range in {
					in[i] = byte(rnd.Uint32())
				}
				a, b := l.make(), l.make()
				testkit.NoError(t, a.Decode(in))
				out := a.Append(nil)
				if len(out) != l.len {
					t.Fatalf("Append gives %d bytes, want %d", len(out), l.len)
				}
				testkit.NoError(t, b.Decode(out))
				if d := cmp.Diff(a, b, cmp.AllowUnexported(PortInfo{}, SwitchInfo{})); d != "" {
					t.Fatalf("value changed (-first +second):\n%s", d)
				}
				if again := b.Append(nil); !bytes.Equal(out, again) {
					t.Fatalf("bytes changed\n%x\n%x", out, again)
				}
				for i := range out {
					if out[i]&^in[i] != 0 && l.name != "InformInfo" && l.name != "InformInfoRecord" {
						t.Fatalf("byte %d: %02x became %02x: a field moved", i, in[i], out[i])
					}
				}
			}
			// The padding of a table is not part of the record.
			if err := l.make().Decode(make([]byte, l.len-8)); err == nil && l.len > 8 && l.name != "Notice" {
				t.Error("Decode took 8 bytes less than the layout has")
			}
			if err := l.make().Decode(nil); err == nil {
				t.Error("Decode took nothing")
			}
		})
	}
}

// TestEveryBitOnce: setting one bit on the wire changes the value, or the bit
// is reserved; two bits never make the same value.
func TestEveryBitOnce(t *testing.T) {
	reserved := map[string]int{ // bits that belong to no field
		"NodeInfo": 0, "SwitchInfo": 0, "PortInfo": 0, "SMInfo": 0, "PathRecord": 3 + 48,
		"MCMemberRecord": 7 + 16 + 32, "LinkRecord": 16, "NodeRecord": 16 + 32, "GUIDInfo": 0, "LFTBlock": 0, "VLArbBlock": 4 * 32,
	}
	for _, l := range layouts {
		want, ok := reserved[l.name]
		if !ok {
			continue
		}
		zero := l.make()
		_ = zero.Decode(make([]byte, l.len))
		none := 0
		for i := range l.len * 8 {
			in := make([]byte, l.len)
			in[i/8] = 0x80 >> (i % 8)
			a := l.make()
			_ = a.Decode(in)
			out := a.Append(nil)
			if bytes.Equal(out, zero.Append(nil)) {
				none++
			} else if !bytes.Equal(out, in) {
				t.Errorf("%s: bit %d comes back as %x", l.name, i, out)
			}
		}
		if none != want {
			t.Errorf("%s: %d bits belong to no field, want %d", l.name, none, want)
		}
	}
}

func TestSMP(t *testing.T) {
	s := SMP{
		Header: Header{BaseVersion: BaseVer, Class: ClassSubnDR, ClassVersion: SMPClassV, Method: MethodGet, HopCount: 3, TID: 77,
			Attr: AttrPortInfo, Mod: 3},
		MKey: 0x1122334455667788, DrSLID: ib.LIDPermissive, DrDLID: ib.LIDPermissive,
		Data: [64]byte{0: 1, 63: 2}, Initial: [64]byte{0, 1, 20, 7},
	}
	var b, c Buf
	s.Put(&b)
	PutDR(&c, MethodGet, AttrPortInfo, 3, 77, s.MKey, []uint8{1, 20, 7}, s.Data[:])
	if b != c {
		t.Errorf("PutDR and SMP.Put differ\n%x\n%x", b, c)
	}
	var r SMP
	r.Decode(&b)
	if d := cmp.Diff(s, r); d != "" {
		t.Errorf("-put +decoded:\n%s", d)
	}
	testkit.Diff(t, "", []uint8{1, 20, 7}, r.Path())
	// A route of more hops than fit is cut, not written over what follows.
	long := bytes.Repeat([]byte{9}, 64)
	PutDR(&c, MethodGet, AttrPortInfo, 3, 77, s.MKey, long, s.Data[:])
	if r.Decode(&c); int(r.HopCount) != MaxHops || !bytes.Equal(r.Path(), long[:MaxHops]) || r.Return != [64]byte{} {
		t.Errorf("a route of 64 hops: %d, %v, back %v", r.HopCount, r.Path(), r.Return)
	}
	// A hop count beyond the entries does not make Path read past them.
	r.HopCount = 255
	if n := len(r.Path()); n != MaxHops {
		t.Errorf("Path has %d entries", n)
	}
}

func TestNoAllocation(t *testing.T) {
	var b Buf
	var s SMP
	var pi PortInfo
	n := testing.AllocsPerRun(100, func() {
		s.Decode(&b)
		_ = pi.Decode(s.Data[:])
		pi.Append(s.Data[:0])
		s.Put(&b)
	})
	if n != 0 {
		t.Errorf("%v allocations for an SMP", n)
	}
}

func TestNoticeDetails(t *testing.T) {
	var n Notice
	v := MKeyViolation{LID: 5, DrSLID: 6, Method: MethodSet, Attr: AttrPortInfo, Mod: 7, MKey: 8, DR: true, HopCount: 3}
	v.ReturnPath[1] = 9
	n.SetDetailMKeyViolation(v)
	testkit.Diff(t, "", v, n.DetailMKeyViolation())
	for _, trap := range []uint16{TrapBadPKey, TrapBadQKey, TrapSwitchBadPKey} {
		n.TrapNumber = trap
		k := KeyViolation{LID1: 1, LID2: 2, Key: 0x8001, SL: 3, QP1: 4, QP2: 5}
		k.GID1[15], k.GID2[0] = 6, 7
		if trap == TrapSwitchBadPKey {
			k.DataValid, k.SwitchLID, k.Port = 0xc000, 9, 10
		}
		n.SetDetailKeyViolation(k)
		testkit.Diff(t, "", k, n.DetailKeyViolation())
	}
	c := CapChange{LID: 1, LocalChanges: true, CapMask: 2, Flags: ChangeNodeDescription, CapMask2: 3}
	n.SetDetailCapChange(c)
	testkit.Diff(t, "", c, n.DetailCapChange())
	n.SetDetailPort(12, 3)
	if l, p := n.DetailPort(); l != 12 || p != 3 {
		t.Error(l, p)
	}
	n.SetDetailSysImageGUID(12, 34)
	if l, g := n.DetailSysImageGUID(); l != 12 || g != 34 {
		t.Error(l, g)
	}
}
