package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/fsnotify/fsnotify"
	"golang.org/x/sys/unix"

	"ibnetworkd/internal/filewatch"
	"ibnetworkd/internal/kernel/nl"
	"ibnetworkd/internal/kernel/rdmanl"
	"ibnetworkd/internal/kernel/rtnl"
	"ibnetworkd/internal/kernel/uevent"
	"ibnetworkd/link"
	"ibnetworkd/units"
)

// Watch turns the events of the system into hints for the loop. The loop reads
// them when it has time for them, in its own goroutine: a burst costs one wake-up,
// and nothing that happens is read twice.
type Watch struct {
	Log *slog.Logger
	// RecvBuffer is the receive buffer of the event sockets in bytes, 0 for a
	// large one. Tests make it small to provoke overruns.
	RecvBuffer int
	// Udev reports that udevd runs; without it the kernel's own events are read
	// too.
	Udev bool
	Wake func(Scope)
	// More are the sources of other packages; one that is nil is not there.
	More []EventSource

	poll    *nl.Poller
	sources []*source
	// carrier of the links that events have reported: a change of it is a change
	// of the port too, most others are not.
	carrier map[int]bool
}

// EventSource opens a socket of events. Open gives nil, and no error, where this
// kernel has no such events, and errNotYet where they come with a module.
type EventSource struct {
	Name string
	Open func() (EventSocket, error)
}

// EventSocket is read by the loop.
type EventSocket interface {
	// FD is polled.
	FD() int
	// Take adds what has happened to the scope. lost says that more has than the
	// socket could hold; an error that it has to be opened again.
	Take(*Scope) (lost bool, err error)
	Close() error
}

// reader is what the kernel's clients give.
type reader[E any] interface {
	FD() int
	Read(put func(E)) (lost bool, err error)
	Close() error
}

type socket[E any] struct {
	reader[E]
	note func(*Scope, E)
}

func (x socket[E]) Take(s *Scope) (bool, error) { return x.Read(func(e E) { x.note(s, e) }) }

// SocketOf makes an EventSocket of a kernel client's source.
func SocketOf[E any](r reader[E], note func(*Scope, E)) EventSocket { return socket[E]{r, note} }

// errNotYet means that a source can be opened when there are RDMA devices.
var errNotYet = errors.New("comes with a module that is not loaded yet")

// source is one that may have failed and is opened again.
type source struct {
	EventSource
	socket EventSocket // nil while it has failed, or is not there yet
	retry  time.Time   // when to open it again; zero: when an RDMA device appears
}

// everything is what is read after events were lost.
var everything = Scope{All: true, RDMA: true, PKeys: true, Addrs: true, Routes: true, Rules: true}

// rejoin is the wait before a failed event socket is opened again. It is no
// wait for a state: the loop reads everything after it.
const rejoin = time.Second

// Open opens all sources, so that nothing that happens after the first observation is
// missed. Sources that this kernel does not have are left out.
func (w *Watch) Open() error {
	var err error
	if w.poll, err = nl.NewPoller(); err != nil {
		return err
	}
	w.carrier = map[int]bool{}
	// udevd's re-broadcast is listened to in any case: udevd may start after us,
	// and links wait for it from then on.
	all := []EventSource{{"rtnetlink", w.rtnetlink}, {"rdma", w.rdma}, {"udev", func() (EventSocket, error) { return w.uevents(uevent.Udev) }}}
	if !w.Udev {
		all = append(all, EventSource{"uevent", func() (EventSocket, error) { return w.uevents(uevent.Kernel) }})
	}
	for i, x := range append(all, w.More...) {
		so, err := x.Open()
		switch {
		case err != nil && i == 0:
			return errors.Join(err, w.Close())
		case errors.Is(err, errNotYet):
			w.sources = append(w.sources, &source{EventSource: x})
		case err != nil:
			// In a container or a namespace: rtnetlink reports links, the port
			// timer of the rest.
			w.Log.Warn("some events are not seen", "source", x.Name, "error", err)
		case so != nil:
			if err := w.poll.Add(so.FD()); err != nil {
				return errors.Join(err, so.Close(), w.Close())
			}
			w.sources = append(w.sources, &source{EventSource: x, socket: so})
		}
	}
	return nil
}

// Run wakes the loop when something has happened, until ctx ends. The sources are open.
func (w *Watch) Run(ctx context.Context) error {
	defer context.AfterFunc(ctx, func() { _ = w.poll.Close() })()
	for {
		if err := w.poll.Wait(); err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return fmt.Errorf("wait for events of the kernel: %w", err)
		}
		w.Wake(Scope{Events: true})
	}
}

