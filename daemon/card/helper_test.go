package card

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"reflect"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"ibnetworkd/internal/kernel/devlink"
	"ibnetworkd/internal/kernel/kerneltest"
	"ibnetworkd/internal/kernel/modules"
	"ibnetworkd/internal/kernel/nl"
	"ibnetworkd/internal/kernel/sysfs"
	"ibnetworkd/internal/testkit"
	"ibnetworkd/link"
	"ibnetworkd/roce"
)

const helperRoot = "IBNETWORKD_TEST_HELPER_ROOT"

// TestHelperProcess is the helper process of the other tests.
func TestHelperProcess(t *testing.T) {
	root := os.Getenv(helperRoot)
	if root == "" {
		return
	}
	if err := Serve(root, os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	os.Exit(0)
}

func newHelper(root string) *helper {
	return &helper{
		command: func() *exec.Cmd {
			c := exec.Command(os.Args[0], "-test.run=^TestHelperProcess$")
			c.Env = append(os.Environ(), helperRoot+"="+root)
			c.Stderr = os.Stderr
			return c
		},
		load: func(_ context.Context, names ...string) error { return fmt.Errorf("no module %s here", names[0]) },
	}
}

func slowOps() (out []link.Op) {
	for _, op := range roce.Ops() {
		if slow(op) {
			out = append(out, op)
		}
	}
	return out
}

// A helper says of every operation what the executor says in this process.
func TestHelperIsExecutor(t *testing.T) {
	kerneltest.Isolate(t)
	root := t.TempDir()
	h := newHelper(root)
	defer h.rest()
	e := newExecutor(sysfs.New(root), modules.Loader{})
	e.load = h.load
	defer e.rest()
	for _, op := range slowOps() {
		want, got := e.apply(t.Context(), op), h.apply(t.Context(), op)
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s: %v, the executor: %v", op, got, want)
		}
	}
	x := newTree(t)
	h.rest()
	h = newHelper(x.root)
	defer h.rest()
	op := roce.SetVFs{On: link.Target{Link: "lo", Ifindex: 1}, Bus: "pci", Dev: pf, Old: 2, Count: 0}
	for range 2 { // the second by another process
		x.write("sys/devices/pci/"+pf+"/sriov_numvfs", "2\n")
		if err := h.apply(t.Context(), op); err != nil || x.read("sys/devices/pci/"+pf+"/sriov_numvfs") != "0" {
			t.Errorf("%v", err)
		}
		h.rest()
	}
}

// Modules are loaded by the daemon, which has the right to.
func TestHelperLoads(t *testing.T) {
	kerneltest.Isolate(t)
	root := t.TempDir()
	h := newHelper(root)
	defer h.rest()
	asked := ""
	h.load = func(_ context.Context, names ...string) error {
		asked += strings.Join(names, " ")
		return &inUse{"the module is in use"}
	}
	err := h.apply(t.Context(), roce.AddSoft{On: link.Target{Link: "lo", Ifindex: 1}, Name: "rxe0"})
	if asked != "rdma_rxe" || err == nil || !strings.Contains(err.Error(), "the module is in use") || !errors.Is(err, unix.EBUSY) {
		t.Errorf("asked for %q: %v", asked, err)
	}
}

// What Explain and the daemon see in an error is there on the other side.
func TestFailure(t *testing.T) {
	for _, err := range []error{
		unix.EBUSY, fmt.Errorf("write: %w", unix.EOPNOTSUPP), &os.PathError{Op: "open", Path: "/x", Err: unix.ENOENT},
		&NotTaken{What: "a", Why: "b", After: "c"}, fmt.Errorf("x: %w", &inUse{"ib5 is up"}),
		&nl.Error{What: "set VF", Errno: unix.EINVAL, Message: "no such GUID."}, &nl.Error{What: "x", Err: io.EOF},
		devlink.ErrNoDevlink, errUnknown, errors.Join(unix.EINVAL, errors.New("no module")), errors.New(""), context.Canceled,
	} {
		text, jerr := json.Marshal(failureOf(err))
		var f failure
		if jerr != nil || json.Unmarshal(text, &f) != nil || f.err() == nil {
			t.Fatalf("%v: %s", err, text)
		}
		got := f.err()
		if err.Error() != "" && got.Error() != err.Error() {
			t.Errorf("%q, want %q", got, err)
		}
		for _, op := range slowOps() {
			w, wr, wok := Explain(op, err, "words")
			g, gr, gok := Explain(op, got, "words")
			if w != g || wr != gr || wok != gok {
				t.Errorf("%s: %v: %+v, want %+v", op, err, g, w)
			}
		}
		for n := unix.Errno(1); n <= lastErrno; n++ {
			if errors.Is(err, n) != errors.Is(got, n) {
				t.Errorf("%v: errno %d", err, n)
			}
		}
		if errors.Is(err, os.ErrNotExist) != errors.Is(got, os.ErrNotExist) || gone(err) != gone(got) {
			t.Errorf("%v: gone", err)
		}
		var a, b *nl.Error
		if errors.As(got, &a) != (errors.As(err, &b) && b.Errno != 0) || a != nil && a.Message != b.Message {
			t.Errorf("%v: %+v", err, a)
		}
	}
	if failureOf(nil).err() != nil {
		t.Error("success is a failure")
	}
}

