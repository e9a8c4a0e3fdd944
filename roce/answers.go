package roce

import "ibnetworkd/units"

// Answers are what the driver of a link was last asked for, and what it made of that.
type Answers map[units.EthtoolParam]answer

type answer struct {
	want uint32
	// have was read after the request, before after one for the same value that
	// preceded it; nil is not known.
	have, before *uint32
}

// Request notes a request that was carried out.
func (as Answers) Request(op SetEthtool) {
	for _, s := range op.Settings {
		a := answer{want: s.N}
		if old := as[s.Param]; old.want == s.N {
			a.before = old.have
		}
		as[s.Param] = a
	}
}

// Read notes a value that was read, and gives the request that the driver answered
// with it; nil where n is no answer that a driver gives.
//
// Outside of the rings it takes the same answer twice: mlx5e_ethtool_set_coalesce
// sets times and frames to defaults of its own where a request switches adaptive
// coalescing; the second request keeps them.
func (as Answers) Read(p units.EthtoolParam, n uint32) *uint32 {
	a, ok := as[p]
	if !ok {
		return nil
	}
	if a.have == nil {
		a.have = &n
		as[p] = a
	}
	twice := a.before != nil && *a.before == n
	if *a.have != n || !rounded(a.want, n) || p.Group() != units.EthtoolRings && !twice {
		return nil
	}
	return &a.want
}

// rounded reports whether a driver can have made have of want: to a power of two at
// most. Anything else is of a program that came between the request and the reading.
func rounded(want, have uint32) bool {
	return uint64(have) < 2*uint64(want) && uint64(want) < 2*uint64(have) || have == want
}
