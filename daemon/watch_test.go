package daemon

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fsnotify/fsnotify"
	"golang.org/x/sys/unix"

	"ibnetworkd/internal/kernel/nl"
	"ibnetworkd/internal/testkit"
	"ibnetworkd/units"
)

// watchUnits watches unit directories until the test ends.
func watchUnits(t *testing.T, u *UnitDirs, wake func()) {
	t.Helper()
	run, err := u.Watch(slog.New(slog.DiscardHandler), wake)
	testkit.NoError(t, err)
	testkit.Run(t, run)
}

// TestWatchUnits goes through what happens to unit directories: they come into
// being, get files, drop-ins and replacements, and each time the units are right
// after the next call.
func TestWatchUnits(t *testing.T) {
	root := t.TempDir()
	u := NewUnitDirs(root)
	u.Load()
	woken := make(chan struct{}, 100)
	watchUnits(t, u, func() { woken <- struct{}{} })
	dir := filepath.Join(root, units.Dirs[0])
	write := func(name, text string) {
		t.Helper()
		p := filepath.Join(dir, name)
		testkit.NoError(t, os.MkdirAll(filepath.Dir(p), 0o755))
		// As editors do: another file, then a rename.
		testkit.WriteFile(t, p+".tmp~", text)
		testkit.NoError(t, os.Rename(p+".tmp~", p))
	}
	for _, step := range []struct {
		name string
		do   func()
		ok   func(*units.Set) bool
	}{
		{"directories and a file come", func() { write("1.ibnetwork", "[Match]\nName=a\n") },
			func(s *units.Set) bool { return len(s.Units) == 1 }},
		{"the file is replaced", func() { write("1.ibnetwork", "[Match]\nName=a\n[Link]\nMTUBytes=2044\n") },
			func(s *units.Set) bool { return len(s.Units) == 1 && s.Units[0].Link.MTUBytes.V.Bytes == 2044 }},
		{"a drop-in comes", func() { write("1.ibnetwork.d/x.conf", "[Link]\nMTUBytes=4092\n") },
			func(s *units.Set) bool { return len(s.Units) == 1 && s.Units[0].Link.MTUBytes.V.Bytes == 4092 }},
		{"the drop-in is replaced", func() { write("1.ibnetwork.d/x.conf", "[Link]\nMTUBytes=1500\n") },
			func(s *units.Set) bool { return len(s.Units) == 1 && s.Units[0].Link.MTUBytes.V.Bytes == 1500 }},
		{"the file goes", func() { _ = os.Remove(filepath.Join(dir, "1.ibnetwork")) }, func(s *units.Set) bool { return len(s.Units) == 0 }},
		{"the directory goes", func() { _ = os.RemoveAll(dir) }, func(s *units.Set) bool { return len(s.Units) == 0 }},
		{"all comes back", func() { write("2.ibnetwork", "[Match]\nName=b\n") },
			func(s *units.Set) bool { return len(s.Units) == 1 && s.Units[0].Name == "2.ibnetwork" }},
	} {
		step.do()
		limit := time.After(10 * time.Second)
		for done := false; !done; {
			select {
			case <-woken:
				done = step.ok(u.Load())
			case <-limit:
				t.Fatalf("%s: not seen; units %v", step.name, u.Load().Units)
			}
		}
	}
}

// deadSocket fails at once.
type deadSocket struct{}

func (deadSocket) FD() int                   { return 1 << 20 } // not open, as after an error of its own
func (deadSocket) Take(*Scope) (bool, error) { return false, errors.New("dead") }
func (deadSocket) Close() error              { return nil }

// A source that fails is opened again now and then, however much the others have
// to tell meanwhile.
func TestFailedSource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		opened := 0
		w := &Watch{Log: slog.New(slog.DiscardHandler), sources: []*source{{
			EventSource: EventSource{"dead", func() (EventSocket, error) { opened++; return nil, errors.New("no") }}, socket: deadSocket{},
		}}}
		wakes := make(chan Scope, 1000)
		w.Wake = func(s Scope) { wakes <- s }
		end := time.After(10*rejoin + rejoin/2)
		other := time.NewTicker(rejoin / 20)
		defer other.Stop()
		woken := 0
		for done := false; !done; {
			select {
			case <-wakes:
				woken++
				w.Take()
			case <-other.C:
				w.Take()
			case <-end:
				done = true
			}
		}
		if opened < 9 || opened > 11 || woken > 11 {
			t.Errorf("opened %d times, woken %d times in %v", opened, woken, 10*rejoin)
		}
	})
}

// quietSocket has reported that an RDMA device came, once.
type quietSocket struct{ fd, told *int }

func (q quietSocket) FD() int { return *q.fd }
func (q quietSocket) Take(s *Scope) (bool, error) {
	s.RDMA = *q.told > 0
	*q.told--
	return false, nil
}
func (quietSocket) Close() error { return nil }

