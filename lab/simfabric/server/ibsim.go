package server

import (
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"ibnetworkd/ib"
	"ibnetworkd/lab/simfabric"
	"ibnetworkd/sm/mad"
	"ibnetworkd/sm/transport"
	"ibnetworkd/sm/transport/ibsim"
)

// rawClient is a client of ibsim's protocol.
type rawClient struct {
	raw  *simfabric.Raw
	port simfabric.EndPort
	to   string // the address of its data socket
	ctl  string // the address its questions come from

	mu     sync.Mutex
	queue  []transport.Packet
	stream *net.UnixConn // where packets go, nil for the data socket
	wake   chan struct{}
	done   chan struct{}
}

// maxRawQueue bounds what waits for a client that does not read.
const maxRawQueue = 1 << 16

// abstract is an abstract address whose length counts a NUL after the name.
func abstract(name string) *net.UnixAddr {
	return &net.UnixAddr{Name: "@" + name + "\x00", Net: "unixgram"}
}

func (s *Server) listenIbsim() error {
	open := func(name string) (*net.UnixConn, error) {
		c, err := net.ListenUnixgram("unixgram", abstract(s.base+":"+name))
		if err == nil {
			_ = c.SetReadBuffer(4 << 20)
			_ = c.SetWriteBuffer(4 << 20)
		}
		return c, err
	}
	var err error
	if s.ctl, err = open("ctl"); err != nil {
		return err
	}
	for i := range s.out {
		if s.out[i], err = open(fmt.Sprintf("out%d", i)); err != nil {
			s.closeIbsim()
			return err
		}
	}
	if s.stream, err = net.ListenUnix("unix", ibsim.StreamName(s.base)); err != nil {
		s.closeIbsim()
		return err
	}
	s.wg.Go(s.control)
	s.wg.Go(func() { s.accept(s.stream, s.serveStream) })
	for i := range s.out {
		s.wg.Go(func() { s.data(i) })
	}
	return nil
}

func (s *Server) closeIbsim() {
	s.ctl.Close()
	if s.stream != nil {
		s.stream.Close()
	}
	for _, c := range s.out {
		if c != nil {
			c.Close()
		}
	}
	for i := range s.raw {
		s.detach(i)
	}
}

func (s *Server) control() {
	b := make([]byte, 512)
	for {
		n, from, err := s.ctl.ReadFromUnix(b)
		if err != nil {
			return
		}
		var c ibsim.Ctl
		if c.Decode(b[:n]) != nil || from == nil {
			continue
		}
		if !s.answer(&c, from.Name) {
			c.Type = ibsim.CtlError
		}
		// The receive path cuts the NUL that the address needs.
		to := &net.UnixAddr{Name: strings.TrimRight(from.Name, "\x00") + "\x00", Net: "unixgram"}
		_, _ = s.ctl.WriteToUnix(c.Append(nil), to) // a client may be gone already
	}
}

