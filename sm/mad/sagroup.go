package mad

import "ibnetworkd/ib"

// Join states of MCMemberRecord, as bits.
const (
	JoinFull           uint8 = 1
	JoinNon            uint8 = 2
	JoinSendOnlyFull   uint8 = 8
	ScopeLinkLocal     uint8 = 2
	MCMemberRecordBare       = 52 // bytes without padding
)

// MCMemberRecord is IBTA 15.2.5.17.
type MCMemberRecord struct {
	MGID        ib.GID
	PortGID     ib.GID
	QKey        ib.QKey
	MLID        ib.LID
	MTUSel      Selector
	MTU         ib.MTU
	TClass      uint8
	PKey        ib.PKey
	RateSel     Selector
	Rate        ib.Rate
	LifeTimeSel Selector
	LifeTime    uint8
	SL          ib.SL
	FlowLabel   uint32 // 20 bits
	HopLimit    uint8
	Scope       uint8 // 4 bits
	JoinState   uint8 // 4 bits
	ProxyJoin   bool
}

// Components of MCMemberRecord.
const (
	CompMCMGID CompMask = 1 << iota
	CompMCPortGID
	CompMCQKey
	CompMCMLID
	CompMCMTUSel
	CompMCMTU
	CompMCTClass
	CompMCPKey
	CompMCRateSel
	CompMCRate
	CompMCLifeTimeSel
	CompMCLifeTime
	CompMCSL
	CompMCFlowLabel
	CompMCHopLimit
	CompMCScope
	CompMCJoinState
	CompMCProxyJoin
)

func (r *MCMemberRecord) Append(b []byte) []byte {
	b = append(b, r.MGID[:]...)
	b = append(b, r.PortGID[:]...)
	b = be.AppendUint32(b, uint32(r.QKey))
	b = be.AppendUint16(b, uint16(r.MLID))
	b = append(b, sel(r.MTUSel, uint8(r.MTU)), r.TClass)
	b = be.AppendUint16(b, uint16(r.PKey))
	b = append(b, sel(r.RateSel, uint8(r.Rate)), sel(r.LifeTimeSel, r.LifeTime))
	b = be.AppendUint32(b, uint32(r.SL&0xf)<<28|r.FlowLabel&0xfffff<<8|uint32(r.HopLimit))
	return append(b, r.Scope<<4|r.JoinState&0xf, bit(r.ProxyJoin, 7), 0, 0, 0, 0, 0, 0)
}

// Decode reads an MCMemberRecord without its padding.
func (r *MCMemberRecord) Decode(b []byte) error {
	if len(b) < MCMemberRecordBare {
		return ErrShort
	}
	r.MGID, r.PortGID = ib.GID(b[:16]), ib.GID(b[16:32])
	r.QKey = ib.QKey(be.Uint32(b[32:]))
	r.MLID = ib.LID(be.Uint16(b[36:]))
	r.MTUSel, r.MTU, r.TClass = Selector(b[38]>>6), ib.MTU(b[38]&0x3f), b[39]
	r.PKey = ib.PKey(be.Uint16(b[40:]))
	r.RateSel, r.Rate = Selector(b[42]>>6), ib.Rate(b[42]&0x3f)
	r.LifeTimeSel, r.LifeTime = Selector(b[43]>>6), b[43]&0x3f
	v := be.Uint32(b[44:])
	r.SL, r.FlowLabel, r.HopLimit = ib.SL(v>>28), v>>8&0xfffff, uint8(v)
	r.Scope, r.JoinState, r.ProxyJoin = b[48]>>4, b[48]&0xf, b[49]&0x80 != 0
	return nil
}

// ServiceRecord is IBTA 15.2.5.14. Data is the four arrays of 8-, 16-, 32- and
// 64-bit values in wire format, 16 bytes each.
type ServiceRecord struct {
	ServiceID uint64
	GID       ib.GID
	PKey      ib.PKey
	Lease     uint32 // seconds, 0xffffffff: for ever
	Key       [16]byte
	Name      [64]byte
	Data      [64]byte
}

// Components of ServiceRecord. CompSRData<<i is the i-th value of Data: 16 of
// 8 bits, 8 of 16, 4 of 32, 2 of 64.
const (
	CompSRServiceID CompMask = 1 << 0
	CompSRGID       CompMask = 1 << 1
	CompSRPKey      CompMask = 1 << 2
	CompSRLease     CompMask = 1 << 4
	CompSRKey       CompMask = 1 << 5
	CompSRName      CompMask = 1 << 6
	CompSRData      CompMask = 1 << 7
)

// LeaseForever is the lease of a service that never runs out.
const LeaseForever uint32 = 0xffffffff

func (r *ServiceRecord) Append(b []byte) []byte {
	b = be.AppendUint64(b, r.ServiceID)
	b = append(b, r.GID[:]...)
	b = be.AppendUint32(b, uint32(r.PKey)<<16)
	b = be.AppendUint32(b, r.Lease)
	b = append(b, r.Key[:]...)
	b = append(b, r.Name[:]...)
	return append(b, r.Data[:]...)
}

func (r *ServiceRecord) Decode(b []byte) error {
	if len(b) < ServiceRecordLen {
		return ErrShort
	}
	r.ServiceID = be.Uint64(b)
	r.GID = ib.GID(b[8:24])
	r.PKey = ib.PKey(be.Uint16(b[24:]))
	r.Lease = be.Uint32(b[28:])
	r.Key = [16]byte(b[32:48])
	r.Name = [64]byte(b[48:112])
	r.Data = [64]byte(b[112:176])
	return nil
}

// InformInfoRecord is IBTA 15.2.5.12.
type InformInfoRecord struct {
	SubscriberGID ib.GID
	Enum          uint16
	Info          InformInfo
}

// Components of InformInfoRecord.
const (
	CompIIRSubscriberGID CompMask = 1 << 0
	CompIIREnum          CompMask = 1 << 1
)

func (r *InformInfoRecord) Append(b []byte) []byte {
	b = append(b, r.SubscriberGID[:]...)
	b = be.AppendUint64(b, uint64(r.Enum)<<48)
	b = r.Info.Append(b)
	return append(b, 0, 0, 0, 0)
}

// Decode reads an InformInfoRecord without its padding.
func (r *InformInfoRecord) Decode(b []byte) error {
	if len(b) < 24+InformInfoLen {
		return ErrShort
	}
	r.SubscriberGID = ib.GID(b[:16])
	r.Enum = be.Uint16(b[16:])
	return r.Info.Decode(b[24:])
}
