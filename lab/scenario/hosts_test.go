package scenario

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"ibnetworkd/internal/testkit"
	"ibnetworkd/lab"
)

// fabricHost is a host of its own kernel with everything installed, and the one
// unit that all hosts have: an address, and a subnet manager if the fabric
// needs one.
func fabricHost(hosts []string, n int) lab.Node {
	unit := fmt.Sprintf("[Match]\nName=ib0\n[Network]\nAddress=10.9.0.%d/24\n[SubnetManager]\nManage=auto\nStartDelaySec=1\n"+
		"StopDelaySec=5\n", n+1)
	return lab.Node{
		Name:   hosts[n],
		Config: installed(lab.Config{}, map[string]string{"10-ib0.ibnetwork": unit}),
		Body: func(g *lab.G) {
			defer journal(g)
			watchFabric(g, hosts, n)
		},
	}
}

// watchFabric does nothing but look: it posts what the host's port and subnet
// manager are, and how many of its pings of the other hosts were lost, until the
// script says "end".
func watchFabric(g *lab.G, hosts []string, me int) {
	pings := map[string]*lab.Pinging{}
	for i, h := range hosts {
		if i != me {
			pings[h] = g.Pinging(fmt.Sprintf("10.9.0.%d", i+1), 200*time.Millisecond)
		}
	}
	for g.Posted("end") == "" {
		v := view{Role: g.SMRole("swib0", 1), SMLID: g.PortFile("swib0", 1, "sm_lid"), Pings: map[string]count{}}
		_, v.Port, _ = strings.Cut(g.PortFile("swib0", 1, "state"), ": ")
		for h, p := range pings {
			sent, lost := p.Count()
			v.Pings[h] = count{sent, lost}
		}
		text, err := json.Marshal(v)
		testkit.NoError(g, err)
		g.Post("view-"+hosts[me], string(text))
		time.Sleep(100 * time.Millisecond)
	}
}

// view is what a host sees.
type view struct {
	Port, Role, SMLID string
	Pings             map[string]count
}

type count struct{ Sent, Lost int }

// watchers is the script's side of watchFabric.
type watchers struct {
	t     *testing.T
	r     *lab.NetRun
	hosts []string
	start time.Time
	since map[string]view // at the end of the last phase
}

func (w *watchers) view(h string) (v view) {
	_ = json.Unmarshal([]byte(w.r.Posted("view-"+h)), &v)
	return v
}

// masters are the hosts among those given whose subnet manager is master.
func (w *watchers) masters(hosts ...string) (m []string) {
	for _, h := range hosts {
		if w.view(h).Role == "MASTER" {
			m = append(m, h)
		}
	}
	return m
}

