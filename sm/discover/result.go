package discover

import (
	"cmp"
	"fmt"
	"slices"

	"ibnetworkd/ib"
	"ibnetworkd/sm/fabric"
	"ibnetworkd/sm/mad"
)

// SM is another port that says it runs a subnet manager.
type SM struct {
	Port   int32 // index into Fabric.Ports
	Info   mad.SMInfo
	Silent bool       // no answer to SMInfo
	Status mad.Status // not 0: the port answered that it has no manager
}

// Duplicate is a GUID that was met at two places.
type Duplicate struct {
	GUID           ib.GUID
	Port           bool    // the GUID of a port, not of a node
	Path, Other    []uint8 // the node that is used, the one that is left out
	AtPort, AtPeer string  // where the two are plugged in
}

func (d Duplicate) String() string {
	what := "node"
	if d.Port {
		what = "port"
	}
	return fmt.Sprintf("%s GUID %v appears twice: at path %s (%s, used) and at path %s (%s, left out); write another one to one of them with "+
		"its firmware tool, %s", what, d.GUID, PathString(d.Path), d.AtPort, PathString(d.Other), d.AtPeer, again)
}

// PathString prints a directed route as the diagnostic tools take it: 0,1,17.
func PathString(p []uint8) string {
	s := "0"
	for _, h := range p {
		s += fmt.Sprintf(",%d", h)
	}
	return s
}

// Problem is what a walk could not make sense of, or what does not answer.
type Problem struct {
	At    ib.GUID // the node that shows it when it is read, 0 for none
	Text  string
	Lasts bool // only a walk of everything finds it again
}

// Result is what a discovery found.
type Result struct {
	Fabric *fabric.Fabric
	// PKeys is the P_Key table of each port by index into Fabric.Ports, of those
	// that were known before and have not been unplugged or restarted since.
	PKeys [][]ib.PKey
	// Unknown has by node index whether the node is new or came back, so that
	// its tables are unknown.
	Unknown    []bool
	SMs        []SM
	Duplicates []Duplicate
	// Silent lists ports by name whose link is up while the other end does
	// not answer, with the reason; SilentAt are those ports' switches.
	Silent   []string
	SilentAt []ib.GUID
	Warnings []string
	// Problems are those of Silent, Duplicates and Warnings that stay, with their nodes; Read
	// are the nodes whose ports were asked.
	Problems []Problem
	Read     map[ib.GUID]bool
	// Flapping are messages on links that went down too often: those between switches are
	// left out from now on.
	Flapping []string
	// Lost reports that switches are out of reach while links are left out, which may
	// lead to them.
	Lost    bool
	Changed bool // a resumed discovery found something that differs
}

// Result builds what was found; call it when the walk has finished. It comes
// without a Fabric when the local port did not answer.
func (d *Discovery) Result() *Result {
	if d.root < 0 {
		return &d.res
	}
	f := d.build()
	for d.samePort(f) {
		f = d.build()
	}
	d.reportFar()
	d.reportNameless()
	d.reportChanging()
	d.res.Lost = d.resumed && !d.opt.Flaps.Next().IsZero() &&
		slices.ContainsFunc(d.nodes, func(x dnode) bool { return x.gone && !x.out && x.sw() })
	res := &d.res
	res.Fabric = f
	res.Unknown = make([]bool, len(f.Nodes))
	res.PKeys = make([][]ib.PKey, len(f.Ports))
	res.Read = map[ib.GUID]bool{}
	at := make([]int32, len(d.nodes))
	for i := range d.nodes {
		x := &d.nodes[i]
		if at[i] = fabric.None; x.gone {
			continue
		}
		if at[i] = f.NodeByGUID(x.ni.NodeGUID); at[i] == fabric.None {
			continue
		}
		res.Unknown[at[i]] = x.unknown
		if x.read {
			res.Read[x.ni.NodeGUID] = true
		}
		for p := range x.ports.n {
			if q := f.Port(at[i], uint8(p)); q != fabric.None {
				res.PKeys[q] = x.ports.get(p).pkeys
			}
		}
	}
	for k := range res.SMs {
		i, p := res.SMs[k].Port>>8, uint8(res.SMs[k].Port)
		if res.SMs[k].Port = fabric.None; at[i] != fabric.None {
			res.SMs[k].Port = f.Port(at[i], p)
		}
	}
	res.SMs = slices.DeleteFunc(res.SMs, func(s SM) bool { return s.Port == fabric.None })
	// A port that was asked twice counts once, with an answer if it gave one.
	slices.SortStableFunc(res.SMs, func(a, b SM) int {
		if a.Port == b.Port && a.Silent != b.Silent {
			return map[bool]int{false: -1, true: 1}[a.Silent]
		}
		return cmp.Compare(a.Port, b.Port)
	})
	res.SMs = slices.CompactFunc(res.SMs, func(a, b SM) bool { return a.Port == b.Port })
	slices.Sort(res.Silent)
	slices.Sort(res.SilentAt)
	res.SilentAt = slices.Compact(res.SilentAt)
	return res
}

// build makes a Fabric of what was found.
func (d *Discovery) build() *fabric.Fabric {
	d.paths()
	b := fabric.NewBuilder()
	b.Grow(len(d.nodes))
	if d.opt.Prefix != 0 {
		b.SetPrefix(d.opt.Prefix)
	}
	num := make([]int, len(d.nodes))
	for i := range d.nodes {
		x := &d.nodes[i]
		num[i] = -1
		if x.gone {
			d.res.Changed = true
			continue
		}
		n, err := b.AddNode(fabric.Node{GUID: x.ni.NodeGUID, SystemGUID: x.ni.SystemImageGUID, Type: x.ni.NodeType, NumPorts: x.ni.NumPorts,
			Base: x.ni.BaseVersion, Class: x.ni.ClassVersion, DeviceID: x.ni.DeviceID, PKeyCap: x.ni.PartitionCap, VendorID: x.ni.VendorID,
			Revision: x.ni.Revision, Desc: x.desc, Path: x.path, Entry: x.entry, NoExtendedSpeeds: x.noExtSpeeds})
		if err != nil {
			d.lasting(-1, "%v", err)
			continue
		}
		num[i] = n
		b.SetSwitchInfo(n, x.si)
		for p := range x.ports.n {
			q := x.ports.get(p)
			if q.peer >= 0 && d.nodes[q.peer].gone {
				d.unplugged(int32(i), uint8(p))
				q = x.ports.get(p)
			}
			o := b.Port(n, uint8(p))
			o.Info, o.Known, o.LID, o.LMC = q.info, q.known, q.lid, q.lmc
			if p == 0 || !x.sw() {
				o.GUID = q.guid
			}
		}
	}
	for i := range d.nodes {
		x := &d.nodes[i]
		for p := range x.ports.n {
			q := x.ports.get(p)
			if q.peer < 0 || num[i] < 0 || num[q.peer] < 0 || q.peer < int32(i) || q.peer == int32(i) && q.peerP < uint8(p) {
				continue
			}
			if err := b.Link(num[i], uint8(p), num[q.peer], q.peerP); err != nil {
				d.lasting(-1, "%v", err)
			}
		}
	}
	b.SetSM(num[d.root], d.rootP)
	return b.Build()
}
