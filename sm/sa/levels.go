package sa

import (
	"errors"
	"slices"

	"ibnetworkd/ib"
	"ibnetworkd/sm/mad"
	"ibnetworkd/sm/route"
)

// Levels are the service levels of paths in force, and what those of the next tables
// begin from.
type Levels struct {
	SL    route.Layers // by index of At; nil: all are 0
	At    []ib.GUID    // node GUIDs of switches, at last of some that are gone
	Trunk []uint8      // route.Result.Trunk, by index of At without those; nil for none
	Order []ib.GUID    // route.Result.Order
	// Drained are switches that routes avoid, whether they are in the fabric or not.
	Drained []ib.GUID
}

func (l *Levels) equal(o *Levels) bool {
	return slices.Equal(l.At, o.At) && slices.Equal(l.Trunk, o.Trunk) && slices.Equal(l.Order, o.Order) &&
		slices.Equal(l.Drained, o.Drained) &&
		slices.EqualFunc(l.SL, o.SL, func(a, b []uint8) bool { return slices.Equal(a, b) })
}

// SetLevels replaces the service levels, before tables are written that need them. The
// fabric and all else stay until SetState.
func (s *Service) SetLevels(l Levels) {
	if s.f != nil {
		s.state.SL = l.SL.Carry(l.At, s.f)
	}
	if !l.equal(&s.levels) {
		s.levels = l
		s.touch()
	}
}

// pathLevels gives a standby the levels in force.
func (q *query) pathLevels() mad.Status {
	if !q.trusted {
		return mad.StatusSAReqInvalid
	}
	l := &q.levels
	place := make(map[ib.GUID]int, len(l.Order))
	for i, g := range l.Order {
		place[g] = i + 1
	}
	for i, g := range l.At {
		r := mad.PathLevelsRecord{Switch: g, Place: uint16(place[g]), HasLevels: l.SL != nil, HasTrunk: i < len(l.Trunk)}
		if r.HasTrunk {
			r.Trunk = l.Trunk[i]
		}
		for first := 0; first < len(l.At) && !q.full; first += mad.PathLevelsBlock {
			r.Block, r.Levels = uint16(first/mad.PathLevelsBlock), [mad.PathLevelsBlock]uint8{}
			if r.HasLevels {
				copy(r.Levels[:], l.SL[i][first:])
			}
			q.out = r.Append(q.out)
			q.took()
			if !r.HasLevels {
				break
			}
		}
	}
	for _, g := range l.Drained {
		r := mad.PathLevelsRecord{Switch: g, Drained: true}
		q.out = r.Append(q.out)
		q.took()
	}
	return mad.StatusOK
}

var errLevels = errors.New("the service levels of paths are incomplete")

// parseLevels reads what pathLevels gave.
func parseLevels(records []mad.PathLevelsRecord) (l Levels, err error) {
	first := slices.IndexFunc(records, func(r mad.PathLevelsRecord) bool { return r.Drained })
	if first >= 0 {
		for i := range records[first:] {
			if r := &records[first+i]; !r.Drained || r.Switch == 0 || i > 0 && r.Switch <= records[first+i-1].Switch {
				return Levels{}, errLevels
			}
			l.Drained = append(l.Drained, records[first+i].Switch)
		}
		records = records[:first]
	}
	if len(records) == 0 {
		return l, nil
	}
	known, places := map[ib.GUID]bool{}, map[uint16]ib.GUID{}
	for i := range records {
		r := &records[i]
		if r.Block != 0 {
			continue
		}
		if known[r.Switch] || r.HasLevels != records[0].HasLevels || r.HasTrunk && len(l.Trunk) != len(l.At) {
			return Levels{}, errLevels
		}
		known[r.Switch] = true
		if l.At = append(l.At, r.Switch); r.HasTrunk {
			l.Trunk = append(l.Trunk, r.Trunk)
		}
		if r.Place != 0 {
			places[r.Place] = r.Switch
		}
	}
	for i := range places {
		if int(i) > len(places) {
			return Levels{}, errLevels
		}
	}
	for i := range len(places) {
		l.Order = append(l.Order, places[uint16(i+1)])
	}
	n, blocks := len(l.At), 1
	if records[0].HasLevels {
		blocks = (n + mad.PathLevelsBlock - 1) / mad.PathLevelsBlock
	}
	if len(records) != n*blocks {
		return Levels{}, errLevels
	}
	for i := range records {
		r, sw := &records[i], i/blocks
		if r.Switch != l.At[sw] || int(r.Block) != i%blocks {
			return Levels{}, errLevels
		}
		if r.HasLevels {
			if r.Block == 0 {
				l.SL = append(l.SL, make([]uint8, n))
			}
			copy(l.SL[sw][i%blocks*mad.PathLevelsBlock:], r.Levels[:])
		}
	}
	return l, nil
}
