package card

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/google/renameio/v2"
	"golang.org/x/sys/unix"

	"ibnetworkd/internal/kernel/configfs"
	"ibnetworkd/internal/kernel/devlink"
	"ibnetworkd/internal/kernel/modules"
	"ibnetworkd/internal/kernel/rdmanl"
	"ibnetworkd/internal/kernel/rtnl"
	"ibnetworkd/link"
	"ibnetworkd/roce"
	"ibnetworkd/units"
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

// setPortType sets the type of a port. What the card has refused before on its
// other port is tried again after it: some cards take types in one order only,
// and some remember the first request until the second makes both the same
// (mlx4: set_port_type, mlx4_check_port_params).
func (o *Observer) setPortType(p roce.SetPortType) error {
	card := p.Port.Bus + "/" + p.Port.Dev
	others := slices.DeleteFunc(o.refused[card], func(x roce.SetPortType) bool { return portOf(x) == portOf(p) })
	delete(o.refused, card)
	err := o.portTypeOnce(p)
	if err != nil {
		if isAny(err, unix.EOPNOTSUPP, unix.EINVAL) {
			o.refused[card] = append(others, p)
		}
		return err
	}
	for _, x := range others {
		if err := o.portTypeOnce(x); err != nil {
			o.refused[card] = append(o.refused[card], x)
		}
	}
	return nil
}

func (o *Observer) portTypeOnce(p roce.SetPortType) error {
	if p.Port.File != "" {
		return o.sys.SetPortType(p.Port.Bus, p.Port.Dev, portOf(p), p.Type.String())
	}
	if err := open(&o.dl, devlink.Dial); err != nil {
		return err
	}
	types := map[units.PortType]devlink.PortType{units.PortTypeAuto: devlink.TypeAuto, units.PortTypeEth: devlink.TypeEth, units.PortTypeIB: devlink.TypeIB}
	return o.dl.Do(o.dl.SetPortType(p.Port.Bus, p.Port.Dev, p.Port.Index, types[p.Type]))
}

func portOf(p roce.SetPortType) int {
	// The attribute's name ends with the number of the port.
	if f := p.Port.File; f != "" {
		if c := f[len(f)-1]; c >= '1' && c <= '9' {
			return int(c - '0')
		}
	}
	if p.Port.Index != 0 {
		return int(p.Port.Index)
	}
	return p.On.Port
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

// vlanOn is a VLAN of a link; ENODEV also if its name is another link's by now.
func (o *Observer) vlanOn(on link.Target, name string) (rtnl.Link, error) {
	l, err := o.rt.LinkByName(name, false)
	if err == nil && (l.Kind != "vlan" || l.Parent != on.Ifindex) {
		err = fmt.Errorf("%s is another link now: %w", name, unix.ENODEV)
	}
	return l, err
}

// setVLAN changes what can be changed of a VLAN interface.
func (o *Observer) setVLAN(p roce.SetVLAN) error {
	l, err := o.vlanOn(p.On, p.Name)
	if err != nil {
		return err
	}
	v := vlan(p.On.Ifindex, p.Name, &p.VLAN)
	for _, from := range p.DropIngress {
		v.Ingress = append(v.Ingress, rtnl.QoSMap{From: from})
	}
	for _, from := range p.DropEgress {
		v.Egress = append(v.Egress, rtnl.QoSMap{From: from})
	}
	return o.rt.Do(rtnl.SetVLAN(l.Index, v))
}

func vlan(parent int, name string, v *units.VLAN) rtnl.VLANSpec {
	out := rtnl.VLANSpec{Parent: parent, Name: name, ID: v.Id.V}
	if v.Protocol.Set {
		out.Protocol = uint16(v.Protocol.V)
	}
	if m, ok := v.MTUBytes.Get(); ok && !m.Max {
		out.MTU = m.Bytes
	}
	flag := func(f units.Value[bool]) *bool {
		if !f.Set {
			return nil
		}
		return &f.V
	}
	out.ReorderHeader, out.GVRP, out.MVRP, out.LooseBinding = flag(v.ReorderHeader), flag(v.GVRP), flag(v.MVRP), flag(v.LooseBinding)
	maps := func(ms []units.Value[units.QOSMap]) (out []rtnl.QoSMap) {
		for _, m := range ms {
			out = append(out, rtnl.QoSMap{From: m.V.From, To: m.V.To})
		}
		return out
	}
	out.Ingress, out.Egress = maps(v.IngressQOSMaps), maps(v.EgressQOSMaps)
	return out
}

func change(a roce.VFAttr) rtnl.VFChange {
	c := rtnl.VFChange{NodeGUID: a.NodeGUID, PortGUID: a.PortGUID, Trust: a.Trust, SpoofCheck: a.Spoof, MAC: a.MAC, VLAN: a.VLAN, QoS: a.QoS, VLANProto: uint16(a.Proto)}
	if a.LinkState != nil {
		s := rtnl.VFLinkState(*a.LinkState)
		c.LinkState = &s
	}
	if a.MaxRate != nil && a.MinRate != nil {
		lo, hi := int(*a.MinRate), int(*a.MaxRate)
		c.MinTxRate, c.MaxTxRate = &lo, &hi
	}
	return c
}

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
			err := modules.Load(ctx, module)
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

// ignoreGone takes the absence of what is to be removed for success.
func ignoreGone(err error) error {
	if gone(err) {
		return nil
	}
	return err
}
