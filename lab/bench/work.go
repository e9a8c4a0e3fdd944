package bench

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// rig is the guest: the fabric, the watcher and what both contestants share.
type rig struct {
	w     *watch
	load  func(args string) error // loads the fabric afresh and waits until its ports are Active
	ctl   func(cmd string) error  // drives the fabric
	logf  func(format string, args ...any)
	table table
}

// row is one figure of both contestants; less is better.
type row struct {
	work, unit string
	ours, them float64
	note       string
}

type table struct{ rows []row }

func (t *table) add(r row) { t.rows = append(t.rows, r) }

// String prints the figures with their ratio and says where we lose.
func (t table) String() string {
	out := fmt.Sprintf("%-58s %12s %16s %8s\n", "work", "ibnetworkd", "systemd-networkd", "ratio")
	for _, r := range t.rows {
		ratio := "-"
		if r.them > 0 {
			ratio = fmt.Sprintf("%.2f", r.ours/r.them)
		}
		note := r.note
		if r.ours > r.them {
			note = "  <- behind " + note
		}
		out += fmt.Sprintf("%-58s %12.4g %16.4g %8s %s\n", r.work+", "+r.unit, r.ours, r.them, ratio, note)
	}
	return out
}

// fabric makes the links of n adapters with ports ports and keys children each.
func fabric(n, ports, keys int, connected bool) []spec {
	var out []spec
	for p := range n * ports {
		parent := spec{name: fmt.Sprintf("ib%d", p), connected: connected}
		out = append(out, parent)
		for k := range keys {
			pk := uint16(0x8001 + k)
			out = append(out, spec{name: fmt.Sprintf("ib%d.%04x", p, pk), parent: parent.name, pkey: pk, connected: connected})
		}
	}
	for i := range out {
		out[i].addr = netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i >> 8), byte(i), 1}), 24)
	}
	return out
}

// start runs a service and returns when it says that it is ready.
func (r *rig) start(c contestant) error { _, err := run("systemctl", "start", c.service); return err }

func (r *rig) stop(c contestant) error {
	_, err := run("systemctl", "stop", c.service, c.service+".socket")
	if c.service == ours.service {
		_, err = run("systemctl", "stop", c.service)
		_ = os.RemoveAll("/run/ibnetworkd")
	}
	_, _ = run("systemctl", "reset-failed")
	return err
}

// coldStart: the links are there (and the children, if premade); from the start
// of the daemon to the last address.
func (r *rig) coldStart(c contestant, specs []spec, makeChildren bool, most time.Duration) (outcome, usage, usage, error) {
	if err := c.configure(specs, makeChildren); err != nil {
		return outcome{}, usage{}, usage{}, err
	}
	if !makeChildren {
		for _, s := range specs {
			if s.parent != "" {
				if _, err := run("ip", "link", "add", "link", s.parent, "name", s.name, "type", "ipoib", "pkey", fmt.Sprintf("0x%04x", s.pkey)); err != nil {
					return outcome{}, usage{}, usage{}, err
				}
			}
		}
		if _, err := run("udevadm", "settle"); err != nil {
			return outcome{}, usage{}, usage{}, err
		}
	}
	r.w.expect(wishes(specs))
	udev := used("systemd-udevd")
	began := time.Now()
	if err := r.start(c); err != nil {
		return outcome{}, usage{}, usage{}, err
	}
	o, err := r.w.settle(began, most, 40*time.Second)
	return o, used(c.service), used("systemd-udevd").since(udev), err
}

// hotplug adds an adapter and waits until its link is right.
func (r *rig) hotplug(adapter int, want []spec, most time.Duration) (outcome, error) {
	if err := r.ctl(fmt.Sprintf("del %d", adapter)); err != nil {
		return outcome{}, err
	}
	if _, err := run("udevadm", "settle"); err != nil {
		return outcome{}, err
	}
	r.w.expect(wishes(want))
	began := time.Now()
	if err := r.ctl(fmt.Sprintf("add %d", adapter)); err != nil {
		return outcome{}, err
	}
	return r.w.settle(began, most, most)
}

// edit changes one address and reloads.
func (r *rig) edit(c contestant, specs []spec, which int, makeChildren bool, most time.Duration) (outcome, usage, error) {
	edited := slices.Clone(specs)
	edited[which].addr = netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 200, byte(which), 1}), 24)
	for name, text := range c.files(edited, makeChildren) {
		path := filepath.Join(unitDir, name)
		if old, err := os.ReadFile(path); err == nil && string(old) == text {
			continue // only the edited file gets a new time stamp
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			return outcome{}, usage{}, err
		}
	}
	before := used(c.service)
	r.w.expect(wishes(edited))
	began := time.Now()
	if _, err := run(c.reload[0], c.reload[1:]...); err != nil {
		return outcome{}, usage{}, err
	}
	o, err := r.w.settle(began, most, most)
	if err != nil {
		return o, usage{}, err
	}
	return o, r.quiesce(c).since(before), nil
}

// quiesce waits until a service uses no more CPU time: what it does after the
// kernel's state is right belongs to the work too.
func (r *rig) quiesce(c contestant) usage {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	old := used(c.service)
	for same := 0; same < 2; {
		select {
		case <-ctx.Done():
			return used(c.service)
		case <-tick.C:
		}
		u := used(c.service)
		if u.cpu-old.cpu < 2*time.Millisecond {
			same++
		} else {
			same = 0
		}
		old = u
	}
	return old
}

// disturb restarts or kills a configured daemon and counts what the links lost.
func (r *rig) disturb(c contestant, specs []spec, how string, most time.Duration) (outcome, error) {
	r.w.expect(wishes(specs))
	began := time.Now()
	switch how {
	case "restart":
		if _, err := run("systemctl", "restart", c.service); err != nil {
			return outcome{}, err
		}
	case "kill -9":
		if _, err := run("systemctl", "kill", "-s", "KILL", c.service); err != nil {
			return outcome{}, err
		}
		if _, err := run("systemctl", "restart", c.service); err != nil {
			return outcome{}, err
		}
	default:
		return outcome{}, fmt.Errorf("no way to disturb called %q", how)
	}
	r.quiesce(c)
	return r.w.now(began), r.w.err
}

// median of durations in seconds.
func median(d []time.Duration) float64 {
	if len(d) == 0 {
		return 0
	}
	s := slices.Sorted(slices.Values(d))
	return s[len(s)/2].Seconds()
}
