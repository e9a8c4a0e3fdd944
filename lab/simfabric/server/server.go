// Package server opens a simulated subnet to other processes, in two ways:
//
// The umad socket gives a process what /dev/infiniband/umadN and the
// InfiniBand class of sysfs give it on a real host; the libibumad of lab/shim
// speaks its protocol, so that unmodified opensm, osmtest and infiniband-diags
// run with the kernel's behaviour (registration, timeouts, long messages).
//
// The ibsim sockets speak the protocol of the reference simulator.
//
// Both names are abstract unix sockets that begin with a base name, so that
// several simulators live on one machine.
package server

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"sync"
	"syscall"
	"time"

	"ibnetworkd/ib"
	"ibnetworkd/lab/simfabric"
	"ibnetworkd/sm/mad"
	"ibnetworkd/sm/transport"
)

// Server is a simulator with open sockets.
type Server struct {
	sim  *simfabric.Sim
	log  *slog.Logger
	umad *net.UnixListener
	// The ibsim protocol's sockets; stream is ours.
	stream *net.UnixListener
	ctl    *net.UnixConn
	out    [slots]*net.UnixConn

	wg     sync.WaitGroup
	mu     sync.Mutex
	conns  map[net.Conn]bool
	files  map[uint32]*file
	fileID uint32
	raw    [slots]*rawClient
	base   string
	closed bool
}

// slots is the number of clients in ibsim's protocol.
const slots = 10

