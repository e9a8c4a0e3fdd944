package card

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"reflect"
	"syscall"

	"golang.org/x/sys/unix"

	"ibnetworkd/internal/kernel/devlink"
	"ibnetworkd/internal/kernel/nl"
	"ibnetworkd/internal/kernel/sysfs"
	"ibnetworkd/link"
	"ibnetworkd/roce"
)

// A helper is a process that carries out the operations of one card. A driver may
// keep a thread in the kernel for minutes where no signal reaches it, and a process
// ends when its last thread does: in a process of its own it delays neither the end
// nor a restart of the daemon. The two exchange lines of JSON; the helper ends with
// its input, after the operation that it is at: what a driver starts for a process
// that is to die fails halfway (kthread_create).

// request is a line to the helper: an operation, or the answer to its wish for a
// module.
type request struct {
	Op     string          `json:"op,omitempty"` // the type's name
	Args   json.RawMessage `json:"args,omitempty"`
	Loaded *failure        `json:"loaded,omitempty"`
}

// reply is a line from the helper: a module that has to be loaded before it goes on,
// or the result.
type reply struct {
	Load string  `json:"load,omitempty"`
	Err  failure `json:"err"`
}

// failure is an error as far as Explain and the daemon distinguish it. The zero value
// is none.
type failure struct {
	Text     string    `json:"text,omitempty"`
	NotTaken *NotTaken `json:"not_taken,omitempty"`
	InUse    string    `json:"in_use,omitempty"`
	// Kernel is the answer of a netlink request.
	Kernel      *nl.Error       `json:"kernel,omitempty"`
	Errnos      []syscall.Errno `json:"errnos,omitempty"`
	Unsupported bool            `json:"unsupported,omitempty"`
	NoDevlink   bool            `json:"no_devlink,omitempty"`
}

// lastErrno is the highest error number of Linux (EHWPOISON).
const lastErrno = 133

func failureOf(err error) (f failure) {
	if err == nil {
		return f
	}
	f.Text = cmp.Or(err.Error(), "failed without a reason")
	f.NoDevlink, f.Unsupported = errors.Is(err, devlink.ErrNoDevlink), errors.Is(err, errors.ErrUnsupported)
	for n := syscall.Errno(1); n <= lastErrno; n++ {
		if errors.Is(err, n) {
			f.Errnos = append(f.Errnos, n)
		}
	}
	var used *inUse
	if errors.As(err, &used) {
		f.InUse = used.user
	}
	if k := (*nl.Error)(nil); errors.As(err, &k) && k.Errno != 0 {
		f.Kernel = &nl.Error{What: k.What, Errno: k.Errno, Message: k.Message}
	}
	_ = errors.As(err, &f.NotTaken)
	return f
}

// err is the error again, nil for none.
func (f failure) err() error {
	if f.Text == "" {
		return nil
	}
	return &reportedError{f}
}

type reportedError struct{ failure }

// Error is the error's own text.
func (e *reportedError) Error() string { return e.Text }

// Is reports what the error was.
func (e *reportedError) Is(target error) bool {
	for _, n := range e.Errnos {
		if errors.Is(n, target) {
			return true
		}
	}
	return e.Unsupported && target == errors.ErrUnsupported || e.NoDevlink && target == devlink.ErrNoDevlink
}

// As gives the parts with a type of their own.
func (e *reportedError) As(target any) bool {
	switch t := target.(type) {
	case **NotTaken:
		*t = e.NotTaken
		return e.NotTaken != nil
	case **inUse:
		*t = &inUse{e.InUse}
		return e.InUse != ""
	case **nl.Error:
		*t = e.Kernel
		return e.Kernel != nil
	}
	return false
}

func encodeOp(op link.Op) (request, error) {
	args, err := json.Marshal(op)
	return request{Op: reflect.TypeOf(op).Name(), Args: args}, err
}

