package daemon

import (
	"context"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/godbus/dbus/v5"
	"golang.org/x/sys/unix"

	"ibnetworkd/link"
)

const (
	resolveName  = "org.freedesktop.resolve1"
	resolvePath  = "/org/freedesktop/resolve1"
	resolveIface = "org.freedesktop.resolve1.Manager"
)

// resolved hands name servers to systemd-resolved. The bus is joined when a
// unit first has DNS= or Domains=, and joined again after it went away.
type resolved struct {
	mu      sync.Mutex
	conn    *dbus.Conn
	name    string    // of resolved
	known   bool      // name is right until a signal says otherwise
	changed func()    // called when resolved came or went
	silent  time.Time // when it last let a call time out
}

// The loop waits for systemd-resolved's answers: no longer than patience for a
// link, and where one did not come the next links are spared for a while.
const (
	patience = 3 * time.Second
	sparing  = 30 * time.Second
)

// errSilent says that systemd-resolved holds its connection and answers nothing.
var errSilent = fmt.Errorf("systemd-resolved does not answer within %v", patience)

func (r *resolved) bus() (*dbus.Conn, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.conn != nil && r.conn.Connected() {
		return r.conn, nil
	}
	c, err := dbus.ConnectSystemBus()
	if err != nil {
		return nil, fmt.Errorf("join the system bus: %w", err)
	}
	r.conn = c
	if err := c.AddMatchSignal(dbus.WithMatchInterface("org.freedesktop.DBus"), dbus.WithMatchMember("NameOwnerChanged"), dbus.WithMatchArg(0, resolveName)); err == nil {
		ch := make(chan *dbus.Signal, 4)
		c.Signal(ch)
		changed := r.changed
		go func() {
			for range ch {
				r.mu.Lock()
				r.known = false
				r.mu.Unlock()
				if changed != nil {
					changed()
				}
			}
		}()
	}
	return c, nil
}

// owner is the unique bus name of the running systemd-resolved, "" for none. It
// asks the bus if a signal said that it changed, or if fresh is set and the bus
// could not be asked before.
func (r *resolved) owner(fresh bool) string {
	r.mu.Lock()
	name, known, joined := r.name, r.known, r.conn != nil && r.conn.Connected()
	r.mu.Unlock()
	if known && joined || !joined && !fresh {
		return name
	}
	c, err := r.bus()
	if err == nil {
		name = ""
		// No owner is an error of the call and an answer all the same.
		_ = c.BusObject().Call("org.freedesktop.DBus.GetNameOwner", 0, resolveName).Store(&name)
	} else {
		name = ""
	}
	r.mu.Lock()
	r.name, r.known = name, err == nil
	r.mu.Unlock()
	return name
}

func (r *resolved) close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
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
	c, err := r.bus()
	if err != nil {
		return err
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
	if o.Afresh {
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
