package card

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/google/renameio/v2"
	"golang.org/x/sys/unix"

	"ibnetworkd/internal/kernel/configfs"
	"ibnetworkd/internal/kernel/rdmanl"
	"ibnetworkd/internal/kernel/rtnl"
	"ibnetworkd/link"
	"ibnetworkd/roce"
)

// Apply carries out an operation of package roce; it reports false for one of
// another room.
func (o *Observer) Apply(ctx context.Context, op link.Op) (handled bool, err error) {
	handled, err = o.apply(ctx, op)
	// A function that was taken away, or from its driver, has lost its users,
	// whatever came of it.
	_, lost := op.(roce.RebindVF)
	if n, ok := op.(roce.SetVFs); ok {
		// New functions begin with the card's defaults: what is set anew on them
		// is no fight.
		o.forget(op.Target().String() + "\x00VF ")
		lost = n.Old != 0
	}
	if handled && (err == nil || lost) {
		o.corrected(op)
	}
	return handled, err
}

func (o *Observer) apply(ctx context.Context, op link.Op) (bool, error) {
	on := op.Target()
	switch p := op.(type) {
	case roce.SetPortType:
		return true, o.setPortType(p)
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
		if err := o.same(on); err != nil {
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
		return true, o.rt.Do(rtnl.NewVLAN(vlan(on.Ifindex, p.Name, &p.VLAN)))
	case roce.SetVLAN:
		return true, o.setVLAN(p)
	case roce.DelVLAN:
		l, err := o.vlanOn(on, p.Name)
		if err == nil {
			err = o.rt.Do(rtnl.DelLink(l.Index))
		}
		return true, ignoreGone(err)
	case roce.DelSoft:
		if err := open(&o.rd, rdmanl.Dial); err != nil {
			return true, err
		}
		return true, ignoreGone(o.rd.Do(rdmanl.DelLink(p.Index)))
	case roce.AddSoft:
		return true, o.addSoft(ctx, p)
	case roce.SetAutoprobe:
		return true, o.sys.SetAutoprobe(p.Bus, p.Dev, p.Probe)
	case roce.SetVFs:
		return true, o.setVFs(p)
	case roce.SetVF:
		return true, o.setVF(p)
	case roce.SetVFGUIDs:
		return true, o.setVFGUIDs(p)
	case roce.RebindVF:
		return true, o.rebind(p)
	}
	return false, nil
}

// same reports ENODEV unless a name is still that of the link that was planned
// for. DCB and the files of a driver know names only, and a card that comes anew
// takes its old one.
func (o *Observer) same(on link.Target) error {
	l, err := o.rt.LinkByName(on.Link, false)
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
