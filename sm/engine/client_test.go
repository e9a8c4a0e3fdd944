package engine_test

import (
	"context"
	"fmt"
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
)

// hostsOf are the ports of adapters, in GUID order.
func hostsOf(f *fabric.Fabric) []int32 { return gen.Hosts(f) }

// client is a program on a host that asks one thing after the other.
type client struct {
	t   *testing.T
	tr  transport.Transport
	tid uint32
}

func (w *world) client(t *testing.T, port int32) *client {
	t.Helper()
	tr, err := w.sim.OpenClient(w.f.Ports[port].GUID, false)
	testkit.NoError(t, err)
	w.stop = append(w.stop, func() { tr.Close() })
	return &client{t: t, tr: tr}
}

// exchange sends a request and gives what came back.
func (c *client) exchange(k *transport.Packet) (transport.Packet, error) {
	k.Timeout = 200 * time.Millisecond
	if err := c.tr.Send(k); err != nil {
		return transport.Packet{}, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	in := make([]transport.Packet, 1)
	for {
		if _, err := c.tr.Recv(ctx, in); err != nil {
			return in[0], err
		}
		if in[0].Err != nil || uint32(mad.TIDOf(&in[0].MAD)) == c.tid {
			return in[0], in[0].Err
		}
	}
}

// ask queries the SA that the port follows.
func (c *client) ask(m mad.Method, a mad.AttrID, mask mad.CompMask, rec interface{ Append([]byte) []byte }) (mad.Status, []byte, error) {
	p, err := c.tr.Port()
	if err != nil || p.SMLID == 0 {
		return 0, nil, fmt.Errorf("no manager: %v", err)
	}
	c.tid++
	h := mad.NewSA(m, a, c.tid, mask)
	k := transport.Packet{LID: p.SMLID, QPN: 1}
	k.SetMessage(rec.Append(h.Append(nil)), false)
	r, err := c.exchange(&k)
	return mad.StatusOf(&r.MAD), r.MAD[mad.SADataOffset:], err
}

// smp sends an SMP by LID, to the own port if it is 0.
func (c *client) smp(l ib.LID, m mad.Method, a mad.AttrID, mod uint32) ([64]byte, error) {
	if l == 0 {
		p, err := c.tr.Port()
		if err != nil {
			return [64]byte{}, err
		}
		l = p.LID
	}
	c.tid++
	k := transport.Packet{LID: l}
	mad.PutLR(&k.MAD, m, a, mod, uint64(c.tid), 0, nil)
	r, err := c.exchange(&k)
	return *mad.SMPData(&r.MAD), err
}

// An alias GUID that a host registers with a new master in the middle of its first
// sweep is written to the port.
func TestAliasGUIDDuringTakeover(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := gen.FatTree2(8, 4)
		hosts := hostsOf(f)
		told := make(chan struct{}, 1)
		w := newWorld(t, f, simfabric.Options{DelayMin: time.Millisecond, DelayMax: time.Millisecond, Reregister: func(g ib.GUID) {
			if g == f.Ports[hosts[2]].GUID {
				select {
				case told <- struct{}{}:
				default:
				}
			}
		}})
		defer w.close()
		a, stop := w.manager(hosts[0], engine.Config{Priority: 5})
		w.settle(hosts[0], a, time.Minute)
		c := w.client(t, hosts[2])
		alias := func(index int, g ib.GUID) {
			t.Helper()
			p, err := c.tr.Port()
			testkit.NoError(t, err)
			r := mad.GUIDInfoRecord{LID: p.LID}
			r.Info[index] = g
			if st, _, err := c.ask(mad.MethodSet, mad.AttrGUIDInfoRecord, mad.CompGIRLID|mad.CompGIRBlock|mad.CompGIRGID0<<index,
				&r); st != 0 || err != nil {
				t.Fatalf("status %#x, %v", uint16(st), err)
			}
		}
		holds := func(index int, want ib.GUID) {
			t.Helper()
			time.Sleep(5 * time.Second)
			d, err := c.smp(0, mad.MethodGet, mad.AttrGUIDInfo, 0)
			var i mad.GUIDInfo
			if err != nil || i.Decode(d[:]) != nil || i[index] != want {
				t.Errorf("the port has the GUIDs %v, want %v at %d (%v)", i, want, index, err)
			}
		}
		alias(1, 0x77)
		holds(1, 0x77)
		// One SMP at a time: other ports have not had theirs yet.
		b, _ := w.manager(hosts[5], engine.Config{Priority: 1, Window: 1})
		time.Sleep(5 * time.Second)
		select {
		case <-told:
		default:
		}
		w.wg.Go(stop)
		<-told
		alias(2, 0x88)
		w.settle(hosts[5], b, time.Minute)
		holds(2, 0x88)
	})
}
