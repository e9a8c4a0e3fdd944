package lab

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"ibnetworkd/lab/simfabric"
	fabricwire "ibnetworkd/lab/simfabric/wire"
	"ibnetworkd/lab/timeline"
	"ibnetworkd/sm/fabric"
)

// Net is several guests, each a host or a switch with a kernel of its own, and
// the cables between them.
type Net struct {
	Nodes []Node
	// Cables join ports of nodes, such as "a/1 sw/3", or a port of a node and one
	// of the simulated fabric, "a/1 S-0001/19".
	Cables []string
	// Fabric is a subnet in ibnetdiscover's format that is simulated on the host,
	// by package simfabric: thousands of switches and adapters with the agents
	// of real ones, to which the nodes are joined.  In Cables, its nodes go by
	// description or by GUID (0x...); a switch needs a free port, and a simulated
	// adapter that is named gives its place at its switch to the node.
	Fabric string
	// Script runs on the host beside the guests: it kills and boots nodes and
	// pulls cables.  May be nil.
	Script func(t *testing.T, r *NetRun)
}

// Node is one guest of a Net.
type Node struct {
	Name   string
	Config Config // HCAs is 1 if 0; its cables are those of the Net
	// Switch makes the node a switch with that many ports and no body.
	Switch int
	// Body runs in the guest.  The guest stays up after it until the bodies of
	// all nodes have ended.
	Body func(g *G)
}

// nodeVar names the node that a guest is.
const nodeVar = "IBNETLAB_NODE"

// netDir is where all guests of a Net meet: a folder of the host.
const netDir = "/labnet"

// wireMTU holds the largest UD packet in one frame; RC messages take several.
const wireMTU = 9000

// NetRun is a Net that runs.
type NetRun struct {
	t      *testing.T
	net    Net
	dir    string
	fds    map[string]*os.File // by end, such as "a/1": kept, so that a cable outlives its hosts
	mu     sync.Mutex
	guests map[string]*Guest
	killed map[string]bool
	ctl    int
	follow sync.WaitGroup
	sim    *simfabric.Sim
	wires  sync.WaitGroup
	unplug []func()
	marks  []timeline.Record // what the script did, and of guests that are gone
}

// RunNet boots the nodes of n, runs their bodies, and makes their outcome that
// of t.  It skips where Run does.
func RunNet(t *testing.T, n Net) {
	t.Helper()
	if InGuest() {
		n.body(t)
		return
	}
	if err := n.check(); err != nil {
		t.Fatalf("lab: %v", err)
	}
	r := &NetRun{t: t, net: n, dir: t.TempDir(), fds: map[string]*os.File{}, guests: map[string]*Guest{}, killed: map[string]bool{}}
	if err := os.Chmod(r.dir, 0o777); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.close)
	if n.Fabric != "" {
		f, err := fabric.ReadText("fabric", strings.NewReader(n.Fabric))
		if err != nil {
			t.Fatalf("lab: %v", err)
		}
		r.sim = simfabric.New(f, simfabric.Options{})
	}
	for _, c := range n.Cables {
		ends := strings.Fields(c)
		if err := r.cable(ends[0], ends[1]); err != nil {
			t.Fatalf("lab: cable %q: %v", c, err)
		}
	}
	for _, node := range n.Nodes {
		r.Boot(node.Name)
	}
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() { r.watchDone(stop) })
	ended := false
	defer func() {
		if !ended { // the script has given up, and the bodies may wait for it for long
			for _, g := range r.guests {
				g.Kill()
			}
		}
		r.follow.Wait()
		close(stop)
		wg.Wait()
		for _, node := range n.Nodes {
			// The picture of all lies in the folder of the first that is not gone.
			if out := filepath.Join(r.guests[node.Name].Dir, "out"); fileExists(out) {
				drawTimeline(out, t.Name(), r.guests, r.marks)
				break
			}
		}
		if ended {
			r.judge()
		}
	}()
	if n.Script != nil {
		n.Script(t, r)
	}
	ended = true
}

