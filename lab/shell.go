package lab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// Shell boots a guest with a prompt on the terminal that standard input and
// output are, and returns when the prompt or the guest ends.  Progress of builds
// goes to out.  ctx ends the guest.
func Shell(ctx context.Context, out io.Writer, c Config) error {
	if c.Userland == Bare {
		return errors.New("a shell needs the Debian userland")
	}
	if _, err := unix.IoctlGetTermios(int(os.Stdin.Fd()), unix.TCGETS); err != nil {
		return errors.New("standard input is not a terminal")
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
	g, err := m.boot(job{Config: c, Shell: true}, "shell", os.Stdin)
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
		return errors.New(string(msg))
	}
	if _, err := os.Stat(filepath.Join(g.Dir, "out/exit")); err != nil {
		return fmt.Errorf("the guest died after %v: %w", time.Since(g.start).Round(time.Millisecond), g.err)
	}
	return nil
}

// agentProgram returns a static build of the running program.
func agentProgram(ctx context.Context, out io.Writer) (string, error) {
	self, err := os.Executable()
	if err != nil || isStatic(self) {
		return self, err
	}
	b, err := builder(out)
	if err != nil {
		return "", err
	}
	return b.Program(ctx, startDir, "ibnetworkd/cmd/ibnetlab")
}
