package daemon

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"ibnetworkd/link"
)

// moving has its child moved to another network namespace just before the next look.
type moving struct {
	*memory
	next   bool
	events Scope
}

func (m *moving) Observe(sc Scope, n Needs) (*link.Snapshot, error) {
	if m.next {
		m.next = false
		m.change(func(s *link.Snapshot) {
			i := slices.IndexFunc(s.Links, func(l link.Link) bool { return l.Name == "ib0.8001" })
			l := s.Links[i]
			m.events.Moved = []link.Moved{{Index: l.Index, Name: l.Name, Parent: l.Parent}}
			m.events.link(l.Index)
			s.Links = slices.Delete(s.Links, i, i+1)
		})
	}
	return m.memory.Observe(sc, n)
}

func (m *moving) Take() Scope {
	s := m.events
	m.events = Scope{}
	return s
}

func (*moving) Ready() {}

// A child that is moved to another network namespace between the events that a cycle
// takes and its look is not made again.
func TestMovedBeforeTheLook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sys := &moving{memory: system(t, 1)}
		r := startWith(t, Config{System: sys, Events: sys}, &notes{}, &files{m: map[string]string{"10.ibnetwork": unit0}},
			func(w func(Scope)) { sys.wake = w })
		if got := strings.Join(sys.take(), "\n"); !strings.Contains(got, "name ib0.8001 type ipoib") {
			t.Fatalf("no child was made: %s", got)
		}
		if err := r.ask(t.Context(), func(context.Context) error { sys.next = true; return nil }); err != nil {
			t.Fatal(err)
		}
		r.Wake(Scope{All: true})
		time.Sleep(time.Minute)
		synctest.Wait()
		if got := sys.take(); len(got) > 0 {
			t.Errorf("after the move: %s", strings.Join(got, "\n"))
		}
		if why := r.link("ib0").Reason(); why.Code != link.CodeMoved {
			t.Errorf("ib0 says %q", why)
		}
		r.stop()
	})
}
