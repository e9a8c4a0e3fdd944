// Package ibsim is a transport to the reference simulator ibsim, as a client of
// its sockets, and to whatever speaks its protocol. One datagram carries one
// MAD; requests, timeouts and long messages are the endpoint package's.
//
// A unix socket queues ten datagrams, so each system call carries few of them.
// Our own simulator takes the same data packets on a byte stream too, many with
// one call; a client that finds its socket uses it.
//
// The simulator shows a client the first port of one node. It knows nothing of
// partitions, SLs and GRHs: those fields of a packet have no effect.
package ibsim

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"ibnetworkd/ib"
	"ibnetworkd/sm/mad"
	"ibnetworkd/sm/transport"
	"ibnetworkd/sm/transport/endpoint"
)

// Options of Open.
type Options struct {
	// Sock is the base name of the simulator's sockets; "" takes the
	// environment's IBSIM_SOCKNAME, or "sim".
	Sock string
	// Host is the node to attach to, by id or description; "" takes the
	// environment's SIM_HOST, or the first node.
	Host string
	// Wait is how long to retry while the socket does not exist (default 2 s).
	Wait time.Duration
	// Datagrams keeps to the reference simulator's protocol where a stream is
	// offered too.
	Datagrams bool
}

// Transport is a connection to a simulator.
type Transport struct {
	ctl, data *net.UnixConn
	stream    *net.UnixConn // nil: datagrams on data
	slot      uint32
	portGUID  atomic.Uint64 // 0 until the own node has answered NodeInfo
	ep        *endpoint.Endpoint

	mu     sync.Mutex // the control socket: one question at a time
	closed atomic.Bool
	done   sync.WaitGroup

	out   sync.Mutex
	queue []Data // to be sent
	wake  chan struct{}
}

// maxQueue bounds what waits for a simulator that does not read.
const maxQueue = 1 << 16

var sockets atomic.Uint32

// addr is an abstract address of the simulator: its length counts one NUL after
// the name.
func addr(name string) *net.UnixAddr {
	return &net.UnixAddr{Name: "@" + name + "\x00", Net: "unixgram"}
}

// Open connects to a simulator.
func Open(o Options) (*Transport, error) {
	o.Sock = cmp.Or(o.Sock, os.Getenv("IBSIM_SOCKNAME"), "sim")
	o.Host = cmp.Or(o.Host, os.Getenv("SIM_HOST"))
	o.Wait = cmp.Or(o.Wait, 2*time.Second)
	// The name of the client's socket must be a number that no other client uses;
	// several connections of one process count up from high bits that process
	// numbers do not have.
	id := uint32(os.Getpid())
	if n := sockets.Add(1) - 1; n > 0 {
		id |= (n & 0xff) << 23
	}
	t := &Transport{wake: make(chan struct{}, 1)}
	var err error
	deadline := time.Now().Add(o.Wait)
	for {
		t.ctl, err = net.DialUnix("unixgram", addr(fmt.Sprintf("%s:ctl%d", o.Sock, id)), addr(o.Sock+":ctl"))
		if err == nil {
			break
		}
		if time.Now().After(deadline) {
			return nil, fmt.Errorf("connect to the simulator %q: %w (is it running, with this IBSIM_SOCKNAME?)", o.Sock, err)
		}
		time.Sleep(20 * time.Millisecond)
	}
	l, err := net.ListenUnixgram("unixgram", addr(fmt.Sprintf("%s:in%d", o.Sock, id)))
	if err != nil {
		t.ctl.Close()
		return nil, fmt.Errorf("bind a socket of the simulator %q: %w", o.Sock, err)
	}
	t.data = l
	_ = l.SetReadBuffer(4 << 20)
	_ = l.SetWriteBuffer(4 << 20)
	var c Ctl
	info := ClientInfo{ID: id, Node: o.Host}
	info.Put(&c)
	c.Type = CtlConnect
	if err = t.question(&c); err != nil {
		t.ctl.Close()
		l.Close()
		return nil, fmt.Errorf("attach to node %q of the simulator: %w", o.Host, err)
	}
	info.Get(&c)
	t.slot = info.ID
	raw, err := l.SyscallConn()
	if err == nil {
		// Connected, so that the kernel reports when the simulator reads again.
		cerr := raw.Control(func(fd uintptr) {
			err = unix.Connect(int(fd), &unix.SockaddrUnix{Name: fmt.Sprintf("@%s:out%d\x00", o.Sock, t.slot)})
		})
		err = errors.Join(err, cerr)
	}
	if err != nil {
		t.ctl.Close()
		l.Close()
		return nil, fmt.Errorf("reach the simulator %q: %w", o.Sock, err)
	}
	t.ep = endpoint.New(endpoint.Config{Write: t.write})
	if !o.Datagrams {
		t.stream = dialStream(o.Sock, t.slot)
	}
	if t.stream != nil {
		t.done.Go(t.readStream)
		t.done.Go(t.flushStream)
		return t, nil
	}
	t.done.Go(func() { t.read(raw) })
	t.done.Go(func() { t.flush(raw) })
	return t, nil
}

// question queries the simulator over the control socket and puts the answer into
// c.
func (t *Transport) question(c *Ctl) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	c.Client = t.slot
	if err := t.ctl.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		return transport.ErrClosed
	}
	if _, err := t.ctl.Write(c.Append(nil)); err != nil {
		return t.ctlErr(err)
	}
	typ := c.Type
	var b [ctlLen + 1]byte
	n, err := t.ctl.Read(b[:])
	if err != nil {
		return t.ctlErr(err)
	}
	if err := c.Decode(b[:n]); err != nil {
		return err
	}
	if c.Type != typ {
		return errors.New("the simulator refuses")
	}
	return nil
}

