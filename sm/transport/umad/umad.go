// Package umad is the transport to real InfiniBand ports: MADs over the
// kernel's /dev/infiniband/umadN. The kernel matches requests with responses,
// sends again, reports timeouts and cuts and joins long messages; this package
// registers for the classes of a subnet manager and translates.
package umad

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"ibnetworkd/ib"
	"ibnetworkd/internal/kernel/sysfs"
	"ibnetworkd/internal/kernel/umad"
	"ibnetworkd/sm/mad"
	"ibnetworkd/sm/transport"
)

// List reads every port that has a MAD device, of any link layer: the caller
// picks those with link layer InfiniBand. sysfs.ErrNoUMAD says that ib_umad is
// not loaded.
func List(fs sysfs.FS) ([]transport.Port, error) {
	us, err := fs.UMADs()
	if err != nil {
		return nil, err
	}
	var l []transport.Port
	for _, u := range us {
		p, err := port(fs, u.IBDev, u.Port)
		if err != nil {
			continue // it disappeared meanwhile
		}
		l = append(l, p)
	}
	return l, nil
}

func port(fs sysfs.FS, dev string, num int) (transport.Port, error) {
	d, err := fs.IBDevice(dev)
	if err != nil {
		return transport.Port{}, err
	}
	for _, p := range d.Ports {
		if p.Num == num {
			return portOf(dev, &p, d.NodeGUID, d.NodeType), nil
		}
	}
	return transport.Port{}, fmt.Errorf("device %s has no port %d", dev, num)
}

func portOf(dev string, p *sysfs.IBPort, node ib.GUID, typ ib.NodeType) transport.Port {
	sl := uint8(0)
	if p.SMSL != nil {
		sl = *p.SMSL
	}
	return transport.Port{
		Device: dev, Num: uint8(p.Num), NodeGUID: node, PortGUID: p.GUID(), LID: p.LID, SMLID: p.SMLID, SMSL: ib.SL(sl & 15),
		State: p.State, PhysState: p.Phys, LinkLayer: p.LinkLayer, NodeType: typ,
	}
}

// Transport is an open port.
type Transport struct {
	fs       sysfs.FS
	dev      string
	num      int
	issmName string
	p        *umad.Port
	agents   map[mad.Class]uint32
	routed   spread // requests by directed routes

	send   sync.Mutex // Send's packet
	out    umad.Packet
	long   underway
	in     umad.Packet // Recv's
	ctx    context.Context
	stop   func() bool
	closed atomic.Bool

	issm sync.Mutex
	isSM io.Closer

	node     ib.GUID // of the device, for Port
	nodeType ib.NodeType
}

var smpMethods = []uint8{uint8(mad.MethodGet), uint8(mad.MethodSet), uint8(mad.MethodTrap)}

var saMethods = []uint8{uint8(mad.MethodGet), uint8(mad.MethodSet), uint8(mad.MethodGetTable), uint8(mad.MethodGetTrace),
	uint8(mad.MethodGetMulti), uint8(mad.MethodDelete)}

