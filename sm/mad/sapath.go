package mad

import "ibnetworkd/ib"

// Selector is the relation of a path to a requested MTU, rate or life time (2 bits).
type Selector uint8

// The selectors.
const (
	SelGreater Selector = 0
	SelLess    Selector = 1
	SelExact   Selector = 2
	SelBest    Selector = 3
)

// PathRecord is IBTA 15.2.5.16.
type PathRecord struct {
	ServiceID   uint64
	DGID        ib.GID
	SGID        ib.GID
	DLID        ib.LID
	SLID        ib.LID
	RawTraffic  bool
	FlowLabel   uint32 // 20 bits
	HopLimit    uint8
	TClass      uint8
	Reversible  bool
	NumbPath    uint8 // 7 bits
	PKey        ib.PKey
	QoSClass    uint16 // 12 bits
	SL          ib.SL
	MTUSel      Selector
	MTU         ib.MTU
	RateSel     Selector
	Rate        ib.Rate
	LifeTimeSel Selector
	LifeTime    uint8 // 6 bits: 4.096 us * 2^n
	Preference  uint8
}

// Components of PathRecord.
const (
	CompPRServiceIDMSB CompMask = 1 << iota
	CompPRServiceIDLSB
	CompPRDGID
	CompPRSGID
	CompPRDLID
	CompPRSLID
	CompPRRawTraffic
	_
	CompPRFlowLabel
	CompPRHopLimit
	CompPRTClass
	CompPRReversible
	CompPRNumbPath
	CompPRPKey
	CompPRQoSClass
	CompPRSL
	CompPRMTUSel
	CompPRMTU
	CompPRRateSel
	CompPRRate
	CompPRLifeTimeSel
	CompPRLifeTime
	CompPRPreference

	CompPRServiceID = CompPRServiceIDMSB | CompPRServiceIDLSB
)

func (r *PathRecord) Append(b []byte) []byte {
	b = be.AppendUint64(b, r.ServiceID)
	b = append(b, r.DGID[:]...)
	b = append(b, r.SGID[:]...)
	b = be.AppendUint16(b, uint16(r.DLID))
	b = be.AppendUint16(b, uint16(r.SLID))
	b = be.AppendUint32(b, uint32(bit(r.RawTraffic, 7))<<24|r.FlowLabel&0xfffff<<8|uint32(r.HopLimit))
	b = append(b, r.TClass, bit(r.Reversible, 7)|r.NumbPath&0x7f)
	b = be.AppendUint16(b, uint16(r.PKey))
	b = be.AppendUint16(b, r.QoSClass<<4|uint16(r.SL&0xf))
	return append(b, sel(r.MTUSel, uint8(r.MTU)), sel(r.RateSel, uint8(r.Rate)), sel(r.LifeTimeSel, r.LifeTime),
		r.Preference, 0, 0, 0, 0, 0, 0)
}

func sel(s Selector, v uint8) uint8 { return uint8(s)<<6 | v&0x3f }

func (r *PathRecord) Decode(b []byte) error {
	if len(b) < PathRecordLen {
		return ErrShort
	}
	b = b[:PathRecordLen]
	r.ServiceID = be.Uint64(b)
	r.DGID, r.SGID = ib.GID(b[8:24]), ib.GID(b[24:40])
	r.DLID, r.SLID = ib.LID(be.Uint16(b[40:])), ib.LID(be.Uint16(b[42:]))
	v := be.Uint32(b[44:])
	r.RawTraffic, r.FlowLabel, r.HopLimit = v>>31 != 0, v>>8&0xfffff, uint8(v)
	r.TClass, r.Reversible, r.NumbPath = b[48], b[49]&0x80 != 0, b[49]&0x7f
	r.PKey = ib.PKey(be.Uint16(b[50:]))
	q := be.Uint16(b[52:])
	r.QoSClass, r.SL = q>>4, ib.SL(q&0xf)
	r.MTUSel, r.MTU = Selector(b[54]>>6), ib.MTU(b[54]&0x3f)
	r.RateSel, r.Rate = Selector(b[55]>>6), ib.Rate(b[55]&0x3f)
	r.LifeTimeSel, r.LifeTime, r.Preference = Selector(b[56]>>6), b[56]&0x3f, b[57]
	return nil
}

