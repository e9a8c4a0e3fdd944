package main

import (
	"context"
	"fmt"
	"strings"

	"ibnetworkd/daemon/bus/api"
	"ibnetworkd/link"
	"ibnetworkd/units"
)

// patternHelp is what commands that take names say of patterns.
const patternHelp = "A name may be a shell pattern such as 'ib*', which matches the links that ibnetctl list shows"

// isPattern reports whether an argument is a shell pattern.
func isPattern(s string) bool { return strings.ContainsAny(s, "*?[") }

// fitting are the links that a pattern stands for: those that concern us, so that
// `down '*'` does not take the host off its other networks.
func fitting(links []link.Status, pattern string) (out []link.Status) {
	for _, l := range ours(links) {
		if (units.Pattern{Glob: pattern}).Hits(l.Name) {
			out = append(out, l)
		}
	}
	return out
}

func fittingPorts(d *api.Description, pattern string) (out []link.PortStatus) {
	for _, p := range d.Ports {
		if (units.Pattern{Glob: pattern}).Hits(fmt.Sprintf("%s/%d", p.IBDevice, p.Port)) {
			out = append(out, p)
		}
	}
	return out
}

// expand replaces patterns by the names of links.
func (c *client) expand(ctx context.Context, args []string) (names []string, missing []error) {
	var d *api.Description
	for _, n := range args {
		if !isPattern(n) {
			names = append(names, n)
			continue
		}
		if d == nil {
			var err error
			if d, err = c.describe(ctx); err != nil {
				return nil, []error{err}
			}
		}
		hits := fitting(d.Links, n)
		if len(hits) == 0 {
			missing = append(missing, noLink(n))
		}
		for _, l := range hits {
			names = append(names, l.Name)
		}
	}
	return unique(names, func(s string) string { return s }), missing
}

// unique keeps the first of each name.
func unique[T any](all []T, name func(T) string) []T {
	seen := map[string]bool{}
	out := all[:0:0]
	for _, x := range all {
		if n := name(x); !seen[n] {
			seen[n] = true
			out = append(out, x)
		}
	}
	return out
}
