package discover

import (
	"fmt"

	"ibnetworkd/ib"
	"ibnetworkd/sm/mad"
	"ibnetworkd/sm/smp"
)

// gotRecheck begins the recheck of a switch: its change bit is cleared before
// its ports are read. LinearFDBTop 0 and port 0 without LID, which is asked
// after the Set, each give a restarted switch away.
func (d *Discovery) gotRecheck(i int32, r *smp.Reply) {
	x := &d.nodes[i]
	if !r.OK() {
		// Its ports would be silent too; the neighbours say what happened.
		x.recheck = false
		d.silent(i, 0, "switch "+x.name()+" does not answer SwitchInfo"+why(r))
		if q := x.ports.get(int(x.entry)); !r.Timeout && q.peer >= 0 {
			d.probe(q.peer, q.peerP) // what answers may be no switch any more
		}
		return
	}
	was := x.si.LinearFDBTop()
	x.moved = false
	x.si = mad.SwitchInfoOf(&r.Data)
	if x.si.LinearFDBTop() == 0 && was != 0 {
		d.restarted(i)
	}
	if x.si.PortStateChange() {
		d.stirred = append(d.stirred, i)
		d.urgent.push(tag(kClear, 0, i, 0))
		return
	}
	d.urgent.push(tag(kPort, 2, i, 0))
}

func why(r *smp.Reply) string {
	if r.Timeout {
		return " (no answer)"
	}
	return fmt.Sprintf(" (status 0x%04x)", uint16(r.Status))
}

// most bounds the messages of each kind.
const most = 1000

// warn reports what the walk has settled.
func (d *Discovery) warn(f string, a ...any) {
	if len(d.res.Warnings) < most {
		d.res.Warnings = append(d.res.Warnings, fmt.Sprintf(f, a...))
	}
}

// problem reports what stays so until something is done about it, at a node or, with -1,
// nowhere in particular.
func (d *Discovery) problem(i int32, f string, a ...any) {
	text := fmt.Sprintf(f, a...)
	d.warn("%s", text)
	d.keep(i, text, false)
}

// keep has a problem shown until a walk that reads the node does not find it, or, if it
// lasts, one of everything.
func (d *Discovery) keep(i int32, text string, lasts bool) {
	if len(d.res.Problems) < most {
		p := Problem{Text: text, Lasts: lasts}
		if i >= 0 {
			p.At = d.nodes[i].ni.NodeGUID
		}
		d.res.Problems = append(d.res.Problems, p)
	}
}

// lasting is problem for one that only a walk of everything finds again.
func (d *Discovery) lasting(i int32, f string, a ...any) {
	text := fmt.Sprintf(f, a...)
	d.warn("%s", text)
	d.keep(i, text, true)
}

func (x *dnode) name() string {
	if x.desc != "" {
		return x.desc
	}
	return x.ni.NodeGUID.String()
}

func (d *Discovery) silent(i int32, p uint8, msg string) {
	d.res.Silent = append(d.res.Silent, msg)
	d.keep(i, msg, false)
	d.res.SilentAt = append(d.res.SilentAt, d.nodes[i].ni.NodeGUID)
}

// add makes a node of what a probe answered.
func (d *Discovery) add(ni mad.NodeInfo, path []uint8) int32 {
	i := int32(len(d.nodes))
	x := dnode{ni: ni, path: path, entry: ni.LocalPortNum, unknown: true, ports: makePorts(int(ni.NumPorts) + 1)}
	x.ni.PortGUID, x.ni.LocalPortNum = 0, 0
	d.nodes = append(d.nodes, x)
	d.byGUID[ni.NodeGUID] = i
	d.claimed += x.ports.n
	d.res.Changed = true
	d.back.push(tag(kDesc, 0, i, 0))
	if x.sw() {
		d.nodes[i].ports.at(0).guid = ni.PortGUID
		d.back.push(tag(kSwitch, 0, i, 0))
		d.turn(i)
		d.switches++
	}
	return i
}