// FuzzRequest decodes what a helper reads: an operation that it takes is one that a
// worker has, and comes back the same.
func FuzzRequest(f *testing.F) {
	for _, op := range slowOps() {
		r, err := encodeOp(op)
		testkit.NoError(f, err)
		if back, err := decodeOp(r); err != nil || !reflect.DeepEqual(back, op) {
			f.Fatalf("%#v, %v, want %#v", back, err, op)
		}
		f.Add(r.Op, []byte(r.Args))
	}
	f.Add("AddVLAN", []byte("{}"))
	f.Fuzz(func(t *testing.T, name string, args []byte) {
		op, err := decodeOp(request{Op: name, Args: args})
		if err != nil {
			return
		}
		if !slow(op) {
			t.Fatalf("%T is not for a worker", op)
		}
		r, err := encodeOp(op)
		testkit.NoError(t, err)
		if again, err := decodeOp(r); err != nil || r.Op != name || again.String() != op.String() {
			t.Fatalf("%v, %v, want %v", again, err, op)
		}
	})
}

// stuck makes the number of functions a file whose reader waits, and its waiting end.
func stuck(x tree) (release func()) {
	p := x.path("sys/devices/pci/" + pf + "/sriov_numvfs")
	_ = os.Remove(p)
	testkit.NoError(x, unix.Mkfifo(p, 0o600))
	return func() {
		if w, err := os.OpenFile(p, os.O_RDWR|unix.O_NONBLOCK, 0); err == nil {
			_, _ = w.WriteString("0\n")
			_ = w.Close()
		}
	}
}

// The end of the daemon does not wait for a driver, the helper finishes what it is at,
// and one that is killed is an operation to try again.
func TestHelperEnds(t *testing.T) {
	kerneltest.Isolate(t)
	x := newTree(t)
	release := stuck(x)
	op := roce.SetVFs{On: link.Target{Link: "lo", Ifindex: 1}, Bus: "pci", Dev: pf, Old: 2, Count: 0}
	h := newHelper(x.root)
	p, err := startProcess(h.command())
	testkit.NoError(t, err)
	h.now = p
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(300*time.Millisecond, cancel)
	began := time.Now()
	if err := h.apply(ctx, op); !errors.Is(err, context.Canceled) || h.now != nil {
		t.Errorf("%v", err)
	}
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("the end took %v", took)
	}
	time.Sleep(300 * time.Millisecond)
	if err := p.cmd.Process.Signal(unix.Signal(0)); err != nil {
		t.Errorf("the helper did not finish what it was at: %v", err)
	}
	for until := time.Now().Add(10 * time.Second); p.cmd.Process.Signal(unix.Signal(0)) == nil; time.Sleep(10 * time.Millisecond) {
		release() // which has no effect before the helper has begun to read
		if time.Now().After(until) {
			t.Fatal("the helper does not end")
		}
	}
	result := make(chan error)
	if p, err = startProcess(h.command()); err != nil {
		t.Fatal(err)
	}
	h.now = p
	go func() { result <- h.apply(t.Context(), op) }()
	time.Sleep(100 * time.Millisecond)
	_ = p.cmd.Process.Kill()
	if err := <-result; !errors.Is(err, unix.EINTR) || !strings.Contains(err.Error(), "signal: killed") || h.now != nil {
		t.Errorf("%v", err)
	}
	h.command = func() *exec.Cmd { return exec.Command(x.path("none")) }
	if err := h.apply(t.Context(), op); !errors.Is(err, unix.EINTR) || errors.Is(err, os.ErrNotExist) || h.now != nil {
		t.Errorf("%v", err)
	}
}

// What is no request ends a helper with an error.
func TestServeNonsense(t *testing.T) {
	if err := Serve(t.TempDir(), strings.NewReader("nonsense"), io.Discard); err == nil {
		t.Error("nonsense is no request")
	}
	var out strings.Builder
	if err := Serve(t.TempDir(), strings.NewReader(`{"op":"AddVLAN","args":{}}`), &out); err != nil ||
		!strings.Contains(out.String(), "no worker carries it out") {
		t.Errorf("an operation that is not for a worker: %v, %s", err, out.String())
	}
}