// Open opens a port and registers for the requests of a subnet manager. Another
// subnet manager on the same port gives transport.ErrIsSM.
func Open(fs sysfs.FS, dev string, num uint8) (*Transport, error) {
	us, err := fs.UMADs()
	if err != nil {
		return nil, fmt.Errorf("port %s/%d: %w", dev, num, err)
	}
	for _, u := range us {
		if u.IBDev != dev || u.Port != int(num) {
			continue
		}
		if u.ISSM == "" {
			// The kernel makes one for each port with QP0 (ib_umad_init_port).
			return nil, fmt.Errorf("port %s/%d has no issm device: %w", dev, num, transport.ErrNoQP0)
		}
		t := &Transport{fs: fs, dev: dev, num: int(num), issmName: u.ISSM, agents: map[mad.Class]uint32{}}
		if t.p, err = umad.Open(context.Background(), u.Name); err != nil {
			return nil, fmt.Errorf("port %s/%d: open %s: %w", dev, num, u.Name, err)
		}
		for _, a := range []umad.Agent{
			{QPN: 0, Class: uint8(mad.ClassSubnDR), Version: mad.SMPClassV, Methods: smpMethods},
			{QPN: 0, Class: uint8(mad.ClassSubnLID), Version: mad.SMPClassV, Methods: smpMethods},
			{QPN: 1, Class: uint8(mad.ClassSA), Version: mad.SAClassV, Methods: saMethods, RMPP: 1},
			{QPN: 1, Class: uint8(mad.ClassPerf), Version: mad.PerfClassV},
		} {
			id, err := t.p.Register(a)
			if err != nil {
				t.p.Close()
				switch {
				case errors.Is(err, syscall.EINVAL):
					err = fmt.Errorf("%w (%v)", transport.ErrIsSM, err)
				case errors.Is(err, syscall.EPROTONOSUPPORT):
					err = fmt.Errorf("%w (%v)", transport.ErrNoQP0, err)
				case isGone(err):
					err = fmt.Errorf("%w (%v)", transport.ErrGone, err)
				}
				return nil, fmt.Errorf("port %s/%d: register for class 0x%02x: %w", dev, num, a.Class, err)
			}
			t.agents[mad.Class(a.Class)] = id
		}
		t.routed.add(t.agents[mad.ClassSubnDR])
		if err := t.routed.fill(t.p.Register); err != nil {
			t.p.Close()
			return nil, fmt.Errorf("port %s/%d: register to send SMPs: %w", dev, num, err)
		}
		return t, nil
	}
	return nil, fmt.Errorf("port %s/%d has no MAD device", dev, num)
}

// Send implements transport.Transport.
func (t *Transport) Send(p *transport.Packet) error {
	id, ok := t.agents[mad.ClassOf(&p.MAD)]
	if !ok {
		return fmt.Errorf("no agent for management class 0x%02x", mad.ClassOf(&p.MAD))
	}
	if len(p.Long) > transport.MaxMessage {
		return transport.ErrTooLong
	}
	t.send.Lock()
	defer t.send.Unlock()
	routed := p.Timeout > 0 && isRouted(&p.MAD)
	if routed {
		id = t.routed.pick()
	}
	if p.Long != nil && !t.long.reserve(time.Now(), len(p.Long)) {
		return fmt.Errorf("port %s/%d: %w", t.dev, t.num, transport.ErrBusy)
	}
	k := &t.out
	k.Agent, k.Status = id, 0
	k.Timeout, k.Retries = p.Timeout, uint32(max(p.Retries, 0))
	k.Addr = umad.Address{QPN: p.QPN, QKey: uint32(p.QKey), LID: p.LID, SL: uint8(p.SL), PathBits: p.PathBits, PKeyIndex: p.PKeyIndex}
	if p.QPN != 0 && p.QKey == 0 {
		k.Addr.QKey = uint32(ib.QKeyGSI)
	}
	if p.HasGRH {
		k.Addr.GRH = &umad.GRH{GID: p.GID, GIDIndex: p.GIDIndex, HopLimit: p.HopLimit, TrafficClass: p.TrafficClass, FlowLabel: p.FlowLabel}
	}
	k.MAD = append(k.MAD[:0], p.Bytes()...)
	if p.Long != nil {
		// The kernel cuts a message that says so in its first RMPP header, and
		// sends each window as often as the header says.
		h := mad.RMPPHeader{Version: 1, Type: mad.RMPPData, RespTime: mad.RespTimeNone, Flags: mad.RMPPActive}
		var b mad.Buf
		h.Put(&b)
		copy(k.MAD[mad.RMPPOffset:mad.RMPPDataOffset], b[mad.RMPPOffset:])
		k.Retries = max(k.Retries, 3)
	}
	err := t.p.Send(k)
	if routed && err != nil {
		t.routed.done(id)
	}
	if cap(k.MAD) > 1<<16 {
		k.MAD = nil
	}
	if err != nil && p.Long != nil {
		t.long.refused(len(p.Long))
	}
	if errors.Is(err, syscall.EINVAL) && mad.MethodOf(&p.MAD).IsResponse() {
		// The same is on its way already (user_mad.c, is_duplicate); nothing
		// else is wrong with an answer from an agent that is there.
		return nil
	}
	return t.failed(err)
}

