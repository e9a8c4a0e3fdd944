package card

import (
	"errors"
	"time"

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

// queuesEach is how often queues are read again that could not be read: no event says
// that a device is back that its driver had detached.
const queuesEach = 2 * time.Second

// readGroup is ethtool.Conn.Get, which reads a group of a link's settings.
type readGroup func(index int, g ethtool.Group) (ethtool.Values, error)

// ethtool reads the groups of which a unit sets something. What its card's worker is
// changing, and what cannot be read now, is as it was read last.
func (o *Observer) ethtool(index int, u *units.Unit, busy bool, x *roce.Link) {
	err := open(&o.et, ethtool.Dial)
	if errors.Is(err, ethtool.ErrNone) {
		return
	}
	get := func(int, ethtool.Group) (ethtool.Values, error) { return nil, err }
	if err == nil {
		get = o.et.Get
	}
	o.groups(index, u, busy, get, x)
}

// groups is ethtool with the reading given.
func (o *Observer) groups(index int, u *units.Unit, busy bool, get readGroup, x *roce.Link) {
	var old roce.Link
	if o.last != nil {
		old = o.last.Links[index]
	}
	x.Ethtool, x.EthtoolRead = map[units.EthtoolParam]roce.Ethtool{}, map[units.EthtoolGroup]string{}
	var done [units.EthtoolCoalesce + 1]bool
	for _, s := range u.Link.Ethtool {
		g := s.V.Param.Group()
		if done[g] {
			continue
		}
		done[g] = true
		var have ethtool.Values
		var err error
		if !busy {
			if have, err = get(index, ethtool.Group(g)); err != nil {
				have = nil
			}
		}
		switch why, read := old.EthtoolRead[g]; {
		case busy && read:
			x.EthtoolRead[g] = why
		case busy:
		case err == nil, isAny(err, unix.EOPNOTSUPP):
			x.EthtoolRead[g] = ""
		default:
			x.EthtoolRead[g] = errnoText(err)
			o.queuesLater(index)
		}
		for p := range units.EthtoolParams {
			if p.Group() != g {
				continue
			}
			value, limit := attribute(p)
			if n, ok := have[value]; ok {
				x.Ethtool[p] = roce.Ethtool{N: n, Max: have[limit], Asked: o.queues[index].Read(p, n)}
			} else if v, ok := old.Ethtool[p]; ok && (busy || x.EthtoolRead[g] != "") {
				x.Ethtool[p] = v
			}
		}
	}
}

// queuesLater has the queues of a link read again, by one timer.
func (o *Observer) queuesLater(index int) {
	if o.cfg.Later == nil || time.Now().Before(o.again[index]) {
		return
	}
	o.again[index] = time.Now().Add(queuesEach)
	o.cfg.Later(index, queuesEach)
}

// errnoText is the kernel's words for an error.
func errnoText(err error) string {
	var no unix.Errno
	if errors.As(err, &no) {
		return no.Error()
	}
	return err.Error()
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
