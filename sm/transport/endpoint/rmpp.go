package endpoint

import (
	"time"

	"ibnetworkd/sm/mad"
	"ibnetworkd/sm/transport"
)

// sendLong starts a long message.
func (e *Endpoint) sendLong(p *transport.Packet, isReq bool) error {
	if len(p.Long) > transport.MaxMessage {
		return transport.ErrTooLong
	}
	msg := p.Long
	if isReq {
		// The identifier was changed in the copy of the header only.
		msg = append([]byte(nil), msg...)
		mad.CopyTID(msg, &p.MAD)
	}
	s, err := mad.NewRMPPSender(msg, e.cfg.RMPPRetries)
	if err != nil {
		return err
	}
	key := keyOf(p, &p.MAD).own()
	x := &sending{key: key, s: s, p: *p, timeout: e.cfg.RMPPTimeout, req: uint32(mad.TIDOf(&p.MAD)), isReq: isReq, bytes: len(msg)}
	x.p.Long = nil
	e.mu.Lock()
	if e.err != nil {
		defer e.mu.Unlock()
		return e.err
	}
	if e.sends[key] != nil && !isReq {
		// The request came twice. Restarting would confuse a peer that has
		// half of the answer, and the rest is on its way.
		e.mu.Unlock()
		return nil
	}
	e.endSend(key)
	if e.sendsN+x.bytes > transport.MaxSending {
		defer e.mu.Unlock()
		return transport.ErrBusy
	}
	e.sendsN += x.bytes
	x.deadline = time.Now().Add(x.timeout)
	e.sends[key] = x
	e.arm(deadline{at: x.deadline, key: key, kind: kindSend})
	if isReq {
		q := e.addRequest(p)
		q.sending = true
	}
	out := e.segments(x, nil)
	e.mu.Unlock()
	return e.writeAll(out)
}

// endSend and endRecv forget transfers. e.mu must be locked.
func (e *Endpoint) endSend(k xferKey) {
	if x := e.sends[k]; x != nil {
		e.sendsN -= x.bytes
		delete(e.sends, k)
	}
}

func (e *Endpoint) endRecv(k xferKey) {
	if r := e.recvs[k]; r != nil {
		e.recvsN -= r.bytes
		delete(e.recvs, k)
	}
}

// segments collects what the window allows. e.mu must be locked.
func (e *Endpoint) segments(x *sending, out []transport.Packet) []transport.Packet {
	for {
		p := x.p
		if !x.s.Next(&p.MAD) {
			return out
		}
		out = append(out, p)
	}
}

func (e *Endpoint) writeAll(ps []transport.Packet) (err error) {
	for i := range ps {
		if werr := e.cfg.Write(&ps[i]); werr != nil && err == nil {
			err = werr
		}
	}
	return err
}

func keyOf(p *transport.Packet, b *mad.Buf) xferKey {
	return xferKey{mad.TIDOf(b), p.LID, p.QPN, mad.ClassOf(b), mad.MethodOf(b)}
}

// own is the key of a message sent from here: of a request's identifier only the
// low half is sure to come back.
func (k xferKey) own() xferKey {
	if !k.meth.IsResponse() {
		k.tid &= 0xffffffff
	}
	return k
}

// answered gives what to send after the receiver of a message has sent p. e.mu must be
// locked.
func (e *Endpoint) answered(k xferKey, x *sending, p *transport.Packet) (out []transport.Packet) {
	reply, send := x.s.Recv(&p.MAD)
	if send {
		out = append(out, x.p)
		out[len(out)-1].MAD = reply
	}
	if x.s.Err() == nil && !x.s.Done() {
		x.deadline = time.Now().Add(x.timeout)
		return e.segments(x, out)
	}
	e.endSend(k)
	if q := e.pending[x.req]; x.isReq && q != nil {
		q.sending = false
		q.deadline = time.Now().Add(q.p.Timeout)
		e.arm(deadline{at: q.deadline, tid: x.req, kind: kindRequest})
	}
	return out
}

func (e *Endpoint) deliverRMPP(p *transport.Packet) {
	h := mad.DecodeRMPP(&p.MAD)
	key := keyOf(p, &p.MAD)
	var out []transport.Packet
	e.mu.Lock()
	if h.Type == mad.RMPPAck || h.Type == mad.RMPPStop || h.Type == mad.RMPPAbort {
		// Such a packet answers a message sent from here, whose method has the other
		// direction, or ends a transfer in this direction.
		back := key
		back.meth ^= mad.MethodRespBit
		back = back.own()
		if x := e.sends[back]; x != nil {
			out = e.answered(back, x, p)
			e.mu.Unlock()
			e.writeAll(out)
			return
		}
		if r := e.recvs[key]; r == nil || h.Type == mad.RMPPAck {
			e.stats.BadRMPP++
			e.mu.Unlock()
			return
		}
	}
	resp := key.meth.IsResponse()
	tid := uint32(key.tid)
	r := e.recvs[key]
	if r == nil {
		if resp && e.pending[tid] == nil {
			e.stats.Unmatched++
			e.mu.Unlock()
			return
		}
		if h.Segment != 1 || len(e.recvs)-len(e.done) >= maxTransfers {
			e.stats.BadRMPP++
			e.mu.Unlock()
			return
		}
		r = &receiving{r: mad.NewRMPPReceiver(e.cfg.MaxMessage)}
		e.recvs[key] = r
		r.deadline = time.Now().Add(rmppIdle)
		e.arm(deadline{at: r.deadline, key: key, kind: kindRecv})
	}
	if e.recvsN > maxReceiving && r.bytes > 0 {
		// Its sender will give up, or retry when fewer are under way.
		e.stats.BadRMPP++
		e.endRecv(key)
		e.mu.Unlock()
		return
	}
	reply, send, done := r.r.Recv(&p.MAD)
	e.recvsN -= r.bytes
	r.bytes = r.r.Buffered()
	e.recvsN += r.bytes
	r.deadline = time.Now().Add(rmppIdle)
	if q := e.pending[tid]; resp && q != nil {
		q.deadline = time.Now().Add(max(q.p.Timeout, e.cfg.RMPPTimeout*time.Duration(e.cfg.RMPPRetries)))
		q.tries = q.p.Retries
	}
	if send {
		a := *p
		a.MAD, a.Long, a.Err = reply, nil, nil
		out = append(out, a)
	}
	if done {
		q := *p
		q.Long = r.r.Message()
		n := copy(q.MAD[:], q.Long)
		clear(q.MAD[n:])
		if !resp || e.dropRequest(tid) != nil {
			e.push(&q)
		} else {
			e.stats.Unmatched++
		}
		r.r.Release()
		e.recvsN -= r.bytes
		r.bytes = 0
		e.done = append(e.done, key)
		if len(e.done) > maxFinished {
			e.endRecv(e.done[0])
			e.done = e.done[1:]
		}
	} else if r.r.Err() != nil {
		e.stats.BadRMPP++
	}
	e.mu.Unlock()
	e.writeAll(out)
	if done {
		e.woken()
	}
}
