package daemon

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"ibnetworkd/daemon/plan"
	"ibnetworkd/internal/testkit"
	"ibnetworkd/link"
	"ibnetworkd/units"
)

// words are the units of ports, one in each line.
func words(g link.Governing) string {
	name := func(u *units.Unit) string {
		if u == nil {
			return "none"
		}
		return u.Name
	}
	var out []string
	for n, p := range g.Ports {
		s := fmt.Sprintf("%s/%d %s", n.IBDevice, n.Port, name(p.Unit))
		if p.NotYet {
			s = fmt.Sprintf("%s/%d not yet, before %s", n.IBDevice, n.Port, name(p.Before))
		}
		out = append(out, s)
	}
	slices.Sort(out)
	return strings.Join(out, "; ")
}

// linkWords are the units of links, those without one left out.
func linkWords(g link.Governing) string {
	var out []string
	for _, i := range slices.Sorted(maps.Keys(g.Links)) {
		switch l := g.Links[i]; {
		case l.Unit != nil:
			out = append(out, fmt.Sprintf("%d %s", i, l.Unit.Name))
		case l.NotYet:
			out = append(out, fmt.Sprintf("%d not yet", i))
		}
	}
	return strings.Join(out, "; ")
}

// The daemon, which plans what has changed and remembers, and a program that looks
// once and reads the daemon's record, as ibnetctl --no-bus, find the same unit for
// each link and port.
func TestOneGovernor(t *testing.T) {
	const (
		byName = "[Match]\nName=ib0\n[SubnetManager]\nManage=auto\n"
		byPort = "[Match]\nIBDevice=mlx5_001\n[SubnetManager]\nManage=auto\n"
	)
	link0 := func(s *link.Snapshot) *link.Link {
		return &s.Links[slices.IndexFunc(s.Links, func(l link.Link) bool { return l.Index == 10 })]
	}
	var kept link.Link
	var gone link.Device
	synctest.Test(t, func(t *testing.T) {
		sys, n := system(t, 2), &notes{}
		sys.m.Snapshot().Host.Udev = true
		for i := range sys.m.Snapshot().Links {
			sys.m.Snapshot().Links[i].Udev.Initialized = true
		}
		r := launch(t, sys, n, map[string]string{"20-a.ibnetwork": byName, "30-b.ibnetwork": byPort})
		defer func() { r.stop() }()
		for _, step := range []struct {
			name   string
			change func(*link.Snapshot)
			files  map[string]string
			again  bool // start the daemon again
			want   string
		}{
			{name: "both have an interface", want: "mlx5_000/1 20-a.ibnetwork; mlx5_001/1 30-b.ibnetwork"},
			{name: "ib0 goes into another namespace", change: func(s *link.Snapshot) {
				kept = *link0(s)
				s.Links = slices.DeleteFunc(s.Links, func(l link.Link) bool { return l.Index == 10 })
			}, want: "mlx5_000/1 not yet, before 20-a.ibnetwork; mlx5_001/1 30-b.ibnetwork"},
			{name: "the daemon starts again", again: true, want: "mlx5_000/1 not yet, before 20-a.ibnetwork; mlx5_001/1 30-b.ibnetwork"},
			{name: "its unit is gone", files: map[string]string{"20-a.ibnetwork": ""}, want: "mlx5_000/1 none; mlx5_001/1 30-b.ibnetwork"},
			{name: "and comes back", files: map[string]string{"20-a.ibnetwork": byName},
				want: "mlx5_000/1 not yet, before none; mlx5_001/1 30-b.ibnetwork"},
			{name: "ib0 comes back", change: func(s *link.Snapshot) { s.Links = slices.Insert(s.Links, 0, kept) },
				want: "mlx5_000/1 20-a.ibnetwork; mlx5_001/1 30-b.ibnetwork"},
			{name: "a unit asks for a property", files: map[string]string{"10-p.ibnetwork": "[Match]\nProperty=ID_X=1\n"},
				want: "mlx5_000/1 20-a.ibnetwork; mlx5_001/1 30-b.ibnetwork"},
			{name: "udev is at work on ib0", change: func(s *link.Snapshot) { link0(s).Udev.Initialized = false },
				want: "mlx5_000/1 not yet, before 20-a.ibnetwork; mlx5_001/1 30-b.ibnetwork"},
			{name: "udev has given it the property", change: func(s *link.Snapshot) {
				link0(s).Udev = link.Udev{Initialized: true, Properties: map[string]string{"ID_X": "1"}}
			}, want: "mlx5_000/1 10-p.ibnetwork; mlx5_001/1 30-b.ibnetwork"},
			{name: "the port matches where its interface does not", change: func(s *link.Snapshot) {
				link0(s).Udev.Properties, link0(s).Driver, s.Devices[0].Driver = nil, "other", "mlx5_core"
			}, files: map[string]string{"20-a.ibnetwork": "[Match]\nIBDevice=mlx5_000\nDriver=mlx5_core\n", "10-p.ibnetwork": ""},
				want: "mlx5_000/1 none; mlx5_001/1 30-b.ibnetwork"},
			{name: "a device goes", change: func(s *link.Snapshot) {
				gone, s.Devices = s.Devices[1], s.Devices[:1]
				s.Links = s.Links[:1]
			}, want: "mlx5_000/1 none"},
			{name: "the device comes back without an interface", change: func(s *link.Snapshot) { s.Devices = append(s.Devices, gone) },
				files: map[string]string{"10-q.ibnetwork": "[Match]\nName=ibq\n"},
				want:  "mlx5_000/1 none; mlx5_001/1 not yet, before 30-b.ibnetwork"},
		} {
			for name, text := range step.files {
				r.f.set(name, text)
			}
			if step.change != nil {
				sys.change(step.change)
			}
			if step.again {
				r.stop()
				r = launch(t, sys, n, r.f.m)
			}
			r.Wake(Scope{All: true, RDMA: true, Reload: true})
			time.Sleep(5 * time.Second)
			synctest.Wait()
			snap, err := sys.Observe(everything, Needs{})
			testkit.NoError(t, err)
			rec, err := n.LoadRecord()
			testkit.NoError(t, err)
			once := plan.Make(plan.Input{Snapshot: snap, Units: r.f.load(), Record: rec}).Governing
			if got := words(r.governing); got != step.want {
				t.Errorf("%s: the daemon has\n%s\nwant\n%s", step.name, got, step.want)
			}
			if words(once) != words(r.governing) || linkWords(once) != linkWords(r.governing) {
				t.Errorf("%s: the daemon has\n%s\n%s\nand one look gives\n%s\n%s", step.name,
					linkWords(r.governing), words(r.governing), linkWords(once), words(once))
			}
		}
	})
}