// Close closes the sockets. The loop must have ended.
func (w *Watch) Close() error {
	err := w.poll.Close()
	if errors.Is(err, os.ErrClosed) {
		err = nil
	}
	for _, x := range w.sources {
		if x.socket != nil {
			err = errors.Join(err, x.socket.Close())
		}
	}
	w.sources = nil
	return err
}

// Take reads what has happened since the last time. One system call says which of the
// sockets have something.
func (w *Watch) Take() Scope {
	var s Scope
	pending := w.pending()
	for i, x := range w.sources {
		if x.socket == nil {
			if !x.retry.IsZero() && !time.Now().Before(x.retry) && x.again(w) {
				s.Join(everything)
			}
			continue
		}
		if !pending(i) {
			continue
		}
		lost, err := x.socket.Take(&s)
		if lost {
			s.Join(everything)
			clear(w.carrier)
			w.Log.Warn("events were lost: reading everything again", "source", x.Name)
		}
		if err != nil {
			w.Log.Error("event source failed, opened again", "source", x.Name, "error", err)
			_ = x.socket.Close()
			x.socket = nil
			x.later(w)
		}
	}
	if s.RDMA {
		// The first device comes after the family. What the observation
		// that follows sees needs no event.
		for _, x := range w.sources {
			if x.socket == nil && x.retry.IsZero() {
				x.again(w)
			}
		}
	}
	return s
}

// pending reports which of the sources have something to read, or an error.
func (w *Watch) pending() func(i int) bool {
	fds := make([]unix.PollFd, len(w.sources))
	for i, x := range w.sources {
		fds[i].Fd = -1
		if x.socket != nil {
			fds[i] = unix.PollFd{Fd: int32(x.socket.FD()), Events: unix.POLLIN}
		}
	}
	n, err := unix.Poll(fds, 0)
	return func(i int) bool { return err != nil || n > 0 && fds[i].Revents != 0 }
}

// later has a source opened again after a while, once.
func (x *source) later(w *Watch) {
	x.retry = time.Now().Add(rejoin)
	time.AfterFunc(rejoin, func() { w.Wake(Scope{Events: true}) })
}

// again opens a source that has failed or was not there.
func (x *source) again(w *Watch) bool {
	so, err := x.Open()
	if err == nil && so != nil {
		if err = w.poll.Add(so.FD()); err == nil {
			x.socket = so
			return true
		}
		_ = so.Close()
	}
	switch {
	case errors.Is(err, errNotYet):
		x.retry = time.Time{}
	case err == nil && so == nil:
		// The module is there now, and has no events.
		w.sources = slices.DeleteFunc(slices.Clone(w.sources), func(o *source) bool { return o == x })
	default:
		x.later(w)
	}
	return false
}

// Ready has the loop woken by what happens from now on, and by what has happened
// since Take.
func (w *Watch) Ready() { w.poll.Ready() }

func (w *Watch) rtnetlink() (EventSocket, error) {
	ev, err := rtnl.Listen(w.RecvBuffer)
	if err != nil {
		return nil, fmt.Errorf("listen to rtnetlink: %w", err)
	}
	return SocketOf(ev, func(s *Scope, e rtnl.Event) {
		switch e.Type {
		case rtnl.LinkChanged:
			s.link(e.Index)
			if was, known := w.carrier[e.Index]; !known || was != e.Carrier {
				w.carrier[e.Index] = e.Carrier
				s.RDMA = true
				if e.InfiniBand && !e.Carrier {
					s.KeysOf = joined(s.KeysOf, map[int]bool{e.Index: true})
				}
			}
		case rtnl.LinkGone, rtnl.LinkMoved:
			s.link(e.Index)
			if e.Type == rtnl.LinkMoved {
				s.Moved = append(s.Moved, link.MoveEvent{Index: e.Index, Name: e.Name, Parent: e.Parent, NSID: e.NSID})
			}
			s.RDMA = true
			delete(w.carrier, e.Index)
		case rtnl.AddressChanged:
			s.Addrs = true
		case rtnl.AddressGone:
			s.Addrs = true
			s.link(e.Index) // at once: what was removed may be the unit's
		case rtnl.RouteChanged:
			s.Routes = true
		case rtnl.RuleChanged:
			s.Rules = true
		case rtnl.SettingChanged:
			s.link(e.Index)
		}
	}), nil
}

