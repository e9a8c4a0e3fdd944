// Package lid gives every end port its LID and remembers which.
//
// It owns the assignment, a pure function over a fabric and what is remembered,
// and the text form of the memory. It reads and writes no file itself; the
// engine keeps the text on disk.
package lid

import (
	"bytes"
	"cmp"
	"fmt"
	"hash/crc32"
	"slices"
	"strconv"
	"strings"

	"ibnetworkd/ib"
	"ibnetworkd/sm/fabric"
	"ibnetworkd/sm/guidfile"
)

// Entry is what is remembered of an end port.
type Entry struct {
	GUID ib.GUID // of the port
	LID  ib.LID
	LMC  ib.LMC
}

// Memory is the remembered assignments, sorted by GUID.
type Memory []Entry

// Find gives a port's remembered LID.
func (m Memory) Find(g ib.GUID) (Entry, bool) {
	i, ok := slices.BinarySearchFunc(m, g, func(e Entry, g ib.GUID) int { return cmp.Compare(e.GUID, g) })
	if !ok {
		return Entry{}, false
	}
	return m[i], true
}

// Adopt adds what another manager remembered. Ports that m has stay as they are; those
// of which a LID is another port's in m are left out, and counted.
func (m Memory) Adopt(others []guidfile.LIDs) (out Memory, left int) {
	used := make([]bool, int(ib.LIDUnicastMax)+1)
	for _, e := range m {
		for k := range e.LMC.Count() {
			if l := int(e.LID) + k; l < len(used) {
				used[l] = true
			}
		}
	}
	out = slices.Clone(m)
	for _, x := range others {
		if _, known := m.Find(x.GUID); known {
			continue
		}
		if slices.Contains(used[x.LID:int(x.LID)+x.LMC.Count()], true) {
			left++
			continue
		}
		out = append(out, Entry(x))
	}
	slices.SortFunc(out, func(a, b Entry) int { return cmp.Compare(a.GUID, b.GUID) })
	return out, left
}

// Options steer the assignment.
type Options struct {
	// LMC gives every adapter port 2^LMC LIDs, 0..7. Switches have one.
	LMC ib.LMC
	// KeepLMC leaves every adapter port the LMC that it has, and LMC does not count.
	KeepLMC bool
	// Reassign forgets LIDs that ports have and that are remembered.
	Reassign bool
}

// Result is an assignment.
type Result struct {
	Fabric   *fabric.Fabric // with LID and LMC of every end port
	Memory   Memory         // with what was assigned added
	Top      ib.LID         // the highest LID in use
	Changed  bool           // Memory differs from the one given
	Warnings []string
}

// Assign gives every end port a LID. Of the ports that claim one, it is kept by the port that has
// it and is remembered with it, else that has it, else that is remembered with it. Ports
// without a LID get the lowest ones that no port is remembered with.
func Assign(f *fabric.Fabric, m Memory, opt Options) Result {
	if opt.Reassign {
		m = nil
	}
	a := assignment{
		f: f, memory: m, opt: opt, Result: Result{Fabric: f.Clone()},
		used: make([]bool, int(ib.LIDUnicastMax)+1), left: slices.Clone(f.EndPorts),
	}
	a.pass(func(p int32) (ib.LID, bool) {
		e, ok := m.Find(f.Ports[p].GUID)
		return e.LID, ok && e.LID == a.has(p)
	})
	a.pass(func(p int32) (ib.LID, bool) { l := a.has(p); return l, l != 0 })
	a.pass(func(p int32) (ib.LID, bool) { e, ok := m.Find(f.Ports[p].GUID); return e.LID, ok })
	moved, widened := 0, len(a.left) > 0 && a.widened()
	for _, p := range a.left {
		if l := a.has(p); l.IsUnicast() && a.used[l] {
			moved++
			if !widened {
				a.warn("LID %v of port %v belongs to another port: it gets a new one", l, f.Ports[p].GUID)
			}
		}
	}
	if moved > 0 && widened {
		a.warn("%d ports get new LIDs because the LMC changes", moved)
	}
	if len(a.left) > 0 {
		a.fill()
	}
	a.Memory = m.with(a.Fabric)
	a.Changed = !slices.Equal(m, a.Memory)
	return a.Result
}

