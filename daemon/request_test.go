package daemon

import (
	"testing"

	"ibnetworkd/link"
)

// What is left of an address's lifetimes when it is set.
func TestLifetimes(t *testing.T) {
	for _, c := range []struct {
		valid, preferred uint32
		until, now       uint64
		wantValid, want  uint32
	}{
		{3600, 1800, 4600, 1000, 3600, 1800},
		{3600, 1800, 4600, 2000, 2600, 800},
		{3600, 1800, 4600, 3000, 1600, 0},
		{3600, 1800, 4600, 4600, 1, 0},
		{3600, 3600, 4600, 5000, 1, 1},
		{3600, 0, 4600, 1000, 3600, 0},
		{link.Forever, 1800, 2800, 1000, link.Forever, 1800},
		{link.Forever, 1800, 2800, 2000, link.Forever, 800},
		{link.Forever, 1800, 2800, 3000, link.Forever, 0},
		{link.Forever, 0, 1000, 1000, link.Forever, 0},
	} {
		valid, preferred := lifetimes(link.Address{Valid: c.valid, Preferred: c.preferred, Until: c.until}, c.now)
		if valid != c.wantValid || preferred != c.want {
			t.Errorf("%+v: %d %d", c, valid, preferred)
		}
	}
}
