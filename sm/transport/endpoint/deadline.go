package endpoint

import (
	"slices"
	"time"

	"ibnetworkd/sm/transport"
)

type kind uint8

const (
	kindRequest kind = iota
	kindSend
	kindRecv
)

type deadline struct {
	at   time.Time
	kind kind
	tid  uint32
	key  xferKey
}

type deadlines []deadline

// push and pop keep d[0] the earliest: container/heap without its allocation
// for each entry.
func (d *deadlines) push(x deadline) {
	h := append(*d, x)
	for i := len(h) - 1; i > 0; {
		up := (i - 1) / 2
		if !h[i].at.Before(h[up].at) {
			break
		}
		h[i], h[up] = h[up], h[i]
		i = up
	}
	*d = h
}

func (d *deadlines) pop() deadline {
	h := *d
	x, n := h[0], len(h)-1
	h[0] = h[n]
	h = h[:n]
	for i := 0; ; {
		c := 2*i + 1
		if c >= n {
			break
		}
		if c+1 < n && h[c+1].at.Before(h[c].at) {
			c++
		}
		if !h[c].at.Before(h[i].at) {
			break
		}
		h[i], h[c] = h[c], h[i]
		i = c
	}
	*d = h
	return x
}

// arm adds a deadline. e.mu must be locked.
func (e *Endpoint) arm(d deadline) {
	if e.err != nil {
		return
	}
	if len(e.dead) > 4*(len(e.pending)+len(e.sends)+len(e.recvs))+128 {
		e.prune()
	}
	e.dead.push(d)
	e.setTimer()
}

// prune drops the entries of requests that were answered: a program with many
// requests and long timeouts would keep one for each request of a timeout. e.mu
// must be locked.
func (e *Endpoint) prune() {
	live := e.dead[:0]
	for _, d := range e.dead {
		keep := false
		switch d.kind {
		case kindRequest:
			q := e.pending[d.tid]
			keep = q != nil && !d.at.After(q.deadline)
		case kindSend:
			keep = e.sends[d.key] != nil
		case kindRecv:
			keep = e.recvs[d.key] != nil
		}
		if keep {
			live = append(live, d)
		}
	}
	clear(e.dead[len(live):])
	// A sorted list is a heap.
	slices.SortFunc(live, func(a, b deadline) int { return a.at.Compare(b.at) })
	e.dead = live
}

// setTimer sets the timer for the first deadline. e.mu must be locked.
func (e *Endpoint) setTimer() {
	if len(e.dead) == 0 {
		return
	}
	at := e.dead[0].at
	switch {
	case e.timer == nil:
		e.timer = time.AfterFunc(time.Until(at), e.expire)
	case e.timerAt.IsZero() || at.Before(e.timerAt):
		e.timer.Reset(time.Until(at))
	default:
		return
	}
	e.timerAt = at
}

func (e *Endpoint) expire() {
	now := time.Now()
	var out []transport.Packet
	woken := false
	e.mu.Lock()
	e.timerAt = time.Time{}
	for len(e.dead) > 0 && !e.dead[0].at.After(now) {
		d := e.dead.pop()
		switch d.kind {
		case kindRequest:
			q := e.pending[d.tid]
			switch {
			case q == nil || q.sending:
			case q.deadline.After(now):
				if !q.deadline.Equal(d.at) {
					e.again(deadline{at: q.deadline, tid: d.tid})
				}
			case q.tries < q.p.Retries && q.p.Long == nil:
				q.tries++
				q.deadline = now.Add(q.p.Timeout)
				e.again(deadline{at: q.deadline, tid: d.tid})
				out = append(out, q.p)
			default:
				q.p.Err = transport.ErrTimeout
				e.push(&q.p)
				e.dropRequest(d.tid)
				woken = true
			}
		case kindSend:
			x := e.sends[d.key]
			switch {
			case x == nil:
			case x.deadline.After(now):
				e.again(deadline{at: x.deadline, key: d.key, kind: kindSend})
			default:
				abort, send := x.s.Timeout()
				if send {
					p := x.p
					p.MAD = abort
					out = append(out, p)
				}
				if x.s.Err() != nil {
					e.endSend(d.key)
					if q := e.pending[x.req]; x.isReq && q != nil {
						q.p.Err = transport.ErrTimeout
						e.push(&q.p)
						e.dropRequest(x.req)
						woken = true
					}
					break
				}
				x.deadline = now.Add(x.timeout)
				e.again(deadline{at: x.deadline, key: d.key, kind: kindSend})
				out = e.segments(x, out)
			}
		case kindRecv:
			if r := e.recvs[d.key]; r != nil {
				if r.deadline.After(now) {
					e.again(deadline{at: r.deadline, key: d.key, kind: kindRecv})
				} else {
					e.endRecv(d.key)
				}
			}
		}
	}
	if e.err == nil {
		e.setTimer()
	}
	e.mu.Unlock()
	e.writeAll(out)
	if woken {
		e.woken()
	}
}

// again adds a deadline without setting the timer. e.mu must be locked.
func (e *Endpoint) again(d deadline) { e.dead.push(d) }
