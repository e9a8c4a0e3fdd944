package route

import "math/rand/v2"

const (
	// fewHosts is up to how many hosts an order is judged by the tables that it gives: with
	// few flows it counts that those to one LID do not split, as fluid takes them to.
	fewHosts = 16
	// fewSteps is how many switches are moved in vain before the search ends.
	fewSteps = 300
)

// fewOrder improves an order, for as long as that gives tables whose busiest link has fewer
// flows. What it returns is not improved by a search from there: tables in force stay.
func (b *builder) fewOrder(pos []int32) []int32 {
	bound, work := b.bound(), 1
	judge := func(pos []int32) (worst int64, sum float64) {
		a, worst := b.balanced(newUpDown(b.graph, pos), 0, bound)
		for _, n := range a.load {
			v := float64(n) / 16
			sum += v * v * v * v * v * v
		}
		work = maxPasses * a.work
		return worst, sum
	}
	worst, sum := judge(pos)
	steps := min(fewSteps, searchWork/max(1, work))
	for found := true; found && worst > bound; {
		found = false
		rank, least := make([]float64, b.n), sum
		for s, at := range pos {
			rank[s] = float64(at)
		}
		rnd := rand.New(rand.NewPCG(uint64(b.n), uint64(len(b.port))))
		for range steps {
			s := rnd.IntN(b.n)
			was := rank[s]
			rank[s] = rnd.Float64() * float64(b.n)
			p := b.connectedOrder(rank)
			w, v := judge(p)
			if w < worst {
				pos, worst, sum, found = p, w, v, true
				break
			}
			if v <= least {
				least = v
			} else {
				rank[s] = was
			}
		}
	}
	return pos
}
