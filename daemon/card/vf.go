package card

import (
	"errors"
	"fmt"

	"ibnetworkd/ib"
	"ibnetworkd/internal/kernel/rtnl"
	"ibnetworkd/link"
	"ibnetworkd/roce"
	"ibnetworkd/units"
)

// NotTaken is a setting that was accepted without an error and did not take
// effect.
type NotTaken struct {
	What  string // the setting: virtual function 1 of ib0 did not take port_guid ...
	Why   string // what is there instead, or the error
	After string // what was done about it
}

// Error is the sentence.
func (e *NotTaken) Error() string { return fmt.Sprintf("%s: %s; %s", e.What, e.Why, e.After) }

// back are the words for what became of the former value.
func back(what string, err error) string {
	if err != nil {
		return fmt.Sprintf("the previous %s could not be restored (%v)", what, err)
	}
	return "the former " + what + " is back"
}

// setVFs makes and removes virtual functions, if none of those that there are is in
// use. It waits for another writer first.
func (e *executor) setVFs(p roce.SetVFs) error {
	old := p.Old
	if n, err := e.sys.NumVFs(p.Bus, p.Dev); err == nil {
		if n == p.Count {
			return nil
		}
		old = n
	}
	if _, s, err := e.sys.BusDevice(p.Bus, p.Dev); err == nil && s != nil {
		for _, dev := range s.VFs {
			if err := e.unused(p.Bus, dev); err != nil && !gone(err) {
				return err
			}
		}
	}
	if old == 0 || p.Count == 0 {
		return e.sys.SetNumVFs(p.Bus, p.Dev, p.Count)
	}
	// From one number to another through none (sriov_numvfs_store: EBUSY else).
	if err := e.sys.SetNumVFs(p.Bus, p.Dev, 0); err != nil {
		return err
	}
	err := e.sys.SetNumVFs(p.Bus, p.Dev, p.Count)
	if err == nil {
		return nil
	}
	return &NotTaken{
		What: fmt.Sprintf("%s did not make %d virtual functions", p.On, p.Count), Why: err.Error(),
		After: back(fmt.Sprintf("number %d", old), e.sys.SetNumVFs(p.Bus, p.Dev, old)),
	}
}

// setVF sets an attribute of a virtual function and checks that it is there: a
// driver may take a value and make another of it.
func (e *executor) setVF(p roce.SetVF) error {
	if err := e.rt.Do(rtnl.SetVF(p.On.Ifindex, p.VF, change(p.Attr))); err != nil {
		return err
	}
	now, err := e.vf(p.On.Ifindex, p.VF)
	if err != nil || p.Attr.Matches(now) {
		return err
	}
	not := &NotTaken{
		What: fmt.Sprintf("virtual function %d of %s did not take %s", p.VF, p.On.Link, p.Attr),
		Why:  "it has " + p.Attr.Of(now).String(), After: "it stays so",
	}
	if old := p.Old.String(); old != "" && !p.Old.Matches(now) {
		not.After = back(old, e.rt.Do(rtnl.SetVF(p.On.Ifindex, p.VF, change(p.Old))))
	}
	return not
}

// vf reads what a physical function reports of one of its virtual functions.
func (e *executor) vf(index, n int) (*roce.VF, error) {
	l, err := e.rt.LinkByIndex(index, true)
	if err != nil {
		return nil, err
	}
	for i := range l.VFs {
		if l.VFs[i].Index == n {
			v := &roce.VF{}
			setReported(v, &l.VFs[i])
			return v, nil
		}
	}
	return nil, fmt.Errorf("virtual function %d is gone", n)
}

// setVFGUIDs sets GUIDs, lets the function's driver probe again and reads what
// the function says of itself; if it is not what was asked, the former GUIDs
// come back the same way.
func (e *executor) setVFGUIDs(p roce.SetVFGUIDs) error {
	if err := e.unused(p.Bus, p.Dev); err != nil {
		return err
	}
	set := func(node, port *ib.GUID) error {
		for _, g := range []roce.VFAttr{{NodeGUID: node}, {PortGUID: port}} {
			if g.String() == "" {
				continue
			}
			if err := e.rt.Do(rtnl.SetVF(p.On.Ifindex, p.VF, change(g))); err != nil {
				return err
			}
		}
		return nil
	}
	not := &NotTaken{What: fmt.Sprintf("virtual function %d of %s did not take %s", p.VF, p.On.Link, joined(p.Attrs()))}
	err := set(p.Node, p.Port)
	if err == nil {
		now, rerr := e.vf(p.On.Ifindex, p.VF)
		err = rerr
		for _, a := range p.Attrs() {
			if err == nil && !a.Matches(now) {
				err = errors.New("it has " + a.Of(now).String())
			}
		}
	}
	touched := false
	if err == nil {
		touched = true
		var node ib.GUID
		if p.Node != nil {
			node = *p.Node
		}
		err = e.probe(p.Bus, p.Dev, node)
	}
	if err == nil {
		return nil
	}
	former := joined(roce.SetVFGUIDs{Node: p.OldNode, Port: p.OldPort}.Attrs())
	undo := set(p.OldNode, p.OldPort)
	if undo == nil && touched {
		undo = e.probe(p.Bus, p.Dev, 0)
	}
	if !touched && undo == nil {
		return err // the kernel's own refusal, with nothing changed
	}
	not.Why, not.After = err.Error(), back(former, undo)
	return not
}

