// Package metrics counts what happens to ports, links and operations, and
// prints it in Prometheus' text format: for a scrape over a unix socket or an
// address, for node_exporter's textfile collector, and for ibnetctl metrics.
//
// The daemon calls the Observe methods, which take the time as an input; any
// goroutine may print. The names are stable and listed in docs/metrics.md; the
// text format is written here, because a registry would be larger than what it
// registers.
package metrics

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"ibnetworkd/link"
	"ibnetworkd/smctl"
)

// Collector keeps the counters.
type Collector struct {
	mu       sync.Mutex
	once     bool // of one observation: nothing was counted over time
	start    time.Time
	version  string
	ports    map[portID]*port
	links    map[string]*linkState
	sms      map[string]smctl.Status
	ops      map[[2]string]uint64 // kind of operation, result
	reloads  uint64
	problems int
	counters func(ibdev string, num int) map[string]uint64
}

type portID struct {
	dev string
	num int
}

type port struct {
	now       link.PortStatus
	since     time.Time // of the state
	inInit    time.Duration
	changes   uint64
	smChanges uint64
	gone      bool
}

type linkState struct {
	now     link.Status
	rejoins uint64 // times that carrier came back
	lost    uint64
	had     bool // carrier was seen once
}

// New makes a Collector. counters reads the hardware counters of a port by
// their names in sysfs; nil reads none.
func New(version string, start time.Time, counters func(ibdev string, num int) map[string]uint64) *Collector {
	return &Collector{start: start, version: version, ports: map[portID]*port{}, links: map[string]*linkState{},
		sms: map[string]smctl.Status{}, ops: map[[2]string]uint64{}, counters: counters}
}

// NewObserved makes a Collector for one observation. What has to be counted over
// time, and when the daemon started, is not printed: it is not known.
func NewObserved(version string, counters func(ibdev string, num int) map[string]uint64) *Collector {
	c := New(version, time.Time{}, counters)
	c.once = true
	return c
}

// ObservePorts takes the state of all ports.
func (c *Collector) ObservePorts(now time.Time, ports []link.PortStatus) {
	c.mu.Lock()
	defer c.mu.Unlock()
	seen := map[portID]bool{}
	for _, p := range ports {
		id := portID{p.IBDevice, p.Port}
		seen[id] = true
		old := c.ports[id]
		if old == nil {
			c.ports[id] = &port{now: p, since: now}
			continue
		}
		if old.now.State != p.State || old.gone {
			old.settle(now)
			old.changes++
		}
		if p.SMLID != 0 && old.now.SMLID != 0 && p.SMLID != old.now.SMLID {
			old.smChanges++
		}
		if p.SMLID == 0 {
			// The last known one counts: Initializing in between is no change.
			p.SMLID = old.now.SMLID
		}
		old.now, old.gone = p, false
	}
	for id, p := range c.ports {
		if !seen[id] && !p.gone {
			p.settle(now)
			p.gone = true
		}
	}
}

// settle adds the time in the state that ends now.
func (p *port) settle(now time.Time) {
	if p.now.State == "Initializing" && !p.gone {
		p.inInit += now.Sub(p.since)
	}
	p.since = now
}

// ObserveLinks takes links that changed and the names of those that are gone.
func (c *Collector) ObserveLinks(changed []link.Status, gone []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, l := range changed {
		s := c.links[l.Name]
		if s == nil {
			s = &linkState{}
			c.links[l.Name] = s
		}
		if l.Carrier && !s.now.Carrier && s.had {
			s.rejoins++
		}
		if !l.Carrier && s.now.Carrier {
			s.lost++
		}
		s.had = s.had || l.Carrier
		s.now = l
	}
	for _, n := range gone {
		delete(c.links, n)
	}
}

// ObserveSM takes the state of all subnet managers.
func (c *Collector) ObserveSM(sms []smctl.Status) {
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.sms)
	for _, s := range sms {
		c.sms[s.PortGUID] = s
	}
}