func (w *Watch) uevents(g uevent.Group) (EventSocket, error) {
	ev, err := uevent.Listen(g, w.RecvBuffer, "net", "infiniband")
	if err != nil {
		return nil, fmt.Errorf("listen to device events: %w", err)
	}
	return SocketOf(ev, func(s *Scope, e uevent.Event) { s.device(g, e) }), nil
}

// device adds what has to be observed after an event of a device.
func (s *Scope) device(g uevent.Group, e uevent.Event) {
	switch {
	case e.Subsystem == "net" && e.Action == "remove":
		// rtnetlink has reported it.
	case e.Subsystem == "net" && e.IfIndex != 0:
		s.link(e.IfIndex)
		if g == uevent.Udev {
			s.Udev = joined(s.Udev, map[int]bool{e.IfIndex: true})
		}
	case e.Subsystem == "infiniband":
		s.RDMA = true
	}
}

func (w *Watch) rdma() (EventSocket, error) {
	c, err := rdmanl.Dial()
	if err == nil {
		defer func() { _ = c.Close() }()
		var ev *rdmanl.Events
		if ev, err = c.Listen(w.RecvBuffer); err == nil {
			return SocketOf(ev, func(s *Scope, _ rdmanl.Event) { s.RDMA = true }), nil
		}
	}
	switch {
	case errors.Is(err, rdmanl.ErrNoMonitor):
		return nil, nil
	case errors.Is(err, rdmanl.ErrNoRDMA):
		return nil, errNotYet
	}
	return nil, fmt.Errorf("listen to RDMA events: %w", err)
}

// Watch reports changes below the unit directories: it notes which files were touched and asks
// for a reload when the directories have been quiet for a moment. Directories that do not exist
// yet are waited for at their nearest parent. The watches are there when it returns; run
// reads them until its context ends.
func (u *UnitDirs) Watch(log *slog.Logger, wake func()) (run func(context.Context) error, err error) {
	w, err := filewatch.New(log)
	if err != nil {
		return nil, fmt.Errorf("watch the unit directories: %w", err)
	}
	addTables := func(paths []string) {
		for _, p := range paths {
			w.Add(filepath.Dir(p))
		}
	}
	add := func() {
		w.Add(watched(u.root)...)
		addTables(u.lastTables())
	}
	add()
	u.SetWatching(addTables)
	event := func(e fsnotify.Event) bool {
		if e.Name == "" {
			u.lost()
			return true
		}
		if !concerns(u.root, e) && (e.Op == fsnotify.Chmod || !filewatch.Leads(e.Name, u.lastTables())) {
			return false
		}
		u.MarkChanged(e.Name)
		if !strings.HasSuffix(e.Name, units.Suffix) && !strings.HasSuffix(e.Name, ".conf") {
			u.lost() // a directory: what is in it may be new
		}
		return true
	}
	return func(ctx context.Context) error {
		w.Run(ctx, event, func() {
			add()
			wake()
		})
		return nil
	}, nil
}

// concerns keeps out what happens beside the unit directories in a parent that
// is watched, files that are no unit files, and reads.
func concerns(root string, e fsnotify.Event) bool {
	if e.Op == fsnotify.Chmod {
		return false
	}
	for _, d := range units.Dirs {
		dir := filepath.Join("/", root, d)
		if e.Name == dir || strings.HasPrefix(dir, e.Name+"/") {
			return true
		}
		rest, ok := strings.CutPrefix(e.Name, dir+"/")
		if !ok {
			continue
		}
		top, _, nested := strings.Cut(rest, "/")
		if strings.HasPrefix(path.Base(rest), ".") || strings.HasPrefix(top, ".") {
			continue // an editor's or a copying program's temporary name
		}
		if nested {
			return strings.HasSuffix(top, units.Suffix+".d")
		}
		return strings.HasSuffix(rest, units.Suffix) || strings.HasSuffix(rest, units.Suffix+".d")
	}
	return false
}

// watched lists the directories to watch: the unit directories and their drop-in
// directories.
func watched(root string) (out []string) {
	for _, d := range units.Dirs {
		dir := filepath.Join("/", root, d)
		out = append(out, dir)
		es, err := os.ReadDir(dir)
		if err != nil {
			continue
		}
		for _, e := range es {
			if strings.HasSuffix(e.Name(), units.Suffix+".d") {
				out = append(out, filepath.Join(dir, e.Name()))
			}
		}
	}
	return out
}