// assignment is a Result in the making.
type assignment struct {
	Result
	f      *fabric.Fabric
	memory Memory
	opt    Options
	used   []bool  // by LID
	left   []int32 // end ports without a LID yet
}

// maxWarnings bounds the warnings of one assignment.
const maxWarnings = 100

func (a *assignment) warn(format string, args ...any) {
	if len(a.Warnings) < maxWarnings {
		a.Warnings = append(a.Warnings, fmt.Sprintf(format, args...))
	}
}

// want is the LMC that a port is to have: switches have one LID.
func (a *assignment) want(p int32) ib.LMC {
	q := &a.f.Ports[p]
	switch {
	case a.f.Nodes[q.Node].Switch != fabric.None:
		return 0
	case a.opt.KeepLMC:
		return a.hadLMC(p)
	}
	return a.opt.LMC & 7
}

// hadLMC is the LMC that a port has with the LID that it has.
func (a *assignment) hadLMC(p int32) ib.LMC {
	if q := &a.f.Ports[p]; q.LID == 0 && q.Known {
		return q.Info.LMC()
	}
	return a.f.Ports[p].LMC & 7
}

// widened reports whether a port that has LIDs is to have another number of them.
func (a *assignment) widened() bool {
	return slices.ContainsFunc(a.f.EndPorts, func(p int32) bool { return a.has(p).IsUnicast() && a.hadLMC(p) != a.want(p) })
}

// fits reports whether the LIDs from l on are aligned and free.
func (a *assignment) fits(l ib.LID, lmc ib.LMC) bool {
	n := lmc.Count()
	if !l.IsUnicast() || int(l)%n != 0 || int(l)+n-1 > int(ib.LIDUnicastMax) {
		return false
	}
	return !slices.Contains(a.used[int(l):int(l)+n], true)
}

// take assigns the LIDs from l on to a port.
func (a *assignment) take(p int32, l ib.LID, lmc ib.LMC) {
	for k := range lmc.Count() {
		a.used[int(l)+k] = true
	}
	a.Top = max(a.Top, l+ib.LID(lmc.Count()-1))
	a.Fabric.Ports[p].LID, a.Fabric.Ports[p].LMC = l, lmc
}

// pass assigns what try proposes to the ports that are left, if it is free.
func (a *assignment) pass(try func(p int32) (ib.LID, bool)) {
	rest := a.left[:0]
	for _, p := range a.left {
		lmc := a.want(p)
		if l, ok := try(p); ok && a.fits(l, lmc) {
			a.take(p, l, lmc)
		} else {
			rest = append(rest, p)
		}
	}
	a.left = rest
}

// has is the LID that a port has already, by an earlier sweep or a former master;
// 0 for none.
func (a *assignment) has(p int32) ib.LID {
	q := &a.f.Ports[p]
	switch {
	case a.opt.Reassign:
		return 0
	case q.LID != 0:
		return q.LID
	case q.Known:
		return q.Info.LID()
	}
	return 0
}

// fill gives the ports that are left the lowest free LIDs. LIDs of ports that are
// away stay reserved while there are others.
func (a *assignment) fill() {
	reserved := slices.Clone(a.used)
	for _, e := range a.memory {
		for k := range e.LMC.Count() {
			if l := int(e.LID) + k; l < len(reserved) {
				reserved[l] = true
			}
		}
	}
	next := [2][8]int{}
	find := func(lmc ib.LMC, pass int) (ib.LID, bool) {
		n := lmc.Count()
		l := max(next[pass][lmc], n)
		for ; l+n-1 <= int(ib.LIDUnicastMax); l += n {
			taken := slices.Contains(a.used[l:l+n], true) || pass == 0 && slices.Contains(reserved[l:l+n], true)
			if !taken {
				break
			}
		}
		next[pass][lmc] = l
		return ib.LID(l), l+n-1 <= int(ib.LIDUnicastMax)
	}
	for _, p := range a.left {
		lmc := a.want(p)
		l, ok := find(lmc, 0)
		if !ok {
			l, ok = find(lmc, 1)
		}
		if !ok && lmc > 0 {
			lmc = 0
			l, ok = find(0, 1)
		}
		if !ok {
			a.Fabric.Ports[p].LID, a.Fabric.Ports[p].LMC = 0, 0
			a.warn("no LID is left for port %v (%s)", a.f.Ports[p].GUID, a.f.PortName(p))
			continue
		}
		a.take(p, l, lmc)
	}
}

