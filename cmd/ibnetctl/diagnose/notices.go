package diagnose

import (
	"path"
	"slices"
)

// withNotices adds what is reported of units and of the host as a whole: to the chain of
// the unit or of the host, which is added where there is none. Of a named unit only its
// own are added.
func withNotices(in Input, chains []Chain) []Chain {
	unit := ""
	if in.Unit != "" {
		unit = in.Units.Unit(in.Unit).Path
	}
	for _, n := range in.Report.Notices {
		if unit != "" && n.Unit != unit {
			continue
		}
		on, name := "host", "host"
		if n.Unit != "" {
			on, name = path.Base(n.Unit), "unit file"
		}
		i := slices.IndexFunc(chains, func(c Chain) bool { return c.On == on })
		if i < 0 {
			i = len(chains)
			chains = append(chains, Chain{On: on})
		}
		chains[i].Checks = append(chains[i].Checks, Check{Name: name, Result: Warn, Code: n.Code, Text: n.Text, Next: n.Next})
	}
	return chains
}
