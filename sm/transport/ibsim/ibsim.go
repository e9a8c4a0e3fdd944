// Package ibsim is a transport to the reference simulator ibsim, as a client of
// its sockets, and to whatever speaks its protocol. One datagram carries one
// MAD; requests, timeouts and long messages are the endpoint package's.
//
// The simulator shows a client the first port of one node. It knows nothing of
// partitions, SLs and GRHs: those fields of a packet have no effect.
package ibsim

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

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
	// Wait is how long to try again while nobody listens (default 2 s).
	Wait time.Duration
}

// Transport is a connection to a simulator.
type Transport struct {
	ctl, data *net.UnixConn
	slot      uint32
	node      string
	ep        *endpoint.Endpoint

	mu     sync.Mutex // the control socket: one question at a time
	closed atomic.Bool
	done   chan struct{}
}

var sockets atomic.Uint32

// addr is an abstract address of the simulator: its length counts one NUL after
// the name.
func addr(name string) *net.UnixAddr {
	return &net.UnixAddr{Name: "@" + name + "\x00", Net: "unixgram"}
}

// Open connects to a simulator.
func Open(o Options) (*Transport, error) {
	if o.Sock == "" {
		o.Sock = os.Getenv("IBSIM_SOCKNAME")
	}
	if o.Sock == "" {
		o.Sock = "sim"
	}
	if o.Host == "" {
		o.Host = os.Getenv("SIM_HOST")
	}
	if o.Wait == 0 {
		o.Wait = 2 * time.Second
	}
	// The name of the client's socket must be a number that nobody else uses;
	// several connections of one process count up from high bits that process
	// numbers do not have.
	id := uint32(os.Getpid())
	if n := sockets.Add(1) - 1; n > 0 {
		id |= (n & 0xff) << 23
	}
	t := &Transport{done: make(chan struct{})}
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
	t.slot, t.node = info.ID, info.Node
	out := addr(fmt.Sprintf("%s:out%d", o.Sock, t.slot))
	t.ep = endpoint.New(endpoint.Config{Write: func(p *transport.Packet) error { return t.write(p, out) }})
	go t.read()
	return t, nil
}

// question asks the simulator over the control socket and puts the answer into
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

func (t *Transport) write(p *transport.Packet, to *net.UnixAddr) error {
	d := Data{DLID: p.LID, DQP: p.QPN, SQP: p.QPN, MAD: p.MAD}
	if d.DLID == ib.LIDPermissive {
		d.SLID = ib.LIDPermissive
	}
	var b [DataLen]byte
	d.Put(&b)
	if _, err := t.data.WriteToUnix(b[:], to); err != nil {
		if t.closed.Load() {
			return transport.ErrClosed
		}
		return fmt.Errorf("send to the simulator: %w", err)
	}
	return nil
}

// read feeds the endpoint. It runs all the time, so that the simulator, which
// waits for its clients, never waits for one that waits for it.
func (t *Transport) read() {
	defer close(t.done)
	b := make([]byte, DataLen+1)
	var d Data
	for {
		n, err := t.data.Read(b)
		if err != nil {
			if t.closed.Load() {
				t.ep.Fail(transport.ErrClosed)
			} else {
				t.ep.Fail(fmt.Errorf("%w: %v", transport.ErrGone, err))
			}
			return
		}
		if d.Decode(b[:n]) != nil {
			continue
		}
		if d.Status != 0 {
			continue // our own request, which went nowhere: its timeout reports it
		}
		p := d.packet()
		t.ep.Deliver(&p)
	}
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

// Port implements transport.Transport.
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
	return transport.Port{
		Device: "ibsim0", Num: pi.LocalPortNum, NodeGUID: ni.NodeGUID, PortGUID: ni.PortGUID, LID: pi.LID, SMLID: pi.MasterSMLID,
		State: pi.State, PhysState: pi.PhysState, Prefix: pi.GIDPrefix, LinkLayer: ib.LinkLayerInfiniBand, NodeType: ni.NodeType,
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
	err := t.ctl.Close()
	if derr := t.data.Close(); err == nil {
		err = derr
	}
	<-t.done
	return err
}
