package lab

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"ibnetworkd/lab/simfabric"
	fabricwire "ibnetworkd/lab/simfabric/wire"
)

// cable makes the socket pair that two ports are the ends of.
func (r *NetRun) cable(a, b string) error {
	pair, err := socketpair()
	if err != nil {
		return err
	}
	for i, end := range []string{a, b} {
		if r.fds[end] != nil {
			return fmt.Errorf("port %s has a cable already", end)
		}
		f := pair[i]
		if name, port, _ := strings.Cut(end, "/"); r.net.node(name) != nil {
			r.fds[end] = f
		} else if err := r.plug(f, end, name, port); err != nil {
			return err
		}
	}
	return nil
}

// plug puts the end f of a cable into a port of the simulated fabric.
func (r *NetRun) plug(f *os.File, end, name, port string) error {
	if r.sim == nil {
		f.Close()
		return fmt.Errorf("no node %q", name)
	}
	run, err := plugSim(r.sim, f, name, port)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	r.unplug = append(r.unplug, cancel)
	r.wires.Go(func() {
		if err := run(ctx); err != nil {
			r.t.Errorf("lab: cable at %s: %v", end, err)
		}
	})
	return nil
}

// plugSim puts the end f of a cable, which it closes, into a port of a simulated
// fabric; run carries packets until its context ends.
func plugSim(sim *simfabric.Sim, f *os.File, name, port string) (run func(context.Context) error, err error) {
	defer f.Close()
	num, err := strconv.ParseUint(port, 10, 8)
	if err != nil {
		return nil, fmt.Errorf("port %s/%s: %q is not a port number", name, port, port)
	}
	found := sim.FindHost(name)
	if len(found) == 0 {
		return nil, fmt.Errorf("no node %q, neither a guest nor in the fabric", name)
	}
	conn, err := net.FileConn(f)
	if err != nil {
		return nil, fmt.Errorf("port %s/%s: %w", name, port, err)
	}
	c := fabricwire.New(rand.Uint32())
	p, err := sim.Plug(found[0].NodeGUID, uint8(num), c.Send, c.SetReady)
	if err != nil {
		conn.Close()
		if errors.Is(err, simfabric.ErrBusy) {
			return nil, fmt.Errorf("port %s/%s has a cable already; take a free port of a switch, or a port of an adapter, whose place the "+
				"guest gets", name, port)
		}
		return nil, fmt.Errorf("port %s/%s: %w", name, port, err)
	}
	return func(ctx context.Context) error { return c.Run(ctx, conn, p) }, nil
}

// socketpair is the two ends of a cable.
func socketpair() (ends [2]*os.File, err error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return ends, err
	}
	for i, fd := range pair {
		// Room for many frames; what does not fit makes the sender wait.
		_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, 8<<20)
		ends[i] = os.NewFile(uintptr(fd), "cable")
	}
	return ends, nil
}

// wire is a port of a guest whose cable leaves the kernel.
type wire struct {
	port string // as the control file names it
	file *os.File
}

// plugWires joins the ports to the network devices that the guest got.
func plugWires(m Machine, ports []string) error {
	for i, p := range ports {
		nd := fmt.Sprintf("vec%d", i)
		if m == QEMU {
			// udev may have given it any name, or be about to.
			if nd = netdevByMAC(wireMAC(i)); nd == "" {
				return fmt.Errorf("port %s: its network device %s is missing", p, wireMAC(i))
			}
		}
		if err := linkUp(nd); err != nil {
			return err
		}
		if err := control("wire " + p + " " + nd); err != nil {
			return err
		}
	}
	return nil
}

func netdevByMAC(mac string) string {
	files, _ := filepath.Glob("/sys/class/net/*/address")
	for _, f := range files {
		if text, err := os.ReadFile(f); err == nil && strings.TrimSpace(string(text)) == mac {
			return filepath.Base(filepath.Dir(f))
		}
	}
	return ""
}

// linkUp brings a network device up, with a long queue: what the far end cannot
// take yet waits.
func linkUp(name string) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	req, err := unix.NewIfreq(name)
	if err != nil {
		return err
	}
	if err := os.WriteFile("/sys/class/net/"+name+"/tx_queue_len", []byte("30000"), 0o644); err != nil {
		return fmt.Errorf("%s: queue length: %w", name, err)
	}
	req.SetUint16(unix.IFF_UP | unix.IFF_RUNNING | unix.IFF_NOARP)
	if err := unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, req); err != nil && err != syscall.EEXIST {
		return fmt.Errorf("%s up: %w", name, err)
	}
	return nil
}
