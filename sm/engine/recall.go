package engine

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"ibnetworkd/ib"
	"ibnetworkd/internal/version"
	"ibnetworkd/sm/fabric"
	"ibnetworkd/sm/qos"
	"ibnetworkd/sm/route"
)

// remembered is what Config.Routes keeps of routes in force. A manager that starts again
// and finds these tables takes them for its own: what was computed step by step, along
// with hosts and cables, is not what would be computed from nothing.
type remembered struct {
	Version  string       `json:"version"` // of the program
	For      string       `json:"for"`     // sum of the fabric and the options
	Tables   []string     `json:"tables"`  // sums of the forwarding tables, by switch of At
	Engine   string       `json:"engine"`
	Layers   int          `json:"layers"`
	Worst    float64      `json:"worst"`
	Bound    float64      `json:"bound"`
	NoTree   string       `json:"no_tree,omitempty"`
	Order    []ib.GUID    `json:"order,omitempty"`
	At       []ib.GUID    `json:"at"` // the switches that the next two and Tables are by
	SL       route.Layers `json:"sl,omitempty"`
	Trunk    []uint8      `json:"trunk,omitempty"`
	Warnings []string     `json:"warnings,omitempty"`
	Lanes    []nodeLanes  `json:"lanes,omitempty"`
}

// readRoutes reads what a manager of this port remembered of its routes, nil without it.
func (s *Subnet) readRoutes() *remembered {
	if s.cfg.Routes == nil {
		return nil
	}
	b, err := s.cfg.Routes.Load()
	if err == nil && len(b) == 0 {
		return nil
	}
	var m *remembered
	if err == nil {
		m, err = decodeRoutes(b)
	}
	if err != nil {
		s.log.Warn("remembered routes are not used", "err", err)
	}
	return m
}

var errDamaged = errors.New("the file is damaged")

// encode gives what is stored: a line with the sum of the rest, which is JSON.
func (m *remembered) encode() ([]byte, error) {
	b, err := json.Marshal(m)
	return slices.Concat([]byte(sumBytes(b)+"\n"), b), err
}

// decodeRoutes is the reverse of encode.
func decodeRoutes(b []byte) (*remembered, error) {
	m := new(remembered)
	if sum, text, _ := bytes.Cut(b, []byte("\n")); string(sum) != sumBytes(text) || json.Unmarshal(text, m) != nil || !m.valid() {
		return nil, errDamaged
	}
	return m, nil
}

func (m *remembered) valid() bool {
	n := len(m.At)
	wrong := func(row []uint8) bool { return len(row) != n || n > 0 && int(slices.Max(row)) >= m.Layers }
	return m.Layers > 0 && m.Layers <= levelsMost && len(m.Tables) == n && (m.Trunk == nil || len(m.Trunk) == n) &&
		(m.SL == nil || len(m.SL) == n && !slices.ContainsFunc(m.SL, wrong))
}

func sumBytes(b []byte) string {
	h := sha256.Sum256(b)
	return hex.EncodeToString(h[:])
}

// recall gives the routes that were remembered, if the fabric has their tables and nothing
// that they depend on has changed; else routes that follow these tables, also if some switches have
// restarted and lack theirs. Those that do not lead
// everywhere are not used, nor are those with a credit loop that no named engine leaves. The
// result has a list of rows of its own, for a sweep drops rows of opt.Previous that it writes
// whole.
func (m *remembered) recall(g *fabric.Fabric, opt route.Options, q *qos.Options) built {
	ours, all := m.has(g, opt.Previous)
	if !ours {
		return build(g, opt, q)
	}
	if m.NoTree != "" || m.Engine == route.FatTree {
		opt.Before = route.FatTree // so that the reason is found again
	}
	if all && m.Version == version.String() && m.For == sumFor(g, &opt) && slices.Equal(m.At, g.SwitchGUIDs()) {
		if err := route.Verify(g, opt.Previous, m.SL, opt.MayLoop()); err != nil {
			opt.Previous = nil
			b := build(g, opt, q)
			b.refused, b.known = err, m // hosts have its levels
			return b
		}
		b := built{Result: route.Result{LFT: slices.Clone(opt.Previous), Engine: m.Engine, SL: m.SL, NumLayers: m.Layers, Order: m.Order,
			Trunk: m.Trunk, Worst: m.Worst, Bound: m.Bound, NoTree: m.NoTree, Warnings: m.Warnings}, known: m}
		if q == nil {
			return b
		}
		if b.qos, b.lack = qos.Build(g, b.NumLayers, *q); b.lack == nil || b.NumLayers <= 1 {
			return b
		}
	}
	opt.Order, opt.SL, opt.Trunk = m.Order, m.SL.Carry(m.At, g), route.CarryTrunk(m.Trunk, m.At, g)
	b := build(g, opt, q)
	b.known = m
	return b
}

