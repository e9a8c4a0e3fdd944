package engine

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"ibnetworkd/ib"
	"ibnetworkd/sm/control"
	"ibnetworkd/sm/elect"
	"ibnetworkd/sm/fabric"
	"ibnetworkd/sm/mad"
	"ibnetworkd/sm/sa"
)

// Snapshot is what a subnet shows of itself; it is immutable.
type Snapshot struct {
	Device    string    `json:"device"`
	Port      uint8     `json:"port"`
	PortGUID  ib.GUID   `json:"port_guid"`
	LID       ib.LID    `json:"lid"`
	PortState string    `json:"port_state"`
	State     string    `json:"state"` // Discovering, Standby, Master, NotActive
	Priority  uint8     `json:"priority"`
	Master    *Manager  `json:"master,omitempty"` // the one this standby polls
	Others    []Manager `json:"others,omitempty"` // other managers in the subnet
	// DoubledLIDs is how many LIDs two ports have, while another master that is
	// not trusted gives out LIDs too.
	DoubledLIDs int    `json:"doubled_lids,omitempty"`
	Routing     string `json:"routing,omitempty"`
	Layers      int    `json:"layers,omitempty"` // service levels that routes use, if more than one
	TopLID      ib.LID `json:"top_lid,omitempty"`
	// BusiestLink is the number of pairs of hosts whose flow passes the busiest link between
	// switches, AtBest what no tables can be below; see route.Result.
	BusiestLink float64         `json:"busiest_link_flows,omitempty"`
	AtBest      float64         `json:"busiest_link_at_best,omitempty"`
	WhyNotTree  string          `json:"why_not_ftree,omitempty"` // see route.Result
	Sweeps      int             `json:"sweeps"`
	LastSweep   SweepStats      `json:"last_sweep"`
	Nodes       int             `json:"nodes"`
	Switches    int             `json:"switches"`
	EndPorts    int             `json:"end_ports"`
	Links       int             `json:"links"`
	Groups      int             `json:"multicast_groups"`
	Retrying    []ib.GUID       `json:"retrying,omitempty"` // nodes that did not answer or obey
	Drained     []control.Drain `json:"drained,omitempty"`  // switches that routes avoid
	// Problems are what discovery found since it last read everything: parts beyond the
	// reach of directed routes, duplicate GUIDs, nodes with strange answers.
	Problems   []string    `json:"discovery_problems,omitempty"`
	Counters   Counters    `json:"counters"`
	SACounters sa.Counters `json:"sa_counters"`
	At         time.Time   `json:"at"`

	// Routes is how routes are computed.
	Routes control.Routing `json:"-"`
	// Fabric is the subnet as last published, nil unless master.
	Fabric *fabric.Fabric `json:"-"`
}

// Manager is another subnet manager.
type Manager struct {
	GUID     ib.GUID `json:"guid"`
	LID      ib.LID  `json:"lid"`
	Priority uint8   `json:"priority"`
	State    string  `json:"state"`
	// Problem says why it is not trusted: neither hands over to the other.
	Problem string `json:"problem,omitempty"`
}

func (s *Subnet) manager(p elect.Peer) Manager {
	return Manager{p.Info.GUID, p.LID, p.Info.Priority, p.Info.State.String(), s.elect.Problem(p.Info)}
}

// Snapshot gives the state as last published; it may be called from any
// goroutine and is nil before Run.
func (s *Subnet) Snapshot() *Snapshot { return s.state.Load() }

// Refresh publishes the state and counters of now and gives them; after Run it
// gives the last ones.
func (s *Subnet) Refresh() *Snapshot {
	done := make(chan struct{})
	s.do(func() { s.publish(); close(done) })
	select {
	case <-done:
	case <-s.stopped:
	case <-time.After(time.Second):
	}
	return s.Snapshot()
}

