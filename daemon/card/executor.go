package card

import (
	"context"
	"errors"
	"fmt"

	"ibnetworkd/internal/kernel/devlink"
	"ibnetworkd/internal/kernel/ethtool"
	"ibnetworkd/internal/kernel/modules"
	"ibnetworkd/internal/kernel/rdmanl"
	"ibnetworkd/internal/kernel/rtnl"
	"ibnetworkd/internal/kernel/sysfs"
	"ibnetworkd/link"
	"ibnetworkd/roce"
)

// errUnknown means that an operation is in the list of slow and has no implementation.
var errUnknown = fmt.Errorf("%w: no worker carries it out", errors.ErrUnsupported)

// executor carries out the slow operations of one card. It belongs to the card's
// worker, and has connections of its own while there is work.
type executor struct {
	sys  sysfs.FS
	load func(ctx context.Context, names ...string) error

	rt *rtnl.Conn
	dl *devlink.Conn
	rd *rdmanl.Conn
	et *ethtool.Conn
}

func newExecutor(sys sysfs.FS, m modules.Loader) *executor {
	return &executor{sys: sys, load: m.Load}
}

// apply carries out an operation for which slow reports true.
func (e *executor) apply(ctx context.Context, op link.Op) error {
	if err := open(&e.rt, rtnl.Dial); err != nil {
		return err
	}
	switch p := op.(type) {
	case roce.SetPortType:
		return e.setPortType(p)
	case roce.SetAutoprobe:
		return e.sys.SetAutoprobe(p.Bus, p.Dev, p.Probe)
	case roce.SetVFs:
		return e.setVFs(p)
	case roce.SetVF:
		return e.setVF(p)
	case roce.SetVFGUIDs:
		return e.setVFGUIDs(p)
	case roce.RebindVF:
		return e.rebind(p)
	case roce.AddSoft:
		return e.addSoft(ctx, p)
	case roce.SetEthtool:
		return e.setEthtool(p)
	case roce.DelSoft:
		if err := open(&e.rd, rdmanl.Dial); err != nil {
			return err
		}
		return ignoreGone(e.rd.Do(rdmanl.DelLink(p.Index)))
	}
	return errUnknown
}

// rest closes the connections.
func (e *executor) rest() {
	if e.rt != nil {
		_ = e.rt.Close()
	}
	if e.dl != nil {
		_ = e.dl.Close()
	}
	if e.rd != nil {
		_ = e.rd.Close()
	}
	if e.et != nil {
		_ = e.et.Close()
	}
	e.rt, e.dl, e.rd, e.et = nil, nil, nil, nil
}
