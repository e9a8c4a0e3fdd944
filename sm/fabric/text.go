package fabric

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"ibnetworkd/ib"
	"ibnetworkd/sm/mad"
)

// Limits of what ReadText accepts, against a text that would exhaust memory.
const (
	maxTextNodes = 200_000
	maxTextLine  = 4096
	maxTextErrs  = 20
)

// Node GUIDs of records that name none, as ibsim numbers them.
const (
	textCAGUID     = ib.GUID(0x100000)
	textSwitchGUID = ib.GUID(0x200000)
)

type textLink struct {
	node      int
	port      uint8
	remote    string
	rport     uint8
	line, col int
}

// textSpeed is a port whose line has the width of the link, and ??? for its speed.
type textSpeed struct {
	node  int
	port  uint8
	width string
}

type textReader struct {
	b        *Builder
	file     string
	errs     []error
	ids      map[string]int
	links    []textLink
	cur      int
	unnamed  []textSpeed
	fastest  int      // the fastest speed that a line names, an index into speeds
	speed    PortInfo // link values of ports that name none
	vend     uint64
	dev      uint64
	sys      ib.GUID
	guid     ib.GUID // of the next record
	pguid    ib.GUID
	nextCA   ib.GUID
	nextSw   ib.GUID
	firstSet bool
}

// ReadText reads a subnet in the text form of ibnetdiscover, which is also ibsim's topology form.
// The first port of the first record is the manager's port. All problems are returned
// together, joined, as *ib.FileError with name as the file.
func ReadText(name string, r io.Reader) (*Fabric, error) {
	t := &textReader{b: NewBuilder(), file: name, ids: map[string]int{}, cur: -1, nextCA: textCAGUID, nextSw: textSwitchGUID}
	t.speed = DefaultPortInfo()
	sc := bufio.NewScanner(r)
	sc.Buffer(make([]byte, 0, 256), maxTextLine)
	line := 0
	for sc.Scan() {
		line++
		s := sc.Text()
		if line == 1 {
			s = strings.TrimPrefix(s, "\ufeff") // of an editor that saves UTF-8 with a mark
		}
		t.line(line, s)
		if len(t.errs) >= maxTextErrs {
			break
		}
	}
	if err := sc.Err(); err != nil {
		if errors.Is(err, bufio.ErrTooLong) {
			t.fail(line+1, 1, "line is longer than %d bytes", maxTextLine)
		} else {
			return nil, fmt.Errorf("read %s: %w", name, err)
		}
	}
	t.join()
	t.nameSpeeds()
	if len(t.errs) > 1 && len(t.b.nodes) == 0 {
		return nil, errors.Join(t.errs[0], fmt.Errorf("%s: no node record: want the output of ibnetdiscover (ibdiagnet writes it to "+
			"ibdiagnet2.ibnetdiscover)", name))
	}
	if len(t.errs) > 0 {
		return nil, errors.Join(t.errs...)
	}
	if len(t.b.nodes) == 0 {
		return nil, &ib.FileError{File: name, Line: max(line, 1), Col: 1, Msg: "no node record"}
	}
	return t.b.Build(), nil
}

// DefaultPortInfo is the PortInfo of a port as it comes up in the text form
// when the text says nothing: 4x SDR, MTU 2048 supported, VL0-3, Down.
func DefaultPortInfo() (p PortInfo) {
	p.SetWidths(3, 3, 2)
	p.SetSpeeds(1, 1, 1)
	p.SetState(ib.PortDown)
	p.SetPhysState(ib.PhysPolling)
	p.SetLinkDownDefault(2)
	p.SetNeighborMTU(ib.MTU2048)
	p.SetMTUCap(ib.MTU4096)
	p.SetVLCap(3)
	p.SetOperVLs(3)
	p.SetVLArbCaps(8, 8)
	p.SetGUIDCap(32)
	return p
}

func (t *textReader) fail(line, col int, f string, a ...any) {
	if len(t.errs) < maxTextErrs {
		t.errs = append(t.errs, &ib.FileError{File: t.file, Line: line, Col: col, Msg: fmt.Sprintf(f, a...)})
	}
}