// wait waits until ok, and that it stays so for a second: roles may pass through
// each other.
func (w *watchers) wait(what string, limit time.Duration, ok func() bool) {
	w.t.Helper()
	limit = lab.Patience(max(limit, 3*time.Minute))
	begin := time.Now()
	var since time.Time
	for {
		switch {
		case !ok():
			since = time.Time{}
		case since.IsZero():
			since = time.Now()
		case time.Since(since) > time.Second:
			w.t.Logf("%5.1f s: %s (after %.1f s)", since.Sub(w.start).Seconds(), what, since.Sub(begin).Seconds())
			return
		}
		if time.Since(begin) > limit {
			for _, h := range w.hosts {
				w.t.Logf("%s: %+v", h, w.view(h))
			}
			w.r.Post("end", "now")
			w.t.Fatalf("waited %v in vain: %s", limit, what)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// one waits until the hosts are Active under exactly one master, and each of them
// gets answers from all others; it returns the master.
func (w *watchers) one(what string, limit time.Duration, hosts ...string) (master string) {
	w.t.Helper()
	marks := map[string]view{}
	for _, h := range hosts {
		marks[h] = w.view(h)
	}
	w.wait(what, limit, func() bool {
		m := w.masters(hosts...)
		if len(m) != 1 {
			return false
		}
		master = m[0]
		for _, h := range hosts {
			v := w.view(h)
			if v.Port != "ACTIVE" {
				return false
			}
			for _, o := range hosts {
				p, q := v.Pings[o], marks[h].Pings[o]
				if o != h && p.Sent-p.Lost <= q.Sent-q.Lost {
					return false
				}
			}
		}
		return true
	})
	return master
}

// matrix prints what has become of the pings of each pair since the last matrix:
// answered/sent.
func (w *watchers) matrix(title string) {
	w.t.Helper()
	var b strings.Builder
	fmt.Fprintf(&b, "pings answered/sent, %s\n%8s", title, "from")
	for _, h := range w.hosts {
		fmt.Fprintf(&b, "%10s", "to "+h)
	}
	now := map[string]view{}
	for _, h := range w.hosts {
		now[h] = w.view(h)
		fmt.Fprintf(&b, "\n%8s", h)
		for _, o := range w.hosts {
			p, q := now[h].Pings[o], w.since[h].Pings[o]
			if p.Sent < q.Sent {
				q = count{} // the host has been born again
			}
			cell := "-"
			if o != h {
				cell = fmt.Sprintf("%d/%d", p.Sent-p.Lost-q.Sent+q.Lost, p.Sent-q.Sent)
			}
			fmt.Fprintf(&b, "%10s", cell)
		}
	}
	w.since = now
	w.t.Log(b.String())
}

func newWatchers(t *testing.T, r *lab.NetRun, hosts []string) *watchers {
	return &watchers{t: t, r: r, hosts: hosts, start: time.Now(), since: map[string]view{}}
}

// Two hosts with one cable, as in a home lab, each with systemd and one unit, the
// same on both but for the address. One of them becomes the subnet manager; the
// cable may be pulled and put back.
func TestHostsCable(t *testing.T) {
	t.Parallel()
	hosts := []string{"a", "b"}
	lab.RunNet(t, lab.Net{
		Cables: []string{"a/1 b/1"},
		Nodes:  []lab.Node{fabricHost(hosts, 0), fabricHost(hosts, 1)},
		Script: func(t *testing.T, r *lab.NetRun) {
			w := newWatchers(t, r, hosts)
			master := w.one("one subnet", 90*time.Second, hosts...)
			w.matrix("until both answered; the master is " + master)
			r.Ctl("a", "link h0/1 down")
			w.wait("both ports are down", 20*time.Second, func() bool { return w.view("a").Port == "DOWN" && w.view("b").Port == "DOWN" })
			w.matrix("cable out")
			r.Ctl("a", "link h0/1 up")
			w.one("one subnet again", 60*time.Second, hosts...)
			w.matrix("cable in")
			r.Post("end", "now")
		},
	})
}

// Four hosts at two switches, Manage=auto everywhere. The master's host dies, and
// boots again into the running fabric; the fabric is cut in two and healed.
func TestHostsFabric(t *testing.T) {
	t.Parallel()
	hosts := []string{"a", "b", "c", "d"}
	var nodes []lab.Node
	for i := range hosts {
		nodes = append(nodes, fabricHost(hosts, i))
	}

	lab.RunNet(t, lab.Net{
		Fabric: `Switch	8 "S-0000000000000a01"		# "left" base port 0 lid 0 lmc 0
[8]	"S-0000000000000b01"[8]		# "right" lid 0 4xQDR
Switch	8 "S-0000000000000b01"		# "right" base port 0 lid 0 lmc 0
[8]	"S-0000000000000a01"[8]		# "left" lid 0 4xQDR
`,
		Cables: []string{"a/1 left/1", "b/1 left/2", "c/1 right/1", "d/1 right/2"},
		Nodes:  nodes,
		Script: func(t *testing.T, r *lab.NetRun) {
			w := newWatchers(t, r, hosts)
			master := w.one("one subnet of four hosts", 120*time.Second, hosts...)
			w.matrix("until all answered; the master is " + master)

			r.Kill(master)
			r.Post("view-"+master, "{}")
			rest := slices.DeleteFunc(slices.Clone(hosts), func(h string) bool { return h == master })
			next := w.one("another host is master after the master's host died", 90*time.Second, rest...)
			w.matrix("from the death of " + master + " until " + next + " is master")

			r.Boot(master)
			last := w.one("the dead host is back in the running fabric", 120*time.Second, hosts...)
			w.matrix("until " + master + " was back; the master is " + last)

			sim := r.Fabric()
			guid := sim.FindHost("left")[0].NodeGUID
			testkit.NoError(t, sim.Cut(guid, 8))
			ml := w.one("the left half has a master", 90*time.Second, "a", "b")
			mr := w.one("the right half has a master", 90*time.Second, "c", "d")
			w.matrix("cut in two; the masters are " + ml + " and " + mr)
			testkit.NoError(t, sim.Restore(guid, 8))
			last = w.one("one subnet again", 90*time.Second, hosts...)
			w.matrix("healed; the master is " + last)
			r.Post("end", "now")
		},
	})
}