func (t *Transport) ctlErr(err error) error {
	if t.closed.Load() {
		return transport.ErrClosed
	}
	return fmt.Errorf("control socket of the simulator: %w", err)
}

// write queues a MAD for flush.
func (t *Transport) write(p *transport.Packet) error {
	d := Data{DLID: p.LID, DQP: p.QPN, SQP: p.QPN, MAD: p.MAD}
	if d.DLID == ib.LIDPermissive {
		d.SLID = ib.LIDPermissive
	}
	t.out.Lock()
	if t.closed.Load() {
		t.out.Unlock()
		return transport.ErrClosed
	}
	if len(t.queue) >= maxQueue {
		t.out.Unlock()
		return fmt.Errorf("send to the simulator: %d MADs wait already", maxQueue)
	}
	t.queue = append(t.queue, d)
	select {
	case t.wake <- struct{}{}:
	default:
	}
	t.out.Unlock()
	return nil
}

// flush sends what is queued. It is a goroutine of its own because the
// simulator waits for its clients to read: a sender that waited for it in turn
// would never read.
func (t *Transport) flush(raw syscall.RawConn) {
	b := NewBatch()
	var todo []Data
	for range t.wake {
		t.out.Lock()
		todo, t.queue = t.queue, todo[:0]
		t.out.Unlock()
		for len(todo) > 0 {
			n := min(len(todo), BatchLen)
			for i := range n {
				todo[i].Put(&b.Buf[i])
			}
			todo = todo[n:]
			if err := b.Send(raw, n); err != nil {
				t.fail(err)
				return
			}
		}
	}
}

func (t *Transport) fail(err error) {
	if t.closed.Load() {
		t.ep.Fail(transport.ErrClosed)
		return
	}
	t.ep.Fail(fmt.Errorf("%w: %v", transport.ErrGone, err))
}

// read feeds the endpoint. It runs all the time, so that the simulator, which
// waits for its clients, never waits for one that waits for it.
func (t *Transport) read(raw syscall.RawConn) {
	b := NewBatch()
	var d Data
	for {
		n, err := b.Recv(raw)
		if err != nil {
			t.fail(err)
			return
		}
		for i := range n {
			if d.Decode(b.Datagram(i)) == nil {
				t.take(&d)
			}
		}
	}
}

// take gives a data packet to the endpoint.
func (t *Transport) take(d *Data) {
	if d.Status != 0 {
		return // our own request, which went nowhere: its timeout reports it
	}
	if mad.AttrOf(&d.MAD) == mad.AttrNodeInfo && mad.ClassOf(&d.MAD) == mad.ClassSubnDR && mad.HopCount(&d.MAD) == 0 &&
		mad.MethodOf(&d.MAD) == mad.MethodGetResp {
		var ni mad.NodeInfo
		_ = ni.Decode(mad.SMPData(&d.MAD)[:])
		t.portGUID.Store(uint64(ni.PortGUID))
	}
	p := d.packet()
	t.ep.Deliver(&p)
}

// Send implements transport.Transport.
func (t *Transport) Send(p *transport.Packet) error { return t.ep.Send(p) }

// Recv implements transport.Transport.
func (t *Transport) Recv(ctx context.Context, into []transport.Packet) (int, error) {
	return t.ep.Recv(ctx, into)
}

// SetIsSM implements transport.Transport. The simulator gives requests only to
// the client that has it set.
func (t *Transport) SetIsSM(on bool) error {
	c := Ctl{Type: CtlSetIsSM, Len: 4}
	if on {
		ne.PutUint32(c.Data[:], 1)
	}
	if err := t.question(&c); err != nil {
		return fmt.Errorf("set IsSM: %w", err)
	}
	return nil
}

// Port implements transport.Transport. The control socket says the node's GUID
// for the port's; the port's own is known once the program has asked its node
// for NodeInfo, as every subnet manager does first.
func (t *Transport) Port() (transport.Port, error) {
	var ni mad.NodeInfo
	var pi mad.PortInfo
	c := Ctl{Type: CtlGetNodeInfo}
	if err := t.question(&c); err != nil {
		return transport.Port{}, fmt.Errorf("read NodeInfo: %w", err)
	}
	_ = ni.Decode(c.Data[:])
	c = Ctl{Type: CtlGetPortInfo}
	if err := t.question(&c); err != nil {
		return transport.Port{}, fmt.Errorf("read PortInfo: %w", err)
	}
	_ = pi.Decode(c.Data[:])
	if g := t.portGUID.Load(); g != 0 {
		ni.PortGUID = ib.GUID(g)
	}
	return transport.Port{
		Device: "ibsim0", Num: pi.LocalPort(), NodeGUID: ni.NodeGUID, PortGUID: ni.PortGUID, LID: pi.LID(), SMLID: pi.MasterSMLID(),
		SMSL:  pi.MasterSMSL(),
		State: pi.State(), PhysState: pi.PhysState(), LinkLayer: ib.LinkLayerInfiniBand, NodeType: ni.NodeType,
	}, nil
}

// Close implements transport.Transport.
func (t *Transport) Close() error {
	if t.closed.Swap(true) {
		return nil
	}
	c := Ctl{Client: t.slot, Type: CtlDisconnect}
	_ = t.ctl.SetDeadline(time.Now().Add(time.Second))
	_, _ = t.ctl.Write(c.Append(nil))
	err := errors.Join(t.ctl.Close(), t.data.Close())
	if t.stream != nil {
		err = errors.Join(err, t.stream.Close())
	}
	t.out.Lock()
	close(t.wake)
	t.out.Unlock()
	t.done.Wait()
	return err
}