func (d *Discovery) gotRoot(ni mad.NodeInfo) {
	if ni.NodeGUID == 0 || ni.PortGUID == 0 || ni.NumPorts == 0 || ni.NumPorts == 255 || ni.LocalPortNum > ni.NumPorts {
		d.warn("the local port's NodeInfo makes no sense: node GUID %v, port GUID %v, port %d of %d; write its GUIDs with its "+
			"firmware tool", ni.NodeGUID, ni.PortGUID, ni.LocalPortNum, ni.NumPorts)
		return
	}
	d.rootP = ni.LocalPortNum
	d.root = d.add(ni, nil)
	x := &d.nodes[d.root]
	if x.sw() {
		d.rootP = 0
		return
	}
	x.ports.at(int(d.rootP)).guid = ni.PortGUID
	t := tag(kPort, 0, d.root, d.rootP)
	if d.opt.LocalPort != nil {
		d.Step(&smp.Reply{Request: smp.Request{Tag: t}, Data: d.opt.LocalPort.Wire()})
		return
	}
	d.back.push(t)
}

// valid checks what a NodeInfo claims before anything is built on it.
func valid(ni *mad.NodeInfo) bool {
	return ni.NumPorts > 0 && ni.NumPorts < 255 && ni.LocalPortNum > 0 && ni.LocalPortNum <= ni.NumPorts &&
		(ni.NodeType == ib.NodeCA || ni.NodeType == ib.NodeSwitch || ni.NodeType == ib.NodeRouter)
}

func (d *Discovery) gotProbe(i int32, p uint8, r *smp.Reply) {
	x := &d.nodes[i]
	if !r.OK() {
		d.silent(i, p, fmt.Sprintf("port %s[%d] is up but its peer does not answer NodeInfo%s, path %s",
			x.name(), p, why(r), PathString(smp.PathTo(x.path, p))))
		return
	}
	var ni mad.NodeInfo
	if ni.Decode(r.Data[:]) != nil || !valid(&ni) {
		d.silent(i, p, fmt.Sprintf("the peer of %s[%d] answers a NodeInfo that makes no sense (GUID %v, type %d, port %d of %d), path %s",
			x.name(), p, ni.NodeGUID, ni.NodeType, ni.LocalPortNum, ni.NumPorts, PathString(smp.PathTo(x.path, p))))
		return
	}
	if !d.named(i, p, &ni) {
		d.unlink(i, p)
		return
	}
	if q := x.ports.at(int(p)); q.peer >= 0 {
		// Meanwhile found from the other end, if that end is this one.
		if j, ok := d.byGUID[ni.NodeGUID]; ok && j == q.peer && q.peerP == ni.LocalPortNum && !otherShape(&d.nodes[j].ni, &ni) {
			return
		}
		d.unlink(i, p)
	}
	if d.leftOut(i, p, &ni) {
		return
	}
	j, ok := d.byGUID[ni.NodeGUID]
	if !ok {
		if d.claimed+int(ni.NumPorts) >= maxPorts {
			d.bound()
			if x = &d.nodes[i]; x.out {
				return
			}
		}
		if len(d.nodes) >= d.opt.MaxNodes || d.claimed+int(ni.NumPorts) >= maxPorts {
			if !d.full {
				d.full = true
				d.lasting(i, "more than %d nodes or %d ports: the rest of the subnet is left out, from path %s on", d.opt.MaxNodes, maxPorts,
					PathString(smp.PathTo(x.path, p)))
			}
			return
		}
		j = d.add(ni, smp.PathTo(x.path, p))
		d.link(i, p, j, ni)
		return
	}
	y := &d.nodes[j]
	q := ni.LocalPortNum
	if otherShape(&y.ni, &ni) {
		if j == d.root {
			d.duplicate(j, i, p)
		} else {
			d.claim(i, p, ni, kStill, j, 0)
		}
		return
	}
	if j == i && q == p {
		d.problem(i, "port %s[%d] has a loopback plug", x.name(), p)
		return
	}
	if o := y.ports.at(int(q)); o.peer >= 0 {
		if o.peer == i && o.peerP == p {
			return
		}
		// Claimed twice: the node moved, or there are two of it.
		d.claim(i, p, ni, kVerifyPort, o.peer, o.peerP)
		return
	}
	if !y.sw() && y.ports.at(int(q)).guid != 0 && y.ports.at(int(q)).guid != ni.PortGUID {
		d.duplicate(j, i, p)
		return
	}
	d.link(i, p, j, ni)
}

