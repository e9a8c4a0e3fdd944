package probe

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"ibnetworkd/ib"
	"ibnetworkd/sm/fabric"
	"ibnetworkd/sm/mad"
	"ibnetworkd/sm/transport"
	"ibnetworkd/smctl"
)

// tableTimeout is how long the administrator may take to send a table. The kernel
// counts it from the request to the last segment of the answer, not to the first
// (drivers/infiniband/core/mad_rmpp.c).
const tableTimeout = 5 * time.Second

// maxPorts bounds the ports that the nodes of an answer claim to have, as that of a
// walk does: four times those of the largest subnet.
const maxPorts = 1 << 20

// saError is why what the subnet administrator has was not read, or not all there is.
type saError struct{ why string }

func (e *saError) Error() string { return e.why }

func noRecords(format string, a ...any) error { return &saError{fmt.Sprintf(format, a...)} }

// tables are the records that make a fabric, as they travel.
type tables struct {
	nodes, ports, switches, links, managers []byte
	// step is the distance of two records of each table, in that order.
	step [5]int
}

// byAttr gives the place of a table and its number.
func (t *tables) byAttr(a mad.AttrID) (*[]byte, int) {
	switch a {
	case mad.AttrNodeRecord:
		return &t.nodes, 0
	case mad.AttrPortInfoRecord:
		return &t.ports, 1
	case mad.AttrSwitchInfoRecord:
		return &t.switches, 2
	case mad.AttrLinkRecord:
		return &t.links, 3
	}
	return &t.managers, 4
}

// readTables queries the administrator at a LID for all its tables at once.
func readTables(ctx context.Context, c Conn, lid ib.LID) (*tables, error) {
	t, open, tid := &tables{}, map[uint32]mad.AttrID{}, rand.Uint32()
	for _, attr := range []mad.AttrID{mad.AttrNodeRecord, mad.AttrPortInfoRecord, mad.AttrSwitchInfoRecord, mad.AttrLinkRecord,
		mad.AttrSMInfoRecord} {
		tid++
		p := transport.Packet{LID: lid, QPN: 1, Timeout: tableTimeout}
		h := mad.NewSA(mad.MethodGetTable, attr, tid, 0)
		p.SetMessage(h.Append(nil), false)
		if err := c.Send(&p); err != nil {
			return nil, err
		}
		open[tid] = attr
	}
	limit, cancel := context.WithTimeout(ctx, tableTimeout+timeout)
	defer cancel()
	into := make([]transport.Packet, window)
	for len(open) > 0 {
		n, err := c.Recv(limit, into)
		if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
			return nil, noRecords("the subnet administrator at LID %d sent no records within %v", uint16(lid), tableTimeout)
		}
		if err != nil {
			return nil, err
		}
		for i := range into[:n] {
			p := &into[i]
			tid := uint32(mad.TIDOf(&p.MAD))
			attr, ok := open[tid]
			if !ok {
				continue
			}
			delete(open, tid)
			if err := t.add(attr, p, lid); err != nil {
				return nil, err
			}
		}
	}
	return t, nil
}

// add keeps an answer.
func (t *tables) add(attr mad.AttrID, p *transport.Packet, lid ib.LID) error {
	name := mad.AttrName(mad.ClassSA, attr)
	switch {
	case errors.Is(p.Err, transport.ErrTimeout):
		return noRecords("the subnet administrator at LID %d sent no %ss within %v", uint16(lid), name, tableTimeout)
	case p.Err != nil:
		return p.Err
	}
	b := p.Bytes()
	var h mad.SAHeader
	if err := h.Decode(b); err != nil {
		return noRecords("the answer of the subnet administrator at LID %d to %s is too short", uint16(lid), name)
	}
	if h.Status != 0 {
		if attr == mad.AttrSMInfoRecord {
			return nil // it may keep that to itself: the master is asked
		}
		return noRecords("the subnet administrator at LID %d refuses %s with status 0x%04x", uint16(lid), name, uint16(h.Status))
	}
	data, n := t.byAttr(attr)
	*data, t.step[n] = b[mad.SADataOffset:], int(h.AttrOffset)*8
	return nil
}

