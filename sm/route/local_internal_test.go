package route

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// The first of the links with the least load is found while loads change.
func TestLightest(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	var tree lightest
	for n := 1; n <= 254; n++ {
		load, links := make([]int64, 300), make([]int32, n)
		for i := range load {
			load[i] = rnd.Int64N(20)
		}
		for i := range links {
			links[i] = int32(i + 40)
		}
		tree.of(links, load)
		for range 50 {
			at, least := tree.first()
			if own := load[40 : 40+n]; least != slices.Min(own) || at != slices.Index(own, least) {
				t.Fatalf("place %d with %d of %v", at, least, own)
			}
			at = rnd.IntN(n)
			load[40+at] = rnd.Int64N(20)
			tree.set(at, load[40+at])
		}
	}
}
