package card

import (
	"context"
	"maps"
	"sync"

	"golang.org/x/sys/unix"

	"ibnetworkd/link"
	"ibnetworkd/roce"
	"ibnetworkd/units"
)

// refusals are the port types that cards did not accept: a card may accept one when
// its other port has changed. The workers add and try them; the loop removes those
// that no unit asks for any more.
type refusals struct {
	mu    sync.Mutex
	types map[cardPort]roce.SetPortType
}

type cardPort struct {
	bus, dev string
	num      int
}

func cardPortOf(p roce.SetPortType) cardPort { return cardPort{p.Port.Bus, p.Port.Dev, portOf(p)} }

func (r *refusals) add(p roce.SetPortType) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.types == nil {
		r.types = map[cardPort]roce.SetPortType{}
	}
	r.types[cardPortOf(p)] = p
}

func (r *refusals) remove(p roce.SetPortType) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.types, cardPortOf(p))
}

// others gives what the card refused on its other ports.
func (r *refusals) others(p roce.SetPortType) (out []roce.SetPortType) {
	r.mu.Lock()
	defer r.mu.Unlock()
	at := cardPortOf(p)
	for q, x := range r.types {
		if q.bus == at.bus && q.dev == at.dev && q.num != at.num {
			out = append(out, x)
		}
	}
	return out
}

// keep removes the refusals on ports whose units ask for another type, or for none.
// A port that is not there may be about to come back: asked reports that it does not
// know of it.
func (r *refusals) keep(asked func(cardPort) (t units.PortType, known bool)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	maps.DeleteFunc(r.types, func(at cardPort, p roce.SetPortType) bool {
		t, known := asked(at)
		return known && t != p.Type
	})
}

// portTypes is a runner that sets the type of a port, and then those again that the card refused
// on its other ports: some cards take types in one order only, and some remember the first
// request until the second makes both the same (mlx4: set_port_type, mlx4_check_port_params).
type portTypes struct {
	runner
	refused *refusals
}

func (r portTypes) apply(ctx context.Context, op link.Op) error {
	p, ok := op.(roce.SetPortType)
	if !ok {
		return r.runner.apply(ctx, op)
	}
	r.refused.remove(p)
	if err := r.runner.apply(ctx, p); err != nil {
		if isAny(err, unix.EOPNOTSUPP, unix.EINVAL) {
			r.refused.add(p)
		}
		return err
	}
	for _, x := range r.refused.others(p) {
		if r.runner.apply(ctx, x) == nil {
			r.refused.remove(x)
		}
	}
	return nil
}

// askedType is the type that the unit of a card's port asks for, 0 for none.
func askedType(s *link.Snapshot, at cardPort, unit func(*link.Link) *units.Unit,
	portUnit func(*link.Device, *link.Port) *units.Unit) (t units.PortType, known bool) {
	for d, p := range s.Ports() {
		if d.Bus != at.bus || d.Parent != at.dev || p.Num != at.num {
			continue
		}
		known = true
		us := []*units.Unit{}
		if !roce.HasLink(s, d, p) {
			us = append(us, portUnit(d, p))
		}
		for j := range s.Links {
			l := &s.Links[j]
			if l.IsChild() || link.IsVLAN(l.Kind) {
				continue
			}
			if _, ports := roce.PortsOn(s, l); len(ports) > 0 && ports[0] == p {
				us = append(us, unit(l))
			}
		}
		for _, u := range us {
			if u != nil && u.Port.Type.V != 0 {
				t = u.Port.Type.V
			}
		}
	}
	return t, known
}
