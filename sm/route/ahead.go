package route

const (
	// aheadGroups is from how many groups of links on candidates are found ahead, and
	// aheadBatch for how many destinations at a time, so that there are few switches
	// between goroutines.
	aheadGroups = 4096
	aheadBatch  = 4
)

// towards calls f for the switches of a list, with c their candidates, until f is false. On
// large graphs another goroutine finds the next ones while f works; the engine is in use there.
func (a *assignment) towards(list []int32, f func(d int32) bool) {
	known, ok := a.engine.(*remembered)
	if !a.ahead || len(a.peer) < aheadGroups || ok && known.knows(list) {
		for _, d := range list {
			a.c.reset()
			a.engine.towards(d, a.c)
			if !f(d) {
				return
			}
		}
		return
	}
	for len(a.batches) < 2 {
		batch := make([]*candidates, aheadBatch)
		for i := range batch {
			batch[i] = newCandidates(a.graph)
		}
		a.batches = append(a.batches, batch)
	}
	free, full := make(chan []*candidates, len(a.batches)), make(chan []*candidates, len(a.batches))
	for _, batch := range a.batches {
		free <- batch
	}
	go func() {
		defer close(full)
		rest := list
		for batch := range free {
			n := min(len(batch), len(rest))
			for i, d := range rest[:n] {
				batch[i].reset()
				a.engine.towards(d, batch[i])
			}
			full <- batch[:n]
			if rest = rest[n:]; len(rest) == 0 {
				return
			}
		}
	}()
	own := a.c
	defer func() {
		a.c = own
		close(free)
		for range full { // until the engine is no longer in use
		}
	}()
	for batch := range full {
		for i, c := range batch {
			a.c = c
			if !f(list[i]) {
				return
			}
		}
		list = list[len(batch):]
		free <- batch[:aheadBatch]
	}
}
