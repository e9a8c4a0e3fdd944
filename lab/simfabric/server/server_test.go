package server

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"ibnetworkd/internal/testkit"
	"ibnetworkd/lab/gen"
	"ibnetworkd/lab/simfabric"
	"ibnetworkd/sm/mad"
	"ibnetworkd/sm/transport"
	"ibnetworkd/sm/transport/ibsim"
	"ibnetworkd/sm/transport/transporttest"
)

func start(t testing.TB, opt simfabric.Options) (*simfabric.Sim, string) {
	t.Helper()
	sim := simfabric.New(gen.Star(3, 36), opt)
	base := fmt.Sprintf("srv%d%s", os.Getpid(), strings.NewReplacer("/", "", "#", "").Replace(t.Name()))
	srv, err := Listen(sim, base, nil)
	testkit.NoError(t, err)
	t.Cleanup(func() { srv.Close(); sim.Close() })
	return sim, base
}

// TestIbsimTransport: the ibsim protocol of this server carries the suite, as
// the reference simulator's does, in datagrams and on the stream.
func TestIbsimTransport(t *testing.T) {
	for name, datagrams := range map[string]bool{"datagrams": true, "stream": false} {
		t.Run(name, func(t *testing.T) {
			sim, base := start(t, simfabric.Options{})
			hosts := sim.EndPorts()
			at := func(i int) func(*testing.T) transport.Transport {
				return func(t *testing.T) transport.Transport {
					tr, err := ibsim.Open(ibsim.Options{Sock: base, Host: hosts[i].Description, Datagrams: datagrams})
					testkit.NoError(t, err)
					return tr
				}
			}
			transporttest.Run(t, transporttest.Config{
				Open: at(0), Peer: at(1), Path: []uint8{1}, NoPath: []uint8{1, 30}, PeerPath: []uint8{1, 2}, Flood: 5000,
			})
		})
	}
}

// A client whose process ends is gone at once: its slot is free and a request to
// it is answered by its host, not by a time-out.
func TestStreamEnds(t *testing.T) {
	sim, base := start(t, simfabric.Options{})
	slots := func() (n int) {
		for range 16 {
			if r, err := sim.OpenRaw(sim.EndPorts()[0].PortGUID, func(*transport.Packet) {}); err == nil {
				defer r.Close()
				n++
			}
		}
		return n
	}
	was := slots()
	ctl := control77(t, base)
	var c ibsim.Ctl
	info := ibsim.ClientInfo{ID: 77, Node: sim.EndPorts()[0].Description}
	info.Put(&c)
	c.Type = ibsim.CtlConnect
	b := make([]byte, 200)
	_ = ctl.SetDeadline(time.Now().Add(10 * time.Second))
	if _, err := ctl.Write(c.Append(nil)); err != nil {
		t.Fatal(err)
	}
	n, err := ctl.Read(b)
	if err != nil || c.Decode(b[:n]) != nil || c.Type != ibsim.CtlConnect {
		t.Fatalf("connect: %v, %+v", err, c)
	}
	info.Get(&c)
	stream := func(slot uint32) (*net.UnixConn, byte) {
		s, err := net.DialUnix("unix", nil, ibsim.StreamName(base))
		testkit.NoError(t, err)
		t.Cleanup(func() { s.Close() })
		_ = s.SetDeadline(time.Now().Add(10 * time.Second))
		if _, err := s.Write(ne.AppendUint32(nil, slot)); err != nil {
			t.Fatal(err)
		}
		var ok [1]byte
		_, _ = io.ReadFull(s, ok[:])
		return s, ok[0]
	}
	if _, ok := stream(99); ok != 0 {
		t.Error("a stream for a slot that does not exist")
	}
	if _, ok := stream(info.ID + 1); ok != 0 {
		t.Error("a stream for a slot that nobody has")
	}
	s, ok := stream(info.ID)
	if ok != ibsim.StreamOK {
		t.Fatal("no stream for the slot's owner")
	}
	if _, ok := stream(info.ID); ok != 0 {
		t.Error("a second stream for a slot")
	}
	if n := slots(); n != was-1 {
		t.Fatalf("%d slots are free, want %d", n, was-1)
	}
	_, _ = s.Write(make([]byte, ibsim.DataLen+7)) // what is no data packet does no harm
	s.Close()
	for end := time.Now().Add(10 * time.Second); slots() != was; {
		if time.Now().After(end) {
			t.Fatal("the slot of a client that went away stays taken")
		}
		time.Sleep(time.Millisecond)
	}
}

// umadClient speaks the umad socket's frames, as the library does.
type umadClient struct {
	t    testing.TB
	base string
	ask  net.Conn
}

