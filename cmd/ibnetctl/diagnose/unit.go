package diagnose

import (
	"cmp"
	"path"
	"slices"
	"strings"

	"ibnetworkd/ib"
	"ibnetworkd/link"
	"ibnetworkd/units"
)

// codeUnitProblem marks a mistake in a unit file.
const codeUnitProblem link.Code = "unit-problem"

// unitChains is a chain for each file with mistakes: of all units, or of the
// one named. The chain of a named unit without a mistake has that as well.
func unitChains(in Input) []Chain {
	if in.Units == nil {
		return nil
	}
	var out []Chain
	at := map[string]int{}
	chain := func(file string) *Chain {
		i, ok := at[file]
		if !ok {
			i = len(out)
			at[file] = i
			out = append(out, Chain{On: path.Base(file)})
		}
		return &out[i]
	}
	problems := in.Units.Problems
	if in.Unit != "" {
		u := in.Units.Unit(in.Unit)
		if u == nil {
			return nil
		}
		problems = u.Problems
		chain(u.Path)
	}
	for _, p := range problems {
		c := chain(p.Pos.File)
		r, text := Warn, p.Message
		if p.Severity == units.Error {
			r = Fail
		}
		if p.Kept != "" {
			text += "; " + p.Kept
		}
		name := cmp.Or(p.Key, "unit file")
		c.Checks = append(c.Checks, Check{Name: name, Result: r, Code: codeUnitProblem, Text: p.Pos.String() + ": " + text,
			Next: editCommand(p.Pos.File)})
	}
	if in.Unit != "" && len(problems) == 0 {
		c := &out[0]
		c.Checks = append(c.Checks, Check{Name: "unit file", Result: OK, Text: "no errors"})
	}
	return out
}

// editCommand opens a unit or a drop-in, whose directory is named after its unit.
func editCommand(file string) string {
	if unit, ok := strings.CutSuffix(path.Base(path.Dir(file)), ".d"); ok && strings.HasSuffix(file, ".conf") {
		return "ibnetctl edit " + unit + " --drop-in " + path.Base(file)
	}
	return "ibnetctl edit " + path.Base(file)
}

// ofUnit reports whether the unit applies to the port or to a link over it.
func (w *walker) ofUnit(u *units.Unit) bool {
	return w.unit() == u || slices.ContainsFunc(w.in.Report.Links, func(s link.Status) bool {
		return s.IBDevice == w.d.Name && s.Port == w.p.Num && s.Unit != "" && w.in.Units.Unit(path.Base(s.Unit)) == u
	})
}

// unwanted reports whether no unit applies to the port or a link over it. A port that
// is asked for by name is wanted.
func (w *walker) unwanted() bool {
	return !w.in.All && !w.named && w.unit() == nil && !slices.ContainsFunc(w.in.Report.Links, func(s link.Status) bool {
		return s.IBDevice == w.d.Name && s.Port == w.p.Num && governed(&s)
	}) && !slices.ContainsFunc(w.in.Report.Ports, func(s link.PortStatus) bool {
		return s.IBDevice == w.d.Name && s.Port == w.p.Num && s.Unit != ""
	})
}

// idle reports whether the port is unwanted and another program uses it neither: all
// its links are down.
func (w *walker) idle() bool {
	return w.unwanted() && !slices.ContainsFunc(w.links, (*link.Link).Up)
}

// spare reports whether the port is unwanted and has no cable: nothing is missing then.
func (w *walker) spare() bool {
	if !w.unwanted() {
		return false
	}
	if w.p.Layer == ib.LinkLayerEthernet {
		return w.p.State != ib.PortActive
	}
	switch w.p.Phys {
	case ib.PhysPolling, ib.PhysSleep, ib.PhysDisabled:
		return true
	}
	return false
}
