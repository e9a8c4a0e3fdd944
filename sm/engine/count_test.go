package engine

import (
	"testing"

	"ibnetworkd/sm/mad"
)

// Every kind of SMP that a manager sends is counted, whatever it sent before.
func TestEveryKindIsCounted(t *testing.T) {
	s := &Subnet{}
	gets := []mad.AttrID{mad.AttrNodeDescription, mad.AttrNodeInfo, mad.AttrSwitchInfo, mad.AttrPortInfo, mad.AttrPKeyTable,
		mad.AttrLFT, mad.AttrSMInfo, mad.AttrSwitchPortState}
	sets := []mad.AttrID{mad.AttrSwitchInfo, mad.AttrPortInfo, mad.AttrPKeyTable, mad.AttrLFT, mad.AttrMFT, mad.AttrSLtoVL, mad.AttrVLArb,
		mad.AttrGUIDInfo, mad.AttrSMInfo}
	for _, a := range gets {
		s.count(mad.MethodGet, a)
	}
	for _, a := range sets {
		s.count(mad.MethodSet, a)
	}
	if c := s.counters.copy(); len(c.Sent) != len(gets)+len(sets) {
		t.Errorf("%d of %d kinds: %v", len(c.Sent), len(gets)+len(sets), c.Sent)
	}
}