// Op counts an operation that was carried out or failed.
func (c *Collector) Op(op link.Op, err error) {
	kind := strings.TrimPrefix(fmt.Sprintf("%T", op), "*")
	if i := strings.LastIndexByte(kind, '.'); i >= 0 {
		kind = kind[i+1:]
	}
	result := "done"
	if err != nil {
		result = "failed"
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ops[[2]string{kind, result}]++
}

// Reloaded counts a reading of the unit files, which have so many problems.
func (c *Collector) Reloaded(problems int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reloads++
	c.problems = problems
}

var (
	portStates = []string{"Down", "Initializing", "Armed", "Active"}
	linkStates = []link.State{link.StatePending, link.StateConfiguring, link.StateConfigured, link.StateUnmanaged, link.StateFailed}
)

// read reads the hardware counters of all ports. Without the lock: an adapter
// takes its time, and one whose firmware hangs takes seconds, while the daemon
// counts its operations.
func (c *Collector) read() map[portID]map[string]uint64 {
	if c.counters == nil {
		return nil
	}
	c.mu.Lock()
	var ids []portID
	for id, p := range c.ports {
		if !p.gone {
			ids = append(ids, id)
		}
	}
	c.mu.Unlock()
	out := make(map[portID]map[string]uint64, len(ids))
	for _, id := range ids {
		out[id] = c.counters(id.dev, id.num)
	}
	return out
}

// Text prints everything.
func (c *Collector) Text(now time.Time) []byte {
	hardware := c.read()
	c.mu.Lock()
	defer c.mu.Unlock()
	w := &writer{}
	w.family("ibnetwork_info", "gauge", "The version of ibnetworkd; the value is always 1.")
	w.sample(1, "version", c.version)
	if !c.once {
		w.family("ibnetwork_start_time_seconds", "gauge", "When the daemon started, in seconds since 1970.")
		w.sample(float64(c.start.UnixMilli()) / 1000)
		w.family("ibnetwork_unit_reads_total", "counter", "How often the unit files were read.")
		w.sample(float64(c.reloads))
	}
	w.family("ibnetwork_unit_problems", "gauge", "Mistakes in the unit files.")
	w.sample(float64(c.problems))
	c.writePorts(w, now, hardware)
	c.writeLinks(w)
	c.writeSMs(w)
	return w.b.Bytes()
}

func (c *Collector) writePorts(w *writer, now time.Time, hardware map[portID]map[string]uint64) {
	ids := slices.SortedFunc(maps.Keys(c.ports), func(a, b portID) int {
		if a.dev != b.dev {
			return strings.Compare(a.dev, b.dev)
		}
		return a.num - b.num
	})
	each := func(f func(p *port, l []string)) {
		for _, id := range ids {
			if p := c.ports[id]; !p.gone {
				f(p, []string{"device", id.dev, "port", strconv.Itoa(id.num)})
			}
		}
	}
	w.family("ibnetwork_port_info", "gauge", "What is known of a port; the value is always 1.")
	each(func(p *port, l []string) {
		w.sample(1, append(l, "guid", p.now.PortGUID, "link_layer", p.now.LinkLayer, "rate", p.now.Rate)...)
	})
	w.family("ibnetwork_port_state", "gauge", "1 for the logical state that the port is in.")
	each(func(p *port, l []string) {
		for _, s := range portStates {
			w.sample(boolean(p.now.State == s), append(slices.Clone(l), "state", s)...)
		}
	})
	if !c.once {
		w.family("ibnetwork_port_initialize_seconds_total", "counter", "Time that the port was in Initializing, waiting for a subnet manager.")
		each(func(p *port, l []string) {
			d := p.inInit
			if p.now.State == "Initializing" {
				d += now.Sub(p.since)
			}
			w.sample(d.Seconds(), l...)
		})
		w.family("ibnetwork_port_state_changes_total", "counter", "Changes of the logical state.")
		each(func(p *port, l []string) { w.sample(float64(p.changes), l...) })
		w.family("ibnetwork_port_sm_changes_total", "counter", "How often the subnet manager's LID changed.")
		each(func(p *port, l []string) { w.sample(float64(p.smChanges), l...) })
	}
	w.family("ibnetwork_port_lid", "gauge", "The port's LID, 0 for none.")
	each(func(p *port, l []string) { w.sample(float64(p.now.LID), l...) })
	names := map[string]bool{}
	for _, v := range hardware {
		for n := range v {
			names[n] = true
		}
	}
	for _, n := range slices.Sorted(maps.Keys(names)) {
		w.family("ibnetwork_port_"+n+"_total", "counter", "The adapter's port counter "+n+".")
		each(func(p *port, l []string) {
			if v, ok := hardware[portID{p.now.IBDevice, p.now.Port}][n]; ok {
				w.print(strconv.FormatUint(v, 10), l...)
			}
		})
	}
}

func (c *Collector) writeLinks(w *writer) {
	links := slices.Sorted(maps.Keys(c.links))
	w.family("ibnetwork_link_state", "gauge", "1 for the state that the link is in.")
	for _, n := range links {
		for _, s := range linkStates {
			w.sample(boolean(c.links[n].now.State == s), "link", n, "state", string(s))
		}
	}
	w.family("ibnetwork_link_online", "gauge", "1 if the link is as online as its unit requires.")
	for _, n := range links {
		w.sample(boolean(c.links[n].now.Online), "link", n)
	}
	w.family("ibnetwork_link_settings_not_as_wanted", "gauge", "Settings of the link that differ from its unit.")
	for _, n := range links {
		bad := 0
		for _, a := range c.links[n].now.Attributes {
			if !a.OK() {
				bad++
			}
		}
		w.sample(float64(bad), "link", n)
	}
	w.family("ibnetwork_dhcp_unusable_answers_total", "counter",
		"Answers of DHCP servers that could not be used, updated once a minute.")
	for _, n := range links {
		for i, d := range []*link.DHCP{c.links[n].now.DHCP, c.links[n].now.DHCP6} {
			if d != nil {
				w.sample(float64(d.Drops.Malformed+d.Drops.Contradictory), "link", n, "family", []string{"ipv4", "ipv6"}[i])
			}
		}
	}
	if !c.once {
		w.family("ibnetwork_link_carrier_lost_total", "counter", "How often the link lost carrier.")
		for _, n := range links {
			w.sample(float64(c.links[n].lost), "link", n)
		}
		w.family("ibnetwork_link_rejoins_total", "counter",
			"How often the link got carrier again: for IPoIB, the broadcast group was joined again.")
		for _, n := range links {
			w.sample(float64(c.links[n].rejoins), "link", n)
		}

		w.family("ibnetwork_operations_total", "counter", "Operations carried out, by kind and result.")
		for _, k := range slices.SortedFunc(maps.Keys(c.ops), func(a, b [2]string) int { return strings.Compare(a[0]+a[1], b[0]+b[1]) }) {
			w.sample(float64(c.ops[k]), "operation", k[0], "result", k[1])
		}
	}
}

func (c *Collector) writeSMs(w *writer) {
	guids := slices.Sorted(maps.Keys(c.sms))
	w.family("ibnetwork_subnet_manager_phase", "gauge", "1 for the phase that the subnet manager of a port is in.")
	for _, g := range guids {
		s := c.sms[g]
		w.sample(1, "device", s.IBDevice, "port", strconv.Itoa(s.Port), "phase", string(s.Phase))
	}
	w.family("ibnetwork_subnet_manager_running", "gauge", "1 if this host runs the subnet manager of the port.")
	for _, g := range guids {
		s := c.sms[g]
		w.sample(boolean(s.WorkerState == "active"), "device", s.IBDevice, "port", strconv.Itoa(s.Port))
	}
	w.family("ibnetwork_subnet_manager_starts_total", "counter", "How often this daemon started the subnet manager of the port.")
	for _, g := range guids {
		s := c.sms[g]
		w.sample(float64(s.Starts), "device", s.IBDevice, "port", strconv.Itoa(s.Port))
	}
}

func boolean(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// writer prints the text format; a family without samples is left out.
type writer struct {
	b       bytes.Buffer
	name    string
	pending string
}

func (w *writer) family(name, kind, help string) {
	w.name = name
	w.pending = fmt.Sprintf("# HELP %s %s\n# TYPE %s %s\n", name, help, name, kind)
}

var escaper = strings.NewReplacer("\\", `\\`, "\n", `\n`, `"`, `\"`)

func (w *writer) sample(v float64, labels ...string) {
	w.print(strconv.FormatFloat(v, 'f', -1, 64), labels...)
}

func (w *writer) print(v string, labels ...string) {
	w.b.WriteString(w.pending)
	w.pending = ""
	w.b.WriteString(w.name)
	for i := 0; i+1 < len(labels); i += 2 {
		sep := ","
		if i == 0 {
			sep = "{"
		}
		w.b.WriteString(sep + labels[i] + `="` + escaper.Replace(strings.ToValidUTF8(labels[i+1], "?")) + `"`)
	}
	if len(labels) > 0 {
		w.b.WriteByte('}')
	}
	w.b.WriteByte(' ')
	w.b.WriteString(v)
	w.b.WriteByte('\n')
}