// each calls f for each record of a table.
func (t *tables) each(attr mad.AttrID, f func(b []byte) error) error {
	data, n := t.byAttr(attr)
	for b := *data; t.step[n] > 0 && len(b) > 0; b = b[min(t.step[n], len(b)):] {
		// The last one may come without its padding.
		if err := f(b[:min(t.step[n], len(b))]); err != nil {
			return err
		}
	}
	return nil
}

// subnet builds a fabric from records.
type subnet struct {
	b     *fabric.Builder
	node  map[ib.GUID]int
	owner map[ib.LID]end // of each base LID: the node, and of an adapter its port
	ports int
	// hidden are ports of switches whose link is up and leads to nothing in the
	// records.
	hidden int
}

type end struct {
	node     int
	num      uint8
	isSwitch bool
}

var errRecord = noRecords("the subnet administrator's records contradict each other")

func (s *subnet) addNode(b []byte) error {
	var r mad.NodeRecord
	if r.Decode(b) != nil || !r.LID.IsUnicast() {
		return errRecord
	}
	i := &r.Info
	if _, taken := s.owner[r.LID]; taken {
		return errRecord
	}
	n, ok := s.node[i.NodeGUID]
	if !ok {
		if s.ports += int(i.NumPorts) + 1; s.ports > maxPorts {
			return noRecords("the subnet administrator's records have more than %d ports", maxPorts)
		}
		var err error
		if n, err = s.b.AddNode(fabric.Node{GUID: i.NodeGUID, SystemGUID: i.SystemImageGUID, Type: i.NodeType, NumPorts: i.NumPorts,
			Base: i.BaseVersion, Class: i.ClassVersion, DeviceID: i.DeviceID, PKeyCap: i.PartitionCap, VendorID: i.VendorID,
			Revision: i.Revision, Desc: r.Description.String()}); err != nil {
			return noRecords("the subnet administrator's records: %v", err)
		}
		s.node[i.NodeGUID] = n
	}
	e := end{n, i.LocalPortNum, s.b.Node(n).Type == ib.NodeSwitch}
	if e.isSwitch {
		e.num = 0
	}
	p := s.b.Port(n, e.num)
	if p == nil || !e.isSwitch && e.num == 0 || p.GUID != 0 {
		return errRecord
	}
	p.GUID, p.LID = i.PortGUID, r.LID
	s.owner[r.LID] = e
	return nil
}

// at is the port that a record means by a LID and a number, nil if there is none.
func (s *subnet) at(lid ib.LID, num uint8) (end, *fabric.Port) {
	e, ok := s.owner[lid]
	if !ok {
		return e, nil
	}
	if e.isSwitch {
		e.num = num // an adapter's port has its own LID; the number is often given as 0
	}
	return e, s.b.Port(e.node, e.num)
}

func (s *subnet) addPort(b []byte) error {
	var r mad.PortInfoRecord
	if r.Decode(b) != nil {
		return errRecord
	}
	e, p := s.at(r.LID, r.Port)
	if p == nil {
		return nil // it came while the tables were read
	}
	p.Info, p.Known = r.Info, true
	if !e.isSwitch || e.num == 0 {
		p.LMC = p.Info.LMC()
	}
	return nil
}

func (s *subnet) addSwitch(b []byte) error {
	var r mad.SwitchInfoRecord
	if r.Decode(b) != nil {
		return errRecord
	}
	if e, ok := s.owner[r.LID]; ok && e.isSwitch {
		s.b.SetSwitchInfo(e.node, r.Info)
	}
	return nil
}

func (s *subnet) addLink(b []byte) error {
	var r mad.LinkRecord
	if r.Decode(b) != nil {
		return errRecord
	}
	from, p := s.at(r.FromLID, r.FromPort)
	to, q := s.at(r.ToLID, r.ToPort)
	// Each link has two records, one from either end; the first makes it.
	if p == nil || q == nil || p == q || p.Peer != 0 || q.Peer != 0 || from.num == 0 || to.num == 0 {
		return nil
	}
	if err := s.b.Link(from.node, from.num, to.node, to.num); err != nil {
		return errRecord
	}
	return nil
}

