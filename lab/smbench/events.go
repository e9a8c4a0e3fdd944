package main

import (
	"fmt"
	"slices"
	"strings"
	"syscall"
	"time"

	"ibnetworkd/sm/fabric"
	"ibnetworkd/sm/saprobe"
	"ibnetworkd/sm/transport/ibsim"
)

// eventSample is how long one manager took for one event.
type eventSample struct {
	SM, Event string
	Took      time.Duration
}

// events of a subnet, each measured from the moment it happens. What ibnetsm
// aims at is a time, or a part of opensm's.
var events = []struct {
	name, what string
	aim        time.Duration
	part       float64
}{
	{"cut", "link between switches cut, until the sweep that follows is done", 0, 0.1},
	{"back", "link back, until the sweep that follows is done", 0, 0.1},
	{"flaps", "host's link moved 10 times in 1 s, then another link cut, until that is dealt with", 500 * time.Millisecond, 0},
	{"kill", "master killed, SA silent as a third host sees it", 1500 * time.Millisecond, 0},
	{"stop", "master ended by SIGTERM, SA silent", 500 * time.Millisecond, 0},
	{"link", "master's link cut, SA silent", 3 * time.Second, 0},
	{"join", "better manager joins, until it is master; the SA's longest silence is in join-gap", 0, 1},
	{"join-gap", "", 0, 1},
}

func benchEvents(t *tools, o options) ([]eventSample, error) {
	name := "ft2-108"
	if len(o.names) > 0 {
		name = o.names[0]
	}
	f, err := fabricByName(name)
	if err != nil {
		return nil, err
	}
	cut := switchLink(f)
	fmt.Fprintf(out, "reactions; %s, simulator %s, %d runs each, median; load average %s\n", name, o.sim, o.runs, load())
	var all []eventSample
	for range o.runs {
		for _, sm := range o.sms {
			for _, e := range []struct {
				names string
				run   func(*tools, options, string, string, string) ([]eventSample, error)
			}{{"cut back flaps", cutOnce}, {"kill stop link", killOnce}, {"join", joinOnce}} {
				if !slices.ContainsFunc(strings.Fields(e.names), o.only.MatchString) {
					continue
				}
				l, err := e.run(t, o, sm, name, cut)
				if err != nil {
					return all, fmt.Errorf("%s: %w", sm, err)
				}
				all = append(all, l...)
			}
		}
	}
	for _, e := range events {
		med := map[string]time.Duration{}
		for _, sm := range o.sms {
			var l []time.Duration
			for _, s := range all {
				if s.SM == sm && s.Event == e.name {
					l = append(l, s.Took)
				}
			}
			if len(l) == 0 {
				continue
			}
			slices.Sort(l)
			med[sm] = l[len(l)/2]
			fmt.Fprintf(out, "%-9s %-8s %8.3f s  [%.3f..%.3f]  %s\n", e.name, sm, med[sm].Seconds(), l[0].Seconds(), l[len(l)-1].Seconds(), e.what)
		}
		if a, b := med["opensm"], med["ibnetsm"]; a > 0 && b > 0 {
			note := ""
			if b > max(e.aim, time.Duration(e.part*float64(a))) {
				note = "  <- behind its aim"
			}
			fmt.Fprintf(out, "%-9s %-8s %8.3f%s\n", e.name, "ratio", ratio(b, a), note)
		}
	}
	return all, nil
}

// switchLink names a link between two switches as the console wants it.
func switchLink(f *fabric.Fabric) string {
	for i := range f.Ports {
		p := &f.Ports[i]
		if p.Peer != fabric.None && f.Nodes[p.Node].Switch != fabric.None && f.Nodes[f.Ports[p.Peer].Node].Switch != fabric.None {
			return fmt.Sprintf("%q[%d]", f.Nodes[p.Node].Desc, p.Num)
		}
	}
	return ""
}

