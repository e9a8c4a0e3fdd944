package daemon

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/godbus/dbus/v5"
	"golang.org/x/sys/unix"

	"ibnetworkd/internal/busconn"
	"ibnetworkd/link"
)

const (
	resolveName  = "org.freedesktop.resolve1"
	resolvePath  = "/org/freedesktop/resolve1"
	resolveIface = "org.freedesktop.resolve1.Manager"
)

// resolved hands name servers to systemd-resolved. The bus is joined when a
// unit first has DNS= or Domains=, and joined again after it went away, beside the
// loop: at boot the bus may listen long before it answers.
type resolved struct {
	join    func() (*busconn.Conn, error) // nil for the system bus
	changed func()                        // called when resolved came or went
	silent  time.Time                     // when it last let a call time out

	mu      sync.Mutex // guards what follows
	conn    *dbus.Conn // nil while there is none
	name    string     // of resolved on the bus, "" for none
	joining bool
	closed  bool
}

// The loop waits for systemd-resolved's answers: no longer than patience for a link, and where
// one did not come the next links are spared for a while. It waits only for a moment for a bus
// that is being joined, which is enough for one that answers.
const (
	patience = 3 * time.Second
	sparing  = 30 * time.Second
	moment   = 200 * time.Millisecond
)

var (
	// errSilent means that systemd-resolved holds its connection and answers nothing.
	errSilent = fmt.Errorf("systemd-resolved does not answer within %v", patience)
	errNoBus  = errors.New("the system bus is not joined")
)

// owner is the unique bus name of the running systemd-resolved, "" for none, or
// while that is not known. If fresh is set and the bus is not joined it is tried.
func (r *resolved) owner(fresh bool) string {
	r.mu.Lock()
	if fresh && r.conn == nil && !r.joining && !r.closed {
		r.joining = true
		done, late := make(chan struct{}), new(atomic.Bool)
		go r.stay(done, late)
		r.mu.Unlock()
		t := time.NewTimer(moment)
		select {
		case <-done:
		case <-t.C:
			late.Store(true)
		}
		t.Stop()
		r.mu.Lock()
	}
	defer r.mu.Unlock()
	return r.name
}

// stay joins the bus and follows resolved's comings and goings until the bus goes.
// done is closed when that much is known; late says that no caller waits for it.
func (r *resolved) stay(done chan struct{}, late *atomic.Bool) {
	tell := func(name string) {
		r.mu.Lock()
		r.name = name
		r.mu.Unlock()
		if r.changed != nil {
			r.changed()
		}
	}
	c, signals, name, err := r.enter()
	r.mu.Lock()
	r.joining = false
	if err == nil && !r.closed {
		r.conn, r.name = c, name
	}
	closed := r.closed
	r.mu.Unlock()
	close(done)
	switch {
	case err != nil:
		return // the next observation tries again
	case closed:
		_ = c.Close()
		return
	case late.Load():
		tell(name)
	}
	for s := range signals {
		if s.Name == "org.freedesktop.DBus.NameOwnerChanged" && len(s.Body) == 3 {
			now, _ := s.Body[2].(string)
			tell(now)
		}
	}
	r.mu.Lock()
	r.conn = nil
	r.mu.Unlock()
	tell("")
}

// enter joins the bus and asks for resolved.
func (r *resolved) enter() (c *dbus.Conn, signals chan *dbus.Signal, name string, err error) {
	join := r.join
	if join == nil {
		join = func() (*busconn.Conn, error) { return busconn.Join(context.Background(), busconn.Config{}) }
	}
	b, err := join()
	if err != nil {
		return nil, nil, "", fmt.Errorf("join the system bus: %w", err)
	}
	signals = make(chan *dbus.Signal, 16)
	b.Signal(signals)
	if name, err = b.TrustOwner(context.Background(), resolveName); err != nil {
		_ = b.Close()
		return nil, nil, "", err
	}
	return b.Conn, signals, name, nil
}

