package card

import (
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"ibnetworkd/internal/kernel/dcb"
	"ibnetworkd/link"
	"ibnetworkd/roce"
	"ibnetworkd/units"
)

// errFirmware means that a setting of DCB was not tried, because the firmware had
// just refused to release DCBX.
var errFirmware = errors.New("the firmware keeps DCBX")

// asked is a request for receive buffers and what came of it.
type asked struct{ want, have roce.Buffers }

func buffersOf(b *dcb.BufferConfig) *roce.Buffers {
	return &roce.Buffers{Buffer: b.PrioBuffer, Size: b.Size, Total: b.Total}
}

func (o *Observer) applyDCB(op link.Op) error {
	if err := open(&o.dcb, dcb.Dial); err != nil {
		return err
	}
	name := op.Target().Link
	if err := same(o.rt, op.Target()); err != nil {
		return err
	}
	if p, ok := op.(roce.SetDCBX); ok {
		err := o.dcb.SetDCBX(name, p.Flags)
		if err != nil {
			o.firmware[name] = true
		}
		return err
	}
	if o.firmware[name] {
		return errFirmware
	}
	// The structures of DCB are set as a whole: what is not ours is sent back
	// as it is.
	now, err := o.dcb.Get(name)
	if err != nil {
		return err
	}
	lost := fmt.Errorf("%s no longer has this setting", name)
	switch p := op.(type) {
	case roce.SetPFC:
		if now.PFC == nil {
			return lost
		}
		now.PFC.Enabled = p.Priority
		if p.Delay != 0 {
			now.PFC.Delay = p.Delay
		}
		return o.dcb.SetPFC(name, *now.PFC)
	case roce.SetETS:
		if now.ETS == nil {
			return lost
		}
		now.ETS.TxBW, now.ETS.PrioTC = p.Classes.Percent, p.Classes.Class
		for i, t := range p.Classes.TSA {
			now.ETS.TSA[i] = dcb.TSA(t)
		}
		return o.dcb.SetETS(name, *now.ETS)
	case roce.SetBuffers:
		if now.Buffer == nil {
			return lost
		}
		now.Buffer.PrioBuffer, now.Buffer.Size = p.Buffers.Buffer, p.Buffers.Size
		if err := o.dcb.SetBuffer(name, *now.Buffer); err != nil {
			return err
		}
		if got, err := o.dcb.Get(name); err == nil && got.Buffer != nil {
			o.buffers[op.Target().Ifindex] = asked{p.Buffers, *buffersOf(got.Buffer)}
		}
		return nil
	case roce.SetTrust:
		if p.Trust == units.TrustPCP {
			return o.dcb.SetTrust(name, dcb.PCP)
		}
		return o.dcb.SetTrust(name, dcb.DSCP)
	case roce.MapDSCP:
		return mapDSCP(o.dcb, name, p, entries(now.Apps, p.DSCP))
	case roce.ClearDSCP:
		return dropApps(o.dcb, name, slices.DeleteFunc(slices.Clone(now.Apps), func(a dcb.App) bool { return a.Selector != dcb.DSCP }))
	}
	return fmt.Errorf("%w: %s", errors.ErrUnsupported, op)
}

// entries are those of a table for one DSCP.
func entries(apps []dcb.App, dscp uint8) (out []dcb.App) {
	for _, a := range apps {
		if a.Selector == dcb.DSCP && a.Protocol == uint16(dscp) {
			out = append(out, a)
		}
	}
	return out
}

// appTable is the application table of links, *dcb.Conn for the kernel's.
type appTable interface {
	Get(link string) (dcb.State, error)
	AddApps(link string, apps ...dcb.App) error
	DelApps(link string, apps ...dcb.App) error
}

