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

// Options steer the assignment.
type Options struct {
	// LMC gives every adapter port 2^LMC LIDs, 0..7. Switches have one.
	LMC ib.LMC
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

// Assign gives every end port a LID. A LID that a port has and that nobody else
// has a better right to stays: in this order the port that has the LID and is
// remembered with it, the port that has it, the port that is remembered with
// it. Ports without get the lowest LIDs that nobody is remembered with.
func Assign(f *fabric.Fabric, m Memory, opt Options) Result {
	r := Result{Fabric: f.Clone()}
	if opt.Reassign {
		m = nil
	}
	want := func(p int32) ib.LMC {
		if r.Fabric.Nodes[r.Fabric.Ports[p].Node].Switch != fabric.None {
			return 0
		}
		return opt.LMC & 7
	}
	used := make([]bool, int(ib.LIDUnicastMax)+1)
	fits := func(l ib.LID, lmc ib.LMC) bool {
		n := lmc.Count()
		if !l.IsUnicast() || int(l)%n != 0 || int(l)+n-1 > int(ib.LIDUnicastMax) {
			return false
		}
		for k := range n {
			if used[int(l)+k] {
				return false
			}
		}
		return true
	}
	take := func(p int32, l ib.LID, lmc ib.LMC) {
		for k := range lmc.Count() {
			used[int(l)+k] = true
		}
		r.Top = max(r.Top, l+ib.LID(lmc.Count()-1))
		r.Fabric.Ports[p].LID, r.Fabric.Ports[p].LMC = l, lmc
	}
	left := slices.Clone(f.EndPorts)
	pass := func(try func(p int32) (ib.LID, bool)) {
		rest := left[:0]
		for _, p := range left {
			lmc := want(p)
			if l, ok := try(p); ok && fits(l, lmc) {
				take(p, l, lmc)
			} else {
				rest = append(rest, p)
			}
		}
		left = rest
	}
	// What is in force already: assigned by us in an earlier sweep, or by
	// any former master.
	has := func(p int32) ib.LID {
		q := &f.Ports[p]
		if opt.Reassign {
			return 0
		}
		if q.LID != 0 {
			return q.LID
		}
		if q.Known {
			return q.Info.LID()
		}
		return 0
	}
	pass(func(p int32) (ib.LID, bool) {
		e, ok := m.Find(f.Ports[p].GUID)
		return e.LID, ok && e.LID == has(p)
	})
	pass(func(p int32) (ib.LID, bool) { l := has(p); return l, l != 0 })
	pass(func(p int32) (ib.LID, bool) { e, ok := m.Find(f.Ports[p].GUID); return e.LID, ok })
	for _, p := range left {
		if l := has(p); l.IsUnicast() && used[l] && len(r.Warnings) < 100 {
			r.Warnings = append(r.Warnings, fmt.Sprintf("LID %v of port %v belongs to another port: it gets a new one", l, f.Ports[p].GUID))
		}
	}
	if len(left) > 0 {
		// LIDs of ports that are away stay theirs while there are others.
		reserved := slices.Clone(used)
		for _, e := range m {
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
				free := true
				for k := range n {
					if used[l+k] || pass == 0 && reserved[l+k] {
						free = false
					}
				}
				if free {
					break
				}
			}
			next[pass][lmc] = l
			return ib.LID(l), l+n-1 <= int(ib.LIDUnicastMax)
		}
		for _, p := range left {
			lmc := want(p)
			l, ok := find(lmc, 0)
			if !ok {
				l, ok = find(lmc, 1)
			}
			if !ok && lmc > 0 {
				lmc = 0
				l, ok = find(0, 1)
			}
			if !ok {
				r.Fabric.Ports[p].LID, r.Fabric.Ports[p].LMC = 0, 0
				if len(r.Warnings) < 100 {
					r.Warnings = append(r.Warnings, fmt.Sprintf("no LID is left for port %v (%s)", f.Ports[p].GUID, f.PortName(p)))
				}
				continue
			}
			take(p, l, lmc)
		}
	}
	r.Memory = m.with(r.Fabric)
	r.Changed = !slices.Equal(m, r.Memory)
	return r
}

// with is the memory with the fabric's assignments put in; remembered ports
// whose LID someone else has now are dropped.
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
		return nil, fmt.Errorf("%s: no checksum line: the file was cut short", file)
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
