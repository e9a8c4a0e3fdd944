package bus

import (
	"fmt"
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

// maxUnknown bounds the callers whose user the bus is being asked for: a user has
// 256 connections by default, so one alone keeps no other user out. maxFirst bounds the
// calls of each that wait for that, and maxKnown the callers and users remembered.
const (
	maxUnknown = 1024
	maxFirst   = 64
	maxKnown   = 4096
)

// forget is after what time a call that was admitted and did not come is forgotten.
const forget = time.Minute

const errLimits = "org.freedesktop.DBus.Error.LimitsExceeded"

// tooMany refuses a call for its number, with what to do.
func tooMany(format string, a ...any) *dbus.Error {
	return busconn.Refusal(errLimits, "too many requests (%s): try again in a second", fmt.Sprintf(format, a...))
}

const noUser = 1<<32 - 1

type user struct {
	uid        uint32
	privileged bool
}

// callID is a call that has not been answered.
type callID struct {
	sender string
	serial uint32
}

// bucket is what may be spent at once.
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

// question is what the bus is asked about a caller, once for all of its calls.
type question struct {
	at    time.Time
	calls int           // that wait for the answer
	owed  float64       // for calls that were answered meanwhile
	done  chan struct{} // closed when user is known
	user  user
}

// callers knows which users call on one connection, and what each has spent. Its
// methods may be called from any goroutine.
type callers struct {
	mu      sync.Mutex
	users   map[string]user // by unique bus name, which one bus never gives twice
	asked   map[string]*question
	waiting map[callID]*question // calls that arrived before their user was known
	spent   map[uint32]*bucket   // by user
	total   bucket
}

func newCallers() *callers {
	return &callers{users: map[string]user{}, asked: map[string]*question{}, waiting: map[callID]*question{}, spent: map[uint32]*bucket{}}
}

// arrived decides about a call before it is read. A known caller is charged. For
// one that is not, the bus is asked; its call is charged by userOf, or with the
// answer if it is answered without.
func (c *callers) arrived(id callID, cost float64, answered bool, ask func() (user, error)) *dbus.Error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if u, ok := c.users[id.sender]; ok {
		return c.charge(u, cost)
	}
	q := c.asked[id.sender]
	if q == nil {
		if len(c.asked) >= maxUnknown || !c.tidy() {
			return tooMany("of %d new callers", maxUnknown)
		}
		q = &question{at: time.Now(), done: make(chan struct{})}
		c.asked[id.sender] = q
		go c.identify(id.sender, q, ask)
	}
	if _, twice := c.waiting[id]; !answered && (twice || q.calls >= maxFirst) {
		q.owed += cost
		return tooMany("%d of a new caller", maxFirst)
	}
	if answered {
		q.owed += cost
		return nil
	}
	q.calls++
	c.waiting[id] = q
	return nil
}

// tidy forgets calls that did not come, and reports whether there may be more.
func (c *callers) tidy() bool {
	if len(c.waiting) < maxUnknown*maxFirst {
		return true
	}
	for id, q := range c.waiting {
		if time.Since(q.at) > forget {
			delete(c.waiting, id)
		}
	}
	return len(c.waiting) < maxUnknown*maxFirst
}

// identify requests the user of a caller. Those for whom there is no answer, as
// from a bus that is busy, are one user together.
func (c *callers) identify(sender string, q *question, ask func() (user, error)) {
	u, err := ask()
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil {
		u = user{uid: noUser}
	} else {
		if len(c.users) >= maxKnown {
			for k := range c.users {
				delete(c.users, k)
				break
			}
		}
		c.users[sender] = u
	}
	delete(c.asked, sender)
	q.user = u
	if b := c.bucket(u); b != nil {
		b.left = max(0, b.left-q.owed)
		c.total.left = max(0, c.total.left-q.owed)
	}
	close(q.done)
}

// isWaiting reports whether a call arrived before its caller was known, and has
// not been charged.
func (c *callers) isWaiting(id callID) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, ok := c.waiting[id]
	return ok
}

// userOf is the user of a call. It waits for the answer to the question about it,
// which ends with the connection at the latest.
func (c *callers) userOf(id callID, cost float64) (user, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	q, ok := c.waiting[id]
	if !ok {
		if u, ok := c.users[id.sender]; ok {
			return u, nil
		}
		return user{uid: noUser}, nil
	}
	delete(c.waiting, id)
	c.mu.Unlock()
	<-q.done
	c.mu.Lock()
	if err := c.charge(q.user, cost); err != nil {
		return q.user, err
	}
	return q.user, nil
}

// bucket is what a user has to spend, brought up to date as that of all users is;
// nil for one without a limit.
func (c *callers) bucket(u user) *bucket {
	if u.privileged {
		return nil
	}
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
	return b
}

// charge subtracts a call from what its user may spend, or refuses it.
func (c *callers) charge(u user, cost float64) *dbus.Error {
	b := c.bucket(u)
	switch {
	case b == nil:
		return nil
	case b.left < cost:
		return tooMany("user %d, above %d a second", u.uid, userRate)
	case c.total.left < cost:
		return tooMany("all users together, above %d a second", totalRate)
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
var signatures = map[string]string{"Introspect": "", "Get": "ss", "GetAll": "s", "Set": "ssv", "GetManagedObjects": ""}

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

// explain returns what is wrong with arguments that are not strings.
func explain(h *busconn.Header) *dbus.Error {
	if want, ok := signatureOf(h.Interface, h.Member); ok {
		return busconn.Refusal(api.ErrInvalidArgs, "the arguments have the signature %q, it should be %q", h.Signature, want)
	}
	return nil
}
