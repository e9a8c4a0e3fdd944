// Package guidfile reads the files of opensm that have a GUID on each line: lists of
// switches or ports, hop weights, the LIDs of ports, and prefix routes.
//
// It has the grammar only; what GUIDs mean, and whether the fabric has them, is for
// sm/route. The functions are pure.
package guidfile

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"ibnetworkd/ib"
)

// MaxFileSize bounds a file in bytes.
const MaxFileSize = 8 << 20

// maxErrors bounds the mistakes of a file that are reported.
const maxErrors = 20

// Weight is what a hop by a port of a switch counts in the length of a path.
type Weight struct {
	Switch ib.GUID `json:"switch"`
	Port   uint8   `json:"port"`
	Hops   uint8   `json:"hops"`
}

// Check is the mistakes of a file that the setting named key, of [SubnetManager], names.
func Check(key, file string, b []byte) (err error) {
	switch key {
	case "HopWeightsFile":
		_, err = ParseWeights(file, b)
	case "PrefixRoutesFile":
		_, err = ParsePrefixRoutes(file, b)
	case "GUID2LIDFile":
		_, err = ParseLIDs(file, b)
	default:
		_, err = ParseList(file, b)
	}
	return err
}

// ParseList reads GUIDs, one on a line; # begins a comment, and so does a second word.
// Lines that cannot be used are left out, and returned together as *ib.FileError.
func ParseList(file string, b []byte) (out []ib.GUID, err error) {
	m := mistakes{file: file}
	m.read(b, 1, "a GUID", func(l *line) {
		if g := l.guid(0); g != 0 {
			out = append(out, g)
		}
	})
	return out, m.err()
}

// ParseWeights reads lines with the GUID of a switch, the number of one of its ports,
// and the weight of a hop by it, 1 to 255; of two lines for a port the last counts.
// What follows is ignored. Mistakes are as with ParseList.
func ParseWeights(file string, b []byte) (out []Weight, err error) {
	type port struct {
		sw  ib.GUID
		num uint8
	}
	at := map[port]int{}
	m := mistakes{file: file}
	m.read(b, 3, "the GUID of a switch, a port number and a weight", func(l *line) {
		w := Weight{l.guid(0), l.number(1, "a port number", 254), l.number(2, "a weight", 255)}
		if w.Switch == 0 || w.Port == 0 || w.Hops == 0 {
			return
		}
		p := port{w.Switch, w.Port}
		if i, ok := at[p]; ok {
			out[i] = w
			return
		}
		at[p] = len(out)
		out = append(out, w)
	})
	return out, m.err()
}

// LIDs are those of a port: 1<<LMC from LID on.
type LIDs struct {
	GUID ib.GUID
	LID  ib.LID
	LMC  ib.LMC
}

// ParseLIDs reads opensm's cache guid2lid: lines with a port GUID, its first and its last LID. The
// first line of a port counts, and the first of those with the same first LID, or with a LID of
// another port, as after opensm's LMC was lowered. Mistakes are as with ParseList.
func ParseLIDs(file string, b []byte) (out []LIDs, err error) {
	type place struct{ line, col int }
	var places []place
	ports, first := map[ib.GUID]int{}, map[ib.LID]int{} // the lines that have them
	m := mistakes{file: file}
	m.read(b, 3, "a port GUID, its first and its last LID", func(l *line) {
		x := LIDs{GUID: l.guid(0), LID: l.lid(1)}
		last := l.lid(2)
		if x.GUID == 0 || x.LID == 0 || last == 0 {
			return
		}
		n := int(last) - int(x.LID) + 1
		for x.LMC < 7 && x.LMC.Count() < n {
			x.LMC++
		}
		switch {
		case n != x.LMC.Count() || int(x.LID)%n != 0:
			l.fail(1, "LIDs %d to %d are not a range of 1, 2, 4 to 128 LIDs that begins at a multiple of their number", x.LID, last)
		case ports[x.GUID] != 0:
			l.fail(0, "port %v has LIDs in line %d already", x.GUID, ports[x.GUID])
		case first[x.LID] != 0:
			l.fail(1, "LID %d belongs to the port of line %d already", x.LID, first[x.LID])
		default:
			ports[x.GUID], first[x.LID] = l.n, l.n
			out, places = append(out, x), append(places, place{l.n, l.col[1]})
		}
	})
	// Of two such ranges with a LID in common one has the first LID of the other.
	for i := range out {
		x := &out[i]
		for k := 1; k < x.LMC.Count(); k++ {
			if other := x.LID + ib.LID(k); first[other] != 0 {
				m.add(places[i].line, places[i].col, "of LIDs %d to %d only the first is used: LID %d belongs to the port of line %d", x.LID,
					int(x.LID)+x.LMC.Count()-1, other, first[other])
				x.LMC = 0
			}
		}
	}
	return out, m.err()
}

