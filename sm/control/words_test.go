package control_test

import (
	"testing"

	"ibnetworkd/sm/control"
)

// One sentence describes tables wherever they are shown.
func TestWords(t *testing.T) {
	for want, r := range map[string]control.Routing{
		"none yet": {},
		"ftree":    {InForce: "ftree", Layers: 1},
		"updn on 2 service levels, busiest link 1854 pairs of hosts, 600 at best; not ftree: rings": {InForce: "updn", Layers: 2,
			BusiestLink: 1854, AtBest: 600, WhyNotTree: "rings"},
	} {
		if got := r.Words(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
