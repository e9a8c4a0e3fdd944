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
	"ibnetworkd/sm/fabric"
)

// MaxFileSize bounds a file in bytes.
const MaxFileSize = 8 << 20

// maxErrors bounds the mistakes of a file that are reported.
const maxErrors = 20

// Weight is what a hop by a port of a switch counts in the length of a path.
type Weight struct {
	Switch ib.GUID
	Port   uint8
	Hops   uint8
}

// Check is the mistake of a file that the setting named key, of [SubnetManager], names.
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

// ParseList reads GUIDs, one on a line; # begins a comment. All mistakes are returned
// together, as *fabric.TextError; a file with one must not be applied.
func ParseList(file string, b []byte) (out []ib.GUID, err error) {
	err = read(file, b, 1, "one GUID on the line; # begins a comment", func(l *line) {
		if g := l.guid(0); g != 0 {
			out = append(out, g)
		}
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// ParseWeights reads lines with the GUID of a switch, the number of one of its ports,
// and the weight of a hop by it, 1 to 255. Mistakes are as with ParseList.
func ParseWeights(file string, b []byte) (out []Weight, err error) {
	type port struct {
		sw  ib.GUID
		num uint8
	}
	seen := map[port]int{}
	err = read(file, b, 3, "the GUID of a switch, a port number and a weight", func(l *line) {
		w := Weight{l.guid(0), l.number(1, "a port number", 254), l.number(2, "a weight", 255)}
		if w.Switch == 0 || w.Port == 0 || w.Hops == 0 {
			return
		}
		p := port{w.Switch, w.Port}
		if was := seen[p]; was != 0 {
			l.fail(0, "port %d of switch %v has a weight in line %d already", w.Port, w.Switch, was)
			return
		}
		seen[p] = l.n
		out = append(out, w)
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// LIDs are those of a port: 1<<LMC from LID on.
type LIDs struct {
	GUID ib.GUID
	LID  ib.LID
	LMC  ib.LMC
}

// ParseLIDs reads opensm's cache guid2lid, lines with a port GUID, its first and its last
// LID. No port may come twice, and no LID belong to two. Mistakes are as with ParseList.
func ParseLIDs(file string, b []byte) (out []LIDs, err error) {
	ports := map[ib.GUID]int{}
	lids := make([]int, int(ib.LIDUnicastMax)+1) // by LID: the line that has it
	err = read(file, b, 3, "a port GUID, its first and its last LID", func(l *line) {
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
			l.fail(1, "LIDs %d to %d are no range of 1, 2, 4 to 128 LIDs that begins at a multiple of their number", x.LID, last)
			return
		case ports[x.GUID] != 0:
			l.fail(0, "port %v has LIDs in line %d already", x.GUID, ports[x.GUID])
			return
		}
		for i := range n {
			if was := lids[int(x.LID)+i]; was != 0 {
				l.fail(1, "LID %d belongs to the port of line %d already", int(x.LID)+i, was)
				return
			}
		}
		ports[x.GUID] = l.n
		for i := range n {
			lids[int(x.LID)+i] = l.n
		}
		out = append(out, x)
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// PrefixRoute is the router for GIDs of other subnets.
type PrefixRoute struct {
	Prefix uint64  // of the GIDs, 0 for any
	Router ib.GUID // of a router's port, 0 for any router
}

// ParsePrefixRoutes reads lines with the prefix of GIDs and a router's port GUID, in
// hexadecimal with or without 0x; * is any. Mistakes are as with ParseList.
func ParsePrefixRoutes(file string, b []byte) (out []PrefixRoute, err error) {
	err = read(file, b, 2, "a prefix of GIDs and the port GUID of a router; * is any", func(l *line) {
		prefix, ok := l.hex(0, "prefix")
		guid, ok2 := l.hex(1, "GUID")
		if ok && ok2 {
			out = append(out, PrefixRoute{prefix, ib.GUID(guid)})
		}
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// line is the words of a line, with the columns that they begin at.
type line struct {
	file string
	n    int
	word []string
	col  []int
	errs *[]error
}

// fail reports a mistake at a word.
func (l *line) fail(word int, format string, args ...any) {
	*l.errs = append(*l.errs, &fabric.TextError{File: l.file, Line: l.n, Col: l.col[word], Msg: fmt.Sprintf(format, args...)})
}

// guid is the GUID of a word, 0 after a mistake.
func (l *line) guid(word int) ib.GUID {
	g, err := ib.ParseGUID(l.word[word])
	switch {
	case err != nil:
		l.fail(word, "%v", err)
		return 0
	case g == 0:
		l.fail(word, "0 is no GUID")
	}
	return g
}

// hex is the hexadecimal number of a word other than 0; 0 for *.
func (l *line) hex(word int, what string) (uint64, bool) {
	text := l.word[word]
	if text == "*" {
		return 0, true
	}
	n, err := strconv.ParseUint(strings.TrimPrefix(strings.ToLower(text), "0x"), 16, 64)
	if err != nil || n == 0 {
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

// read calls entry for each line that has words, all of which have to have the same
// number of them.
func read(file string, b []byte, words int, want string, entry func(*line)) error {
	if len(b) > MaxFileSize {
		return &fabric.TextError{File: file, Line: 1, Col: 1, Msg: fmt.Sprintf("the file has %d bytes; at most %d are read", len(b), MaxFileSize)}
	}
	var errs []error
	l := line{file: file, errs: &errs}
	for text := range strings.Lines(string(b)) {
		l.n++
		if len(errs) >= maxErrors {
			break
		}
		text, _, _ = strings.Cut(text, "#")
		l.word = strings.Fields(text)
		if len(l.word) == 0 {
			continue
		}
		l.col = l.col[:0]
		for at, i := 0, 0; i < len(l.word) && i <= words; i++ {
			at += strings.Index(text[at:], l.word[i])
			l.col = append(l.col, at+1)
			at += len(l.word[i])
		}
		if len(l.word) != words {
			l.fail(min(len(l.word)-1, words), "want %s", want)
			continue
		}
		entry(&l)
	}
	return errors.Join(errs...)
}