// has reports whether the tables of a fabric are those that were remembered, but for switches
// without any, at most half of them; all is false if there are such or others.
func (m *remembered) has(g *fabric.Fabric, lft [][]uint8) (ours, all bool) {
	if m == nil {
		return false, false
	}
	at := map[ib.GUID]string{}
	for i, guid := range m.At {
		at[guid] = m.Tables[i]
	}
	blank := 0
	for i, sum := range sumTables(g, lft) {
		switch {
		case isBlank(lft, i):
			blank++
		case at[g.Nodes[g.Switches[i].Node].GUID] != sum:
			return false, false
		}
	}
	return 2*blank <= len(g.Switches), blank == 0 && len(m.At) == len(g.Switches)
}

// isBlank reports whether a switch has an empty table, as one that has restarted.
func isBlank(lft [][]uint8, sw int) bool {
	return sw >= len(lft) || len(bytes.TrimRight(lft[sw], "\xff")) == 0
}

// remember keeps the routes in force for the next start, unless more is to be done first.
func (w *sweep) remember(ctx context.Context) error {
	s := w.s
	r := &s.prog.want
	if s.cfg.Routes == nil || r.saved || !r.compareAt.IsZero() || w.failed > 0 || s.ev.any() || s.prog.reroute {
		return nil
	}
	g := s.routed(w.f)
	opt := s.cfg.Route
	opt.Layers, opt.OwnLevels = r.levels, len(s.cfg.ownLevels()) > 0
	m := remembered{Version: version.String(), Engine: r.engine, Layers: r.layers, Worst: r.worst, Bound: r.bound, NoTree: r.noTree,
		Order: r.order, At: r.at, SL: r.sl, Trunk: r.trunk, Warnings: r.warnings}
	f, lanes := w.f, w.have.lanes
	var err error
	r.saved, err = s.saveRoutes(ctx, func() *remembered {
		m.For, m.Tables = sumFor(g, &opt), sumTables(g, r.lft)
		if r.qos != nil {
			m.Lanes = sumLanes(f, r.qos, &lanes)
		}
		return &m
	})
	return err
}

// forgetLanes drops the tables of lanes that are remembered, before others are written: the
// sweep may end before these are.
func (w *sweep) forgetLanes(ctx context.Context) error {
	s := w.s
	r := &s.prog.want
	if s.cfg.Routes == nil || r.saved || r.forgot {
		return nil
	}
	_, err := s.saveRoutes(ctx, func() *remembered {
		m := s.readRoutes()
		if m == nil || m.Lanes == nil {
			return nil
		}
		m.Lanes = nil
		return m
	})
	r.forgot = err == nil
	return err
}

// saveRoutes saves what is to be remembered, which content computes beside the engine; nil leaves the
// file as it is. It reports whether the file can be used; an error ends the sweep.
func (s *Subnet) saveRoutes(ctx context.Context, content func() *remembered) (ok bool, err error) {
	problem, err := compute(ctx, s, func() error {
		m := content()
		if m == nil {
			return nil
		}
		b, err := m.encode()
		if err != nil {
			return err
		}
		return s.cfg.Routes.Save(b)
	})
	if err == nil && problem != nil {
		s.warnOnce("remember", "routes are not remembered", "err", problem)
	}
	return err == nil && problem == nil, err
}

// sumFor is a sum of what routes depend on: the shape of the fabric, as sameShape has it,
// and the options, without what is in force and what changes the time alone.
func sumFor(g *fabric.Fabric, opt *route.Options) string {
	h := sha256.New()
	o := *opt
	o.Previous, o.Order, o.SL, o.Trunk, o.Before, o.Processors = nil, nil, nil, nil, "", 0
	fmt.Fprintf(h, "%+v\n", o)
	b := make([]byte, 0, 1<<12)
	for i := range g.Ports {
		p := &g.Ports[i]
		n := &g.Nodes[p.Node]
		b = binary.BigEndian.AppendUint64(b, uint64(n.GUID))
		b = append(b, byte(n.Type), n.NumPorts, p.Num, byte(p.LMC))
		b = binary.BigEndian.AppendUint16(b, uint16(p.LID))
		b = binary.BigEndian.AppendUint32(b, uint32(p.Peer))
		if betweenSwitches(g, int32(i)) {
			b = append(b, byte(g.LinkRate(int32(i))), g.LinkVLCap(int32(i)))
		}
		if len(b) > 1<<12-64 {
			h.Write(b)
			b = b[:0]
		}
	}
	h.Write(b)
	return hex.EncodeToString(h.Sum(nil))
}

// sumTables is the sums of forwarding tables.
func sumTables(g *fabric.Fabric, lft [][]uint8) (out []string) {
	for i := range g.Switches {
		var row []uint8
		if i < len(lft) {
			row = bytes.TrimRight(lft[i], "\xff")
		}
		h := sha256.Sum256(row)
		out = append(out, hex.EncodeToString(h[:8]))
	}
	return out
}