func dial(t testing.TB, base, host string) *umadClient {
	t.Helper()
	c := &umadClient{t: t, base: base}
	c.ask = c.conn()
	if _, e := c.question(c.ask, frameHello, []byte(host)); e != 0 {
		t.Fatal(e)
	}
	return c
}

func (c *umadClient) conn() net.Conn {
	c.t.Helper()
	n, err := net.Dial("unix", "@"+c.base+":umad")
	testkit.NoError(c.t, err)
	c.t.Cleanup(func() { n.Close() })
	_ = n.SetDeadline(time.Now().Add(time.Minute))
	return n
}

func (c *umadClient) question(n net.Conn, typ uint32, b []byte) ([]byte, syscall.Errno) {
	c.t.Helper()
	if _, err := n.Write(frame(typ, b)); err != nil {
		c.t.Fatal(err)
	}
	got, p, err := readFrame(n, nil)
	if err != nil || got != typ || len(p) < 4 {
		c.t.Fatalf("answer to %d: %d, %x, %v", typ, got, p, err)
	}
	return p[4:], syscall.Errno(ne.Uint32(p))
}

func (c *umadClient) open(port uint32, host string) (net.Conn, uint32) {
	c.t.Helper()
	n := c.conn()
	p, e := c.question(n, frameOpen, append(ne.AppendUint32(nil, port), host...))
	if e != 0 {
		c.t.Fatal(e)
	}
	return n, ne.Uint32(p)
}

func (c *umadClient) register(file uint32, class mad.Class, rmpp uint32, methods uint64) (uint32, syscall.Errno) {
	var b []byte
	for _, v := range []uint32{file, uint32(class), 1, rmpp, 0x1405} {
		b = ne.AppendUint32(b, v)
	}
	b = ne.AppendUint64(b, methods)
	b = ne.AppendUint64(b, 0)
	p, e := c.question(c.ask, frameRegister, b)
	if e != 0 {
		return 0, e
	}
	return ne.Uint32(p), 0
}

func umadPacket(agent uint32, timeout time.Duration, b *mad.Buf) []byte {
	h := make([]byte, umadHeader)
	ne.PutUint32(h, agent)
	ne.PutUint32(h[8:], uint32(timeout/time.Millisecond))
	binary.BigEndian.PutUint16(h[28:], 0xffff)
	return frame(frameMAD, append(h, b[:]...))
}

func TestUmad(t *testing.T) {
	sim, base := start(t, simfabric.Options{})
	c := dial(t, base, "H-00001")
	n, file := c.open(1, "H-00001")
	id, e := c.register(file, mad.ClassSubnDR, 0, 1<<mad.MethodGet)
	if e != 0 {
		t.Fatal(e)
	}
	if _, e := c.register(file, mad.ClassSubnDR, 0, 1<<mad.MethodGet); e != syscall.EBUSY {
		t.Errorf("a second agent for the same requests: %v", e)
	}
	send := func(path []uint8) (uint32, []byte) {
		var b mad.Buf
		mad.PutDR(&b, mad.MethodGet, mad.AttrNodeInfo, 0, 5, 0, path, nil)
		if _, err := n.Write(umadPacket(id, 100*time.Millisecond, &b)); err != nil {
			t.Fatal(err)
		}
		typ, p, err := readFrame(n, nil)
		if err != nil || typ != frameMAD || ne.Uint32(p) != id || ne.Uint32(p[16:]) != uint32(len(p)) {
			t.Fatalf("%d %x %v", typ, p, err)
		}
		return ne.Uint32(p[4:]), p[umadHeader:]
	}
	if st, m := send([]uint8{1}); st != 0 || len(m) != 256 || m[3] != uint8(mad.MethodGetResp) {
		t.Errorf("status %d, %x", st, m)
	}
	if st, m := send([]uint8{1, 20}); st != uint32(syscall.ETIMEDOUT) || len(m) != mad.HeaderLen || m[3] != uint8(mad.MethodGet) {
		t.Errorf("without an answer: status %d, %x", st, m)
	}
	// IsSM belongs to the process.
	two := func(v uint32) []byte { return ne.AppendUint32(ne.AppendUint32(nil, 1), v) }
	if _, e := c.question(c.ask, frameIsSM, two(1)); e != 0 {
		t.Fatal(e)
	}
	d := dial(t, base, "H-00001")
	if _, e := d.question(d.ask, frameIsSM, two(1)); e != syscall.EBUSY {
		t.Errorf("a second subnet manager on the port: %v", e)
	}
	c.ask.Close()
	for end := time.Now().Add(10 * time.Second); ; {
		if _, e := d.question(d.ask, frameIsSM, two(1)); e == 0 {
			break
		}
		if time.Now().After(end) {
			t.Fatal("IsSM of a dead process stays")
		}
		time.Sleep(time.Millisecond)
	}
	if p, e := d.question(d.ask, framePort, ne.AppendUint32(nil, 1)); e != 0 || len(p) < 52 {
		t.Errorf("%v %x", e, p)
	}
	if _, e := d.question(d.ask, framePort, ne.AppendUint32(nil, 2)); e != syscall.ENODEV {
		t.Errorf("a port that is not there: %v", e)
	}
	if _, e := d.question(d.ask, frameHello, []byte("nobody")); e != syscall.ENODEV {
		t.Errorf("a host that is not there: %v", e)
	}
	_ = sim
}