// mapDSCP gives a DSCP one priority. Drivers differ in what a second entry does:
// mlx5 and hns3 replace the first by it; ice refuses it; bnxt lists both, and its
// card loses the DSCP with either (bnxt_dcbnl_ieee_delapp), as others may. So the
// new entry is added first, and where that does not replace the old ones all of
// them go before it is added again.
func mapDSCP(t appTable, name string, p roce.MapDSCP, old []dcb.App) error {
	keep := dcb.App{Selector: dcb.DSCP, Priority: p.Priority, Protocol: uint16(p.DSCP)}
	others := slices.DeleteFunc(slices.Clone(old), func(a dcb.App) bool { return a == keep })
	err := addApp(t, name, keep)
	if len(others) == 0 || isAny(err, unix.EOPNOTSUPP, unix.ENOMEM) {
		return err
	}
	if err == nil {
		now, rerr := t.Get(name)
		if rerr != nil {
			return rerr
		}
		if old = entries(now.Apps, p.DSCP); len(old) == 1 && old[0] == keep {
			return nil
		}
	}
	if err := dropApps(t, name, old); err != nil {
		return err
	}
	err = addApp(t, name, keep)
	if err == nil {
		var now dcb.State
		if now, err = t.Get(name); err != nil {
			return err
		}
		have := entries(now.Apps, p.DSCP)
		if len(have) == 1 && have[0] == keep {
			return nil
		}
		err = fmt.Errorf("the table has %d entries for it, not the new one alone", len(have))
	}
	// A refused priority must not cost the one that there was.
	var undo error
	for _, a := range others {
		undo = errors.Join(undo, addApp(t, name, a))
	}
	return &NotTaken{What: fmt.Sprintf("%s did not take the priority %d for DSCP %d", name, p.Priority, p.DSCP), Why: err.Error(),
		After: back("priority", undo)}
}

func addApp(t appTable, name string, a dcb.App) error {
	if err := t.AddApps(name, a); err != nil && !errors.Is(err, unix.EEXIST) {
		return err
	}
	return nil
}

// dropApps removes entries from a link's table.
func dropApps(t appTable, name string, apps []dcb.App) error {
	for _, a := range apps {
		if err := t.DelApps(name, a); err != nil && !errors.Is(err, unix.ENOENT) {
			return err
		}
	}
	return nil
}

func (o *Observer) observeDCB(l *link.Link) *roce.DCB {
	if err := open(&o.dcb, dcb.Dial); err != nil {
		return nil
	}
	s, err := o.dcb.Get(l.Name)
	if err != nil {
		return nil
	}
	d := &roce.DCB{Driver: l.Driver, DCBX: s.DCBX}
	if s.PFC != nil {
		d.PFC, d.PFCCap, d.Delay = &s.PFC.Enabled, s.PFC.Cap, s.PFC.Delay
	}
	if s.ETS != nil {
		d.ETS = &roce.Classes{Percent: s.ETS.TxBW, Class: s.ETS.PrioTC}
		for i, t := range s.ETS.TSA {
			d.ETS.TSA[i] = roce.TSA(t)
		}
	}
	if s.Buffer != nil {
		d.Buffer = buffersOf(s.Buffer)
		if x, ok := o.buffers[l.Index]; ok && x.have == *d.Buffer {
			d.Asked = &x.want
		}
	}
	for _, a := range s.Apps {
		if a.Selector == dcb.DSCP && a.Protocol < 64 {
			if d.DSCP == nil {
				d.DSCP = map[uint8]uint8{}
			}
			// Of several entries the highest priority counts
			// (dcb_ieee_getapp_dscp_prio_mask_map's users).
			d.DSCP[uint8(a.Protocol)] = max(d.DSCP[uint8(a.Protocol)], a.Priority)
		}
	}
	if s.Trust != nil {
		d.Trust = []units.Trust{}
		for _, t := range s.Trust {
			switch t {
			case dcb.DSCP:
				d.Trust = append(d.Trust, units.TrustDSCP)
			case dcb.PCP:
				d.Trust = append(d.Trust, units.TrustPCP)
			}
		}
	}
	return d
}
