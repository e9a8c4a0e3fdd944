package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

const (
	maxRemote = 16 << 20 // bytes that are kept of one host's output
	remotes   = 16       // hosts that are asked at a time
)

// remoteArgs is the command line of this invocation without --host.
func remoteArgs(c *cobra.Command, args []string) []string {
	out := strings.Fields(c.CommandPath())
	c.Flags().Visit(func(f *pflag.Flag) {
		switch v := f.Value.(type) {
		case pflag.SliceValue:
			if f.Name == "host" {
				return
			}
			for _, s := range v.GetSlice() {
				out = append(out, "--"+f.Name+"="+s)
			}
		default:
			out = append(out, "--"+f.Name+"="+f.Value.String())
		}
	})
	if len(args) > 0 {
		out = append(append(out, "--"), args...)
	}
	return out
}

// shellQuote makes one word of s for a POSIX shell.
func shellQuote(s string) string {
	if s != "" && strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=./:@,%") == "" {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// sshArgs are the arguments of ssh that run the command on host. With terminal
// the command there has one too, for editors, questions and colours.
func sshArgs(host string, terminal bool, command []string) []string {
	quoted := make([]string, len(command))
	for i, w := range command {
		quoted[i] = shellQuote(w)
	}
	tty := "-T"
	if terminal {
		tty = "-t"
	}
	return []string{"-x", tty, "--", host, strings.Join(quoted, " ")}
}

// remote runs the command on the hosts instead of here, by ssh: what it observes
// there needs no more than ibnetctl there. One host has the terminal; several are
// asked at the same time and answer in order.
func (a *app) remote(ctx context.Context, hosts, command []string) error {
	for _, h := range hosts {
		if h == "" || strings.HasPrefix(h, "-") {
			return fail(exitUsage, "--host=%s: not HOST or USER@HOST", h)
		}
	}
	ssh, err := exec.LookPath("ssh")
	if err != nil {
		return fmt.Errorf("ssh is not installed: install openssh-client, or run ibnetctl on the host")
	}
	if len(hosts) == 1 {
		_, stdin := a.in.(*os.File)
		c := exec.CommandContext(ctx, ssh, sshArgs(hosts[0], a.terminal && stdin && !a.json, command)...)
		c.Stdin, c.Stdout, c.Stderr = a.in, a.out, a.err
		if a.terminal {
			c.Stdout, c.Stderr = a.tty[0], a.tty[1]
		}
		a.emitted = true
		err := a.remoteEnd(hosts[0], c.Run())
		var ee *exitError
		if errors.As(err, &ee) {
			ee.err = nil // the command there has said why
		}
		return err
	}
	if a.json {
		return fail(exitUsage, "--json cannot be combined with several hosts: run ibnetctl for each host")
	}
	type reply struct {
		out, err limited
		end      error
	}
	replies := make([]reply, len(hosts))
	slots := make(chan struct{}, remotes)
	var all sync.WaitGroup
	for i, h := range hosts {
		all.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			r := &replies[i]
			c := exec.CommandContext(ctx, ssh, append([]string{"-oBatchMode=yes"}, sshArgs(h, false, command)...)...)
			c.Stdout, c.Stderr = &r.out, &r.err
			r.end = c.Run()
		})
	}
	all.Wait()
	var errs []error
	for i, h := range hosts {
		fmt.Fprintln(a.out, a.paint(bold, "== "+h))
		for l := range strings.Lines(replies[i].err.String() + replies[i].out.String()) {
			fmt.Fprintln(a.out, strings.TrimRight(l, "\r\n"))
		}
		if err := a.remoteEnd(h, replies[i].end); err != nil {
			errs = append(errs, err)
		}
	}
	return joined(errs)
}

// remoteEnd is how a command on host ended: with its own exit status, which has
// said why, or without one.
func (a *app) remoteEnd(host string, err error) error {
	var ee *exec.ExitError
	switch {
	case err == nil:
		return nil
	case !errors.As(err, &ee):
		return fmt.Errorf("%s: %w", host, err)
	case ee.ExitCode() == 255:
		return fmt.Errorf("%s: ssh cannot reach the host or log in; for the reason: ssh -v %s true", host, host)
	case ee.ExitCode() == 127:
		return fmt.Errorf("%s: ibnetctl is not installed on that host", host)
	}
	return &exitError{code: ee.ExitCode(), err: fmt.Errorf("%s: exit status %d", host, ee.ExitCode())}
}

// limited keeps the first maxRemote bytes.
type limited struct{ bytes.Buffer }

func (l *limited) Write(b []byte) (int, error) {
	if room := maxRemote - l.Len(); room > 0 {
		l.Buffer.Write(b[:min(len(b), room)])
	}
	return len(b), nil
}