func (s *Server) answer(c *ibsim.Ctl, from string) bool {
	if c.Type == ibsim.CtlConnect {
		return s.connect(c, from)
	}
	s.mu.Lock()
	var r *rawClient
	if c.Client < slots {
		r = s.raw[c.Client]
	}
	s.mu.Unlock()
	if r == nil {
		return false
	}
	info, err := s.sim.PortInfo(r.port.NodeGUID, r.port.Num)
	if err != nil {
		return false
	}
	in := c.Data
	c.Data = [64]byte{}
	switch c.Type {
	case ibsim.CtlDisconnect:
		s.detach(int(c.Client))
	case ibsim.CtlGetPort:
		ne.PutUint16(c.Data[:], uint16(info.LID()))
		c.Data[2] = uint8(info.State())
		c.Len = 4
	case ibsim.CtlGetVendor:
		ni := s.sim.NodeInfo(r.port.PortGUID)
		ne.PutUint32(c.Data[:], ni.VendorID)
		ne.PutUint32(c.Data[4:], uint32(ni.DeviceID))
		ne.PutUint32(c.Data[8:], ni.Revision)
		c.Len = 24
	case ibsim.CtlGetGID:
		ne.PutUint64(c.Data[:], info.GIDPrefix())
		ne.PutUint64(c.Data[8:], uint64(r.port.NodeGUID))
		c.Len = 16
	case ibsim.CtlGetGUID:
		ne.PutUint64(c.Data[:], uint64(r.port.NodeGUID))
		c.Len = 8
	case ibsim.CtlGetNodeInfo:
		ni := s.sim.NodeInfo(r.port.PortGUID)
		ni.Append(c.Data[:0])
		c.Len = 64
	case ibsim.CtlGetPortInfo:
		if n := in[0]; n != 0 {
			if info, err = s.sim.PortInfo(r.port.NodeGUID, n); err != nil {
				return false
			}
		}
		info.SetLocalPort(r.port.Num)
		info.Append(c.Data[:0])
		c.Len = 64
	case ibsim.CtlSetIsSM:
		return r.raw.SetIsSM(ne.Uint32(in[:]) != 0) == nil
	case ibsim.CtlGetPKeys:
		keys, _ := s.sim.PKeys(r.port.NodeGUID, r.port.Num)
		var k mad.PKeyBlock
		copy(k[:], keys)
		k.Append(c.Data[:0])
		c.Len = 64
	default:
		return false
	}
	return true
}

func (s *Server) connect(c *ibsim.Ctl, from string) bool {
	var i ibsim.ClientInfo
	i.Get(c)
	host := s.sim.FindHost(i.Node)
	if len(host) == 0 {
		return false
	}
	r := &rawClient{port: host[0], to: fmt.Sprintf("@%s:in%d\x00", s.base, i.ID), ctl: from, wake: make(chan struct{}, 1),
		done: make(chan struct{})}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	for slot := range s.raw {
		// A client that died without a word left its slot to the next one of
		// the same name.
		if old := s.raw[slot]; old != nil && old.ctl == from {
			s.raw[slot] = nil
			old.end()
		}
	}
	raw, err := s.sim.OpenRaw(r.port.PortGUID, r.deliver)
	if err != nil || raw.Slot() >= slots {
		if err == nil {
			raw.Close()
		}
		return false
	}
	r.raw = raw
	s.raw[raw.Slot()] = r
	if i.IsSM != 0 {
		_ = raw.SetIsSM(true)
	}
	out, err := s.out[raw.Slot()].SyscallConn()
	if err == nil {
		cerr := out.Control(func(fd uintptr) { err = unix.Connect(int(fd), &unix.SockaddrUnix{Name: r.to}) })
		err = errors.Join(err, cerr)
	}
	if err != nil {
		s.raw[raw.Slot()] = nil
		raw.Close()
		return false
	}
	s.wg.Go(func() { r.write(s, out) })
	i.ID, i.Node = uint32(raw.Slot()), r.port.Description
	i.Put(c)
	return true
}

func (s *Server) detach(slot int) {
	s.mu.Lock()
	r := s.raw[slot]
	s.mu.Unlock()
	if r != nil {
		s.detachClient(r)
	}
}

// detachClient frees a client's slot, once.
func (s *Server) detachClient(r *rawClient) {
	s.mu.Lock()
	mine := s.raw[r.raw.Slot()] == r
	if mine {
		s.raw[r.raw.Slot()] = nil
	}
	s.mu.Unlock()
	if mine {
		r.end()
	}
}

// end closes what a client of no slot any more has open.
func (r *rawClient) end() {
	close(r.done)
	r.raw.Close()
	r.mu.Lock()
	if r.stream != nil {
		r.stream.Close()
	}
	r.mu.Unlock()
}

