package daemon

import (
	"errors"

	"golang.org/x/sys/unix"

	"ibnetworkd/internal/kernel/rtnl"
	"ibnetworkd/link"
	"ibnetworkd/roce"
)

// moveGID removes addresses and adds them again, in one system call, and restores the
// routes that the kernel removed with them. An address that cannot be added again is
// set by the next plan.
func (k *Kernel) moveGID(o roce.MoveGID) error {
	if err := k.card.Moving(o); err != nil {
		return err
	}
	before, err := k.rt.Routes()
	if err != nil {
		return err
	}
	var rs []rtnl.Request
	for _, s := range o.Steps() {
		r, _ := request(s, s.Target().Ifindex)
		rs = append(rs, r)
	}
	var errs []error
	for i, err := range k.rt.DoAll(rs) {
		if _, del := o.Steps()[i].(link.DelAddress); err != nil && (!del || !errors.Is(err, unix.EADDRNOTAVAIL)) {
			errs = append(errs, err)
		}
	}
	var again []rtnl.Request
	for i := range before {
		r := &before[i]
		for _, m := range o.Move {
			if r.Proto != link.ProtoKernel && r.PrefSrc == m.Address.Prefix.Addr() {
				again = append(again, rtnl.AddRoute(*r))
			}
		}
	}
	// EEXIST is a route that was kept, and what is refused now was useless before.
	_ = k.rt.DoAll(again)
	return errors.Join(errs...)
}
