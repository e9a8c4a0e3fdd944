package daemon

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"

	"ibnetworkd/daemon/card"
	"ibnetworkd/internal/kernel/procsys"
	"ibnetworkd/internal/kernel/rtnl"
	"ibnetworkd/link"
	"ibnetworkd/roce"
)

// Kernel is the real system: the observer's eyes and the hands that go with
// them.
type Kernel struct {
	*Observer
}

// pipeline is how many requests go into one system call: enough to make its cost
// small beside that of the requests, few enough that the first links are in use,
// and others get the processor, while the last are still worked on.
const pipeline = 16

// Apply carries out steps in order and calls report for each as soon as its
// result is known. Netlink requests go out many in one system call; one that
// fails holds back those that depend on it, and no others.
func (k *Kernel) Apply(ctx context.Context, steps []link.Step, report func(op link.Op, err error)) {
	var failed failures
	done := func(op link.Op, err error) {
		failed.note(op, err)
		report(op, err)
	}
	var batch []rtnl.Request
	var ops []link.Op
	made := map[string]int{}
	fresh := false
	flush := func() {
		if len(batch) == 0 {
			return
		}
		for i, err := range k.rt.DoAll(batch) {
			done(ops[i], err)
		}
		batch, ops = batch[:0], ops[:0]
	}
	known := func(t *link.Target) error {
		if t.Ifindex != 0 {
			return nil
		}
		flush()
		fresh = false
		err := k.find(made, t.Link)
		t.Ifindex = made[t.Link]
		return err
	}
	for _, s := range steps {
		if ctx.Err() != nil {
			flush()
			return
		}
		op := s.Op
		if awaits(op, ops) {
			flush()
			fresh = false
		}
		if err := failed.hold(op); err != nil {
			done(op, err)
			continue
		}
		t := op.Target()
		add := adds(op)
		if t.Ifindex == 0 && t.Link != "" && !add {
			// The link is one of those just made: its index is known when
			// its request has been answered.
			if fresh {
				flush()
				fresh = false
			}
			if err := k.find(made, t.Link); err != nil {
				done(op, err)
				continue
			}
			t.Ifindex = made[t.Link]
		}
		var err error
		switch o := op.(type) {
		case link.SetMaster:
			err = known(&o.Master)
			op = o
		case link.SetPrimary:
			err = known(&o.Slave)
			op = o
		}
		if err != nil {
			done(op, err)
			continue
		}
		if o, ok := op.(link.SetMode); ok {
			flush()
			fresh = false
			if k.setMode(o, t.Ifindex) {
				done(op, nil)
				continue
			}
		}
		r, ok := request(op, t.Ifindex)
		if ok {
			fresh = fresh || add
			batch, ops = append(batch, r), append(ops, op)
			if len(batch) == pipeline {
				flush()
				fresh = false
			}
			continue
		}
		flush()
		fresh = false
		done(op, k.other(ctx, op, t.Ifindex))
	}
	flush()
}

// adds reports an operation that makes the link that it is on.
func adds(op link.Op) bool {
	switch op.(type) {
	case link.AddChild, link.AddBond, link.AddVRF:
		return true
	}
	return false
}

// find has made know the index of a link that the plan has made.
func (k *Kernel) find(made map[string]int, name string) error {
	if made[name] != 0 {
		return nil
	}
	l, err := k.rt.LinkByName(name, false)
	if err == nil {
		made[name] = l.Index
	}
	return err
}

// Finished implements System.
func (k *Kernel) Finished() []card.Result { return k.card.Finished() }

// Cancel implements System.
func (k *Kernel) Cancel(drop func(link.Op) bool) []link.Op { return k.card.Cancel(drop) }

// setMode changes the mode of an IPoIB link by its file in sysfs. It reports false
// if that is not possible: rtnetlink is asked then, and gives the reason if there
// is one. The file comes first because ipoib_set_mode lets the RTNL go in between:
// where another task has taken it meanwhile, rtnetlink goes on as if it were still
// its own, and releases it (ipoib_changelink; Linux 6.1 to 7.2).
func (k *Kernel) setMode(o link.SetMode, index int) bool {
	return k.sys.SetIPoIBMode(o.On.Link, index, o.Mode.String()) == nil
}

// other carries out what is not a request of rtnetlink.
func (k *Kernel) other(ctx context.Context, op link.Op, index int) error {
	switch o := op.(type) {
	case link.SetSysctl:
		fam, leaf, _ := strings.Cut(o.Key, "/")
		return k.proc.Set(procsys.Family(fam), o.On.Link, leaf, o.Value)
	case link.SetDNS:
		return k.dns.set(ctx, index, o)
	case link.MoveLink:
		err := k.inNamespace(o.Namespace, func(fd int) error { return k.rt.Do(rtnl.MoveLink(index, fd)) })
		if _, gone := k.rt.LinkByIndex(index, false); errors.Is(gone, unix.ENODEV) {
			return nil // moved, and perhaps not up there
		}
		return err
	case link.DelMoved:
		return k.rt.Do(rtnl.DelLinkIn(o.Moved.NSID, o.Moved.Index))
	case roce.MoveGID:
		return k.moveGID(o)
	}
	if handled, err := k.card.Apply(ctx, op); handled {
		return err
	}
	return fmt.Errorf("%w: no one carries out %q", errors.ErrUnsupported, op.String())
}
