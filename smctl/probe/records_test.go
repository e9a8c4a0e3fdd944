package probe

import (
	"context"
	"encoding/binary"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"ibnetworkd/ib"
	"ibnetworkd/internal/testkit"
	"ibnetworkd/lab/gen"
	"ibnetworkd/lab/simfabric"
	"ibnetworkd/sm/engine"
	"ibnetworkd/sm/fabric"
	"ibnetworkd/sm/mad"
	"ibnetworkd/sm/transport"
	"ibnetworkd/smctl"
)

// managed is a simulated subnet that ibnetsm manages from its first port, and a port
// of another host.
func managed(t *testing.T, f *fabric.Fabric) (s *simfabric.Sim, me transport.Transport, end func()) {
	t.Helper()
	s = simfabric.New(f, simfabric.Options{Seed: 1, DelayMin: time.Microsecond, DelayMax: 20 * time.Microsecond})
	tr, err := s.Open(f.Ports[f.SMPort].GUID)
	testkit.NoError(t, err)
	sm := engine.New(tr, engine.Config{Log: slog.New(slog.DiscardHandler), Priority: 3})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); _ = sm.Run(ctx) }()
	time.Sleep(5 * time.Second) // virtual
	var own ib.GUID
	for _, e := range f.EndPorts {
		if p := &f.Ports[e]; f.Nodes[p.Node].Switch == fabric.None && e != f.SMPort {
			own = p.GUID
		}
	}
	me, err = s.Open(own)
	testkit.NoError(t, err)
	return s, me, func() { cancel(); <-done; me.Close(); tr.Close(); s.Close() }
}

// What the administrator has is what a walk finds: the same text, and of every port
// the same state.
func TestTopologyOfAdministrator(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, me, end := managed(t, gen.FatTree2(8, 4))
		defer end()
		sa, err := Topology(t.Context(), me, false)
		testkit.NoError(t, err)
		walk, err := Topology(t.Context(), me, true)
		testkit.NoError(t, err)
		if sa.SA == 0 || sa.Why != "" || walk.SA != 0 || walk.Why == "" {
			t.Errorf("read from LID %d (%s), then LID %d (%s)", sa.SA, sa.Why, walk.SA, walk.Why)
		}
		if a, b := gen.Text(sa.Fabric), gen.Text(walk.Fabric); a != b || !strings.Contains(a, "Switch") || strings.Contains(a, "lid 0") {
			t.Errorf("the administrator's text:\n%s\nthe walk's:\n%s", a, b)
		}
		if len(sa.Managers) != 1 || len(walk.Managers) != 1 || sa.Managers[0].GUID != walk.Managers[0].GUID ||
			sa.Managers[0].LID != sa.SA || sa.Managers[0].State != smctl.SMMaster || sa.Managers[0].Priority != 3 {
			t.Errorf("managers: %v, %v", sa.Managers, walk.Managers)
		}
		for i := range walk.Fabric.Ports {
			p, q := &sa.Fabric.Ports[i], &walk.Fabric.Ports[i]
			if p.Known != q.Known || p.GUID != q.GUID || p.LID != q.LID || p.Peer != q.Peer || p.Info.State() != q.Info.State() ||
				p.Info.Rate() != q.Info.Rate() {
				t.Fatalf("port %s: %+v, by the walk %+v", sa.Fabric.PortName(int32(i)), p, q)
			}
		}
	})
}

// Where the administrator does not answer, or its records are incomplete, the walk
// finds everything, and the reason is kept.
func TestTopologyFallsBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := gen.FatTree2(8, 4)
		s, me, end := managed(t, f)
		defer end()
		c := &edited{Transport: me, edit: func(p *transport.Packet) {
			// Keep the link records to itself.
			if mad.ClassOf(&p.MAD) == mad.ClassSA && mad.AttrOf(&p.MAD) == mad.AttrLinkRecord {
				p.Long = p.Long[:mad.SADataOffset]
			}
		}}
		got, err := Topology(t.Context(), c, false)
		if err != nil || got.SA != 0 || !strings.Contains(got.Why, "does not report what is connected to") || got.Fabric.Links() != f.Links() {
			t.Errorf("without link records: %+v, %v", got, err)
		}
		c.edit = func(p *transport.Packet) {
			if mad.ClassOf(&p.MAD) == mad.ClassSA && mad.AttrOf(&p.MAD) == mad.AttrPortInfoRecord {
				binary.BigEndian.PutUint16(p.Long[4:], uint16(mad.StatusSAReqInvalid))
			}
		}
		if got, err = Topology(t.Context(), c, false); err != nil || !strings.Contains(got.Why, "refuses PortInfoRecord with status") ||
			got.Fabric.Links() != f.Links() {
			t.Errorf("with a refusal: %+v, %v", got, err)
		}
		testkit.NoError(t, s.Mute(f.Nodes[f.Ports[f.SMPort].Node].GUID, true))
		c.edit = func(p *transport.Packet) {
			if mad.ClassOf(&p.MAD) == mad.ClassSA {
				p.Err = transport.ErrTimeout
			}
		}
		if got, err = Topology(t.Context(), c, false); err != nil || !strings.HasSuffix(got.Why, "does not answer") || got.SA != 0 {
			t.Errorf("with a mute administrator: %+v, %v", got, err)
		}
	})
}