func (t *textReader) line(n int, s string) {
	c := cursor{s: s}
	c.space()
	switch {
	case c.end() || c.peek() == '#' || remark(s):
	case c.peek() == '[':
		t.port(n, &c)
	default:
		col := c.col()
		w := c.word()
		switch {
		case c.peek() == '=':
			c.i++
			t.setting(n, col, w, &c)
		case strings.EqualFold(w, "switch"):
			t.record(n, ib.NodeSwitch, &c)
		case strings.EqualFold(w, "hca"), strings.EqualFold(w, "ca"):
			t.record(n, ib.NodeCA, &c)
		case strings.EqualFold(w, "rt"), strings.EqualFold(w, "router"):
			t.record(n, ib.NodeRouter, &c)
		case w == "do", w == "module", w == "include":
			// Commands of the simulator, not part of the subnet.
		default:
			t.fail(n, col, "unknown word %q: want Switch, Hca, Ca, Rt, [PORT] or NAME=VALUE", w)
		}
	}
}

// remark reports whether a line is one that belongs to no record: a heading of
// ibnetdiscover --grouping, a warning of a tool, or the command that was typed.
func remark(s string) bool {
	for _, p := range [...]string{"Chassis ", "Non-Chassis Nodes", "Hostname: ", "ibwarn: ", "ibpanic: "} {
		if strings.HasPrefix(s, p) {
			return true
		}
	}
	if strings.Contains(s, `"`) {
		return false
	}
	file, message, _ := strings.Cut(s, ".c:")
	return !strings.Contains(file, " ") && strings.Contains(message, ";") || strings.Contains(s, "ibnetdiscover")
}

func (t *textReader) setting(n, col int, key string, c *cursor) {
	vcol := c.col()
	v := c.word()
	num, err := strconv.ParseUint(strings.TrimPrefix(strings.ToLower(v), "0x"), 16, 64)
	switch key {
	case "vendid", "devid", "sysimgguid", "switchguid", "caguid", "hcaguids", "rtguid":
		if err != nil {
			t.fail(n, vcol, "%s: %q is not a hexadecimal number", key, v)
			return
		}
	}
	switch key {
	case "vendid":
		t.vend = num & 0xffffff
	case "devid":
		t.dev = num & 0xffff
	case "sysimgguid":
		t.sys = ib.GUID(num)
	case "switchguid", "caguid", "hcaguids", "rtguid":
		t.guid = ib.GUID(num)
		if g, ok := c.paren(); ok {
			t.pguid = ib.GUID(g)
		}
	case "width", "speed", "extspeed":
	default:
		t.fail(n, col, "unknown setting %q", key)
	}
}

func (t *textReader) record(n int, typ ib.NodeType, c *cursor) {
	t.cur = -1
	c.space()
	col := c.col()
	num, err := strconv.ParseUint(c.word(), 10, 8)
	if err != nil || num == 0 || num == 255 {
		t.fail(n, col, "number of ports: want 1 to 254")
		return
	}
	c.space()
	col = c.col()
	id, ok := c.quoted()
	if !ok || id == "" {
		t.fail(n, col, "want the node's id in double quotes")
		return
	}
	if _, dup := t.ids[id]; dup {
		t.fail(n, col, "node id %q appears twice", id)
		return
	}
	if len(t.ids) >= maxTextNodes {
		t.fail(n, col, "more than %d nodes", maxTextNodes)
		return
	}
	desc, lid, lmc, enhanced := id, uint64(0), uint64(0), false
	if c.comment() {
		c.space()
		if d, ok := c.outerQuoted(); ok {
			desc = d
		}
		for !c.end() {
			c.space()
			switch w := c.word(); w {
			case "enhanced":
				enhanced = true
			case "lid":
				c.space()
				lid, _ = strconv.ParseUint(c.word(), 0, 16)
			case "lmc":
				c.space()
				lmc, _ = strconv.ParseUint(c.word(), 0, 8)
			case "":
				c.i++
			}
		}
	}
	guid := t.guid
	// Some tools write the GUID of the system in front of the port's, for all
	// switches of a chassis.
	if guid == 0 || t.pguid != 0 && t.pguid == idGUID(id) {
		guid = idGUID(id)
	}
	if guid == 0 {
		if typ == ib.NodeSwitch {
			guid, t.nextSw = t.nextSw, t.nextSw+1
		} else {
			guid, t.nextCA = t.nextCA, t.nextCA+ib.GUID(num)+1
		}
	}
	nd := Node{GUID: guid, SystemGUID: t.sys, Type: typ, NumPorts: uint8(num), Base: 1, Class: 1, Desc: desc,
		VendorID: uint32(t.vend), DeviceID: uint16(t.dev), PKeyCap: 64}
	nd.SystemGUID = cmp.Or(nd.SystemGUID, guid)
	i, err := t.b.AddNode(nd)
	if err != nil {
		t.fail(n, col, "%v", err)
		return
	}
	t.ids[id], t.cur = i, i
	pguid := t.pguid
	t.guid, t.pguid, t.sys = 0, 0, 0
	if typ == ib.NodeSwitch {
		var si SwitchInfo
		si.SetCaps(49152, 1024, 64)
		if enhanced {
			si.SetEnhancedPort0()
		}
		t.b.SetSwitchInfo(i, si)
		p0 := t.b.Port(i, 0)
		p0.GUID = cmp.Or(pguid, guid)
		p0.LID, p0.LMC = ib.LID(lid), ib.LMC(lmc&7)
		p0.Info = t.speed
		p0.Info.SetState(ib.PortActive)
		p0.Info.SetPhysState(ib.PhysLinkUp)
		p0.Info.SetLID(p0.LID)
		p0.Info.SetLMC(p0.LMC)
		p0.Known = true
	}
	for p := 1; p <= int(num); p++ {
		q := t.b.Port(i, uint8(p))
		q.Info = t.speed
		q.Info.SetLocalPort(uint8(p))
		q.Known = true
		if typ != ib.NodeSwitch {
			q.GUID = guid + ib.GUID(p)
		}
	}
}

