package engine

import (
	"cmp"
	"fmt"
	"math"
	"time"

	"ibnetworkd/ib"
	"ibnetworkd/sm/fabric"
	"ibnetworkd/sm/program"
	"ibnetworkd/sm/qos"
	"ibnetworkd/sm/route"
)

// routes is what was computed for fab.
type routes struct {
	lft    [][]uint8
	sl     route.Layers
	layers int
	levels int // how many of them there might be, 0 for none
	engine string
	order  []ib.GUID // of the switches, for the next tables to keep to
	worst  float64   // flows over the busiest link, see route.Result
	bound  float64   // and what no tables are below
	qos    *qos.Tables
	trunk  []uint8   // the tree that multicast takes, see route.Result
	at     []ib.GUID // of the switches, by the index that sl is by

	// compareAt is when tables that were only repaired (route.Result.Early) are compared with new
	// ones, zero for others.
	compareAt time.Time

	noTree   string // see route.Result
	warnings []string
	saved    bool // in Config.Routes: set by remember, cleared with the next routes
	forgot   bool // no tables of lanes are there: set by forgetLanes, cleared likewise
}

// compareDelay is for how long no cable goes or comes before tables that were only repaired
// are compared with new ones: a change during that computation waits for its end.
const compareDelay = time.Second

// compareReason is the reason of the sweep that does.
const compareReason = "repaired routes are compared with new ones"

// figures are of routes what compareRoutes compares.
type figures struct {
	engine       string
	worst, bound float64
}

// built is what was computed for a fabric.
type built struct {
	route.Result
	qos       *qos.Tables
	err, lack error       // no routes; no lanes for the service levels
	known     *remembered // what was in force before the start, nil for nothing
	lanes     program.Lanes
	refused   error // why what was remembered is not used
}

func build(f *fabric.Fabric, opt route.Options, q *qos.Options) (b built) {
	b.Result, b.err = route.Build(f, opt)
	if b.err != nil || q == nil {
		return b
	}
	if b.qos, b.lack = qos.Build(f, b.NumLayers, *q); b.lack != nil && b.NumLayers > 1 {
		opt.Layers = 0
		b.Result, b.err = route.Build(f, opt)
	}
	return b
}

// ownLevels are what service levels are chosen for beside routes, by the names that an
// administrator has for it.
func (c *Config) ownLevels() (out []string) {
	if c.QoSPolicy != nil {
		out = append(out, "QoS policy")
	}
	for i := range c.Partitions.Partitions {
		p := &c.Partitions.Partitions[i]
		if sl := p.Params.SL; sl != 0 {
			out = append(out, fmt.Sprintf("SL %d of partition %s", sl, cmp.Or(p.Name, fmt.Sprintf("%#x", p.PKey))))
		}
	}
	if c.QoS != nil && (c.QoS.Weights != [16]uint8{} || c.QoS.High != [16]bool{}) {
		out = append(out, "weights of service levels")
	}
	return out
}

// levelsMost bounds the service levels that routes use.
const levelsMost = 8

// levels is how many service levels routes may use: as many as there are lanes.
func levels(q *qos.Options) int {
	if q.MaxVLs > 0 {
		return min(levelsMost, qos.VLs(qos.Code(q.MaxVLs)))
	}
	return levelsMost
}

// fallFactor is by how much the busiest link may get busier, beside what the
// cabling allows, before that is a warning; where the engine stays.
const fallFactor = 2

// treeFactor and otherFactor are how many times what the cabling allows the busiest link of
// first tables may have before that is a warning: routes of trees have up to 1.2 times that,
// those of other graphs on one lane up to 2.7 times (docs/benchmarks.md).
const treeFactor, otherFactor = 2, 3

// compareRoutes warns when the first tables are much worse than the cabling allows, or tables
// are much worse than the last, or at all worse because the engine leaves ftree or dor.
func (s *Subnet) compareRoutes(r *route.Result) {
	old := s.prog.compared
	s.prog.compared = figures{r.Engine, r.Worst, r.Bound}
	if old.engine != "" && old.engine != r.Engine {
		args := []any{"routing", r.Engine, "routing_before", old.engine, "busiest_link_flows", math.Round(r.Worst),
			"at_best", math.Round(r.Bound)}
		if r.NoTree != "" {
			args = append(args, "why_not_ftree", r.NoTree)
		}
		s.log.Info("the routing engine changed", args...)
	}
	factor := float64(otherFactor)
	if r.Engine == route.FatTree {
		factor = treeFactor
	}
	if old.engine == "" && r.Bound > 0 && r.Worst > factor*r.Bound {
		args := []any{"busiest_link_flows", math.Round(r.Worst), "at_best", math.Round(r.Bound), "routing", r.Engine}
		if r.NoTree != "" {
			args = append(args, "why_not_ftree", r.NoTree)
		}
		s.log.Warn("routes are far less balanced than the cabling allows", args...)
	}
	least := float64(fallFactor)
	if old.engine != r.Engine && (old.engine == route.FatTree || old.engine == route.DOR) {
		least = 1
	}
	if old.worst == 0 || old.bound == 0 || r.Bound == 0 || r.Worst/r.Bound <= least*old.worst/old.bound {
		return
	}
	args := []any{"busiest_link_flows", math.Round(r.Worst), "at_best", math.Round(r.Bound), "before", math.Round(old.worst),
		"at_best_before", math.Round(old.bound), "routing", r.Engine, "routing_before", old.engine}
	if r.NoTree != "" {
		args = append(args, "why_not_ftree", r.NoTree)
	}
	s.log.Warn("routes are less balanced than before", args...)
}

// levelTo is the service level between the manager and an end port, which is
// the same both ways.
func levelTo(f *fabric.Fabric, sl route.Layers, port int32) ib.SL {
	a, _ := f.SwitchOf(f.SMPort)
	b, _ := f.SwitchOf(port)
	if a == fabric.None || b == fabric.None || a == b {
		return 0
	}
	return sl.SL(a, b)
}
