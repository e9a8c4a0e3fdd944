package engine

import (
	"context"
	"slices"
	"time"

	"ibnetworkd/ib"
	"ibnetworkd/ib/partition"
	"ibnetworkd/sm/fabric"
	"ibnetworkd/sm/route"
	"ibnetworkd/sm/sa"
)

// pathLevels are service levels, and the switches that they are by.
type pathLevels struct {
	sl route.Layers
	at []ib.GUID // nil: none were ever served
}

// setLevels lets the SA answer with the service levels that the next tables are made
// for, before the first block of these is written. Hosts that have path records with
// other levels must ask again: on their old ones the new tables may close a loop.
func (w *sweep) setLevels(context.Context) error {
	s, next := w.s, pathLevels{w.s.prog.want.sl, w.f.SwitchGUIDs()}
	changed := w.newLevels(&s.prog.levels, next.sl)
	asked := 0
	for _, e := range w.f.EndPorts {
		if sw, _ := w.f.SwitchOf(e); sw != fabric.None && changed[sw] && w.f.Ports[e].Num != 0 {
			s.served.reregister = append(s.served.reregister, w.f.Ports[e].GUID)
			asked++
		}
	}
	if asked > 0 {
		s.log.Info("service levels of paths changed", "asked_to_register", asked, "hosts", len(w.f.EndPorts)-len(w.f.Switches))
	}
	used := s.prog.levels.sl != nil || next.sl != nil
	s.prog.levels = next.withGone(&s.prog.levels, w.f)
	l := sa.Levels{SL: s.prog.levels.sl, At: s.prog.levels.at, Trunk: s.prog.want.trunk, Drained: slices.Clone(s.drained)}
	if s.prog.want.levels > 1 && s.prog.want.engine != route.FatTree {
		l.Order = s.prog.want.order // what decides whether there are levels
	}
	was := s.served.admin.Version()
	s.served.admin.SetLevels(l)
	if s.publishVersion(); used && s.served.admin.Version() != was {
		s.served.newLevels = s.followers.now()
	}
	return nil
}

// levelsUncopied reports whether a standby that may take over any time does not have the
// levels that the SA gives now.
func (s *Subnet) levelsUncopied(now time.Time) bool {
	if s.served.newLevels == 0 || s.followers.copied(s.served.newLevels, now, false) {
		s.served.newLevels = 0
		return false
	}
	return true
}

// inheritLevels begins from the levels that the former master gave.
func (w *sweep) inheritLevels() {
	s := w.s
	if !w.first || s.copied.regs == nil {
		return
	}
	l := s.copied.regs.Levels()
	w.was.sl, w.was.at, w.was.trunk, w.was.order = l.SL, l.At, l.Trunk, l.Order
	s.prog.levels = pathLevels{l.SL, l.At}
}

// goneMost bounds the switches that levels are remembered of after they left.
const goneMost = 256

// withGone adds the levels that paths of switches had that are gone: when these come back,
// hosts elsewhere may have path records from before.
func (l pathLevels) withGone(old *pathLevels, f *fabric.Fabric) pathLevels {
	var gone []int
	for i, g := range old.at {
		if f.NodeByGUID(g) == fabric.None && len(gone) < goneMost {
			gone = append(gone, i)
		}
	}
	if l.sl == nil || old.sl == nil || len(gone) == 0 {
		return l
	}
	index := make([]int, 0, len(l.at)+len(gone)) // in old, -1 for new switches
	for _, g := range l.at {
		index = append(index, slices.Index(old.at, g))
	}
	index = append(index, gone...)
	out := pathLevels{at: slices.Clone(l.at), sl: make(route.Layers, len(index))}
	for _, i := range gone {
		out.at = append(out.at, old.at[i])
	}
	for a := range index {
		out.sl[a] = make([]uint8, len(index))
		for b := range index {
			switch {
			case a < len(l.at) && b < len(l.at):
				out.sl[a][b] = l.sl[a][b]
			case index[a] >= 0 && index[b] >= 0:
				out.sl[a][b] = old.sl[index[a]][index[b]]
			}
		}
	}
	return out
}

// newLevels has by switch whether a path between it and another one, or within it, has
// another level than was served. Paths of a switch that is new were not.
func (w *sweep) newLevels(old *pathLevels, sl route.Layers) []bool {
	out := make([]bool, len(w.f.Switches))
	if old.at == nil || old.sl == nil && sl == nil {
		return out
	}
	if (old.sl == nil) != (sl == nil) && w.ownLevels() {
		return slices.Repeat([]bool{true}, len(out)) // those without layers are not by switch
	}
	was := old.sl.Carry(old.at, w.f)
	known := make([]bool, len(out))
	for _, g := range old.at {
		if n := w.f.NodeByGUID(g); n != fabric.None && w.f.Nodes[n].Switch != fabric.None {
			known[w.f.Nodes[n].Switch] = true
		}
	}
	for a := range int32(len(out)) {
		for b := range a + 1 {
			if known[a] && known[b] && (was.SL(a, b) != sl.SL(a, b) || was.SL(b, a) != sl.SL(b, a)) {
				out[a], out[b] = true, true
			}
		}
	}
	return out
}

// ownLevels reports whether paths have service levels besides those of routing.
func (w *sweep) ownLevels() bool {
	return w.s.cfg.QoSPolicy != nil || slices.ContainsFunc(w.keys.Groups, func(g partition.Precreated) bool { return g.SL != 0 })
}
