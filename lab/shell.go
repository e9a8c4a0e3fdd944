package lab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"ibnetworkd/lab/build"
	"ibnetworkd/sm/fabric"
	"ibnetworkd/sm/simfabric"
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

// ShellOnFabric is Shell in a guest with one adapter, which hangs on a simulated
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
