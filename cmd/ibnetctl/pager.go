package main

import (
	"context"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
)

// paged is the annotation of commands whose output goes through a pager on a
// terminal.
const paged = "paged"

// pager is the program that the output goes through, from its first byte on.
type pager struct {
	words []string
	cmd   *exec.Cmd
	pipe  io.WriteCloser
	tty   [2]io.Writer
}

// Write implements io.Writer. Without a pager the terminal gets everything.
func (p *pager) Write(b []byte) (int, error) {
	if p.cmd == nil && p.words != nil {
		p.start()
	}
	if p.pipe == nil {
		return p.tty[0].Write(b)
	}
	return p.pipe.Write(b)
}

func (p *pager) start() {
	c := exec.Command(p.words[0], p.words[1:]...)
	p.words = nil
	c.Env = pagerEnv(os.Environ(), os.LookupEnv)
	c.Stdout, c.Stderr = p.tty[0], p.tty[1]
	pipe, err := c.StdinPipe()
	if err != nil {
		return
	}
	if err := c.Start(); err != nil {
		_ = pipe.Close()
		return
	}
	p.cmd, p.pipe = c, pipe
}

// pagerCommand is the pager as systemd's tools choose it: SYSTEMD_PAGER, PAGER,
// less. An empty value or "cat" is none.
func pagerCommand(env func(string) (string, bool)) []string {
	for _, name := range []string{"SYSTEMD_PAGER", "PAGER"} {
		if v, ok := env(name); ok {
			if words := strings.Fields(v); len(words) > 0 && v != "cat" {
				return words
			}
			return nil
		}
	}
	return []string{"less"}
}

// pagerEnv is the environment of the pager. A user who may run only this
// program as another user must not get a shell out of less (LESSSECURE, less(1)).
func pagerEnv(environ []string, env func(string) (string, bool)) []string {
	less, ok := env("SYSTEMD_LESS")
	if !ok {
		less = "FRSXMK"
	}
	out := append(environ[:len(environ):len(environ)], "LESS="+less, "LESSCHARSET=utf-8")
	if _, ok := env("SUDO_UID"); ok {
		out = append(out, "LESSSECURE=1")
	}
	return out
}

// page sends what follows through the pager.
func (a *app) page() {
	words := pagerCommand(os.LookupEnv)
	if len(words) == 0 {
		return
	}
	if _, sudo := os.LookupEnv("SUDO_UID"); sudo && words[0] != "less" {
		return // what another pager allows is not known
	}
	a.pager = &pager{words: words, tty: a.tty}
	a.out = screen{a.pager}
}

// endPage waits until the reader leaves the pager, or ends it: when the command was
// interrupted, and at SIGTERM. At SIGINT it stays, for the terminal sends that to the
// pager too, whose options say whether it quits (-K of less(1)).
func (a *app) endPage(ctx context.Context) {
	if a.pager == nil {
		return
	}
	if a.pager.cmd != nil {
		a.pager.wait(ctx)
	}
	a.pager = nil
	a.out = screen{a.tty[0]}
}

func (p *pager) wait(ctx context.Context) {
	end := make(chan os.Signal, 1)
	signal.Notify(end, syscall.SIGTERM)
	defer signal.Stop(end)
	if ctx.Err() != nil {
		end <- syscall.SIGTERM
	}
	_ = p.pipe.Close()
	left := make(chan struct{})
	go func() { _ = p.cmd.Wait(); close(left) }()
	select {
	case <-left:
	case s := <-end:
		_ = p.cmd.Process.Signal(s) // less leaves the terminal as it was
		<-left
	}
}