// serveStream serves a client that carries many packets with one call.
func (s *Server) serveStream(c *net.UnixConn) {
	_ = c.SetReadDeadline(time.Now().Add(10 * time.Second))
	var b [4]byte
	if _, err := io.ReadFull(c, b[:]); err != nil {
		return
	}
	_ = c.SetReadDeadline(time.Time{})
	slot := ne.Uint32(b[:])
	s.mu.Lock()
	var r *rawClient
	if slot < slots {
		r = s.raw[slot]
	}
	s.mu.Unlock()
	if r == nil {
		return
	}
	r.mu.Lock()
	taken := r.stream != nil
	if !taken {
		r.stream = c
	}
	r.mu.Unlock()
	if taken {
		return
	}
	if _, err := c.Write([]byte{ibsim.StreamOK}); err == nil {
		var in []transport.Packet
		_ = ibsim.ReadStream(c, func(d *ibsim.Data) {
			in = append(in, packet(d))
		}, func() {
			r.raw.SendAll(in)
			in = in[:0]
		})
	}
	// The stream's end is the end of the process.
	s.detachClient(r)
}

// packet is what a client sends.
func packet(d *ibsim.Data) (p transport.Packet) {
	p.LID, p.QPN, p.MAD = d.DLID, d.DQP, d.MAD
	if mad.ClassOf(&p.MAD) == mad.ClassSubnDR {
		p.LID = ib.LIDPermissive
	}
	return p
}

// data takes what the client of a slot sends.
func (s *Server) data(slot int) {
	raw, err := s.out[slot].SyscallConn()
	if err != nil {
		return
	}
	b := ibsim.NewBatch()
	for {
		n, err := b.Recv(raw)
		var e syscall.Errno
		if errors.As(err, &e) {
			continue // a client that went away; its successor will connect
		}
		if err != nil {
			return
		}
		s.mu.Lock()
		r := s.raw[slot]
		s.mu.Unlock()
		if r == nil {
			continue
		}
		for i := range n {
			var d ibsim.Data
			if d.Decode(b.Datagram(i)) != nil {
				continue
			}
			p := packet(&d)
			r.raw.Send(&p)
		}
	}
}

func (r *rawClient) deliver(p *transport.Packet) {
	r.mu.Lock()
	if len(r.queue) < maxRawQueue {
		r.queue = append(r.queue, *p)
	}
	r.mu.Unlock()
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// put writes a packet to the client in ibsim's form.
func (r *rawClient) put(p *transport.Packet, b *[ibsim.DataLen]byte) {
	d := ibsim.Data{DLID: r.port.LID, SLID: p.LID, DQP: p.QPN, SQP: p.QPN, MAD: p.MAD}
	d.Put(b)
}

// write sends what waits; a client whose socket is gone loses its slot.
func (r *rawClient) write(s *Server, out syscall.RawConn) {
	b := ibsim.NewBatch()
	var w ibsim.StreamWriter
	var todo []transport.Packet
	for {
		select {
		case <-r.done:
			return
		case <-r.wake:
		}
		r.mu.Lock()
		todo, r.queue = r.queue, todo[:0]
		stream := r.stream
		r.mu.Unlock()
		if stream != nil {
			if w.Write(stream, len(todo), func(i int, b *[ibsim.DataLen]byte) { r.put(&todo[i], b) }) != nil {
				// What the process did not take is answered as its host's
				// kernel would.
				s.detachClient(r)
				for i := range todo {
					r.raw.Bounce(&todo[i])
				}
				return
			}
			continue
		}
		for l := todo; len(l) > 0; {
			n := min(len(l), ibsim.BatchLen)
			for i := range l[:n] {
				r.put(&l[i], &b.Buf[i])
			}
			if err := b.Send(out, n); err != nil {
				// The process is gone, which is not noticed earlier. What it did not receive
				// is answered as its host's kernel would.
				s.detachClient(r)
				for i := range l {
					r.raw.Bounce(&l[i])
				}
				return
			}
			l = l[n:]
		}
	}
}