// isRouted reports whether a MAD goes by a directed route and is no response.
func isRouted(b *mad.Buf) bool {
	return mad.ClassOf(b) == mad.ClassSubnDR && !mad.MethodOf(b).IsResponse()
}

// underway counts the bytes of long messages that the kernel may still have. It
// does not report when a peer has acknowledged the last of a message; one that
// acknowledges nothing is given up after retries.
type underway struct {
	began time.Time
	slot  [9]int // bytes sent in each eighth of retries, as a ring
	last  int64  // the slot that was written last, counted from began
	sum   int
}

// retries is how long the kernel tries to send a window of a long message: 2 s for
// each of four times (mad_rmpp.c, send_next_seg).
const retries = 8 * time.Second

// reserve counts n bytes that are to be sent now, if that stays within MaxSending.
func (u *underway) reserve(now time.Time, n int) bool {
	if u.began.IsZero() {
		u.began = now
	}
	turns := int64(len(u.slot))
	at := int64(now.Sub(u.began) / (retries / 8))
	for u.last = max(u.last, at-turns); u.last < at; {
		u.last++
		u.sum -= u.slot[u.last%turns]
		u.slot[u.last%turns] = 0
	}
	if u.sum+n > transport.MaxSending {
		return false
	}
	u.slot[at%turns] += n
	u.sum += n
	return true
}

// refused uncounts the n bytes that were counted last: the kernel did not take
// them.
func (u *underway) refused(n int) {
	u.slot[u.last%int64(len(u.slot))] -= n
	u.sum -= n
}

// failed gives an error of the device the transport's name.
func (t *Transport) failed(err error) error {
	switch {
	case err == nil:
		return nil
	case t.closed.Load() || errors.Is(err, os.ErrClosed):
		return transport.ErrClosed
	case isGone(err):
		return fmt.Errorf("port %s/%d: %w", t.dev, t.num, transport.ErrGone)
	}
	return fmt.Errorf("port %s/%d: %w", t.dev, t.num, err)
}

// isGone reports whether an error says that the device is gone: EPIPE that of registering,
// the others those of reading and writing (user_mad.c).
func isGone(err error) bool {
	return errors.Is(err, syscall.EIO) || errors.Is(err, syscall.ENODEV) || errors.Is(err, syscall.EPIPE)
}

// SendAgents is how many agents send SMPs, and how many there are to be: a kernel that is
// short of memory or allows fewer for a file gives fewer.
func (t *Transport) SendAgents() (n, of int) { return len(t.routed.agent), sendAgents }

// Recv implements transport.Transport.
func (t *Transport) Recv(ctx context.Context, into []transport.Packet) (int, error) {
	if len(into) == 0 {
		return 0, nil
	}
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	if ctx != t.ctx {
		// One watch for all calls with the same context.
		if t.stop != nil {
			t.stop()
		}
		if err := t.p.SetReadDeadline(time.Time{}); err != nil {
			return 0, t.failed(err)
		}
		t.ctx = ctx
		t.stop = context.AfterFunc(ctx, func() { _ = t.p.SetReadDeadline(time.Unix(1, 0)) })
	}
	for {
		err := t.p.Recv(&t.in)
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			if cerr := ctx.Err(); cerr != nil {
				return 0, cerr
			}
			// A watch of an earlier context fired after its successor began.
			if err := t.p.SetReadDeadline(time.Time{}); err != nil {
				return 0, t.failed(err)
			}
			continue
		case err != nil:
			return 0, t.failed(err)
		}
		if len(t.in.MAD) < mad.HeaderLen {
			continue
		}
		t.fill(&into[0])
		n, err := t.TryRecv(into[1:])
		if err != nil {
			return 1, nil // it comes again
		}
		return 1 + n, nil
	}
}

// TryRecv is Recv that does not wait: 0 when there is nothing.
func (t *Transport) TryRecv(into []transport.Packet) (n int, err error) {
	for n < len(into) {
		ok, err := t.p.TryRecv(&t.in)
		switch {
		case err != nil && n > 0, errors.Is(err, os.ErrDeadlineExceeded):
			return n, nil // it comes again, and Recv knows whose time is over
		case err != nil:
			return 0, t.failed(err)
		case !ok:
			return n, nil
		}
		if len(t.in.MAD) >= mad.HeaderLen {
			t.fill(&into[n])
			n++
		}
	}
	return n, nil
}