// with is the memory updated with the fabric's assignments; remembered ports whose
// LID another port has now are dropped.
func (m Memory) with(f *fabric.Fabric) Memory {
	owner := f.LIDs()
	out := make(Memory, 0, max(len(m), len(f.EndPorts)))
	for _, e := range m {
		if f.EndPortByGUID(e.GUID) != fabric.None {
			continue
		}
		free := true
		for k := range e.LMC.Count() {
			if l := int(e.LID) + k; l < len(owner) && owner[l] != fabric.None {
				free = false
			}
		}
		if free {
			out = append(out, e)
		}
	}
	last := ib.GUID(0)
	for _, p := range f.EndPorts {
		q := &f.Ports[p]
		if q.LID.IsUnicast() && q.GUID != last {
			out = append(out, Entry{q.GUID, q.LID, q.LMC})
			last = q.GUID
		}
	}
	slices.SortStableFunc(out, func(a, b Entry) int { return cmp.Compare(a.GUID, b.GUID) })
	return out
}

const header = "guid2lid 1"

// Marshal writes the memory as text: a header, a line for each port, and the
// CRC-32 (IEEE) of all that.
func (m Memory) Marshal() []byte {
	var b bytes.Buffer
	b.Grow(len(m)*30 + 64)
	b.WriteString(header + "\n")
	for _, e := range m {
		fmt.Fprintf(&b, "%v %v %d\n", e.GUID, e.LID, e.LMC)
	}
	fmt.Fprintf(&b, "crc32 %08x\n", crc32.ChecksumIEEE(b.Bytes()))
	return b.Bytes()
}

// maxText bounds the text that Unmarshal reads.
const maxText = 4 << 20

// Unmarshal reads what Marshal wrote. A damaged text gives an error that names
// the line and no entries, for a wrong LID does more harm than a new one.
func Unmarshal(file string, b []byte) (Memory, error) {
	if len(b) > maxText {
		return nil, fmt.Errorf("%s: longer than %d bytes", file, maxText)
	}
	body, sum, ok := bytes.Cut(b, []byte("\ncrc32 "))
	if !ok {
		return nil, fmt.Errorf("%s: no checksum line: the file is truncated", file)
	}
	body = b[:len(body)+1]
	if want := fmt.Sprintf("%08x", crc32.ChecksumIEEE(body)); strings.TrimSpace(string(sum)) != want {
		return nil, fmt.Errorf("%s: checksum is %.8q, the content has %s: the file is damaged", file, sum, want)
	}
	var m Memory
	for n, l := range strings.Split(strings.TrimSuffix(string(body), "\n"), "\n") {
		if n == 0 {
			if l != header {
				return nil, fmt.Errorf("%s:1:1: want %q", file, header)
			}
			continue
		}
		w := strings.Fields(l)
		if len(w) != 3 {
			return nil, fmt.Errorf("%s:%d:1: want GUID, LID and LMC", file, n+1)
		}
		g, err := ib.ParseGUID(w[0])
		if err != nil {
			return nil, fmt.Errorf("%s:%d:1: %w", file, n+1, err)
		}
		v, err1 := strconv.ParseUint(w[1], 0, 16)
		c, err2 := strconv.ParseUint(w[2], 10, 8)
		if err1 != nil || err2 != nil || !ib.LID(v).IsUnicast() || c > 7 {
			return nil, fmt.Errorf("%s:%d:1: want a unicast LID and an LMC up to 7", file, n+1)
		}
		m = append(m, Entry{g, ib.LID(v), ib.LMC(c)})
	}
	slices.SortStableFunc(m, func(a, b Entry) int { return cmp.Compare(a.GUID, b.GUID) })
	return slices.CompactFunc(m, func(a, b Entry) bool { return a.GUID == b.GUID }), nil
}