func (s *Subnet) publish() {
	s.counters.Again, s.counters.Expired = s.in.dropped()
	s.counters.Busy = s.in.refused.Load()
	x := &Snapshot{
		Device: s.port.Device, Port: s.port.Num, PortGUID: s.port.PortGUID, LID: s.port.LID, PortState: s.port.State.String(),
		State: s.elect.State().String(), Priority: s.cfg.Priority, DoubledLIDs: s.rivals.doubled,
		Routing: s.prog.want.engine, TopLID: s.prog.top,
		BusiestLink: math.Round(s.prog.want.worst), AtBest: math.Round(s.prog.want.bound), WhyNotTree: s.prog.want.noTree,
		Sweeps: s.sweeps.count, LastSweep: s.sweeps.last, Retrying: slices.Clone(s.sweeps.failedAt),
		Counters: s.counters.copy(), SACounters: s.served.admin.Counters(), At: time.Now(),
	}
	x.Routes = s.routing(x)
	if n := s.prog.want.layers; n > 1 {
		x.Layers = n
	}
	if s.elect.State() == mad.SMStandby {
		x.Master = new(s.manager(s.elect.Master()))
	}
	for _, p := range s.elect.Peers() {
		if x.Master != nil && p.Info.GUID == x.Master.GUID {
			continue
		}
		x.Others = append(x.Others, s.manager(p))
	}
	if f := s.prog.shown; f != nil && s.elect.State() == mad.SMMaster {
		x.Fabric = s.cfg.Names.Apply(f)
		x.Problems = s.problems(x.Fabric)
		x.Nodes, x.Switches, x.EndPorts, x.Links = len(f.Nodes), len(f.Switches), len(f.EndPorts), s.sweeps.last.Links
		x.Groups = s.served.admin.NumGroups()
		if f.SMPort != fabric.None {
			x.LID = f.Ports[f.SMPort].LID
		}
	}
	if len(s.drained) > 0 {
		x.Drained = s.drains(x.Fabric)
	}
	if n := s.self.senders.Load(); n == nil && s.prog.shown != nil || n != nil && n.fab != s.prog.shown {
		s.self.senders.Store(newSenders(s.prog.shown, s.prog.owner))
	}
	s.state.Store(x)
	if s.cfg.Changed != nil {
		s.cfg.Changed(x)
	}
}

// problems are what is wrong in the fabric and lasts: what discovery found, links that are
// left out of the routes, and ports that send traps without end.
func (s *Subnet) problems(f *fabric.Fabric) (out []string) {
	for _, p := range s.sweeps.problems {
		out = append(out, p.Text)
	}
	for _, l := range s.sweeps.flaps.LeftOut() {
		n := f.NodeByGUID(l.Node)
		if n == fabric.None {
			continue
		}
		if p := f.Port(n, l.Port); p != fabric.None && f.Ports[p].Peer == fabric.None { // a walk of everything leaves none out
			out = append(out, fmt.Sprintf("the link at port %s[%d] goes down too often; it is left out of the routes until %s: check the cable "+
				"and both ports", f.Nodes[n].Name(), l.Port, l.Until.Format(time.TimeOnly)))
		}
	}
	for _, k := range s.babbles.loud() {
		out = append(out, fmt.Sprintf("%s comes too often from %s; it is acted on every %v at most: check the cables and the firmware "+
			"of that node", trapName(k.trap), s.sourceName(k.from), babbleEvery))
	}
	return out[:min(len(out), problemsMost)]
}

// RoutesWords describes the tables in force.
func (x *Snapshot) RoutesWords() string {
	return (&control.Routing{InForce: x.Routing, Layers: x.Layers, BusiestLink: x.BusiestLink, AtBest: x.AtBest,
		WhyNotTree: x.WhyNotTree}).Words()
}

// routing is how routes are computed; it shares lists, none of which changes.
func (s *Subnet) routing(x *Snapshot) control.Routing {
	r := &s.cfg.Route
	levels := 0
	if s.prog.want.lft != nil {
		levels = max(s.prog.want.levels, 1)
	}
	out := control.Routing{Device: x.Device, Port: x.Port, PortGUID: x.PortGUID, State: x.State, Engine: r.Engine,
		QoS: s.cfg.QoS != nil && len(s.prog.noVLs) == 0, Levels: levels, OwnLevels: len(s.cfg.ownLevels()) > 0,
		Roots: r.Roots, Compute: r.Compute, IO: r.IO, HopWeights: r.HopWeights, HostOrder: r.HostOrder, Drained: s.drained, LMC: s.cfg.LMC,
		InForce: s.prog.want.engine, Layers: s.prog.want.layers, Order: s.prog.want.order,
		BusiestLink: x.BusiestLink, AtBest: x.AtBest, WhyNotTree: x.WhyNotTree}
	if w := &s.prog.want; w.sl != nil && len(w.at) <= control.MostLevels {
		out.At, out.SL, out.Trunk = w.at, w.sl, w.trunk
	}
	return out
}

// copy copies the counters for another goroutine.
func (c *Counters) copy() Counters {
	d := *c
	d.Sent = make(map[string]uint64, len(c.hot))
	for _, h := range c.hot {
		if h.n > 0 {
			d.Sent[h.key.m.String()+" "+mad.AttrName(mad.ClassSubnDR, h.key.a)] += h.n
		}
	}
	d.Received = maps.Clone(c.Received)
	return d
}