func (r *resolved) close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	if r.conn == nil {
		return nil
	}
	return r.conn.Close()
}

type dnsServer struct {
	Family int32
	Addr   []byte
	Port   uint16
	Name   string
}

type dnsDomain struct {
	Name      string
	RouteOnly bool
}

// set carries out SetDNS for a link.
func (r *resolved) set(ctx context.Context, index int, o link.SetDNS) error {
	if time.Since(r.silent) < sparing {
		return errSilent
	}
	r.mu.Lock()
	c := r.conn
	r.mu.Unlock()
	if c == nil {
		return errNoBus
	}
	outer := ctx
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	obj := c.Object(resolveName, resolvePath)
	call := func(method string, args ...any) error {
		err := obj.CallWithContext(ctx, resolveIface+"."+method, 0, append([]any{int32(index)}, args...)...).Err
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil && outer.Err() == nil:
			r.silent = time.Now()
			return errSilent
		}
		return fmt.Errorf("%s of systemd-resolved: %w", method, err)
	}
	if o.Revert {
		return call("RevertLink")
	}
	if o.RevertFirst {
		if err := call("RevertLink"); err != nil {
			return err
		}
	}
	servers := make([]dnsServer, 0, len(o.Servers))
	for _, s := range o.Servers {
		d, err := parseServer(s)
		if err != nil {
			return err
		}
		servers = append(servers, d)
	}
	if err := call("SetLinkDNSEx", servers); err != nil {
		return err
	}
	domains := make([]dnsDomain, 0, len(o.Domains))
	for _, d := range o.Domains {
		name, only := strings.CutPrefix(d, "~")
		domains = append(domains, dnsDomain{name, only})
	}
	if err := call("SetLinkDomains", domains); err != nil {
		return err
	}
	if o.Default != link.Unset {
		if err := call("SetLinkDefaultRoute", o.Default == link.Yes); err != nil {
			return err
		}
	}
	for _, w := range o.Words() {
		method, arg := resolveMethods[w[0]], any(w[1])
		if w[0] == "nta" {
			arg = o.NTA
		}
		if err := call(method, arg); err != nil {
			return err
		}
	}
	return nil
}

// resolveMethods are the methods behind resolvectl's verbs.
var resolveMethods = map[string]string{
	"llmnr": "SetLinkLLMNR", "mdns": "SetLinkMulticastDNS", "dnsovertls": "SetLinkDNSOverTLS", "dnssec": "SetLinkDNSSEC",
	"nta": "SetLinkDNSSECNegativeTrustAnchors",
}

// parseServer reads the form of DNS= of systemd.network(5):
// 192.0.2.53:53%ib0#dns.example, with brackets around an IPv6 address that has
// a port.
func parseServer(s string) (d dnsServer, err error) {
	rest, name, _ := strings.Cut(s, "#")
	rest, _, _ = strings.Cut(rest, "%")
	d.Name = name
	host := rest
	if h, port, ok := strings.Cut(rest, "]:"); ok {
		host = h
		n, err := strconv.ParseUint(port, 10, 16)
		if err != nil {
			return d, fmt.Errorf("name server %q has no valid port", s)
		}
		d.Port = uint16(n)
	} else if strings.Count(rest, ":") == 1 {
		h, port, _ := strings.Cut(rest, ":")
		host = h
		n, err := strconv.ParseUint(port, 10, 16)
		if err != nil {
			return d, fmt.Errorf("name server %q has no valid port", s)
		}
		d.Port = uint16(n)
	}
	a, err := netip.ParseAddr(strings.Trim(host, "[]"))
	if err != nil {
		return d, fmt.Errorf("name server %q is not an address", s)
	}
	d.Family, d.Addr = unix.AF_INET, a.AsSlice()
	if a.Is6() {
		d.Family = unix.AF_INET6
	}
	return d, nil
}
