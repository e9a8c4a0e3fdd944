// Package qos decides how service levels share the links: the SL-to-VL mapping
// and the VL arbitration tables that ports should have.
//
// Without a configuration each service level gets a virtual lane of its own as far
// as a link has lanes, so that the layers of a routing engine stay apart, and all
// lanes share a link equally. The functions are pure; program compares their result
// with the ports and writes.
package qos

import (
	"fmt"

	"ibnetworkd/ib"
	"ibnetworkd/sm/fabric"
	"ibnetworkd/sm/mad"
)

// Options are what an administrator may ask for.
type Options struct {
	// MaxVLs bounds the data lanes in use, 1 to 15; 0 means what links have.
	MaxVLs int
	// Weights are the shares of the service levels on a link, 1 to 255 in
	// units of 64 bytes; 0 counts as 1. All zero means equal shares.
	Weights [16]uint8
	// High are the service levels whose lanes go first.
	High [16]bool
	// InUse bounds the lanes of links by port: those in use may not take more than they
	// were brought up with. 0, and nil for all, is no bound.
	InUse []uint8
}

// Tables answers for every port of a fabric. The zero value is of no use; make
// it with Build.
type Tables struct {
	f     *fabric.Fabric
	opt   Options
	lanes []uint8 // by port: data lanes in use on its link
}

// VLs is the number of data lanes of a VLCap or OperationalVLs code: 1, 2, 4, 8 or
// 15; 0 for other codes.
func VLs(code uint8) int {
	switch code {
	case 1, 2, 3, 4:
		return 1 << (code - 1)
	case 5:
		return 15
	}
	return 0
}

// Code is the OperationalVLs code for at most n lanes.
func Code(n int) uint8 {
	switch {
	case n >= 15:
		return 5
	case n >= 8:
		return 4
	case n >= 4:
		return 3
	case n >= 2:
		return 2
	}
	return 1
}

// Build computes the lanes of all links. layers is the number of service levels
// that routing needs on lanes of their own (route.Result.NumLayers); the error
// names a link between switches that has fewer.
func Build(f *fabric.Fabric, layers int, opt Options) (*Tables, error) {
	t := &Tables{f: f, opt: opt, lanes: make([]uint8, len(f.Ports))}
	limit := 15
	if opt.MaxVLs > 0 {
		limit = min(opt.MaxVLs, 15)
	}
	var err error
	for i := range f.Ports {
		p := &f.Ports[i]
		n := max(1, VLs(f.LinkVLCap(int32(i))))
		if i < len(opt.InUse) && opt.InUse[i] > 0 {
			n = min(n, int(opt.InUse[i]))
		}
		n = VLs(Code(min(n, limit)))
		t.lanes[i] = uint8(n)
		if err == nil && n < layers && p.Num != 0 && p.Peer != fabric.None &&
			f.Nodes[p.Node].Switch != fabric.None && f.Nodes[f.Ports[p.Peer].Node].Switch != fabric.None {
			err = fmt.Errorf("the link at %s has %d virtual lanes, but routing needs %d to be free of deadlock", f.PortName(int32(i)), n, layers)
		}
	}
	return t, err
}

// OperVLs is the OperationalVLs code that a port should have.
func (t *Tables) OperVLs(port int32) uint8 { return Code(int(t.lanes[port])) }

// SLtoVL is the table of an output port, the same for all input ports: service
// level n goes to lane n modulo the lanes of the link.
func (t *Tables) SLtoVL(out int32) (m mad.SLtoVL) {
	for sl := range m {
		m[sl] = ib.VL(t.lane(out, sl))
	}
	return m
}

// lane is where a port sends a level. On 15 lanes level 15 takes lane 7, the layer that it
// is in on links of 8: on lane 0 a group of that level would join two layers.
func (t *Tables) lane(port int32, sl int) int {
	n := int(max(1, t.lanes[port]))
	if n == 15 && sl == 15 {
		return 7
	}
	return sl % n
}

// VLArb is one of the four blocks of a port's arbitration tables: 1 and 2 are
// the low-priority entries, 3 and 4 the high-priority ones, 32 each (IBA vol 1,
// 14.2.5.9). Entries beyond the port's capacity are zero.
func (t *Tables) VLArb(port int32, block uint8) (b mad.VLArbBlock) {
	p := &t.f.Ports[port]
	room := int(p.Info.VLArbLowCap())
	if block > 2 {
		room = int(p.Info.VLArbHighCap())
	}
	if block == 0 || block > 4 || block%2 == 0 {
		return b // 15 lanes fit into the first block of each kind
	}
	n := int(max(1, t.lanes[port]))
	var weight [15]int
	for sl, w := range t.opt.Weights {
		vl := t.lane(port, sl)
		if block > 2 && !t.opt.High[sl] {
			continue
		}
		weight[vl] = min(255, max(weight[vl], int(w), 1))
	}
	i := 0
	for vl := range n {
		if weight[vl] == 0 || i >= min(room, len(b)) {
			continue
		}
		b[i] = mad.VLArbEntry{VL: ib.VL(vl), Weight: uint8(weight[vl])}
		i++
	}
	return b
}
