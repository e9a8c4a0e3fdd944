// Package control serves the methods of org.ibnetwork1.Manager to root on a socket, for
// hosts without a system bus. The kernel says who connects; one connection is one call.
package control

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"ibnetworkd/daemon/bus/api"
)

// Bounds of the connections.
const (
	maxConns = 16              // at one time; more wait in the kernel's queue
	slow     = 5 * time.Second // for a caller that does not send or read
	retry    = time.Minute     // pause after the socket could not be made
)

// Call answers one call of a user.
type Call func(ctx context.Context, uid uint32, call api.ControlCall) api.ControlAnswer

// Server is the socket.
type Server struct {
	log  *slog.Logger
	path string
	call Call
}

// New makes the server of a socket at path, which Run makes.
func New(log *slog.Logger, path string, call Call) *Server { return &Server{log, path, call} }

// Run serves until ctx ends. It returns no error, which would end the daemon: it logs and retries.
func (s *Server) Run(ctx context.Context) error {
	for logged := false; ; logged = true {
		l, err := listen(s.path)
		if err == nil {
			err = s.serve(ctx, l)
		}
		if ctx.Err() != nil {
			return nil
		}
		if !logged {
			s.log.Error("calls without a bus are not served; will retry each minute", "at", s.path, "error", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(retry):
		}
	}
}

// listen makes the socket of root alone. A file of an earlier process is removed: the daemon
// has locked the directory.
func listen(path string) (*net.UnixListener, error) {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	// Mode 0600 from the start: fchmod of a socket before bind(2) is what the file gets.
	config := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		var err error
		if e := c.Control(func(fd uintptr) { err = unix.Fchmod(int(fd), 0o600) }); e != nil {
			return e
		}
		return err
	}}
	l, err := config.Listen(context.Background(), "unix", path)
	if err != nil {
		return nil, err
	}
	return l.(*net.UnixListener), nil
}

func (s *Server) serve(ctx context.Context, l *net.UnixListener) error {
	defer context.AfterFunc(ctx, func() { _ = l.Close() })()
	defer func() { _ = l.Close() }()
	var open sync.WaitGroup
	defer open.Wait()
	places := make(chan struct{}, maxConns)
	for {
		places <- struct{}{}
		c, err := l.AcceptUnix()
		if err != nil {
			return err
		}
		open.Go(func() {
			defer func() { <-places }()
			defer c.Close()
			s.answer(ctx, c)
		})
	}
}

func (s *Server) answer(ctx context.Context, c *net.UnixConn) {
	defer context.AfterFunc(ctx, func() { _ = c.Close() })()
	_ = c.SetDeadline(time.Now().Add(slow))
	answer := api.ControlAnswer{Error: api.ErrInvalidArgs}
	uid, err := peer(c)
	var call api.ControlCall
	if err == nil {
		call, err = read(c)
	}
	if err != nil {
		answer.Text = err.Error()
	} else {
		answer = s.call(ctx, uid, call)
	}
	b, err := json.Marshal(answer)
	if err != nil {
		return
	}
	_ = c.SetDeadline(time.Now().Add(slow))
	_, _ = c.Write(append(b, '\n'))
}

// peer is the user of the process that connected.
func peer(c *net.UnixConn) (uid uint32, err error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return 0, err
	}
	var cred *unix.Ucred
	if e := raw.Control(func(fd uintptr) { cred, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) }); e != nil {
		return 0, e
	}
	if err != nil {
		return 0, fmt.Errorf("the user of the caller is not known: %w", err)
	}
	return cred.Uid, nil
}

// read reads the line of a call.
func read(r io.Reader) (call api.ControlCall, err error) {
	line, err := bufio.NewReader(io.LimitReader(r, api.MaxControlCall)).ReadBytes('\n')
	switch {
	case errors.Is(err, io.EOF):
		return call, fmt.Errorf("a call is one line of JSON of at most %d bytes", api.MaxControlCall)
	case err != nil:
		return call, err
	}
	if err := json.Unmarshal(line, &call); err != nil {
		return api.ControlCall{}, fmt.Errorf("a call is one line of JSON: %w", err)
	}
	return call, nil
}