func joined(as []roce.VFAttr) (out string) {
	for i, a := range as {
		if i > 0 {
			out += " "
		}
		out += a.String()
	}
	return out
}

// rebind gives a virtual function to its driver again.
func (e *executor) rebind(p roce.RebindVF) error {
	if err := e.unused(p.Bus, p.Dev); err != nil {
		return err
	}
	if err := e.probe(p.Bus, p.Dev, p.Node); err != nil {
		what := fmt.Sprintf("virtual function %d of %s was rebound to its driver", p.VF, p.On.Link)
		if p.Node != 0 {
			what = fmt.Sprintf("virtual function %d of %s did not take %s", p.VF, p.On.Link, roce.VFAttr{NodeGUID: &p.Node})
		}
		return &NotTaken{What: what, Why: err.Error(), After: "it stays so"}
	}
	return nil
}

// bind gives a function back to a driver. Where drivers of virtual functions are
// not bound by themselves (Autoprobe=no) drivers_probe does nothing, and reports
// success, unless the function is kept for the driver.
func (e *executor) bind(bus, dev, driver string) error {
	was, ok := e.sys.DriverOverride(bus, dev)
	if !ok || was != "" || driver == "" {
		return e.sys.Bind(bus, dev)
	}
	if err := e.sys.SetDriverOverride(bus, dev, driver); err != nil {
		return err
	}
	return errors.Join(e.sys.Bind(bus, dev), e.sys.SetDriverOverride(bus, dev, ""))
}

// probe lets the driver of a function probe again, and compares the GUID of the
// RDMA device that is there then with want, if that is not 0. A device that
// comes later is compared when it has come.
func (e *executor) probe(bus, dev string, want ib.GUID) error {
	before, _, err := e.sys.BusDevice(bus, dev)
	if err != nil {
		return err
	}
	if err := e.sys.Unbind(bus, dev); err != nil && !gone(err) {
		return err
	}
	if err := e.bind(bus, dev, before.Driver); err != nil {
		return fmt.Errorf("its driver does not start: %w", err)
	}
	b, _, err := e.sys.BusDevice(bus, dev)
	switch {
	case err != nil:
		return err
	case b.Driver == "":
		return errors.New("its driver does not start with it")
	case want == 0:
		return nil
	}
	devs, err := e.sys.IBDevices()
	if err != nil {
		return nil
	}
	for _, d := range devs {
		if d.Bus.Bus == bus && d.Bus.Name == dev && d.NodeGUID != want {
			return fmt.Errorf("it reports the GUID %s", d.NodeGUID)
		}
	}
	return nil
}

func (o *Observer) sriov(s *link.Snapshot, l *link.Link) *roce.SRIOV {
	bus, fns, err := o.sys.NetDevice(l.Name)
	if err != nil || fns == nil {
		return nil
	}
	var up []upLink
	for i := range s.Links {
		if x := &s.Links[i]; x.Up() && x.DevPath != "" {
			up = append(up, upLink{x.Name, x.DevPath})
		}
	}
	out := &roce.SRIOV{Bus: bus.Bus, Dev: bus.Name, Total: fns.TotalVFs, Autoprobe: fns.Autoprobe, VFs: make([]roce.VF, fns.NumVFs)}
	for i, name := range fns.VFs {
		v := &out.VFs[i]
		if v.Dev = name; name == "" {
			continue
		}
		b, _, err := o.sys.BusDevice(out.Bus, name)
		if err != nil {
			continue
		}
		v.Driver, v.Busy = b.Driver, user(b.Driver, name, up)
		for k := range s.Devices {
			if s.Devices[k].Parent == name && s.Devices[k].Bus == out.Bus {
				v.OwnGUID = s.Devices[k].NodeGUID
			}
		}
	}
	raw, err := o.rt.LinkByIndex(l.Index, true)
	if err != nil {
		return out
	}
	for i := range raw.VFs {
		if r := &raw.VFs[i]; r.Index >= 0 && r.Index < len(out.VFs) {
			setReported(&out.VFs[r.Index], r)
		}
	}
	return out
}

// setReported puts what a physical function reports of a virtual one into v.
func setReported(v *roce.VF, r *rtnl.VF) {
	v.NodeGUID, v.PortGUID, v.Trust, v.Spoof = r.NodeGUID, r.PortGUID, r.Trust, r.SpoofCheck
	v.MinRate, v.MaxRate, v.MAC, v.VLAN, v.QoS = uint32(max(r.MinTxRate, 0)), uint32(max(r.MaxTxRate, 0)), r.MAC, uint16(r.VLAN), uint8(r.QoS)
	v.Proto = units.VLANProtocol(r.VLANProto)
	if r.LinkState != nil {
		v.LinkState = new(units.VFLinkState(*r.LinkState))
	}
}

func change(a roce.VFAttr) rtnl.VFChange {
	c := rtnl.VFChange{NodeGUID: a.NodeGUID, PortGUID: a.PortGUID, Trust: a.Trust, SpoofCheck: a.Spoof, MAC: a.MAC, VLAN: a.VLAN,
		QoS: a.QoS, VLANProto: uint16(a.Proto)}
	if a.LinkState != nil {
		c.LinkState = new(rtnl.VFLinkState(*a.LinkState))
	}
	if a.MaxRate != nil && a.MinRate != nil {
		lo, hi := int(*a.MinRate), int(*a.MaxRate)
		c.MinTxRate, c.MaxTxRate = &lo, &hi
	}
	return c
}
