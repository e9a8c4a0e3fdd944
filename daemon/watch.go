package daemon

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/fsnotify/fsnotify"

	"ibnetworkd/internal/kernel/nl"
	"ibnetworkd/internal/kernel/rdmanl"
	"ibnetworkd/internal/kernel/rtnl"
	"ibnetworkd/internal/kernel/uevent"
	"ibnetworkd/units"
)

// Watch turns the events of the system into hints for the loop until ctx ends.
// It subscribes before it returns, so that nothing that happens after the first
// look is missed.
type Watch struct {
	Log *slog.Logger
	// RecvBuffer is the receive buffer of the event sockets in bytes, 0 for a
	// large one. Tests make it small to provoke overruns.
	RecvBuffer int
	// Udev says that udevd runs; without it the kernel's own events are read
	// too.
	Udev bool
	Wake func(Scope)
	// Overrun is called for each overrun of a socket; nil for nobody.
	Overrun func(source string)
}

// everything is what is looked at after events were lost.
var everything = Scope{All: true, RDMA: true, PKeys: true, Addrs: true, Routes: true, Rules: true}

// rejoin is the wait before a failed event socket is opened again. It is no
// wait for a state: the loop looks at everything after it.
const rejoin = time.Second

// Start subscribes to all sources. Those that this kernel does not have are left
// out.
func (w *Watch) Start(ctx context.Context) error {
	if err := w.startRTNL(ctx); err != nil {
		return err
	}
	// udevd's re-broadcast is listened to in any case: udevd may start after us,
	// and links wait for it from then on.
	groups := []uevent.Group{uevent.Udev}
	if !w.Udev {
		groups = append(groups, uevent.Kernel)
	}
	for _, g := range groups {
		if err := w.startUevent(ctx, g); err != nil {
			// No device events in this container or namespace: rtnetlink tells
			// of links, the port timer of the rest.
			w.Log.Warn("no device events", "error", err)
		}
	}
	if err := w.startRDMA(ctx); err != nil && !errors.Is(err, rdmanl.ErrNoMonitor) && !errors.Is(err, rdmanl.ErrNoRDMA) {
		w.Log.Warn("no RDMA events", "error", err)
	}
	return nil
}

func pump[E comparable](ctx context.Context, w *Watch, name string, q *nl.Queue[E], scope func([]E) Scope, again func(context.Context) error) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-q.C():
		}
		b := q.Take()
		s := scope(b.Events)
		if b.Overrun {
			s.Join(everything)
			if w.Overrun != nil {
				w.Overrun(name)
			}
			w.Log.Warn("events were lost: looking at everything", "source", name)
		}
		if b.Err != nil && ctx.Err() == nil {
			w.Log.Error("event source failed, opened again", "source", name, "error", b.Err)
			var reopen func()
			reopen = func() {
				if ctx.Err() != nil {
					return
				}
				if err := again(ctx); err != nil {
					time.AfterFunc(rejoin, reopen)
					return
				}
				w.Wake(everything)
			}
			time.AfterFunc(rejoin, reopen)
			return
		}
		if !s.Empty() {
			w.Wake(s)
		}
	}
}

func (w *Watch) startRTNL(ctx context.Context) error {
	ev, err := rtnl.Subscribe(ctx, w.RecvBuffer)
	if err != nil {
		return fmt.Errorf("subscribe to rtnetlink: %w", err)
	}
	go pump(ctx, w, "rtnetlink", ev.Queue, func(es []rtnl.Event) (s Scope) {
		for _, e := range es {
			switch e.Type {
			case rtnl.LinkChanged, rtnl.LinkGone:
				s.Join(Scope{Links: map[int]bool{e.Index: true}, RDMA: true})
			case rtnl.AddressChanged:
				s.Addrs = true
			case rtnl.RouteChanged:
				s.Routes = true
			case rtnl.RuleChanged:
				s.Rules = true
			}
		}
		return s
	}, w.startRTNL)
	return nil
}