// PrefixRoute is the router for GIDs of other subnets.
type PrefixRoute struct {
	Prefix uint64  // of the GIDs, 0 for any
	Router ib.GUID // of a router's port, 0 for any router
}

// ParsePrefixRoutes reads lines with the prefix of GIDs and a router's port GUID, in
// hexadecimal with or without 0x; * and 0 are any. What follows is ignored. Mistakes are
// as with ParseList.
func ParsePrefixRoutes(file string, b []byte) (out []PrefixRoute, err error) {
	m := mistakes{file: file}
	m.read(b, 2, "a prefix of GIDs and the port GUID of a router; * is any", func(l *line) {
		prefix, ok := l.hex(0, "prefix")
		guid, ok2 := l.hex(1, "GUID")
		if ok && ok2 {
			out = append(out, PrefixRoute{prefix, ib.GUID(guid)})
		}
	})
	return out, m.err()
}

// mistakes are those of a file, of which maxErrors are kept.
type mistakes struct {
	file string
	errs []error
	more int
}

func (m *mistakes) add(line, col int, format string, args ...any) {
	if len(m.errs) == maxErrors {
		m.more++
		return
	}
	m.errs = append(m.errs, &ib.FileError{File: m.file, Line: line, Col: col, Msg: fmt.Sprintf(format, args...)})
}

// err is all of them, nil for none.
func (m *mistakes) err() error {
	if m.more > 0 {
		return errors.Join(append(m.errs, fmt.Errorf("%s: %d more mistakes", m.file, m.more))...)
	}
	return errors.Join(m.errs...)
}

// line is the words of a line, with the columns that they begin at.
type line struct {
	*mistakes
	n    int
	word []string
	col  []int
}

// fail reports a mistake at a word.
func (l *line) fail(word int, format string, args ...any) {
	l.add(l.n, l.col[word], format, args...)
}

// guid is the GUID of a word, 0 after a mistake.
func (l *line) guid(word int) ib.GUID {
	g, err := ib.ParseGUID(l.word[word])
	switch {
	case err != nil:
		l.fail(word, "%v", err)
		return 0
	case g == 0:
		l.fail(word, "0 is not a GUID")
	}
	return g
}

// hex is the hexadecimal number of a word; 0 for *.
func (l *line) hex(word int, what string) (uint64, bool) {
	text := l.word[word]
	if text == "*" {
		return 0, true
	}
	n, err := strconv.ParseUint(strings.TrimPrefix(strings.ToLower(text), "0x"), 16, 64)
	if err != nil {
		l.fail(word, "%q is not a %s such as 0xfec0000000000001, nor *", ib.Clip(text), what)
		return 0, false
	}
	return n, true
}

// number is the number of a word, 1 to most, 0 after a mistake.
func (l *line) number(word int, what string, most uint8) uint8 {
	n, err := strconv.ParseUint(l.word[word], 0, 8)
	if err != nil || n == 0 || n > uint64(most) {
		l.fail(word, "%q is not %s from 1 to %d", ib.Clip(l.word[word]), what, most)
		return 0
	}
	return uint8(n)
}

// lid is the unicast LID of a word, 0 after a mistake.
func (l *line) lid(word int) ib.LID {
	n, err := strconv.ParseUint(l.word[word], 0, 16)
	if err != nil || !ib.LID(n).IsUnicast() {
		l.fail(word, "%q is not a unicast LID, 1 to %#04x", ib.Clip(l.word[word]), uint16(ib.LIDUnicastMax))
		return 0
	}
	return ib.LID(n)
}

// read calls entry for each line that has words; fewer than wanted are a mistake.
func (m *mistakes) read(b []byte, words int, want string, entry func(*line)) {
	if len(b) > MaxFileSize {
		m.add(1, 1, "the file has %d bytes; at most %d are read", len(b), MaxFileSize)
		return
	}
	l := line{mistakes: m}
	for text := range strings.Lines(string(b)) {
		l.n++
		text, _, _ = strings.Cut(text, "#")
		l.word = strings.Fields(text)
		if len(l.word) == 0 {
			continue
		}
		l.col = l.col[:0]
		for at, i := 0, 0; i < len(l.word) && i < words; i++ {
			at += strings.Index(text[at:], l.word[i])
			l.col = append(l.col, at+1)
			at += len(l.word[i])
		}
		if len(l.word) < words {
			l.fail(len(l.word)-1, "want %s", want)
			continue
		}
		entry(&l)
	}
}
