package units

import (
	"math"

	"ibnetworkd/ib"
)

func linkSection() SectionSpec {
	online := Key{Name: "RequiredForOnline", Networkd: true,
		Values: append([]string{"yes", "no"}, wordList(operWords)...),
		apply:  scalar(func(l *Link) *Value[Online] { return &l.RequiredForOnline }, parseOnline)}
	return SectionSpec{
		Name: "Link", open: func(u *Unit) (any, *Section) { return &u.Link, &u.Link.Section },
		Keys: append([]Key{
			{Name: "MTUBytes", Values: []string{"max"}, Networkd: true,
				apply: scalar(func(l *Link) *Value[MTU] { return &l.MTUBytes }, parseMTU)},
			{Name: "GUID", apply: scalar(func(l *Link) *Value[ib.GUID] { return &l.GUID }, parseGUID)},
			enumKey("ActivationPolicy", true, activationWords, func(l *Link) *Value[ActivationPolicy] { return &l.ActivationPolicy }),
			online,
			enumKey("RequiredFamilyForOnline", true, requiredFamilyWords,
				func(l *Link) *Value[Family] { return &l.RequiredFamilyForOnline }),
			boolKey("Unmanaged", true, func(l *Link) *Value[bool] { return &l.Unmanaged }),
			boolKey("AllMulticast", true, func(l *Link) *Value[bool] { return &l.AllMulticast }),
			boolKey("Multicast", true, func(l *Link) *Value[bool] { return &l.Multicast }),
			boolKey("Promiscuous", true, func(l *Link) *Value[bool] { return &l.Promiscuous }),
			boolKey("ARP", true, func(l *Link) *Value[bool] { return &l.ARP }),
			numKey("Group", 0, math.MaxInt32, true, func(l *Link) *Value[uint32] { return &l.Group }),
		}, ethtoolKeys()...),
	}
}

func ipoibSection() SectionSpec {
	return SectionSpec{
		Name: "IPoIB", open: func(u *Unit) (any, *Section) { return &u.IPoIB, &u.IPoIB.Section },
		Keys: []Key{
			enumKey("Mode", true, modeWords, func(i *IPoIB) *Value[Mode] { return &i.Mode }),
			boolKey("IgnoreUserspaceMulticastGroups", true, func(i *IPoIB) *Value[bool] { return &i.IgnoreUserspaceMulticastGroups }),
		},
	}
}

func partitionSection() SectionSpec {
	return SectionSpec{
		Name: "Partition", Repeat: true, open: func(u *Unit) (any, *Section) { o := &Partition{}; return o, &o.Section },
		Keys: []Key{
			{Name: "PartitionKey", essential: true,
				apply: scalar(func(x *Partition) *Value[ib.PKey] { return &x.PartitionKey }, partitionKey)},
			{Name: "Name", essential: true, apply: scalar(func(x *Partition) *Value[string] { return &x.Name }, parseIfName)},
			enumKey("Mode", false, modeWords, func(x *Partition) *Value[Mode] { return &x.Mode }),
			{Name: "MTUBytes", Values: []string{"max"}, apply: scalar(func(x *Partition) *Value[MTU] { return &x.MTUBytes }, parseMTU)},
			boolKey("IgnoreUserspaceMulticastGroups", false, func(x *Partition) *Value[bool] { return &x.IgnoreUserspaceMulticastGroups }),
			namespaceKey(func(x *Partition) *Value[string] { return &x.NetworkNamespace }),
		},
	}
}

// namespaceKey is NetworkNamespace= of a section that makes a link.
func namespaceKey[T any](field func(*T) *Value[string]) Key {
	return Key{Name: "NetworkNamespace", essential: true, apply: scalar(field, parseNamespace)}
}