// claim queries what decides which node it is that port p of node i has shown.
func (d *Discovery) claim(i int32, p uint8, ni mad.NodeInfo, k kind, node int32, port uint8) {
	if len(d.claims) < 1<<16 {
		d.claims = append(d.claims, claim{i, p, ni})
		if k == kStill {
			if d.reshaped == nil {
				d.reshaped = map[ib.GUID][]uint16{}
			}
			d.reshaped[ni.NodeGUID] = append(d.reshaped[ni.NodeGUID], uint16(len(d.claims)-1))
		}
		d.back.push(tag(k, uint16(len(d.claims)-1), node, port))
	}
}

func (d *Discovery) duplicate(j, i int32, p uint8) {
	x, y := &d.nodes[i], &d.nodes[j]
	dup := Duplicate{GUID: y.ni.NodeGUID, Path: y.path, Other: smp.PathTo(x.path, p), AtPort: d.cabled(j, y.entry),
		AtPeer: fmt.Sprintf("%s[%d]", x.name(), p)}
	d.res.SilentAt = append(d.res.SilentAt, x.ni.NodeGUID)
	d.res.Duplicates = append(d.res.Duplicates, dup)
	d.keep(i, dup.String(), false)
}

// link joins port p of node i with the port that ni was entered by.
func (d *Discovery) link(i int32, p uint8, j int32, ni mad.NodeInfo) {
	q := ni.LocalPortNum
	a, b := d.nodes[i].ports.at(int(p)), d.nodes[j].ports.at(int(q))
	a.peer, a.peerP = j, q
	b.peer, b.peerP = i, p
	d.res.Changed = true
	y := &d.nodes[j]
	if y.gone {
		d.dirty = true
	}
	if !y.sw() {
		b.guid = ni.PortGUID
		// A port that came up again may be another one inside: new firmware,
		// a restarted host.
		b.pkeys, b.known = nil, false
		if !y.unknown {
			y.unknown = true
			d.back.push(tag(kDesc, 0, j, 0))
		}
		d.back.push(tag(kPort, 0, j, q))
		return
	}
	if y.unknown {
		if b.known && b.info.State() < ib.PortInit {
			// It came up after it was read. The answer to the Set that arms it has
			// the rest.
			b.known = false
			if d.opt.Ports {
				d.back.push(tag(kPort, 0, j, q))
			}
		}
		return
	}
	// A known switch is met again over a link that is new. If it was restarted
	// its port 0 has lost the LID; whatever it is, its other ports are asked.
	if a.info.State() == ib.PortInit {
		y.recheck = true
		d.turn(j)
	}
}

// unlink takes the link at a port away from both ends. Routes are computed again only if
// one leads over it: every route is that of another node and one hop more.
func (d *Discovery) unlink(i int32, p uint8) {
	a := d.nodes[i].ports.at(int(p))
	if a.peer < 0 {
		return
	}
	x, y := &d.nodes[i], &d.nodes[a.peer]
	d.dirty = d.dirty || extends(y.path, x.path, p) || extends(x.path, y.path, a.peerP)
	if b := d.nodes[a.peer].ports.at(int(a.peerP)); b.peer == i && b.peerP == p {
		b.peer = -1
		if d.nodes[a.peer].sw() {
			// Its state is down as this end's is; asked when it comes up.
			b.info.SetState(ib.PortDown)
		}
	}
	d.unplugged(a.peer, a.peerP)
	a.peer = -1
	d.unplugged(i, p)
	d.res.Changed = true
}

// unplugged forgets an adapter port that lost its link: it is unreachable.
func (d *Discovery) unplugged(i int32, p uint8) {
	if !d.nodes[i].sw() && (i != d.root || p != d.rootP) {
		*d.nodes[i].ports.at(int(p)) = dport{peer: -1}
	}
}

