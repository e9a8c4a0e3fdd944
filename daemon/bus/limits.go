package bus

import (
	"sync"
	"time"

	"github.com/godbus/dbus/v5"

	"ibnetworkd/daemon/bus/api"
	"ibnetworkd/internal/busconn"
)

// What users other than root may ask for, in calls answered from our state; what
// makes the daemon or polkit work counts as many. A user's share is for all of its
// connections, since 256 of them are to be had by default.
const (
	userRate, userBurst   = 100, 400  // a second, and at once, of one user
	totalRate, totalBurst = 400, 1600 // of all users but root
	heavy                 = 5         // calls that one of waiting counts for
)

// maxUnknown bounds the calls of callers whose user the bus is being asked for, and
// maxKnown the callers and users that are remembered.
const (
	maxUnknown = 64
	maxKnown   = 4096
)

// forget is after what time a call that was admitted and did not come is forgotten.
const forget = time.Minute

// noUser is the number that no user has.
const noUser = 1<<32 - 1

// user is who calls.
type user struct {
	uid        uint32
	privileged bool
}

// callID is a call that has not been answered.
type callID struct {
	sender string
	serial uint32
}

// bucket holds what may be spent at once.
type bucket struct {
	left float64
	at   time.Time
}

// fill brings a bucket up to date.
func (b *bucket) fill(now time.Time, rate, burst float64) {
	if b.at.IsZero() {
		b.left = burst
	}
	b.left = min(burst, b.left+rate*max(0, now.Sub(b.at).Seconds()))
	b.at = now
}

// callers knows who has called, and what each has spent. Its methods may be
// called from any goroutine.
type callers struct {
	mu      sync.Mutex
	users   map[string]user // by unique bus name, which the bus never gives again
	unknown map[callID]time.Time
	spent   map[uint32]*bucket // by user
	total   bucket
}

func newCallers() *callers {
	return &callers{users: map[string]user{}, unknown: map[callID]time.Time{}, spent: map[uint32]*bucket{}}
}

// arrived decides about a call before it is read: a caller that is known is
// charged, one that is not will be by identify.
func (c *callers) arrived(id callID, cost float64) error {
	c.mu.Lock()
	u, known := c.users[id.sender]
	if known {
		c.mu.Unlock()
		return c.charge(u, cost)
	}
	defer c.mu.Unlock()
	if len(c.unknown) >= maxUnknown {
		for k, at := range c.unknown {
			if time.Since(at) > forget {
				delete(c.unknown, k)
			}
		}
	}
	if _, twice := c.unknown[id]; twice || len(c.unknown) >= maxUnknown {
		return failure(errLimits, "%d calls of new callers are under way: try again", maxUnknown)
	}
	c.unknown[id] = time.Now()
	return nil
}

// isUnknown reports whether a call has arrived before its caller was known.
func (c *callers) isUnknown(id callID) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, ok := c.unknown[id]
	return ok
}

// identify finds the user of a call, and asks if it is not known yet. Those for
// whom there is no answer, as from a bus that is busy, are one user together.
func (c *callers) identify(id callID, ask func() (user, error)) user {
	c.mu.Lock()
	u, known := c.users[id.sender]
	c.mu.Unlock()
	var err error
	if !known {
		u, err = ask()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.unknown, id)
	if err != nil {
		return user{uid: noUser}
	}
	if len(c.users) >= maxKnown {
		clear(c.users) // they are asked for again
	}
	c.users[id.sender] = u
	return u
}

// charge has a user pay for a call, or says that it cannot.
func (c *callers) charge(u user, cost float64) error {
	if u.privileged {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	b := c.spent[u.uid]
	if b == nil {
		if len(c.spent) >= maxKnown {
			for k, b := range c.spent {
				if b.fill(now, userRate, userBurst); b.left >= userBurst {
					delete(c.spent, k)
				}
			}
		}
		b = &bucket{}
		c.spent[u.uid] = b
	}
	b.fill(now, userRate, userBurst)
	c.total.fill(now, totalRate, totalBurst)
	if b.left < cost {
		return failure(errLimits, "user %d calls more often than %d times a second: try again later", u.uid, userRate)
	}
	if c.total.left < cost {
		return failure(errLimits, "all users together call more often than %d times a second: try again later", totalRate)
	}
	b.left -= cost
	c.total.left -= cost
	return nil
}

// cost is what a call counts for.
func cost(member string) float64 {
	if waiting[member] {
		return heavy
	}
	return 1
}

// signatures are those of the arguments of the methods that everybody knows, by
// member; the others' are found by signatureOf.
var signatures = map[string]string{"Introspect": "", "Get": "ss", "GetAll": "s", "GetManagedObjects": ""}

// signatureOf is the signature of the arguments of a method of an interface of
// ours, "" for any. No two interfaces have the same method with different ones,
// but for those of Manager that the objects have without the name.
func signatureOf(iface, member string) (sig string, ok bool) {
	if sig, ok := signatures[member]; ok {
		return sig, true
	}
	for _, in := range []struct {
		iface   string
		methods []method
	}{{api.Manager, managerMethods}, {api.Link, linkMethods}, {api.SubnetManager, smMethods}} {
		for _, m := range in.methods {
			if m.name != member || iface != "" && iface != in.iface {
				continue
			}
			for _, a := range m.args {
				if a.dir == "in" {
					sig += a.sig
				}
			}
			return sig, true
		}
	}
	return "", false
}

// explain says what is wrong with arguments that are not strings.
func explain(h *busconn.Header) *dbus.Error {
	if h.Member == "Set" && (h.Interface == "" || h.Interface == "org.freedesktop.DBus.Properties") {
		return errReadOnly
	}
	if want, ok := signatureOf(h.Interface, h.Member); ok {
		return failure(api.ErrInvalidArgs, "the arguments have the signature %q, it should be %q", h.Signature, want)
	}
	return nil
}

// admit decides about a call before its arguments are read. It runs in the reader
// of the socket and does not wait.
func (s *Server) admit(h *busconn.Header) *dbus.Error {
	if err := s.callers.arrived(callID{h.Sender, h.Serial}, cost(h.Member)); err != nil {
		return err.(*dbus.Error)
	}
	return nil
}