// nodeName is what a node may be called: its name goes into names of files and cables.
var nodeName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]*$`)

// check reports what cannot be right about a Net.
func (n *Net) check() error {
	seen := map[string]bool{}
	for i := range n.Nodes {
		node := &n.Nodes[i]
		switch {
		case !nodeName.MatchString(node.Name):
			return fmt.Errorf("node %q: a name has letters, digits, dots, hyphens and underscores", node.Name)
		case seen[node.Name]:
			return fmt.Errorf("two nodes are called %q", node.Name)
		case node.Switch < 0 || node.Switch > maxSwitchPorts:
			return fmt.Errorf("node %s: a switch of %d ports: want 1 to %d", node.Name, node.Switch, maxSwitchPorts)
		case node.Switch > 0 && node.Body != nil:
			return fmt.Errorf("node %s: a switch has no Body", node.Name)
		case node.Switch == 0 && node.Body == nil:
			return fmt.Errorf("node %s has no Body and is no Switch: it would do nothing", node.Name)
		}
		seen[node.Name] = true
		if err := node.Config.check(); err != nil {
			return fmt.Errorf("node %s: %w", node.Name, err)
		}
	}
	for _, c := range n.Cables {
		ends := strings.Fields(c)
		if len(ends) != 2 {
			return fmt.Errorf("cable %q: want two ports", c)
		}
		for _, end := range ends {
			name, port, _ := strings.Cut(end, "/")
			node := n.node(name)
			if node == nil {
				continue // of the simulated fabric, or nowhere: plug knows
			}
			last := node.Switch
			if last == 0 {
				last = max(node.Config.Ports, 1)
			}
			if num, err := strconv.Atoi(port); err != nil || num < 1 || num > last {
				return fmt.Errorf("cable %q: node %s has no port %q; its last is %d", c, name, port, last)
			}
		}
	}
	return nil
}

// judge makes the outcome of the guests that of the test.
func (r *NetRun) judge() {
	r.t.Helper()
	slow := false
	for _, node := range r.net.Nodes {
		if r.killed[node.Name] {
			continue
		}
		g := r.guests[node.Name]
		if why := g.outcome(r.t); why != "" {
			r.t.Errorf("lab: node %s: %s; see %s", node.Name, why, g.keep())
		} else {
			slow = slow || g.late.Load()
			g.remove()
		}
	}
	if slow && !r.t.Failed() {
		r.t.Skip(tooSlow)
	}
}

// Fabric is the simulated part of the fabric, for scripts that cut its cables,
// take nodes their power, and read what was programmed; nil if there is none.
func (r *NetRun) Fabric() *Fabric {
	if r.sim == nil {
		return nil
	}
	return &Fabric{Sim: r.sim, mark: r.mark}
}

func (r *NetRun) close() {
	r.mu.Lock()
	guests := r.guests
	r.mu.Unlock()
	for _, g := range guests {
		g.Kill()
	}
	for _, f := range r.unplug {
		f()
	}
	r.wires.Wait()
	if r.sim != nil {
		r.sim.Close()
	}
	for _, f := range r.fds {
		f.Close()
	}
}

func (n *Net) node(name string) *Node {
	for i := range n.Nodes {
		if n.Nodes[i].Name == name {
			return &n.Nodes[i]
		}
	}
	return nil
}

// Boot starts a node; also again after Kill.
func (r *NetRun) Boot(name string) {
	r.t.Helper()
	node := r.net.node(name)
	if node == nil {
		r.t.Fatalf("lab: no node %q", name)
	}
	c := node.Config
	c.Env = append(append([]string{}, c.Env...), nodeVar+"="+name)
	for i := range r.net.Nodes {
		if r.net.Nodes[i].Name == name {
			c.Swib = strings.TrimSpace(fmt.Sprintf("topo=2 host=%d %s", i+1, c.Swib))
		}
	}
	c.HCAs = cmp.Or(c.HCAs, 1)
	kind := "h0"
	if node.Switch > 0 {
		c.HCAs = 0
		c.noHCAs = true
		c.Commands = append([]string{fmt.Sprintf("switch 0 %d", node.Switch)}, c.Commands...)
		kind = "s0"
	}
	c.netPath, c.node = r.dir, name
	for end, f := range r.fds {
		if port, ok := strings.CutPrefix(end, name+"/"); ok {
			c.wires = append(c.wires, wire{kind + "/" + port, f})
		}
	}
	_ = os.Remove(filepath.Join(r.dir, failedPrefix+name))
	g := Boot(r.t, c)
	r.Mark("boot %s", name)
	r.mu.Lock()
	r.guests[name] = g
	delete(r.killed, name)
	r.mu.Unlock()
	r.follow.Go(func() { g.follow(r.t, name+": ") })
}

// Mark puts an event of the script into the timeline.
func (r *NetRun) Mark(format string, args ...any) {
	r.mark(time.Now(), fmt.Sprintf(format, args...), false)
}

func (r *NetRun) mark(at time.Time, text string, bad bool) {
	r.mu.Lock()
	r.marks = append(r.marks, timeline.Record{At: at, Row: timeline.Script, Text: text, Mark: true, Bad: bad})
	r.mu.Unlock()
}

// Kill ends a node as a power cut does.
func (r *NetRun) Kill(name string) {
	r.t.Helper()
	r.mu.Lock()
	g := r.guests[name]
	r.killed[name] = true
	r.mu.Unlock()
	if g == nil {
		r.t.Fatalf("lab: no node %q runs", name)
	}
	r.Mark("kill %s", name)
	g.Kill()
	if failed := filepath.Join(r.dir, failedPrefix+name); fileExists(failed) {
		r.t.Errorf("lab: node %s had failed before it was killed: %s", name, g.complaint())
		_ = os.Remove(failed)
	}
	oops := ""
	if console, err := os.ReadFile(filepath.Join(g.Dir, "console.log")); err == nil && !g.cfg.AllowKernelErrors {
		oops = kernelErrors(console)
	}
	r.mu.Lock()
	gone := g.records(name)
	seen := map[string]bool{}
	for _, rec := range gone {
		if !rec.Mark && !seen[rec.Row] {
			seen[rec.Row] = true // ends with the guest
			gone = append(gone, timeline.Record{At: time.Now(), Row: rec.Row})
		}
	}
	r.marks = append(r.marks, gone...)
	r.mu.Unlock()
	if oops != "" {
		r.t.Errorf("lab: node %s: its kernel reported an error before it was killed; see %s\n%s", name, g.keep(), oops)
	} else {
		g.remove()
	}
	for end, f := range r.fds {
		if strings.HasPrefix(end, name+"/") {
			_, _ = f.Write(fabricwire.Bye()) // the far port loses its signal at once
		}
	}
}

// Ctl gives the fabric module of a node a command, such as "link h0/1 down", and
// returns when it is carried out.  The test fails if the module refuses it, or the
// node does not run.
func (r *NetRun) Ctl(name, format string, args ...any) {
	r.t.Helper()
	cmd := fmt.Sprintf(format, args...)
	r.Mark("%s: %s", name, cmd)
	if err := r.order(name, cmd); err != nil {
		r.t.Fatalf("lab: node %s: %v", name, err)
	}
}

// ctlName and doneName are the files of the command n for a node, and of what became
// of it: nothing, or why it was refused.
func ctlName(node, n string) string  { return "ctl@" + node + "@" + n }
func doneName(node, n string) string { return "done@" + node + "@" + n }

// order has a command carried out by a node.
func (r *NetRun) order(name, cmd string) error {
	r.mu.Lock()
	g := r.guests[name]
	if r.killed[name] {
		g = nil
	}
	r.ctl++
	n := fmt.Sprintf("%06d", r.ctl)
	r.mu.Unlock()
	switch {
	case r.net.node(name) == nil:
		return fmt.Errorf("command %q: there is no such node; the nodes are %s", cmd, r.net.names())
	case g == nil:
		return fmt.Errorf("command %q: it does not run", cmd)
	}
	ctl, done := filepath.Join(r.dir, ctlName(name, n)), filepath.Join(r.dir, doneName(name, n))
	defer os.Remove(ctl)
	defer os.Remove(done)
	if err := post(r.dir, ctlName(name, n), cmd); err != nil {
		return err
	}
	for end := time.Now().Add(patient(0)); ; time.Sleep(5 * time.Millisecond) {
		ended := g.ended()
		if text, err := os.ReadFile(done); err == nil {
			if len(text) > 0 {
				return errors.New(string(text))
			}
			return nil
		}
		if ended {
			return fmt.Errorf("command %q: its guest has ended: %s", cmd, g.complaint())
		}
		if time.Now().After(end) {
			return fmt.Errorf("command %q: not carried out within %v", cmd, patient(0))
		}
	}
}

func (n *Net) names() string {
	all := make([]string, len(n.Nodes))
	for i := range n.Nodes {
		all[i] = n.Nodes[i].Name
	}
	return strings.Join(all, ", ")
}

// body is RunNet inside a guest.
func (n *Net) body(t *testing.T) {
	name := os.Getenv(nodeVar)
	node := n.node(name)
	if node == nil {
		t.Fatalf("this guest is node %q, which the test does not have", name)
	}
	c, err := readJob()
	if err != nil {
		t.Fatal(err)
	}
	stop := make(chan struct{})
	var wg sync.WaitGroup
	defer wg.Wait()
	defer close(stop)
	runBody(t, c.Config, func(g *G) {
		wg.Go(func() { obey(g, name, stop) })
		ended := false
		defer func() {
			if !ended && !g.Failed() && !g.Skipped() {
				return // it panics
			}
			if g.Failed() && !Sanitizing() {
				_ = post(netDir, failedPrefix+name, "")
			}
			_ = os.WriteFile(shareDir+"/out/body-done", nil, 0o644)
			// Others may still need this node.
			for {
				if _, err := os.Stat(netDir + "/all-done"); err == nil {
					return
				}
				time.Sleep(20 * time.Millisecond)
			}
		}()
		if node.Body != nil {
			node.Body(g)
		}
		ended = true
	})
}

// obey carries out the commands of NetRun.Ctl.
func obey(g *G, name string, stop chan struct{}) {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-stop:
			return
		case <-tick.C:
		}
		files, _ := filepath.Glob(netDir + "/" + ctlName(name, "*"))
		for _, f := range files {
			text, err := os.ReadFile(f)
			if err == nil {
				err = control(string(text))
			}
			_ = os.Remove(f) // it must not be done twice
			answer := ""
			if err != nil {
				answer = err.Error()
			}
			if err := post(netDir, doneName(name, f[strings.LastIndexByte(f, '@')+1:]), answer); err != nil {
				g.Error(err)
			}
		}
	}
}
