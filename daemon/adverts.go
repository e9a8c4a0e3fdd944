package daemon

import (
	"fmt"
	"reflect"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"ibnetworkd/internal/kernel/rtnl"
	"ibnetworkd/link"
)

// mostAdvertised bounds the servers, and the domains, that routers can make a link
// have.
const mostAdvertised = 64

// adverts is what routers have advertised for name resolution, by link. It has no
// clock: now is in seconds since boot.
type adverts map[int]*advertised

type advertised struct {
	now   link.Advertised // as received
	shown *link.Advertised
	at    uint64 // when shown changed last
}

// add notes an option and reports whether anything of the link is another now.
// Where a link has as many as it may, what it has stays until it ends: a router that
// advertises ever new servers changes nothing.
func (t adverts) add(now uint64, a rtnl.Advert) bool {
	l := t[a.Index]
	if l == nil {
		l = &advertised{}
		t[a.Index] = l
	}
	until := uint64(0)
	if a.Lifetime != rtnl.Forever {
		until = now + uint64(a.Lifetime)
	}
	changed := l.expire(now)
	note := func(to *[]link.Lasting, name string) {
		i := slices.IndexFunc(*to, func(x link.Lasting) bool { return x.Name == name })
		switch {
		case i < 0 && (until == now || len(*to) >= mostAdvertised):
			return
		case i < 0:
			*to = append(*to, link.Lasting{Name: name, Until: until})
		case until == now:
			*to = slices.Delete(*to, i, i+1)
		case (*to)[i].Until == until:
			return
		default:
			(*to)[i].Until = until
		}
		changed = true
	}
	for _, s := range a.Servers {
		note(&l.now.Servers, s.String())
	}
	for _, d := range a.Domains {
		note(&l.now.Domains, d)
	}
	return changed
}

// restore notes what was known of a link before the daemon was started again.
func (t adverts) restore(now uint64, index int, a link.Advertised) {
	l := &advertised{now: link.Advertised{Servers: slices.Clone(a.Servers), Domains: slices.Clone(a.Domains)}}
	l.expire(now)
	t[index] = l
}

func (l *advertised) expire(now uint64) bool {
	over := func(x link.Lasting) bool { return x.Until != 0 && x.Until <= now }
	before := len(l.now.Servers) + len(l.now.Domains)
	l.now.Servers, l.now.Domains = slices.DeleteFunc(l.now.Servers, over), slices.DeleteFunc(l.now.Domains, over)
	return len(l.now.Servers)+len(l.now.Domains) != before
}

// of is what holds on a link, nil for nothing, and when to ask again, 0 for never.
// It changes once a second at most, whatever routers send.
func (t adverts) of(index int, now uint64) (a *link.Advertised, again uint64) {
	l := t[index]
	if l == nil {
		return nil, 0
	}
	l.expire(now)
	var want *link.Advertised
	if len(l.now.Servers)+len(l.now.Domains) > 0 {
		want = &link.Advertised{Servers: slices.Clone(l.now.Servers), Domains: slices.Clone(l.now.Domains)}
	}
	switch {
	case reflect.DeepEqual(want, l.shown):
	case now <= l.at && l.at != 0:
		return l.shown, l.at + 1
	default:
		l.shown, l.at = want, now
	}
	if want == nil {
		return l.shown, 0
	}
	for _, x := range slices.Concat(want.Servers, want.Domains) {
		if x.Until != 0 && (again == 0 || x.Until < again) {
			again = x.Until
		}
	}
	return l.shown, again
}

// sinceBoot is the time in seconds, which no setting of the clock changes.
func sinceBoot() uint64 {
	var t unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &t) != nil {
		return 0
	}
	return uint64(t.Sec)
}

// Adverts are the router advertisements about name resolution, for Watch.
func (o *Observer) Adverts() EventSource {
	return EventSource{Name: "router advertisements", Open: func() (EventSocket, error) {
		ev, err := rtnl.ListenAdverts()
		if err != nil {
			return nil, fmt.Errorf("listen to router advertisements: %w", err)
		}
		return repeated{SocketOf(ev, func(s *Scope, a rtnl.Advert) {
			now := sinceBoot()
			if !o.adverts.add(now, a) {
				return
			}
			if _, again := o.adverts.of(a.Index, now); again == now+1 {
				o.rereadAt(a.Index, now, again)
			} else {
				s.link(a.Index)
			}
		})}, nil
	}}
}

// repeated is a socket whose losses do not need everything read again: what it reports is
// sent again.
type repeated struct{ EventSocket }

func (r repeated) Take(s *Scope) (bool, error) {
	_, err := r.EventSocket.Take(s)
	return false, err
}

func (o *Observer) observeAdverts(s *link.Snapshot, w Needs) {
	now := sinceBoot()
	for _, e := range w.Advertised {
		o.adverts.restore(now, e.Ifindex, *e.Advertised)
	}
	if len(o.adverts) == 0 {
		return
	}
	for i := range o.adverts {
		if _, ok := s.Link(i); !ok {
			delete(o.adverts, i)
			o.rereadAt(i, now, 0)
		}
	}
	s.Links = replaceEach(s.Links, func(l *link.Link) bool {
		a, again := o.adverts.of(l.Index, now)
		o.rereadAt(l.Index, now, again)
		if a == l.Advertised {
			return false
		}
		l.Advertised = a
		return true
	})
}

// rereadAt has a link read when something advertised ends; again is 0 for
// never.
func (o *Observer) rereadAt(index int, now, again uint64) {
	t := o.advertTimers[index]
	if again == 0 {
		if t != nil {
			t.Stop()
			delete(o.advertTimers, index)
		}
		return
	}
	wait := time.Duration(again-min(now, again)) * time.Second
	if t != nil {
		t.Reset(wait)
	} else if o.wake != nil {
		o.advertTimers[index] = time.AfterFunc(wait, func() { o.wake(Scope{Links: map[int]bool{index: true}}) })
	}
}
