package card

import (
	"context"
	"testing"

	"golang.org/x/sys/unix"

	"ibnetworkd/internal/testkit"
	"ibnetworkd/link"
	"ibnetworkd/roce"
	"ibnetworkd/units"
)

// typedCard takes port types while both are the same, and remembers nothing.
type typedCard struct {
	types map[int]units.PortType
	asked []int
}

func (c *typedCard) apply(_ context.Context, op link.Op) error {
	p, ok := op.(roce.SetPortType)
	if !ok {
		return nil
	}
	n := portOf(p)
	c.asked = append(c.asked, n)
	if n == 2 && c.types[1] != p.Type {
		return unix.EINVAL
	}
	c.types[n] = p.Type
	return nil
}

func (*typedCard) rest() {}

// What a card refused on one port is retried after its other port, as long as
// the unit of the first asks for it.
func TestRefusedPortType(t *testing.T) {
	set := func(n int) roce.SetPortType {
		return roce.SetPortType{Port: roce.PortType{Bus: "pci", Dev: "a", File: "mlx4_port" + string(rune('0'+n))}, Type: units.PortTypeEth}
	}
	other := set(2)
	other.Port.Dev = "b"
	for _, c := range []struct {
		name  string
		units map[int]units.PortType // of the ports that are there
		want  units.PortType         // of port 2 in the end
	}{
		{"asked for", map[int]units.PortType{1: units.PortTypeEth, 2: units.PortTypeEth}, units.PortTypeEth},
		{"no unit any more", map[int]units.PortType{1: units.PortTypeEth, 2: 0}, units.PortTypeIB},
		{"another type now", map[int]units.PortType{1: units.PortTypeEth, 2: units.PortTypeAuto}, units.PortTypeIB},
		{"about to come back", map[int]units.PortType{1: units.PortTypeEth}, units.PortTypeEth},
	} {
		card := &typedCard{types: map[int]units.PortType{1: units.PortTypeIB, 2: units.PortTypeIB}}
		r := portTypes{card, &refusals{}}
		r.refused.add(other) // another card's
		if err := r.apply(t.Context(), set(2)); err == nil {
			t.Fatal("the card took it")
		}
		testkit.NoError(t, (portTypes{&typedCard{types: map[int]units.PortType{}}, r.refused}).apply(t.Context(), roce.SetVFs{}))
		// A run of the loop, with the snapshot that has these ports.
		s := &link.Snapshot{Devices: []link.Device{{Name: "mlx4_0", Bus: "pci", Parent: "a"}}}
		for n := range c.units {
			s.Devices[0].Ports = append(s.Devices[0].Ports, link.Port{Num: n})
			s.Links = append(s.Links, link.Link{Index: n, Name: "ib", Type: link.ARPHRDInfiniBand, IBDevice: "mlx4_0", Port: n})
		}
		unit := func(l *link.Link) *units.Unit {
			u := &units.Unit{}
			if u.Port.Type.V = c.units[l.Port]; u.Port.Type.V == 0 {
				return nil
			}
			return u
		}
		r.refused.keep(func(at cardPort) (units.PortType, bool) { return askedType(s, at, unit, nil) })
		testkit.NoError(t, r.apply(t.Context(), set(1)))
		if card.types[2] != c.want {
			t.Errorf("%s: port 2 is %s after %v", c.name, card.types[2], card.asked)
		}
		if _, left := r.refused.types[cardPortOf(other)]; !left || len(r.refused.types) != 1 {
			t.Errorf("%s: %v is left", c.name, r.refused.types)
		}
	}
}

// The same for a port without a link.
func TestAskedTypeUnlinked(t *testing.T) {
	s := &link.Snapshot{Devices: []link.Device{{Name: "mlx4_0", Bus: "pci", Parent: "a", Ports: []link.Port{{Num: 1}, {Num: 2}}}}}
	portUnit := func(_ *link.Device, p *link.Port) *units.Unit {
		u := &units.Unit{}
		u.Port.Type.V = units.PortTypeEth
		if p.Num == 2 {
			return nil
		}
		return u
	}
	for n, want := range []struct {
		t     units.PortType
		known bool
	}{{0, false}, {units.PortTypeEth, true}, {0, true}} {
		if got, known := askedType(s, cardPort{"pci", "a", n}, nil, portUnit); got != want.t || known != want.known {
			t.Errorf("port %d: %s, %v", n, got, known)
		}
	}
}
