package explain

import (
	"ibnetworkd/ib"
	"ibnetworkd/sm/mad"
	"ibnetworkd/sm/pkey"
	"ibnetworkd/sm/sa"
)

// PathRequest is the request for the PathRecord from one LID to another.
func PathRequest(slid, dlid ib.LID, tid uint32) []byte {
	h := mad.NewSA(mad.MethodGet, mad.AttrPathRecord, tid, mad.CompPRSLID|mad.CompPRDLID)
	rec := mad.PathRecord{SLID: slid, DLID: dlid}
	return rec.Append(h.Append(nil))
}

// Record is the PathRecord that the subnet administrator gives of the tables;
// false when it has none, as for ports that share no partition.
func (r *Routes) Record(slid, dlid ib.LID) (rec mad.PathRecord, ok bool) {
	s := sa.New(sa.Config{})
	s.SetState(0, sa.State{Fabric: r.Fabric, LFT: r.LFT, SL: r.SL, PKeys: r.Keys, Groups: r.Groups})
	reply, _ := s.Handle(0, sa.Request{LID: slid, MAD: PathRequest(slid, dlid, 1)})
	return ReadRecord(reply.MAD)
}

// ReadRecord reads the answer to PathRequest.
func ReadRecord(b []byte) (rec mad.PathRecord, ok bool) {
	var h mad.SAHeader
	if h.Decode(b) != nil || h.Status != 0 || h.Attr != mad.AttrPathRecord || len(b) < mad.SADataOffset+mad.PathRecordLen {
		return rec, false
	}
	return rec, rec.Decode(b[mad.SADataOffset:]) == nil && rec.DLID != 0
}

// Partition is one that two ports share.
type Partition struct {
	Key  ib.PKey // without the membership bit
	A, B bool    // full membership
}

// Usable reports whether the two may talk: one is a full member.
func (p Partition) Usable() bool { return p.A || p.B }

// Partitions are those of both ports, in the order of the first one's table.
func (r *Routes) Partitions(a, b int32) (out []Partition) {
	for _, x := range r.keys(a) {
		for _, y := range r.keys(b) {
			if x.IsValid() && x.Base() == y.Base() {
				out = append(out, Partition{x.Base(), x.Full(), y.Full()})
				break
			}
		}
	}
	return out
}

func (r *Routes) keys(port int32) []ib.PKey {
	if int(port) < len(r.Keys) && r.Keys[port] != nil {
		return r.Keys[port]
	}
	return pkey.PowerOn
}
