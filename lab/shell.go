package lab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"ibnetworkd/lab/build"
	"ibnetworkd/lab/gen"
	"ibnetworkd/lab/simfabric"
	"ibnetworkd/sm/fabric"
)

// Shell boots a guest with a prompt on the terminal that standard input and
// output are, and returns when the prompt or the guest ends.  Progress of builds
// goes to out.  ctx ends the guest.
func Shell(ctx context.Context, out io.Writer, c Config) error {
	if c.Userland == Bare {
		return errors.New("a shell needs the Debian userland")
	}
	if err := c.check(); err != nil {
		return err
	}
	if _, err := unix.IoctlGetTermios(int(os.Stdin.Fd()), unix.TCGETS); err != nil {
		return errors.New("standard input is not a terminal")
	}
	if _, err := terminalOwner(); err != nil {
		return err
	}
	c = c.withDefaults()
	c.Timeout = 0
	for _, v := range []string{"TERM", "COLUMNS", "LINES"} {
		if s := os.Getenv(v); s != "" {
			c.Env = append(c.Env, v+"="+s)
		}
	}
	unpacked := ""
	if c.Machine == UML {
		dir, err := os.MkdirTemp("", "ibnetlab-editor-")
		if err != nil {
			return err
		}
		defer os.RemoveAll(dir)
		unpacked = dir
		// Without one everything else works.
		if e, err := editor(ctx, out, dir); err != nil {
			fmt.Fprintf(out, "no editor in the guest: %v\n", err)
		} else {
			c.Bins = append(c.Bins[:len(c.Bins):len(c.Bins)], e)
		}
	}
	m, err := prepare(ctx, out, c)
	if err != nil {
		return err
	}
	if m.agent, err = agentProgram(ctx, out); err != nil {
		return err
	}
	g, err := m.boot(job{Config: c, Shell: true, Begun: time.Now()}, "shell", os.Stdin)
	if err != nil {
		return err
	}
	defer os.RemoveAll(g.Dir)
	// The guest's folder has it now, which is removed even if this program is killed.
	if unpacked != "" {
		os.RemoveAll(unpacked)
	}
	select {
	case <-g.done:
	case <-ctx.Done():
		g.Kill()
		return ctx.Err()
	}
	if msg, err := os.ReadFile(filepath.Join(g.Dir, "out/error")); err == nil {
		return errors.New(strings.TrimSpace(string(msg)))
	}
	// Who powers the guest off leaves no status, and means it.
	if !fileExists(filepath.Join(g.Dir, "out/exit")) && g.err != nil {
		return fmt.Errorf("the guest died after %v: %w", time.Since(g.start).Round(time.Millisecond), g.err)
	}
	return nil
}

// ShellOnFabric is Shell in a guest with one adapter, which is attached to a simulated
// fabric: text is in ibnetdiscover's format, and at is a free port of one of its
// switches or a port of an adapter, whose place the guest takes, such as
// "S-0001/19"; "" is the place of the first adapter.
func ShellOnFabric(ctx context.Context, out io.Writer, c Config, name, text, at string) error {
	f, err := fabric.ReadText(name, strings.NewReader(text))
	if err != nil {
		return err
	}
	sim := simfabric.New(f, simfabric.Options{})
	defer sim.Close()
	node, port := at, "1"
	if i := strings.LastIndexByte(at, '/'); i >= 0 {
		node, port = at[:i], at[i+1:]
	}
	ends, err := socketpair()
	if err != nil {
		return err
	}
	defer ends[0].Close()
	run, err := plugSim(sim, ends[1], node, port)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- run(ctx) }()
	c.HCAs, c.Ports = 1, 1
	c.Swib = strings.TrimSpace("topo=2 " + c.Swib)
	c.wires = []wire{{"h0/1", ends[0]}}
	fmt.Fprintf(out, "simulated around it: %d nodes, %d links\n", len(f.Nodes), f.Links())
	err = Shell(ctx, out, c)
	cancel()
	return errors.Join(err, <-done)
}

// Cables are the ends of what joins the ports of n hosts: one cable for two, a
// simulated switch for more. They are for ShellOnCable in other processes; ctx
// or unplug ends the switch.
func Cables(ctx context.Context, n int) (ends []*os.File, unplug func(), err error) {
	if n == 2 {
		pair, err := socketpair()
		return pair[:], func() {}, err
	}
	f := gen.Star(n, max(n, 8))
	sim := simfabric.New(f, simfabric.Options{})
	ctx, cancel := context.WithCancel(ctx)
	unplug = func() { cancel(); sim.Close() }
	for i := range f.Nodes {
		node := &f.Nodes[i]
		if node.Switch != fabric.None {
			continue
		}
		pair, err := socketpair()
		if err != nil {
			unplug()
			return nil, nil, err
		}
		run, err := plugSim(sim, pair[1], node.Desc, "1")
		if err != nil {
			unplug()
			return nil, nil, err
		}
		go func() { _ = run(ctx) }()
		ends = append(ends, pair[0])
	}
	return ends, unplug, nil
}

// ShellOnCable is Shell in the guest of host number, counted from 1, one of
// several that each have one adapter with one port: cable is an end of Cables.
func ShellOnCable(ctx context.Context, out io.Writer, c Config, cable *os.File, number int) error {
	c.HCAs, c.Ports = 1, 1
	c.Swib = strings.TrimSpace(fmt.Sprintf("topo=2 host=%d %s", number, c.Swib))
	c.wires = []wire{{"h0/1", cable}}
	if c.Files == nil {
		c.Files = map[string]string{}
	}
	name := fmt.Sprintf("node%d", number)
	c.Files["/etc/hostname"] = name + "\n"
	return Shell(ctx, out, c)
}

// editor puts Debian's nano into dir; the libraries that it needs are in the userland.
func editor(ctx context.Context, out io.Writer, dir string) (string, error) {
	b, err := build.New(out)
	if err != nil {
		return "", err
	}
	debs, err := b.Packages(ctx, "nano")
	if err != nil {
		return "", err
	}
	if text, err := exec.CommandContext(ctx, "dpkg-deb", "-x", debs[0], dir).CombinedOutput(); err != nil {
		return "", fmt.Errorf("dpkg-deb -x %s: %w: %s", debs[0], err, strings.TrimSpace(string(text)))
	}
	return filepath.Join(dir, "bin/nano"), nil
}

// agentProgram returns a static build of the running program.
func agentProgram(ctx context.Context, out io.Writer) (string, error) {
	self, err := os.Executable()
	if err != nil || isStatic(self) {
		return self, err
	}
	b, err := build.New(out)
	if err != nil {
		return "", err
	}
	return b.Program(ctx, startDir, "ibnetworkd/cmd/ibnetlab")
}
