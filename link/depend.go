package link

import "slices"

// Depends reports whether an operation of a plan must not be done because an earlier one of it has failed: it would act
// on another link than is meant, or in another routing table or namespace, or be refused for that reason alone. The next plan
// has the failure, and says what is done instead.
func Depends(op, failed Op) bool {
	t := op.Target()
	switch f := failed.(type) {
	case AddChild, AddBond, AddVRF:
		return names(op, failed.Target().Link)
	case SetMaster:
		if o, ok := op.(SetPrimary); ok {
			return o.Slave == f.On
		}
		return t == f.On && reaches(op)
	case MoveLink:
		return t == f.On
	case DelMoved:
		return replaces(op, f.Moved)
	case SetSysctl:
		_, token := op.(SetToken)
		return token && t == f.On && f.Key == acceptRA
	case SetMode:
		_, mtu := op.(SetMTU)
		return mtu && t == f.On
	case SetNextHop:
		switch o := op.(type) {
		case AddRoute:
			return o.Route.NextHopID == f.NextHop.ID
		case SetNextHop:
			return slices.ContainsFunc(o.NextHop.Group, func(m GroupMember) bool { return m.ID == f.NextHop.ID })
		}
	}
	return false
}

// replaces reports whether an operation makes a link in the place of one in another network namespace: with its name, its
// P_Key or its tag, below the same link.
func replaces(op Op, gone Moved) bool {
	switch o := op.(type) {
	case AddChild:
		return o.Parent.Ifindex == gone.On && (o.On.Link == gone.Name || o.PKey.Base() == gone.PKey.Base())
	case Maker:
		m, remove := o.Makes()
		s, _ := Sent(op)
		return !remove && m.Kind == gone.Kind && m.On == gone.On && (m.Name == gone.Name || s.Tag != VLANTag{} && s.Tag == gone.Tag)
	}
	return false
}

// names reports whether an operation is about a link of a name.
func names(op Op, name string) bool {
	switch o := op.(type) {
	case SetMaster:
		if o.Master.Link == name {
			return true
		}
	case SetPrimary:
		if o.Slave.Link == name {
			return true
		}
	case AddChild:
		if o.Parent.Link == name {
			return true
		}
	case AddRoute:
		if slices.ContainsFunc(o.Route.NextHops, func(h NextHop) bool { return h.Dev == name }) {
			return true
		}
	}
	return op.Target().Link == name
}

// reaches reports whether an operation has the host reached by a link, or others by the host.
func reaches(op Op) bool {
	switch op.(type) {
	case AddAddress, RestoreAddress, AddRoute, SetNeighbor, SetNextHop, SetDNS:
		return true
	}
	return false
}