func (w *Watch) startUevent(ctx context.Context, g uevent.Group) error {
	ev, err := uevent.Subscribe(ctx, g, w.RecvBuffer, "net", "infiniband", "infiniband_mad")
	if err != nil {
		return fmt.Errorf("subscribe to device events: %w", err)
	}
	go pump(ctx, w, "uevent", ev.Queue, func(es []uevent.Event) (s Scope) {
		for _, e := range es {
			switch {
			case e.Subsystem == "net" && e.IfIndex != 0:
				s.Join(Scope{Links: map[int]bool{e.IfIndex: true}})
			case e.Subsystem == "infiniband":
				s.Join(Scope{RDMA: true})
			}
		}
		return s
	}, func(ctx context.Context) error { return w.startUevent(ctx, g) })
	return nil
}

func (w *Watch) startRDMA(ctx context.Context) error {
	c, err := rdmanl.Dial()
	if err != nil {
		return err
	}
	ev, err := c.Subscribe(ctx, w.RecvBuffer)
	if err != nil {
		_ = c.Close()
		return err
	}
	context.AfterFunc(ctx, func() { _ = c.Close() })
	go pump(ctx, w, "rdma", ev.Queue, func(es []rdmanl.Event) (s Scope) {
		s.RDMA = len(es) > 0
		return s
	}, w.startRDMA)
	return nil
}

// editorPause is how long the unit directories must be quiet before they are
// read: an editor writes a file in several steps, a package manager many files.
const editorPause = 150 * time.Millisecond

// Watch tells of changes below the unit directories: it notes which files were
// touched and asks for a reload when the directories have been quiet for a
// moment. Directories that are not there yet are waited for at their nearest
// parent.
func (u *UnitDirs) Watch(ctx context.Context, log *slog.Logger, wake func()) error {
	root := u.root
	fw, err := fsnotify.NewWatcher()
	if err != nil {
		return fmt.Errorf("watch the unit directories: %w", err)
	}
	add := func() {
		for _, p := range watched(root) {
			if err := fw.Add(p); err != nil && !errors.Is(err, fs.ErrNotExist) {
				log.Warn("cannot watch a unit directory: changes there need a reload", "path", p, "error", err)
			}
		}
	}
	add()
	u.Watched()
	go func() {
		defer func() { _ = fw.Close() }()
		pause := time.NewTimer(time.Hour)
		pause.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case e, ok := <-fw.Events:
				if !ok {
					return
				}
				if concerns(root, e) {
					u.Touch(e.Name)
					if !strings.HasSuffix(e.Name, units.Suffix) && !strings.HasSuffix(e.Name, ".conf") {
						u.Doubt() // a directory: what is in it may be new
					}
					pause.Reset(editorPause)
				}
			case _, ok := <-fw.Errors:
				if !ok {
					return
				}
				u.Doubt() // lost events
				pause.Reset(editorPause)
			case <-pause.C:
				add()
				wake()
			}
		}
	}()
	return nil
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
		if nested {
			return strings.HasSuffix(top, units.Suffix+".d")
		}
		return strings.HasSuffix(rest, units.Suffix) || strings.HasSuffix(rest, units.Suffix+".d")
	}
	return false
}

// watched lists the directories to watch: the unit directories and their
// drop-in directories, and for one that is missing its nearest parent.
func watched(root string) []string {
	var out []string
	for _, d := range units.Dirs {
		dir := filepath.Join("/", root, d)
		for {
			if st, err := os.Stat(dir); err == nil && st.IsDir() {
				out = append(out, dir)
				break
			}
			up := filepath.Dir(dir)
			if up == dir {
				break
			}
			dir = up
		}
		es, err := os.ReadDir(filepath.Join("/", root, d))
		if err != nil {
			continue
		}
		for _, e := range es {
			if strings.HasSuffix(e.Name(), units.Suffix+".d") {
				out = append(out, filepath.Join("/", root, d, e.Name()))
			}
		}
	}
	return out
}

// LoadUnits reads the unit directories below root, which stands for /.
func LoadUnits(root string) *units.Set { return NewUnitDirs(root).Load() }
