package card

import (
	"golang.org/x/sys/unix"

	"ibnetworkd/internal/kernel/ethtool"
	"ibnetworkd/roce"
	"ibnetworkd/units"
)

// attribute is that of a setting in its group, and that of its limit, 0 for none.
// The settings have the order of the attributes.
func attribute(p units.EthtoolParam) (value, limit uint16) {
	first := units.EthtoolParam(0)
	for first.Group() != p.Group() {
		first++
	}
	n := uint16(p - first)
	switch p.Group() {
	case units.EthtoolRings:
		return unix.ETHTOOL_A_RINGS_RX + n, unix.ETHTOOL_A_RINGS_RX_MAX + n
	case units.EthtoolChannels:
		return unix.ETHTOOL_A_CHANNELS_RX_COUNT + n, unix.ETHTOOL_A_CHANNELS_RX_MAX + n
	}
	return unix.ETHTOOL_A_COALESCE_RX_USECS + n, 0
}

// ethtool reads the groups of which a unit sets something.
func (o *Observer) ethtool(index int, u *units.Unit) map[units.EthtoolParam]roce.Ethtool {
	if open(&o.et, ethtool.Dial) != nil {
		return nil
	}
	var have [units.EthtoolCoalesce + 1]ethtool.Values
	for _, s := range u.Link.Ethtool {
		g := s.V.Param.Group()
		if have[g] != nil {
			continue
		}
		var err error
		if have[g], err = o.et.Get(index, ethtool.Group(g)); err != nil {
			have[g] = ethtool.Values{}
		}
	}
	out := map[units.EthtoolParam]roce.Ethtool{}
	for p := range units.EthtoolParams {
		value, limit := attribute(p)
		n, ok := have[p.Group()][value]
		if !ok {
			continue
		}
		x := roce.Ethtool{N: n, Max: have[p.Group()][limit]}
		x.Asked = o.queues[index].Read(p, n)
		out[p] = x
	}
	return out
}

// requested notes what a driver was asked for: what is read next is its answer.
func (o *Observer) requested(op roce.SetEthtool) {
	index := op.Target().Ifindex
	if o.queues[index] == nil {
		o.queues[index] = roce.Answers{}
	}
	o.queues[index].Request(op)
}

func (e *executor) setEthtool(op roce.SetEthtool) error {
	if err := open(&e.et, ethtool.Dial); err != nil {
		return err
	}
	v := ethtool.Values{}
	for _, s := range op.Settings {
		attr, _ := attribute(s.Param)
		v[attr] = s.N
	}
	return e.et.Do(e.et.Set(op.Target().Ifindex, ethtool.Group(op.Group), v))
}
