package card

import (
	"context"
	"errors"

	"golang.org/x/sys/unix"

	"ibnetworkd/internal/kernel/rdmanl"
	"ibnetworkd/roce"
)

// addSoft makes a software device, for which its driver's module must be there.
func (e *executor) addSoft(ctx context.Context, p roce.AddSoft) error {
	module := softModule[p.Driver]
	if err := same(e.rt, p.On); err != nil {
		return err
	}
	err := open(&e.rd, rdmanl.Dial)
	if errors.Is(err, rdmanl.ErrNoRDMA) {
		if err := e.load(ctx, module); err != nil {
			return err
		}
		// A load takes up to a minute: the name may have a new link.
		if err := same(e.rt, p.On); err != nil {
			return err
		}
		err = open(&e.rd, rdmanl.Dial)
	}
	if err != nil {
		return err
	}
	r := rdmanl.NewLink(p.Name, p.Driver.String(), p.On.Link)
	err = e.rd.Do(r)
	// A driver that is not loaded is an unknown type (nldev_newlink).
	if errors.Is(err, unix.EINVAL) && !e.sys.ModuleLoaded(module) {
		if lerr := e.load(ctx, module); lerr != nil {
			return errors.Join(err, lerr)
		}
		if err := same(e.rt, p.On); err != nil {
			return err
		}
		err = e.rd.Do(r)
	}
	return err
}
