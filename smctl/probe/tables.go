package probe

import (
	"context"
	"math/rand/v2"
	"slices"

	"ibnetworkd/ib"
	"ibnetworkd/sm/discover"
	"ibnetworkd/sm/explain"
	"ibnetworkd/sm/fabric"
	"ibnetworkd/sm/mad"
	"ibnetworkd/sm/program"
	"ibnetworkd/sm/smp"
	"ibnetworkd/sm/transport"
)

// Tables walks the fabric and reads the forwarding table of every switch. A row of
// the tables is nil for a switch that does not answer. Whichever subnet manager
// wrote them: the engine is not known.
func Tables(ctx context.Context, c Conn) (r *explain.Routes, warnings []string, err error) {
	d := discover.New(discover.Options{})
	if err := run(ctx, c, d); err != nil {
		return nil, nil, err
	}
	res := d.Result()
	if res.Fabric == nil {
		return nil, nil, errSilent
	}
	f := res.Fabric
	// A walk leaves the LIDs to the manager that assigns them; here those count
	// that the ports have.
	for _, e := range f.EndPorts {
		if p := &f.Ports[e]; p.Known && p.Info.LID().IsUnicast() {
			p.LID, p.LMC = p.Info.LID(), p.Info.LMC()
		}
	}
	l := program.ReadLFT{Fabric: f, Skip: func(int) bool { return false }}
	if err := run(ctx, c, &l); err != nil {
		return nil, nil, err
	}
	r = &explain.Routes{Fabric: f, Live: true, Keys: make([][]ib.PKey, len(f.Ports))}
	r.LFT, r.NumLayers = l.Rows, 1
	warnings = slices.Clone(res.Warnings)
	for _, s := range res.Silent {
		warnings = append(warnings, "no answer from behind "+s)
	}
	for _, s := range res.Duplicates {
		warnings = append(warnings, s.String())
	}
	return r, warnings, nil
}

// Keys reads the P_Key tables of some end ports into those of r. It gives the ports
// that refuse.
func Keys(ctx context.Context, c Conn, r *explain.Routes, ports ...int32) (silent []int32, err error) {
	var l smp.List
	for _, p := range ports {
		n := &r.Fabric.Nodes[r.Fabric.Ports[p].Node]
		path, ok := program.PathTo(r.Fabric, p)
		if !ok {
			silent = append(silent, p)
			continue
		}
		r.Keys[p] = make([]ib.PKey, 0, n.PKeyCap)
		for b := range max(1, (min(int(n.PKeyCap), 2048)+31)/32) {
			l.Requests = append(l.Requests, smp.Request{Method: mad.MethodGet, Attr: mad.AttrPKeyTable, Mod: mad.PKeyMod(0, uint16(b)),
				Path: path, Tag: uint64(p)})
		}
	}
	l.Done = func(a *smp.Reply) {
		var b mad.PKeyBlock
		if !a.OK() || b.Decode(a.Data[:]) != nil {
			silent = append(silent, int32(a.Tag))
			return
		}
		for _, k := range b {
			if k.IsValid() {
				r.Keys[a.Tag] = append(r.Keys[a.Tag], k)
			}
		}
	}
	err = run(ctx, c, &l)
	slices.Sort(silent)
	return slices.Compact(silent), err
}

// Lanes reads the virtual lanes of a service level on the way out of each hop of
// some paths, into r.VL. What does not answer is taken to use lane 0.
func Lanes(ctx context.Context, c Conn, r *explain.Routes, paths ...explain.Path) error {
	f := r.Fabric
	type way struct{ in, out int32 }
	tables := map[way]mad.SLtoVL{}
	var l smp.List
	var ways []way
	for _, p := range paths {
		in := fabric.None
		for _, h := range p.Hops {
			w := way{in, h.Out}
			in = h.In
			to, ok := program.PathTo(f, h.Out)
			if !ok || slices.Contains(ways, w) {
				continue
			}
			mod := uint32(0)
			if f.Nodes[f.Ports[h.Out].Node].Switch != fabric.None {
				from := uint8(0)
				if w.in != fabric.None {
					from = f.Ports[w.in].Num
				}
				mod = mad.SLtoVLMod(from, f.Ports[h.Out].Num)
			}
			l.Requests = append(l.Requests, smp.Request{Method: mad.MethodGet, Attr: mad.AttrSLtoVL, Mod: mod, Path: to, Tag: uint64(len(ways))})
			ways = append(ways, w)
		}
	}
	l.Done = func(a *smp.Reply) {
		var t mad.SLtoVL
		if a.OK() && t.Decode(a.Data[:]) == nil {
			tables[ways[a.Tag]] = t
		}
	}
	if err := run(ctx, c, &l); err != nil {
		return err
	}
	r.VL = func(in, out int32, sl ib.SL) ib.VL { return tables[way{in, out}][sl&15] }
	return nil
}

// AskPath queries the subnet administrator at a LID for the PathRecord from one LID
// to another. ok is false when it has none or does not answer.
func AskPath(ctx context.Context, c Conn, sa, slid, dlid ib.LID) (rec mad.PathRecord, ok bool, err error) {
	p := transport.Packet{LID: sa, QPN: 1, Timeout: timeout, Retries: retries}
	p.SetMessage(explain.PathRequest(slid, dlid, rand.Uint32()), false)
	q, err := exchange(ctx, c, &p)
	if err != nil || q == nil {
		return rec, false, err
	}
	rec, ok = explain.ReadRecord(q.MAD[:])
	return rec, ok, nil
}
