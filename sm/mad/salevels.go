package mad

import "ibnetworkd/ib"

// PathLevelsRecord has service levels from a switch to others, by the places that these
// have among the records with Block 0, from which a standby learns the levels in force.
type PathLevelsRecord struct {
	Switch ib.GUID // of the node
	Block  uint16  // of PathLevelsBlock switches
	Place  uint16  // in the order of up/down, from 1; 0: there is none
	Trunk  uint8   // the port towards the root of the tree of multicast, with HasTrunk
	// HasLevels is not set where all paths have level 0; there is block 0 alone then.
	HasLevels, HasTrunk bool
	// Drained is set in a record that says only that routes avoid the switch.
	Drained bool
	Levels  [PathLevelsBlock]uint8 // 0 to 15
}

// PathLevelsBlock is the number of levels in a record.
const PathLevelsBlock = 128

func (r *PathLevelsRecord) Append(b []byte) []byte {
	b = be.AppendUint64(b, uint64(r.Switch))
	b = be.AppendUint16(b, r.Block)
	b = be.AppendUint16(b, r.Place)
	flags := byte(0)
	if r.HasLevels {
		flags |= 1
	}
	if r.HasTrunk {
		flags |= 2
	}
	if r.Drained {
		flags |= 4
	}
	b = append(b, r.Trunk, flags, 0, 0)
	for i := 0; i < PathLevelsBlock; i += 2 {
		b = append(b, r.Levels[i]<<4|r.Levels[i+1]&15)
	}
	return b
}

func (r *PathLevelsRecord) Decode(b []byte) error {
	if len(b) < PathLevelsRecordLen {
		return ErrShort
	}
	*r = PathLevelsRecord{Switch: ib.GUID(be.Uint64(b)), Block: be.Uint16(b[8:]), Place: be.Uint16(b[10:]), Trunk: b[12],
		HasLevels: b[13]&1 != 0, HasTrunk: b[13]&2 != 0, Drained: b[13]&4 != 0}
	for i := range r.Levels {
		r.Levels[i] = b[16+i/2] >> (4 - i%2*4) & 15
	}
	return nil
}