func decodeOp(r request) (link.Op, error) {
	for _, sample := range roce.Ops() {
		t := reflect.TypeOf(sample)
		if t.Name() != r.Op || !slow(sample) {
			continue
		}
		v := reflect.New(t)
		if err := json.Unmarshal(r.Args, v.Interface()); err != nil {
			return nil, err
		}
		op, _ := v.Elem().Interface().(link.Op)
		return op, nil
	}
	return nil, fmt.Errorf("%w: %q", errUnknown, r.Op)
}

// Serve carries out the operations that it reads, as the helper process of one card,
// until its input ends. root is the directory that stands for /.
func Serve(root string, input io.Reader, output io.Writer) error {
	in, out := json.NewDecoder(bufio.NewReader(input)), json.NewEncoder(output)
	e := &executor{sys: sysfs.New(root), load: func(_ context.Context, names ...string) error {
		for _, name := range names {
			if err := out.Encode(reply{Load: name}); err != nil {
				return err
			}
			var r request
			if err := in.Decode(&r); err != nil || r.Loaded == nil {
				return fmt.Errorf("no answer about the module %s: %w", name, cmp.Or(err, errUnknown))
			}
			if err := r.Loaded.err(); err != nil {
				return err
			}
		}
		return nil
	}}
	for {
		var r request
		if err := in.Decode(&r); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		op, err := decodeOp(r)
		if err == nil {
			err = e.apply(context.Background(), op)
		}
		if err := out.Encode(reply{Err: failureOf(err)}); err != nil {
			return err
		}
	}
}

// helper is a runner that has a process, from its first operation to its rest.
type helper struct {
	command func() *exec.Cmd
	load    func(ctx context.Context, names ...string) error
	now     *process
}

type process struct {
	cmd     *exec.Cmd
	in      io.WriteCloser
	replies chan reply // closed when it has ended
	ended   error      // why, once replies is closed
}

func startProcess(c *exec.Cmd) (*process, error) {
	in, err := c.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := c.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := c.Start(); err != nil {
		return nil, err
	}
	p := &process{cmd: c, in: in, replies: make(chan reply, 1)}
	go func() {
		defer close(p.replies)
		for d := json.NewDecoder(bufio.NewReader(out)); ; {
			var r reply
			if d.Decode(&r) != nil {
				break
			}
			p.replies <- r
		}
		_ = c.Process.Kill() // it says nothing any more
		p.ended = c.Wait()
	}()
	return p, nil
}

// apply returns early when ctx ends. The process goes on until the operation is done.
func (h *helper) apply(ctx context.Context, op link.Op) error {
	if h.now == nil {
		p, err := startProcess(h.command())
		if err != nil {
			return &helperError{fmt.Errorf("it does not start: %w", err)}
		}
		h.now = p
	}
	err := h.now.ask(ctx, op, h.load)
	if e := (*helperError)(nil); errors.As(err, &e) || ctx.Err() != nil {
		h.rest()
	}
	return err
}

// helperError is the end of a helper process in the middle of an operation, or before.
// Its errno is not one of the driver's.
type helperError struct{ why error }

// Error is a sentence.
func (e *helperError) Error() string {
	return fmt.Sprintf("the helper process of the card ended: %v", e.why)
}

// Unwrap returns EINTR: the operation is to be tried again.
func (e *helperError) Unwrap() error { return unix.EINTR }

// ask has the process carry out an operation.
func (p *process) ask(ctx context.Context, op link.Op, load func(ctx context.Context, names ...string) error) error {
	r, err := encodeOp(op)
	if err != nil {
		return err
	}
	to := json.NewEncoder(p.in)
	for {
		if err := to.Encode(r); err != nil {
			return &helperError{err}
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case got, ok := <-p.replies:
			if !ok {
				return &helperError{p.ended}
			}
			if got.Load == "" {
				return got.Err.err()
			}
			f := failureOf(load(ctx, got.Load))
			r = request{Loaded: &f}
		}
	}
}

// rest ends the process, by its input.
func (h *helper) rest() {
	if h.now == nil {
		return
	}
	_ = h.now.in.Close()
	go func(rs <-chan reply) {
		for range rs { // what comes late
		}
	}(h.now.replies)
	h.now = nil
}