// idGUID reads the GUID out of an id as ibnetdiscover makes it: S- or H- or R-
// and 16 hexadecimal digits.
func idGUID(id string) ib.GUID {
	if len(id) == 18 && id[1] == '-' {
		if g, err := strconv.ParseUint(id[2:], 16, 64); err == nil {
			return ib.GUID(g)
		}
	}
	return 0
}

func (t *textReader) port(n int, c *cursor) {
	col := c.col()
	num, ok := c.bracket()
	if !ok || num == 0 {
		t.fail(n, col, "want a port number from 1 in brackets")
		return
	}
	if t.cur < 0 {
		if len(t.errs) == 0 {
			t.fail(n, col, "port line before any node record")
		}
		return
	}
	p := t.b.Port(t.cur, num)
	if p == nil {
		t.fail(n, col, "node %q has %d ports, no port %d", t.b.Node(t.cur).Name(), t.b.Node(t.cur).NumPorts, num)
		return
	}
	if g, ok := c.paren(); ok && t.b.Node(t.cur).Type != ib.NodeSwitch {
		p.GUID = ib.GUID(g)
	}
	if strings.HasPrefix(c.s[c.i:], "[ext ") { // the port's number on the chassis
		c.i += strings.IndexByte(c.s[c.i:]+"]", ']') + 1
	}
	c.space()
	rcol := c.col()
	remote, ok := c.quoted()
	if !ok {
		t.fail(n, rcol, "want the id of the node at the other end in double quotes")
		return
	}
	rport, ok := c.bracket()
	if !ok || rport == 0 {
		t.fail(n, c.col(), "want the port number at the other end in brackets")
		return
	}
	c.paren()
	t.links = append(t.links, textLink{t.cur, num, remote, rport, n, rcol})
	if !t.firstSet {
		t.b.SetSM(t.cur, num)
		t.firstSet = true
	}
	// A switch's line says "desc" lid N 4xEDR about the other end, a CA's line
	// lid N lmc M "desc" lid R 4xEDR: its own LID first.
	if !c.comment() {
		return
	}
	ca, lids := t.b.Node(t.cur).Type != ib.NodeSwitch, 0
	for !c.end() {
		c.space()
		if c.peek() == '"' {
			c.outerQuoted()
			continue
		}
		w := c.word()
		switch {
		case w == "":
			c.i++
		case w == "lid":
			c.space()
			v, _ := strconv.ParseUint(c.word(), 0, 16)
			if lids++; ca && lids == 1 {
				p.LID = ib.LID(v)
			}
		case w == "lmc":
			c.space()
			v, _ := strconv.ParseUint(c.word(), 0, 8)
			if ca {
				p.LMC = ib.LMC(v & 7)
			}
		default:
			t.linkWord(p, num, w)
		}
	}
	p.Info.SetLID(p.LID)
	p.Info.SetLMC(p.LMC)
	if !ca && p.Info.CapMask()&mad.CapExtendedSpeeds != 0 {
		// A switch says on port 0 what its ports know; tools read an EDR link
		// as QDR otherwise.
		p0 := &t.b.Port(t.cur, 0).Info
		p0.SetCapMask(p0.CapMask() | mad.CapExtendedSpeeds)
	}
}

