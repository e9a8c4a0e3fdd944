package probe

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"ibnetworkd/ib"
	"ibnetworkd/internal/kernel/sysfs"
	"ibnetworkd/internal/kernel/umad"
	"ibnetworkd/sm/mad"
	"ibnetworkd/sm/transport"
)

// Device is a port's umad device opened for questions. It registers for no
// requests, so it can be used beside a subnet manager on the same port.
type Device struct {
	port *umad.Port
	dr   uint32 // agent for directed routes
	lr   uint32 // agent for LID routed packets
	sa   uint32 // agent for questions to the subnet administrator, with long answers
	perf uint32 // agent for questions to performance management agents
}

// ErrNoUmad means that the kernel offers no way to send management datagrams.
var ErrNoUmad = errors.New("ib_umad is not loaded: modprobe ib_umad")

// errNoDevice is that ib_umad has made no device for a port.
var errNoDevice = errors.New("no umad device")

// Open opens the umad device of a port.
func Open(ctx context.Context, ibdev string, num int) (*Device, error) {
	u, err := find(sysfs.New(""), ibdev, num)
	if err != nil {
		return nil, err
	}
	if u.ISSM == "" {
		return nil, fmt.Errorf("port %s/%d has no issm device: %w", ibdev, num, transport.ErrNoQP0)
	}
	p, err := umad.Open(ctx, u.Name)
	if err != nil {
		if errors.Is(err, os.ErrPermission) {
			return nil, fmt.Errorf("only root may send subnet management packets: %w", err)
		}
		return nil, err
	}
	d := &Device{port: p}
	if d.dr, err = p.Register(umad.Agent{QPN: 0, Class: 0x81, Version: 1}); err == nil {
		d.lr, err = p.Register(umad.Agent{QPN: 0, Class: 0x01, Version: 1})
	}
	if err == nil {
		d.sa, err = p.Register(umad.Agent{QPN: 1, Class: uint8(mad.ClassSA), Version: mad.SAClassV, RMPP: 1})
	}
	if err == nil {
		d.perf, err = p.Register(umad.Agent{QPN: 1, Class: uint8(mad.ClassPerf), Version: mad.PerfClassV})
	}
	if err != nil {
		_ = p.Close()
		if errors.Is(err, syscall.EPROTONOSUPPORT) {
			return nil, fmt.Errorf("port %s/%d refuses QP0: %w", ibdev, num, transport.ErrNoQP0)
		}
		return nil, fmt.Errorf("register with %s: %w", u.Name, err)
	}
	return d, nil
}

// find is the umad device of a port.
func find(sys sysfs.FS, ibdev string, num int) (sysfs.UMAD, error) {
	us, err := sys.UMADs()
	if errors.Is(err, sysfs.ErrNoUMAD) {
		return sysfs.UMAD{}, ErrNoUmad
	}
	if err != nil {
		return sysfs.UMAD{}, err
	}
	for _, u := range us {
		if u.IBDev == ibdev && u.Port == num {
			return u, nil
		}
	}
	return sysfs.UMAD{}, fmt.Errorf("port %s/%d: %w", ibdev, num, errNoDevice)
}

// Send implements Conn.
func (d *Device) Send(p *transport.Packet) error {
	k := umad.Packet{Agent: d.lr, Timeout: p.Timeout, Retries: uint32(p.Retries), MAD: p.Bytes(),
		Addr: umad.Address{QPN: 0, LID: p.LID}}
	switch mad.ClassOf(&p.MAD) {
	case mad.ClassSubnDR:
		k.Agent = d.dr
	case mad.ClassSA:
		k.Agent, k.Addr.QPN, k.Addr.QKey = d.sa, 1, uint32(ib.QKeyGSI)
	case mad.ClassPerf:
		k.Agent, k.Addr.QPN, k.Addr.QKey = d.perf, 1, uint32(ib.QKeyGSI)
	}
	return d.port.Send(&k)
}

// Recv implements Conn.
func (d *Device) Recv(ctx context.Context, into []transport.Packet) (int, error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	if err := d.port.SetReadDeadline(time.Time{}); err != nil {
		return 0, err
	}
	ended := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		_ = d.port.SetReadDeadline(time.Unix(1, 0))
		close(ended)
	})
	var k umad.Packet
	err := d.port.Recv(&k)
	if !stop() {
		<-ended // or it would meet the next call
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return 0, ctx.Err()
	}
	if err != nil {
		return 0, err
	}
	into[0] = received(&k)
	n := 1
	for n < len(into) {
		// What has arrived; an error comes again with the next call.
		if into[n-1].Long != nil {
			k.MAD = nil // it belongs to the receiver now
		}
		if ok, err := d.port.TryRecv(&k); err != nil || !ok {
			break
		}
		into[n] = received(&k)
		n++
	}
	return n, nil
}

// received translates a packet; a long message is not copied.
func received(k *umad.Packet) transport.Packet {
	p := transport.Packet{LID: k.Addr.LID}
	copy(p.MAD[:], k.MAD)
	switch {
	case k.Status == syscall.ETIMEDOUT:
		p.Err = transport.ErrTimeout
	case k.Status != 0:
		p.Err = fmt.Errorf("send: %w", k.Status)
	case mad.IsRMPP(&p.MAD) || len(k.MAD) > mad.Size:
		p.Long = k.MAD
	}
	return p
}

// Close closes the device.
func (d *Device) Close() error { return d.port.Close() }