func (t *Transport) fill(p *transport.Packet) {
	k := &t.in
	*p = transport.Packet{
		LID: k.Addr.LID, QPN: k.Addr.QPN, QKey: ib.QKey(k.Addr.QKey), SL: ib.SL(k.Addr.SL), PathBits: k.Addr.PathBits,
		PKeyIndex: k.Addr.PKeyIndex,
	}
	if g := k.Addr.GRH; g != nil {
		p.HasGRH, p.GID, p.GIDIndex, p.HopLimit, p.TrafficClass, p.FlowLabel = true, g.GID, g.GIDIndex, g.HopLimit, g.TrafficClass, g.FlowLabel
	}
	copy(p.MAD[:], k.MAD)
	// An answer, or a request that comes back without one.
	if mad.ClassOf(&p.MAD) == mad.ClassSubnDR && (k.Status != 0 || mad.MethodOf(&p.MAD).IsResponse()) {
		t.routed.done(k.Agent)
	}
	switch {
	case k.Status == syscall.ETIMEDOUT:
		p.Err = transport.ErrTimeout
	case k.Status != 0:
		p.Err = fmt.Errorf("port %s/%d: %w", t.dev, t.num, k.Status)
	case mad.IsRMPP(&p.MAD) || len(k.MAD) > mad.Size:
		p.Long = k.MAD
		k.MAD = nil
	}
}

// Forgets reports whether a request to the own port may come back neither answered nor as
// transport.ErrTimeout: what a driver consumes without an answer, as for a wrong M_Key,
// the kernel takes for done (drivers/infiniband/core/mad.c, handle_outgoing_dr_smp).
func (t *Transport) Forgets() bool { return true }

// SetIsSM implements transport.Transport: the bit is on while the issm device
// is open.
func (t *Transport) SetIsSM(on bool) error {
	t.issm.Lock()
	defer t.issm.Unlock()
	switch {
	case on && t.isSM == nil:
		if t.closed.Load() {
			return transport.ErrClosed
		}
		c, err := umad.OpenISSM(t.issmName)
		if errors.Is(err, umad.ErrSMRunning) {
			return fmt.Errorf("port %s/%d: %w", t.dev, t.num, transport.ErrIsSM)
		}
		if errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.EOPNOTSUPP) {
			// As mlx5 for a function that may not set the bit (set_port_caps_atomic).
			return fmt.Errorf("port %s/%d: open %s: %w (%v)", t.dev, t.num, t.issmName, transport.ErrNoQP0, err)
		}
		if err != nil {
			return fmt.Errorf("port %s/%d: open %s: %w", t.dev, t.num, t.issmName, err)
		}
		t.isSM = c
	case !on && t.isSM != nil:
		c := t.isSM
		t.isSM = nil
		return c.Close()
	}
	return nil
}

// Port implements transport.Transport.
func (t *Transport) Port() (transport.Port, error) {
	// What belongs to the device does not change while it is there: this is
	// asked several times a second.
	if t.node == 0 {
		d, err := t.fs.IBDevice(t.dev)
		if errors.Is(err, os.ErrNotExist) {
			return transport.Port{}, fmt.Errorf("port %s/%d: %w", t.dev, t.num, transport.ErrGone)
		}
		if err != nil {
			return transport.Port{}, err
		}
		t.node, t.nodeType = d.NodeGUID, d.NodeType
	}
	q, err := t.fs.IBPort(t.dev, t.num)
	p := portOf(t.dev, &q, t.node, t.nodeType)
	if err != nil && errors.Is(err, os.ErrNotExist) {
		return p, fmt.Errorf("port %s/%d: %w", t.dev, t.num, transport.ErrGone)
	}
	return p, err
}

// Close implements transport.Transport.
func (t *Transport) Close() error {
	if t.closed.Swap(true) {
		return nil
	}
	err := t.SetIsSM(false)
	if cerr := t.p.Close(); err == nil {
		err = cerr
	}
	return err
}
