package wire

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
)

const (
	helloEvery = 200 * time.Millisecond
	deadAfter  = 10 * time.Second // a busy machine may starve the other end for long
	maxQueued  = 64 << 20         // bytes that wait for a slow reader; packets beyond are lost
)

// Port is what a cable is put into.
type Port interface {
	// SetUp sets whether the far end exists and is plugged in.
	SetUp(up bool)
	// Receive takes a packet, which is the port's from then on.
	Receive(p *Packet)
}

// Cable is the near end of a cable. Its methods do not block and may be called
// from any goroutine.
type Cable struct {
	epoch uint32
	wake  chan struct{}

	mu     sync.Mutex
	ready  bool
	peer   uint32
	up     bool
	heard  time.Time
	queue  [][]byte
	queued int
	lost   uint64
}

// New makes a cable. epoch is a random number that differs from that of any
// earlier life of the same end.
func New(epoch uint32) *Cable { return &Cable{epoch: epoch | 1, wake: make(chan struct{}, 1)} }

// SetReady reports to the far end whether the near port is plugged in.
func (c *Cable) SetReady(ready bool) {
	c.mu.Lock()
	c.ready = ready
	c.hello()
	c.mu.Unlock()
}

// Send puts a packet on the cable. The packet may be reused afterwards.
func (c *Cable) Send(p *Packet) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(p.Data) > MaxPacket || c.queued > maxQueued {
		c.lost++
		return
	}
	for _, f := range (header{epoch: c.epoch, peer: c.peer}).frames(p) {
		c.put(f)
	}
}

// Lost is the number of packets dropped because the queue was full.
func (c *Cable) Lost() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lost
}

// put queues a frame. c.mu must be locked.
func (c *Cable) put(f []byte) {
	c.queue = append(c.queue, f)
	c.queued += len(f)
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

func (c *Cable) hello() {
	h := header{kind: hello, epoch: c.epoch, peer: c.peer}
	if c.ready {
		h.flags = flagUp
	}
	c.put(h.append(nil, nil))
}

// frame takes one frame from the far end and returns a packet that it completes,
// and the states of the link that it brings, one after the other.
func (c *Cable) frame(b []byte, now time.Time, j *joiner) (p *Packet, changes []bool) {
	h, rest, err := decode(b)
	if err != nil {
		return nil, nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	set := func(up bool) {
		if up != c.up {
			c.up = up
			changes = append(changes, up)
		}
	}
	switch h.kind {
	case hello:
		known := h.peer == c.epoch
		if h.epoch != c.peer { // it has been born again
			c.peer = h.epoch
			set(false)
			known = false
		}
		c.heard = now
		set(known && h.flags&flagUp != 0)
		if !known {
			c.hello()
		}
	case bye:
		c.peer = 0
		set(false)
	case data:
		if c.up && h.epoch == c.peer && h.peer == c.epoch {
			return j.add(&h, rest), nil
		}
	}
	return nil, changes
}

// Run carries packets between port and the connection until the context ends or
// the connection does; it closes the connection. Its calls of port come from one
// goroutine at a time.
func (c *Cable) Run(ctx context.Context, conn io.ReadWriteCloser, port Port) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	var wg sync.WaitGroup
	wg.Go(func() { cancel(c.write(ctx, conn)) })
	var events sync.Mutex // of port
	wg.Go(func() { c.tick(ctx, &events, port) })
	var j joiner
	buf := make([]byte, etherLen+MaxFrame+64)
	for {
		n, err := conn.Read(buf)
		if err != nil {
			cancel(err)
			break
		}
		events.Lock()
		p, changes := c.frame(buf[:n], time.Now(), &j)
		for _, up := range changes {
			port.SetUp(up)
		}
		if p != nil {
			port.Receive(p)
		}
		events.Unlock()
	}
	wg.Wait()
	err := context.Cause(ctx)
	if errors.Is(err, net.ErrClosed) || errors.Is(err, os.ErrClosed) || errors.Is(err, io.EOF) || errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

func (c *Cable) tick(ctx context.Context, events *sync.Mutex, port Port) {
	t := time.NewTicker(helloEvery)
	defer t.Stop()
	for {
		c.mu.Lock()
		c.hello()
		c.mu.Unlock()
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		events.Lock()
		c.mu.Lock()
		dead := c.up && time.Since(c.heard) > deadAfter
		if dead {
			c.up = false
		}
		c.mu.Unlock()
		if dead {
			port.SetUp(false)
		}
		events.Unlock()
	}
}

func (c *Cable) write(ctx context.Context, conn io.Writer) error {
	for {
		c.mu.Lock()
		batch := c.queue
		c.queue, c.queued = nil, 0
		c.mu.Unlock()
		for _, f := range batch {
			// A far end that is not there refuses; one day it comes back.
			if _, err := conn.Write(f); err != nil && !errors.Is(err, syscall.ECONNREFUSED) && !errors.Is(err, syscall.ENOBUFS) {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-c.wake:
		}
	}
}
