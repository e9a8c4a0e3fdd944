package card

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"ibnetworkd/internal/kernel/rdmanl"
	"ibnetworkd/roce"
)

// addSoft makes a software device, for which its driver's module must be there.
func (o *Observer) addSoft(ctx context.Context, p roce.AddSoft) error {
	module := softModule[p.Driver]
	if err := o.same(p.On); err != nil {
		return err
	}
	err := open(&o.rd, rdmanl.Dial)
	if errors.Is(err, rdmanl.ErrNoRDMA) {
		if err := o.load(ctx, module, p.On.Ifindex); err != nil {
			return err
		}
		err = open(&o.rd, rdmanl.Dial)
	}
	if err != nil {
		return err
	}
	r := rdmanl.NewLink(p.Name, p.Driver.String(), p.On.Link)
	err = o.rd.Do(r)
	// A driver that is not loaded is an unknown type (nldev_newlink).
	if errors.Is(err, unix.EINVAL) && !o.sys.ModuleLoaded(module) {
		lerr := o.load(ctx, module, p.On.Ifindex)
		switch {
		case errors.Is(lerr, ErrLoading):
			return lerr
		case lerr != nil:
			return errors.Join(err, lerr)
		}
		err = o.rd.Do(r)
	}
	return err
}

// ErrLoading says that a module is asked for; Observer.Loaded tells when the
// operation can be tried again.
var ErrLoading = errors.New("is being loaded")

// load is a module that is asked for.
type load struct {
	links map[int]bool // that wait for it
	done  bool
	err   error
}

// load has a module loaded beside the loop, which takes from milliseconds to a
// minute, and gives what came of it when it is called again for the same module.
func (o *Observer) load(ctx context.Context, module string, link int) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	l := o.loads[module]
	switch {
	case l == nil:
		l = &load{links: map[int]bool{}}
		o.loads[module] = l
		go func() {
			err := o.Modules.Load(ctx, module)
			o.mu.Lock()
			l.done, l.err = true, err
			links := l.links
			o.mu.Unlock()
			if o.Loaded != nil {
				o.Loaded(links)
			}
		}()
	case l.done:
		delete(o.loads, module)
		return l.err
	}
	l.links[link] = true
	return fmt.Errorf("module %s %w", module, ErrLoading)
}
