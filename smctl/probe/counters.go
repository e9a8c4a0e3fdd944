package probe

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	"ibnetworkd/ib"
	"ibnetworkd/sm/fabric"
	"ibnetworkd/sm/mad"
	"ibnetworkd/sm/transport"
)

// CountersTime bounds how long the counters of a fabric are read.
const CountersTime = 10 * time.Second

// Timeout of a question for counters, and how often it is put again. Agents of
// switches answer in milliseconds; one that does not answer is asked for one port only.
const (
	perfTimeout = 500 * time.Millisecond
	perfRetries = 1
)

// PortCounters are the counters of a port.
type PortCounters struct {
	mad.PortCounters
	// Received and Sent are packets, from PortCountersExtended where the port has
	// it: the counters of 32 bits stop within a second.
	Received, Sent uint64
}

// Counters are the counters of a fabric's ports.
type Counters struct {
	Ports map[int32]PortCounters // by port index; those that answered
	// Silent are ports with a link whose counters were not read: their agent did
	// not answer or refused, the node has no LID, or the time was over.
	Silent []int32
}

// counting reads counters.
type counting struct {
	f     *fabric.Fabric
	todo  []question
	open  map[uint32]question
	tid   uint32         // of the last question
	dead  map[int32]bool // nodes that did not answer
	out   *Counters
	worth func(*mad.PortCounters) bool
}

type question struct {
	port int32
	lid  ib.LID
	ext  bool
}

// ReadCounters queries the performance management agent of every port that has a link for
// its counters, for at most CountersTime, and for the extended ones of those whose
// counters are worth it. An error is one of the own port.
func ReadCounters(ctx context.Context, c Conn, f *fabric.Fabric, worth func(*mad.PortCounters) bool) (*Counters, error) {
	r := &counting{f: f, open: map[uint32]question{}, tid: rand.Uint32(), dead: map[int32]bool{}, worth: worth,
		out: &Counters{Ports: map[int32]PortCounters{}}}
	for i := range f.Ports {
		if q := &f.Ports[i]; q.Num > 0 && q.Peer != fabric.None {
			r.todo = append(r.todo, question{port: int32(i), lid: lidOf(f, int32(i))})
		}
	}
	all := slices.Clone(r.todo)
	// One port of each node first: a node that does not answer costs one question.
	slices.SortStableFunc(r.todo, func(a, b question) int { return cmp.Compare(f.Ports[a.port].Num, f.Ports[b.port].Num) })
	limit, cancel := context.WithTimeout(ctx, CountersTime)
	defer cancel()
	err := r.run(limit, c)
	if ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded) {
		err = nil
	}
	for _, q := range all {
		if _, ok := r.out.Ports[q.port]; !ok {
			r.out.Silent = append(r.out.Silent, q.port)
		}
	}
	return r.out, err
}

// lidOf is the LID that a port's agent answers to: its own, or that of port 0.
func lidOf(f *fabric.Fabric, port int32) ib.LID {
	p := &f.Ports[port]
	if f.Nodes[p.Node].Switch != fabric.None {
		return f.Ports[f.Port(p.Node, 0)].LID
	}
	return p.LID
}

// next sends as many requests as the window allows.
func (r *counting) next(c Conn) error {
	for len(r.open) < window && len(r.todo) > 0 {
		q := r.todo[0]
		r.todo = r.todo[1:]
		p := &r.f.Ports[q.port]
		if !q.lid.IsUnicast() || r.dead[p.Node] {
			continue
		}
		attr := mad.AttrPortCounters
		r.tid++
		if q.ext {
			attr = mad.AttrPortCountersExt
		}
		k := transport.Packet{LID: q.lid, QPN: 1, Timeout: perfTimeout, Retries: perfRetries}
		h := mad.Header{BaseVersion: mad.BaseVer, Class: mad.ClassPerf, ClassVersion: mad.PerfClassV, Method: mad.MethodGet,
			TID: uint64(r.tid), Attr: attr}
		h.Put(&k.MAD)
		mad.SetPortSelect(&k.MAD, p.Num)
		if err := c.Send(&k); err != nil {
			return err
		}
		r.open[r.tid] = q
	}
	return nil
}

func (r *counting) run(ctx context.Context, c Conn) error {
	into := make([]transport.Packet, window)
	for {
		if err := r.next(c); err != nil {
			return err
		}
		if len(r.open) == 0 {
			return nil
		}
		n, err := c.Recv(ctx, into)
		if err != nil {
			return err
		}
		for i := range into[:n] {
			p := &into[i]
			tid := uint32(mad.TIDOf(&p.MAD))
			q, ok := r.open[tid]
			if !ok {
				continue
			}
			delete(r.open, tid)
			if p.Err != nil && !errors.Is(p.Err, transport.ErrTimeout) {
				return p.Err
			}
			r.answer(q, p)
		}
	}
}

// answer keeps an answer.
func (r *counting) answer(q question, p *transport.Packet) {
	if p.Err != nil {
		r.dead[r.f.Ports[q.port].Node] = true
		return
	}
	if mad.StatusOf(&p.MAD) != 0 || mad.PortSelect(&p.MAD) != r.f.Ports[q.port].Num {
		return // it has not these counters, or not of this port
	}
	data := p.MAD[mad.PerfDataOffset:]
	if q.ext {
		var x mad.PortCountersExt
		if x.Decode(data) == nil {
			a := r.out.Ports[q.port]
			a.Received, a.Sent = x.RcvPkts, x.XmitPkts
			r.out.Ports[q.port] = a
		}
		return
	}
	var x mad.PortCounters
	if x.Decode(data) != nil {
		return
	}
	r.out.Ports[q.port] = PortCounters{PortCounters: x, Received: uint64(x.RcvPkts), Sent: uint64(x.XmitPkts)}
	if r.worth(&x) {
		q.ext = true
		r.todo = append(r.todo, q)
	}
}