// build makes the fabric; own is the GUID of the port that asked.
func (t *tables) build(own ib.GUID, prefix uint64) (*fabric.Fabric, int, error) {
	s := &subnet{b: fabric.NewBuilder(), node: map[ib.GUID]int{}, owner: map[ib.LID]end{}}
	s.b.SetPrefix(cmp.Or(prefix, ib.DefaultPrefix))
	for _, x := range []struct {
		attr mad.AttrID
		add  func([]byte) error
	}{{mad.AttrNodeRecord, s.addNode}, {mad.AttrPortInfoRecord, s.addPort}, {mad.AttrSwitchInfoRecord, s.addSwitch},
		{mad.AttrLinkRecord, s.addLink}} {
		if err := t.each(x.attr, x.add); err != nil {
			return nil, 0, err
		}
	}
	for _, e := range s.owner {
		if p := s.b.Port(e.node, e.num); !e.isSwitch && p.GUID == own {
			s.b.SetSM(e.node, e.num)
		}
	}
	f := s.b.Build()
	for i := range f.Ports {
		p := &f.Ports[i]
		if f.Nodes[p.Node].Switch != fabric.None && p.Num > 0 && p.Peer == fabric.None && p.Known && p.Info.PhysState() == ib.PhysLinkUp {
			s.hidden++
		}
	}
	return f, s.hidden, nil
}

// managersOf are the subnet managers in the records.
func (t *tables) managersOf() (sms []smctl.SMInfo) {
	_ = t.each(mad.AttrSMInfoRecord, func(b []byte) error {
		var r mad.SMInfoRecord
		if r.Decode(b) == nil {
			sms = append(sms, smctl.SMInfo{GUID: r.Info.GUID, LID: r.LID, Priority: r.Info.Priority, State: smctl.SMState(r.Info.State)})
		}
		return nil
	})
	slices.SortStableFunc(sms, func(a, b smctl.SMInfo) int {
		master := func(s smctl.SMInfo) int {
			if s.State == smctl.SMMaster {
				return 0
			}
			return 1
		}
		return cmp.Or(master(a)-master(b), cmp.Compare(a.GUID, b.GUID))
	})
	return sms
}

// records reads the fabric as the subnet administrator of the port's master has it. It
// is a *saError why that was not possible, or why the records are incomplete.
func records(ctx context.Context, c Conn) (*Found, error) {
	info, err := own(ctx, c, mad.AttrPortInfo)
	if err != nil {
		return nil, err
	}
	node, err := own(ctx, c, mad.AttrNodeInfo)
	if err != nil {
		return nil, err
	}
	var ni mad.NodeInfo
	_ = ni.Decode(node[:])
	pi := mad.PortInfoOf(info)
	lid := pi.MasterSMLID()
	if !lid.IsUnicast() {
		return nil, noRecords("no subnet manager has configured the port")
	}
	ok, err := AskSA(ctx, c, lid)
	if err != nil {
		return nil, err
	}
	if !ok {
		return nil, noRecords("the subnet administrator at LID %d does not answer", uint16(lid))
	}
	t, err := readTables(ctx, c, lid)
	if err != nil {
		return nil, err
	}
	f, hidden, err := t.build(ni.PortGUID, pi.GIDPrefix())
	switch {
	case err != nil:
		return nil, err
	case f.SMPort == fabric.None:
		return nil, noRecords("the subnet administrator at LID %d has no record of this port", uint16(lid))
	case hidden > 0:
		return nil, noRecords("the subnet administrator at LID %d does not report what is connected to %d ports that are up", uint16(lid), hidden)
	}
	found := &Found{Fabric: f, Managers: t.managersOf(), SA: lid}
	if !slices.ContainsFunc(found.Managers, func(s smctl.SMInfo) bool { return s.LID == lid }) {
		more, err := AskLID(ctx, c, lid)
		if err != nil {
			return nil, err
		}
		for i := range more {
			more[i].Node = "" // the fabric has the names
		}
		found.Managers = append(more, found.Managers...)
	}
	return found, nil
}

// own queries the own port's agent for an attribute.
func own(ctx context.Context, c Conn, attr mad.AttrID) (*[64]byte, error) {
	p := transport.Packet{LID: ib.LIDPermissive, Timeout: timeout, Retries: retries}
	mad.PutDR(&p.MAD, mad.MethodGet, attr, 0, uint64(rand.Uint32()), 0, nil, nil)
	limit, cancel := context.WithTimeout(ctx, answerLimit)
	defer cancel()
	q, err := exchange(limit, c, &p)
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil || err == nil && q == nil {
		return nil, noRecords("the port does not report its subnet manager")
	}
	if err != nil {
		return nil, err
	}
	return mad.SMPData(&q.MAD), nil
}
