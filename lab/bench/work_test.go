package bench

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"
)

// rig is the guest: the fabric, the watcher and what all contestants share.
type rig struct {
	w          *watch
	load       func(args string) error // loads the fabric afresh and waits until its ports are Active
	manage     func(kind string) error // lets another subnet manager take the fabric over: "" is ours
	ctl        func(cmd string) error  // drives the fabric
	managerPID int
	table      table
}

// cell is one figure of a contestant; less is better.
type cell struct {
	value float64
	none  string // why there is no figure
	note  string
}

// row is one kind of figure, of all contestants.
type row struct {
	work, unit string
	names      []string // in the order of their lines
	cells      map[string]cell
}

func (r *row) title() string {
	if r.unit == "" {
		return r.work
	}
	return r.work + ", " + r.unit
}

type table struct{ rows []*row }

// add puts one figure into the row of its work, which is made if there is none.
func (t *table) add(work, unit string, c contestant, f cell) {
	i := slices.IndexFunc(t.rows, func(r *row) bool { return r.work == work })
	if i < 0 {
		i = len(t.rows)
		t.rows = append(t.rows, &row{work: work, unit: unit, cells: map[string]cell{}})
	}
	r := t.rows[i]
	if _, ok := r.cells[c.name]; !ok {
		r.names = append(r.names, c.name)
	}
	r.cells[c.name] = f
}

// String prints a line for each contestant, ours first, with the ratio of ours
// to each of the others, and says where we lose.
func (t table) String() string {
	var b strings.Builder
	wide := len("work")
	for _, r := range t.rows {
		wide = max(wide, len(r.title()))
	}
	fmt.Fprintf(&b, "%-*s %-22s %10s %10s\n", wide, "work", "contestant", "figure", "ours/it")
	for _, r := range t.rows {
		work := r.title()
		mine, have := r.cells[ours.name]
		have = have && mine.none == ""
		names := slices.Clone(r.names)
		slices.SortStableFunc(names, func(x, y string) int { return rank(x) - rank(y) })
		for _, n := range names {
			c := r.cells[n]
			switch {
			case c.none != "":
				fmt.Fprintf(&b, "%-*s %-22s %10s %10s  %s", wide, work, n, "-", "-", c.none)
			case n == ours.name || !have:
				fmt.Fprintf(&b, "%-*s %-22s %10.4g %10s", wide, work, n, c.value, "")
			case c.value > 0:
				fmt.Fprintf(&b, "%-*s %-22s %10.4g %10.2f", wide, work, n, c.value, mine.value/c.value)
			default:
				fmt.Fprintf(&b, "%-*s %-22s %10.4g %10s", wide, work, n, c.value, "-")
			}
			if have && n != ours.name && c.none == "" && mine.value > c.value {
				b.WriteString("  <- ours is behind")
			}
			if c.note != "" {
				b.WriteString("  (" + c.note + ")")
			}
			b.WriteString("\n")
			work = ""
		}
	}
	return b.String()
}