// FuzzUmad sends whatever to the server; it must go on to serve others.
func FuzzUmad(f *testing.F) {
	var b mad.Buf
	mad.PutDR(&b, mad.MethodGet, mad.AttrNodeInfo, 0, 5, 0, []uint8{1}, nil)
	f.Add(frame(frameHello, []byte("H-00001")))
	f.Add(frame(framePort, []byte{1, 0, 0, 0}))
	f.Add(append(frame(frameOpen, append([]byte{1, 0, 0, 0}, "H-00002"...)), umadPacket(0, time.Second, &b)...))
	f.Add(frame(frameRegister, make([]byte, 36)))
	f.Add(frame(frameIsSM, make([]byte, 8)))
	_, base := start(f, simfabric.Options{})
	f.Fuzz(func(t *testing.T, in []byte) {
		n, err := net.Dial("unix", "@"+base+":umad")
		testkit.NoError(t, err)
		_ = n.SetDeadline(time.Now().Add(10 * time.Second))
		_, _ = n.Write(in)
		_ = n.(*net.UnixConn).CloseWrite()
		_, _ = io.Copy(io.Discard, n)
		n.Close()
		c := dial(t, base, "H-00003")
		c.ask.Close()
	})
}

// control77 is the control socket of an ibsim client with the number 77, which has a socket
// for packets.
func control77(t *testing.T, base string) *net.UnixConn {
	t.Helper()
	name := func(end string) *net.UnixAddr { return &net.UnixAddr{Name: "@" + base + end + "\x00", Net: "unixgram"} }
	ctl, err := net.DialUnix("unixgram", name(":ctl77"), name(":ctl"))
	testkit.NoError(t, err)
	t.Cleanup(func() { ctl.Close() })
	in, err := net.ListenUnixgram("unixgram", name(":in77"))
	testkit.NoError(t, err)
	t.Cleanup(func() { in.Close() })
	return ctl
}

// TestIbsimControl asks what the preload library of ibsim asks, as it does: each
// question waits for its answer, the last one too.
func TestIbsimControl(t *testing.T) {
	_, base := start(t, simfabric.Options{})
	c := control77(t, base)
	_ = c.SetDeadline(time.Now().Add(10 * time.Second))
	client := uint32(0)
	ask := func(typ uint32, fill func(*ibsim.Ctl)) ibsim.Ctl {
		t.Helper()
		q := ibsim.Ctl{Client: client, Type: typ}
		if fill != nil {
			fill(&q)
		}
		if _, err := c.Write(q.Append(nil)); err != nil {
			t.Fatal(err)
		}
		b := make([]byte, 200)
		n, err := c.Read(b)
		if err != nil {
			t.Fatalf("question %d: %v", typ, err)
		}
		var a ibsim.Ctl
		if err := a.Decode(b[:n]); err != nil || a.Type != typ {
			t.Fatalf("answer to %d: %+v, %v", typ, a, err)
		}
		return a
	}
	a := ask(ibsim.CtlConnect, func(q *ibsim.Ctl) { i := ibsim.ClientInfo{ID: 77, Node: "H-00002"}; i.Put(q) })
	var i ibsim.ClientInfo
	if i.Get(&a); i.Node != "H-00002" {
		t.Errorf("%+v", i)
	}
	client = i.ID
	for _, typ := range []uint32{ibsim.CtlGetPort, ibsim.CtlGetVendor, ibsim.CtlGetGID, ibsim.CtlGetGUID, ibsim.CtlGetNodeInfo,
		ibsim.CtlGetPortInfo, ibsim.CtlGetPKeys, ibsim.CtlSetIsSM} {
		ask(typ, nil)
	}
	a = ask(ibsim.CtlGetNodeInfo, nil)
	var ni mad.NodeInfo
	if _ = ni.Decode(a.Data[:]); ni.NumPorts != 1 || ni.NodeGUID == 0 {
		t.Errorf("%+v", ni)
	}
	ask(ibsim.CtlDisconnect, nil)
}