// Listen opens the sockets of a simulator under a base name.
func Listen(sim *simfabric.Sim, base string, log *slog.Logger) (*Server, error) {
	s := &Server{sim: sim, log: log, conns: map[net.Conn]bool{}, files: map[uint32]*file{}, base: base}
	var err error
	s.umad, err = net.ListenUnix("unix", &net.UnixAddr{Name: "@" + base + ":umad", Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("simulator %q: %w", base, err)
	}
	if err := s.listenIbsim(); err != nil {
		s.umad.Close()
		return nil, fmt.Errorf("simulator %q: %w", base, err)
	}
	s.wg.Go(func() { s.accept(s.umad, s.serve) })
	return s, nil
}

// Close ends every connection.
func (s *Server) Close() {
	s.mu.Lock()
	s.closed = true
	s.umad.Close()
	for c := range s.conns {
		c.Close()
	}
	s.mu.Unlock()
	s.closeIbsim()
	s.wg.Wait()
}

// accept serves the connections of a listener until it is closed.
func (s *Server) accept(l *net.UnixListener, serve func(*net.UnixConn)) {
	for {
		c, err := l.AcceptUnix()
		if err != nil {
			return
		}
		s.mu.Lock()
		if s.closed {
			s.mu.Unlock()
			c.Close()
			return
		}
		s.conns[c] = true
		s.mu.Unlock()
		s.wg.Go(func() {
			serve(c)
			c.Close()
			s.mu.Lock()
			delete(s.conns, c)
			s.mu.Unlock()
		})
	}
}

// The umad socket carries frames: length of the payload and type, 32 bits each,
// then the payload; everything in host byte order, except what umad itself has
// in network order. A question is answered by a frame of the same type whose
// payload begins with an errno (0: fine).
const (
	frameHello      = 1 // host name -> node
	framePort       = 2 // port number -> its state
	frameOpen       = 3 // port number; the connection becomes a umad file -> its number
	frameRegister   = 4 // file, registration -> agent number
	frameUnregister = 5 // file, agent number
	frameIsSM       = 6 // port number, on
	frameMAD        = 10

	maxFrame  = transport.MaxMessage + umadHeader
	umadHead  = 8
	caNameLen = 20
)

var ne = binary.NativeEndian

func readFrame(r io.Reader, buf []byte) (typ uint32, payload []byte, err error) {
	var h [umadHead]byte
	if _, err = io.ReadFull(r, h[:]); err != nil {
		return 0, nil, err
	}
	n := ne.Uint32(h[:])
	if n > maxFrame {
		return 0, nil, fmt.Errorf("frame of %d bytes", n)
	}
	if int(n) > cap(buf) {
		buf = make([]byte, n)
	}
	buf = buf[:n]
	_, err = io.ReadFull(r, buf)
	return ne.Uint32(h[4:]), buf, err
}

func frame(typ uint32, payload []byte) []byte {
	b := make([]byte, 0, umadHead+len(payload))
	b = ne.AppendUint32(b, uint32(len(payload)))
	b = ne.AppendUint32(b, typ)
	return append(b, payload...)
}

// process is a connection that asks questions.
type process struct {
	srv   *Server
	ports []simfabric.EndPort
	issm  map[uint8]func(bool) error
}

func errno(err error) uint32 {
	var e syscall.Errno
	switch {
	case err == nil:
		return 0
	case errors.As(err, &e):
		return uint32(e)
	case errors.Is(err, transport.ErrIsSM), errors.Is(err, simfabric.ErrBusy):
		return uint32(syscall.EBUSY)
	}
	return uint32(syscall.EINVAL)
}

func (s *Server) serve(c *net.UnixConn) {
	p := &process{srv: s, issm: map[uint8]func(bool) error{}}
	defer func() {
		for _, f := range p.issm {
			_ = f(false)
		}
	}()
	var buf []byte
	for {
		typ, b, err := readFrame(c, buf)
		if err != nil {
			return
		}
		buf = b
		var out []byte
		switch typ {
		case frameHello:
			out, err = p.hello(string(b))
		case framePort:
			out, err = p.port(b)
		case frameOpen:
			s.runFile(c, p, b)
			return
		case frameRegister:
			out, err = s.register(b)
		case frameUnregister:
			err = s.unregister(b)
		case frameIsSM:
			err = p.isSM(b)
		default:
			err = syscall.ENOTTY
		}
		if err != nil && s.log != nil {
			s.log.Debug("question refused", "type", typ, "error", err)
		}
		r := ne.AppendUint32(nil, errno(err))
		if _, err := c.Write(frame(typ, append(r, out...))); err != nil {
			return
		}
	}
}

func (p *process) hello(host string) ([]byte, error) {
	p.ports = p.srv.sim.FindHost(host)
	if len(p.ports) == 0 {
		return nil, syscall.ENODEV
	}
	f := p.ports[0]
	b := make([]byte, caNameLen)
	copy(b, f.Device)
	b = ne.AppendUint32(b, uint32(f.NodeType))
	b = ne.AppendUint32(b, uint32(len(p.ports)))
	b = ne.AppendUint32(b, uint32(f.Num))
	b = binary.BigEndian.AppendUint64(b, uint64(f.NodeGUID))
	b = binary.BigEndian.AppendUint64(b, uint64(f.NodeGUID))
	return b, nil
}

func (p *process) find(b []byte) (simfabric.EndPort, error) {
	if len(b) < 4 {
		return simfabric.EndPort{}, syscall.EINVAL
	}
	n := ne.Uint32(b)
	for _, e := range p.ports {
		if uint32(e.Num) == n {
			return e, nil
		}
	}
	return simfabric.EndPort{}, syscall.ENODEV
}

// port answers what sysfs shows of a port.
func (p *process) port(b []byte) ([]byte, error) {
	e, err := p.find(b)
	if err != nil {
		return nil, err
	}
	i, err := p.srv.sim.PortInfo(e.NodeGUID, e.Num)
	if err != nil {
		return nil, syscall.ENODEV
	}
	keys, err := p.srv.sim.PKeys(e.NodeGUID, e.Num)
	if err != nil {
		return nil, syscall.ENODEV
	}
	var out []byte
	for _, v := range []uint32{uint32(i.LID()), uint32(i.LMC()), uint32(i.MasterSMLID()), uint32(i.MasterSMSL()),
		uint32(i.State()), uint32(i.PhysState()), uint32(i.Rate().Tenths() / 10)} {
		out = ne.AppendUint32(out, v)
	}
	out = binary.BigEndian.AppendUint32(out, i.CapMask())
	out = binary.BigEndian.AppendUint64(out, i.GIDPrefix())
	out = binary.BigEndian.AppendUint64(out, uint64(e.PortGUID))
	out = ne.AppendUint32(out, uint32(len(keys)))
	for _, k := range keys {
		out = ne.AppendUint16(out, uint16(k))
	}
	return out, nil
}

func (p *process) isSM(b []byte) error {
	e, err := p.find(b)
	if err != nil || len(b) < 8 {
		return syscall.ENODEV
	}
	f := p.issm[e.Num]
	if f == nil {
		f = p.srv.sim.IsSMHolder(e.PortGUID)
		p.issm[e.Num] = f
	}
	return f(ne.Uint32(b[4:]) != 0)
}

// umadHeader is the length of the kernel's struct ib_user_mad (with P_Key
// index, include/uapi/rdma/ib_user_mad.h).
const umadHeader = 64

// file is an open umad device.
type file struct {
	conn   *net.UnixConn
	port   simfabric.EndPort
	mu     sync.Mutex
	agents map[uint32]*simfabric.Agent // by the number that the process knows
	rmpp   map[uint32]bool
	raw    syscall.RawConn
	out    sync.Mutex // the socket's write side and rest
	rest   []byte     // what the socket did not take; write sends it
	in     []transport.Packet
	wake   chan struct{}
}

// maxAgents is the kernel's IB_UMAD_MAX_AGENTS.
const maxAgents = 32

func (s *Server) runFile(c *net.UnixConn, p *process, b []byte) {
	fail := func(err error) {
		_, _ = c.Write(frame(frameOpen, ne.AppendUint32(nil, errno(err))))
	}
	if len(b) < 4 {
		fail(syscall.EINVAL)
		return
	}
	if _, err := p.hello(string(b[4:])); err != nil {
		fail(err)
		return
	}
	e, err := p.find(b)
	if err != nil {
		fail(err)
		return
	}
	f := &file{conn: c, port: e, agents: map[uint32]*simfabric.Agent{}, rmpp: map[uint32]bool{}, wake: make(chan struct{}, 1),
		in: make([]transport.Packet, 32)}
	if f.raw, err = c.SyscallConn(); err != nil {
		fail(err)
		return
	}
	s.mu.Lock()
	s.fileID++
	id := s.fileID
	s.files[id] = f
	s.mu.Unlock()
	_ = c.SetWriteBuffer(1 << 20)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	defer func() {
		s.mu.Lock()
		delete(s.files, id)
		s.mu.Unlock()
		f.mu.Lock()
		as := f.agents
		f.agents = map[uint32]*simfabric.Agent{}
		f.mu.Unlock()
		for _, a := range as {
			a.Unregister()
		}
		cancel()
		c.Close()
		<-done
	}()
	r := ne.AppendUint32(nil, 0)
	r = ne.AppendUint32(r, id)
	go func() {
		defer close(done)
		f.write(ctx)
	}()
	if _, err := c.Write(frame(frameOpen, r)); err != nil {
		return
	}
	var buf []byte
	in := bufio.NewReaderSize(c, 64<<10)
	for {
		typ, b, err := readFrame(in, buf)
		if err != nil {
			return
		}
		buf = b
		if typ == frameMAD {
			f.send(b)
		}
	}
}

// send is a write(2) to the umad file.
func (f *file) send(b []byte) {
	if len(b) < umadHeader+mad.HeaderLen {
		return
	}
	id := ne.Uint32(b)
	f.mu.Lock()
	a, rmpp := f.agents[id], f.rmpp[id]
	f.mu.Unlock()
	if a == nil {
		return
	}
	be := binary.BigEndian
	var p transport.Packet
	p.Timeout = time.Duration(ne.Uint32(b[8:])) * time.Millisecond
	p.Retries = int(min(ne.Uint32(b[12:]), 1000))
	p.QPN, p.QKey = be.Uint32(b[20:])&0xffffff, ib.QKey(be.Uint32(b[24:]))
	p.LID, p.SL, p.PathBits = ib.LID(be.Uint16(b[28:])), ib.SL(b[30]), b[31]
	p.HasGRH, p.GIDIndex, p.HopLimit, p.TrafficClass = b[32] != 0, b[33], b[34], b[35]
	p.GID = ib.GID(b[36:52])
	p.FlowLabel = be.Uint32(b[52:]) & 0xfffff
	p.PKeyIndex = ne.Uint16(b[56:])
	msg := b[umadHeader:]
	asRMPP := false
	if c := mad.Class(msg[1]); rmpp && c.HasRMPP() && len(msg) > mad.RMPPDataOffset {
		asRMPP = msg[26]&mad.RMPPActive != 0
	}
	if !asRMPP && len(msg) > mad.Size {
		return
	}
	if asRMPP {
		msg = append([]byte(nil), msg...)
	}
	p.SetMessage(msg, asRMPP)
	_ = a.Endpoint().Send(&p)
}

// flush sends what the agents received, as much as the socket takes without
// waiting: the caller is the sender of the packet, and must not wait for another
// process. The rest is write's.
func (f *file) flush() {
	if !f.out.TryLock() {
		// Another goroutine collects and may have passed this agent already.
		f.poke()
		return
	}
	defer f.out.Unlock()
	f.collect()
	if len(f.rest) == 0 {
		return
	}
	n := 0
	_ = f.raw.Write(func(fd uintptr) bool {
		n, _ = syscall.Write(int(fd), f.rest)
		return true
	})
	if n > 0 {
		f.rest = f.rest[:copy(f.rest, f.rest[n:])]
	}
	if len(f.rest) > 0 {
		f.poke()
	}
}

func (f *file) poke() {
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

// collect appends to rest what the agents received. f.out must be locked.
func (f *file) collect() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for again := true; again; {
		again = false
		for id, a := range f.agents {
			n, _ := a.Endpoint().TryRecv(f.in)
			for i := range f.in[:n] {
				f.rest = appendUmad(f.rest, id, &f.in[i])
			}
			again = again || n > 0
		}
	}
}

// write sends what flush could not.
func (f *file) write(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-f.wake:
		}
		f.out.Lock()
		f.collect()
		for len(f.rest) > 0 {
			if _, err := f.conn.Write(f.rest); err != nil {
				f.rest = nil
				f.out.Unlock()
				return
			}
			f.rest = f.rest[:0]
			f.collect()
		}
		f.out.Unlock()
	}
}