// MultiPathRecord is the request of IBTA 15.2.5.20; the answers are
// PathRecords.
type MultiPathRecord struct {
	RawTraffic   bool
	FlowLabel    uint32
	HopLimit     uint8
	TClass       uint8
	Reversible   bool
	NumbPath     uint8
	PKey         ib.PKey
	QoSClass     uint16
	SL           ib.SL
	MTUSel       Selector
	MTU          ib.MTU
	RateSel      Selector
	Rate         ib.Rate
	LifeTimeSel  Selector
	LifeTime     uint8
	ServiceID    uint64
	Independence uint8 // 2 bits
	SGIDs, DGIDs []ib.GID
}

// Components of MultiPathRecord.
const (
	CompMPRRawTraffic CompMask = 1 << iota
	_
	CompMPRFlowLabel
	CompMPRHopLimit
	CompMPRTClass
	CompMPRReversible
	CompMPRNumbPath
	CompMPRPKey
	CompMPRQoSClass
	CompMPRSL
	CompMPRMTUSel
	CompMPRMTU
	CompMPRRateSel
	CompMPRRate
	CompMPRLifeTimeSel
	CompMPRLifeTime
	CompMPRServiceIDMSB
	CompMPRIndependence
	_
	CompMPRSGIDCount
	CompMPRDGIDCount
	CompMPRServiceIDLSB

	CompMPRServiceID = CompMPRServiceIDMSB | CompMPRServiceIDLSB
)

// Append appends the header and the GIDs, at most 255 of each kind.
func (r *MultiPathRecord) Append(b []byte) []byte {
	sg, dg := r.SGIDs[:min(len(r.SGIDs), 255)], r.DGIDs[:min(len(r.DGIDs), 255)]
	b = be.AppendUint32(b, uint32(bit(r.RawTraffic, 7))<<24|r.FlowLabel&0xfffff<<8|uint32(r.HopLimit))
	b = append(b, r.TClass, bit(r.Reversible, 7)|r.NumbPath&0x7f)
	b = be.AppendUint16(b, uint16(r.PKey))
	b = be.AppendUint16(b, r.QoSClass<<4|uint16(r.SL&0xf))
	b = append(b, sel(r.MTUSel, uint8(r.MTU)), sel(r.RateSel, uint8(r.Rate)), sel(r.LifeTimeSel, r.LifeTime),
		uint8(r.ServiceID>>56), r.Independence<<6, uint8(len(sg)), uint8(len(dg)))
	var sid [8]byte
	be.PutUint64(sid[:], r.ServiceID)
	b = append(b, sid[1:]...)
	for _, g := range sg {
		b = append(b, g[:]...)
	}
	for _, g := range dg {
		b = append(b, g[:]...)
	}
	return b
}

// Decode reads the header and the GIDs that it announces; at most 510 are
// allocated. It fails with ErrShort when b is too short for them.
func (r *MultiPathRecord) Decode(b []byte) error {
	if len(b) < MultiPathHeaderLen {
		return ErrShort
	}
	v := be.Uint32(b)
	r.RawTraffic, r.FlowLabel, r.HopLimit = v>>31 != 0, v>>8&0xfffff, uint8(v)
	r.TClass, r.Reversible, r.NumbPath = b[4], b[5]&0x80 != 0, b[5]&0x7f
	r.PKey = ib.PKey(be.Uint16(b[6:]))
	q := be.Uint16(b[8:])
	r.QoSClass, r.SL = q>>4, ib.SL(q&0xf)
	r.MTUSel, r.MTU = Selector(b[10]>>6), ib.MTU(b[10]&0x3f)
	r.RateSel, r.Rate = Selector(b[11]>>6), ib.Rate(b[11]&0x3f)
	r.LifeTimeSel, r.LifeTime = Selector(b[12]>>6), b[12]&0x3f
	r.ServiceID = uint64(b[13])<<56 | be.Uint64(b[16:])&(1<<56-1)
	r.Independence = b[14] >> 6
	ns, nd := int(b[15]), int(b[16])
	if len(b) < MultiPathHeaderLen+16*(ns+nd) {
		return ErrShort
	}
	r.SGIDs, r.DGIDs = make([]ib.GID, ns), make([]ib.GID, nd)
	b = b[MultiPathHeaderLen:]
	for i := range r.SGIDs {
		r.SGIDs[i] = ib.GID(b[16*i:])
	}
	b = b[16*ns:]
	for i := range r.DGIDs {
		r.DGIDs[i] = ib.GID(b[16*i:])
	}
	return nil
}
