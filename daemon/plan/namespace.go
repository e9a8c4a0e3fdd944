package plan

import (
	"ibnetworkd/link"
	"ibnetworkd/roce"
	"ibnetworkd/units"
)

// refuseAway notes units that match links for other network namespaces, which the unit of
// their parent asks for.
func (p *planner) refuseAway(index int, u *units.Unit) {
	parent := p.b.Link(index)
	refuse := func(c link.Link, path, instead string) {
		c.Udev.Initialized = true
		x := link.Govern(p.in.Snapshot, p.in.Units, &c).Unit
		if x == nil || x == u {
			return
		}
		why := link.UnitRefusal(c.Name, path, instead, x)
		if x.RoCE.Present && link.IsVLAN(c.Kind) {
			why.Text += ", nor is its [RoCE]"
			use := "which programs in that namespace can use"
			if p.in.Snapshot.Host.RDMAExclusive {
				use = "which programs in that namespace cannot use while \"rdma system\" has netns exclusive"
			}
			why.Next += "; its addresses have GIDs at the RDMA device of " + parent.Name + ", " + use
		}
		p.b.Block(link.Target{Link: c.Name}, nil, false, why)
	}
	if parent.IPoIB != nil && !parent.IsChild() {
		for i := range u.Partitions {
			if part := &u.Partitions[i]; part.NetworkNamespace.Set {
				refuse(link.ChildOf(parent, part.ChildName(parent.Name), part.PartitionKey.V), part.Namespace(),
					"write Mode= and MTUBytes= in [Partition]")
			}
		}
	}
	if parent.IsInfiniBand() || link.IsVLAN(parent.Kind) {
		return
	}
	for i := range u.VLANs {
		if v := &u.VLANs[i]; v.NetworkNamespace.Set {
			op := roce.NewVLAN(link.TargetOf(parent), parent, v)
			instead := "write MTUBytes= and the maps in [VLAN]"
			if v.Kind != units.KindVLAN {
				instead = "write MTUBytes= in [" + v.Kind.Section() + "]"
			}
			refuse(op.Link(parent), v.Namespace(), instead)
		}
	}
}
