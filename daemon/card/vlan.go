package card

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"ibnetworkd/internal/kernel/rtnl"
	"ibnetworkd/link"
	"ibnetworkd/roce"
	"ibnetworkd/units"
)

// vlanOn is a VLAN or the like of a link; ENODEV also if its name is another link's by now.
func (o *Observer) vlanOn(on link.Target, name string, kind units.VLANKind) (rtnl.Link, error) {
	l, err := o.rt.LinkByName(name, false)
	if err == nil && (l.Kind != kind.String() || l.Parent != on.Ifindex) {
		err = fmt.Errorf("%s is another link now: %w", name, unix.ENODEV)
	}
	return l, err
}

// addVLAN makes a VLAN interface or the like, in the network namespace of its unit if it has one: the
// kernel brings it up there with its parent.
func (o *Observer) addVLAN(p roce.AddVLAN) error {
	v := vlan(p.On.Ifindex, p.Name, &p.VLAN)
	v.Address = p.Address
	path := p.VLAN.Namespace()
	if path == "" {
		return o.rt.Do(rtnl.NewVLAN(v))
	}
	return rtnl.InNamespace(filepath.Join("/", o.root, path), func(fd int) error {
		v.Namespace, v.Up = &fd, true
		if err := o.rt.NumberNamespace(fd); err != nil {
			return err
		}
		err := o.rt.Do(rtnl.NewVLAN(v))
		if errors.Is(err, unix.ENETDOWN) {
			v.Up = false
			err = o.rt.Do(rtnl.NewVLAN(v))
		}
		return err
	})
}

// explainer makes the reason of a failure.
type explainer = func(next, format string, a ...any) (link.Reason, bool, bool)

// explainVLAN is Explain of an AddVLAN.
func explainVLAN(o roce.AddVLAN, err error, say, later explainer) (why link.Reason, retry, ok bool) {
	section, what := o.VLAN.Kind.Section(), o.VLAN.Kind.String()+" "+o.Name
	load, more := "modprobe "+o.VLAN.Kind.String(), ""
	switch o.VLAN.Kind {
	case units.KindVLAN:
		what, more = fmt.Sprintf("VLAN %d", o.VLAN.Id.V), " or Id="
		load = "modprobe 8021q; some links cannot have VLANs (IPoIB: use [Partition])"
	case units.KindIPVLAN:
		load += "; Mode=L3S needs a kernel with CONFIG_NETFILTER"
	}
	path, on := o.VLAN.Namespace(), o.On.Link
	show := "ip -d link show type " + o.VLAN.Kind.String()
	switch {
	case path != "" && isAny(err, unix.EEXIST) && o.VLAN.Kind == units.KindVLAN:
		return say("write another Name= or Id= in [VLAN], or delete the other one: "+link.InNamespace(path, "link delete "+o.Name)+
			"; VLANs of this number in other network namespaces count too: ip -all netns exec "+show,
			"the name %s is taken in network namespace %s, or VLAN %d of %s exists", o.Name, link.NamespaceName(path), o.VLAN.Id.V, on)
	case path != "" && isAny(err, unix.EEXIST):
		return say("write another Name= in ["+section+"], or delete the other one: "+link.InNamespace(path, "link delete "+o.Name),
			"the name %s is taken in network namespace %s", o.Name, link.NamespaceName(path))
	case path != "" && errors.As(err, new(*os.PathError)):
		return later("check that "+path+" is a network namespace", "%s was not made in network namespace %s", o.Name, link.NamespaceName(path))
	case isAny(err, unix.EEXIST):
		return say(show+"; write another Name="+more+" in ["+section+"]", "%s or %s on %s exists", o.Name, what, on)
	case isAny(err, unix.EADDRINUSE) && o.VLAN.Kind == units.KindMACVLAN:
		return later("write another Name= in ["+section+"], or delete the other one: ip -d link show type macvlan, here and in each "+
			"network namespace (ip -all netns exec)", "a macvlan of %s has the MAC address of %s, which is made from Name=, already", on, what)
	case isAny(err, unix.EBUSY):
		return say("ip -d link show: one of a bond, a bridge, macvlans and ipvlans can have the packets of "+on,
			"another kind of interface gets the packets of %s, so that %s cannot be made", on, what)
	case isAny(err, unix.EOPNOTSUPP, unix.ENOSYS, errNotSupported):
		return say(load, "%s cannot be made on %s", what, on)
	case isAny(err, unix.EINVAL, unix.ERANGE, unix.EIO, unix.EBADMSG, unix.ENOSPC, unix.E2BIG):
		next := "check Id=, MTUBytes= (not more than the parent's) and the maps in [VLAN]"
		if o.VLAN.Kind != units.KindVLAN {
			next = "check MTUBytes= (not more than the parent's) in [" + section +
				"]; a macvlan with Mode=passthru is the only one of its link: " + show
		}
		return say(next, "the kernel refuses %s on %s", what, on)
	}
	return link.Reason{}, false, false
}

// errNotSupported is the kernel's ENOTSUPP, which has no name outside of it (include/linux/errno.h).
const errNotSupported = unix.Errno(524)

// setVLAN changes what can be changed of a VLAN interface or the like.
func (o *Observer) setVLAN(p roce.SetVLAN) error {
	l, err := o.vlanOn(p.On, p.Name, p.VLAN.Kind)
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
	switch v.Kind {
	case units.KindMACVLAN:
		if out.Kind = v.Kind.String(); v.MACVLANMode.Set {
			out.Mode = new(uint16(v.MACVLANMode.V))
		}
		return out
	case units.KindIPVLAN:
		out.Kind, out.Mode, out.Flags = v.Kind.String(), new(uint16(v.IPVLANMode.V)), new(uint16(v.IPVLANFlags.V))
		return out
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
