package worker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/godbus/dbus/v5"
	"golang.org/x/sys/unix"

	"ibnetworkd/internal/backoff"
	"ibnetworkd/internal/busconn"
	"ibnetworkd/smctl"
)

const (
	systemdName = "org.freedesktop.systemd1"
	systemdPath = "/org/freedesktop/systemd1"
	managerIf   = systemdName + ".Manager"
	unitIf      = systemdName + ".Unit"
	serviceIf   = systemdName + ".Service"
	// privateSocket is systemd's own, for a host whose bus is down.
	privateSocket = "/run/systemd/private"
)

// ExitRefused is the exit status of ibnetsm when the port lets no subnet manager
// in: it has no QP0, or no issm device.
const ExitRefused = 4

// Systemd runs units over org.freedesktop.systemd1. Run keeps the connection
// and follows the signals; the other methods may be called from any goroutine,
// and fail while there is no connection.
type Systemd struct {
	// Address of the bus; empty is the system bus, and systemd's own socket
	// where there is none.
	Address string
	Log     *slog.Logger

	private string // the socket of systemd itself
	changes chan string
	poke    chan struct{} // wanted has changed
	up      chan struct{} // a connection is there
	tried   chan struct{} // closed when a connection is there, or the first has failed
	once    sync.Once     // closes tried

	mu   sync.Mutex
	conn *busconn.Conn
	// watched are the units whose changes the bus sends on conn. A match for all
	// would wake us for each device that comes or goes.
	watched map[dbus.ObjectPath]bool
	jobs    map[chan ended]string // the units whose jobs are waited for
	wanted  bool                  // signals are
}

// NewSystemd makes a Systemd.
func NewSystemd(address string, log *slog.Logger) *Systemd {
	log = cmp.Or(log, slog.New(slog.DiscardHandler))
	return &Systemd{Address: address, Log: log, private: privateSocket, changes: make(chan string, 64), poke: make(chan struct{}, 1),
		up: make(chan struct{}, 1), tried: make(chan struct{})}
}

// Tried is closed when there is a connection, or the first attempt has failed.
func (s *Systemd) Tried() <-chan struct{} { return s.tried }

// Connected gets a value after each time that a connection is there.
func (s *Systemd) Connected() <-chan struct{} { return s.up }

// Changes implements Manager.
func (s *Systemd) Changes() <-chan string { return s.changes }

// Follow implements Manager. systemd sends its subscribers a signal for each unit and job
// of the whole host, so it has none here while nothing is managed.
func (s *Systemd) Follow(on bool) {
	s.mu.Lock()
	s.wanted = on
	s.mu.Unlock()
	select {
	case s.poke <- struct{}{}:
	default:
	}
}

// changed queues a name for the controller. If the queue is full one "" is sent
// for all names that did not fit.
func (s *Systemd) changed(ctx context.Context, name string) {
	select {
	case s.changes <- name:
		return
	default:
	}
	select {
	case s.changes <- "":
	case <-ctx.Done():
	}
}

// ErrNoSystemd means that there is no connection to systemd now.
var ErrNoSystemd = errors.New("systemd cannot be reached over D-Bus")

func (s *Systemd) connection() (*busconn.Conn, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conn == nil || !s.conn.Connected() {
		return nil, ErrNoSystemd
	}
	return s.conn, nil
}

// Run connects and follows signals until ctx ends, again and again.
func (s *Systemd) Run(ctx context.Context) error {
	pause := backoff.Pause{Socket: backoff.SystemBus}
	said := false
	for {
		ok, err := s.follow(ctx)
		s.once.Do(func() { close(s.tried) })
		if ctx.Err() != nil {
			return nil
		}
		if !said || ok {
			s.Log.Warn("no connection to systemd, trying again", "error", err)
			said = true
		}
		if ok {
			pause.Reset()
			// The controller must know that nothing is known.
			s.changed(ctx, "")
		}
		if !pause.Wait(ctx) {
			return nil
		}
	}
}