// rank puts ours first and keeps the order of the others.
func rank(name string) int {
	if name == ours.name {
		return 0
	}
	return 1
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

// start runs what a contestant has and returns when it says that it is ready.
func (r *rig) start(c contestant) error {
	if _, err := run("systemctl", "start", c.slice); err != nil {
		return err
	}
	for _, u := range c.units {
		if _, err := run("systemctl", "start", u); err != nil {
			return err
		}
	}
	for _, cmd := range c.after {
		if _, err := run(cmd[0], cmd[1:]...); err != nil {
			return err
		}
	}
	return nil
}

// stop ends all that runs of a contestant and forgets what it knew.
func (r *rig) stop(c contestant) error {
	var err error
	// Twice: what D-Bus or a timer brings back ends in the second turn.
	for range 2 {
		for _, u := range c.inSlice {
			_, _ = run("systemctl", "stop", strings.TrimSuffix(u, ".service")+".socket")
			_, err = run("systemctl", "stop", strings.Replace(u, "@.", "@*.", 1))
		}
	}
	_, _ = run("systemctl", "reset-failed")
	if e := unconfigure(); err == nil {
		err = e
	}
	for _, dir := range c.clean {
		_ = os.RemoveAll(dir)
	}
	return err
}

// cold is what a start on links that are there took.
type cold struct {
	outcome
	used, udev usage
}

// coldStart: the links are there (and the children, if premade); from the start
// of the contestant to the last address.
func (r *rig) coldStart(c contestant, specs []spec, makeChildren bool, most time.Duration) (cold, error) {
	if !makeChildren {
		for _, s := range specs {
			if s.parent != "" {
				// By sysfs: a child that was made over netlink has no file for
				// its mode, without which NetworkManager activates nothing.
				if err := os.WriteFile("/sys/class/net/"+s.parent+"/create_child", fmt.Appendf(nil, "0x%04x", s.pkey), 0); err != nil {
					return cold{}, err
				}
			}
		}
		if err := settle(); err != nil {
			return cold{}, err
		}
	}
	// Not before: udev would have ifupdown configure each child that is made.
	if err := c.configure(specs, makeChildren); err != nil {
		return cold{}, err
	}
	// What the rules say of links that are there.
	if _, err := run("udevadm", "trigger", "--action=change", "--subsystem-match=net"); err != nil {
		return cold{}, err
	}
	if err := settle(); err != nil {
		return cold{}, err
	}
	r.w.expect(wishes(specs))
	before, udev := used(c.slice), used(udevd)
	began := time.Now()
	if err := r.start(c); err != nil {
		return cold{}, err
	}
	// One that is still at it may have its time; one that has given up need not.
	for at := used(c.slice).cpu; ; {
		o, err := r.w.settle(began, most-time.Since(began), 40*time.Second)
		if err != nil {
			return cold{}, err
		}
		now := used(c.slice).cpu
		if o.right == o.of || time.Since(began) >= most || now-at < time.Second {
			break
		}
		at = now
	}
	u := r.quiesce(c)
	return cold{r.w.now(began), u.since(before), used(udevd).since(udev)}, r.w.failed()
}

// hotplug takes an adapter away and adds it again, and waits until its links are
// right and the contestant does no more. With digest the contestant has time for
// what it does about the loss before the adapter comes.
func (r *rig) hotplug(c contestant, adapter int, want []spec, digest bool, most time.Duration) (cold, error) {
	before, udev := used(c.slice), used(udevd)
	if err := r.ctl(fmt.Sprintf("del %d", adapter)); err != nil {
		return cold{}, err
	}
	if err := settle(); err != nil {
		return cold{}, err
	}
	if digest {
		r.quiesce(c)
	}
	r.w.expect(wishes(want))
	began := time.Now()
	if err := r.ctl(fmt.Sprintf("add %d", adapter)); err != nil {
		return cold{}, err
	}
	if _, err := r.w.settle(began, most, most); err != nil {
		return cold{}, err
	}
	// What was right for a moment only does not count: the state once all is
	// quiet does, with the time since which it is so.
	u := r.quiesce(c)
	return cold{r.w.now(began), u.since(before), used(udevd).since(udev)}, r.w.failed()
}

// edit changes one address and has it applied.
func (r *rig) edit(c contestant, specs []spec, which int, makeChildren bool, most time.Duration) (outcome, usage, error) {
	edited := slices.Clone(specs)
	edited[which].addr = netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 200, byte(which), 1}), 24)
	for path, text := range c.files(edited, makeChildren) {
		if old, err := os.ReadFile(path); err == nil && string(old) == text {
			continue // only the edited file gets a new time stamp
		}
		if err := writeConfig(path, text); err != nil {
			return outcome{}, usage{}, err
		}
	}
	before := used(c.slice)
	r.w.expect(wishes(edited))
	began := time.Now()
	if err := c.apply(edited[which]); err != nil {
		return outcome{}, usage{}, err
	}
	o, err := r.w.settle(began, most, most)
	if err != nil {
		return o, usage{}, err
	}
	return o, r.quiesce(c).since(before), nil
}

// apply has the changed file of one link read and applied.
func (c contestant) apply(s spec) error {
	for _, cmd := range c.reload(s) {
		if _, err := run(cmd[0], cmd[1:]...); err != nil {
			return err
		}
	}
	return nil
}

// quiesce waits until a contestant uses no more CPU time: what it does after the
// kernel's state is right belongs to the work too.
func (r *rig) quiesce(c contestant) usage {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	old := used(c.slice)
	for same := 0; same < 2; {
		select {
		case <-ctx.Done():
			return used(c.slice)
		case <-tick.C:
		}
		u := used(c.slice)
		if u.cpu-old.cpu < 2*time.Millisecond {
			same++
		} else {
			same = 0
		}
		old = u
	}
	return old
}

// idle is what a contestant uses in a minute without work.
func (r *rig) idle(c contestant) usage {
	before := used(c.slice)
	minute := time.NewTimer(time.Minute)
	<-minute.C
	return used(c.slice).since(before)
}

// disturb restarts or kills a configured daemon and counts what the links lost.
func (r *rig) disturb(c contestant, specs []spec, how string) (outcome, error) {
	r.w.expect(wishes(specs))
	began := time.Now()
	unit := c.units[0]
	switch how {
	case "restart":
	case "kill -9":
		if _, err := run("systemctl", "kill", "-s", "KILL", unit); err != nil {
			return outcome{}, err
		}
	default:
		return outcome{}, fmt.Errorf("no way to disturb called %q", how)
	}
	if _, err := run("systemctl", "restart", unit); err != nil {
		return outcome{}, err
	}
	r.quiesce(c)
	return r.w.now(began), r.w.failed()
}

// median of durations in seconds.
func median(d []time.Duration) float64 {
	if len(d) == 0 {
		return 0
	}
	s := slices.Sorted(slices.Values(d))
	return s[len(s)/2].Seconds()
}