// edited is a transport whose received packets are changed on the way.
type edited struct {
	transport.Transport
	edit func(*transport.Packet)
}

func (e *edited) Recv(ctx context.Context, into []transport.Packet) (int, error) {
	n, err := e.Transport.Recv(ctx, into)
	for i := range into[:n] {
		e.edit(&into[i])
	}
	return n, err
}

// recordTables are the answers of an administrator for a small subnet.
func recordTables(t *testing.T) (out *tables, own ib.GUID) {
	synctest.Test(t, func(t *testing.T) {
		_, me, end := managed(t, gen.Star(3, 8))
		defer end()
		p, err := me.(interface {
			Port() (transport.Port, error)
		}).Port()
		testkit.NoError(t, err)
		own = p.PortGUID
		if out, err = readTables(t.Context(), me, p.SMLID); err != nil {
			t.Fatal(err)
		}
	})
	return out, own
}

// A manager that a walk does not find, as that on the own port, has no name of its own
// either: the fabric has the names, and a screen printed both.
func TestManagerNotFound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, me, end := managed(t, gen.Star(3, 8))
		defer end()
		c := &edited{Transport: me, edit: func(p *transport.Packet) {
			if mad.ClassOf(&p.MAD) == mad.ClassSubnDR && mad.AttrOf(&p.MAD) == mad.AttrPortInfo {
				p.MAD[mad.SMPDataOffset+23] &^= 2 // IsSM
			}
		}}
		got, err := Topology(t.Context(), c, true)
		if err != nil || len(got.Managers) != 1 || got.Managers[0].LID == 0 || got.Managers[0].Node != "" {
			t.Errorf("%+v, %v", got, err)
		}
	})
}

// Records that lie make no fabric that contradicts itself, and none that is larger
// than a subnet.
func FuzzRecords(f *testing.F) {
	f.Add([]byte{}, []byte{}, []byte{}, []byte{}, uint16(112))
	node := func(lid, ports, num byte) []byte {
		r := mad.NodeRecord{LID: ib.LID(lid), Info: mad.NodeInfo{NodeType: ib.NodeType(1 + num&1), NumPorts: ports, NodeGUID: ib.GUID(lid),
			PortGUID: ib.GUID(lid), LocalPortNum: num}}
		return r.Append(nil)
	}
	link := mad.LinkRecord{FromLID: 1, FromPort: 1, ToPort: 2, ToLID: 2}
	f.Add(append(node(1, 1, 1), node(2, 4, 2)...), make([]byte, 72), make([]byte, 24), link.Append(nil), uint16(112))
	f.Add(append(node(1, 1, 9), node(1, 254, 1)...), []byte{0, 1, 1}, []byte{0, 1}, link.Append(link.Append(nil)), uint16(112))
	f.Fuzz(func(t *testing.T, nodes, ports, switches, links []byte, step uint16) {
		x := &tables{nodes: nodes, ports: ports, switches: switches, links: links, managers: nodes, step: [5]int{int(step), 72, 24, 8, 32}}
		fab, hidden, err := x.build(1, 0)
		if err != nil {
			return
		}
		if len(fab.Ports) > maxPorts || hidden > len(fab.Ports) || len(fab.Nodes)*8 > len(nodes)*8+8 {
			t.Errorf("%d ports, %d hidden, %d nodes of %d bytes", len(fab.Ports), hidden, len(fab.Nodes), len(nodes))
		}
		for i := range fab.Ports {
			if q := fab.Ports[i].Peer; q != fabric.None && (fab.Ports[q].Peer != int32(i) || q == int32(i)) {
				t.Errorf("port %d leads to %d, which leads to %d", i, q, fab.Ports[q].Peer)
			}
		}
		_ = x.managersOf()
	})
}

// The same records in another order, and links named from one end only, give the same
// fabric; a record of a LID without a node is left out.
func TestRecordsInAnyOrder(t *testing.T) {
	x, own := recordTables(t)
	a, _, err := x.build(own, 0)
	testkit.NoError(t, err)
	var back []byte
	for i := len(x.links) - 8; i >= 0; i -= 8 {
		back = append(back, x.links[i:i+8]...)
	}
	stray := mad.LinkRecord{FromLID: 4000, FromPort: 1, ToPort: 1, ToLID: 1}
	y := *x
	y.links = stray.Append(back)
	b, _, err := y.build(own, 0)
	if err != nil || gen.Text(a) != gen.Text(b) || a.Links() != 3 {
		t.Errorf("%v: %s\n%s", err, gen.Text(a), gen.Text(b))
	}
}

// A switch of which no multicast entry is used has no block to read.
func TestMulticastBlocks(t *testing.T) {
	for top, want := range map[uint16]int{0xbfff: 0, 0xc000: 1, 0xc01f: 1, 0xc020: 2} {
		f := gen.Star(2, 8).Clone()
		f.Switches[0].Info.SetMulticastFDBTop(top)
		r := readMFT{f: f}
		if got, _ := r.blocks(0); got != want {
			t.Errorf("top 0x%x: %d blocks, want %d", top, got, want)
		}
	}
}