func (s *Systemd) dial(ctx context.Context) (*busconn.Conn, error) {
	conn, err := busconn.Join(ctx, busconn.Config{Address: s.Address})
	if err == nil || s.Address != "" {
		return conn, err
	}
	p, perr := busconn.Peer(ctx, s.private)
	if perr != nil {
		return nil, err
	}
	return p, nil
}

// awaitBus closes a connection to systemd's own socket once there is a bus, which
// sends the signals of the units that are watched only.
func (s *Systemd) awaitBus(conn *busconn.Conn) {
	defer conn.Close()
	pause := backoff.Pause{Socket: backoff.SystemBus}
	for pause.Wait(conn.Context()) {
		if bus, err := busconn.Join(conn.Context(), busconn.Config{Address: s.Address}); err == nil {
			_ = bus.Close()
			return
		}
	}
}

// follow is one life of a connection.
func (s *Systemd) follow(ctx context.Context) (ok bool, err error) {
	conn, err := s.dial(ctx)
	if err != nil {
		return false, err
	}
	defer conn.Close()
	if conn.IsPeer() {
		go s.awaitBus(conn)
	}
	sigs := make(chan *dbus.Signal, 256)
	conn.Signal(sigs)
	onBus := !conn.IsPeer()
	if onBus {
		if _, err := conn.TrustOwner(ctx, systemdName); err != nil {
			return false, err
		}
		if err := conn.AddMatchSignalContext(ctx, dbus.WithMatchSender(systemdName), dbus.WithMatchInterface(managerIf),
			dbus.WithMatchMember("Reloading")); err != nil {
			return false, err
		}
	}
	subscribed := false
	subscribe := func() {
		s.mu.Lock()
		wanted := s.wanted || !onBus
		s.mu.Unlock()
		if wanted == subscribed {
			return
		}
		verb := ".Unsubscribe"
		if wanted {
			verb = ".Subscribe"
		}
		if err := conn.Object(systemdName, systemdPath).CallWithContext(ctx, managerIf+verb, 0).Err; err != nil {
			// A bus without systemd, as in a container: NameOwnerChanged
			// follows when it comes.
			s.Log.Warn("systemd is not on the bus: subnet managers cannot be run until it is", "error", err)
		}
		subscribed = wanted
		// Signals before the subscription are lost.
		s.changed(ctx, "")
	}
	if !onBus {
		// On its own socket systemd sends everything anyway; this is whether
		// it listens.
		if err := conn.Object(systemdName, systemdPath).CallWithContext(ctx, managerIf+".Subscribe", 0).Err; err != nil {
			return false, fmt.Errorf("subscribe to systemd's signals: %w", err)
		}
		subscribed = true
	}
	s.mu.Lock()
	s.conn, s.watched = conn, map[dbus.ObjectPath]bool{}
	s.mu.Unlock()
	s.once.Do(func() { close(s.tried) })
	select {
	case s.up <- struct{}{}:
	default:
	}
	defer func() {
		s.mu.Lock()
		s.conn = nil
		s.mu.Unlock()
	}()
	s.changed(ctx, "")
	subscribe()
	for {
		select {
		case <-ctx.Done():
			return true, nil
		case <-s.poke:
			subscribe()
		case <-conn.Context().Done():
			return true, errors.New("the connection was closed")
		case sig, open := <-sigs:
			if !open {
				return true, errors.New("the connection was closed")
			}
			if s.signal(ctx, sig) {
				subscribed = false
				subscribe()
				s.changed(ctx, "")
			}
		}
	}
}

// signal takes a signal and reports whether systemd has joined the bus: after
// daemon-reexec its subscribers are kept, those of a new process are not.
func (s *Systemd) signal(ctx context.Context, sig *dbus.Signal) (joined bool) {
	switch sig.Name {
	case managerIf + ".JobRemoved":
		if len(sig.Body) >= 4 {
			job, _ := sig.Body[1].(dbus.ObjectPath)
			name, _ := sig.Body[2].(string)
			result, _ := sig.Body[3].(string)
			s.finished(name, ended{job, result})
			if isWorker(name) {
				s.changed(ctx, name)
			}
		}
	case managerIf + ".Reloading":
		s.changed(ctx, "")
	case "org.freedesktop.DBus.NameOwnerChanged":
		return len(sig.Body) == 3 && sig.Body[2] != ""
	case "org.freedesktop.DBus.Properties.PropertiesChanged":
		if name := unitOf(sig.Path); isWorker(name) {
			s.changed(ctx, name)
		}
	}
	return false
}

