package card

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/google/renameio/v2"
	"golang.org/x/sys/unix"

	"ibnetworkd/internal/kernel/configfs"
	"ibnetworkd/internal/kernel/rtnl"
	"ibnetworkd/link"
	"ibnetworkd/roce"
)

// Begin is called before a snapshot is read: a plan made from it does not know what
// the cards that have work then leave behind.
func (o *Observer) Begin() { o.workers.begin() }

// Apply carries out an operation of package roce; it reports false for one of
// another package. What takes longer than a netlink round trip goes to the worker
// of its card: the error is then an *InProgress, and Finished gives the result.
func (o *Observer) Apply(ctx context.Context, op link.Op) (handled bool, err error) {
	if slow(op) {
		return true, o.workers.submit(ctx, cardOf(o.snap, op.Target()), op)
	}
	handled, err = o.apply(op)
	if handled {
		o.applied(op, err)
	}
	return handled, err
}

// Finished gives the results of operations that workers have ended since the last
// call.
func (o *Observer) Finished() []Result {
	rs := o.workers.finished()
	for _, r := range rs {
		o.applied(r.Op, r.Err)
	}
	return rs
}

// Cancel removes the operations that drop names, are queued and have not begun, and
// gives them.
func (o *Observer) Cancel(drop func(link.Op) bool) []link.Op { return o.workers.cancel(drop) }

// applied counts an operation that was carried out as a correction.
func (o *Observer) applied(op link.Op, err error) {
	// A function that was taken away, or from its driver, has lost its users,
	// whatever came of it.
	if errors.As(err, new(*inUse)) {
		return
	}
	_, lost := op.(roce.RebindVF)
	if n, ok := op.(roce.SetVFs); ok {
		// New functions begin with the card's defaults: to set them again is no
		// correction.
		o.forget(op.Target().String() + "\x00VF ")
		lost = n.Old != 0
	}
	if err == nil || lost {
		o.corrected(op)
	}
	if q, ok := op.(roce.SetEthtool); ok && err == nil {
		o.requested(q)
	}
}

// cardOf names the card that an operation's target is on: the device on its bus,
// or the link itself where there is none.
func cardOf(s *link.Snapshot, t link.Target) string {
	if s != nil {
		if d, ok := s.Device(t.IBDevice); ok && d.Parent != "" {
			return d.Parent
		}
		if l, ok := s.Link(t.Ifindex); ok && l.DevPath != "" {
			return filepath.Base(l.DevPath)
		}
	}
	return t.String()
}

func (o *Observer) apply(op link.Op) (bool, error) {
	on := op.Target()
	switch p := op.(type) {
	case roce.SetNodeDesc:
		return true, o.sys.SetNodeDesc(on.IBDevice, p.Desc)
	case roce.SetVersion:
		mode := configfs.RoCEv2
		if p.Version == 1 {
			mode = configfs.RoCEv1
		}
		return true, o.cm.SetRoCEMode(on.IBDevice, on.Port, mode)
	case roce.SetToS:
		return true, o.cm.SetToS(on.IBDevice, on.Port, p.ToS)
	case roce.SetECN:
		if err := same(o.rt, on); err != nil {
			return true, err
		}
		return true, o.sys.SetECN(on.Link, p.Priority, p.Enable)
	case roce.SetModprobe:
		file := filepath.Join(o.root, roce.ModprobeFile)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			return true, err
		}
		return true, renameio.WriteFile(file, []byte(p.Text), 0o644)
	case roce.SetDCBX, roce.SetPFC, roce.SetETS, roce.MapDSCP, roce.ClearDSCP, roce.SetTrust, roce.SetBuffers:
		return true, o.applyDCB(op)
	case roce.AddVLAN:
		return true, o.addVLAN(p)
	case roce.SetVLAN:
		return true, o.setVLAN(p)
	case roce.DelVLAN:
		l, err := o.vlanOn(on, p.Name, p.Kind)
		if err == nil {
			err = o.rt.Do(rtnl.DelLink(l.Index))
		}
		return true, ignoreGone(err)
	}
	return false, nil
}

// same reports ENODEV unless a name is still that of the link that was planned
// for. DCB and the files of a driver know names only, and a card that is plugged in
// again gets its old one.
func same(rt *rtnl.Conn, on link.Target) error {
	l, err := rt.LinkByName(on.Link, false)
	if err == nil && l.Index != on.Ifindex && on.Ifindex != 0 {
		err = fmt.Errorf("%s is another link now: %w", on.Link, unix.ENODEV)
	}
	return err
}

// ignoreGone takes the absence of what is to be removed for success.
func ignoreGone(err error) error {
	if gone(err) {
		return nil
	}
	return err
}
