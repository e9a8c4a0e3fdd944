package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"ibnetworkd/lab"
)

const (
	maxHosts  = 8
	switchKey = 0x1d // Ctrl-]
	kept      = 64 << 10
)

// host is one of several guests with prompts on one terminal.
type host struct {
	name string
	keys *os.File // the master of its terminal
	cmd  *exec.Cmd
	said []byte // the end of what it has printed
	over bool
}

// prompts are several hosts on one terminal, one of which is in front.
type prompts struct {
	mu    sync.Mutex
	hosts []*host
	front int
	out   *os.File
	ended chan int
}

// openTerminal makes a terminal of the size of the one on standard input.
func openTerminal() (master, slave *os.File, err error) {
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NOCTTY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("a terminal for a guest: %w", err)
	}
	master = os.NewFile(uintptr(fd), "ptmx")
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0)
	}
	if err == nil {
		slave, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	}
	if err != nil {
		_ = master.Close()
		return nil, nil, fmt.Errorf("a terminal for a guest: %w", err)
	}
	return master, slave, nil
}

// resize gives a terminal the size of the one on standard input.
func resize(master *os.File) {
	if w, err := unix.IoctlGetWinsize(int(os.Stdin.Fd()), unix.TIOCGWINSZ); err == nil {
		if c, err := master.SyscallConn(); err == nil {
			_ = c.Control(func(fd uintptr) { _ = unix.IoctlSetWinsize(int(fd), unix.TIOCSWINSZ, w) })
		}
	}
}

// several runs a guest for each of n hosts, node1 and so on, each a shell of this
// program with args and a terminal of its own, and joins them: two by a cable,
// more by a simulated switch.
func several(ctx context.Context, n int, args []string) error {
	if n < 2 || n > maxHosts {
		return fmt.Errorf("--hosts %d: want 2 to %d", n, maxHosts)
	}
	before, err := unix.IoctlGetTermios(int(os.Stdin.Fd()), unix.TCGETS)
	if err != nil {
		return errors.New("standard input is not a terminal")
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	cables, unplug, err := lab.Cables(ctx, n)
	if err != nil {
		return err
	}
	defer unplug()
	p := &prompts{out: os.Stdout, ended: make(chan int, n)}
	defer p.kill()
	for i := range n {
		master, slave, err := openTerminal()
		if err != nil {
			return err
		}
		resize(master)
		h := &host{name: fmt.Sprintf("node%d", i+1), keys: master}
		h.cmd = exec.CommandContext(ctx, self, append([]string{"shell", "--cable-fd=3", fmt.Sprintf("--host-number=%d", i+1)}, args...)...)
		h.cmd.Cancel = func() error { return h.cmd.Process.Signal(syscall.SIGTERM) }
		h.cmd.Stdin, h.cmd.Stdout, h.cmd.Stderr = slave, slave, slave
		h.cmd.ExtraFiles = []*os.File{cables[i]}
		h.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
		err = h.cmd.Start()
		_ = slave.Close()
		_ = cables[i].Close()
		if err != nil {
			_ = master.Close()
			return err
		}
		p.hosts = append(p.hosts, h)
		go p.read(i, h)
	}
	raw := *before
	raw.Iflag &^= unix.IGNBRK | unix.BRKINT | unix.PARMRK | unix.ISTRIP | unix.INLCR | unix.IGNCR | unix.ICRNL | unix.IXON
	raw.Oflag &^= unix.OPOST
	raw.Lflag &^= unix.ECHO | unix.ECHONL | unix.ICANON | unix.ISIG | unix.IEXTEN
	raw.Cc[unix.VMIN], raw.Cc[unix.VTIME] = 1, 0
	if err := unix.IoctlSetTermios(int(os.Stdin.Fd()), unix.TCSETS, &raw); err != nil {
		return err
	}
	defer func() { _ = unix.IoctlSetTermios(int(os.Stdin.Fd()), unix.TCSETS, before) }()
	size := make(chan os.Signal, 1)
	signal.Notify(size, unix.SIGWINCH)
	defer signal.Stop(size)
	p.show(0)
	quit := make(chan struct{})
	go p.keyboard(os.Stdin, quit)
	for left := n; left > 0; {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-quit:
			return nil
		case <-size:
			for _, h := range p.hosts {
				resize(h.keys)
			}
		case i := <-p.ended:
			left--
			p.gone(i)
		}
	}
	return nil
}

// read keeps what a host prints, and prints it while the host is in front.
func (p *prompts) read(i int, h *host) {
	b := make([]byte, 4096)
	for {
		n, err := h.keys.Read(b)
		p.mu.Lock()
		h.said = append(h.said, b[:n]...)
		if len(h.said) > kept {
			h.said = append(h.said[:0], h.said[len(h.said)-kept/2:]...)
		}
		if p.front == i {
			_, _ = p.out.Write(b[:n])
		}
		p.mu.Unlock()
		if err != nil {
			_ = h.cmd.Wait()
			p.ended <- i
			return
		}
	}
}

// show puts a host in front, with the end of what it has printed.
func (p *prompts) show(i int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.front = i
	last := p.hosts[i].said
	// What fits a screen, from the beginning of a line.
	for lines, k := 0, len(last)-1; k >= 0; k-- {
		if last[k] == '\n' {
			if lines++; lines > 30 {
				last = last[k+1:]
				break
			}
		}
	}
	fmt.Fprintf(p.out, "\x1b[2J\x1b[H== %s of %d hosts; Ctrl-] and 1 to %d: another; Ctrl-] Ctrl-]: the next; Ctrl-] q: quit\r\n",
		p.hosts[i].name, len(p.hosts), len(p.hosts))
	_, _ = p.out.Write(last)
}

// gone marks a host whose guest has ended, and puts another in front of it.
func (p *prompts) gone(i int) {
	p.mu.Lock()
	p.hosts[i].over = true
	next := -1
	for k, h := range p.hosts {
		if !h.over && next < 0 {
			next = k
		}
	}
	behind := p.front != i
	p.mu.Unlock()
	if !behind && next >= 0 {
		p.show(next)
	}
}

// keyboard gives keys to the host in front.
func (p *prompts) keyboard(in *os.File, quit chan struct{}) {
	b := make([]byte, 1024)
	command := false
	for {
		n, err := in.Read(b)
		if err != nil {
			close(quit)
			return
		}
		for rest := b[:n]; len(rest) > 0; {
			if command {
				command = false
				k := rest[0]
				rest = rest[1:]
				switch {
				case k == 'q':
					close(quit)
					return
				case k == switchKey:
					p.show((p.inFront() + 1) % len(p.hosts))
				case k >= '1' && int(k-'1') < len(p.hosts):
					p.show(int(k - '1'))
				}
				continue
			}
			i := bytes.IndexByte(rest, switchKey)
			if i < 0 {
				i = len(rest)
			} else {
				command = true
			}
			_, _ = p.hosts[p.inFront()].keys.Write(rest[:i])
			rest = rest[min(i+1, len(rest)):]
		}
	}
}

func (p *prompts) inFront() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.front
}

// kill ends all guests that still run, and waits for them.
func (p *prompts) kill() {
	left := 0
	for _, h := range p.hosts {
		if !h.over {
			left++
			_ = h.cmd.Process.Signal(syscall.SIGTERM)
		}
	}
	for ; left > 0; left-- {
		<-p.ended
	}
	for _, h := range p.hosts {
		_ = h.keys.Close()
	}
}