// isWorker reports whether a unit runs a subnet manager.
func isWorker(name string) bool { return strings.HasPrefix(name, "ibnetsm") }

// unitOf undoes sd_bus_path_encode of a unit's object path.
func unitOf(p dbus.ObjectPath) string {
	s, ok := strings.CutPrefix(string(p), systemdPath+"/unit/")
	if !ok {
		return ""
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '_' && i+2 < len(s) {
			var c byte
			if _, err := fmt.Sscanf(s[i+1:i+3], "%02x", &c); err == nil {
				b.WriteByte(c)
				i += 2
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// plain takes a D-Bus error's text.
func plain(err error) error {
	var de dbus.Error
	if errors.As(err, &de) && len(de.Body) > 0 {
		if t, ok := de.Body[0].(string); ok {
			return fmt.Errorf("systemd: %s", strings.TrimSuffix(t, "."))
		}
	}
	return err
}

// Start implements Manager.
func (s *Systemd) Start(ctx context.Context, u Unit) error {
	conn, err := s.connection()
	if err != nil {
		return err
	}
	o := conn.Object(systemdName, systemdPath)
	// A failed unit would refuse by its start limit; what is too often is
	// decided here.
	_ = o.CallWithContext(ctx, managerIf+".ResetFailedUnit", 0, u.Name).Err
	if u.Policy.Engine != smctl.EngineOpenSM {
		return plain(o.CallWithContext(ctx, managerIf+".StartUnit", 0, u.Name, "replace").Err)
	}
	type exec struct {
		Path   string
		Argv   []string
		Ignore bool
	}
	argv := append([]string{smctl.OpenSM, "--guid", u.GUID.String(), "--log_file", "stdout"}, openSMOptions(u.Policy)...)
	props := []property{
		{"Description", dbus.MakeVariant("OpenSM subnet manager on port " + u.GUID.String() + ", run by ibnetworkd")},
		{"ExecStart", dbus.MakeVariant([]exec{{smctl.OpenSM, argv, false}})},
		{"Type", dbus.MakeVariant("exec")},
		{"CollectMode", dbus.MakeVariant("inactive")},
		{"Slice", dbus.MakeVariant("system.slice")},
		{"KillSignal", dbus.MakeVariant(int32(15))},
		{"TimeoutStopUSec", dbus.MakeVariant(uint64(10 * time.Second / time.Microsecond))},
	}
	props = append(props, sandbox()...)
	err = o.CallWithContext(ctx, managerIf+".StartTransientUnit", 0, u.Name, "replace", props, []aux{}).Err
	var de dbus.Error
	if errors.As(err, &de) && de.Name == systemdName+".UnitExists" {
		return nil // it runs already
	}
	return plain(err)
}

// Stop implements Manager.
func (s *Systemd) Stop(ctx context.Context, name string) error {
	conn, err := s.connection()
	if err != nil {
		return err
	}
	err = conn.Object(systemdName, systemdPath).CallWithContext(ctx, managerIf+".StopUnit", 0, name, "replace").Err
	var de dbus.Error
	if errors.As(err, &de) && de.Name == systemdName+".NoSuchUnit" {
		return nil
	}
	return plain(err)
}

// Reload implements Manager. The signal goes to the program itself: the unit may
// be older than this daemon, and opensm's has no ExecReload=.
func (s *Systemd) Reload(ctx context.Context, name string) error {
	conn, err := s.connection()
	if err != nil {
		return err
	}
	o := conn.Object(systemdName, systemdPath)
	// ibnetsm may end to be started again, which is not to count as a failure.
	_ = o.CallWithContext(ctx, managerIf+".ResetFailedUnit", 0, name).Err
	return plain(o.CallWithContext(ctx, managerIf+".KillUnit", 0, name, "main", int32(unix.SIGHUP)).Err)
}
