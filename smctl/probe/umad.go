package probe

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"ibnetworkd/ib"
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
	sa   uint32 // agent for questions to the subnet administrator
}

// ErrNoUmad says that the kernel offers no way to send management datagrams.
var ErrNoUmad = errors.New("ib_umad is not loaded: modprobe ib_umad")

// Open opens the umad device of a port.
func Open(ctx context.Context, ibdev string, num int) (*Device, error) {
	name, issm, err := find("/sys/class/infiniband_mad", ibdev, num)
	if err != nil {
		return nil, err
	}
	if !issm {
		return nil, fmt.Errorf("port %s/%d has no issm device: %w", ibdev, num, transport.ErrNoQP0)
	}
	p, err := umad.Open(ctx, name)
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
		d.sa, err = p.Register(umad.Agent{QPN: 1, Class: uint8(mad.ClassSA), Version: mad.SAClassV})
	}
	if err != nil {
		_ = p.Close()
		if errors.Is(err, syscall.EPROTONOSUPPORT) {
			return nil, fmt.Errorf("port %s/%d refuses QP0: %w", ibdev, num, transport.ErrNoQP0)
		}
		return nil, fmt.Errorf("register with %s: %w", name, err)
	}
	return d, nil
}

// find maps a port to its umad device by the files ibdev and port, and says whether
// it has an issm device too.
func find(class, ibdev string, num int) (umad string, issm bool, err error) {
	entries, err := os.ReadDir(class)
	if err != nil {
		return "", false, ErrNoUmad
	}
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), "umad") && !strings.HasPrefix(e.Name(), "issm") {
			continue
		}
		dev, err1 := os.ReadFile(filepath.Join(class, e.Name(), "ibdev"))
		port, err2 := os.ReadFile(filepath.Join(class, e.Name(), "port"))
		if err1 != nil || err2 != nil {
			continue
		}
		if n, err := strconv.Atoi(strings.TrimSpace(string(port))); err == nil && n == num && strings.TrimSpace(string(dev)) == ibdev {
			if strings.HasPrefix(e.Name(), "issm") {
				issm = true
			} else {
				umad = e.Name()
			}
		}
	}
	if umad == "" {
		return "", false, fmt.Errorf("port %s/%d has no umad device", ibdev, num)
	}
	return umad, issm, nil
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
	into[0] = transport.Packet{LID: k.Addr.LID}
	copy(into[0].MAD[:], k.MAD)
	switch k.Status {
	case 0:
	case syscall.ETIMEDOUT:
		into[0].Err = transport.ErrTimeout
	default:
		into[0].Err = fmt.Errorf("send: %w", k.Status)
	}
	return 1, nil
}

// Close closes the device.
func (d *Device) Close() error { return d.port.Close() }
