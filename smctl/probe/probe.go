// Package probe asks a fabric about its subnet managers, and draws its
// topology, with packets sent from one port.
//
// It only reads: every packet is a Get or GetTable. Walks use directed routes,
// which work before any subnet manager has given out LIDs. It decides nothing;
// package smctl does, and smctl/worker calls this one for it.
package probe

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"ibnetworkd/ib"
	"ibnetworkd/sm/discover"
	"ibnetworkd/sm/fabric"
	"ibnetworkd/sm/mad"
	"ibnetworkd/sm/smp"
	"ibnetworkd/sm/transport"
	"ibnetworkd/smctl"
)

// Conn carries the questions; transport.Transport is one.
type Conn interface {
	Send(*transport.Packet) error
	Recv(context.Context, []transport.Packet) (int, error)
}

// Bounds of a walk. A subnet manager uses the same window sizes; the timeout is
// short because an answer takes microseconds, and a port that does not answer
// is asked again.
const (
	window  = 32
	timeout = 200 * time.Millisecond
	retries = 2
)

// answerLimit is longer than the kernel takes to report a timeout. Of an SMP to
// the own port that the driver does not answer it reports nothing at all
// (drivers/infiniband/core/mad.c, handle_outgoing_dr_smp).
const answerLimit = (retries + 2) * timeout

// errSilent means that not even the own port answered. A walk that cannot leave
// its port must not pass for one that found none.
var errSilent = errors.New("the port does not answer subnet management packets; one that an M_Key protects does not")

// run sends what the source gives and steps the answers back in. Transaction identifiers
// begin at random, so that a late answer to a probe before it is taken for none of these.
func run(ctx context.Context, c Conn, src smp.Source) error {
	open, silent, tid := map[uint32]smp.Request{}, 0, rand.Uint32()
	into := make([]transport.Packet, window)
	for {
		for len(open) < window {
			req, ok := src.Next()
			if !ok {
				break
			}
			tid++
			p := transport.Packet{LID: ib.LIDPermissive, Timeout: timeout, Retries: retries}
			mad.PutDR(&p.MAD, req.Method, req.Attr, req.Mod, uint64(tid), 0, req.Path, req.Data[:])
			if err := c.Send(&p); err != nil {
				return err
			}
			open[tid] = req
		}
		if len(open) == 0 {
			return nil
		}
		limit, cancel := context.WithTimeout(ctx, answerLimit)
		n, err := c.Recv(limit, into)
		cancel()
		if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
			// Once may be a process that did not run, and has not read what came.
			if silent++; silent == 2 {
				silent = 0
				for _, tid := range slices.Sorted(maps.Keys(open)) {
					req := open[tid]
					delete(open, tid)
					src.Step(&smp.Reply{Request: req, Timeout: true})
				}
			}
			continue
		}
		if err != nil {
			return err
		}
		silent = 0
		for i := range into[:n] {
			p := &into[i]
			tid := uint32(mad.TIDOf(&p.MAD))
			req, ok := open[tid]
			if !ok {
				continue
			}
			delete(open, tid)
			r := smp.Reply{Request: req, Timeout: p.Err != nil}
			if p.Err == nil {
				r.Data, r.Status = *mad.SMPData(&p.MAD), mad.StatusOf(&p.MAD)
			} else if !errors.Is(p.Err, transport.ErrTimeout) {
				return p.Err
			}
			src.Step(&r)
		}
	}
}

// walk discovers the whole fabric.
func walk(ctx context.Context, c Conn) (*discover.Result, error) {
	d := discover.New(discover.Options{})
	if err := run(ctx, c, d); err != nil {
		return nil, err
	}
	res := d.Result()
	if res.Fabric == nil {
		return nil, errSilent
	}
	return res, nil
}

// Walk searches the whole fabric for subnet managers.
func Walk(ctx context.Context, c Conn) ([]smctl.SMInfo, error) {
	res, err := walk(ctx, c)
	if err != nil {
		return nil, err
	}
	var out []smctl.SMInfo
	for _, s := range res.SMs {
		p := &res.Fabric.Ports[s.Port]
		info := smctl.SMInfo{GUID: s.Info.GUID, LID: p.Info.LID(), Priority: s.Info.Priority, State: smctl.SMState(s.Info.State),
			Node: res.Fabric.Nodes[p.Node].Desc}
		if s.Status != 0 {
			continue
		}
		if s.Silent {
			// Its port says that it runs, it does not answer: it may be
			// starting. That is reason enough to wait a little.
			info.GUID, info.Priority, info.State = p.GUID, 0, smctl.SMDiscovering
		}
		out = append(out, info)
	}
	slices.SortFunc(out, func(a, b smctl.SMInfo) int {
		switch {
		case a == b:
			return 0
		case a.Outranks(b.Priority, b.GUID):
			return -1
		}
		return 1
	})
	return out, nil
}

// Found is a fabric and how it was read.
type Found struct {
	Fabric   *fabric.Fabric
	Managers []smctl.SMInfo
	Warnings []string
	// SA is the LID of the subnet administrator that the fabric was read from; 0
	// says that it was discovered by a walk, because of Why.
	SA  ib.LID
	Why string
}