// A family that comes with a module is listened to when the module has come, and
// asked for only when a device appears.
func TestLateSource(t *testing.T) {
	poll, err := nl.NewPoller()
	testkit.NoError(t, err)
	defer func() { _ = poll.Close() }()
	var pipe [2]int
	testkit.NoError(t, unix.Pipe(pipe[:]))
	defer func() { _, _ = unix.Close(pipe[0]), unix.Close(pipe[1]) }()
	if _, err := unix.Write(pipe[1], []byte("x")); err != nil { // there is always something to read
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name   string
		opens  []error // what opening gives, nil for a socket
		hints  int     // of RDMA devices
		opened int
	}{
		{"no device appears", []error{errNotYet}, 0, 1},
		{"the module has come", []error{errNotYet, nil}, 2, 2},
		{"another device without it", []error{errNotYet, errNotYet, nil}, 3, 3},
	} {
		t.Run(tt.name, func(t *testing.T) {
			opened, told, none := 0, tt.hints, 0
			late := quietSocket{&pipe[0], &none}
			w := &Watch{Log: slog.New(slog.DiscardHandler), poll: poll, Wake: func(Scope) {}, sources: []*source{
				{EventSource: EventSource{Name: "late"}},
				{EventSource: EventSource{Name: "udev"}, socket: quietSocket{&pipe[0], &told}},
			}}
			open := func() (EventSocket, error) {
				opened++
				if err := tt.opens[min(opened, len(tt.opens))-1]; err != nil {
					return nil, err
				}
				return late, nil
			}
			w.sources[0].Open = open
			if _, err := open(); !errors.Is(err, errNotYet) {
				t.Fatal(err)
			}
			for range 5 {
				w.Take()
			}
			if have := w.sources[0].socket != nil; opened != tt.opened || have != (tt.opens[len(tt.opens)-1] == nil) {
				t.Errorf("opened %d times, want %d; there is a socket: %v", opened, tt.opened, have)
			}
			if w.sources[0].socket != nil {
				// For the next case: the poller knows a descriptor once.
				fd, err := unix.Dup(pipe[0])
				testkit.NoError(t, err)
				_ = unix.Close(pipe[0])
				pipe[0] = fd
			}
		})
	}
	// A kernel whose module has no events is not asked again.
	told, asked := 5, 0
	w := &Watch{Log: slog.New(slog.DiscardHandler), poll: poll, Wake: func(Scope) {}, sources: []*source{
		{EventSource: EventSource{"late", func() (EventSocket, error) { asked++; return nil, nil }}},
		{EventSource: EventSource{Name: "udev"}, socket: quietSocket{&pipe[0], &told}},
	}}
	for range 5 {
		w.Take()
	}
	if asked != 1 || len(w.sources) != 1 {
		t.Errorf("asked %d times, %d sources", asked, len(w.sources))
	}
}

// countedSocket counts how often it is read.
type countedSocket struct {
	fd   int
	read *int
}

func (c countedSocket) FD() int { return c.fd }
func (c countedSocket) Take(s *Scope) (bool, error) {
	*c.read++
	s.Rules = true
	_, err := unix.Read(c.fd, make([]byte, 8))
	return false, err
}
func (countedSocket) Close() error { return nil }

// Sockets that have nothing are not read.
func TestTakeReadsWhatIsPending(t *testing.T) {
	w := &Watch{Log: slog.New(slog.DiscardHandler)}
	var ends [3][2]int
	var reads [3]int
	for i := range ends {
		var err error
		if ends[i], err = unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0); err != nil {
			t.Fatal(err)
		}
		defer func() { _, _ = unix.Close(ends[i][0]), unix.Close(ends[i][1]) }()
		w.sources = append(w.sources, &source{socket: countedSocket{ends[i][0], &reads[i]}})
	}
	w.sources = slices.Insert(w.sources, 1, &source{}) // one that is not open
	for _, tt := range []struct {
		send, read []int
	}{{nil, []int{0, 0, 0}}, {[]int{2}, []int{0, 0, 1}}, {[]int{0, 1}, []int{1, 1, 1}}, {nil, []int{1, 1, 1}}} {
		for _, i := range tt.send {
			if _, err := unix.Write(ends[i][1], []byte("x")); err != nil {
				t.Fatal(err)
			}
		}
		if s := w.Take(); s.Rules != (len(tt.send) > 0) || !slices.Equal(reads[:], tt.read) {
			t.Errorf("after messages at %v: scope %q, read %v times, want %v", tt.send, s.String(), reads, tt.read)
		}
	}
}

// Temporary names of editors and copying programs wake nothing.
func TestConcerns(t *testing.T) {
	const dir = "/etc/systemd/network/"
	for name, want := range map[string]bool{
		dir + "10-a.ibnetwork":                 true,
		dir + "10-a.ibnetwork.d":               true,
		dir + "10-a.ibnetwork.d/x.conf":        true,
		dir + ".10-a.ibnetwork":                false,
		dir + ".#10-a.ibnetwork":               false,
		dir + ".ansible_tmpx10-a.ibnetwork":    false,
		dir + "10-a.ibnetwork.d/.x.conf":       false,
		dir + ".10-a.ibnetwork.d/x.conf":       false,
		dir + "10-a.network":                   false,
		dir + "10-a.ibnetwork~":                false,
		"/etc/systemd":                         true,
		"/etc/systemd/system/x.service":        false,
		"/usr/lib/systemd/network/1.ibnetwork": true,
	} {
		if got := concerns("/", fsnotify.Event{Name: name, Op: fsnotify.Create}); got != want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