// appendUmad appends a frame with a received packet as umad shows it. Of a request
// without an answer the kernel returns the common header only.
func appendUmad(out []byte, id uint32, p *transport.Packet) []byte {
	msg := p.Bytes()
	var h [umadHeader]byte
	ne.PutUint32(h[0:], id)
	if p.Err != nil {
		ne.PutUint32(h[4:], uint32(syscall.ETIMEDOUT))
		msg = msg[:mad.HeaderLen]
	}
	be := binary.BigEndian
	ne.PutUint32(h[16:], uint32(umadHeader+len(msg)))
	be.PutUint32(h[20:], p.QPN)
	be.PutUint32(h[24:], uint32(p.QKey))
	be.PutUint16(h[28:], uint16(p.LID))
	h[30], h[31] = uint8(p.SL), p.PathBits
	if p.HasGRH {
		h[32] = 1
	}
	copy(h[36:], p.GID[:])
	ne.PutUint16(h[56:], p.PKeyIndex)
	out = ne.AppendUint32(out, uint32(umadHeader+len(msg)))
	out = ne.AppendUint32(out, frameMAD)
	out = append(out, h[:]...)
	return append(out, msg...)
}

// register is the ioctl of that name: file, class, version, rmpp version, OUI,
// four words of methods.
func (s *Server) register(b []byte) ([]byte, error) {
	if len(b) < 5*4+16 {
		return nil, syscall.EINVAL
	}
	s.mu.Lock()
	f := s.files[ne.Uint32(b)]
	s.mu.Unlock()
	if f == nil {
		return nil, syscall.EBADF
	}
	oui := ne.Uint32(b[16:])
	r := simfabric.Registration{
		Class: mad.Class(ne.Uint32(b[4:])), Version: uint8(ne.Uint32(b[8:])),
		OUI:     [3]byte{byte(oui >> 16), byte(oui >> 8), byte(oui)},
		Methods: simfabric.Methods{ne.Uint64(b[20:]), ne.Uint64(b[28:])},
	}
	if !r.Class.IsVendor2() {
		r.OUI = [3]byte{}
	}
	rmpp := ne.Uint32(b[12:]) != 0
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.agents) >= maxAgents {
		return nil, syscall.ENOMEM
	}
	a, err := s.sim.Register(f.port.PortGUID, []simfabric.Registration{r}, simfabric.AgentOptions{
		RMPP: rmpp,
		Wake: f.flush,
	})
	if err != nil {
		return nil, err
	}
	id := uint32(0)
	for f.agents[id] != nil {
		id++
	}
	f.agents[id], f.rmpp[id] = a, rmpp
	return ne.AppendUint32(nil, id), nil
}

func (s *Server) unregister(b []byte) error {
	if len(b) < 8 {
		return syscall.EINVAL
	}
	s.mu.Lock()
	f := s.files[ne.Uint32(b)]
	s.mu.Unlock()
	if f == nil {
		return syscall.EBADF
	}
	id := ne.Uint32(b[4:])
	f.mu.Lock()
	a := f.agents[id]
	delete(f.agents, id)
	f.mu.Unlock()
	if a == nil {
		return syscall.EINVAL
	}
	a.Unregister()
	return nil
}