// Topology gives the whole fabric: as the subnet administrator has it, or by a walk
// where none answers, its records are incomplete, or walk is set.
func Topology(ctx context.Context, c Conn, walk bool) (*Found, error) {
	why := "as asked for"
	if !walk {
		found, err := records(ctx, c)
		if err == nil {
			return found, nil
		}
		var not *saError
		if !errors.As(err, &not) {
			return nil, err
		}
		why = not.why
	}
	found, err := discovered(ctx, c)
	if err != nil {
		return nil, err
	}
	found.Why = why
	return found, nil
}

// discovered walks the fabric.
func discovered(ctx context.Context, c Conn) (*Found, error) {
	res, err := walk(ctx, c)
	if err != nil {
		return nil, err
	}
	// A walk leaves the LIDs to the manager that is to assign them; here those count
	// that the ports have.
	for _, e := range res.Fabric.EndPorts {
		p := &res.Fabric.Ports[e]
		if lid := p.Info.LID(); p.Known && lid.IsUnicast() {
			p.LID, p.LMC = lid, p.Info.LMC()
		}
	}
	found := &Found{Fabric: res.Fabric, Warnings: slices.Clone(res.Warnings)}
	for _, s := range res.SMs {
		if !s.Silent && s.Status == 0 {
			found.Managers = append(found.Managers, smctl.SMInfo{GUID: s.Info.GUID, LID: res.Fabric.Ports[s.Port].Info.LID(),
				Priority: s.Info.Priority, State: smctl.SMState(s.Info.State)})
		}
	}
	// The walk leaves its own port out; the one that serves it may be there.
	if own := res.Fabric.SMPort; own != fabric.None {
		if lid := res.Fabric.Ports[own].Info.MasterSMLID(); lid != 0 &&
			!slices.ContainsFunc(found.Managers, func(s smctl.SMInfo) bool { return s.LID == lid }) {
			more, err := AskLID(ctx, c, lid)
			if err != nil {
				return nil, err
			}
			for i := range more {
				more[i].Node = "" // the fabric has the names
			}
			found.Managers = append(more, found.Managers...)
		}
	}
	for _, s := range res.Silent {
		found.Warnings = append(found.Warnings, "no answer from behind "+s)
	}
	for _, s := range res.Duplicates {
		found.Warnings = append(found.Warnings, s.String())
	}
	return found, nil
}

// exchange sends one request and gives its answer; nil without an error is silence,
// or a refusal.
func exchange(ctx context.Context, c Conn, p *transport.Packet) (*transport.Packet, error) {
	tid := uint32(mad.TIDOf(&p.MAD))
	if err := c.Send(p); err != nil {
		return nil, err
	}
	into := make([]transport.Packet, 4)
	for {
		n, err := c.Recv(ctx, into)
		if err != nil {
			return nil, err
		}
		for i := range into[:n] {
			q := &into[i]
			switch {
			case uint32(mad.TIDOf(&q.MAD)) != tid:
				continue
			case errors.Is(q.Err, transport.ErrTimeout):
				return nil, nil
			case q.Err != nil:
				return nil, q.Err
			case mad.StatusOf(&q.MAD) != 0:
				return nil, nil
			}
			return q, nil
		}
	}
}

// get queries the agent or manager at a LID for an attribute.
func get(ctx context.Context, c Conn, lid ib.LID, attr mad.AttrID) (*transport.Packet, error) {
	p := transport.Packet{LID: lid, Timeout: timeout, Retries: retries}
	mad.PutLR(&p.MAD, mad.MethodGet, attr, 0, uint64(rand.Uint32()), 0, nil)
	return exchange(ctx, c, &p)
}

// AskLID queries the subnet manager at a LID. No answer is an empty list; so is a host
// that is there and runs no subnet manager any more.
func AskLID(ctx context.Context, c Conn, lid ib.LID) ([]smctl.SMInfo, error) {
	q, err := get(ctx, c, lid, mad.AttrSMInfo)
	if err != nil || q == nil {
		return nil, err
	}
	var info mad.SMInfo
	if err := info.Decode(mad.SMPData(&q.MAD)[:]); err != nil {
		return nil, fmt.Errorf("answer of LID %d: %w", uint16(lid), err)
	}
	sm := smctl.SMInfo{GUID: info.GUID, LID: lid, Priority: info.Priority, State: smctl.SMState(info.State)}
	// Its name is for people: without it the answer counts as well.
	if q, err := get(ctx, c, lid, mad.AttrNodeDescription); err == nil && q != nil {
		sm.Node = mad.NodeDescription(*mad.SMPData(&q.MAD)).String()
	}
	return []smctl.SMInfo{sm}, nil
}

// AskSA queries the subnet administrator at a LID for its ClassPortInfo, as every host
// does before it joins a group, and reports whether it answered.
func AskSA(ctx context.Context, c Conn, lid ib.LID) (bool, error) {
	p := transport.Packet{LID: lid, QPN: 1, Timeout: timeout, Retries: retries}
	h := mad.NewSA(mad.MethodGet, mad.AttrClassPortInfo, rand.Uint32(), 0)
	p.SetMessage(h.Append(nil), false)
	q, err := exchange(ctx, c, &p)
	return q != nil, err
}