func (d *Discovery) gotPort(i int32, p uint8, r *smp.Reply) {
	x := &d.nodes[i]
	q := x.ports.at(int(p))
	if !r.OK() {
		if !x.gone { // else it may not have been asked
			d.silent(i, p, fmt.Sprintf("port %s[%d] does not answer PortInfo%s", x.name(), p, why(r)))
		}
		return
	}
	was := q.info
	had := q.known
	q.info, q.known = mad.PortInfoOf(&r.Data), true
	if r.Attr == mad.AttrPortInfo && r.Mod&smp.ExtendedSpeeds == 0 {
		// A port that claims those speeds had another reason to refuse.
		x.noExtSpeeds = (q.info.CapMask()|x.ports.at(0).info.CapMask())&mad.CapExtendedSpeeds == 0
	}
	if had && was != q.info {
		d.res.Changed, x.moved = true, true
	}
	if !x.sw() || p == 0 {
		if !had || x.unknown {
			q.lid, q.lmc = 0, 0
		}
		if x.sw() && had && q.info.LID() != was.LID() && q.info.LID() == 0 {
			d.restarted(i)
		}
		d.endPort(i, p)
	}
	if p == 0 || !x.sw() && (i != d.root || p != d.rootP) {
		return
	}
	if st := q.info.State(); had && st <= ib.PortInit && (was.State() > ib.PortInit || was.State() == ib.PortInit && st < ib.PortInit) {
		d.wentDown(i, p)
	}
	switch st := q.info.State(); {
	case st < ib.PortInit:
		j := q.peer
		d.unlink(i, p)
		d.lostLink(j)
	case q.peer < 0:
		if q.info.PhysState() == ib.PhysLinkUp {
			d.probe(i, p)
		}
	case st == ib.PortInit && had && was.State() > ib.PortInit && (i == d.root || p != x.entry):
		// The link was down in between: probe what is behind it now. (The link
		// that this answer came over is certain.)
		d.unlink(i, p)
		d.probe(i, p)
	case st == ib.PortInit && had && was.State() == ib.PortInit && (i == d.root || p != x.entry):
		// It is not configured since the last sweep: it may have been down in
		// between, or what was behind it then cannot be configured.
		d.probe(i, p)
	}
}

// restarted forgets what was known of a switch that lost its configuration.
func (d *Discovery) restarted(i int32) {
	x := &d.nodes[i]
	if x.unknown {
		return
	}
	x.unknown, x.moved = true, true
	x.ports.at(0).lid = 0
	for p := range x.ports.n {
		if x.ports.get(p).pkeys != nil {
			x.ports.at(p).pkeys = nil
		}
	}
	d.res.Changed = true
	d.back.push(tag(kDesc, 0, i, 0))
	d.warn("switch %s was restarted", x.name())
}

// endPort requests what follows from an end port's PortInfo.
func (d *Discovery) endPort(i int32, p uint8) {
	q := d.nodes[i].ports.at(int(p))
	if q.info.CapMask()&mad.CapIsSM != 0 && (i != d.root || p != d.rootP) {
		d.back.push(tag(kSM, 0, i, p))
	}
}

// gotVerify settles a claim: is the port still where it was linked before?
func (d *Discovery) gotVerify(k kind, i int32, p uint8, extra uint16, r *smp.Reply) {
	c := d.claims[extra]
	j, ok := d.byGUID[c.ni.NodeGUID]
	if !ok || d.nodes[c.from].out {
		return
	}
	o := d.nodes[j].ports.at(int(c.ni.LocalPortNum))
	still := o.peer == i && o.peerP == p
	if still && k == kVerifyPort && r.OK() {
		if pi := mad.PortInfoOf(&r.Data); pi.State() >= ib.PortInit {
			d.back.push(tag(kVerifyProbe, extra, i, p))
			return
		}
	}
	if still && k == kVerifyProbe && r.OK() {
		var ni mad.NodeInfo
		if ni.Decode(r.Data[:]) == nil && ni.NodeGUID == c.ni.NodeGUID && ni.LocalPortNum == c.ni.LocalPortNum {
			if d.alike(c.from, c.fromP, i, p) {
				d.urgent.push(tag(kSelf, extra, c.from, 0))
			} else {
				d.duplicate(j, c.from, c.fromP)
			}
			return
		}
	}
	if o.peer >= 0 {
		d.unlink(j, c.ni.LocalPortNum)
	}
	if d.nodes[c.from].ports.at(int(c.fromP)).peer >= 0 {
		return
	}
	d.warn("node %s moved to %s[%d]", d.nodes[j].name(), d.nodes[c.from].name(), c.fromP)
	d.nodes[j].unknown = false
	d.link(c.from, c.fromP, j, c.ni)
	if d.nodes[j].sw() {
		d.nodes[j].recheck = true
		d.turn(j)
	}
}