// speeds are the link speeds, slowest first, with their bit in LinkSpeedActive or
// LinkSpeedExtActive.
var speeds = [...]struct {
	name        string
	legacy, ext byte
}{
	{"SDR", 1, 0}, {"DDR", 2, 0}, {"QDR", 4, 0}, {"FDR10", 4, 0}, {"FDR", 0, 1}, {"EDR", 0, 2}, {"HDR", 0, 4}, {"NDR", 0, 8}, {"XDR", 0, 8},
}

// speedIndex is the index of a speed into speeds, -1 if it is none.
func speedIndex(name string) int {
	for i := range speeds {
		if speeds[i].name == name {
			return i
		}
	}
	return -1
}

// linkWord applies a word of port num's line if it describes the link.
func (t *textReader) linkWord(p *Port, num uint8, w string) {
	width, speed, ok := strings.Cut(w, "x")
	switch {
	case ok && speed == "???":
		t.unnamed = append(t.unnamed, textSpeed{t.cur, num, width})
	case setLink(&p.Info, w):
		p.LinkNamed = true
		t.fastest = max(t.fastest, speedIndex(speed))
	}
}

// nameSpeeds sets speeds that the text has as ??? to the fastest one that it names: an
// ibnetdiscover that is older than a speed has no name for it.
func (t *textReader) nameSpeeds() {
	for _, l := range t.unnamed {
		setLink(&t.b.Port(l.node, l.port).Info, l.width+"x"+speeds[t.fastest].name)
	}
}

// setLink applies a link description such as 4xEDR and reports whether w was one.
func setLink(p *PortInfo, w string) bool {
	width, speed, ok := strings.Cut(w, "x")
	wb := map[string]byte{"1": 1, "4": 2, "8": 4, "12": 8, "2": 16}[width]
	i := speedIndex(speed)
	if !ok || wb == 0 || i < 0 {
		return false
	}
	legacy, ext := speeds[i].legacy, speeds[i].ext
	if speed == "XDR" {
		p.SetCapMask(p.CapMask() | mad.CapMask2Supported)
		p.SetCapMask2(p.CapMask2() | mad.Cap2ExtendedSpeeds2)
		p.SetXDR()
	}
	p.SetWidths(p.WidthEnabled()|wb, p.WidthSupported()|wb, wb)
	if ext != 0 {
		p.SetCapMask(p.CapMask() | mad.CapExtendedSpeeds)
		all := ext | (ext - 1)
		p.SetSpeeds(7, 7, 4)
		p.SetSpeedsExt(all, all, ext)
		return true
	}
	all := legacy | (legacy - 1)
	p.SetSpeeds(all, all, legacy)
	return true
}

// join makes the links; both ends name each link, and the two must agree.
func (t *textReader) join() {
	type end struct {
		n int
		p uint8
	}
	said := make(map[end]end, len(t.links))
	for _, l := range t.links {
		m, ok := t.ids[l.remote]
		if !ok {
			t.fail(l.line, l.col, "node %q has no record", l.remote)
			continue
		}
		if q := t.b.Port(m, l.rport); q == nil {
			t.fail(l.line, l.col, "node %q has no port %d", l.remote, l.rport)
			continue
		}
		a, z := end{l.node, l.port}, end{m, l.rport}
		if a == z {
			t.fail(l.line, l.col, "port %d is linked to itself", l.port)
			continue
		}
		if was, ok := said[a]; ok {
			t.fail(l.line, l.col, "port %s[%d] is already linked to %s[%d]", t.b.Node(a.n).Name(), a.p, t.b.Node(was.n).Name(), was.p)
			continue
		}
		if back, ok := said[z]; ok {
			if back != a {
				t.fail(l.line, l.col, "port %s[%d] is linked to %s[%d] by its own record", t.b.Node(z.n).Name(), z.p, t.b.Node(back.n).Name(), back.p)
				continue
			}
			said[a] = z
			continue
		}
		said[a] = z
		if err := t.b.Link(a.n, a.p, z.n, z.p); err != nil {
			t.fail(l.line, l.col, "%v", err)
			continue
		}
		for _, e := range [2]end{a, z} {
			q := t.b.Port(e.n, e.p)
			if q.Info.State() == ib.PortDown {
				st := ib.PortInit
				if q.LID != 0 {
					st = ib.PortActive
				}
				q.Info.SetState(st)
				q.Info.SetPhysState(ib.PhysLinkUp)
			}
		}
	}
}