func cutOnce(t *tools, o options, sm, name, cut string) (l []eventSample, err error) {
	if cut == "" {
		return nil, nil
	}
	r, m, err := t.managed(o.sim, name, sm, 5, true)
	if err != nil {
		return nil, err
	}
	defer r.stop()
	measure := func(event string, lines ...string) error {
		n := m.ups()
		begin := time.Now()
		for _, line := range lines {
			fmt.Fprintln(r.stdin, line)
		}
		at, err := m.waitUp(n+1, 30*time.Second)
		if err != nil {
			return fmt.Errorf("%s: %w", event, err)
		}
		l = append(l, eventSample{sm, event, at.Sub(begin)})
		return nil
	}
	r.settle(m)
	if err := measure("cut", "Unlink "+cut); err != nil {
		return l, err
	}
	r.settle(m)
	if err := measure("back", "Relink "+cut); err != nil {
		return l, err
	}
	r.settle(m)
	if !o.only.MatchString("flaps") {
		return l, nil
	}
	for range 5 {
		fmt.Fprintln(r.stdin, "Unlink \"H-00003\"[1]")
		time.Sleep(100 * time.Millisecond)
		fmt.Fprintln(r.stdin, "Relink \"H-00003\"[1]")
		time.Sleep(100 * time.Millisecond)
	}
	// The sweeps of the flaps are over when none has ended for a while; what
	// waits for opensm's mute to end is what is measured.
	last, since := m.ups(), time.Now()
	for time.Since(since) < 300*time.Millisecond {
		time.Sleep(10 * time.Millisecond)
		if n := m.ups(); n != last {
			last, since = n, time.Now()
		}
	}
	return l, measure("flaps", "Unlink "+cut)
}

// settle waits until a manager has nothing to do: opensm sweeps a second time
// after its first, and one sweep that ended must not be taken for the next.
func (r *rig) settle(m *manager) {
	ups, smps, since := -1, -1, time.Now()
	for end := since.Add(30 * time.Second); time.Since(since) < time.Second && time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		_, k := r.counters()
		if n := m.ups(); n != ups || k != smps {
			ups, smps, since = n, k, time.Now()
		}
	}
}

// probe queries the SA all the time from a host.
func (r *rig) probe(host string) (*saprobe.Probe, error) {
	tr, err := ibsim.Open(ibsim.Options{Sock: r.sock, Host: host})
	if err != nil {
		return nil, err
	}
	return saprobe.Start(tr), nil
}

// killOnce lets a standby take over, once for each way to lose the master.
func killOnce(t *tools, o options, sm, name, _ string) (l []eventSample, err error) {
	for _, event := range []string{"kill", "stop", "link"} {
		if !o.only.MatchString(event) {
			continue
		}
		took, err := takeover(t, o, sm, name, event)
		if err != nil {
			return l, fmt.Errorf("%s: %w", event, err)
		}
		l = append(l, eventSample{sm, event, took})
	}
	return l, nil
}

func takeover(t *tools, o options, sm, name, event string) (time.Duration, error) {
	r, a, err := t.managed(o.sim, name, sm, 5, true)
	if err != nil {
		return 0, err
	}
	defer r.stop()
	b, err := r.run(sm, "H-00002", 1, true)
	if err != nil {
		return 0, err
	}
	time.Sleep(3 * time.Second)
	p, err := r.probe("H-00003")
	if err != nil {
		return 0, err
	}
	defer p.Stop()
	if err := p.WaitAnswer(time.Now(), 10*time.Second); err != nil {
		return 0, err
	}
	n := b.ups()
	begin := time.Now()
	switch event {
	case "kill":
		a.kill()
	case "stop":
		a.signal(syscall.SIGTERM)
	case "link":
		fmt.Fprintln(r.stdin, "Unlink \"H-00001\"[1]")
	}
	at, err := b.waitUp(n+1, 3*time.Minute)
	if err != nil {
		return 0, err
	}
	if err := p.WaitAnswer(at, 30*time.Second); err != nil {
		return 0, err
	}
	return p.Silence(begin), nil
}

// joinOnce lets a better manager join a running one.
func joinOnce(t *tools, o options, sm, name, _ string) ([]eventSample, error) {
	r, _, err := t.managed(o.sim, name, sm, 1, true)
	if err != nil {
		return nil, err
	}
	defer r.stop()
	time.Sleep(time.Second)
	p, err := r.probe("H-00003")
	if err != nil {
		return nil, err
	}
	defer p.Stop()
	if err := p.WaitAnswer(time.Now(), 10*time.Second); err != nil {
		return nil, err
	}
	begin := time.Now()
	b, err := r.run(sm, "H-00002", 10, true)
	if err != nil {
		return nil, err
	}
	at, err := b.waitUp(1, 3*time.Minute)
	if err != nil {
		return nil, err
	}
	if err := p.WaitAnswer(at.Add(100*time.Millisecond), 30*time.Second); err != nil {
		return nil, err
	}
	return []eventSample{{sm, "join", at.Sub(begin)}, {sm, "join-gap", p.Silence(begin)}}, nil
}
